/* grant.c: the rights of the peer to write to the buffers of open receives, and to nothing else; and the
 * clear-to-sends that tell it of them.
 *
 * For each buffer and each rail that is up there is a window, bound to the queue pair of its message: to
 * exactly its bytes. Behind the binds, on the same queue pair, goes the clear-to-send of that rail. So the
 * peer hears of each right whether this side polls or not, and each rail is told of by itself: one that is
 * lost takes nothing along, and when it comes back, all open receives are granted over it anew. When the
 * message has arrived the windows are invalidated, and when that is done its receives complete. A rail that
 * is lost takes its queue pairs with it, and these their windows: that ends the rights, too.
 *
 *   NONE -> [TELLING ->] GRANTED -> WITHDRAWING -> NONE, of each message and rail
 *
 * A clear-to-send must have been read by the device, and have landed, before that of the slot's next message
 * is written to the same place. That an invalidate behind it is done shows that. Where nothing was bound,
 * there is none, and its own completion has to: the grant is TELLING until then.
 *
 * On a rail whose device has no windows, the peer writes with the key of the registration, which stays
 * valid: there the end of a right changes nothing.
 *
 * Each queue pair has as many windows as its messages need if they have four buffers each, and enough
 * for a group. Messages take them in their order, on every rail: so the oldest never waits for one.
 */
#include "channel/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/lines.h"

/* ---- Windows of a queue pair ----------------------------------------------------------------- */

uint32_t grants_windows(const struct channel *channel)
{
    uint32_t messages = channel->slot_mask / channel->queue_pairs + 1;
    return messages * channel->engine->windows_each + CHANNEL_GROUP_MAX - 1;
}

int32_t windows_make(struct nic *nic, uint32_t count, struct channel_windows *windows,
                     crpc_error *error)
{
    windows->all = lines_alloc(count, sizeof(*windows->all));
    if (!windows->all) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for memory windows");
    }
    while (windows->count < count) {
        int32_t status =
            nic->operations->window_create(nic, &windows->all[windows->count].window, error);
        if (status != CRPC_OK) {
            return status;
        }
        windows->count++;
    }
    return CRPC_OK;
}

void windows_end(struct nic *nic, struct channel_windows *windows)
{
    uint32_t index;
    while ((index = atomic_fetch_add(&windows->ended, 1)) < windows->count) {
        nic->operations->window_destroy(nic, &windows->all[index].window);
        atomic_fetch_add(&windows->gone, 1);
    }
}

void windows_end_all(struct nic *nic, struct channel_windows *windows)
{
    windows_end(nic, windows);
    while (atomic_load(&windows->gone) < windows->count) {
        sched_yield();
    }
}

void windows_destroy(struct nic *nic, struct channel_windows *windows)
{
    windows_end(nic, windows);
    free(windows->all);
    *windows = (struct channel_windows){0};
}

void grants_begin(struct channel_queue *queue, struct channel_windows *windows)
{
    assert(!queue->windows.all);
    queue->windows = (struct channel_windows){.all = windows->all, .count = windows->count};
    *windows = (struct channel_windows){0};
    for (uint32_t i = 0; i < queue->windows.count; i++) {
        struct channel_window *one = &queue->windows.all[i];
        one->next = queue->windows_free;
        queue->windows_free = one;
    }
    queue->windows_left = queue->windows.count;
}

void grants_destroy(struct channel_queue *queue)
{
    windows_destroy(queue->queue_pair->nic, &queue->windows);
}

/* ---- Granting -------------------------------------------------------------------------------- */

/* Notes that a step of a grant is done when a WQE completes, which is posted next. A queue pair that has
 * failed takes none, and none of this number completes. */
static void note(struct channel_queue *queue, const struct channel_incoming *incoming, uint32_t wqe)
{
    const struct channel *channel = queue->channel;
    queue->posted[queue->posted_tail++ & queue->posted_mask] =
        (struct channel_posted){.wqe = wqe,
                                .slot = (uint16_t)((uint32_t)incoming->number & channel->slot_mask),
                                .share = POSTED_GRANT};
}

/* Posts the clear-to-sends of a message's buffers over a rail, behind the binds. */
static void tell(struct channel *channel, const struct channel_incoming *incoming,
                 struct channel_queue *queue, uint32_t flags)
{
    uint32_t rail = queue->rail;
    uint32_t offset = channel_buffers_offset((uint32_t)incoming->number & channel->slot_mask, rail);
    struct channel_cts *lines = (struct channel_cts *)(channel->staging.base + offset);
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)lines,
        .local_key = channel->staging.keys[rail].local_key,
        .remote_address = channel->peer_area + offset,
        .remote_key = channel->rails[rail].peer_key,
        .bytes = incoming->count * (uint32_t)sizeof(*lines),
    };
    for (uint32_t i = 0; i < incoming->count; i++) {
        const struct channel_op *op = &incoming->ops[i];
        const struct channel_window *one = incoming->windows[rail][i];
        uint32_t key = op->region ? op->region->keys[rail].remote_key : 0;
        lines[i] = (struct channel_cts){.address = op->address,
                                        .bytes = op->bytes,
                                        .right = {.key = one ? one->window.remote_key : key,
                                                  .epoch = channel->rails[rail].epoch},
                                        .tag = op->tag,
                                        .index = (uint8_t)i,
                                        .count = (uint8_t)incoming->count,
                                        .rails = (uint8_t)channel->up,
                                        .number = incoming->number + 1};
    }
    queue->operations->post_write(queue->queue_pair, &transfer, flags);
    channel->stats.clear_to_send_wqes++;
}

