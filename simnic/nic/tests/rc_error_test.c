/* rc_error_test.c: what goes wrong on a reliable connection, and how each end is told: receivers
 * that are not ready, peers that are silent, accesses that are refused, memory that is gone. */
#include <sys/mman.h>

#include "simnic/nic/tests/expect.h"

#define MS 1000000ull
#define TICK (1ull << WHEEL_TICK_BITS) /* ns by which a timer may be late */

/* ---- receiver not ready ---- */

static void test_rnr_then_ready(void **state)
{
    struct pair *p = *state;
    uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, 3000);
    expect_none(p->cq);
    assert_int_equal(p->a->qp->statistics->rnr_naks, 1);
    rig_pass(p->rig, MS); /* timer 12 stands for 0.64 ms */
    expect_none(p->cq);
    assert_int_equal(p->a->qp->statistics->rnr_naks, 2);
    uint16_t taken = rig_receive(p->b, &p->there, 0, 3000);
    expect_none(p->cq); /* it is waiting */
    rig_pass(p->rig, MS);
    expect_sent(p->cq, p->a, index);
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 3000);
    assert_memory_equal(p->there.bytes, p->near.bytes, 3000);
    assert_int_equal(p->a->qp->statistics->timeouts, 0);
}

static void test_rnr_timers(void **state)
{
    static const struct {
        uint8_t timer;
        uint64_t us;
    } cases[] = {{1, 10}, {2, 20}, {7, 120}, {12, 640}, {20, 10240}, {31, 491520}, {0, 655360}};
    (void)state;
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair *p = pair_new(NULL);
        p->b->qp->attributes.min_rnr_timer = cases[i].timer;
        rig_connect(p->a, p->b);
        rig_send_message(p->a, SIGNALLED, &p->near, 0, 1);
        rig_run(p->rig);
        rig_pass(p->rig, cases[i].us * 1000 - 1);
        assert_int_equal(p->a->qp->statistics->rnr_naks, 1);
        rig_pass(p->rig, TICK);
        assert_int_equal(p->a->qp->statistics->rnr_naks, 2);
        rig_delete(p->rig);
    }
}

/* As many retries as were asked for, then the error; what was behind it is flushed. */
static void test_rnr_exceeded(void **state)
{
    (void)state;
    for (uint8_t retries = 0; retries < 7; retries += 3) {
        struct pair *p = pair_new(NULL);
        p->a->qp->attributes.rnr_retry_count = retries;
        rig_connect(p->a, p->b);
        uint16_t first = rig_send_message(p->a, 0, &p->near, 0, 10);
        uint16_t second = rig_send_message(p->a, 0, &p->near, 0, 10);
        rig_pass(p->rig, retries * 640000ull - (retries ? 1000 : 0));
        if (retries) {
            expect_none(p->cq);
        }
        rig_pass(p->rig, 2000 + retries * TICK);
        expect_send_error(p->cq, p->a, first, RNR_RETRY_EXC_ERR);
        expect_send_error(p->cq, p->a, second, WR_FLUSH_ERR);
        expect_none(p->cq);
        assert_int_equal(p->a->qp->statistics->rnr_naks, retries + 1);
        assert_int_equal(p->a->qp->state, STATE_ERR);
        assert_int_equal(p->b->qp->state, STATE_RTS); /* nobody tells it */
        rig_delete(p->rig);
    }
}

/* A message that got through gives back the retries. */
static void test_rnr_retries_come_back(void **state)
{
    struct pair *p = *state;
    p->a->qp->attributes.rnr_retry_count = 2;
    rig_connect(p->a, p->b);
    for (uint32_t i = 0; i < 5; i++) {
        uint16_t index = rig_send_message(p->a, SIGNALLED, &p->near, 0, 10);
        rig_pass(p->rig, MS);
        expect_none(p->cq);
        rig_receive(p->b, &p->there, 0, 10);
        rig_pass(p->rig, MS);
        expect_sent(p->cq, p->a, index);
    }
}

static void test_rnr_of_write_immediate(void **state)
{
    struct pair *p = *state;
    uint16_t index =
        rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALLED, &p->near, 5000, &p->there);
    expect_none(p->cq);
    uint16_t taken = rig_receive(p->b, &p->there, 0, 0);
    rig_pass(p->rig, MS);
    expect_sent(p->cq, p->a, index);
    expect_received(p->far, p->b, MLX5_CQE_RESP_WR_IMM, taken, 5000);
    assert_memory_equal(p->there.bytes, p->near.bytes, 5000);
}

