/* grant_test.c: what a peer that knows every key can write: the buffers of its own open receives, and
 * nothing else. Side 1 receives, and what its peer's device could send is put onto its queue pairs.
 */
#include "pair_fixture.h"

#define OFFSET 5000u
#define BYTES 40000u
#define TAG 7u

static uint32_t number_of(uint32_t side, uint32_t rail)
{
    return pair.channel[side]->rails[rail].queues[0]->queue_pair->number;
}

static struct channel_incoming *incoming_of(uint32_t slot)
{
    return &pair.channel[1]->receive.incoming[slot];
}

static uint32_t key_of(uint32_t slot, uint32_t rail)
{
    const struct channel_window *one = incoming_of(slot)->windows[rail][0];
    assert_non_null(one);
    return one->window.remote_key;
}

/* Tries to write one byte of a side's memory. Returns whether it was written. */
static bool poke(uint32_t side, uint32_t number, uint32_t key, uint64_t offset)
{
    uint8_t *byte = &pair.memory[side][offset];
    uint8_t before = *byte;
    uint8_t other = (uint8_t)~before;
    enum nic_error status =
        memory_fabric_write(pair.fabric, number, (uint64_t)(uintptr_t)byte, key, 1, &other);
    bool written = *byte != before;
    *byte = before;
    assert_int_equal(status, written ? NIC_ERROR_NONE : NIC_ERROR_REMOTE_ACCESS);
    return written;
}

static void post_receive(void)
{
    assert_int_equal(pair_receive(&pair, 1, OFFSET, BYTES, TAG, 1), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(incoming_of(0)->grants[0], GRANT_GRANTED);
    assert_int_equal(incoming_of(0)->grants[1], GRANT_GRANTED);
}

static void expect_received(uint32_t count)
{
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, i)->status, CRPC_OK);
    }
}

/* ---- Who may write, and where ---------------------------------------------------------------- */

static void the_peer_writes_to_the_buffer(void **state)
{
    (void)state;
    post_receive();
    for (uint32_t rail = 0; rail < 2; rail++) {
        assert_int_equal(poke(1, number_of(1, rail), key_of(0, rail), OFFSET), 1);
        assert_int_equal(poke(1, number_of(1, rail), key_of(0, rail), OFFSET + BYTES - 1), 1);
    }
}

static void behind_the_buffer_nobody_writes(void **state)
{
    (void)state;
    post_receive();
    assert_int_equal(poke(1, number_of(1, 0), key_of(0, 0), OFFSET + BYTES), 0);
    assert_int_equal(poke(1, number_of(1, 1), key_of(0, 1), OFFSET + BYTES), 0);
}

static void before_the_buffer_nobody_writes(void **state)
{
    (void)state;
    post_receive();
    assert_int_equal(poke(1, number_of(1, 0), key_of(0, 0), OFFSET - 1), 0);
    assert_int_equal(poke(1, number_of(1, 1), key_of(0, 1), OFFSET - 1), 0);
}

static void by_the_key_of_the_memory_nobody_writes(void **state)
{
    (void)state;
    post_receive();
    assert_int_equal(poke(1, number_of(1, 0), pair.region[1].keys[0].remote_key, OFFSET), 0);
    assert_int_equal(poke(1, number_of(1, 1), pair.region[1].keys[1].remote_key, OFFSET), 0);
}

