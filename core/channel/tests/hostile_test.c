/* hostile_test.c: a peer that writes what docs/wire.md forbids, one thing at a time, by itself and with
 * trouble of other kinds before it is read. Its channel ends with CRPC_E_PROTOCOL, and another channel of
 * the same engine goes on.
 *
 * Side 0 is the victim. The peer's words are put into its memory as its device would put them.
 */
#include "pair_fixture.h"

#include <stdio.h>

static struct channel *victim, *bystander[2];

#define SLOTS 8u
#define BUFFER 4096u

/* What else befalls the victim before it has looked at the peer's words. */
struct trouble {
    const char *name;
    void (*befall)(void);
};

static const struct trouble *trouble;

/* For all memory of the peer, which receives nothing here. */
static struct nic_keys open_keys[CHANNEL_RAILS_MAX];

static int open_pair(void **state)
{
    trouble = *state;
    crpc_channel_options options = pair_options();
    options.slots = SLOTS;
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    bystander[0] = pair.channel[0];
    bystander[1] = pair.channel[1];
    pair_connect(&pair, &options);
    victim = pair.channel[0];
    assert_int_equal(victim->up, 3);
    for (uint32_t rail = 0; rail < 2; rail++) {
        struct nic *nic = pair.nic[1][rail];
        assert_int_equal(
            nic->operations->memory_register(nic, NULL, pair.memory[1], PAIR_BYTES, 0,
                                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                             &open_keys[rail], NULL),
            CRPC_OK);
    }
    return 0;
}

static int close_pair(void **state)
{
    for (uint32_t rail = 0; rail < 2; rail++) {
        pair.nic[1][rail]->operations->memory_deregister(pair.nic[1][rail], &open_keys[rail]);
    }
    return pair_teardown(state);
}

/* ---- The peer's words ------------------------------------------------------------------------ */

static struct nic_queue_pair *queue_of(uint32_t rail)
{
    return victim->rails[rail].queues[0]->queue_pair;
}

static void write_to(uint32_t rail, uint64_t address, const void *data, uint32_t bytes,
                     uint32_t immediate)
{
    assert_int_equal(memory_fabric_write_immediate(pair.fabric, queue_of(rail)->number, address,
                                                   victim->area.keys[rail].remote_key, bytes, data,
                                                   immediate),
                     NIC_ERROR_NONE);
}

static void say(uint32_t rail, uint32_t immediate)
{
    write_to(rail, 0, NULL, 0, immediate);
}

static uint32_t message(uint32_t slot, uint32_t mask, uint32_t generation)
{
    return slot | mask << CHANNEL_MASK_SHIFT | generation << CHANNEL_GENERATION_SHIFT;
}

static struct channel_control good_line(uint8_t kind, uint8_t rail)
{
    return (struct channel_control){.sequence = victim->control.in_sequence,
                                    .kind = kind,
                                    .rail = rail,
                                    .epoch = victim->rails[rail & 1].epoch};
}

static void say_line(const struct channel_control *line)
{
    uint32_t place = victim->control.in_sequence % CHANNEL_INBOX_MESSAGES;
    write_to(0, victim->area.secret + (uint64_t)place * CHANNEL_CONTROL_BYTES, line, sizeof(*line),
             CHANNEL_IMMEDIATE_CONTROL | victim->control.in_sequence << CHANNEL_GENERATION_SHIFT);
}

/* Of rail 1 anew, with the queue pairs that the peer has there. */
static struct channel_control good_offer(void)
{
    struct channel_control line = good_line(CHANNEL_CONTROL_OFFER, 1);
    struct channel_offer *offer = (struct channel_offer *)line.body;
    offer->area_key = victim->rails[1].peer_key;
    offer->queue_pairs = (uint8_t)victim->queue_pairs;
    memcpy(offer->addresses, victim->rails[1].peer, sizeof(offer->addresses));
    line.epoch++;
    return line;
}

