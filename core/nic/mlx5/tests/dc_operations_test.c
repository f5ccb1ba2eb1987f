/* dc_operations_test.c: the same ops through DCIs of both drivers, on one simnic device, as queue_operations_test.c
 * has it for other queues: the device has to see the same WQEs of the direct driver as of libmlx5, memory has to be
 * the same afterwards, and both have to give the same completions.
 *
 * Once without streams, and once with: then one failed stream leaves the others going, until it is reset, and two
 * end the queue. What ends it are wrong keys, of this side's memory, of the peer's, and of the DCT.
 *
 * What differs: number, index and keys, each checked against its own; where the results of atomics lie,
 * likewise; the UDP source port of a target, which libmlx5 chooses at random; what ibv_wr_* leave in a field
 * that fetch-and-add does not use, and in that of the immediate, where we write 0; and the rest of the last unit
 * of inline data.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/dc.h"
#include "device_trace.h"
#include "nic/mlx5/mlx5.h"

#define BATCH 8u
#define SLOT_BYTES 2048u /* of each op of a batch, in each third: they do not meet */
#define THIRD (BATCH * SLOT_BYTES)
#define BYTES (3 * THIRD) /* this side's, the peer's, the peer's receives */
#define INLINE_BYTES 150u
#define OPS 100000u
#define ERROR_ROUNDS 50u /* one in so many */
#define STREAMS 16u
#define TARGETS 3u /* two DCTs; the second with a wrong key */
#define WRONG_KEY 2u
#define NUMBER_MASK 0xffffffu

/* What is wrong with an op. */
enum fault { FAULT_NONE, FAULT_LOCAL, FAULT_REMOTE, FAULT_TARGET, FAULTS };

struct work {
    struct nic_work work;
    struct nic_piece pieces[QUEUES_PIECES];
    uint32_t count;
    uint32_t target;
    enum fault fault;
};

struct side {
    struct done_list done;
    struct nic_queue *sender, *srq, *dcts[2];
    struct nic_keys memory;
    struct nic_target *targets[TARGETS];
    uint32_t position; /* of the sender's next WQE, in blocks */
    bool lost;         /* the position, in a round with an error */
    uint32_t nops;
    uint64_t receives;
};

/* What the device saw of one op, made alike. */
struct seen {
    uint32_t units;
    uint8_t data[1024];
};

static uint8_t *memory, *before, *after;
static uint64_t random_state, seed;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

/* ---- A driver -------------------------------------------------------------------------------- */

static void make_sender(struct side *side, uint32_t streams)
{
    struct nic_queue_options options = dc_initiator(streams);
    options.sends = 64;
    options.inline_bytes = INLINE_BYTES;
    side->sender = queues_create(side->done.nic, &options);
    side->position = 0;
    side->lost = false;
}

static void side_open(struct side *side, uint32_t driver, uint32_t streams)
{
    struct nic_options options = pair_options();
    *side = (struct side){.done.capacity = 64};
    assert_int_equal(nic_open(driver, &options, &side->done.nic, NULL), CRPC_OK);
    struct nic *nic = side->done.nic;
    assert_true(nic->dc && nic->streams_max >= STREAMS);
    pair_enroll(nic, memory, BYTES,
                CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ |
                    CRPC_ACCESS_REMOTE_ATOMIC,
                &side->memory);
    side->srq = dc_srq(nic);
    for (uint32_t i = 0; i < 2; i++) {
        side->dcts[i] = dc_dct(nic, side->srq, DC_KEY + i);
    }
    for (uint32_t i = 0; i < TARGETS; i++) {
        side->targets[i] = dc_target(nic, side->dcts[i > 0], DC_KEY + (i == 1));
    }
    make_sender(side, streams);
}

static void side_close(struct side *side)
{
    const struct nic_operations *operations = side->done.nic->operations;
    queues_end(side->sender);
    for (uint32_t i = 0; i < TARGETS; i++) {
        dc_target_end(side->targets[i]);
    }
    queues_end(side->dcts[0]);
    queues_end(side->dcts[1]);
    queues_end(side->srq);
    operations->memory_deregister(side->done.nic, &side->memory);
    assert_int_equal(side->done.nic->unknown_completions, 0);
    operations->close(side->done.nic);
}

