/* schedule.c: time. Which queue pairs have something under way, and the one small thing that
 * happens next.
 *
 * A queue pair has three lanes that are delayed independently of each other: its oldest WQE on the
 * way to the peer, the oldest receive completion, and the oldest acknowledgement. Each lane is in
 * order; between lanes and between queue pairs there is none. A payload is fetched at one moment
 * (from then on the sender's memory may change without harm), and lands in pieces at later ones.
 */
#include "nic/memory/dc.h"

#include <string.h>

#define ATOMIC_BYTES 8u /* a word: aligned, these are read and written whole, as on hardware */
#define SMALL_READ_BYTES 256u /* up to this a READ samples one word at a time, in any order */

/* ---- The active list ------------------------------------------------------------------------- */

void memory_active_remove(struct memory_queue_pair *queue_pair)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    const uint32_t index = queue_pair->active_index;

    if (index == NOT_ACTIVE) {
        return;
    }
    fabric->active[index] = fabric->active[--fabric->active_count];
    fabric->active[index]->active_index = index;
    queue_pair->active_index = NOT_ACTIVE;
}

void memory_active_update(struct memory_queue_pair *queue_pair)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    const bool busy = queue_pair->acknowledged != queue_pair->rung || queue_pair->arrivals != NULL;

    if (likely(busy == (queue_pair->active_index != NOT_ACTIVE))) {
        return;
    }
    if (!busy) {
        memory_active_remove(queue_pair);
        return;
    }
    queue_pair->active_index = fabric->active_count;
    fabric->active[fabric->active_count++] = queue_pair;
}

/* ---- Waiting for the peer -------------------------------------------------------------------- */

