/* dc_test.c: DCIs, with and without streams, and DCTs of the public API, over the in-memory NIC: what their ops
 * may be, what comes of them, and what is refused. queue_options_test.c has their options. */
#include <stdbool.h>

#include "fixture.h"

#define BYTES 16384u
#define PIECES 3u
#define STREAMS 4u
#define KEY UINT64_C(0xfedcba9876543210)

static uint8_t here[BYTES], there[BYTES];
static crpc_region here_region, there_region;
static uint32_t remote_key;
static crpc_queue dci, streams; /* of left: without streams, and with STREAMS */
static crpc_queue srq, dct;     /* of right */
static crpc_target target;      /* of left, for dct */

static crpc_queue open_with(crpc_context *context, crpc_queue_options options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue queue;
    options.struct_size = sizeof(options);
    if (crpc_queue_open(context, &options, &queue, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return queue;
}

static crpc_queue open_dci(uint32_t stream_count, uint32_t failures_max)
{
    return open_with(fixture.left, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_DCI,
                                                        .user_data = 77,
                                                        .sends = 16,
                                                        .send_pieces = PIECES,
                                                        .inline_bytes = 100,
                                                        .streams = stream_count,
                                                        .stream_failures_max = failures_max});
}

static crpc_queue open_dct(uint64_t access_key)
{
    return open_with(fixture.right, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_DCT,
                                                         .user_data = 78,
                                                         .receive_queue = srq,
                                                         .access_key = access_key});
}

static crpc_queue_address address_of(crpc_context *context, crpc_queue queue)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    assert_int_equal(crpc_queue_get_address(context, queue, &address), CRPC_OK);
    return address;
}

static crpc_target target_with(crpc_context *context, crpc_queue queue, crpc_target_options options)
{
    const crpc_queue_address address = address_of(context, queue);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target made;
    options.struct_size = sizeof(options);
    if (crpc_target_open(fixture.left, &address, &options, &made, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return made;
}

static crpc_target target_of(crpc_queue queue, uint64_t access_key)
{
    return target_with(
        fixture.right, queue,
        (crpc_target_options){.kind = CRPC_QUEUE_KIND_DCI, .access_key = access_key});
}

static int open_both(void **state)
{
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                            CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC;
    crpc_region_info info = {.struct_size = sizeof(info)};
    int failed = fixture_open_with_queues(state);
    for (uint32_t i = 0; i < BYTES; i++) {
        here[i] = (uint8_t)(i * 7 + 1);
    }
    memset(there, 0, BYTES);
    assert_int_equal(crpc_region_register(fixture.left, here, BYTES, CRPC_ACCESS_LOCAL_WRITE,
                                          &here_region, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.right, there, BYTES, access, &there_region, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_region_get_info(fixture.right, there_region, &info), CRPC_OK);
    remote_key = info.remote_key;
    dci = open_dci(0, 0);
    streams = open_dci(STREAMS, 0);
    srq = open_with(fixture.right, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_SRQ,
                                                        .receives = 16,
                                                        .receive_pieces = PIECES});
    dct = open_dct(KEY);
    target = target_of(dct, KEY);
    return failed;
}

static bool has_payload(uint8_t opcode)
{
    return opcode <= CRPC_QUEUE_READ;
}

/* Of 64 bytes at this offset of both memories. */
static crpc_queue_op op_of(uint8_t opcode, uint64_t user_data, uint32_t offset)
{
    crpc_queue_op op = {.opcode = opcode, .user_data = user_data, .target = target};
    if (has_payload(opcode)) {
        op.region = here_region;
        op.address = (uint64_t)(uintptr_t)here + offset;
        op.bytes = 64;
    }
    if (opcode >= CRPC_QUEUE_WRITE && opcode <= CRPC_QUEUE_FETCH_ADD) {
        op.remote_key = remote_key;
        op.remote_address = (uint64_t)(uintptr_t)there + offset;
    }
    return op;
}

static crpc_queue_op write_of(uint16_t stream, uint64_t user_data)
{
    crpc_queue_op op = op_of(CRPC_QUEUE_WRITE, user_data, 64 * (uint32_t)user_data);
    op.stream = stream;
    return op;
}

static int32_t submit_pieces(crpc_queue queue, const crpc_queue_op *op, const crpc_piece *pieces,
                             uint32_t count)
{
    int32_t reason = 12345;
    int32_t taken = crpc_queue_submit(fixture.left, queue, op, 1, pieces, count, &reason);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

static int32_t submit(crpc_queue queue, const crpc_queue_op *op)
{
    return submit_pieces(queue, op, NULL, 0);
}

static void submit_write(crpc_queue queue, uint16_t stream, uint64_t user_data)
{
    const crpc_queue_op op = write_of(stream, user_data);
    assert_int_equal(submit(queue, &op), CRPC_OK);
}

/* Its key is wrong. */
static void submit_bad(crpc_queue queue, uint16_t stream, uint64_t user_data)
{
    crpc_queue_op op = write_of(stream, user_data);
    op.remote_key ^= 0x5500;
    assert_int_equal(submit(queue, &op), CRPC_OK);
}

static void receive_right(uint64_t user_data, uint32_t offset)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_RECEIVE,
                              .user_data = user_data,
                              .region = there_region,
                              .address = (uint64_t)(uintptr_t)there + offset,
                              .bytes = 64};
    assert_int_equal(crpc_queue_submit(fixture.right, srq, &op, 1, NULL, 0, NULL), 1);
}

static crpc_completion expect_work(crpc_context *context, crpc_queue queue, uint64_t user_data,
                                   int32_t status)
{
    crpc_completion done = fixture_await(context, CRPC_COMPLETION_WORK);
    assert_int_equal(done.user_data, user_data);
    assert_int_equal(done.status, status);
    assert_int_equal(done.endpoint.bits, queue.bits);
    assert_int_equal(done.endpoint_user_data, context == fixture.left ? 77 : 78);
    return done;
}

static crpc_queue_info info_of(crpc_context *context, crpc_queue queue)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(context, queue, &info), CRPC_OK);
    return info;
}

