/* test_timed.c: transfers that take time: a device's rate, latencies, and what does not wait. */
#include "common.h"

static uint64_t clock_ns;

/* Both nics are memory0. */
static struct fixture *timed(uint32_t mbps, uint64_t latency_ns)
{
    struct fixture *f = fixture_create(1, MEMORY_IMMEDIATE, 2);
    struct memory_fabric_options *options = memory_fabric_options(f->fabric);

    clock_ns = 1000000;
    options->clock_ns = &clock_ns;
    options->rate_mbps[0] = mbps;
    options->latency_ns[0] = latency_ns;
    return f;
}

static void post_and_ring(struct fixture *f, uint32_t pair, uint32_t bytes)
{
    post_write(f, pair, 0, bytes, bytes, NIC_POST_SIGNALED);
    ring(f, pair);
}

static void a_transfer_lands_after_its_time_and_the_latency(void **state)
{
    struct fixture *f = timed(8000, 5000); /* a byte each nanosecond */

    (void)state;
    post_and_ring(f, 0, 1000);
    assert_int_equal(memory_fabric_next_ns(f->fabric), clock_ns + 1000 + 5000);
    clock_ns += 5999;
    assert_nothing(f->b.nic);
    assert_nothing(f->a.nic);
    clock_ns += 1;
    assert_receive(f->b.nic, f->b.queue_pairs[0], 1000, 1000);
    assert_sent(f->a.nic, f->a.queue_pairs[0], 1);
    assert_int_equal(memory_fabric_next_ns(f->fabric), UINT64_MAX);
    fixture_destroy(f);
}

static void transfers_share_the_rate_and_overlap_in_latency(void **state)
{
    struct fixture *f = timed(8000, 5000);
    const uint64_t start_ns = clock_ns;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        post_and_ring(f, i % 2, 1000);
    }
    for (uint32_t i = 0; i < 4; i++) {
        clock_ns = memory_fabric_next_ns(f->fabric);
        assert_int_equal(clock_ns - start_ns, 5000 + (i + 1) * 1000);
        assert_receive(f->b.nic, f->b.queue_pairs[i % 2], 1000, 1000);
        assert_nothing(f->b.nic);
    }
    fixture_destroy(f);
}

static void without_a_rate_only_the_latency_counts(void **state)
{
    struct fixture *f = timed(0, 700);

    (void)state;
    post_and_ring(f, 0, 4000);
    assert_int_equal(memory_fabric_next_ns(f->fabric), clock_ns + 700);
    memory_fabric_options(f->fabric)->clock_ns = NULL;
    assert_receive(f->b.nic, f->b.queue_pairs[0], 4000, 4000);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_lands_after_its_time_and_the_latency),
        cmocka_unit_test(transfers_share_the_rate_and_overlap_in_latency),
        cmocka_unit_test(without_a_rate_only_the_latency_counts),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
