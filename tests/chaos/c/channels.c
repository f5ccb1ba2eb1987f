/* channels.c: the worker's messages over channels.
 *
 * Each channel has a few buffers for sends and a few for receives, which go round. Each buffer has a
 * tag. The receiver gets the messages of a tag in the order of the sends, but for those that were
 * taken back; half of what it receives are groups, of any tags. */
#include <stddef.h>
#include <string.h>

#include "worker.h"

#define SMALL_BYTES 16384u

/* The buffers of a channel: [0] for receives, [1] for sends. Those of tag 0 are large. */
struct area {
    uint8_t large[2][OPEN_OF_TAG][MESSAGE_BYTES_MAX];
    uint8_t small[2][CHANNEL_DEPTH][SMALL_BYTES];
};

static _Alignas(4096) struct area memory[CHANNELS_MAX];

static uint32_t bytes_of(uint32_t slot)
{
    return slot % TAGS == 0 ? MESSAGE_BYTES_MAX : SMALL_BYTES;
}

static uint8_t *buffer_of(const struct connection *connection, uint32_t slot, bool send)
{
    struct area *area = &memory[connection->room];
    return slot % TAGS == 0 ? area->large[send][slot / TAGS] : area->small[send][slot];
}

int32_t channels_open(struct worker *worker, crpc_error *error)
{
    if (worker->listen) { /* so that its memory does not grow with the channels that it has seen */
        memset(memory, 1, sizeof(memory));
    }
    return crpc_region_register(worker->context, memory, sizeof(memory),
                                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &worker->region,
                                error);
}

int room_take(struct worker *worker)
{
    for (int i = 0; i < CHANNELS_MAX; i++) {
        if (!worker->rooms[i].used && worker->rooms[i].open == 0) {
            worker->rooms[i] = (struct room){.used = true};
            return i;
        }
    }
    return -1;
}

void room_leave(struct worker *worker, int room)
{
    if (room >= 0) {
        worker->rooms[room].used = false;
    }
}

static crpc_channel_op op_of(struct worker *worker, const struct connection *connection,
                             uint32_t slot, bool send)
{
    crpc_channel_op op = {.opcode = send ? CRPC_CHANNEL_SEND : CRPC_CHANNEL_RECEIVE,
                          .tag = slot % TAGS,
                          .channel.bits = connection->handle,
                          .user_data = new_id(worker),
                          .address = (uint64_t)(uintptr_t)buffer_of(connection, slot, send),
                          .bytes = bytes_of(slot)};
    if (!chance(worker, 4)) { /* else it is registered for this op */
        op.region = worker->region;
    }
    return op;
}

static void cancel(struct worker *worker, const struct connection *connection, uint64_t send)
{
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_CANCEL,
                          .channel.bits = connection->handle,
                          .user_data = new_id(worker),
                          .token = send};
    int32_t reason = CRPC_OK;
    op_begin(worker, OP_CANCEL, op.user_data, connection->id, send);
    if (crpc_channel_submit(worker->context, &op, 1, &reason) == 1) {
        worker->others_open++;
    } else {
        op_refused(worker, op.user_data, reason);
    }
}

/* Returns whether it was accepted. */
static bool send(struct worker *worker, const struct connection *connection, uint32_t index)
{
    struct room *room = &worker->rooms[connection->room];
    struct slot *slot = &room->sends[index];
    int32_t reason = CRPC_OK;
    crpc_channel_op op = op_of(worker, connection, index, true);
    uint32_t most = chance(worker, 4) ? bytes_of(index) : 8192;
    op.bytes = HEADER_BYTES + dice(worker, most - HEADER_BYTES + 1);
    op.timeout_ns = chance(worker, 10) ? 1 + dice(worker, 20000000) : 0;
    content_fill(buffer_of(connection, index, true), (uint32_t)op.bytes, op.user_data);
    slot->id = op.user_data;
    op_begin(worker, OP_SEND, op.user_data, connection->id, op.tag);
    if (crpc_channel_submit(worker->context, &op, 1, &reason) != 1) {
        op_refused(worker, op.user_data, reason);
        slot->id = 0;
        return false;
    }
    room->open++;
    if (chance(worker, 20)) {
        cancel(worker, connection, op.user_data);
    }
    return true;
}

