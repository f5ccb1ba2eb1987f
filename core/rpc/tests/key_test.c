/* key_test.c: two sides that compare their keys: who gets in, and what a peer can reach before it
 * has proved that it knows the key.
 */
#include "pair.h"

#define CONNECT_NS 1000000

static struct pair pair;

struct side {
    struct rpc_endpoint *endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
};
static struct side sides[2];

static int open_pair(void **state)
{
    (void)state;
    pair_open(&pair, NULL);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

/* A key of `bytes` times `fill`. */
static crpc_endpoint_options with_key(uint32_t bytes, uint8_t fill)
{
    crpc_endpoint_options options = pair_options();
    options.connect_timeout_ns = CONNECT_NS;
    options.key_bytes = bytes;
    memset(options.key, fill, bytes);
    return options;
}

static void make(int side, const crpc_endpoint_options *options)
{
    crpc_error error = {0};
    assert_int_equal(
        endpoint_blob(pair.engine[side], options, &sides[side].endpoint, sides[side].blob, &error),
        CRPC_OK);
}

static int32_t join(int side, crpc_error *error)
{
    return endpoint_join(sides[side].endpoint, sides[!side].blob, error);
}

/* Polls until nothing comes any more. Returns the status of the one CONNECTED of each side. */
static void settle(int32_t status[2])
{
    int connected[2] = {0, 0};
    for (int i = 0; i < 10; i++) {
        pair.clock_ns +=
            i == 5 ? 2 * CONNECT_NS : 0; /* without rdma_cm nobody tells of a failure */
        for (uint32_t side = 0; side < 2; side++) {
            pair_poll(&pair, side);
            const crpc_completion *found = pair_find(&pair, side, CRPC_COMPLETION_CONNECTED);
            if (found) {
                connected[side]++;
                status[side] = found->status;
            }
        }
    }
    assert_int_equal(connected[0], 1);
    assert_int_equal(connected[1], 1);
}

static void meet(const crpc_endpoint_options *left, const crpc_endpoint_options *right,
                 int32_t status[2])
{
    crpc_error error = {0};
    make(0, left);
    make(1, right);
    assert_int_equal(join(0, &error), CRPC_OK);
    assert_int_equal(join(1, &error), CRPC_OK);
    settle(status);
}

/* A side that has said its first word. Its peer has a connected queue pair, and says nothing by
 * itself: the test says what a peer could. */
static struct link *victim(void)
{
    const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    const struct nic_operations *operations = pair.nic[1]->operations;
    crpc_endpoint_options options = with_key(32, 7);
    crpc_error error = {0};
    struct link_blob blob;
    struct nic_address address;
    make(0, &options);
    make(1, &options);
    memcpy(&blob, sides[0].blob, sizeof(blob));
    assert_int_equal(link_address_take(&address, &blob.address, false, pair.nic[1], &error),
                     CRPC_OK);
    assert_int_equal(operations->queue_pair_connect(sides[1].endpoint->link.queue_pair, &address,
                                                    &transport, &error),
                     CRPC_OK);
    assert_int_equal(join(0, &error), CRPC_OK);
    return &sides[0].endpoint->link;
}

static void part(void)
{
    for (int side = 0; side < 2; side++) {
        link_close(&sides[side].endpoint->link);
    }
}

static struct link_proof_body words_of(int side)
{
    struct link_blob blob;
    struct link_proof_body body;
    memcpy(&blob, sides[side].blob, sizeof(blob));
    memcpy(&body, blob.hello.body, sizeof(body));
    return body;
}

/* The words of a side's peer, as they lie there. */
static void read_words(int side, const struct link_proof_body *body,
                       struct link_word words[LINK_WORDS])
{
    memcpy(words, memory_fabric_place(pair.nic[side], body->key, body->address),
           LINK_WORDS * sizeof(words[0]));
}

/* What its peer could write to the victim as word `number`. */
static enum nic_error say(struct link *link, uint32_t number, const struct link_word *word)
{
    struct link_proof_body body = words_of(0);
    return memory_fabric_write_immediate(pair.fabric, link->queue_pair->number,
                                         body.address + sizeof(*word) * (number - 1), body.key,
                                         sizeof(*word), word, number);
}

static void expect_status(const struct link *link, int32_t status)
{
    for (int i = 0; i < 5; i++) {
        pair_poll(&pair, 0);
        const crpc_completion *found = pair_find(&pair, 0, CRPC_COMPLETION_CONNECTED);
        if (found) {
            assert_int_equal(found->status, status);
            assert_int_equal(link->error.status, status);
            assert_true(strlen(link->error.message) > 20);
            return;
        }
    }
    fail_msg("no CONNECTED with %d", status);
}

/* ---- Who gets in ----------------------------------------------------------------------------- */

static void two_sides_with_one_key_connect(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {16, 32, 64};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        crpc_endpoint_options options = with_key(lengths[i], 3);
        int32_t status[2];
        meet(&options, &options, status);
        assert_int_equal(status[0], CRPC_OK);
        assert_int_equal(status[1], CRPC_OK);
        uint32_t number = pair.connections++;
        pair.endpoint[0][number] = sides[0].endpoint;
        pair.endpoint[1][number] = sides[1].endpoint;
        for (int j = 0; j < 100; j++) { /* the ring wraps, and so does the send queue */
            pair_round_trip(&pair, number);
        }
    }
}

