/* last_test.c: DISCONNECTED is the last completion of its connection, whatever was submitted before it and
 * after it, and however few completions a poll takes.
 */
#include <unistd.h>

#include "fixture.h"

#define POLLS 1000

static crpc_completion seen[32];
static uint32_t seen_count;

/* Polls the left side, `capacity` at a time, until it gives DISCONNECTED and nothing more. */
static void poll_to_the_end(uint32_t capacity)
{
    seen_count = 0;
    for (uint32_t i = 0, quiet = 0; quiet < 10; i++) {
        assert_in_range(i, 0, POLLS);
        int32_t count = crpc_poll(fixture.left, &seen[seen_count], capacity);
        assert_in_range(count, 0, capacity);
        seen_count += (uint32_t)count;
        assert_in_range(seen_count, 0, 16);
        bool over = seen_count > 0 && seen[seen_count - 1].kind == CRPC_COMPLETION_DISCONNECTED;
        quiet = over && count == 0 ? quiet + 1 : 0;
        if (!over && count == 0) {
            usleep(1000); /* the keepalive finds that the peer is gone */
        }
    }
}

static uint32_t count_of(uint8_t kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen_count; i++) {
        count += seen[i].kind == kind;
    }
    return count;
}

static void of_an_endpoint(void **state)
{
    (void)state;
    for (uint32_t capacity = 1; capacity <= 4; capacity++) {
        crpc_endpoint left, right;
        fixture_connect(NULL, &left, &right);
        crpc_op call = fixture_call_op(7);
        call.endpoint = left;
        crpc_op cancel = {.opcode = CRPC_OP_CANCEL, .endpoint = left, .user_data = 1, .token = 7};
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
        assert_int_equal(fixture_submit(fixture.left, &call, NULL, 0), CRPC_OK);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
        }
        poll_to_the_end(capacity);
        assert_int_equal(count_of(CRPC_COMPLETION_RESPONSE), 1);
        assert_int_equal(count_of(CRPC_COMPLETION_CANCEL), 3);
        assert_int_equal(count_of(CRPC_COMPLETION_DISCONNECTED), 1);
        assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_E_DISCONNECTED);
        assert_int_equal(fixture_poll(fixture.left), 0);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
    }
}

/* Without a poll, so that all of its completions are still to be given. */
static void wait_for_the_end(crpc_channel channel)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    for (uint32_t i = 0; info.state != CRPC_STATE_DISCONNECTED; i++) {
        assert_in_range(i, 0, POLLS);
        crpc_wait(fixture.left, 1000000);
        assert_int_equal(crpc_channel_get_info(fixture.left, channel, &info), CRPC_OK);
    }
}

static void of_a_channel(void **state)
{
    (void)state;
    static uint8_t buffer[64];
    for (uint32_t capacity = 1; capacity <= 4; capacity++) {
        crpc_channel left, right;
        int32_t reason;
        fixture_channels(NULL, &left, &right);
        crpc_channel_op receive = {.opcode = CRPC_CHANNEL_RECEIVE,
                                   .channel = left,
                                   .address = (uint64_t)(uintptr_t)buffer,
                                   .bytes = sizeof(buffer)};
        crpc_channel_op cancel = {
            .opcode = CRPC_CHANNEL_CANCEL, .channel = left, .user_data = 1, .token = 8};
        assert_int_equal(crpc_channel_close(fixture.right, right), CRPC_OK);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(crpc_channel_submit(fixture.left, &cancel, 1, &reason), 1);
        }
        assert_int_equal(crpc_channel_submit(fixture.left, &receive, 1, &reason), 1);
        wait_for_the_end(left);
        poll_to_the_end(capacity);
        assert_int_equal(count_of(CRPC_COMPLETION_RECEIVED), 1);
        assert_int_equal(count_of(CRPC_COMPLETION_CANCEL), 3);
        assert_int_equal(count_of(CRPC_COMPLETION_DISCONNECTED), 1);
        assert_int_equal(crpc_channel_submit(fixture.left, &cancel, 1, &reason), 0);
        assert_int_equal(reason, CRPC_E_DISCONNECTED);
        assert_int_equal(fixture_poll(fixture.left), 0);
        assert_int_equal(crpc_channel_close(fixture.left, left), CRPC_OK);
    }
}

/* What was accepted before a close completes, though there is no DISCONNECTED. */
static void cancels_complete_after_a_close(void **state)
{
    (void)state;
    crpc_op cancel = {
        .opcode = CRPC_OP_CANCEL, .endpoint = fixture.left_endpoint, .user_data = 1, .token = 7};
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    assert_int_equal(crpc_endpoint_close(fixture.left, fixture.left_endpoint), CRPC_OK);
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_E_STALE);
    assert_int_equal(fixture_poll(fixture.left), 1);
    assert_int_equal(fixture.completions[0].kind, CRPC_COMPLETION_CANCEL);
    assert_int_equal(fixture.completions[0].endpoint.bits, fixture.left_endpoint.bits);
    assert_int_equal(fixture_poll(fixture.left), 0);
}

int main(void)
{
#define WITH(test, open) cmocka_unit_test_setup_teardown(test, open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH(of_an_endpoint, fixture_open),
        WITH(of_a_channel, fixture_open_with_rails),
        WITH(cancels_complete_after_a_close, fixture_open),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