/* ---- Random work ----------------------------------------------------------------------------- */

static bool is_remote(uint8_t opcode)
{
    return opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD;
}

static bool takes_receive(uint8_t opcode)
{
    return opcode <= NIC_SEND_INVALIDATE || opcode == NIC_WRITE_IMMEDIATE;
}

static bool has_immediate(uint8_t opcode)
{
    return opcode == NIC_SEND_IMMEDIATE || opcode == NIC_WRITE_IMMEDIATE;
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
    work->count = nic_opcode_is_atomic(work->work.opcode) ? 0 : pick(QUEUES_PIECES + 1);
    for (uint32_t i = 0; i < work->count; i++) {
        uint32_t bytes = pick(5) ? 1 + pick(in_wqe ? INLINE_BYTES / QUEUES_PIECES : 450) : 0;
        at += pick(16);
        work->pieces[i] = (struct nic_piece){.address = at, .bytes = bytes};
        at += bytes;
    }
}

/* Not a NOP, which libmlx5 has not. */
static void random_work(struct work *work, uint32_t slot, uint32_t streams)
{
    static const uint8_t opcodes[] = {
        NIC_SEND, NIC_SEND_IMMEDIATE, NIC_WRITE,    NIC_WRITE_IMMEDIATE,
        NIC_READ, NIC_COMPARE_SWAP,   NIC_FETCH_ADD};
    const uint8_t opcode = opcodes[pick(7)];
    const bool may_inline = opcode != NIC_READ && !nic_opcode_is_atomic(opcode);
    *work = (struct work){
        .work = {.opcode = opcode,
                 .flags =
                     (uint8_t)((pick(3) ? 0 : NIC_WORK_SIGNAL) | (pick(4) ? 0 : NIC_WORK_FENCE) |
                               (pick(3) ? 0 : NIC_WORK_SOLICITED) |
                               (may_inline && pick(2) ? NIC_WORK_INLINE : 0)),
                 .stream = (uint16_t)(streams > 0 ? pick(streams) : 0),
                 .immediate = has_immediate(opcode) ? (uint32_t)random_state : 0,
                 .user_data = random_state,
                 .address = opcode == NIC_COMPARE_SWAP ? random_state >> 9 : 0,
                 .operand = nic_opcode_is_atomic(opcode) ? random_state >> 3 : 0,
                 .remote_address = is_remote(opcode) ? (uint64_t)(uintptr_t)memory + THIRD +
                                                           slot * SLOT_BYTES + 8 * pick(16)
                                                     : 0},
        .target = pick(2)};
    random_pieces(work, slot);
    if (opcode == NIC_COMPARE_SWAP && pick(2)) { /* it finds what it looks for */
        memcpy(&work->work.address, (const void *)(uintptr_t)work->work.remote_address, 8);
    }
}

