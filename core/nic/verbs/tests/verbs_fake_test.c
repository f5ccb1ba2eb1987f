/* verbs_fake_test.c: the driver's bookkeeping over a device that is a few arrays (fake.h). Runs without RDMA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "fake.h"

static struct nic_queue_pair *create(struct verbs_nic *nic, uint32_t number)
{
    return fake_create(nic, number, 8);
}

static void post(struct nic_queue_pair *queue_pair, uint32_t count, uint32_t bytes, uint32_t flags)
{
    struct nic_transfer transfer = {.bytes = bytes, .immediate = 7};
    for (uint32_t i = 0; i < count; i++) {
        verbs_post_write_immediate(queue_pair, &transfer, flags);
    }
}

/* ---- Posting --------------------------------------------------------------------------------- */

static void test_chain(void **state)
{
    struct nic_queue_pair *queue_pair = create(*state, 5);
    post(queue_pair, 3, 32, 0);
    assert_int_equal(fake.post_count, 0);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(fake.post_count, 3);
    assert_int_equal(fake.post_calls, 1);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(fake.post_calls, 1);
    post(queue_pair, 9, 32, 0);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(fake.post_count, 12);
    assert_int_equal(fake.post_calls, 4); /* 4, 4 and 1 */
    assert_int_equal(queue_pair->stats.doorbells, 4);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(fake.posts[i].wr_id, i);
        assert_int_equal(fake.posts[i].flags & IBV_SEND_SIGNALED ? 1 : 0, i % 4 == 3);
    }
    assert_int_equal(queue_pair->stats.signaled_wqes, 3);
    assert_int_equal(nic_send_room(queue_pair), 4);
    verbs_queue_pair_destroy(queue_pair);
}

static void test_inline(void **state)
{
    struct nic_queue_pair *queue_pair = create(*state, 5);
    struct nic_transfer read = {.bytes = 64};
    post(queue_pair, 1, 0, 0);
    post(queue_pair, 1, 64, 0);
    post(queue_pair, 1, 65, 0);
    verbs_post_read(queue_pair, &read, NIC_POST_SIGNALED);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(fake.posts[0].pieces, 0);
    assert_int_equal(fake.posts[0].flags & IBV_SEND_INLINE, IBV_SEND_INLINE);
    assert_int_equal(fake.posts[1].flags & IBV_SEND_INLINE, IBV_SEND_INLINE);
    assert_int_equal(fake.posts[2].flags & IBV_SEND_INLINE, 0);
    assert_int_equal(fake.posts[2].pieces, 1);
    assert_int_equal(fake.posts[3].opcode, IBV_WR_RDMA_READ);
    assert_int_equal(fake.posts[3].flags, IBV_SEND_SIGNALED);
    assert_int_equal(queue_pair->stats.inline_wqes, 2);
    verbs_queue_pair_destroy(queue_pair);
}

/* Whether the device is told of a fence with what was posted last. */
static bool fenced(struct nic_queue_pair *queue_pair)
{
    verbs_fence_last(queue_pair);
    verbs_ring_doorbell(queue_pair);
    return fake.posts[fake.post_count - 1].flags & IBV_SEND_FENCE;
}

/* Soft-RoCE is told only if READs or atomics before it may be under way: it would wait for itself (verbs.h). */
static void test_fences(void **state)
{
    struct nic_queue_pair *queue_pair = create(*state, 5);
    struct nic_transfer read = {.bytes = 8};
    struct nic_atomic add = {.operand = 1};
    struct nic_piece piece = {.bytes = 8};
    queue_pair->nic->atomics = true;
    queue_pair->nic->pieces_max = 1;
    post(queue_pair, 1, 8, 0);
    assert_true(fenced(queue_pair));
    to_verbs_nic(queue_pair->nic)->vendor.soft_roce = true;
    post(queue_pair, 1, 8, 0);
    assert_false(fenced(queue_pair));
    verbs_post_read(queue_pair, &read, NIC_POST_SIGNALED);
    assert_false(fenced(queue_pair));
    post(queue_pair, 1, 8, 0);
    assert_true(fenced(queue_pair));
    verbs_post_atomic(queue_pair, &add, NIC_POST_SIGNALED);
    assert_true(fenced(queue_pair));
    queue_pair->completed = 3;
    verbs_post_pieces(queue_pair, true, &read, &piece, 1, NIC_POST_SIGNALED);
    assert_true(fenced(queue_pair)); /* of the atomic nobody has heard */
    queue_pair->completed = 6;
    verbs_post_atomic(queue_pair, &add, NIC_POST_SIGNALED);
    assert_false(fenced(queue_pair));
    queue_pair->completed = 0; /* to be discarded */
    verbs_queue_pair_destroy(queue_pair);
}

