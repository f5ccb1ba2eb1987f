/* lane_hostile_test.c: a peer that says of its lane what docs/wire.md forbids, one thing at a time: while
 * the lane is open, before it is, while the victim takes leave, and when it has failed. The endpoint ends
 * with CRPC_E_PROTOCOL, each of its ops completes once, and another endpoint goes on.
 */
#include "lanes.h"

#define UNITS_MAX 8u

static struct lanes lanes;
static struct rpc_endpoint *victim;
static uint32_t batches; /* that were written to the victim, and not polled */
static uint64_t written;

/* ---- What the peer says ---------------------------------------------------------------------- */

struct word {
    struct wire_message header;
    union {
        struct wire_lane lane;
        struct wire_lane_state state;
        struct wire_serial serial;
        uint8_t bytes[UNITS_MAX * WIRE_UNIT_BYTES];
    } body;
};

static void write_batch(const struct word *words, uint32_t count, uint16_t flags)
{
    uint8_t batch[4 * UNITS_MAX * WIRE_UNIT_BYTES] = {0};
    uint32_t bytes = WIRE_BATCH_HEADER_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = (uint32_t)wire_message_bytes(words[i].header.payload_bytes);
        assert_true(length <= UNITS_MAX * WIRE_UNIT_BYTES);
        memcpy(batch + bytes, &words[i].header, WIRE_HEADER_BYTES);
        memcpy(batch + bytes + WIRE_HEADER_BYTES, &words[i].body, length - WIRE_HEADER_BYTES);
        bytes += length;
    }
    const struct wire_batch header = {.request_limit = victim->out.request_limit,
                                      .batch_limit = victim->out.batch_limit,
                                      .sequence = victim->in.sequence_expected + batches++,
                                      .bytes = bytes,
                                      .message_count = (uint16_t)count,
                                      .flags = flags};
    memcpy(batch, &header, sizeof(header));
    assert_int_equal(
        memory_fabric_write_immediate(
            lanes.pair.fabric, victim->link.queue_pair->number,
            (uint64_t)(uintptr_t)ring_at(&victim->in.ring, victim->in.arrived + written),
            victim->in.ring.memory.remote_key, bytes, batch, bytes / WIRE_UNIT_BYTES),
        NIC_ERROR_NONE);
    written += bytes;
}

static void say(const struct word *word)
{
    write_batch(word, 1, 0);
}

static struct word of_kind(uint8_t kind)
{
    struct word word = {.header = {.kind = kind}};
    switch (kind) {
    case WIRE_LANE:
        word.header.payload_bytes = sizeof(word.body.lane);
        word.body.lane.life = 1;
        word.body.lane.address = (struct link_address){
            .queue_pair_number = 77, .link = CRPC_LINK_ETHERNET, .mtu_code = 5};
        break;
    case WIRE_LANE_STATE:
        word.header.payload_bytes = sizeof(word.body.state);
        word.body.state = (struct wire_lane_state){.life = 1, .state = WIRE_LANE_READY};
        break;
    default:
        word.header.payload_bytes = sizeof(word.body.serial);
        word.body.serial.serial = UINT64_C(1) << 16 | 9;
    }
    return word;
}

static struct word state_word(uint32_t state)
{
    struct word word = of_kind(WIRE_LANE_STATE);
    word.body.state.state = state;
    return word;
}

static struct word serial_word(uint8_t kind, uint64_t serial)
{
    struct word word = of_kind(kind);
    word.body.serial.serial = serial;
    return word;
}

/* ---- The victim ------------------------------------------------------------------------------ */

static struct lane_grant *given(void)
{
    return handles_get(&lanes.pair.handles[1], lanes.grant, HANDLE_GRANT);
}

/* Side 1 has given a grant, whose serial is 1 << 16, and has an op and a call open. */
static void open_victim(void)
{
    crpc_endpoint_options options = lanes_options();
    struct lane_op op;
    int32_t reason;
    lanes_open(&lanes);
    pair_connect(&lanes.pair, &options, &options);
    lanes_settle(&lanes);
    lanes_grant(&lanes);
    assert_int_equal(given()->serial, 1 << 16);
    victim = lanes_of(&lanes, 1);
    batches = 0;
    written = 0;
    op = (struct lane_op){.opcode = LANE_READ, .user_data = 40};
    assert_int_equal(rpc_lane_post(victim, &op, 1, &reason), 1); /* of nothing */
    assert_int_equal(pair_call(&lanes.pair, 1, 0, 41, 8, 1, 8), CRPC_OK);
}

