/* snapshot.c: what endpoints tell copyrpc-top (base/snapshot.h). */
#include "base/snapshot.h"
#include "rpc/internal.h"

static void fill(const struct rpc_endpoint *endpoint, struct snapshot_endpoint *record)
{
    crpc_endpoint_info info;
    crpc_stats stats;
    rpc_endpoint_info(endpoint, &info);
    rpc_endpoint_stats(endpoint, &stats);
    *record = (struct snapshot_endpoint){
        .handle = endpoint->link.handle,
        .made_ns = endpoint->link.made_ns,
        .state = info.state,
        .calls_open = info.calls_open,
        .calls_max = info.calls_max,
        .requests_open = info.requests_open,
        .window_left = (uint32_t)(endpoint->out.batch_limit - endpoint->out.batches_sent),
        .calls = stats.calls,
        .responses = stats.responses,
        .calls_failed = stats.calls_failed,
        .requests = stats.requests,
        .replies = stats.replies,
        .late_responses = stats.late_responses,
        .batches_sent = stats.batches_sent,
        .batches_received = stats.batches_received,
        .bytes_sent = stats.bytes_sent,
        .bytes_received = stats.bytes_received,
        .refused = stats.refused,
        .mailbox_reads = stats.mailbox_reads,
        .protocol_errors = stats.protocol_errors,
    };
    static_assert(sizeof(record->peer) == sizeof(info.peer_address) &&
                      sizeof(record->local) == sizeof(info.local_address),
                  "both are addresses");
    memcpy(record->peer, info.peer_address, sizeof(record->peer));
    memcpy(record->local, info.local_address, sizeof(record->local));
}

uint32_t rpc_snapshot(const struct rpc_engine *engine, struct snapshot_endpoint *records,
                      uint32_t capacity, uint32_t *all)
{
    uint32_t count = 0;
    *all = 0;
    const struct rpc_endpoint *endpoint = NULL;
    while ((endpoint = rpc_engine_next(engine, endpoint)) != NULL) {
        if (endpoint->link.closed) {
            continue;
        }
        if (count < capacity) {
            fill(endpoint, &records[count++]);
        }
        (*all)++;
    }
    return count;
}
