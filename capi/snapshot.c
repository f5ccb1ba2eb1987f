/* snapshot.c: what a context tells copyrpc-top. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/snapshot.h"
#include "cm/cm.h"
#include "private/context.h"

static void *snapshot(void *argument, size_t *bytes)
{
    const struct crpc_context *context = argument;
    uint32_t capacity = rpc_engine_endpoints(context->engine);
    capacity = capacity < SNAPSHOT_ENDPOINTS_MAX ? capacity : SNAPSHOT_ENDPOINTS_MAX;
    struct snapshot_context *made =
        malloc(sizeof(*made) + capacity * sizeof(struct snapshot_endpoint));
    if (!made) {
        return NULL;
    }
    crpc_stats stats;
    rpc_engine_stats(context->engine, &stats);
    *made = (struct snapshot_context){
        .magic = SNAPSHOT_MAGIC,
        .version = SNAPSHOT_VERSION,
        .context_bytes = sizeof(*made),
        .endpoint_bytes = sizeof(struct snapshot_endpoint),
        .endpoints_max = rpc_engine_endpoints_max(context->engine),
        .queues = context->queues ? queue_engine_queues(context->queues) : 0,
        .port = context->nic->port,
        .time_ns = clock_now_ns(),
        .polls = stats.polls,
        .polls_empty = stats.polls_empty,
    };
    _Static_assert(sizeof(made->device) == sizeof(context->nic->device),
                   "both are names of devices");
    memcpy(made->device, context->nic->device, sizeof(made->device));
    strncpy(made->driver, context->nic->operations->name, sizeof(made->driver) - 1);
    made->records = rpc_snapshot(context->engine, (struct snapshot_endpoint *)(made + 1), capacity,
                                 &made->endpoints);
    *bytes = sizeof(*made) + made->records * sizeof(struct snapshot_endpoint);
    return made;
}

void context_tell(struct crpc_context *context)
{
    const char *wanted = getenv("COPYRPC_TOP");
    crpc_error failure = {0};
    if (!context->cm || (wanted && strcmp(wanted, "0") == 0)) {
        return;
    }
    if (cm_tell_start(context->cm, snapshot, context, &failure) != CRPC_OK) {
        log_write(&context->log, CRPC_LOG_WARNING, "copyrpc-top will not see this context: %s",
                  failure.message);
    }
}
