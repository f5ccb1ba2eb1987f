/* rail_test.c: rails that one side lacks, that fail and come back, at good moments and bad ones, and
 * what a peer writes that keeps no rule: on the in-memory NIC.
 */
#include "pair_fixture.h"

/* ---- Rails ----------------------------------------------------------------------------------- */

static void a_rail_that_one_side_lacks_is_left_out(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 1);
    pair_connect(&pair, &options);
    assert_int_equal(pair_info(&pair, 0).rail_state[0], CRPC_RAIL_UP);
    assert_int_equal(pair_info(&pair, 0).rail_state[1], CRPC_RAIL_LACKED);
    assert_int_equal(pair_info(&pair, 1).rail_state[1], CRPC_RAIL_NONE);
    pair_message(&pair, 100000, 1);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 1);
    pair_close(&pair);
}

static void a_lost_rail_loses_nothing_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t rail = 0; rail < 2; rail++) {
        assert_int_equal(pair_receive(&pair, 1, 0, 100000, 0, 1), CRPC_OK);
        pair_settle(&pair);
        memory_fabric_set_link(pair.nic[0][rail], false);
        pair_fill(&pair, 0, 0, 100000, (uint8_t)rail);
        assert_int_equal(pair_send(&pair, 0, 0, 100000, 0, 2), CRPC_OK);
        pair_wait(&pair, 10000);
        assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_OK);
        assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_OK);
        assert_true(pair_matches(&pair, 1, 0, 100000, 0, (uint8_t)rail));
        for (uint32_t side = 0; side < 2; side++) {
            const crpc_completion *event = pair_find(&pair, side, CRPC_COMPLETION_RAIL, 0);
            assert_non_null(event);
            assert_int_equal(event->status, CRPC_E_DISCONNECTED);
            assert_int_equal(event->token, rail);
            assert_int_equal(pair_info(&pair, side).rail_state[rail], CRPC_RAIL_DOWN);
        }
        pair_forget(&pair);
        pair_message(&pair, 50000, 5);
        memory_fabric_set_link(pair.nic[0][rail], true);
        pair_wait(&pair, 100000000);
        for (uint32_t side = 0; side < 2; side++) {
            const crpc_completion *event = pair_find(&pair, side, CRPC_COMPLETION_RAIL, 0);
            assert_non_null(event);
            assert_int_equal(event->status, CRPC_OK);
            assert_int_equal(pair_info(&pair, side).rail_state[rail], CRPC_RAIL_UP);
        }
        pair_forget(&pair);
        uint64_t before = pair_stats(&pair, 0).rail_messages_sent[rail];
        for (uint32_t i = 0; i < 20; i++) { /* every slot more than once */
            pair_message(&pair, 50000, (uint8_t)i);
        }
        assert_int_equal(pair_stats(&pair, 0).rail_messages_sent[rail], before + 20);
    }
    assert_true(pair_stats(&pair, 0).shares_repeated >= 2);
}

static void only_the_loss_of_both_rails_ends_a_channel(void **state)
{
    (void)state;
    memory_fabric_set_link(pair.nic[0][0], false);
    memory_fabric_set_link(pair.nic[0][1], false);
    assert_int_equal(pair_receive(&pair, 1, 0, 100000, 0, 1), CRPC_OK);
    assert_int_equal(pair_receive(&pair, 0, 0, 100000, 0, 1), CRPC_OK);
    pair_settle(&pair);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_RECEIVED, 0)->status,
                         CRPC_E_DISCONNECTED);
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED, 0)->status,
                         CRPC_E_DISCONNECTED);
        assert_int_equal(pair_send(&pair, side, 0, 10, 0, 1), CRPC_E_DISCONNECTED);
    }
}

/* Polls one side for so long that the fabric gives up on what gets no answer, and shows nothing. */
static void poll_unseen(uint32_t side)
{
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(channel_poll(pair.engine[side], NULL, 0), 0);
    }
}

static void lose_rail_1(void)
{
    memory_fabric_set_link(pair.nic[0][1], false);
    assert_int_equal(pair_receive(&pair, 1, 0, 100000, 0, 1), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 0, 100000, 0, 2), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_info(&pair, 0).rail_state[1], CRPC_RAIL_DOWN);
    assert_int_equal(pair_info(&pair, 1).rail_state[1], CRPC_RAIL_DOWN);
    pair_forget(&pair);
}

/* Nothing is under way. The application hears of the rail, and the log tells why. The rail is not used again, and memory needs no key of
 * its device. */
