/* send.c: sends: each waits until the peer has posted a receive with its tag, then its message is
 * split over the rails that are up at that moment, and posted.
 *
 * The peer's receives show as tables in our memory, written by its device ("clear to send": rights.c).
 */
#include "channel/internal.h"

#include "channel/split.h"

/* ---- The head -------------------------------------------------------------------------------- */

/* True if the head is known now. */
static inline bool read_head(struct channel *channel)
{
    rights_read(channel, channel->send.number, &channel->send.head.clear);
    return unlikely(channel->send.head.clear.count != 0);
}

/* Returns the mask of rails over which the head may go now; 0: it waits for clear-to-sends over more of them.
 * No time ends that. Those that are announced come, or their rail is lost; without any it would wait for a
 * receive. */
static inline uint32_t head_rails(struct channel *channel)
{
    struct channel_clear *clear = &channel->send.head.clear;
    if (likely(clear->told == channel->up)) {
        return clear->told;
    }
    rights_read(channel, channel->send.number, clear);
    if (clear->count == 0) {
        return 0; /* the channel has ended */
    }
    if (clear->told == 0 || (clear->announced & channel->up & ~clear->told) != 0) {
        channel->send.rights_wanted = true;
        list_append_once(&channel->engine->waiting, &channel->waiting_link);
        return 0;
    }
    return clear->told;
}

/* ---- Matching -------------------------------------------------------------------------------- */

static bool fill_place(struct channel *channel, struct channel_op *op)
{
    struct channel_head *head = &channel->send.head;
    for (uint32_t i = 0; i < head->clear.count; i++) {
        if (!head->ops[i] && head->clear.targets[i].tag == op->tag) {
            list_remove(&op->link);
            head->ops[i] = op;
            head->filled++;
            op->place = (uint8_t)i;
            return true;
        }
    }
    return false;
}

void sends_fill_places(struct channel *channel)
{
    struct list *link = channel->send.waiting.next;
    while (link != &channel->send.waiting &&
           channel->send.head.filled < channel->send.head.clear.count) {
        struct channel_op *op = list_entry(link, struct channel_op, link);
        link = link->next;
        fill_place(channel, op);
    }
}

/* ---- Posting --------------------------------------------------------------------------------- */

static struct channel_queue *queue_for(const struct channel *channel, uint32_t rail,
                                       const struct channel_outgoing *outgoing)
{
    return channel->rails[rail].queues[outgoing->queue];
}

static inline uint32_t part_of(const struct channel_outgoing *outgoing, uint32_t index,
                               uint32_t share)
{
    return share == 0 ? outgoing->part[index] : outgoing->ops[index]->bytes - outgoing->part[index];
}

static inline bool too_long(const struct channel_outgoing *outgoing, uint32_t index)
{
    return outgoing->ops[index]->bytes > outgoing->clear.targets[index].room;
}

