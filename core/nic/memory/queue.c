/* queue.c: queues with user data (nic/queue.h). A queue that sends or receives over a connection has a
 * queue pair, whose WQEs follow the same rules as those of nic.h: a WQE's number is its position. An
 * SRQ has receives alone. */
#include "nic/memory/datagram.h"
#include "nic/memory/dc.h"
#include "nic/memory/tags.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making ---------------------------------------------------------------------------------- */

static void make_receives(struct memory_queue *queue)
{
    const uint32_t entries = queue->base.receives.mask + 1;

    queue->receive_pieces =
        memory_allocate((size_t)entries * queue->base.receive_pieces, sizeof(struct nic_piece));
    queue->receive_counts = memory_allocate(entries, sizeof(*queue->receive_counts));
    queue->posted = memory_allocate(entries, sizeof(*queue->posted));
    queue->base.receives_max = entries;
    for (uint32_t i = 0; i < entries; i++) {
        queue->base.receives.entries[i].position = i + 1 < entries ? i + 1 : NIC_QUEUE_NO_ENTRY;
    }
}

static int32_t make_pair(struct memory_queue *queue, struct nic_domain *domain, crpc_error *error)
{
    struct nic_queue *base = &queue->base;
    const uint32_t depth = base->sends.entries ? base->sends.mask + 1 : 1;
    int32_t status = memory_queue_pair_of_queue(base->nic, domain, base, depth, base->inline_bytes,
                                                &base->pair, error);

    if (status != CRPC_OK) {
        return status;
    }
    queue->pair = memory_queue_pair(base->pair);
    queue->pair->queue = queue;
    if (base->kind != NIC_QUEUE_RC) { /* it needs no peer */
        queue->pair->connected = true;
        memory_queue_pair_update(queue->pair);
    }
    if (base->kind == NIC_QUEUE_DCI) {
        memory_dc_make(queue);
    }
    queue->send_pieces =
        memory_allocate((size_t)depth * base->send_pieces, sizeof(struct nic_piece));
    return nic_queue_make_results(base, domain, error);
}

static void release(struct memory_queue *queue)
{
    nic_queue_release(&queue->base);
    memory_dc_free(queue);
    free(queue->send_pieces);
    free(queue->receive_pieces);
    free(queue->receive_counts);
    free(queue->posted);
    memory_tags_free(queue);
    free(queue);
}

static void unmake(struct memory_queue *queue)
{
    if (queue->pair) {
        memory_queue_pair_destroy(&queue->pair->base);
        queue->pair = NULL;
        queue->base.pair = NULL;
    }
    memory_tags_unmake(queue);
    nic_queue_end_results(&queue->base);
    nic_queue_leave(&queue->base);
    memory_domain_leave(queue->domain);
    queue->domain = NULL;
}