bool memory_wait_for_answer(struct memory_queue_pair *queue_pair, enum memory_lane lane)
{
    const struct memory_fabric *fabric = queue_pair->fabric;
    const uint32_t retry_steps = fabric->options.retry_steps;
    uint64_t waited;

    if (!queue_pair->stuck) {
        queue_pair->stuck_since = fabric->now;
    }
    queue_pair->stuck = true;
    waited = fabric->now - queue_pair->stuck_since;
    if (waited < retry_steps) {
        queue_pair->not_before[lane] =
            fabric->now + minimum(retry_steps / 8 + 1, retry_steps - waited);
        return false;
    }
    queue_pair->stuck = false;
    memory_fail_oldest(queue_pair, NIC_ERROR_RETRY);
    return true;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Takes about `bytes` (a unit at least) from one end of the span; `base` is the address of its byte 0
 * at the peer, and pieces end where aligned units of the peer's memory do. */
static struct memory_span piece_take(struct memory_span *span, uint64_t base, uint32_t bytes,
                                     uint64_t unit, bool front)
{
    struct memory_span piece = *span;

    if (bytes >= span->high - span->low) {
        span->low = span->high;
    } else if (front) {
        piece.high = (uint32_t)(((base + span->low + bytes) & ~(unit - 1)) - base);
        span->low = piece.high;
    } else {
        piece.low = (uint32_t)(align_up(base + span->high - bytes, unit) - base);
        span->high = piece.low;
    }
    return piece;
}

static struct memory_span piece_random(struct memory_fabric *fabric, struct memory_span *span,
                                       uint64_t base)
{
    struct random_generator *random = &fabric->random;
    const uint32_t unit = (uint32_t)maximum(ATOMIC_BYTES, fabric->options.unit_bytes);
    const uint32_t left = span->high - span->low;
    uint32_t bytes = left;

    if (span->pieces > 1 && left > unit) {
        bytes = random_between(random, unit, left);
        span->pieces--;
    }
    return piece_take(span, base, bytes, unit, random_percent(random, 50));
}

static struct memory_span span_start(struct memory_fabric *fabric, uint32_t bytes)
{
    const uint32_t most = (uint32_t)maximum(1, fabric->options.pieces_max);

    return (struct memory_span){.high = bytes, .pieces = random_between(&fabric->random, 1, most)};
}

static bool span_empty(const struct memory_span *span)
{
    return span->low == span->high;
}

/* ---- The transfer lane: WRITE ---------------------------------------------------------------- */

static void execute_finish(struct memory_queue_pair *queue_pair)
{
    queue_pair->stage = STAGE_START;
    queue_pair->executed++;
}

/* The payload as it is now; false, and the WQE has failed, if it must not be touched. */
static bool payload_fetch(struct memory_queue_pair *queue_pair, struct memory_wqe *wqe)
{
    queue_pair->payload_lost = false;
    if (wqe->inlined) {
        return true;
    }
    if (!memory_wqe_allows(queue_pair, wqe, 0)) {
        queue_pair->stage = STAGE_START;
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
        return false;
    }
    if (!wqe->payload) {
        wqe->payload = memory_allocate(1, wqe->transfer.bytes);
    }
    memory_wqe_gather(wqe, wqe->payload);
    return true;
}

static void write_fetch(struct memory_queue_pair *queue_pair, struct memory_wqe *wqe)
{
    if (!payload_fetch(queue_pair, wqe)) {
        return;
    }
    queue_pair->span = span_start(queue_pair->fabric, wqe->transfer.bytes);
    queue_pair->stage = wqe->transfer.bytes > 0 ? STAGE_MOVE : STAGE_ARRIVE;
}

/* Returns false if there is no receive for the executing SEND, or it does not fit. */
static bool send_begin(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                       const struct memory_wqe *wqe)
{
    const enum memory_taking taking = memory_queue_take(
        target, wqe->transfer.bytes, wqe->opcode == MEMORY_SEND ? wqe->payload : NULL);

    switch (taking) {
    case TAKING_EMPTY:
        memory_receiver_not_ready(queue_pair);
        return false;
    case TAKING_REFUSED:
    case TAKING_TOO_LONG:
        queue_pair->stage = STAGE_START;
        memory_queue_refuse(target, taking == TAKING_REFUSED ? NIC_ERROR_LOCAL : NIC_ERROR_LENGTH);
        memory_execute_refused(queue_pair, target);
        return false;
    default:
        return true;
    }
}

static void send_piece(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                       struct memory_wqe *wqe)
{
    if (unlikely(queue_pair->payload_lost) && !payload_fetch(queue_pair, wqe)) {
        return;
    }
    if (send_begin(queue_pair, target, wqe)) {
        struct memory_span piece = piece_random(queue_pair->fabric, &queue_pair->span, 0);
        memory_queue_land(target, wqe->payload, piece.low, piece.high);
        if (span_empty(&queue_pair->span)) {
            queue_pair->stage = STAGE_ARRIVE;
        }
    }
}

static void write_piece(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                        struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    struct memory_span piece;

    if (unlikely(queue_pair->payload_lost) && !payload_fetch(queue_pair, wqe)) {
        return;
    }
    if (!memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                              transfer->bytes, CRPC_ACCESS_REMOTE_WRITE)) {
        queue_pair->stage = STAGE_START;
        memory_execute_refused(queue_pair, target);
        return;
    }
    piece = piece_random(queue_pair->fabric, &queue_pair->span, transfer->remote_address);
    memory_land(target, transfer->remote_key, transfer->remote_address + piece.low,
                wqe->payload + piece.low, piece.high - piece.low);
    if (span_empty(&queue_pair->span)) {
        queue_pair->stage = STAGE_ARRIVE;
    }
}

static void write_arrive(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                         struct memory_wqe *wqe)
{
    if (wqe->opcode == MEMORY_SEND && !send_begin(queue_pair, target, wqe)) {
        return; /* one of no bytes begins here */
    }
    if (!memory_send_invalidate(queue_pair, target, wqe)) {
        queue_pair->stage = STAGE_START;
        return;
    }
    if (!memory_landed(target, wqe)) {
        memory_receiver_not_ready(queue_pair);
        return;
    }
    memory_payload_free(wqe);
    execute_finish(queue_pair);
}

/* ---- The transfer lane: READ ----------------------------------------------------------------- */

