/* test_relaxed.c: memory with NIC_ACCESS_RELAXED: what is written there lands when a completion for it is polled, or when a right
 * ends; and what is written elsewhere does not wait for it. */
#include "common.h"

static struct fixture *relaxed_fixture(enum memory_mode mode, uint32_t pairs)
{
    struct fixture *f = fixture_create(1, mode, pairs);

    memory_fabric_options(f->fabric)->relaxed_late_percent = 100;
    OPERATIONS->memory_deregister(f->b.nic, &f->b.written_memory);
    f->b.written_memory =
        register_memory(f->b.nic, f->b.written, RING_BYTES,
                        CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | NIC_ACCESS_RELAXED);
    memset(f->a.source, 7, RING_BYTES);
    return f;
}

static void post_plain(struct fixture *f, uint32_t pair, uint32_t offset, uint32_t bytes)
{
    const struct nic_transfer transfer = write_transfer(&f->a, &f->b, offset, bytes, 0);

    OPERATIONS->post_write(f->a.queue_pairs[pair], &transfer, 0);
}

static void a_completion_brings_what_is_before_it(void **state)
{
    (void)state;
    for (int mode = MEMORY_SCHEDULED; mode <= MEMORY_IMMEDIATE; mode++) {
        struct fixture *f = relaxed_fixture((enum memory_mode)mode, 2);
        post_plain(f, 0, 0, 64);
        post_write(f, 0, 64, 64, 1, 0);
        post_plain(f, 0, 128, 64); /* behind it */
        ring(f, 0);
        post_write(f, 1, 192, 64, 2, 0); /* another queue pair's */
        ring(f, 1);
        run_to_the_end(f, 1);
        assert_int_equal(f->b.written[0] | f->b.written[64] | f->b.written[128] | f->b.written[192],
                         0);
        for (int i = 0; i < 2; i++) {
            const bool first = poll_one(f->b.nic).immediate == 1;
            assert_int_equal(f->b.written[first ? 0 : 192], 7);
            assert_int_equal(f->b.written[first ? 127 : 255], 7);
            assert_true(i == 1 || f->b.written[first ? 192 : 0] == 0);
        }
        assert_int_equal(f->b.written[128], 0);
        assert_true(counters(f)->held >= 4);
        fixture_destroy(f);
    }
}

static void other_memory_does_not_wait(void **state)
{
    struct fixture *f = relaxed_fixture(MEMORY_IMMEDIATE, 1);
    static uint8_t strict[64];
    const struct nic_keys keys = register_memory(
        f->b.nic, strict, sizeof(strict), CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE);
    struct nic_transfer transfer = write_transfer(&f->a, &f->b, 0, 64, 0);

    (void)state;
    post_plain(f, 0, 0, 64);
    transfer.remote_address = (uintptr_t)strict;
    transfer.remote_key = keys.remote_key;
    OPERATIONS->post_write(f->a.queue_pairs[0], &transfer, 0);
    ring(f, 0);
    assert_int_equal(strict[63], 7);
    assert_int_equal(f->b.written[0], 0);
    fixture_destroy(f);
}

static void an_end_of_a_right_brings_the_rest(void **state)
{
    (void)state;
    for (int end = 0; end < 4; end++) {
        struct fixture *f = relaxed_fixture(MEMORY_IMMEDIATE, 1);
        struct nic_window window;
        assert_int_equal(OPERATIONS->window_create(f->b.nic, &window, NULL), CRPC_OK);
        post_plain(f, 0, 0, 64);
        ring(f, 0);
        assert_int_equal(f->b.written[0], 0);
        switch (end) {
        case 0:
            OPERATIONS->queue_pair_fail(f->b.queue_pairs[0]);
            break;
        case 1:
            OPERATIONS->queue_pair_destroy(f->b.queue_pairs[0]);
            break;
        case 2:
            OPERATIONS->memory_deregister(f->b.nic, &f->b.written_memory);
            break;
        default:
            OPERATIONS->window_destroy(f->b.nic, &window);
            break;
        }
        assert_int_equal(f->b.written[0], 7);
        assert_int_equal(f->b.written[63], 7);
        fixture_destroy(f);
    }
}

/* Nobody knows any more where it was to land. */
static void what_is_left_is_forgotten(void **state)
{
    struct fixture *f = relaxed_fixture(MEMORY_IMMEDIATE, 1);

    (void)state;
    post_plain(f, 0, 0, 64);
    ring(f, 0);
    memory_fabric_destroy(f->fabric);
    assert_int_equal(f->b.written[0], 0);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_brings_what_is_before_it),
        cmocka_unit_test(other_memory_does_not_wait),
        cmocka_unit_test(an_end_of_a_right_brings_the_rest),
        cmocka_unit_test(what_is_left_is_forgotten),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
