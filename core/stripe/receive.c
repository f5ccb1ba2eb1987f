/* receive.c: receives: telling the peer where its messages may be written, and the immediates that
 * say that something was. What an immediate and a record say comes from the peer, and is checked
 * here.
 */
#include "stripe/channel.h"

#include <stdatomic.h>
#include <string.h>

/* ---- Clear to send --------------------------------------------------------------------------- */

static struct stripe_buffer *lines_of(const struct stripe_channel *channel, uint32_t slot)
{
    return (struct stripe_buffer *)(channel->staging.base + STRIPE_BUFFERS_OFFSET +
                                    (size_t)slot * STRIPE_SLOT_BUFFERS_BYTES);
}

static void fill_line(struct stripe_buffer *line, const struct stripe_op *op, uint32_t index,
                      uint32_t count)
{
    *line = (struct stripe_buffer){.address = op->address,
                                   .bytes = op->bytes,
                                   .tag = op->tag,
                                   .index = (uint8_t)index,
                                   .count = (uint8_t)count,
                                   .number = op->number + 1};
    if (op->region) {
        line->keys[0] = op->region->memory[0].remote_key;
        line->keys[1] = op->region->memory[1].remote_key;
    }
}

/* True if a line that was repeated may still be under way. Nothing new is told meanwhile: the repeated
 * one must not land after a newer one for its slot, nor be read by the device while its slot's next is
 * written to the same place. It has landed when it is acknowledged, and cannot any more when the peer
 * has fenced its rail, too, which its report says (rail.c). */
static bool repeat_under_way(struct stripe_channel *channel)
{
    if (likely(channel->repeated == NO_RAIL)) {
        return false;
    }
    const struct stripe_queue *queue = channel->rails[channel->repeated].queues[0];
    if (!(channel->up & 1u << channel->repeated) ||
        (int32_t)(queue->queue_pair->completed - channel->repeated_wqe) <= 0) {
        return true;
    }
    channel->repeated = NO_RAIL;
    return false;
}

/* The rail for clear-to-sends: that of the peer's messages, so that a rail which carries none carries
 * nothing at all. Those that are repeated follow each other over one. NULL: none at present. */
static struct stripe_queue *teller(struct stripe_channel *channel)
{
    uint32_t rail = channel->up & 1u << channel->preferred ? channel->preferred
                                                           : (uint32_t)__builtin_ctz(channel->up);
    if (unlikely(repeat_under_way(channel))) {
        if (!(channel->up & 1u << channel->repeated)) {
            return NULL;
        }
        rail = channel->repeated;
    }
    return channel->rails[rail].queues[0];
}

/* False if it cannot be posted now. */
static bool tell(struct stripe_channel *channel, struct stripe_incoming *incoming)
{
    struct stripe_queue *queue = teller(channel);
    bool again = incoming->told;
    if (!queue || nic_send_room(queue->queue_pair) == 0 ||
        (!again && channel->repeated != NO_RAIL)) {
        return false;
    }
    struct nic_queue_pair *queue_pair = queue->queue_pair;
    struct stripe_buffer *lines =
        lines_of(channel, (uint32_t)incoming->number & channel->slot_mask);
    uint64_t offset = (uint64_t)((const uint8_t *)lines - channel->staging.base);
    struct nic_transfer transfer = {
        .local_address = (uint64_t)(uintptr_t)lines,
        .local_key = channel->staging.keys[queue->rail].local_key,
        .remote_address = channel->peer_area + offset,
        .remote_key = channel->rails[queue->rail].peer_key,
        .bytes = incoming->count * (uint32_t)sizeof(*lines),
    };
    uint32_t flags = 0;
    if (unlikely(again)) { /* the lines are there */
        channel->repeated = queue->rail;
        channel->repeated_wqe = queue_pair->posted;
        flags = NIC_POST_SIGNALED; /* to learn when it has landed */
    } else {
        for (uint32_t i = 0; i < incoming->count; i++) {
            fill_line(&lines[i], &incoming->ops[i], i, incoming->count);
        }
    }
    queue->operations->post_write(queue_pair, &transfer, flags);
    queue_rings(queue);
    incoming->told = true;
    incoming->teller = queue->rail;
    channel->stats.clear_to_send_wqes++;
    return true;
}

static void tell_again(struct stripe_channel *channel)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask && channel->retell > 0; slot++) {
        struct stripe_incoming *incoming = &channel->incoming[slot];
        if (!incoming->tell) {
            continue;
        }
        /* Once its message has begun, the peer has the line. */
        if (incoming->open && incoming->told && incoming->mask == 0 && !tell(channel, incoming)) {
            return;
        }
        incoming->tell = false;
        channel->retell--;
    }
}

void receives_tell(struct stripe_channel *channel)
{
    if (channel->up == 0) {
        return;
    }
    if (unlikely(channel->retell > 0)) {
        tell_again(channel);
    }
    while (channel->told_number != channel->receive_number &&
           tell(channel, &channel->incoming[channel->told_number & channel->slot_mask])) {
        channel->told_number++;
    }
}