static void schedule(bool scheduled)
{
    if (!scheduled) {
        memory_fabric_run(memory_fabric_default(), 100000);
    }
    memory_fabric_options(memory_fabric_default())->mode =
        scheduled ? MEMORY_SCHEDULED : MEMORY_IMMEDIATE;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void each_opcode_reaches_a_dct(void **state)
{
    (void)state;
    const crpc_queue queues[2] = {dci, streams};
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t number = address_of(fixture.left, queues[i]).queue_pair_number;
        for (uint8_t opcode = CRPC_QUEUE_SEND; opcode <= CRPC_QUEUE_NOP; opcode++) {
            const uint32_t offset = 4096 * i + 64 * opcode;
            crpc_queue_op op = op_of(opcode, opcode, offset);
            bool immediate =
                opcode == CRPC_QUEUE_SEND_IMMEDIATE || opcode == CRPC_QUEUE_WRITE_IMMEDIATE;
            bool message = immediate || opcode == CRPC_QUEUE_SEND;
            op.stream = (uint16_t)(i * (opcode % STREAMS));
            op.immediate = immediate ? 0x01020304 : 0;
            if (opcode == CRPC_QUEUE_FETCH_ADD) {
                op.operand = 5;
            }
            if (opcode == CRPC_QUEUE_SEND_INVALIDATE) {
                assert_int_equal(submit(queues[i], &op), CRPC_E_UNSUPPORTED);
                continue;
            }
            if (message) {
                receive_right(100 + opcode, opcode == CRPC_QUEUE_SEND ? offset : 8192);
            }
            memset(there + offset, opcode, 64);
            assert_int_equal(submit(queues[i], &op), CRPC_OK);
            crpc_completion done = expect_work(fixture.left, queues[i], opcode, CRPC_OK);
            assert_int_equal(done.method, opcode);
            if (opcode == CRPC_QUEUE_READ || opcode == CRPC_QUEUE_WRITE ||
                opcode == CRPC_QUEUE_SEND) {
                assert_memory_equal(here + offset, there + offset, 64);
            }
            if (opcode == CRPC_QUEUE_FETCH_ADD || opcode == CRPC_QUEUE_COMPARE_SWAP) {
                assert_int_equal(done.token, UINT64_C(0x0101010101010101) * opcode);
            }
            if (!message) {
                continue;
            }
            done = expect_work(fixture.right, dct, 100 + opcode, CRPC_OK);
            assert_int_equal(crpc_target_of(fixture.right, &done, there, &(crpc_target){0}, NULL),
                             CRPC_E_INVALID); /* it is no datagram */
            assert_int_equal(done.method, CRPC_QUEUE_RECEIVE);
            assert_int_equal(done.reply_bytes_max, op.immediate);
            assert_true((uint32_t)done.token == number || (uint32_t)done.token == 0);
            assert_int_equal(done.token >> 32, opcode == CRPC_QUEUE_WRITE_IMMEDIATE ? 64 : 0);
            assert_true(done.flags & CRPC_COMPLETION_OF_DCT);
            assert_int_equal(done.payload_bytes, opcode == CRPC_QUEUE_WRITE_IMMEDIATE ? 0 : 64);
        }
    }
    assert_int_equal(fixture.kept_count[0] + fixture.kept_count[1], 0);
}

