/* rc_test.c: reliable connections on a fabric that loses nothing: every operation, messages of many
 * packets, what completes and when, and what CQEs hold. rc_error_test.c and rc_loss_test.c have the
 * rest. */
#include "simnic/nic/tests/expect.h"

static void test_send(void **state)
{
    struct pair *p = *state;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 100);
    uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 3, 77);
    struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, index);
    assert_int_equal(be32toh(cqe.byte_cnt), 77);
    assert_int_equal(be64toh(cqe.timestamp), p->rig->now_ns);
    cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 77);
    assert_int_equal(be32toh(cqe.flags_rqpn) & 0xffffff, p->a->qp->number);
    assert_memory_equal(p->there.bytes, p->near.bytes + 3, 77);
    assert_int_equal(p->there.bytes[77], 0);
    expect_none(p->cq);
    expect_none(p->far);
}

static void test_immediate(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 100);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND_IMM, SIGNALLED);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 5, p->near.key);
    wqe.immediate = htobe32(0x01020304);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND_IMM, taken, 5);
    assert_int_equal(be32toh(cqe.imm_inval_pkey), 0x01020304);

    taken = rig_receive(p->b, &p->near, 0, 0);
    rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes + 1000, p->there.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 3000, p->near.key);
    wqe.immediate = htobe32(0xa1b2c3d4);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_WR_IMM, taken, 3000);
    assert_int_equal(be32toh(cqe.imm_inval_pkey), 0xa1b2c3d4);
    assert_memory_equal(p->there.bytes + 1000, p->near.bytes, 3000);
}

static void test_write_and_read(void **state)
{
    struct pair *p = *state;
    uint16_t write = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 5000, &p->there);
    struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, write);
    assert_int_equal(be32toh(cqe.byte_cnt), 5000);
    assert_memory_equal(p->there.bytes, p->near.bytes, 5000);
    assert_int_equal(p->there.bytes[5000], 0);

    struct rig_memory back = rig_memory(p->rig, 8192);
    uint16_t read = rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &back, 4999, &p->there);
    cqe = expect_sent(p->cq, p->a, read);
    assert_int_equal(be32toh(cqe.byte_cnt), 4999);
    assert_int_equal(be32toh(cqe.sop_drop_qpn) >> 24, MLX5_OPCODE_RDMA_READ);
    assert_memory_equal(back.bytes, p->near.bytes, 4999);
    assert_int_equal(back.bytes[4999], 0);
    expect_none(p->far);
}

static void test_read_scatter_list(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_fill(p->there.bytes, 10000, 9);
    memset(p->near.bytes, 0, 20000);
    rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_READ, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 100, p->near.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 1000, 3000, p->near.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 5000, 1, p->near.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 6000, 1995, p->near.key);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    assert_memory_equal(p->near.bytes, p->there.bytes, 100);
    assert_memory_equal(p->near.bytes + 1000, p->there.bytes + 100, 3000);
    assert_int_equal(p->near.bytes[5000], p->there.bytes[3100]);
    assert_memory_equal(p->near.bytes + 6000, p->there.bytes + 3101, 1995);
    assert_int_equal(p->near.bytes[100] | p->near.bytes[4000] | p->near.bytes[5001], 0);
}

static uint64_t atomic(struct pair *p, uint8_t opcode, uint64_t swap_or_add, uint64_t compare)
{
    struct rig_wqe wqe;
    uint64_t old;
    rig_wqe_start(&wqe, opcode, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes + 8, p->there.key);
    rig_wqe_atomic(&wqe, swap_or_add, compare);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 16, 8, p->near.key);
    struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    assert_int_equal(be32toh(cqe.byte_cnt), 8);
    memcpy(&old, p->near.bytes + 16, sizeof(old));
    return old;
}

