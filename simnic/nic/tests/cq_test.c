/* cq_test.c: completion queues: both sizes of CQEs, data in CQEs, owner bits, events, overruns,
 * resizing. */
#include "simnic/nic/tests/expect.h"

/* One WRITE from a to b: one CQE in p->cq. */
static uint16_t complete_one(struct pair *p)
{
    return rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 4, &p->there);
}

/* One message from a to b: one CQE in p->far, solicited or not. */
static void receive_one(struct pair *p, uint8_t flags)
{
    rig_receive(p->b, &p->there, 0, 100);
    rig_send_message(p->a, flags, &p->near, 0, 4);
    rig_run(p->rig);
}

static void use_cq(struct pair *p, uint32_t entries, uint32_t entry_bytes)
{
    p->cq = rig_cq_new(p->rig, entries, entry_bytes);
    p->a->qp->send_queue_completions = p->a->qp->receive_queue_completions = p->cq->cq;
    p->far = rig_cq_new(p->rig, entries, entry_bytes);
    p->b->qp->send_queue_completions = p->b->qp->receive_queue_completions = p->far->cq;
}

/* Every place of small queues, over many laps: the owner bit is right in each, and nothing but the
 * place is written. */
static void test_owner_bits(void **state)
{
    struct pair *p = *state;
    static const uint32_t entries[] = {1, 2, 4, 32};
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t entry_bytes = k < 4 ? 64 : 128, count = entries[k % 4];
        use_cq(p, count, entry_bytes);
        for (uint32_t i = 0; i < 5 * count + 3; i++) {
            uint16_t index = complete_one(p);
            expect_sent(p->cq, p->a, index);
            const uint8_t *entry = rig_entry(p->cq, i);
            assert_int_equal(entry[entry_bytes - 1] & 1, i / count & 1);
            for (uint32_t at = 0; at < entry_bytes - 64; at++) {
                assert_int_equal(entry[at], 0);
            }
            expect_none(p->cq);
        }
    }
}

/* A CQ that pads writes the first half of an entry, too, unless it has data there. */
static void test_padding(void **state)
{
    struct pair *p = *state;
    use_cq(p, 8, 128);
    p->a->qp->scatter_requests_to_cqe = true;
    for (uint32_t pads = 0; pads < 2; pads++) {
        static const uint32_t sizes[] = {8, 60};
        p->cq->cq->pads = pads;
        for (uint32_t i = 0; i < 2; i++) {
            uint8_t *entry = p->cq->cq->buffer + (size_t)(p->cq->consumer % 8) * 128;
            memset(entry, 0xaa, 64);
            rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, sizes[i], &p->there);
            expect(p->cq, MLX5_CQE_REQ);
            if (i == 1) {
                assert_memory_equal(entry, p->there.bytes, sizes[i]);
                continue;
            }
            for (uint32_t at = 0; at < 64; at++) {
                assert_int_equal(entry[at], pads ? 0 : 0xaa);
            }
        }
        for (uint32_t i = 0; i < 2; i++) { /* without data */
            uint8_t *entry = p->cq->cq->buffer + (size_t)(p->cq->consumer % 8) * 128;
            memset(entry, 0xaa, 64);
            expect_sent(p->cq, p->a, complete_one(p));
            assert_int_equal(entry[0], pads ? 0 : 0xaa);
            assert_int_equal(entry[63], pads ? 0 : 0xaa);
        }
    }
}

/* Several at once, up to the last place. */
static void test_full(void **state)
{
    struct pair *p = *state;
    use_cq(p, 8, 64);
    for (uint32_t lap = 0; lap < 5; lap++) {
        uint16_t index[8];
        for (uint32_t i = 0; i < 8; i++) {
            index[i] = complete_one(p);
        }
        for (uint32_t i = 0; i < 8; i++) {
            expect_sent(p->cq, p->a, index[i]);
        }
    }
    assert_false(p->cq->cq->overrun);
}

/* ---- data in CQEs ---- */

static void received_in_cqe(struct pair *p, uint32_t bytes, uint32_t room)
{
    uint32_t entry_bytes = p->far->cq->entry_bytes, at = p->far->consumer;
    memset(p->there.bytes, 0, 200);
    uint16_t taken = rig_receive(p->b, &p->there, 0, 100);
    expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, bytes, bytes));
    struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, bytes);
    const uint8_t *entry = rig_entry(p->far, at);
    if (bytes > room) {
        assert_int_equal(cqe.op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64), 0);
        assert_memory_equal(p->there.bytes, p->near.bytes + bytes, bytes);
        return;
    }
    bool large = bytes > 32;
    assert_int_equal(cqe.op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64),
                     large ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32);
    assert_memory_equal(large ? entry : entry + entry_bytes - 64, p->near.bytes + bytes, bytes);
    assert_int_equal(p->there.bytes[0], 0);
}