static void a_dci_may_fence_and_a_message_may_be_long(void **state)
{
    (void)state;
    crpc_piece pieces[2] = {{here_region, (uint64_t)(uintptr_t)here, 5000, 0},
                            {here_region, (uint64_t)(uintptr_t)here + 5000, 3000, 0}};
    crpc_queue_op op = op_of(CRPC_QUEUE_READ, 1, 0);
    assert_int_equal(submit(dci, &op), CRPC_OK);
    op = op_of(CRPC_QUEUE_WRITE, 2, 0);
    op.flags = CRPC_QUEUE_FENCE;
    op.bytes = 9000; /* more than a packet */
    assert_int_equal(submit(dci, &op), CRPC_OK);
    op = op_of(CRPC_QUEUE_WRITE, 3, 0);
    op.flags = CRPC_QUEUE_PIECES;
    op.region.bits = op.address = 0;
    op.bytes = 2;
    assert_int_equal(submit_pieces(dci, &op, pieces, 2), CRPC_OK);
    for (uint64_t i = 1; i <= 3; i++) {
        expect_work(fixture.left, dci, i, CRPC_OK);
    }
    assert_memory_equal(there, here, 9000);
}

static void each_end_has_its_opcodes(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        crpc_queue_op op = op_of((uint8_t)opcode, 0, 0);
        const bool sends = opcode >= CRPC_QUEUE_SEND && opcode <= CRPC_QUEUE_NOP &&
                           opcode != CRPC_QUEUE_SEND_INVALIDATE;
        if (!sends) {
            assert_int_equal(submit(dci, &op), CRPC_E_UNSUPPORTED);
            assert_int_equal(submit(streams, &op), CRPC_E_UNSUPPORTED);
        }
        int32_t reason;
        assert_int_equal(crpc_queue_submit(fixture.right, dct, &op, 1, NULL, 0, &reason), 0);
        assert_int_equal(reason, CRPC_E_UNSUPPORTED);
    }
    assert_int_equal(info_of(fixture.left, dci).sends_open, 0);
}

static void an_op_needs_a_target_of_its_kind_and_context(void **state)
{
    (void)state;
    const crpc_queue datagrams =
        open_with(fixture.left, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_UD, .user_data = 77});
    const crpc_target of_datagrams = target_with(fixture.left, datagrams, (crpc_target_options){0});
    const crpc_queue_address address = address_of(fixture.right, dct);
    const crpc_target_options options = {.struct_size = sizeof(options),
                                         .kind = CRPC_QUEUE_KIND_DCI};
    crpc_target foreign, closed = target_of(dct, KEY);
    crpc_queue_op ops[3] = {write_of(0, 1), write_of(0, 2), write_of(0, 3)};
    int32_t reason;
    assert_int_equal(crpc_target_open(fixture.right, &address, &options, &foreign, NULL), CRPC_OK);
    assert_int_equal(crpc_target_close(fixture.left, closed), CRPC_OK);
    const struct {
        uint64_t bits;
        int32_t reason;
    } cases[] = {{0, CRPC_E_INVALID},          {of_datagrams.bits, CRPC_E_INVALID},
                 {UINT64_MAX, CRPC_E_STALE},   {dci.bits, CRPC_E_STALE},
                 {foreign.bits, CRPC_E_STALE}, {closed.bits, CRPC_E_STALE}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ops[1].target.bits = cases[i].bits;
        assert_int_equal(crpc_queue_submit(fixture.left, dci, ops, 3, NULL, 0, &reason), 1);
        assert_int_equal(reason, cases[i].reason);
        expect_work(fixture.left, dci, 1, CRPC_OK);
        crpc_queue_op nop = op_of(CRPC_QUEUE_NOP, 1, 0); /* which goes there where it must */
        nop.target.bits = cases[i].bits;
        assert_int_equal(submit(dci, &nop), cases[i].reason);
    }
    crpc_queue_op datagram = op_of(CRPC_QUEUE_SEND, 4, 0);
    assert_int_equal(submit(datagrams, &datagram), CRPC_E_INVALID);
    datagram.target = of_datagrams;
    assert_int_equal(submit(datagrams, &datagram), CRPC_OK);
    const crpc_queue connected = fixture_lone_queue(fixture.left, NULL);
    assert_int_equal(submit(connected, &ops[0]), CRPC_E_INVALID);
}

