/* dc_test.c: DCIs and DCTs over a device, of this library on both sides. A device without the dynamically
 * connected transport says so, and the rest is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "leave_out.h"
#include "place.h"
#include "queues.h"

#define DCTS 5u
#define STREAMS 8u
#define SENDS 64u
#define RECEIVES 256u
#define SLOT 64u
#define ROUNDS 2000u

static crpc_queue srq, dcts[DCTS];
static crpc_target targets[DCTS];

static uint64_t key_of(uint32_t dct)
{
    return UINT64_C(0x0123456789abcdef) * (dct + 1);
}

static int32_t try_open(struct side *side, crpc_queue_options options, crpc_queue *queue,
                        crpc_error *error)
{
    options.struct_size = sizeof(options);
    *error = (crpc_error){.struct_size = sizeof(*error)};
    return crpc_queue_open(side->context, &options, queue, error);
}

static crpc_queue open_queue(struct side *side, crpc_queue_options options)
{
    crpc_error error;
    crpc_queue queue = {0};
    need(try_open(side, options, &queue, &error), &error);
    return queue;
}

static crpc_queue_options dci_options(uint32_t streams)
{
    return (crpc_queue_options){.kind = CRPC_QUEUE_KIND_DCI,
                                .sends = SENDS,
                                .send_pieces = 2,
                                .inline_bytes = 32,
                                .retry_timeout = place_retry_timeout(),
                                .streams = streams};
}

static crpc_queue open_dct(uint32_t number)
{
    return open_queue(&there, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_DCT,
                                                   .user_data = number,
                                                   .receive_queue = srq,
                                                   .access_key = key_of(number)});
}

static crpc_target open_target(crpc_queue dct, uint64_t access_key)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    const crpc_target_options options = {
        .struct_size = sizeof(options), .kind = CRPC_QUEUE_KIND_DCI, .access_key = access_key};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_target target;
    assert_int_equal(crpc_queue_get_address(there.context, dct, &address), CRPC_OK);
    need(crpc_target_open(here.context, &address, &options, &target, &error), &error);
    return target;
}

static void receive(uint64_t place)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_RECEIVE,
                              .user_data = place,
                              .region = there.region,
                              .address = address_of(there.memory + QUEUES_BYTES / 2 + SLOT * place),
                              .bytes = SLOT};
    assert_int_equal(crpc_queue_submit(there.context, srq, &op, 1, NULL, 0, NULL), 1);
}

/* A DCI without streams, and DCTS DCTs with a target of each. */
static int open_all(void **state)
{
    crpc_error error;
    queues_open(state);
    need(try_open(&here, dci_options(0), &here.queue, &error), &error);
    srq =
        open_queue(&there, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_SRQ, .receives = RECEIVES});
    for (uint32_t i = 0; i < DCTS; i++) {
        dcts[i] = open_dct(i);
        targets[i] = open_target(dcts[i], key_of(i));
    }
    return 0;
}

static crpc_queue_op work(uint8_t opcode, uint64_t user_data, uint32_t dct, uint16_t stream)
{
    crpc_queue_op op =
        op_of(&here, opcode, user_data, SLOT * (uint32_t)(user_data % RECEIVES), SLOT);
    op.target = targets[dct];
    op.stream = stream;
    return op;
}

static uint32_t failed_streams(crpc_queue queue)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_get_info(here.context, queue, &info), CRPC_OK);
    return info.streams_failed;
}

/* ---- What there is --------------------------------------------------------------------------- */

static void a_device_without_dc_says_so(void **state)
{
    (void)state;
    crpc_error error;
    crpc_queue queue;
    crpc_queue_address address = {.struct_size = sizeof(address),
                                  .queue_pair_number = 17,
                                  .link = CRPC_LINK_ETHERNET,
                                  .mtu_bytes = 1024};
    const crpc_target_options options = {.struct_size = sizeof(options),
                                         .kind = CRPC_QUEUE_KIND_DCI};
    crpc_target target;
    const crpc_queue shared =
        open_queue(&here, (crpc_queue_options){.kind = CRPC_QUEUE_KIND_SRQ, .receives = 1});
    const crpc_queue_options of_dct = {.kind = CRPC_QUEUE_KIND_DCT, .receive_queue = shared};
    assert_int_equal(try_open(&here, dci_options(STREAMS), &queue, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "mlx5"));
    assert_int_equal(try_open(&here, of_dct, &queue, &error), CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "mlx5"));
    assert_int_equal(crpc_target_open(here.context, &address, &options, &target, &error),
                     CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "mlx5"));
}

