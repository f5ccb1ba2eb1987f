/* queue_operations_test.c: the same ops through the queues with user data (nic/queue.h) of both drivers, on
 * one simnic device. It has to see the same WQEs of the direct driver as of libmlx5, memory has to be the
 * same afterwards, and both have to give the same completions, of errors, too.
 *
 * Once with connected queue pairs, once with these and an SRQ, and likewise with datagrams.
 *
 * What differs: number, index and keys, each checked against its own; where the results of atomics lie,
 * likewise; the UDP source port of a target, which libmlx5 chooses at random; what libmlx5 leaves in a
 * field that fetch-and-add does not use; and the rest of the last unit of inline data, which nobody writes
 * or looks at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/queues.h"
#include "base/clock.h"
#include "device_trace.h"
#include "nic/mlx5/mlx5.h"

#define BATCH 8u
#define SLOT_BYTES 2048u /* of each op of a batch, in each third: they do not meet */
#define THIRD (BATCH * SLOT_BYTES)
#define BYTES (3 * THIRD) /* this side's, the peer's, the peer's receives */
#define INLINE_BYTES 150u
#define OPS 100000u
#define ERROR_ROUNDS 100u /* one in so many */
#define BINDS_MAX 50u     /* of a queue pair: libmlx5 does not hear of their completion */
#define QUEUE_KEY 0x11111111u
#define TARGETS 3u /* the receiver; the same with a wrong key; nobody */

struct work {
    struct nic_work work;
    struct nic_piece pieces[QUEUES_PIECES];
    uint32_t count;
    uint32_t target; /* of a datagram: its index */
};

struct side {
    struct done_list done;
    struct nic_queue *sender, *receiver, *srq;
    struct nic_keys memory;
    struct nic_window window;
    struct nic_target *targets[TARGETS];
    uint32_t numbers[TARGETS]; /* of the queue pairs there */
    uint32_t position;         /* of the sender's next WQE, in blocks */
    uint32_t nops;
    uint32_t binds; /* on this receiver */
};

/* What the device saw of one op, made alike. */
struct seen {
    uint32_t units;
    uint8_t data[1024];
};

static uint8_t *memory, *before, *after;
static uint64_t random_state, seed;
static bool datagrams; /* these, and not connected queue pairs */

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

/* ---- A driver -------------------------------------------------------------------------------- */

static void make_targets(struct side *side)
{
    struct nic_queue_options options = queues_options();
    struct nic *nic = side->done.nic;
    options.kind = NIC_QUEUE_UD;
    struct nic_queue *nobody = queues_create(nic, &options);
    const struct nic_queue *there[TARGETS] = {side->receiver, side->receiver, nobody};
    for (uint32_t i = 0; i < TARGETS; i++) {
        side->targets[i] = queues_target(nic, there[i], i == 1 ? 1 : QUEUE_KEY);
        side->numbers[i] = there[i]->pair->number;
    }
    queues_end(nobody);
}

static void make_queues(struct side *side)
{
    struct nic_queue_options options = queues_options();
    options.kind = datagrams ? NIC_QUEUE_UD : NIC_QUEUE_RC;
    options.queue_key = datagrams ? QUEUE_KEY : 0;
    options.sends = 64;
    options.inline_bytes = INLINE_BYTES;
    side->sender = queues_create(side->done.nic, &options);
    if (side->srq) {
        options.receives = options.receive_pieces = 0;
        options.receive_queue = side->srq;
    }
    options.handle++;
    side->receiver = queues_create(side->done.nic, &options);
    if (datagrams) {
        make_targets(side);
    } else {
        queues_connect(side->sender, side->receiver);
    }
    side->position = side->binds = 0;
}

static void side_open(struct side *side, uint32_t driver, bool shared)
{
    struct nic_options options = pair_options();
    struct nic_queue_options srq = queues_options();
    *side = (struct side){.done.capacity = 64};
    assert_int_equal(nic_open(driver, &options, &side->done.nic, NULL), CRPC_OK);
    const struct nic_operations *operations = side->done.nic->operations;
    pair_enroll(side->done.nic, memory, BYTES,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                    CRPC_ACCESS_REMOTE_ATOMIC | NIC_ACCESS_WINDOWS,
                &side->memory);
    assert_int_equal(operations->window_create(side->done.nic, &side->window, NULL), CRPC_OK);
    if (shared) {
        srq.kind = NIC_QUEUE_SRQ;
        srq.sends = srq.send_pieces = srq.inline_bytes = 0;
        side->srq = queues_create(side->done.nic, &srq);
    }
}