static void test_atomics(void **state)
{
    struct pair *p = *state;
    uint64_t *word = (uint64_t *)(void *)(p->there.bytes + 8);
    *word = UINT64_MAX - 1;
    assert_true(atomic(p, MLX5_OPCODE_ATOMIC_FA, 5, 0) == UINT64_MAX - 1);
    assert_true(*word == 3);
    assert_true(atomic(p, MLX5_OPCODE_ATOMIC_CS, 0x1122334455667788, 3) == 3);
    assert_true(*word == 0x1122334455667788);
    assert_true(atomic(p, MLX5_OPCODE_ATOMIC_CS, 1, 3) == 0x1122334455667788);
    assert_true(*word == 0x1122334455667788);
    assert_int_equal(p->there.bytes[7] | p->there.bytes[16], 0);
}

/* Lengths around multiples of every MTU, each way. */
static void test_mtus(void **state)
{
    (void)state;
    for (uint8_t mtu = 1; mtu <= 5; mtu++) {
        struct pair *p = pair_new(NULL);
        uint32_t bytes = 128u << mtu;
        p->a->qp->attributes.path_mtu = p->b->qp->attributes.path_mtu = mtu;
        rig_connect(p->a, p->b);
        const uint32_t sizes[] = {1,         bytes - 1, bytes,          bytes + 1,
                                  2 * bytes, 3 * bytes, 17 * bytes + 5, 300000};
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            uint64_t before = p->a->qp->statistics->packets_sent;
            memset(p->there.bytes, 0, 400000);
            uint16_t taken = rig_receive(p->b, &p->there, 0, 400000);
            expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, i, sizes[i]));
            expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, sizes[i]);
            assert_memory_equal(p->there.bytes, p->near.bytes + i, sizes[i]);
            assert_int_equal(p->there.bytes[sizes[i]], 0);
            assert_int_equal(p->a->qp->statistics->packets_sent - before,
                             (sizes[i] + bytes - 1) / bytes);
            memset(p->there.bytes, 0, 400000);
            expect_sent(
                p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->there, sizes[i], &p->near));
            assert_memory_equal(p->there.bytes, p->near.bytes, sizes[i]);
            assert_int_equal(p->there.bytes[sizes[i]], 0);
        }
        rig_delete(p->rig);
    }
}

static void test_empty_messages(void **state)
{
    struct pair *p = *state;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 10);
    expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, 0, 0));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 0);
    struct rig_memory nowhere = {
        0}; /* an empty WRITE or READ needs no valid key (IBTA 9.7.4.1.7) */
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 0, &nowhere));
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, 0, &nowhere));
    taken = rig_receive(p->b, &p->there, 0, 0);
    expect_sent(p->cq, p->a,
                rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALLED, &p->near, 0, &nowhere));
    expect_received(p->far, p->b, MLX5_CQE_RESP_WR_IMM, taken, 0);
}

/* Only signalled requests complete; the completion of one tells of those before it. */
static void test_unsignalled(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 2000; i++) {
        rig_receive(p->b, &p->there, i % 1000, 1);
        uint16_t index = rig_send_message(p->a, i % 10 == 9 ? SIGNALLED : 0, &p->near, i, 1);
        expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, (uint16_t)i, 1);
        if (i % 10 == 9) {
            expect_sent(p->cq, p->a, index);
        } else {
            expect_none(p->cq);
        }
    }
    assert_int_equal(p->a->qp->statistics->send_cqes, 200);
    assert_int_equal(p->a->qp->statistics->send_wqes, 2000);
}

static void test_signal_all(void **state)
{
    struct pair *p = *state;
    p->a->qp->signal_all = true;
    for (uint32_t i = 0; i < 10; i++) {
        expect_sent(p->cq, p->a, rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 1, &p->there));
    }
}

/* More requests at once than may be in flight, and than the queue of a ring holds: all complete, in
 * order. */
