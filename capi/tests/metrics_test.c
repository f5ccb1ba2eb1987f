/* metrics_test.c: what is counted of calls and requests, whichever way they go and end; and the text. */
#include <stdlib.h>

#include "fixture.h"
#include "rpc/metrics.h"

#define BATCH 20

static crpc_method_metrics read_side(crpc_context *context, crpc_endpoint endpoint, uint32_t side,
                                     uint32_t method)
{
    crpc_method_metrics metrics = {.struct_size = sizeof(metrics)};
    assert_int_equal(crpc_endpoint_get_method_metrics(context, endpoint, side, method, &metrics),
                     CRPC_OK);
    return metrics;
}

static crpc_method_metrics client(uint32_t method)
{
    return read_side(fixture.left, (crpc_endpoint){0}, CRPC_METRICS_CLIENT, method);
}

static crpc_method_metrics server(uint32_t method)
{
    return read_side(fixture.right, (crpc_endpoint){0}, CRPC_METRICS_SERVER, method);
}

static char *text_of(crpc_context *context, uint32_t flags)
{
    static char text[1 << 18];
    const int64_t bytes = crpc_context_metrics(context, flags, NULL, 0);
    assert_in_range(bytes, 1, sizeof(text) - 1);
    memset(text, 'x', sizeof(text));
    assert_int_equal(crpc_context_metrics(context, flags, text, 10), bytes);
    assert_int_equal(text[9], 0);
    assert_int_equal(text[10], 'x');
    assert_int_equal(crpc_context_metrics(context, flags, text, sizeof(text)), bytes);
    assert_int_equal(strlen(text), bytes);
    return text;
}

static void each_time_has_the_bucket_that_contains_it(void **state)
{
    (void)state;
    assert_int_equal(metrics_bucket(0), 0);
    assert_int_equal(metrics_bucket(255), 0);
    assert_int_equal(metrics_bucket(256), 1);
    assert_int_equal(metrics_bucket(UINT64_MAX), METRICS_BUCKETS - 1);
    for (uint32_t i = 0; i < METRICS_BUCKETS - 1; i++) {
        const uint64_t end_ns = metrics_bucket_end_ns(i);
        assert_int_equal(metrics_bucket(end_ns - 1), i);
        assert_int_equal(metrics_bucket(end_ns), i + 1);
    }
    assert_int_equal(metrics_bucket_end_ns(0), 256);
    assert_int_equal(metrics_bucket_end_ns(METRICS_BUCKETS - 2), UINT64_C(1) << 36);
}

static void a_lone_call_is_counted_at_both_sides(void **state)
{
    (void)state;
    const crpc_completion request = fixture_request(77, "abc", 64);
    assert_int_equal(server(0).started, 1);
    assert_int_equal(server(0).ended, 0);
    assert_int_equal(client(0).started, 1);
    assert_int_equal(client(0).ended, 0);
    assert_int_equal(fixture_reply(&request, "hello", CRPC_OP_QUIET), CRPC_OK);
    const crpc_completion response = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.user_data, 77);
    const crpc_method_metrics sides[] = {client(0), server(0), client(CRPC_METHOD_ALL)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sides[i].started, 1);
        assert_int_equal(sides[i].ended, 1);
        assert_int_equal(sides[i].statuses[0], 1);
        assert_int_equal(sides[i].request_bytes, 3);
        assert_int_equal(sides[i].reply_bytes, 5);
        assert_true(sides[i].p50_ns > 0 && sides[i].p50_ns == sides[i].p100_ns);
        assert_true(sides[i].sum_ns < sides[i].p100_ns);
    }
    assert_int_equal(client(1).started, 0);
    assert_true(client(0).sum_ns >= server(0).sum_ns);
}