/* ---- silence ---- */

static void test_retries_exceeded(void **state)
{
    (void)state;
    for (uint8_t retries = 0; retries < 8; retries += 3) {
        struct pair *p = pair_new(NULL);
        p->a->qp->attributes.retry_count = retries;
        rig_connect(p->a, p->b);
        qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET); /* hears nothing */
        uint64_t timeout = 4096ull << 14;
        uint16_t first = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 8, &p->there);
        uint16_t second = rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, 0, &p->near, 8, &p->there);
        rig_pass(p->rig, (retries + 1) * timeout - 1);
        expect_none(p->cq);
        rig_pass(p->rig, 4 * (retries + 1) * timeout);
        expect_send_error(p->cq, p->a, first, TRANSPORT_RETRY_EXC_ERR);
        expect_send_error(p->cq, p->a, second, WR_FLUSH_ERR);
        expect_none(p->cq);
        assert_int_equal(p->a->qp->statistics->timeouts, retries + 1);
        rig_delete(p->rig);
    }
}

/* A destination that never was, on a slot that nobody has. */
static void test_nobody_there(void **state)
{
    struct pair *p = *state;
    p->a->qp->attributes.destination_qpn = 63u << QPN_SLOT_SHIFT | 77;
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 8, &p->there);
    expect_none(p->cq);
    rig_pass(p->rig, 10000 * MS);
    expect_send_error(p->cq, p->a, index, TRANSPORT_RETRY_EXC_ERR);
}

/* Timeout 0 waits for ever. */
static void test_no_timeout(void **state)
{
    struct pair *p = *state;
    p->a->qp->attributes.timeout = 0;
    rig_connect(p->a, p->b);
    qp_set_state(&p->rig->nic, p->b->qp, STATE_RESET);
    rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 8, &p->there);
    rig_run(p->rig);
    assert_true(nic_deadline_ns(&p->rig->nic) > p->rig->now_ns + 1000000 * MS);
    p->rig->now_ns += 1000000 * MS;
    expect_none(p->cq);
    assert_int_equal(p->a->qp->state, STATE_RTS);
}

/* The wrong rail is silence too. */
static void test_other_rail(void **state)
{
    struct pair *p = *state;
    p->a->qp->attributes.retry_count = 1;
    rig_connect(p->a, p->b);
    p->a->qp->destination_rail = 1;
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 8, &p->there);
    rig_pass(p->rig, 1000 * MS);
    expect_send_error(p->cq, p->a, index, TRANSPORT_RETRY_EXC_ERR);
    assert_int_equal(p->there.bytes[0], 0);
}

/* ---- refusals ---- */

enum refusal {
    REFUSE_KEY,
    REFUSE_VARIANT,
    REFUSE_BEFORE,
    REFUSE_BEHIND,
    REFUSE_ACCESS,
    REFUSE_DOMAIN,
    REFUSE_QP_ACCESS,
    REFUSE_DESTROYED,
    REFUSE_COUNT
};

static void spoil_remote(struct pair *p, enum refusal why, uint8_t opcode,
                         struct rig_memory *remote)
{
    bool read = opcode == MLX5_OPCODE_RDMA_READ;
    bool atomic = opcode == MLX5_OPCODE_ATOMIC_FA;
    uint32_t needed = read     ? ACCESS_REMOTE_READ
                      : atomic ? ACCESS_REMOTE_ATOMIC
                               : ACCESS_REMOTE_WRITE;
    struct rig_memory small = rig_memory(p->rig, 64);
    *remote = small;
    if (why == REFUSE_KEY) {
        remote->key += 7 << 8;
    }
    if (why == REFUSE_VARIANT) {
        remote->key++;
    }
    if (why == REFUSE_BEFORE) {
        remote->bytes -= 8;
    }
    if (why == REFUSE_BEHIND) {
        remote->bytes += 64;
    }
    if (why == REFUSE_ACCESS) {
        *remote = rig_memory_with(p->rig, 64, RIG_ACCESS_ALL & ~needed, RIG_DOMAIN);
    }
    if (why == REFUSE_DOMAIN) {
        *remote = rig_memory_with(p->rig, 64, RIG_ACCESS_ALL, RIG_DOMAIN + 1);
    }
    if (why == REFUSE_QP_ACCESS) {
        p->b->qp->attributes.access &= ~needed;
    }
    if (why == REFUSE_DESTROYED) {
        key_destroy(&p->rig->nic, key_find(&p->rig->nic, small.key));
    }
}