/* Not that of a READ's own memory: the peer may have done what comes after it, or not. */
static void random_fault(struct work *work)
{
    const bool atomic = nic_opcode_is_atomic(work->work.opcode);
    work->fault = (enum fault)(1 + pick(FAULTS - 1));
    if ((work->fault == FAULT_REMOTE &&
         !(is_remote(work->work.opcode) && (payload_of(work) > 0 || atomic))) ||
        (work->fault == FAULT_LOCAL && (work->work.opcode == NIC_READ || payload_of(work) == 0 ||
                                        (work->work.flags & NIC_WORK_INLINE)))) {
        work->fault = FAULT_TARGET;
    }
    if (work->fault == FAULT_TARGET) {
        work->target = WRONG_KEY;
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

static void take_payload(const struct side *side, const struct work *work,
                         struct device_trace_wqe *wqe, uint32_t at, uint32_t units)
{
    if (nic_opcode_is_atomic(work->work.opcode)) {
        if (work->work.opcode == NIC_FETCH_ADD) {
            memset(wqe->data + at + 8, 0, 8);
        }
        take_result(side, wqe, at + 16);
    } else if (!(work->work.flags & NIC_WORK_INLINE)) {
        for (uint32_t i = 0; i < work->count; i++) {
            if (work->pieces[i].bytes != 0) {
                take_own(wqe, at + 4, side->memory.local_key);
                at += 16;
            }
        }
    } else if (payload_of(work) > 0) {
        at += 4 + payload_of(work);
        memset(wqe->data + at, 0, units * 16 - at);
    }
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
        assert_int_equal(wqe.number, side->sender->pair->number);
        seen->units = big_endian(wqe.data + 4) & 0x3f;
        const uint32_t index = big_endian(wqe.data) >> 8 & 0xffff;
        if (side->lost) {
            side->position += (index - side->position) & 0xffff;
            side->lost = false;
        }
        if ((int16_t)(index - side->position) < 0) {
            continue; /* sent again: the device reads it again */
        }
        assert_int_equal(index, side->position & 0xffff);
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
    if (!has_immediate(work->work.opcode)) {
        bool ours = side->done.nic->operations->driver == CRPC_DRIVER_MLX5;
        assert_true(!ours || big_endian(wqe.data + 12) == 0);
        memset(wqe.data + 12, 0, 4);
    }
    assert_int_equal(wqe.data[9] << 8 | wqe.data[10], work->work.stream);
    take_own(&wqe, at + 8, side->dcts[work->target > 0]->pair->number | MLX5_EXTENDED_UD_AV);
    if (side->done.nic->link == CRPC_LINK_ETHERNET) { /* a UDP port; on InfiniBand the LID */
        assert_true(wqe.data[at + 14] >= 0xc0);
        memset(wqe.data + at + 14, 0, 2);
    }
    at += 48;
    if (is_remote(work->work.opcode)) {
        take_own(&wqe, at + 8, side->memory.remote_key);
        at += 16;
    }
    take_payload(side, work, &wqe, at, seen->units);
    memcpy(seen->data, wqe.data, (size_t)seen->units * 16);
}

/* What errors have left is used first. */
static void post_receives(struct side *side, uint32_t count)
{
    while (side->srq->receives_open < count) {
        uint64_t slot = side->receives++;
        uint64_t at = (uint64_t)(uintptr_t)memory + 2 * THIRD + slot % BATCH * SLOT_BYTES;
        struct nic_piece pieces[2] = {{at, 900, side->memory.local_key},
                                      {at + 901, 1000, side->memory.local_key}};
        assert_true(side->srq->nic->operations->queues->receive(side->srq, 5000 + slot, pieces, 2));
    }
    queues_ring(side->srq);
}

static uint32_t count_done(const struct done_list *list, bool receives)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        count += (list->done[i].method == NIC_RECEIVE) == receives;
    }
    return count;
}

/* Polls; when that has been in vain for long, lets time pass first. */
static void poll_again(struct side *side, uint32_t tries)
{
    assert_true(tries < PAIR_WAIT_S * 10000);
    pair_pass(tries < 20 ? 0 : 100);
    queues_poll(&side->done);
}

/* Those of all sends, and then those of the receives that the good ones have taken. */
static void collect(struct side *side, uint32_t count)
{
    uint32_t receives = 0;
    for (uint32_t tries = 0; count_done(&side->done, false) < count; tries++) {
        poll_again(side, tries);
    }
    for (uint32_t i = 0; i < side->done.count; i++) {
        const crpc_completion *done = &side->done.done[i];
        receives += done->method != NIC_RECEIVE && done->status == CRPC_OK &&
                    takes_receive((uint8_t)done->method);
    }
    for (uint32_t tries = 0; side->done.count < count + receives; tries++) {
        poll_again(side, tries);
    }
    assert_int_equal(count_done(&side->done, true), receives);
}

