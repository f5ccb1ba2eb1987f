/* receive_fake_test.c: receives of devices that have no SRQ, and what devices need without saying so. Over the device of fake.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

#define PROMISED 8 /* what the peer of a queue pair may be told */
#define QUEUE 11   /* of which its receive queue always has as many */

static uint32_t poll_all(struct verbs_nic *nic, struct nic_completion *completions)
{
    return verbs_poll(&nic->device.base, completions, FAKE_DEPTH);
}

/* Its peer uses so many receives, and all are polled. */
static void use(struct verbs_nic *nic, uint32_t number, uint32_t count)
{
    struct nic_completion completions[FAKE_DEPTH];
    for (uint32_t i = 0; i < count; i++) {
        fake_add(&fake.receive, number, i, IBV_WC_SUCCESS);
    }
    assert_int_equal(poll_all(nic, completions), count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(completions[i].kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(completions[i].queue_pair_number, number);
        assert_int_equal(completions[i].immediate, i);
    }
    fake.receives_posted -= count;
}

/* The queue is full before the queue pair is connected, and filled up before it has less than was promised. */
static void test_own_receives(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic *base = &nic->device.base;
    assert_int_equal(base->receive_queue_max, 48);
    assert_int_equal(base->receives_posted, FAKE_DEPTH);
    struct nic_queue_pair *queue_pair = fake_create(nic, 5, PROMISED);
    assert_int_equal(fake.cap.max_recv_wr, QUEUE);
    assert_int_equal(fake.cap.max_recv_sge, 1);
    assert_int_equal(fake.receives_posted, QUEUE);
    assert_int_equal(base->receive_wqes, QUEUE);
    for (uint32_t round = 0; round < 3; round++) {
        use(nic, 5, QUEUE - PROMISED);
        assert_int_equal(base->receives_posted, FAKE_DEPTH - (QUEUE - PROMISED));
        use(nic, 5, 1); /* one less than promised */
        assert_true(base->receives_posted < nic_receive_low_mark(base));
        use(nic, 5, 2);
        assert_true(base->receives_posted < nic_receive_low_mark(base));
        verbs_refill(base);
        assert_int_equal(base->receives_posted, FAKE_DEPTH);
        assert_int_equal(fake.receives_posted, QUEUE);
    }
    assert_int_equal(base->receive_wqes, QUEUE + 3 * (QUEUE - PROMISED + 3));
    verbs_queue_pair_destroy(queue_pair);
}

/* Whatever is promised, it is there at the low mark, and one entry less would not do. */
static void test_depths(void **state)
{
    (void)state;
    assert_int_equal(nic_receive_queue_depth(0), 0);
    for (uint32_t receives = 1; receives < 5000; receives++) {
        uint32_t depth = nic_receive_queue_depth(receives);
        assert_true(nic_receives_of(depth) >= receives);
        assert_true(nic_receives_of(depth - 1) < receives);
    }
}

/* Only what was used is posted, and to whom it belongs. */
static void test_several(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *one = fake_create(nic, 5, PROMISED);
    struct nic_queue_pair *other = fake_create(nic, 7, PROMISED);
    struct nic_queue_pair *none = fake_create(nic, 9, 0);
    assert_int_equal(fake.cap.max_recv_wr, 1); /* some devices refuse 0 */
    assert_int_equal(fake.receives_posted, 2 * QUEUE);
    assert_int_equal(nic->receives_given, 2 * QUEUE);
    fake.receive_calls = 0;
    use(nic, 7, 5);
    verbs_refill(&nic->device.base);
    assert_int_equal(fake.receive_calls, 1);
    assert_int_equal(fake.last_receive, 7);
    assert_int_equal(fake.receives_posted, 2 * QUEUE);
    verbs_refill(&nic->device.base);
    assert_int_equal(fake.receive_calls, 1);
    verbs_queue_pair_destroy(none);
    verbs_queue_pair_destroy(other);
    verbs_queue_pair_destroy(one);
}

/* The completion queue has a place for each entry of each receive queue. */
static void test_room(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pairs[FAKE_DEPTH / QUEUE], *more;
    crpc_error error = {.struct_size = sizeof(error)};
    for (uint32_t i = 0; i < FAKE_DEPTH / QUEUE; i++) {
        queue_pairs[i] = fake_create(nic, 5 + i, PROMISED);
    }
    assert_int_equal(nic_queue_pair_create(&nic->device.base, NULL, NULL, PROMISED, &more, &error),
                     CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "one more receive queue of 11"));
    assert_non_null(strstr(error.message, "9 are left of 64"));
    verbs_queue_pair_destroy(queue_pairs[2]);
    queue_pairs[2] = fake_create(nic, 5, PROMISED);
    for (uint32_t i = 0; i < FAKE_DEPTH / QUEUE; i++) {
        verbs_queue_pair_destroy(queue_pairs[i]);
    }
    assert_int_equal(nic_queue_pair_create(&nic->device.base, NULL, NULL, 40, &more, &error),
                     CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "at most 48 entries, not 59"));
}