static void test_many(void **state)
{
    (void)state;
    struct rig_qp_options options = {.send_blocks = 2048, .receive_entries = 2048};
    struct pair *p = pair_new(&options);
    p->cq = rig_cq_new(p->rig, 4096, 64);
    p->a->qp->send_queue_completions = p->cq->cq;
    rig_connect(p->a, p->b);
    struct rig_wqe wqe;
    for (uint32_t i = 0; i < 1500; i++) {
        rig_wqe_start(&wqe, i % 5 == 4 ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE, SIGNALLED);
        rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes + i * 100, p->there.key);
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + i * 100, 2000, p->near.key);
        rig_post(p->a, &wqe);
    }
    rig_ring(p->a, &wqe);
    for (uint32_t i = 0; i < 1500; i++) {
        expect_sent(p->cq, p->a, (uint16_t)i);
    }
    expect_none(p->cq);
    assert_int_equal(p->a->qp->state, STATE_RTS);
    rig_delete(p->rig);
}

/* A fenced request is not sent before the READ before it has come back (IBTA 10.8.3.3). */
static void test_fence(void **state)
{
    struct pair *p = *state;
    struct rig_wqe read, send;
    rig_fill(p->there.bytes, 100, 5);
    for (uint32_t i = 0; i < 20; i++) {
        /* What the READ brings is what the fenced WRITE carries on. */
        p->there.bytes[0] = (uint8_t)(i + 1);
        rig_wqe_start(&read, MLX5_OPCODE_RDMA_READ, SIGNALLED);
        rig_wqe_remote(&read, (uintptr_t)p->there.bytes, p->there.key);
        rig_wqe_data(&read, (uintptr_t)p->near.bytes, 8, p->near.key);
        uint16_t first = rig_post(p->a, &read);
        rig_wqe_start(&send, MLX5_OPCODE_RDMA_WRITE, SIGNALLED | RIG_FENCE);
        rig_wqe_remote(&send, (uintptr_t)p->there.bytes + 64, p->there.key);
        rig_wqe_data(&send, (uintptr_t)p->near.bytes, 8, p->near.key);
        uint16_t second = rig_send(p->a, &send);
        expect_sent(p->cq, p->a, first);
        expect_sent(p->cq, p->a, second);
        assert_int_equal(p->there.bytes[64], i + 1);
    }
}

/* Never more READs on their way than was agreed on; the rest waits its turn. */
static void test_read_depth(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    p->a->qp->attributes.max_reads = 2;
    rig_connect(p->a, p->b);
    for (uint32_t i = 0; i < 10; i++) {
        rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_READ, SIGNALLED);
        rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
        rig_post(p->a, &wqe);
    }
    rig_ring(p->a, &wqe);
    requester_run(&p->rig->nic, p->a->qp);
    assert_int_equal(p->a->qp->reads_in_flight, 2);
    for (uint16_t i = 0; i < 10; i++) {
        expect_sent(p->cq, p->a, i);
    }
    assert_int_equal(p->a->qp->reads_in_flight, 0);
}

/* The 16-bit index and the 24-bit PSN both pass their ends. */
static void test_wraps(void **state)
{
    struct pair *p = *state;
    p->a->qp->attributes.send_psn = p->b->qp->attributes.receive_psn = 0xfffff0;
    rig_connect(p->a, p->b);
    for (uint32_t i = 0; i < 70000; i++) {
        struct mlx5_cqe64 cqe;
        if (i % 2) {
            rig_receive(p->b, &p->there, 0, 8);
        }
        uint16_t index =
            i % 2 ? rig_send_message(p->a, SIGNALLED, &p->near, 0, 8)
                  : rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, 8, &p->there);
        assert_int_equal(index, i & 0xffff);
        while (!rig_poll(p->cq, &cqe)) {
            nic_run(&p->rig->nic, p->rig->now_ns);
        }
        assert_int_equal(cqe.op_own >> 4, MLX5_CQE_REQ);
        assert_int_equal(be16toh(cqe.wqe_counter), index);
        if (i % 2) {
            assert_true(rig_poll(p->far, &cqe));
            assert_int_equal(be16toh(cqe.wqe_counter), (i / 2) & 0xffff);
        }
    }
    expect_none(p->cq);
    expect_none(p->far);
}