static void end_queues(struct side *side)
{
    queues_end(side->sender);
    queues_end(side->receiver);
    for (uint32_t i = 0; i < TARGETS && datagrams; i++) {
        side->done.nic->operations->queues->target_destroy(side->targets[i]);
    }
}

static void side_close(struct side *side)
{
    const struct nic_operations *operations = side->done.nic->operations;
    operations->window_destroy(side->done.nic, &side->window);
    end_queues(side);
    if (side->srq) {
        queues_end(side->srq);
    }
    operations->memory_deregister(side->done.nic, &side->memory);
    assert_int_equal(side->done.nic->unknown_completions, 0);
    operations->close(side->done.nic);
}

/* Gives the sender's peer a window to invalidate. By libmlx5 on both sides, for our driver never posts to
 * this queue pair. When the device has seen it, it is bound before whatever comes from elsewhere. */
static void bind_window(struct side *side)
{
    struct device_trace_wqe wqe = {0};
    struct ibv_mw *mw = side->window.driver;
    uint32_t key = nic_window_next_key(side->window.remote_key);
    struct ibv_send_wr bind = {
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = mw,
                    .rkey = key,
                    .bind_info = {.mr = side->memory.driver,
                                  .addr = (uint64_t)(uintptr_t)memory,
                                  .length = 64,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};
    struct ibv_send_wr *bad;
    uint64_t start = clock_now_ns();
    mw->rkey = side->window.remote_key;
    assert_int_equal(ibv_post_send(device_qp(side->receiver->pair), &bind, &bad), 0);
    side->window.remote_key = key;
    side->binds++;
    while (wqe.number != side->receiver->pair->number) {
        device_trace_next(&wqe);
        assert_true(clock_now_ns() - start < PAIR_WAIT_S * 1000000000ull);
    }
}

/* ---- Random work ----------------------------------------------------------------------------- */

static bool is_remote(uint8_t opcode)
{
    return opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD;
}

static bool takes_receive(const struct work *work)
{
    uint8_t opcode = work->work.opcode;
    return (opcode <= NIC_SEND_INVALIDATE || opcode == NIC_WRITE_IMMEDIATE) && work->target == 0;
}

static uint32_t payload_of(const struct work *work)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < work->count; i++) {
        bytes += work->pieces[i].bytes;
    }
    return bytes;
}

static void random_pieces(struct work *work, uint32_t slot)
{
    bool in_wqe = work->work.flags & NIC_WORK_INLINE;
    uint64_t at = (uint64_t)(uintptr_t)memory + slot * SLOT_BYTES;
    work->count = nic_opcode_is_atomic(work->work.opcode) || work->work.opcode == NIC_NOP
                      ? 0
                      : pick(QUEUES_PIECES + 1);
    for (uint32_t i = 0; i < work->count; i++) {
        uint32_t bytes = pick(5) ? 1 + pick(in_wqe ? INLINE_BYTES / QUEUES_PIECES : 450) : 0;
        at += pick(16);
        work->pieces[i] = (struct nic_piece){.address = at, .bytes = bytes};
        at += bytes;
    }
}

/* Not a NOP, which libmlx5 has not. */
static void random_work(struct work *work, uint32_t slot, bool *window)
{
    uint8_t opcode = (uint8_t)(NIC_SEND + pick(datagrams ? 2 : NIC_FETCH_ADD));
    if (opcode == NIC_SEND_INVALIDATE && (*window || slot > 0)) {
        opcode = NIC_SEND;
    }
    *window |= opcode == NIC_SEND_INVALIDATE;
    bool may_inline = opcode != NIC_READ && !nic_opcode_is_atomic(opcode);
    *work = (struct work){
        .work = {.opcode = opcode,
                 .flags = (uint8_t)((pick(3) ? 0 : NIC_WORK_SIGNAL) |
                                    (pick(4) || datagrams ? 0 : NIC_WORK_FENCE) |
                                    (pick(3) ? 0 : NIC_WORK_SOLICITED) |
                                    (may_inline && pick(2) ? NIC_WORK_INLINE : 0)),
                 .immediate = opcode == NIC_SEND_IMMEDIATE || opcode == NIC_WRITE_IMMEDIATE
                                  ? (uint32_t)random_state
                                  : 0,
                 .user_data = random_state,
                 .address = opcode == NIC_COMPARE_SWAP ? random_state >> 9 : 0,
                 .operand = nic_opcode_is_atomic(opcode) ? random_state >> 3 : 0,
                 .remote_address = is_remote(opcode) ? (uint64_t)(uintptr_t)memory + THIRD +
                                                           slot * SLOT_BYTES + 8 * pick(16)
                                                     : 0}};
    random_pieces(work, slot);
    work->target = datagrams && pick(2) ? pick(TARGETS) : 0;
    if (opcode == NIC_COMPARE_SWAP && pick(2)) { /* it finds what it looks for */
        memcpy(&work->work.address, (const void *)(uintptr_t)work->work.remote_address, 8);
    }
}