static void two_sides_with_different_keys_both_hear_why(void **state)
{
    (void)state;
    crpc_endpoint_options left = with_key(32, 3);
    static const struct {
        uint32_t byte;
        uint8_t value;
        uint32_t bytes;
    } others[] = {{0, 4, 32}, {31, 4, 32}, {15, 3, 16}, {0, 3, 33}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        crpc_endpoint_options right = with_key(others[i].bytes, 3);
        int32_t status[2];
        right.key[others[i].byte] = others[i].value;
        meet(&left, &right, status);
        assert_int_equal(status[0], CRPC_E_KEY);
        assert_int_equal(status[1], CRPC_E_KEY);
    }
}

/* HMAC pads a key with zeros. */
static void a_key_with_a_zero_behind_it_is_another_key(void **state)
{
    (void)state;
    crpc_endpoint_options left = with_key(16, 3), right = left;
    int32_t status[2];
    right.key_bytes = 17;
    meet(&left, &right, status);
    assert_int_equal(status[0], CRPC_E_KEY);
    assert_int_equal(status[1], CRPC_E_KEY);
}

static void a_side_without_a_key_is_refused_and_refuses(void **state)
{
    (void)state;
    crpc_endpoint_options with = with_key(32, 3), without = with_key(0, 0);
    crpc_error error = {0};
    make(0, &with);
    make(1, &without);
    assert_int_equal(join(0, &error), CRPC_E_KEY);
    assert_non_null(strstr(error.message, "the peer has none"));
    assert_int_equal(join(1, &error), CRPC_E_KEY);
    assert_non_null(strstr(error.message, "this side has none"));
    make(1, &with); /* and nothing has changed: it can join one with the key */
    int32_t status[2];
    assert_int_equal(join(0, &error), CRPC_OK);
    assert_int_equal(join(1, &error), CRPC_OK);
    settle(status);
    assert_int_equal(status[0], CRPC_OK);
    assert_int_equal(status[1], CRPC_OK);
}

/* ---- What was agreed cannot be changed on its way -------------------------------------------- */

static uint32_t checksum(const uint8_t *bytes, size_t count)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < count; i++) {
        sum = (sum ^ bytes[i]) * 16777619u;
    }
    return sum;
}

