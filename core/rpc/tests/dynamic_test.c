/* dynamic_test.c: endpoints with dynamic queue pairs: they share an initiator, and a peer may be faster than this side. */
#include "pair.h"

#include <assert.h>

#include "nic/initiators.h"

static struct pair pair;
static uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];

static int open_pair(void **state)
{
    const struct nic_options options = {.receive_depth = 256,
                                        .send_depth = 32,
                                        .send_completion_depth = 64,
                                        .signal_interval = 8,
                                        .initiators = 1};
    (void)state;
    pair_open(&pair, &options);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static struct rpc_endpoint *make(uint32_t side, const crpc_endpoint_options *options)
{
    crpc_error error = {0};
    assert_int_equal(
        endpoint_blob(pair.engine[side], options, &pair.endpoint[side][0], blobs[side], &error),
        CRPC_OK);
    return pair.endpoint[side][0];
}

static void make_both(const crpc_endpoint_options *options)
{
    make(0, options);
    make(1, options);
}

static int32_t join(uint32_t side)
{
    crpc_error error = {0};
    return endpoint_join(pair.endpoint[side][0], blobs[!side], &error);
}

/* Has side 0 write, as a peer may that this side has not heard of, as batch or word. */
static void write_early(uint32_t immediate)
{
    const struct nic_transfer nothing = {.immediate = immediate};
    struct nic_queue_pair *queue_pair = pair.endpoint[0][0]->link.queue_pair;
    assert_true(nic_send_room(queue_pair) > 0 || nic_take_room(queue_pair));
    queue_pair->operations->post_write_immediate(queue_pair, &nothing, NIC_POST_RING);
}

static void connect_sender(void)
{
    assert(pair.endpoint[0][0] && pair.endpoint[1][0]);
    struct nic_queue_pair *sender = pair.endpoint[0][0]->link.queue_pair;
    struct nic_queue_pair *waiting = pair.endpoint[1][0]->link.queue_pair;
    const struct nic_transport transport = {
        .retry_timeout = 14, .retry_count = 7, .access_key = pair.endpoint[1][0]->link.nonce};
    struct nic_address address;
    waiting->operations->queue_pair_address(waiting, &address);
    assert_int_equal(sender->operations->queue_pair_connect(sender, &address, &transport, NULL),
                     CRPC_OK);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static void all_share_one(void **state)
{
    const crpc_endpoint_options options = pair_options();
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        pair_connect(&pair, &options, &options);
    }
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            pair_round_trip(&pair, i);
        }
    }
    /* All at once: what has to wait leaves when those before have been acknowledged. */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pair_call(&pair, 0, i, i, 40, (uint8_t)i, 40), CRPC_OK);
    }
    uint32_t requests = 0;
    for (uint32_t n = 0; n < 8; n++) {
        requests += pair_poll(&pair, 1);
        pair_poll(&pair, 0);
    }
    assert_int_equal(requests, 4);
}

/* An endpoint that has the initiator, or waits for it, ends: the others go on. */
static void one_ends(void **state)
{
    const crpc_endpoint_options options = pair_options();
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        pair_connect(&pair, &options, &options);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair_call(&pair, 0, i, i, 40, 1, 40), CRPC_OK);
    }
    link_close(&pair.endpoint[0][0]->link);
    link_close(&pair.endpoint[0][1]->link);
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    assert_non_null(pair_find(&pair, 1, CRPC_COMPLETION_REQUEST));
    assert_ptr_equal(pair.nic[0]->initiators->idle.next->next, &pair.nic[0]->initiators->idle);
}

/* ---- A peer that is faster ------------------------------------------------------------------- */

