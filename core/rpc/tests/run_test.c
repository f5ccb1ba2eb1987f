/* run_test.c: ops and messages that come one behind the other (run.c): what they change of the endpoint, and
 * where a run ends.
 */
#include "pair.h"

#define RUN 14

static struct pair pair;
static uint8_t payload[RUN * 64];

static int open_pair(void **state)
{
    (void)state;
    pair_open(&pair, NULL);
    crpc_endpoint_options options = pair_options();
    options.calls_max = 64;
    options.ring_bytes = 8192;
    pair_connect(&pair, &options, &options);
    for (size_t i = 0; i < sizeof(payload); i++) {
        payload[i] = (uint8_t)(i * 7);
    }
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static struct rpc_endpoint *end_of(uint32_t side)
{
    return pair.endpoint[side][0];
}

/* Payloads of 0 to 3 units, among them all the lengths around their ends. */
static uint32_t length_of(uint32_t i)
{
    return (i * 5) % 64;
}

static uint64_t timeouts[RUN]; /* of the calls */

static void make_calls(crpc_op *ops, uint32_t count)
{
    memset(timeouts, 0, sizeof(timeouts));
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = (crpc_op){.opcode = CRPC_OP_CALL,
                           .method = (uint16_t)(1000 + i),
                           .user_data = 77 + i,
                           .payload_offset = i * 64,
                           .payload_bytes = length_of(i),
                           .reply_bytes_max = 16};
    }
}

/* Submits calls, all of which must be accepted. */
static void call(uint32_t count)
{
    crpc_op ops[RUN];
    make_calls(ops, count);
    assert_int_equal(rpc_calls(end_of(0), ops, count, payload, sizeof(payload)), count);
    rpc_submit_end(pair.engine[0]);
    pair_poll(&pair, 0); /* what is behind the first has gathered */
}

/* Takes them at the other side. A lone first one may come by itself. */
static void expect_requests(uint32_t count, crpc_completion *requests)
{
    uint32_t taken = 0;
    for (int polls = 0; polls < 4 && taken < count; polls++) {
        pair_poll(&pair, 1);
        for (uint32_t i = 0; i < pair.seen[1].count; i++) {
            const crpc_completion *request = &pair.seen[1].entries[i];
            assert_int_equal(request->kind, CRPC_COMPLETION_REQUEST);
            assert_int_equal(request->flags, 0);
            assert_int_equal(request->status, 0);
            assert_int_equal(request->method, 1000 + taken);
            assert_int_equal(request->endpoint.bits, end_of(1)->link.handle);
            assert_int_equal(request->user_data, wire_time_ns(wire_time_code(timeouts[taken])));
            assert_int_equal(request->endpoint_user_data, end_of(1)->options.user_data);
            assert_int_equal(request->payload_bytes, length_of(taken));
            assert_int_equal(request->reply_bytes_max, 16);
            assert_int_equal(request->payload % 16, 0);
            assert_memory_equal((const void *)(uintptr_t)request->payload, &payload[taken * 64],
                                length_of(taken));
            requests[taken++] = *request;
        }
    }
    assert_int_equal(taken, count);
}

static void make_replies(crpc_op *ops, const crpc_completion *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = (crpc_op){.opcode = CRPC_OP_REPLY,
                           .flags = i % 3 ? CRPC_OP_QUIET : 0,
                           .status = (int32_t)i,
                           .user_data = 500 + i,
                           .token = requests[i].token,
                           .payload_offset = i,
                           .payload_bytes = i % 17};
    }
}

static void expect_responses(uint32_t count)
{
    pair_poll(&pair, 0);
    assert_int_equal(pair.seen[0].count, count);
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *response = &pair.seen[0].entries[i];
        assert_int_equal(response->kind, CRPC_COMPLETION_RESPONSE);
        assert_int_equal(response->flags, 0);
        assert_int_equal(response->status, i);
        assert_int_equal(response->method, 1000 + i);
        assert_int_equal(response->endpoint.bits, end_of(0)->link.handle);
        assert_int_equal(response->user_data, 77 + i);
        assert_int_equal(response->token, 0);
        assert_int_equal(response->reply_bytes_max, 0);
        assert_int_equal(response->endpoint_user_data, end_of(0)->options.user_data);
        assert_int_equal(response->payload_bytes, i % 17);
        assert_memory_equal((const void *)(uintptr_t)response->payload, &payload[i], i % 17);
        assert_true(rpc_view_valid(end_of(0), response));
    }
}

