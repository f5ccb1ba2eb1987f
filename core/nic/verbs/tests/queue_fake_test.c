/* queue_fake_test.c: queues with user data, and the calls into libibverbs are the test's. Runs without RDMA.
 *
 * A library that refuses ops in the middle of a chain, which no device does on demand: each op that was
 * accepted completes once all the same, also those that the device has taken before, and whose completions
 * come later than the refusal. And when the device is told of a fence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "nic/verbs/verbs.h"

#define NUMBER 5u
#define SENDS 16u
#define OPS 8u
#define TAKEN 5u /* of these; the device refuses the others */

static struct {
    struct ibv_context context;
    struct ibv_qp qp;
    struct ibv_cq cq;
    struct ibv_wc entries[OPS];
    uint32_t count;
    struct ibv_wc stash[64];
    struct verbs_nic nic;
    struct verbs_queue_source source;
    struct verbs_queue queue;
    struct ibv_send_wr chain[VERBS_QUEUE_CHAIN];
    struct ibv_sge pieces[VERBS_QUEUE_CHAIN];
    uint64_t results[SENDS]; /* of atomics */
    bool takes_all;
    unsigned flags; /* of the op that was taken last */
} rig;

static int fake_poll(struct ibv_cq *cq, int capacity, struct ibv_wc *entries)
{
    uint32_t count = rig.count < (uint32_t)capacity ? rig.count : (uint32_t)capacity;
    (void)cq;
    memcpy(entries, rig.entries, count * sizeof(*entries));
    rig.count -= count;
    memmove(rig.entries, rig.entries + count, rig.count * sizeof(*entries));
    return (int)count;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
    (void)qp;
    if (rig.takes_all) {
        for (; list; list = list->next) {
            rig.flags = list->send_flags;
        }
        return 0;
    }
    for (uint32_t i = 0; i < TAKEN; i++) {
        list = list->next;
    }
    *bad = list;
    return ENOMEM;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    assert_int_equal(mask, IBV_QP_STATE);
    qp->state = attributes->qp_state;
    return 0;
}

static void make(enum nic_queue_table table)
{
    struct nic *nic = &rig.nic.device.base;
    struct nic_queue_options options = {
        .kind = NIC_QUEUE_RC, .table = table, .sends = SENDS, .send_pieces = 1};
    memset(&rig, 0, sizeof(rig));
    rig.context.ops.poll_cq = fake_poll;
    rig.context.ops.post_send = fake_post_send;
    rig.qp.context = rig.cq.context = &rig.context;
    rig.source.source = (struct verbs_source){.cq = &rig.cq, .depth = 64, .stash = rig.stash};
    rig.nic.device.queue_sources[table] = &rig.source.device;
    nic->operations = &verbs_operations;
    nic_queue_init(&rig.queue.device.base, nic, &options);
    assert_true(nic_queue_make_tables(&rig.queue.device.base, SENDS, 0));
    rig.queue.device.pair.base.number = NUMBER;
    rig.queue.device.pair.qp = &rig.qp;
    rig.queue.device.base.pair = &rig.queue.device.pair.base;
    rig.queue.device.send_source = &rig.source.device;
    rig.queue.chain = rig.chain;
    for (uint32_t i = 0; i < VERBS_QUEUE_CHAIN; i++) {
        rig.chain[i].sg_list = &rig.pieces[i];
        rig.chain[i].next = i + 1 < VERBS_QUEUE_CHAIN ? &rig.chain[i + 1] : NULL;
    }
    table_init(&rig.nic.device.queues_by_number);
    assert_true(table_set(&rig.nic.device.queues_by_number, NUMBER, &rig.queue.device.base));
}