static void what_is_sent_nobody_writes(void **state)
{
    (void)state;
    assert_int_equal(pair_send(&pair, 0, OFFSET, BYTES, TAG, 1), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(poke(0, number_of(0, 0), pair.region[0].keys[0].remote_key, OFFSET), 0);
    assert_int_equal(poke(0, number_of(0, 1), pair.region[0].keys[1].remote_key, OFFSET), 0);
}

static void over_another_channel_nobody_writes(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    struct channel *first[2] = {pair.channel[0], pair.channel[1]};
    pair_connect(&pair, &options);
    uint32_t stranger[2] = {number_of(1, 0), number_of(1, 1)};
    pair.channel[0] = first[0];
    pair.channel[1] = first[1];
    post_receive();
    assert_int_equal(poke(1, stranger[0], key_of(0, 0), OFFSET), 0);
    assert_int_equal(poke(1, stranger[1], key_of(0, 1), OFFSET), 0);
}

static void by_the_key_of_the_other_rail_nobody_writes(void **state)
{
    (void)state;
    post_receive();
    assert_int_equal(poke(1, number_of(1, 0), key_of(0, 1), OFFSET), 0);
    assert_int_equal(poke(1, number_of(1, 1), key_of(0, 0), OFFSET), 0);
}

/* ---- Until when ------------------------------------------------------------------------------ */

static void nobody_writes_after(uint32_t rail)
{
    post_receive();
    uint32_t key = key_of(0, rail);
    assert_int_equal(pair_send(&pair, 0, OFFSET, BYTES, TAG, 2), CRPC_OK);
    expect_received(1);
    assert_int_equal(poke(1, number_of(1, rail), key, OFFSET), 0);
}

static void when_a_receive_has_completed_nobody_writes(void **state)
{
    (void)state;
    nobody_writes_after(0);
}

static void over_the_other_rail_neither(void **state)
{
    (void)state;
    nobody_writes_after(1);
}

/* The poll that sees the message arrive invalidates; the next one knows that it is done. */
static void a_receive_completes_when_the_right_has_ended(void **state)
{
    (void)state;
    post_receive();
    assert_int_equal(pair_send(&pair, 0, OFFSET, BYTES, TAG, 2), CRPC_OK);
    assert_int_equal(pair_poll(&pair, 1), 0);
    assert_false(incoming_of(0)->open);
    assert_true(incoming_of(0)->arrived);
    assert_int_equal(incoming_of(0)->grants[0], GRANT_WITHDRAWING);
    assert_int_equal(incoming_of(0)->grants[1], GRANT_WITHDRAWING);
    expect_received(1);
    assert_int_equal(incoming_of(0)->grants[0], GRANT_NONE);
    assert_int_equal(incoming_of(0)->grants[1], GRANT_NONE);
}

/* Without an invalidate that is done: the loss of the rail ends the right, and then the receive. */
static void a_receive_completes_when_a_lost_rail_took_the_right_along(void **state)
{
    (void)state;
    post_receive();
    assert_int_equal(pair_send(&pair, 0, OFFSET, BYTES, TAG, 2), CRPC_OK);
    channel_take_completions(pair.engine[1]); /* the invalidates are posted, and not rung */
    assert_int_equal(incoming_of(0)->grants[1], GRANT_WITHDRAWING);
    memory_fabric_kill(pair.channel[1]->rails[1].queues[0]->queue_pair);
    expect_received(1);
    assert_int_equal(pair_stats(&pair, 1).rail_failures[1], 1);
}

static void a_receive_that_the_close_ends_leaves_no_right(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    post_receive();
    uint32_t key = key_of(0, 0);
    link_close(&pair.channel[1]->link);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_E_CLOSED);
    pair_forget(&pair);
    pair_connect(&pair, &options); /* the peer's next channel */
    assert_int_equal(poke(1, number_of(1, 0), key, OFFSET), 0);
}

/* ---- Rails that come and go ------------------------------------------------------------------ */

static void wait_for_rail(uint32_t rail, uint32_t state)
{
    for (uint32_t i = 0; i < 100 && pair_info(&pair, 1).rail_state[rail] != state; i++) {
        pair_wait(&pair, 20000000);
    }
    assert_int_equal(pair_info(&pair, 0).rail_state[rail], state);
    assert_int_equal(pair_info(&pair, 1).rail_state[rail], state);
    pair_wait(&pair, 20000000);
}

