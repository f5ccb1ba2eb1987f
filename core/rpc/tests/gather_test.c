/* gather_test.c: messages whose payload is in a region, which the device reads. */
#include "pair.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 20000u /* of the region */
#define MS UINT64_C(1000000)

static struct pair pair;
static uint8_t *memory; /* of the region, at side 0 and 1 alike */
static uint32_t users[2];
static struct rpc_region regions[2];

static struct rpc_endpoint *end_of(uint32_t side)
{
    return pair.endpoint[side][0];
}

static crpc_endpoint_options options_of(uint32_t ring_bytes)
{
    crpc_endpoint_options options = pair_options();
    options.ring_bytes = ring_bytes;
    options.request_bytes = ring_bytes / 2;
    options.batch_window = 4;
    return options;
}

static void open_regions(void)
{
    for (uint32_t side = 0; side < 2; side++) {
        users[side] = 0;
        regions[side] = (struct rpc_region){.address = (uint64_t)(uintptr_t)memory,
                                            .bytes = BYTES,
                                            .fd = -1,
                                            .users = &users[side]};
        rpc_region_init(&regions[side]);
    }
}

static int open_pair(void **state)
{
    (void)state;
    const crpc_endpoint_options options = options_of(65536);
    memory = malloc(BYTES);
    if (!memory) {
        return -1;
    }
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)(i * 7 + i / 251);
    }
    open_regions();
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    return 0;
}

/* Whatever happened: nothing reads the regions any more once the endpoints are gone. */
static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(users[side], 0);
        assert_true(list_empty(&regions[side].memories));
        rpc_region_end(&regions[side]);
    }
    free(memory);
    return 0;
}

static int32_t gather_call(uint64_t user_data, uint32_t offset, uint32_t bytes, uint64_t timeout_ns)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .user_data = user_data,
                        .payload_offset = offset,
                        .payload_bytes = bytes,
                        .reply_bytes_max = 64,
                        .timeout_ns = timeout_ns};
    const int32_t status = rpc_gather(end_of(0), &op, &regions[0]);
    rpc_submit_end(pair.engine[0]);
    return status;
}

static void poll_both(void)
{
    pair_poll(&pair, 1);
    pair_poll(&pair, 0);
}

static crpc_completion request_of(uint32_t bytes)
{
    pair_poll(&pair, 1);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(request->payload_bytes, bytes);
    return *request;
}

static const void *payload_of(const crpc_completion *completion)
{
    return (const void *)(uintptr_t)completion->payload;
}

/* ---- What arrives ---------------------------------------------------------------------------- */

static void payloads_of_all_lengths(void **state)
{
    (void)state;
    const uint32_t lengths[] = {0, 1, 2047, 2048, 2049, 4080, 4096, 4111, 4112, 4113, 16000};
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint32_t offset = 0; offset < 34; offset += 11) {
            assert_int_equal(gather_call(i, offset, lengths[i], 0), CRPC_OK);
            const crpc_completion request = request_of(lengths[i]);
            assert_memory_equal(payload_of(&request), memory + offset, lengths[i]);
            const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                                   .user_data = 7,
                                   .token = request.token,
                                   .payload_offset = 64,
                                   .payload_bytes = 60};
            assert_int_equal(rpc_gather(end_of(1), &reply, &regions[1]), CRPC_OK);
            rpc_submit_end(pair.engine[1]);
            assert_int_equal(pair_poll(&pair, 0), 1);
            const crpc_completion *response = pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE);
            assert_non_null(response);
            assert_memory_equal(payload_of(response), memory + 64, 60);
            pair_poll(&pair, 1);
            assert_non_null(pair_find(&pair, 1, CRPC_COMPLETION_REPLY));
            assert_int_equal(users[0] + users[1], 0);
        }
    }
    assert_int_equal(end_of(0)->stats.protocol_errors + end_of(1)->stats.protocol_errors, 0);
}