/* That a message came, again and again. */
static void say_number(uint32_t sequence, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        say(0, CHANNEL_IMMEDIATE_CONTROL | sequence << CHANNEL_GENERATION_SHIFT);
    }
}

static void say_record(const struct channel_record *record, uint32_t slot, uint32_t immediate)
{
    write_to(0, victim->area.secret + CHANNEL_RECORDS_OFFSET + slot * 64u, record, sizeof(*record),
             immediate | CHANNEL_IMMEDIATE_RECORD);
}

static struct channel_cts good_buffer(void)
{
    return (struct channel_cts){.address = (uint64_t)(uintptr_t)pair.memory[1],
                                .bytes = 64,
                                .right = {open_keys[0].remote_key, victim->rails[0].epoch},
                                .tag = 7,
                                .index = 0,
                                .count = 1,
                                .rails = 1,
                                .number = victim->send.number + 1};
}

/* Clear to send over a rail, without a word. */
static void say_buffer_over(uint32_t rail, const struct channel_cts *buffer, uint32_t index)
{
    uint32_t slot = (uint32_t)victim->send.number & victim->slot_mask;
    assert_int_equal(
        memory_fabric_write(pair.fabric, queue_of(rail)->number,
                            victim->area.secret + channel_buffers_offset(slot, rail) + index * 64u,
                            victim->area.keys[rail].remote_key, sizeof(*buffer), buffer),
        NIC_ERROR_NONE);
}

static void say_buffer(const struct channel_cts *buffer, uint32_t index)
{
    say_buffer_over(0, buffer, index);
}

/* The peer's key for the first buffer of a message. */
static uint32_t key_of(uint32_t slot, uint32_t rail)
{
    return victim->receive.incoming[slot].windows[rail][0]->window.remote_key;
}

/* Receives of one buffer for messages 0 and 1, and of two for message 2. */
static void post_receives(void)
{
    crpc_channel_op ops[2] = {0};
    struct registration *regions[2] = {&pair.region[0], &pair.region[0]};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pair_receive(&pair, 0, i * BUFFER, BUFFER, 7, 100 + i), CRPC_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        ops[i] =
            (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                              .user_data = 102 + i,
                              .address = (uint64_t)(uintptr_t)pair.memory[0] + (2 + i) * BUFFER,
                              .bytes = BUFFER};
    }
    assert_int_equal(channel_receive(victim, ops, regions, 2), CRPC_OK);
    channel_submit_end(pair.engine[0]);
    pair_settle(&pair);
    pair_forget(&pair);
}

/* ---- What must come of it -------------------------------------------------------------------- */

static void round_trip(void)
{
    struct channel *ours[2] = {pair.channel[0], pair.channel[1]};
    pair.channel[0] = bystander[0];
    pair.channel[1] = bystander[1];
    for (uint32_t side = 0; side < 2; side++) {
        pair_forget(&pair);
        pair_fill(&pair, side, 0x40000, 5000, 3);
        assert_int_equal(pair_receive(&pair, !side, 0x80000, 5000, 1, 1), CRPC_OK);
        assert_int_equal(pair_send(&pair, side, 0x40000, 5000, 1, 2), CRPC_OK);
        pair_settle(&pair);
        const crpc_completion *received = pair_find(&pair, !side, CRPC_COMPLETION_RECEIVED, 0);
        assert_non_null(received);
        assert_int_equal(received->status, CRPC_OK);
        assert_true(pair_matches(&pair, !side, 0x80000, 5000, 0, 3));
    }
    pair.channel[0] = ours[0];
    pair.channel[1] = ours[1];
}

static void rail_0_is_lost(void)
{
    rail_want_fence(victim, 0);
}

static void rail_1_is_lost(void)
{
    rail_want_fence(victim, 1);
}

static void both_rails_are_lost(void)
{
    rail_want_fence(victim, 0);
    rail_want_fence(victim, 1);
}