static void set_rail(uint32_t rail, bool up)
{
    memory_fabric_set_link(pair.nic[0][rail], up);
    if (!up) {
        /* Something has to be sent for the loss to be seen. */
        control_touch(pair.channel[0]->rails[rail].queues[0]);
        pair.channel[0]->rails[rail].queues[0]->operations->ring_doorbell(
            pair.channel[0]->rails[rail].queues[0]->queue_pair);
    }
    wait_for_rail(rail, up ? CRPC_RAIL_UP : CRPC_RAIL_DOWN);
}

static void expect_message(void)
{
    pair_forget(&pair);
    pair_fill(&pair, 0, OFFSET, BYTES, 9);
    assert_int_equal(pair_send(&pair, 0, OFFSET, BYTES, TAG, 2), CRPC_OK);
    pair_wait(&pair, 100000000);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 1);
    assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_OK);
    assert_true(pair_matches(&pair, 1, OFFSET, BYTES, 0, 9));
}

static void an_open_receive_outlives_each_rail_once(void **state)
{
    (void)state;
    post_receive();
    set_rail(0, false);
    set_rail(0, true);
    set_rail(1, false);
    assert_int_equal(incoming_of(0)->grants[0], GRANT_GRANTED);
    expect_message();
}

/* The first rail is lost with what tells of the receive, and stays away. */
static void a_receive_is_told_of_over_each_rail(void **state)
{
    (void)state;
    memory_fabric_set_link(pair.nic[1][0], false);
    assert_int_equal(pair_receive(&pair, 1, OFFSET, BYTES, TAG, 1), CRPC_OK);
    wait_for_rail(0, CRPC_RAIL_DOWN);
    assert_int_equal(incoming_of(0)->grants[0], GRANT_NONE);
    assert_int_equal(pair_stats(&pair, 1).clear_to_send_wqes, 2);
    expect_message();
    assert_int_equal(pair_info(&pair, 1).rail_state[0], CRPC_RAIL_DOWN);
}

static void a_rail_that_comes_back_is_granted_anew(void **state)
{
    (void)state;
    post_receive();
    uint32_t key = key_of(0, 1);
    set_rail(1, false);
    assert_int_equal(incoming_of(0)->grants[1], GRANT_NONE);
    set_rail(1, true);
    assert_int_equal(incoming_of(0)->grants[1], GRANT_GRANTED);
    uint64_t before = pair_stats(&pair, 0).rail_bytes_sent[1];
    expect_message();
    assert_true(pair_stats(&pair, 0).rail_bytes_sent[1] > before);
    assert_int_equal(poke(1, number_of(1, 1), key, OFFSET), 0);
}

/* ---- Windows that are scarce, or missing ----------------------------------------------------- */

#define GROUP_BYTES 2000u

/* As many as there are slots: together they need more windows than a queue pair has. */
static void groups_take_windows_in_their_order(void **state)
{
    struct registration *regions[CHANNEL_GROUP_MAX];
    crpc_channel_op ops[CHANNEL_GROUP_MAX] = {0};
    const uint32_t messages = 8;
    (void)state;
    for (uint32_t i = 0; i < messages; i++) {
        for (uint32_t j = 0; j < CHANNEL_GROUP_MAX; j++) {
            uint64_t offset = (i * CHANNEL_GROUP_MAX + j) * 4096;
            regions[j] = &pair.region[1];
            ops[j] = (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                       .tag = TAG,
                                       .user_data = i,
                                       .address = (uint64_t)(uintptr_t)pair.memory[1] + offset,
                                       .bytes = GROUP_BYTES};
        }
        assert_int_equal(channel_receive(pair.channel[1], ops, regions, CHANNEL_GROUP_MAX),
                         CRPC_OK);
    }
    channel_submit_end(pair.engine[1]);
    pair_settle(&pair);
    assert_true(pair.channel[1]->receive.grant_number[0] < messages);
    assert_true(pair.channel[1]->receive.grant_number[1] < messages);
    for (uint32_t i = 0; i < messages * CHANNEL_GROUP_MAX; i++) {
        int32_t status = pair_send(&pair, 0, 0, GROUP_BYTES, TAG, i);
        if (status == CRPC_E_AGAIN) {
            pair_settle(&pair);
            status = pair_send(&pair, 0, 0, GROUP_BYTES, TAG, i);
        }
        assert_int_equal(status, CRPC_OK);
    }
    expect_received(messages * CHANNEL_GROUP_MAX);
    const struct channel_queue *queue = pair.channel[1]->rails[0].queues[0];
    assert_int_equal(queue->windows_left, queue->windows.count);
}