/* Of one message on one rail. Returns false if that must wait; then nothing is posted. */
static bool grant(struct channel *channel, struct channel_incoming *incoming, uint32_t rail)
{
    struct channel_queue *queue = channel->rails[rail].queues[incoming->queue];
    uint32_t needed = 0;
    for (uint32_t i = 0; i < incoming->count; i++) {
        incoming->windows[rail][i] = NULL;
        needed += queue->windows.all && incoming->ops[i].region;
    }
    if (unlikely(nic_send_room(queue->queue_pair) < needed + 1)) {
        queue_ask_for_room(queue);
        return false;
    }
    if (unlikely(queue->windows_left < needed)) {
        return false;
    }
    queue->windows_left -= needed;
    for (uint32_t i = 0; needed > 0 && i < incoming->count; i++) {
        const struct channel_op *op = &incoming->ops[i];
        if (!op->region) {
            continue;
        }
        struct channel_window *one = queue->windows_free;
        queue->windows_free = one->next;
        incoming->windows[rail][i] = one;
        queue->operations->post_bind(queue->queue_pair, &one->window, &op->region->keys[rail],
                                     op->address, op->bytes, 0);
    }
    if (likely(needed > 0)) {
        tell(channel, incoming, queue, 0);
        incoming->grants[rail] = GRANT_GRANTED;
    } else {
        note(queue, incoming, queue->queue_pair->posted);
        tell(channel, incoming, queue, NIC_POST_SIGNALED);
        incoming->grants[rail] = GRANT_TELLING;
    }
    queue_wants_doorbell(queue);
    return true;
}

void grants_renew(struct channel *channel, uint32_t rail)
{
    uint64_t slots = channel->slot_mask + UINT64_C(1);
    uint64_t number = channel->receive.number;
    channel->receive.grant_number[rail] = number > slots ? number - slots : 0;
}

static void withdraw_later(struct channel *channel);

/* The oldest first, on each rail: it must not wait for the windows of later ones. */
void grants_post(struct channel *channel)
{
    if (unlikely(channel->receive.withdraws_later > 0)) {
        withdraw_later(channel);
    }
    for (uint32_t rails = channel->up; rails != 0; rails &= rails - 1) {
        uint32_t rail = (uint32_t)__builtin_ctz(rails);
        uint64_t *number = &channel->receive.grant_number[rail];
        for (; *number != channel->receive.number; ++*number) {
            struct channel_incoming *incoming =
                &channel->receive.incoming[*number & channel->slot_mask];
            if (likely(incoming->open) && !grant(channel, incoming, rail)) {
                break;
            }
        }
    }
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
        bool told = incoming->grants[rail] == GRANT_GRANTED;
        incoming->grants[rail] = told ? GRANT_NONE : GRANT_WITHDRAWING;
        return true;
    }
    if (unlikely(!queue)) { /* its rail is lost, and its windows end: grants_lost */
        incoming->grants[rail] = GRANT_WITHDRAWING;
        return true;
    }
    if (unlikely(nic_send_room(queue->queue_pair) < bound)) {
        queue_ask_for_room(queue);
        return false;
    }
    note(queue, incoming, queue->queue_pair->posted + bound - 1);
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct channel_window *one = incoming->windows[rail][i];
        if (one) {
            queue->operations->post_invalidate(queue->queue_pair, &one->window,
                                               --bound ? 0 : NIC_POST_SIGNALED);
        }
    }
    queue_wants_doorbell(queue);
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
        if (incoming->grants[rail] == GRANT_TELLING || incoming->grants[rail] == GRANT_GRANTED) {
            incoming->withdraw_later |= !withdraw(channel, incoming, rail);
        }
    }
    channel->receive.withdraws_later += incoming->withdraw_later;
    finish_if_over(channel, incoming);
}

/* Goes on where there was no room. */
static void withdraw_later(struct channel *channel)
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
    if (*state == GRANT_TELLING) {
        *state = GRANT_GRANTED;
        return;
    }
    assert(*state == GRANT_WITHDRAWING);
    give_back(channel, incoming, queue->rail);
    finish_if_over(channel, incoming);
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
}
