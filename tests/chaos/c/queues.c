/* queues.c: the worker's queues: messages, and WRITEs, READs and additions to the peer's memory.
 *
 * Both sides of a queue do the same, each to a room of the other: some slots, which only the peer writes,
 * one op at a time in each; and a counter, to which only the peer adds. So what a slot holds, and what the
 * counter was before each addition, is known exactly as long as all ops end well. What the peer has left
 * when it can reach the room no more, is told to the oracle, which knows the peer's ops.
 *
 * Some queues are sparse, with each op signaled. Half of those that a server accepts receive from an SRQ. */
#include <stddef.h>
#include <string.h>

#include "worker.h"

#define ROOMS 16
#define SLOTS 4   /* that the peer writes */
#define BUFFERS 8 /* for sends, and for receives */
#define ADDS 4    /* open at once */
#define SLOT_BYTES 8192u
#define INLINE_BYTES 60u
#define SHARED 16 /* receives of the SRQ */
#define BATCH 24

/* Memory of one queue. Of the first two members the peer is told. */
struct area {
    _Alignas(64) uint64_t counter;
    _Alignas(64) uint8_t slots[SLOTS][SLOT_BYTES];
    uint8_t receives[BUFFERS][SLOT_BYTES];
    uint8_t sends[BUFFERS][SLOT_BYTES];
    uint8_t copies[SLOTS][SLOT_BYTES]; /* what is written, or was read */
};

/* What a side tells the other when they connect. */
struct greeting {
    uint64_t connect; /* id of the connect */
    uint64_t address; /* of the area */
    uint32_t key;
    uint32_t zero;
};

/* A slot of the peer. */
struct written {
    uint64_t id; /* of the op that uses it; 0: none */
    bool reads;
    bool known;    /* the last WRITE has ended well */
    uint64_t last; /* its id */
    uint32_t bytes, next_bytes;
};

struct addition {
    uint64_t id;     /* 0: none */
    uint64_t before; /* so many came before it */
};

struct queue_room {
    bool used, sparse, shares;
    uint32_t open;       /* ops */
    uint64_t connection; /* id; 0: it never connected */
    struct greeting peer;
    uint64_t receives[BUFFERS], sends[BUFFERS]; /* ids; 0: none */
    struct written slots[SLOTS];
    struct addition adds[ADDS];
    uint64_t added;
};

/* Ops that are submitted together. */
struct batch {
    crpc_queue_op ops[BATCH];
    uint64_t *ids[BATCH]; /* where the id of each is noted */
    uint32_t count;
};

static _Alignas(4096) struct area memory[ROOMS];
static _Alignas(4096) uint8_t shared_memory[SHARED][SLOT_BYTES];
static struct queue_room rooms[ROOMS];
static struct {
    crpc_queue queue; /* none: this is no server, or it ends */
    crpc_region region;
    uint64_t receives[SHARED]; /* ids; 0: none */
    uint32_t open;
} shared;
static crpc_region region;
static uint32_t remote_key;

static int32_t open_shared(struct worker *worker, crpc_error *error)
{
    const crpc_queue_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_SRQ, .receives = SHARED};
    memset(shared_memory, 1, sizeof(shared_memory));
    int32_t status = crpc_region_register(worker->context, shared_memory, sizeof(shared_memory),
                                          CRPC_ACCESS_LOCAL_WRITE, &shared.region, error);
    return status == CRPC_OK ? crpc_queue_open(worker->context, &options, &shared.queue, error)
                             : status;
}

int32_t queues_open(struct worker *worker, crpc_error *error)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    worker->queue_rooms = rooms;
    if (worker->listen) { /* so that its memory does not grow with the queues that it has seen */
        memset(memory, 1, sizeof(memory));
    }
    int32_t status = crpc_region_register(worker->context, memory, sizeof(memory),
                                          CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                                              CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC,
                                          &region, error);
    if (status != CRPC_OK) {
        return status;
    }
    crpc_region_get_info(worker->context, region, &info);
    remote_key = info.remote_key;
    return worker->listen ? open_shared(worker, error) : CRPC_OK;
}

/* ---- Rooms ----------------------------------------------------------------------------------- */

