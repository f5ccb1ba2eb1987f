/* wqes.c: the WQEs of each opcode: the same ops through both drivers, of which one has libmlx5 write them, in the same
 * memory. Their bytes have to be the same, and so has what they do.
 *
 * What differs is checked against each queue pair's own, and cleared before comparing: its number, the index of the
 * WQE, and the keys. The rest of the last unit of inline data nobody looks at, nor at what FETCH_ADD compares. */
#include <stdio.h>
#include <string.h>

#include "nic/mlx5/wqe.h"
#include "nic/device/device.h"
#include "station.h"
#include "wqe_ring.h"

#define SLOT_BYTES 8192u

enum operation { WRITE, WRITE_IMMEDIATE, READ, SWAP, ADD, PIECES, PIECES_READ, BIND, INVALIDATE };

struct op {
    enum operation operation;
    uint32_t bytes; /* PIECES: of all */
    uint32_t immediate;
    uint32_t pieces;
    struct nic_piece piece[NIC_PIECES_MAX];
    bool in_wqe; /* PIECES */
    struct nic_atomic atomic;
};

/* ---- One op through one driver --------------------------------------------------------------- */

struct half {
    struct station station;
    struct wqe_ring ring;
    struct nic_window window;
};

static const char *const names[] = {
    "WRITE",           "WRITE with immediate", "READ", "COMPARE_SWAP", "FETCH_ADD",
    "WRITE of pieces", "READ to pieces",       "bind", "invalidate"};

static bool clear_own(const struct half *half, const struct op *op, struct wqe *wqe,
                      struct outcome *outcome)
{
    const struct station *station = &half->station;
    const uint32_t local = station->source_keys.local_key, remote = station->sink_keys.remote_key;
    const bool in_wqe = op->operation <= WRITE_IMMEDIATE
                            ? op->bytes <= station->near->inline_bytes_max
                            : op->in_wqe;
    const uint32_t segments = op->operation < PIECES ? op->bytes != 0 : op->pieces;
    if (op->operation >= BIND) { /* the keys in it and what is behind them: windows differ */
        uint8_t *context = wqe->bytes + 64;
        memset(wqe->bytes + 12, 0, 4);
        memset(context + 1, 0, 1);
        memset(context + 3, 0, 13);
        memset(context + 32, 0, 32);
        if (op->operation == INVALIDATE) {
            memset(context + 1, 0, 31); /* `free` is all that counts */
        }
        return op->operation == INVALIDATE || wqe_ring_clear_key(wqe, 132, local, outcome);
    }
    if (!wqe_ring_clear_key(wqe, 24, remote, outcome)) {
        return false;
    }
    if (op->operation == SWAP || op->operation == ADD) {
        memset(wqe->bytes + 40, 0, op->operation == ADD ? 8 : 0); /* nothing is compared */
        return wqe_ring_clear_key(wqe, 52, local, outcome);
    }
    if (in_wqe) {
        memset(wqe->bytes + 36 + op->bytes, 0, op->bytes ? wqe->units * 16 - 36 - op->bytes : 0);
        return true;
    }
    for (uint32_t i = 0; i < segments; i++) {
        if (!wqe_ring_clear_key(wqe, 36 + 16 * i, local, outcome)) {
            return false;
        }
    }
    return true;
}

static void post(struct half *half, const struct op *op, uint32_t flags)
{
    struct station *station = &half->station;
    const struct nic_operations *operations = station->near->operations;
    const struct nic_transfer transfer = station_transfer(station, 0, 0, op->bytes, op->immediate);
    struct nic_atomic atomic = op->atomic;
    struct nic_piece pieces[NIC_PIECES_MAX];
    switch (op->operation) {
    case WRITE:
        operations->post_write(station->sender, &transfer, flags);
        break;
    case WRITE_IMMEDIATE:
        operations->post_write_immediate(station->sender, &transfer, flags);
        break;
    case READ:
        operations->post_read(station->sender, &transfer, flags);
        break;
    case SWAP:
    case ADD:
        atomic.local_key = station->source_keys.local_key;
        atomic.remote_key = station->sink_keys.remote_key;
        operations->post_atomic(station->sender, &atomic, flags);
        break;
    case PIECES:
    case PIECES_READ:
        for (uint32_t i = 0; i < op->pieces; i++) {
            pieces[i] = op->piece[i];
            pieces[i].local_key = station->source_keys.local_key;
        }
        operations->post_pieces(station->sender, op->operation == PIECES_READ, &transfer, pieces,
                                op->pieces, flags | (op->in_wqe ? NIC_POST_INLINE : 0));
        break;
    case BIND:
        half->window.access = CRPC_ACCESS_REMOTE_WRITE;
        operations->post_bind(station->sender, &half->window, &station->source_keys,
                              transfer.local_address, op->bytes, flags);
        break;
    default:
        operations->post_invalidate(station->sender, &half->window, flags);
    }
    operations->ring_doorbell(station->sender);
}