static void a_device_is_lost(uint32_t rail)
{
    struct cm_event event = {.kind = CM_EVENT_DEVICE_FATAL,
                             .nic = rail,
                             .error = {.status = CRPC_E_SYSTEM, .message = "it was removed"}};
    crpc_channel_options options = pair_options();
    crpc_log_entry entries[8];
    bool told = false;
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    pair.log.ring_level = CRPC_LOG_ERROR;
    pair_message(&pair, 50000, 1);
    pair_forget(&pair);
    assert_int_equal(channel_rails(pair.channel[0]), 3);
    channel_device_event(&pair.engine[0]->links, &event);
    assert_int_equal(channel_rails(pair.channel[0]), 3 & ~(1u << rail));
    pair_settle(&pair);
    assert_int_equal(pair.seen[0].count, 1);
    assert_int_equal(pair.seen[0].entries[0].kind, CRPC_COMPLETION_RAIL);
    assert_int_equal(pair.seen[0].entries[0].status, CRPC_E_DISCONNECTED);
    assert_int_equal(pair.seen[0].entries[0].token, rail);
    uint32_t count = log_read(&pair.log, entries, 8);
    for (uint32_t i = 0; i < count; i++) {
        told |= strstr(entries[i].message, "it was removed") != NULL;
    }
    assert_true(told);
    pair_wait(&pair, 1000000000); /* the peer may offer it, and is told that it is not to be had */
    assert_int_equal(pair_info(&pair, 0).rail_state[rail], CRPC_RAIL_DOWN);
    pair_forget(&pair);
    pair_message(&pair, 50000, 2);
    pair_close(&pair);
}

static void the_device_of_rail_0_is_lost(void **state)
{
    (void)state;
    a_device_is_lost(0);
}

static void the_device_of_rail_1_is_lost(void **state)
{
    (void)state;
    a_device_is_lost(1);
}

/* The side that answers offers. */
static uint32_t passive_side(void)
{
    return pair.channel[0]->link.passive ? 0 : 1;
}

static struct channel_control rail_1_line(uint32_t side, uint8_t kind)
{
    return (struct channel_control){.sequence = pair.channel[side]->control.in_sequence,
                                    .kind = kind,
                                    .rail = 1,
                                    .epoch = pair.channel[side]->rails[1].epoch + 1};
}

/* The completions of a message and of the error after it come at once. */
static void control_that_was_flushed_is_sent_again(void **state)
{
    (void)state;
    assert_int_equal(pair_receive(&pair, 1, 0, 100, 0, 1), CRPC_OK);
    pair_settle(&pair); /* it is clear to send */
    assert_int_equal(pair_send(&pair, 0, 0, 100, 0, 2), CRPC_OK);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 1);
    memory_fabric_set_link(pair.nic[0][0], false);
    assert_int_equal(link_disconnect(&pair.channel[0]->link, CRPC_FOREVER), CRPC_OK);
    channel_submit_end(pair.engine[0]); /* the LEAVE, on rail 0 */
    poll_unseen(1);
    pair_settle(&pair);
    for (uint32_t side = 0; side < 2; side++) {
        const crpc_completion *end = pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED, 0);
        assert_non_null(end);
        assert_int_equal(end->status, CRPC_OK);
    }
}

static void a_rail_that_fails_before_its_answer_is_answered_as_failed(void **state)
{
    (void)state;
    uint32_t passive = passive_side();
    struct channel_engine *engine = pair.engine[passive];
    struct channel *channel = pair.channel[passive];
    lose_rail_1();
    pair.clock_ns += 20000000;
    poll_unseen(!passive);
    channel_take_completions(engine); /* the offer */
    assert_int_equal(channel->rails[1].state, RAIL_PROBING);
    rail_want_fence(channel, 1); /* an event of the device */
    channel_take_completions(engine);
    assert_int_equal(channel->rails[1].state, RAIL_DOWN);
    pair_settle(&pair);
    assert_int_equal(pair_info(&pair, !passive).rail_state[1], CRPC_RAIL_DOWN);
    memory_fabric_set_link(pair.nic[0][1], true);
    pair_wait(&pair, 100000000);
    assert_int_equal(pair_info(&pair, 0).rail_state[1], CRPC_RAIL_UP);
    assert_int_equal(pair_info(&pair, 1).rail_state[1], CRPC_RAIL_UP);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_RAIL), 1);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RAIL), 1);
}

static void a_report_before_the_answer_ends_the_channel(void **state)
{
    (void)state;
    uint32_t passive = passive_side();
    lose_rail_1();
    struct channel_control line = rail_1_line(passive, CHANNEL_CONTROL_OFFER);
    struct channel_offer *offer = (struct channel_offer *)line.body;
    offer->queue_pairs = 1;
    offer->addresses[0] = pair.channel[passive]->rails[0].peer[0];
    pair_write_line(&pair, passive, &line);
    line = rail_1_line(passive, CHANNEL_CONTROL_REPORT);
    line.sequence++;
    pair_write_line(&pair, passive, &line);
    pair_poll(&pair, passive);
    assert_int_equal(pair_find(&pair, passive, CRPC_COMPLETION_DISCONNECTED, 0)->status,
                     CRPC_E_PROTOCOL);
}