static void its_queue_pairs_die(void)
{
    for (uint32_t rail = 0; rail < 2; rail++) {
        if (victim->rails[rail].queues[0]) {
            memory_fabric_kill(queue_of(rail));
        }
    }
}

static void it_takes_leave(void)
{
    int32_t expected = victim->link.state == CRPC_STATE_CONNECTED ? CRPC_OK : CRPC_E_STATE;
    assert_int_equal(link_disconnect(&victim->link, CRPC_FOREVER), expected);
}

static void the_leave_times_out(void)
{
    link_disconnect(&victim->link, 1);
    pair.clock_ns += 1000000000;
}

static void it_is_closed(void)
{
    link_close(&victim->link);
}

static const struct trouble troubles[] = {
    {"rail 0 is lost", rail_0_is_lost},
    {"rail 1 is lost", rail_1_is_lost},
    {"both rails are lost", both_rails_are_lost},
    {"its queue pairs die", its_queue_pairs_die},
    {"it takes leave", it_takes_leave},
    {"the leave times out", the_leave_times_out},
    {"it is closed", it_is_closed},
};

#define TROUBLES (sizeof(troubles) / sizeof(troubles[0]))

static void expect_ops(uint32_t open)
{
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_RECEIVED) +
                         pair_count(&pair, 0, CRPC_COMPLETION_SENT),
                     open);
}

/* Its ops are over, each once, and it is gone. */
static void expect_closed(void)
{
    uint32_t open = victim->ops_left;
    uint64_t handle = victim->link.handle;
    uint32_t channels = pair.engine[0]->channel_count;
    it_is_closed();
    pair_settle(&pair);
    expect_ops(open);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_DISCONNECTED), 0);
    assert_null(handles_get(&pair.handles[0], handle, HANDLE_CHANNEL));
    assert_int_equal(pair.engine[0]->channel_count, channels - 1);
    assert_false(channel_something_waits(pair.engine[0]));
    round_trip();
}

/* The victim has ended with CRPC_E_PROTOCOL, its ops with CRPC_E_DISCONNECTED, each once. */
static void expect_end(void)
{
    uint32_t open = victim->ops_left;
    if (trouble && trouble->befall == it_is_closed) {
        expect_closed();
        return;
    }
    if (trouble) {
        trouble->befall();
    }
    pair_settle(&pair);
    const crpc_completion *end = pair_find(&pair, 0, CRPC_COMPLETION_DISCONNECTED, 0);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_PROTOCOL);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_DISCONNECTED), 1);
    assert_int_equal(victim->stats.protocol_errors, 1);
    assert_int_equal(victim->link.error.status, CRPC_E_PROTOCOL);
    assert_true(strlen(victim->link.error.message) > 30);
    assert_int_equal(victim->ops_left, 0);
    expect_ops(open);
    assert_false(channel_something_waits(pair.engine[0]));
    assert_int_equal(pair_receive(&pair, 0, 0, 8, 1, 1), CRPC_E_DISCONNECTED);
    round_trip();
}

/* ---- Immediates ------------------------------------------------------------------------------ */

static void good_messages_are_taken(void **state)
{
    (void)state;
    struct channel_record record = {.number = 3, .count = 2, .sizes = {BUFFER, BUFFER + 1}};
    post_receives();
    say(0, message(0, 1, 0));
    say(1, message(1, 3, 0));
    say(0, message(1, 3, 0));
    say_record(&record, 2, message(2, 1, 0));
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_RECEIVED), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const crpc_completion *one = pair_find(&pair, 0, CRPC_COMPLETION_RECEIVED, i);
        assert_int_equal(one->status, one->user_data == 103 ? CRPC_E_TRUNCATED : CRPC_OK);
    }
    round_trip();
}

#define HOSTILE(name, ...)                                                                         \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        post_receives();                                                                           \
        __VA_ARGS__                                                                                \
        expect_end();                                                                              \
    }

