/* contract_dc_storm.c: a small DCI with streams and random ops to DCTs that come and go, with errors, resets, polls of
 * little room, and ends in the middle: each op completes once, and there is the room that was asked for. Devices without
 * streams skip it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "dc.h"
#include "nic/memory/random.h"

#define STREAMS 5u
#define SENDS 6u
#define DCTS 2u
#define TARGETS_MAX 400u
#define OPS_MAX 16384u
#define STEPS 5000u
#define RECEIVES 32u
#define WRONG DCTS                 /* index of the target with a wrong key */
#define REMOTE_AT (3 * (1u << 18)) /* in the memory of the far side, behind the receives */

struct storm {
    struct queues *queues;
    struct nic_queue *srq, *dcts[DCTS];
    struct nic_target *targets[DCTS + 1];
    struct nic_target *old[TARGETS_MAX]; /* ops may name them */
    uint32_t old_count;
    struct random_generator random;
    struct {
        uint8_t opcode;
        uint8_t stream;
        bool done;
    } ops[OPS_MAX];
    uint32_t op_count, open, stream_open[STREAMS];
    uint32_t good, failed, flushed, resets, ends, received;
};

static const struct nic_queue_operations *operations_of(const struct storm *storm)
{
    return storm->queues->near.nic->operations->queues;
}

/* ---- Completions ----------------------------------------------------------------------------- */

static void take(struct storm *storm, const crpc_completion *done)
{
    assert_true(done->user_data < storm->op_count);
    assert_false(storm->ops[done->user_data].done);
    assert_int_equal(done->method, storm->ops[done->user_data].opcode);
    storm->ops[done->user_data].done = true;
    storm->stream_open[storm->ops[done->user_data].stream]--;
    storm->open--;
    storm->good += done->status == CRPC_OK;
    storm->flushed += done->status == -NIC_ERROR_FLUSHED;
    storm->failed += done->status != CRPC_OK && done->status != -NIC_ERROR_FLUSHED;
}

static void poll_near(struct storm *storm, uint32_t capacity)
{
    crpc_completion done[4];
    uint32_t errors, failed = 0;
    const uint32_t count =
        operations_of(storm)->poll(storm->queues->near.nic, done, capacity, &errors);
    for (uint32_t i = 0; i < count; i++) {
        failed += done[i].status != CRPC_OK;
        take(storm, &done[i]);
    }
    assert_int_equal(errors, failed);
}

static void take_receive(struct storm *storm, const crpc_completion *done)
{
    struct nic_piece piece = queues_far(storm->queues, done->user_data * DC_SLOT_BYTES, 4096);
    assert_int_equal(done->method, NIC_RECEIVE);
    storm->received += done->status == CRPC_OK;
    assert_true(operations_of(storm)->receive(storm->srq, done->user_data, &piece, 1));
    queues_ring(storm->srq);
}