/* Both ends at once, over one QP each. */
static void test_both_ways(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 100; i++) {
        uint16_t at_b = rig_receive(p->b, &p->there, 0, 5000);
        uint16_t at_a = rig_receive(p->a, &p->near, 500000, 5000);
        uint16_t from_a = rig_send_message(p->a, SIGNALLED, &p->near, i, 3000);
        uint16_t from_b = rig_send_message(p->b, SIGNALLED, &p->near, 9 * i, 2500);
        bool seen[4] = {false};
        struct mlx5_cqe64 cqe;
        rig_run(p->rig);
        while (rig_poll(p->cq, &cqe)) {
            bool sent = cqe.op_own >> 4 == MLX5_CQE_REQ;
            assert_int_equal(be16toh(cqe.wqe_counter), sent ? from_a : at_a);
            assert_false(seen[sent]);
            seen[sent] = true;
        }
        while (rig_poll(p->far, &cqe)) {
            bool sent = cqe.op_own >> 4 == MLX5_CQE_REQ;
            assert_int_equal(be16toh(cqe.wqe_counter), sent ? from_b : at_b);
            assert_false(seen[2 + sent]);
            seen[2 + sent] = true;
        }
        assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
        assert_memory_equal(p->there.bytes, p->near.bytes + i, 3000);
        assert_memory_equal(p->near.bytes + 500000, p->near.bytes + 9 * i, 2500);
    }
}

/* SQD: what was sent completes, nothing new is sent, and the program is told once. */
static void test_drain(void **state)
{
    struct pair *p = *state;
    uint16_t first = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    requester_run(&p->rig->nic, p->a->qp);
    qp_set_state(&p->rig->nic, p->a->qp, STATE_SQD);
    uint16_t second = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    assert_int_equal(rig_events(p->rig, EVENT_SQ_DRAINED), 0);
    expect_sent(p->cq, p->a, first);
    expect_none(p->cq);
    assert_int_equal(rig_events(p->rig, EVENT_SQ_DRAINED), 1);
    qp_set_state(&p->rig->nic, p->a->qp, STATE_RTS);
    expect_sent(p->cq, p->a, second);
    assert_int_equal(rig_events(p->rig, EVENT_SQ_DRAINED), 0);
}

/* RESET and up again: the queues start anew. */
static void test_reset(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 3; i++) {
        rig_receive(p->b, &p->there, 0, 100);
        rig_receive(p->b, &p->there, 100, 100);
        uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, 100);
        assert_int_equal(index, 0);
        expect_sent(p->cq, p->a, index);
        expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, 0, 100);
        rig_send_message(p->a, SIGNALLED, &p->near, 0, 200); /* too long: both fail */
        expect_send_error(p->cq, p->a, 1, REMOTE_INVAL_REQ_ERR);
        expect_receive_error(p->far, p->b, 1, LOCAL_LENGTH_ERR);
        qp_set_state(&p->rig->nic, p->a->qp, STATE_RESET);
        qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET);
        memset(p->a->record, 0, sizeof(p->a->record));
        memset(p->b->record, 0, sizeof(p->b->record));
        p->a->sent = p->b->received = 0;
        rig_connect(p->a, p->b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_send),           TEST(test_immediate),
        TEST(test_write_and_read), TEST(test_read_scatter_list),
        TEST(test_atomics),        cmocka_unit_test(test_mtus),
        TEST(test_empty_messages), TEST(test_unsignalled),
        TEST(test_signal_all),     cmocka_unit_test(test_many),
        TEST(test_fence),          APART(test_read_depth),
        APART(test_wraps),         TEST(test_both_ways),
        TEST(test_drain),          TEST(test_reset),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
