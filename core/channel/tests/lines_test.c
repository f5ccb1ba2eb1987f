/* lines_test.c: clear-to-sends over two rails: each comes behind the binds of its own rail, whatever the
 * receiver does then, and the sender waits for those that are announced. Side 1 receives. The clock stands
 * still, but where a test says otherwise.
 */
#include "pair_fixture.h"

#define OFFSET 4096u
#define BYTES 40000u
#define TAG 7u
#define FOR_EVER (1u << 30)

static struct nic_queue_pair *queue_of(uint32_t side, uint32_t rail)
{
    return pair.channel[side]->rails[rail].queues[0]->queue_pair;
}

static void post_receive(void)
{
    assert_int_equal(pair_receive(&pair, 1, OFFSET, BYTES, TAG, 1), CRPC_OK);
}

static void post_send(void)
{
    pair_fill(&pair, 0, OFFSET, BYTES, 3);
    assert_int_equal(pair_send(&pair, 0, OFFSET, BYTES, TAG, 2), CRPC_OK);
}

static void poll_sender(uint32_t times)
{
    while (times-- > 0) {
        pair_poll(&pair, 0);
    }
}

static void expect_sent(uint64_t over_rail_0, uint64_t over_rail_1)
{
    assert_int_equal(pair_stats(&pair, 0).rail_messages_sent[0], over_rail_0);
    assert_int_equal(pair_stats(&pair, 0).rail_messages_sent[1], over_rail_1);
    assert_int_equal(pair_stats(&pair, 0).protocol_errors, 0);
}

static void expect_received(void)
{
    pair_forget(&pair);
    pair_settle(&pair);
    const crpc_completion *received = pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0);
    assert_non_null(received);
    assert_int_equal(received->status, CRPC_OK);
    assert_true(pair_matches(&pair, 1, OFFSET, BYTES, 0, 3));
}

/* ---- What the receiver does, and does not ---------------------------------------------------- */

/* Its devices bind and write some time after it has posted, and it does not look. */
static void a_receiver_that_never_polls_is_sent_to_over_both_rails(void **state)
{
    (void)state;
    memory_fabric_stall(queue_of(1, 0), 10);
    memory_fabric_stall(queue_of(1, 1), 20);
    post_receive();
    post_send();
    expect_sent(0, 0);
    poll_sender(40);
    expect_sent(1, 1);
    expect_received();
}

static void a_sender_waits_for_the_other_rail(void **state)
{
    (void)state;
    for (uint32_t rail = 0; rail < 2; rail++) {
        memory_fabric_stall(queue_of(1, rail), FOR_EVER);
        post_receive();
        post_send();
        pair.clock_ns += UINT64_C(10000000000);
        poll_sender(40);
        expect_sent(rail, rail);
        memory_fabric_stall(queue_of(1, rail), 0);
        poll_sender(40);
        expect_sent(rail + 1, rail + 1);
        expect_received();
    }
}

static void a_sender_that_sleeps_looks_for_the_other_rail(void **state)
{
    (void)state;
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    post_receive();
    post_send();
    for (uint32_t i = 0; i < 20; i++) {
        channel_progress(pair.engine[0]);
        uint64_t look_ns = channel_next_deadline_ns(pair.engine[0]);
        assert_in_range(look_ns, pair.clock_ns, pair.clock_ns + LOOK_BACKOFF_ASKED_MAX_NS);
        pair.clock_ns = look_ns;
    }
    expect_sent(0, 0);
    memory_fabric_stall(queue_of(1, 1), 0);
    channel_progress(pair.engine[0]);
    channel_progress(pair.engine[0]);
    expect_sent(1, 1);
    assert_int_equal(channel_next_deadline_ns(pair.engine[0]), UINT64_MAX);
    expect_received();
}

/* ---- Rails ----------------------------------------------------------------------------------- */

static void the_loss_of_a_rail_ends_the_wait_for_it(void **state)
{
    (void)state;
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    post_receive();
    post_send();
    poll_sender(40);
    expect_sent(0, 0);
    rail_want_fence(pair.channel[0], 1);
    poll_sender(1);
    expect_sent(1, 0);
    expect_received();
}

/* The receiver's device does nothing any more on a rail: the keepalive gives the rail up. */
static void a_rail_that_is_stuck_does_not_hold_up_messages_for_ever(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    options.keepalive_ns = 1000000;
    pair_connect(&pair, &options);
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    post_receive();
    post_send();
    pair_settle(&pair);
    expect_sent(0, 0);
    for (uint32_t i = 0; i < LINK_STUCK_INTERVALS + 4; i++) {
        pair.clock_ns += 2 * options.keepalive_ns;
        pair_settle(&pair);
    }
    expect_sent(1, 0);
    assert_int_equal(pair_stats(&pair, 1).rail_failures[1], 1);
    assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_OK);
}