static int32_t queue_create(struct nic *base, struct nic_domain *domain,
                            const struct nic_queue_options *options, struct nic_queue **created,
                            crpc_error *error)
{
    struct memory_nic *nic = memory_nic(base);
    int32_t status = nic_queue_check_kind(base, options->kind, error);
    struct memory_queue *queue;

    if (status != CRPC_OK) {
        return status;
    }
    queue = memory_allocate(1, sizeof(*queue));
    queue->nic = nic;
    queue->domain = memory_domain_use(base, domain);
    queue->access_key = options->access_key;
    nic_queue_init(&queue->base, base, options);
    memory_require(
        nic_queue_make_tables(&queue->base,
                              options->tags    ? nic_tags_commands(options->tags)
                              : options->sends ? power_of_two_at_least(options->sends)
                                               : 0,
                              options->receives ? power_of_two_at_least(options->receives) : 0),
        "no memory for the tables of a queue");
    if (options->receives > 0) {
        make_receives(queue);
    }
    if (options->kind == NIC_QUEUE_TM_SRQ) {
        status = memory_tags_make(queue, domain, options->tags, error);
    } else if (options->kind != NIC_QUEUE_SRQ) {
        status = make_pair(queue, domain, error);
        if (status == CRPC_OK && options->sequence_zero) {
            queue->pair->identity = memory_identity(queue->pair->base.number, 0);
        }
    }
    if (status != CRPC_OK) {
        unmake(queue);
        release(queue);
        return status;
    }
    queue->next = nic->queues;
    nic->queues = queue;
    *created = &queue->base;
    return CRPC_OK;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void queue_flush(struct nic_queue *base)
{
    struct memory_queue *queue = memory_queue(base);

    memory_require(base->pair && !base->stopped && base->kind != NIC_QUEUE_DCT,
                   "an SRQ, a DCT, or a stopped queue, cannot be flushed");
    base->failed = true;
    queue->posted_rung = queue->posted_tail;
    memory_queue_pair_fail(base->pair);
    memory_queue_flush_receives(queue->pair);
}

/* What has arrived, and what is coming in, is not reported any more; receives of an SRQ are. */
static void forget_arrivals(struct memory_queue *queue)
{
    struct memory_queue_pair *pair = queue->pair;
    struct nic_queue *receiver = queue->base.receiver;
    const bool shared = receiver && receiver != &queue->base;
    struct memory_arrival *arrival;

    while ((arrival = pair->arrivals) != NULL) {
        pair->arrivals = arrival->next;
        if (shared) {
            memory_tags_forget(receiver, arrival->tagged, arrival->receive);
        }
        free(arrival);
    }
    pair->arrivals_end = &pair->arrivals;
    if (pair->receive_taken && shared) {
        memory_tags_abandon(pair);
        memory_tags_forget(receiver, pair->tagged, pair->receive);
    }
    pair->receive_taken = false;
}

static void queue_stop(struct nic_queue *base)
{
    struct memory_queue *queue = memory_queue(base);

    memory_require(!base->stopped && base->users == 0, "the queue was stopped, or %u queues use it",
                   base->users);
    if (queue->pair) {
        memory_queue_completions_forget(queue);
        forget_arrivals(queue);
    } else if (queue->tags) {
        memory_queue_completions_forget(queue);
    }
    base->stopped = true;
    unmake(queue);
}

static void queue_destroy(struct nic_queue *base)
{
    struct memory_queue *queue = memory_queue(base);
    struct memory_queue **link = &queue->nic->queues;

    memory_require(base->stopped, "the queue was not stopped");
    while (*link != queue) {
        link = &(*link)->next;
    }
    *link = queue->next;
    release(queue);
}

void memory_queue_free(struct memory_queue *queue)
{
    if (!queue->base.stopped) {
        queue->base.users = 0;
        queue_stop(&queue->base);
    }
    queue_destroy(&queue->base);
}

/* ---- Posting --------------------------------------------------------------------------------- */

static const uint8_t opcodes[NIC_OPCODES] = {
    [NIC_SEND] = MEMORY_SEND,
    [NIC_SEND_IMMEDIATE] = MEMORY_SEND,
    [NIC_SEND_INVALIDATE] = MEMORY_SEND,
    [NIC_WRITE] = MEMORY_WRITE,
    [NIC_WRITE_IMMEDIATE] = MEMORY_WRITE_IMMEDIATE,
    [NIC_READ] = MEMORY_READ,
    [NIC_COMPARE_SWAP] = MEMORY_COMPARE_SWAP,
    [NIC_FETCH_ADD] = MEMORY_FETCH_ADD,
    [NIC_NOP] = MEMORY_NOP,
};

static uint8_t arrival_flags(uint8_t opcode)
{
    return opcode == NIC_SEND_IMMEDIATE || opcode == NIC_WRITE_IMMEDIATE ? NIC_DONE_IMMEDIATE
           : opcode == NIC_SEND_INVALIDATE                               ? NIC_DONE_INVALIDATED
                                                                         : 0;
}

static uint64_t total_bytes(const struct nic_piece *pieces, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
    }
    return bytes;
}

/* What a queue with targets may post; a datagram has one packet. */
static void require_target(const struct nic_queue *base, const struct nic_work *work,
                           const struct nic_target *target, uint64_t bytes)
{
    const bool nop = work->opcode == NIC_NOP;
    const bool dc = base->kind == NIC_QUEUE_DCI;

    memory_require(target || (nop && base->interval > 1 && base->table == NIC_TABLE_SPARSE),
                   "an op with opcode %u, and no target", work->opcode);
    memory_require(
        dc ? work->opcode != NIC_SEND_INVALIDATE
           : bytes <= base->nic->mtu_bytes && !(work->flags & NIC_WORK_FENCE) &&
                 (nop ? !target : work->opcode == NIC_SEND || work->opcode == NIC_SEND_IMMEDIATE),
        "a datagram, or an op of a DCI, with opcode %u, %" PRIu64 " bytes, target %p", work->opcode,
        bytes, (const void *)target);
    memory_require(!target || (target->nic == base->nic && target->kind == base->kind),
                   "the target is of another kind, or of another nic");
}

