/* lane_again_test.c: lanes that fail at moments that are rare, and what is made of them. */
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

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_lanes, close_lanes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(words_that_cannot_be_sent),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
