/* flight_test.c: the last ops and completions of an endpoint, which a failed one leaves behind. */
#include <stdlib.h>

#include "fixture.h"

static char text[1 << 16];

static uint32_t lines_of(crpc_context *context, crpc_endpoint endpoint)
{
    const int64_t bytes = crpc_endpoint_flight_records(context, endpoint, NULL, 0);
    uint32_t lines = 0;
    assert_in_range(bytes, 0, sizeof(text) - 1);
    assert_true(crpc_endpoint_flight_records(context, endpoint, text, sizeof(text)) >= bytes);
    for (const char *at = text; *at; at++) {
        lines += *at == '\n';
    }
    return lines;
}

static int open_with_records(void **state)
{
    setenv("COPYRPC_FLIGHT_RECORDS", "5", 1); /* rounded up to 8 */
    const int result = fixture_open(state);
    unsetenv("COPYRPC_FLIGHT_RECORDS");
    return result;
}

static int open_with_both(void **state)
{
    setenv("COPYRPC_FLIGHT_RECORDS", "8", 1);
    const int result = fixture_open_with_all(state);
    unsetenv("COPYRPC_FLIGHT_RECORDS");
    return result;
}

/* That the first is before the second in the text. */
static void expect_order(const char *first, const char *second)
{
    const char *at = strstr(text, first), *then = strstr(text, second);
    if (!at || !then || at > then) {
        fail_msg("not \"%s\" and then \"%s\" in:\n%s", first, second, text);
    }
}

static void what_was_done_can_be_read(void **state)
{
    (void)state;
    const crpc_completion request = fixture_request(77, "abc", 64);
    assert_int_equal(fixture_reply(&request, "hello", CRPC_OP_QUIET), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 77);
    assert_int_equal(lines_of(fixture.left, fixture.left_endpoint), 3);
    expect_order("CONNECTED", "call user_data 0x4d, method ");
    expect_order("call user_data 0x4d, method ", "RESPONSE user_data 0x4d");
    expect_order("RESPONSE", "5 bytes, status 0\n");
    assert_int_equal(lines_of(fixture.right, fixture.right_endpoint), 3);
    expect_order("REQUEST token 0x", "reply token 0x");
}

static void the_oldest_give_way(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        const crpc_completion request = fixture_request(100 + i, "abc", 64);
        assert_int_equal(fixture_reply(&request, "x", CRPC_OP_QUIET), CRPC_OK);
        fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    }
    assert_int_equal(lines_of(fixture.left, fixture.left_endpoint), 8);
    assert_null(strstr(text, "0x73,")); /* 115 */
    expect_order("call user_data 0x74,", "RESPONSE user_data 0x77,");
}

static void what_was_refused_is_there_too(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(5);
    op.payload_bytes = UINT32_MAX;
    static const uint8_t nothing[1];
    int32_t reason;
    assert_int_equal(crpc_submit(fixture.left, &op, 1, nothing, UINT64_C(1) << 32, &reason), 0);
    assert_int_equal(reason, CRPC_E_TOO_BIG);
    lines_of(fixture.left, fixture.left_endpoint);
    expect_order("CONNECTED", "call user_data 0x5, ");
    expect_order("call user_data 0x5, ", "refused: CRPC_E_TOO_BIG\n");
}

static void places_that_were_reserved(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(6);
    void *address;
    op.payload_bytes = 100;
    assert_int_equal(crpc_reserve(fixture.left, &op, &address), CRPC_OK);
    memset(address, 1, 100);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 40), CRPC_OK);
    lines_of(fixture.left, fixture.left_endpoint);
    expect_order("call user_data 0x6, ", "40 bytes\n");
    assert_int_equal(fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST).payload_bytes, 40);
}