/* A small READ: any of the words that have not been sampled yet. */
static struct memory_span word_take(struct memory_queue_pair *queue_pair,
                                    const struct nic_transfer *transfer)
{
    const uint32_t before = transfer->remote_address % ATOMIC_BYTES; /* of the first word */
    uint64_t left = queue_pair->words_left;
    uint32_t skip = random_below(&queue_pair->fabric->random, (uint32_t)__builtin_popcountll(left));
    uint32_t start, end;

    while (skip-- > 0) {
        left &= left - 1;
    }
    start = (uint32_t)__builtin_ctzll(left) * ATOMIC_BYTES;
    end = start + ATOMIC_BYTES - before;
    queue_pair->words_left &= ~(left & -left);
    return (struct memory_span){
        .low = start > before ? start - before : 0,
        .high = (uint32_t)minimum(end, transfer->bytes),
    };
}

static void read_start(struct memory_queue_pair *queue_pair, struct memory_wqe *wqe)
{
    const uint32_t bytes = wqe->transfer.bytes;
    const uint64_t before = wqe->transfer.remote_address % ATOMIC_BYTES;
    const uint64_t words = align_up(before + bytes, ATOMIC_BYTES) / ATOMIC_BYTES;

    wqe->payload = memory_allocate(1, bytes);
    queue_pair->span = span_start(queue_pair->fabric, bytes);
    queue_pair->words_left = 0;
    if (bytes > 0 && bytes <= SMALL_READ_BYTES) {
        queue_pair->words_left = (UINT64_C(1) << words) - 1;
    }
    queue_pair->stage = STAGE_MOVE;
}

/* One piece of what the peer has now; the answer travels in the acknowledge lane. */
static void read_piece(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                       struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    struct memory_span piece;
    bool last;

    if (queue_pair->stage == STAGE_START) {
        read_start(queue_pair, wqe);
    }
    if (!memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                              transfer->bytes, CRPC_ACCESS_REMOTE_READ)) {
        queue_pair->stage = STAGE_START;
        memory_execute_refused(queue_pair, target);
        return;
    }
    if (queue_pair->words_left) {
        piece = word_take(queue_pair, transfer);
        last = queue_pair->words_left == 0;
    } else {
        piece = piece_random(queue_pair->fabric, &queue_pair->span, transfer->remote_address);
        last = span_empty(&queue_pair->span);
    }
    if (piece.low < piece.high) {
        memcpy(wqe->payload + piece.low,
               memory_at(target, transfer->remote_key, transfer->remote_address + piece.low),
               piece.high - piece.low);
    }
    if (last) {
        queue_pair->fabric->counters.reads++;
        execute_finish(queue_pair);
    }
}

/* ---- The transfer lane: atomics -------------------------------------------------------------- */

static void atomic_step(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                        struct memory_wqe *wqe)
{
    if (!memory_atomic_allows(queue_pair, wqe)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
    } else if (memory_atomic_execute(target, wqe)) {
        execute_finish(queue_pair);
    } else {
        memory_execute_refused(queue_pair, target);
    }
}

static bool transfer_step(struct memory_queue_pair *queue_pair)
{
    struct memory_wqe *wqe = memory_wqe(queue_pair, queue_pair->executed);
    struct memory_queue_pair *target;

    if (memory_local(wqe)) {
        memory_execute_local(queue_pair, wqe);
        return true;
    }
    if (wqe->opcode != MEMORY_READ && !memory_atomic(wqe) && queue_pair->stage == STAGE_START) {
        write_fetch(queue_pair, wqe);
        return true;
    }
    target = memory_reach(queue_pair);
    if (!target) {
        return memory_wait_for_answer(queue_pair, LANE_TRANSFER);
    }
    queue_pair->stuck = false;
    if (wqe->opcode == MEMORY_READ) {
        read_piece(queue_pair, target, wqe);
    } else if (memory_atomic(wqe)) {
        atomic_step(queue_pair, target, wqe);
    } else if (queue_pair->stage == STAGE_MOVE && wqe->opcode == MEMORY_SEND) {
        send_piece(queue_pair, target, wqe);
    } else if (queue_pair->stage == STAGE_MOVE) {
        write_piece(queue_pair, target, wqe);
    } else {
        write_arrive(queue_pair, target, wqe);
    }
    return true;
}

