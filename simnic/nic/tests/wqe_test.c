/* wqe_test.c: send WQEs of every opcode and form, and of every kind of wrong form. */
#include "simnic/nic/tests/expect.h"

static void test_send_scatter_list(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    struct mlx5_wqe_data_seg list[] = {rig_segment(&p->there, 0, 10),
                                       rig_segment(&p->there, 100, 1),
                                       rig_segment(&p->there, 200, 4000)};
    uint16_t taken = rig_receive_list(p->b, list, 3);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 7, 1, p->near.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 1000, 2047, p->near.key);
    rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 5000, 452, p->near.key);
    uint16_t index = rig_send(p->a, &wqe);
    struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, index);
    assert_int_equal(be32toh(cqe.byte_cnt), 2500);
    assert_int_equal(be32toh(cqe.sop_drop_qpn) >> 24, MLX5_OPCODE_SEND);
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, 2500);
    uint8_t sent[2500], got[2500];
    sent[0] = p->near.bytes[7];
    memcpy(sent + 1, p->near.bytes + 1000, 2047);
    memcpy(sent + 2048, p->near.bytes + 5000, 452);
    memcpy(got, p->there.bytes, 10);
    got[10] = p->there.bytes[100];
    memcpy(got + 11, p->there.bytes + 200, 2489);
    assert_memory_equal(sent, got, sizeof(sent));
    assert_int_equal(p->there.bytes[10], 0);
    assert_int_equal(p->there.bytes[101], 0);
}

static void test_longest_list(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_receive(p->b, &p->there, 0, 4096);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    for (uint32_t i = 0; i < NIC_MAX_SGE; i++) {
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes + 2 * i, 1, p->near.key);
    }
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    for (uint32_t i = 0; i < NIC_MAX_SGE; i++) {
        assert_int_equal(p->there.bytes[i], p->near.bytes[2 * i]);
    }
}

static void test_inline(void **state)
{
    struct pair *p = *state;
    static const uint32_t sizes[] = {1, 11, 12, 13, 28, 29, 44, 45, 200, 900};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct rig_wqe wqe;
        uint16_t taken = rig_receive(p->b, &p->there, 0, 1000);
        memset(p->there.bytes, 0, 1000);
        rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
        rig_wqe_inline(&wqe, p->near.bytes + i, sizes[i]);
        expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
        expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, taken, sizes[i]);
        assert_memory_equal(p->there.bytes, p->near.bytes + i, sizes[i]);
        assert_int_equal(p->there.bytes[sizes[i]], 0);
    }
}

/* Inline data in several segments, each padded, is one message without gaps. */
static void test_inline_pieces(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_receive(p->b, &p->there, 0, 1000);
    rig_wqe_start(&wqe, MLX5_OPCODE_SEND, SIGNALLED);
    rig_wqe_inline(&wqe, p->near.bytes, 5);
    rig_wqe_inline(&wqe, p->near.bytes + 5, 100);
    rig_wqe_inline(&wqe, p->near.bytes + 105, 1);
    rig_wqe_inline(&wqe, p->near.bytes + 106, 60);
    expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
    expect_received(p->far, p->b, MLX5_CQE_RESP_SEND, 0, 166);
    assert_memory_equal(p->there.bytes, p->near.bytes, 166);
}

/* Longer WQEs than one basic block, at every place of a small queue, over several laps. */
static void test_wrap(void **state)
{
    struct pair *p = *state;
    for (uint32_t i = 0; i < 300; i++) {
        struct rig_wqe wqe;
        uint32_t bytes = 1 + i * 37 % 700;
        memset(p->there.bytes, 0, 1000);
        rig_wqe_start(&wqe, i % 3 ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_RDMA_WRITE_IMM, SIGNALLED);
        rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
        rig_wqe_inline(&wqe, p->near.bytes + i, bytes);
        if (i % 3 == 0) {
            rig_receive(p->b, &p->there, 0, 0);
        }
        expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
        if (i % 3 == 0) {
            expect_received(p->far, p->b, MLX5_CQE_RESP_WR_IMM, (uint16_t)(i / 3), bytes);
        }
        assert_memory_equal(p->there.bytes, p->near.bytes + i, bytes);
    }
    assert_true(p->a->sent > 1000);
}

