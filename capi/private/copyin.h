/* copyin.h: the rules of sized structs, for all of them, in one place. They are those of Linux's
 * extensible-struct system calls (copy_struct_from_user): see "Sized structs" in copyrpc.h.
 */
#ifndef CAPI_COPYIN_H
#define CAPI_COPYIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/abi.h"

/* No struct is ever longer; a larger struct_size was never set by a program that knew what it
 * did. */
#define COPYIN_BYTES_MAX 4096

/* Fills `ours` (our_bytes long) from the caller's struct, which may be NULL (all defaults).
 * version1_bytes is the length that the struct had when it was first released. */
int32_t copyin(void *ours, size_t our_bytes, size_t version1_bytes, const void *theirs,
               const char *name, crpc_error *error);

/* CRPC_OK if the caller's struct can be written to. */
int32_t copyout_check(const void *theirs, size_t version1_bytes);
/* Writes as much of `ours` as the caller has room for, and how much that was. */
void copyout(void *theirs, const void *ours, size_t our_bytes);

/* For functions with a crpc_error: copies `ours` out if status is a failure; returns status. */
int32_t give_error(crpc_error *theirs, const crpc_error *ours, int32_t status);

/* Begins every function with a crpc_error: false if the caller's cannot be used. */
bool error_usable(const crpc_error *theirs);

/* Lengths at first release. They never change; a struct that grows keeps its line. */
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

#define COPYIN(ours, theirs, type, error)                                                          \
    copyin((ours), sizeof(crpc_##type), VERSION1_BYTES_##type, (theirs), "crpc_" #type, (error))
#define COPYOUT_CHECK(theirs, type) copyout_check((theirs), VERSION1_BYTES_##type)
#define COPYOUT(theirs, ours, type) copyout((theirs), (ours), sizeof(crpc_##type))

#endif
