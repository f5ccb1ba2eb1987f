/* channel_test.c: channels as a program uses them: messages and their ends, memory, sleeping, calls
 * beside them. What the engine does when rails fail is tested below it, in core/channel/tests.
 */
#include <poll.h>
#include <stdlib.h>

#include "fixture.h"

#define LARGE (1u << 20)

static crpc_channel left, right;
static uint8_t *out, *in; /* LARGE bytes each, without regions */

static int open_channels(void **state)
{
    /* Without probes nothing but a message wakes a sleeper. */
    crpc_channel_options options = {.struct_size = sizeof(options),
                                    .user_data = 4712,
                                    .slots = 3,
                                    .sends_max = 16,
                                    .keepalive_ns = CRPC_FOREVER};
    int failed = fixture_open_with_rails(state);
    out = malloc(LARGE);
    in = calloc(1, LARGE);
    assert_true(out && in);
    for (uint32_t i = 0; i < LARGE; i++) {
        out[i] = (uint8_t)(i * 7 + i / 256);
    }
    fixture_channels(&options, &left, &right);
    return failed;
}

static int close_channels(void **state)
{
    int failed = fixture_close(state); /* whatever is still open */
    free(out);
    free(in);
    return failed;
}

static crpc_channel_op op_of(uint8_t opcode, void *buffer, uint64_t bytes, uint64_t user_data)
{
    return (crpc_channel_op){.opcode = opcode,
                             .channel = opcode == CRPC_CHANNEL_RECEIVE ? right : left,
                             .user_data = user_data,
                             .address = (uint64_t)(uintptr_t)buffer,
                             .bytes = bytes};
}

/* Receives are posted at the right, all else at the left. */
static int32_t submit(const crpc_channel_op *ops, uint32_t count)
{
    crpc_context *context = ops[0].opcode == CRPC_CHANNEL_RECEIVE ? fixture.right : fixture.left;
    int32_t reason = 12345;
    int32_t taken = crpc_channel_submit(context, ops, count, &reason);
    assert_int_equal(taken, reason == CRPC_OK ? count : 0);
    return reason;
}

static void receive(void *buffer, uint64_t bytes, uint64_t user_data)
{
    crpc_channel_op op = op_of(CRPC_CHANNEL_RECEIVE, buffer, bytes, user_data);
    assert_int_equal(submit(&op, 1), CRPC_OK);
}

static void send(void *buffer, uint64_t bytes, uint64_t user_data)
{
    crpc_channel_op op = op_of(CRPC_CHANNEL_SEND, buffer, bytes, user_data);
    assert_int_equal(submit(&op, 1), CRPC_OK);
}

static crpc_completion sent(void)
{
    return fixture_await(fixture.left, CRPC_COMPLETION_SENT);
}

static crpc_completion received(void)
{
    return fixture_await(fixture.right, CRPC_COMPLETION_RECEIVED);
}

