/* copyin.h: the rules for all sized structs: see "Sized structs" in copyrpc.h. They are the rules
 * of Linux's extensible-struct system calls (copy_struct_from_user).
 */
#ifndef CAPI_COPYIN_H
#define CAPI_COPYIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/abi.h"

/* No struct will ever be longer. A larger struct_size is a mistake of the caller. */
#define COPYIN_BYTES_MAX 4096

/* Fills `ours`, which has our_bytes bytes, from the caller's struct, which may be NULL (all
 * defaults). version1_bytes is the size of the struct in its first release. `name` is for messages.
 * Returns CRPC_OK, or fills *error and returns its status. */
int32_t copyin(void *ours, size_t our_bytes, size_t version1_bytes, const void *theirs,
               const char *name, crpc_error *error);

/* Returns CRPC_OK if the caller's struct is large enough to be written. */
int32_t copyout_check(const void *theirs, size_t version1_bytes);
/* Writes as much of `ours` as the caller's struct can hold, and sets its struct_size to that. */
void copyout(void *theirs, const void *ours, size_t our_bytes);

/* Ends every function with a crpc_error: copies `ours` to the caller if status is a failure.
 * Returns status. */
int32_t give_error(crpc_error *theirs, const crpc_error *ours, int32_t status);

/* Begins every function with a crpc_error. Returns false if the caller's struct cannot be used. */
bool error_usable(const crpc_error *theirs);

/* Sizes in the first release. They never change, even if a struct grows. */
#define VERSION1_BYTES_error 256
#define VERSION1_BYTES_device_info 136
#define VERSION1_BYTES_context_options 104
#define VERSION1_BYTES_context_info 152
#define VERSION1_BYTES_stats 184
#define VERSION1_BYTES_endpoint_options 80
#define VERSION1_BYTES_endpoint_info 200
#define VERSION1_BYTES_listener_options 24
#define VERSION1_BYTES_listener_info 96
#define VERSION1_BYTES_region_info 32
#define VERSION1_BYTES_cache_info 56
#define VERSION1_BYTES_rail_info 152
#define VERSION1_BYTES_channel_options 160
#define VERSION1_BYTES_channel_info 200
#define VERSION1_BYTES_channel_stats 192
#define VERSION1_BYTES_queue_options 272
#define VERSION1_BYTES_queue_address 40
#define VERSION1_BYTES_queue_change 40
#define VERSION1_BYTES_queue_info 400
#define VERSION1_BYTES_queue_stats 40
#define VERSION1_BYTES_target_options 16
#define VERSION1_BYTES_grant_info 32
#define VERSION1_BYTES_method_metrics 488

#define COPYIN(ours, theirs, type, error)                                                          \
    copyin((ours), sizeof(crpc_##type), VERSION1_BYTES_##type, (theirs), "crpc_" #type, (error))
#define COPYOUT_CHECK(theirs, type) copyout_check((theirs), VERSION1_BYTES_##type)
#define COPYOUT(theirs, ours, type) copyout((theirs), (ours), sizeof(crpc_##type))

/* The body of crpc_NOUN_get_info and similar functions: fill(object, &ours) describes the object.
 * The expression `object` looks it up, and is evaluated only if the other arguments are valid. */
#define COPYOUT_OF(context, object, theirs, type, fill)                                            \
    ({                                                                                             \
        int32_t copyout_status = CRPC_E_INVALID;                                                   \
        if ((context) && COPYOUT_CHECK(theirs, type) == CRPC_OK) {                                 \
            const void *copyout_object = (object);                                                 \
            copyout_status = copyout_object ? CRPC_OK : CRPC_E_STALE;                              \
            if (copyout_object) {                                                                  \
                crpc_##type copyout_ours = {0};                                                    \
                fill(copyout_object, &copyout_ours);                                               \
                COPYOUT(theirs, &copyout_ours, type);                                              \
            }                                                                                      \
        }                                                                                          \
        copyout_status;                                                                            \
    })

#endif
