/* inject.h: fails one call that the copyrpc library makes: of the allocator, the system, libibverbs,
 * librdmacm or libmlx5; and counts what the library holds of them.
 *
 * The functions are defined in this program, which the loader searches first; each looks at its caller,
 * and passes on to the next definition, of simnic or of the library that it is from. */
#ifndef CAPI_TESTS_FAULTS_INJECT_H
#define CAPI_TESTS_FAULTS_INJECT_H

#include <stdbool.h>
#include <stdint.h>

/* What was made and not destroyed. Threads and descriptors are the process's, the rest the library's. */
struct inject_held {
    int64_t blocks; /* of malloc and its like */
    int64_t mapped; /* bytes of mmap */
    int64_t contexts, domains, regions, completion_queues, receive_queues, queue_pairs, channels;
    int64_t event_channels, identifiers, windows;
    int64_t descriptors, threads;
};

/* Must be called once, before all else. `name` becomes the name of the call that fails. */
void inject_init(const char *_Atomic *name);

/* From now on, the call number `number` that the library makes fails, from 1; 0: none. */
void inject_arm(uint64_t number);

/* No call fails from now on. */
void inject_disarm(void);

/* The name of the one that has failed since inject_arm; NULL: there were fewer. */
const char *inject_failed(void);

void inject_count(struct inject_held *held);

/* Returns the name of what there is more of now than before; NULL: there is nothing more. */
const char *inject_leak(const struct inject_held *before, const struct inject_held *now,
                        int64_t *more);

#endif