static uint32_t leader_of(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

static void write_record(struct channel *channel, const struct channel_outgoing *outgoing,
                         struct nic_transfer *transfer, uint32_t rail)
{
    uint32_t offset =
        CHANNEL_RECORDS_OFFSET + ((uint32_t)outgoing->number & channel->slot_mask) * 64u;
    struct channel_record *record = (struct channel_record *)(channel->staging.base + offset);
    *record = (struct channel_record){.number = outgoing->number + 1, .count = outgoing->count};
    for (uint32_t i = 0; i < outgoing->count; i++) {
        record->sizes[i] = outgoing->ops[i]->bytes;
    }
    transfer->local_address = (uint64_t)(uintptr_t)record;
    transfer->local_key = channel->staging.keys[rail].local_key;
    transfer->remote_address = channel->peer_area + offset;
    transfer->remote_key = channel->rails[rail].peer_key;
    transfer->bytes = sizeof(*record);
}

/* Posts a transfer but for its last WQE: what one may carry at the most stays in `transfer`. */
static void post_but_last(struct nic_queue_pair *queue_pair, const struct engine_rail *rail,
                          struct nic_transfer *transfer)
{
    const uint32_t most = rail->message_bytes_max;
    while (unlikely(transfer->bytes > most)) {
        uint32_t left = transfer->bytes - most;
        transfer->bytes = most;
        rail->operations->post_write(queue_pair, transfer, 0);
        transfer->local_address += most;
        transfer->remote_address += most;
        transfer->bytes = left;
    }
}

/* Fills in one share of a buffer. */
static inline void take_part(const struct channel_outgoing *outgoing, uint32_t index,
                             uint32_t share, uint32_t bytes, uint32_t rail,
                             struct nic_transfer *transfer)
{
    const struct channel_op *op = outgoing->ops[index];
    const struct channel_target *target = &outgoing->clear.targets[index];
    uint64_t offset = share == 0 ? 0 : outgoing->part[index];
    transfer->local_address = op->address + offset;
    transfer->local_key = op->region->keys[rail].local_key;
    transfer->remote_address = target->address + offset;
    transfer->remote_key = target->keys[rail];
    transfer->bytes = bytes;
}

static void post_write(const struct channel_queue *queue, const struct nic_transfer *transfer,
                       bool foreign)
{
    if (foreign) {
        queue->operations->post_foreign_write(queue->queue_pair, transfer, 0);
    } else {
        queue->operations->post_write(queue->queue_pair, transfer, 0);
    }
}

/* Posts a share of several buffers, or with a record, or longer than a WRITE with an immediate may be: all but the last WQE,
 * which stays in `transfer`, and in *foreign whether it is of memory that may not be read here. Returns the
 * payload's bytes. */
static uint64_t post_all_but_last(struct channel *channel, const struct channel_outgoing *outgoing,
                                  uint32_t share, const struct channel_queue *queue,
                                  struct nic_transfer *transfer, bool *foreign)
{
    bool pending = false; /* `transfer` is posted when the next is known */
    uint64_t all = 0;
    for (uint32_t i = 0; i < outgoing->count; i++) {
        uint32_t bytes = too_long(outgoing, i) ? 0 : part_of(outgoing, i, share);
        if (bytes == 0) {
            continue;
        }
        if (pending) {
            post_write(queue, transfer, *foreign);
        }
        take_part(outgoing, i, share, bytes, queue->rail, transfer);
        *foreign = outgoing->ops[i]->region->foreign;
        post_but_last(queue->queue_pair, &channel->engine->rails[queue->rail], transfer);
        pending = true;
        all += bytes;
    }
    if (outgoing->record && share == leader_of(outgoing->mask)) {
        if (pending) {
            post_write(queue, transfer, *foreign);
        }
        write_record(channel, outgoing, transfer, queue->rail);
        *foreign = false;
    } else if (pending && unlikely(transfer->bytes > channel->engine->straight_bytes)) {
        post_write(queue, transfer, *foreign);
        *transfer = (struct nic_transfer){0};
        *foreign = false;
    }
    return all;
}

/* Posts one share on a queue pair: payload of each buffer that has any, and one immediate, which
 * rides on the last of them unless a record follows. */
static inline void post_share(struct channel *channel, struct channel_outgoing *outgoing,
                              uint32_t share, struct channel_queue *queue)
{
    struct nic_queue_pair *queue_pair = queue->queue_pair;
    uint32_t rail = queue->rail;
    struct nic_transfer transfer;
    uint64_t bytes = 0;
    bool foreign = false;
    if (likely(!outgoing->record)) { /* so it is one buffer, and its share one WQE */
        bytes = part_of(outgoing, 0, share);
    }
    if (likely(bytes > 0)) {
        take_part(outgoing, 0, share, (uint32_t)bytes, rail, &transfer);
        foreign = outgoing->ops[0]->region->foreign;
    } else {
        transfer = (struct nic_transfer){0};
        if (outgoing->record) {
            uint32_t before = queue_pair->posted;
            bytes = post_all_but_last(channel, outgoing, share, queue, &transfer, &foreign);
            channel->stats.data_wqes += queue_pair->posted - before;
        }
    }
    transfer.immediate = outgoing->immediate | (share != rail ? CHANNEL_IMMEDIATE_PROXY : 0);
    queue->posted[queue->posted_tail++ & queue->posted_mask] =
        (struct channel_posted){.wqe = queue_pair->posted,
                                .slot = (uint16_t)((uint32_t)outgoing->number & channel->slot_mask),
                                .share = (uint16_t)share};
    if (unlikely(foreign)) {
        queue->operations->post_foreign_write(queue_pair, &transfer,
                                              NIC_POST_SIGNALED | NIC_POST_IMMEDIATE);
    } else {
        queue->operations->post_write_immediate(queue_pair, &transfer, NIC_POST_SIGNALED);
    }
    outgoing->carrier[share] = (uint8_t)rail;
    channel->stats.rail_bytes_sent[rail] += bytes;
    channel->stats.data_wqes++;
    if (channel->split != CRPC_SPLIT_FIXED) {
        outgoing->bytes[share] = bytes;
        channel->rails[rail].under_way += bytes;
    }
    queue_wants_doorbell(queue);
}

/* ---- Splitting ------------------------------------------------------------------------------- */

/* What decides the split of one message. */
struct splitting {
    uint32_t share; /* of rail 0, in parts of SPLIT_FINE */
    bool balances;  /* by what is under way, too */
    uint64_t under_way[CHANNEL_RAILS_MAX];
    int64_t owed;
};

/* Decided now, with what is known now. `rails` may carry the message. */
static inline struct splitting splitting_now(const struct channel *channel, uint32_t rails)
{
    struct splitting splitting = {.share = channel->share, .owed = channel->owed};
    if (unlikely(rails != 3)) {
        splitting.share = rails == 1 ? SPLIT_FINE : 0;
        return splitting;
    }
    if (channel->split == CRPC_SPLIT_FIXED) {
        return splitting;
    }
    uint32_t hint;
    if (channel->hint && hint_read(channel->hint, link_now_ns(&channel->engine->links), &hint)) {
        splitting.share = split_fine(hint);
        return splitting;
    }
    splitting.balances = true;
    splitting.under_way[0] = channel->rails[0].under_way;
    splitting.under_way[1] = channel->rails[1].under_way;
    return splitting;
}

/* Returns what rail 0 carries of the next buffer. */
static inline uint32_t split_buffer(const struct channel *channel, struct splitting *splitting,
                                    uint32_t bytes)
{
    uint32_t first;
    if (unlikely(bytes < channel->stripe_bytes_min)) {
        first = split_whole(bytes, splitting->share, &splitting->owed);
    } else {
        int64_t due = split_due(bytes, splitting->share);
        due += splitting->balances ? split_behind(splitting->under_way, splitting->share) : 0;
        first = split_first(bytes, due);
    }
    splitting->under_way[0] += first;
    splitting->under_way[1] += bytes - first;
    return first;
}

static void split_message(const struct channel *channel, struct channel_outgoing *outgoing,
                          uint32_t rails, struct splitting *splitting)
{
    uint32_t mask = 0;
    *splitting = splitting_now(channel, rails);
    outgoing->record = outgoing->count > 1;
    for (uint32_t i = 0; i < outgoing->count; i++) {
        uint32_t bytes = outgoing->ops[i]->bytes;
        if (unlikely(too_long(outgoing, i))) {
            outgoing->record = true;
            continue;
        }
        outgoing->part[i] = split_buffer(channel, splitting, bytes);
        /* An immediate tells the size of its own WRITE only, and either rail may carry the share. */
        if (unlikely(maximum(outgoing->part[i], bytes - outgoing->part[i]) >
                     channel->engine->straight_bytes)) {
            outgoing->record = true;
        }
        mask |= (outgoing->part[i] > 0 ? 1u : 0) | (bytes > outgoing->part[i] ? 2u : 0);
    }
    if (mask == 0) {
        mask = rails & -rails; /* nothing to carry but the news of it */
    }
    outgoing->mask = (uint8_t)mask;
}

/* WQEs that were not signaled count as under way until a later one completes. When they are all there
 * is, none would, and what needs the room they take would wait for ever. */
void queue_ask_for_room(struct channel_queue *queue)
{
    const struct nic_queue_pair *queue_pair = queue->queue_pair;
    if (queue_pair->unsignaled > 0 && nic_send_room(queue_pair) > 0 &&
        queue_pair->posted - queue_pair->completed == queue_pair->unsignaled) {
        control_touch(queue);
    }
}

/* True if the queue pair has room for a share: a WQE, or with a record one or more for each buffer
 * and one for the record. */
static bool room_for(const struct channel *channel, const struct channel_outgoing *outgoing,
                     uint32_t share, struct channel_queue *queue)
{
    if (likely(!outgoing->record)) {
        return nic_send_room(queue->queue_pair) > 0;
    }
    uint32_t wqes = outgoing->count + 1;
    for (uint32_t i = 0; i < outgoing->count; i++) {
        uint32_t most = channel->engine->rails[queue->rail].message_bytes_max;
        uint32_t bytes = too_long(outgoing, i) ? 0 : part_of(outgoing, i, share);
        if (unlikely(bytes > most)) {
            wqes += bytes / most;
        }
    }
    if (unlikely(nic_send_room(queue->queue_pair) < wqes)) {
        queue_ask_for_room(queue);
        return false;
    }
    return true;
}

/* The queue pair of each share, if they have room. */
static inline bool queues_for(const struct channel *channel,
                              const struct channel_outgoing *outgoing,
                              struct channel_queue *queues[CHANNEL_RAILS_MAX])
{
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (outgoing->mask & 1u << rail) {
            queues[rail] = queue_for(channel, rail, outgoing);
            if (unlikely(!room_for(channel, outgoing, rail, queues[rail]))) {
                return false;
            }
        }
    }
    return true;
}