static void test_every_opcode(void **state)
{
    struct pair *p = *state;
    uint64_t *word = (uint64_t *)(void *)p->there.bytes;
    struct rig_wqe wqe;
    static const uint8_t opcodes[] = {MLX5_OPCODE_NOP,       MLX5_OPCODE_RDMA_WRITE,
                                      MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_CS,
                                      MLX5_OPCODE_ATOMIC_FA, MLX5_OPCODE_RDMA_WRITE_IMM,
                                      MLX5_OPCODE_SEND,      MLX5_OPCODE_SEND_IMM};
    for (uint32_t i = 0; i < sizeof(opcodes); i++) {
        rig_receive(p->b, &p->there, 64, 8);
        rig_wqe_start(&wqe, opcodes[i], SIGNALLED);
        bool send = opcodes[i] == MLX5_OPCODE_SEND || opcodes[i] == MLX5_OPCODE_SEND_IMM;
        bool atomic = opcodes[i] == MLX5_OPCODE_ATOMIC_CS || opcodes[i] == MLX5_OPCODE_ATOMIC_FA;
        if (opcodes[i] != MLX5_OPCODE_NOP && !send) {
            rig_wqe_remote(&wqe, (uintptr_t)word, p->there.key);
        }
        if (atomic) {
            rig_wqe_atomic(&wqe, 5, 6);
        }
        if (opcodes[i] != MLX5_OPCODE_NOP) {
            rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
        }
        struct mlx5_cqe64 cqe = expect_sent(p->cq, p->a, rig_send(p->a, &wqe));
        assert_int_equal(be32toh(cqe.sop_drop_qpn) >> 24, opcodes[i]);
        assert_int_equal(be32toh(cqe.byte_cnt), opcodes[i] ? 8 : 0);
    }
}

/* Each of these changes one thing of a WQE that would be good. */
enum spoil {
    SPOIL_QPN,
    SPOIL_INDEX,
    SPOIL_NO_SIZE,
    SPOIL_TOO_LARGE,
    SPOIL_LARGER_THAN_POSTED,
    SPOIL_OPCODE,
    SPOIL_NO_REMOTE,
    SPOIL_INLINE_TOO_LONG,
    SPOIL_INLINE_HUGE,
    SPOIL_INLINE_READ,
    SPOIL_ATOMIC_SIZE,
    SPOIL_ATOMIC_CUT,
    SPOIL_MESSAGE_TOO_LONG,
    SPOIL_ZERO_IS_2_GB,
    SPOIL_COUNT
};

static void make_spoilt_body(struct pair *p, struct rig_wqe *wqe, enum spoil spoil)
{
    uint64_t near = (uintptr_t)p->near.bytes, there = (uintptr_t)p->there.bytes;
    bool read = spoil == SPOIL_INLINE_READ;
    bool atomic = spoil == SPOIL_ATOMIC_SIZE || spoil == SPOIL_ATOMIC_CUT;
    rig_wqe_start(wqe,
                  read     ? MLX5_OPCODE_RDMA_READ
                  : atomic ? MLX5_OPCODE_ATOMIC_FA
                           : MLX5_OPCODE_RDMA_WRITE,
                  0);
    if (spoil != SPOIL_NO_REMOTE) {
        rig_wqe_remote(wqe, there, p->there.key);
    }
    if (spoil == SPOIL_ATOMIC_SIZE) {
        rig_wqe_atomic(wqe, 1, 1);
    }
    if (spoil == SPOIL_NO_REMOTE || spoil == SPOIL_ATOMIC_CUT) {
        return;
    }
    if (read) {
        rig_wqe_inline(wqe, "data", 4);
    }
    if (!read) {
        rig_wqe_data(wqe, near, spoil == SPOIL_ZERO_IS_2_GB ? 0 : 16, p->near.key);
    }
    if (spoil == SPOIL_MESSAGE_TOO_LONG) {
        rig_wqe_data(wqe, near, NIC_MAX_MESSAGE_BYTES, p->near.key);
    }
}

