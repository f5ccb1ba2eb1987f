/* grant.c: the rights of the peer to write to the buffers of open receives, and to nothing else.
 *
 * For each buffer and each rail that is up there is a window, bound to the queue pair of its message:
 * to exactly its bytes, before the clear-to-send leaves that tells of it. That is posted behind the
 * binds of its own queue pair. Those of the other rail may be done later, and it does not wait for
 * them, since this side may not poll for long: then it is written again. When the message has arrived
 * the windows are invalidated, and when that is done its receives complete. A rail that is lost takes
 * its queue pairs with it, and these their windows: that ends the rights, too.
 *
 *   NONE -> BINDING -> GRANTED -> WITHDRAWING -> NONE, of each message and rail
 *
 * On a rail whose device has no windows, the peer writes with the key of the registration, which stays
 * valid: there a right is GRANTED at once, and its end changes nothing.
 *
 * Each queue pair has as many windows as its messages need if they have four buffers each, and enough
 * for a group. Messages take them in their order, on every rail: so the oldest never waits for one.
 */
#include "channel/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

/* ---- Windows of a queue pair ----------------------------------------------------------------- */

int32_t grants_create(struct channel_queue *queue, crpc_error *error)
{
    const struct channel *channel = queue->channel;
    struct nic *nic = queue->queue_pair->nic;
    if (!nic->windows || queue->windows) {
        return CRPC_OK;
    }
    uint32_t messages = channel->slot_mask / channel->queue_pairs + 1;
    uint32_t count = messages * channel->engine->windows_each + CHANNEL_GROUP_MAX - 1;
    queue->windows = calloc(count, sizeof(*queue->windows));
    if (!queue->windows) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for memory windows");
    }
    for (uint32_t i = 0; i < count; i++) {
        struct channel_window *one = &queue->windows[i];
        int32_t status = queue->operations->window_create(nic, &one->window, error);
        if (status != CRPC_OK) {
            return status;
        }
        one->next = queue->windows_free;
        queue->windows_free = one;
        queue->windows_count++;
    }
    queue->windows_left = count;
    return CRPC_OK;
}

void grants_destroy(struct channel_queue *queue)
{
    for (uint32_t i = 0; i < queue->windows_count; i++) {
        queue->operations->window_destroy(queue->queue_pair->nic, &queue->windows[i].window);
    }
    free(queue->windows);
}

/* ---- Granting -------------------------------------------------------------------------------- */

void queue_note(struct channel_queue *queue, const struct channel_incoming *incoming, uint32_t wqe,
                uint16_t what)
{
    const struct channel *channel = queue->channel;
    queue->posted[queue->posted_tail++ & queue->posted_mask] =
        (struct channel_posted){.wqe = wqe,
                                .slot = (uint16_t)((uint32_t)incoming->number & channel->slot_mask),
                                .share = what};
    queue_wants_doorbell(queue);
}

/* Of one message on one rail. Returns false if that must wait. */
static bool begin(struct channel *channel, struct channel_incoming *incoming, uint32_t rail)
{
    struct channel_queue *queue = channel->rails[rail].queues[incoming->queue];
    uint32_t needed = 0;
    for (uint32_t i = 0; i < incoming->count; i++) {
        incoming->windows[rail][i] = NULL;
        needed += incoming->ops[i].region != NULL;
    }
    if (unlikely(!queue->windows || needed == 0)) {
        incoming->grants[rail] = GRANT_GRANTED;
        return true;
    }
    if (unlikely(nic_send_room(queue->queue_pair) < needed)) {
        queue_ask_for_room(queue);
        return false;
    }
    if (unlikely(queue->windows_left < needed)) {
        return false;
    }
    queue_note(queue, incoming, queue->queue_pair->posted + needed - 1, POSTED_BIND);
    queue->windows_left -= needed;
    for (uint32_t i = 0; i < incoming->count; i++) {
        const struct channel_op *op = &incoming->ops[i];
        if (!op->region) {
            continue;
        }
        struct channel_window *one = queue->windows_free;
        queue->windows_free = one->next;
        incoming->windows[rail][i] = one;
        queue->operations->post_bind(queue->queue_pair, &one->window, &op->region->keys[rail],
                                     op->address, op->bytes, --needed ? 0 : NIC_POST_SIGNALED);
    }
    incoming->grants[rail] = GRANT_BINDING;
    channel->engine->binds_posted |= channel->up == 3;
    return true;
}

bool grants_begin(struct channel *channel, struct channel_incoming *incoming)
{
    bool all = true;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (channel->up & 1u << rail && incoming->grants[rail] == GRANT_NONE) {
            all &= begin(channel, incoming, rail);
        }
    }
    return all;
}

