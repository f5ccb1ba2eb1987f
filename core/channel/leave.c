/* leave.c: how a channel ends well: both sides say LEAVE or BYE when they send no more, and part when
 * everything has arrived; and what watches over a channel meanwhile.
 */
#include "channel/internal.h"

#include <stdio.h>

void channel_leave(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    if (channel->leave == LEAVE_NONE) {
        channel->leave = channel->peer_leave == PEER_BYE ? LEAVE_SAID : LEAVE_ASKED;
        channel->bar = CRPC_E_CLOSING;
        channel_work(channel->engine, channel);
    }
}

void channel_describe_leave(const struct link *link, char *text, size_t bytes)
{
    snprintf(text, bytes, "%u sends waited for receives, or their data were under way",
             channel_of_link(link)->send.open);
}

void channel_check_leave(struct channel *channel)
{
    if (channel->peer_leave == PEER_BYE) {
        channel_connected(channel); /* the peer was, for a moment: its application hears of both */
    }
    if (channel->link.state == CRPC_STATE_CONNECTING) {
        return;
    }
    if (channel->peer_leave == PEER_BYE && channel->bar == CRPC_OK) {
        channel->bar = CRPC_E_CLOSING;
        channel->link.state = CRPC_STATE_CLOSING;
    }
    bool over = channel->leave != LEAVE_NONE || channel->peer_leave == PEER_BYE;
    /* Nobody will receive what waits any more, or complete its message. A clear-to-send that the LEAVE
     * overtook is still waited for. */
    if ((channel->peer_leave != PEER_STAYS && channel->send.number >= channel->bye.posted) ||
        (over && sends_stuck(channel))) {
        sends_end_waiting(channel, CRPC_E_DISCONNECTED);
    }
    if (!over || channel->send.open > 0) {
        return;
    }
    if (channel->leave < BYE_WANTED) {
        channel->leave = BYE_WANTED;
        control_flush(channel);
    }
    if (channel->leave == BYE_SAID && channel->peer_leave == PEER_BYE &&
        channel->stats.messages_received >= channel->bye.sent) {
        if ((channel->control.unsent | channel->control.posted) != 0) {
            return; /* our BYE is under way */
        }
        link_fail(&channel->link, &(crpc_error){0});
    }
}

/* Makes the transport notice a peer that is gone. */
static void probe_rails(struct channel *channel)
{
    for (uint32_t mask = channel->up; mask != 0; mask &= mask - 1) {
        struct channel_queue *queue = channel->rails[__builtin_ctz(mask)].queues[0];
        if (nic_send_room(queue->queue_pair) > 0) {
            control_touch(queue);
        }
    }
}

/* Makes each queue pair show whether it moves, and gives up the rail of one that does not: the other
 * repeats what it carried. Nothing else tells if the peer has no receives. */
static void channel_probe(struct channel *channel)
{
    bool stuck = false;
    for (uint32_t mask = channel->up; mask != 0; mask &= mask - 1) {
        uint32_t rail = (uint32_t)__builtin_ctz(mask);
        for (uint32_t i = 0; i < channel->queue_pairs; i++) {
            struct channel_queue *queue = channel->rails[rail].queues[i];
            const struct nic_queue_pair *queue_pair = queue->queue_pair;
            if (link_stuck(&queue->progress, queue_pair)) {
                log_write(
                    channel->engine->links.log, CRPC_LOG_WARNING,
                    "rail %u: queue pair 0x%x has completed nothing for %u keepalives; the peer "
                    "posts no receives, or a device is at fault",
                    rail, queue_pair->number, LINK_STUCK_INTERVALS);
                queue_failed(queue);
                stuck = true;
            } else if (queue_pair->posted != queue_pair->completed &&
                       !link_awaits_completion(queue_pair) && nic_send_room(queue_pair) > 0) {
                control_touch(queue);
            }
        }
    }
    if (stuck) {
        channel_take_completions(channel->engine); /* they end the fence */
    }
}

/* Nobody may have made it yet, or removed it and made another. */
static void look_for_hint(struct channel *channel)
{
    uint32_t share;
    if (channel->hint && hint_read(channel->hint, link_now_ns(&channel->engine->links), &share)) {
        return;
    }
    const struct channel_hint *hint = hint_open(channel->options.hint);
    if (hint) {
        hint_close(channel->hint);
        channel->hint = hint;
    }
}

/* A channel never counts as idle to its link, since it looks for its hint each time, too. It waits for
 * as many silent intervals itself. */
bool channel_keepalive(struct link *link)
{
    struct channel *channel = channel_of_link(link);
    channel->silent_intervals = link->heard == 0 ? channel->silent_intervals + 1 : 0;
    if (channel->silent_intervals >= (channel->ops_left > 0 ? 1 : LINK_IDLE_INTERVALS)) {
        channel->silent_intervals = 0;
        probe_rails(channel);
    }
    if (channel->split == CRPC_SPLIT_HINT) {
        look_for_hint(channel);
    }
    channel_probe(channel);
    return true;
}
