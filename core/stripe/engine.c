/* engine.c: the life of the engine, the completions of the devices, and poll: what it does in which
 * order, and why in that order. */
#include "stripe/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

/* A sleeper looks for clear-to-sends this often: at first, and when nothing came for a while. */
#define LOOK_BACKOFF_MIN_NS UINT64_C(10000)
#define LOOK_BACKOFF_MAX_NS UINT64_C(1000000)

/* ---- Life ------------------------------------------------------------------------------------ */

static void init_lists(struct stripe_engine *engine)
{
    struct list *lists[] = {&engine->work,     &engine->rings,    &engine->waiting,
                            &engine->fences,   &engine->finished, &engine->events,
                            &engine->channels, &engine->listeners};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        list_init(lists[i]);
    }
}

int32_t stripe_engine_create(struct nic *const *rails, uint32_t rail_count, struct cm *cm,
                             struct log *log, struct handles *handles, uint32_t channels_max,
                             const uint64_t *virtual_clock_ns, struct stripe_engine **out,
                             crpc_error *error)
{
    assert(rail_count >= 1 && rail_count <= STRIPE_RAILS_MAX);
    struct stripe_engine *engine = calloc(1, sizeof(*engine));
    if (!engine) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for the rails");
    }
    engine->rail_count = rail_count;
    engine->cm = cm;
    engine->log = log;
    engine->handles = handles;
    engine->channels_max = channels_max;
    engine->virtual_clock_ns = virtual_clock_ns;
    engine->look_backoff_ns = LOOK_BACKOFF_MIN_NS;
    engine->look_ns = UINT64_MAX;
    init_lists(engine);
    for (uint32_t i = 0; i < rail_count; i++) {
        struct engine_rail *rail = &engine->rails[i];
        rail->nic = rails[i];
        rail->operations = rails[i]->operations;
        rail->message_bytes_max = rails[i]->message_bytes_max;
        if (i == 0 || rail->message_bytes_max < engine->wqe_bytes_max) {
            engine->wqe_bytes_max = rail->message_bytes_max;
        }
        table_init(&rail->queues);
        rail->operations->refill(rail->nic);
    }
    wheel_init(&engine->wheel, stripe_now_ns(engine));
    engine->now_ns = 0;
    int32_t status = cache_create(engine, error);
    if (status != CRPC_OK) {
        stripe_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return CRPC_OK;
}

void stripe_engine_destroy(struct stripe_engine *engine)
{
    while (!list_empty(&engine->listeners)) {
        stripe_listener_close(list_entry(engine->listeners.next, struct stripe_listener, all_link));
    }
    while (!list_empty(&engine->channels)) {
        channel_free(list_entry(engine->channels.next, struct stripe_channel, all_link));
    }
    cache_destroy(engine);
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        table_free(&engine->rails[i].queues);
    }
    free(engine);
}

uint64_t stripe_send_bytes_max(const struct stripe_engine *engine)
{
    return minimum(STRIPE_BUFFER_BYTES_MAX, (uint64_t)engine->wqe_bytes_max * STRIPE_PARTS_MAX);
}

uint32_t stripe_receives_left(const struct stripe_engine *engine, uint32_t rail)
{
    return nic_receive_low_mark(engine->rails[rail].nic) - engine->rails[rail].receives_promised;
}

