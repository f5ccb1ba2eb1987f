/* engine_test.c: when batches go out and what they carry, what room means, how connections end:
 * on the in-memory NIC, where each WQE can be counted.
 */
#include "pair.h"

static struct pair pair;

static int open_one(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    pair_open(&pair, NULL);
    pair_connect(&pair, &options, &options);
    return 0;
}

static int close_one(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static crpc_stats stats_of(uint32_t side)
{
    crpc_stats stats;
    rpc_endpoint_stats(pair.endpoint[side][0], &stats);
    return stats;
}

/* Polls both sides, the right one echoing quietly, until nothing comes any more. */
static void settle(void)
{
    uint32_t got;
    do {
        got = pair_poll(&pair, 1);
        for (uint32_t i = 0; i < pair.seen[1].count; i++) {
            if (pair.seen[1].entries[i].kind == CRPC_COMPLETION_REQUEST) {
                assert_int_equal(pair_echo(&pair, 1, 0, &pair.seen[1].entries[i], CRPC_OP_QUIET),
                                 CRPC_OK);
            }
        }
        got += pair_poll(&pair, 0);
    } while (got > 0);
}

/* ---- Batches --------------------------------------------------------------------------------- */

static void a_lone_call_goes_out_at_once_and_others_gather(void **state)
{
    (void)state;
    assert_int_equal(pair_call(&pair, 0, 0, 1, 10, 1, 10), CRPC_OK);
    assert_int_equal(stats_of(0).batches_sent, 1);
    assert_int_equal(stats_of(0).doorbells, 1);
    for (uint64_t call = 2; call < 10; call++) {
        assert_int_equal(pair_call(&pair, 0, 0, call, 10, 1, 10), CRPC_OK);
    }
    assert_int_equal(stats_of(0).batches_sent, 1);
    pair_poll(&pair, 0);
    assert_int_equal(stats_of(0).batches_sent, 2);
    assert_int_equal(pair_poll(&pair, 1), 9);
}

static void replies_gather_until_the_last_one_owed(void **state)
{
    (void)state;
    for (uint64_t call = 0; call < 6; call++) {
        assert_int_equal(pair_call(&pair, 0, 0, call, 10, 1, 10), CRPC_OK);
    }
    pair_poll(&pair, 0);
    assert_int_equal(pair_poll(&pair, 1), 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(stats_of(1).batches_sent, 0);
        assert_int_equal(pair_echo(&pair, 1, 0, &pair.seen[1].entries[5 - i], 0), CRPC_OK);
    }
    assert_int_equal(stats_of(1).batches_sent, 1);
    assert_int_equal(stats_of(1).signaled_wqes, 1); /* its replies want to know */
    assert_int_equal(pair_poll(&pair, 0), 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(pair.seen[0].entries[i].user_data,
                         5 - i); /* in the order of the replies */
    }
    assert_int_equal(pair_poll(&pair, 1), 6); /* CRPC_COMPLETION_REPLY */
}

static void quiet_replies_ask_for_no_completion(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(pair_call(&pair, 0, 0, i, 10, 1, 10), CRPC_OK);
        settle();
    }
    assert_int_equal(stats_of(1).signaled_wqes, 0);
    assert_int_equal(pair_call(&pair, 0, 0, 7, 10, 1, 10), CRPC_OK);
    settle();
    assert_int_equal(stats_of(1).signaled_wqes, 1); /* one in eight: the interval of pair_open */
}

static void a_poll_that_is_smaller_than_a_batch_loses_nothing(void **state)
{
    (void)state;
    crpc_completion one;
    for (uint64_t call = 0; call < 8; call++) {
        assert_int_equal(pair_call(&pair, 0, 0, call, 20, (uint8_t)call, 0), CRPC_OK);
    }
    pair_poll(&pair, 0);
    for (uint64_t call = 0; call < 8; call++) {
        assert_int_equal(rpc_poll(pair.engine[1], &one, 1), 1);
        assert_int_equal(*(const uint8_t *)(uintptr_t)one.payload, call);
    }
    assert_int_equal(rpc_poll(pair.engine[1], &one, 1), 0);
    assert_int_equal(pair.endpoint[1][0]->in.released, pair.endpoint[1][0]->in.arrived);
}