uint32_t grants_to_tell(const struct channel *channel, const struct channel_incoming *incoming,
                        const struct channel_queue *behind)
{
    uint32_t rails = 0;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (channel->up & 1u << rail &&
            (incoming->grants[rail] == GRANT_GRANTED ||
             (incoming->grants[rail] == GRANT_BINDING &&
              behind == channel->rails[rail].queues[incoming->queue]))) {
            rails |= 1u << rail;
        }
    }
    return rails;
}

struct channel_right grant_right(const struct channel *channel,
                                 const struct channel_incoming *incoming, uint32_t index,
                                 uint32_t rail)
{
    const struct channel_op *op = &incoming->ops[index];
    const struct channel_window *one = incoming->windows[rail][index];
    uint32_t key = op->region ? op->region->keys[rail].remote_key : 0;
    return (struct channel_right){.key = one ? one->window.remote_key : key,
                                  .epoch = channel->rails[rail].epoch};
}

/* ---- Withdrawing ----------------------------------------------------------------------------- */

static void give_back(struct channel *channel, struct channel_incoming *incoming, uint32_t rail)
{
    struct channel_queue *queue = channel->rails[rail].queues[incoming->queue];
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct channel_window *one = incoming->windows[rail][i];
        if (one) {
            one->next = queue->windows_free;
            queue->windows_free = one;
            queue->windows_left++;
        }
    }
    incoming->grants[rail] = GRANT_NONE;
}

/* Of one message on one rail. Returns false if that must wait for room. */
static bool withdraw(struct channel *channel, struct channel_incoming *incoming, uint32_t rail)
{
    struct channel_queue *queue = channel->rails[rail].queues[incoming->queue];
    uint32_t bound = 0;
    for (uint32_t i = 0; i < incoming->count; i++) {
        bound += incoming->windows[rail][i] != NULL;
    }
    if (bound == 0) {
        incoming->grants[rail] = GRANT_NONE;
        return true;
    }
    if (unlikely(nic_send_room(queue->queue_pair) < bound)) {
        queue_ask_for_room(queue);
        return false;
    }
    queue_note(queue, incoming, queue->queue_pair->posted + bound - 1, POSTED_INVALIDATE);
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct channel_window *one = incoming->windows[rail][i];
        if (one) {
            queue->operations->post_invalidate(queue->queue_pair, &one->window,
                                               --bound ? 0 : NIC_POST_SIGNALED);
        }
    }
    incoming->grants[rail] = GRANT_WITHDRAWING;
    return true;
}

/* Its receives complete if no right is left. */
static void finish_if_over(struct channel *channel, struct channel_incoming *incoming)
{
    if (!incoming->arrived || incoming->grants[0] != GRANT_NONE ||
        incoming->grants[1] != GRANT_NONE) {
        return;
    }
    incoming->arrived = false;
    channel->receive.withdraws_later -= incoming->withdraw_later;
    incoming->withdraw_later = false;
    for (uint32_t i = 0; i < incoming->count; i++) {
        op_finish(&incoming->ops[i], incoming->ops[i].status);
    }
    channel->stats.messages_received++;
    /* The BYE may have waited for it; and there are windows for others. */
    channel_work(channel->engine, channel);
}

void grants_withdraw(struct channel *channel, struct channel_incoming *incoming)
{
    incoming->withdraw_later = false;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (incoming->grants[rail] == GRANT_BINDING || incoming->grants[rail] == GRANT_GRANTED) {
            incoming->withdraw_later |= !withdraw(channel, incoming, rail);
        }
    }
    channel->receive.withdraws_later += incoming->withdraw_later;
    finish_if_over(channel, incoming);
}

void grants_withdraw_later(struct channel *channel)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask && channel->receive.withdraws_later > 0;
         slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (incoming->withdraw_later) {
            channel->receive.withdraws_later--;
            grants_withdraw(channel, incoming);
        }
    }
}

/* ---- What has been done ---------------------------------------------------------------------- */

void grant_done(struct channel_queue *queue, const struct channel_posted *posted)
{
    struct channel *channel = queue->channel;
    struct channel_incoming *incoming = &channel->receive.incoming[posted->slot];
    uint8_t *state = &incoming->grants[queue->rail];
    if (posted->share == POSTED_REPEAT) {
        receive_repeat_done(channel, incoming);
    } else if (posted->share == POSTED_INVALIDATE) {
        assert(*state == GRANT_WITHDRAWING);
        give_back(channel, incoming, queue->rail);
        finish_if_over(channel, incoming);
    } else if (*state == GRANT_BINDING) { /* or it is being withdrawn already */
        *state = GRANT_GRANTED;
        receive_tell_more(channel, incoming);
    }
}

void grants_lost(struct channel *channel, uint32_t rail)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (incoming->count == 0) {
            continue;
        }
        incoming->grants[rail] = GRANT_NONE;
        finish_if_over(channel, incoming);
    }
    channel->receive.grant_number = channel->receive.cts_number;
    channel->receive.cts_lost |= 1u << rail;
}
