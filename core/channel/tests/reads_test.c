/* reads_test.c: what a channel's peer writes is read once, so that what it changes after a check changes nothing. The
 * reads are counted as the compiler has made them: reads.h.
 *
 * Side 0 is the victim. The peer's words are put into its memory as its device would put them.
 */
#include "pair_fixture.h"
#include "reads.h"

#include <stdio.h>

#define BUFFER 4096u

#if READS_POSSIBLE

static struct channel *victim;

static int open_pair(void **state)
{
    int failed = pair_setup(state);
    victim = pair.channel[0];
    return failed;
}

static void write_to(size_t offset, const void *data, uint32_t bytes, uint32_t immediate)
{
    pair_write(&pair, 0, 0, offset, data, bytes, immediate);
}

/* Polls the victim and watches what it reads. */
static void poll_watched(void)
{
    reads_begin(victim->area.base, victim->area.bytes);
    pair_poll(&pair, 0);
    reads_end();
    assert_int_equal(victim->stats.protocol_errors, 0);
}

static void control_messages(void **state)
{
    (void)state;
    const uint8_t kinds[] = {CHANNEL_CONTROL_REPORT, CHANNEL_CONTROL_LEAVE, CHANNEL_CONTROL_BYE};
    for (size_t i = 0; i < sizeof(kinds); i++) {
        uint32_t sequence = victim->control.in_sequence;
        size_t place = (size_t)(sequence % CHANNEL_INBOX_MESSAGES) * CHANNEL_CONTROL_BYTES;
        struct channel_control line = {.sequence = sequence,
                                       .kind = kinds[i],
                                       .rail = kinds[i] == CHANNEL_CONTROL_REPORT,
                                       .epoch = victim->rails[1].epoch};
        write_to(place, &line, sizeof(line),
                 CHANNEL_IMMEDIATE_CONTROL | sequence << CHANNEL_GENERATION_SHIFT);
        poll_watched();
        assert_int_equal(reads_covered(place, sizeof(line)), sizeof(line));
        reads_expect_once(0, victim->area.bytes);
    }
    assert_int_equal(victim->peer_leave, PEER_BYE);
}

/* An offer of the whole rail, with all that it tells of queue pairs. */
static void offers(void **state)
{
    (void)state;
    victim->link.passive = true;
    rail_want_fence(victim, 1);
    pair_poll(&pair, 0);
    victim->rails[1].state = RAIL_DOWN; /* as if the peer had reported */
    uint32_t sequence = victim->control.in_sequence;
    size_t place = (size_t)(sequence % CHANNEL_INBOX_MESSAGES) * CHANNEL_CONTROL_BYTES;
    struct channel_control line = {.sequence = sequence,
                                   .kind = CHANNEL_CONTROL_OFFER,
                                   .rail = 1,
                                   .epoch = victim->rails[1].epoch + 1};
    struct channel_offer *offer = (struct channel_offer *)line.body;
    offer->queue_pairs = (uint8_t)victim->queue_pairs;
    memcpy(offer->addresses, victim->rails[1].peer, sizeof(offer->addresses));
    write_to(place, &line, sizeof(line),
             CHANNEL_IMMEDIATE_CONTROL | sequence << CHANNEL_GENERATION_SHIFT);
    poll_watched();
    assert_int_equal(reads_covered(place, sizeof(line)), sizeof(line));
    reads_expect_once(0, victim->area.bytes);
}

static void records(void **state)
{
    (void)state;
    crpc_channel_op ops[2] = {0};
    struct registration *regions[2] = {&pair.region[0], &pair.region[0]};
    for (uint32_t i = 0; i < 2; i++) {
        ops[i] = (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                   .address = (uint64_t)(uintptr_t)pair.memory[0] + i * BUFFER,
                                   .bytes = BUFFER};
    }
    assert_int_equal(channel_receive(victim, ops, regions, 2), CRPC_OK);
    channel_submit_end(pair.engine[0]);
    pair_settle(&pair);
    pair_forget(&pair);
    struct channel_record record = {.number = 1, .count = 2, .sizes = {5, BUFFER + 1}};
    write_to(CHANNEL_RECORDS_OFFSET, &record, sizeof(record),
             1u << CHANNEL_MASK_SHIFT | CHANNEL_IMMEDIATE_RECORD);
    poll_watched();
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 0, CRPC_COMPLETION_RECEIVED), 2);
    assert_int_equal(reads_covered(CHANNEL_RECORDS_OFFSET, sizeof(record)), sizeof(record));
    reads_expect_once(0, victim->area.bytes);
}

