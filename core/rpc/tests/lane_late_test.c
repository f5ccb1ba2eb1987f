/* lane_late_test.c: lanes whose queue pairs are connected late: what happens meanwhile. */
#include "lanes.h"
#include "link/tests/late_cm.h"

static struct lanes lanes;
static struct cm late[2];
static uint32_t number; /* of the connection whose lane is being made */

static struct rpc_endpoint *joining(uint32_t side)
{
    return lanes.pair.endpoint[side][number];
}

static void poll_both(uint32_t times)
{
    for (uint32_t i = 0; i < 2 * times; i++) {
        pair_poll(&lanes.pair, i % 2);
    }
}

/* Both know the other's address, and neither is connected to it. */
static int open_joining(void **state)
{
    crpc_endpoint_options options = lanes_options();
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    (void)state;
    lanes_open(&lanes);
    number = lanes.pair.connections++;
    for (uint32_t side = 0; side < 2; side++) {
        late_cm_init(&late[side]);
        assert_int_equal(endpoint_blob(lanes.pair.engine[side], &options,
                                       &lanes.pair.endpoint[side][number], blob[side], &error),
                         CRPC_OK);
    }
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(endpoint_join(joining(side), blob[!side], &error), CRPC_OK);
        lanes.pair.engine[side]->links.cm = &late[side];
    }
    return 0;
}

static void start_joins(void)
{
    poll_both(3);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(joining(side)->lane.state, RPC_LANE_JOINING);
        assert_int_equal(late[side].waiting_count, 1);
    }
}

static int close_joining(void **state)
{
    (void)state;
    lanes_close(&lanes);
    return 0;
}

static void calls_do_not_wait_for_it(void **state)
{
    (void)state;
    start_joins();
    for (uint32_t i = 0; i < 5; i++) {
        pair_round_trip(&lanes.pair, number);
        assert_int_equal(rpc_lane_bar(joining(0)), CRPC_E_AGAIN);
        assert_int_equal(lanes_after(joining(0)), CRPC_OK);
        assert_int_equal(pair_poll(&lanes.pair, 1), 1);
        assert_int_equal(
            pair_echo(&lanes.pair, 1, number, &lanes.pair.seen[1].entries[0], CRPC_OP_QUIET),
            CRPC_OK);
        pair_poll(&lanes.pair, 0); /* and ROOM, which ops of the lane wait for, is early */
    }
    late_cm_run_all(&late[0]);
    poll_both(2); /* the other is not ready */
    assert_int_equal(rpc_lane_bar(joining(0)), CRPC_E_AGAIN);
    assert_int_equal(rpc_lane_bar(joining(1)), CRPC_E_AGAIN);
    late_cm_run_all(&late[1]);
    poll_both(3);
    assert_int_equal(rpc_lane_bar(joining(0)), CRPC_OK);
    assert_int_equal(rpc_lane_bar(joining(1)), CRPC_OK);
    assert_false(late[0].waited || late[1].waited);
}

/* A message that is being written in place holds *ready* back, and the peer must not get a grant before it. */
static void not_open_before_it_has_said_so(void **state)
{
    (void)state;
    const crpc_op call = {.opcode = CRPC_OP_CALL, .payload_bytes = 8, .reply_bytes_max = 8};
    void *place;
    start_joins();
    late_cm_run_all(&late[1]);
    poll_both(2);
    assert_int_equal(rpc_reserve(joining(0), &call, &place), CRPC_OK);
    late_cm_run_all(&late[0]);
    poll_both(2);
    assert_int_equal(rpc_lane_bar(joining(0)), CRPC_E_AGAIN);
    assert_int_equal(rpc_abort(joining(0)), CRPC_OK);
    poll_both(3);
    assert_int_equal(rpc_lane_bar(joining(0)), CRPC_OK);
    assert_int_equal(rpc_lane_bar(joining(1)), CRPC_OK);
}

/* Our side has ended before it parses *ready*, and a REVOKE behind it: the peer has kept the rules. */
static void lost_before_it_opens(void **state)
{
    (void)state;
    const struct lane_memory memory = {.keys = &lanes.keys[1],
                                       .users = &lanes.users[1],
                                       .address = (uint64_t)(uintptr_t)lanes.memory[1],
                                       .bytes = 64,
                                       .access = CRPC_ACCESS_REMOTE_READ};
    crpc_error error = {.status = CRPC_E_DISCONNECTED, .message = "gone"};
    start_joins();
    late_cm_run_all(&late[0]);
    late_cm_run_all(&late[1]);
    pair_poll(&lanes.pair, 0);
    pair_poll(&lanes.pair, 1);
    assert_int_equal(rpc_lane_bar(joining(0)), CRPC_E_AGAIN);
    assert_int_equal(rpc_lane_give(joining(1), &memory, 3), CRPC_OK);
    pair_poll(&lanes.pair, 1);
    struct lane_grant *grant =
        handles_get(&lanes.pair.handles[1], pair_find(&lanes.pair, 1, CRPC_COMPLETION_WORK)->token,
                    HANDLE_GRANT);
    assert_int_equal(rpc_lane_revoke(joining(1), grant, 4, 0), CRPC_OK);
    pair_poll(&lanes.pair, 1);
    link_fail(&joining(0)->link, &error);
    pair_poll(&lanes.pair, 0);
    const crpc_completion *end = pair_find(&lanes.pair, 0, CRPC_COMPLETION_DISCONNECTED);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_DISCONNECTED);
}

