/* gather.c: messages whose payload stays where it is, in a region of the application: the device gathers it into the
 * WRITE of their batch. To the peer they are like others. Cold path, by the message; nothing here is by the byte.
 *
 * Such a message ends its batch, which leaves at once. While it cannot, nothing more is written to it: call_bar and
 * reply_bar are CRPC_E_AGAIN. The device may read the payload until the WRITE has completed. Only then does a call end
 * early, and a reply complete; a response comes later by itself. So the application may change the payload of an op that
 * has completed. (What has not left when its call ends is copied, so that a peer who does not take it delays nobody.)
 *
 * If the peer has lent an arena (arena.c) with a free place, the payload goes there, by a WRITE of its own before that of the
 * batch, which then has a message of 8 bytes. (What has not left when its call ends is taken out of the batch again.)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "rpc/internal.h"
#include "rpc/lasting.h"
#include "rpc/message.h"

/* Shorter ones are copied, as they can then share a batch with others. */
#define GATHER_BYTES_LEAST 2048u

/* What a batch has at most: messages and a header, the payload, and zeros. */
#define GATHER_PIECES 3u

/* ---- Regions --------------------------------------------------------------------------------- */

/* A region in the protection domain whose memory the endpoint's queue pair uses: it uses none of another. */
struct memory {
    struct list region_link;
    struct list endpoint_link;
    struct rpc_endpoint *endpoint;
    const struct rpc_region *region;
    struct nic_keys keys;
};

void rpc_region_init(struct rpc_region *region)
{
    list_init(&region->memories);
}

/* The analyzer does not see that each is taken off both lists. */
/* NOLINTBEGIN(clang-analyzer-unix.Malloc) */
static void end_memory(struct memory *memory)
{
    memory->endpoint->engine->operations->memory_deregister(memory->endpoint->engine->nic,
                                                            &memory->keys);
    list_remove(&memory->region_link);
    list_remove(&memory->endpoint_link);
    free(memory);
}

void rpc_region_end(struct rpc_region *region)
{
    while (!list_empty(&region->memories)) {
        end_memory(list_entry(region->memories.next, struct memory, region_link));
    }
}
/* NOLINTEND(clang-analyzer-unix.Malloc) */

static int32_t make_memory(struct rpc_endpoint *endpoint, struct rpc_region *region,
                           struct memory **made, crpc_error *error)
{
    struct memory *memory = calloc(1, sizeof(*memory));
    if (!memory) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a region of an endpoint");
    }
    const int32_t status = nic_memory_register(
        endpoint->engine->nic, link_own_domain(&endpoint->link), region->fd, region->fd_offset,
        region->address, region->bytes, 0, &memory->keys, error);
    if (status != CRPC_OK) {
        free(memory);
        return status;
    }
    memory->endpoint = endpoint;
    memory->region = region;
    list_append(&region->memories, &memory->region_link);
    list_append(&endpoint->gather.memories, &memory->endpoint_link);
    *made = memory;
    return CRPC_OK;
}

/* Room to note what is under way, as for batches. */
static int32_t make_slots(struct rpc_endpoint *endpoint, crpc_error *error)
{
    if (!endpoint->gather.sent) {
        endpoint->gather.sent =
            lines_alloc(endpoint->sent.batch_slots, sizeof(*endpoint->gather.sent));
    }
    return endpoint->gather.sent ? CRPC_OK
                                 : error_set(error, CRPC_E_NO_MEMORY, ENOMEM,
                                             "no memory to send payloads from regions");
}

/* The region as the endpoint's queue pair can use it. */
static int32_t use_memory(struct rpc_endpoint *endpoint, struct rpc_region *region,
                          struct memory **memory, crpc_error *error)
{
    const int32_t status = make_slots(endpoint, error);
    if (status != CRPC_OK) {
        return status;
    }
    for (struct list *at = endpoint->gather.memories.next; at != &endpoint->gather.memories;
         at = at->next) {
        *memory = list_entry(at, struct memory, endpoint_link);
        if ((*memory)->region == region) {
            return CRPC_OK;
        }
    }
    if (endpoint->engine->nic->pieces_max < GATHER_PIECES) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0, "%s gathers at most %u pieces",
                         endpoint->engine->nic->device, endpoint->engine->nic->pieces_max);
    }
    return make_memory(endpoint, region, memory, error);
}