static void refused(uint8_t opcode, enum refusal why)
{
    struct pair *p = pair_new(NULL);
    struct rig_memory remote;
    struct rig_wqe wqe;
    rig_connect(p->a, p->b);
    uint16_t waiting = rig_receive(p->b, &p->there, 0, 10);
    uint16_t good = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    if (why == REFUSE_QP_ACCESS) {
        rig_run(p->rig); /* the others come at once with the one before */
    }
    spoil_remote(p, why, opcode, &remote);
    rig_wqe_start(&wqe, opcode, 0);
    rig_wqe_remote(&wqe, (uintptr_t)remote.bytes, remote.key);
    if (opcode == MLX5_OPCODE_ATOMIC_FA) {
        rig_wqe_atomic(&wqe, 1, 1);
    }
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
    uint16_t bad = rig_send(p->a, &wqe);
    uint16_t after = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    expect_sent(p->cq, p->a, good);
    expect_send_error(p->cq, p->a, bad, REMOTE_ACCESS_ERR);
    expect_send_error(p->cq, p->a, after, WR_FLUSH_ERR);
    expect_receive_error(p->far, p->b, waiting, WR_FLUSH_ERR);
    expect_none(p->cq);
    expect_none(p->far);
    assert_int_equal(rig_events(p->rig, EVENT_QP_ACCESS_ERR), 1);
    assert_int_equal(p->b->qp->state, STATE_ERR);
    rig_delete(p->rig);
}

static void test_remote_access(void **state)
{
    static const uint8_t opcodes[] = {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
                                      MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA};
    (void)state;
    for (uint32_t i = 0; i < sizeof(opcodes); i++) {
        for (enum refusal why = 0; why < REFUSE_COUNT; why++) {
            refused(opcodes[i], why);
        }
    }
}

/* One byte more than is registered: nothing of it is written. */
static void test_partly_outside(void **state)
{
    struct pair *p = *state;
    struct rig_memory remote = rig_memory(p->rig, 5000);
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 5001, &remote);
    expect_send_error(p->cq, p->a, index, REMOTE_ACCESS_ERR);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(remote.bytes[i], 0);
    }
}

static void test_misaligned_atomic(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_ATOMIC_FA, 0);
    rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes + 4, p->there.key);
    rig_wqe_atomic(&wqe, 1, 0);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
    expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), REMOTE_INVAL_REQ_ERR);
    assert_int_equal(rig_events(p->rig, EVENT_QP_REQ_ERR), 1);
}

static void test_too_long_for_receive(void **state)
{
    struct pair *p = *state;
    struct mlx5_wqe_data_seg list[2] = {rig_segment(&p->there, 0, 1000),
                                        rig_segment(&p->there, 2000, 1000)};
    uint16_t taken = rig_receive_list(p->b, list, 2);
    uint16_t other = rig_receive(p->b, &p->there, 0, 5000);
    uint16_t index = rig_send_message(p->a, 0, &p->near, 0, 2001);
    expect_send_error(p->cq, p->a, index, REMOTE_INVAL_REQ_ERR);
    expect_receive_error(p->far, p->b, taken, LOCAL_LENGTH_ERR);
    expect_receive_error(p->far, p->b, other, WR_FLUSH_ERR);
    expect_none(p->far);
}

static void test_bad_receive_key(void **state)
{
    struct pair *p = *state;
    struct rig_memory readable =
        rig_memory_with(p->rig, 100, ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE, RIG_DOMAIN);
    uint16_t taken = rig_receive(p->b, &readable, 0, 100);
    uint16_t index = rig_send_message(p->a, 0, &p->near, 0, 50);
    expect_receive_error(p->far, p->b, taken, LOCAL_PROT_ERR);
    expect_send_error(p->cq, p->a, index, REMOTE_OP_ERR);
}

/* Wrong local keys: the request fails at home, those before it do not. */
static void test_local_protection(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct pair *p = pair_new(NULL);
        rig_connect(p->a, p->b);
        struct rig_memory bad =
            rig_memory_with(p->rig, 100, i == 0 ? ACCESS_REMOTE_READ : RIG_ACCESS_ALL,
                            i == 1 ? RIG_DOMAIN + 1 : RIG_DOMAIN);
        bad.key += i == 2 ? 1 : 0;
        bad.bytes += i == 3 ? 93 : 0;
        uint8_t opcode = i == 0 ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE;
        uint16_t good = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
        uint16_t wrong = rig_rdma(p->a, opcode, 0, &bad, 8, &p->there);
        uint16_t after = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 8, &p->there);
        expect_sent(p->cq, p->a, good);
        expect_send_error(p->cq, p->a, wrong, LOCAL_PROT_ERR);
        expect_send_error(p->cq, p->a, after, WR_FLUSH_ERR);
        expect_none(p->cq);
        rig_delete(p->rig);
    }
}

