/* behaviour_test.c: the public API as a program uses it: calls and their ends, views, writing in place.
 */
#include <time.h>

#include "fixture.h"

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const void *view(const crpc_completion *completion)
{
    return (const void *)(uintptr_t)completion->payload;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void a_call_and_its_reply(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(42);
    op.method = 17;
    op.payload_bytes = 5;
    assert_int_equal(fixture_submit(fixture.left, &op, "hello", 5), CRPC_OK);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.method, 17);
    assert_int_equal(request.payload_bytes, 5);
    assert_int_equal(request.reply_bytes_max, 64);
    assert_int_equal(request.endpoint.bits, fixture.right_endpoint.bits);
    assert_int_equal(request.endpoint_user_data, 4711);
    assert_int_equal(request.user_data, 0); /* no deadline */
    assert_int_equal(request.payload % 16, 0);
    assert_memory_equal(view(&request), "hello", 5);
    assert_int_equal(fixture_reply(&request, "world!", 0), CRPC_OK);
    crpc_completion response = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.user_data, 42);
    assert_int_equal(response.method, 17);
    assert_int_equal(response.status, CRPC_OK);
    assert_int_equal(response.endpoint_user_data, 4711);
    assert_memory_equal(view(&response), "world!", 6);
    crpc_completion sent = fixture_expect(fixture.right, CRPC_COMPLETION_REPLY);
    assert_int_equal(sent.user_data, 900);
    assert_int_equal(sent.token, request.token);
    assert_int_equal(sent.status, CRPC_OK);
    assert_int_equal(fixture_reply(&request, "again", 0), CRPC_E_STALE);
}

static void a_reply_longer_than_allowed_leaves_the_request_open(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "q", 3);
    assert_int_equal(request.reply_bytes_max, 3);
    assert_int_equal(fixture_reply(&request, "four", 0), CRPC_E_TOO_BIG);
    assert_int_equal(fixture_reply(&request, "yes", 0), CRPC_OK);
}

static void drop_and_status(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "q", 3);
    crpc_op op = {.opcode = CRPC_OP_DROP,
                  .endpoint = fixture.right_endpoint,
                  .user_data = 5,
                  .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &op, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status, CRPC_E_DROPPED);
    assert_int_equal(fixture_expect(fixture.right, CRPC_COMPLETION_REPLY).user_data, 5);
    request = fixture_request(2, "q", 3);
    op = (crpc_op){.opcode = CRPC_OP_REPLY,
                   .flags = CRPC_OP_QUIET,
                   .status = INT32_MAX,
                   .endpoint = fixture.right_endpoint,
                   .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &op, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status, INT32_MAX);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_poll(fixture.right), 0); /* quiet */
    }
}

static void cancel_by_user_data(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    }
    op.user_data = 8;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    crpc_op cancel = {
        .opcode = CRPC_OP_CANCEL, .endpoint = fixture.left_endpoint, .user_data = 99, .token = 7};
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_poll(fixture.left), 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture.completions[i].user_data, 7);
        assert_int_equal(fixture.completions[i].status, CRPC_E_CANCELED);
    }
    assert_int_equal(fixture.completions[3].kind, CRPC_COMPLETION_CANCEL);
    assert_int_equal(fixture.completions[3].token, 3);
    assert_int_equal(fixture.completions[3].user_data, 99);
    assert_int_equal(fixture.completions[4].status, CRPC_E_NOT_FOUND);
}