HOSTILE(slot_beyond_those_agreed_on, say(0, message(SLOTS, 1, 0));)
HOSTILE(slot_that_waits_for_nothing, say(0, message(5, 1, 0));)
HOSTILE(stale_generation, say(0, message(0, 1, CHANNEL_GENERATION_MASK));)
HOSTILE(generation_to_come, say(0, message(0, 1, 1));)
HOSTILE(mask_without_the_share, say(0, message(0, 2, 0));)
HOSTILE(mask_other_than_learned, say(0, message(0, 3, 0)); say(1, message(0, 2, 0));)
HOSTILE(share_twice, say(0, message(0, 3, 0)); say(0, message(0, 3, 0));)
HOSTILE(message_twice, say(0, message(0, 1, 0)); say(0, message(0, 1, 0));)
HOSTILE(proxy_without_a_failure, say(0, message(0, 2, 0) | CHANNEL_IMMEDIATE_PROXY);)
HOSTILE(group_without_a_record, say(0, message(2, 1, 0));)
HOSTILE(record_in_one_share_only, say(0, message(0, 3, 0));
        say(1, message(0, 3, 0) | CHANNEL_IMMEDIATE_RECORD);)
HOSTILE(control_of_no_kind, say(0, 0x77);)
HOSTILE(control_with_bits_set, say(0, CHANNEL_IMMEDIATE_PROBE | CHANNEL_IMMEDIATE_PROXY);)
HOSTILE(probe_of_another_epoch, say(0, CHANNEL_IMMEDIATE_PROBE | 9u << CHANNEL_GENERATION_SHIFT);)
HOSTILE(probe_of_a_rail_that_is_up,
        say(0, CHANNEL_IMMEDIATE_PROBE | victim->rails[0].epoch << CHANNEL_GENERATION_SHIFT);)
HOSTILE(more_than_the_buffer_holds, static uint8_t payload[BUFFER];
        /* in two parts, each of which fits */
        assert_int_equal(memory_fabric_write_immediate(pair.fabric, queue_of(0)->number,
                                                       (uint64_t)(uintptr_t)pair.memory[0],
                                                       key_of(0, 0), BUFFER, payload,
                                                       message(0, 3, 0)),
                         NIC_ERROR_NONE);
        assert_int_equal(memory_fabric_write_immediate(pair.fabric, queue_of(1)->number,
                                                       (uint64_t)(uintptr_t)pair.memory[0],
                                                       key_of(0, 1), 1, payload, message(0, 3, 0)),
                         NIC_ERROR_NONE);)

/* ---- Records --------------------------------------------------------------------------------- */

HOSTILE(record_of_another_message, struct channel_record record = {.number = 2, .count = 2};
        say_record(&record, 2, message(2, 1, 0));)
HOSTILE(record_of_another_count, struct channel_record record = {.number = 3, .count = 3};
        say_record(&record, 2, message(2, 1, 0));)
HOSTILE(record_with_reserved_bytes, struct channel_record record = {.number = 3, .count = 2};
        record.zero2[1] = 1; say_record(&record, 2, message(2, 1, 0));)
HOSTILE(record_that_was_not_written, say(0, message(2, 1, 0) | CHANNEL_IMMEDIATE_RECORD);)

/* ---- Control --------------------------------------------------------------------------------- */

HOSTILE(line_of_no_kind, struct channel_control line = good_line(99, 0); say_line(&line);)
HOSTILE(line_of_another_sequence, struct channel_control line = good_line(CHANNEL_CONTROL_BYE, 0);
        line.sequence++; say_line(&line);)
HOSTILE(line_that_was_not_written,
        say(0,
            CHANNEL_IMMEDIATE_CONTROL | victim->control.in_sequence << CHANNEL_GENERATION_SHIFT);)
HOSTILE(line_far_ahead, say(0, CHANNEL_IMMEDIATE_CONTROL | (victim->control.in_sequence + 8)
                                                               << CHANNEL_GENERATION_SHIFT);)
