/* poll.c: poll: what it does in which order, and why in that order; and what those who sleep ask. */
#include "nic/drain.h"
#include "nic/initiators.h"
#include "rpc/internal.h"

static __attribute__((noinline)) void flush_work_now(struct rpc_engine *engine)
{
    do {
        endpoint_flush(list_entry(engine->work.next, struct rpc_endpoint, work_link));
    } while (!list_empty(&engine->work));
}

static inline void flush_work(struct rpc_engine *engine)
{
    if (!list_empty(&engine->work)) {
        flush_work_now(engine);
    }
}

void rpc_progress(struct rpc_engine *engine)
{
    engine->links.now_ns = 0;
    flush_work(engine);
    engine_take_completions(engine);
    flush_work(engine); /* what was waiting for send WQEs or limits */
    link_expire_promptly(&engine->links);
    engine->links.now_ns = 0;
}

uint64_t rpc_next_deadline_ns(const struct rpc_engine *engine)
{
    return wheel_next_ns(&engine->links.wheel);
}

/* Completions of lanes, before new arrivals: a flood of these must not starve them, nor they those. So they get
 * half of the array if there are both. */
static __attribute__((cold, noinline)) void emit_lanes(struct rpc_engine *engine,
                                                       struct output *output)
{
    struct output part = *output;
    if (!list_empty(&engine->ready)) {
        uint64_t room = (uint64_t)(output->end - output->next);
        part.end = output->next + (room + (engine->epoch & 1)) / 2;
    }
    engine_emit_lanes(engine, &part);
    output->next = part.next;
}

/* What a poll gives beside arrivals, and where: some before, and some after. */
static __attribute__((noinline)) void emit_before(struct rpc_engine *engine, struct output *output)
{
    link_emit_events(&engine->links, output);
    engine_emit_ended(engine, output);
    if (!list_empty(&engine->lanes_done)) {
        emit_lanes(engine, output);
    }
}

static bool rest_waits(const struct rpc_engine *engine)
{
    return !list_empty(&engine->ended) || !list_empty(&engine->kept_ended) ||
           !list_empty(&engine->acknowledged) || !list_empty(&engine->failing) ||
           !list_empty(&engine->lanes_done) || !list_empty(&engine->lanes_failing) ||
           link_rest_waits(&engine->links) || nic_grants_wait(engine->nic);
}

static __attribute__((noinline)) void emit_after(struct rpc_engine *engine, struct output *output)
{
    engine_drain_failing(engine, output);
    engine_emit_ended(engine, output);
    link_emit_cancels(&engine->links, output);
    engine_emit_sent_replies(engine, output);
    link_emit_events(&engine->links, output);
    engine->links.attention = rest_waits(engine);
}

bool rpc_something_waits(const struct rpc_engine *engine)
{
    return !list_empty(&engine->ready) || rest_waits(engine) || link_cm_waits(&engine->links);
}

/* Nothing waits to be given but what the device may have. */
static inline bool nothing_waits(const struct rpc_engine *engine)
{
    return likely(!engine->links.attention && list_empty(&engine->ready) &&
                  !link_cm_waits(&engine->links));
}

/* ---- Views end ------------------------------------------------------------------------------- */

static inline void end_views(struct rpc_endpoint *endpoint)
{
    struct rpc_in *in = &endpoint->in;
    in->released = in->parsed;
    in->request_consumed = in->request_arrived;
    in->batches_consumed += in->held_batches;
    in->held_batches = 0;
    endpoint->calls.reply_outstanding -= in->held_allowance;
    in->held_allowance = 0;
}

/* The ring is another from now on, or an op was refused that may be possible now. */
static __attribute__((noinline)) void release_odd(struct rpc_endpoint *endpoint)
{
    const bool room = endpoint->link.refused && endpoint->in.held_allowance > 0;
    end_views(endpoint);
    if (endpoint->in.moving) {
        rpc_grow_release(endpoint);
    }
    endpoint_publish(endpoint);
    if (room) {
        link_report(&endpoint->link, LINK_EVENT_ROOM);
    }
}

/* The first of those whose views end. */
static inline void release_first(struct rpc_engine *engine)
{
    struct rpc_endpoint *endpoint =
        container_of(chain_take(&engine->release), struct rpc_endpoint, release_link);
    if (unlikely(endpoint->in.moving || endpoint->link.refused)) {
        release_odd(endpoint);
    } else {
        end_views(endpoint);
        endpoint_publish(endpoint);
    }
}

static __attribute__((noinline)) void release_all(struct rpc_engine *engine)
{
    if (engine->nic->receives_posted < engine->receives_low) {
        engine->operations->refill(engine->nic);
    }
    while (!chain_empty(&engine->release)) {
        release_first(engine);
    }
}

/* Receives are posted again, views end, and only then are new limits published: a peer may never be
 * told of room for which there is no receive. */