/* It has not heard of the peer's lane. */
static void open_early_victim(void)
{
    crpc_endpoint_options options = lanes_options();
    lanes_open(&lanes);
    pair_connect(&lanes.pair, &options, &options);
    lanes_settle(&lanes);
    uint32_t number = lanes.pair.connections++;
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(endpoint_blob(lanes.pair.engine[side], &options,
                                       &lanes.pair.endpoint[side][number], blob[side], &error),
                         CRPC_OK);
    }
    for (uint32_t side = 0; side < 2; side++) { /* the peer is never polled, so it says nothing */
        assert_int_equal(endpoint_join(lanes.pair.endpoint[side][number], blob[!side], &error),
                         CRPC_OK);
    }
    victim = lanes.pair.endpoint[1][number];
    pair_poll(&lanes.pair, 1);
    assert_int_equal(victim->lane.state, RPC_LANE_WAITS);
    assert_int_equal(victim->lane.heard, 0);
    assert_int_equal(pair_call(&lanes.pair, 1, number, 41, 8, 1, 8), CRPC_OK);
    batches = 0;
    written = 0;
}

/* All that it has open completes once, and it ends of what the peer said. */
static void expect_end(uint32_t works, uint32_t calls)
{
    struct pair *pair = &lanes.pair;
    uint64_t handle = victim->link.handle;
    uint32_t ends = 0;
    for (uint32_t i = 0; i < 6; i++) {
        pair_poll(pair, 1);
        for (uint32_t j = 0; j < pair->seen[1].count; j++) {
            const crpc_completion *one = &pair->seen[1].entries[j];
            if (one->endpoint.bits != handle) {
                continue;
            }
            assert_int_equal(ends, 0); /* it is the last */
            works -= one->kind == CRPC_COMPLETION_WORK;
            calls -= one->kind == CRPC_COMPLETION_RESPONSE;
            ends += one->kind == CRPC_COMPLETION_DISCONNECTED;
            assert_true(one->kind != CRPC_COMPLETION_DISCONNECTED ||
                        one->status == CRPC_E_PROTOCOL);
        }
    }
    assert_int_equal(works, 0);
    assert_int_equal(calls, 0);
    assert_int_equal(ends, 1);
    assert_int_equal(victim->stats.protocol_errors, 1);
    assert_true(strlen(victim->link.error.message) > 20);
    assert_int_equal(rpc_lane_bar(victim), CRPC_E_DISCONNECTED);
    assert_null(given());
    pair_round_trip(pair, 1);
}

static void expect_no_end(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        pair_poll(&lanes.pair, 1);
        assert_null(pair_find(&lanes.pair, 1, CRPC_COMPLETION_DISCONNECTED));
    }
    assert_int_equal(victim->stats.protocol_errors, 0);
    pair_round_trip(&lanes.pair, 1);
}

/* ---- One bad word ---------------------------------------------------------------------------- */

struct bad {
    const char *name;
    uint8_t kind;
    bool early; /* before the lane is open, else while it is */
    void (*spoil)(struct word *word);
};

#define SPOIL(name, statement)                                                                     \
    static void name(struct word *word)                                                            \
    {                                                                                              \
        statement;                                                                                 \
    }

SPOIL(as_it_is, (void)word)
SPOIL(no_payload, word->header.payload_bytes = 0)
SPOIL(a_byte_less, word->header.payload_bytes--)
SPOIL(a_byte_more, word->header.payload_bytes++)
SPOIL(call_id, word->header.call_id = 1)
SPOIL(limit, word->header.limit_or_status = 1)
SPOIL(method, word->header.method = 1)
SPOIL(zero, word->header.zero = 1)
SPOIL(life_0, word->body.state.life = 0)
SPOIL(life_2, word->body.state.life = 2)
SPOIL(ended_life_2, word->body.state.life = 2; word->body.state.state = WIRE_LANE_ENDED)
SPOIL(ended, word->body.state.state = WIRE_LANE_ENDED)
SPOIL(state_0, word->body.state.state = 0)
SPOIL(state_3, word->body.state.state = 3)
SPOIL(no_such_place, word->body.serial.serial = UINT64_C(1) << 16 | LANE_GRANTS_MAX)
SPOIL(never_used, word->body.serial.serial = 9)
SPOIL(lane_life_0, word->body.lane.life = 0)
SPOIL(lane_life_2, word->body.lane.life = 2)
SPOIL(lane_ece_vendor, word->body.lane.ece_vendor = 1)
SPOIL(number_0, word->body.lane.address.queue_pair_number = 0)
SPOIL(number_25_bits, word->body.lane.address.queue_pair_number = 1 << 24)
SPOIL(sequence_25_bits, word->body.lane.address.packet_sequence_number = 1 << 24)
SPOIL(another_link, word->body.lane.address.link = CRPC_LINK_INFINIBAND)
SPOIL(no_link, word->body.lane.address.link = 0)
SPOIL(mtu_0, word->body.lane.address.mtu_code = 0)
SPOIL(mtu_6, word->body.lane.address.mtu_code = 6)
SPOIL(lane_ece_options, word->body.lane.address.ece_options = 1)