static void a_hello_that_somebody_changed_ends_the_connection(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        size_t offset;
        uint8_t value;
    } changes[] = {
        {"a byte of the token", offsetof(struct link_hello, token), 'x'},
        {"the highest version", offsetof(struct link_hello, version_max), 77},
        {"an offered feature", offsetof(struct link_hello, features), 1},
        {"the nonce", offsetof(struct link_hello, nonce), 0x5a},
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        crpc_endpoint_options options = with_key(32, 3);
        crpc_error error = {0};
        int32_t status[2];
        struct link_blob blob;
        options.token_bytes = 4;
        memcpy(options.token, "name", 4);
        make(0, &options);
        make(1, &options);
        memcpy(&blob, sides[1].blob, sizeof(blob));
        ((uint8_t *)&blob.hello)[changes[i].offset] ^= changes[i].value;
        blob.checksum = checksum((const uint8_t *)&blob, offsetof(struct link_blob, checksum));
        memcpy(sides[1].blob, &blob, sizeof(blob));
        assert_int_equal(join(0, &error), CRPC_OK);
        assert_int_equal(join(1, &error), CRPC_OK);
        settle(status);
        if (status[0] != CRPC_E_KEY || status[1] != CRPC_E_KEY) {
            fail_msg("%s was changed: status %d and %d", changes[i].what, status[0], status[1]);
        }
    }
}

/* Who takes the key out of both hellos finds a side that insists on it. */
static void a_key_cannot_be_talked_away(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 3);
    crpc_error error = {0};
    for (uint16_t kept = 0; kept < 3; kept++) {
        struct link_blob blob;
        make(0, &options);
        make(1, &options);
        memcpy(&blob, sides[1].blob, sizeof(blob));
        blob.hello.features = kept & 1 ? LINK_FEATURE_PROOF : 0;
        blob.hello.features_required = kept & 2 ? LINK_FEATURE_PROOF : 0;
        blob.checksum = checksum((const uint8_t *)&blob, offsetof(struct link_blob, checksum));
        memcpy(sides[1].blob, &blob, sizeof(blob));
        assert_int_not_equal(join(0, &error), CRPC_OK);
    }
}

/* Somebody in the middle can pass on all words, but not from the peer's queue pair. */
static void words_come_from_the_queue_pair_that_the_hello_names(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 3);
    crpc_error error = {0};
    struct link_blob blob;
    make(0, &options);
    make(1, &options);
    memcpy(&blob, sides[1].blob, sizeof(blob));
    blob.address.queue_pair_number++; /* of whoever is in the middle */
    blob.checksum = checksum((const uint8_t *)&blob, offsetof(struct link_blob, checksum));
    memcpy(sides[1].blob, &blob, sizeof(blob));
    assert_int_equal(join(0, &error), CRPC_OK);
    expect_status(&sides[0].endpoint->link, CRPC_E_PROTOCOL);
}

/* ---- Peers that do not know the key ---------------------------------------------------------- */

static void what_another_connection_said_proves_nothing(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 7);
    int32_t status[2];
    struct link_word words[LINK_WORDS];
    /* The words of the right side, as its peer finds them. */
    meet(&options, &options, status);
    const struct link_proof_body body = words_of(0);
    read_words(0, &body, words);
    struct link *link = victim();
    say(link, 1, &words[0]);
    pair_poll(&pair, 0);
    say(link, 2, &words[1]);
    expect_status(link, CRPC_E_KEY);
}

static void its_own_proof_proves_nothing(void **state)
{
    (void)state;
    struct link *link = victim();
    struct link_word words[LINK_WORDS];
    struct link_proof_body theirs = words_of(1);
    pair_poll(&pair, 0);
    read_words(1, &theirs, words);
    say(link, 1, &words[0]); /* its own nonce, come back */
    pair_poll(&pair, 0);
    read_words(1, &theirs, words);
    say(link, 2, &words[1]);
    expect_status(link, CRPC_E_KEY);
}

static void a_peer_that_says_nothing_is_given_up(void **state)
{
    (void)state;
    struct link *link = victim();
    pair_poll(&pair, 0);
    pair.clock_ns += 2 * CONNECT_NS;
    expect_status(link, CRPC_E_TIMEOUT);
}