/* The victim may yet learn that each rail has been lost, with what one inbox holds. */
HOSTILE(line_again_without_need,
        say_number(victim->control.in_sequence - 1, 2 * CHANNEL_INBOX_MESSAGES + 1);)
HOSTILE(line_that_waits_again_without_need,
        say_number(victim->control.in_sequence + 1, 2 * CHANNEL_INBOX_MESSAGES + 2);)
HOSTILE(line_of_no_rail, struct channel_control line = good_line(CHANNEL_CONTROL_REPORT, 2);
        say_line(&line);)
HOSTILE(line_with_reserved_bytes, struct channel_control line = good_line(CHANNEL_CONTROL_BYE, 0);
        line.zero2 = 1; say_line(&line);)
HOSTILE(report_of_another_epoch, struct channel_control line = good_line(CHANNEL_CONTROL_REPORT, 1);
        line.epoch++; say_line(&line);)
HOSTILE(report_twice, struct channel_control line = good_line(CHANNEL_CONTROL_REPORT, 1);
        say_line(&line); pair_poll(&pair, 0); pair_poll(&pair, 0); line.sequence++;
        say_line(&line);)
HOSTILE(offer_of_a_rail_that_is_up,
        struct channel_control line = good_line(CHANNEL_CONTROL_OFFER, 1);
        line.epoch++; say_line(&line);)
/* It has its report out, and takes the rail up again before it has had ours. */
HOSTILE(offer_before_our_report, victim->link.passive = true;
        struct channel_control line = good_line(CHANNEL_CONTROL_REPORT, 1); say_line(&line);
        channel_take_completions(pair.engine[0]);
        assert_int_equal(victim->rails[1].state, RAIL_DOWN);
        assert_true(victim->rails[1].report_wanted); line = good_offer(); say_line(&line);
        channel_take_completions(pair.engine[0]);)
HOSTILE(report_with_reserved_bytes,
        struct channel_control line = good_line(CHANNEL_CONTROL_REPORT, 1);
        line.body[8] = 1; say_line(&line);)
HOSTILE(leave_that_tells_of_messages,
        struct channel_control line = good_line(CHANNEL_CONTROL_LEAVE, 0);
        line.body[0] = 1; say_line(&line);)
HOSTILE(leave_twice, struct channel_control line = good_line(CHANNEL_CONTROL_LEAVE, 0);
        say_line(&line); channel_take_completions(pair.engine[0]); line.sequence++;
        say_line(&line);)
HOSTILE(leave_after_a_bye, struct channel_control line = good_line(CHANNEL_CONTROL_BYE, 0);
        say_line(&line); channel_take_completions(pair.engine[0]); line.sequence++;
        line.kind = CHANNEL_CONTROL_LEAVE; say_line(&line);)
HOSTILE(bye_twice, struct channel_control line = good_line(CHANNEL_CONTROL_BYE, 0); say_line(&line);
        channel_take_completions(pair.engine[0]); line.sequence++; say_line(&line);)
HOSTILE(asleep_twice, struct channel_control line = good_line(CHANNEL_CONTROL_ASLEEP, 0);
        memset(line.body, 0xff, 8); /* no receive of such a number is posted */
        say_line(&line); channel_take_completions(pair.engine[0]); line.sequence++;
        say_line(&line);)
HOSTILE(asleep_without_the_feature, victim->link.peer.features = 0;
        struct channel_control line = good_line(CHANNEL_CONTROL_ASLEEP, 0); say_line(&line);)
HOSTILE(wake_of_one_that_is_awake, struct channel_control line = good_line(CHANNEL_CONTROL_WAKE, 0);
        say_line(&line);)
HOSTILE(answer_to_nothing, struct channel_control line = good_line(CHANNEL_CONTROL_ANSWER, 1);
        say_line(&line);)

/* ---- Clear to send --------------------------------------------------------------------------- */