/* A READ that was good is answered before what comes after it is refused (IBTA 9.7.5.1.3). */
static void test_read_before_refusal(void **state)
{
    struct pair *p = *state;
    struct rig_memory wrong = p->there;
    wrong.key++;
    struct rig_wqe wqe;
    rig_fill(p->there.bytes, 8, 4);
    memset(p->near.bytes, 0, 8);
    rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_READ, SIGNALLED);
    rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
    uint16_t read = rig_post(p->a, &wqe);
    uint16_t write = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 8, &wrong);
    expect_sent(p->cq, p->a, read);
    expect_send_error(p->cq, p->a, write, REMOTE_ACCESS_ERR);
    assert_memory_equal(p->near.bytes, p->there.bytes, 8);
}

/* ---- memory that is gone ---- */

static void test_local_memory_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory mapped = rig_mapped(p->rig, 8192);
    rig_unmap(&mapped);
    uint16_t write = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &mapped, 3000, &p->there);
    expect_send_error(p->cq, p->a, write, LOCAL_PROT_ERR);
    expect_none(p->cq);
}

/* A message that fails in the middle on an unreliable connection leaves nothing behind for the next
 * one, when the program has taken the QP out of SQE. */
static void test_unreliable_goes_on_after_memory_gone(void **state)
{
    (void)state;
    const struct rig_qp_options unreliable = {.type = TYPE_UC};
    struct pair *p = pair_new(&unreliable);
    rig_connect(p->a, p->b);
    struct rig_memory mapped = rig_mapped(p->rig, 16384);
    const struct rig_memory end = {.bytes = mapped.bytes + 12288, .size = 4096};
    rig_unmap(&end);
    uint16_t write = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &mapped, 16384, &p->there);
    expect_send_error(p->cq, p->a, write, LOCAL_PROT_ERR);
    assert_int_equal(p->a->qp->state, STATE_SQE);
    qp_set_state(&p->rig->nic, p->a->qp, STATE_RTS);
    write = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 16384, &p->there);
    expect_sent(p->cq, p->a, write);
    rig_run(p->rig);
    assert_memory_equal(p->there.bytes, p->near.bytes, 16384);
    rig_delete(p->rig);
}

static void test_read_into_memory_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory mapped = rig_mapped(p->rig, 8192);
    rig_unmap(&mapped);
    uint16_t read = rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, 0, &mapped, 3000, &p->there);
    expect_send_error(p->cq, p->a, read, LOCAL_PROT_ERR);
    expect_none(p->cq);
}

static void test_remote_memory_gone(void **state)
{
    static const uint8_t opcodes[] = {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ,
                                      MLX5_OPCODE_ATOMIC_CS, MLX5_OPCODE_ATOMIC_FA};
    (void)state;
    for (uint32_t i = 0; i < sizeof(opcodes); i++) {
        struct pair *p = pair_new(NULL);
        struct rig_wqe wqe;
        rig_connect(p->a, p->b);
        struct rig_memory mapped = rig_mapped(p->rig, 8192);
        rig_unmap(&mapped);
        rig_wqe_start(&wqe, opcodes[i], 0);
        rig_wqe_remote(&wqe, (uintptr_t)mapped.bytes, mapped.key);
        if (i >= 2) {
            rig_wqe_atomic(&wqe, 1, 1);
        }
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, i >= 2 ? 8 : 3000, p->near.key);
        expect_send_error(p->cq, p->a, rig_send(p->a, &wqe), REMOTE_ACCESS_ERR);
        expect_none(p->cq);
        assert_int_equal(rig_events(p->rig, EVENT_QP_ACCESS_ERR), 1);
        rig_delete(p->rig);
    }
}

static void test_receive_memory_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory mapped = rig_mapped(p->rig, 8192);
    uint16_t taken = rig_receive(p->b, &mapped, 0, 8192);
    rig_unmap(&mapped);
    uint16_t index = rig_send_message(p->a, 0, &p->near, 0, 3000);
    expect_receive_error(p->far, p->b, taken, LOCAL_PROT_ERR);
    expect_send_error(p->cq, p->a, index, REMOTE_OP_ERR);
}