static void test_scatter_to_cqe(void **state)
{
    struct pair *p = *state;
    for (uint32_t entry_bytes = 64; entry_bytes <= 128; entry_bytes += 64) {
        use_cq(p, 64, entry_bytes);
        p->b->qp->scatter_to_cqe = true;
        uint32_t room = entry_bytes == 128 ? 64 : 32;
        for (uint32_t bytes = 1; bytes <= 66; bytes++) {
            received_in_cqe(p, bytes, room);
        }
    }
}

/* A receive WQE that is too small fails though the CQE would have had room. */
static void test_scatter_too_small(void **state)
{
    struct pair *p = *state;
    p->b->qp->scatter_to_cqe = true;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 9);
    rig_send_message(p->a, 0, &p->near, 0, 10);
    expect_receive_error(p->far, p->b, taken, LOCAL_LENGTH_ERR);
}

/* Of messages in several packets nothing goes into CQEs. */
static void test_scatter_of_parts(void **state)
{
    struct pair *p = *state;
    p->b->qp->scatter_to_cqe = true;
    uint16_t taken = rig_receive(p->b, &p->there, 0, 2000);
    expect_sent(p->cq, p->a, rig_send_message(p->a, SIGNALLED, &p->near, 0, 1030));
    struct mlx5_cqe64 cqe = expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 1030);
    assert_int_equal(cqe.op_own & 0xc, 0);
    assert_memory_equal(p->there.bytes, p->near.bytes, 1030);
}

/* What a small signalled READ or atomic brings is in its CQE. */
static void test_scatter_of_requests(void **state)
{
    struct pair *p = *state;
    p->a->qp->scatter_to_cqe = p->a->qp->scatter_requests_to_cqe = true;
    for (uint32_t entry_bytes = 64; entry_bytes <= 128; entry_bytes += 64) {
        use_cq(p, 64, entry_bytes);
        for (uint32_t bytes = 1; bytes <= 66; bytes++) {
            uint32_t at = p->cq->consumer, room = entry_bytes == 128 ? 64 : 32;
            rig_fill(p->there.bytes, bytes, bytes);
            memset(p->near.bytes, 0, 100);
            uint16_t index =
                rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, SIGNALLED, &p->near, bytes, &p->there);
            struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, index);
            const uint8_t *entry = rig_entry(p->cq, at);
            if (bytes > room) {
                assert_memory_equal(p->near.bytes, p->there.bytes, bytes);
                continue;
            }
            assert_int_equal(cqe.op_own & 0xc,
                             bytes > 32 ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32);
            assert_memory_equal(bytes > 32 ? entry : entry + entry_bytes - 64, p->there.bytes,
                                bytes);
            assert_int_equal(p->near.bytes[0], 0);
        }
    }
    /* An unsignalled one has no CQE, so its data go to memory. */
    rig_rdma(p->a, MLX5_OPCODE_RDMA_READ, 0, &p->near, 8, &p->there);
    expect_none(p->cq);
    assert_memory_equal(p->near.bytes, p->there.bytes, 8);
}

/* ---- events ---- */

static void test_arm(void **state)
{
    struct pair *p = *state;
    receive_one(p, SIGNALLED);
    assert_int_equal(p->rig->completion_events, 0); /* not armed */
    expect(p->far, MLX5_CQE_RESP_SEND);
    rig_arm(p->far, false);
    assert_int_equal(p->rig->completion_events, 0);
    receive_one(p, SIGNALLED);
    assert_int_equal(p->rig->completion_events, 1);
    assert_ptr_equal(p->rig->completion_owner, p->far);
    receive_one(p, SIGNALLED);
    assert_int_equal(p->rig->completion_events, 1); /* once for each arming */
    rig_arm(p->far, false);
    assert_int_equal(p->rig->completion_events, 2); /* one came untold */
    expect(p->far, MLX5_CQE_RESP_SEND);
    rig_arm(p->far, false);
    assert_int_equal(p->rig->completion_events, 2); /* one is, but it has been told */
    expect(p->far, MLX5_CQE_RESP_SEND);
    rig_arm(p->far, false);
    assert_int_equal(p->rig->completion_events, 2);
}

