/* engine_test.c: what a message costs, how it is split, groups and tags, what goes wrong on purpose,
 * and how channels end: on the in-memory NIC, where each WQE can be counted.
 */
#include "pair_fixture.h"

#include "channel/split.h"

/* ---- Splitting ------------------------------------------------------------------------------- */

static void parts_are_aligned_and_add_up(void **state)
{
    (void)state;
    for (uint32_t share = 0; share <= 1024; share += 64) {
        int64_t owed = 0;
        for (uint32_t bytes = 0; bytes < 20000; bytes += 77) {
            uint32_t first = split_first(bytes, split_due(bytes, split_fine(share)));
            assert_true(first == bytes || (first < bytes && first % 128 == 0));
            first = split_whole(bytes, split_fine(share), &owed);
            assert_true(first == 0 || first == bytes);
            assert_true(owed * 2 <= 20000ll << 20 && owed * 2 >= -(20000ll << 20));
        }
    }
    assert_int_equal(split_due(1u << 30, split_fine(512)), 1u << 29);
    assert_int_equal(split_due(1u << 30, split_fine(1023)), (1u << 30) - (1u << 20));
    assert_int_equal(split_first(1u << 30, (1u << 29) + 1), 1u << 29);
    assert_int_equal(split_first(10000, 0), 0);
    assert_int_equal(split_first(10000, -1), 0);
    assert_int_equal(split_first(10000, 10000), 10000);
    assert_int_equal(split_first(10000, INT64_MAX), 10000);
}

static void a_small_message_costs_one_wqe_and_a_large_one_two(void **state)
{
    (void)state;
    pair_message(&pair, 100, 1);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 1);
    pair_message(&pair, 100000, 2);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 3);
    assert_int_equal(pair_stats(&pair, 0).messages_sent, 2);
    assert_int_equal(pair_stats(&pair, 1).messages_received, 2);
    /* One over each rail. */
    assert_int_equal(pair_stats(&pair, 1).clear_to_send_wqes, 4);
}

static void a_rail_without_a_share_carries_no_messages(void **state)
{
    (void)state;
    channel_set_share(pair.channel[0], 0);
    pair_message(&pair, 50000, 0);
    uint64_t receives = channel_receives_completed(pair.engine[1], 0);
    uint64_t told = pair.channel[1]->rails[0].queues[0]->queue_pair->posted;
    for (uint8_t i = 0; i < 20; i++) {
        pair_message(&pair, 50000 + i, i);
    }
    assert_int_equal(pair_stats(&pair, 0).rail_messages_sent[0], 0);
    assert_int_equal(pair_stats(&pair, 0).rail_messages_sent[1], 21);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 21);
    assert_int_equal(channel_receives_completed(pair.engine[1], 0), receives);
    /* Of each message a clear-to-send; and a bind and an invalidate, which stay in the device. */
    told += pair.nic[1][0]->windows ? 60 : 20;
    assert_int_equal(pair.channel[1]->rails[0].queues[0]->queue_pair->posted, told);
}

static void send_every_size_at_every_share(void)
{
    static const uint32_t sizes[] = {0,    1,    127,  128,   129,   1023,  1024,  1025,
                                     4095, 4096, 4097, 65535, 65536, 99999, 200001};
    for (uint32_t share = 0; share <= 1024; share += 128) {
        channel_set_share(pair.channel[0], share);
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            pair_message(&pair, sizes[i], (uint8_t)(share + i));
        }
    }
}

static void every_size_arrives_exact_at_every_share(void **state)
{
    (void)state;
    send_every_size_at_every_share();
}

/* An immediate tells the bytes of its own WQE alone. */
static void every_size_arrives_exact_where_a_wqe_carries_little(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open_with_limit(&pair, 2, 2, 8192);
    pair_connect(&pair, &options);
    send_every_size_at_every_share();
    pair_close(&pair);
}

static void an_empty_message_uses_rail_0(void **state)
{
    (void)state;
    channel_set_share(pair.channel[0], 0);
    pair_message(&pair, 0, 0);
    assert_int_equal(pair_stats(&pair, 0).rail_messages_sent[0], 1);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 1);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void post_group(uint32_t count, uint32_t room)
{
    crpc_channel_op ops[CHANNEL_GROUP_MAX];
    struct registration *regions[CHANNEL_GROUP_MAX];
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                   .tag = 100 + i,
                                   .user_data = 200 + i,
                                   .address = (uint64_t)(uintptr_t)pair.memory[1] + i * 32768,
                                   .bytes = room};
        regions[i] = &pair.region[1];
    }
    assert_int_equal(channel_receive(pair.channel[1], ops, regions, count), CRPC_OK);
    channel_submit_end(pair.engine[1]);
}