static void closed_meanwhile(void **state)
{
    (void)state;
    start_joins();
    link_close(&joining(0)->link);
    assert_null(late_cm_fault(&lanes.pair.engine[0]->links));
    assert_int_equal(lanes.pair.engine[0]->lane_places, 2); /* the task has its queue pair */
    poll_both(2);
    late_cm_run_all(&late[0]);
    poll_both(1);
    assert_int_equal(lanes.pair.engine[0]->lane_places, 1);
    assert_int_equal(lanes.pair.engine[0]->endpoint_count, 1);
    pair_round_trip(&lanes.pair, 0);
}

static void lost_meanwhile(void **state)
{
    (void)state;
    crpc_error error = {.status = CRPC_E_DISCONNECTED, .message = "gone"};
    start_joins();
    link_fail(&joining(0)->link, &error);
    pair_poll(&lanes.pair, 0);
    assert_non_null(pair_find(&lanes.pair, 0, CRPC_COMPLETION_DISCONNECTED));
    late_cm_run_all(&late[0]);
    poll_both(1);
    assert_int_equal(joining(0)->lane.number, 0);
    link_close(&joining(0)->link);
    poll_both(1);
    assert_int_equal(lanes.pair.engine[0]->endpoint_count, 1);
}

/* The peer's side fails first: it says so, and ours ends when its task has. */
static void the_peers_fails_meanwhile(void **state)
{
    (void)state;
    start_joins();
    memory_fabric_set_failures(lanes.pair.fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
    late_cm_run_all(&late[1]);
    poll_both(2);
    assert_int_equal(joining(0)->lane.state, RPC_LANE_FAILED);
    assert_int_equal(joining(1)->lane.state, RPC_LANE_FAILED);
    late_cm_run_all(&late[0]);
    poll_both(2);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(joining(side)->lane.number, 0);
    }
    pair_round_trip(&lanes.pair, number);
}

static void it_cannot_be_started(void **state)
{
    (void)state;
    late[0].refuse = 1;
    poll_both(4);
    assert_int_equal(joining(0)->lane.state, RPC_LANE_FAILED);
    late_cm_run_all(&late[1]);
    poll_both(2);
    assert_int_equal(joining(1)->lane.state, RPC_LANE_FAILED);
    pair_round_trip(&lanes.pair, number);
}

static void both_take_leave_meanwhile(void **state)
{
    (void)state;
    start_joins();
    assert_int_equal(link_disconnect(&joining(0)->link, CRPC_FOREVER), CRPC_OK);
    for (uint32_t i = 0; i < 6; i++) {
        pair_poll(&lanes.pair, i % 2);
    }
    assert_int_equal(joining(0)->link.state, CRPC_STATE_DISCONNECTED);
    assert_int_equal(joining(1)->link.state, CRPC_STATE_DISCONNECTED);
    late_cm_run_all(&late[0]);
    late_cm_run_all(&late[1]);
    poll_both(1);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(joining(side)->lane.number, 0);
    }
}

/* The peer ends its lane, and gives an address for the next that none can have, while a thread reads the one
 * before. */
static void another_address_comes_meanwhile(void **state)
{
    (void)state;
    const struct wire_lane_state ended = {.life = 1, .state = WIRE_LANE_ENDED};
    const struct wire_lane bad = {.life = 2};
    uint8_t words[2][sizeof(bad)] = {{0}};
    start_joins();
    uint32_t peer_number = joining(1)->lane.number;
    const struct nic_queue_pair *queue_pair = lane_queue_pair(joining(0)->lane.lane);
    memcpy(words[0], &ended, sizeof(ended));
    memcpy(words[1], &bad, sizeof(bad));
    assert_null(rpc_lane_take_word(joining(0), WIRE_LANE_STATE, words[0], sizeof(ended)));
    const char *fault = rpc_lane_take_word(joining(0), WIRE_LANE, words[1], sizeof(bad));
    assert_non_null(fault);
    link_violated(&joining(0)->link, "%s", fault);
    late_cm_run_all(&late[0]);
    assert_int_equal(queue_pair->peer_number, peer_number);
    poll_both(2);
    assert_int_equal(joining(0)->link.error.status, CRPC_E_PROTOCOL);
    assert_int_equal(joining(0)->lane.number, 0);
    pair_round_trip(&lanes.pair, 0);
}

/* The context is closed while tasks are under way. */
static void destroyed_meanwhile(void **state)
{
    (void)state;
    start_joins();
    late_cm_run_all(&late[0]); /* done, and its event is not taken */
}

#define LATE_TEST(name) cmocka_unit_test_setup_teardown(name, open_joining, close_joining)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LATE_TEST(calls_do_not_wait_for_it), LATE_TEST(not_open_before_it_has_said_so),
        LATE_TEST(lost_before_it_opens),     LATE_TEST(closed_meanwhile),
        LATE_TEST(lost_meanwhile),           LATE_TEST(the_peers_fails_meanwhile),
        LATE_TEST(it_cannot_be_started),     LATE_TEST(both_take_leave_meanwhile),
        LATE_TEST(destroyed_meanwhile),      LATE_TEST(another_address_comes_meanwhile),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