/* More rounds than the ring has room for, and than a call id has generations. */
static void a_thousand_runs(void **state)
{
    (void)state;
    crpc_op ops[RUN];
    crpc_completion requests[RUN];
    for (int round = 0; round < 300 * RUN; round++) {
        uint32_t count = 1 + (uint32_t)round % RUN;
        call(count);
        expect_requests(count, requests);
        pair_poll(&pair, 1); /* so that the replies tell of the room */
        make_replies(ops, requests, count);
        assert_int_equal(rpc_replies(end_of(1), ops, count, payload, sizeof(payload)), count);
        rpc_submit_end(pair.engine[1]);
        expect_responses(count);
        pair_poll(&pair, 1); /* the replies that are not quiet */
        assert_int_equal(pair.seen[1].count, (count + 2) / 3);
        for (uint32_t i = 0; i < pair.seen[1].count; i++) {
            assert_int_equal(pair.seen[1].entries[i].kind, CRPC_COMPLETION_REPLY);
            assert_int_equal(pair.seen[1].entries[i].user_data, 500 + 3 * i);
            assert_int_equal(pair.seen[1].entries[i].token, requests[3 * i].token);
        }
    }
    crpc_stats stats;
    rpc_endpoint_stats(end_of(0), &stats);
    assert_int_equal(stats.calls, 300 * (RUN * (RUN + 1) / 2));
    assert_int_equal(stats.responses, stats.calls);
    rpc_endpoint_stats(end_of(1), &stats);
    assert_int_equal(stats.requests, 300 * (RUN * (RUN + 1) / 2));
    assert_int_equal(stats.replies, stats.requests);
    assert_int_equal(end_of(0)->calls.live + end_of(0)->calls.used + end_of(1)->owed.count, 0);
}

/* The charges and allowances of all of them, with the poll after the one that has shown them, and no sooner. */
static void a_run_is_released_with_the_next_poll(void **state)
{
    (void)state;
    crpc_op ops[RUN];
    crpc_completion requests[RUN];
    uint64_t charge = 0;
    for (uint32_t i = 0; i < RUN; i++) {
        charge += wire_charge(length_of(i));
    }
    const uint64_t consumed = end_of(1)->in.request_consumed;
    call(RUN);
    assert_int_equal(end_of(0)->calls.reply_outstanding, RUN * wire_charge(16));
    pair_poll(&pair, 1);
    assert_int_equal(pair.seen[1].count, RUN);
    assert_int_equal(end_of(1)->in.request_arrived - consumed, charge);
    assert_int_equal(end_of(1)->in.request_consumed, consumed);
    assert_int_equal(end_of(1)->owed.allowance, RUN * wire_charge(16));
    memcpy(requests, pair.seen[1].entries, sizeof(requests));
    pair_poll(&pair, 1);
    assert_int_equal(end_of(1)->in.request_consumed, consumed + charge);

    make_replies(ops, requests, RUN);
    assert_int_equal(rpc_replies(end_of(1), ops, RUN, payload, sizeof(payload)), RUN);
    rpc_submit_end(pair.engine[1]);
    assert_int_equal(end_of(1)->owed.allowance, 0);
    expect_responses(RUN);
    assert_int_equal(end_of(0)->calls.reply_outstanding, RUN * wire_charge(16));
    pair_poll(&pair, 0);
    assert_int_equal(end_of(0)->calls.reply_outstanding, 0);
    pair_poll(&pair, 1);
}