static void nothing_more_comes(void)
{
    for (int i = 0; i < 20; i++) {
        fixture_pump();
    }
    assert_int_equal(fixture.kept_count[0], 0);
    assert_int_equal(fixture.kept_count[1], 0);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void a_message_and_its_completions(void **state)
{
    (void)state;
    for (uint64_t number = 0; number < 10; number++) {
        receive(in, 100, 50 + number);
        send(out, 64 + number, 90 + number);
        crpc_completion there = received(), here = sent();
        assert_int_equal(there.flags, CRPC_COMPLETION_OF_CHANNEL);
        assert_int_equal(there.status, CRPC_OK);
        assert_int_equal(there.endpoint.bits, right.bits);
        assert_int_equal(there.user_data, 50 + number);
        assert_int_equal(there.token, number);
        assert_int_equal(there.payload, (uintptr_t)in);
        assert_int_equal(there.payload_bytes, 64 + number);
        assert_int_equal(there.endpoint_user_data, 4712);
        assert_memory_equal(in, out, 64 + number);
        assert_int_equal(here.flags, CRPC_COMPLETION_OF_CHANNEL);
        assert_int_equal(here.status, CRPC_OK);
        assert_int_equal(here.endpoint.bits, left.bits);
        assert_int_equal(here.user_data, 90 + number);
        assert_int_equal(here.token, number);
        assert_int_equal(here.payload, (uintptr_t)out);
        assert_int_equal(here.payload_bytes, 64 + number);
        assert_int_equal(here.endpoint_user_data, 4712);
    }
    nothing_more_comes();
}

static void a_large_message_takes_both_rails(void **state)
{
    (void)state;
    crpc_channel_info info = {.struct_size = sizeof(info)};
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_channel_get_info(fixture.left, left, &info), CRPC_OK);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(info.slots, 4);
    assert_int_equal(info.rail_state[0], CRPC_RAIL_UP);
    assert_int_equal(info.rail_state[1], CRPC_RAIL_UP);
    receive(in, LARGE, 1);
    send(out, LARGE, 1);
    assert_int_equal(received().payload_bytes, LARGE);
    assert_memory_equal(in, out, LARGE);
    sent();
    assert_int_equal(crpc_channel_get_stats(fixture.left, left, &stats), CRPC_OK);
    assert_true(stats.rail_bytes_sent[0] > LARGE / 4 && stats.rail_bytes_sent[1] > LARGE / 4);

    /* Until the application says otherwise. */
    assert_int_equal(crpc_channel_set_share(fixture.left, left, 1024), CRPC_OK);
    const uint64_t before = stats.rail_bytes_sent[1];
    memset(in, 0, LARGE);
    receive(in, LARGE, 2);
    send(out, LARGE, 2);
    received();
    assert_memory_equal(in, out, LARGE);
    assert_int_equal(crpc_channel_get_stats(fixture.left, left, &stats), CRPC_OK);
    assert_int_equal(stats.rail_bytes_sent[1], before);
}

static void a_group_is_filled_by_tag(void **state)
{
    (void)state;
    crpc_channel_op receives[3], sends[3];
    for (uint32_t i = 0; i < 3; i++) {
        receives[i] = op_of(CRPC_CHANNEL_RECEIVE, in + 1000 * i, 1000, i);
        receives[i].tag = 10 + i;
        receives[i].flags = i < 2 ? CRPC_CHANNEL_MORE : 0;
        sends[i] = op_of(CRPC_CHANNEL_SEND, out + 1000 * i, 500 + i, i);
        sends[i].tag = 12 - i; /* the other way round */
    }
    assert_int_equal(submit(receives, 3), CRPC_OK);
    assert_int_equal(submit(sends, 2), CRPC_OK);
    nothing_more_comes();
    assert_int_equal(submit(&sends[2], 1), CRPC_OK);
    for (uint32_t i = 0; i < 3; i++) {
        crpc_completion there = received();
        assert_int_equal(there.user_data, i);
        assert_int_equal(there.token, 0); /* one message */
        assert_int_equal(there.payload_bytes, 502 - i);
        assert_memory_equal(in + 1000 * i, out + 1000 * (2 - i), 502 - i);
        sent();
    }
    nothing_more_comes();
}

static void of_a_series_a_prefix_is_taken(void **state)
{
    (void)state;
    int32_t reason;
    crpc_channel_op ops[6];
    for (uint32_t i = 0; i < 6; i++) {
        ops[i] = op_of(CRPC_CHANNEL_RECEIVE, in, 100, i);
    }
    ops[1].flags = CRPC_CHANNEL_MORE; /* 0 alone, 1 and 2 together, 3 alone, then half a group */
    ops[4].flags = CRPC_CHANNEL_MORE;
    ops[5].opcode = CRPC_CHANNEL_SEND;
    assert_int_equal(crpc_channel_submit(fixture.right, ops, 6, &reason), 4);
    assert_int_equal(reason, CRPC_E_INVALID);
    crpc_channel_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_channel_get_info(fixture.right, right, &info), CRPC_OK);
    assert_int_equal(info.receives_open, 4);
}

