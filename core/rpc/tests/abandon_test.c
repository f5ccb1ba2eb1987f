/* abandon_test.c: requests that say how long their callers wait, calls that end early and are told of, and requests that are let go before
 * anything was done. With a peer that is older, all is as it was.
 */
#include <stdlib.h>

#include "malformed.h"
#include "pair.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static struct pair pair;

static struct rpc_endpoint *end_of(uint32_t side)
{
    return pair.endpoint[side][0];
}

static int open_pair(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static int32_t call(uint64_t user_data, uint32_t bytes, uint64_t timeout_ns)
{
    static const uint8_t payload[2048];
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .user_data = user_data,
                        .payload_bytes = bytes,
                        .reply_bytes_max = 8,
                        .timeout_ns = timeout_ns};
    const int32_t status = rpc_call(end_of(0), &op, payload);
    rpc_submit_end(pair.engine[0]);
    return status;
}

static void cancel(uint64_t user_data)
{
    const crpc_op op = {.opcode = CRPC_OP_CANCEL, .token = user_data};
    assert_int_equal(rpc_cancel(end_of(0), &op), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
}

/* Takes the one request that has come. */
static crpc_completion take_request(void)
{
    pair_poll(&pair, 1);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    return *request;
}

static void drop(const crpc_completion *request, int32_t status)
{
    const crpc_op op = {
        .opcode = CRPC_OP_DROP, .flags = CRPC_OP_QUIET, .status = status, .token = request->token};
    assert_int_equal(rpc_drop(end_of(1), &op), CRPC_OK);
    rpc_submit_end(pair.engine[1]);
}

/* Polls both until the request is said to be abandoned. Returns by how many polls. */
static uint32_t expect_abandoned(const crpc_completion *request, int32_t status)
{
    for (uint32_t polls = 1; polls < 30; polls++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
        const crpc_completion *told = pair_find(&pair, 1, CRPC_COMPLETION_ABANDONED);
        if (told) {
            assert_int_equal(told->status, status);
            assert_int_equal(told->token, request->token);
            assert_int_equal(told->endpoint.bits, end_of(1)->link.handle);
            assert_int_equal(told->user_data, end_of(1)->options.user_data);
            assert_int_equal(told->endpoint_user_data, end_of(1)->options.user_data);
            assert_int_equal(told->payload | told->payload_bytes | told->reply_bytes_max |
                                 told->view | told->method | told->flags,
                             0);
            return polls;
        }
    }
    fail_msg("nobody says that the request is abandoned");
    return 0;
}

static void expect_nothing(uint32_t polls)
{
    for (uint32_t i = 0; i < polls; i++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
        assert_int_equal(pair_poll(&pair, 1), 0);
    }
}

/* ---- How long a caller waits ------------------------------------------------------------------ */

static void times_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(wire_time_code(0), 0);
    assert_int_equal(wire_time_ns(0), 0);
    assert_int_equal(wire_time_ns(wire_time_code(1)), 1024);
    assert_int_equal(wire_time_ns(wire_time_code(128 * 1024)), 128 * 1024);
    assert_int_equal(wire_time_ns(wire_time_code(255 * 1024 + 1)), 256 * 1024);
    assert_int_equal(wire_time_ns(wire_time_code(256 * 1024 + 1)), 258 * 1024);
    const uint64_t longest = wire_time_ns(WIRE_TIME_MAX);
    assert_int_equal(longest, (UINT64_C(255) << 30) * 1024); /* three days */
    assert_int_equal(wire_time_code(longest), WIRE_TIME_MAX);
    assert_int_equal(wire_time_code(longest + 1), 0);
    assert_int_equal(wire_time_code(UINT64_MAX), 0);
    for (uint32_t code = 1; code < WIRE_TIME_MAX; code++) { /* each is one, and they are in order */
        const uint64_t time = wire_time_ns(code), next = wire_time_ns(code + 1);
        assert_true(time < next && next - time <= maximum(1024, time / 128));
        assert_int_equal(wire_time_code(time), code);
        assert_int_equal(wire_time_code(time + 1), code + 1);
        assert_int_equal(wire_time_code(next - 1), code + 1);
    }
}