#define BAD(kind, early, spoil)                                                                    \
    {                                                                                              \
#kind ", " #spoil, kind, early, spoil                                                      \
    }

static const struct bad bad[] = {
    BAD(WIRE_LANE, false, as_it_is), /* again */
    BAD(WIRE_LANE_STATE, false, as_it_is),
    BAD(WIRE_LANE_STATE, false, no_payload),
    BAD(WIRE_LANE_STATE, false, a_byte_less),
    BAD(WIRE_LANE_STATE, false, a_byte_more),
    BAD(WIRE_LANE_STATE, false, life_0),
    BAD(WIRE_LANE_STATE, false, life_2),
    BAD(WIRE_LANE_STATE, false, ended_life_2),
    BAD(WIRE_LANE_STATE, true, ended_life_2),
    BAD(WIRE_LANE, false, lane_life_2), /* before the end of the first */
    BAD(WIRE_LANE_STATE, false, state_0),
    BAD(WIRE_LANE_STATE, false, state_3),
    BAD(WIRE_REVOKE, false, no_payload),
    BAD(WIRE_REVOKE, false, a_byte_less),
    BAD(WIRE_REVOKE, false, a_byte_more),
    BAD(WIRE_REVOKE, false, call_id),
    BAD(WIRE_REVOKE, false, limit),
    BAD(WIRE_REVOKE, false, method),
    BAD(WIRE_REVOKE, false, zero),
    BAD(WIRE_REVOKE, false, no_such_place),
    BAD(WIRE_REVOKE, false, never_used),
    BAD(WIRE_REVOKED, false, as_it_is), /* which was not said */
    BAD(WIRE_REVOKED, false, a_byte_more),
    BAD(7u, false, as_it_is),
    BAD(WIRE_LANE, true, no_payload),
    BAD(WIRE_LANE, true, a_byte_less),
    BAD(WIRE_LANE, true, a_byte_more),
    BAD(WIRE_LANE, true, method),
    BAD(WIRE_LANE, true, lane_life_0),
    BAD(WIRE_LANE, true, lane_life_2),
    BAD(WIRE_LANE, true, lane_ece_vendor),
    BAD(WIRE_LANE, true, number_0),
    BAD(WIRE_LANE, true, number_25_bits),
    BAD(WIRE_LANE, true, sequence_25_bits),
    BAD(WIRE_LANE, true, another_link),
    BAD(WIRE_LANE, true, no_link),
    BAD(WIRE_LANE, true, mtu_0),
    BAD(WIRE_LANE, true, mtu_6),
    BAD(WIRE_LANE, true, lane_ece_options),
    BAD(WIRE_LANE_STATE, true, as_it_is), /* ready, and has told no address */
    BAD(WIRE_LANE_STATE, true, ended),
    BAD(WIRE_REVOKE, true, as_it_is), /* of what it cannot have given */
    BAD(WIRE_REVOKED, true, as_it_is),
};

enum situation { CONNECTED, CLOSING, FAILED };

static void a_bad_word_ends_the_endpoint(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        for (enum situation when = CONNECTED; when <= FAILED; when++) {
            struct word word = of_kind(bad[i].kind);
            crpc_error error = {.status = CRPC_E_DISCONNECTED, .message = "lost"};
            print_message("# %s, %s, situation %u\n", bad[i].name, bad[i].early ? "early" : "open",
                          (unsigned)when);
            if (bad[i].early) {
                open_early_victim();
            } else {
                open_victim();
            }
            bad[i].spoil(&word);
            if (when == CLOSING) {
                link_disconnect(&victim->link, CRPC_FOREVER);
            }
            say(&word);
            if (when == FAILED) {
                rpc_progress(lanes.pair.engine[1]); /* it has arrived, and is not parsed */
                link_fail(&victim->link, &error);
            }
            expect_end(!bad[i].early, 1);
            lanes_close(&lanes);
        }
    }
}

/* ---- What is good is taken ------------------------------------------------------------------- */

