/* hostile_rail_test.c: what docs/wire.md says of offers, answers and probes: what ends the channel, what
 * costs the rail only, and what is borne. Side `victim` has lost rail 1, and its peer writes over rail 0.
 */
#include "pair_fixture.h"

static uint32_t victim;

static struct channel *its_channel(void)
{
    return pair.channel[victim];
}

static struct channel_rail *its_rail(void)
{
    return &its_channel()->rails[1];
}

/* The victim takes offers (passive), or answers. */
static void open_pair(bool passive)
{
    crpc_channel_options options = pair_options();
    options.rail_retry_ns = CRPC_FOREVER; /* the peer is the test */
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    victim = pair.channel[0]->link.passive == passive ? 0 : 1;
    rail_want_fence(its_channel(), 1);
    channel_take_completions(pair.engine[victim]);
    pair_settle(&pair);
    assert_int_equal(its_rail()->state, RAIL_DOWN);
    pair_forget(&pair);
}

/* ---- The peer's words ------------------------------------------------------------------------ */

static void say_line(const struct channel_control *line)
{
    pair_write_line(&pair, victim, line);
    channel_take_completions(pair.engine[victim]);
}

static void say_probe(uint32_t rail, uint32_t epoch)
{
    pair_write(&pair, victim, rail, 0, NULL, 0,
               CHANNEL_IMMEDIATE_PROBE | epoch << CHANNEL_GENERATION_SHIFT);
    channel_take_completions(pair.engine[victim]);
}

/* Of rail 1. An offer is of the next epoch. */
static struct channel_control good_line(uint8_t kind)
{
    struct channel_control line = {.sequence = its_channel()->control.in_sequence,
                                   .kind = kind,
                                   .rail = 1,
                                   .epoch = its_rail()->epoch + (kind == CHANNEL_CONTROL_OFFER)};
    struct channel_offer *offer = (struct channel_offer *)line.body;
    offer->queue_pairs = (uint8_t)its_channel()->queue_pairs;
    memcpy(offer->addresses, its_channel()->rails[1].peer, sizeof(offer->addresses));
    return line;
}

static struct channel_offer *offer_of(struct channel_control *line)
{
    return (struct channel_offer *)line->body;
}

static void expect_end(void)
{
    pair_settle(&pair);
    const crpc_completion *end = pair_find(&pair, victim, CRPC_COMPLETION_DISCONNECTED, 0);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_PROTOCOL);
    assert_int_equal(pair_stats(&pair, victim).protocol_errors, 1);
    pair_close(&pair);
}

/* The channel goes on over rail 0. The peer's library has not sent what the test did. */
static void expect_life(void)
{
    for (uint32_t i = 0; i < 10; i++) {
        pair_poll(&pair, victim);
    }
    assert_int_equal(its_channel()->link.state, CRPC_STATE_CONNECTED);
    assert_int_equal(its_channel()->up, 1);
    assert_int_equal(pair_stats(&pair, victim).protocol_errors, 0);
    pair_close(&pair);
}

/* ---- Offers ---------------------------------------------------------------------------------- */

static void a_good_offer_is_taken(void **state)
{
    (void)state;
    open_pair(true);
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
    say_line(&line);
    assert_int_equal(its_rail()->state, RAIL_PROBING);
    assert_int_equal(its_rail()->answer, CHANNEL_ANSWER_OK);
    expect_life();
}

#define OFFER(name, ...)                                                                           \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        open_pair(true);                                                                           \
        struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);                            \
        __VA_ARGS__                                                                                \
        say_line(&line);                                                                           \
        expect_end();                                                                              \
    }

OFFER(offer_of_an_epoch_that_was, line.epoch--;)
OFFER(offer_with_an_answer, offer_of(&line)->answer = CHANNEL_ANSWER_FAILED;)
OFFER(offer_of_more_queue_pairs, offer_of(&line)->queue_pairs++;)
OFFER(offer_of_no_queue_pairs, offer_of(&line)->queue_pairs = 0;)
OFFER(offer_with_reserved_bytes, offer_of(&line)->zero = 1;)
OFFER(offer_with_a_vendor, offer_of(&line)->ece_vendor = 1;)
OFFER(offer_with_reserved_bytes_behind, offer_of(&line)->zero2 = 1u << 31;)
OFFER(offer_again_before_the_probe, say_line(&line); line.sequence++; line.epoch++;)

/* Only the connecting side makes offers. */
static void offer_of_the_accepting_side(void **state)
{
    (void)state;
    open_pair(false);
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
    say_line(&line);
    expect_end();
}

/* What may be wrong with an address on its way or at its place: the rail is not to be had. */
static void a_malformed_address_costs_the_rail(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        open_pair(true);
        struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
        struct link_address *address = &offer_of(&line)->addresses[0];
        switch (i) {
        case 0:
            address->queue_pair_number = 0;
            break;
        case 1:
            address->queue_pair_number = 1u << 24;
            break;
        case 2:
            address->packet_sequence_number = 1u << 24;
            break;
        case 3:
            address->link = CRPC_LINK_INFINIBAND;
            break;
        case 4:
            address->link = 0;
            break;
        case 5:
            address->mtu_code = 6;
            break;
        default:
            address->ece_options = 1;
        }
        say_line(&line);
        assert_int_equal(its_rail()->state, RAIL_DOWN);
        assert_int_equal(its_rail()->answer, CHANNEL_ANSWER_FAILED);
        expect_life();
    }
}