static void a_request_says_how_long_its_caller_waits(void **state)
{
    (void)state;
    static const uint64_t times[] = {1, 5 * US, 100 * US, 3 * MS, UINT64_C(3600) * 1000 * MS, 0};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        crpc_op op = {.opcode = CRPC_OP_CALL, .timeout_ns = times[i], .reply_bytes_max = 8};
        int32_t status = CRPC_E_INVALID;
        assert_int_equal(rpc_call_alone(end_of(0), &op, "", &status), 1);
        crpc_completion alone = take_request();
        assert_int_equal(alone.user_data, wire_time_ns(wire_time_code(times[i])));
        assert_int_equal(alone.endpoint_user_data, end_of(1)->options.user_data);
        assert_int_equal(alone.reply_bytes_max, 8);
        void *place;
        op.payload_bytes = 40;
        op.method = 0xffff;
        assert_int_equal(rpc_reserve(end_of(0), &op, &place), CRPC_OK);
        assert_int_equal(rpc_commit(end_of(0), 40), CRPC_OK);
        pair_poll(&pair, 0);
        crpc_completion in_place = take_request();
        assert_int_equal(in_place.user_data, alone.user_data);
        assert_int_equal(in_place.method, 0xffff);
        drop(&alone, 0);
        drop(&in_place, 0);
        pair_poll(&pair, 0);
        pair_poll(&pair, 0);
    }
}

/* ---- Who waits no more ------------------------------------------------------------------------ */

static void a_cancel_is_told(void **state)
{
    (void)state;
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    assert_int_equal(call(2, 16, 0), CRPC_OK);
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    const crpc_completion first = pair.seen[1].entries[0];
    pair_poll(&pair, 1);
    cancel(1);
    expect_abandoned(&first, CRPC_E_CANCELED);
    expect_nothing(5); /* once, and of none but it */
    assert_int_equal(pair_echo(&pair, 1, 0, &first, CRPC_OP_QUIET), CRPC_E_TOO_BIG);
    drop(&first, 0); /* it still has to be answered */
    pair_poll(&pair, 1);
    pair_poll(&pair, 0);
    assert_int_equal(end_of(0)->stats.late_responses, 1);
    assert_int_equal(end_of(0)->calls.used, 1);
}

static void a_deadline_is_told(void **state)
{
    (void)state;
    assert_int_equal(call(1, 16, 2 * MS), CRPC_OK);
    const crpc_completion request = take_request();
    expect_nothing(1);
    expect_abandoned(&request, CRPC_E_TIMEOUT);
    drop(&request, CRPC_E_NOT_STARTED);
    pair_poll(&pair, 0);
    assert_int_equal(end_of(0)->stats.late_responses, 1);
    pair_round_trip(&pair, 0);
}

static void a_response_that_comes_first_needs_no_telling(void **state)
{
    (void)state;
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    const crpc_completion request = take_request();
    cancel(1);
    drop(&request, 0);
    pair_poll(&pair, 0); /* the call ends, and its response has come, too */
    expect_nothing(5);
    assert_int_equal(end_of(0)->calls.used, 0);
    pair_round_trip(&pair, 0);
}

/* The answer is on its way when the peer hears of it. */
static void both_cross(void **state)
{
    (void)state;
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    const crpc_completion request = take_request();
    cancel(1);
    pair_poll(&pair, 0);
    pair_poll(&pair, 0); /* told */
    drop(&request, 0);
    expect_nothing(5);
    assert_int_equal(end_of(0)->calls.used, 0);
    pair_round_trip(&pair, 0);
}

/* It is charged like a request, and waits for the peer's limit. Only the mailbox tells that this has risen. */
static void it_waits_for_the_limit(void **state)
{
    (void)state;
    uint64_t calls = 0;
    while (call(calls, 480, 0) == CRPC_OK) {
        calls++;
    }
    while (call(calls, 0, 0) == CRPC_OK) {
        calls++;
    }
    pair_poll(&pair, 0);
    for (uint64_t i = 0; i < calls; i++) {
        cancel(i);
    }
    pair_poll(&pair, 0);
    pair_poll(&pair, 0);
    assert_false(list_empty(&end_of(0)->calls.telling));
    assert_true(end_of(0)->out.request_produced <= end_of(0)->out.request_limit);
    uint64_t requests = 0, told = 0;
    for (uint32_t polls = 0; polls < 200 && told < calls; polls++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 1);
        for (uint32_t i = 0; i < pair.seen[1].count; i++) {
            requests += pair.seen[1].entries[i].kind == CRPC_COMPLETION_REQUEST;
            told += pair.seen[1].entries[i].kind == CRPC_COMPLETION_ABANDONED;
        }
        pair_poll(&pair, 0);
    }
    assert_int_equal(requests, calls);
    assert_int_equal(told, calls);
    assert_true(list_empty(&end_of(0)->calls.telling));
}

