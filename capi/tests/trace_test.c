/* trace_test.c: calls that say whose they are, through the public API. */
#include <string.h>

#include "fixture.h"

/* What the calls of a test take their payloads and traces from: traces first, one behind another. */
static struct {
    crpc_trace traces[4];
    uint8_t bytes[8192];
} memory;

static int open_pair(void **state)
{
    memset(&memory, 0, sizeof(memory));
    for (uint8_t i = 0; i < 4; i++) {
        memset(memory.traces[i].trace_id, 0x10 + i, sizeof(memory.traces[i].trace_id));
        memset(memory.traces[i].span_id, 0x20 + i, sizeof(memory.traces[i].span_id));
        memory.traces[i].flags = i;
    }
    return fixture_open(state);
}

static crpc_op traced_op(uint64_t user_data, uint32_t trace)
{
    crpc_op op = fixture_call_op(user_data);
    op.flags = CRPC_OP_TRACED;
    op.token = trace * sizeof(crpc_trace);
    op.payload_offset = sizeof(memory.traces);
    op.payload_bytes = 16;
    return op;
}

static int32_t submit(const crpc_op *op)
{
    return fixture_submit(fixture.left, op, &memory, sizeof(memory));
}

static int32_t trace_of(const crpc_completion *request, crpc_trace *trace)
{
    return crpc_request_get_trace(fixture.right, request->endpoint, request->token, trace);
}

static void expect_trace(const crpc_completion *request, uint32_t number)
{
    crpc_trace trace;
    assert_int_equal(trace_of(request, &trace), CRPC_OK);
    assert_memory_equal(&trace, &memory.traces[number], sizeof(trace));
}

static void the_server_gets_it_while_the_request_is_open(void **state)
{
    (void)state;
    const crpc_op op = traced_op(1, 2);
    crpc_trace trace;
    assert_int_equal(submit(&op), CRPC_OK);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.payload_bytes, 16);
    expect_trace(&request, 2);
    assert_int_equal(fixture_reply(&request, "", CRPC_OP_QUIET), CRPC_OK);
    assert_int_equal(trace_of(&request, &trace), CRPC_E_STALE);
    fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
}

static void others_have_none(void **state)
{
    (void)state;
    crpc_trace trace = {.flags = 77};
    const crpc_completion request = fixture_request(1, "abc", 64);
    assert_int_equal(trace_of(&request, &trace), CRPC_E_NOT_FOUND);
    assert_int_equal(trace.flags, 77);
}

static void in_an_array_each_has_its_own(void **state)
{
    (void)state;
    crpc_op ops[12];
    uint32_t seen = 0;
    int32_t reason;
    for (uint32_t i = 0; i < 12; i++) {
        ops[i] = traced_op(i, i % 4);
        ops[i].method = (uint16_t)i;
        if (i % 5 == 4) { /* one of them has none */
            ops[i].flags = 0;
            ops[i].token = 0;
        }
    }
    assert_int_equal(crpc_submit(fixture.left, ops, 12, &memory, sizeof(memory), &reason), 12);
    while (seen < 12) {
        fixture_poll(fixture.left);
        const int32_t count = fixture_poll(fixture.right);
        for (int32_t i = 0; i < count; i++, seen++) {
            const crpc_completion *request = &fixture.completions[i];
            crpc_trace trace;
            assert_int_equal(request->method, seen);
            if (seen % 5 == 4) {
                assert_int_equal(trace_of(request, &trace), CRPC_E_NOT_FOUND);
            } else {
                expect_trace(request, seen % 4);
            }
        }
    }
}

static void idempotent_ones_and_ones_with_a_deadline(void **state)
{
    (void)state;
    crpc_op op = traced_op(1, 3);
    op.flags |= CRPC_OP_IDEMPOTENT;
    op.timeout_ns = UINT64_C(3600) * 1000000000;
    assert_int_equal(submit(&op), CRPC_OK);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_true(request.user_data >= op.timeout_ns);
    expect_trace(&request, 3);
}

static void payloads_in_regions(void **state)
{
    (void)state;
    crpc_region region;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(
        crpc_region_register(fixture.left, memory.bytes, sizeof(memory.bytes), 0, &region, &error),
        CRPC_OK);
    const uint32_t lengths[] = {0, 100, 6000};
    for (uint32_t i = 0; i < 3; i++) {
        crpc_op op = fixture_region_op(region, 5, lengths[i]);
        op.flags |= CRPC_OP_TRACED;
        op.token = i * sizeof(crpc_trace);
        assert_int_equal(fixture_submit(fixture.left, &op, memory.traces, sizeof(memory.traces)),
                         CRPC_OK);
        const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
        assert_int_equal(request.payload_bytes, lengths[i]);
        expect_trace(&request, i);
        assert_int_equal(fixture_reply(&request, "", CRPC_OP_QUIET), CRPC_OK);
        fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    }
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
}