static void more_streams_than_there_are(void **state)
{
    (void)state;
    crpc_error error;
    crpc_queue queue;
    int32_t status = try_open(&here, dci_options(65535), &queue, &error);
    if (status == CRPC_OK) { /* the device has them */
        assert_int_equal(crpc_queue_close(here.context, queue), CRPC_OK);
        return;
    }
    assert_int_equal(status, CRPC_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "streams"));
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void each_opcode_reaches_a_dct(void **state)
{
    (void)state;
    crpc_queue_info info = info_of(&here);
    for (uint8_t opcode = CRPC_QUEUE_SEND; opcode <= CRPC_QUEUE_NOP; opcode++) {
        crpc_queue_op op = work(opcode, opcode, opcode % DCTS, 0);
        const bool immediate =
            opcode == CRPC_QUEUE_SEND_IMMEDIATE || opcode == CRPC_QUEUE_WRITE_IMMEDIATE;
        int32_t reason;
        op.immediate = immediate ? 0x01020304 : 0;
        op.operand = opcode == CRPC_QUEUE_FETCH_ADD ? 3 : 0;
        if (opcode == CRPC_QUEUE_SEND_INVALIDATE) {
            assert_int_equal(crpc_queue_submit(here.context, here.queue, &op, 1, NULL, 0, &reason),
                             0);
            assert_int_equal(reason, CRPC_E_UNSUPPORTED);
            continue;
        }
        uint8_t *const ours = here.memory + SLOT * opcode;
        uint8_t *const theirs = there.memory + SLOT * opcode;
        uint64_t before;
        memcpy(&before, theirs, sizeof(before));
        if (immediate || opcode == CRPC_QUEUE_SEND) {
            receive(opcode);
        }
        submit(&here, &op, 1);
        crpc_completion done = await_work(&here, opcode, opcode, CRPC_OK);
        if (opcode == CRPC_QUEUE_WRITE || opcode == CRPC_QUEUE_WRITE_IMMEDIATE ||
            opcode == CRPC_QUEUE_READ) {
            assert_memory_equal(ours, theirs, SLOT);
        }
        if (opcode == CRPC_QUEUE_COMPARE_SWAP || opcode == CRPC_QUEUE_FETCH_ADD) {
            assert_int_equal(done.token, before);
        }
        if (immediate || opcode == CRPC_QUEUE_SEND) {
            done = await_work(&there, CRPC_QUEUE_RECEIVE, opcode, CRPC_OK);
            assert_int_equal(done.endpoint.bits, dcts[opcode % DCTS].bits);
            assert_int_equal(done.endpoint_user_data, opcode % DCTS);
            assert_int_equal(done.reply_bytes_max, op.immediate);
            assert_true((uint32_t)done.token == info.queue_pair_number ||
                        (uint32_t)done.token == 0);
            assert_int_equal(done.payload_bytes, opcode == CRPC_QUEUE_WRITE_IMMEDIATE ? 0 : SLOT);
        }
    }
}

/* Takes what has completed; each of the ops once. Returns how many. */
static uint32_t take(struct side *side, uint8_t *seen, uint8_t opcode)
{
    crpc_completion done;
    uint32_t count = 0;
    while (take_kept(side, CRPC_COMPLETION_WORK, &done)) {
        assert_int_equal(done.status, CRPC_OK);
        assert_int_equal(done.method, opcode);
        assert_in_range(done.user_data, 0, ROUNDS - 1);
        seen[done.user_data]++;
        count++;
    }
    return count;
}

/* To all DCTs in turn, as fast as there is room; the messages are of one SRQ. */
static void fan_out(crpc_queue queue, uint32_t streams)
{
    static uint8_t seen[ROUNDS], arrived[ROUNDS];
    const time_t end = time(NULL) + QUEUES_SECONDS_MAX;
    uint32_t sent = 0, done = 0, came = 0;
    memset(seen, 0, sizeof(seen));
    memset(arrived, 0, sizeof(arrived));
    for (uint32_t i = 0; i < RECEIVES; i++) {
        receive(i);
    }
    while (done < ROUNDS || came < ROUNDS) {
        crpc_completion message;
        assert_true(time(NULL) < end);
        while (sent < ROUNDS && sent - done < SENDS) {
            crpc_queue_op op = work(CRPC_QUEUE_SEND_IMMEDIATE, sent, sent % DCTS,
                                    (uint16_t)(streams ? sent % streams : 0));
            op.immediate = sent;
            int32_t taken = crpc_queue_submit(here.context, queue, &op, 1, NULL, 0, NULL);
            if (taken == 0) {
                break;
            }
            sent++;
        }
        pump(&here);
        pump(&there);
        take_kept(&here, CRPC_COMPLETION_ROOM, &message);
        done += take(&here, seen, CRPC_QUEUE_SEND_IMMEDIATE);
        while (take_kept(&there, CRPC_COMPLETION_WORK, &message)) {
            assert_int_equal(message.status, CRPC_OK);
            assert_in_range(message.reply_bytes_max, 0, ROUNDS - 1);
            assert_int_equal(message.endpoint.bits, dcts[message.reply_bytes_max % DCTS].bits);
            arrived[message.reply_bytes_max]++;
            came++;
            receive(message.user_data);
        }
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(seen[i], 1);
        assert_int_equal(arrived[i], 1);
    }
}

