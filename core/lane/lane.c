/* lane.c: the queue pair of a lane, and its ops. */
#include "lane/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "base/page.h"

/* ---- Life ------------------------------------------------------------------------------------ */

static int32_t make_results(struct lane *lane, uint32_t entries, crpc_error *error)
{
    if (!lane->nic->atomics) {
        return CRPC_OK;
    }
    size_t bytes = align_up(entries * sizeof(*lane->results), page_bytes());
    lane->results = aligned_alloc(page_bytes(), bytes);
    if (!lane->results) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a lane");
    }
    memset(lane->results, 0, bytes);
    return lane->operations->memory_register(lane->nic, NULL, lane->results, bytes, 0,
                                             CRPC_ACCESS_LOCAL_WRITE, &lane->results_keys, error);
}

int32_t lane_create(struct nic *nic, struct handles *handles, const struct lane_options *options,
                    struct lane **out, crpc_error *error)
{
    uint32_t entries = power_of_two_at_least(options->depth);
    assert(options->depth >= nic->send_depth && options->depth <= NIC_SEND_DEPTH_MAX);
    struct lane *lane = lines_alloc(1, sizeof(*lane));
    if (!lane) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a lane");
    }
    lane->nic = nic;
    lane->operations = nic->operations;
    lane->handles = handles;
    lane->options = *options;
    lane->mask = entries - 1;
    list_init(&lane->free);
    list_init(&lane->tell);
    list_init(&lane->invalidate);
    list_init(&lane->ended);
    list_init(&lane->taken);
    lane->entries = lines_alloc(entries, sizeof(*lane->entries));
    int32_t status = lane->entries
                         ? make_results(lane, entries, error)
                         : error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a lane");
    if (status == CRPC_OK) {
        status = nic_queue_pair_create_deep(nic, NULL, lane, options->depth, 0, &lane->queue_pair,
                                            error);
    }
    if (status != CRPC_OK) {
        lane->queue_pair = NULL;
        lane_destroy(lane);
        return status;
    }
    *out = lane;
    return CRPC_OK;
}

static void end_queue_pair(struct lane *lane, struct wheel *wheel)
{
    if (lane->queue_pair) {
        lane->operations->queue_pair_fail(lane->queue_pair);
        lane_end_grants(lane, wheel); /* the number of the queue pair may be used again */
        lane->operations->queue_pair_destroy(lane->queue_pair);
        lane->queue_pair = NULL;
    }
    lane->open = false;
    lane->stopped = true;
}

void lane_destroy(struct lane *lane)
{
    if (!lane) {
        return;
    }
    end_queue_pair(lane, NULL);
    lane_free_grants(lane);
    if (lane->results_keys.driver) {
        lane->operations->memory_deregister(lane->nic, &lane->results_keys);
    }
    free(lane->results);
    free(lane->entries);
    free(lane);
}

struct nic_queue_pair *lane_queue_pair(const struct lane *lane)
{
    return lane->queue_pair;
}

uint64_t lane_handle(const struct lane *lane)
{
    return lane->options.handle;
}

void lane_open(struct lane *lane, const struct lane_identity *identity)
{
    assert(!lane->open && !lane->stopped);
    lane->identity = *identity;
    lane->open = true;
}

bool lane_is_open(const struct lane *lane)
{
    return lane->open;
}

static void end_entries(struct lane *lane, int32_t status)
{
    while (lane->done != lane->posted) {
        struct lane_entry *entry = lane_entry_at(lane, lane->done++);
        entry->status = (int8_t)status;
        entry->bytes = 0;
    }
}

void lane_stop(struct lane *lane, struct wheel *wheel, int32_t status)
{
    if (lane->stopped) {
        return;
    }
    end_queue_pair(lane, wheel);
    end_entries(lane, status);
}

int32_t lane_renew(struct lane *lane, crpc_error *error)
{
    struct nic_queue_pair *queue_pair;
    assert(lane->stopped && !lane_has_open(lane));
    int32_t status = nic_queue_pair_create_deep(lane->nic, NULL, lane, lane->options.depth, 0,
                                                &queue_pair, error);
    if (status != CRPC_OK) {
        return status;
    }
    lane->queue_pair = queue_pair;
    lane->posted = lane->done = lane->emitted = 0;
    lane->answer_mark = 0; /* nothing uses a grant of the life before */
    lane->stopped = false;
    return CRPC_OK;
}