static void test_arm_solicited(void **state)
{
    struct pair *p = *state;
    rig_arm(p->far, true);
    receive_one(p, SIGNALLED);
    assert_int_equal(p->rig->completion_events, 0);
    receive_one(p, SIGNALLED | SOLICITED);
    assert_int_equal(p->rig->completion_events, 1);
    rig_arm(p->far, true); /* a solicited one has not been polled, but has been told */
    assert_int_equal(p->rig->completion_events, 1);
    expect(p->far, MLX5_CQE_RESP_SEND);
    expect(p->far, MLX5_CQE_RESP_SEND);
    receive_one(p, SIGNALLED);
    rig_arm(p->far, true);
    assert_int_equal(p->rig->completion_events, 1);
    /* An error is always told. */
    qp_set_state(&p->rig->nic, p->b->qp, STATE_ERR);
    rig_receive(p->b, &p->there, 0, 10);
    rig_run(p->rig);
    assert_int_equal(p->rig->completion_events, 2);
}

/* Indices have 24 bits: arming looks right when they pass their end. */
static void test_arm_wrap(void **state)
{
    struct pair *p = *state;
    struct completion_queue *cq = p->far->cq;
    cq->producer = cq->consumer = cq->last_solicited = p->far->consumer = 0xfffffe;
    cq->last_notified = 0xfffffe;
    p->far->record[0] = htobe32(0xfffffe);
    for (uint32_t i = 0; i < 256; i++) { /* the lap before has been */
        cq->buffer[i * 64 + 63] = MLX5_CQE_RESP_SEND << 4 | ((0xfffffe - 256) >> 8 & 1);
    }
    for (uint32_t i = 0; i < 6; i++) {
        rig_arm(p->far, true);
        assert_int_equal(p->rig->completion_events, i);
        receive_one(p, SIGNALLED | SOLICITED);
        assert_int_equal(p->rig->completion_events, i + 1);
        rig_arm(p->far, false);
        assert_int_equal(p->rig->completion_events, i + 1);
        expect(p->far, MLX5_CQE_RESP_SEND);
    }
}

/* ---- overruns ---- */

static void test_overrun(void **state)
{
    struct pair *p = *state;
    use_cq(p, 4, 64);
    struct rig_qp *bystander = rig_qp_new(p->rig, p->far, NULL);
    rig_connect(bystander, bystander);
    for (uint32_t i = 0; i < 5; i++) {
        complete_one(p);
    }
    rig_run(p->rig);
    assert_true(p->cq->cq->overrun);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 1);
    assert_int_equal(rig_events(p->rig, EVENT_QP_FATAL), 1);
    assert_int_equal(p->a->qp->state, STATE_ERR);
    assert_int_equal(bystander->qp->state, STATE_RTS);
    for (uint16_t i = 0; i < 4; i++) { /* those that had room are there still */
        expect_sent(p->cq, p->a, i);
    }
    expect_none(p->cq);
    complete_one(p); /* nothing is ever written there again */
    expect_none(p->cq);
    assert_int_equal(p->rig->event_count, 0);
}

static void test_fill_fault(void **state)
{
    struct pair *p = *state;
    char spec[32];
    snprintf(spec, sizeof(spec), "fill=%u", p->cq->cq->number);
    rig_fault(p->rig, spec);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 1);
    assert_int_equal(p->a->qp->state, STATE_ERR);
}

static void test_buffer_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory mapped = rig_mapped(p->rig, 256 * 64);
    p->cq->cq->buffer = mapped.bytes;
    rig_unmap(&mapped);
    complete_one(p);
    rig_run(p->rig);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 1);
    assert_int_equal(p->a->qp->state, STATE_ERR);
}

static void test_record_gone(void **state)
{
    struct pair *p = *state;
    struct rig_memory mapped = rig_mapped(p->rig, 4096);
    use_cq(p, 4, 64);
    p->cq->cq->record = mapped.bytes;
    rig_unmap(&mapped);
    for (uint32_t i = 0; i < 5; i++) {
        complete_one(p);
    }
    rig_run(p->rig);
    cq_look_at_arms(&p->rig->nic);
    assert_int_equal(rig_events(p->rig, EVENT_CQ_ERR), 1);
}

/* ---- resizing, as libmlx5 does it ---- */

