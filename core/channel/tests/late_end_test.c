/* late_end_test.c: rails that are lost and come back, as late as what is done for it outside of a poll; and what that
 * leaves the poll to do.
 */
#include "late_pair.h"

/* A rail is lost and comes back, and no poll of either side does what takes a device a system call each: only tasks do. */
static void no_poll_makes_or_destroys_queue_pairs_or_windows(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    options.queue_pairs = 2;
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    be_late();
    const struct memory_fabric_counters *counters = memory_fabric_counters(pair.fabric);
    const uint64_t before = counters->made + counters->unmade;
    uint64_t by_tasks = 0;
    rail_want_fence(pair.channel[0], 1);
    for (uint32_t i = 0; i < 20; i++) {
        channel_take_completions(pair.engine[0]);
        pair_wait(&pair, 20000000);
        pair_message(&pair, 20000, (uint8_t)i);
        assert_int_equal(counters->made + counters->unmade - before, by_tasks);
        late_cm_run_all(&late[0]);
        late_cm_run_all(&late[1]);
        by_tasks = counters->made + counters->unmade - before;
    }
    assert_int_equal(by_tasks, 2 * 2 * 2 * MADE_EACH); /* on both sides two */
    expect_rail_1_up();
}

/* It is offered again before they are gone: others are made when they are. */
static void a_rail_waits_for_the_end_of_what_it_had(void **state)
{
    (void)state;
    for (uint32_t situation = 0; situation < 4; situation++) {
        bool passive = situation & 1;
        uint32_t side = open_ending(situation & 2, passive);
        const struct engine_rail *rail = &pair.engine[side]->rails[1];
        const struct memory_fabric_counters *counters = memory_fabric_counters(pair.fabric);
        const uint64_t made = counters->made;
        pair.clock_ns += 50000000;
        pair_settle(&pair);
        let_side_come(!side);
        assert_int_equal(rail_1(side)->state, RAIL_MAKING);
        assert_int_equal(late[side].waiting_count, 1);
        assert_true(late_cm_waits(&rail_1(side)->ending.task));
        assert_false(late_cm_waits(&rail_1(side)->making.task));
        assert_int_equal(rail->queue_pairs, 2); /* not four */
        assert_int_equal(counters->made - made, passive ? 2 * MADE_EACH : 0);
        for (uint32_t i = 0; i < 5; i++) {
            pair_message(&pair, 20000, (uint8_t)i);
        }
        expect_rail_1_up();
    }
}

/* The windows of the lost rail are still bound to the memory: until they are gone, the application must not have it back. */
static void a_receive_waits_for_the_windows_of_a_lost_rail(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    be_late();
    assert_int_equal(pair_receive(&pair, 1, 0, 50000, 7, 70), CRPC_OK);
    pair_settle(&pair);
    rail_want_fence(pair.channel[1], 1);
    channel_take_completions(pair.engine[1]);
    pair_settle(&pair);
    pair_forget(&pair);
    pair_fill(&pair, 0, 0, 50000, 9);
    assert_int_equal(pair_send(&pair, 0, 0, 50000, 7, 71), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_OK);
    assert_true(pair_matches(&pair, 1, 0, 50000, 0, 9));
    assert_null(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0));
    assert_int_equal(pair.region[1].users, 1);
    late_cm_run_all(&late[1]);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_OK);
    assert_int_equal(pair.region[1].users, 0);
    pair_forget(&pair);
    expect_rail_1_up();
}

/* Its windows are gone at once, and with them all rights; its queue pairs when their task has ended, unless that has not begun. Nobody
 * waits for a task. */
static void a_channel_can_end_while_queue_pairs_do(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 16; kind++) {
        const bool begun = kind & 4, lost = kind & 8;
        uint32_t side = open_ending(kind & 2, kind & 1);
        struct channel_engine *engine = pair.engine[side];
        const struct memory_fabric_counters *counters = memory_fabric_counters(pair.fabric);
        assert_int_equal(pair_receive(&pair, side, 0, 100, 0, 1), CRPC_OK);
        pair_settle(&pair);
        const uint64_t windows = counters->regions;
        late[side].not_begun = !begun;
        if (lost) { /* it ends by itself */
            rail_want_fence(pair.channel[side], 0);
            channel_take_completions(engine);
            assert_int_equal(pair.channel[side]->link.state, CRPC_STATE_DISCONNECTED);
        } else {
            link_close(&pair.channel[side]->link);
        }
        /* of rail 0, and of rail 1 if they were still there */
        assert_true(windows - counters->regions >= (kind & 2 ? 2 : 4) * (MADE_EACH - 1));
        assert_int_equal(late[side].waiting_count, lost ? 2 : begun); /* rail 0's, too */
        pair_settle(&pair);
        assert_int_equal(pair.region[side].users, 0);
        let_side_come(side);
        assert_int_equal(engine->channel_count, lost);
        assert_int_equal(engine->rails[1].queue_pairs, 0);
        assert_false(late[side].waited);
        pair_close(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_poll_makes_or_destroys_queue_pairs_or_windows),
        cmocka_unit_test(a_rail_waits_for_the_end_of_what_it_had),
        cmocka_unit_test(a_receive_waits_for_the_windows_of_a_lost_rail),
        cmocka_unit_test(a_channel_can_end_while_queue_pairs_do),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