static void it_waits_for_the_window(void **state)
{
    (void)state;
    pair_close_window(&pair);
    assert_int_equal(call(100, 16, 0), CRPC_OK);
    cancel(100);
    pair_poll(&pair, 0);
    pair_poll(&pair, 0);
    const uint32_t waiting = pair_poll(&pair, 1);
    for (uint32_t i = 0; i < waiting; i++) {
        assert_int_equal(pair.seen[1].entries[i].kind, CRPC_COMPLETION_REQUEST);
    }
    const crpc_completion *request = NULL;
    crpc_completion kept = {0};
    for (uint32_t polls = 0; polls < 30 && !request; polls++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
        request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    }
    assert_non_null(request);
    kept = *request;
    if (!pair_find(&pair, 1, CRPC_COMPLETION_ABANDONED)) {
        expect_abandoned(&kept, CRPC_E_CANCELED);
    }
}

static void it_waits_for_a_reservation(void **state)
{
    (void)state;
    void *place;
    const crpc_op op = {.opcode = CRPC_OP_CALL, .user_data = 2, .payload_bytes = 100};
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    const crpc_completion request = take_request();
    pair_poll(&pair, 1);
    cancel(1);
    assert_int_equal(rpc_reserve(end_of(0), &op, &place), CRPC_OK);
    expect_nothing(5);
    memset(place, 0x77, 100);
    assert_int_equal(rpc_commit(end_of(0), 100), CRPC_OK);
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    assert_int_equal(pair.seen[1].entries[0].payload_bytes, 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(((const uint8_t *)(uintptr_t)pair.seen[1].entries[0].payload)[i], 0x77);
    }
    if (!pair_find(&pair, 1, CRPC_COMPLETION_ABANDONED)) {
        expect_abandoned(&request, CRPC_E_CANCELED);
    }
}

/* No request may follow FIN, nor anything that is charged as one. */
static void nothing_is_told_after_leave(void **state)
{
    (void)state;
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    const crpc_completion request = take_request();
    assert_int_equal(link_disconnect(&end_of(0)->link, CRPC_FOREVER), CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(end_of(0)->leave, LEAVE_SAID);
    cancel(1);
    expect_nothing(5);
    drop(&request, 0);
    for (uint32_t i = 0; i < 10; i++) {
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
    assert_int_equal(end_of(0)->link.state, CRPC_STATE_DISCONNECTED);
    assert_int_equal(end_of(0)->link.error.status, CRPC_OK);
}

/* ---- What was not begun ----------------------------------------------------------------------- */

static void a_drop_can_say_that_nothing_was_done(void **state)
{
    (void)state;
    static const int32_t statuses[][2] = {{0, CRPC_E_DROPPED},
                                          {CRPC_E_NOT_STARTED, CRPC_E_NOT_STARTED}};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(call(1, 16, 0), CRPC_OK);
        const crpc_completion request = take_request();
        drop(&request, statuses[i][0]);
        pair_poll(&pair, 0);
        const crpc_completion *response = pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE);
        assert_non_null(response);
        assert_int_equal(response->status, statuses[i][1]);
        assert_int_equal(response->payload_bytes, 0);
        pair_poll(&pair, 0);
    }
    assert_int_equal(end_of(0)->stats.calls_failed, 2);
}

/* ---- Older peers ------------------------------------------------------------------------------ */

static void an_older_peer_is_told_nothing(void **state)
{
    (void)state;
    for (uint32_t older = 0; older < 2; older++) {
        pair_begin_with_older(&pair, older, WIRE_FEATURE_DEADLINES);
        crpc_endpoint_info info;
        rpc_endpoint_info(end_of(1 - older), &info);
        assert_int_equal(info.features, WIRE_FEATURE_TRACES);
        assert_int_equal(call(1, 16, 2 * MS), CRPC_OK);
        const crpc_completion request = take_request();
        assert_int_equal(request.user_data, 0);
        expect_nothing(10); /* the deadline has passed */
        assert_int_equal(end_of(0)->stats.calls_failed, 1);
        drop(&request, CRPC_E_NOT_STARTED);
        pair_poll(&pair, 0);
        assert_int_equal(call(2, 16, 0), CRPC_OK);
        const crpc_completion other = take_request();
        drop(&other, CRPC_E_NOT_STARTED);
        pair_poll(&pair, 0);
        assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE)->status, CRPC_E_DROPPED);
        pair_round_trip(&pair, 0);
    }
}

/* ---- Peers that lie --------------------------------------------------------------------------- */

