/* receives_test.c: the receives of endpoints whose device has no SRQ. */
#include "pair.h"

#define ENDPOINTS_MAX 16u /* of the engines of a pair */
#define CONNECTIONS PAIR_ENDPOINTS_MAX

static struct pair pair;

static void open_pair(uint32_t receive_depth)
{
    const struct nic_options options = {.receive_depth = receive_depth,
                                        .send_depth = 32,
                                        .send_completion_depth = 1024,
                                        .signal_interval = 8};
    pair_without_srq = true;
    pair_open(&pair, &options);
    pair_without_srq = false;
}

/* As many batches as it may send. Returns how many these were. */
static uint32_t fill_window(uint32_t connection)
{
    const struct rpc_endpoint *endpoint = pair.endpoint[0][connection];
    const uint64_t before = endpoint->out.batches_sent;
    while (endpoint->out.batches_sent < endpoint->out.batch_limit) {
        assert_int_equal(pair_call(&pair, 0, connection, 1, 16, 1, 16), CRPC_OK);
        pair_poll(&pair, 0);
    }
    return (uint32_t)(endpoint->out.batches_sent - before);
}

/* One batch of each connection, behind which it hears how many more it may send. */
static void send_one_of_each(void)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        assert_int_equal(pair_call(&pair, 0, i, 1, 16, 1, 16), CRPC_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pair.clock_ns += 1000000;
        pair_poll(&pair, 0);
    }
}

static void answer_all(void)
{
    while (pair_poll(&pair, 1) > 0) {
        const struct pair_log seen = pair.seen[1];
        for (uint32_t i = 0; i < seen.count; i++) {
            uint32_t connection = 0;
            while (pair.endpoint[1][connection]->link.handle != seen.entries[i].endpoint.bits) {
                connection++;
            }
            assert_int_equal(pair_echo(&pair, 1, connection, &seen.entries[i], CRPC_OP_QUIET),
                             CRPC_OK);
        }
    }
    while (pair_poll(&pair, 0) > 0) {
    }
}

/* All windows are full at the same time, again and again, and each batch finds a receive. */
static void test_each_has_its_own(void **state)
{
    crpc_endpoint_options options = pair_options();
    (void)state;
    options.batch_window = 64;
    open_pair(6 * ENDPOINTS_MAX); /* 6 for each, which are 4 at any time */
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        pair_connect(&pair, &options, &options);
        assert_int_equal(pair.endpoint[1][i]->options.batch_window, 4);
        assert_int_equal(pair.endpoint[0][i]->peer.batch_window, 4);
    }
    for (uint32_t round = 0; round < 50; round++) {
        send_one_of_each();
        for (uint32_t i = 0; i < CONNECTIONS; i++) {
            assert_int_equal(fill_window(i), 3);
        }
        answer_all();
    }
    assert_int_equal(memory_fabric_counters(pair.fabric)->receiver_not_ready, 0);
    pair_close(&pair);
}

/* A window that asks for less has less. */
static void test_small_window(void **state)
{
    crpc_endpoint_options options = pair_options();
    (void)state;
    options.batch_window = 2;
    open_pair(6 * ENDPOINTS_MAX);
    pair_connect(&pair, &options, &options);
    assert_int_equal(fill_window(0), 2);
    answer_all();
    pair_close(&pair);
}

/* Words of endpoints with keys take receives, too. */
static void test_keys(void **state)
{
    crpc_endpoint_options options = pair_options();
    struct rpc_endpoint *endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    (void)state;
    memcpy(options.key, "as long as a key has to be", 26);
    options.key_bytes = 26;
    open_pair(9 * ENDPOINTS_MAX); /* 6 at any time */
    assert_int_equal(endpoint_blob(pair.engine[1], &options, &endpoint, blob, &error), CRPC_OK);
    assert_int_equal(endpoint->options.batch_window, 6 - LINK_WORDS);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_has_its_own),
        cmocka_unit_test(test_small_window),
        cmocka_unit_test(test_keys),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