static void slots_are_used_up_and_come_back(void **state)
{
    (void)state;
    crpc_channel_op op = op_of(CRPC_CHANNEL_RECEIVE, in, 100, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(submit(&op, 1), CRPC_OK);
    }
    assert_int_equal(submit(&op, 1), CRPC_E_AGAIN);
    send(out, 10, 1);
    received();
    crpc_completion room = fixture_await(fixture.right, CRPC_COMPLETION_ROOM);
    assert_int_equal(room.endpoint.bits, right.bits);
    assert_int_equal(room.flags, CRPC_COMPLETION_OF_CHANNEL);
    assert_int_equal(submit(&op, 1), CRPC_OK);
}

static void too_long_for_its_buffer(void **state)
{
    (void)state;
    receive(in, 10, 1);
    send(out, 11, 2);
    crpc_completion there = received(), here = sent();
    assert_int_equal(there.status, CRPC_E_TRUNCATED);
    assert_int_equal(there.payload_bytes, 11);
    assert_int_equal(here.status, CRPC_E_TRUNCATED);
    receive(in, 10, 3); /* the channel goes on */
    send(out, 10, 4);
    assert_int_equal(received().status, CRPC_OK);
    assert_int_equal(sent().status, CRPC_OK);
}

static void sends_that_wait_can_be_ended(void **state)
{
    (void)state;
    crpc_channel_op cancel = op_of(CRPC_CHANNEL_CANCEL, NULL, 0, 99);
    crpc_channel_op late = op_of(CRPC_CHANNEL_SEND, out, 10, 8);
    cancel.token = 7;
    late.timeout_ns = 5000000;
    send(out, 10, 7);
    send(out, 10, 7);
    assert_int_equal(submit(&late, 1), CRPC_OK);
    assert_int_equal(submit(&cancel, 1), CRPC_OK);
    for (int i = 0; i < 2; i++) {
        crpc_completion ended = sent();
        assert_int_equal(ended.user_data, 7);
        assert_int_equal(ended.status, CRPC_E_CANCELED);
    }
    crpc_completion canceled = fixture_await(fixture.left, CRPC_COMPLETION_CANCEL);
    assert_int_equal(canceled.token, 2);
    assert_int_equal(canceled.user_data, 99);
    assert_int_equal(canceled.flags, CRPC_COMPLETION_OF_CHANNEL);
    crpc_completion ended = sent();
    assert_int_equal(ended.user_data, 8);
    assert_int_equal(ended.status, CRPC_E_TIMEOUT);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void a_region_in_use_stays(void **state)
{
    (void)state;
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    crpc_region region;
    crpc_channel_op op = op_of(CRPC_CHANNEL_RECEIVE, in, 100, 1);
    assert_int_equal(crpc_region_register(fixture.right, in, LARGE, access, &region, NULL),
                     CRPC_OK);
    op.region = region;
    assert_int_equal(submit(&op, 1), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.right, region), CRPC_E_BUSY);
    send(out, 100, 1);
    received();
    assert_int_equal(crpc_region_deregister(fixture.right, region), CRPC_OK);
    assert_int_equal(submit(&op, 1), CRPC_E_STALE);
}

static void plain_memory_is_registered_once(void **state)
{
    (void)state;
    crpc_cache_info info = {.struct_size = sizeof(info)};
    for (int i = 0; i < 5; i++) {
        receive(in, 100, 1);
        send(out, 100, 1);
        received();
        sent();
    }
    assert_int_equal(crpc_cache_get_info(fixture.right, &info), CRPC_OK);
    assert_int_equal(info.registrations, 1);
    assert_int_equal(info.misses, 1);
    assert_int_equal(info.hits, 4);
    receive(in, 100, 1);
    assert_int_equal(crpc_cache_forget(fixture.right, in + 50, 1), CRPC_E_BUSY);
    send(out, 100, 1);
    received();
    assert_int_equal(crpc_cache_forget(fixture.right, in + 50, 1), 1);
    assert_int_equal(crpc_cache_forget(fixture.right, NULL, 0), 0);
}