uint64_t stripe_receives_completed(const struct stripe_engine *engine, uint32_t rail)
{
    return engine->rails[rail].receives_completed;
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t stripe_now_ns(struct stripe_engine *engine)
{
    if (engine->now_ns == 0) {
        engine->now_ns = engine->virtual_clock_ns ? *engine->virtual_clock_ns : clock_now_ns();
    }
    return engine->now_ns;
}

void engine_set_timer(struct stripe_engine *engine, struct wheel_timer *timer, uint64_t delay_ns)
{
    engine->now_ns = 0;
    wheel_set(&engine->wheel, timer, deadline_after(stripe_now_ns(engine), delay_ns));
    engine->now_ns = 0;
}

uint64_t stripe_next_deadline_ns(const struct stripe_engine *engine)
{
    uint64_t deadline_ns = wheel_next_ns(&engine->wheel);
    return list_empty(&engine->waiting) ? deadline_ns : minimum(deadline_ns, engine->look_ns);
}

static void expire(struct stripe_engine *engine)
{
    if (engine->wheel.count == 0) {
        return;
    }
    wheel_advance(&engine->wheel, stripe_now_ns(engine));
    struct wheel_timer *timer;
    while ((timer = wheel_take(&engine->wheel))) {
        switch (timer->kind) {
        case TIMER_SEND:
            send_expired(container_of(timer, struct stripe_op, timer));
            break;
        case TIMER_LIFE:
            channel_timer(container_of(timer, struct stripe_channel, life_timer));
            break;
        case TIMER_SETTLE:
            channel_connected(container_of(timer, struct stripe_channel, settle_timer));
            break;
        default: {
            uint32_t rail = timer->kind - TIMER_RAIL_0;
            struct stripe_rail *object = container_of(timer, struct stripe_rail, retry_timer);
            rail_retry(container_of(object - rail, struct stripe_channel, rails[0]), rail);
        }
        }
    }
}

/* ---- The devices' completions ---------------------------------------------------------------- */

static void take_completion(struct engine_rail *rail, const struct nic_completion *completion)
{
    if (completion->kind == NIC_COMPLETION_RECEIVE) {
        rail->receives_completed++;
    }
    struct stripe_queue *queue = table_get(&rail->queues, completion->queue_pair_number);
    if (unlikely(!queue)) {
        return; /* of a queue pair destroyed since this completion was polled */
    }
    struct stripe_channel *channel = queue->channel;
    channel->heard++;
    switch (completion->kind) {
    case NIC_COMPLETION_RECEIVE:
        receive_immediate(queue, completion->immediate, completion->byte_count);
        break;
    case NIC_COMPLETION_SEND:
        while (queue->posted_head != queue->posted_tail) {
            struct stripe_posted *posted = &queue->posted[queue->posted_head & queue->posted_mask];
            if ((int32_t)(completion->completed - posted->wqe) <= 0) {
                break;
            }
            queue->posted_head++;
            outgoing_done(channel, &channel->outgoing[posted->slot], posted->share);
        }
        if (unlikely(channel->outbox_posted != 0)) {
            control_acknowledge(queue, completion->completed);
        }
        channel_work(channel->engine, channel); /* there is room for more */
        break;
    default:
        if (queue->first) {
            if (channel->state == CRPC_STATE_CONNECTING) {
                crpc_error error = {0};
                error_set(&error, CRPC_E_UNREACHABLE, 0,
                          "rail 0: the peer's device does not answer; has its side joined or "
                          "accepted?");
                channel_fail(channel, &error);
            } else {
                control_unsend(queue); /* the rails carry what it has not delivered */
                channel_work(channel->engine, channel);
            }
        } else {
            rail_want_fence(channel, queue->rail);
        }
    }
}

static bool poll_rail(struct engine_rail *rail)
{
    struct nic_completion completions[64];
    const uint32_t capacity = sizeof(completions) / sizeof(completions[0]);
    bool again = false;
    uint32_t count;
    do {
        count = rail->operations->poll(rail->nic, completions, capacity);
        for (uint32_t i = 0; i < count; i++) {
            take_completion(rail, &completions[i]);
            /* What the peer sent before the error may have come to the receive queue after it was
             * looked at, and before the error came to the send queue. */
            again |= completions[i].kind == NIC_COMPLETION_ERROR;
        }
    } while (count == capacity);
    rail_refill(rail);
    return again;
}

void stripe_take_completions(struct stripe_engine *engine)
{
    bool again;
    do {
        again = false;
        for (uint32_t i = 0; i < engine->rail_count; i++) {
            again |= poll_rail(&engine->rails[i]);
        }
        if (likely(again || list_empty(&engine->fences))) {
            continue; /* only a rail that was polled dry is fenced */
        }
        struct list fences;
        list_move_all(&fences, &engine->fences);
        while (!list_empty(&fences)) {
            struct stripe_channel *channel =
                list_entry(fences.next, struct stripe_channel, fence_link);
            list_remove(&channel->fence_link);
            again |= channel_fence(channel);
        }
    } while (again);
}

/* ---- Poll ------------------------------------------------------------------------------------ */

void channel_report(struct stripe_channel *channel, uint32_t events)
{
    channel->events |= events;
    list_append_once(&channel->engine->events, &channel->event_link);
}

void op_finish(struct stripe_op *op, int32_t status)
{
    struct stripe_channel *channel = op->channel;
    op->status = (int8_t)status;
    if (op->kind == CRPC_COMPLETION_SENT) {
        channel->sends_open--;
        channel->stats.sends_failed += status != CRPC_OK;
        if (wheel_timer_set(&op->timer)) {
            wheel_clear(&channel->engine->wheel, &op->timer);
        }
    } else {
        channel->receives_open--;
        channel->stats.receives_failed += status != CRPC_OK;
    }
    channel->stats.truncated += status == CRPC_E_TRUNCATED;
    list_append(&channel->engine->finished, &op->link);
}

static void ring(struct stripe_engine *engine)
{
    while (!list_empty(&engine->rings)) {
        struct stripe_queue *queue = list_entry(engine->rings.next, struct stripe_queue, ring_link);
        list_remove(&queue->ring_link);
        queue->operations->ring(queue->queue_pair);
        queue->channel->stats.doorbells++;
    }
}

static void flush_work(struct stripe_engine *engine)
{
    while (!list_empty(&engine->work)) {
        struct stripe_channel *channel =
            list_entry(engine->work.next, struct stripe_channel, work_link);
        list_remove(&channel->work_link);
        channel_flush(channel);
    }
    ring(engine);
}

/* Sends that wait for a clear-to-send: it comes without an event. */
static void look_for_clear_to_sends(struct stripe_engine *engine)
{
    struct list *link = engine->waiting.next;
    bool moved = false;
    while (link != &engine->waiting) {
        struct stripe_channel *channel = list_entry(link, struct stripe_channel, waiting_link);
        uint64_t before = channel->send_number;
        link = link->next;
        sends_progress(channel);
        moved |= channel->send_number != before;
        if (unlikely(channel->leaving || channel->left)) {
            channel_work(engine, channel); /* what came may show that the rest waits in vain */
        }
    }
    if (moved) {
        engine->look_backoff_ns = LOOK_BACKOFF_MIN_NS;
        engine->look_ns = UINT64_MAX;
    }
}

void stripe_submit_end(struct stripe_engine *engine)
{
    flush_work(engine);
    engine->now_ns = 0;
}

void stripe_progress(struct stripe_engine *engine)
{
    engine->now_ns = 0;
    look_for_clear_to_sends(engine);
    flush_work(engine);
    stripe_take_completions(engine);
    flush_work(engine);
    if (!list_empty(&engine->waiting)) {
        /* Each look of one who sleeps comes later than the one before. */
        engine->look_ns = deadline_after(stripe_now_ns(engine), engine->look_backoff_ns);
        engine->look_backoff_ns = minimum(engine->look_backoff_ns * 2, LOOK_BACKOFF_MAX_NS);
    }
    engine->now_ns = 0;
}

bool stripe_something_waits(const struct stripe_engine *engine)
{
    return !list_empty(&engine->finished) || !list_empty(&engine->events) ||
           engine->cancels_head != engine->cancels_tail || (engine->cm && cm_pending(engine->cm));
}

static void emit_finished(struct stripe_engine *engine, struct output *output)
{
    while (!list_empty(&engine->finished) && !output_full(output)) {
        struct stripe_op *op = list_entry(engine->finished.next, struct stripe_op, link);
        struct stripe_channel *channel = op->channel;
        list_remove(&op->link);
        *output->next++ = (crpc_completion){.kind = op->kind,
                                            .flags = CRPC_COMPLETION_OF_CHANNEL,
                                            .status = op->status,
                                            .endpoint = {channel->handle},
                                            .user_data = op->user_data,
                                            .token = op->number,
                                            .payload = op->address,
                                            .payload_bytes = op->bytes,
                                            .endpoint_user_data = channel->options.user_data};
        if (op->region) {
            op->region->users--;
        }
        if (op->kind == CRPC_COMPLETION_SENT) {
            list_append(&channel->free_sends, &op->link);
        } else {
            struct stripe_incoming *incoming = &channel->incoming[op->number & channel->slot_mask];
            if (++incoming->emitted == incoming->count) {
                incoming->count = 0;
            }
        }
        if (unlikely(channel->refused)) {
            channel_report(channel, CHANNEL_EVENT_ROOM);
        }
        if (unlikely(--channel->ops_left == 0 && channel->closed)) {
            channel_free(channel);
        }
    }
}

static void emit_cancels(struct stripe_engine *engine, struct output *output)
{
    while (engine->cancels_head != engine->cancels_tail && !output_full(output)) {
        const struct stripe_cancel_done *done =
            &engine->cancels[engine->cancels_head++ % STRIPE_CANCELS_MAX];
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_CANCEL,
                                            .flags = CRPC_COMPLETION_OF_CHANNEL,
                                            .status = done->count > 0 ? CRPC_OK : CRPC_E_NOT_FOUND,
                                            .endpoint = {done->channel},
                                            .user_data = done->user_data,
                                            .token = done->count,
                                            .endpoint_user_data = done->channel_user_data};
    }
}

