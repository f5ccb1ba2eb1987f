/* lane_again_test.c: lanes at moments that are rare: words that have to wait, and what is made of them. */
#include "lanes.h"

static struct lanes lanes;

static int open_lanes(void **state)
{
    (void)state;
    lanes_open(&lanes);
    return 0;
}

static int close_lanes(void **state)
{
    (void)state;
    lanes_close(&lanes);
    return 0;
}

/* The lane of side 0 has failed of a wrong key. */
static void fail_lane(const struct lane_grant *taken)
{
    struct lane_op op = lanes_op(&lanes, taken, LANE_WRITE, 0, 8);
    int32_t reason;
    op.remote_key++;
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), &op, 1, &reason), 1);
    lanes_expect(&lanes, 0, LANE_WRITE, CRPC_E_ACCESS);
}

/* Of the op that was refused, and not of those that were flushed behind it. */
static void the_log_says_why(void **state)
{
    (void)state;
    const struct lane_grant *taken = lanes_grant(&lanes);
    struct lane_op ops[2] = {lanes_op(&lanes, taken, LANE_WRITE, 0, 8),
                             lanes_op(&lanes, taken, LANE_WRITE, 0, 8)};
    crpc_log_entry entry;
    int32_t reason;
    lanes.pair.log.ring_level = CRPC_LOG_WARNING;
    ops[0].remote_key++;
    assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), ops, 2, &reason), 2);
    pair_poll(&lanes.pair, 0);
    assert_int_equal(log_read(&lanes.pair.log, &entry, 1), 1);
    assert_non_null(strstr(entry.message, "refused an op"));
}

/* The peer takes no batch for a while: no life begins whose words would follow others that are not sent. */
static void words_that_cannot_be_sent(void **state)
{
    (void)state;
    struct rpc_endpoint *endpoint = lanes_of(&lanes, 0);
    const struct lane_grant *taken = lanes_grant(&lanes);
    while (endpoint->out.batches_sent < endpoint->out.batch_limit) {
        assert_int_equal(pair_call(&lanes.pair, 0, 0, 1, 0, 0, 0), CRPC_OK);
        rpc_poll(lanes.pair.engine[0], NULL, 0);
    }
    fail_lane(taken);
    for (uint32_t i = 0; i < 4; i++) {
        lanes.pair.clock_ns += LANE_PAUSE_MAX_NS + 1000000;
        rpc_poll(lanes.pair.engine[0], NULL, 0);
    }
    assert_int_equal(endpoint->lane.life, 1);
    assert_int_equal(endpoint->out.batch_messages, 1);
    for (uint32_t i = 0; i < 4; i++) {
        lanes.pair.clock_ns += LANE_PAUSE_MAX_NS + 1000000;
        lanes_settle(&lanes);
    }
    assert_int_equal(rpc_lane_bar(endpoint), CRPC_OK);
}

/* The open batch has as many messages as it can count, so there is no place for an answer: it is said behind
 * that batch, although nothing else is to be sent then. */
static void a_word_behind_a_full_batch(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    crpc_endpoint_options options = lanes_options();
    options.ring_bytes = 16u << 20;
    options.request_bytes = 8u << 20;
    options.calls_max = 1u << 17;
    for (uint32_t side = 0; side < 2; side++) {
        link_close(&lanes_of(&lanes, side)->link);
    }
    pair->connections = 0;
    pair_connect(pair, &options, &options);
    lanes_settle(&lanes);
    lanes_grant(&lanes);
    while (pair_call(pair, 0, 0, 1, 0, 0, 0) == CRPC_OK) {
        if (lanes_of(&lanes, 0)->out.batch_limit != lanes_of(&lanes, 0)->out.batches_sent) {
            pair_poll(pair, 0);
        }
    }
    assert_int_equal(lanes_of(&lanes, 0)->out.batch_messages, WIRE_MESSAGES_MAX);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    endpoint_flush(lanes_of(&lanes, 1)); /* says REVOKE, and takes nothing yet */
    pair_poll(pair, 0);
    assert_true(lane_answer_owed(lanes_of(&lanes, 0)->lane.lane));
    for (uint32_t i = 0; i < 60; i++) {
        pair->clock_ns += 2 * READ_BACKOFF_MAX_NS;
        lanes_settle(&lanes);
    }
    assert_int_equal(lanes.requests, lanes_of(&lanes, 0)->stats.calls);
    assert_int_equal(lanes.revoked, 1);
}