/* Sends one message of the peer's to side 0, as the batch of this number, at this position. */
static void send_word(struct wire_message message, uint32_t sequence, uint64_t position)
{
    struct batch batch = malformed_good_requests(&pair);
    batch.header.sequence = sequence;
    batch.header.bytes = 64;
    batch.header.message_count = 1;
    batch.first = message;
    batch.immediate = 2;
    batch.bytes = 64;
    malformed_send(&pair, &batch, position);
}

static struct wire_message word_about(uint32_t call_id)
{
    return (struct wire_message){
        .call_id = call_id, .limit_or_status = (uint32_t)CRPC_E_CANCELED, .kind = WIRE_ABANDONED};
}

/* What it is about was answered, or never was: the peer may not know yet, and nothing comes of it. */
static void a_word_about_no_open_request_is_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        send_word(word_about(i << WIRE_CALL_INDEX_BITS | i), i, i * 64);
        assert_int_equal(pair_poll(&pair, 0), 0);
    }
    assert_int_equal(end_of(0)->link.state, CRPC_STATE_CONNECTED);
}

static void words_are_charged(void **state)
{
    (void)state;
    const uint64_t most = end_of(0)->in.request_published / wire_charge(0);
    const uint32_t window = end_of(0)->in.batch_window;
    /* None of their views end, as nobody polls in between; so the limit stays. */
    struct batch_of_words {
        struct wire_batch header;
        struct {
            struct wire_message message;
            uint8_t zeros[16];
        } words[128];
    } *batch = calloc(1, sizeof(*batch));
    assert_true(most + 1 <= 128 && window >= 1);
    const struct batch good = malformed_good_requests(&pair);
    batch->header = good.header;
    batch->header.message_count = (uint16_t)(most + 1);
    batch->header.bytes = (uint32_t)(32 + 32 * (most + 1));
    for (uint64_t i = 0; i <= most; i++) {
        batch->words[i].message = word_about(0);
    }
    const struct rpc_endpoint *target = end_of(0);
    assert_int_equal(
        memory_fabric_write_immediate(pair.fabric, target->link.queue_pair->number,
                                      (uint64_t)(uintptr_t)ring_at(&target->in.ring, 0),
                                      target->in.ring.memory.remote_key, batch->header.bytes, batch,
                                      batch->header.bytes / WIRE_UNIT_BYTES),
        NIC_ERROR_NONE);
    free(batch);
    malformed_expect_end(&pair);
}

static void a_word_after_leave(void **state)
{
    (void)state;
    const struct batch fin = malformed_fin(&pair);
    malformed_send(&pair, &fin, 0);
    send_word(word_about(0), 1, 32);
    malformed_expect_end(&pair);
}

/* A peer whose hello has not the feature. */
static void what_is_not_agreed_is_reserved(void **state)
{
    (void)state;
    const struct wire_message request = {.call_id = 3, .kind = WIRE_REQUEST};
    const struct wire_message spoiled[] = {
        word_about(3),
        {.call_id = 3, .kind = WIRE_REQUEST | 0x10},
        {.call_id = 3, .kind = WIRE_REQUEST, .zero = 1},
        {.call_id = 3, .kind = WIRE_REQUEST, .zero = 0xff},
    };
    for (size_t i = 0; i < sizeof(spoiled) / sizeof(spoiled[0]); i++) {
        for (uint32_t behind = 0; behind < 2; behind++) { /* alone, and behind a good one */
            pair_begin_with_older(&pair, 1, WIRE_FEATURE_DEADLINES);
            if (behind) {
                struct batch batch = malformed_good_requests(&pair);
                batch.second = spoiled[i];
                batch.second.payload_bytes = 10;
                malformed_send(&pair, &batch, 0);
            } else {
                send_word(request, 0, 0);
                assert_int_equal(pair_poll(&pair, 0), 1);
                struct wire_message other = spoiled[i];
                other.call_id = 4;
                send_word(other, 1, 64);
            }
            malformed_expect_end(&pair);
        }
    }
}

/* ---- Whoever polls and finds nothing sleeps --------------------------------------------------- */

/* A word about what was answered gives no completion. Its room must not wait for a poll that nothing brings. */
static void words_that_give_nothing_make_room_at_once(void **state)
{
    (void)state;
    const struct rpc_endpoint *victim = end_of(0);
    for (uint32_t i = 0; i < victim->options.batch_window; i++) {
        send_word(word_about(i), i, i * 64);
    }
    assert_int_equal(pair_poll(&pair, 0), 0);
    assert_int_equal(victim->in.mailbox->batch_limit, 2 * victim->options.batch_window);
    assert_int_equal(victim->in.mailbox->request_limit,
                     victim->in.request_share + victim->options.batch_window * wire_charge(0));
    assert_true(chain_empty(&pair.engine[0]->release));
}

