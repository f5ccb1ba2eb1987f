/* lone_test.c: an op that is submitted by itself, and a batch that comes by itself, take ways of their own. Two pairs do the
 * same, one by these and one by those of many ops and batches; both must come to the same.
 */
#include "pair.h"

#include "rpc/op.h"

#define PAIRS 2 /* the first goes the lone ways */
#define ROUNDS 700

static struct pair pairs[PAIRS];
static uint8_t payload[512];

static int open_pairs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(payload); i++) {
        payload[i] = (uint8_t)(1 + i * 7);
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        const crpc_endpoint_options options = pair_options();
        pair_open(&pairs[i], NULL);
        pair_connect(&pairs[i], &options, &options);
    }
    return 0;
}

static int close_pairs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PAIRS; i++) {
        pair_close(&pairs[i]);
    }
    return 0;
}

static struct rpc_endpoint *end_of(uint32_t pair, uint32_t side)
{
    return pairs[pair].endpoint[side][0];
}

/* What does not name a place of its pair. */
static void expect_same(uint32_t side)
{
    const struct rpc_endpoint *one = end_of(0, side), *other = end_of(1, side);
    assert_int_equal(one->out.produced, other->out.produced);
    assert_int_equal(one->out.batch_messages, other->out.batch_messages);
    assert_int_equal(one->out.request_produced, other->out.request_produced);
    assert_int_equal(one->out.request_sent, other->out.request_sent);
    assert_int_equal(one->out.request_limit, other->out.request_limit);
    assert_int_equal(one->out.batches_sent, other->out.batches_sent);
    assert_int_equal(one->out.batch_limit, other->out.batch_limit);
    assert_memory_equal(one->out.staging.address, other->out.staging.address,
                        one->out.staging.bytes);
    assert_int_equal(one->calls.reply_outstanding, other->calls.reply_outstanding);
    assert_int_equal(one->calls.live, other->calls.live);
    assert_int_equal(one->calls.used, other->calls.used);
    assert_int_equal(one->owed.count, other->owed.count);
    assert_int_equal(one->owed.allowance, other->owed.allowance);
    assert_int_equal(one->owed.token_sequence, other->owed.token_sequence);
    assert_memory_equal(one->owed.slots, other->owed.slots,
                        one->owed.slot_count * sizeof(*one->owed.slots));
    assert_int_equal(one->in.arrived, other->in.arrived);
    assert_int_equal(one->in.parsed, other->in.parsed);
    assert_int_equal(one->in.released, other->in.released);
    assert_int_equal(one->in.batch_left, other->in.batch_left);
    assert_int_equal(one->in.arrivals_head, one->in.arrivals_tail);
    assert_int_equal(one->in.arrivals_tail, other->in.arrivals_tail);
    assert_int_equal(one->in.sequence_expected, other->in.sequence_expected);
    assert_int_equal(one->in.last, other->in.last);
    assert_memory_equal(&one->in.batches_consumed, &other->in.batches_consumed,
                        offsetof(struct rpc_in, ring) - offsetof(struct rpc_in, batches_consumed));
    assert_memory_equal(&one->stats, &other->stats, sizeof(one->stats));
    assert_int_equal(pairs[0].engine[side]->links.wheel.count,
                     pairs[1].engine[side]->links.wheel.count);
    assert_int_equal(pairs[0].engine[side]->links.now_ns, 0);
}

/* One op by each of the ways. */
static void submit(uint32_t side, const crpc_op *op)
{
    int32_t reason = 77;
    const void *from = payload + op->payload_offset;
    const uint32_t taken = op->opcode == CRPC_OP_CALL
                               ? rpc_call_alone(end_of(0, side), op, from, &reason)
                               : rpc_reply_alone(end_of(0, side), op, from, &reason);
    const int32_t status = op->opcode == CRPC_OP_CALL ? rpc_call(end_of(1, side), op, from)
                                                      : rpc_reply(end_of(1, side), op, from);
    rpc_submit_end(pairs[1].engine[side]);
    assert_int_equal(reason, status);
    assert_int_equal(taken, status == CRPC_OK);
    expect_same(side);
}

/* In the ring, which is mapped twice. */
static uint64_t place_of(const struct rpc_endpoint *endpoint, const crpc_completion *completion)
{
    if (completion->payload == 0) {
        return 0; /* it has none */
    }
    assert_true(rpc_view_valid(endpoint, completion));
    return 1 + ring_offset(&endpoint->in.ring,
                           completion->payload - (uint64_t)(uintptr_t)endpoint->in.ring.address);
}