/* ---- One round ------------------------------------------------------------------------------- */

static uint32_t big_endian(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return be32toh(value);
}

/* Takes a field that has to be this side's own out of the comparison. */
static void take_own(struct device_trace_wqe *wqe, uint32_t at, uint32_t expected)
{
    assert_int_equal(big_endian(wqe->data + at), expected);
    memset(wqe->data + at, 0, 4);
}

/* The data segment of an atomic: the place for its result. */
static void take_result(const struct side *side, struct device_trace_wqe *wqe, uint32_t at)
{
    uint64_t address =
        (uint64_t)big_endian(wqe->data + at + 8) << 32 | big_endian(wqe->data + at + 12);
    uint64_t first = (uint64_t)(uintptr_t)side->sender->results;
    assert_true(address % 8 == 0 && address >= first &&
                address < first + 8ul * (side->sender->sends.mask + 1));
    take_own(wqe, at + 4, side->sender->results_keys.local_key);
    memset(wqe->data + at + 8, 0, 8);
}

/* The WQE of an op, without what may differ. NOPs fill the end of our ring. */
static void next_wqe(struct side *side, const struct work *work, struct seen *seen)
{
    static struct device_trace_wqe wqe;
    uint32_t at = 16;
    for (;;) {
        if (!device_trace_next(&wqe)) {
            fail_msg("seed %llu: the device has not seen it", (unsigned long long)seed);
        }
        if (wqe.number != side->sender->pair->number) {
            continue; /* the peer's, which binds a window */
        }
        seen->units = big_endian(wqe.data + 4) & 0x3f;
        assert_int_equal(big_endian(wqe.data) >> 8 & 0xffff, side->position & 0xffff);
        side->position += (seen->units + 3) / 4;
        if (wqe.data[3] != MLX5_OPCODE_NOP) {
            break;
        }
        side->nops++;
    }
    assert_true(seen->units * 16 <= wqe.bytes);
    memset(wqe.data + 1, 0, 2);
    assert_int_equal(big_endian(wqe.data + 4) >> 8, side->sender->pair->number);
    memset(wqe.data + 4, 0, 3);
    if (work->work.opcode == NIC_SEND_INVALIDATE) {
        take_own(&wqe, 12, side->window.remote_key);
    }
    if (datagrams) {
        take_own(&wqe, at + 8, side->numbers[work->target] | MLX5_EXTENDED_UD_AV);
        if (side->done.nic->link == CRPC_LINK_ETHERNET) { /* a UDP port; on InfiniBand the LID */
            assert_true(wqe.data[at + 14] >= 0xc0);
            memset(wqe.data + at + 14, 0, 2);
        }
        at += 48;
    }
    if (is_remote(work->work.opcode)) {
        take_own(&wqe, at + 8, side->memory.remote_key);
        at += 16;
    }
    if (nic_opcode_is_atomic(work->work.opcode)) {
        if (work->work.opcode == NIC_FETCH_ADD) {
            memset(wqe.data + at + 8, 0, 8);
        }
        take_result(side, &wqe, at + 16);
    } else if (!(work->work.flags & NIC_WORK_INLINE)) {
        for (uint32_t i = 0; i < work->count; i++) {
            if (work->pieces[i].bytes != 0) {
                take_own(&wqe, at + 4, side->memory.local_key);
                at += 16;
            }
        }
    } else if (payload_of(work) > 0) {
        at += 4 + payload_of(work);
        memset(wqe.data + at, 0, seen->units * 16 - at);
    }
    memcpy(seen->data, wqe.data, (size_t)seen->units * 16);
}

static void post_receives(struct side *side, uint32_t count)
{
    struct nic_queue *queue = side->srq ? side->srq : side->receiver;
    for (uint32_t i = 0; i < count; i++) {
        struct nic_piece pieces[2] = {
            {(uint64_t)(uintptr_t)memory + 2 * THIRD + i * SLOT_BYTES, 900, side->memory.local_key},
            {(uint64_t)(uintptr_t)memory + 2 * THIRD + i * SLOT_BYTES + 901, 1000,
             side->memory.local_key}};
        assert_true(queue->nic->operations->queues->receive(queue, 5000 + i, pieces, 2));
    }
    queues_ring(queue);
}