static void a_reply_completes_when_the_device_has_read_it(void **state)
{
    (void)state;
    const crpc_op call = {
        .opcode = CRPC_OP_CALL, .payload_bytes = 0, .reply_bytes_max = 12000, .user_data = 1};
    assert_int_equal(rpc_call(end_of(0), &call, NULL), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
    const crpc_completion request = request_of(0);
    const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                           .user_data = 7,
                           .token = request.token,
                           .payload_offset = 5,
                           .payload_bytes = 12000,
                           .status = 9};
    memory_fabric_stall(end_of(1)->link.queue_pair, 5);
    assert_int_equal(rpc_gather(end_of(1), &reply, &regions[1]), CRPC_OK);
    rpc_submit_end(pair.engine[1]);
    assert_int_equal(users[1], 1);
    assert_int_equal(pair_poll(&pair, 1), 0);
    memset(memory + 5, 0xee, 12000); /* nothing was copied yet */
    for (uint32_t i = 0; i < 8 && users[1]; i++) {
        pair_poll(&pair, 1);
    }
    assert_int_equal(users[1], 0);
    assert_non_null(pair_find(&pair, 1, CRPC_COMPLETION_REPLY));
    assert_int_equal(pair_poll(&pair, 0), 1);
    const crpc_completion *response = pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE);
    assert_non_null(response);
    assert_int_equal(response->status, 9);
    assert_int_equal(response->payload_bytes, 12000);
    assert_memory_equal(payload_of(response), memory + 5, 12000);
}

/* In one batch, in their order: those before are not sent later. */
static void behind_others_of_the_same_batch(void **state)
{
    (void)state;
    uint8_t small[100];
    const uint64_t sent = end_of(0)->stats.batches_sent;
    for (uint32_t i = 0; i < 3; i++) {
        const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 33, .reply_bytes_max = 8};
        memset(small, (int)i, sizeof(small));
        assert_int_equal(rpc_call(end_of(0), &op, small), CRPC_OK);
    }
    assert_int_equal(gather_call(4, 3, 5000, 0), CRPC_OK);
    assert_int_equal(end_of(0)->stats.batches_sent, sent + 1);
    assert_int_equal(pair_poll(&pair, 1), 4);
    for (uint32_t i = 0; i < 3; i++) {
        memset(small, (int)i, sizeof(small));
        assert_memory_equal(payload_of(&pair.seen[1].entries[i]), small, 33);
    }
    assert_memory_equal(payload_of(&pair.seen[1].entries[3]), memory + 3, 5000);
}

/* ---- While it cannot leave ------------------------------------------------------------------- */

static void nothing_is_written_behind_it_while_it_waits(void **state)
{
    (void)state;
    crpc_op op = {.opcode = CRPC_OP_CALL, .reply_bytes_max = 8};
    void *address;
    pair_close_window(&pair);
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_OK);
    assert_true(end_of(0)->gather.waits);
    assert_int_equal(rpc_call(end_of(0), &op, NULL), CRPC_E_AGAIN);
    assert_int_equal(rpc_calls(end_of(0), &op, 1, memory, 0), 0);
    assert_int_equal(gather_call(2, 0, 3000, 0), CRPC_E_AGAIN);
    assert_int_equal(rpc_reserve(end_of(0), &op, &address), CRPC_E_AGAIN);
    op.reply_bytes_max = UINT32_MAX;
    assert_int_equal(rpc_call(end_of(0), &op, NULL), CRPC_E_TOO_BIG);
    assert_int_equal(end_of(0)->stats.refused, 3);
    memset(memory, 0xcc, 3000); /* the device has not read it */
    bool room = false;
    for (uint32_t i = 0; i < 20 && end_of(0)->gather.waits; i++) {
        pair.clock_ns += MS;
        poll_both();
        room |= pair_find(&pair, 0, CRPC_COMPLETION_ROOM) != NULL;
    }
    assert_false(end_of(0)->gather.waits);
    pair_poll(&pair, 0);
    room |= pair_find(&pair, 0, CRPC_COMPLETION_ROOM) != NULL;
    assert_true(room);
    const crpc_completion request = request_of(3000);
    assert_memory_equal(payload_of(&request), memory, 3000);
    op.reply_bytes_max = 8;
    assert_int_equal(rpc_call(end_of(0), &op, NULL), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
}

static void a_disconnect_meanwhile(void **state)
{
    (void)state;
    const crpc_op op = {.opcode = CRPC_OP_CALL, .reply_bytes_max = 8};
    pair_close_window(&pair);
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_OK);
    rpc_leave(&end_of(0)->link);
    assert_int_equal(rpc_call(end_of(0), &op, NULL), CRPC_E_AGAIN);
    for (uint32_t i = 0; i < 20 && end_of(0)->gather.waits; i++) {
        pair.clock_ns += MS;
        poll_both();
    }
    assert_int_equal(rpc_call(end_of(0), &op, NULL), CRPC_E_CLOSING);
    const crpc_completion request = request_of(3000);
    assert_memory_equal(payload_of(&request), memory, 3000);
}

