/* engine.c: the life of the engine, and the completions of its devices. */
#include "channel/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"
#include "nic/drain.h"

/* ---- Life ------------------------------------------------------------------------------------ */

static void init_lists(struct channel_engine *engine)
{
    struct list *lists[] = {&engine->work, &engine->doorbells, &engine->waiting, &engine->fences,
                            &engine->finished};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        list_init(lists[i]);
    }
}

int32_t channel_engine_create(struct nic *const *rails, uint32_t rail_count, struct cm *cm,
                              struct log *log, struct handles *handles, uint32_t channels_max,
                              const uint64_t *virtual_clock_ns, struct channel_engine **out,
                              crpc_error *error)
{
    assert(channels_max > 0);
    assert(rail_count >= 1 && rail_count <= CHANNEL_RAILS_MAX);
    struct channel_engine *engine = lines_alloc(1, sizeof(*engine));
    if (!engine) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for the rails");
    }
    engine->rail_count = rail_count;
    engine->channels_max = channels_max;
    engine->windows_each = WINDOWS_EACH;
    engine->look_backoff_ns = LOOK_BACKOFF_MIN_NS;
    engine->look_ns = UINT64_MAX;
    engine->look_asked_max_ns = LOOK_BACKOFF_ASKED_MAX_NS;
    init_lists(engine);
    for (uint32_t i = 0; i < rail_count; i++) {
        struct engine_rail *rail = &engine->rails[i];
        rail->nic = rails[i];
        rail->operations = rails[i]->operations;
        rail->message_bytes_max = rails[i]->message_bytes_max;
        if (i == 0 || rail->message_bytes_max < engine->wqe_bytes_max) {
            engine->wqe_bytes_max = rail->message_bytes_max;
        }
        const uint32_t straight =
            rail->nic->straight_bytes ? rail->nic->straight_bytes : UINT32_MAX;
        if (i == 0 || straight < engine->straight_bytes) {
            engine->straight_bytes = straight;
        }
        table_init(&rail->queues);
        rail->operations->refill(rail->nic);
    }
    engine->straight_bytes = (uint32_t)minimum(engine->straight_bytes, engine->wqe_bytes_max);
    link_group_init(&engine->links, &channel_service, rails[0], cm, log, handles, virtual_clock_ns);
    for (uint32_t i = 1; i < rail_count; i++) {
        link_group_add_port(&engine->links, rails[i]);
    }
    *out = engine;
    return CRPC_OK;
}

void channel_engine_destroy(struct channel_engine *engine)
{
    link_group_close(&engine->links);
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        table_free(&engine->rails[i].queues);
    }
    free(engine);
}

struct link_group *channel_links(struct channel_engine *engine)
{
    return &engine->links;
}

uint64_t channel_send_bytes_max(const struct channel_engine *engine)
{
    return minimum(CHANNEL_BUFFER_BYTES_MAX, (uint64_t)engine->wqe_bytes_max * CHANNEL_PARTS_MAX);
}

uint32_t channel_receives_left(const struct channel_engine *engine, uint32_t rail)
{
    return nic_receive_low_mark(engine->rails[rail].nic) - engine->rails[rail].receives_promised;
}

uint64_t channel_receives_completed(const struct channel_engine *engine, uint32_t rail)
{
    return engine->rails[rail].receives_completed;
}

/* ---- Time ------------------------------------------------------------------------------------ */

void channel_timer(struct link_group *group, struct wheel_timer *timer)
{
    (void)group;
    uint32_t rail;
    struct channel_rail *object;
    switch (timer->kind) {
    case TIMER_SEND:
        send_expired(container_of(timer, struct channel_op, timer));
        break;
    case TIMER_SETTLE:
        channel_connected(container_of(timer, struct channel, settle_timer));
        break;
    default:
        rail = timer->kind - TIMER_RAIL_0;
        object = container_of(timer, struct channel_rail, retry_timer);
        rail_retry(container_of(object - rail, struct channel, rails[0]), rail);
    }
}

/* ---- The devices' completions ---------------------------------------------------------------- */