static bool post(struct side *side, const struct work *one)
{
    return datagrams ? queues_post_to(side->sender, &one->work, side->targets[one->target],
                                      one->pieces, one->count)
                     : queues_post_pieces(side->sender, &one->work, one->pieces, one->count);
}

/* `broken`: the op with a wrong key, or BATCH. */
static void run(struct side *side, const struct work *works, uint32_t count, uint32_t broken,
                struct seen *seen)
{
    const struct nic_queue_operations *operations = side->done.nic->operations->queues;
    uint32_t receives = 0, good = 0;
    for (uint32_t i = 0; i < count; i++) {
        receives += takes_receive(&works[i]);
        good += takes_receive(&works[i]) && i < broken;
        if (works[i].work.opcode == NIC_SEND_INVALIDATE) {
            bind_window(side);
        }
    }
    side->done.count = 0;
    post_receives(side, receives);
    for (uint32_t i = 0; i < count; i++) {
        struct work one = works[i];
        one.work.remote_key =
            is_remote(one.work.opcode) ? side->memory.remote_key ^ (i == broken ? 0x5500 : 0) : 0;
        if (one.work.opcode == NIC_SEND_INVALIDATE) {
            one.work.immediate = side->window.remote_key;
        }
        for (uint32_t k = 0; k < one.count; k++) {
            one.pieces[k].local_key =
                side->memory.local_key ^ (datagrams && i == broken ? 0x5500 : 0);
        }
        assert_true(post(side, &one));
    }
    operations->ring(side->sender);
    /* With a queue pair that fails, its own receives are flushed; an SRQ's stay, and those of another that
     * it is not connected with. */
    bool all = broken == BATCH || (!side->srq && !datagrams);
    queues_wait(&side->done, count + (all ? receives : good));
    if (broken < BATCH) {
        struct device_trace_wqe wqe;
        bool more;
        do {
            more = device_trace_next(&wqe);
        } while (more);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        next_wqe(side, &works[i], &seen[i]);
    }
}

/* ---- Both ------------------------------------------------------------------------------------ */

static void expect_seen(const struct work *work, const struct seen *theirs, const struct seen *ours)
{
    if (theirs->units == ours->units &&
        memcmp(theirs->data, ours->data, (size_t)ours->units * 16) == 0) {
        return;
    }
    print_error("seed %llu: opcode %u, flags 0x%x, %u pieces: theirs %u units, ours %u\n",
                (unsigned long long)seed, work->work.opcode, work->work.flags, work->count,
                theirs->units, ours->units);
    for (uint32_t i = 0; i < ours->units * 16; i++) {
        if (theirs->data[i] != ours->data[i]) {
            print_error("byte %u: theirs %02x, ours %02x\n", i, theirs->data[i], ours->data[i]);
        }
    }
    fail();
}

/* Sends and receives each in their order; between them there is none. */
static void expect_done(const struct side *theirs, const struct side *ours, bool receives)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < theirs->done.count; i++) {
        crpc_completion one = theirs->done.done[i];
        if ((one.method == NIC_RECEIVE) != receives) {
            continue;
        }
        while ((ours->done.done[at].method == NIC_RECEIVE) != receives) {
            at++;
        }
        crpc_completion other = ours->done.done[at++];
        if (one.flags & NIC_DONE_INVALIDATED) {
            assert_int_equal(one.reply_bytes_max, theirs->window.remote_key);
            assert_int_equal(other.reply_bytes_max, ours->window.remote_key);
            one.reply_bytes_max = other.reply_bytes_max;
        }
        if (datagrams && receives) { /* whose sender it was; on InfiniBand also its LID */
            assert_int_equal((uint32_t)one.token, theirs->sender->pair->number);
            assert_int_equal((uint32_t)other.token, ours->sender->pair->number);
            assert_int_equal(one.token >> 32, other.token >> 32);
            one.token = other.token;
        }
        if (memcmp(&one, &other, sizeof(one)) != 0) {
            print_error(
                "seed %llu: completion %u: opcode %u %u, status %d %d, flags %x %x, user data "
                "%llx %llx, token %llx %llx, bytes %u %u, immediate %x %x\n",
                (unsigned long long)seed, i, one.method, other.method, one.status, other.status,
                one.flags, other.flags, (unsigned long long)one.user_data,
                (unsigned long long)other.user_data, (unsigned long long)one.token,
                (unsigned long long)other.token, one.payload_bytes, other.payload_bytes,
                one.reply_bytes_max, other.reply_bytes_max);
            fail();
        }
    }
}

