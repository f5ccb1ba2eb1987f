/* receive.c: receives: telling the peer where its messages may be written, and the immediates that
 * say that something was. What an immediate and a record say comes from the peer, and is checked
 * here.
 */
#include "channel/internal.h"

#include <stdatomic.h>

/* ---- Clear to send --------------------------------------------------------------------------- */

static struct channel_cts *cts_of(const struct channel *channel, uint32_t slot)
{
    return (struct channel_cts *)(channel->staging.base + CHANNEL_BUFFERS_OFFSET +
                                  (size_t)slot * CHANNEL_SLOT_BUFFERS_BYTES);
}

static void fill_cts(const struct channel *channel, struct channel_cts *cts,
                     const struct channel_incoming *incoming, uint32_t index)
{
    const struct channel_op *op = &incoming->ops[index];
    *cts = (struct channel_cts){.address = op->address,
                                .bytes = op->bytes,
                                .tag = op->tag,
                                .index = (uint8_t)index,
                                .count = (uint8_t)incoming->count,
                                .rails = (uint8_t)channel->up,
                                .number = op->number + 1};
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (incoming->told & 1u << rail) {
            cts->rights[rail] = grant_right(channel, incoming, index, rail);
        }
    }
}

/* Where the clear-to-sends of a message go. The first goes over the rail of the peer's messages, so that
 * one which carries none carries nothing at all, behind the binds of its own queue pair. Those that
 * follow go the same way, so that none overtakes another; when that rail is lost, over another. */
static struct channel_queue *cts_queue(const struct channel *channel,
                                       const struct channel_incoming *incoming)
{
    uint32_t rail = incoming->cts_posted ? incoming->cts_rail : channel->receive.preferred;
    if (unlikely(!(channel->up & 1u << rail))) {
        rail = (uint32_t)__builtin_ctz(channel->up);
    }
    return channel->rails[rail].queues[incoming->queue];
}

/* Writes what is known now. The device may still be reading these lines for the write before: it may
 * have the new rights, too. */
static void write_cts(struct channel *channel, const struct channel_incoming *incoming,
                      struct channel_queue *queue, uint32_t flags)
{
    struct channel_cts *cts = cts_of(channel, (uint32_t)incoming->number & channel->slot_mask);
    uint64_t offset = (uint64_t)((const uint8_t *)cts - channel->staging.base);
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)cts,
        .local_key = channel->staging.keys[queue->rail].local_key,
        .remote_address = channel->peer_area + offset,
        .remote_key = channel->rails[queue->rail].peer_key,
        .bytes = incoming->count * (uint32_t)sizeof(*cts),
    };
    for (uint32_t i = 0; i < incoming->count; i++) {
        fill_cts(channel, &cts[i], incoming, i);
    }
    queue->operations->post_write(queue->queue_pair, &transfer, flags);
    queue_wants_doorbell(queue);
    channel->stats.clear_to_send_wqes++;
}

/* False if it cannot be posted now.
 *
 * While a repeated one may be under way no new one leaves: it must not land after a newer one for its
 * slot, nor be read by the device while its slot's next is written to the same place. It has landed when
 * it is acknowledged, and cannot any more when the peer has fenced its rail, too, which its report says
 * (rail.c). The same is true of any that may be under way over a lost rail. */
static bool post_cts(struct channel *channel, struct channel_incoming *incoming)
{
    struct channel_queue *queue = cts_queue(channel, incoming);
    bool again = incoming->cts_posted;
    if (channel->receive.cts_lost != 0 ||
        (again ? incoming->repeat_open : channel->receive.repeats_open > 0) ||
        !grants_begin(channel, incoming) || nic_send_room(queue->queue_pair) == 0) {
        return false;
    }
    uint32_t rails = grants_to_tell(channel, incoming, again ? NULL : queue);
    if (unlikely(again)) {
        if (rails != channel->up) {
            return false;
        }
        queue_note(queue, incoming, queue->queue_pair->posted, POSTED_REPEAT);
        incoming->repeat_open = true;
        incoming->repeat_rail = queue->rail;
        channel->receive.repeats_open++;
    }
    incoming->told = (uint8_t)rails;
    incoming->cts_posted = true;
    incoming->cts_rail = queue->rail;
    /* It is signaled to learn when it has landed. */
    write_cts(channel, incoming, queue, again ? NIC_POST_SIGNALED : 0);
    return true;
}

void receive_repeat_done(struct channel *channel, struct channel_incoming *incoming)
{
    incoming->repeat_open = false;
    channel->receive.repeats_open--;
}

void receives_forget_repeats(struct channel *channel, uint32_t rail)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (incoming->repeat_open && incoming->repeat_rail == rail) {
            receive_repeat_done(channel, incoming);
        }
    }
    channel->receive.cts_lost &= ~(1u << rail);
}

/* It follows the first one on its queue pair, and the invalidates follow it: so when those are done, it
 * has landed, and the slot's next cannot be overtaken. */
