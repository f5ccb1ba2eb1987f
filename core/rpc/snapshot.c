/* snapshot.c: what endpoints tell copyrpc-top (base/snapshot.h). */
#include "base/snapshot.h"
#include "rpc/internal.h"

static void fill(const struct rpc_endpoint *endpoint, struct snapshot_endpoint *record)
{
    const struct link *link = &endpoint->link;
    crpc_stats stats;
    rpc_endpoint_stats(endpoint, &stats);
    *record = (struct snapshot_endpoint){
        .handle = link->handle,
        .made_ns = link->made_ns,
        .state = link->state,
        .calls_open = endpoint->calls.live,
        .calls_max = endpoint->calls.max,
        .requests_open = endpoint->owed.count,
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
    link_addresses(link, record->peer, sizeof(record->peer), record->local, sizeof(record->local));
}

uint32_t rpc_snapshot(const struct rpc_engine *engine, struct snapshot_endpoint *records,
                      uint32_t capacity, uint32_t *all)
{
    uint32_t count = 0;
    *all = 0;
    const struct list *each;
    for (each = engine->links.all.next; each != &engine->links.all; each = each->next) {
        const struct link *link = list_entry(each, struct link, all_link);
        if (link->closed) {
            continue;
        }
        if (count < capacity) {
            fill(endpoint_of_link((struct link *)link), &records[count++]);
        }
        (*all)++;
    }
    return count;
}