static bool post_one(struct nic_queue *base, const struct nic_work *work, struct nic_target *target,
                     uint32_t local_key, const struct nic_piece *pieces)
{
    struct memory_queue *queue = memory_queue(base);
    struct memory_queue_pair *pair = queue->pair;
    const uint32_t position = base->sends.producer;
    const bool plain = nic_opcode_is_atomic(work->opcode) || work->opcode == NIC_NOP;
    struct memory_wqe *wqe;
    struct nic_piece *kept;
    struct nic_piece one;
    uint32_t count = 0;
    uint64_t bytes;

    if (!plain) {
        pieces = nic_work_pieces(work, local_key, pieces, &one, &count);
    }
    bytes = total_bytes(pieces, count);

    memory_require(pair && pair->connected && !base->stopped, "the queue is not connected");
    memory_require(work->opcode >= NIC_SEND && work->opcode <= NIC_NOP &&
                       count <= base->send_pieces && bytes <= base->nic->message_bytes_max,
                   "opcode %u, %u pieces, %" PRIu64 " bytes", work->opcode, count, bytes);
    memory_require(!(work->flags & NIC_WORK_INLINE) || bytes <= base->inline_bytes,
                   "%" PRIu64 " bytes inline, of at most %u", bytes, base->inline_bytes);
    if (base->kind != NIC_QUEUE_RC) {
        require_target(base, work, target, bytes);
        memory_require(!target || memory_target(target)->domain == queue->domain,
                       "the target is of another domain");
    }
    if (nic_queue_send_room(base) == 0) {
        return false;
    }
    wqe = memory_wqe(pair, position);
    kept = queue->send_pieces + (size_t)(position & base->sends.mask) * base->send_pieces;
    if (count > 0) {
        memcpy(kept, pieces, count * sizeof(*pieces));
    }
    *wqe = (struct memory_wqe){
        .transfer = {.remote_address = work->remote_address,
                     .bytes = (uint32_t)bytes,
                     .remote_key = work->remote_key,
                     .immediate = work->immediate},
        .opcode = target && base->kind == NIC_QUEUE_UD ? MEMORY_DATAGRAM : opcodes[work->opcode],
        .pieces = kept,
        .piece_count = count,
        .fence = work->flags & NIC_WORK_FENCE,
        .flags = arrival_flags(work->opcode),
        .compare = work->address,
        .operand = work->operand};
    memory_target_name(wqe, target ? memory_target(target) : NULL);
    if (work->flags & NIC_WORK_INLINE) {
        wqe->inlined = true;
        wqe->payload = pair->inline_bytes + (size_t)(wqe - pair->wqes) * pair->inline_stride;
        memory_wqe_gather(wqe, wqe->payload);
    }
    wqe->signaled = nic_queue_wants_cqe(base, work->flags, 1);
    tracking_post_op(&base->sends, position, position + 1, work->user_data,
                     nic_queue_state(base, work->flags), work->opcode);
    pair->base.posted = base->sends.producer;
    if (base->kind == NIC_QUEUE_DCI) {
        memory_dc_post(queue, position, work->stream);
    }
    base->stats.sends++;
    return true;
}

static uint32_t queue_post(struct nic_queue *base, const struct nic_work *works,
                           const uint32_t *local_keys, const struct nic_piece *pieces,
                           uint32_t count)
{
    uint32_t posted = 0;

    memory_require(base->kind == NIC_QUEUE_RC, "an op has no target");
    while (posted < count && post_one(base, &works[posted], NULL, local_keys[posted], pieces)) {
        posted++;
    }
    return posted;
}

static uint32_t queue_post_to(struct nic_queue *base, const struct nic_work *works,
                              struct nic_target *const *targets, const uint32_t *local_keys,
                              const struct nic_piece *pieces, uint32_t count)
{
    uint32_t posted = 0;

    memory_require(base->kind != NIC_QUEUE_RC, "the queue has a peer, and no targets");
    while (posted < count &&
           post_one(base, &works[posted], targets[posted], local_keys[posted], pieces)) {
        posted++;
    }
    return posted;
}

static bool queue_receive(struct nic_queue *base, uint64_t user_data,
                          const struct nic_piece *pieces, uint32_t count)
{
    struct memory_queue *queue = memory_queue(base);
    const uint32_t index = queue->free_first;

    memory_require(base->receiver == base && !base->stopped && count <= base->receive_pieces,
                   "a receive of %u pieces, of at most %u", count, base->receive_pieces);
    if (base->receives_open == base->receives_max) {
        return false;
    }
    queue->free_first = base->receives.entries[index].position;
    if (count > 0) {
        memcpy(queue->receive_pieces + (size_t)index * base->receive_pieces, pieces,
               count * sizeof(*pieces));
    }
    queue->receive_counts[index] = count;
    queue->posted[queue->posted_tail++ & base->receives.mask] = index;
    tracking_receive_post(&base->receives, index, user_data);
    base->receives_open++;
    base->stats.receives++;
    return true;
}