void receive_tell_more(struct channel *channel, struct channel_incoming *incoming)
{
    if (!incoming->open || !incoming->cts_posted || incoming->told == channel->up ||
        grants_to_tell(channel, incoming, NULL) != channel->up ||
        !(channel->up & 1u << incoming->cts_rail)) {
        return;
    }
    struct channel_queue *queue = channel->rails[incoming->cts_rail].queues[incoming->queue];
    if (nic_send_room(queue->queue_pair) > 0) {
        incoming->told = (uint8_t)channel->up;
        write_cts(channel, incoming, queue, 0);
    }
}

/* The oldest first: it must not wait for the windows of later ones. */
static void repeat_cts(struct channel *channel)
{
    for (uint32_t i = 0; i <= channel->slot_mask && channel->receive.cts_repeats > 0; i++) {
        uint32_t slot = ((uint32_t)channel->receive.number + i) & channel->slot_mask;
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (!incoming->cts_repeat) {
            continue;
        }
        if (incoming->open && incoming->cts_posted && !post_cts(channel, incoming)) {
            return;
        }
        incoming->cts_repeat = false;
        channel->receive.cts_repeats--;
    }
}

void receives_post_cts(struct channel *channel)
{
    if (channel->up == 0) {
        return;
    }
    if (unlikely(channel->receive.withdraws_later > 0)) {
        grants_withdraw_later(channel);
    }
    if (unlikely(channel->receive.cts_repeats > 0)) {
        repeat_cts(channel);
        if (channel->receive.cts_repeats > 0) {
            return; /* windows go to older messages first */
        }
    }
    while (channel->receive.grant_number != channel->receive.number &&
           grants_begin(
               channel,
               &channel->receive.incoming[channel->receive.grant_number & channel->slot_mask])) {
        channel->receive.grant_number++;
    }
    while (channel->receive.cts_number != channel->receive.grant_number &&
           post_cts(channel,
                    &channel->receive.incoming[channel->receive.cts_number & channel->slot_mask])) {
        channel->receive.cts_number++;
    }
}

static void want_repeat(struct channel *channel, struct channel_incoming *incoming)
{
    if (incoming->open && incoming->cts_posted && !incoming->cts_repeat) {
        incoming->cts_repeat = true;
        channel->receive.cts_repeats++;
    }
}

void receives_repeat_cts(struct channel *channel, uint32_t rail)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        /* Once its message has begun, the peer has the cts. It has rights over the other rail, too, or
         * gets them when that comes up. */
        if (incoming->mask == 0 && incoming->cts_rail == rail) {
            want_repeat(channel, incoming);
        }
    }
}

void receives_renew_cts(struct channel *channel)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        want_repeat(channel, &channel->receive.incoming[slot]);
    }
    channel->receive.grant_number = channel->receive.cts_number;
}

/* ---- Immediates ------------------------------------------------------------------------------ */

static void complete_by_record(struct channel *channel, struct channel_incoming *incoming)
{
    uint32_t slot = (uint32_t)incoming->number & channel->slot_mask;
    struct channel_record record;
    wire_copy(&record, channel->area.base + CHANNEL_RECORDS_OFFSET + slot * 64u);
    if (record.number != incoming->number + 1 || record.count != incoming->count ||
        (record.zero | record.zero2[0] | record.zero2[1]) != 0) {
        link_violated(&channel->link, "the record of message %llu is not its own",
                      (unsigned long long)incoming->number);
        return;
    }
    incoming->open = false;
    incoming->arrived = true;
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct channel_op *op = &incoming->ops[i];
        bool truncated = record.sizes[i] > op->bytes;
        op->bytes = record.sizes[i];
        channel->stats.bytes_received += truncated ? 0 : op->bytes;
        op->status = truncated ? CRPC_E_TRUNCATED : CRPC_OK;
    }
    grants_withdraw(channel, incoming);
}

static void complete(struct channel *channel, struct channel_incoming *incoming)
{
    channel->receive.preferred = (uint8_t)__builtin_ctz(incoming->mask);
    if (incoming->record) {
        complete_by_record(channel, incoming);
        return;
    }
    incoming->open = false;
    incoming->arrived = true;
    incoming->ops[0].bytes = (uint32_t)incoming->bytes;
    incoming->ops[0].status = CRPC_OK;
    channel->stats.bytes_received += incoming->bytes;
    grants_withdraw(channel, incoming);
}

/* Why an immediate cannot be; NULL if it can. */
static const char *check_immediate(const struct channel *channel,
                                   const struct channel_incoming *incoming, uint32_t immediate,
                                   uint32_t share)
{
    uint32_t generation = immediate >> CHANNEL_GENERATION_SHIFT;
    uint32_t mask = immediate >> CHANNEL_MASK_SHIFT & 3u;
    bool record = immediate & CHANNEL_IMMEDIATE_RECORD;
    if (!incoming->open || !incoming->cts_posted) {
        return "it sent to a slot that waits for nothing";
    }
    if (generation != message_generation(channel, incoming->number)) {
        return "it sent to a slot as it was used before";
    }
    if (incoming->mask != 0 && (incoming->mask != mask || incoming->record != record)) {
        return "the parts of its message contradict each other";
    }
    if (!(mask & 1u << share) || incoming->seen & 1u << share) {
        return "it sent a part of a message twice, or one that the message has not";
    }
    if (mask & ~channel->common) {
        return "it sent over a rail that this side has not";
    }
    if (!record && incoming->count > 1) {
        return "it sent a group without telling its sizes";
    }
    return NULL;
}