static void test_plain_write(void **state)
{
    struct nic_queue_pair *queue_pair = create(*state, 5);
    struct nic_transfer write = {.bytes = 64, .immediate = 0xdead};
    post(queue_pair, 1, 64, 0);
    verbs_post_write(queue_pair, &write, 0);
    write.bytes = 65;
    verbs_post_write(queue_pair, &write, NIC_POST_SIGNALED);
    post(queue_pair, 1, 64, 0); /* in a place of the chain that had a plain one before */
    verbs_ring_doorbell(queue_pair);
    post(queue_pair, 4, 64, 0);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(fake.posts[0].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    assert_int_equal(fake.posts[1].opcode, IBV_WR_RDMA_WRITE);
    assert_int_equal(fake.posts[1].flags, IBV_SEND_INLINE);
    assert_int_equal(fake.posts[2].opcode, IBV_WR_RDMA_WRITE);
    assert_int_equal(fake.posts[2].flags, IBV_SEND_SIGNALED);
    assert_int_equal(fake.posts[2].bytes, 65);
    for (uint32_t i = 3; i < 8; i++) {
        assert_int_equal(fake.posts[i].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    }
    queue_pair->failed = true;
    verbs_post_write(queue_pair, &write, 0);
    assert_int_equal(queue_pair->posted, 8);
    verbs_queue_pair_destroy(queue_pair);
}

/* What the device refuses completes all the same, with an error, once, and in order. */
static void test_refused_post(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = create(nic, 5);
    struct nic_completion completions[16];
    post(queue_pair, 1, 32, NIC_POST_SIGNALED);
    verbs_ring_doorbell(queue_pair);
    fake.refuse_after = 1;
    post(queue_pair, 3, 32, 0);
    verbs_ring_doorbell(queue_pair);
    assert_true(queue_pair->failed);
    assert_int_equal(device_qp(queue_pair)->state, IBV_QPS_ERR);
    post(queue_pair, 1, 32, 0);
    assert_int_equal(queue_pair->posted, 4);

    assert_int_equal(verbs_poll(&nic->device.base, completions, 16), 1);
    assert_int_equal(completions[0].kind, NIC_COMPLETION_ERROR);
    assert_int_equal(completions[0].status, NIC_ERROR_OTHER);
    assert_int_equal(completions[0].completed, 4);
    assert_int_equal(queue_pair->completed, 4);
    /* Those it did take are flushed later and move nothing back. */
    nic->device.send_outstanding++; /* lets poll look */
    fake_add(&fake.send, 5, 0, IBV_WC_SUCCESS);
    fake_add(&fake.send, 5, 1, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 16), 2);
    nic->device.send_outstanding--;
    assert_int_equal(queue_pair->completed, 4);
    verbs_queue_pair_destroy(queue_pair);
}

static void test_refill(void **state)
{
    struct verbs_nic *nic = *state;
    assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH);
    nic->device.base.receive_depth = 1000;
    fake.receive_calls = 0;
    verbs_refill(&nic->device.base);
    assert_int_equal(nic->device.base.receives_posted, 1000);
    assert_int_equal(fake.receives_posted, 1000);
    assert_int_equal(fake.receive_calls, 4); /* 936 missing: 256, 256, 256, 168 */
    assert_int_equal(nic->device.base.receive_wqes, 1000);
    nic->device.base.receive_depth = 2000;
    fake.receive_room = 1300; /* the device takes 300 of them */
    verbs_refill(&nic->device.base);
    assert_int_equal(nic->device.base.receives_posted, 1300);
    fake.receive_room = 3000;
    verbs_refill(&nic->device.base);
    assert_int_equal(fake.receives_posted, 2000);
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void test_order(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = create(nic, 5);
    struct nic_completion completions[16];
    fake_add(&fake.send, 5, 3, IBV_WC_SUCCESS);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 16),
                     0); /* nothing outstanding: no look */
    post(queue_pair, 6, 32, 0);
    verbs_ring_doorbell(queue_pair);
    fake_add(&fake.receive, 5, 11, IBV_WC_SUCCESS);
    fake_add(&fake.receive, 9, 12, IBV_WC_SUCCESS);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 16), 3);
    assert_int_equal(completions[0].kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(completions[0].immediate, 11);
    assert_int_equal(completions[0].byte_count, 32);
    assert_int_equal(completions[1].queue_pair_number, 9);
    assert_int_equal(completions[2].kind, NIC_COMPLETION_SEND);
    assert_int_equal(completions[2].completed, 4);
    assert_int_equal(nic->device.send_outstanding, 2);
    assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH - 2);
    assert_int_equal(nic->device.base.completions, 3);
    verbs_queue_pair_destroy(queue_pair);
}

