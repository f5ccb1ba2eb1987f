/* trace_test.c: whose call a request is: what the peer is told, and when not. */
#include "malformed.h"
#include "pair.h"

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

static crpc_trace trace_number(uint8_t number)
{
    crpc_trace trace = {.flags = 1};
    memset(trace.trace_id, 0x80 | number, sizeof(trace.trace_id));
    memset(trace.span_id, number, sizeof(trace.span_id));
    return trace;
}

static int32_t call_bytes(uint8_t number, uint32_t bytes)
{
    static const uint8_t payload[4096];
    crpc_trace trace = trace_number(number); /* it is copied */
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .flags = CRPC_OP_TRACED,
                        .method = number,
                        .token = (uint64_t)(uintptr_t)&trace,
                        .payload_bytes = bytes,
                        .reply_bytes_max = 8};
    const int32_t status = rpc_submit(end_of(0), &op, payload);
    memset(&trace, 0xff, sizeof(trace));
    return status;
}

static void call(uint8_t number, uint32_t bytes)
{
    assert_int_equal(call_bytes(number, bytes), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
}

static crpc_completion request_number(uint32_t index, uint8_t number)
{
    assert_true(index < pair.seen[1].count);
    const crpc_completion request = pair.seen[1].entries[index];
    assert_int_equal(request.kind, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.method, number);
    assert_int_equal(request.flags, 0);
    return request;
}

static void expect_trace(const crpc_completion *request, uint8_t number)
{
    const crpc_trace expected = trace_number(number);
    crpc_trace trace;
    assert_int_equal(rpc_request_trace(end_of(1), request->token, &trace), CRPC_OK);
    assert_memory_equal(&trace, &expected, sizeof(trace));
}

static void expect_none(const crpc_completion *request)
{
    crpc_trace trace;
    assert_int_equal(rpc_request_trace(end_of(1), request->token, &trace), CRPC_E_NOT_FOUND);
}

static void answer(const crpc_completion *request)
{
    const crpc_op op = {.opcode = CRPC_OP_REPLY, .flags = CRPC_OP_QUIET, .token = request->token};
    assert_int_equal(rpc_reply(end_of(1), &op, ""), CRPC_OK);
    rpc_submit_end(pair.engine[1]);
    pair_poll(&pair, 0);
}

/* ---- What the peer is told -------------------------------------------------------------------- */

static void a_trace_comes_with_its_request_and_goes_with_its_answer(void **state)
{
    (void)state;
    call(1, 8);
    assert_int_equal(pair_poll(&pair, 1), 1);
    const crpc_completion request = request_number(0, 1);
    assert_int_equal(request.payload_bytes, 8);
    expect_trace(&request, 1);
    pair_poll(&pair, 1); /* the view has ended, and the request is still open */
    expect_trace(&request, 1);
    answer(&request);
    crpc_trace trace;
    assert_int_equal(rpc_request_trace(end_of(1), request.token, &trace), CRPC_E_STALE);
    assert_int_equal(rpc_request_trace(end_of(1), 0, &trace), CRPC_E_STALE);
    assert_int_equal(rpc_request_trace(end_of(1), UINT64_MAX, &trace), CRPC_E_STALE);
}

static void each_has_its_own_and_others_have_none(void **state)
{
    (void)state;
    crpc_completion requests[6];
    for (uint8_t round = 0; round < 50; round++) { /* all slots, again and again */
        for (uint8_t i = 0; i < 6; i++) {
            if (i % 3 == 2) {
                assert_int_equal(pair_call(&pair, 0, 0, i, 8, 0, 8), CRPC_OK);
            } else {
                assert_int_equal(call_bytes((uint8_t)(6 * round % 96 + i), 8), CRPC_OK);
            }
        }
        rpc_submit_end(pair.engine[0]);
        pair_poll(&pair, 0);
        assert_int_equal(pair_poll(&pair, 1), 6);
        for (uint8_t i = 0; i < 6; i++) {
            requests[i] = pair.seen[1].entries[i];
            if (i % 3 == 2) {
                expect_none(&requests[i]);
            } else {
                expect_trace(&requests[i], (uint8_t)(6 * round % 96 + i));
            }
        }
        for (uint32_t i = 6; i-- > 0;) {
            answer(&requests[i]);
        }
        pair_poll(&pair, 0);
    }
}

/* A batch can end between a trace and its call: the output is full. */
static void a_full_array_parts_no_trace_from_its_request(void **state)
{
    (void)state;
    for (uint8_t i = 1; i <= 4; i++) {
        assert_int_equal(call_bytes(i, 8), CRPC_OK);
    }
    rpc_submit_end(pair.engine[0]);
    for (uint8_t i = 1; i <= 4; i++) {
        crpc_completion request;
        assert_int_equal(rpc_poll(pair.engine[1], &request, 1), 1);
        assert_int_equal(request.method, i);
        expect_trace(&request, i);
    }
}

static void tokens_that_wrap_keep_their_traces(void **state)
{
    (void)state;
    end_of(1)->owed.token_sequence = UINT32_MAX - 1;
    for (uint8_t i = 1; i <= 4; i++) {
        call(i, 8);
        assert_int_equal(pair_poll(&pair, 1), 1);
        const crpc_completion request = request_number(0, i);
        expect_trace(&request, i);
        answer(&request);
    }
}

/* ---- Room ------------------------------------------------------------------------------------- */

/* The longest request that the peer's ring takes goes alone. */
static void a_call_without_room_for_its_trace_goes_alone(void **state)
{
    (void)state;
    const uint64_t most = end_of(0)->peer.request_bytes_max;
    const uint32_t longest = (uint32_t)(most - wire_charge(0)) + 16;
    const uint32_t with_trace = longest - (uint32_t)wire_charge(sizeof(crpc_trace));
    assert_int_equal(wire_charge(longest), most);
    const uint32_t lengths[] = {with_trace, with_trace + 1, longest};
    for (uint8_t i = 0; i < 3; i++) {
        int32_t status = call_bytes(i, lengths[i]);
        for (uint32_t poll = 0; poll < 4 && status == CRPC_E_AGAIN; poll++) {
            pair.clock_ns +=
                UINT64_C(1000000); /* until the room of the last one is known to be free */
            pair_poll(&pair, 1);
            pair_poll(&pair, 0);
            status = call_bytes(i, lengths[i]);
        }
        assert_int_equal(status, CRPC_OK);
        rpc_submit_end(pair.engine[0]);
        assert_int_equal(pair_poll(&pair, 1), 1);
        const crpc_completion request = request_number(0, i);
        assert_int_equal(request.payload_bytes, lengths[i]);
        if (i == 0) {
            expect_trace(&request, i);
        } else {
            expect_none(&request);
        }
        answer(&request);
    }
    assert_int_equal(call_bytes(9, longest + 1), CRPC_E_TOO_BIG);
}

/* What is refused leaves nothing behind, and is told when there is room. */
static void a_call_that_is_refused_has_sent_no_trace(void **state)
{
    (void)state;
    uint8_t made = 0;
    while (call_bytes(made, 8) == CRPC_OK) {
        made++;
    }
    const uint64_t produced = end_of(0)->out.produced;
    const uint32_t messages = end_of(0)->out.batch_messages;
    assert_true(made > 1);
    assert_int_equal(call_bytes(made, 8), CRPC_E_AGAIN);
    assert_int_equal(end_of(0)->out.produced, produced);
    assert_int_equal(end_of(0)->out.batch_messages, messages);
    rpc_submit_end(pair.engine[0]);
    pair_poll(&pair, 0);
    assert_int_equal(pair_poll(&pair, 1), made);
    for (uint8_t i = 0; i < made; i++) {
        const crpc_completion request = pair.seen[1].entries[i];
        expect_trace(&request, i);
        assert_int_equal(pair_echo(&pair, 1, 0, &request, CRPC_OP_QUIET), CRPC_OK);
    }
    bool room = false;
    for (uint32_t poll = 0; poll < 4 && !room; poll++) {
        pair.clock_ns += UINT64_C(1000000);
        pair_poll(&pair, 1);
        pair_poll(&pair, 0);
        room = pair_find(&pair, 0, CRPC_COMPLETION_ROOM) != NULL;
    }
    assert_true(room);
    call(7, 8);
    assert_int_equal(pair_poll(&pair, 1), 1);
    const crpc_completion request = request_number(0, 7);
    expect_trace(&request, 7);
}

/* ---- Others ----------------------------------------------------------------------------------- */

static void an_older_peer_is_told_nothing(void **state)
{
    (void)state;
    for (uint32_t older = 0; older < 2; older++) {
        pair_begin_with_older(&pair, older, WIRE_FEATURE_TRACES);
        const uint64_t produced = end_of(0)->out.request_produced;
        call(1, 8);
        assert_int_equal(end_of(0)->out.request_produced - produced, wire_charge(8));
        assert_int_equal(pair_poll(&pair, 1), 1);
        const crpc_completion request = request_number(0, 1);
        expect_none(&request);
        answer(&request);
    }
}

/* ---- Peers that lie --------------------------------------------------------------------------- */

/* A batch with a trace of a call with this id, and a request with that one; its first message is the peer's. */
static struct batch trace_and_request(uint32_t of, uint32_t request)
{
    struct batch batch = malformed_good_requests(&pair);
    const crpc_trace trace = trace_number(5);
    const struct wire_message second = {.call_id = request, .kind = WIRE_REQUEST};
    batch.first = (struct wire_message){.payload_bytes = 32, .call_id = of, .kind = WIRE_TRACE};
    memcpy(batch.first_payload, &trace, 16);
    memset(&batch.second, 0, 32);
    memcpy(&batch.second, (const uint8_t *)&trace + 16, 16);
    memcpy(batch.rest, &second, sizeof(second));
    batch.header.bytes = 32 + 64 + 32;
    batch.bytes = batch.header.bytes;
    batch.immediate = 4;
    return batch;
}

/* Side 0 is the one that is lied to. */
static void expect_lie(struct batch batch, int32_t expected)
{
    crpc_trace trace;
    malformed_send(&pair, &batch, 0);
    assert_int_equal(pair_poll(&pair, 0), 1);
    const crpc_completion request = pair.seen[0].entries[0];
    assert_int_equal(request.kind, CRPC_COMPLETION_REQUEST);
    assert_int_equal(rpc_request_trace(end_of(0), request.token, &trace), expected);
}

static void a_trace_is_of_the_call_that_it_says(void **state)
{
    (void)state;
    expect_lie(trace_and_request(3, 3), CRPC_OK);
}

static void a_trace_of_another_call_is_of_none(void **state)
{
    (void)state;
    expect_lie(trace_and_request(4, 3), CRPC_E_NOT_FOUND);
}

static void a_trace_of_another_generation_is_of_none(void **state)
{
    (void)state;
    expect_lie(trace_and_request(3 | 1u << WIRE_CALL_INDEX_BITS, 3), CRPC_E_NOT_FOUND);
}

/* Behind a request with the same id, which is not the next. */
static void a_trace_is_of_no_request_before_it(void **state)
{
    (void)state;
    struct batch batch = malformed_good_requests(&pair);
    batch.first.payload_bytes = 0;
    batch.second = (struct wire_message){.payload_bytes = 32, .call_id = 3, .kind = WIRE_TRACE};
    batch.header.bytes = 32 + 32 + 64;
    batch.bytes = batch.header.bytes;
    batch.immediate = 4;
    expect_lie(batch, CRPC_E_NOT_FOUND);
}

static void traces_are_charged(void **state)
{
    (void)state;
    struct batch batch = trace_and_request(3, 3);
    batch.header.message_count = 1;
    batch.header.bytes = 32 + 64;
    batch.bytes = batch.header.bytes;
    batch.immediate = 3;
    const uint64_t most = end_of(0)->in.request_published / wire_charge(sizeof(crpc_trace));
    end_of(0)->in.request_arrived = (most - 1) * wire_charge(sizeof(crpc_trace));
    malformed_send(&pair, &batch, 0);
    assert_int_equal(pair_poll(&pair, 0), 0);
    assert_int_equal(end_of(0)->link.state, CRPC_STATE_CONNECTED);
    end_of(0)->in.request_arrived = end_of(0)->in.request_published;
    batch.header.sequence = 1;
    malformed_send(&pair, &batch, 96);
    malformed_expect_end(&pair);
}

static void a_trace_after_leave(void **state)
{
    (void)state;
    const struct batch fin = malformed_fin(&pair);
    struct batch batch = trace_and_request(3, 3);
    malformed_send(&pair, &fin, 0);
    batch.header.sequence = 1;
    malformed_send(&pair, &batch, 32);
    malformed_expect_end(&pair);
}

/* A peer whose hello has not the feature. */
static void what_is_not_agreed_is_reserved(void **state)
{
    (void)state;
    pair_begin_with_older(&pair, 1, WIRE_FEATURE_TRACES);
    struct batch batch = trace_and_request(3, 3);
    malformed_send(&pair, &batch, 0);
    malformed_expect_end(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_PAIR(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
        WITH_PAIR(a_trace_comes_with_its_request_and_goes_with_its_answer),
        WITH_PAIR(each_has_its_own_and_others_have_none),
        WITH_PAIR(a_full_array_parts_no_trace_from_its_request),
        WITH_PAIR(tokens_that_wrap_keep_their_traces),
        WITH_PAIR(a_call_without_room_for_its_trace_goes_alone),
        WITH_PAIR(a_call_that_is_refused_has_sent_no_trace),
        WITH_PAIR(an_older_peer_is_told_nothing),
        WITH_PAIR(a_trace_is_of_the_call_that_it_says),
        WITH_PAIR(a_trace_of_another_call_is_of_none),
        WITH_PAIR(a_trace_of_another_generation_is_of_none),
        WITH_PAIR(a_trace_is_of_no_request_before_it),
        WITH_PAIR(traces_are_charged),
        WITH_PAIR(a_trace_after_leave),
        WITH_PAIR(what_is_not_agreed_is_reserved),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