/* Posts the head, which is complete; false if it must wait for room. */
static bool post_head(struct channel *channel)
{
    struct channel_head *head = &channel->send.head;
    uint64_t number = channel->send.number;
    uint32_t slot = (uint32_t)number & channel->slot_mask;
    struct channel_outgoing *outgoing = &channel->send.outgoing[slot];
    if (unlikely(outgoing->count != 0 || channel->up == 0)) {
        return false; /* the receiver has the message before, but we have not heard so */
    }
    uint32_t rails = head_rails(channel);
    if (unlikely(rails == 0)) {
        return false;
    }
    outgoing->number = number;
    outgoing->count = head->clear.count;
    outgoing->queue = (uint8_t)channel->send.queue;
    for (uint32_t i = 0; i < head->clear.count; i++) {
        outgoing->ops[i] = head->ops[i];
        outgoing->clear.targets[i] = head->clear.targets[i];
    }
    outgoing->clear.told = rails;
    struct splitting splitting;
    split_message(channel, outgoing, rails, &splitting);
    struct channel_queue *queues[CHANNEL_RAILS_MAX];
    if (unlikely(!queues_for(channel, outgoing, queues))) {
        outgoing->count = 0;
        return false;
    }
    channel->owed = splitting.owed;
    outgoing->done = 0;
    outgoing->repeat = 0;
    outgoing->sample.valid = false;
    outgoing->immediate = slot | (uint32_t)outgoing->mask << CHANNEL_MASK_SHIFT |
                          (outgoing->record ? CHANNEL_IMMEDIATE_RECORD : 0) |
                          message_generation(channel, number) << CHANNEL_GENERATION_SHIFT;
    for (uint32_t i = 0; i < head->clear.count; i++) {
        struct channel_op *op = outgoing->ops[i];
        head->ops[i] = NULL;
        op->number = number;
        if (wheel_timer_set(&op->timer)) {
            wheel_clear(&channel->engine->links.wheel, &op->timer);
        }
    }
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        if (!(outgoing->mask & 1u << rail)) {
            continue;
        }
        post_share(channel, outgoing, rail, queues[rail]);
        channel->stats.rail_messages_sent[rail]++;
    }
    if (outgoing->mask == 3 && channel->split != CRPC_SPLIT_FIXED) {
        speed_begin(channel, outgoing);
    }
    channel->send.number++;
    queue_advance(channel, channel->send.number, &channel->send.queue);
    head->filled = 0;
    head->clear.count = 0;
    head->clear.told = 0;
    return true;
}

