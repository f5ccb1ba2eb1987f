/* channels.c: the worker's messages over channels.
 *
 * Each channel has a few buffers for sends and a few for receives, which go round. All messages have
 * one tag, so the receiver gets them in the order of the sends, but for those that were taken back. */
#include <stddef.h>
#include <string.h>

#include "worker.h"

#define BUFFERS (2u * CHANNEL_DEPTH)

static _Alignas(4096) uint8_t memory[CHANNELS_MAX][BUFFERS][MESSAGE_BYTES_MAX];

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

/* Submits a send or a receive. Returns whether it was accepted. */
static bool transfer(struct worker *worker, const struct connection *connection, uint32_t buffer,
                     struct slot *slot, bool send)
{
    uint64_t id = new_id(worker);
    uint8_t *bytes = memory[connection->room][buffer];
    uint32_t most = chance(worker, 4) ? MESSAGE_BYTES_MAX : 8192;
    int32_t reason = CRPC_OK;
    crpc_channel_op op = {.opcode = send ? CRPC_CHANNEL_SEND : CRPC_CHANNEL_RECEIVE,
                          .channel.bits = connection->handle,
                          .user_data = id,
                          .address = (uint64_t)(uintptr_t)bytes,
                          .bytes = MESSAGE_BYTES_MAX};
    if (!chance(worker, 4)) { /* else it is registered for this op */
        op.region = worker->region;
    }
    if (send) {
        op.bytes = HEADER_BYTES + dice(worker, most - HEADER_BYTES + 1);
        op.timeout_ns = chance(worker, 10) ? 1 + dice(worker, 20000000) : 0;
        content_fill(bytes, (uint32_t)op.bytes, id);
    }
    slot->id = id;
    op_begin(worker, send ? OP_SEND : OP_RECEIVE, id, connection->id, 0);
    if (crpc_channel_submit(worker->context, &op, 1, &reason) != 1) {
        op_refused(worker, id, reason);
        slot->id = 0;
        return false;
    }
    worker->rooms[connection->room].open++;
    if (!send || !chance(worker, 20)) {
        return true;
    }
    op = (crpc_channel_op){.opcode = CRPC_CHANNEL_CANCEL,
                           .channel.bits = connection->handle,
                           .user_data = new_id(worker),
                           .token = id};
    op_begin(worker, OP_CANCEL, op.user_data, connection->id, id);
    if (crpc_channel_submit(worker->context, &op, 1, &reason) == 1) {
        worker->others_open++;
    } else {
        op_refused(worker, op.user_data, reason);
    }
    return true;
}

void channel_some(struct worker *worker, int index)
{
    const struct connection *connection = &worker->connections[index];
    struct room *room = &worker->rooms[connection->room];
    for (uint32_t i = 0; i < CHANNEL_DEPTH; i++) {
        if (!room->receives[i].id &&
            !transfer(worker, connection, CHANNEL_DEPTH + i, &room->receives[i], false)) {
            break;
        }
    }
    for (uint32_t i = 0; i < CHANNEL_DEPTH; i++) {
        if (!room->sends[i].id && chance(worker, connection->accepted ? 8 : 2) &&
            !transfer(worker, connection, i, &room->sends[i], true)) {
            break;
        }
    }
}

/* Finds which op of which room this is. Returns NULL if there is none: then it has ended before. */
static struct slot *slot_of(struct worker *worker, const crpc_completion *completion, bool send)
{
    uint64_t offset = completion->payload - (uint64_t)(uintptr_t)memory;
    if (offset >= sizeof(memory)) {
        return NULL;
    }
    uint64_t buffer = offset / MESSAGE_BYTES_MAX;
    struct room *room = &worker->rooms[buffer / BUFFERS];
    struct slot *slot = send ? &room->sends[buffer % BUFFERS % CHANNEL_DEPTH]
                             : &room->receives[buffer % BUFFERS % CHANNEL_DEPTH];
    if (slot->id != completion->user_data) {
        return NULL;
    }
    slot->id = 0;
    room->open--;
    return slot;
}

void channel_sent(struct worker *worker, const crpc_completion *completion)
{
    if (!slot_of(worker, completion, true)) {
        trouble(worker, __LINE__, completion->status);
    }
    op_ended(worker, completion->user_data, completion->status, completion->token << 8, 0);
}

void channel_received(struct worker *worker, const crpc_completion *completion)
{
    static uint64_t kept; /* for a mistake: the message before this */
    enum verdict verdict = RIGHT;
    uint64_t sender = 0;
    if (!slot_of(worker, completion, false)) {
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