/* ---- Calls that end early -------------------------------------------------------------------- */

static void expect_no_end(uint32_t polls)
{
    for (uint32_t i = 0; i < polls; i++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
        assert_null(pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE));
    }
}

/* The deadline passes while the device has not read it; with how many polls that takes, and none. */
static void a_deadline_waits_for_the_device(void **state)
{
    (void)state;
    memory_fabric_stall(end_of(0)->link.queue_pair, 12);
    assert_int_equal(gather_call(1, 0, 3000, MS), CRPC_OK);
    expect_no_end(6);
    assert_int_equal(users[0], 1);
    pair_expect_end(&pair, 1, CRPC_E_TIMEOUT, 30);
    assert_int_equal(users[0], 0);
    const crpc_completion request = request_of(3000);
    assert_memory_equal(payload_of(&request), memory, 3000);
    assert_int_equal(pair_echo(&pair, 1, 0, &(crpc_completion){.token = request.token}, 0),
                     CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(end_of(0)->calls.used, 0); /* the late response has freed the slot */
    pair_round_trip(&pair, 0);
}

/* What has not left is copied, and the peer gets it as it was. */
static void a_cancel_does_not_wait_for_the_window(void **state)
{
    (void)state;
    const crpc_op cancel = {.opcode = CRPC_OP_CANCEL, .token = 1};
    pair_close_window(&pair);
    assert_int_equal(gather_call(1, 5, 3000, 0), CRPC_OK);
    assert_int_equal(gather_call(2, 5, 3000, 0), CRPC_E_AGAIN);
    assert_int_equal(rpc_cancel(end_of(0), &cancel), CRPC_OK);
    pair_poll(&pair, 0);
    const crpc_completion *end = pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_CANCELED);
    assert_non_null(pair_find(&pair, 0, CRPC_COMPLETION_ROOM));
    assert_int_equal(users[0], 0);
    uint8_t before[3000];
    memcpy(before, memory + 5, sizeof(before));
    memset(memory, 0xcc, 4000);
    assert_int_equal(pair_call(&pair, 0, 0, 3, 16, 1, 8),
                     CRPC_OK); /* behind it, in the same batch */
    assert_int_equal(pair_poll(&pair, 1), 4);
    for (uint32_t i = 0; i < 30 && pair.seen[1].count != 3; i++) {
        pair.clock_ns += MS;
        poll_both();
    }
    assert_int_equal(pair.seen[1].count, 3);
    assert_memory_equal(payload_of(&pair.seen[1].entries[0]), before, sizeof(before));
    const crpc_completion *told = pair_find(&pair, 1, CRPC_COMPLETION_ABANDONED);
    assert_non_null(told);
    assert_int_equal(told->token, pair.seen[1].entries[0].token);
}

/* The processor may not read it: then the device must. */
static void a_cancel_of_another_devices_payload_waits(void **state)
{
    (void)state;
    const crpc_op cancel = {.opcode = CRPC_OP_CANCEL, .token = 1};
    regions[0].fd = memfd_create("foreign", MFD_CLOEXEC);
    regions[0].foreign = true;
    assert_true(regions[0].fd >= 0 && ftruncate(regions[0].fd, BYTES) == 0);
    pair_close_window(&pair);
    assert_int_equal(gather_call(1, 5, 100, 0), CRPC_OK);
    assert_true(end_of(0)->gather.waits);
    assert_int_equal(rpc_cancel(end_of(0), &cancel), CRPC_OK);
    expect_no_end(3);
    assert_int_equal(users[0], 1);
    assert_int_equal(pair_poll(&pair, 1), 4);
    pair_poll(&pair, 1);
    pair_expect_end(&pair, 1, CRPC_E_CANCELED, 30);
    assert_int_equal(users[0], 0);
    close(regions[0].fd);
}

/* A deadline that passes when the connection has failed lifts no bar. */
static void a_deadline_behind_the_end(void **state)
{
    (void)state;
    const crpc_op op = {.opcode = CRPC_OP_CALL, .reply_bytes_max = 8};
    crpc_error error = {.status = CRPC_E_DISCONNECTED};
    pair_close_window(&pair);
    assert_int_equal(gather_call(1, 5, 3000, MS), CRPC_OK);
    link_fail(&end_of(0)->link, &error);
    pair.clock_ns += 3 * MS;
    pair_poll(&pair, 0);
    assert_int_equal(rpc_call(end_of(0), &op, NULL), CRPC_E_DISCONNECTED);
}