/* ---- The other lanes ------------------------------------------------------------------------- */

/* A piece of a READ's answer lands. True when the READ is done; a failure ends the queue pair. */
static bool response_piece(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    struct memory_span piece;

    if (!memory_wqe_allows(queue_pair, wqe, CRPC_ACCESS_LOCAL_WRITE)) {
        queue_pair->fabric->counters.local_errors++;
        memory_fail_oldest(queue_pair, NIC_ERROR_LOCAL);
        return false;
    }
    if (!queue_pair->response_started) {
        queue_pair->response = span_start(queue_pair->fabric, transfer->bytes);
    }
    queue_pair->response_started = true;
    piece = piece_random(queue_pair->fabric, &queue_pair->response, transfer->local_address);
    if (piece.low < piece.high) {
        memory_wqe_scatter(wqe, wqe->payload, piece.low, piece.high);
    }
    if (!span_empty(&queue_pair->response)) {
        return false;
    }
    queue_pair->response_started = false;
    return true;
}

/* The peer is asked again for what it has executed. False if it cannot be reached. */
static bool answer_again(struct memory_queue_pair *queue_pair)
{
    const struct memory_queue_pair *target = memory_reach(queue_pair);

    if (!target) {
        return false;
    }
    queue_pair->answers_lost = false;
    for (uint32_t number = queue_pair->acknowledged; number != queue_pair->executed; number++) {
        const struct memory_wqe *wqe = memory_wqe(queue_pair, number);
        const struct nic_transfer *transfer = &wqe->transfer;
        if (wqe->opcode == MEMORY_READ && wqe->status == NIC_ERROR_NONE && transfer->bytes > 0 &&
            memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                                 transfer->bytes, CRPC_ACCESS_REMOTE_READ)) {
            memcpy(wqe->payload, memory_at(target, transfer->remote_key, transfer->remote_address),
                   transfer->bytes);
        }
    }
    return true;
}

static bool acknowledge_step(struct memory_queue_pair *queue_pair)
{
    const struct memory_wqe *wqe = memory_wqe(queue_pair, queue_pair->acknowledged);

    if (queue_pair->dead) {
        memory_flush_oldest(queue_pair);
        return true;
    }
    if (queue_pair->answers_lost && wqe->status != NIC_ERROR_LOCAL && !answer_again(queue_pair)) {
        return memory_wait_for_answer(queue_pair, LANE_ACKNOWLEDGE);
    }
    queue_pair->stuck = false;
    if (wqe->status != NIC_ERROR_NONE) {
        memory_fail_oldest(queue_pair, wqe->status);
        return true;
    }
    if (wqe->opcode == MEMORY_READ && !response_piece(queue_pair, wqe)) {
        return true;
    }
    if (unlikely(memory_atomic(wqe))) {
        memory_atomic_answer(queue_pair, queue_pair->acknowledged);
    }
    if (wqe->signaled) {
        memory_complete_send(queue_pair, queue_pair->acknowledged, NIC_ERROR_NONE);
    }
    memory_acknowledged(queue_pair);
    return true;
}