/* All receives of a queue pair that fails complete. That says nothing, and takes no new ones. */
static void test_flushed(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = fake_create(nic, 5, PROMISED);
    struct nic_completion completions[FAKE_DEPTH];
    use(nic, 5, 2);
    for (uint32_t i = 0; i < QUEUE - 2; i++) {
        fake_add(&fake.receive, 5, 0, IBV_WC_WR_FLUSH_ERR);
    }
    fake.receive_calls = 0;
    assert_int_equal(poll_all(nic, completions), 0);
    verbs_refill(&nic->device.base);
    assert_int_equal(fake.receive_calls, 0);
    assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH);
    verbs_queue_pair_destroy(queue_pair);
}

/* The cause is told, and only that. */
static void test_failed_receive(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = fake_create(nic, 5, PROMISED);
    struct nic_completion completions[FAKE_DEPTH];
    fake_add(&fake.receive, 5, 0, IBV_WC_REM_ACCESS_ERR);
    fake_add(&fake.receive, 5, 0, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(poll_all(nic, completions), 1);
    assert_int_equal(completions[0].kind, NIC_COMPLETION_ERROR);
    assert_int_equal(completions[0].status, NIC_ERROR_LOCAL);
    assert_true(queue_pair->failed);
    fake.receive_calls = 0;
    verbs_refill(&nic->device.base);
    assert_int_equal(fake.receive_calls, 0);
    verbs_queue_pair_destroy(queue_pair);
}

/* A peer was promised what the device now refuses, so the connection ends, and nobody tries for ever. */
static void test_refused_refill(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = fake_create(nic, 5, PROMISED);
    struct nic_completion completions[FAKE_DEPTH];
    use(nic, 5, 4);
    fake.receive_room = fake.receives_posted + 1;
    fake.receive_error = -EIO; /* erdma has such numbers */
    verbs_refill(&nic->device.base);
    assert_int_equal(device_qp(queue_pair)->state, IBV_QPS_ERR);
    assert_int_equal(poll_all(nic, completions), 1);
    assert_int_equal(completions[0].kind, NIC_COMPLETION_ERROR);
    assert_int_equal(completions[0].status, NIC_ERROR_OTHER);
    assert_int_equal(completions[0].queue_pair_number, 5);
    fake.receive_calls = 0;
    verbs_refill(&nic->device.base);
    assert_int_equal(fake.receive_calls, 0);
    assert_int_equal(poll_all(nic, completions), 0);
    verbs_queue_pair_destroy(queue_pair);
}

/* A queue pair that cannot get its receives is none. */
static void test_refused_create(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair;
    crpc_error error = {.struct_size = sizeof(error)};
    fake.receive_room = 3;
    fake.next_number = 5;
    assert_int_not_equal(
        nic_queue_pair_create(&nic->device.base, NULL, NULL, PROMISED, &queue_pair, &error),
        CRPC_OK);
    assert_non_null(strstr(error.message, "fill a receive queue"));
    assert_int_equal(fake.destroyed, 1);
    fake.receives_posted = 0;
    fake.receive_room = UINT32_MAX;
    verbs_queue_pair_destroy(fake_create(nic, 5, PROMISED));
}

/* What is left of it in the CQ counts for nobody, also if its number is used again. */
static void test_destroy(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *doomed = fake_create(nic, 5, PROMISED);
    struct nic_queue_pair *other = fake_create(nic, 7, PROMISED);
    struct nic_completion completions[FAKE_DEPTH];
    for (uint32_t i = 0; i < 4; i++) {
        fake_add(&fake.receive, 5, 50 + i, IBV_WC_SUCCESS);
        fake_add(&fake.receive, 7, i, IBV_WC_SUCCESS);
    }
    verbs_queue_pair_destroy(doomed);
    assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH);
    struct nic_queue_pair *again = fake_create(nic, 5, PROMISED);
    assert_int_equal(poll_all(nic, completions), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(completions[i].queue_pair_number, 7);
    }
    fake_add(&fake.receive, 9, 0, IBV_WC_SUCCESS); /* of none */
    assert_int_equal(poll_all(nic, completions), 0);
    assert_int_equal(nic->device.base.unknown_completions, 1);
    verbs_queue_pair_destroy(other); /* while it is short of receives */
    verbs_refill(&nic->device.base);
    verbs_queue_pair_destroy(again);
}