/* The op whose key is wrong in this round; BATCH = none. */
static uint32_t choose_broken(const struct work *works, uint32_t count, bool window)
{
    uint32_t which = pick(count);
    if (datagrams) {
        return pick(ERROR_ROUNDS) == 0 && payload_of(&works[which]) > 0 &&
                       !(works[which].work.flags & NIC_WORK_INLINE)
                   ? which
                   : BATCH;
    }
    return !window && pick(ERROR_ROUNDS) == 0 && is_remote(works[which].work.opcode) &&
                   (payload_of(&works[which]) > 0 || nic_opcode_is_atomic(works[which].work.opcode))
               ? which
               : BATCH;
}

static void remake(struct side *side)
{
    crpc_completion done[32];
    end_queues(side);
    if (side->srq) { /* what is left in it */
        side->srq->nic->operations->queues->stop(side->srq);
        while (nic_queue_take_ended(side->srq, done, 32)) {
        }
        side->srq->nic->operations->queues->destroy(side->srq);
        struct nic_queue_options srq = queues_options();
        srq.kind = NIC_QUEUE_SRQ;
        srq.sends = srq.send_pieces = srq.inline_bytes = 0;
        side->srq = queues_create(side->done.nic, &srq);
    }
    make_queues(side);
}

static void compare(bool shared, uint64_t first_seed)
{
    static struct side theirs, ours;
    static struct seen their_seen[BATCH], our_seen[BATCH];
    struct work works[BATCH];
    uint32_t ops = 0, errors = 0, blocks = 0;
    random_state = seed = first_seed;
    memory = pair_map(BYTES);
    before = pair_map(BYTES);
    after = pair_map(BYTES);
    side_open(&theirs, CRPC_DRIVER_VERBS, shared);
    side_open(&ours, CRPC_DRIVER_MLX5, shared);
    make_queues(&theirs);
    make_queues(&ours);
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)pick(256);
    }
    while (ops < OPS) {
        uint32_t count = 1 + pick(BATCH);
        /* What makes new queue pairs necessary comes first, so that afterwards the counters run over. */
        bool trouble = ops < OPS / 3;
        bool window = !trouble;
        seed = random_state;
        memory[pick(BYTES)] = (uint8_t)ops;
        for (uint32_t i = 0; i < count; i++) {
            random_work(&works[i], i, &window);
        }
        uint32_t broken = trouble ? choose_broken(works, count, window) : BATCH;
        memcpy(before, memory, BYTES);
        run(&theirs, works, count, broken, their_seen);
        memcpy(after, memory, BYTES);
        memcpy(memory, before, BYTES);
        run(&ours, works, count, broken, our_seen);
        assert_int_equal(theirs.done.count, ours.done.count);
        expect_done(&theirs, &ours, false);
        expect_done(&theirs, &ours, true);
        assert_memory_equal(memory, after, BYTES);
        errors += broken < BATCH;
        for (uint32_t i = 0; i < count && broken == BATCH; i++) {
            expect_seen(&works[i], &their_seen[i], &our_seen[i]);
        }
        if (broken < BATCH || ours.binds == BINDS_MAX) {
            blocks += ours.position;
            remake(&theirs);
            remake(&ours);
        }
        ops += count;
    }
    print_message("# %u ops, %u blocks, %u NOPs, %u rounds with an error\n", ops,
                  blocks + ours.position, ours.nops, errors);
    assert_true(errors > 20 && ours.nops > 20 && ours.position > 65536 + 2048);
    side_close(&theirs);
    side_close(&ours);
}

static void test_own_receives(void **state)
{
    (void)state;
    compare(false, 0x5eed);
}

static void test_shared_receives(void **state)
{
    (void)state;
    compare(true, 0x5eee);
}

static void test_datagrams(void **state)
{
    (void)state;
    datagrams = true;
    compare(false, 0x5eef);
    datagrams = false;
}

static void test_datagrams_shared_receives(void **state)
{
    (void)state;
    datagrams = true;
    compare(true, 0x5ef0);
    datagrams = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_receives),
        cmocka_unit_test(test_shared_receives),
        cmocka_unit_test(test_datagrams),
        cmocka_unit_test(test_datagrams_shared_receives),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return device_trace_main(tests);
}