static int open_one(void **state)
{
    (void)state;
    open_victim();
    return 0;
}

static int close_one(void **state)
{
    (void)state;
    lanes_close(&lanes);
    return 0;
}

static void good_words_are_taken(void **state)
{
    (void)state;
    struct word words[2] = {serial_word(WIRE_REVOKE, UINT64_C(5) << 16 | 1023),
                            state_word(WIRE_LANE_ENDED)};
    write_batch(words, 2, 0);
    expect_no_end();
    assert_int_equal(victim->lane.state, RPC_LANE_FAILED);
}

/* They come when the connection is failing already: nobody has broken a rule. */
static void good_words_are_taken_when_it_is_failing(void **state)
{
    (void)state;
    const crpc_error error = {.status = CRPC_E_DISCONNECTED, .message = "lost"};
    lanes_close(&lanes);
    open_early_victim();
    struct word words[3] = {of_kind(WIRE_LANE), state_word(WIRE_LANE_READY), of_kind(WIRE_REVOKE)};
    write_batch(words, 3, 0);
    rpc_progress(lanes.pair.engine[1]);
    link_fail(&victim->link, &error);
    pair_poll(&lanes.pair, 1);
    const crpc_completion *end = pair_find(&lanes.pair, 1, CRPC_COMPLETION_DISCONNECTED);
    assert_non_null(end);
    assert_int_equal(end->status, CRPC_E_DISCONNECTED);
    assert_int_equal(victim->stats.protocol_errors, 0);
}

/* ---- Words that do not fit together ---------------------------------------------------------- */

static void it_revokes_twice(void **state)
{
    (void)state;
    struct word word = serial_word(WIRE_REVOKE, UINT64_C(5) << 16);
    say(&word);
    expect_no_end();
    batches = 0;
    written = 0;
    say(&word);
    expect_end(0, 1);
}

static void it_revokes_an_older_one(void **state)
{
    (void)state;
    struct word words[2] = {serial_word(WIRE_REVOKE, UINT64_C(5) << 16),
                            serial_word(WIRE_REVOKE, UINT64_C(4) << 16)};
    say(&words[0]);
    expect_no_end();
    batches = 0;
    written = 0;
    say(&words[1]);
    expect_end(0, 1);
}

static void it_revokes_two_at_once(void **state)
{
    (void)state;
    struct word words[2] = {serial_word(WIRE_REVOKE, UINT64_C(1) << 16),
                            serial_word(WIRE_REVOKE, UINT64_C(1) << 16 | 1)};
    write_batch(words, 2, 0);
    expect_end(1, 1);
}

/* The peer lets no batch through: the answer to its REVOKE is written, and never sent. Each one that it says
 * behind that would make the open batch longer. */
static void it_revokes_again_and_takes_no_answer(void **state)
{
    (void)state;
    uint32_t calls = 1;
    for (; victim->out.batches_sent < victim->out.batch_limit; calls++) {
        assert_int_equal(pair_call(&lanes.pair, 1, 0, calls, 0, 0, 0), CRPC_OK);
        pair_poll(&lanes.pair, 1);
    }
    struct word word = serial_word(WIRE_REVOKE, UINT64_C(5) << 16);
    say(&word);
    pair_poll(&lanes.pair, 1);
    assert_int_equal(victim->out.batch_messages, 1);
    batches = 0;
    written = 0;
    word = serial_word(WIRE_REVOKE, UINT64_C(6) << 16);
    say(&word);
    expect_end(0, calls);
}

static void it_answers_twice(void **state)
{
    (void)state;
    struct word words[2] = {serial_word(WIRE_REVOKED, 1 << 16), serial_word(WIRE_REVOKED, 1 << 16)};
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    rpc_progress(lanes.pair.engine[1]);
    write_batch(words, 2, 0);
    expect_end(2, 1);
}

static void it_answers_for_another(void **state)
{
    (void)state;
    struct word word = serial_word(WIRE_REVOKED, 2 << 16);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    rpc_progress(lanes.pair.engine[1]);
    say(&word);
    expect_end(2, 1);
}

static void it_answers_before_it_was_asked(void **state)
{
    (void)state;
    struct word word = serial_word(WIRE_REVOKED, 1 << 16);
    assert_int_equal(lanes_revoke(&lanes, 0), CRPC_OK);
    assert_int_equal(victim->lane_attention, true); /* the REVOKE is not said yet */
    rpc_lane_flush(victim);
    victim->link.refused = false;
    say(&word);
    expect_no_end(); /* what is in the open batch counts as said */
}