/* ---- What devices do not say ----------------------------------------------------------------- */

static void test_receive_piece(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic *base = &nic->device.base;
    nic->vendor.receive_piece = true;
    fake.receive_pieces = 1;
    if (nic->srq) {
        base->receives_posted = 0;
        assert_int_equal(verbs_receives_open(nic, NULL), CRPC_OK);
        verbs_refill(base);
        assert_int_equal(fake.receives_posted, 2 * FAKE_DEPTH);
    } else {
        assert_int_equal(verbs_receives_open(nic, NULL), CRPC_OK);
        verbs_queue_pair_destroy(fake_create(nic, 5, PROMISED));
        assert_int_equal(fake.receives_posted, QUEUE);
    }
}

static void test_srq_fails(void **state)
{
    struct verbs_nic *nic = *state;
    crpc_error error = {.struct_size = sizeof(error)};
    fake.srq_error = ENOSPC;
    nic->srq = NULL;
    assert_int_equal(verbs_receives_open(nic, &error), CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "shared receive queue"));
    fake.srq_error = 0;
    /* One that says that it has none is not asked. */
    nic->device.base.receive_queue_max = 48;
    assert_int_equal(verbs_receives_open(nic, NULL), CRPC_OK);
    assert_null(nic->srq);
    assert_int_equal(nic->device.base.receive_queue_max, 48);
}

/* The kernel driver's name is where sysfs has it. */
static void use_driver(char directory[], const char *name)
{
    char path[256], target[64];
    snprintf(path, sizeof(path), "%s/device", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/device/driver", directory);
    snprintf(target, sizeof(target), "../../bus/pci/drivers/%s", name);
    assert_int_equal(symlink(target, path), 0);
}

static void forget_driver(const char *directory)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/device/driver", directory);
    unlink(path);
    snprintf(path, sizeof(path), "%s/device", directory);
    rmdir(path);
    rmdir(directory);
}

static void test_vendors(void **state)
{
    static const struct {
        uint32_t vendor_id;
        const char *driver; /* NULL = it belongs to no other device */
        struct verbs_vendor vendor;
    } cases[] = {
        {0x02c9, "mlx5_core", {0}},
        {0x14e4, "bnxt_en", {.receive_piece = true}},
        {0x1077, "qede", {.receive_piece = true}},
        {0xffffff, NULL, {.soft_roce = true}},
        {0, NULL, {.soft_roce = true}},
        {0x8086, "ice", {0}},
        {0, "mana", {.no_inline = true}},
        {0x1414, "mana", {.no_inline = true}},
        {0x1ded, "erdma", {0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char directory[] = "/tmp/verbs_vendor_XXXXXX";
        assert_non_null(mkdtemp(directory));
        snprintf(fake.device.ibdev_path, sizeof(fake.device.ibdev_path), "%s", directory);
        if (cases[i].driver) {
            use_driver(directory, cases[i].driver);
        }
        fake.attributes.vendor_id = cases[i].vendor_id;
        struct verbs_vendor vendor = verbs_vendor_of(&fake.context);
        forget_driver(directory);
        assert_int_equal(vendor.soft_roce, cases[i].vendor.soft_roce);
        assert_int_equal(vendor.receive_piece, cases[i].vendor.receive_piece);
        assert_int_equal(vendor.no_inline, cases[i].vendor.no_inline);
    }
}

#define OWN_TEST(name)                                                                             \
    cmocka_unit_test_setup_teardown(name, fake_set_up_without_srq, fake_tear_down)
#define SHARED_TEST(name) cmocka_unit_test_setup_teardown(name, fake_set_up, fake_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_TEST(test_own_receives),     OWN_TEST(test_depths),
        OWN_TEST(test_several),          OWN_TEST(test_room),
        OWN_TEST(test_flushed),          OWN_TEST(test_failed_receive),
        OWN_TEST(test_refused_refill),   OWN_TEST(test_refused_create),
        OWN_TEST(test_destroy),          OWN_TEST(test_receive_piece),
        SHARED_TEST(test_receive_piece), SHARED_TEST(test_srq_fails),
        SHARED_TEST(test_vendors),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