/* 60 receives wait, the array has 8 entries: one is kept for sends. */
static void test_sends_do_not_starve(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = create(nic, 5);
    struct nic_completion completions[64];
    post(queue_pair, 4, 32, 0);
    verbs_ring_doorbell(queue_pair);
    for (uint64_t i = 0; i < 60; i++) {
        fake_add(&fake.receive, 5, i, IBV_WC_SUCCESS);
    }
    fake_add(&fake.send, 5, 3, IBV_WC_SUCCESS);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 8), 8);
    assert_int_equal(completions[6].kind, NIC_COMPLETION_RECEIVE);
    assert_int_equal(completions[7].kind, NIC_COMPLETION_SEND);
    /* What sends do not need goes to receives: fewer than asked for means no more. */
    post(queue_pair, 1, 32, 0);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 16), 16);
    assert_int_equal(completions[15].immediate, 22);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 64), 37);
    verbs_queue_pair_destroy(queue_pair);
}

/* The counters are 32 bits wide and go round. */
static void test_counter_wraps(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = create(nic, 5);
    struct nic_completion completions[4];
    queue_pair->posted = queue_pair->completed = 0xfffffffdu;
    post(queue_pair, 6, 32, 0);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(queue_pair->posted, 3);
    assert_int_equal(nic_send_room(queue_pair), 10);
    fake_add(&fake.send, 5, 0, IBV_WC_SUCCESS);
    assert_int_equal(verbs_poll(&nic->device.base, completions, 4), 1);
    assert_int_equal(completions[0].completed, 1);
    assert_int_equal(nic_send_room(queue_pair), 14);
    verbs_queue_pair_destroy(queue_pair);
}

static void test_errors(void **state)
{
    static const struct {
        enum ibv_wc_status status;
        enum nic_error error;
    } cases[] = {
        {IBV_WC_WR_FLUSH_ERR, NIC_ERROR_FLUSHED},
        {IBV_WC_RETRY_EXC_ERR, NIC_ERROR_RETRY},
        {IBV_WC_RNR_RETRY_EXC_ERR, NIC_ERROR_RNR},
        {IBV_WC_REM_ACCESS_ERR, NIC_ERROR_REMOTE_ACCESS},
        {IBV_WC_REM_INV_REQ_ERR, NIC_ERROR_REMOTE_ACCESS},
        {IBV_WC_LOC_PROT_ERR, NIC_ERROR_LOCAL},
        {IBV_WC_REM_OP_ERR, NIC_ERROR_OTHER},
    };
    struct verbs_nic *nic = *state;
    struct nic_completion completion;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nic_queue_pair *queue_pair = create(nic, 5);
        post(queue_pair, 1, 32, 0);
        verbs_ring_doorbell(queue_pair);
        fake_add(&fake.send, 5, 0, cases[i].status);
        assert_int_equal(verbs_poll(&nic->device.base, &completion, 1), 1);
        assert_int_equal(completion.kind, NIC_COMPLETION_ERROR);
        assert_int_equal(completion.status, cases[i].error);
        assert_int_equal(completion.completed, 1);
        assert_true(queue_pair->failed);
        verbs_queue_pair_destroy(queue_pair);
    }
}

/* A receive that failed, or that a peer's SEND took, kills its queue pair and costs a receive. */
static void test_bad_receives(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pair = create(nic, 5);
    struct nic_completion completion;
    fake_add(&fake.receive, 5, 0, IBV_WC_SUCCESS);
    fake.receive.entries[0].opcode = IBV_WC_RECV;
    assert_int_equal(verbs_poll(&nic->device.base, &completion, 1), 1);
    assert_int_equal(completion.kind, NIC_COMPLETION_ERROR);
    assert_int_equal(completion.status, NIC_ERROR_OTHER);
    assert_int_equal(device_qp(queue_pair)->state, IBV_QPS_ERR);
    fake_add(&fake.receive, 5, 0, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(verbs_poll(&nic->device.base, &completion, 1), 1);
    assert_int_equal(completion.status, NIC_ERROR_LOCAL);
    assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH - 2);
    verbs_queue_pair_destroy(queue_pair);
}

/* ---- Failing and destroying ------------------------------------------------------------------ */

/* What was posted but not rung reaches the device, so that it is flushed like the rest. */
static void test_fail_rings(void **state)
{
    struct nic_queue_pair *queue_pair = create(*state, 5);
    post(queue_pair, 2, 32, 0);
    verbs_queue_pair_fail(queue_pair);
    assert_int_equal(fake.post_count, 2);
    post(queue_pair, 2, 32, 0);
    verbs_ring_doorbell(queue_pair);
    assert_int_equal(fake.post_count, 2);
    assert_int_equal(queue_pair->posted, 2);
    verbs_queue_pair_destroy(queue_pair);
}

