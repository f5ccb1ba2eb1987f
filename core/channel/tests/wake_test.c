/* wake_test.c: a sender that sleeps is woken by its peer when it can send, and needs no timer: by an event of its device,
 * whichever of the two is first. One that is awake says nothing, and so does one whose peer does not know the word.
 */
#include "pair_fixture.h"

#include <poll.h>

#define US UINT64_C(1000)

/* As crpc_wait does: looks, arms, looks again. */
static void go_to_sleep(void)
{
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        struct nic *nic = pair.nic[0][rail];
        nic->operations->disarm(nic);
        assert_int_equal(nic->operations->arm(nic), 0);
    }
    channel_progress(pair.engine[0]);
}

static bool has_event(void)
{
    struct pollfd fds[CHANNEL_RAILS_MAX];
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        fds[rail] = (struct pollfd){.fd = pair.nic[0][rail]->event_fd, .events = POLLIN};
    }
    return poll(fds, CHANNEL_RAILS_MAX, 0) > 0;
}

/* Sleeps until it has nothing to look for by itself, and nothing wakes it any more. Returns how often it woke up. */
static uint32_t sleep_soundly(void)
{
    uint32_t times = 0;
    go_to_sleep();
    while (has_event() || channel_next_deadline_ns(pair.engine[0]) != UINT64_MAX) {
        uint64_t deadline_ns = channel_next_deadline_ns(pair.engine[0]);
        assert_true(++times < 100);
        if (!has_event()) {
            assert_true(deadline_ns - pair.clock_ns <= 1000 * US);
            pair.clock_ns = maximum(pair.clock_ns, deadline_ns);
        }
        go_to_sleep();
    }
    return times;
}

static uint64_t control_before; /* of side 0 */

static uint64_t control_wqes(uint32_t side)
{
    return pair_stats(&pair, side).control_wqes;
}

static void send_one(void)
{
    assert_int_equal(pair_send(&pair, 0, 0, 5000, 1, 1), CRPC_OK);
}

static void receive_one(void)
{
    assert_int_equal(pair_receive(&pair, 1, 0, 5000, 1, 2), CRPC_OK);
}

/* It has an event; its program looks, and that is all. */
static void expect_sent_by_event(void)
{
    assert_true(has_event());
    channel_progress(pair.engine[0]);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 2);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 1);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 1);
}

static void a_sleeping_sender_is_woken_by_the_receive(void **state)
{
    (void)state;
    send_one();
    assert_in_range(sleep_soundly(), 2, 20);
    pair_poll(&pair, 1); /* the peer hears that it sleeps, and has nothing to say */
    pair.clock_ns += 1000000 * US;
    pair_poll(&pair, 1);
    assert_false(has_event());
    receive_one();
    expect_sent_by_event();
}

/* The receive was posted by a program that had not polled: it did not know that anybody sleeps. */
static void a_receive_that_was_first_wakes_it_too(void **state)
{
    (void)state;
    struct nic_queue_pair *told[CHANNEL_RAILS_MAX];
    send_one();
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX;
         rail++) { /* clear-to-sends are long on the way */
        told[rail] = pair.channel[1]->rails[rail].queues[0]->queue_pair;
        memory_fabric_stall(told[rail], 200);
    }
    receive_one();
    sleep_soundly();
    pair_poll(&pair, 1); /* now it hears */
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 0);
    for (uint32_t i = 0; i < 300; i++) {
        memory_fabric_step(pair.fabric);
    }
    expect_sent_by_event();
}

static void one_that_is_awake_says_nothing(void **state)
{
    (void)state;
    uint64_t before[2] = {control_wqes(0), control_wqes(1)};
    for (uint32_t i = 0; i < 50; i++) {
        send_one();
        for (uint32_t j = 0; j < i; j++) {
            pair.clock_ns += 100 * US;
            pair_poll(&pair, 0);
        }
        channel_progress(pair.engine[0]); /* nor one that has just gone to sleep */
        receive_one();
        pair_settle(&pair);
    }
    assert_int_equal(pair_stats(&pair, 0).messages_sent, 50);
    assert_int_equal(control_wqes(0), before[0]);
    assert_int_equal(control_wqes(1), before[1]);
}

/* Once for each sleep, whatever becomes of the send. */
static void there_is_one_answer_for_each_sleep(void **state)
{
    (void)state;
    uint64_t before[2] = {control_wqes(0), control_wqes(1)};
    for (uint32_t i = 1; i <= 20; i++) {
        send_one();
        sleep_soundly();
        pair_settle(&pair);
        sleep_soundly();
        receive_one();
        pair_settle(&pair);
        assert_int_equal(pair_stats(&pair, 0).messages_sent, i);
        assert_int_equal(control_wqes(0), before[0] + i);
        assert_int_equal(control_wqes(1), before[1] + i);
    }
}