static void a_call_before_the_other_side_joined(void **state)
{
    const crpc_endpoint_options options = pair_options();
    (void)state;
    make_both(&options);
    assert_int_equal(join(0), CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(pair_call(&pair, 0, 0, 5, 40, 0x5a, 40), CRPC_OK);
    pair_poll(&pair, 0);
    assert_int_equal(pair_poll(&pair, 1), 0); /* it has come, and waits */
    assert_int_equal(join(1), CRPC_OK);
    pair_poll(&pair, 1);
    assert_int_equal(pair.seen[1].entries[0].kind, CRPC_COMPLETION_CONNECTED);
    const crpc_completion *request = pair_find(&pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(pair_echo(&pair, 1, 0, request, CRPC_OP_QUIET), CRPC_OK);
    pair_poll(&pair, 0);
    assert_non_null(pair_find(&pair, 0, CRPC_COMPLETION_RESPONSE));
}

static void keys_are_compared_whoever_joins_first(void **state)
{
    crpc_endpoint_options options = pair_options();
    (void)state;
    options.key_bytes = LINK_KEY_BYTES_MIN;
    make_both(&options);
    assert_int_equal(join(0), CRPC_OK);
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    assert_int_equal(join(1), CRPC_OK);
    for (uint32_t n = 0; n < 6; n++) {
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
    assert_int_equal(pair.endpoint[0][0]->link.state, CRPC_STATE_CONNECTED);
    assert_int_equal(pair.endpoint[1][0]->link.state, CRPC_STATE_CONNECTED);
    pair_round_trip(&pair, 0);
}

/* Polls side 1, whose endpoint then has failed; it cannot join any more. */
static void expect_failed(void)
{
    pair_poll(&pair, 1);
    const crpc_completion *connected = pair_find(&pair, 1, CRPC_COMPLETION_CONNECTED);
    assert_non_null(connected);
    assert_int_equal(connected->status, CRPC_E_PROTOCOL);
    assert_int_equal(join(1), CRPC_E_STATE);
    pair_poll(&pair, 1);
    assert_int_equal(pair.seen[1].count, 0);
}

static void more_batches_than_the_window_before_it_joined(void **state)
{
    const crpc_endpoint_options options = pair_options();
    (void)state;
    make_both(&options);
    connect_sender();
    for (uint32_t n = 0; n < options.batch_window + 1; n++) {
        write_early(1);
    }
    expect_failed();
}

static void a_batch_that_fits_no_ring_before_it_joined(void **state)
{
    const crpc_endpoint_options options = pair_options();
    static const uint32_t bad[] = {0, UINT32_MAX, 4096 / 32 + 1, WIRE_IMMEDIATE_MOVED | 1};
    (void)state;
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        make_both(&options);
        connect_sender();
        write_early(bad[i]);
        expect_failed();
        link_close(&pair.endpoint[0][0]->link);
        link_close(&pair.endpoint[1][0]->link);
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
}

static void words_that_come_too_early(void **state)
{
    crpc_endpoint_options options = pair_options();
    static const uint32_t first[] = {2, 3, 0, 1};
    (void)state;
    options.key_bytes = LINK_KEY_BYTES_MIN;
    for (uint32_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        make_both(&options);
        connect_sender();
        write_early(first[i]);
        if (first[i] == 1) {
            write_early(1);
        }
        expect_failed();
        link_close(&pair.endpoint[0][0]->link);
        link_close(&pair.endpoint[1][0]->link);
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
}

/* By rdma_cm the peer has this side's hello, and so what it takes to write, before it has answered with its own. */
static void who_has_not_answered_does_not_write(void **state)
{
    crpc_endpoint_options options = pair_options();
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        options.key_bytes = i * LINK_KEY_BYTES_MIN;
        make_both(&options);
        connect_sender();
        pair.endpoint[1][0]->link.state = CRPC_STATE_CONNECTING; /* as if it had sent a request */
        write_early(1);
        expect_failed();
        link_close(&pair.endpoint[0][0]->link);
        link_close(&pair.endpoint[1][0]->link);
        pair_poll(&pair, 0);
        pair_poll(&pair, 1);
    }
}

/* ---- Waiting for the initiator --------------------------------------------------------------- */

/* Connections 1 and 2 have calls all the time, so that one of them always has the initiator when the other is told of it. */
static void talk(void)
{
    for (uint32_t i = 1; i <= 2; i++) {
        const int32_t status = pair_call(&pair, 0, i, i, 16, (uint8_t)i, 16);
        assert_true(status == CRPC_OK || status == CRPC_E_AGAIN);
    }
    pair.clock_ns += 10000000;
    pair_poll(&pair, 0);
    pair_poll(&pair, 1);
    for (uint32_t i = 0; i < pair.seen[1].count; i++) {
        const crpc_completion *one = &pair.seen[1].entries[i];
        for (uint32_t n = 1; n <= 2 && one->kind == CRPC_COMPLETION_REQUEST; n++) {
            if (one->endpoint.bits == pair.endpoint[1][n]->link.handle) {
                assert_int_equal(pair_echo(&pair, 1, n, one, CRPC_OP_QUIET), CRPC_OK);
            }
        }
    }
}

/* Only a READ of the mailbox tells that a closed window is open again. */
static void a_read_gets_its_turn(void **state)
{
    const crpc_endpoint_options options = pair_options();
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        pair_connect(&pair, &options, &options);
    }
    const struct rpc_endpoint *endpoint = pair.endpoint[0][0];
    pair_close_window(&pair);
    assert_int_equal(pair_call(&pair, 0, 0, 100, 16, 1, 8), CRPC_OK);
    const uint64_t sent = endpoint->stats.batches_sent;
    for (uint32_t i = 0; i < 20; i++) {
        talk();
    }
    assert_true(endpoint->stats.mailbox_reads > 0);
    assert_int_equal(endpoint->stats.batches_sent, sent + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_share_one),
        TEST(one_ends),
        TEST(a_call_before_the_other_side_joined),
        TEST(keys_are_compared_whoever_joins_first),
        TEST(more_batches_than_the_window_before_it_joined),
        TEST(a_batch_that_fits_no_ring_before_it_joined),
        TEST(words_that_come_too_early),
        TEST(who_has_not_answered_does_not_write),
        TEST(a_read_gets_its_turn),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