static void queue_ring(struct nic_queue *base)
{
    struct memory_queue *queue = memory_queue(base);
    struct memory_queue_pair *pair = queue->pair;

    memory_require(!base->stopped, "a stopped queue cannot be rung");
    queue->posted_rung = queue->posted_tail;
    if (!pair) {
        memory_tags_ring(queue);
        return;
    }
    if (pair->dead) {
        memory_queue_flush_receives(pair);
    }
    if (pair->rung != pair->base.posted) {
        if (nic_queue_wants_last_cqe(base)) {
            memory_wqe(pair, pair->base.posted - 1)->signaled = true;
        }
        memory_ring_doorbell(&pair->base);
        base->stats.doorbells++;
    }
}

static void queue_give_back(struct nic_queue *base, uint32_t index)
{
    struct memory_queue *queue = memory_queue(base);

    base->receives.entries[index].position = queue->free_first;
    queue->free_first = index;
}

/* ---- The receiving side ---------------------------------------------------------------------- */

static const struct nic_piece *pieces_of(const struct memory_queue *receiver, uint32_t index)
{
    return receiver->receive_pieces + (size_t)index * receiver->base.receive_pieces;
}

enum memory_taking memory_queue_take(struct memory_queue_pair *target, uint32_t bytes,
                                     const uint8_t *payload)
{
    struct memory_queue *receiver;
    const struct nic_piece *pieces;
    enum memory_taking taking;
    uint64_t room = 0;

    if (target->receive_taken) {
        return TAKING_READY;
    }
    if (!target->queue || !target->queue->base.receiver) {
        return TAKING_EMPTY;
    }
    receiver = memory_queue(target->queue->base.receiver);
    target->tagged = MEMORY_UNTAGGED;
    if (receiver->tags && payload && memory_tags_match(target, payload, bytes, &taking)) {
        return taking;
    }
    if (receiver->posted_head == receiver->posted_rung) {
        return TAKING_EMPTY;
    }
    target->receive = receiver->posted[receiver->posted_head++ & receiver->base.receives.mask];
    target->receive_taken = true;
    if (receiver->posted_rung - receiver->posted_head < receiver->limit) {
        receiver->limit = 0; /* once */
        receiver->limit_reached = true;
    }
    pieces = pieces_of(receiver, target->receive);
    for (uint32_t i = 0; i < receiver->receive_counts[target->receive] && room < bytes; i++) {
        room += pieces[i].bytes;
        if (!memory_allows_in(receiver->nic, receiver->domain, pieces[i].local_key,
                              pieces[i].address, pieces[i].bytes, CRPC_ACCESS_LOCAL_WRITE)) {
            return TAKING_REFUSED;
        }
    }
    if (room < bytes) {
        return TAKING_TOO_LONG;
    }
    if (receiver->tags && payload) {
        memory_tags_count(target, payload, bytes);
    }
    return TAKING_READY;
}

void memory_queue_land(struct memory_queue_pair *target, const uint8_t *data, uint32_t low,
                       uint32_t high)
{
    const struct memory_queue *receiver = memory_queue(target->queue->base.receiver);
    struct memory_wqe view;

    if (memory_tags_is_match(target->tagged)) {
        memory_tags_land(target, data, low, high);
        return;
    }
    view = (struct memory_wqe){.pieces = pieces_of(receiver, target->receive),
                               .piece_count = receiver->receive_counts[target->receive]};
    memory_wqe_scatter(&view, data, low, high);
}

static void arrive(struct memory_queue_pair *target, const struct memory_arrival *one)
{
    struct memory_arrival *arrival;

    target->receive_taken = false;
    target->tagged = MEMORY_UNTAGGED;
    if (memory_immediate(target->fabric)) {
        memory_queue_complete_receive(target, one, NIC_ERROR_NONE);
        return;
    }
    arrival = memory_allocate(1, sizeof(*arrival));
    *arrival = *one;
    *target->arrivals_end = arrival;
    target->arrivals_end = &arrival->next;
    memory_active_update(target);
}

void memory_queue_arrive(struct memory_queue_pair *target, const struct memory_wqe *wqe)
{
    memory_queue_arrive_from(target, wqe, 0);
}