int32_t rpc_region_prepare(struct rpc_endpoint *endpoint, struct rpc_region *region,
                           crpc_error *error)
{
    struct memory *memory;
    if (endpoint->sent.batch_slots == 0 || endpoint->link.failing) {
        return error_set(error, CRPC_E_STATE, 0, "the endpoint is not connected");
    }
    return use_memory(endpoint, region, &memory, error);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* A short payload is copied, unless the processor may not read it. */
static int32_t copy(struct rpc_endpoint *endpoint, const crpc_op *op,
                    const struct rpc_region *region)
{
    const void *payload = (const void *)(uintptr_t)(region->address + op->payload_offset);
    assert(!region->foreign || op->payload_bytes == 0);
    return rpc_submit(endpoint, op, payload);
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* Whether the ring of the peer ever has room for the payload. A reply's has been set aside. */
static bool fits_ring(const struct rpc_endpoint *endpoint, const crpc_op *op)
{
    return op->opcode == CRPC_OP_REPLY ||
           wire_charge(op->payload_bytes) <= endpoint->peer.request_bytes_max;
}

/* Returns CRPC_OK and whether the payload goes to the peer's arena, and where; CRPC_E_AGAIN: a place must be returned first. */
static int32_t choose_place(struct rpc_endpoint *endpoint, const crpc_op *op, bool *placed,
                            uint32_t *place)
{
    *placed = false;
    if (op->payload_bytes < GATHER_BYTES_LEAST ||
        op->payload_bytes > endpoint->peer_arena.place_bytes) {
        return CRPC_OK;
    }
    *placed = rpc_arena_next(endpoint, place);
    if (*placed || fits_ring(endpoint, op)) {
        return CRPC_OK;
    }
    return endpoint->bar == CRPC_OK ? rpc_refuse(endpoint, true) : endpoint->bar;
}

/* As rpc_possible, of the message that says the place. */
static int32_t placed_possible(struct rpc_endpoint *endpoint, const crpc_op *op,
                               const crpc_op *message)
{
    const struct rpc_request *owed =
        op->opcode == CRPC_OP_REPLY ? rpc_find_owed(endpoint, op->token) : NULL;
    if (owed && op->payload_bytes >= owed->reply_bytes_bound) {
        return CRPC_E_TOO_BIG;
    }
    return rpc_possible(endpoint, message);
}

/* Makes the message that was booked at `place` one that says where its payload is. */
static void write_place(struct rpc_endpoint *endpoint, const crpc_op *op, uint8_t *message,
                        uint32_t place)
{
    const struct wire_place word = {.place = place, .bytes = op->payload_bytes};
    uint8_t *kind =
        &message[offsetof(struct wire_message, kind)]; /* and a part of a request's time */
    *kind &= (uint8_t)(UINT8_MAX << WIRE_KIND_BITS);
    *kind |= op->opcode == CRPC_OP_CALL ? WIRE_REQUEST_PLACED : WIRE_RESPONSE_PLACED;
    memcpy(message + WIRE_HEADER_BYTES, &word, sizeof(word));
    endpoint->peer_arena.used |= 1u << place;
    endpoint->gather.place = place;
}

/* It has not left, and is the last of the open batch. Its call has ended. */
static void take_out(struct rpc_endpoint *endpoint, struct rpc_call *call)
{
    struct rpc_out *out = &endpoint->out;
    out->produced -= wire_message_bytes(sizeof(struct wire_place));
    out->request_produced -= wire_charge(sizeof(struct wire_place));
    out->batch_messages--;
    if (out->batch_messages == 0) {
        out->produced = out->batch_start;
        out->batch_wants_completion = false;
    }
    endpoint->calls.reply_outstanding -= call->allowance;
    endpoint->peer_arena.used &= ~(1u << endpoint->gather.place);
    call->state = CALL_ANSWERED; /* nothing will */
}

/* ---- Messages -------------------------------------------------------------------------------- */

int32_t rpc_gather(struct rpc_endpoint *endpoint, const crpc_op *op, struct rpc_region *region)
{
    struct rpc_gather *gather = &endpoint->gather;
    struct memory *memory = NULL;
    crpc_error error = {0};
    uint32_t place = 0;
    assert(op->payload_offset <= region->bytes &&
           op->payload_bytes <= region->bytes - op->payload_offset);
    if (endpoint->lasting && op->opcode == CRPC_OP_CALL) {
        bool done;
        const int32_t kept = rpc_lasting_gather(endpoint->lasting, op, region, &done);
        if (done) {
            return kept;
        }
    }
    if (op->payload_bytes < GATHER_BYTES_LEAST && (!region->foreign || op->payload_bytes == 0)) {
        return copy(endpoint, op, region);
    }
    bool placed;
    int32_t status = choose_place(endpoint, op, &placed, &place);
    crpc_op message = *op;
    if (placed) {
        message.payload_bytes = sizeof(struct wire_place);
    }
    if (status == CRPC_OK) {
        status = placed_possible(endpoint, op, &message);
    }
    if (status == CRPC_OK) {
        status = use_memory(endpoint, region, &memory, &error);
        if (status != CRPC_OK) {
            log_write(endpoint->engine->log, CRPC_LOG_WARNING,
                      "a payload cannot be sent from its region: %s", error.message);
        }
    }
    if (status != CRPC_OK) {
        return status;
    }
    assert(memory);
    struct rpc_call *call = op->opcode == CRPC_OP_CALL ? endpoint->calls.first_free : NULL;
    uint8_t *const booked = rpc_book(endpoint, &message);
    if (placed) {
        write_place(endpoint, op, booked, place);
    }
    gather->waits = true;
    gather->placed = placed;
    gather->piece = (struct nic_piece){.address = region->address + op->payload_offset,
                                       .bytes = op->payload_bytes,
                                       .local_key = memory->keys.local_key};
    gather->source =
        region->foreign ? NULL : (const void *)(uintptr_t)(region->address + op->payload_offset);
    gather->position =
        endpoint->out.produced - wire_message_bytes(message.payload_bytes) + WIRE_HEADER_BYTES;
    gather->open = (struct rpc_gathered){.users = region->users, .call = call};
    (*region->users)++;
    if (call) {
        call->kind = CALL_GATHERED;
        gather->open.call_id = call->call_id;
    }
    endpoint->out.batch_wants_completion = true;
    rpc_set_bars(endpoint);
    endpoint_flush(endpoint);
    return CRPC_OK;
}

/* The open batch is written to again, or is no more. */
static void end_wait(struct rpc_endpoint *endpoint)
{
    endpoint->gather.waits = false;
    rpc_set_bars(endpoint);
    rpc_abandon_look(endpoint); /* which it kept out; nobody else may come for an empty batch */
    if (endpoint->link.refused) {
        link_report(&endpoint->link, LINK_EVENT_ROOM);
    }
}

/* The payload, and then the batch: the peer's device writes them in this order. The second WQE is the one that is kept for a
 * READ of the mailbox, which comes later then. */
static void post_placed(struct rpc_endpoint *endpoint, const struct nic_transfer *transfer,
                        uint32_t slot)
{
    const struct rpc_gather *gather = &endpoint->gather;
    const struct rpc_peer_arena *arena = &endpoint->peer_arena;
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    const struct nic_transfer payload = {
        .local_address = gather->piece.address,
        .remote_address = arena->address + (uint64_t)gather->place * arena->place_bytes,
        .bytes = gather->piece.bytes,
        .local_key = gather->piece.local_key,
        .remote_key = arena->key};
    queue_pair->operations->post_foreign_write(queue_pair, &payload, 0);
    endpoint->sent.batches[slot].wqe = queue_pair->posted;
    endpoint->stats.bytes_sent += payload.bytes;
    queue_pair->operations->post_write_immediate(queue_pair, transfer,
                                                 NIC_POST_RING | NIC_POST_SIGNALED);
}

static void post_gathered(struct rpc_endpoint *endpoint, const struct nic_transfer *transfer)
{
    const struct rpc_gather *gather = &endpoint->gather;
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    const uint32_t before = (uint32_t)(gather->position - endpoint->out.batch_start);
    const uint32_t behind = transfer->bytes - before - gather->piece.bytes;
    const struct nic_piece pieces[GATHER_PIECES] = {
        {.address = transfer->local_address, .bytes = before, .local_key = transfer->local_key},
        gather->piece,
        {.address = transfer->local_address + before + gather->piece.bytes,
         .bytes = behind,
         .local_key = transfer->local_key}};
    queue_pair->operations->post_pieces(queue_pair, false, transfer, pieces,
                                        behind > 0 ? GATHER_PIECES : GATHER_PIECES - 1,
                                        NIC_POST_IMMEDIATE | NIC_POST_SIGNALED);
    queue_pair->operations->ring_doorbell(queue_pair);
}

void rpc_gather_post(struct rpc_endpoint *endpoint, const struct nic_transfer *transfer,
                     uint32_t slot)
{
    struct rpc_gather *gather = &endpoint->gather;
    if (gather->placed) {
        post_placed(endpoint, transfer, slot);
    } else {
        post_gathered(endpoint, transfer);
    }
    gather->sent[slot] = gather->open;
    end_wait(endpoint);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* The device reads the payload no more. A call that has ended meanwhile completes, unless all goes. */
static void release(struct rpc_gathered *gathered, bool reports)
{
    struct rpc_call *call = gathered->call;
    (*gathered->users)--;
    if (reports && call && call->call_id == gathered->call_id && call->kind == CALL_GATHERED) {
        call->kind = 0;
        if (call->state == CALL_ENDED || call->state == CALL_ANSWERED) {
            call_report_end(call);
        }
    }
    *gathered = (struct rpc_gathered){0};
}

bool rpc_gather_let_go(struct rpc_call *call)
{
    struct rpc_endpoint *endpoint = call->endpoint;
    struct rpc_gather *gather = &endpoint->gather;
    if (!gather->waits || gather->open.call != call || (!gather->placed && !gather->source)) {
        return false;
    }
    if (gather->placed) {
        take_out(endpoint, call);
    } else {
        memcpy(ring_at(&endpoint->out.staging, gather->position), gather->source,
               gather->piece.bytes);
    }
    call->kind = 0;
    release(&gather->open, true);
    end_wait(endpoint);
    return true;
}

void rpc_gather_done(struct rpc_endpoint *endpoint, uint32_t slot)
{
    if (endpoint->gather.sent[slot].users) {
        release(&endpoint->gather.sent[slot], true);
    }
}

static void release_all(struct rpc_endpoint *endpoint, bool reports)
{
    struct rpc_gather *gather = &endpoint->gather;
    if (gather->waits) {
        gather->waits = false;
        release(&gather->open, reports);
    }
    for (uint32_t slot = 0; gather->sent && slot < endpoint->sent.batch_slots; slot++) {
        if (gather->sent[slot].users) {
            release(&gather->sent[slot], reports);
        }
    }
}

void rpc_gather_end_all(struct rpc_endpoint *endpoint)
{
    release_all(endpoint, true);
}

void rpc_gather_destroy(struct rpc_endpoint *endpoint)
{
    release_all(endpoint, false); /* the slots of its calls go, too */
    free(endpoint->gather.sent);
    endpoint->gather.sent = NULL;
    while (!list_empty(&endpoint->gather.memories)) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): as above */
        end_memory(list_entry(endpoint->gather.memories.next, struct memory, endpoint_link));
    }
}