static bool do_op(struct half *half, const struct op *op, struct wqe *wqe, struct outcome *outcome)
{
    struct station *station = &half->station;
    const uint32_t arrived = station->arrived;
    post(half, op, NIC_POST_SIGNALED);
    if (!station_wait_sent(station, outcome)) {
        return false;
    }
    if (op->operation == WRITE_IMMEDIATE) {
        if (!station_wait_arrived(station, arrived + 1, outcome)) {
            return false;
        }
        const struct nic_completion *arrival = station_arrival(station, arrived);
        if (arrival->immediate != op->immediate || arrival->byte_count != op->bytes) {
            return fails(outcome, "immediate 0x%08x and %u bytes came as 0x%08x and %u",
                         op->immediate, op->bytes, arrival->immediate, arrival->byte_count);
        }
    }
    return wqe_ring_next(&half->ring, wqe, outcome) && clear_own(half, op, wqe, outcome);
}

/* ---- Through both ---------------------------------------------------------------------------- */

struct both {
    struct half theirs, ours;
    uint8_t near[SLOT_BYTES], far[SLOT_BYTES]; /* memory before */
    uint8_t near_after[SLOT_BYTES], far_after[SLOT_BYTES];
};

static bool open_both(struct both *both, const struct subject *subject, struct outcome *outcome)
{
    struct station_setup setup = {.options = station_options()};
    setup.driver = CRPC_DRIVER_MLX5;
    bool good = station_open(&both->ours.station, subject, &setup, outcome);
    setup.driver = CRPC_DRIVER_VERBS;
    setup.memory_of = &both->ours.station;
    good = good && station_open(&both->theirs.station, subject, &setup, outcome);
    if (!good) {
        return false;
    }
    /* libmlx5 grants some more. */
    both->theirs.station.near->inline_bytes_max = both->ours.station.near->inline_bytes_max;
    return wqe_ring_watch(&both->theirs.ring, device_qp(both->theirs.station.sender), outcome) &&
           wqe_ring_watch(&both->ours.ring, device_qp(both->ours.station.sender), outcome);
}

static void close_both(struct both *both)
{
    station_close(&both->theirs.station);
    station_close(&both->ours.station);
    *both = (struct both){0};
}

static bool do_both(struct both *both, const struct op *op, struct outcome *outcome)
{
    uint8_t *near = both->ours.station.source, *far = both->ours.station.sink;
    struct wqe theirs, ours;
    const char *what = names[op->operation];
    memcpy(both->near, near, SLOT_BYTES);
    memcpy(both->far, far, SLOT_BYTES);
    if (!do_op(&both->theirs, op, &theirs, outcome)) {
        return false;
    }
    memcpy(both->near_after, near, SLOT_BYTES);
    memcpy(both->far_after, far, SLOT_BYTES);
    memcpy(near, both->near, SLOT_BYTES);
    memcpy(far, both->far, SLOT_BYTES);
    if (!do_op(&both->ours, op, &ours, outcome) || !wqe_ring_same(&theirs, &ours, what, outcome)) {
        return false;
    }
    if (memcmp(near, both->near_after, SLOT_BYTES) != 0 ||
        memcmp(far, both->far_after, SLOT_BYTES) != 0) {
        return fails(outcome, "%s: does to memory what libmlx5's does not", what);
    }
    return true;
}

/* Whether memory is as the op has to leave it. `both` has what was before. */
static bool expect(const struct both *both, const struct op *op, struct outcome *outcome)
{
    const struct station *station = &both->ours.station;
    const uint8_t *near = station->source, *far = station->sink;
    const char *what = names[op->operation];
    uint32_t at = 0;
    if (op->operation <= WRITE_IMMEDIATE) {
        return station_same(station, 0, 0, op->bytes, what, outcome) &&
               (memcmp(far + op->bytes, both->far + op->bytes, SLOT_BYTES - op->bytes) == 0 ||
                fails(outcome, "%s: of %u bytes writes behind them", what, op->bytes));
    }
    if (op->operation == READ) {
        return station_same(station, 0, 0, op->bytes, what, outcome);
    }
    for (uint32_t i = 0; i < op->pieces; at += op->piece[i++].bytes) {
        const uint32_t from = (uint32_t)(op->piece[i].address - (uintptr_t)near);
        if (!station_same(station, from, at, op->piece[i].bytes, what, outcome)) {
            return false;
        }
    }
    return true;
}