static void a_batch_is_counted_by_method(void **state)
{
    (void)state;
    crpc_op ops[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) {
        ops[i] = fixture_call_op(1000 + i);
        ops[i].method = (uint16_t)(i % 4);
        ops[i].payload_bytes = 2;
    }
    int32_t reason;
    assert_int_equal(crpc_submit(fixture.left, ops, BATCH, "xx", 2, &reason), BATCH);
    uint32_t requests = 0, responses = 0;
    uint64_t seen = 0;
    for (int tries = 0; tries < 100 && responses < BATCH; tries++) {
        crpc_op replies[FIXTURE_COMPLETIONS];
        uint32_t count = 0;
        fixture_poll(fixture.right);
        for (int32_t i = 0; i < fixture.count; i++) {
            if (fixture.completions[i].kind == CRPC_COMPLETION_REQUEST) {
                replies[count++] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                             .flags = CRPC_OP_QUIET,
                                             .status = (int32_t)(requests++ % 2) * 100,
                                             .endpoint = fixture.completions[i].endpoint,
                                             .token = fixture.completions[i].token};
            }
        }
        assert_int_equal(crpc_submit(fixture.right, replies, count, NULL, 0, NULL), count);
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++) {
            if (fixture.completions[i].kind == CRPC_COMPLETION_RESPONSE) {
                responses++;
                seen |= UINT64_C(1) << (fixture.completions[i].user_data - 1000);
            }
        }
    }
    assert_int_equal(seen, (1 << BATCH) - 1);
    for (uint32_t method = 0; method < 4; method++) {
        assert_int_equal(client(method).ended, BATCH / 4);
        assert_int_equal(client(method).request_bytes, 2 * BATCH / 4);
        assert_int_equal(server(method).ended, BATCH / 4);
        assert_int_equal(client(method).statuses[method % 2 ? 17 : 0], BATCH / 4);
    }
    assert_int_equal(client(CRPC_METHOD_ALL).started, BATCH);
}

static void a_call_that_is_not_accepted_is_not_counted(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(1);
    op.reply_bytes_max = 1u << 31;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_TOO_BIG);
    op.token = 1;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_INVALID);
    assert_int_equal(client(CRPC_METHOD_ALL).started, 0);
}

/* Sleeps until a response comes: polls would only burn the time until a deadline. */
static crpc_completion response_in_time(void)
{
    for (;;) {
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++) {
            if (fixture.completions[i].kind == CRPC_COMPLETION_RESPONSE) {
                return fixture.completions[i];
            }
        }
        assert_int_equal(crpc_wait(fixture.left, UINT64_C(60000000000)), CRPC_OK);
    }
}

static void how_a_call_fails_is_counted(void **state)
{
    (void)state;
    /* dropped */
    crpc_completion request = fixture_request(1, "", 64);
    const crpc_op drop = {.opcode = CRPC_OP_DROP,
                          .flags = CRPC_OP_QUIET,
                          .endpoint = request.endpoint,
                          .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &drop, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 1);
    assert_int_equal(client(0).errors[-CRPC_E_DROPPED], 1);
    assert_int_equal(server(0).errors[-CRPC_E_DROPPED], 1);
    /* canceled: by the application's user_data; the other one goes on */
    crpc_op op = fixture_call_op(500);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    op.user_data = 501;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    const crpc_op cancel = {
        .opcode = CRPC_OP_CANCEL, .endpoint = fixture.left_endpoint, .user_data = 9, .token = 500};
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    crpc_completion ended = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(ended.user_data, 500);
    assert_int_equal(ended.status, CRPC_E_CANCELED);
    assert_int_equal(fixture_also(fixture.left, CRPC_COMPLETION_CANCEL).token, 1);
    assert_int_equal(client(0).errors[-CRPC_E_CANCELED], 1);
    /* timed out */
    op.user_data = 502;
    op.timeout_ns = 1;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    ended = response_in_time();
    assert_int_equal(ended.status, CRPC_E_TIMEOUT);
    assert_int_equal(ended.user_data, 502);
    assert_int_equal(client(0).errors[-CRPC_E_TIMEOUT], 1);
    /* the endpoint is closed, and its counts stay */
    const crpc_method_metrics before = client(0);
    assert_int_equal(before.started - before.ended, 1);
    assert_int_equal(crpc_endpoint_close(fixture.left, fixture.left_endpoint), CRPC_OK);
    ended = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(ended.user_data, 501);
    fixture_poll(fixture.left);
    const crpc_method_metrics after = client(0);
    assert_int_equal(after.started, before.started);
    assert_int_equal(after.ended, before.started);
    assert_int_equal(after.errors[-CRPC_E_CLOSED], 1);
}