/* Both sides call and answer at once, so that batches have requests between responses. */
static void batches_of_both_kinds(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        uint32_t requests[2] = {0}, responses[2] = {0}, calls[2] = {RUN / 2, RUN / 2};
        crpc_op ops[RUN];
        make_calls(ops, RUN);
        for (uint32_t side = 0; side < 2; side++) {
            assert_int_equal(rpc_calls(end_of(side), ops, RUN / 2, payload, sizeof(payload)),
                             RUN / 2);
            rpc_submit_end(pair.engine[side]);
        }
        for (int polls = 0; polls < 50 && responses[0] + responses[1] < 2 * RUN; polls++) {
            const uint32_t side = polls % 2;
            pair_poll(&pair, side);
            for (uint32_t i = 0; i < pair.seen[side].count; i++) {
                const crpc_completion *completion = &pair.seen[side].entries[i];
                if (completion->kind == CRPC_COMPLETION_RESPONSE) {
                    assert_int_equal(completion->user_data, 77 + responses[side]++);
                    continue;
                }
                assert_int_equal(completion->kind, CRPC_COMPLETION_REQUEST);
                assert_int_equal(completion->method, 1000 + requests[side]++);
                const crpc_op reply = {
                    .opcode = CRPC_OP_REPLY, .flags = CRPC_OP_QUIET, .token = completion->token};
                assert_int_equal(rpc_replies(end_of(side), &reply, 1, payload, sizeof(payload)), 1);
                /* Behind every second reply there is another call. */
                if (calls[side] < RUN && i % 2) {
                    assert_int_equal(
                        rpc_calls(end_of(side), &ops[calls[side]], 1, payload, sizeof(payload)), 1);
                    calls[side]++;
                }
            }
            if (calls[side] < RUN && pair.seen[side].count == 0) {
                assert_int_equal(
                    rpc_calls(end_of(side), &ops[calls[side]], 1, payload, sizeof(payload)), 1);
                calls[side]++;
            }
            rpc_submit_end(pair.engine[side]);
        }
        assert_int_equal(responses[0], RUN);
        assert_int_equal(responses[1], RUN);
        assert_int_equal(requests[0], RUN);
        assert_int_equal(requests[1], RUN);
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
}

/* Each is where a run of requests ends and take_request decides. */
static void the_sequence_of_tokens_skips_0(void **state)
{
    (void)state;
    crpc_completion requests[RUN];
    crpc_op ops[RUN];
    end_of(1)->owed.token_sequence = UINT32_MAX - RUN / 2;
    call(RUN);
    expect_requests(RUN, requests);
    for (uint32_t i = 0; i < RUN; i++) {
        assert_int_not_equal(requests[i].token >> 32, 0);
        for (uint32_t j = 0; j < i; j++) {
            assert_int_not_equal(requests[i].token, requests[j].token);
        }
    }
    make_replies(ops, requests, RUN);
    assert_int_equal(rpc_replies(end_of(1), ops, RUN, payload, sizeof(payload)), RUN);
    rpc_submit_end(pair.engine[1]);
    expect_responses(RUN);
    pair_poll(&pair, 1);
}

static void a_poll_with_little_room_ends_a_run(void **state)
{
    (void)state;
    call(RUN);
    for (uint32_t i = 0; i < RUN;) {
        crpc_completion three[3];
        uint32_t count = rpc_poll(pair.engine[1], three, 3);
        assert_in_range(count, 1, 3);
        for (uint32_t j = 0; j < count; j++, i++) {
            assert_int_equal(three[j].method, 1000 + i);
        }
    }
}

static void what_is_barred_is_no_run(void **state)
{
    (void)state;
    crpc_op ops[RUN];
    void *place;
    make_calls(ops, RUN);
    assert_int_equal(rpc_reserve(end_of(0), &ops[0], &place), CRPC_OK);
    assert_int_equal(rpc_calls(end_of(0), ops, RUN, payload, sizeof(payload)), 0);
    assert_int_equal(rpc_call(end_of(0), ops, payload), CRPC_E_BUSY);
    assert_int_equal(rpc_abort(end_of(0)), CRPC_OK);
    assert_int_equal(rpc_calls(end_of(0), ops, RUN, payload, sizeof(payload)), RUN);
    rpc_submit_end(pair.engine[0]);
}