int queue_room_take(struct worker *worker)
{
    for (int i = 0; i < ROOMS; i++) {
        struct queue_room *room = &worker->queue_rooms[i];
        if (!room->used && room->open == 0) {
            *room = (struct queue_room){.used = true};
            memory[i].counter = 0;
            memset(memory[i].slots, 0, sizeof(memory[i].slots));
            return i;
        }
    }
    return -1;
}

/* The verdict on what is in a slot, and whose it is; 0: nobody's. */
static enum verdict look_at(const uint8_t *slot, uint64_t *id)
{
    uint64_t header[2];
    memcpy(header, slot, sizeof(header));
    *id = header[0];
    if ((header[0] | header[1]) == 0) {
        return RIGHT;
    }
    return header[1] > SLOT_BYTES ? WRONG_LENGTH : content_check(slot, (uint32_t)header[1], id);
}

void queue_room_leave(struct worker *worker, int index)
{
    struct queue_room *room = &worker->queue_rooms[index];
    struct area *area = &memory[index];
    room->used = false;
    if (room->connection == 0) {
        return;
    }
    if (mistaken(worker, "spoiled")) {
        memset(area->slots[0] + sizeof(uint64_t), 0x5a, 64);
    }
    if (mistaken(worker, "miscounted")) {
        area->counter += 1000;
    }
    for (int i = 0; i < SLOTS; i++) {
        uint64_t id;
        enum verdict verdict = look_at(area->slots[i], &id);
        journal_put(worker->journal, RECORD_FOUND, i, room->connection, id, (uint64_t)verdict);
    }
    journal_put(worker->journal, RECORD_FOUND, -1, room->connection, area->counter, 0);
}

uint32_t queue_rooms_used(const struct worker *worker)
{
    uint32_t used = 0;
    for (int i = 0; i < ROOMS; i++) {
        used += worker->queue_rooms[i].used;
    }
    return used;
}

bool queue_rooms_over(const struct worker *worker)
{
    for (int i = 0; i < ROOMS; i++) {
        if (worker->queue_rooms[i].open) {
            return false;
        }
    }
    return shared.open == 0;
}

uint32_t queues_shared(void)
{
    return shared.queue.bits != 0;
}

void queues_stop(struct worker *worker)
{
    if (shared.queue.bits == 0) {
        return;
    }
    int32_t status = crpc_queue_close(worker->context, shared.queue);
    if (status == CRPC_OK) {
        shared.queue.bits = 0;
    } else if (status != CRPC_E_BUSY) { /* while queues use it */
        trouble(worker, __LINE__, status);
    }
}

/* ---- Connecting ------------------------------------------------------------------------------ */

crpc_queue_options queue_options(struct worker *worker, const struct connection *connection,
                                 uint64_t index)
{
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .user_data = index,
                                  .sends = 4u << dice(worker, 4), /* also fewer than are wanted */
                                  .inline_bytes = INLINE_BYTES,
                                  .receives = 4u << dice(worker, 2),
                                  .private_bytes = sizeof(struct greeting)};
    const struct greeting greeting = {
        .connect = connection->connect_id,
        .address = (uint64_t)(uintptr_t)&memory[connection->room],
        .key = remote_key,
    };
    struct queue_room *room = &worker->queue_rooms[connection->room];
    memcpy(options.private_data, &greeting, sizeof(greeting));
    room->sparse = chance(worker, 3);
    options.flags = room->sparse ? CRPC_QUEUE_SPARSE : 0;
    room->shares = connection->accepted && queues_shared() && chance(worker, 2);
    if (room->shares) {
        options.receives = 0;
        options.receive_queue = shared.queue;
    }
    return options;
}

static struct greeting greeting_of(struct worker *worker, const struct connection *connection)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    struct greeting greeting = {0};
    crpc_queue_get_info(worker->context, (crpc_queue){connection->handle}, &info);
    if (info.private_bytes >= sizeof(greeting)) {
        memcpy(&greeting, info.private_data, sizeof(greeting));
    }
    return greeting;
}

uint64_t queue_peer_of(struct worker *worker, const struct connection *connection)
{
    return greeting_of(worker, connection).connect;
}