static void store32(struct rig_wqe *wqe, uint32_t at, uint32_t value)
{
    value = htobe32(value);
    memcpy(wqe->bytes + at, &value, sizeof(value));
}

static void spoil_wqe(struct pair *p, struct rig_wqe *wqe, enum spoil spoil)
{
    uint32_t qpn = p->a->qp->number;
    make_spoilt_body(p, wqe, spoil);
    rig_wqe_finish(wqe, p->a);
    if (spoil == SPOIL_QPN) {
        store32(wqe, 4, (qpn + 1) << 8 | wqe->size / 16);
    }
    if (spoil == SPOIL_INDEX) {
        store32(wqe, 0, (uint32_t)(p->a->sent + 1) << 8 | wqe->opcode);
    }
    if (spoil == SPOIL_NO_SIZE) {
        store32(wqe, 4, qpn << 8);
    }
    if (spoil == SPOIL_TOO_LARGE) {
        store32(wqe, 4, qpn << 8 | 63);
    }
    if (spoil == SPOIL_LARGER_THAN_POSTED) {
        store32(wqe, 4, qpn << 8 | 5);
    }
    if (spoil == SPOIL_OPCODE) {
        store32(wqe, 0, (uint32_t)p->a->sent << 8 | 0x3d);
    }
    if (spoil == SPOIL_INLINE_TOO_LONG) {
        store32(wqe, 32, 1u << 31 | 13); /* one more than has room in the segment */
    }
    if (spoil == SPOIL_INLINE_HUGE) {
        store32(wqe, 32, UINT32_MAX);
    }
}

/* A malformed WQE completes in error with what was wrong of it, though it was not signalled; what
 * comes after it is flushed; and nothing was written anywhere. */
static void test_malformed(void **state)
{
    (void)state;
    for (enum spoil spoil = 0; spoil < SPOIL_COUNT; spoil++) {
        struct pair *p = pair_new(NULL);
        struct rig_wqe wqe;
        rig_connect(p->a, p->b);
        uint16_t before = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &p->near, 4, &p->there);
        expect_sent(p->cq, p->a, before);
        memset(p->there.bytes, 0, 64);
        spoil_wqe(p, &wqe, spoil);
        uint16_t index = rig_put(p->a, &wqe);
        rig_ring(p->a, &wqe);
        expect_send_error(p->cq, p->a, index, LOCAL_QP_OP_ERR);
        assert_int_equal(p->a->qp->state, STATE_ERR);
        expect_none(p->cq);
        uint16_t after = rig_rdma(p->a, MLX5_OPCODE_RDMA_WRITE, 0, &p->near, 4, &p->there);
        expect_send_error(p->cq, p->a, after, WR_FLUSH_ERR);
        expect_none(p->cq);
        for (uint32_t i = 0; i < 64; i++) {
            assert_int_equal(p->there.bytes[i], 0);
        }
        rig_delete(p->rig);
    }
}

/* All 256 opcodes with the same body: each completes once, whatever it is. */
static void test_opcode_bytes(void **state)
{
    struct pair *p = *state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        struct rig_qp *a = rig_qp_new(p->rig, p->cq, NULL), *b = rig_qp_new(p->rig, p->far, NULL);
        struct rig_wqe wqe;
        struct mlx5_cqe64 cqe;
        rig_connect(a, b);
        rig_receive(b, &p->there, 0, 64);
        rig_wqe_start(&wqe, (uint8_t)opcode, SIGNALLED);
        rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
        rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
        rig_send(a, &wqe);
        rig_run(p->rig);
        assert_true(rig_poll(p->cq, &cqe));
        assert_int_equal(be16toh(cqe.wqe_counter), 0);
        expect_none(p->cq);
        while (rig_poll(p->far, &cqe)) {
        }
    }
}

