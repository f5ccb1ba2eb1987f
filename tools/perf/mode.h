/* mode.h: what belongs to calls, to channels and to queues, on the command line. */
#ifndef TOOLS_PERF_MODE_H
#define TOOLS_PERF_MODE_H

#include "perf.h"

#define MODE_CALLS 0x1u
#define MODE_CHANNELS 0x2u
#define MODE_QUEUES 0x4u

/* The keys of options that have no letter. */
enum {
    OPTION_JSON = 256,
    OPTION_DEMO,
    OPTION_PROGRESS,
    OPTION_WARMUP,
    OPTION_TIMEOUT,
    OPTION_WAIT,
    OPTION_RING,
    OPTION_KEY,
    OPTION_REGION,
    OPTION_ARENA,
    OPTION_INITIATORS,
    OPTION_THREADS,
    OPTION_CHANNELS,
    OPTION_GROUP,
    OPTION_QUEUE_PAIRS,
    OPTION_SPLIT,
    OPTION_RAILS,
    OPTION_ONE_RAIL,
    OPTION_STRIPE_MIN,
    OPTION_BOTH,
    OPTION_VERIFY,
    OPTION_QUEUES,
    OPTION_WRITE,
    OPTION_READ,
    OPTION_SEND,
    OPTION_ATOMIC,
    OPTION_LATENCY,
    OPTION_INLINE,
    OPTION_DATAGRAMS,
    OPTION_DC,
    OPTION_STREAMS,
    OPTION_TARGETS,
    OPTION_TAG,
    OPTION_GID_INDEX,
    OPTION_TRAFFIC_CLASS,
    OPTION_SERVICE_LEVEL,
    OPTION_PARTITION_KEY,
    OPTION_RETRY_TIMEOUT,
};

/* Notes that an option was given. */
void mode_note(uint64_t *given, int key);
bool mode_given(uint64_t given, int key);
/* Returns MODE_* of what was asked for. */
uint32_t mode_of(const struct perf_options *options);
/* Returns NULL, or why the options that were given do not belong to this mode, in a static buffer. */
const char *mode_check(uint64_t given, uint32_t mode);
/* Sets what was left open for queues. Returns NULL, or what does not go together. */
const char *mode_finish_queues(struct perf_options *options, uint64_t given, bool server);

#endif