static uint32_t rounds_of(const struct subject *subject)
{
    return subject->quick ? 150 : 4000;
}

static void renew(struct both *both)
{
    struct station *station = &both->ours.station;
    station_fill(station, station->source, SLOT_BYTES);
    station_fill(station, station->sink, SLOT_BYTES);
}

static uint32_t some_bytes(struct both *both)
{
    struct station *station = &both->ours.station;
    const uint32_t in_wqe = station->near->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 32, in_wqe, in_wqe + 1, 4096, 8000};
    return station_pick(station, 3) ? sizes[station_pick(station, 7)] : station_pick(station, 300);
}

/* Runs rounds of ops that `choose` makes. */
static void compare(struct both *both, const struct subject *subject, const char *what,
                    void (*choose)(struct both *both, struct op *op), struct outcome *outcome)
{
    bool good = open_both(both, subject, outcome);
    for (uint32_t i = 0; good && i < rounds_of(subject); i++) {
        struct op op = {0};
        renew(both);
        choose(both, &op);
        good = do_both(both, &op, outcome) && expect(both, &op, outcome);
    }
    if (good) {
        passes(outcome, "%u %s, the same bytes as libmlx5's", rounds_of(subject), what);
    }
    close_both(both);
}

static struct both both;

static void choose_write(struct both *of, struct op *op)
{
    op->operation = station_pick(&of->ours.station, 2) ? WRITE : WRITE_IMMEDIATE;
    op->bytes = some_bytes(of);
    op->immediate = station_pick(&of->ours.station, UINT32_MAX);
}

/* post.c: mlx5_post_write and mlx5_post_write_immediate: payload in the WQE or where the device reads it. */
void check_wqe_write(const struct subject *subject, struct outcome *outcome)
{
    compare(&both, subject, "WRITEs with and without immediate", choose_write, outcome);
}

static void choose_read(struct both *of, struct op *op)
{
    op->operation = READ;
    op->bytes = some_bytes(of);
}

/* post.c: mlx5_post_read. */
void check_wqe_read(const struct subject *subject, struct outcome *outcome)
{
    compare(&both, subject, "READs", choose_read, outcome);
}

static void choose_pieces(struct both *of, struct op *op)
{
    struct station *station = &of->ours.station;
    uint32_t at = 0;
    op->operation = station_pick(station, 2) ? PIECES : PIECES_READ;
    op->in_wqe = op->operation == PIECES && station_pick(station, 2);
    op->pieces = 1 + station_pick(station, station->near->pieces_max);
    for (uint32_t i = 0; i < op->pieces; i++) {
        const uint32_t most = op->in_wqe ? station->near->inline_bytes_max / op->pieces : 900;
        at += station_pick(station, 64);
        op->piece[i] = (struct nic_piece){.address = (uintptr_t)station->source + at,
                                          .bytes = 1 + station_pick(station, most)};
        at += op->piece[i].bytes;
        op->bytes += op->piece[i].bytes;
    }
}

/* post.c: mlx5_post_pieces: gathered, copied into the WQE, and scattered. */
void check_wqe_pieces(const struct subject *subject, struct outcome *outcome)
{
    compare(&both, subject, "WRITEs and READs of up to 8 pieces", choose_pieces, outcome);
}

/* ---- Atomics --------------------------------------------------------------------------------- */

/* Often what is there differs from what is compared, in one bit. */
static void choose_atomic(struct both *of, struct op *op)
{
    struct station *station = &of->ours.station;
    uint64_t there;
    memcpy(&there, station->sink, sizeof(there));
    op->operation = station_pick(station, 2) ? SWAP : ADD;
    op->atomic = (struct nic_atomic){
        .local_address = (uintptr_t)station->source,
        .remote_address = (uintptr_t)station->sink,
        .swap = op->operation == SWAP,
        .compare = station_pick(station, 2) ? there : there ^ 1ull << station_pick(station, 64),
        .operand =
            (uint64_t)station_pick(station, UINT32_MAX) << 32 | station_pick(station, UINT32_MAX)};
}

static bool expect_atomic(const struct op *op, struct outcome *outcome)
{
    uint64_t before, found, after;
    memcpy(&before, both.far, sizeof(before));
    memcpy(&found, both.ours.station.source, sizeof(found));
    memcpy(&after, both.ours.station.sink, sizeof(after));
    uint64_t right = op->operation == ADD           ? before + op->atomic.operand
                     : before == op->atomic.compare ? op->atomic.operand
                                                    : before;
    return (found == before && after == right) ||
           fails(outcome, "%s: of 0x%016llx made 0x%016llx, not 0x%016llx, and returned 0x%016llx",
                 names[op->operation], (unsigned long long)before, (unsigned long long)after,
                 (unsigned long long)right, (unsigned long long)found);
}