/* What it made of it must not stay in the cache as it is: ops over both rails would be refused. */
static void a_rail_that_cannot_register_plain_memory_for_a_moment(void **state)
{
    (void)state;
    for (uint32_t nth = 1; nth <= 2; nth++) {
        memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, nth,
                                   CRPC_E_NO_RESOURCE);
        crpc_channel_op op = op_of(CRPC_CHANNEL_RECEIVE, in, 100, nth);
        assert_int_equal(submit(&op, 1), CRPC_OK);
        send(out, 100, nth);
        assert_int_equal(received().status, CRPC_OK);
        assert_int_equal(sent().status, CRPC_OK);
        assert_memory_equal(in, out, 100);
        assert_int_equal(crpc_cache_forget(fixture.right, NULL, 0), 1);
    }
}

/* Each buffer of the group is registered for itself, and the cache is full of others. */
static void a_group_does_not_throw_out_its_own_memory(void **state)
{
    (void)state;
    crpc_cache_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_cache_get_info(fixture.right, &info), CRPC_OK);
    const uint64_t step = 1u << 16, count = info.registrations_max + 8;
    uint8_t *pages = aligned_alloc(step, step * count);
    assert_non_null(pages);
    for (uint64_t i = 0; i < count; i += 8) {
        crpc_channel_op ops[8];
        for (uint64_t j = 0; j < 8; j++) {
            ops[j] = op_of(CRPC_CHANNEL_RECEIVE, pages + (i + j) * step, 64, j);
            ops[j].flags = j < 7 ? CRPC_CHANNEL_MORE : 0;
        }
        assert_int_equal(submit(ops, 8), CRPC_OK);
        for (uint64_t j = 0; j < 8; j++) {
            send(out + j, 64, j);
        }
        for (uint64_t j = 0; j < 8; j++) {
            assert_int_equal(received().status, CRPC_OK);
            assert_int_equal(sent().status, CRPC_OK);
            assert_memory_equal(pages + (i + j) * step, out + j, 64);
        }
    }
    assert_int_equal(crpc_cache_get_info(fixture.right, &info), CRPC_OK);
    assert_true(info.evictions > 0);
    free(pages);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void close_ends_what_is_open(void **state)
{
    (void)state;
    receive(in, 100, 1);
    receive(in, 100, 2);
    assert_int_equal(crpc_channel_close(fixture.right, right), CRPC_OK);
    for (uint64_t i = 1; i <= 2; i++) {
        crpc_completion ended = received();
        assert_int_equal(ended.user_data, i);
        assert_int_equal(ended.status, CRPC_E_CLOSED);
        assert_int_equal(ended.endpoint.bits, right.bits);
    }
    assert_int_equal(crpc_cache_forget(fixture.right, NULL, 0), 1);
    crpc_channel_op op = op_of(CRPC_CHANNEL_RECEIVE, in, 100, 1);
    assert_int_equal(submit(&op, 1), CRPC_E_STALE);
}