/* All slots, the peer's room, and the budget: what is left of a run is refused as one op would be. */
static void a_run_ends_where_room_ends(void **state)
{
    (void)state;
    crpc_op ops[RUN];
    uint32_t taken, sum = 0;
    make_calls(ops, RUN);
    do {
        taken = rpc_calls(end_of(0), ops, RUN, payload, sizeof(payload));
        sum += taken;
    } while (taken == RUN);
    const struct rpc_out *out = &end_of(0)->out;
    const struct rpc_calls *calls = &end_of(0)->calls;
    assert_int_equal(rpc_call(end_of(0), &ops[taken], payload), CRPC_E_AGAIN);
    assert_int_equal(calls->live, sum);
    assert_int_equal(calls->used, sum);
    assert_true(out->request_produced <= out->request_limit);
    assert_true(calls->reply_outstanding <= calls->reply_budget);
    assert_true(sum == calls->made ||
                out->request_produced + wire_charge(ops[taken].payload_bytes) >
                    out->request_limit ||
                calls->reply_outstanding + wire_charge(16) > calls->reply_budget);
    crpc_op huge = ops[0];
    huge.reply_bytes_max = UINT32_MAX;
    assert_int_equal(rpc_calls(end_of(0), &huge, 1, payload, sizeof(payload)), 0);
    assert_int_equal(calls->live, sum);
    rpc_submit_end(pair.engine[0]);
}

/* Whatever makes an op another one, or wrong: the run takes those before it, and nothing of it or of those behind it. */
static void spoil(crpc_op *op, uint32_t how)
{
    switch (how) {
    case 0:
        op->opcode = CRPC_OP_CANCEL;
        break;
    case 1:
        op->flags |= CRPC_OP_AFTER;
        break;
    case 2:
        op->flags |= 0x80;
        break;
    case 3:
        op->status = -1;
        break;
    case 4:
        op->endpoint.bits++;
        break;
    case 5:
        op->region.bits = UINT64_C(1) << 63;
        break;
    case 6:
        op->payload_offset = sizeof(payload) - op->payload_bytes + 1;
        break;
    case 7:
        op->payload_offset = 0 - (uint64_t)op->payload_bytes;
        break;
    case 8:
        op->payload_offset = UINT64_MAX;
        op->payload_bytes = 1;
        break;
    case 9: /* of the other kind: a REPLY has a token, a CALL a method, room for a reply and a deadline */
        if (op->opcode == CRPC_OP_CALL) {
            op->token = 1;
        } else {
            op->method = 1;
        }
        break;
    case 10:
        op->reply_bytes_max = op->opcode == CRPC_OP_CALL ? UINT32_MAX : 1;
        break;
    case 11:
        if (op->opcode == CRPC_OP_CALL) {
            op->status = 1;
        } else {
            op->timeout_ns = 1;
        }
        break;
    default:
        op->opcode ^= CRPC_OP_CALL ^ CRPC_OP_REPLY;
        break;
    }
}
#define SPOILS 13