static void the_ring_wraps_at_every_offset(void **state)
{
    (void)state;
    for (uint32_t call = 0; call < 3000; call++) {
        uint32_t bytes = call * 7 % 300;
        assert_int_equal(pair_call(&pair, 0, 0, call, bytes, (uint8_t)call, 300), CRPC_OK);
        assert_int_equal(pair_poll(&pair, 1), 1);
        const uint8_t *payload = (const uint8_t *)(uintptr_t)pair.seen[1].entries[0].payload;
        for (uint32_t i = 0; i < bytes; i++) {
            assert_int_equal(payload[i], (uint8_t)call);
        }
        assert_int_equal(pair_echo(&pair, 1, 0, &pair.seen[1].entries[0], CRPC_OP_QUIET), CRPC_OK);
        assert_int_equal(pair_poll(&pair, 0), 1);
    }
    assert_true(pair.endpoint[0][0]->out.produced > 100 * 4096);
}

/* ---- Room ------------------------------------------------------------------------------------ */

static void the_mailbox_is_read_only_while_blocked(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(pair_call(&pair, 0, 0, i, 100, 1, 100), CRPC_OK);
        settle();
        pair.clock_ns += 1000000;
    }
    assert_int_equal(stats_of(0).mailbox_reads, 0);
    uint32_t calls = 0;
    while (pair_call(&pair, 0, 0, 1000 + calls, 400, 1, 0) == CRPC_OK) {
        calls++;
    }
    assert_in_range(calls, 3, 4); /* of 464 bytes each, in 2048 */
    assert_int_equal(pair_poll(&pair, 0), 0);
    pair_poll(&pair, 1);
    pair_poll(&pair, 1); /* lets go of them: the mailbox rises, and nobody says so */
    pair.clock_ns += 100000;
    uint32_t rooms = 0;
    for (int i = 0; i < 5; i++) {
        pair_poll(&pair, 0);
        rooms += pair_find(&pair, 0, CRPC_COMPLETION_ROOM) != NULL;
        pair.clock_ns += 100000;
    }
    assert_int_equal(rooms, 1);
    assert_in_range(stats_of(0).mailbox_reads, 1, 2);
    assert_int_equal(pair_call(&pair, 0, 0, 2000, 400, 1, 0), CRPC_OK);
}

