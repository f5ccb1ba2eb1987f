/* lane_ece_test.c: what both sides of an endpoint set of ECE, for the queue pair that their blobs connect and for that of the lane, of which
 * their words tell. On the in-memory NIC, where what is set is all that both devices offer.
 */
#include "lanes.h"

#define CARD 0x30000007u
#define OTHER_CARD 0x20000001u

static struct lanes lanes;

static uint32_t ece_of(const struct nic_queue_pair *queue_pair)
{
    struct nic_address address;
    queue_pair->operations->queue_pair_address(queue_pair, &address);
    return address.ece.options;
}

static void expect(uint32_t options)
{
    for (uint32_t side = 0; side < 2; side++) {
        const struct rpc_endpoint *endpoint = lanes_of(&lanes, side);
        assert_int_equal(endpoint->lane.state, RPC_LANE_OPEN);
        assert_int_equal(ece_of(endpoint->link.queue_pair), options);
        assert_int_equal(ece_of(lane_queue_pair(endpoint->lane.lane)), options);
    }
}

static void both_queue_pairs_have_what_both_devices_offer(void **state)
{
    static const struct {
        uint32_t left, right, set;
    } cases[] = {{CARD, CARD, CARD},
                 {CARD, OTHER_CARD, OTHER_CARD},
                 {OTHER_CARD, CARD, OTHER_CARD},
                 {CARD, 0, 0},
                 {0, CARD, 0},
                 {0x0fffffff, CARD, 0},
                 {0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pair_ece[0] = cases[i].left;
        pair_ece[1] = cases[i].right;
        lanes_open(&lanes);
        expect(cases[i].set);
        const struct lane_grant *taken = lanes_grant(&lanes);
        struct lane_op op = lanes_op(&lanes, taken, LANE_WRITE, 0, 8);
        int32_t reason;
        op.remote_key++; /* the lane fails, and is made again */
        assert_int_equal(rpc_lane_post(lanes_of(&lanes, 0), &op, 1, &reason), 1);
        lanes_expect(&lanes, 0, LANE_WRITE, CRPC_E_ACCESS);
        for (uint32_t round = 0; round < 20; round++) {
            lanes.pair.clock_ns += LANE_PAUSE_MAX_NS;
            lanes_settle(&lanes);
        }
        assert_true(lanes_of(&lanes, 0)->lane.life > 1);
        expect(cases[i].set);
        lanes_close(&lanes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_queue_pairs_have_what_both_devices_offer),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