/* In each of the ways in which ops are checked. */
static void a_stream_is_one_of_the_queue(void **state)
{
    (void)state;
    const crpc_piece piece = {here_region, (uint64_t)(uintptr_t)here, 64, 0};
    crpc_queue_op ops[] = {op_of(CRPC_QUEUE_WRITE, 0, 0), op_of(CRPC_QUEUE_WRITE, 0, 0),
                           op_of(CRPC_QUEUE_WRITE, 0, 0), op_of(CRPC_QUEUE_FETCH_ADD, 0, 0),
                           op_of(CRPC_QUEUE_NOP, 0, 0)};
    ops[1].flags = CRPC_QUEUE_INLINE;
    ops[1].region.bits = 0;
    ops[2].flags = CRPC_QUEUE_PIECES;
    ops[2].region.bits = ops[2].address = 0;
    ops[2].bytes = 1;
    static const uint32_t wrong[] = {STREAMS, 0x100, 0x8000, UINT16_MAX};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        crpc_queue_op op = ops[i];
        for (uint16_t stream = 0; stream < STREAMS; stream++) {
            op.stream = stream;
            assert_int_equal(submit_pieces(streams, &op, &piece, 1), CRPC_OK);
            assert_int_equal(submit_pieces(dci, &op, &piece, 1),
                             stream == 0 ? CRPC_OK : CRPC_E_INVALID);
            fixture_pump();
        }
        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            op.stream = (uint16_t)wrong[k];
            assert_int_equal(submit_pieces(streams, &op, &piece, 1), CRPC_E_INVALID);
            assert_int_equal(submit_pieces(dci, &op, &piece, 1), CRPC_E_INVALID);
        }
    }
    crpc_queue_op array[4] = {write_of(0, 1), write_of(3, 2), write_of(4, 3), write_of(1, 4)};
    int32_t reason;
    assert_int_equal(crpc_queue_submit(fixture.left, streams, array, 4, NULL, 0, &reason), 2);
    assert_int_equal(reason, CRPC_E_INVALID);
    const crpc_queue datagrams =
        open_with(fixture.left, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_UD, .user_data = 77});
    crpc_queue_op datagram = op_of(CRPC_QUEUE_SEND, 4, 0);
    datagram.target = target_with(fixture.left, datagrams, (crpc_target_options){0});
    datagram.stream = 1;
    assert_int_equal(submit(datagrams, &datagram), CRPC_E_INVALID);
}

/* ---- Streams that fail ----------------------------------------------------------------------- */

static void a_stream_fails_alone_and_is_reset(void **state)
{
    (void)state;
    submit_bad(streams, 2, 1);
    expect_work(fixture.left, streams, 1, CRPC_E_ACCESS);
    submit_write(streams, 2, 2);
    expect_work(fixture.left, streams, 2, CRPC_E_FLUSHED);
    submit_write(streams, 3, 3);
    expect_work(fixture.left, streams, 3, CRPC_OK);
    crpc_queue_info info = info_of(fixture.left, streams);
    assert_int_equal(info.streams, STREAMS);
    assert_int_equal(info.streams_failed, 1);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_queue_get_error(fixture.left, streams, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_OK);

    schedule(true);
    submit_write(streams, 2, 4);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, streams, 2), CRPC_E_BUSY);
    assert_int_equal(info_of(fixture.left, streams).streams_failed, 1);
    schedule(false);
    expect_work(fixture.left, streams, 4, CRPC_E_FLUSHED);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, streams, 2), CRPC_OK);
    assert_int_equal(info_of(fixture.left, streams).streams_failed, 0);
    submit_write(streams, 2, 5);
    expect_work(fixture.left, streams, 5, CRPC_OK);
    assert_memory_equal(there + 64 * 5, here + 64 * 5, 64);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, streams, 2), CRPC_OK);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, streams, STREAMS), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, streams, 0x10002), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, dci, 0), CRPC_E_UNSUPPORTED);
    assert_int_equal(crpc_queue_reset_stream(fixture.right, dct, 0), CRPC_E_UNSUPPORTED);
    assert_int_equal(crpc_queue_reset_stream(fixture.right, srq, 0), CRPC_E_UNSUPPORTED);
    assert_int_equal(
        crpc_queue_reset_stream(fixture.left, fixture_lone_queue(fixture.left, NULL), 0),
        CRPC_E_UNSUPPORTED);
}