void sends_progress(struct channel *channel)
{
    channel->send.rights_wanted = false;
    while (channel->send.head.clear.count != 0 || !list_empty(&channel->send.waiting)) {
        if (channel->send.head.clear.count == 0 && !read_head(channel)) {
            break;
        }
        if (channel->send.head.filled < channel->send.head.clear.count) {
            sends_fill_places(channel);
        }
        if (channel->send.head.filled < channel->send.head.clear.count || !post_head(channel)) {
            break;
        }
    }
    bool waits = !list_empty(&channel->send.waiting) || channel->send.rights_wanted ||
                 channel->send.repeats > 0;
    if (!waits || channel->link.state == CRPC_STATE_DISCONNECTED) {
        list_remove(&channel->waiting_link);
    } else {
        list_append_once(&channel->engine->waiting, &channel->waiting_link);
    }
}

/* A send before which none waits: fills the head if it can, and then never is on a list. False if it
 * must wait for its place; if only for room, it already has that. */
static inline bool send_at_once(struct channel *channel, struct channel_op *send)
{
    struct channel_head *head = &channel->send.head;
    if (unlikely(head->clear.count != 0) || !read_head(channel) || head->clear.count != 1 ||
        unlikely(head->clear.targets[0].tag != send->tag)) {
        return false;
    }
    head->ops[0] = send;
    head->filled = 1;
    send->place = 0;
    post_head(channel);
    return true;
}

void sends_rail_lost(struct channel *channel, uint32_t rail)
{
    channel->send.head.clear.told &= ~(1u << rail);
    for (uint32_t slot = 0; slot <= channel->slot_mask; slot++) {
        channel->send.outgoing[slot].clear.told &= ~(1u << rail);
    }
}