/* Attempts that fail in between change nothing that the application knows. */
static void rail_events_alternate_however_late_they_are_taken(void **state)
{
    (void)state;
    crpc_completion none;
    assert_int_equal(pair_receive(&pair, 1, 0, 100000, 0, 1), CRPC_OK);
    pair_settle(&pair);
    memory_fabric_set_link(pair.nic[0][1], false);
    assert_int_equal(pair_send(&pair, 0, 0, 100000, 0, 2), CRPC_OK);
    for (uint32_t i = 0; i < 2000; i++) {
        pair.clock_ns += 200000;
        assert_int_equal(channel_poll(pair.engine[0], &none, 0), 0);
        assert_int_equal(channel_poll(pair.engine[1], &none, 0), 0);
    }
    assert_true(pair.channel[0]->rails[1].epoch > 3);
    memory_fabric_set_link(pair.nic[0][1], true);
    pair_wait(&pair, 400000000);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_info(&pair, side).rail_state[1], CRPC_RAIL_UP);
        assert_int_equal(pair_count(&pair, side, CRPC_COMPLETION_RAIL), 2);
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_RAIL, 0)->status,
                         CRPC_E_DISCONNECTED);
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_RAIL, 1)->status, CRPC_OK);
    }
}

/* It is told of as one that is used, and was never lost: only what comes after counts as a recovery. */
static void a_rail_that_comes_late_is_no_recovery(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    memory_fabric_set_link(pair.nic[0][1], false);
    pair_connect(&pair, &options);
    for (uint32_t round = 0; round < 3; round++) {
        if (round > 0) {
            lose_rail_1();
        }
        memory_fabric_set_link(pair.nic[0][1], true);
        pair_wait(&pair, 400000000);
        for (uint32_t side = 0; side < 2; side++) {
            assert_int_equal(pair_info(&pair, side).rail_state[1], CRPC_RAIL_UP);
            assert_int_equal(pair_count(&pair, side, CRPC_COMPLETION_RAIL), 1);
            assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_RAIL, 0)->status, CRPC_OK);
            assert_int_equal(pair_stats(&pair, side).rail_failures[1], round);
            assert_int_equal(pair_stats(&pair, side).rail_recoveries[1], round);
        }
        pair_forget(&pair);
    }
    pair_close(&pair);
}

/* What connected the sides carries messages; and what fewer were agreed on than were made is gone. */
static void the_queue_pair_of_the_hellos_is_one_of_rail_0(void **state)
{
    (void)state;
    crpc_channel_options more = pair_options(), fewer = pair_options();
    more.queue_pairs = 3;
    fewer.queue_pairs = 2;
    pair_open(&pair, 2, 2);
    pair_join(&pair, &more, &fewer);
    struct nic_queue_pair *met[2] = {pair.channel[0]->link.queue_pair,
                                     pair.channel[1]->link.queue_pair};
    pair_wait(&pair, 400000000);
    for (uint32_t side = 0; side < 2; side++) {
        assert_ptr_equal(pair.channel[side]->rails[0].queues[0]->queue_pair, met[side]);
        for (uint32_t rail = 0; rail < 2; rail++) {
            assert_non_null(pair.channel[side]->rails[rail].queues[1]);
            assert_null(pair.channel[side]->rails[rail].queues[2]);
        }
    }
    pair_forget(&pair);
    uint64_t before = met[0]->stats.wqes;
    pair_message(&pair, 5000, 1);
    assert_true(met[0]->stats.wqes > before);
    pair_close(&pair);
}

/* One side's only rail goes while it waits for the other: it is not connected. */
static void a_channel_without_a_rail_is_not_connected(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    memory_fabric_set_link(pair.nic[0][1], false);
    pair_join(&pair, &options, &options);
    pair_settle(&pair);
    uint32_t passive = passive_side();
    assert_int_equal(pair.channel[passive]->link.state, CRPC_STATE_CONNECTING);
    assert_int_equal(pair.channel[passive]->up, 1);
    rail_want_fence(pair.channel[passive], 0);
    pair_forget(&pair);
    pair_wait(&pair, 2000000000);
    assert_int_equal(pair_count(&pair, passive, CRPC_COMPLETION_CONNECTED), 1);
    assert_true(pair_find(&pair, passive, CRPC_COMPLETION_CONNECTED, 0)->status < 0);
    pair_close(&pair);
}

/* The offers may come in any order. Rail 1 is up before rail 0's offer has left, and the queue pair of
 * the hellos dies with that offer: it goes over rail 1. */
