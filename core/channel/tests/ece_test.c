/* ece_test.c: what both sides of a channel set of ECE: the first queue pair, which blobs connect, and those that are offered; and what
 * a peer may say of it that is not so. On the in-memory NIC, where what is set is all that both devices offer.
 */
#include "pair_fixture.h"

#define CARD 0x30000007u
#define OTHER_CARD 0x20000001u
#define NEVER_OFFERED 0x30000008u

static struct nic_ece ece_of(uint32_t side, uint32_t rail, uint32_t index)
{
    const struct nic_queue_pair *queue_pair =
        pair.channel[side]->rails[rail].queues[index]->queue_pair;
    struct nic_address address;
    queue_pair->operations->queue_pair_address(queue_pair, &address);
    return address.ece;
}

static void expect(uint32_t rail, uint32_t options)
{
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_info(&pair, side).rail_state[rail], CRPC_RAIL_UP);
        for (uint32_t i = 0; i < pair.channel[side]->queue_pairs; i++) {
            assert_int_equal(ece_of(side, rail, i).options, options);
        }
    }
}

static void open_pair(uint32_t left, uint32_t left_1, uint32_t right, uint32_t right_1)
{
    pair_ece[0][0] = left;
    pair_ece[0][1] = left_1;
    pair_ece[1][0] = right;
    pair_ece[1][1] = right_1;
    pair_open(&pair, 2, 2);
}

static int forget(void **state)
{
    (void)state;
    memset(pair_ece, 0, sizeof(pair_ece));
    return 0;
}

static void every_queue_pair_has_what_both_devices_offer(void **state)
{
    static const struct {
        uint32_t left, left_1, right, right_1, rail_0, rail_1;
    } cases[] = {
        {CARD, CARD, CARD, CARD, CARD, CARD},
        {CARD, OTHER_CARD, OTHER_CARD, CARD, OTHER_CARD, OTHER_CARD},
        {CARD, CARD, OTHER_CARD, OTHER_CARD, OTHER_CARD, OTHER_CARD},
        {CARD, 0, CARD, CARD, CARD, 0},
        {0, CARD, CARD, CARD, 0, CARD},
        {CARD, CARD, 0, 0, 0, 0}, /* the other side knows nothing of it */
        {0, 0, CARD, CARD, 0, 0},
        {0, 0, 0, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_channel_options options = pair_options();
        options.queue_pairs = 3;
        open_pair(cases[i].left, cases[i].left_1, cases[i].right, cases[i].right_1);
        pair_connect(&pair, &options);
        expect(0, cases[i].rail_0);
        expect(1, cases[i].rail_1);
        pair_message(&pair, 100000, 1);
        for (uint32_t rail = 0; rail < 2; rail++) { /* with queue pairs of its own */
            const uint32_t before = pair.channel[0]->rails[rail].queues[0]->queue_pair->number;
            rail_want_fence(pair.channel[0], rail);
            channel_take_completions(pair.engine[0]);
            pair_settle(&pair);
            assert_int_equal(pair_info(&pair, 0).rail_state[rail], CRPC_RAIL_DOWN);
            pair_wait(&pair, 100000000);
            assert_int_not_equal(pair.channel[0]->rails[rail].queues[0]->queue_pair->number,
                                 before);
            expect(rail, rail == 0 ? cases[i].rail_0 : cases[i].rail_1);
        }
        pair_close(&pair);
    }
}

/* ---- What is not so --------------------------------------------------------------------------- */

/* The first queue pair goes by the blob, where a longer token leaves no room for it. Then neither side sets it. */
static void a_token_that_leaves_no_room(void **state)
{
    (void)state;
    for (uint32_t side = 0; side < 2; side++) {
        crpc_channel_options options[2] = {pair_options(), pair_options()};
        options[side].token_bytes = 9;
        open_pair(CARD, CARD, CARD, CARD);
        pair_join(&pair, &options[0], &options[1]);
        pair_wait(&pair, 1000000000);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(ece_of(i, 0, 0).options, 0);
        }
        expect(1, CARD);
        pair_close(&pair);
    }
}

/* Side `victim` has lost rail 1, and its peer writes offers over rail 0. */
static uint32_t lose_rail_1(void)
{
    crpc_channel_options options = pair_options();
    options.rail_retry_ns = CRPC_FOREVER; /* the peer is the test */
    open_pair(CARD, CARD, CARD, CARD);
    pair_connect(&pair, &options);
    uint32_t victim = pair.channel[0]->link.passive ? 0 : 1;
    rail_want_fence(pair.channel[victim], 1);
    channel_take_completions(pair.engine[victim]);
    pair_settle(&pair);
    return victim;
}

static void offer(uint32_t victim, uint32_t vendor, uint32_t ece_options)
{
    const struct channel *channel = pair.channel[victim];
    struct channel_control line = {.sequence = channel->control.in_sequence,
                                   .kind = CHANNEL_CONTROL_OFFER,
                                   .rail = 1,
                                   .epoch = channel->rails[1].epoch + 1};
    struct channel_offer *body = (struct channel_offer *)line.body;
    body->queue_pairs = (uint8_t)channel->queue_pairs;
    body->ece_vendor = vendor;
    memcpy(body->addresses, channel->rails[1].peer, sizeof(body->addresses));
    for (uint32_t i = 0; i < channel->queue_pairs; i++) {
        body->addresses[i].ece_options = ece_options;
    }
    pair_write_line(&pair, victim, &line);
    channel_take_completions(pair.engine[victim]);
}

static void whatever_a_peer_says_it_offers(void **state)
{
    static const struct {
        uint32_t vendor, options, set;
    } cases[] = {
        {NIC_ECE_VENDOR, CARD, CARD},
        {NIC_ECE_VENDOR, 0xffffffff, CARD},
        {NIC_ECE_VENDOR, 0x0fffffff, 0},
        {NIC_ECE_VENDOR, NEVER_OFFERED, 0x30000000},
        {NIC_ECE_VENDOR, 0, 0},
        {0, 0, 0},
        {0, 0xffffffff, 0},
        {0xffffffff, 0xffffffff, 0},
        {NIC_ECE_VENDOR + 1, OTHER_CARD, 0},
        {NIC_ECE_VENDOR, 0x20000004, 0x20000004},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t victim = lose_rail_1();
        offer(victim, cases[i].vendor, cases[i].options);
        const struct channel_rail *rail = &pair.channel[victim]->rails[1];
        assert_int_equal(rail->state, RAIL_PROBING);
        assert_int_equal(rail->answer, CHANNEL_ANSWER_OK);
        for (uint32_t j = 0; j < pair.channel[victim]->queue_pairs; j++) {
            assert_int_equal(ece_of(victim, 1, j).options, cases[i].set);
        }
        assert_int_equal(pair_stats(&pair, victim).protocol_errors, 0);
        pair_close(&pair);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, forget)
    const struct CMUnitTest tests[] = {
        TEST(every_queue_pair_has_what_both_devices_offer),
        TEST(a_token_that_leaves_no_room),
        TEST(whatever_a_peer_says_it_offers),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
