/* key_test.c: channels whose sides compare their keys. What a word may be and what another proof is
 * worth is tested with calls (core/rpc/tests/key_test.c): the exchange is the link's.
 */
#include "pair.h"

static struct pair pair;

static int open_pair(void **state)
{
    (void)state;
    pair_open(&pair, 2, 2);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static crpc_channel_options with_key(uint8_t fill)
{
    crpc_channel_options options = pair_options();
    options.key_bytes = 32;
    memset(options.key, fill, 32);
    return options;
}

static void expect_status(int32_t status)
{
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_count(&pair, side, CRPC_COMPLETION_CONNECTED), 1);
        assert_int_equal(pair_find(&pair, side, CRPC_COMPLETION_CONNECTED, 0)->status, status);
    }
    pair_forget(&pair);
}

static void a_channel_with_one_key_uses_both_rails(void **state)
{
    (void)state;
    crpc_channel_options options = with_key(3);
    pair_join(&pair, &options, &options);
    pair_wait(&pair, 400000000);
    expect_status(CRPC_OK);
    for (uint32_t side = 0; side < 2; side++) {
        crpc_channel_info info = pair_info(&pair, side);
        assert_int_equal(info.rail_state[0], CRPC_RAIL_UP);
        assert_int_equal(info.rail_state[1], CRPC_RAIL_UP);
    }
    for (uint8_t key = 1; key < 100; key++) {
        pair_message(&pair, 5000, key);
    }
}

static void a_key_does_not_stay_when_it_has_been_compared(void **state)
{
    (void)state;
    static const uint8_t nothing[CRPC_KEY_BYTES_MAX];
    crpc_channel_options options = with_key(3);
    pair_connect(&pair, &options);
    for (uint32_t side = 0; side < 2; side++) {
        const struct channel *channel = pair.channel[side];
        assert_memory_equal(channel->options.key, nothing, sizeof(nothing));
        assert_memory_equal(channel->link.options.key, nothing, sizeof(nothing));
    }
}

static void a_channel_with_two_keys_connects_nobody(void **state)
{
    (void)state;
    crpc_channel_options left = with_key(3), right = with_key(4);
    pair_join(&pair, &left, &right);
    pair_wait(&pair, 400000000);
    expect_status(CRPC_E_KEY);
}

static void a_peer_that_says_nothing_is_given_up(void **state)
{
    (void)state;
    crpc_channel_options options = with_key(3);
    pair_join(&pair, &options, &options);
    memory_fabric_stall(pair.channel[1]->link.queue_pair, 1000000);
    pair_poll(&pair, 0);
    pair.clock_ns += 2 * options.connect_timeout_ns;
    pair_poll(&pair, 0);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_CONNECTED, 0)->status, CRPC_E_TIMEOUT);
}

static void nothing_but_the_words_can_be_reached(void **state)
{
    (void)state;
    crpc_channel_options options = with_key(3);
    pair_join(&pair, &options, &options);
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        assert_null(pair.channel[0]->area.keys[rail].driver);
    }
}

/* The queue pair dies while the two sides compare their keys. */
static void a_queue_pair_that_dies_meanwhile_ends_the_channel(void **state)
{
    (void)state;
    crpc_channel_options options = with_key(3);
    pair_join(&pair, &options, &options);
    memory_fabric_kill(pair.channel[0]->link.queue_pair);
    pair_settle(&pair);
    assert_int_equal(pair_find(&pair, 0, CRPC_COMPLETION_CONNECTED, 0)->status,
                     CRPC_E_DISCONNECTED);
    assert_int_equal(pair_info(&pair, 0).state, CRPC_STATE_DISCONNECTED);
}

/* Nothing is under way on its queue pair, so only the device's event says that it is gone. */
static void expect_end_by_event(const crpc_channel_options *options, enum cm_event_kind kind,
                                int32_t status)
{
    pair_join(&pair, options, options);
    uint32_t side = pair.channel[0]->link.passive ? 0 : 1;
    struct link *link = &pair.channel[side]->link;
    assert_int_equal(link->state, CRPC_STATE_CONNECTING);
    struct cm_event event = {.kind = kind,
                             .queue_pair_number = link->queue_pair->number,
                             .error = {.status = CRPC_E_SYSTEM, .message = "a fault"}};
    channel_device_event(&pair.engine[side]->links, &event);
    pair_poll(&pair, side);
    const crpc_completion *connected = pair_find(&pair, side, CRPC_COMPLETION_CONNECTED, 0);
    assert_int_equal(link->state, CRPC_STATE_DISCONNECTED);
    assert_non_null(connected);
    assert_int_equal(connected->status, status);
    link_close(link);
    link_close(&pair.channel[!side]->link);
    pair_forget(&pair);
}

static void the_devices_event_ends_a_channel_that_only_waits(void **state)
{
    static const enum cm_event_kind kinds[] = {CM_EVENT_QUEUE_PAIR, CM_EVENT_DEVICE_FATAL};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        crpc_channel_options options = with_key(3);
        options.connect_timeout_ns = CRPC_FOREVER;
        expect_end_by_event(&options, kinds[i], CRPC_E_SYSTEM);
        close_pair(state); /* a device that is lost is so for all channels */
        open_pair(state);
        options.key_bytes = 0; /* it waits for the first offer of a rail */
        expect_end_by_event(&options, kinds[i], CRPC_E_UNREACHABLE);
        close_pair(state);
        open_pair(state);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_channel_with_one_key_uses_both_rails),
        TEST(a_key_does_not_stay_when_it_has_been_compared),
        TEST(a_channel_with_two_keys_connects_nobody),
        TEST(a_peer_that_says_nothing_is_given_up),
        TEST(nothing_but_the_words_can_be_reached),
        TEST(a_queue_pair_that_dies_meanwhile_ends_the_channel),
        TEST(the_devices_event_ends_a_channel_that_only_waits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