/* Those of queue pairs that were not agreed on, and what lies behind the body, are not read. */
static void what_nobody_reads_of_an_offer_may_be_anything(void **state)
{
    (void)state;
    open_pair(true);
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
    memset(&offer_of(&line)->addresses[1], 0xff,
           sizeof(line.body) - offsetof(struct channel_offer, addresses[1]));
    say_line(&line);
    assert_int_equal(its_rail()->state, RAIL_PROBING);
    expect_life();
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Offers rail 1 again. */
static void open_offered(void)
{
    open_pair(false);
    rail_retry(its_channel(), 1);
    control_flush(its_channel());
    assert_int_equal(its_rail()->state, RAIL_OFFERED);
    assert_false(its_rail()->offer_wanted);
}

#define ANSWER(name, ...)                                                                          \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        open_offered();                                                                            \
        struct channel_control line = good_line(CHANNEL_CONTROL_ANSWER);                           \
        __VA_ARGS__                                                                                \
        say_line(&line);                                                                           \
        expect_end();                                                                              \
    }

ANSWER(answer_of_another_epoch, line.epoch++;)
ANSWER(answer_of_an_epoch_before, line.epoch--;)
ANSWER(answer_of_no_kind, offer_of(&line)->answer = CHANNEL_ANSWER_FAILED + 1;)
ANSWER(answer_of_fewer_queue_pairs, offer_of(&line)->queue_pairs--;)
ANSWER(answer_with_reserved_bytes, offer_of(&line)->zero2 = 1;)
ANSWER(answer_with_a_vendor, offer_of(&line)->ece_vendor = 1;)
ANSWER(answer_twice, say_line(&line); line.sequence++;)

static void a_malformed_address_in_an_answer_costs_the_rail(void **state)
{
    (void)state;
    open_offered();
    struct channel_control line = good_line(CHANNEL_CONTROL_ANSWER);
    offer_of(&line)->addresses[0].mtu_code = 0;
    say_line(&line);
    assert_int_equal(its_rail()->state, RAIL_FENCED);
    expect_life();
}

static void the_body_of_a_refusal_may_be_anything(void **state)
{
    (void)state;
    open_offered();
    struct channel_control line = good_line(CHANNEL_CONTROL_ANSWER);
    memset(line.body, 0xff, sizeof(line.body));
    offer_of(&line)->answer = CHANNEL_ANSWER_FAILED;
    say_line(&line);
    assert_int_equal(its_rail()->state, RAIL_DOWN);
    expect_life();
}

/* ---- Probes ---------------------------------------------------------------------------------- */

/* It may have come faster than the answer's acknowledgement, but not before the answer. */
static void probe_before_the_answer(void **state)
{
    (void)state;
    open_pair(true);
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
    say_line(&line);
    assert_true(its_rail()->answer_wanted);
    say_probe(1, its_rail()->epoch);
    expect_end();
}

static void probe_twice(void **state)
{
    (void)state;
    open_pair(true);
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
    say_line(&line);
    control_flush(its_channel());
    say_probe(1, its_rail()->epoch);
    assert_int_equal(its_rail()->state, RAIL_UP);
    say_probe(1, its_rail()->epoch);
    expect_end();
}

/* Rail 0 has a queue pair before it has been offered: that of the hellos. */
static void probe_before_the_offer(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    pair_join(&pair, &options, &options);
    victim = pair.channel[0]->link.passive ? 0 : 1;
    assert_int_equal(its_channel()->rails[0].epoch, 0);
    say_probe(0, 0);
    assert_int_equal(its_channel()->link.error.status, CRPC_E_PROTOCOL);
    pair_close(&pair);
}

/* ---- Repeated lines -------------------------------------------------------------------------- */

/* What a rail that was lost may not have delivered: all of an inbox, for each attempt to use a rail. */
static void lines_that_came_before_are_borne(void **state)
{
    (void)state;
    open_pair(true);
    uint32_t allowed =
        2 * CHANNEL_INBOX_MESSAGES; /* the attempts at the beginning, of both rails */
    for (uint32_t i = 0; i < allowed; i++) {
        pair_write(&pair, victim, 0, 0, NULL, 0,
                   CHANNEL_IMMEDIATE_CONTROL | (its_channel()->control.in_sequence - 1 - i % 3)
                                                   << CHANNEL_GENERATION_SHIFT);
    }
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER);
    say_line(&line);
    for (uint32_t i = 0; i < CHANNEL_INBOX_MESSAGES; i++) {
        say_line(&line);
    }
    expect_life();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_offer_is_taken),
        cmocka_unit_test(offer_of_an_epoch_that_was),
        cmocka_unit_test(offer_with_an_answer),
        cmocka_unit_test(offer_of_more_queue_pairs),
        cmocka_unit_test(offer_of_no_queue_pairs),
        cmocka_unit_test(offer_with_reserved_bytes),
        cmocka_unit_test(offer_with_a_vendor),
        cmocka_unit_test(offer_with_reserved_bytes_behind),
        cmocka_unit_test(offer_again_before_the_probe),
        cmocka_unit_test(offer_of_the_accepting_side),
        cmocka_unit_test(a_malformed_address_costs_the_rail),
        cmocka_unit_test(what_nobody_reads_of_an_offer_may_be_anything),
        cmocka_unit_test(answer_of_another_epoch),
        cmocka_unit_test(answer_of_an_epoch_before),
        cmocka_unit_test(answer_of_no_kind),
        cmocka_unit_test(answer_of_fewer_queue_pairs),
        cmocka_unit_test(answer_with_reserved_bytes),
        cmocka_unit_test(answer_with_a_vendor),
        cmocka_unit_test(answer_twice),
        cmocka_unit_test(a_malformed_address_in_an_answer_costs_the_rail),
        cmocka_unit_test(the_body_of_a_refusal_may_be_anything),
        cmocka_unit_test(probe_before_the_answer),
        cmocka_unit_test(probe_twice),
        cmocka_unit_test(probe_before_the_offer),
        cmocka_unit_test(lines_that_came_before_are_borne),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