/* A server hears how long a caller waits, and that it waits no more: until then there is time to say that nothing was done. */
static void a_server_hears_of_its_callers(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(1);
    op.timeout_ns = UINT64_C(60000000000);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_in_range(request.user_data, op.timeout_ns, op.timeout_ns + op.timeout_ns / 128);
    assert_int_equal(request.endpoint_user_data, 4711);
    crpc_op cancel = {
        .opcode = CRPC_OP_CANCEL, .endpoint = fixture.left_endpoint, .token = op.user_data};
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status,
                     CRPC_E_CANCELED);
    /* Who sleeps now sends it first. */
    assert_int_equal(crpc_wait(fixture.left, 0), CRPC_E_TIMEOUT);
    crpc_completion told = fixture_expect(fixture.right, CRPC_COMPLETION_ABANDONED);
    assert_int_equal(told.token, request.token);
    assert_int_equal(told.status, CRPC_E_CANCELED);
    assert_int_equal(told.endpoint.bits, fixture.right_endpoint.bits);
    assert_int_equal(fixture_reply(&request, "late", 0), CRPC_OK);

    request = fixture_request(2, "q", 3);
    assert_int_equal(request.user_data, 0);
    crpc_op drop = {.opcode = CRPC_OP_DROP,
                    .status = CRPC_E_NOT_STARTED,
                    .endpoint = fixture.right_endpoint,
                    .token = request.token};
    assert_int_equal(fixture_submit(fixture.right, &drop, NULL, 0), CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).status,
                     CRPC_E_NOT_STARTED);
    request = fixture_request(3, "q", 3);
    drop.token = request.token;
    drop.status = CRPC_E_TIMEOUT; /* it says that this side ended the call */
    assert_int_equal(fixture_submit(fixture.right, &drop, NULL, 0), CRPC_E_INVALID);
    drop.status = 1;
    assert_int_equal(fixture_submit(fixture.right, &drop, NULL, 0), CRPC_E_INVALID);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, &info), CRPC_OK);
    assert_int_equal(info.features, 0x6); /* docs/wire.md: deadlines and traces */
}

static void a_deadline_is_never_early(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(1);
    op.timeout_ns = 20000000;
    uint64_t begun = now_ns();
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    do {
        assert_int_equal(crpc_wait(fixture.left, 1000000000), CRPC_OK);
    } while (fixture_poll(fixture.left) == 0);
    assert_true(now_ns() - begun >= 20000000);
    assert_int_equal(fixture.completions[0].status, CRPC_E_TIMEOUT);
    /* The late reply is swallowed. */
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(fixture_reply(&request, "late", 0), CRPC_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_poll(fixture.left), 0);
    }
    crpc_stats stats = {.struct_size = sizeof(stats)};
    crpc_context_get_stats(fixture.left, &stats);
    assert_int_equal(stats.late_responses, 1);
}

static void close_and_disconnect_complete_what_is_pending(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(5);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    }
    assert_int_equal(crpc_endpoint_close(fixture.left, fixture.left_endpoint), CRPC_OK);
    assert_int_equal(fixture_poll(fixture.left), 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fixture.completions[i].status, CRPC_E_CLOSED);
        assert_int_equal(fixture.completions[i].endpoint.bits, fixture.left_endpoint.bits);
    }
    assert_int_equal(fixture_poll(fixture.left), 0);
}

static void both_sides_take_leave(void **state)
{
    (void)state;
    crpc_completion request = fixture_request(1, "q", 3);
    assert_int_equal(crpc_endpoint_disconnect(fixture.left, fixture.left_endpoint, CRPC_FOREVER),
                     CRPC_OK);
    crpc_op op = fixture_call_op(2);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_CLOSING);
    fixture_poll(fixture.right);
    assert_int_equal(fixture_reply(&request, "bye", 0), CRPC_OK); /* still answered */
    int ends[2] = {0}, responses = 0;
    for (int i = 0; i < 50; i++) {
        crpc_context *const contexts[2] = {fixture.left, fixture.right};
        for (int side = 0; side < 2; side++) {
            fixture_poll(contexts[side]);
            for (int32_t j = 0; j < fixture.count; j++) {
                assert_int_equal(fixture.completions[j].status, CRPC_OK);
                ends[side] += fixture.completions[j].kind == CRPC_COMPLETION_DISCONNECTED;
                responses += fixture.completions[j].kind == CRPC_COMPLETION_RESPONSE;
            }
        }
    }
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 1);
    assert_int_equal(responses, 1);
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_endpoint_get_error(fixture.left, fixture.left_endpoint, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_OK);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, &info), CRPC_OK);
    assert_int_equal(info.state, CRPC_STATE_DISCONNECTED);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_E_DISCONNECTED);
}

/* ---- Views ----------------------------------------------------------------------------------- */