static void late_entries(struct ibv_qp *qp)
{
    fake_add(&fake.receive, qp->qp_num, 98, IBV_WC_SUCCESS);
    fake_add(&fake.receive, 7, 5, IBV_WC_SUCCESS);
    fake_add(&fake.send, qp->qp_num, 1, IBV_WC_WR_FLUSH_ERR);
}

/* The number is used again at once, by a queue pair of which nothing must be seen; those of others
 * arrive whole and in order. */
static void test_destroy(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *doomed = create(nic, 5);
    struct nic_queue_pair *other = create(nic, 7);
    struct nic_completion completions[32];
    post(doomed, 2, 32, NIC_POST_SIGNALED);
    verbs_ring_doorbell(doomed);
    post(other, 2, 32, NIC_POST_SIGNALED);
    verbs_ring_doorbell(other);
    for (uint64_t i = 0; i < 5; i++) {
        fake_add(&fake.receive, 5, 50 + i, IBV_WC_SUCCESS);
        fake_add(&fake.receive, 7, i, IBV_WC_SUCCESS);
    }
    fake_add(&fake.send, 7, 0, IBV_WC_SUCCESS);
    fake_add(&fake.send, 5, 0, IBV_WC_SUCCESS);
    fake_add(&fake.send, 7, 1, IBV_WC_SUCCESS);
    fake.at_destroy = late_entries;
    verbs_queue_pair_destroy(doomed);
    fake.at_destroy = NULL;
    struct nic_queue_pair *again = create(nic, 5);
    fake_add(&fake.receive, 7, 6, IBV_WC_SUCCESS);

    assert_int_equal(nic->device.base.receives_posted,
                     FAKE_DEPTH - 6); /* 5 of its own and a late one */
    uint32_t count = 0, receives = 0, sends = 0;
    while ((count = verbs_poll(&nic->device.base, completions, 4)) != 0) {
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(completions[i].queue_pair_number, 7);
            if (completions[i].kind == NIC_COMPLETION_RECEIVE) {
                assert_int_equal(completions[i].immediate, receives++);
            } else {
                assert_int_equal(completions[i].completed, ++sends);
            }
        }
    }
    assert_int_equal(receives, 7);
    assert_int_equal(sends, 2);
    assert_int_equal(again->completed, 0);
    assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH - 13);
    verbs_queue_pair_destroy(again);
    verbs_queue_pair_destroy(other);
}

/* Every one of many is destroyed without a poll in between; the stash fills and is searched itself.
 */
static void test_destroy_many(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_queue_pair *queue_pairs[8];
    struct nic_completion completions[64];
    for (uint32_t i = 0; i < 8; i++) {
        queue_pairs[i] = create(nic, 20 + i);
    }
    for (uint64_t i = 0; i < 56; i++) {
        fake_add(&fake.receive, 20 + (uint32_t)(i % 8), i, IBV_WC_SUCCESS);
    }
    for (uint32_t i = 0; i < 7; i++) {
        verbs_queue_pair_destroy(queue_pairs[i]);
        assert_int_equal(nic->receive.stash_count, 56 - 7 * (i + 1));
        assert_int_equal(nic->device.base.receives_posted, FAKE_DEPTH - 7 * (i + 1));
    }
    assert_int_equal(verbs_poll(&nic->device.base, completions, 64), 7); /* of the last one */
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(completions[i].immediate, 8 * i + 7);
    }
    verbs_queue_pair_destroy(queue_pairs[7]);
}

/* A stash emptied in part has its room back. */
static void test_stash_room(void **state)
{
    struct verbs_nic *nic = *state;
    struct nic_completion completions[64];
    for (uint32_t round = 0; round < 10; round++) {
        for (uint64_t i = 0; i < 30; i++) {
            fake_add(&fake.receive, 7, i, IBV_WC_SUCCESS);
        }
        verbs_queue_pair_destroy(create(nic, 5));
        assert_int_equal(verbs_poll(&nic->device.base, completions, 20), 20);
        verbs_queue_pair_destroy(create(nic, 5));
        fake_add(&fake.receive, 7, 30, IBV_WC_SUCCESS); /* behind the ten that are stashed */
        assert_int_equal(verbs_poll(&nic->device.base, completions, 20), 11);
        assert_int_equal(completions[9].immediate, 29);
        assert_int_equal(completions[10].immediate, 30);
        verbs_refill(&nic->device.base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_chain, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_inline, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_fences, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_plain_write, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_refused_post, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_refill, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_order, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_sends_do_not_starve, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_counter_wraps, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_errors, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_receives, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_fail_rings, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_destroy_many, fake_set_up, fake_tear_down),
        cmocka_unit_test_setup_teardown(test_stash_room, fake_set_up, fake_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