/* The same with a word that comes alone, and an honest peer: it must be able to call. */
static void a_peer_that_sleeps_is_reached(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    options.batch_window = 1;
    pair_close(&pair);
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    const crpc_completion request = take_request();
    pair_poll(&pair, 1);
    cancel(1);
    for (uint32_t i = 0; i < 30 && end_of(0)->out.batches_sent < 2; i++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
    }
    assert_int_equal(end_of(0)->out.batches_sent, 2);
    drop(&request, 0);
    assert_int_equal(pair_poll(&pair, 1), 0); /* it goes to sleep */
    assert_int_equal(call(2, 16, 0), CRPC_OK);
    for (uint32_t i = 0; i < 30; i++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
    }
    assert_int_equal(end_of(0)->out.batches_sent, 3);
    take_request();
}

/* Likewise responses that nobody waits for. */
static void late_responses_make_room_at_once(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    options.batch_window = 1;
    pair_close(&pair);
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    assert_int_equal(call(1, 16, 0), CRPC_OK);
    assert_int_equal(call(2, 16, 0), CRPC_OK);
    crpc_completion requests[2];
    requests[0] = take_request();
    pair_poll(&pair, 1);
    for (uint32_t i = 0; i < 30 && end_of(0)->out.batches_sent < 2; i++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 0);
    }
    requests[1] = take_request();
    pair_poll(&pair, 1);
    cancel(1);
    expect_abandoned(&requests[0], CRPC_E_CANCELED);
    drop(&requests[0], 0);
    pair_poll(&pair, 1);
    assert_int_equal(pair_poll(&pair, 0), 0); /* it goes to sleep */
    assert_int_equal(end_of(0)->stats.late_responses, 1);
    drop(&requests[1], 0);
    for (uint32_t i = 0; i < 30; i++) {
        pair.clock_ns += MS;
        pair_poll(&pair, 1);
    }
    assert_int_equal(pair_poll(&pair, 0), 1);
    assert_int_equal(pair.seen[0].entries[0].user_data, 2);
}

/* ---- What else lets a word go ------------------------------------------------------------------ */

/* A program that calls as much as the limit allows does not keep it out: it is said before that hears of room. */
static void room_is_for_words_first(void **state)
{
    (void)state;
    uint64_t calls = 0;
    while (call(calls, 224, 0) == CRPC_OK) {
        calls++;
    }
    while (call(calls, 0, 0) == CRPC_OK) {
        calls++;
    }
    pair_poll(&pair, 0);
    assert_int_equal(pair_poll(&pair, 1), calls);
    crpc_completion requests[2] = {pair.seen[1].entries[0], pair.seen[1].entries[1]};
    cancel(0);
    pair_poll(&pair, 0);
    pair_poll(&pair, 0);
    assert_false(list_empty(&end_of(0)->calls.telling));
    assert_true(end_of(0)->link.refused);
    pair_poll(&pair, 1);
    drop(&requests[1], 0); /* the limit comes with it */
    pair_poll(&pair, 1);
    pair_poll(&pair, 0);
    assert_true(list_empty(&end_of(0)->calls.telling));
    pair_poll(&pair, 1);
    const crpc_completion *told = pair_find(&pair, 1, CRPC_COMPLETION_ABANDONED);
    assert_non_null(told);
    assert_int_equal(told->token, requests[0].token);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_rounded_up),
        TEST(a_request_says_how_long_its_caller_waits),
        TEST(a_cancel_is_told),
        TEST(a_deadline_is_told),
        TEST(a_response_that_comes_first_needs_no_telling),
        TEST(both_cross),
        TEST(it_waits_for_the_limit),
        TEST(it_waits_for_the_window),
        TEST(it_waits_for_a_reservation),
        TEST(nothing_is_told_after_leave),
        TEST(a_drop_can_say_that_nothing_was_done),
        TEST(an_older_peer_is_told_nothing),
        TEST(a_word_about_no_open_request_is_nothing),
        TEST(words_are_charged),
        TEST(a_word_after_leave),
        TEST(what_is_not_agreed_is_reserved),
        TEST(words_that_give_nothing_make_room_at_once),
        TEST(a_peer_that_sleeps_is_reached),
        TEST(late_responses_make_room_at_once),
        TEST(room_is_for_words_first),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