static void what_is_not_valid_ends_a_run(void **state)
{
    (void)state;
    crpc_op ops[RUN];
    crpc_completion requests[RUN];
    const struct rpc_endpoint *client = end_of(0), *server = end_of(1);
    for (uint32_t how = 0; how < SPOILS; how++) {
        const uint32_t at = how % (RUN - 2);
        make_calls(ops, RUN);
        ops[at].payload_bytes = 5;
        spoil(&ops[at], how);
        assert_int_equal(rpc_calls(end_of(0), ops, RUN, payload, sizeof(payload)), at);
        assert_int_equal(client->calls.live, at);
        assert_int_equal(client->calls.reply_outstanding, at * wire_charge(16));
        make_calls(ops, RUN);
        assert_int_equal(rpc_calls(end_of(0), &ops[at], RUN - at, payload, sizeof(payload)),
                         RUN - at);
        rpc_submit_end(pair.engine[0]);
        pair_poll(&pair, 0);
        expect_requests(RUN, requests);
        pair_poll(&pair, 1);

        make_replies(ops, requests, RUN);
        ops[at].payload_bytes = 5;
        spoil(&ops[at], how);
        assert_int_equal(rpc_replies(end_of(1), ops, RUN, payload, sizeof(payload)), at);
        assert_int_equal(server->owed.count, RUN - at);
        /* Those that were replied to are not to be replied to again. */
        make_replies(ops, requests, RUN);
        for (uint32_t i = 0; i < at; i++) {
            assert_int_equal(rpc_replies(end_of(1), &ops[i], 1, payload, sizeof(payload)), 0);
            assert_int_equal(rpc_reply(end_of(1), &ops[i], payload), CRPC_E_STALE);
        }
        assert_int_equal(rpc_replies(end_of(1), &ops[at], RUN - at, payload, sizeof(payload)),
                         RUN - at);
        rpc_submit_end(pair.engine[1]);
        expect_responses(RUN);
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
}

/* A peer that sends more than it was granted: the run must not take what a request by itself would be refused for. */
static void requests_beyond_the_limit_are_no_run(void **state)
{
    (void)state;
    const uint32_t granted = 5;
    struct rpc_in *in = &end_of(1)->in;
    in->request_published = in->request_arrived;
    for (uint32_t i = 0; i < granted; i++) {
        in->request_published += wire_charge(length_of(i));
    }
    call(RUN);
    uint32_t requests = 0, ends = 0;
    for (int polls = 0; polls < 4; polls++) {
        pair_poll(&pair, 1);
        for (uint32_t i = 0; i < pair.seen[1].count; i++) {
            const crpc_completion *completion = &pair.seen[1].entries[i];
            requests += completion->kind == CRPC_COMPLETION_REQUEST;
            if (completion->kind == CRPC_COMPLETION_DISCONNECTED) {
                assert_int_equal(completion->status, CRPC_E_PROTOCOL);
                ends++;
            }
        }
    }
    assert_int_equal(requests, granted);
    assert_int_equal(ends, 1);
}

/* Those with a deadline are another run than those without; one with may have some without. */
static void deadlines_in_runs(void **state)
{
    (void)state;
    crpc_op ops[RUN];
    crpc_completion requests[RUN];
    const uint32_t timers = pair.engine[0]->links.wheel.count;
    uint32_t set = 0;
    make_calls(ops, RUN);
    for (uint32_t i = 5; i < RUN; i += 1 + i % 3) {
        ops[i].timeout_ns = timeouts[i] = UINT64_C(1) << (20 + i % 40);
        set++;
    }
    assert_int_equal(rpc_calls(end_of(0), ops, RUN, payload, sizeof(payload)), 5);
    assert_int_equal(rpc_calls(end_of(0), &ops[5], RUN - 5, payload, sizeof(payload)), RUN - 5);
    assert_int_equal(pair.engine[0]->links.wheel.count, timers + set);
    rpc_submit_end(pair.engine[0]);
    pair_poll(&pair, 0);
    expect_requests(RUN, requests);
    pair_poll(&pair, 1);
    make_replies(ops, requests, RUN);
    assert_int_equal(rpc_replies(end_of(1), ops, RUN, payload, sizeof(payload)), RUN);
    rpc_submit_end(pair.engine[1]);
    expect_responses(RUN);
    assert_int_equal(pair.engine[0]->links.wheel.count, timers);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        TEST(a_thousand_runs),
        TEST(a_run_is_released_with_the_next_poll),
        TEST(batches_of_both_kinds),
        TEST(the_sequence_of_tokens_skips_0),
        TEST(a_poll_with_little_room_ends_a_run),
        TEST(what_is_barred_is_no_run),
        TEST(a_run_ends_where_room_ends),
        TEST(what_is_not_valid_ends_a_run),
        TEST(requests_beyond_the_limit_are_no_run),
        TEST(deadlines_in_runs),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