static void a_failed_endpoint_leaves_them_in_the_log(void **state)
{
    (void)state;
    crpc_log_entry entries[64];
    int32_t count, found = 0;
    fixture_request(9, "abc", 64);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, &info), CRPC_OK);
    memory_fabric_kill(memory_fabric_find(memory_fabric_default(), info.queue_pair_number));
    const crpc_op next = fixture_call_op(10); /* which shows it */
    assert_int_equal(fixture_submit(fixture.left, &next, NULL, 0), CRPC_OK);
    fixture_expect(fixture.left, CRPC_COMPLETION_DISCONNECTED);
    while ((count = crpc_context_log(fixture.left, entries, 64)) > 0) {
        for (int32_t i = 0; i < count; i++) {
            found += strstr(entries[i].message, "call user_data 0x9") != NULL;
            found += strstr(entries[i].message, "RESPONSE user_data 0x9") != NULL;
            found += strstr(entries[i].message, "DISCONNECTED user_data") != NULL;
        }
    }
    assert_int_equal(found, 3);
    assert_true(lines_of(fixture.left, fixture.left_endpoint) >=
                4); /* and they can still be read */
    assert_int_equal(crpc_endpoint_close(fixture.left, fixture.left_endpoint), CRPC_OK);
    assert_int_equal(
        crpc_endpoint_flight_records(fixture.left, fixture.left_endpoint, text, sizeof(text)),
        CRPC_E_STALE);
}

static void a_handle_that_is_used_again_begins_anew(void **state)
{
    (void)state;
    crpc_endpoint left, right;
    for (uint32_t i = 0; i < 100; i++) { /* more than there are slots at first */
        fixture_connect(NULL, &left, &right);
        assert_int_equal(lines_of(fixture.left, left), 1);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
        fixture_poll(fixture.left);
        fixture_poll(fixture.right);
    }
}

static void the_text_is_cut_where_there_is_no_room(void **state)
{
    (void)state;
    fixture_request(7, "abc", 64);
    lines_of(fixture.left, fixture.left_endpoint);
    const size_t all = strlen(text);
    for (size_t room = 1; room < 100; room++) {
        memset(text, 'x', sizeof(text));
        assert_true(crpc_endpoint_flight_records(fixture.left, fixture.left_endpoint, text, room) >=
                    (int64_t)all);
        assert_int_equal(strlen(text), room - 1);
        assert_int_equal(text[room], 'x');
    }
}

static void with_metrics_each_has_its_user_data(void **state)
{
    (void)state;
    const crpc_completion request = fixture_request(UINT64_MAX - 1, "abc", 64);
    assert_int_equal(fixture_reply(&request, "x", CRPC_OP_QUIET), CRPC_OK);
    fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    lines_of(fixture.left, fixture.left_endpoint);
    expect_order("call user_data 0xfffffffffffffffe,", "RESPONSE user_data 0xfffffffffffffffe,");
}

static void without_records_there_are_none(void **state)
{
    (void)state;
    assert_int_equal(
        crpc_endpoint_flight_records(fixture.left, fixture.left_endpoint, text, sizeof(text)),
        CRPC_E_STATE);
    assert_int_equal(crpc_endpoint_flight_records(NULL, fixture.left_endpoint, text, sizeof(text)),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_flight_records(fixture.left, fixture.left_endpoint, NULL, 1),
                     CRPC_E_INVALID);
    const crpc_context_options options = {.struct_size = sizeof(options), .flight_records = 65537};
    crpc_context *context;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_INVALID);
}

#define WITH(open, test) cmocka_unit_test_setup_teardown(test, open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(open_with_records, what_was_done_can_be_read),
        WITH(open_with_records, the_oldest_give_way),
        WITH(open_with_records, what_was_refused_is_there_too),
        WITH(open_with_records, places_that_were_reserved),
        WITH(open_with_records, a_failed_endpoint_leaves_them_in_the_log),
        WITH(open_with_records, a_handle_that_is_used_again_begins_anew),
        WITH(open_with_records, the_text_is_cut_where_there_is_no_room),
        WITH(open_with_both, with_metrics_each_has_its_user_data),
        WITH(fixture_open, without_records_there_are_none),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