static void a_group_is_filled_by_tag_in_any_order(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= CHANNEL_GROUP_MAX; count++) {
        post_group(count, 32768);
        for (uint32_t i = count; i-- > 0;) {
            pair_fill(&pair, 0, i * 32768, 3000 * (i + 1), (uint8_t)i);
            assert_int_equal(pair_send(&pair, 0, i * 32768, 3000 * (i + 1), 100 + i, 300 + i),
                             CRPC_OK);
        }
        pair_settle(&pair);
        assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), count);
        assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), count);
        for (uint32_t i = 0; i < count; i++) {
            const crpc_completion *received = pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, i);
            assert_int_equal(received->user_data, 200 + i);
            assert_int_equal(received->payload_bytes, 3000 * (i + 1));
            assert_true(pair_matches(&pair, 1, i * 32768, 3000 * (i + 1), 0, (uint8_t)i));
        }
        pair_forget(&pair);
    }
}

static void a_send_before_its_receive_waits(void **state)
{
    (void)state;
    assert_int_equal(pair_send(&pair, 0, 0, 5000, 1, 1), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 0);
    assert_int_equal(pair_stats(&pair, 0).data_wqes, 0);
    assert_true(channel_next_deadline_ns(pair.engine[0]) != 0);
    assert_int_equal(pair_receive(&pair, 1, 0, 5000, 1, 2), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 1);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 1);
}

static void a_timeout_counts_from_the_send(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    struct channel *first[2] = {pair.channel[0], pair.channel[1]};
    pair_connect(&pair, &options);
    assert_int_equal(link_disconnect(&pair.channel[0]->link, CRPC_FOREVER - 1), CRPC_OK);
    pair.channel[0] = first[0];
    pair.channel[1] = first[1];
    pair.clock_ns += 10000000;
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND, .timeout_ns = 5000000};
    assert_int_equal(channel_send(pair.channel[0], &op, NULL), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 0);
    pair.clock_ns += 6000000;
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_E_TIMEOUT);
}

static void a_waiting_send_can_be_canceled_or_time_out(void **state)
{
    (void)state;
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND,
                          .user_data = 5,
                          .address = (uint64_t)(uintptr_t)pair.memory[0],
                          .bytes = 10,
                          .timeout_ns = 1000000};
    assert_int_equal(pair_send(&pair, 0, 0, 10, 0, 4), CRPC_OK);
    assert_int_equal(channel_send(pair.channel[0], &op, &pair.region[0]), CRPC_OK);
    crpc_channel_op cancel = {.opcode = CRPC_CHANNEL_CANCEL, .user_data = 6, .token = 4};
    assert_int_equal(channel_cancel(pair.channel[0], &cancel), CRPC_OK);
    pair_settle(&pair);
    const crpc_completion *sent = pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0);
    assert_int_equal(sent->user_data, 4);
    assert_int_equal(sent->status, CRPC_E_CANCELED);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_CANCEL, 0)->token, 1);
    pair_wait(&pair, 2000000);
    sent = pair_find(&pair, 0, CRPC_COMPLETION_SENT, 1);
    assert_int_equal(sent->user_data, 5);
    assert_int_equal(sent->status, CRPC_E_TIMEOUT);
    pair_forget(&pair);
    pair_message(&pair, 3000, 9);
}

/* ---- Too long -------------------------------------------------------------------------------- */

static void a_message_longer_than_its_buffer_is_truncated_on_both_sides(void **state)
{
    (void)state;
    memset(pair.memory[1], 0x11, 65536);
    assert_int_equal(pair_receive(&pair, 1, 0, 1000, 0, 1), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 0, 1001, 0, 2), CRPC_OK);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_E_TRUNCATED);
    const crpc_completion *received = pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0);
    assert_int_equal(received->status, CRPC_E_TRUNCATED);
    assert_int_equal(received->payload_bytes, 1001);
    for (uint32_t i = 0; i < 65536; i++) {
        assert_int_equal(pair.memory[1][i], 0x11);
    }
    pair_forget(&pair);
    for (uint8_t i = 0; i < 20; i++) { /* the slot serves on */
        pair_message(&pair, 2000, i);
    }
}

static void only_the_buffer_that_is_too_small_is_truncated(void **state)
{
    (void)state;
    post_group(3, 8000);
    assert_int_equal(pair_send(&pair, 0, 0, 8000, 100, 1), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 32768, 8001, 101, 2), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 65536, 7999, 102, 3), CRPC_OK);
    pair_settle(&pair);
    static const int32_t expected[] = {CRPC_OK, CRPC_E_TRUNCATED, CRPC_OK};
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, i)->status, expected[i]);
        assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, i)->status, expected[i]);
    }
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