/* post.c: mlx5_post_atomic: values in host order, as what lands. */
void check_wqe_atomic(const struct subject *subject, struct outcome *outcome)
{
    bool good = open_both(&both, subject, outcome);
    if (good && !both.ours.station.near->atomics) {
        good = not_here(outcome, "%s has no atomics", subject->device[0]);
    }
    for (uint32_t i = 0; good && i < rounds_of(subject); i++) {
        struct op op = {0};
        renew(&both);
        choose_atomic(&both, &op);
        good = do_both(&both, &op, outcome) && expect_atomic(&op, outcome);
    }
    if (good) {
        passes(outcome, "%u atomics, the same bytes as libmlx5's", rounds_of(subject));
    }
    close_both(&both);
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* The peer writes to [at, at + bytes) of our memory by the window's key. */
static void write_through(struct station *station, const struct nic_window *window, uint32_t at,
                          uint32_t bytes)
{
    const struct nic_transfer transfer = {
        .local_address = (uintptr_t)station->sink,
        .local_key = station->sink_keys.local_key,
        .remote_address = (uintptr_t)station->source + at,
        .remote_key = window->remote_key,
        .bytes = bytes,
    };
    station->far->operations->post_write(station->receiver, &transfer, NIC_POST_SIGNALED);
    station->far->operations->ring_doorbell(station->receiver);
}

/* Both directions are polled by station_poll, which takes errors of the far side for received ones. */
static bool wait_for_peer(struct station *station, bool to_fail, struct outcome *outcome)
{
    for (uint32_t waited = 0; waited < station->subject->patience_ms; waited++) {
        station_pass(station, 1);
        if (station->received_errors > 0) {
            return to_fail || fails(outcome, "a WRITE within a window was refused: %s error",
                                    station_error_name(station->received_error.status));
        }
        if (station->receiver->completed == station->receiver->posted) {
            return !to_fail || fails(outcome, "a WRITE beyond the end of a window was let through");
        }
    }
    return fails(outcome, "a WRITE to a window did not end within %u ms",
                 station->subject->patience_ms);
}

static bool bind_and_use(struct half *half, struct outcome *outcome)
{
    struct station *station = &half->station;
    const struct op bind = {.operation = BIND, .bytes = 256};
    post(half, &bind, NIC_POST_SIGNALED);
    if (!station_wait_sent(station, outcome)) {
        return false;
    }
    write_through(station, &half->window, 0, 256);
    if (!wait_for_peer(station, false, outcome)) {
        return false;
    }
    write_through(station, &half->window, 1, 256);
    return wait_for_peer(station, true, outcome);
}

static bool bind_both(struct outcome *outcome)
{
    const uint32_t rounds = rounds_of(both.ours.station.subject);
    struct half *const halves[2] = {&both.theirs, &both.ours};
    for (uint32_t i = 0; i < 2; i++) {
        struct nic *near = halves[i]->station.near;
        crpc_error error = {.struct_size = sizeof(error)};
        if (near->operations->window_create(near, &halves[i]->window, &error) != CRPC_OK) {
            return refused(outcome, error.status, error.message);
        }
    }
    for (uint32_t i = 0; i < rounds; i++) {
        struct op op = {.operation = i % 2 ? INVALIDATE : BIND, .bytes = 256 + i};
        if (!do_both(&both, &op, outcome)) {
            return false;
        }
    }
    return bind_and_use(&both.ours, outcome);
}

/* post.c: mlx5_post_bind and mlx5_post_invalidate; and what windows are for: a peer reaches what one is bound to, and not
 * a byte more. */
void check_wqe_window(const struct subject *subject, struct outcome *outcome)
{
    bool good = open_both(&both, subject, outcome);
    if (good && !both.ours.station.near->windows) {
        good = not_here(outcome, "%s has no memory windows of type 2B", subject->device[0]);
    }
    if (good && bind_both(outcome)) {
        passes(outcome,
               "%u binds and invalidates, the same bytes as libmlx5's; one byte beyond is "
               "refused",
               rounds_of(subject));
    }
    struct half *const halves[2] = {&both.theirs, &both.ours};
    for (uint32_t i = 0; i < 2; i++) {
        if (halves[i]->window.driver) {
            halves[i]->station.near->operations->window_destroy(halves[i]->station.near,
                                                                &halves[i]->window);
        }
    }
    close_both(&both);
}