static void calls_written_in_place_and_from_regions_are_counted(void **state)
{
    (void)state;
    void *address;
    crpc_op op = fixture_call_op(31);
    op.payload_bytes = 40;
    assert_int_equal(crpc_reserve(fixture.left, &op, &address), CRPC_OK);
    assert_int_equal(crpc_abort(fixture.left, fixture.left_endpoint), CRPC_OK);
    assert_int_equal(client(0).started, 0);
    assert_int_equal(crpc_reserve(fixture.left, &op, &address), CRPC_OK);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 41), CRPC_E_TOO_BIG);
    memcpy(address, "in place", 8);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 8), CRPC_OK);
    assert_int_equal(client(0).request_bytes, 8);
    static uint8_t memory[8192];
    crpc_region region;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_region_register(fixture.left, memory, sizeof(memory), 0, &region, &error),
                     CRPC_OK);
    op = fixture_region_op(region, 0, 5000);
    op.user_data = 32;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    uint64_t seen = 0;
    for (int tries = 0; tries < 100 && seen != 3; tries++) {
        crpc_wait(fixture.left, 0);
        fixture_poll(fixture.right);
        const int32_t count = fixture.count;
        crpc_completion requests[FIXTURE_COMPLETIONS];
        memcpy(requests, fixture.completions, sizeof(requests));
        for (int32_t i = 0; i < count; i++) {
            if (requests[i].kind == CRPC_COMPLETION_REQUEST) {
                assert_int_equal(fixture_reply(&requests[i], "", CRPC_OP_QUIET), CRPC_OK);
            }
        }
        fixture_poll(fixture.left);
        for (int32_t i = 0; i < fixture.count; i++) {
            if (fixture.completions[i].kind == CRPC_COMPLETION_RESPONSE) {
                seen |= UINT64_C(1) << (fixture.completions[i].user_data - 31);
            }
        }
    }
    assert_int_equal(seen, 3);
    assert_int_equal(client(0).ended, 2);
    assert_int_equal(client(0).request_bytes, 5008);
    assert_int_equal(server(0).request_bytes, 5008);
}

/* Their message in the ring has 8 bytes. */
static void payloads_in_an_arena_are_counted_by_their_length(void **state)
{
    (void)state;
    static uint8_t source[8192], arena[8192] __attribute__((aligned(16)));
    crpc_region from, to;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_region_register(fixture.left, source, sizeof(source), 0, &from, &error),
                     CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.right, arena, sizeof(arena),
                                          CRPC_ACCESS_LOCAL_WRITE, &to, &error),
                     CRPC_OK);
    assert_int_equal(
        crpc_arena_lend(fixture.right, fixture.right_endpoint, to, 0, sizeof(arena), 1, &error),
        CRPC_OK);
    fixture_poll(fixture.right);
    fixture_poll(fixture.left);
    const crpc_op op = fixture_region_op(from, 0, 5000);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.flags, CRPC_COMPLETION_PLACED);
    assert_int_equal(server(op.method).request_bytes, 5000);
    assert_int_equal(fixture_reply(&request, "", CRPC_OP_QUIET), CRPC_OK);
    fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(client(op.method).request_bytes, 5000);
    assert_int_equal(client(op.method).ended, 1);
    assert_int_equal(server(op.method).ended, 1);
}

static void calls_behind_the_ops_of_a_lane_are_counted(void **state)
{
    (void)state;
    crpc_endpoint left, right;
    fixture_lane(&left, &right);
    crpc_op op = fixture_call_op(1);
    op.endpoint = left;
    op.flags = CRPC_OP_AFTER;
    op.payload_bytes = 3;
    assert_int_equal(fixture_submit(fixture.left, &op, "abc", 3), CRPC_OK);
    assert_int_equal(client(op.method).started, 1);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                           .flags = CRPC_OP_AFTER,
                           .status = 5,
                           .endpoint = request.endpoint,
                           .user_data = 8,
                           .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &reply, NULL, 0), CRPC_OK);
    const crpc_completion done = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(done.user_data, 1);
    assert_int_equal(client(op.method).ended, 1);
    assert_int_equal(client(op.method).request_bytes, 3);
    assert_int_equal(server(op.method).statuses[5], 1);
}

static void an_endpoint_counts_64_methods_and_the_rest_together(void **state)
{
    (void)state;
    crpc_endpoint left, right;
    fixture_connect(NULL, &left, &right);
    for (uint32_t i = 0; i < 70; i++) {
        crpc_op op = fixture_call_op(i);
        op.endpoint = left;
        op.method = (uint16_t)(1000 - i);
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    }
    assert_int_equal(client(1000).started, 1);
    assert_int_equal(client(1000 - 63).started, 1);
    assert_int_equal(client(1000 - 64).started, 0);
    assert_int_equal(client(CRPC_METHOD_OTHER).started, 6);
    assert_int_equal(client(CRPC_METHOD_ALL).started, 70);
    assert_non_null(strstr(text_of(fixture.left, 0), "method=\"other\"} 6\n"));
}