static void its_lane_ends_twice(void **state)
{
    (void)state;
    struct word words[2] = {state_word(WIRE_LANE_ENDED), state_word(WIRE_LANE_ENDED)};
    write_batch(words, 2, 0);
    expect_end(1, 1);
}

static void its_lane_is_ready_after_its_end(void **state)
{
    (void)state;
    struct word words[2] = {state_word(WIRE_LANE_ENDED), state_word(WIRE_LANE_READY)};
    write_batch(words, 2, 0);
    expect_end(1, 1);
}

/* It ends a life that this side has not begun: that of a lane which nobody can have connected. If that were
 * allowed, it could be any number of lives ahead, and this side would wait in one that it has left. */
static void its_lane_ends_too_early(void **state)
{
    (void)state;
    struct word words[3] = {state_word(WIRE_LANE_ENDED), of_kind(WIRE_LANE),
                            state_word(WIRE_LANE_ENDED)};
    words[1].body.lane.life = words[2].body.state.life = 2;
    write_batch(words, 3, 0);
    expect_end(1, 1);
}

/* After the end of a life comes the next, and no other. */
static void lives_out_of_order(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind;
        uint32_t life, state;
        bool good;
    } cases[] = {
        {WIRE_LANE, 2, 0, true},
        {WIRE_LANE, 1, 0, false},
        {WIRE_LANE, 3, 0, false},
        {WIRE_LANE, 0, 0, false},
        {WIRE_LANE_STATE, 2, WIRE_LANE_READY, false},
        {WIRE_LANE_STATE, 2, WIRE_LANE_ENDED, false},
        {WIRE_LANE_STATE, 1, WIRE_LANE_READY, false},
    };
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct word words[2] = {state_word(WIRE_LANE_ENDED), of_kind(cases[i].kind)};
        if (cases[i].kind == WIRE_LANE) {
            words[1].body.lane.life = cases[i].life;
        } else {
            words[1].body.state =
                (struct wire_lane_state){.life = cases[i].life, .state = cases[i].state};
        }
        write_batch(words, 2, 0);
        if (cases[i].good) {
            struct word ready = state_word(WIRE_LANE_READY);
            expect_no_end();
            assert_int_equal(victim->lane.peer_life, 2);
            batches = 0;
            written = 0;
            ready.body.state.life = 2; /* it knows no address of this side's next life */
            say(&ready);
            expect_end(0, 1);
        } else {
            expect_end(1, 1);
        }
        lanes_close(&lanes);
        open_victim();
    }
}

static void it_speaks_after_it_took_leave(void **state)
{
    (void)state;
    static const uint8_t kinds[] = {WIRE_LANE, WIRE_LANE_STATE, WIRE_REVOKE};
    for (uint32_t i = 0; i < sizeof(kinds); i++) {
        struct word word = of_kind(kinds[i]);
        write_batch(NULL, 0, WIRE_BATCH_FIN);
        say(&word);
        expect_end(1, 1);
        lanes_close(&lanes);
        open_victim();
    }
}

/* A WRITE with immediate over the lane takes a receive that is for batches. */
static void it_sends_over_its_lane(void **state)
{
    (void)state;
    assert_int_equal(
        memory_fabric_write_immediate(lanes.pair.fabric, victim->lane.number, 0, 0, 0, "", 5),
        NIC_ERROR_NONE);
    expect_end(1, 1);
}

#define HOSTILE_TEST(name) cmocka_unit_test_setup_teardown(name, open_one, close_one)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_word_ends_the_endpoint),
        HOSTILE_TEST(good_words_are_taken),
        HOSTILE_TEST(good_words_are_taken_when_it_is_failing),
        HOSTILE_TEST(it_revokes_twice),
        HOSTILE_TEST(it_revokes_an_older_one),
        HOSTILE_TEST(it_revokes_two_at_once),
        HOSTILE_TEST(it_revokes_again_and_takes_no_answer),
        HOSTILE_TEST(it_answers_twice),
        HOSTILE_TEST(it_answers_for_another),
        HOSTILE_TEST(it_answers_before_it_was_asked),
        HOSTILE_TEST(its_lane_ends_twice),
        HOSTILE_TEST(its_lane_is_ready_after_its_end),
        HOSTILE_TEST(its_lane_ends_too_early),
        HOSTILE_TEST(lives_out_of_order),
        HOSTILE_TEST(it_speaks_after_it_took_leave),
        HOSTILE_TEST(it_sends_over_its_lane),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("hostile lane", tests, NULL, NULL);
}