static void one_dci_sends_to_many(void **state)
{
    (void)state;
    fan_out(here.queue, 0);
}

static void streams_send_to_many(void **state)
{
    (void)state;
    fan_out(open_queue(&here, dci_options(STREAMS)), STREAMS);
}

/* ---- Streams that fail ----------------------------------------------------------------------- */

static void submit_to(crpc_queue queue, crpc_queue_op op)
{
    int32_t reason;
    if (crpc_queue_submit(here.context, queue, &op, 1, NULL, 0, &reason) != 1) {
        fail_msg("%s", crpc_status_name(reason));
    }
}

static crpc_queue_op bad_work(uint64_t user_data, uint32_t dct, uint16_t stream)
{
    crpc_queue_op op = work(CRPC_QUEUE_WRITE, user_data, dct, stream);
    op.remote_key ^= 0x5500;
    return op;
}

static void a_stream_fails_alone_and_is_reset(void **state)
{
    (void)state;
    const crpc_queue queue = open_queue(&here, dci_options(STREAMS));
    uint32_t good = 0, flushed = 0;
    submit_to(queue, bad_work(0, 0, 3));
    for (uint64_t i = 1; i < 33; i++) { /* four of them of the stream that fails */
        submit_to(queue, work(CRPC_QUEUE_WRITE, i, (uint32_t)i % DCTS, (uint16_t)(i % STREAMS)));
    }
    for (uint32_t i = 0; i < 33; i++) {
        const crpc_completion done = await(&here, CRPC_COMPLETION_WORK);
        if (done.user_data == 0) {
            assert_int_equal(done.status, CRPC_E_ACCESS);
        } else {
            assert_int_equal(done.status, done.user_data % STREAMS == 3 ? CRPC_E_FLUSHED : CRPC_OK);
        }
        good += done.status == CRPC_OK;
        flushed += done.status == CRPC_E_FLUSHED;
    }
    assert_int_equal(good, 28);
    assert_int_equal(flushed, 4);
    assert_int_equal(failed_streams(queue), 1);
    for (uint32_t times = 0; times < 3; times++) {
        assert_int_equal(crpc_queue_reset_stream(here.context, queue, 3), CRPC_OK);
        assert_int_equal(failed_streams(queue), 0);
        here.queue = queue;
        submit_to(queue, work(CRPC_QUEUE_WRITE, 40, 1, 3));
        await_work(&here, CRPC_QUEUE_WRITE, 40, CRPC_OK);
        submit_to(queue, bad_work(41, 1, 3));
        await_work(&here, CRPC_QUEUE_WRITE, 41, CRPC_E_ACCESS);
        submit_to(queue, work(CRPC_QUEUE_WRITE, 42, 1, 3));
        await_work(&here, CRPC_QUEUE_WRITE, 42, CRPC_E_FLUSHED);
        assert_int_equal(failed_streams(queue), 1);
    }
    assert_int_equal(crpc_queue_reset_stream(here.context, queue, STREAMS), CRPC_E_INVALID);
}