static void poll_far(struct storm *storm)
{
    crpc_completion done[4];
    uint32_t errors;
    const uint32_t count = operations_of(storm)->poll(storm->queues->far.nic, done, 4, &errors);
    for (uint32_t i = 0; i < count; i++) {
        take_receive(storm, &done[i]);
    }
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static struct nic_work random_work(struct storm *storm, struct nic_piece *pieces)
{
    static const uint8_t opcodes[] = {NIC_SEND,  NIC_SEND_IMMEDIATE, NIC_WRITE,     NIC_WRITE,
                                      NIC_WRITE, NIC_READ,           NIC_FETCH_ADD, NIC_NOP};
    struct queues *queues = storm->queues;
    const uint32_t number = storm->op_count;
    const uint8_t opcode = opcodes[random_below(&storm->random, sizeof(opcodes))];
    struct nic_work work = queues_work(queues, opcode, 0, number);
    work.stream = (uint16_t)random_below(&storm->random, STREAMS);
    if (opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD) {
        work.remote_address += REMOTE_AT + random_below(&storm->random, 64) * 64;
        work.remote_key ^= random_percent(&storm->random, 4) ? 0x5500u : 0;
    }
    if (opcode == NIC_FETCH_ADD || opcode == NIC_NOP) {
        return work;
    }
    const uint64_t from = (uint64_t)(number % 64) * 4096;
    if (opcode != NIC_READ && random_percent(&storm->random, 40)) {
        work.flags = NIC_WORK_INLINE;
        work.address = (uint64_t)(uintptr_t)queues->source + from;
        work.bytes = random_below(&storm->random, 101);
    } else {
        const uint32_t count = 1 + random_below(&storm->random, QUEUES_PIECES);
        for (uint32_t i = 0; i < count; i++) {
            pieces[i] = queues_near(queues, from + i * 1024, random_below(&storm->random, 1024));
        }
        work.flags = count > 1 ? NIC_WORK_PIECES : 0;
        work.address = count > 1 ? 0 : pieces->address;
        work.bytes = count > 1 ? count : pieces->bytes;
    }
    return work;
}

/* Returns true if there was room. */
static bool post(struct storm *storm)
{
    struct nic_piece pieces[QUEUES_PIECES];
    const struct nic_work work = random_work(storm, pieces);
    const uint32_t key = storm->queues->source_keys.local_key;
    struct nic_target *target =
        storm->targets[random_percent(&storm->random, 2) ? WRONG
                                                         : random_below(&storm->random, DCTS)];
    if (operations_of(storm)->post_to(storm->queues->sender, &work, &target, &key, pieces, 1) ==
        0) {
        return false;
    }
    storm->ops[storm->op_count].opcode = work.opcode;
    storm->ops[storm->op_count++].stream = (uint8_t)work.stream;
    storm->stream_open[work.stream]++;
    storm->open++;
    return true;
}

/* When nothing is open, there is room for SENDS of any size. */
static void post_some(struct storm *storm)
{
    const bool idle = storm->open == 0;
    const uint32_t count = 1 + random_below(&storm->random, 2 * SENDS);
    uint32_t posted = 0;
    while (posted < count && post(storm)) {
        posted++;
    }
    assert_true(!idle || posted >= (count < SENDS ? count : SENDS));
    queues_ring(storm->queues->sender);
}

static void reset(struct storm *storm)
{
    const uint32_t stream = random_below(&storm->random, STREAMS);
    const uint32_t open = storm->stream_open[stream];
    crpc_error error = {.struct_size = sizeof(error)};
    const int32_t status =
        operations_of(storm)->reset_stream(storm->queues->sender, (uint16_t)stream, &error);
    assert_int_equal(status, open > 0 ? CRPC_E_STATE : CRPC_OK);
    storm->resets += status == CRPC_OK;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void end_initiator(struct storm *storm)
{
    struct nic_queue *sender = storm->queues->sender;
    crpc_completion done[3];
    uint32_t count;
    if (random_percent(&storm->random, 50)) {
        if (!sender->failed) {
            operations_of(storm)->flush(sender);
        }
        for (uint32_t i = 0; i < 5000 && storm->open > 0; i++) {
            pair_pass(100);
            poll_near(storm, 1 + random_below(&storm->random, 3));
        }
        assert_int_equal(storm->open, 0);
    }
    operations_of(storm)->stop(sender);
    while ((count = nic_queue_take_ended(sender, done, 3)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            take(storm, &done[i]);
        }
    }
    operations_of(storm)->destroy(sender);
    assert_int_equal(storm->open, 0);
    storm->ends++;
}

static void make_initiator(struct storm *storm)
{
    struct nic_queue_options options = dc_initiator(STREAMS);
    options.sends = SENDS;
    options.stream_failures_max = STREAMS;
    storm->queues->sender = queues_create(storm->queues->near.nic, &options);
}

static void stop_dct(struct storm *storm, uint32_t which)
{
    crpc_completion done[3];
    uint32_t count;
    operations_of(storm)->stop(storm->dcts[which]);
    operations_of(storm)->destroy(storm->dcts[which]);
    while ((count = nic_queue_take_ended(storm->srq, done, 3)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(done[i].status, -NIC_ERROR_FLUSHED);
            take_receive(storm, &done[i]);
        }
    }
}

static void make_dct(struct storm *storm, uint32_t which)
{
    storm->dcts[which] = dc_dct(storm->queues->far.nic, storm->srq, DC_KEY);
    storm->targets[which] = dc_target(storm->queues->near.nic, storm->dcts[which], DC_KEY);
}

static void replace_dct(struct storm *storm)
{
    const uint32_t which = random_below(&storm->random, DCTS);
    assert_true(storm->old_count < TARGETS_MAX);
    stop_dct(storm, which);
    storm->old[storm->old_count++] = storm->targets[which];
    make_dct(storm, which);
}

/* ---- All of it ------------------------------------------------------------------------------- */

static void step(struct storm *storm)
{
    const uint32_t what = random_below(&storm->random, 200);
    if (storm->queues->sender->failed || what == 0) {
        end_initiator(storm);
        make_initiator(storm);
    } else if (what == 1) {
        replace_dct(storm);
    } else if (what < 60) {
        post_some(storm);
    } else if (what < 80) {
        reset(storm);
    } else if (what < 100) {
        pair_pass(random_below(&storm->random, 60));
    } else {
        poll_near(storm, 1 + random_below(&storm->random, 3));
        poll_far(storm);
    }
}

static void open_storm(struct storm *storm, struct queues *queues)
{
    memset(storm, 0, sizeof(*storm));
    storm->queues = queues;
    random_seed(&storm->random, 15);
    storm->srq = dc_srq(queues->far.nic);
    const struct dc dc = {.queues = queues, .srq = storm->srq};
    dc_receive(&dc, 0, RECEIVES, 4096);
    for (uint32_t i = 0; i < DCTS; i++) {
        make_dct(storm, i);
    }
    storm->targets[WRONG] = dc_target(queues->near.nic, storm->dcts[0], DC_KEY + 1);
    make_initiator(storm);
}

static void close_storm(struct storm *storm)
{
    end_initiator(storm);
    for (uint32_t i = 0; i < DCTS; i++) {
        stop_dct(storm, i);
    }
    for (uint32_t i = 0; i <= DCTS; i++) {
        dc_target_end(storm->targets[i]);
    }
    for (uint32_t i = 0; i < storm->old_count; i++) {
        dc_target_end(storm->old[i]);
    }
    for (uint32_t i = 0; i < storm->op_count; i++) {
        assert_true(storm->ops[i].done);
    }
    assert_int_equal(storm->srq->receives_open, RECEIVES);
    queues_end(storm->srq);
    storm->queues->sender = NULL;
}

void test_dc_storm(void **state)
{
    static struct storm storm;
    struct queues *queues = *state;
    assert_true(queues->near.nic->streams_max >= STREAMS);
    open_storm(&storm, queues);
    for (uint32_t i = 0; i < STEPS && storm.op_count + 4 * SENDS < OPS_MAX; i++) {
        step(&storm);
    }
    close_storm(&storm);
    print_message(
        "# seed 15: %u ops, %u good, %u failed, %u flushed, %u received, %u resets, %u ends\n",
        storm.op_count, storm.good, storm.failed, storm.flushed, storm.received, storm.resets,
        storm.ends);
    assert_true(storm.good > 100 && storm.failed > 10 && storm.flushed > 10);
}