static void the_first_queue_pair_may_fail_when_only_rail_1_is_up(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    pair_join(&pair, &options, &options);
    uint32_t passive = passive_side(), active = !passive;
    struct channel *channel = pair.channel[active];
    struct nic_queue_pair *first = channel->rails[0].queues[0]->queue_pair;
    channel->rails[0].offer_wanted = false;
    pair_poll(&pair, active);
    pair_poll(&pair, passive);
    memory_fabric_stall(first, 1000);
    channel->rails[0].offer_wanted = true;
    channel_work(pair.engine[active], channel);
    pair_poll(&pair, active);
    pair_poll(&pair, passive);
    pair_poll(&pair, active);
    assert_int_equal(channel->up, 2);
    assert_int_equal(channel->rails[0].state, RAIL_OFFERED);
    assert_true(first->posted > first->completed);
    memory_fabric_kill(first);
    pair_forget(&pair);
    pair_wait(&pair, 400000000);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair.channel[side]->up, 3);
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_CONNECTED, 0)->status, CRPC_OK);
    }
    pair_forget(&pair);
    pair_message(&pair, 5000, 1);
    pair_close(&pair);
}

/* ---- Probes ---------------------------------------------------------------------------------- */

/* No op is open: but rails that are dead are not kept for ever. */
static void an_idle_dead_peer_is_noticed(void **state)
{
    (void)state;
    for (uint32_t side = 0; side < 2; side++) {
        crpc_channel_options options = pair_options();
        options.keepalive_ns = 1000000;
        pair_open(&pair, 2, 2);
        pair_connect(&pair, &options);
        pair_message(&pair, 100, 1);
        pair_wait(&pair, 3000000); /* what had no completion has shown that it moves */
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            memory_fabric_cut(pair.channel[!side]->rails[rail].queues[0]->queue_pair);
        }
        uint64_t before = pair_stats(&pair, side).control_wqes;
        uint64_t start_ns = pair.clock_ns, ended_ns = 0;
        while (ended_ns == 0 && pair.clock_ns < start_ns + 30000000) {
            pair.clock_ns += 100000;
            pair_poll(&pair, side);
            if (pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED, 0)) {
                ended_ns = pair.clock_ns - start_ns;
            }
        }
        assert_in_range(ended_ns, 10000000, 15000000); /* ten intervals, and not one */
        assert_int_equal(pair_stats(&pair, side).control_wqes - before, 2);
        pair_close(&pair);
    }
}

/* The transport repeats for ever what a peer without receives does not take. */
static void a_rail_that_makes_no_progress_is_given_up(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    options.keepalive_ns = 1000000000;
    options.rail_retry_ns = CRPC_FOREVER;
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    for (uint32_t i = 0; i < pair.channel[0]->queue_pairs; i++) {
        memory_fabric_stall(pair.channel[0]->rails[1].queues[i]->queue_pair, 1000000);
    }
    pair_fill(&pair, 0, 0, 100000, 7);
    assert_int_equal(pair_receive(&pair, 1, 0, 100000, 0, 1), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_send(&pair, 0, 0, 100000, 0, 2), CRPC_OK);
    for (uint32_t i = 0; i < 60; i++) {
        pair_wait(&pair, 1000000000);
    }
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 1);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_OK);
    assert_true(pair_matches(&pair, 1, 0, 100000, 0, 7));
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_info(&pair, side).rail_state[0], CRPC_RAIL_UP);
        assert_int_equal(pair_info(&pair, side).rail_state[1], CRPC_RAIL_DOWN);
    }
    pair_forget(&pair);
    for (uint32_t i = 0; i < 60; i++) { /* what is idle stands still, too, and stays */
        pair_wait(&pair, 1000000000);
    }
    assert_int_equal(pair_info(&pair, 0).rail_state[0], CRPC_RAIL_UP);
    pair_message(&pair, 5000, 1);
    pair_close(&pair);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_that_one_side_lacks_is_left_out),
        TEST(a_lost_rail_loses_nothing_and_comes_back),
        TEST(only_the_loss_of_both_rails_ends_a_channel),
        cmocka_unit_test(the_device_of_rail_0_is_lost),
        cmocka_unit_test(the_device_of_rail_1_is_lost),
        TEST(control_that_was_flushed_is_sent_again),
        TEST(a_rail_that_fails_before_its_answer_is_answered_as_failed),
        TEST(a_report_before_the_answer_ends_the_channel),
        TEST(rail_events_alternate_however_late_they_are_taken),
        cmocka_unit_test(a_rail_that_comes_late_is_no_recovery),
        cmocka_unit_test(the_queue_pair_of_the_hellos_is_one_of_rail_0),
        cmocka_unit_test(a_channel_without_a_rail_is_not_connected),
        cmocka_unit_test(the_first_queue_pair_may_fail_when_only_rail_1_is_up),
        cmocka_unit_test(an_idle_dead_peer_is_noticed),
        cmocka_unit_test(a_rail_that_makes_no_progress_is_given_up),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