/* Datagrams have no other requests than SEND, and unreliable connections none that is answered. */
static void test_wrong_service(void **state)
{
    struct pair *p = *state;
    static const struct {
        uint32_t type;
        uint8_t opcode;
        bool good;
    } cases[] = {
        {TYPE_UC, MLX5_OPCODE_RDMA_READ, false},  {TYPE_UC, MLX5_OPCODE_ATOMIC_CS, false},
        {TYPE_UC, MLX5_OPCODE_ATOMIC_FA, false},  {TYPE_UC, MLX5_OPCODE_RDMA_WRITE, true},
        {TYPE_UD, MLX5_OPCODE_RDMA_WRITE, false}, {TYPE_UD, MLX5_OPCODE_RDMA_READ, false},
        {TYPE_UD, MLX5_OPCODE_SEND_INVAL, false}, {TYPE_UD, MLX5_OPCODE_ATOMIC_FA, false},
        {TYPE_UD, MLX5_OPCODE_NOP, true},         {TYPE_UC, MLX5_OPCODE_NOP, true},
    };
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig_qp_options options = {.type = cases[i].type};
        struct rig_qp *a = rig_qp_new(p->rig, p->cq, &options);
        struct rig_wqe wqe;
        rig_qp_point(a, a);
        rig_wqe_start(&wqe, cases[i].opcode, SIGNALLED);
        if (cases[i].opcode != MLX5_OPCODE_NOP) {
            rig_wqe_remote(&wqe, (uintptr_t)p->there.bytes, p->there.key);
        }
        if (cases[i].opcode == MLX5_OPCODE_ATOMIC_CS || cases[i].opcode == MLX5_OPCODE_ATOMIC_FA) {
            rig_wqe_atomic(&wqe, 1, 1);
        }
        if (cases[i].opcode != MLX5_OPCODE_NOP) {
            rig_wqe_data(&wqe, (uintptr_t)p->near.bytes, 8, p->near.key);
        }
        uint16_t index = rig_send(a, &wqe);
        if (cases[i].good) {
            expect_sent(p->cq, a, index);
        } else {
            expect_send_error(p->cq, a, index, LOCAL_QP_OP_ERR);
        }
        assert_int_equal(a->qp->state, cases[i].good ? STATE_RTS : STATE_SQE);
    }
}

/* The send queue itself may be taken away. */
static void test_queue_not_mapped(void **state)
{
    struct pair *p = *state;
    struct rig_memory queue = rig_mapped(p->rig, 4096);
    struct rig_wqe wqe;
    p->a->qp->send_buffer = queue.bytes;
    rig_wqe_start(&wqe, MLX5_OPCODE_NOP, SIGNALLED);
    uint16_t index = rig_post(p->a, &wqe);
    rig_unmap(&queue);
    rig_ring(p->a, &wqe);
    expect_send_error(p->cq, p->a, index, LOCAL_QP_OP_ERR);
    expect_none(p->cq);
}

/* More in the doorbell record than the queue holds: every place of it is looked at once. */
static void test_overrun_queue(void **state)
{
    struct pair *p = *state;
    struct rig_wqe wqe;
    rig_wqe_start(&wqe, MLX5_OPCODE_NOP, SIGNALLED);
    rig_post(p->a, &wqe);
    p->a->record[1] = htobe32(40000);
    rig_ring(p->a, &wqe);
    expect_sent(p->cq, p->a, 0);
    expect_send_error(p->cq, p->a, 1, LOCAL_QP_OP_ERR);
    expect_none(p->cq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_send_scatter_list),     TEST(test_longest_list),  TEST(test_inline),
        TEST(test_inline_pieces),         TEST(test_wrap),          TEST(test_every_opcode),
        cmocka_unit_test(test_malformed), TEST(test_opcode_bytes),  TEST(test_wrong_service),
        TEST(test_queue_not_mapped),      TEST(test_overrun_queue),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