/* Another call of the same slot is not taken for it. */
static void a_response_can_be_faster_than_the_completion(void **state)
{
    (void)state;
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_OK);
    struct rpc_call *call = end_of(0)->gather.sent[0].call;
    assert_non_null(call);
    const crpc_completion request = request_of(3000);
    assert_int_equal(pair_echo(&pair, 1, 0, &(crpc_completion){.token = request.token}, 0),
                     CRPC_OK);
    /* As if the send had not completed yet. */
    struct rpc_gathered kept = end_of(0)->gather.sent[0];
    pair_poll(&pair, 0);
    assert_non_null(pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE));
    call->kind = CALL_GATHERED;
    users[0]++;
    assert_int_equal(pair_call(&pair, 0, 0, 2, 16, 1, 8), CRPC_OK);
    assert_true(call->state == CALL_LIVE && call->user_data == 2);
    call_end(call, CRPC_E_CANCELED);
    pair_expect_end(&pair, 2, CRPC_E_CANCELED, 30);
    const crpc_completion other = request_of(16);
    assert_int_equal(pair_echo(&pair, 1, 0, &(crpc_completion){.token = other.token}, 0), CRPC_OK);
    pair_poll(&pair, 0);
    memory_fabric_stall(end_of(0)->link.queue_pair, 50);
    assert_int_equal(gather_call(3, 0, 3000, 0), CRPC_OK);
    assert_true(call->state == CALL_LIVE && call->user_data == 3);
    end_of(0)->gather.sent[0] = kept;
    rpc_gather_done(end_of(0), 0);
    assert_int_equal(users[0], 1);
    assert_int_equal(call->kind, CALL_GATHERED);
}

/* A batch without replies has been acknowledged, in a poll that is full, and the endpoint goes. */
static void what_was_acknowledged_may_go(void **state)
{
    (void)state;
    const crpc_endpoint_options options = options_of(65536);
    const uint32_t number = pair_connect(&pair, &options, &options);
    struct rpc_endpoint *left = pair.endpoint[0][number];
    const crpc_op op = {.opcode = CRPC_OP_CALL, .payload_bytes = 4000, .reply_bytes_max = 8};
    crpc_completion only;
    assert_int_equal(rpc_gather(left, &op, &regions[0]), CRPC_OK);
    pair_poll(&pair, 1);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(pair_echo(&pair, 1, number, &(crpc_completion){.token = request->token}, 0),
                     CRPC_OK);
    assert_int_equal(rpc_poll(pair.engine[0], &only, 1), 1);
    assert_int_equal(only.kind, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(users[0], 0);
    assert_false(list_linked(&left->acknowledged_link));
    link_close(&left->link);
    for (uint32_t i = 0; i < 4; i++) {
        poll_both();
    }
}

/* ---- Connections that end -------------------------------------------------------------------- */

/* How: 0 = while it waits for the window, 1 = while it is under way; closed here, or failed. */
static void every_call_completes_once(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 4; how++) {
        const bool closed = how & 2;
        const crpc_endpoint_options options = options_of(65536);
        const uint32_t number = pair_connect(&pair, &options, &options);
        struct rpc_endpoint *left = pair.endpoint[0][number];
        uint32_t responses = 0;
        crpc_op op = {.opcode = CRPC_OP_CALL,
                      .user_data = 5,
                      .payload_bytes = 4000,
                      .reply_bytes_max = 8,
                      .timeout_ns = MS};
        if (how & 1) {
            memory_fabric_stall(left->link.queue_pair, 1000);
        }
        while (!(how & 1) && left->out.batches_sent < left->out.batch_limit) {
            assert_int_equal(pair_call(&pair, 0, number, 5, 16, 1, 8), CRPC_OK);
            pair_poll(&pair, 0);
        }
        assert_int_equal(rpc_gather(left, &op, &regions[0]), CRPC_OK);
        const uint32_t calls = left->calls.live;
        pair.clock_ns += 3 * MS;
        pair_poll(&pair, 0); /* it has ended; what is under way waits */
        responses += pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE) != NULL;
        assert_int_equal(responses, !(how & 1));
        assert_int_equal(users[0], how & 1);
        if (closed) {
            link_close(&left->link);
        } else {
            memory_fabric_kill(left->link.queue_pair);
            crpc_error error = {.status = CRPC_E_DISCONNECTED};
            link_fail(&left->link, &error);
        }
        for (uint32_t i = 0; i < 40; i++) {
            poll_both();
            for (uint32_t j = 0; j < pair.seen[0].count; j++) {
                responses += pair.seen[0].entries[j].kind == CRPC_COMPLETION_RESPONSE;
            }
        }
        assert_int_equal(responses, calls);
        assert_int_equal(users[0], 0);
    }
}

