/* after.c: messages that are sent when the one-sided ops before them have completed. Such a message begins a
 * batch, which has a gate: a point in the order of the lane's ops. What is in the open batch is sent before, or set
 * aside if that cannot be now. Batches are sent in order. Cold path.
 */
#include "rpc/internal.h"

bool rpc_after_reached(const struct rpc_lane *lane)
{
    return !lane->gated || lane_reached(lane->lane, lane->gate); /* the last: it is the furthest */
}

/* Ends the open batch without sending it, and fills all of *batch but its gate. */
static void set_aside(struct rpc_endpoint *endpoint, struct rpc_batch *batch)
{
    *batch = (struct rpc_batch){.start = endpoint->out.batch_start,
                                .end = endpoint->out.produced,
                                .request_end = endpoint->out.request_produced,
                                .messages = endpoint->out.batch_messages,
                                .replies_end = endpoint->sent.replies_tail,
                                .wants_completion = endpoint->out.batch_wants_completion,
                                .gathers = endpoint->gather.waits};
    endpoint->gather.waits = false;
    endpoint->out.batch_messages = 0;
    endpoint->out.batch_wants_completion = false;
}

/* Undoes that. */
static void take_back(struct rpc_endpoint *endpoint, const struct rpc_batch *batch)
{
    endpoint->out.batch_start = batch->start;
    endpoint->out.produced = batch->end;
    endpoint->out.request_produced = batch->request_end;
    endpoint->out.batch_messages = batch->messages;
    endpoint->sent.replies_tail = batch->replies_end;
    endpoint->out.batch_wants_completion = batch->wants_completion;
    endpoint->gather.waits = batch->gathers;
}

/* Those before it are sent. */
static void send_aside(struct rpc_endpoint *endpoint, const struct rpc_batch *batch)
{
    struct rpc_batch open;
    set_aside(endpoint, &open);
    take_back(endpoint, batch);
    endpoint_send(endpoint);
    take_back(endpoint, &open);
}

void rpc_after_send(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    while (lane->aside_count > 0 && endpoint_may_send(endpoint)) {
        const struct rpc_batch *batch = rpc_aside_at(lane, 0);
        if (batch->gated && !lane_reached(lane->lane, batch->gate)) {
            return;
        }
        send_aside(endpoint, batch);
        lane->aside_head = (lane->aside_head + 1) % RPC_ASIDE_MAX;
        lane->aside_count--;
        if (endpoint->link.refused) {
            link_report(&endpoint->link, LINK_EVENT_ROOM);
        }
    }
}

void rpc_after_forget(struct rpc_lane *lane)
{
    lane->gated = false;
    for (uint32_t i = 0; i < lane->aside_count; i++) {
        rpc_aside_at(lane, i)->gated = false;
    }
}

/* Makes the next message begin a batch. Returns false if no more can be set aside. */
static bool begin_batch(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    endpoint_flush(endpoint);
    if (endpoint->out.batch_messages == 0) {
        return true;
    }
    if (lane->aside_count == RPC_ASIDE_MAX) {
        endpoint->stats.refused++;
        endpoint->link.refused = true;
        return false;
    }
    struct rpc_batch *batch = rpc_aside_at(lane, lane->aside_count++);
    set_aside(endpoint, batch);
    batch->gated = lane->gated;
    batch->gate = lane->gate;
    return true;
}

/* The message was refused: there is no open batch but the last that was set aside. If a word about a larger ring has been said behind
 * that, it stays aside, and must be sent first. */
static void undo_begin(struct rpc_endpoint *endpoint)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (lane->aside_count == 0) {
        return;
    }
    if (endpoint->out.batch_messages > 0) {
        rpc_lane_attend(endpoint);
        return;
    }
    take_back(endpoint, rpc_aside_at(lane, lane->aside_count - 1));
    lane->aside_count--;
}

int32_t rpc_after(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload)
{
    struct rpc_lane *lane = &endpoint->lane;
    if (!lane->lane) {
        return CRPC_E_UNSUPPORTED;
    }
    if (lane->state == RPC_LANE_FAILED || list_linked(&lane->failing_link)) {
        return CRPC_E_DISCONNECTED;
    }
    if (endpoint->gather.waits) {
        /* It gives the reason: nothing is written to the open batch, nor set aside with it. */
        return rpc_possible(endpoint, op);
    }
    const uint32_t gate = lane_mark(lane->lane);
    const bool waits = !lane_reached(lane->lane, gate);
    const bool same = lane->gated && lane->gate == gate; /* as the open batch */
    if (waits && !same && endpoint->out.batch_messages > 0 && !begin_batch(endpoint)) {
        return CRPC_E_AGAIN;
    }
    int32_t status = rpc_submit(endpoint, op, payload);
    if (status != CRPC_OK) {
        undo_begin(endpoint);
    } else if (waits) {
        lane->gated = true;
        lane->gate = gate;
        rpc_lane_attend(endpoint);
    }
    return status;
}