/* The receive queue's doorbell record is gone: no receive was taken, so none may be completed. */
static void test_record_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory mapped = rig_mapped(p->rig, 4096);
    p->b->qp->record = mapped.bytes;
    rig_unmap(&mapped);
    rig_send_message(p->a, 0, &p->near, 0, 10);
    rig_run(p->rig);
    assert_false(p->far->cq->overrun);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 0);
    assert_true(p->far->cq->producer <= 1);
}

/* ---- flushing ---- */

static void test_flush(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    uint16_t receives[5];
    for (uint32_t i = 0; i < 5; i++) {
        receives[i] = rig_receive(p->a, &p->near, 0, 10);
    }
    qp_set_state(&p->rig->nic, p->a->qp, STATE_ERR);
    rig_wqe_start(&wqe, MLX5_OPCODE_RDMA_WRITE, 0);
    rig_wqe_remote(&wqe, 0, 0);
    rig_wqe_inline(&wqe, p->near.bytes, 200); /* 4 basic blocks */
    for (uint32_t i = 0; i < 3; i++) {
        rig_post(p->a, &wqe);
    }
    rig_ring(p->a, &wqe);
    for (uint16_t i = 0; i < 3; i++) {
        expect_send_error(p->cq, p->a, (uint16_t)(4 * i), WR_FLUSH_ERR);
    }
    for (uint32_t i = 0; i < 5; i++) {
        expect_receive_error(p->cq, p->a, receives[i], WR_FLUSH_ERR);
    }
    expect_none(p->cq);
    /* What is posted later is flushed too. */
    uint16_t late = rig_send(p->a, &wqe);
    expect_send_error(p->cq, p->a, late, WR_FLUSH_ERR);
    expect_none(p->cq);
}

/* Receives posted in the error state are flushed, though no doorbell page tells of them (IBTA
 * 10.3.1.6). */
static void test_flush_late_receive(void **state)
{
    struct pair *p = *state;
    qp_set_state(&p->rig->nic, p->a->qp, STATE_ERR);
    expect_none(p->cq);
    uint16_t index = rig_receive(p->a, &p->near, 0, 10);
    rig_pass(p->rig, 100 * MS);
    expect_receive_error(p->cq, p->a, index, WR_FLUSH_ERR);
}

static void test_kill(void **state)
{
    struct pair *p = *state;
    char spec[64];
    snprintf(spec, sizeof(spec), "kill=%u", p->a->qp->number);
    uint16_t receive = rig_receive(p->a, &p->near, 0, 10);
    rig_fault(p->rig, spec);
    expect_receive_error(p->cq, p->a, receive, WR_FLUSH_ERR);
    assert_int_equal(rig_events(p->rig, EVENT_QP_FATAL), 1);
    assert_int_equal(p->b->qp->state, STATE_RTS);
}

static void test_stall(void **state)
{
    struct pair *p = *state;
    rig_fault(p->rig, "stall=5000");
    uint16_t index = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 8, &p->there);
    rig_pass(p->rig, 5 * MS - 1);
    expect_none(p->cq);
    rig_pass(p->rig, 1);
    expect_sent(p->cq, p->a, index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_rnr_then_ready),
        cmocka_unit_test(test_rnr_timers),
        cmocka_unit_test(test_rnr_exceeded),
        APART(test_rnr_retries_come_back),
        TEST(test_rnr_of_write_immediate),
        cmocka_unit_test(test_retries_exceeded),
        TEST(test_nobody_there),
        APART(test_no_timeout),
        APART(test_other_rail),
        cmocka_unit_test(test_remote_access),
        TEST(test_partly_outside),
        TEST(test_misaligned_atomic),
        TEST(test_too_long_for_receive),
        TEST(test_bad_receive_key),
        cmocka_unit_test(test_local_protection),
        TEST(test_read_before_refusal),
        TEST(test_local_memory_gone),
        cmocka_unit_test(test_unreliable_goes_on_after_memory_gone),
        TEST(test_read_into_memory_gone),
        cmocka_unit_test(test_remote_memory_gone),
        TEST(test_receive_memory_gone),
        TEST(test_record_gone),
        TEST(test_flush),
        TEST(test_flush_late_receive),
        TEST(test_kill),
        TEST(test_stall),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