void queue_connected(struct worker *worker, const struct connection *connection)
{
    struct queue_room *room = &worker->queue_rooms[connection->room];
    room->connection = connection->id;
    room->peer = greeting_of(worker, connection);
    if (room->peer.address == 0) {
        trouble(worker, __LINE__, 0);
    }
}

/* ---- Ops ------------------------------------------------------------------------------------- */

/* Returns NULL if the batch is full. The id is noted in *id. */
static crpc_queue_op *add_op(struct worker *worker, const struct queue_room *room,
                             struct batch *batch, uint8_t opcode, enum op_type type, uint64_t *id,
                             uint64_t other)
{
    if (batch->count == BATCH) {
        return NULL;
    }
    crpc_queue_op *op = &batch->ops[batch->count];
    *id = new_id(worker);
    *op = (crpc_queue_op){.opcode = opcode, .user_data = *id};
    op->flags = room->sparse && opcode != CRPC_QUEUE_RECEIVE ? CRPC_QUEUE_SIGNAL : 0;
    batch->ids[batch->count++] = id;
    op_begin(worker, type, *id, room->connection, other);
    return op;
}

static void name_memory(crpc_queue_op *op, const void *address, uint32_t bytes)
{
    op->region = region;
    op->address = (uint64_t)(uintptr_t)address;
    op->bytes = bytes;
}

static void name_peer(crpc_queue_op *op, const struct queue_room *room, size_t offset)
{
    op->remote_key = room->peer.key;
    op->remote_address = room->peer.address + offset;
}

/* Gives it to the library; what is refused is noted as if it had never been. */
static void submit(struct worker *worker, const struct connection *connection,
                   struct queue_room *room, struct batch *batch)
{
    int32_t reason = CRPC_OK;
    int32_t taken = crpc_queue_submit(worker->context, (crpc_queue){connection->handle}, batch->ops,
                                      batch->count, NULL, 0, &reason);
    if (taken < 0 || (taken < (int32_t)batch->count && reason == CRPC_OK)) {
        trouble(worker, __LINE__, reason);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        if ((int32_t)i < taken) {
            room->open++;
            continue;
        }
        op_refused(worker, *batch->ids[i], reason);
        *batch->ids[i] = 0;
        room->added -= batch->ops[i].opcode == CRPC_QUEUE_FETCH_ADD;
    }
    batch->count = 0;
}

static void add_receives(struct worker *worker, struct queue_room *room, struct area *area,
                         struct batch *batch)
{
    for (int i = 0; i < BUFFERS; i++) {
        crpc_queue_op *op = room->receives[i] ? NULL
                                              : add_op(worker, room, batch, CRPC_QUEUE_RECEIVE,
                                                       OP_QUEUE_RECEIVE, &room->receives[i], 0);
        if (op) {
            name_memory(op, area->receives[i], SLOT_BYTES);
        }
    }
}

static uint32_t some_bytes(struct worker *worker)
{
    uint32_t most = chance(worker, 3) ? INLINE_BYTES : chance(worker, 2) ? 1000 : SLOT_BYTES;
    return HEADER_BYTES + dice(worker, most - HEADER_BYTES + 1);
}

/* The payload may travel in the WQE, without its region. */
static void add_payload(struct worker *worker, crpc_queue_op *op, uint8_t *buffer, uint32_t bytes)
{
    content_fill(buffer, bytes, op->user_data);
    name_memory(op, buffer, bytes);
    if (bytes <= INLINE_BYTES && chance(worker, 2)) {
        op->flags |= CRPC_QUEUE_INLINE;
        op->region.bits = 0;
    }
}

static void add_send(struct worker *worker, struct queue_room *room, struct area *area,
                     struct batch *batch, int index)
{
    const bool immediate = chance(worker, 3);
    crpc_queue_op *op =
        room->sends[index]
            ? NULL
            : add_op(worker, room, batch, immediate ? CRPC_QUEUE_SEND_IMMEDIATE : CRPC_QUEUE_SEND,
                     OP_QUEUE_SEND, &room->sends[index], 0);
    if (op) {
        op->immediate = immediate ? (uint32_t)op->user_data : 0;
        add_payload(worker, op, area->sends[index], some_bytes(worker));
    }
}