/* Whoever has to look at more than arrivals goes the long way. */
static void poll_both(uint32_t side, uint32_t count)
{
    pairs[1].engine[side]->links.attention = true;
    for (uint32_t i = 0; i < PAIRS; i++) {
        assert_int_equal(pair_poll(&pairs[i], side), count);
    }
    expect_same(side);
    for (uint32_t k = 0; k < count; k++) {
        crpc_completion one = pairs[0].seen[side].entries[k];
        crpc_completion other = pairs[1].seen[side].entries[k];
        assert_memory_equal((const void *)(uintptr_t)one.payload,
                            (const void *)(uintptr_t)other.payload, one.payload_bytes);
        one.payload = place_of(end_of(0, side), &one);
        other.payload = place_of(end_of(1, side), &other);
        one.endpoint.bits = other.endpoint.bits = 0;
        assert_memory_equal(&one, &other, sizeof(one));
    }
}

static crpc_op call_of(uint32_t number)
{
    return (crpc_op){.opcode = CRPC_OP_CALL,
                     .method = (uint16_t)(number * 3),
                     .user_data = 1000 + number,
                     .payload_offset = number % 5,
                     .payload_bytes = number % 211,
                     .reply_bytes_max = number % 167,
                     .timeout_ns = number % 3 == 0 ? 1000000 : 0};
}

static crpc_op reply_to(const crpc_completion *request, uint32_t number)
{
    return (crpc_op){.opcode = CRPC_OP_REPLY,
                     .flags = CRPC_OP_QUIET,
                     .status = number % 4 == 0 ? (int32_t)number : 0,
                     .token = request->token,
                     .payload_offset = number % 3,
                     .payload_bytes = request->reply_bytes_max};
}

/* Of all lengths, so that rings wrap; there and back. */
static void one_call_at_a_time(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < ROUNDS; number++) {
        const crpc_op call = call_of(number);
        submit(0, &call);
        poll_both(1, 1);
        const crpc_completion request = pairs[0].seen[1].entries[0];
        assert_int_equal(request.payload_bytes, call.payload_bytes);
        assert_memory_equal((const void *)(uintptr_t)request.payload, payload + call.payload_offset,
                            call.payload_bytes);
        const crpc_op reply = reply_to(&request, number);
        submit(1, &reply);
        submit(1, &reply); /* it is stale by now */
        poll_both(0, 1);
        assert_int_equal(pairs[0].seen[0].entries[0].user_data, call.user_data);
        assert_int_equal(pairs[0].seen[0].entries[0].status, reply.status);
        assert_memory_equal((const void *)(uintptr_t)pairs[0].seen[0].entries[0].payload,
                            payload + reply.payload_offset, reply.payload_bytes);
    }
}

/* What is not alone, or not possible, is as by the other way: a second call gathers, one that is too big is refused. */
static void what_is_not_alone(void **state)
{
    (void)state;
    crpc_op call = call_of(8);
    submit(0, &call);
    assert_int_equal(end_of(0, 0)->out.batches_sent, 1);
    submit(0, &call);
    assert_int_equal(end_of(0, 0)->out.batches_sent, 1);
    call.payload_bytes = UINT32_MAX;
    submit(0, &call);
    poll_both(0, 0);
    poll_both(1, 2);
    const crpc_completion first = pairs[0].seen[1].entries[0];
    const crpc_completion second = pairs[0].seen[1].entries[1];
    crpc_op reply = reply_to(&first, 5);
    submit(1, &reply);
    assert_int_equal(end_of(0, 1)->out.batches_sent, 0); /* another one is owed */
    reply = reply_to(&second, 7);
    reply.payload_bytes++;
    submit(1, &reply);
    reply.payload_bytes--;
    submit(1, &reply);
    assert_int_equal(end_of(0, 1)->out.batches_sent, 1);
    poll_both(0, 2);
}

/* While the window is closed, a call waits, and leaves when it opens. */
static void a_closed_window(void **state)
{
    (void)state;
    crpc_op call = call_of(10);
    for (uint32_t i = 0; i < PAIRS; i++) {
        end_of(i, 0)->out.batch_limit = end_of(i, 0)->out.batches_sent;
    }
    submit(0, &call);
    assert_int_equal(end_of(0, 0)->out.batch_messages, 1);
    assert_int_equal(end_of(0, 0)->out.batches_sent, 0);
}

