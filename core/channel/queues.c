/* queues.c: making the queue pairs and windows of a rail, and destroying them.
 *
 * Each takes a system call, and a queue pair has dozens of windows or hundreds. So for a rail that comes up, is lost or comes
 * back, tasks of the link do that, except that the queue pairs for the hellos are there from the start:
 *
 *   MAKING        the poll reserves the room that they need    the task makes them      the poll adopts them
 *   lost          the poll takes them out, and they fail       a task ends the windows and waits for what the device still holds
 *                 the poll drops what has completed            a task destroys the queue pairs
 *
 * What a task makes or ends is its own until it has ended (struct channel_making, channel_ending). The end of the windows is also the end
 * of the rights (grants_lost): receives that have arrived complete then, and not before, so that their memory can be deregistered.
 * A rail of which something has still to end is MAKING, too, when it begins anew, and waits for that.
 *
 * A channel that ends destroys at once what it has, and the windows that a task is at together with it: all its receives complete then, and
 * no window may be left on their memory. What is being made, and what else tasks end, goes later, when they have ended, and until
 * then the channel keeps its place.
 */
#include "channel/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"

/* ---- Destroying ------------------------------------------------------------------------------ */

/* Its completions count for nothing any more. */
static void forget_number(struct channel_queue *queue)
{
    struct table *queues = &queue->channel->engine->rails[queue->rail].queues;
    if (queue->adopted && table_get(queues, queue->queue_pair->number) == queue) {
        table_clear(queues, queue->queue_pair->number);
    }
}

/* From now on it is of no use to the channel. */
static void detach(struct channel_queue *queue)
{
    control_unsend(queue);
    list_remove(&queue->doorbell_link);
    if (queue->channel->link.queue_pair == queue->queue_pair) {
        queue->channel->link.queue_pair = NULL;
    }
    forget_number(queue);
    if (queue->adopted && !queue->queue_pair->failed) {
        queue->operations->queue_pair_fail(queue->queue_pair);
    }
}

static void destroy(struct channel_queue *queue)
{
    struct engine_rail *rail = &queue->channel->engine->rails[queue->rail];
    grants_destroy(queue); /* the number of the queue pair may be used again */
    rail->operations->queue_pair_destroy(queue->queue_pair);
    rail->queue_pairs--;
    free(queue->posted);
    free(queue);
}

static bool is_busy(const struct channel_queue *queue)
{
    const struct link *link = &queue->channel->link;
    return queue->busy || (link_joining(link) && queue->queue_pair == link->queue_pair);
}

/* ---- Ending those of a rail ------------------------------------------------------------------ */

static struct channel_rail *rail_of_ending(struct link_task *task)
{
    return container_of(task, struct channel_rail, ending.task);
}

/* In a thread of cm. The queue pairs have failed, so the peer can use no right any more. */
static int32_t settle_queues(struct link_task *task, crpc_error *error)
{
    const struct channel_ending *ending = &rail_of_ending(task)->ending;
    (void)error;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = ending->queues[i];
        if (queue) {
            windows_end_all(queue->queue_pair->nic, &queue->windows);
            queue->operations->queue_pair_settle(queue->queue_pair);
        }
    }
    return CRPC_OK;
}

/* Likewise. */
static int32_t unmake_queues(struct link_task *task, crpc_error *error)
{
    const struct channel_ending *ending = &rail_of_ending(task)->ending;
    (void)error;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = ending->queues[i];
        if (queue) {
            queue->operations->queue_pair_unmake(queue->queue_pair);
        }
    }
    return CRPC_OK;
}

static void make_what_it_lacks(struct channel *channel, uint32_t index);

/* Does what is left to do. */
static void finish(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    bool any = false;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        if (rail->ending.queues[i]) {
            destroy(rail->ending.queues[i]);
            rail->ending.queues[i] = NULL;
            any = true;
        }
    }
    if (any) {
        grants_lost(channel, index);
    }
    if (rail->state == RAIL_MAKING) {
        make_what_it_lacks(channel, index);
    }
}

static void unmade(struct link_task *task, const crpc_error *error)
{
    struct channel_rail *rail = rail_of_ending(task);
    struct channel *channel = channel_of_link(task->link);
    (void)error;
    finish(channel, (uint32_t)(rail - channel->rails));
}

static void settled(struct link_task *task, const crpc_error *error)
{
    struct channel_rail *rail = rail_of_ending(task);
    struct channel *channel = channel_of_link(task->link);
    uint32_t index = (uint32_t)(rail - channel->rails);
    if (error->status != CRPC_OK) {
        finish(channel, index);
        return;
    }
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = rail->ending.queues[i];
        if (queue) {
            queue->operations->queue_pair_drop(queue->queue_pair);
        }
    }
    grants_lost(channel, index);
    link_task_start(&rail->ending.task, &channel->link, unmake_queues, unmade);
}