static void emit_event(const struct stripe_channel *channel, uint8_t kind, int32_t status,
                       uint64_t user_data, uint64_t token, struct output *output)
{
    *output->next++ = (crpc_completion){.kind = kind,
                                        .flags = CRPC_COMPLETION_OF_CHANNEL,
                                        .status = status,
                                        .endpoint = {channel->handle},
                                        .user_data = user_data,
                                        .token = token,
                                        .endpoint_user_data = channel->options.user_data};
}

static void emit_rail_event(struct stripe_channel *channel, struct output *output)
{
    for (uint32_t i = 0; i < STRIPE_RAILS_MAX; i++) {
        struct stripe_rail *rail = &channel->rails[i];
        if (rail->changes > 0) {
            rail->changes--;
            rail->shown_up = !rail->shown_up;
            emit_event(channel, CRPC_COMPLETION_RAIL,
                       rail->shown_up ? CRPC_OK : CRPC_E_DISCONNECTED, channel->options.user_data,
                       i, output);
            break;
        }
    }
    if (channel->rails[0].changes == 0 && channel->rails[1].changes == 0) {
        channel->events &= ~CHANNEL_EVENT_RAIL;
    }
}

/* Gives one of the channel's events, the one that has to come first. */
static void emit_first_event(struct stripe_channel *channel, struct output *output)
{
    uint64_t user_data = channel->options.user_data;
    if (channel->events & CHANNEL_EVENT_CONNECT_REQUEST) {
        channel->events &= ~CHANNEL_EVENT_CONNECT_REQUEST;
        if (channel->listener) {
            emit_event(channel, CRPC_COMPLETION_CONNECT_REQUEST, CRPC_OK,
                       channel->listener->user_data, 0, output);
        }
    } else if (channel->events & CHANNEL_EVENT_CONNECTED) {
        channel->events &= ~CHANNEL_EVENT_CONNECTED;
        bool failed = channel->state == CRPC_STATE_DISCONNECTED &&
                      !(channel->events & CHANNEL_EVENT_DISCONNECTED);
        emit_event(channel, CRPC_COMPLETION_CONNECTED, failed ? channel->error.status : CRPC_OK,
                   user_data, 0, output);
    } else if (channel->events & CHANNEL_EVENT_RAIL) {
        emit_rail_event(channel, output);
    } else if (channel->events & CHANNEL_EVENT_ROOM) {
        channel->events &= ~CHANNEL_EVENT_ROOM;
        if (channel->refused) {
            channel->refused = false;
            emit_event(channel, CRPC_COMPLETION_ROOM, CRPC_OK, user_data, 0, output);
        }
    } else if (channel->ops_left == 0) {
        channel->events &= ~CHANNEL_EVENT_DISCONNECTED;
        emit_event(channel, CRPC_COMPLETION_DISCONNECTED, channel->error.status, user_data, 0,
                   output);
    }
}