static void an_allowance_is_held_until_the_late_response_has_come(void **state)
{
    (void)state;
    crpc_op op = {.opcode = CRPC_OP_CALL, .reply_bytes_max = 1400, .timeout_ns = 1000000};
    assert_int_equal(rpc_call(pair.endpoint[0][0], &op, NULL), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
    pair.clock_ns += 999000;
    assert_int_equal(pair_poll(&pair, 0), 0); /* not early */
    pair.clock_ns += 20000;
    assert_int_equal(pair_poll(&pair, 0), 1);
    assert_int_equal(pair.seen[0].entries[0].status, CRPC_E_TIMEOUT);
    assert_int_equal(rpc_call(pair.endpoint[0][0], &op, NULL), CRPC_E_AGAIN);
    settle();
    assert_int_equal(stats_of(0).late_responses, 1);
    assert_int_equal(rpc_call(pair.endpoint[0][0], &op, NULL), CRPC_OK);
    rpc_submit_end(pair.engine[0]);
}

static void padding_and_old_bytes_are_not_sent(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) { /* fill the staging ring with something */
        assert_int_equal(pair_call(&pair, 0, 0, i, 300, 0xee, 0), CRPC_OK);
        pair_poll(&pair, 1);
        assert_int_equal(pair.seen[1].count, 1);
        crpc_op drop = {
            .opcode = CRPC_OP_DROP, .flags = CRPC_OP_QUIET, .token = pair.seen[1].entries[0].token};
        assert_int_equal(rpc_drop(pair.endpoint[1][0], &drop), CRPC_OK);
        rpc_submit_end(pair.engine[1]);
        pair_poll(&pair, 0);
    }
    assert_int_equal(pair_call(&pair, 0, 0, 1, 1, 0x11, 0), CRPC_OK);
    assert_int_equal(pair_poll(&pair, 1), 1);
    const uint8_t *payload = (const uint8_t *)(uintptr_t)pair.seen[1].entries[0].payload;
    for (uint32_t i = 1; i < 16; i++) {
        assert_int_equal(payload[i], 0);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_silent_dead_peer_is_noticed_by_the_keepalive(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    options.keepalive_ns = 1000000;
    uint32_t number = pair_connect(&pair, &options, &options);
    assert_int_equal(pair_call(&pair, 0, number, 5, 10, 1, 10), CRPC_OK);
    pair_poll(&pair, 0);
    memory_fabric_cut(pair.endpoint[1][number]->link.queue_pair);
    int ends = 0, calls = 0;
    for (int i = 0; i < 200; i++) {
        pair.clock_ns += 100000;
        pair_poll(&pair, 0);
        for (uint32_t j = 0; j < pair.seen[0].count; j++) {
            assert_int_equal(pair.seen[0].entries[j].status, CRPC_E_DISCONNECTED);
            calls += pair.seen[0].entries[j].kind == CRPC_COMPLETION_RESPONSE;
            ends += pair.seen[0].entries[j].kind == CRPC_COMPLETION_DISCONNECTED;
        }
    }
    assert_int_equal(calls, 1);
    assert_int_equal(ends, 1);
    pair_poll(&pair, 1); /* the request that came before the cut */
    pair_round_trip(&pair, 0);
}

/* No call is open: but its place among the endpoints is not taken for ever. */
static void an_idle_dead_peer_is_noticed(void **state)
{
    (void)state;
    for (uint32_t side = 0; side < 2; side++) {
        crpc_endpoint_options options = pair_options();
        options.keepalive_ns = 1000000;
        uint32_t number = pair_connect(&pair, &options, &options);
        memory_fabric_cut(pair.endpoint[!side][number]->link.queue_pair);
        uint32_t ends = 0;
        for (uint32_t i = 0; i < 200; i++) {
            pair.clock_ns += 100000;
            rpc_progress(pair.engine[side]); /* as one who sleeps: no deadline is missed */
            if (pair_poll(&pair, side) > 0) {
                assert_int_equal(pair.seen[side].count, 1);
                assert_int_equal(pair.seen[side].entries[0].kind, CRPC_COMPLETION_DISCONNECTED);
                assert_int_equal(pair.seen[side].entries[0].status, CRPC_E_DISCONNECTED);
                assert_in_range(i, 99, 130); /* ten intervals, and not one */
                ends++;
            }
        }
        assert_int_equal(ends, 1);
        link_close(&pair.endpoint[0][number]->link);
        link_close(&pair.endpoint[1][number]->link);
    }
    pair_round_trip(&pair, 0);
}

/* It has said that it leaves, and waits for a reply: this side is to end, too, and waits for that. */
static void a_peer_that_dies_while_it_leaves_is_noticed_soon(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    options.keepalive_ns = 1000000;
    uint32_t number = pair_connect(&pair, &options, &options);
    assert_int_equal(pair_call(&pair, 1, number, 5, 10, 1, 10), CRPC_OK);
    assert_int_equal(link_disconnect(&pair.endpoint[1][number]->link, CRPC_FOREVER), CRPC_OK);
    pair_poll(&pair, 1);
    pair_poll(&pair, 0); /* the request, and the peer's FIN */
    assert_int_equal(pair.endpoint[0][number]->link.state, CRPC_STATE_CLOSING);
    memory_fabric_cut(pair.endpoint[1][number]->link.queue_pair);
    for (uint32_t i = 0; i < 200; i++) {
        pair.clock_ns += 100000;
        rpc_progress(pair.engine[0]);
        pair_poll(&pair, 0);
        if (pair_find(&pair, 0, CRPC_COMPLETION_DISCONNECTED)) {
            assert_in_range(i, 9, 60); /* one interval, and the transport's retries */
            link_close(&pair.endpoint[0][number]->link);
            link_close(&pair.endpoint[1][number]->link);
            return;
        }
    }
    fail_msg("the end was not noticed");
}

static void a_leave_with_a_time_limit_ends(void **state)
{
    (void)state;
    assert_int_equal(pair_call(&pair, 0, 0, 5, 10, 1, 10), CRPC_OK);
    assert_int_equal(link_disconnect(&pair.endpoint[0][0]->link, 5000000), CRPC_OK);
    pair_poll(&pair, 1); /* never answers */
    assert_int_equal(pair_poll(&pair, 0), 0);
    pair.clock_ns += 6000000;
    assert_int_equal(pair_poll(&pair, 0), 2);
    assert_int_equal(pair.seen[0].entries[0].status, CRPC_E_DISCONNECTED);
    assert_int_equal(pair.seen[0].entries[1].kind, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(pair.seen[0].entries[1].status, CRPC_E_TIMEOUT);
}

static void a_leave_of_an_idle_connection_is_quick_and_symmetric(void **state)
{
    (void)state;
    assert_int_equal(link_disconnect(&pair.endpoint[0][0]->link, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(link_disconnect(&pair.endpoint[1][0]->link, CRPC_FOREVER), CRPC_OK);
    int ends = 0;
    for (int i = 0; i < 5; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            pair_poll(&pair, side);
            const crpc_completion *end = pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED);
            ends += end && end->status == CRPC_OK;
        }
    }
    assert_int_equal(ends, 2);
    assert_int_equal(stats_of(0).batches_sent, 1); /* FIN and nothing else */
}

static void what_the_peer_sent_before_it_died_is_delivered(void **state)
{
    (void)state;
    assert_int_equal(pair_call(&pair, 0, 0, 5, 10, 1, 10), CRPC_OK);
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    assert_int_equal(pair_echo(&pair, 1, 0, &pair.seen[1].entries[0], CRPC_OP_QUIET), CRPC_OK);
    crpc_error error = {.status = CRPC_E_DISCONNECTED};
    link_fail(&pair.endpoint[0][0]->link, &error); /* as rdma_cm would */
    pair_poll(&pair, 0);
    const crpc_completion *response = pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE);
    assert_non_null(response);
    assert_int_equal(response->status, CRPC_OK);
}

/* One that fails completes each of its WQEs, and what fills the end of the ring. */
static void an_endpoint_finds_room_for_all_its_completions_or_is_refused(void **state)
{
    struct pair small;
    struct nic_options options = {.receive_depth = 256, .send_depth = 32, .signal_interval = 8};
    const crpc_endpoint_options wanted = pair_options();
    struct rpc_endpoint *endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    (void)state;
    for (uint32_t places = 65; places <= 66; places++) {
        options.send_completion_depth = places;
        pair_open(&small, &options);
        pair_connect(&small, &wanted, &wanted);
        assert_int_equal(endpoint_blob(small.engine[0], &wanted, &endpoint, blob, &error),
                         places == 66 ? CRPC_OK : CRPC_E_NO_RESOURCE);
        pair_close(&small);
    }
    assert_non_null(strstr(error.message, "takes 65 sends, enough for 1 endpoints"));
}

static void a_batch_with_all_the_messages_it_can_count_gives_room_when_it_goes(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    options.ring_bytes = 16u << 20;
    options.request_bytes = 8u << 20;
    options.calls_max = 1u << 17;
    options.batch_window = 1;
    uint32_t number = pair_connect(&pair, &options, &options);
    uint64_t calls = 0;
    int32_t status;
    while ((status = pair_call(&pair, 0, number, calls, 0, 0, 0)) == CRPC_OK) {
        calls++;
        assert_true(calls <= 1 + WIRE_MESSAGES_MAX);
    }
    assert_int_equal(status, CRPC_E_AGAIN);
    assert_int_equal(calls, 1 + WIRE_MESSAGES_MAX); /* the first went out alone */
    uint32_t rooms = 0;
    for (int i = 0; i < 10; i++) {
        pair_poll(&pair, 1);
        pair_poll(&pair, 0);
        rooms += pair_find(&pair, 0, CRPC_COMPLETION_ROOM) != NULL;
        pair.clock_ns += 100000;
    }
    assert_int_equal(rooms, 1);
    assert_int_equal(pair_call(&pair, 0, number, calls, 0, 0, 0), CRPC_OK);
}

/* A device whose error overtakes a receive between two looks at its queues. */
static struct nic_operations overtaking;
static const struct nic_operations *overtaken;
static int overtaking_polls;

static uint32_t overtaking_poll(struct nic *nic, struct nic_completion *completions,
                                uint32_t capacity)
{
    if (overtaking_polls++ == 0) {
        completions[0] = (struct nic_completion){.queue_pair_number =
                                                     pair.endpoint[0][0]->link.queue_pair->number,
                                                 .kind = NIC_COMPLETION_ERROR,
                                                 .status = NIC_ERROR_RETRY};
        return 1;
    }
    return overtaken->poll(nic, completions, capacity);
}

static void a_response_behind_an_error_is_delivered(void **state)
{
    (void)state;
    assert_int_equal(pair_call(&pair, 0, 0, 5, 10, 1, 10), CRPC_OK);
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    assert_int_equal(pair_echo(&pair, 1, 0, &pair.seen[1].entries[0], CRPC_OP_QUIET), CRPC_OK);
    overtaken = pair.nic[0]->operations;
    overtaking = *overtaken;
    overtaking.poll = overtaking_poll;
    overtaking_polls = 0;
    pair.nic[0]->operations = &overtaking;
    assert_int_equal(pair_poll(&pair, 0), 2);
    assert_int_equal(pair.seen[0].entries[0].kind, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(pair.seen[0].entries[0].status, CRPC_OK);
    assert_int_equal(pair.seen[0].entries[1].kind, CRPC_COMPLETION_DISCONNECTED);
}

static void a_peer_that_demands_too_much_memory_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t ring_bytes, calls_max;
        int32_t status;
    } cases[] = {
        {128u << 20, 16, CRPC_E_NO_RESOURCE},
        {4096, 1u << 17, CRPC_E_NO_RESOURCE},
        {64u << 20, 1u << 16, CRPC_OK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_endpoint_options modest = pair_options(), large = pair_options();
        large.ring_bytes = cases[i].ring_bytes;
        large.calls_max = cases[i].calls_max;
        struct rpc_endpoint *left, *right;
        uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
        crpc_error error = {0};
        assert_int_equal(endpoint_blob(pair.engine[0], &modest, &left, left_blob, &error), CRPC_OK);
        assert_int_equal(endpoint_blob(pair.engine[1], &large, &right, right_blob, &error),
                         CRPC_OK);
        assert_int_equal(endpoint_join(left, right_blob, &error), cases[i].status);
        assert_int_equal(endpoint_join(right, left_blob, &error), CRPC_OK);
        link_close(&left->link);
        link_close(&right->link);
    }
}

/* Lets a minute pass at side 0 and counts the completions of its call and of its connection, which end
 * with the status. */
static void pass_a_minute(uint32_t connection, int *calls, int *ends)
{
    *calls = *ends = 0;
    for (int i = 0; i < 600; i++) {
        pair.clock_ns += 100000000;
        pair_poll(&pair, 0);
        for (uint32_t j = 0; j < pair.seen[0].count; j++) {
            const crpc_completion *completion = &pair.seen[0].entries[j];
            assert_int_equal(completion->endpoint.bits, pair.endpoint[0][connection]->link.handle);
            assert_int_equal(completion->status, CRPC_E_DISCONNECTED);
            *calls += completion->kind == CRPC_COMPLETION_RESPONSE;
            *ends += completion->kind == CRPC_COMPLETION_DISCONNECTED;
        }
    }
}

static uint32_t connect_with_keepalive(void)
{
    crpc_endpoint_options options = pair_options();
    options.keepalive_ns = 1000000000;
    return pair_connect(&pair, &options, &options);
}

/* Whoever uses up the receives of the peer, and the peer does not look after them. */
static void take_all_receives(uint32_t side, uint32_t connection)
{
    uint32_t number = pair.endpoint[side][connection]->link.queue_pair->number;
    while (memory_fabric_write_immediate(pair.fabric, number, 0, 0, 0, NULL, 0) == NIC_ERROR_NONE) {
    }
}

static void a_peer_that_posts_no_receives_is_given_up(void **state)
{
    (void)state;
    int calls, ends;
    uint32_t number = connect_with_keepalive();
    take_all_receives(1, number);
    assert_int_equal(pair_call(&pair, 0, number, 5, 10, 1, 10), CRPC_OK);
    pass_a_minute(number, &calls, &ends);
    assert_int_equal(calls, 1);
    assert_int_equal(ends, 1);
    assert_non_null(strstr(pair.endpoint[0][number]->link.error.message, "posts no receives"));
}

static void a_queue_pair_that_makes_no_progress_is_given_up(void **state)
{
    (void)state;
    int calls, ends;
    uint32_t number = connect_with_keepalive();
    memory_fabric_stall(pair.endpoint[0][number]->link.queue_pair, 1000000);
    assert_int_equal(pair_call(&pair, 0, number, 5, 10, 1, 10), CRPC_OK);
    pass_a_minute(number, &calls, &ends);
    assert_int_equal(calls, 1);
    assert_int_equal(ends, 1);
}

/* Its device acknowledges what its program does not take. */
static void a_peer_that_does_not_poll_is_waited_for(void **state)
{
    (void)state;
    int calls, ends;
    uint32_t number = connect_with_keepalive();
    assert_int_equal(pair_call(&pair, 0, number, 5, 10, 1, 10), CRPC_OK);
    pass_a_minute(number, &calls, &ends);
    assert_int_equal(calls, 0);
    assert_int_equal(ends, 0);
    pair_poll(&pair, 1);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(pair_echo(&pair, 1, number, request, 0), CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE)->status, CRPC_OK);
}

/* What is freed first would be written to when the other's timers are taken from the same wheel. */
static void an_engine_that_ends_leaves_no_timer_in_its_wheel(void **state)
{
    (void)state;
    crpc_endpoint_options options = pair_options();
    struct rpc_engine *engine = pair.engine[0];
    pair_connect(&pair, &options, &options);
    for (uint32_t number = 0; number < 2; number++) {
        crpc_op op = {.opcode = CRPC_OP_CALL, .reply_bytes_max = 8, .timeout_ns = 1000000};
        assert_int_equal(rpc_call(pair.endpoint[0][number], &op, NULL), CRPC_OK);
    }
    rpc_submit_end(engine);
    assert_int_not_equal(engine->links.wheel.count, 0);
    link_group_close(&engine->links);
    assert_int_equal(engine->links.wheel.count, 0);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_one, close_one)
    const struct CMUnitTest tests[] = {
        ONE(a_lone_call_goes_out_at_once_and_others_gather),
        ONE(replies_gather_until_the_last_one_owed),
        ONE(quiet_replies_ask_for_no_completion),
        ONE(a_poll_that_is_smaller_than_a_batch_loses_nothing),
        ONE(the_ring_wraps_at_every_offset),
        ONE(the_mailbox_is_read_only_while_blocked),
        ONE(an_allowance_is_held_until_the_late_response_has_come),
        ONE(padding_and_old_bytes_are_not_sent),
        ONE(a_silent_dead_peer_is_noticed_by_the_keepalive),
        ONE(an_idle_dead_peer_is_noticed),
        ONE(a_peer_that_dies_while_it_leaves_is_noticed_soon),
        ONE(a_leave_with_a_time_limit_ends),
        ONE(a_leave_of_an_idle_connection_is_quick_and_symmetric),
        ONE(what_the_peer_sent_before_it_died_is_delivered),
        cmocka_unit_test(an_endpoint_finds_room_for_all_its_completions_or_is_refused),
        ONE(a_batch_with_all_the_messages_it_can_count_gives_room_when_it_goes),
        ONE(a_response_behind_an_error_is_delivered),
        ONE(a_peer_that_demands_too_much_memory_is_refused),
        ONE(a_peer_that_posts_no_receives_is_given_up),
        ONE(a_queue_pair_that_makes_no_progress_is_given_up),
        ONE(a_peer_that_does_not_poll_is_waited_for),
        ONE(an_engine_that_ends_leaves_no_timer_in_its_wheel),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