void queues_end(struct channel *channel, uint32_t index, uint32_t from)
{
    struct channel_rail *rail = &channel->rails[index];
    bool any = false;
    assert(!rail->ending.task.under_way);
    for (uint32_t i = from; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = rail->queues[i];
        if (queue) {
            assert(!is_busy(queue));
            detach(queue);
            rail->ending.queues[i] = queue;
            rail->queues[i] = NULL;
            any = true;
        }
    }
    if (any && channel->engine->links.cm) {
        link_task_start(&rail->ending.task, &channel->link, settle_queues, settled);
    } else {
        finish(channel, index);
    }
}

/* The channel ends: the end of its windows is waited for, but that of its queue pairs is not. */
static void end_windows(struct channel_ending *ending)
{
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = ending->queues[i];
        if (queue) {
            windows_end_all(queue->queue_pair->nic, &queue->windows);
        }
    }
}

void queues_destroy(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    bool any = false;
    if (rail->state == RAIL_MAKING) {
        rail->state = RAIL_DOWN;
    }
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = rail->queues[i];
        if (queue && is_busy(queue)) {
            forget_number(queue);
        } else if (queue) {
            detach(queue);
            destroy(queue);
            rail->queues[i] = NULL;
            any = true;
        }
    }
    if (rail->ending.task.under_way) {
        end_windows(&rail->ending);
        any = true;
    } else {
        finish(channel, index);
    }
    if (any) {
        grants_lost(channel, index);
    }
}

/* ---- The steps of making one ----------------------------------------------------------------- */

/* Nothing may overrun the completion queue: if all fails at once, each WQE has an entry. */
static bool sends_complete(const struct engine_rail *rail, crpc_error *error)
{
    const struct nic *nic = rail->nic;
    if ((uint64_t)(rail->queue_pairs + 1) * nic_send_places(nic->send_depth) <=
        nic->send_completion_depth) {
        return true;
    }
    error_set(error, CRPC_E_NO_RESOURCE, 0,
              "the completion queue of %s takes %u sends, enough for %u queue pairs: close some "
              "channels, or raise channels_max or rail_queue_pairs_max of the context",
              nic->device, nic->send_completion_depth, rail->queue_pairs);
    return false;
}

/* Reserves what it needs. */
static struct channel_queue *begin(struct channel *channel, uint32_t rail, crpc_error *error)
{
    struct engine_rail *engine_rail = &channel->engine->rails[rail];
    if (!sends_complete(engine_rail, error)) {
        return NULL;
    }
    struct channel_queue *queue = lines_alloc(1, sizeof(*queue));
    /* Both shares of a message may be on one queue pair, if it stands in for the other rail's; and a step of
     * the grant of a message. */
    uint32_t entries = 4 * channel->options.slots;
    if (queue) {
        queue->posted = lines_alloc(entries, sizeof(*queue->posted));
    }
    if (!queue || !queue->posted) {
        free(queue);
        error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
        return NULL;
    }
    queue->channel = channel;
    queue->operations = engine_rail->operations;
    queue->rail = (uint8_t)rail;
    queue->posted_mask = entries - 1;
    list_init(&queue->doorbell_link);
    if (engine_rail->operations->queue_pair_begin(
            engine_rail->nic, queue, engine_rail->nic->send_depth,
            receives_of(channel->options.slots), &queue->queue_pair, error) != CRPC_OK) {
        free(queue->posted);
        free(queue);
        return NULL;
    }
    engine_rail->queue_pairs++;
    return queue;
}

/* It has been made. */
static int32_t adopt(struct channel_queue *queue, crpc_error *error)
{
    struct table *queues = &queue->channel->engine->rails[queue->rail].queues;
    int32_t status = queue->operations->queue_pair_adopt(queue->queue_pair, error);
    if (status != CRPC_OK) {
        return status;
    }
    queue->adopted = true;
    /* Of one that had this number before. */
    link_forget_queue_pair(&queue->channel->engine->links, queue->rail, queue->queue_pair->number);
    if (!table_set(queues, queue->queue_pair->number, queue)) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue pair");
    }
    return CRPC_OK;
}

/* ---- Making those of a rail ------------------------------------------------------------------ */

static struct channel_rail *rail_of_task(struct link_task *task)
{
    return container_of(task, struct channel_rail, making.task);
}

/* In a thread of cm. */
static int32_t make_queues(struct link_task *task, crpc_error *error)
{
    struct channel_making *making = &rail_of_task(task)->making;
    int32_t status = CRPC_OK;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX && status == CRPC_OK; i++) {
        struct nic_queue_pair *queue_pair = making->queue_pairs[i];
        if (queue_pair) {
            status = making->nic->operations->queue_pair_make(queue_pair, NULL, error);
        }
        if (status == CRPC_OK && making->windows_wanted[i] > 0) {
            status =
                windows_make(making->nic, making->windows_wanted[i], &making->windows[i], error);
        }
    }
    return status;
}