/* True if the next WQE must wait for the answers of earlier ones. */
static bool is_fenced(struct memory_queue_pair *queue_pair)
{
    if (likely(!memory_wqe(queue_pair, queue_pair->executed)->fence)) {
        return false;
    }
    for (uint32_t number = queue_pair->acknowledged; number != queue_pair->executed; number++) {
        const struct memory_wqe *wqe = memory_wqe(queue_pair, number);
        if (wqe->opcode == MEMORY_READ || memory_atomic(wqe)) {
            return true;
        }
    }
    return false;
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static bool lane_has_work(struct memory_queue_pair *queue_pair, enum memory_lane lane)
{
    struct memory_queue_pair *peer;

    switch (lane) {
    case LANE_RECEIVE:
        return queue_pair->arrivals != NULL;
    case LANE_ACKNOWLEDGE:
        if (queue_pair->dead) {
            return queue_pair->acknowledged != queue_pair->rung;
        }
        if (queue_pair->acknowledged == queue_pair->executed) {
            return false;
        }
        break;
    default:
        if (queue_pair->dead || queue_pair->halted || queue_pair->executed == queue_pair->rung ||
            is_fenced(queue_pair)) {
            return false;
        }
        break;
    }
    peer = memory_peer(queue_pair); /* what comes from it or goes to it waits while it is stalled */
    return !peer || !memory_stalled(peer);
}

/* One of the lanes that can move now, by weight; LANES if none can. */
static enum memory_lane lane_choose(struct memory_queue_pair *queue_pair)
{
    const struct memory_fabric *fabric = queue_pair->fabric;
    uint32_t weights[LANES] = {
        [LANE_TRANSFER] = fabric->options.transfer_weight,
        [LANE_RECEIVE] = fabric->options.receive_weight,
        [LANE_ACKNOWLEDGE] = fabric->options.acknowledge_weight,
    };
    uint32_t sum = 0, chosen;

    if (memory_stalled(queue_pair)) {
        return LANES;
    }
    for (int lane = 0; lane < LANES; lane++) {
        if (fabric->now < queue_pair->not_before[lane] || !lane_has_work(queue_pair, lane)) {
            weights[lane] = 0;
        }
        sum += weights[lane];
    }
    if (sum == 0) {
        return LANES;
    }
    chosen = random_below(&queue_pair->fabric->random, sum);
    for (int lane = 0; lane < LANES; lane++) {
        if (chosen < weights[lane]) {
            return lane;
        }
        chosen -= weights[lane];
    }
    return LANES;
}

/* True if it did something, false if nothing can move, or is put off. */
static bool queue_pair_step(struct memory_queue_pair *queue_pair)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    const uint32_t delay_steps = (uint32_t)maximum(1, fabric->options.delay_steps);
    enum memory_lane lane;
    bool moved = true;

    if (memory_is_dci(queue_pair)) {
        moved = memory_dc_step(queue_pair);
        memory_active_update(queue_pair);
        return moved;
    }
    lane = lane_choose(queue_pair);
    if (lane == LANES) {
        return false;
    }
    if (random_percent(&fabric->random, fabric->options.delay_percent)) {
        queue_pair->not_before[lane] =
            fabric->now + random_between(&fabric->random, 1, delay_steps);
        return false;
    }
    if (lane == LANE_TRANSFER) {
        moved = transfer_step(queue_pair);
    } else if (lane == LANE_RECEIVE) {
        memory_deliver_arrival(queue_pair);
    } else {
        moved = acknowledge_step(queue_pair);
    }
    memory_active_update(queue_pair);
    return moved;
}

static bool step_scheduled(struct memory_fabric *fabric)
{
    const uint32_t count = fabric->active_count;
    const uint32_t start = random_below(&fabric->random, count);

    for (uint32_t i = 0; i < count; i++) { /* the list changes only where this returns */
        if (queue_pair_step(fabric->active[(start + i) % count])) {
            return true;
        }
    }
    return false;
}

/* Everything that waits tries again. Queue pairs may leave the list; others take their place. */
static bool step_immediate(struct memory_fabric *fabric)
{
    bool moved = false;

    for (uint32_t i = fabric->active_count; i-- > 0;) {
        if (i >= fabric->active_count) {
            continue;
        }
        struct memory_queue_pair *queue_pair = fabric->active[i];
        moved = memory_transfer_now(queue_pair) || moved;
        memory_active_update(queue_pair);
    }
    return moved;
}

enum memory_step memory_fabric_step(struct memory_fabric *fabric)
{
    bool moved;

    if (fabric->active_count == 0) {
        return MEMORY_STEP_QUIET;
    }
    fabric->now++;
    fabric->counters.steps++;
    moved = memory_immediate(fabric) ? step_immediate(fabric) : step_scheduled(fabric);
    return moved ? MEMORY_STEP_MOVED : MEMORY_STEP_WAITED;
}

bool memory_fabric_run(struct memory_fabric *fabric, uint64_t steps)
{
    while (steps-- > 0) {
        if (memory_fabric_step(fabric) == MEMORY_STEP_QUIET) {
            return true;
        }
    }
    return fabric->active_count == 0;
}