/* ---- Posting --------------------------------------------------------------------------------- */

uint32_t lane_room(const struct lane *lane)
{
    uint32_t free_entries = lane->mask + 1 - (lane->posted - lane->emitted);
    return lane->open && !lane->queue_pair->failed
               ? (uint32_t)minimum(nic_send_room(lane->queue_pair), free_entries)
               : 0;
}

void lane_book(struct lane *lane, const struct lane_entry *entry)
{
    assert(lane->posted == lane->queue_pair->posted);
    *lane_entry_at(lane, lane->posted++) = *entry;
}

/* What it finds lands at the place of its entry, which is the last one. */
static void post_atomic(struct lane *lane, const struct lane_op *op, uint32_t flags)
{
    uint64_t *result = &lane->results[(lane->posted - 1) & lane->mask];
    assert(lane->results && op->remote_address % sizeof(*result) == 0);
    const struct nic_atomic atomic = {.local_address = (uint64_t)(uintptr_t)result,
                                      .remote_address = op->remote_address,
                                      .local_key = lane->results_keys.local_key,
                                      .remote_key = op->remote_key,
                                      .swap = op->opcode == LANE_COMPARE_SWAP,
                                      .compare = op->compare,
                                      .operand = op->operand};
    lane->operations->post_atomic(lane->queue_pair, &atomic, flags);
}

static void post_payload(struct lane *lane, const struct lane_op *op, uint32_t flags)
{
    const bool read = op->opcode == LANE_READ;
    const struct nic_transfer transfer = {.local_address = op->local_address,
                                          .remote_address = op->remote_address,
                                          .bytes = op->bytes,
                                          .local_key = op->local_key,
                                          .remote_key = op->remote_key};
    assert(read || op->opcode == LANE_WRITE);
    assert(!op->copied || (!read && op->bytes <= lane->nic->inline_bytes_max));
    if (op->piece_count > 0) {
        lane->operations->post_pieces(lane->queue_pair, read, &transfer, op->pieces,
                                      op->piece_count, flags | (op->copied ? NIC_POST_INLINE : 0));
    } else if (read) {
        lane->operations->post_read(lane->queue_pair, &transfer, flags);
    } else { /* which is copied if it is short */
        lane->operations->post_write(lane->queue_pair, &transfer, flags);
    }
}

static void post_one(struct lane *lane, const struct lane_op *op, uint32_t flags)
{
    lane_book(lane, &(struct lane_entry){
                        .user_data = op->user_data, .bytes = op->bytes, .opcode = op->opcode});
    if (op->opcode == LANE_COMPARE_SWAP || op->opcode == LANE_FETCH_ADD) {
        post_atomic(lane, op, flags);
    } else {
        post_payload(lane, op, flags);
    }
    if (op->fence) {
        lane->operations->fence_last(lane->queue_pair);
    }
}

/* The last one asks for a completion, which speaks for all before it. A driver may have to tell the device in
 * between, and find that it is gone: it discards what comes behind. */
uint32_t lane_post(struct lane *lane, const struct lane_op *ops, uint32_t count)
{
    const uint32_t possible = (uint32_t)minimum(count, lane_room(lane));
    uint32_t accepted = 0;
    while (accepted < possible && !lane->queue_pair->failed) {
        post_one(lane, &ops[accepted], accepted == possible - 1 ? NIC_POST_SIGNALED : 0);
        accepted++;
    }
    if (accepted > 0) {
        lane->operations->ring_doorbell(lane->queue_pair);
    }
    return accepted;
}

/* ---- Completing ------------------------------------------------------------------------------ */

static void take_done(struct lane *lane, uint32_t completed)
{
    while ((int32_t)(completed - lane->done) > 0) {
        struct lane_entry *entry = lane_entry_at(lane, lane->done++);
        entry->status = CRPC_OK;
        if (entry->opcode == LANE_GRANT || entry->opcode == LANE_REVOKE) {
            lane_given_done(lane, entry);
        }
    }
}

