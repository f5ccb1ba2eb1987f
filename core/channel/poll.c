/* poll.c: poll: what it does in which order, and why in that order; and what those who sleep ask. */
#include "channel/internal.h"

static void ring_doorbells(struct channel_engine *engine)
{
    while (!list_empty(&engine->doorbells)) {
        struct channel_queue *queue =
            list_entry(engine->doorbells.next, struct channel_queue, doorbell_link);
        list_remove(&queue->doorbell_link);
        queue->operations->ring_doorbell(queue->queue_pair);
        queue->channel->stats.doorbells++;
    }
}

static void flush_work(struct channel_engine *engine)
{
    while (!list_empty(&engine->work)) {
        struct channel *channel = list_entry(engine->work.next, struct channel, work_link);
        list_remove(&channel->work_link);
        channel_flush(channel);
    }
    ring_doorbells(engine);
}

/* Sends that wait for a clear-to-send: it comes without an event. */
static void look_for_clear_to_sends(struct channel_engine *engine)
{
    struct list *link = engine->waiting.next;
    bool moved = false;
    while (link != &engine->waiting) {
        struct channel *channel = list_entry(link, struct channel, waiting_link);
        uint64_t before = channel->send.number;
        link = link->next;
        if (unlikely(channel->send.repeats > 0)) {
            sends_repeat(channel);
        }
        sends_progress(channel);
        moved |= channel->send.number != before;
        if (unlikely(channel->leave != LEAVE_NONE || channel->peer_leave != PEER_STAYS)) {
            channel_work(engine, channel); /* what came may show that the rest waits in vain */
        }
    }
    if (moved) {
        engine->look_backoff_ns = LOOK_BACKOFF_MIN_NS;
        engine->look_ns = UINT64_MAX;
    }
}

void channel_submit_end(struct channel_engine *engine)
{
    flush_work(engine);
    engine->links.now_ns = 0;
}

void channel_progress(struct channel_engine *engine)
{
    engine->links.now_ns = 0;
    look_for_clear_to_sends(engine);
    flush_work(engine);
    channel_take_completions(engine);
    wakes_want(engine);
    flush_work(engine);
    if (!list_empty(&engine->waiting)) {
        /* Each look of one who sleeps comes later than the one before. */
        uint64_t most_ns = wakes_come(engine) ? engine->look_asked_max_ns : LOOK_BACKOFF_MAX_NS;
        uint64_t pause_ns =
            most_ns == CRPC_FOREVER ? most_ns : minimum(engine->look_backoff_ns, most_ns);
        engine->look_ns = deadline_after(link_now_ns(&engine->links), pause_ns);
        engine->look_backoff_ns = minimum(engine->look_backoff_ns * 2, LOOK_BACKOFF_ASKED_MAX_NS);
    }
    engine->links.now_ns = 0;
}

uint64_t channel_next_deadline_ns(const struct channel_engine *engine)
{
    uint64_t deadline_ns = wheel_next_ns(&engine->links.wheel);
    return list_empty(&engine->waiting) ? deadline_ns : minimum(deadline_ns, engine->look_ns);
}

bool channel_something_waits(const struct channel_engine *engine)
{
    return !list_empty(&engine->finished) || link_something_waits(&engine->links);
}

/* The order matters in three places:
 *  - rdma_cm is asked after the devices, so that what the peer sent before it left is not lost;
 *  - CONNECTED comes before the channel's first completions, DISCONNECTED after its last;
 *  - deadlines come after arrivals: a clear-to-send that is here wins. */
uint32_t channel_poll(struct channel_engine *engine, crpc_completion *completions,
                      uint32_t capacity)
{
    assert(completions || capacity == 0);
    struct output output = {.next = completions, .end = completions + capacity};
    engine->links.now_ns = 0;
    look_for_clear_to_sends(engine);
    flush_work(engine);
    channel_take_completions(engine);
    link_poll_cm(&engine->links);
    link_expire(&engine->links);
    flush_work(engine);
    link_emit_events(&engine->links, &output);
    ops_emit_finished(engine, &output);
    link_emit_cancels(&engine->links, &output);
    link_emit_events(&engine->links, &output);
    engine->links.now_ns = 0;
    return (uint32_t)(output.next - completions);
}