/* WAKE came over one rail, and the clear-to-sends are late: it looks by itself again, and soon. */
static void one_that_is_woken_too_early_looks_again(void **state)
{
    (void)state;
    send_one();
    sleep_soundly();
    pair_poll(&pair, 1);
    memory_fabric_stall(pair.channel[1]->rails[1].queues[0]->queue_pair, 50);
    receive_one();
    assert_true(has_event()); /* over rail 0, which carries control */
    channel_progress(pair.engine[0]);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 0);
    assert_true(channel_next_deadline_ns(pair.engine[0]) - pair.clock_ns <= 20 * US);
    for (uint32_t i = 0; i < 100 && pair_stats(&pair, 0).data_wqes == 0; i++) {
        pair.clock_ns += 10 * US;
        channel_progress(pair.engine[0]);
    }
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 2);
}

/* Of the version before: it would end the channel over a word that it does not know. */
static void an_older_peer_is_not_told(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    for (uint32_t side = 0; side < 2; side++) {
        pair.channel[side]->link.peer.features = 0;
    }
    uint64_t before = control_wqes(0);
    send_one();
    for (uint32_t i = 0; i < 50; i++) {
        go_to_sleep();
        uint64_t deadline_ns = channel_next_deadline_ns(pair.engine[0]);
        assert_true(deadline_ns - pair.clock_ns <= 1000 * US);
        pair.clock_ns = deadline_ns;
    }
    assert_int_equal(control_wqes(0), before);
    receive_one();
    channel_progress(pair.engine[0]);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 2);
    pair_close(&pair);
}

/* While it sleeps, a rail is lost, and comes back. */
static void a_lost_rail_loses_no_word(void **state)
{
    (void)state;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        send_one();
        sleep_soundly();
        memory_fabric_kill(pair.channel[0]->rails[rail].queues[0]->queue_pair);
        pair_wait(&pair, 500000000);
        assert_int_equal(pair.channel[0]->up, 3);
        sleep_soundly();
        receive_one();
        /* Nobody knows of the loss yet: the word, or a clear-to-send, is tried over that rail first. */
        for (uint32_t i = 0; i < 100 && !has_event(); i++) {
            pair_poll(&pair, 1);
        }
        assert_true(has_event());
        pair_wait(&pair, 500000000);
        assert_int_equal(pair_stats(&pair, 0).messages_sent, rail + 1);
    }
}

/* The receiver has sent all that it had to send, and takes leave: it still receives, and wakes. */
static void a_receiver_that_takes_leave_wakes_too(void **state)
{
    (void)state;
    assert_int_equal(pair_receive(&pair, 1, 0, 5000, 1, 2), CRPC_OK);
    assert_int_equal(pair_receive(&pair, 1, 0, 5000, 2, 3), CRPC_OK);
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        memory_fabric_stall(pair.channel[1]->rails[rail].queues[0]->queue_pair, 300);
    }
    send_one();
    sleep_soundly();
    assert_int_equal(link_disconnect(&pair.channel[0]->link, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(link_disconnect(&pair.channel[1]->link, CRPC_FOREVER), CRPC_OK);
    pair.channel[1]->leave = BYE_SAID; /* as if this side had been first with all */
    for (uint32_t i = 0; i < 400; i++) {
        channel_progress(pair.engine[1]);
    }
    assert_false(pair.channel[1]->wake.owed);
    pair.channel[1]->leave = LEAVE_ASKED;
    pair_wait(&pair, 1000000000);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_OK);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED, 0)->status, CRPC_OK);
    }
}

/* It posts a receive, and does not poll: it hears no ASLEEP. */
static void a_receiver_that_does_not_poll_is_sent_to(void **state)
{
    (void)state;
    pair.engine[0]->look_asked_max_ns = LOOK_BACKOFF_ASKED_MAX_NS;
    send_one();
    for (uint32_t i = 0; i < 200; i++) { /* it waits for long */
        go_to_sleep();
        uint64_t deadline_ns = channel_next_deadline_ns(pair.engine[0]);
        assert_true(deadline_ns - pair.clock_ns <= 16000 * US);
        pair.clock_ns = deadline_ns;
    }
    assert_int_equal(pair_stats(&pair, 0).control_wqes - control_before, 1);
    receive_one();
    assert_false(has_event());
    uint64_t posted_ns = pair.clock_ns;
    pair.clock_ns = channel_next_deadline_ns(pair.engine[0]);
    assert_true(pair.clock_ns - posted_ns <= 16000 * US);
    channel_progress(pair.engine[0]);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 2);
}

/* Who is not woken sleeps for ever, but where a test says otherwise. */
static int sleeping_setup(void **state)
{
    pair_setup(state);
    pair.engine[0]->look_asked_max_ns = pair.engine[1]->look_asked_max_ns = CRPC_FOREVER;
    control_before = control_wqes(0);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, sleeping_setup, pair_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_sleeping_sender_is_woken_by_the_receive),
        TEST(a_receive_that_was_first_wakes_it_too),
        TEST(one_that_is_awake_says_nothing),
        TEST(there_is_one_answer_for_each_sleep),
        TEST(one_that_is_woken_too_early_looks_again),
        cmocka_unit_test(an_older_peer_is_not_told),
        TEST(a_lost_rail_loses_no_word),
        TEST(a_receiver_that_takes_leave_wakes_too),
        TEST(a_receiver_that_does_not_poll_is_sent_to),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