/* Its first word waits for the peer's queue pair no longer than the transport resends. */
static void a_peer_that_has_not_joined_is_asked_after(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 3);
    crpc_error error = {0};
    memory_fabric_options(pair.fabric)->retry_steps = 2;
    make(0, &options);
    make(1, &options);
    assert_int_equal(join(0, &error), CRPC_OK);
    expect_status(&sides[0].endpoint->link, CRPC_E_UNREACHABLE);
    assert_non_null(strstr(sides[0].endpoint->link.error.message, "joined"));
}

static void words_out_of_order_end_the_connection(void **state)
{
    (void)state;
    static const uint32_t firsts[] = {0, 2, 3, 4, 0xffffffff};
    const struct link_word word = {.proof = "a nonce"};
    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
        struct link *link = victim();
        struct link_proof_body body = words_of(0);
        memory_fabric_write_immediate(pair.fabric, link->queue_pair->number, body.address, body.key,
                                      sizeof(word), &word, firsts[i]);
        expect_status(link, CRPC_E_PROTOCOL);
        part();
    }
    struct link *link = victim();
    say(link, 1, &word);
    say(link, 1, &word);
    expect_status(link, CRPC_E_PROTOCOL);
}

static void reserved_bytes_of_a_word_end_the_connection(void **state)
{
    (void)state;
    for (size_t offset = LINK_PROOF_BYTES; offset < sizeof(struct link_word); offset++) {
        struct link_word word = {.proof = "a nonce"};
        struct link *link = victim();
        ((uint8_t *)&word)[offset] = 1;
        say(link, 1, &word);
        expect_status(link, CRPC_E_PROTOCOL);
        part();
    }
}

/* Neither the ring nor the mailbox is registered yet, whatever key the peer may guess. */
static void nothing_but_the_words_can_be_reached(void **state)
{
    (void)state;
    struct link *link = victim();
    const struct ring *ring = &sides[0].endpoint->in.ring;
    pair_poll(&pair, 0);
    assert_null(ring->memory.driver);
    uint32_t key = words_of(0).key;
    uint8_t byte = 1;
    assert_int_equal(memory_fabric_write(pair.fabric, link->queue_pair->number,
                                         (uint64_t)(uintptr_t)ring->address, key, 1, &byte),
                     NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(ring->address[0], 0);
}

static void a_batch_before_the_proof_is_no_batch(void **state)
{
    (void)state;
    struct link *link = victim();
    const uint8_t batch[32] = {0};
    struct link_proof_body body = words_of(0);
    memory_fabric_write_immediate(pair.fabric, link->queue_pair->number, body.address, body.key,
                                  sizeof(batch), batch, sizeof(batch) / 32 + 1);
    expect_status(link, CRPC_E_PROTOCOL);
}

/* What it goes on to write finds nobody, and takes no receives from others. */
static void a_peer_without_the_key_cannot_write_any_more(void **state)
{
    (void)state;
    const struct link_word word = {.proof = "no proof"};
    struct link *link = victim();
    say(link, 1, &word);
    pair_poll(&pair, 0);
    say(link, 2, &word);
    expect_status(link, CRPC_E_KEY);
    assert_int_equal(say(link, 3, &word), NIC_ERROR_RETRY);
}

/* It does not see this side's proof, and is told no more than what it got wrong. */
static void a_wrong_proof_is_wrong_though_this_sides_never_arrives(void **state)
{
    (void)state;
    const struct link_word word = {.proof = "no proof"};
    struct link *link = victim();
    memory_fabric_stall(link->queue_pair, 1000000);
    say(link, 1, &word);
    pair_poll(&pair, 0);
    say(link, 2, &word);
    pair_poll(&pair, 0);
    assert_int_equal(link->state, CRPC_STATE_CONNECTING);
    pair.clock_ns += 2 * CONNECT_NS;
    expect_status(link, CRPC_E_KEY);
}

static void expect_no_key(int side)
{
    static const uint8_t nothing[CRPC_KEY_BYTES_MAX];
    const struct rpc_endpoint *endpoint = sides[side].endpoint;
    assert_memory_equal(endpoint->options.key, nothing, sizeof(nothing));
    assert_memory_equal(endpoint->link.options.key, nothing, sizeof(nothing));
}

static void a_key_does_not_stay_when_it_has_been_compared(void **state)
{
    (void)state;
    for (uint8_t i = 0; i < 2; i++) {
        crpc_endpoint_options left = with_key(32, 3), right = with_key(32, 3 + i);
        int32_t status[2];
        meet(&left, &right, status);
        assert_int_equal(status[0], i == 0 ? CRPC_OK : CRPC_E_KEY);
        expect_no_key(0);
        expect_no_key(1);
        part();
    }
}

static void words_have_receives_of_their_own(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 3);
    uint32_t left = rpc_engine_window_left(pair.engine[0]);
    make(0, &options);
    assert_int_equal(rpc_engine_window_left(pair.engine[0]),
                     left - options.batch_window - LINK_WORDS);
    link_close(&sides[0].endpoint->link);
    assert_int_equal(rpc_engine_window_left(pair.engine[0]), left);
}