static inline void release(struct rpc_engine *engine)
{
    const struct chain *first = engine->release.next;
    if (unlikely(engine->nic->receives_posted < engine->receives_low) ||
        (first != &engine->release && unlikely(first->next != &engine->release))) {
        release_all(engine);
    } else if (first != &engine->release) { /* as most are */
        release_first(engine);
    }
}

/* ---- A poll ---------------------------------------------------------------------------------- */

/* The endpoint, if what the device has given is a batch of one that is connected, and as most are. Otherwise NULL. */
static inline struct rpc_endpoint *lone_arrival(const struct rpc_engine *engine)
{
    const struct nic_completion *completion = engine->polled;
    if (unlikely(completion->kind != NIC_COMPLETION_RECEIVE)) {
        return NULL;
    }
    struct rpc_endpoint *endpoint = table_get(&engine->queue_pairs, completion->queue_pair_number);
    return likely(endpoint && endpoint->link.state == CRPC_STATE_CONNECTED &&
                  rpc_nothing_odd(endpoint))
               ? endpoint
               : NULL;
}

/* A poll that gives nothing may have read words, or responses that nobody waits for any more. Its caller may sleep now, and the peer
 * wait for the room that they took: there are no views that it would have to be kept for. */
static inline void release_unseen(struct rpc_engine *engine)
{
    if (unlikely(!chain_empty(&engine->release))) {
        release_all(engine);
    }
}

/* What comes behind arrivals. */
static inline uint32_t take_late(struct rpc_engine *engine, crpc_completion *completions,
                                 struct output *output)
{
    link_expire(&engine->links);
    if (unlikely(engine->links.attention)) {
        emit_after(engine, output);
    }
    assert(engine->links.attention || !rest_waits(engine));
    uint32_t count = (uint32_t)(output->next - completions);
    if (count == 0) {
        engine->retired.polls_empty++;
        release_unseen(engine);
    }
    flush_work(engine); /* limits that have just come may let something go */
    engine->links.now_ns = 0;
    return count;
}

__attribute__((noinline)) uint32_t rpc_poll_late(struct rpc_engine *engine,
                                                 crpc_completion *completions, uint32_t given,
                                                 uint32_t capacity)
{
    struct output output = {.next = completions + given, .end = completions + capacity};
    return take_late(engine, completions, &output);
}

/* The steps of a poll from the device on. The order matters in five places:
 *  - views end first, so that the limits sent with what has gathered are the latest;
 *  - rdma_cm is asked after the device, and drains the device again before it believes a
 *    disconnect, so that what the peer sent before it left is not lost;
 *  - CONNECTED comes before the endpoint's first request, ended calls before new arrivals, so that
 *    a flood does not starve them;
 *  - deadlines come after arrivals: a response that is here wins;
 *  - DISCONNECTED comes last, when nothing of the endpoint is pending any more. */
static __attribute__((noinline)) uint32_t take_all(struct rpc_engine *engine, uint32_t count,
                                                   crpc_completion *completions, uint32_t capacity)
{
    struct output output = {.next = completions, .end = completions + capacity};
    engine_take_completions_from(engine, engine->polled, count);
    link_poll_cm(&engine->links);
    if (unlikely(engine->links.attention)) {
        emit_before(engine, &output);
    }
    engine_emit_arrivals(engine, &output);
    return take_late(engine, completions, &output);
}

static inline uint32_t poll_device(struct rpc_engine *engine)
{
    return engine->nic->operations->poll(engine->nic, engine->polled, NIC_DRAIN_MAX);
}

static __attribute__((noinline)) uint32_t
poll_and_take_all(struct rpc_engine *engine, crpc_completion *completions, uint32_t capacity)
{
    return take_all(engine, poll_device(engine), completions, capacity);
}

uint32_t rpc_poll(struct rpc_engine *engine, crpc_completion *completions, uint32_t capacity)
{
    assert(completions || capacity == 0);
    assert(list_empty(&engine->urgent)); /* rpc_submit_end */
    engine->epoch++;
    engine->links.now_ns = 0;
    release(engine);
    flush_work(engine);
    /* Asked here, so that the answer of the device is kept over no call. */
    if (!nothing_waits(engine)) {
        return poll_and_take_all(engine, completions, capacity);
    }
    const uint32_t count = poll_device(engine);
    /* Most polls find nothing, or one batch: then the order of the steps is its own. */
    if (likely(count == 1)) {
        struct rpc_endpoint *endpoint = lone_arrival(engine);
        return likely(endpoint && capacity > 0)
                   ? endpoint_arrival_alone(endpoint, engine->polled->immediate, completions,
                                            capacity)
                   : take_all(engine, count, completions, capacity);
    }
    if (unlikely(count > 1 || engine->nic->unknown_completions != engine->unknown_reported ||
                 nic_grants_wait(engine->nic))) {
        return take_all(engine, count, completions, capacity);
    }
    if (unlikely(engine->links.wheel.count != 0)) {
        return rpc_poll_late(engine, completions, 0, capacity);
    }
    engine->retired.polls_empty++;
    return 0;
}