/* Posts a receive into one free buffer, or into several as a group. Returns whether it was accepted. */
static bool receive(struct worker *worker, const struct connection *connection)
{
    struct room *room = &worker->rooms[connection->room];
    crpc_channel_op ops[CRPC_CHANNEL_GROUP_MAX];
    uint32_t slots[CRPC_CHANNEL_GROUP_MAX], count = 0, first = dice(worker, CHANNEL_DEPTH);
    uint32_t wanted = chance(worker, 2) ? 1 : 2 + dice(worker, CRPC_CHANNEL_GROUP_MAX - 1);
    int32_t reason = CRPC_OK;
    for (uint32_t i = 0; i < CHANNEL_DEPTH && count < wanted; i++) {
        uint32_t slot = (first + i) % CHANNEL_DEPTH;
        if (!room->receives[slot].id) {
            slots[count++] = slot;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = op_of(worker, connection, slots[i], false);
        ops[i].flags = i + 1 < count ? CRPC_CHANNEL_MORE : 0;
        room->receives[slots[i]].id = ops[i].user_data;
        op_begin(worker, OP_RECEIVE, ops[i].user_data, connection->id,
                 ops[i].tag | (uint64_t)i << 8 | (uint64_t)count << 16);
    }
    if (!count) {
        return false;
    }
    int32_t taken = crpc_channel_submit(worker->context, ops, count, &reason);
    if (taken == (int32_t)count) {
        room->open += count;
        return true;
    }
    if (taken != 0) { /* of a group, all or none */
        trouble(worker, __LINE__, taken);
    }
    for (uint32_t i = 0; i < count; i++) {
        op_refused(worker, ops[i].user_data, reason);
        room->receives[slots[i]].id = 0;
    }
    return false;
}

void channel_some(struct worker *worker, int index)
{
    const struct connection *connection = &worker->connections[index];
    const struct room *room = &worker->rooms[connection->room];
    while (receive(worker, connection)) {
    }
    for (uint32_t i = 0; i < CHANNEL_DEPTH; i++) {
        if (!room->sends[i].id && chance(worker, connection->accepted ? 8 : 2) &&
            !send(worker, connection, i)) {
            break;
        }
    }
}

/* Finds which op of which room this is. Returns false if there is none: then it has ended before. */
static bool slot_end(struct worker *worker, const crpc_completion *completion, bool send)
{
    uint64_t offset = completion->payload - (uint64_t)(uintptr_t)memory;
    if (offset >= sizeof(memory)) {
        return false;
    }
    struct room *room = &worker->rooms[offset / sizeof(memory[0])];
    struct slot *slots = send ? room->sends : room->receives;
    for (uint32_t i = 0; i < CHANNEL_DEPTH; i++) {
        if (slots[i].id == completion->user_data) {
            slots[i].id = 0;
            room->open--;
            return true;
        }
    }
    return false;
}

void channel_sent(struct worker *worker, const crpc_completion *completion)
{
    if (!slot_end(worker, completion, true)) {
        trouble(worker, __LINE__, completion->status);
    }
    op_ended(worker, completion->user_data, completion->status, completion->token << 8 | 1, 0);
}

void channel_received(struct worker *worker, const crpc_completion *completion)
{
    static uint64_t kept; /* for a mistake: the message before this */
    enum verdict verdict = RIGHT;
    uint64_t sender = 0;
    if (!slot_end(worker, completion, false)) {
        trouble(worker, __LINE__, completion->status);
    }
    if (completion->status == CRPC_OK) {
        verdict = content_check((const void *)(uintptr_t)completion->payload,
                                completion->payload_bytes, &sender);
        if (kept && mistaken(worker, "order")) {
            uint64_t other = kept;
            kept = sender;
            sender = other;
        } else {
            kept = sender;
        }
    }
    op_ended(worker, completion->user_data, completion->status,
             completion->token << 8 | (uint64_t)verdict, sender);
}