/* What a rail left behind when it was lost has the message's number, too. */
static void what_was_told_in_an_earlier_epoch_is_not_heeded(void **state)
{
    (void)state;
    struct channel *channel = pair.channel[0];
    struct channel_cts old = {.address = 64,
                              .bytes = 1,
                              .right = {0xdead, channel->rails[1].epoch - 1},
                              .tag = TAG + 1,
                              .count = 2,
                              .rails = 2,
                              .number = 1};
    assert_int_equal(memory_fabric_write(pair.fabric, queue_of(0, 1)->number,
                                         channel->area.secret + channel_buffers_offset(0, 1),
                                         channel->area.keys[1].remote_key, sizeof(old), &old),
                     NIC_ERROR_NONE);
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    post_receive();
    post_send();
    poll_sender(40);
    expect_sent(0, 0);
    memory_fabric_stall(queue_of(1, 1), 0);
    poll_sender(40);
    expect_sent(1, 1);
    expect_received();
}

/* A sender that begins to use a rail before the receiver does is told that nothing comes over it yet. */
static void a_rail_that_is_not_announced_is_not_waited_for(void **state)
{
    (void)state;
    pair.channel[1]->up = 1; /* its probe is still to come */
    post_receive();
    post_send();
    expect_sent(1, 0);
    pair.channel[1]->up = 3;
    expect_received();
}

/* ---- Slots that are used again --------------------------------------------------------------- */

/* So what is written for the slot's next message cannot overtake what was written before. */
static void a_slot_keeps_its_queue_pair(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    options.queue_pairs = 3;
    pair_connect(&pair, &options);
    const struct channel *channel = pair.channel[1];
    for (uint32_t i = 0; i < 50; i++) {
        pair_message(&pair, 1000 * i, (uint8_t)i);
        uint32_t slot = i & channel->slot_mask;
        assert_int_equal(channel->receive.incoming[slot].number, i);
        assert_int_equal(channel->receive.incoming[slot].queue, slot % 3);
        assert_int_equal(pair.channel[0]->send.outgoing[slot].queue, slot % 3);
    }
    expect_sent(50, 48); /* the first two are too short for both rails */
}

/* A message over rail 0 alone, from a peer that does not wait to be told of it over rail 1. */
static void arrive_early(void)
{
    uint32_t immediate = 1u << CHANNEL_MASK_SHIFT;
    assert_int_equal(memory_fabric_write_immediate(pair.fabric, queue_of(1, 0)->number, 0, 0, 0,
                                                   NULL, immediate),
                     NIC_ERROR_NONE);
}

/* The line of rail 1 is still to be read: the slot's next may not be written to its place. */
static void expect_slot_kept(void)
{
    arrive_early();
    for (uint32_t i = 0; i < 40; i++) {
        pair_poll(&pair, 1);
        assert_int_equal(pair.seen[1].count, 0);
    }
    assert_true(pair.channel[1]->receive.incoming[0].arrived);
    memory_fabric_stall(queue_of(1, 1), 0);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 1);
    pair_forget(&pair);
    pair.channel[0]->send.number = 1;
    for (uint32_t i = 0; i < 20; i++) {
        pair_message(&pair, BYTES, (uint8_t)i);
    }
}

static int setup_without_windows(void **state)
{
    pair_without_windows = true;
    int status = pair_setup(state);
    pair_without_windows = false;
    return status;
}

static void without_windows_a_slot_waits_for_what_tells_of_it(void **state)
{
    (void)state;
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    post_receive();
    expect_slot_kept();
}

static void without_bytes_a_slot_waits_for_what_tells_of_it(void **state)
{
    (void)state;
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    assert_int_equal(pair_receive(&pair, 1, OFFSET, 0, TAG, 1), CRPC_OK);
    expect_slot_kept();
}

/* Where the rail is lost, nothing reads the line any more. */
static void a_lost_rail_frees_the_slot(void **state)
{
    (void)state;
    memory_fabric_stall(queue_of(1, 1), FOR_EVER);
    post_receive();
    arrive_early();
    pair_poll(&pair, 1);
    pair_poll(&pair, 1);
    assert_int_equal(pair.seen[1].count, 0);
    rail_want_fence(pair.channel[1], 1);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)
#define WITHOUT_WINDOWS(name)                                                                      \
    cmocka_unit_test_setup_teardown(name, setup_without_windows, pair_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_receiver_that_never_polls_is_sent_to_over_both_rails),
        TEST(a_sender_waits_for_the_other_rail),
        TEST(a_sender_that_sleeps_looks_for_the_other_rail),
        TEST(the_loss_of_a_rail_ends_the_wait_for_it),
        TEST(a_rail_that_is_stuck_does_not_hold_up_messages_for_ever),
        TEST(what_was_told_in_an_earlier_epoch_is_not_heeded),
        TEST(a_rail_that_is_not_announced_is_not_waited_for),
        TEST(a_slot_keeps_its_queue_pair),
        WITHOUT_WINDOWS(without_windows_a_slot_waits_for_what_tells_of_it),
        TEST(without_bytes_a_slot_waits_for_what_tells_of_it),
        WITHOUT_WINDOWS(a_lost_rail_frees_the_slot),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
