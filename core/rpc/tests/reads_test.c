/* reads_test.c: what an endpoint's peer writes is read once, so that what it changes after a check changes nothing. The
 * reads are counted as the compiler has made them: reads.h.
 */
#include "malformed.h"
#include "reads.h"

#include <stdio.h>

#if READS_POSSIBLE

#define MANY 12

static struct pair pair;

static int open_pair(void **state)
{
    (void)state;
    malformed_open(&pair);
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

/* The header and the headers of its messages, each byte once; of the payloads, which are the application's, none. */
static void expect_batch(struct batch batch)
{
    const struct ring *ring = &pair.endpoint[0][0]->in.ring;
    const size_t second = offsetof(struct batch, second);
    malformed_send(&pair, &batch, 0);
    reads_begin(ring->address, 2 * ring->bytes);
    assert_int_equal(pair_poll(&pair, 0), 2);
    reads_end();
    assert_int_equal(pair.endpoint[0][0]->stats.protocol_errors, 0);
    assert_int_equal(reads_covered(0, sizeof(batch.header) + sizeof(batch.first)),
                     sizeof(batch.header) + sizeof(batch.first));
    assert_int_equal(reads_covered(second, sizeof(batch.second)), sizeof(batch.second));
    assert_int_equal(reads_covered(0, batch.bytes),
                     sizeof(batch.header) + sizeof(batch.first) + sizeof(batch.second));
    reads_expect_once(0, 2 * ring->bytes);
}

static void requests(void **state)
{
    (void)state;
    expect_batch(malformed_good_requests(&pair));
}

static void responses(void **state)
{
    (void)state;
    expect_batch(malformed_good_responses(&pair));
}

/* A batch of many: all but the last are a run, which loads no header twice to see what it is, wherever it ends. */
static void long_batches(void **state)
{
    (void)state;
    const struct ring *ring = &pair.endpoint[0][0]->in.ring;
    crpc_op ops[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        ops[i] = (crpc_op){.opcode = CRPC_OP_CALL, .user_data = i, .reply_bytes_max = 8};
    }
    assert_int_equal(rpc_calls(pair.endpoint[1][0], ops, MANY, (const uint8_t *)ops, 0), MANY);
    rpc_submit_end(pair.engine[1]);
    reads_begin(ring->address, 2 * ring->bytes);
    crpc_completion requests[MANY];
    uint32_t count = 0;
    while (count < MANY) {
        pair_poll(&pair, 1);
        count += rpc_poll(pair.engine[0], &requests[count], count < 5 ? 5 : MANY - count);
    }
    reads_end();
    assert_int_equal(pair.endpoint[0][0]->stats.protocol_errors, 0);
    assert_int_equal(reads_covered(0, 2 * ring->bytes) % WIRE_HEADER_BYTES, 0);
    reads_expect_once(0, 2 * ring->bytes);
}

/* A poll with room for one at a time comes back to the batch, not to its header. */
static void a_batch_that_takes_several_polls(void **state)
{
    (void)state;
    const struct ring *ring = &pair.endpoint[0][0]->in.ring;
    struct batch batch = malformed_good_requests(&pair);
    crpc_completion one;
    malformed_send(&pair, &batch, 0);
    reads_begin(ring->address, 2 * ring->bytes);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rpc_poll(pair.engine[0], &one, 1), 1);
        assert_int_equal(one.kind, CRPC_COMPLETION_REQUEST);
    }
    reads_end();
    reads_expect_once(0, 2 * ring->bytes);
}

/* Here the peer's is our copy, which our device fetched; it lies behind our own. */
static void mailbox(void **state)
{
    (void)state;
    struct rpc_endpoint *endpoint = pair.endpoint[0][0];
    uint8_t *page = ring_mailbox(&endpoint->in.ring);
    const size_t copy = (size_t)((uint8_t *)ring_landing(&endpoint->in.ring) - page);
    endpoint_read_mailbox(endpoint);
    reads_begin(page, 4096);
    pair_poll(&pair, 0);
    reads_end();
    assert_false(endpoint->read.in_flight);
    assert_true(reads_covered(copy, sizeof(struct wire_mailbox)) >= 20);
    reads_expect_once(copy, sizeof(struct wire_mailbox));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        TEST(requests), TEST(responses), TEST(long_batches), TEST(a_batch_that_takes_several_polls),
        TEST(mailbox),
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