void receive_immediate(struct channel_queue *queue, uint32_t immediate, uint32_t bytes)
{
    struct channel *channel = queue->channel;
    uint32_t mask = immediate >> CHANNEL_MASK_SHIFT & 3u;
    if (unlikely(mask == 0)) {
        uint32_t kind = immediate & ((1u << CHANNEL_GENERATION_SHIFT) - 1);
        uint32_t value = immediate >> CHANNEL_GENERATION_SHIFT;
        if (kind == CHANNEL_IMMEDIATE_CONTROL) {
            control_take(channel, value);
        } else if (kind == CHANNEL_IMMEDIATE_PROBE) {
            rail_take_probe(channel, queue->rail, value);
        } else {
            link_violated(&channel->link, "it sent control of unknown kind 0x%x", kind);
        }
        return;
    }
    uint32_t rail = queue->rail;
    bool proxy = immediate & CHANNEL_IMMEDIATE_PROXY;
    uint32_t share = proxy ? rail ^ 1u : rail;
    uint32_t slot = immediate & 0xffu;
    if (unlikely(slot > channel->slot_mask || !channel->receive.incoming ||
                 (proxy && !channel->rails[share].failed_once))) {
        link_violated(&channel->link, "it sent a message where none can be (immediate 0x%x)",
                      immediate);
        return;
    }
    struct channel_incoming *incoming = &channel->receive.incoming[slot];
    const char *fault = check_immediate(channel, incoming, immediate, share);
    if (unlikely(fault)) {
        link_violated(&channel->link, "%s (immediate 0x%x)", fault, immediate);
        return;
    }
    incoming->mask = (uint8_t)mask;
    incoming->record = immediate & CHANNEL_IMMEDIATE_RECORD;
    incoming->seen |= (uint8_t)(1u << share);
    channel->stats.rail_bytes_received[rail] += bytes;
    if (!incoming->record) {
        incoming->bytes += bytes;
        if (unlikely(incoming->bytes > incoming->ops[0].bytes)) {
            link_violated(&channel->link, "it sent more than the buffer of message %llu holds",
                          (unsigned long long)incoming->number);
            return;
        }
    }
    if (incoming->seen == incoming->mask) {
        complete(channel, incoming);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void receives_end_all(struct channel *channel, int32_t status)
{
    if (!channel->receive.incoming) {
        return;
    }
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (!incoming->open && !incoming->arrived) {
            continue;
        }
        for (uint32_t i = 0; i < incoming->count; i++) {
            if (incoming->open) {
                incoming->ops[i].bytes = 0;
                incoming->ops[i].status = (int8_t)status;
            }
            op_finish(&incoming->ops[i], incoming->ops[i].status);
        }
        channel->stats.messages_received += incoming->arrived;
        incoming->open = false;
        incoming->arrived = false;
        incoming->withdraw_later = false;
    }
    channel->receive.cts_repeats = 0;
    channel->receive.withdraws_later = 0;
}

/* ---- For capi -------------------------------------------------------------------------------- */

int32_t channel_receive(struct channel *channel, const crpc_channel_op *ops,
                        struct registration *const *regions, uint32_t count)
{
    assert(count >= 1 && count <= CHANNEL_GROUP_MAX);
    if (unlikely(channel->bar != CRPC_OK)) {
        return channel->bar;
    }
    uint64_t number = channel->receive.number;
    uint32_t slot = (uint32_t)number & channel->slot_mask;
    struct channel_incoming *incoming = &channel->receive.incoming[slot];
    if (unlikely(incoming->count != 0)) {
        channel->link.refused = true;
        return CRPC_E_AGAIN;
    }
    incoming->number = number;
    incoming->count = count;
    incoming->bytes = 0;
    incoming->emitted = 0;
    incoming->mask = 0;
    incoming->seen = 0;
    incoming->record = false;
    incoming->open = true;
    incoming->cts_posted = false;
    incoming->queue = (uint8_t)channel->receive.queue;
    incoming->arrived = false;
    for (uint32_t i = 0; i < count; i++) {
        struct channel_op *op = &incoming->ops[i];
        op->region = regions[i];
        op->user_data = ops[i].user_data;
        op->address = ops[i].address;
        op->number = number;
        op->bytes = (uint32_t)ops[i].bytes;
        op->tag = ops[i].tag;
        if (op->region) {
            op->region->users++;
        }
    }
    channel->receive.number++;
    channel->receive.queue++;
    if (channel->receive.queue == channel->queue_pairs) {
        channel->receive.queue = 0;
    }
    channel->receive.open += count;
    channel->ops_left += count;
    channel_work(channel->engine, channel);
    return CRPC_OK;
}