void memory_queue_arrive_from(struct memory_queue_pair *target, const struct memory_wqe *wqe,
                              uint32_t source)
{
    const struct memory_arrival one = {.immediate = wqe->flags ? wqe->transfer.immediate : 0,
                                       .bytes = wqe->transfer.bytes - memory_tags_skipped(target),
                                       .receive = target->receive,
                                       .flags = wqe->flags,
                                       .tagged = target->tagged,
                                       .context = target->tag_context,
                                       .tag = target->tag,
                                       .written = wqe->opcode == MEMORY_WRITE_IMMEDIATE,
                                       .source = source};

    arrive(target, &one);
}

void memory_queue_arrive_datagram(struct memory_queue_pair *target, const struct memory_wqe *wqe,
                                  uint32_t source)
{
    const struct memory_arrival one = {.immediate = wqe->flags ? wqe->transfer.immediate : 0,
                                       .bytes = NIC_DATAGRAM_HEADER_BYTES + wqe->transfer.bytes,
                                       .receive = target->receive,
                                       .flags = wqe->flags | NIC_DONE_GRH,
                                       .source = source};

    arrive(target, &one);
}

void memory_queue_refuse(struct memory_queue_pair *target, enum nic_error status)
{
    struct memory_arrival arrival = {.receive = target->receive, .tagged = target->tagged};

    while (target->arrivals) { /* they came before */
        memory_deliver_arrival(target);
    }
    target->receive_taken = false;
    if (memory_tags_is_match(target->tagged)) {
        memory_queue_complete_receive(target, &arrival, NIC_ERROR_FLUSHED);
        target->tagged = MEMORY_UNTAGGED;
        /* Devices spend a receive on the reason, if there is one. */
        if (memory_queue_take(target, 0, NULL) == TAKING_EMPTY) {
            return;
        }
        target->receive_taken = false;
        arrival = (struct memory_arrival){.receive = target->receive};
    }
    memory_queue_complete_receive(target, &arrival, status);
}

void memory_queue_flush_receives(struct memory_queue_pair *queue_pair)
{
    struct memory_queue *queue = queue_pair->queue;
    struct memory_arrival arrival = {.receive = queue_pair->receive, .tagged = queue_pair->tagged};

    if (queue_pair->receive_taken) {
        queue_pair->receive_taken = false;
        memory_tags_abandon(queue_pair);
        arrival.tagged = queue_pair->tagged; /* one that counts no more cannot be lost */
        memory_queue_complete_receive(queue_pair, &arrival, NIC_ERROR_FLUSHED);
    }
    if (queue->base.receiver != &queue->base || queue->tags) {
        return;
    }
    arrival.tagged = MEMORY_UNTAGGED;
    while (queue->posted_head != queue->posted_rung) {
        arrival.receive = queue->posted[queue->posted_head++ & queue->base.receives.mask];
        memory_queue_complete_receive(queue_pair, &arrival, NIC_ERROR_FLUSHED);
    }
}

/* ---- Atomics --------------------------------------------------------------------------------- */

bool memory_atomic_execute(struct memory_queue_pair *target, struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    uint64_t *word;

    if (transfer->remote_address % sizeof(*word) != 0 ||
        !memory_allows_remote(target, transfer->remote_key, transfer->remote_address, sizeof(*word),
                              CRPC_ACCESS_REMOTE_ATOMIC)) {
        return false;
    }
    word = (uint64_t *)memory_at(target, transfer->remote_key, transfer->remote_address);
    wqe->payload = memory_allocate(1, sizeof(*word));
    memcpy(wqe->payload, word, sizeof(*word));
    if (wqe->opcode == MEMORY_FETCH_ADD) {
        *word += wqe->operand;
    } else if (*word == wqe->compare) {
        *word = wqe->operand;
    }
    return true;
}

void memory_atomic_answer(struct memory_queue_pair *queue_pair, uint32_t number)
{
    const struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    void *place = (void *)(uintptr_t)wqe->transfer.local_address;

    if (queue_pair->queue) {
        const struct nic_queue *queue = &queue_pair->queue->base;
        place = &queue->results[number & queue->sends.mask];
    }
    memcpy(place, wqe->payload, sizeof(uint64_t));
}

const struct nic_queue_operations memory_queue_operations = {
    .create = queue_create,
    .reset_stream = memory_dc_reset_stream,
    .modify = memory_queue_modify,
    .flush = queue_flush,
    .stop = queue_stop,
    .destroy = queue_destroy,
    .target_create = memory_target_create,
    .target_destroy = memory_target_destroy,
    .post = queue_post,
    .post_to = queue_post_to,
    .receive = queue_receive,
    .tag = memory_queue_tag,
    .ring = queue_ring,
    .poll = memory_queue_poll,
    .give_back = queue_give_back,
};