/* The engine ends while calls wait, of several endpoints: nobody is told, and nothing is left. */
static void the_engine_ends(void **state)
{
    (void)state;
    const crpc_endpoint_options options = options_of(65536);
    const crpc_op op = {
        .opcode = CRPC_OP_CALL, .payload_bytes = 4000, .reply_bytes_max = 8, .timeout_ns = MS};
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t number = pair_connect(&pair, &options, &options);
        memory_fabric_stall(pair.endpoint[0][number]->link.queue_pair, 1000);
        assert_int_equal(rpc_gather(pair.endpoint[0][number], &op, &regions[0]), CRPC_OK);
    }
    pair.clock_ns += 3 * MS;
    pair_poll(&pair, 0); /* they have ended, and wait */
    assert_int_equal(pair.seen[0].count, 0);
    assert_int_equal(users[0], 3);
}

/* ---- Regions --------------------------------------------------------------------------------- */

static void regions_and_endpoints_end_in_any_order(void **state)
{
    (void)state;
    const crpc_endpoint_options options = options_of(65536);
    const uint32_t number = pair_connect(&pair, &options, &options);
    const uint64_t before = memory_fabric_counters(pair.fabric)->regions;
    crpc_error error = {0};
    assert_int_equal(rpc_region_prepare(end_of(0), &regions[0], &error), CRPC_OK);
    assert_int_equal(rpc_region_prepare(end_of(0), &regions[0], &error), CRPC_OK);
    assert_int_equal(memory_fabric_counters(pair.fabric)->regions, before + 1);
    assert_int_equal(rpc_region_prepare(pair.endpoint[0][number], &regions[0], &error), CRPC_OK);
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_OK);
    assert_int_equal(memory_fabric_counters(pair.fabric)->regions, before + 2);
    request_of(3000);
    pair_poll(&pair, 0);
    assert_int_equal(users[0], 0);
    rpc_region_end(&regions[0]);
    assert_int_equal(memory_fabric_counters(pair.fabric)->regions, before);
    /* And again, with a region that stays. */
    assert_int_equal(gather_call(2, 0, 3000, 0), CRPC_OK);
    request_of(3000);
}

static void a_region_that_cannot_be_registered(void **state)
{
    (void)state;
    crpc_error error = {0};
    memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_E_MEMLOCK);
    assert_int_equal(end_of(0)->calls.used, 0);
    assert_int_equal(users[0], 0);
    memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(rpc_region_prepare(end_of(0), &regions[0], &error), CRPC_E_MEMLOCK);
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_OK);
    request_of(3000);
}

static void a_device_that_gathers_too_little(void **state)
{
    (void)state;
    pair.nic[0]->pieces_max = 2;
    assert_int_equal(gather_call(1, 0, 3000, 0), CRPC_E_UNSUPPORTED);
    assert_int_equal(gather_call(1, 0, 2000, 0), CRPC_OK); /* it is copied */
    request_of(2000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        TEST(payloads_of_all_lengths),
        TEST(a_reply_completes_when_the_device_has_read_it),
        TEST(behind_others_of_the_same_batch),
        TEST(nothing_is_written_behind_it_while_it_waits),
        TEST(a_disconnect_meanwhile),
        TEST(a_deadline_waits_for_the_device),
        TEST(a_cancel_does_not_wait_for_the_window),
        TEST(a_cancel_of_another_devices_payload_waits),
        TEST(a_deadline_behind_the_end),
        TEST(a_response_can_be_faster_than_the_completion),
        TEST(what_was_acknowledged_may_go),
        TEST(the_engine_ends),
        TEST(every_call_completes_once),
        TEST(regions_and_endpoints_end_in_any_order),
        TEST(a_region_that_cannot_be_registered),
        TEST(a_device_that_gathers_too_little),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