/* A DCT that is gone, and one whose key is another, are one stream's trouble. */
static void a_dct_that_goes_fails_one_stream(void **state)
{
    (void)state;
    const crpc_queue queue = open_queue(&here, dci_options(STREAMS));
    assert_int_equal(crpc_queue_close(there.context, dcts[2]), CRPC_OK);
    submit_to(queue, work(CRPC_QUEUE_WRITE, 1, 2, 1));
    const int32_t status = await(&here, CRPC_COMPLETION_WORK).status;
    assert_true(status == CRPC_E_DISCONNECTED || status == CRPC_E_ACCESS);
    crpc_queue_op op = work(CRPC_QUEUE_WRITE, 2, 0, 2);
    op.target = open_target(dcts[0], key_of(1));
    submit_to(queue, op);
    const int32_t other = await(&here, CRPC_COMPLETION_WORK).status;
    assert_true(other == CRPC_E_DISCONNECTED || other == CRPC_E_ACCESS);
    assert_int_equal(failed_streams(queue), 2);
    submit_to(queue, work(CRPC_QUEUE_WRITE, 3, 0, 0));
    await_work(&here, CRPC_QUEUE_WRITE, 3, CRPC_OK);
    assert_int_equal(crpc_queue_reset_stream(here.context, queue, 1), CRPC_OK);
    dcts[2] = open_dct(2);
    targets[2] = open_target(dcts[2], key_of(2));
    submit_to(queue, work(CRPC_QUEUE_WRITE, 4, 2, 1));
    await_work(&here, CRPC_QUEUE_WRITE, 4, CRPC_OK);
}

static void a_dct_without_receives_fails_one_stream(void **state)
{
    (void)state;
    crpc_queue_options options = dci_options(STREAMS);
    options.not_ready_retry_count = 2;
    const crpc_queue queue = open_queue(&here, options);
    submit_to(queue, work(CRPC_QUEUE_SEND, 1, 0, 1));
    await_work(&here, CRPC_QUEUE_SEND, 1, CRPC_E_NOT_READY);
    receive(2);
    submit_to(queue, work(CRPC_QUEUE_SEND, 3, 0, 2));
    await_work(&here, CRPC_QUEUE_SEND, 3, CRPC_OK);
    assert_int_equal(await_work(&there, CRPC_QUEUE_RECEIVE, 2, CRPC_OK).endpoint.bits,
                     dcts[0].bits);
    assert_int_equal(failed_streams(queue), 1);
}

