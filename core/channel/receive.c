/* receive.c: receives, and the immediates that say that something was written. What an immediate and a
 * record say comes from the peer, and is checked here.
 */
#include "channel/internal.h"

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

/* Why an immediate cannot be, of a share that came over a rail; NULL if it can. */
static const char *check_immediate(const struct channel *channel,
                                   const struct channel_incoming *incoming, uint32_t immediate,
                                   uint32_t share, uint32_t rail)
{
    uint32_t generation = immediate >> CHANNEL_GENERATION_SHIFT;
    uint32_t mask = immediate >> CHANNEL_MASK_SHIFT & 3u;
    bool record = immediate & CHANNEL_IMMEDIATE_RECORD;
    if (!incoming->open || incoming->grants[rail] == GRANT_NONE) {
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
    const char *fault = check_immediate(channel, incoming, immediate, share, rail);
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
    queue_advance(channel, channel->receive.number, &channel->receive.queue);
    channel->receive.open += count;
    channel->ops_left += count;
    channel_work(channel->engine, channel);
    return CRPC_OK;
}