static void after_the_ops_of_a_lane(void **state)
{
    (void)state;
    crpc_endpoint left, right;
    fixture_lane(&left, &right);
    crpc_op op = traced_op(1, 1);
    op.endpoint = left;
    op.flags |= CRPC_OP_AFTER;
    assert_int_equal(submit(&op), CRPC_OK);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    expect_trace(&request, 1);
}

/* Each wrong op is refused, and changes nothing. */
static void wrong_arguments_change_nothing(void **state)
{
    (void)state;
    const uint64_t end = sizeof(memory);
    const uint64_t offsets[] = {end - sizeof(crpc_trace) + 1, end, end + 1, UINT64_MAX,
                                UINT64_MAX - sizeof(crpc_trace) + 1};
    crpc_op op;
    void *address;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        op = traced_op(1, 0);
        op.token = offsets[i];
        assert_int_equal(submit(&op), CRPC_E_INVALID);
    }
    op = traced_op(1, 0);
    op.payload_bytes = 0;
    op.payload_offset = 0;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_INVALID);
    for (size_t i = 0; i < sizeof(memory.traces[0].reserved); i++) {
        op = traced_op(1, 0);
        memory.traces[0].reserved[i] = 1;
        assert_int_equal(submit(&op), CRPC_E_INVALID);
        memory.traces[0].reserved[i] = 0;
    }
    op = traced_op(1, 0);
    op.flags = 0;
    op.token = sizeof(crpc_trace); /* a token without the flag */
    assert_int_equal(submit(&op), CRPC_E_INVALID);
    op = traced_op(1, 0);
    op.status = 1;
    assert_int_equal(submit(&op), CRPC_E_INVALID);
    op = traced_op(1, 0);
    op.flags |= 0x20;
    assert_int_equal(submit(&op), CRPC_E_INVALID);
    op = traced_op(1, 0);
    op.token = op.payload_offset = 0;
    assert_int_equal(crpc_reserve(fixture.left, &op, &address), CRPC_E_INVALID);
    const crpc_completion request = fixture_request(9, "abc", 64);
    assert_int_equal(request.payload_bytes, 3);
    op = (crpc_op){.opcode = CRPC_OP_REPLY,
                   .flags = CRPC_OP_TRACED,
                   .endpoint = request.endpoint,
                   .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &op, &memory, sizeof(memory)), CRPC_E_INVALID);
    crpc_trace trace;
    assert_int_equal(crpc_request_get_trace(NULL, request.endpoint, request.token, &trace),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_request_get_trace(fixture.right, request.endpoint, request.token, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(
        crpc_request_get_trace(fixture.right, (crpc_endpoint){12345}, request.token, &trace),
        CRPC_E_STALE);
    assert_int_equal(
        crpc_request_get_trace(fixture.right, request.endpoint, request.token + 1, &trace),
        CRPC_E_STALE);
    assert_int_equal(trace_of(&request, &trace), CRPC_E_NOT_FOUND);
}

/* What looks at each op takes no other way with it. */
static void with_metrics_and_flight_records(void **state)
{
    (void)state;
    const crpc_op op = traced_op(1, 1);
    crpc_method_metrics metrics = {.struct_size = sizeof(metrics)};
    assert_int_equal(submit(&op), CRPC_OK);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    expect_trace(&request, 1);
    assert_int_equal(fixture_reply(&request, "", CRPC_OP_QUIET), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 1);
    assert_int_equal(crpc_endpoint_get_method_metrics(fixture.left, fixture.left_endpoint,
                                                      CRPC_METRICS_CLIENT, op.method, &metrics),
                     CRPC_OK);
    assert_int_equal(metrics.started, 1);
}

static int open_with_metrics(void **state)
{
    open_pair(state);
    fixture_close(state);
    return fixture_open_with_metrics(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_PAIR(name) cmocka_unit_test_setup_teardown(name, open_pair, fixture_close)
        WITH_PAIR(the_server_gets_it_while_the_request_is_open),
        WITH_PAIR(others_have_none),
        WITH_PAIR(in_an_array_each_has_its_own),
        WITH_PAIR(idempotent_ones_and_ones_with_a_deadline),
        WITH_PAIR(payloads_in_regions),
        WITH_PAIR(after_the_ops_of_a_lane),
        WITH_PAIR(wrong_arguments_change_nothing),
        cmocka_unit_test_setup_teardown(with_metrics_and_flight_records, open_with_metrics,
                                        fixture_close),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