static void closing_while_keys_are_compared_leaves_nothing(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 3);
    crpc_error error = {0};
    for (int polls = 0; polls < 4; polls++) {
        make(0, &options);
        make(1, &options);
        assert_int_equal(join(0, &error), CRPC_OK);
        assert_int_equal(join(1, &error), CRPC_OK);
        for (int i = 0; i < polls; i++) {
            pair_poll(&pair, 1);
            pair_poll(&pair, 0);
        }
        part();
    }
}

/* The memory is registered when the peer's proof is there: that can fail, too. */
static void a_side_that_cannot_register_its_memory_says_so(void **state)
{
    (void)state;
    crpc_endpoint_options options = with_key(32, 3);
    for (uint32_t nth = 1; nth <= 4; nth++) { /* ring and mailbox, and what depends on the peer */
        crpc_error error = {0};
        int32_t status[2];
        make(0, &options);
        make(1, &options);
        memory_fabric_set_failures(pair.fabric, MEMORY_FAIL_REGISTER, nth, CRPC_E_MEMLOCK);
        assert_int_equal(join(0, &error), CRPC_OK);
        assert_int_equal(join(1, &error), CRPC_OK);
        settle(status);
        assert_true(status[0] == CRPC_E_MEMLOCK || status[1] == CRPC_E_MEMLOCK);
        part();
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_sides_with_one_key_connect),
        TEST(two_sides_with_different_keys_both_hear_why),
        TEST(a_key_with_a_zero_behind_it_is_another_key),
        TEST(a_side_without_a_key_is_refused_and_refuses),
        TEST(a_hello_that_somebody_changed_ends_the_connection),
        TEST(a_key_cannot_be_talked_away),
        TEST(words_come_from_the_queue_pair_that_the_hello_names),
        TEST(what_another_connection_said_proves_nothing),
        TEST(its_own_proof_proves_nothing),
        TEST(a_peer_that_says_nothing_is_given_up),
        TEST(a_peer_that_has_not_joined_is_asked_after),
        TEST(words_out_of_order_end_the_connection),
        TEST(reserved_bytes_of_a_word_end_the_connection),
        TEST(nothing_but_the_words_can_be_reached),
        TEST(a_batch_before_the_proof_is_no_batch),
        TEST(a_side_that_cannot_register_its_memory_says_so),
        TEST(a_peer_without_the_key_cannot_write_any_more),
        TEST(a_wrong_proof_is_wrong_though_this_sides_never_arrives),
        TEST(a_key_does_not_stay_when_it_has_been_compared),
        TEST(words_have_receives_of_their_own),
        TEST(closing_while_keys_are_compared_leaves_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