void queues_give_up(struct channel *channel, uint32_t rail)
{
    struct channel_making *making = &channel->rails[rail].making;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        if (making->queue_pairs[i]) {
            channel->rails[rail].queues[i]->busy = false;
            making->queue_pairs[i] = NULL;
        }
        if (making->windows[i].all) {
            windows_destroy(making->nic, &making->windows[i]);
        }
    }
}

/* Then memory may have no keys there. */
static bool is_lost(const struct channel *channel, uint32_t index)
{
    return (channel->engine->lost & 1u << index) != 0;
}

/* What is made goes with the queue pairs. */
static void give_what_is_made(struct channel_rail *rail)
{
    struct channel_making *making = &rail->making;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        if (making->queue_pairs[i]) {
            making->queue_pairs[i] = NULL;
            rail->queues[i]->busy = false;
        }
        if (making->windows[i].all) {
            grants_begin(rail->queues[i], &making->windows[i]);
        }
    }
}

static void failed(struct channel *channel, uint32_t index, const crpc_error *error)
{
    channel->rails[index].state = RAIL_DOWN;
    give_what_is_made(&channel->rails[index]);
    queues_end(channel, index, 0);
    if (!is_lost(channel, index)) { /* that is known */
        log_write(channel->engine->links.log, CRPC_LOG_WARNING, "rail %u: %s", index,
                  error->message);
    }
    rail_made(channel, index, false);
}

static int32_t adopt_queues(struct channel_rail *rail, crpc_error *error)
{
    struct channel_making *making = &rail->making;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        struct channel_queue *queue = rail->queues[i];
        if (making->queue_pairs[i]) {
            making->queue_pairs[i] = NULL;
            queue->busy = false;
            int32_t status = adopt(queue, error);
            if (status != CRPC_OK) {
                return status;
            }
        }
        if (making->windows[i].all) {
            grants_begin(queue, &making->windows[i]);
        }
    }
    return CRPC_OK;
}

static void made(struct link_task *task, const crpc_error *given)
{
    struct channel_rail *rail = rail_of_task(task);
    struct channel *channel = channel_of_link(task->link);
    uint32_t index = (uint32_t)(rail - channel->rails);
    crpc_error error = *given;
    if (rail->state != RAIL_MAKING) { /* the channel has ended */
        queues_give_up(channel, index);
        queues_destroy(channel, index);
    } else if (error.status != CRPC_OK || is_lost(channel, index) ||
               adopt_queues(rail, &error) != CRPC_OK) {
        failed(channel, index, &error);
    } else {
        rail_made(channel, index, true);
    }
}

/* Reserves what the rail lacks, for the task. Returns a status; `any` says whether it lacks anything. */
static int32_t reserve(struct channel *channel, uint32_t index, bool *any, crpc_error *error)
{
    struct channel_rail *rail = &channel->rails[index];
    struct channel_making *making = &rail->making;
    making->nic = channel->engine->rails[index].nic;
    for (uint32_t i = 0; i < CHANNEL_QUEUE_PAIRS_MAX; i++) {
        making->windows_wanted[i] = 0;
        if (i >= channel->queue_pairs) {
            continue;
        }
        if (!rail->queues[i]) {
            rail->queues[i] = begin(channel, index, error);
            if (!rail->queues[i]) {
                return error->status;
            }
            rail->queues[i]->busy = true;
            making->queue_pairs[i] = rail->queues[i]->queue_pair;
            *any = true;
        }
        if (making->nic->windows && !rail->queues[i]->windows.all) {
            making->windows_wanted[i] = grants_windows(channel);
            *any = true;
        }
    }
    return CRPC_OK;
}

static void make_what_it_lacks(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    crpc_error error = {0};
    bool any = false;
    if (is_lost(channel, index) || reserve(channel, index, &any, &error) != CRPC_OK) {
        failed(channel, index, &error);
    } else if (any) {
        link_task_start(&rail->making.task, &channel->link, make_queues, made);
    } else {
        rail_made(channel, index, true);
    }
}

void queues_make(struct channel *channel, uint32_t index)
{
    struct channel_rail *rail = &channel->rails[index];
    assert(rail->state == RAIL_DOWN && !rail->making.task.under_way);
    rail->state = RAIL_MAKING;
    if (!rail->ending.task.under_way) {
        make_what_it_lacks(channel, index);
    }
}

/* ---- The first ones -------------------------------------------------------------------------- */

int32_t queues_create(struct channel *channel, uint32_t rail, uint32_t count, crpc_error *error)
{
    assert(rail < channel->engine->rail_count && count <= CHANNEL_QUEUE_PAIRS_MAX);
    struct channel_queue **queues = channel->rails[rail].queues;
    for (uint32_t i = 0; i < count; i++) {
        assert(!queues[i]);
        queues[i] = begin(channel, rail, error);
        if (!queues[i] ||
            queues[i]->operations->queue_pair_make(queues[i]->queue_pair, NULL, error) != CRPC_OK ||
            adopt(queues[i], error) != CRPC_OK) {
            queues_destroy(channel, rail);
            return error->status;
        }
    }
    return CRPC_OK;
}