#define CLEAR(name, ...)                                                                           \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        struct channel_cts buffer = good_buffer();                                                 \
        __VA_ARGS__                                                                                \
        say_buffer(&buffer, 0);                                                                    \
        assert_int_equal(pair_send(&pair, 0, 0, 64, 7, 1), CRPC_OK);                               \
        expect_end();                                                                              \
    }

CLEAR(buffers_none, buffer.count = 0;)
CLEAR(buffers_too_many, buffer.count = CHANNEL_GROUP_MAX + 1;)
CLEAR(buffer_of_another_index, buffer.index = 1;)
CLEAR(buffer_too_large, buffer.bytes = CHANNEL_BUFFER_BYTES_MAX + 1;)
CLEAR(buffer_round_the_end, buffer.address = UINT64_MAX - 8;)
CLEAR(buffer_of_no_rail, buffer.rails = 4;)
CLEAR(buffer_of_the_other_rail, buffer.rails = 2;)
CLEAR(buffer_with_reserved_bytes, buffer.zero2[2] = 1;)
CLEAR(buffers_that_disagree, struct channel_cts second = good_buffer(); buffer.count = 2;
      second.index = 1; second.count = 3; say_buffer(&second, 1);)

/* Over rail 1 it tells of the same message what `spoil` makes of it. */
static void expect_contradiction(void (*spoil)(struct channel_cts *line))
{
    struct channel_cts buffer = good_buffer();
    buffer.rails = 3;
    say_buffer(&buffer, 0);
    buffer.right = (struct channel_right){open_keys[1].remote_key, victim->rails[1].epoch};
    spoil(&buffer);
    assert_int_equal(pair_send(&pair, 0, 0, 64, 7, 1), CRPC_OK); /* has read the first */
    say_buffer_over(1, &buffer, 0);
    expect_end();
}

#define CONTRADICTION(name, ...)                                                                   \
    static void spoil_##name(struct channel_cts *line)                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        expect_contradiction(spoil_##name);                                                        \
    }

CONTRADICTION(rails_of_two_addresses, line->address += 64;)
CONTRADICTION(rails_of_two_rooms, line->bytes += 64;)
CONTRADICTION(rails_of_two_tags, line->tag++;)
CONTRADICTION(rails_of_two_sizes, line->count++;)
CONTRADICTION(rails_of_two_indexes, line->index++;)

/* What has been read is not read again: what the peer changes afterwards changes nothing. */
static void buffers_that_change_under_our_eyes(void **state)
{
    (void)state;
    struct channel_cts first = good_buffer(), second = good_buffer();
    first.count = second.count = 2;
    second.index = 1;
    second.address += BUFFER;
    say_buffer(&first, 0);
    say_buffer(&second, 1);
    memset(pair.memory[1], 0, 3 * BUFFER);
    pair_fill(&pair, 0, 0, 64, 5);
    assert_int_equal(pair_send(&pair, 0, 0, 64, 7, 1), CRPC_OK); /* reads the lines, and waits */
    first.address += 2 * BUFFER;
    first.right.key = 0xdead;
    first.count = 200;
    say_buffer(&first, 0);
    assert_int_equal(pair_send(&pair, 0, 0, 64, 7, 2), CRPC_OK);
    for (uint32_t i = 0; i < 3; i++) {
        pair_poll(&pair, 0);
    }
    assert_true(pair_matches(&pair, 1, 0, 64, 0, 5));
    assert_true(pair_matches(&pair, 1, BUFFER, 64, 0, 5));
    assert_int_equal(pair.memory[1][2 * BUFFER], 0);
    assert_int_equal(victim->stats.protocol_errors, 0);
}

/* A key that is not the peer's costs it the rail, and then the channel: nothing of ours. */
static void buffer_under_a_wrong_key(void **state)
{
    (void)state;
    struct channel_cts buffer = good_buffer();
    buffer.right.key = 0xdead;
    say_buffer(&buffer, 0);
    assert_int_equal(pair_send(&pair, 0, 0, 64, 7, 1), CRPC_OK);
    pair_wait(&pair, 400000000);
    const crpc_completion *sent = pair_find(&pair, 0, CRPC_COMPLETION_SENT, 0);
    if (sent) {
        assert_int_not_equal(sent->status, CRPC_OK);
    }
    round_trip();
}