/* A deadline of a lone call ends it, and its response comes too late. */
static void a_deadline(void **state)
{
    (void)state;
    crpc_op call = call_of(9);
    submit(0, &call);
    poll_both(1, 1);
    for (uint32_t i = 0; i < PAIRS; i++) {
        pairs[i].clock_ns += 2 * call.timeout_ns;
    }
    poll_both(0, 1);
    assert_int_equal(pairs[0].seen[0].entries[0].status, CRPC_E_TIMEOUT);
    const crpc_op reply = reply_to(&pairs[0].seen[1].entries[0], 1);
    submit(1, &reply);
    poll_both(0, 0);
    assert_int_equal(end_of(0, 0)->stats.late_responses, 1);
}

/* ---- What waits for what a lone batch brings --------------------------------------------------- */

/* The first pair anew. The peer takes one batch at a time. Side 0 has sent one, and the peer has taken it. */
static crpc_completion open_narrow(uint32_t flags)
{
    crpc_endpoint_options options = pair_options(), peer;
    options.flags = flags;
    if (!(flags & CRPC_ENDPOINT_FULL_SIZE)) {
        options.ring_bytes = 65536;
    }
    peer = options;
    peer.batch_window = 1;
    pair_close(&pairs[0]);
    pair_open(&pairs[0], NULL);
    pair_connect(&pairs[0], &options, &peer);
    assert_int_equal(pair_call(&pairs[0], 0, 0, 1, 8, 1, 8), CRPC_OK);
    assert_int_equal(pair_poll(&pairs[0], 1), 1);
    assert_int_equal(end_of(0, 0)->out.batches_sent, end_of(0, 0)->out.batch_limit);
    return pairs[0].seen[1].entries[0];
}

/* No time passes, so nothing but the header of the reply's batch tells of limits. */
static void answer_alone(const crpc_completion *request, uint32_t given)
{
    pair_poll(&pairs[0], 1); /* the view ends */
    assert_int_equal(pair_echo(&pairs[0], 1, 0, request, CRPC_OP_QUIET), CRPC_OK);
    pair_poll(&pairs[0], 1); /* if it is not the last that is owed */
    assert_int_equal(pair_poll(&pairs[0], 0), given);
    assert_int_equal(end_of(0, 0)->stats.mailbox_reads, 0);
}

static void a_batch_waits_for_the_window(void **state)
{
    (void)state;
    const crpc_completion request = open_narrow(CRPC_ENDPOINT_FULL_SIZE);
    assert_int_equal(pair_call(&pairs[0], 0, 0, 2, 8, 1, 8), CRPC_OK);
    assert_int_equal(end_of(0, 0)->out.batch_messages, 1);
    pair_poll(&pairs[0], 0);
    answer_alone(&request, 1);
    assert_int_equal(end_of(0, 0)->out.batches_sent, 2);
}

/* With nothing in the open batch. */
static void a_word_about_rings_waits_for_the_window(void **state)
{
    (void)state;
    const crpc_completion request = open_narrow(0);
    assert_int_equal(pair_call(&pairs[0], 1, 0, 7, 8, 1, 20000), CRPC_OK); /* RING */
    assert_int_equal(pair_poll(&pairs[0], 0), 1);
    assert_true(end_of(0, 0)->grow.waits);
    assert_int_equal(end_of(0, 0)->out.batch_messages, 0);
    pair_poll(&pairs[0], 0);
    answer_alone(&request, 1);
    assert_false(end_of(0, 0)->grow.waits);
    assert_int_equal(end_of(0, 0)->out.batches_sent, 2);
}

static void who_was_refused_waits_for_the_limit(void **state)
{
    (void)state;
    uint64_t calls = 0;
    while (pair_call(&pairs[0], 0, 0, calls, 480, 1, 8) == CRPC_OK) {
        calls++;
    }
    pair_poll(&pairs[0], 0);
    assert_int_equal(pair_poll(&pairs[0], 1), calls);
    const crpc_completion request = {.token = pairs[0].seen[1].entries[0].token};
    answer_alone(&request, 2);
    assert_non_null(pair_find(&pairs[0], 0, CRPC_COMPLETION_RESPONSE));
    assert_non_null(pair_find(&pairs[0], 0, CRPC_COMPLETION_ROOM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_call_at_a_time, open_pairs, close_pairs),
        cmocka_unit_test_setup_teardown(what_is_not_alone, open_pairs, close_pairs),
        cmocka_unit_test_setup_teardown(a_closed_window, open_pairs, close_pairs),
        cmocka_unit_test_setup_teardown(a_deadline, open_pairs, close_pairs),
        cmocka_unit_test_setup_teardown(a_batch_waits_for_the_window, open_pairs, close_pairs),
        cmocka_unit_test_setup_teardown(a_word_about_rings_waits_for_the_window, open_pairs,
                                        close_pairs),
        cmocka_unit_test_setup_teardown(who_was_refused_waits_for_the_limit, open_pairs,
                                        close_pairs),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
