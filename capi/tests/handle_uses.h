/* handle_uses.h: every function that takes a handle, with arguments that would be good. */
#ifndef CAPI_TESTS_HANDLE_USES_H
#define CAPI_TESTS_HANDLE_USES_H

#include <stddef.h>
#include <stdint.h>

#include "copyrpc.h"

/* Calls it with the handle that has these bits. Returns what the function does, or the reason. */
typedef int32_t use(crpc_context *context, uint64_t bits);

struct uses {
    use *const *list;
    size_t count;
};

extern const struct uses endpoint_uses, listener_uses, region_uses, channel_uses, queue_uses,
    target_uses, grant_uses;

/* The test's: not connected, one of each context. */
extern crpc_channel left_channel, right_channel;

#endif