static void too_many_failed_streams_end_the_queue(void **state)
{
    (void)state;
    const crpc_queue few = open_dci(STREAMS, 1);
    submit_bad(few, 0, 1);
    expect_work(fixture.left, few, 1, CRPC_E_ACCESS);
    assert_int_equal(info_of(fixture.left, few).state, CRPC_STATE_CONNECTED);
    submit_bad(few, 1, 2);
    expect_work(fixture.left, few, 2, CRPC_E_ACCESS);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status,
                     CRPC_E_ACCESS);
    const crpc_queue_op op = write_of(2, 3);
    assert_int_equal(submit(few, &op), CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_reset_stream(fixture.left, few, 0), CRPC_E_STATE);
    for (uint16_t stream = 0; stream < STREAMS; stream++) { /* by default, it goes on */
        submit_bad(streams, stream, 10 + stream);
        expect_work(fixture.left, streams, 10 + stream, CRPC_E_ACCESS);
    }
    assert_int_equal(info_of(fixture.left, streams).streams_failed, STREAMS);
    assert_int_equal(info_of(fixture.left, streams).state, CRPC_STATE_CONNECTED);
}

static void without_streams_an_error_ends_the_queue(void **state)
{
    (void)state;
    submit_bad(dci, 0, 1);
    expect_work(fixture.left, dci, 1, CRPC_E_ACCESS);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status,
                     CRPC_E_ACCESS);
}

/* ---- DCTs ------------------------------------------------------------------------------------ */

/* Whoever has not the key is a nuisance to himself. */
static void who_has_another_key_reaches_nothing(void **state)
{
    (void)state;
    crpc_queue_op op = write_of(1, 1);
    op.target = target_of(dct, KEY ^ UINT64_C(1) << 63);
    assert_int_equal(submit(streams, &op), CRPC_OK);
    crpc_completion done = fixture_await(fixture.left, CRPC_COMPLETION_WORK);
    assert_true(done.status == CRPC_E_ACCESS || done.status == CRPC_E_DISCONNECTED);
    static const uint8_t nothing[64];
    assert_memory_equal(there + 64, nothing, 64);
    submit_write(streams, 2, 2);
    expect_work(fixture.left, streams, 2, CRPC_OK);
    assert_int_equal(info_of(fixture.right, dct).state, CRPC_STATE_CONNECTED);
}

static void a_dct_tells_its_address_and_uses_its_srq(void **state)
{
    (void)state;
    crpc_queue_info info = info_of(fixture.right, dct);
    assert_int_equal(info.kind, CRPC_QUEUE_KIND_DCT);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.receive_queue.bits, srq.bits);
    assert_int_equal(info.queue_pair_number, address_of(fixture.right, dct).queue_pair_number);
    assert_int_equal(info_of(fixture.right, srq).queues, 1);
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_E_BUSY);
    assert_int_equal(crpc_queue_close(fixture.right, dct), CRPC_OK);
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_OK);
    submit_write(streams, 1, 1);
    crpc_completion done = fixture_await(fixture.left, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_E_DISCONNECTED);
    assert_int_equal(info_of(fixture.left, streams).streams_failed, 1);
}