static void the_text_names_methods_and_escapes_them(void **state)
{
    (void)state;
    assert_int_equal(crpc_context_name_method(fixture.left, 0, "a\"b\\c\nd \xc3\xa4"), CRPC_OK);
    assert_int_equal(crpc_context_name_method(fixture.left, 7, "seven"), CRPC_OK);
    assert_int_equal(crpc_context_name_method(fixture.left, 7, NULL), CRPC_OK);
    const char *wrong[] = {"", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(crpc_context_name_method(fixture.left, 0, wrong[i]), CRPC_E_INVALID);
    }
    char longest[257];
    memset(longest, 'm', sizeof(longest));
    longest[256] = '\0';
    assert_int_equal(crpc_context_name_method(fixture.left, 1, longest), CRPC_E_INVALID);
    longest[255] = '\0';
    assert_int_equal(crpc_context_name_method(fixture.left, 1, longest), CRPC_OK);
    crpc_op op = fixture_call_op(1);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    op.method = 1;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    op.method = 7;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    const char *text = text_of(fixture.left, CRPC_METRICS_ENDPOINTS);
    assert_non_null(strstr(text, "method=\"a\\\"b\\\\c\\nd \xc3\xa4\"} 1\n"));
    assert_non_null(strstr(text, longest));
    assert_non_null(strstr(text, "method=\"7\"} 1\n"));
    assert_non_null(strstr(text, "\ncopyrpc_endpoint_calls_total{"));
    const char *file = getenv("METRICS_TEXT"); /* for a parser */
    if (file) {
        FILE *out = fopen(file, "w");
        fputs(text, out);
        fclose(out);
    }
}

static void wrong_arguments_change_nothing(void **state)
{
    (void)state;
    crpc_method_metrics metrics = {.struct_size = sizeof(metrics)};
    char text[1];
    assert_int_equal(crpc_context_metrics(NULL, 0, text, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_context_metrics(fixture.left, 2, text, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_context_metrics(fixture.left, 0, NULL, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_context_name_method(NULL, 0, "m"), CRPC_E_INVALID);
    assert_int_equal(
        crpc_endpoint_get_method_metrics(fixture.left, fixture.left_endpoint, 2, 0, &metrics),
        CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_get_method_metrics(fixture.left, fixture.left_endpoint, 0,
                                                      CRPC_METHOD_ALL + 1, &metrics),
                     CRPC_E_INVALID);
    assert_int_equal(
        crpc_endpoint_get_method_metrics(fixture.left, fixture.right_endpoint, 0, 0, &metrics),
        CRPC_E_STALE);
    assert_int_equal(
        crpc_endpoint_get_method_metrics(fixture.left, fixture.left_endpoint, 0, 0, NULL),
        CRPC_E_INVALID);
    /* the way of submits that are unusual: nothing to submit, and too much */
    int32_t reason = 5;
    assert_int_equal(crpc_submit(fixture.left, NULL, 0, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_OK);
    assert_int_equal(crpc_submit(fixture.left, NULL, 1, NULL, 0, &reason), CRPC_E_INVALID);
    crpc_op op = fixture_call_op(1);
    assert_int_equal(crpc_submit(fixture.left, &op, UINT32_MAX, NULL, 0, &reason), CRPC_E_INVALID);
}

static void without_the_flag_there_are_the_counters_alone(void **state)
{
    (void)state;
    crpc_method_metrics metrics = {.struct_size = sizeof(metrics)};
    assert_int_equal(
        crpc_endpoint_get_method_metrics(fixture.left, fixture.left_endpoint, 0, 0, &metrics),
        CRPC_E_STATE);
    const crpc_completion request = fixture_request(77, "abc", 64);
    assert_int_equal(fixture_reply(&request, "hello", CRPC_OP_QUIET), CRPC_OK);
    fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    const char *text = text_of(fixture.left, 0);
    assert_null(strstr(text, "copyrpc_client_"));
    const char *line = strstr(text, "\ncopyrpc_context_calls_total{");
    assert_non_null(line);
    assert_memory_equal(strstr(line, "} "), "} 1\n", 4);
}

int main(void)
{
#define MEASURED(test)                                                                             \
    cmocka_unit_test_setup_teardown(test, fixture_open_with_metrics, fixture_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_time_has_the_bucket_that_contains_it),
        MEASURED(a_lone_call_is_counted_at_both_sides),
        MEASURED(a_batch_is_counted_by_method),
        MEASURED(a_call_that_is_not_accepted_is_not_counted),
        MEASURED(how_a_call_fails_is_counted),
        MEASURED(calls_written_in_place_and_from_regions_are_counted),
        MEASURED(payloads_in_an_arena_are_counted_by_their_length),
        MEASURED(calls_behind_the_ops_of_a_lane_are_counted),
        MEASURED(an_endpoint_counts_64_methods_and_the_rest_together),
        MEASURED(the_text_names_methods_and_escapes_them),
        MEASURED(wrong_arguments_change_nothing),
        cmocka_unit_test_setup_teardown(without_the_flag_there_are_the_counters_alone, fixture_open,
                                        fixture_close),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