void sends_repeat(struct channel *channel)
{
    for (uint32_t slot = 0; slot <= channel->slot_mask && channel->send.repeats > 0; slot++) {
        struct channel_outgoing *outgoing = &channel->send.outgoing[slot];
        for (uint32_t share = 0; share < CHANNEL_RAILS_MAX; share++) {
            if (outgoing->count == 0 || !(outgoing->repeat & 1u << share) || channel->up == 0) {
                continue;
            }
            if (outgoing->clear.told == 0) {
                outgoing->clear.count = outgoing->count;
                rights_read(channel, outgoing->number, &outgoing->clear);
            }
            if (outgoing->clear.told == 0 || outgoing->count == 0) { /* 0: the channel has ended */
                continue;
            }
            uint32_t rail = leader_of(outgoing->clear.told);
            struct channel_queue *queue = queue_for(channel, rail, outgoing);
            if (!room_for(channel, outgoing, share, queue)) {
                continue;
            }
            outgoing->repeat &= (uint8_t) ~(1u << share);
            channel->send.repeats--;
            channel->stats.shares_repeated++;
            post_share(channel, outgoing, share, queue);
        }
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void outgoing_leaves_rail(struct channel *channel, struct channel_outgoing *outgoing,
                          uint32_t share)
{
    struct channel_rail *rail = &channel->rails[outgoing->carrier[share]];
    rail->under_way -= outgoing->bytes[share];
    rail->since_ns = 0;
    outgoing->bytes[share] = 0;
}

void outgoing_done(struct channel *channel, struct channel_outgoing *outgoing, uint32_t share)
{
    if (channel->split != CRPC_SPLIT_FIXED) {
        outgoing_leaves_rail(channel, outgoing, share);
        speed_end(channel, outgoing, share);
    }
    outgoing->done |= (uint8_t)(1u << share);
    if (outgoing->done != outgoing->mask) {
        return;
    }
    for (uint32_t i = 0; i < outgoing->count; i++) {
        struct channel_op *op = outgoing->ops[i];
        bool truncated = too_long(outgoing, i);
        channel->stats.bytes_sent += truncated ? 0 : op->bytes;
        op_finish(op, truncated ? CRPC_E_TRUNCATED : CRPC_OK);
    }
    outgoing->count = 0;
    channel->stats.messages_sent++;
    channel_work(channel->engine, channel);
}

/* ---- For capi -------------------------------------------------------------------------------- */

int32_t channel_send(struct channel *channel, const crpc_channel_op *op,
                     struct registration *region)
{
    assert(region || op->bytes == 0);
    struct channel_engine *engine = channel->engine;
    if (unlikely(channel->bar != CRPC_OK)) {
        return channel->bar;
    }
    if (unlikely(channel->peer_leave != PEER_STAYS &&
                 channel->send.number >= channel->bye.posted)) {
        return CRPC_E_CLOSING; /* the peer receives nothing more */
    }
    if (unlikely(list_empty(&channel->send.free))) {
        channel->link.refused = true;
        return CRPC_E_AGAIN;
    }
    struct channel_op *send = list_entry(channel->send.free.next, struct channel_op, link);
    list_remove(&send->link);
    send->region = region;
    send->user_data = op->user_data;
    send->address = op->address;
    send->number = channel->send.number;
    send->bytes = (uint32_t)op->bytes;
    send->tag = op->tag;
    send->place = NO_PLACE;
    if (region) {
        region->users++;
    }
    if (op->timeout_ns != 0 && op->timeout_ns != CRPC_FOREVER) {
        wheel_set(&engine->links.wheel, &send->timer,
                  deadline_after(link_now_ns(&engine->links), op->timeout_ns));
    }
    channel->send.open++;
    channel->ops_left++;
    bool first = list_empty(&channel->send.waiting);
    if (first && send_at_once(channel, send)) {
        return CRPC_OK;
    }
    if (unlikely(channel->link.state == CRPC_STATE_DISCONNECTED)) {
        op_finish(send,
                  CRPC_E_DISCONNECTED); /* what it was to be matched with broke the protocol */
        return CRPC_OK;
    }
    list_append(&channel->send.waiting, &send->link);
    /* Behind others it would only wait as they do, unless its tag is another. */
    if (first || (channel->send.head.clear.count != 0 && fill_place(channel, send))) {
        sends_progress(channel);
    }
    return CRPC_OK;
}