static void a_dct_ends_as_others_do(void **state)
{
    (void)state;
    const crpc_queue second = open_dct(1);
    receive_right(5, 0);
    assert_int_equal(crpc_queue_fail(fixture.right, dct), CRPC_OK);
    assert_int_equal(crpc_queue_fail(fixture.right, dct), CRPC_E_STATE);
    crpc_completion done = fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(done.endpoint.bits, dct.bits);
    assert_int_equal(done.status, CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_drain(fixture.right, second, CRPC_FOREVER), CRPC_OK);
    done = fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(done.endpoint.bits, second.bits);
    assert_int_equal(done.status, CRPC_OK);
    crpc_queue_address address = {.struct_size = sizeof(address)};
    assert_int_equal(crpc_queue_get_address(fixture.right, dct, &address), CRPC_E_STATE);
    assert_int_equal(info_of(fixture.right, srq).receives_open, 1); /* it is the SRQ's */
    assert_int_equal(crpc_queue_close(fixture.right, srq), CRPC_OK);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_dci_ends_with_ops_open(void **state)
{
    (void)state;
    const crpc_queue queues[2] = {dci, streams};
    for (uint32_t i = 0; i < 2; i++) {
        schedule(true);
        for (uint16_t k = 0; k < 8; k++) {
            submit_write(queues[i], (uint16_t)(i * (k % STREAMS)), k);
        }
        assert_int_equal(info_of(fixture.left, queues[i]).sends_open, 8);
        assert_int_equal(crpc_queue_close(fixture.left, queues[i]), CRPC_OK);
        for (uint16_t k = 0; k < 8; k++) {
            expect_work(fixture.left, queues[i], k, CRPC_E_CLOSED);
        }
        schedule(false);
    }
    const crpc_queue third = open_dci(STREAMS, 0);
    schedule(true);
    submit_write(third, 1, 1);
    submit_write(third, 2, 2);
    assert_int_equal(crpc_queue_fail(fixture.left, third), CRPC_OK);
    schedule(false);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_WORK).status, CRPC_E_FLUSHED);
    }
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status,
                     CRPC_E_DISCONNECTED);
}

/* A stream that has failed does not hold it up. */
static void a_dci_with_streams_drains(void **state)
{
    (void)state;
    schedule(true);
    submit_bad(streams, 0, 1);
    for (uint16_t k = 2; k < 9; k++) {
        submit_write(streams, k % STREAMS, k);
    }
    assert_int_equal(crpc_queue_drain(fixture.left, streams, CRPC_FOREVER), CRPC_OK);
    const crpc_queue_op op = write_of(1, 3);
    assert_int_equal(submit(streams, &op), CRPC_E_CLOSING);
    schedule(false);
    uint32_t seen = 0, good = 0;
    for (uint32_t i = 0; i < 8; i++) {
        const crpc_completion done = fixture_await(fixture.left, CRPC_COMPLETION_WORK);
        assert_false(seen & 1u << done.user_data);
        seen |= 1u << done.user_data;
        good += done.status == CRPC_OK;
    }
    assert_int_equal(seen, 0x1fe);
    assert_int_equal(good, 5);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
}

static void a_full_dci_says_when_there_is_room(void **state)
{
    (void)state;
    crpc_queue_op ops[32];
    int32_t reason;
    for (uint32_t i = 0; i < 32; i++) {
        ops[i] = write_of(i % STREAMS, i);
    }
    schedule(true);
    assert_int_equal(crpc_queue_submit(fixture.left, streams, ops, 32, NULL, 0, &reason), 16);
    assert_int_equal(reason, CRPC_E_AGAIN);
    schedule(false);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 16; i++) {
        seen |= 1u << fixture_await(fixture.left, CRPC_COMPLETION_WORK).user_data;
    }
    assert_int_equal(seen, 0xffff);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_ROOM).endpoint.bits, streams.bits);
}

#define DC_TEST(test) cmocka_unit_test_setup_teardown(test, open_both, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DC_TEST(each_opcode_reaches_a_dct),
        DC_TEST(a_dci_may_fence_and_a_message_may_be_long),
        DC_TEST(each_end_has_its_opcodes),
        DC_TEST(an_op_needs_a_target_of_its_kind_and_context),
        DC_TEST(a_stream_is_one_of_the_queue),
        DC_TEST(a_stream_fails_alone_and_is_reset),
        DC_TEST(too_many_failed_streams_end_the_queue),
        DC_TEST(without_streams_an_error_ends_the_queue),
        DC_TEST(who_has_another_key_reaches_nothing),
        DC_TEST(a_dct_tells_its_address_and_uses_its_srq),
        DC_TEST(a_dct_ends_as_others_do),
        DC_TEST(a_dci_ends_with_ops_open),
        DC_TEST(a_dci_with_streams_drains),
        DC_TEST(a_full_dci_says_when_there_is_room),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