/* Every second op asks. The completions of those that were taken come after the first poll. */
static void run(enum nic_queue_table table, uint32_t capacity)
{
    struct nic_work works[OPS];
    uint32_t keys[OPS] = {0}, seen[OPS] = {0}, errors;
    crpc_completion done[OPS];
    make(table);
    for (uint32_t i = 0; i < OPS; i++) {
        works[i] = (struct nic_work){
            .opcode = NIC_WRITE, .flags = i % 2 ? NIC_WORK_SIGNAL : 0, .user_data = i};
    }
    assert_int_equal(verbs_queue_post(&rig.queue.device.base, works, keys, NULL, OPS), OPS);
    verbs_queue_ring(&rig.queue.device.base);
    assert_true(rig.queue.device.base.failed);
    for (uint32_t round = 0; round < 3 * OPS; round++) {
        uint32_t count = verbs_queue_poll(&rig.nic.device.base, done, capacity, &errors);
        assert_int_equal(errors, count);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(done[i].user_data < OPS && done[i].status == -NIC_ERROR_FLUSHED);
            seen[done[i].user_data]++;
        }
        if (round == OPS) { /* those of what it had taken and flushed */
            for (uint32_t i = 0; i < TAKEN; i++) {
                rig.entries[rig.count++] =
                    (struct ibv_wc){.qp_num = NUMBER, .wr_id = i, .status = IBV_WC_WR_FLUSH_ERR};
            }
        }
    }
    for (uint32_t i = 0; i < OPS; i++) {
        /* Of a SPARSE queue nobody knows whether those that did not ask were done. */
        bool must = table == NIC_TABLE_DENSE || i % 2 || i >= TAKEN;
        assert_int_equal(seen[i], must);
    }
    nic_queue_release(&rig.queue.device.base);
    table_free(&rig.nic.device.queues_by_number);
}

static void test_dense(void **state)
{
    (void)state;
    run(NIC_TABLE_DENSE, 1);
    run(NIC_TABLE_DENSE, OPS);
}

static void test_sparse(void **state)
{
    (void)state;
    run(NIC_TABLE_SPARSE, 1);
    run(NIC_TABLE_SPARSE, OPS);
}

/* Whether the device is told of a fence with this op, which asks for one. */
static bool fenced(uint8_t opcode)
{
    struct nic_work work = {.opcode = opcode, .flags = NIC_WORK_FENCE | NIC_WORK_SIGNAL};
    const uint32_t key = 0;
    assert_int_equal(verbs_queue_post(&rig.queue.device.base, &work, &key, NULL, 1), 1);
    verbs_queue_ring(&rig.queue.device.base);
    return rig.flags & IBV_SEND_FENCE;
}

/* All up to the op at this position has completed. */
static void complete(uint64_t position)
{
    crpc_completion done[OPS];
    uint32_t errors;
    rig.entries[rig.count++] = (struct ibv_wc){.qp_num = NUMBER, .wr_id = position};
    verbs_queue_poll(&rig.nic.device.base, done, OPS, &errors);
    assert_int_equal(errors, 0);
}

static void test_fences(void **state)
{
    (void)state;
    make(NIC_TABLE_DENSE);
    rig.queue.device.base.results = rig.results;
    rig.takes_all = true;
    assert_true(fenced(NIC_WRITE)); /* 0: nothing is before it, but that is the device's affair */
    rig.nic.vendor.soft_roce = true;
    assert_false(fenced(NIC_WRITE));    /* 1 */
    assert_false(fenced(NIC_READ));     /* 2: no READ is before it */
    assert_true(fenced(NIC_WRITE));     /* 3 */
    assert_true(fenced(NIC_FETCH_ADD)); /* 4 */
    complete(3);
    assert_true(fenced(NIC_WRITE)); /* 5: of the FETCH_ADD nobody has heard */
    complete(4);
    assert_false(fenced(NIC_COMPARE_SWAP)); /* 6 */
    complete(6);
    assert_false(fenced(NIC_READ)); /* 7 */
    rig.queue.device.base.results = NULL;
    nic_queue_release(&rig.queue.device.base);
    table_free(&rig.nic.device.queues_by_number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_fences),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