static bool resize(struct rig_cq *cq, uint32_t entries, uint32_t entry_bytes)
{
    struct rig_cq old = *cq;
    struct completion_queue was = *cq->cq;
    uint8_t *buffer = rig_allocate(cq->rig, (size_t)entries * entry_bytes);
    for (uint32_t i = 0; i < entries; i++) {
        buffer[(i + 1) * entry_bytes - 1] = MLX5_CQE_INVALID << 4;
    }
    if (!cq_resize(&cq->rig->nic, cq->cq, buffer, entries, entry_bytes)) {
        return false;
    }
    old.cq = &was;
    struct mlx5_cqe64 cqe;
    while (rig_peek(&old, &cqe) && cqe.op_own >> 4 != MLX5_CQE_RESIZE_CQ) {
        uint32_t next = old.consumer + 1;
        uint8_t *to = buffer + (size_t)(next & (entries - 1)) * entry_bytes;
        cqe.op_own = (uint8_t)((cqe.op_own & ~1) | (next & entries ? 1 : 0));
        memcpy(to + entry_bytes - 64, &cqe, sizeof(cqe));
        old.consumer++;
    }
    assert_int_equal(cqe.op_own >> 4, MLX5_CQE_RESIZE_CQ);
    cq->consumer++;
    cq->record[0] = htobe32(cq->consumer & 0xffffff);
    return true;
}

static void test_resize(void **state)
{
    struct pair *p = *state;
    static const struct {
        uint32_t polled, waiting, entries, entry_bytes;
    } cases[] = {{0, 0, 64, 64},  {3, 5, 64, 64}, {7, 6, 8, 128}, {1, 7, 16, 64},
                 {9, 0, 32, 128}, {2, 3, 4, 64},  {5, 1, 8, 64}};
    use_cq(p, 8, 64);
    for (uint32_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        uint16_t index[16];
        for (uint32_t i = 0; i < cases[k].polled; i++) {
            expect_sent(p->cq, p->a, complete_one(p));
        }
        for (uint32_t i = 0; i < cases[k].waiting; i++) {
            index[i] = complete_one(p);
        }
        rig_run(p->rig);
        if (cases[k].waiting < cases[k].entries) {
            assert_true(resize(p->cq, cases[k].entries, cases[k].entry_bytes));
        }
        for (uint32_t i = 0; i < cases[k].waiting; i++) {
            expect_sent(p->cq, p->a, index[i]);
        }
        for (uint32_t i = 0; i < 3 * cases[k].entries; i++) {
            expect_sent(p->cq, p->a, complete_one(p));
        }
        expect_none(p->cq);
    }
    assert_false(p->cq->cq->overrun);
}

static void test_resize_too_small(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 5; i++) {
        complete_one(p);
    }
    rig_run(p->rig);
    assert_false(resize(p->cq, 4, 64));
    for (uint16_t i = 0; i < 5; i++) {
        expect_sent(p->cq, p->a, i);
    }
}

/* A solicited completion that waits is still known as one after a resize. */
static void test_resize_then_arm(void **state)
{
    struct pair *p = *state;
    receive_one(p, SIGNALLED | SOLICITED);
    assert_true(resize(p->far, 64, 64));
    rig_arm(p->far, true);
    assert_int_equal(p->rig->completion_events, 1);
}

/* ---- tracing ---- */

static void test_trace(void **state)
{
    struct pair *p = *state;
    expect_sent(p->cq, p->a, complete_one(p));
    assert_int_equal(p->rig->traced[0] + p->rig->traced[1], 0);
    atomic_store(&p->rig->fabric.file->tracing, 1);
    for (uint32_t i = 0; i < 5; i++) {
        expect_sent(p->cq, p->a, complete_one(p));
    }
    assert_int_equal(p->rig->traced[0], 5);
    assert_int_equal(p->rig->traced[1], 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_owner_bits),
        TEST(test_padding),
        TEST(test_full),
        TEST(test_scatter_to_cqe),
        TEST(test_scatter_too_small),
        TEST(test_scatter_of_parts),
        TEST(test_scatter_of_requests),
        TEST(test_arm),
        TEST(test_arm_solicited),
        TEST(test_arm_wrap),
        TEST(test_overrun),
        TEST(test_fill_fault),
        TEST(test_buffer_gone),
        TEST(test_record_gone),
        TEST(test_resize),
        TEST(test_resize_too_small),
        TEST(test_resize_then_arm),
        TEST(test_trace),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
