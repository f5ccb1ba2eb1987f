/* receive.c: receives: telling the peer where its messages may be written, and the immediates that
 * say that something was. What an immediate and a record say comes from the peer, and is checked
 * here.
 */
#include "channel/internal.h"

#include <stdatomic.h>
#include <string.h>

/* ---- Clear to send --------------------------------------------------------------------------- */

static struct channel_cts *cts_of(const struct channel *channel, uint32_t slot)
{
    return (struct channel_cts *)(channel->staging.base + CHANNEL_BUFFERS_OFFSET +
                                  (size_t)slot * CHANNEL_SLOT_BUFFERS_BYTES);
}

static void fill_cts(struct channel_cts *cts, const struct channel_op *op, uint32_t index,
                     uint32_t count)
{
    *cts = (struct channel_cts){.address = op->address,
                                .bytes = op->bytes,
                                .tag = op->tag,
                                .index = (uint8_t)index,
                                .count = (uint8_t)count,
                                .number = op->number + 1};
    if (op->region) {
        cts->keys[0] = op->region->keys[0].remote_key;
        cts->keys[1] = op->region->keys[1].remote_key;
    }
}

/* True if a clear-to-send that was repeated may still be under way. No new one leaves meanwhile: the repeated
 * one must not land after a newer one for its slot, nor be read by the device while its slot's next is
 * written to the same place. It has landed when it is acknowledged, and cannot any more when the peer
 * has fenced its rail, too, which its report says (rail.c). */
static bool cts_repeat_under_way(struct channel *channel)
{
    if (likely(channel->receive.repeat_rail == NO_RAIL)) {
        return false;
    }
    const struct channel_queue *queue = channel->rails[channel->receive.repeat_rail].queues[0];
    if (!(channel->up & 1u << channel->receive.repeat_rail) ||
        (int32_t)(queue->queue_pair->completed - channel->receive.repeat_wqe) <= 0) {
        return true;
    }
    channel->receive.repeat_rail = NO_RAIL;
    return false;
}

/* The rail for clear-to-sends: that of the peer's messages, so that a rail which carries none carries
 * nothing at all. Those that are repeated follow each other over one. NULL: none at present. */
static struct channel_queue *cts_queue(struct channel *channel)
{
    uint32_t rail = channel->up & 1u << channel->receive.preferred
                        ? channel->receive.preferred
                        : (uint32_t)__builtin_ctz(channel->up);
    if (unlikely(cts_repeat_under_way(channel))) {
        if (!(channel->up & 1u << channel->receive.repeat_rail)) {
            return NULL;
        }
        rail = channel->receive.repeat_rail;
    }
    return channel->rails[rail].queues[0];
}

/* False if it cannot be posted now. */
static bool post_cts(struct channel *channel, struct channel_incoming *incoming)
{
    struct channel_queue *queue = cts_queue(channel);
    bool again = incoming->cts_posted;
    if (!queue || nic_send_room(queue->queue_pair) == 0 ||
        (!again && channel->receive.repeat_rail != NO_RAIL)) {
        return false;
    }
    struct nic_queue_pair *queue_pair = queue->queue_pair;
    struct channel_cts *cts = cts_of(channel, (uint32_t)incoming->number & channel->slot_mask);
    uint64_t offset = (uint64_t)((const uint8_t *)cts - channel->staging.base);
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)cts,
        .local_key = channel->staging.keys[queue->rail].local_key,
        .remote_address = channel->peer_area + offset,
        .remote_key = channel->rails[queue->rail].peer_key,
        .bytes = incoming->count * (uint32_t)sizeof(*cts),
    };
    uint32_t flags = 0;
    if (unlikely(again)) { /* the cts are there */
        channel->receive.repeat_rail = queue->rail;
        channel->receive.repeat_wqe = queue_pair->posted;
        flags = NIC_POST_SIGNALED; /* to learn when it has landed */
    } else {
        for (uint32_t i = 0; i < incoming->count; i++) {
            fill_cts(&cts[i], &incoming->ops[i], i, incoming->count);
        }
    }
    queue->operations->post_write(queue_pair, &transfer, flags);
    queue_wants_doorbell(queue);
    incoming->cts_posted = true;
    incoming->cts_rail = queue->rail;
    channel->stats.clear_to_send_wqes++;
    return true;
}

static void repeat_cts(struct channel *channel)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask && channel->receive.cts_repeats > 0;
         slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (!incoming->cts_repeat) {
            continue;
        }
        /* Once its message has begun, the peer has the cts. */
        if (incoming->open && incoming->cts_posted && incoming->mask == 0 &&
            !post_cts(channel, incoming)) {
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
    if (unlikely(channel->receive.cts_repeats > 0)) {
        repeat_cts(channel);
    }
    while (channel->receive.cts_number != channel->receive.number &&
           post_cts(channel,
                    &channel->receive.incoming[channel->receive.cts_number & channel->slot_mask])) {
        channel->receive.cts_number++;
    }
}

void receives_repeat_cts(struct channel *channel, uint32_t rail)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct channel_incoming *incoming = &channel->receive.incoming[slot];
        if (incoming->open && incoming->cts_posted && incoming->mask == 0 &&
            incoming->cts_rail == rail && !incoming->cts_repeat) {
            incoming->cts_repeat = true;
            channel->receive.cts_repeats++;
        }
    }
}

/* ---- Immediates ------------------------------------------------------------------------------ */

static void complete_by_record(struct channel *channel, struct channel_incoming *incoming)
{
    uint32_t slot = (uint32_t)incoming->number & channel->slot_mask;
    struct channel_record record;
    memcpy(&record, channel->area.base + CHANNEL_RECORDS_OFFSET + slot * 64u, sizeof(record));
    if (record.number != incoming->number + 1 || record.count != incoming->count ||
        (record.zero | record.zero2[0] | record.zero2[1]) != 0) {
        link_violated(&channel->link, "the record of message %llu is not its own",
                      (unsigned long long)incoming->number);
        return;
    }
    incoming->open = false;
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct channel_op *op = &incoming->ops[i];
        bool truncated = record.sizes[i] > op->bytes;
        op->bytes = record.sizes[i];
        channel->stats.bytes_received += truncated ? 0 : op->bytes;
        op_finish(op, truncated ? CRPC_E_TRUNCATED : CRPC_OK);
    }
}

static void complete(struct channel *channel, struct channel_incoming *incoming)
{
    channel->receive.preferred = (uint8_t)__builtin_ctz(incoming->mask);
    channel->stats.messages_received++;
    if (unlikely(channel->peer_leave == PEER_BYE)) {
        channel_work(channel->engine, channel); /* the BYE may have waited for it */
    }
    if (incoming->record) {
        complete_by_record(channel, incoming);
        return;
    }
    incoming->open = false;
    incoming->ops[0].bytes = (uint32_t)incoming->bytes;
    channel->stats.bytes_received += incoming->bytes;
    op_finish(&incoming->ops[0], CRPC_OK);
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
        if (!incoming->open) {
            continue;
        }
        incoming->open = false;
        for (uint32_t i = 0; i < incoming->count; i++) {
            incoming->ops[i].bytes = 0;
            op_finish(&incoming->ops[i], status);
        }
    }
    channel->receive.cts_repeats = 0;
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
    channel->receive.open += count;
    channel->ops_left += count;
    channel_work(channel->engine, channel);
    return CRPC_OK;
}