/* Of two buffers, over each rail. The number is read before, to see whether there is one at all; the copy has it again, and is what is
 * checked. */
static void clear_to_sends(void **state)
{
    (void)state;
    crpc_channel_op ops[2] = {0};
    struct registration *regions[2] = {&pair.region[1], &pair.region[1]};
    for (uint32_t i = 0; i < 2; i++) {
        ops[i] = (crpc_channel_op){.opcode = CRPC_CHANNEL_RECEIVE,
                                   .address = (uint64_t)(uintptr_t)pair.memory[1] + i * BUFFER,
                                   .bytes = BUFFER,
                                   .tag = i};
    }
    assert_int_equal(channel_receive(pair.channel[1], ops, regions, 2), CRPC_OK);
    channel_submit_end(pair.engine[1]);
    pair_settle(&pair);
    reads_begin(victim->area.base, victim->area.bytes);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pair_send(&pair, 0, 0, 100, i, i), CRPC_OK);
    }
    pair_poll(&pair, 0);
    reads_end();
    pair_settle(&pair);
    assert_int_equal(pair_count(&pair, 1, CRPC_COMPLETION_RECEIVED), 2);
    for (uint32_t i = 0; i < 4; i++) {
        size_t at = channel_buffers_offset(0, i / 2) + i % 2 * sizeof(struct channel_cts);
        assert_int_equal(reads_covered(at, sizeof(struct channel_cts)), sizeof(struct channel_cts));
        reads_expect_once(at, offsetof(struct channel_cts, number));
    }
}

/* Without a word, as clear-to-sends come. */
static void write_line(size_t offset, const struct channel_cts *line)
{
    assert_int_equal(memory_fabric_write(pair.fabric,
                                         victim->rails[0].queues[0]->queue_pair->number,
                                         victim->area.secret + offset,
                                         victim->area.keys[0].remote_key, sizeof(*line), line),
                     NIC_ERROR_NONE);
}

/* A sender that waits for those of the other rail looks for these alone, and reads them once. */
static void clear_to_sends_that_come_later(void **state)
{
    (void)state;
    struct channel_cts line = {.address = (uint64_t)(uintptr_t)pair.memory[1],
                               .bytes = 64,
                               .right = {1, victim->rails[0].epoch},
                               .count = 1,
                               .rails = 3,
                               .number = victim->send.number + 1};
    size_t at = channel_buffers_offset(0, 1);
    write_line(channel_buffers_offset(0, 0), &line);
    assert_int_equal(pair_send(&pair, 0, 0, 64, 0, 1), CRPC_OK);
    pair_poll(&pair, 0);
    assert_true(victim->send.rights_wanted);
    poll_watched();
    assert_true(reads.count > 0);
    for (size_t i = 0; i < reads.count; i++) {
        assert_int_equal(reads.seen[i].at - at, offsetof(struct channel_cts, number));
    }
    line.right = (struct channel_right){1, victim->rails[1].epoch};
    write_line(at, &line);
    poll_watched();
    assert_false(victim->send.rights_wanted);
    assert_int_equal(reads_covered(at, sizeof(line)), sizeof(line));
    reads_expect_once(at, offsetof(struct channel_cts, number));
    reads_expect_once(0, at);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, pair_teardown)
    const struct CMUnitTest tests[] = {
        TEST(control_messages),
        TEST(offers),
        TEST(records),
        TEST(clear_to_sends),
        TEST(clear_to_sends_that_come_later),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    puts("1..0 # SKIP reads are counted on x86-64, without sanitizers");
    return 0;
}

#endif