static int setup_without_windows(void **state)
{
    pair_without_windows = true;
    int status = pair_setup(state);
    pair_without_windows = false;
    return status;
}

static void without_windows_messages_arrive_all_the_same(void **state)
{
    (void)state;
    pair_message(&pair, 100, 1);
    pair_message(&pair, BYTES, 2);
    set_rail(1, false);
    pair_forget(&pair);
    pair_message(&pair, BYTES, 3);
    set_rail(1, true);
    pair_forget(&pair);
    pair_message(&pair, BYTES, 4);
}

/* ---------------------------------------------------------------------------------------------- */

/* A side that cannot have all windows of a rail does without the rail, or tells that it cannot connect;
 * nothing of it stays. pair_close looks for what is left. */
static void a_window_that_cannot_be_had_leaves_nothing(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    uint32_t connected = 0;
    for (uint32_t nth = 1; nth <= 4 * 39; nth += 13) {
        pair_open(&pair, 2, 2);
        memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_WINDOW, nth, CRPC_E_NO_RESOURCE);
        pair_join(&pair, &options, &options);
        pair_wait(&pair, UINT64_C(3000000000));
        for (uint32_t side = 0; side < 2; side++) {
            const crpc_completion *end = pair_find(&pair, side, CRPC_COMPLETION_CONNECTED, 0);
            assert_non_null(end);
            connected += end->status == CRPC_OK;
        }
        assert_false(memory_fabric_failure_pending(pair.fabric, MEMORY_FAIL_WINDOW));
        pair_close(&pair);
    }
    assert_true(connected > 0);
}

static int setup_with_few_windows(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    pair.engine[1]->windows_each = 1;
    pair_connect(&pair, &options);
    return 0;
}

#define GRANT_TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRANT_TEST(the_peer_writes_to_the_buffer),
        GRANT_TEST(behind_the_buffer_nobody_writes),
        GRANT_TEST(before_the_buffer_nobody_writes),
        GRANT_TEST(by_the_key_of_the_memory_nobody_writes),
        GRANT_TEST(what_is_sent_nobody_writes),
        GRANT_TEST(over_another_channel_nobody_writes),
        GRANT_TEST(by_the_key_of_the_other_rail_nobody_writes),
        GRANT_TEST(when_a_receive_has_completed_nobody_writes),
        GRANT_TEST(over_the_other_rail_neither),
        GRANT_TEST(a_receive_completes_when_the_right_has_ended),
        GRANT_TEST(a_receive_completes_when_a_lost_rail_took_the_right_along),
        GRANT_TEST(a_receive_that_the_close_ends_leaves_no_right),
        GRANT_TEST(an_open_receive_outlives_each_rail_once),
        GRANT_TEST(a_receive_is_told_of_over_each_rail),
        GRANT_TEST(a_rail_that_comes_back_is_granted_anew),
        cmocka_unit_test_setup_teardown(groups_take_windows_in_their_order, setup_with_few_windows,
                                        pair_teardown),
        cmocka_unit_test(a_window_that_cannot_be_had_leaves_nothing),
        cmocka_unit_test_setup_teardown(without_windows_messages_arrive_all_the_same,
                                        setup_without_windows, pair_teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