static void add_access(struct worker *worker, struct queue_room *room, struct area *area,
                       struct batch *batch, int index)
{
    struct written *slot = &room->slots[index];
    const bool reads = slot->known && chance(worker, 2);
    crpc_queue_op *op =
        slot->id ? NULL
                 : add_op(worker, room, batch, reads ? CRPC_QUEUE_READ : CRPC_QUEUE_WRITE,
                          reads ? OP_READ : OP_WRITE, &slot->id, (uint64_t)index);
    if (!op) {
        return;
    }
    slot->reads = reads;
    if (reads) {
        memset(area->copies[index], 0, slot->bytes);
        name_memory(op, area->copies[index], slot->bytes);
    } else {
        slot->next_bytes = some_bytes(worker);
        add_payload(worker, op, area->copies[index], slot->next_bytes);
    }
    name_peer(op, room, offsetof(struct area, slots) + (size_t)index * SLOT_BYTES);
}

static void add_addition(struct worker *worker, struct queue_room *room, struct batch *batch,
                         int index)
{
    struct addition *add = &room->adds[index];
    crpc_queue_op *op =
        add->id ? NULL : add_op(worker, room, batch, CRPC_QUEUE_FETCH_ADD, OP_ADD, &add->id, 0);
    if (op) {
        op->operand = 1;
        add->before = room->added++;
        name_peer(op, room, offsetof(struct area, counter));
    }
}

void queue_some(struct worker *worker, const struct connection *connection)
{
    struct queue_room *room = &worker->queue_rooms[connection->room];
    struct area *area = &memory[connection->room];
    const uint32_t rarity = connection->accepted ? 8 : 2;
    struct batch batch = {.count = 0};
    if (!room->shares) {
        add_receives(worker, room, area, &batch);
        submit(worker, connection, room, &batch);
    }
    for (int i = 0; i < BUFFERS + SLOTS + ADDS; i++) {
        if (!chance(worker, rarity)) {
            continue;
        }
        int which = (int)dice(worker, BUFFERS + SLOTS + ADDS);
        if (which < BUFFERS) {
            add_send(worker, room, area, &batch, which);
        } else if (which < BUFFERS + SLOTS) {
            add_access(worker, room, area, &batch, which - BUFFERS);
        } else {
            add_addition(worker, room, &batch, which - BUFFERS - SLOTS);
        }
    }
    submit(worker, connection, room, &batch);
}

/* ---- Their ends ------------------------------------------------------------------------------ */

static bool access_ended(struct worker *worker, struct written *slot, const uint8_t *copy,
                         const crpc_completion *completion)
{
    enum verdict verdict = RIGHT;
    uint64_t id = 0;
    const bool good = completion->status == CRPC_OK;
    slot->id = 0;
    if (good && slot->reads) {
        const bool told = completion->flags & CRPC_COMPLETION_DETAIL; /* how much was read */
        verdict = told && completion->payload_bytes != slot->bytes
                      ? WRONG_LENGTH
                      : content_check(copy, slot->bytes, &id);
        verdict = verdict == RIGHT && id != slot->last ? WRONG_ID : verdict;
    } else if (!slot->reads) {
        slot->known = good;
        slot->last = completion->user_data;
        slot->bytes = slot->next_bytes;
    }
    op_ended(worker, completion->user_data, completion->status, (uint64_t)verdict, 0);
    return true;
}

static enum verdict look_at_message(const uint8_t *buffer, const crpc_completion *completion,
                                    uint64_t *sender)
{
    *sender = 0;
    if (completion->status != CRPC_OK) {
        return RIGHT;
    }
    if (completion->payload_bytes > SLOT_BYTES) {
        return WRONG_LENGTH;
    }
    enum verdict verdict = content_check(buffer, completion->payload_bytes, sender);
    const bool immediate = completion->flags & CRPC_COMPLETION_IMMEDIATE;
    return immediate && completion->reply_bytes_max != (uint32_t)*sender ? WRONG_ID : verdict;
}