void receives_retell(struct stripe_channel *channel, uint32_t rail)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct stripe_incoming *incoming = &channel->incoming[slot];
        if (incoming->open && incoming->told && incoming->mask == 0 && incoming->teller == rail &&
            !incoming->tell) {
            incoming->tell = true;
            channel->retell++;
        }
    }
}

/* ---- Immediates ------------------------------------------------------------------------------ */

static void complete_by_record(struct stripe_channel *channel, struct stripe_incoming *incoming)
{
    uint32_t slot = (uint32_t)incoming->number & channel->slot_mask;
    struct stripe_record record;
    memcpy(&record, channel->area.base + STRIPE_RECORDS_OFFSET + slot * 64u, sizeof(record));
    if (record.number != incoming->number + 1 || record.count != incoming->count ||
        (record.zero | record.zero2[0] | record.zero2[1]) != 0) {
        link_violated(&channel->link, "the record of message %llu is not its own",
                      (unsigned long long)incoming->number);
        return;
    }
    incoming->open = false;
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct stripe_op *op = &incoming->ops[i];
        bool truncated = record.sizes[i] > op->bytes;
        op->bytes = record.sizes[i];
        channel->stats.bytes_received += truncated ? 0 : op->bytes;
        op_finish(op, truncated ? CRPC_E_TRUNCATED : CRPC_OK);
    }
}

static void complete(struct stripe_channel *channel, struct stripe_incoming *incoming)
{
    channel->preferred = (uint8_t)__builtin_ctz(incoming->mask);
    channel->stats.messages_received++;
    if (unlikely(channel->bye_received)) {
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
static const char *check_immediate(const struct stripe_channel *channel,
                                   const struct stripe_incoming *incoming, uint32_t immediate,
                                   uint32_t share)
{
    uint32_t generation = immediate >> STRIPE_GENERATION_SHIFT;
    uint32_t mask = immediate >> STRIPE_MASK_SHIFT & 3u;
    bool record = immediate & STRIPE_IMMEDIATE_RECORD;
    if (!incoming->open || !incoming->told) {
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

void receive_immediate(struct stripe_queue *queue, uint32_t immediate, uint32_t bytes)
{
    struct stripe_channel *channel = queue->channel;
    uint32_t mask = immediate >> STRIPE_MASK_SHIFT & 3u;
    if (unlikely(mask == 0)) {
        uint32_t kind = immediate & ((1u << STRIPE_GENERATION_SHIFT) - 1);
        uint32_t value = immediate >> STRIPE_GENERATION_SHIFT;
        if (kind == STRIPE_CONTROL_MESSAGE) {
            control_take(channel, value);
        } else if (kind == STRIPE_CONTROL_PROBE) {
            rail_take_probe(channel, queue->rail, value);
        } else {
            link_violated(&channel->link, "it sent control of unknown kind 0x%x", kind);
        }
        return;
    }
    uint32_t rail = queue->rail;
    bool proxy = immediate & STRIPE_IMMEDIATE_PROXY;
    uint32_t share = proxy ? rail ^ 1u : rail;
    uint32_t slot = immediate & 0xffu;
    if (unlikely(slot > channel->slot_mask || !channel->incoming ||
                 (proxy && !channel->rails[share].failed_once))) {
        link_violated(&channel->link, "it sent a message where none can be (immediate 0x%x)",
                      immediate);
        return;
    }
    struct stripe_incoming *incoming = &channel->incoming[slot];
    const char *fault = check_immediate(channel, incoming, immediate, share);
    if (unlikely(fault)) {
        link_violated(&channel->link, "%s (immediate 0x%x)", fault, immediate);
        return;
    }
    incoming->mask = (uint8_t)mask;
    incoming->record = immediate & STRIPE_IMMEDIATE_RECORD;
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

void receives_end_all(struct stripe_channel *channel, int32_t status)
{
    if (!channel->incoming) {
        return;
    }
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        struct stripe_incoming *incoming = &channel->incoming[slot];
        if (!incoming->open) {
            continue;
        }
        incoming->open = false;
        for (uint32_t i = 0; i < incoming->count; i++) {
            incoming->ops[i].bytes = 0;
            op_finish(&incoming->ops[i], status);
        }
    }
    channel->retell = 0;
}

/* ---- For capi -------------------------------------------------------------------------------- */

int32_t stripe_receive(struct stripe_channel *channel, const crpc_channel_op *ops,
                       struct stripe_region *const *regions, uint32_t count)
{
    assert(count >= 1 && count <= STRIPE_GROUP_MAX);
    if (unlikely(channel->bar != CRPC_OK)) {
        return channel->bar;
    }
    uint64_t number = channel->receive_number;
    uint32_t slot = (uint32_t)number & channel->slot_mask;
    struct stripe_incoming *incoming = &channel->incoming[slot];
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
    incoming->told = false;
    for (uint32_t i = 0; i < count; i++) {
        struct stripe_op *op = &incoming->ops[i];
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
    channel->receive_number++;
    channel->receives_open += count;
    channel->ops_left += count;
    channel_work(channel->engine, channel);
    return CRPC_OK;
}