/* The peer of another connection sends as many requests as a poll takes: ops complete all the same. And there
 * are more ops than a poll takes: requests come all the same. */
static void a_flood_starves_nobody(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    crpc_endpoint_options options = pair_options();
    const struct lane_grant *taken = lanes_grant(&lanes);
    uint32_t number = pair_connect(pair, &options, &options);
    for (uint32_t capacity = 1; capacity <= 4; capacity++) {
        crpc_completion seen[4];
        uint32_t works = 0, requests = 0;
        for (uint32_t round = 0; round < 40; round++) {
            for (uint32_t i = 0; i < capacity; i++) {
                if (lane_room(lanes_of(&lanes, 0)->lane.lane) > 0) {
                    lanes_write(&lanes, taken, 0, 8);
                }
                pair_call(pair, 1, number, 0, 0, 0, 0);
            }
            pair_poll(pair, 1);
            uint32_t count = rpc_poll(pair->engine[0], seen, capacity);
            for (uint32_t i = 0; i < count; i++) {
                works += seen[i].kind == CRPC_COMPLETION_WORK;
                requests += seen[i].kind == CRPC_COMPLETION_REQUEST;
                const crpc_op drop = {
                    .opcode = CRPC_OP_DROP, .flags = CRPC_OP_QUIET, .token = seen[i].token};
                rpc_drop(pair->endpoint[0][number], &drop);
            }
            rpc_submit_end(pair->engine[0]);
        }
        print_message("# %u at once: %u ops, %u requests\n", capacity, works, requests);
        assert_true(works >= 10 * capacity && requests >= 10 * capacity);
    }
}

/* One lane has always more completions than a poll takes: those of another come all the same. */
static void lanes_take_turns(void **state)
{
    (void)state;
    struct pair *pair = &lanes.pair;
    crpc_endpoint_options options = lanes_options();
    const struct lane_grant *taken = lanes_grant(&lanes);
    const uint32_t number = pair_connect(pair, &options, &options);
    struct rpc_endpoint *other = pair->endpoint[0][number];
    const struct lane_memory memory = {.keys = &lanes.keys[0],
                                       .users = &lanes.users[0],
                                       .address = (uint64_t)(uintptr_t)lanes.memory[0],
                                       .bytes = 64,
                                       .access = CRPC_ACCESS_REMOTE_READ};
    uint32_t found = 0;
    lanes_settle(&lanes);
    for (uint32_t round = 0; round < 40; round++) {
        crpc_completion seen[4];
        while (lane_room(lanes_of(&lanes, 0)->lane.lane) > 0) {
            lanes_write(&lanes, taken, 0, 8);
        }
        if (round == 4) {
            assert_int_equal(rpc_lane_give(other, &memory, 9), CRPC_OK);
        }
        pair_poll(pair, 1);
        uint32_t count = rpc_poll(pair->engine[0], seen, 4);
        for (uint32_t i = 0; i < count; i++) {
            found +=
                seen[i].kind == CRPC_COMPLETION_WORK && seen[i].endpoint.bits == other->link.handle;
        }
    }
    assert_int_equal(found, 1);
}

static struct nic_operations recording;
static struct nic_transport recorded; /* of the last connect */

static int32_t record_connect(struct nic_queue_pair *queue_pair, const struct nic_address *peer,
                              const struct nic_transport *transport, crpc_error *error)
{
    recorded = *transport;
    return nic_memory_operations.queue_pair_connect(queue_pair, peer, transport, error);
}

/* A peer's device can say for ever that it is not ready, though no op of a lane needs a receive there. Nothing
 * else would end such an op: the lane's queue pair must give up. */
static void a_peer_that_is_never_ready(void **state)
{
    (void)state;
    crpc_endpoint_options options = lanes_options();
    recording = nic_memory_operations;
    recording.queue_pair_connect = record_connect;
    lanes.pair.engine[0]->operations = &recording;
    pair_connect(&lanes.pair, &options, &options);
    lanes_settle(&lanes);
    assert_true(recorded.atomics);
    assert_true(nic_rnr_retry(&recorded) < NIC_RNR_RETRY);
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_lanes, close_lanes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(the_log_says_why),           LANE_TEST(words_that_cannot_be_sent),
        LANE_TEST(a_word_behind_a_full_batch), LANE_TEST(a_flood_starves_nobody),
        LANE_TEST(a_peer_that_is_never_ready), LANE_TEST(lanes_take_turns),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