static inline void take_completion(struct engine_rail *rail,
                                   const struct nic_completion *completion)
{
    if (completion->kind == NIC_COMPLETION_RECEIVE) {
        rail->receives_completed++;
    }
    struct channel_queue *queue = table_get(&rail->queues, completion->queue_pair_number);
    if (unlikely(!queue)) {
        return; /* of a queue pair destroyed since this completion was polled */
    }
    struct channel *channel = queue->channel;
    channel->link.heard++;
    if (unlikely(!channel->link.opened) && channel->link.state == CRPC_STATE_CONNECTING &&
        link_take_early(&channel->link, completion)) {
        return;
    }
    switch (completion->kind) {
    case NIC_COMPLETION_RECEIVE:
        receive_immediate(queue, completion->immediate, completion->byte_count);
        break;
    case NIC_COMPLETION_SEND:
        while (queue->posted_head != queue->posted_tail) {
            struct channel_posted *posted = &queue->posted[queue->posted_head & queue->posted_mask];
            if ((int32_t)(completion->completed - posted->wqe) <= 0) {
                break;
            }
            queue->posted_head++;
            if (unlikely(posted->share >= CHANNEL_RAILS_MAX)) {
                grant_done(queue, posted);
                continue;
            }
            outgoing_done(channel, &channel->send.outgoing[posted->slot], posted->share);
        }
        if (unlikely(channel->control.posted != 0)) {
            control_acknowledge(queue, completion->completed);
        }
        channel_work(channel->engine, channel); /* there is room for more */
        break;
    default:
        queue_failed(queue);
    }
}

static inline void take(void *rail, const struct nic_completion *completion)
{
    take_completion(rail, completion);
}

static bool poll_rail(struct engine_rail *rail)
{
    bool again = nic_drain(rail->nic, take, rail);
    rail_refill(rail);
    return again;
}

void channel_take_completions(struct channel_engine *engine)
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
            struct channel *channel = list_entry(fences.next, struct channel, fence_link);
            list_remove(&channel->fence_link);
            again |= channel_fence(channel);
        }
    } while (again);
}

/* ---- What else the devices tell -------------------------------------------------------------- */

/* The device has given up a queue pair. A completion says so, too, if anything is under way
 * on it. A channel that is still at its beginning may only wait for its peer. */
static void lose_queue(struct channel_queue *queue, const crpc_error *error)
{
    struct link *link = &queue->channel->link;
    uint32_t rail_state = queue->channel->rails[queue->rail].state;
    if (link->state == CRPC_STATE_CONNECTING && !link->opened) {
        link_lost(link, error);
        return;
    }
    if (link->state == CRPC_STATE_CONNECTING && queue->connected && rail_state != RAIL_UP &&
        rail_state != RAIL_PROBING) {
        queue->operations->queue_pair_fail(queue->queue_pair);
    }
    queue_failed(queue);
}

/* Told by the device's event, or by the first call that the device refused before. */
static void lose_device(struct channel_engine *engine, uint32_t rail, const crpc_error *error)
{
    if (engine->lost & 1u << rail) {
        return;
    }
    engine->lost |= 1u << rail;
    nic_set(&engine->rails[rail].nic->lost);
    log_write(engine->links.log, CRPC_LOG_ERROR, "rail %u is lost: %s", rail, error->message);
    for (struct list *at = engine->links.all.next; at != &engine->links.all; at = at->next) {
        struct channel *channel = channel_of_link(list_entry(at, struct link, all_link));
        struct channel_queue *queue = channel->rails[0].queues[0];
        channel->usable &= ~engine->lost;
        if (rail != 0) {
            rail_want_fence(channel, rail);
        } else if (queue) {
            lose_queue(queue, error);
        }
    }
    channel_take_completions(engine);
}

void channel_look_for_lost(struct channel_engine *engine)
{
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        if (nic_is(&engine->rails[i].nic->lost)) {
            crpc_error error;
            error_set(&error, CRPC_E_NO_DEVICE, 0, "RDMA device %s was taken out or has failed",
                      engine->rails[i].nic->device);
            lose_device(engine, i, &error);
        }
    }
}

void channel_device_event(struct link_group *group, const struct cm_event *event)
{
    struct channel_engine *engine = engine_of_group(group);
    struct channel_queue *queue;
    switch (event->kind) {
    case CM_EVENT_QUEUE_PAIR:
        queue = table_get(&engine->rails[event->nic].queues, event->queue_pair_number);
        if (queue) {
            lose_queue(queue, &event->error);
            channel_take_completions(engine);
        }
        break;
    case CM_EVENT_DEVICE_FATAL:
        lose_device(engine, event->nic, &event->error);
        break;
    default: /* a port that goes down shows on the rails themselves */
        break;
    }
}