void lane_completed(struct lane *lane, uint32_t completed)
{
    if (lane->stopped) {
        return;
    }
    assert((int32_t)(lane->posted - completed) >= 0);
    take_done(lane, completed);
    if (lane_post_invalidates(lane)) {
        lane->operations->ring_doorbell(lane->queue_pair);
    }
}

static int32_t status_of(uint8_t error)
{
    switch (error) {
    case NIC_ERROR_FLUSHED:
        return CRPC_E_FLUSHED;
    case NIC_ERROR_RETRY:
    case NIC_ERROR_RNR:
        return CRPC_E_DISCONNECTED;
    case NIC_ERROR_REMOTE_ACCESS:
        return CRPC_E_ACCESS;
    default:
        return CRPC_E_DEVICE;
    }
}

/* If not, what it says is of a queue pair, and names the last op: nobody knows what became of those before. So it
 * is if the device could not even be told of its ops. */
static bool names_an_op(const struct nic_completion *completion)
{
    return completion->status != NIC_ERROR_FLUSHED && completion->status != NIC_ERROR_OTHER;
}

/* The queue pair's own counter already includes the one that failed. */
void lane_device_failed(struct lane *lane, const struct nic_completion *completion)
{
    if (lane->stopped || (int32_t)(completion->completed - lane->done) <= 0 ||
        (int32_t)(lane->posted - completion->completed) < 0) {
        return; /* what it says is of no op that is open */
    }
    if (names_an_op(completion)) {
        take_done(lane, completion->completed - 1);
    }
    while (lane->done != completion->completed) {
        struct lane_entry *entry = lane_entry_at(lane, lane->done++);
        const bool named = lane->done == completion->completed;
        entry->status = (int8_t)(named ? status_of(completion->status) : CRPC_E_FLUSHED);
        entry->bytes = named ? completion->vendor_syndrome : 0;
    }
}

uint32_t lane_mark(const struct lane *lane)
{
    return lane->posted;
}

bool lane_reached(const struct lane *lane, uint32_t mark)
{
    return (int32_t)(lane->done - mark) >= 0;
}

/* ---- Completions ----------------------------------------------------------------------------- */

/* Returns false if the entry has no completion: the REVOKE has one of its own. */
static bool write_completion(const struct lane *lane, uint32_t number, crpc_completion *completion)
{
    const struct lane_entry *entry = lane_entry_at(lane, number);
    if (entry->opcode == LANE_REVOKE) {
        return false;
    }
    const bool good = entry->status == CRPC_OK;
    uint64_t token = 0;
    if (unlikely(entry->opcode > LANE_READ) && good) {
        token = entry->opcode == LANE_GRANT ? lane->given[entry->place]->grant.handle
                                            : lane->results[number & lane->mask];
    }
    *completion =
        (crpc_completion){.kind = NIC_COMPLETION_WORK,
                          .method = entry->opcode,
                          .status = entry->status,
                          .endpoint = {lane->options.handle},
                          .user_data = entry->user_data,
                          .token = token,
                          .payload_bytes = entry->opcode == LANE_READ && good ? entry->bytes : 0,
                          .endpoint_user_data = lane->options.user_data};
    if (unlikely(!good)) {
        completion->reply_bytes_max = entry->bytes;
    }
    return true;
}

void lane_emit(struct lane *lane, struct output *output)
{
    while (lane->emitted != lane->done && !output_full(output)) {
        output->next += write_completion(lane, lane->emitted, output->next);
        lane->emitted++;
    }
    lane_emit_revokes(lane, output);
    if (lane_post_invalidates(lane)) { /* for which there was no room before */
        lane->operations->ring_doorbell(lane->queue_pair);
    }
}

bool lane_something_waits(const struct lane *lane)
{
    return lane->emitted != lane->done || !list_empty(&lane->ended);
}

bool lane_has_open(const struct lane *lane)
{
    return lane->emitted != lane->posted || lane->revokes_open > 0;
}