static void too_many_failed_streams_end_the_queue(void **state)
{
    (void)state;
    crpc_queue_options options = dci_options(STREAMS);
    options.stream_failures_max = 1;
    const crpc_queue queue = open_queue(&here, options);
    submit_to(queue, bad_work(1, 0, 1));
    await_work(&here, CRPC_QUEUE_WRITE, 1, CRPC_E_ACCESS);
    submit_to(queue, bad_work(2, 0, 2));
    await_work(&here, CRPC_QUEUE_WRITE, 2, CRPC_E_ACCESS);
    crpc_completion done = await(&here, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(done.endpoint.bits, queue.bits);
    assert_int_equal(done.status, CRPC_E_ACCESS);
    assert_int_equal(crpc_queue_reset_stream(here.context, queue, 1), CRPC_E_STATE);
}

static void without_streams_an_error_ends_the_queue(void **state)
{
    (void)state;
    submit_to(here.queue, bad_work(1, 0, 0));
    submit_to(here.queue, work(CRPC_QUEUE_WRITE, 2, 0, 0));
    await_work(&here, CRPC_QUEUE_WRITE, 1, CRPC_E_ACCESS);
    await_work(&here, CRPC_QUEUE_WRITE, 2, CRPC_E_FLUSHED);
    assert_int_equal(await(&here, CRPC_COMPLETION_DISCONNECTED).status, CRPC_E_ACCESS);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void close_with_ops_open(crpc_queue queue, uint32_t streams)
{
    uint64_t seen = 0;
    crpc_queue_op ops[SENDS];
    for (uint32_t i = 0; i < SENDS; i++) {
        ops[i] = work(CRPC_QUEUE_WRITE, i, i % DCTS, (uint16_t)(streams ? i % streams : 0));
    }
    assert_int_equal(crpc_queue_submit(here.context, queue, ops, SENDS, NULL, 0, NULL), SENDS);
    assert_int_equal(crpc_queue_close(here.context, queue), CRPC_OK);
    for (uint32_t i = 0; i < SENDS; i++) {
        const crpc_completion done = await(&here, CRPC_COMPLETION_WORK);
        assert_true(done.status == CRPC_E_CLOSED || done.status == CRPC_OK);
        assert_int_equal(done.endpoint.bits, queue.bits);
        assert_false(seen >> done.user_data & 1);
        seen |= UINT64_C(1) << done.user_data;
    }
    assert_true(seen == UINT64_MAX);
}

static void a_dci_closes_with_ops_open(void **state)
{
    (void)state;
    close_with_ops_open(here.queue, 0);
    close_with_ops_open(open_queue(&here, dci_options(STREAMS)), STREAMS);
}

static void drain(crpc_queue queue, uint32_t streams, uint32_t completions)
{
    for (uint32_t i = 0; i < 20; i++) {
        submit_to(queue,
                  work(CRPC_QUEUE_WRITE, i, i % DCTS, (uint16_t)(streams ? i % streams : 0)));
    }
    assert_int_equal(crpc_queue_drain(here.context, queue, CRPC_FOREVER), CRPC_OK);
    for (uint32_t i = 0; i < completions; i++) {
        assert_int_equal(await(&here, CRPC_COMPLETION_WORK).status, CRPC_OK);
    }
    crpc_completion done = await(&here, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(done.status, CRPC_OK);
    assert_int_equal(here.kept_count, 0);
    assert_int_equal(crpc_queue_close(here.context, queue), CRPC_OK);
}

static void a_dci_drains(void **state)
{
    (void)state;
    crpc_queue_options sparse = dci_options(0);
    sparse.flags = CRPC_QUEUE_SPARSE;
    drain(here.queue, 0, 20);
    drain(open_queue(&here, sparse), 0, 0);
    drain(open_queue(&here, dci_options(STREAMS)), STREAMS, 20);
}

static void a_dct_ends_and_keeps_its_srq(void **state)
{
    (void)state;
    receive(1);
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_E_BUSY);
    assert_int_equal(crpc_queue_fail(there.context, dcts[0]), CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_DISCONNECTED).status, CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_queue_drain(there.context, dcts[1], CRPC_FOREVER), CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
    submit_to(here.queue, work(CRPC_QUEUE_SEND, 5, 2, 0));
    await_work(&here, CRPC_QUEUE_SEND, 5, CRPC_OK);
    assert_int_equal(await_work(&there, CRPC_QUEUE_RECEIVE, 1, CRPC_OK).endpoint.bits,
                     dcts[2].bits);
    for (uint32_t i = 0; i < DCTS; i++) {
        assert_int_equal(crpc_queue_close(there.context, dcts[i]), CRPC_OK);
    }
    assert_int_equal(crpc_queue_close(there.context, srq), CRPC_OK);
}

/* Whoever sleeps is woken by completions of each kind. */
static void completions_wake_who_sleeps(void **state)
{
    (void)state;
    const crpc_queue queues[2] = {here.queue, open_queue(&here, dci_options(STREAMS))};
    crpc_completion done;
    for (uint32_t i = 0; i < 20; i++) {
        struct side *const sides[2] = {&here, &there};
        receive(i);
        submit_to(queues[i % 2],
                  work(CRPC_QUEUE_SEND, i, i % DCTS, i % 2 ? (uint16_t)(i % STREAMS) : 0));
        for (uint32_t k = 0; k < 2; k++) {
            const time_t end = time(NULL) + QUEUES_SECONDS_MAX;
            while (crpc_poll(sides[k]->context, &done, 1) == 0) {
                assert_true(time(NULL) < end);
                crpc_wait(sides[k]->context, CRPC_FOREVER);
            }
            assert_int_equal(done.user_data, i);
            assert_int_equal(done.status, CRPC_OK);
        }
    }
}

static bool has_dc(void)
{
    crpc_error error;
    queues_open(NULL);
    int32_t status = try_open(&here, dci_options(0), &here.queue, &error);
    queues_close(NULL);
    return status != CRPC_E_UNSUPPORTED;
}

int main(void)
{
#define OVER_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_all, queues_close)
    struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_without_dc_says_so, queues_open, queues_close),
        OVER_DEVICE(more_streams_than_there_are),
        OVER_DEVICE(each_opcode_reaches_a_dct),
        OVER_DEVICE(one_dci_sends_to_many),
        OVER_DEVICE(streams_send_to_many),
        OVER_DEVICE(a_stream_fails_alone_and_is_reset),
        OVER_DEVICE(a_dct_that_goes_fails_one_stream),
        OVER_DEVICE(a_dct_without_receives_fails_one_stream),
        OVER_DEVICE(too_many_failed_streams_end_the_queue),
        OVER_DEVICE(without_streams_an_error_ends_the_queue),
        OVER_DEVICE(a_dci_closes_with_ops_open),
        OVER_DEVICE(a_dci_drains),
        OVER_DEVICE(a_dct_ends_and_keeps_its_srq),
        OVER_DEVICE(completions_wake_who_sleeps),
    };
    const bool dc = has_dc();
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        if (dc == (tests[i].test_func == a_device_without_dc_says_so)) {
            LEAVE_OUT(tests, tests[i].test_func, dc ? "the device has DC" : "the device has no DC");
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