static void retain_copies_a_view_while_it_lives(void **state)
{
    (void)state;
    char buffer[16] = "";
    crpc_completion request = fixture_request(1, "hello", 3);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, 4), CRPC_E_TOO_BIG);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, sizeof(buffer)), 5);
    assert_string_equal(buffer, "hello");
    assert_int_equal(crpc_retain(fixture.left, &request, buffer, 16), CRPC_E_STALE);

    crpc_completion forged = request; /* a caller that tampers reads nothing but its own ring */
    forged.payload -= 1 << 20;
    assert_int_equal(crpc_retain(fixture.right, &forged, buffer, 16), CRPC_E_STALE);
    forged = request;
    forged.payload_bytes = 1 << 24;
    assert_int_equal(crpc_retain(fixture.right, &forged, buffer, UINT64_MAX), CRPC_E_STALE);
    forged = request;
    forged.view++;
    assert_int_equal(crpc_retain(fixture.right, &forged, buffer, 16), CRPC_E_STALE);

    fixture_poll(fixture.right);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, 16), CRPC_E_STALE);
    request = fixture_request(2, "again", 3);
    crpc_endpoint_close(fixture.right, fixture.right_endpoint);
    assert_int_equal(crpc_retain(fixture.right, &request, buffer, 16), CRPC_E_STALE);
    assert_memory_equal(view(&request), "again", 5); /* but the memory stays until the next poll */
}

static void reserve_commit_abort(void **state)
{
    (void)state;
    void *place, *other;
    crpc_op op = fixture_call_op(3);
    op.payload_bytes = 100;
    assert_int_equal(crpc_reserve(fixture.left, &op, &place), CRPC_OK);
    assert_int_equal((uintptr_t)place % 16, 0);
    assert_int_equal(crpc_reserve(fixture.left, &op, &other), CRPC_E_BUSY);
    crpc_op call = fixture_call_op(4);
    assert_int_equal(fixture_submit(fixture.left, &call, NULL, 0), CRPC_E_BUSY);
    memset(place, 'a', 100);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 101), CRPC_E_TOO_BIG);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 61), CRPC_OK);
    assert_int_equal(crpc_commit(fixture.left, fixture.left_endpoint, 1), CRPC_E_STATE);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.payload_bytes, 61);
    for (int i = 0; i < 61; i++) {
        assert_int_equal(((const char *)view(&request))[i], 'a');
    }
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .endpoint = fixture.right_endpoint,
                     .token = request.token,
                     .payload_bytes = 16};
    assert_int_equal(crpc_reserve(fixture.right, &reply, &place), CRPC_OK);
    assert_int_equal(crpc_abort(fixture.right, fixture.right_endpoint), CRPC_OK);
    assert_int_equal(crpc_abort(fixture.right, fixture.right_endpoint), CRPC_E_STATE);
    assert_int_equal(crpc_reserve(fixture.right, &reply, &place), CRPC_OK);
    memcpy(place, "0123456789abcdef", 16);
    assert_int_equal(crpc_commit(fixture.right, fixture.right_endpoint, 16), CRPC_OK);
    crpc_completion response = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.user_data, 3);
    assert_memory_equal(view(&response), "0123456789abcdef", 16);
    op.opcode = CRPC_OP_CANCEL;
    op.payload_bytes = 0;
    op.reply_bytes_max = 0;
    assert_int_equal(crpc_reserve(fixture.left, &op, &place), CRPC_E_UNSUPPORTED);
}

int main(void)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(a_call_and_its_reply),
        WITH_FIXTURE(a_reply_longer_than_allowed_leaves_the_request_open),
        WITH_FIXTURE(drop_and_status),
        WITH_FIXTURE(cancel_by_user_data),
        WITH_FIXTURE(a_server_hears_of_its_callers),
        WITH_FIXTURE(a_deadline_is_never_early),
        WITH_FIXTURE(close_and_disconnect_complete_what_is_pending),
        WITH_FIXTURE(both_sides_take_leave),
        WITH_FIXTURE(retain_copies_a_view_while_it_lives),
        WITH_FIXTURE(reserve_commit_abort),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