static void both_take_leave(void **state)
{
    (void)state;
    receive(in, 100, 1);
    receive(in, 100, 2);
    fixture_pump();
    send(out, 100, 1);
    assert_int_equal(crpc_channel_disconnect(fixture.left, left, CRPC_FOREVER), CRPC_OK);
    crpc_channel_op op = op_of(CRPC_CHANNEL_SEND, out, 1, 1);
    assert_int_equal(submit(&op, 1), CRPC_E_CLOSING);
    assert_int_equal(received().status, CRPC_OK);
    assert_int_equal(sent().status, CRPC_OK);
    /* It may have ended already, since the left has gone. */
    int32_t status = crpc_channel_disconnect(fixture.right, right, CRPC_FOREVER);
    assert_true(status == CRPC_OK || status == CRPC_E_STATE);
    crpc_completion end = fixture_await(fixture.left, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(end.status, CRPC_OK);
    assert_int_equal(end.flags, CRPC_COMPLETION_OF_CHANNEL);
    end = fixture_await(fixture.right, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(end.status, CRPC_OK);
    crpc_completion unused = received();
    assert_int_equal(unused.user_data, 2);
    assert_int_equal(unused.status, CRPC_E_DISCONNECTED);
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_channel_get_error(fixture.left, left, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_OK);
    assert_int_equal(submit(&op, 1), CRPC_E_DISCONNECTED);
}

static void the_context_may_close_over_open_ops(void **state)
{
    (void)state; /* the teardown looks for what is left */
    crpc_region region;
    assert_int_equal(crpc_region_register(fixture.left, out, LARGE, 0, &region, NULL), CRPC_OK);
    crpc_channel_op op = op_of(CRPC_CHANNEL_SEND, out, LARGE, 1);
    op.region = region;
    assert_int_equal(submit(&op, 1), CRPC_OK);
    receive(in, 100, 1);
    receive(in, 100, 1);
}

static void a_failure_at_any_step_leaves_nothing_behind(void **state)
{
    (void)state;
    struct memory_fabric *fabric = memory_fabric_default();
    const struct memory_fabric_counters *counters = memory_fabric_counters(fabric);
    const uint64_t regions = counters->regions, queue_pairs = counters->queue_pairs;
    const enum memory_failure kinds[] = {MEMORY_FAIL_REGISTER, MEMORY_FAIL_CREATE};
    for (size_t i = 0; i < 2; i++) {
        uint32_t failed = 0;
        for (uint32_t nth = 1;; nth++) {
            crpc_channel channel;
            crpc_error error = {.struct_size = sizeof(error)};
            uint8_t blob[CRPC_BLOB_BYTES_MAX];
            uint32_t bytes = sizeof(blob);
            memory_fabric_set_failures(fabric, kinds[i], nth, CRPC_E_NO_RESOURCE);
            int32_t status = crpc_channel_blob(fixture.left, NULL, &channel, blob, &bytes, &error);
            if (status == CRPC_OK) {
                assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_OK);
            } else {
                assert_int_equal(status, CRPC_E_NO_RESOURCE);
                assert_true(strlen(error.message) > 10);
                failed++;
            }
            assert_int_equal(counters->regions, regions);
            assert_int_equal(counters->queue_pairs, queue_pairs);
            if (memory_fabric_failure_pending(fabric, kinds[i])) {
                memory_fabric_set_failures(fabric, kinds[i], 0, 0);
                break;
            }
        }
        assert_true(failed > 0);
    }
}

/* ---- Polling and sleeping, calls beside ------------------------------------------------------ */

static void a_sleeper_wakes_for_a_message(void **state)
{
    (void)state;
    struct pollfd readable = {.fd = crpc_context_fd(fixture.right), .events = POLLIN};
    for (int i = 0; i < 50; i++) {
        receive(in, 100, 1);
        fixture_pump();
        assert_int_equal(crpc_wait(fixture.right, 0), CRPC_E_TIMEOUT);
        send(out, 100, 1);
        crpc_wait(fixture.left, 0); /* sends it */
        assert_int_equal(crpc_wait(fixture.right, 5000000000), CRPC_OK);
        received();
        sent();
    }
    for (int i = 0; i < 50; i++) {
        receive(in, 100, 1);
        /* The binds may have raised the event of a rail that is armed since the last message. */
        do {
            fixture_pump();
            assert_int_equal(crpc_context_arm(fixture.right), CRPC_OK);
        } while (poll(&readable, 1, 0) != 0);
        send(out, 100, 1);
        crpc_wait(fixture.left, 0);
        assert_int_equal(poll(&readable, 1, 1000), 1);
        received();
        sent();
    }
}

static void a_sleeper_wakes_for_a_deadline(void **state)
{
    (void)state;
    crpc_channel_op op = op_of(CRPC_CHANNEL_SEND, out, 10, 8);
    op.timeout_ns = 20000000;
    assert_int_equal(submit(&op, 1), CRPC_OK);
    crpc_completion completion;
    int waits = 0;
    do {
        assert_int_equal(crpc_wait(fixture.left, 5000000000), CRPC_OK);
        waits++;
    } while (crpc_poll(fixture.left, &completion, 1) == 0);
    assert_int_equal(completion.status, CRPC_E_TIMEOUT);
    assert_true(waits < 1000); /* it slept between */
}

/* With room for one completion, and many of both. */
static void neither_calls_nor_channels_starve(void **state)
{
    (void)state;
    crpc_completion completion;
    crpc_op cancel = {.opcode = CRPC_OP_CANCEL, .endpoint = fixture.left_endpoint, .token = 1};
    crpc_channel_op cancel_sends = op_of(CRPC_CHANNEL_CANCEL, NULL, 0, 1);
    uint32_t of_calls = 0, of_channels = 0;
    for (int i = 0; i < 16; i++) {
        crpc_op op = fixture_call_op(1);
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
        send(out, 10, 1);
    }
    assert_int_equal(fixture_submit(fixture.left, &cancel, NULL, 0), CRPC_OK);
    cancel_sends.token = 1;
    assert_int_equal(submit(&cancel_sends, 1), CRPC_OK);
    for (int i = 0; i < 2 * 17; i++) { /* the cancels have completions, too */
        assert_int_equal(crpc_poll(fixture.left, &completion, 1), 1);
        if (completion.flags & CRPC_COMPLETION_OF_CHANNEL) {
            of_channels++;
        } else {
            of_calls++;
        }
        assert_in_range(of_calls - of_channels, 0, 1);
    }
    assert_int_equal(of_calls, 17);
    assert_int_equal(crpc_poll(fixture.left, &completion, 1), 0);
}

/* A view is valid until the next poll, whichever side that poll serves first. */
static void views_end_when_channels_fill_the_array(void **state)
{
    (void)state;
    crpc_completion request, other;
    char text[8];
    crpc_op op = fixture_call_op(1);
    op.payload_bytes = 5;
    assert_int_equal(fixture_submit(fixture.left, &op, "hello", 5), CRPC_OK);
    receive(in, 100, 1);
    assert_int_equal(crpc_channel_close(fixture.right, right), CRPC_OK); /* gives CLOSED */
    assert_int_equal(crpc_poll(fixture.right, &request, 1), 1);
    assert_int_equal(request.kind, CRPC_COMPLETION_REQUEST);
    assert_int_equal(crpc_retain(fixture.right, &request, text, sizeof(text)), 5);
    assert_int_equal(crpc_poll(fixture.right, &other, 1), 1);
    assert_int_equal(other.kind, CRPC_COMPLETION_RECEIVED);
    assert_int_equal(crpc_retain(fixture.right, &request, text, sizeof(text)), CRPC_E_STALE);
    assert_int_equal(crpc_retain(fixture.right, &other, text, sizeof(text)), CRPC_E_STALE);
}

int main(void)
{
#define WITH_CHANNELS(test) cmocka_unit_test_setup_teardown(test, open_channels, close_channels)
    const struct CMUnitTest tests[] = {
        WITH_CHANNELS(a_message_and_its_completions),
        WITH_CHANNELS(a_large_message_takes_both_rails),
        WITH_CHANNELS(a_group_is_filled_by_tag),
        WITH_CHANNELS(of_a_series_a_prefix_is_taken),
        WITH_CHANNELS(slots_are_used_up_and_come_back),
        WITH_CHANNELS(too_long_for_its_buffer),
        WITH_CHANNELS(sends_that_wait_can_be_ended),
        WITH_CHANNELS(a_region_in_use_stays),
        WITH_CHANNELS(plain_memory_is_registered_once),
        WITH_CHANNELS(a_rail_that_cannot_register_plain_memory_for_a_moment),
        WITH_CHANNELS(a_group_does_not_throw_out_its_own_memory),
        WITH_CHANNELS(close_ends_what_is_open),
        WITH_CHANNELS(both_take_leave),
        WITH_CHANNELS(the_context_may_close_over_open_ops),
        WITH_CHANNELS(a_failure_at_any_step_leaves_nothing_behind),
        WITH_CHANNELS(a_sleeper_wakes_for_a_message),
        WITH_CHANNELS(a_sleeper_wakes_for_a_deadline),
        WITH_CHANNELS(neither_calls_nor_channels_starve),
        WITH_CHANNELS(views_end_when_channels_fill_the_array),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