static void run(struct side *side, const struct work *works, uint32_t count, bool good,
                struct seen *seen)
{
    uint32_t receives = 0;
    for (uint32_t i = 0; i < count; i++) {
        receives += takes_receive(works[i].work.opcode);
    }
    side->done.count = 0;
    post_receives(side, receives);
    for (uint32_t i = 0; i < count; i++) {
        struct work one = works[i];
        one.work.remote_key =
            is_remote(one.work.opcode)
                ? side->memory.remote_key ^ (one.fault == FAULT_REMOTE ? 0x5500 : 0)
                : 0;
        for (uint32_t k = 0; k < one.count; k++) {
            one.pieces[k].local_key =
                side->memory.local_key ^ (one.fault == FAULT_LOCAL ? 0x5500 : 0);
        }
        assert_true(queues_post_to(side->sender, &one.work, side->targets[one.target], one.pieces,
                                   one.count));
    }
    queues_ring(side->sender);
    collect(side, count);
    for (uint32_t i = 0; i < count && good; i++) {
        next_wqe(side, &works[i], &seen[i]);
    }
    if (!good) {
        static struct device_trace_wqe wqe;
        while (device_trace_next(&wqe)) {
            continue;
        }
        side->lost = true;
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

static void take_source(const struct side *side, crpc_completion *done)
{
    if (done->method == NIC_RECEIVE) {
        assert_int_equal(done->token & NUMBER_MASK, side->sender->pair->number);
        done->token &= ~(uint64_t)NUMBER_MASK;
    }
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
        take_source(theirs, &one);
        take_source(ours, &other);
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

/* After a round with an error: streams are reset, mostly. A queue that has failed is made again. */
static void mend(struct side *side, uint32_t streams, bool reset)
{
    struct nic_queue *queue = side->sender;
    if (queue->failed) {
        queues_end(queue);
        make_sender(side, streams);
        return;
    }
    for (uint16_t stream = 0; stream < streams && reset; stream++) {
        assert_int_equal(queue->nic->operations->queues->reset_stream(queue, stream, NULL),
                         CRPC_OK);
    }
    assert_int_equal(queue->streams_failed, reset ? 0 : 1);
}

static void compare(uint32_t streams, uint64_t first_seed)
{
    static struct side theirs, ours;
    static struct seen their_seen[BATCH], our_seen[BATCH];
    struct work works[BATCH];
    uint32_t ops = 0, errors = 0, ends = 0;
    static struct device_trace_wqe earlier;
    while (device_trace_next(&earlier)) {
        continue; /* of a test that failed */
    }
    random_state = seed = first_seed;
    memory = pair_map(BYTES);
    before = pair_map(BYTES);
    after = pair_map(BYTES);
    side_open(&theirs, CRPC_DRIVER_VERBS, streams);
    side_open(&ours, CRPC_DRIVER_MLX5, streams);
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)pick(256);
    }
    while (ops < OPS) {
        const uint32_t count = 1 + pick(BATCH);
        seed = random_state;
        memory[pick(BYTES)] = (uint8_t)ops;
        for (uint32_t i = 0; i < count; i++) {
            random_work(&works[i], i, streams);
        }
        /* What makes new queues necessary comes first, so that afterwards the counters run over. */
        bool good = ours.sender->streams_failed == 0;
        if ((ops < OPS / 3 && pick(ERROR_ROUNDS) == 0) || !good) {
            random_fault(&works[pick(count)]);
            good = false;
        }
        memcpy(before, memory, BYTES);
        run(&theirs, works, count, good, their_seen);
        memcpy(after, memory, BYTES);
        memcpy(memory, before, BYTES);
        run(&ours, works, count, good, our_seen);
        assert_int_equal(theirs.done.count, ours.done.count);
        expect_done(&theirs, &ours, false);
        expect_done(&theirs, &ours, true);
        assert_memory_equal(memory, after, BYTES);
        for (uint32_t i = 0; i < count && good; i++) {
            expect_seen(&works[i], &their_seen[i], &our_seen[i]);
        }
        if (!good) {
            const bool reset = pick(4) > 0;
            errors++;
            ends += ours.sender->failed;
            assert_int_equal(theirs.sender->failed, ours.sender->failed);
            assert_int_equal(theirs.sender->streams_failed, ours.sender->streams_failed);
            mend(&theirs, streams, reset);
            mend(&ours, streams, reset);
        }
        ops += count;
    }
    print_message("# %u ops, %u NOPs, %u rounds with an error, %u queues failed\n", ops, ours.nops,
                  errors, ends);
    assert_true(errors > 50 && ends > 10 && ours.nops > 20 && ours.position > 65536 + 2048);
    assert_true(streams == 0 ? ends == errors : ends < errors / 2);
    side_close(&theirs);
    side_close(&ours);
}

static void test_dci(void **state)
{
    (void)state;
    compare(0, 0x5eed);
}

static void test_streams(void **state)
{
    (void)state;
    compare(STREAMS, 0x5eee);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dci),
        cmocka_unit_test(test_streams),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return device_trace_main(tests);
}