static void slots_and_sends_are_bounded_and_come_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(pair_receive(&pair, 1, 0, 100, 0, i), CRPC_OK);
    }
    assert_int_equal(pair_receive(&pair, 1, 0, 100, 0, 8), CRPC_E_AGAIN);
    for (uint32_t i = 0; i < 40; i++) {
        pair_send(&pair, 0, 0, 10, 0, i);
    }
    assert_int_equal(pair_info(&pair, 0).sends_open, 32);
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 8);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_ROOM), 1);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 8);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_ROOM), 1);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void a_leave_finishes_what_can_be_finished(void **state)
{
    (void)state;
    assert_int_equal(pair_receive(&pair, 1, 0, 100, 0, 1), CRPC_OK);
    assert_int_equal(pair_receive(&pair, 1, 0, 100, 0, 2), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 0, 100, 0, 3), CRPC_OK);
    assert_int_equal(link_disconnect(&pair.channel[0]->link, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 0, 100, 0, 4), CRPC_E_CLOSING);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_OK);
    assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_OK);
    assert_int_equal(pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, 1)->status, CRPC_E_DISCONNECTED);
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_DISCONNECTED, 0)->status, CRPC_OK);
    }
}

static void a_close_ends_what_is_open(void **state)
{
    (void)state;
    assert_int_equal(pair_receive(&pair, 0, 0, 100, 0, 1), CRPC_OK);
    assert_int_equal(pair_send(&pair, 0, 0, 100, 0, 2), CRPC_OK);
    link_close(&pair.channel[0]->link);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_RECEIVED, 0)->status, CRPC_E_CLOSED);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0)->status, CRPC_E_CLOSED);
    assert_int_equal(pair.region[0].users, 0);
}

/* ---- Policy ---------------------------------------------------------------------------------- */

static void without_its_hint_a_channel_measures(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    options.split = CRPC_SPLIT_HINT;
    strcpy(options.hint, "/copyrpc-engine-test-no-such-hint");
    pair_connect(&pair, &options);
    pair_message(&pair, 100000, 1);
    const struct channel_outgoing *outgoing = &pair.channel[0]->send.outgoing[0];
    assert_true(outgoing->sample.valid);
    assert_int_equal(outgoing->sample.bytes[0] + outgoing->sample.bytes[1], 100000);
}

/* Messages 0 and 1, of which the queue pair of message 0 stands still for a while. */
static void send_two(uint32_t queue_pairs)
{
    crpc_channel_options options = pair_options();
    options.queue_pairs = queue_pairs;
    pair_open(&pair, 1, 1);
    pair_connect(&pair, &options);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pair_receive(&pair, 1, i * 1000, 1000, 0, 10 + i), CRPC_OK);
    }
    pair_settle(&pair);
    memory_fabric_stall(pair.channel[0]->rails[0].queues[0]->queue_pair, 20);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pair_send(&pair, 0, i * 1000, 1000, 0, 20 + i), CRPC_OK);
    }
    pair_wait(&pair, 1000000);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 2);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_SENT), 2);
}

static void with_several_queue_pairs_a_message_may_overtake_another(void **state)
{
    (void)state;
    for (uint32_t queue_pairs = 1; queue_pairs <= 2; queue_pairs++) {
        send_two(queue_pairs);
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t number = queue_pairs == 1 ? i : 1 - i;
            const crpc_completion *received = pair_find(&pair, 1, CRPC_COMPLETION_RECEIVED, i);
            assert_int_equal(received->token, number);
            assert_int_equal(received->user_data, 10 + number);
            assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_SENT, i)->token, number);
        }
        pair_close(&pair);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_aligned_and_add_up),
        TEST(a_small_message_costs_one_wqe_and_a_large_one_two),
        TEST(a_rail_without_a_share_carries_no_messages),
        TEST(every_size_arrives_exact_at_every_share),
        cmocka_unit_test(every_size_arrives_exact_where_a_wqe_carries_little),
        TEST(an_empty_message_uses_rail_0),
        TEST(a_group_is_filled_by_tag_in_any_order),
        TEST(a_send_before_its_receive_waits),
        TEST(a_waiting_send_can_be_canceled_or_time_out),
        TEST(a_timeout_counts_from_the_send),
        TEST(a_message_longer_than_its_buffer_is_truncated_on_both_sides),
        TEST(only_the_buffer_that_is_too_small_is_truncated),
        TEST(slots_and_sends_are_bounded_and_come_back),
        TEST(a_leave_finishes_what_can_be_finished),
        TEST(a_close_ends_what_is_open),
        TEST(without_its_hint_a_channel_measures),
        cmocka_unit_test(with_several_queue_pairs_a_message_may_overtake_another),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
