/* connect.c: connecting the queue pairs of a rail to the addresses that the peer has offered, or has
 * answered with. The kernel may take long to find such an address, so it happens in a task of the link,
 * and the rail is CONNECTING meanwhile.
 *
 * Until the task has ended, the queue pairs that it connects are its own: nobody posts to them, fails
 * or destroys them. If the channel ends meanwhile, they go when the task has ended, and until then the
 * channel keeps its place.
 *
 * The peer does not know yet how it ends: the passive side answers afterwards, and the active side has
 * not probed. So all that an honest peer may say of such a rail is the passive side's report that it has
 * lost the rail. That, and what is lost here meanwhile, is acted on when the task has ended.
 */
#include "channel/internal.h"

#include "base/error.h"

static struct channel_rail *rail_of_task(struct link_task *task)
{
    return container_of(task, struct channel_rail, connect);
}

/* In a thread of cm. It uses the queue pairs that are busy, their addresses, and nothing else of the
 * channel that can change. */
static int32_t connect_queues(struct link_task *task, crpc_error *error)
{
    const struct channel_rail *rail = rail_of_task(task);
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct nic_queue_pair *queue_pair = rail->connecting[i];
        struct nic_address address;
        if (!queue_pair) {
            continue;
        }
        int32_t status = link_address_take_told(&address, &rail->peer[i], rail->peer_ece_vendor,
                                                task->link, queue_pair->nic, error);
        if (status == CRPC_OK) {
            status = queue_pair->nic->operations->queue_pair_connect(
                queue_pair, &address, &task->link->options.transport, error);
        }
        if (status != CRPC_OK) {
            return status;
        }
    }
    return CRPC_OK;
}

static void answer(struct channel *channel, uint32_t index, bool good)
{
    struct channel_rail *rail = &channel->rails[index];
    if (good) {
        rail->state = RAIL_PROBING;
        rail_answer(channel, index, CHANNEL_ANSWER_OK);
        return;
    }
    /* The active side has not been told of these queue pairs, nor will it be. */
    rail->state = RAIL_DOWN;
    queues_end(channel, index, 0);
    rail_answer(channel, index, CHANNEL_ANSWER_FAILED);
    rails_fail_without(channel, index);
}

static void connected(struct channel *channel, uint32_t index, bool good)
{
    struct channel_rail *rail = &channel->rails[index];
    /* It may have been lost meanwhile; and the one that the hellos connected, before. */
    good &= rail->fence == FENCE_NONE && !rail->queues[0]->queue_pair->failed;
    rail->fence = FENCE_NONE;
    if (channel->link.passive) {
        answer(channel, index, good);
        return;
    }
    /* From here on the peer may use the rail, so it only goes down by a fence. */
    rail->state = RAIL_PROBING;
    if (good) {
        control_probe(channel, index);
    } else {
        rail_want_fence(channel, index);
    }
}

static void connect_ended(struct link_task *task, const crpc_error *error)
{
    struct channel_rail *rail = rail_of_task(task);
    struct channel *channel = channel_of_link(task->link);
    uint32_t index = (uint32_t)(rail - channel->rails);
    bool good = error->status == CRPC_OK;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = rail->queues[i];
        if (queue && queue->busy) {
            queue->busy = false;
            queue->connected = good;
        }
    }
    link_tell_ece(channel->engine->rails[index].nic);
    if (rail->state != RAIL_CONNECTING) { /* the channel has ended */
        queues_destroy(channel, index);
        return;
    }
    if (!good) {
        log_write(channel->engine->links.log, CRPC_LOG_WARNING, "rail %u: %s", index,
                  error->message);
    }
    connected(channel, index, good);
    if (task->late) {
        channel_take_completions(channel->engine); /* they end a fence */
    }
}

void rail_connect(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    bool any = false;
    rail->report_known = false;
    rail->state = RAIL_CONNECTING;
    for (uint32_t i = 0; i < channel->queue_pairs; i++) {
        struct channel_queue *queue = rail->queues[i];
        queue->busy = !queue->connected;
        any |= queue->busy;
        rail->connecting[i] = queue->busy ? queue->queue_pair : NULL;
    }
    if (any) {
        link_task_start(&rail->connect, &channel->link, connect_queues, connect_ended);
    } else {
        connected(channel, index, true);
    }
}