static void emit_events(struct stripe_engine *engine, struct output *output)
{
    struct list *link = engine->events.next;
    while (link != &engine->events && !output_full(output)) {
        struct stripe_channel *channel = list_entry(link, struct stripe_channel, event_link);
        uint32_t before = channel->events;
        emit_first_event(channel, output);
        if (channel->events == 0) {
            link = link->next;
            list_remove(&channel->event_link);
        } else if (channel->events == before && !(before & CHANNEL_EVENT_RAIL)) {
            link = link->next; /* DISCONNECTED waits for the channel's ops */
        }
    }
}

/* The order matters in three places:
 *  - rdma_cm is asked after the devices, so that what the peer sent before it left is not lost;
 *  - CONNECTED comes before the channel's first completions, DISCONNECTED after its last;
 *  - deadlines come after arrivals: a clear-to-send that is here wins. */
uint32_t stripe_poll(struct stripe_engine *engine, crpc_completion *completions, uint32_t capacity)
{
    struct output output = {.next = completions, .end = completions + capacity};
    engine->now_ns = 0;
    look_for_clear_to_sends(engine);
    flush_work(engine);
    stripe_take_completions(engine);
    if (engine->cm && unlikely(cm_pending(engine->cm))) {
        stripe_take_cm_events(engine);
    }
    expire(engine);
    flush_work(engine);
    emit_events(engine, &output);
    emit_finished(engine, &output);
    emit_cancels(engine, &output);
    emit_events(engine, &output);
    engine->now_ns = 0;
    return (uint32_t)(output.next - completions);
}