struct hostile {
    const char *name;
    void (*test)(void **state);
};

static const struct hostile hostile[] = {
#define CASE(name)                                                                                 \
    {                                                                                              \
#name, name                                                                                \
    }
    CASE(slot_beyond_those_agreed_on),
    CASE(slot_that_waits_for_nothing),
    CASE(stale_generation),
    CASE(generation_to_come),
    CASE(mask_without_the_share),
    CASE(mask_other_than_learned),
    CASE(share_twice),
    CASE(message_twice),
    CASE(proxy_without_a_failure),
    CASE(group_without_a_record),
    CASE(record_in_one_share_only),
    CASE(control_of_no_kind),
    CASE(control_with_bits_set),
    CASE(probe_of_another_epoch),
    CASE(probe_of_a_rail_that_is_up),
    CASE(more_than_the_buffer_holds),
    CASE(record_of_another_message),
    CASE(record_of_another_count),
    CASE(record_with_reserved_bytes),
    CASE(record_that_was_not_written),
    CASE(line_of_no_kind),
    CASE(line_of_another_sequence),
    CASE(line_that_was_not_written),
    CASE(line_far_ahead),
    CASE(line_again_without_need),
    CASE(line_that_waits_again_without_need),
    CASE(line_of_no_rail),
    CASE(line_with_reserved_bytes),
    CASE(report_of_another_epoch),
    CASE(report_twice),
    CASE(offer_of_a_rail_that_is_up),
    CASE(offer_before_our_report),
    CASE(report_with_reserved_bytes),
    CASE(leave_that_tells_of_messages),
    CASE(leave_twice),
    CASE(leave_after_a_bye),
    CASE(bye_twice),
    CASE(asleep_twice),
    CASE(asleep_without_the_feature),
    CASE(wake_of_one_that_is_awake),
    CASE(answer_to_nothing),
    CASE(buffers_none),
    CASE(buffers_too_many),
    CASE(buffer_of_another_index),
    CASE(buffer_too_large),
    CASE(buffer_round_the_end),
    CASE(buffer_of_no_rail),
    CASE(buffer_of_the_other_rail),
    CASE(buffer_with_reserved_bytes),
    CASE(buffers_that_disagree),
    CASE(rails_of_two_addresses),
    CASE(rails_of_two_rooms),
    CASE(rails_of_two_tags),
    CASE(rails_of_two_sizes),
    CASE(rails_of_two_indexes),
};

#define HOSTILE_CASES (sizeof(hostile) / sizeof(hostile[0]))

int main(void)
{
    static char names[HOSTILE_CASES][TROUBLES][96];
    struct CMUnitTest tests[HOSTILE_CASES * (TROUBLES + 1) + 3] = {0};
    size_t count = 0;
    for (size_t i = 0; i < HOSTILE_CASES; i++) {
        tests[count++] =
            (struct CMUnitTest){hostile[i].name, hostile[i].test, open_pair, close_pair, NULL};
        for (size_t j = 0; j < TROUBLES; j++) {
            snprintf(names[i][j], sizeof(names[i][j]), "%s, %s", hostile[i].name, troubles[j].name);
            tests[count++] = (struct CMUnitTest){names[i][j], hostile[i].test, open_pair,
                                                 close_pair, (void *)&troubles[j]};
        }
    }
#define ALONE(name) tests[count++] = (struct CMUnitTest){#name, name, open_pair, close_pair, NULL}
    ALONE(good_messages_are_taken);
    ALONE(buffers_that_change_under_our_eyes);
    ALONE(buffer_under_a_wrong_key);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("channel hostile", tests, count, NULL, NULL);
}