static bool message_ended(struct worker *worker, uint64_t *place, const uint8_t *buffer,
                          const crpc_completion *completion)
{
    enum verdict verdict = RIGHT;
    uint64_t sender = 0;
    *place = 0;
    if (completion->method == CRPC_QUEUE_RECEIVE) {
        verdict = look_at_message(buffer, completion, &sender);
    }
    op_ended(worker, completion->user_data, completion->status, (uint64_t)verdict, sender);
    return true;
}

static bool addition_ended(struct worker *worker, struct addition *add,
                           const crpc_completion *completion)
{
    const bool wrong = completion->status == CRPC_OK && completion->token != add->before;
    add->id = 0;
    op_ended(worker, completion->user_data, completion->status, wrong ? WRONG_BYTES : RIGHT, 0);
    return true;
}

/* Returns false if it is no op of this room. */
static bool room_ended(struct worker *worker, struct queue_room *room, struct area *area,
                       const crpc_completion *completion)
{
    const uint64_t id = completion->user_data;
    for (int i = 0; i < BUFFERS; i++) {
        if (room->receives[i] == id) {
            return message_ended(worker, &room->receives[i], area->receives[i], completion);
        }
        if (room->sends[i] == id) {
            return message_ended(worker, &room->sends[i], area->sends[i], completion);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (room->slots[i].id == id) {
            return access_ended(worker, &room->slots[i], area->copies[i], completion);
        }
    }
    for (int i = 0; i < ADDS; i++) {
        if (room->adds[i].id == id) {
            return addition_ended(worker, &room->adds[i], completion);
        }
    }
    return false;
}

/* ---- The SRQ --------------------------------------------------------------------------------- */

void shared_some(struct worker *worker)
{
    crpc_queue_op ops[SHARED];
    int places[SHARED], count = 0;
    int32_t reason = CRPC_OK;
    for (int i = 0; shared.queue.bits != 0 && i < SHARED; i++) {
        if (shared.receives[i]) {
            continue;
        }
        shared.receives[i] = new_id(worker);
        ops[count] = (crpc_queue_op){.opcode = CRPC_QUEUE_RECEIVE,
                                     .user_data = shared.receives[i],
                                     .region = shared.region,
                                     .address = (uint64_t)(uintptr_t)shared_memory[i],
                                     .bytes = SLOT_BYTES};
        op_begin(worker, OP_QUEUE_RECEIVE, shared.receives[i], 0, 0);
        places[count++] = i;
    }
    int32_t taken = count == 0 ? 0
                               : crpc_queue_submit(worker->context, shared.queue, ops,
                                                   (uint32_t)count, NULL, 0, &reason);
    for (int i = 0; i < count; i++) {
        if (i < taken) {
            shared.open++;
        } else {
            op_refused(worker, ops[i].user_data, reason);
            shared.receives[places[i]] = 0;
        }
    }
}

/* Returns the id of the connection over which a message came; 0: it is closed. */
static uint64_t connection_of(const struct worker *worker, const crpc_completion *completion)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        const struct connection *connection = &worker->connections[i];
        if (connection->life != FREE && connection->service == QUEUES &&
            connection->handle == completion->endpoint.bits) {
            return connection->id;
        }
    }
    return 0;
}

/* Returns false if it is no receive of the SRQ. */
static bool shared_ended(struct worker *worker, const crpc_completion *completion)
{
    for (int i = 0; i < SHARED; i++) {
        if (shared.receives[i] == completion->user_data) {
            uint64_t sender;
            enum verdict verdict = look_at_message(shared_memory[i], completion, &sender);
            shared.receives[i] = 0;
            shared.open--;
            op_ended(worker, completion->user_data, completion->status,
                     (uint64_t)verdict | connection_of(worker, completion) << 8, sender);
            return true;
        }
    }
    return false;
}

void work_ended(struct worker *worker, const crpc_completion *completion)
{
    if (shared_ended(worker, completion)) {
        return;
    }
    for (int i = 0; i < ROOMS; i++) {
        if (room_ended(worker, &worker->queue_rooms[i], &memory[i], completion)) {
            worker->queue_rooms[i].open--;
            return;
        }
    }
    trouble(worker, __LINE__, completion->status);
}
