/* expect.h: what tests say about completions. Each lets the NIC run first. */
#ifndef SIMNIC_NIC_TESTS_EXPECT_H
#define SIMNIC_NIC_TESTS_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simnic/nic/tests/rig.h"

/* Each test program uses some of these functions. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define SIGNALLED MLX5_WQE_CTRL_CQ_UPDATE
#define SOLICITED MLX5_WQE_CTRL_SOLICITED

static struct mlx5_cqe64 expect_at(struct rig_cq *cq, uint8_t opcode, const char *file, int line)
{
    struct mlx5_cqe64 cqe;
    rig_run(cq->rig);
    bool there = rig_poll(cq, &cqe);
    _assert_true(there, "a CQE is there", file, line);
    _assert_int_equal(cqe.op_own >> 4, opcode, file, line);
    return cqe;
}
#define expect(cq, opcode) expect_at(cq, opcode, __FILE__, __LINE__)

/* A send request that went well. */
static struct mlx5_cqe64 expect_sent_at(struct rig_cq *cq, const struct rig_qp *qp, uint16_t index,
                                        const char *file, int line)
{
    struct mlx5_cqe64 cqe = expect_at(cq, MLX5_CQE_REQ, file, line);
    _assert_int_equal(be16toh(cqe.wqe_counter), index, file, line);
    _assert_int_equal(be32toh(cqe.sop_drop_qpn) & 0xffffff, qp->qp->number, file, line);
    _assert_int_equal(be32toh(cqe.srqn_uidx), qp->qp->user_index, file, line);
    return cqe;
}
#define expect_sent(cq, qp, index) expect_sent_at(cq, qp, index, __FILE__, __LINE__)

static struct mlx5_cqe64 expect_received_at(struct rig_cq *cq, const struct rig_qp *qp,
                                            uint8_t opcode, uint16_t index, uint32_t bytes,
                                            const char *file, int line)
{
    struct mlx5_cqe64 cqe = expect_at(cq, opcode, file, line);
    _assert_int_equal(be16toh(cqe.wqe_counter), index, file, line);
    _assert_int_equal(be32toh(cqe.sop_drop_qpn) & 0xffffff, qp->qp->number, file, line);
    _assert_int_equal(be32toh(cqe.srqn_uidx), qp->qp->user_index, file, line);
    _assert_int_equal(be32toh(cqe.byte_cnt), bytes, file, line);
    return cqe;
}
#define expect_received(cq, qp, opcode, index, bytes)                                              \
    expect_received_at(cq, qp, opcode, index, bytes, __FILE__, __LINE__)

static void expect_failed_at(struct rig_cq *cq, uint8_t kind, const struct rig_qp *qp,
                             uint16_t index, uint8_t syndrome, const char *file, int line)
{
    struct mlx5_cqe64 cqe = expect_at(cq, kind, file, line);
    struct mlx5_err_cqe error;
    memcpy(&error, &cqe, sizeof(error));
    _assert_int_equal(error.syndrome, syndrome, file, line);
    _assert_int_equal(be16toh(error.wqe_counter), index, file, line);
    _assert_int_equal(be32toh(error.s_wqe_opcode_qpn) & 0xffffff, qp->qp->number, file, line);
    _assert_int_equal(be32toh(error.srqn), qp->qp->user_index, file, line);
}
/* syndrome: of MLX5_CQE_SYNDROME_ */
#define expect_send_error(cq, qp, index, syndrome)                                                 \
    expect_failed_at(cq, MLX5_CQE_REQ_ERR, qp, index, MLX5_CQE_SYNDROME_##syndrome, __FILE__,      \
                     __LINE__)
#define expect_receive_error(cq, qp, index, syndrome)                                              \
    expect_failed_at(cq, MLX5_CQE_RESP_ERR, qp, index, MLX5_CQE_SYNDROME_##syndrome, __FILE__,     \
                     __LINE__)

static void expect_none_at(struct rig_cq *cq, const char *file, int line)
{
    struct mlx5_cqe64 cqe;
    rig_run(cq->rig);
    _assert_true(!rig_peek(cq, &cqe), "no CQE is there", file, line);
}
#define expect_none(cq) expect_none_at(cq, __FILE__, __LINE__)

/* Two connected QPs: completions of what `a` sends are in `cq`, those of what `b` receives in
 * `far`. */
struct pair {
    struct rig *rig;
    struct rig_cq *cq, *far;
    struct rig_qp *a, *b;
    struct rig_memory near, there; /* of `a`'s program and `b`'s */
};

#define PAIR_BYTES (1u << 20)

/* In INIT: attributes may be changed before rig_connect. */
static struct pair *pair_new(const struct rig_qp_options *options)
{
    struct rig *rig = rig_new();
    struct pair *pair = rig_allocate(rig, sizeof(*pair));
    pair->rig = rig;
    pair->cq = rig_cq_new(rig, 256, 64);
    pair->far = rig_cq_new(rig, 256, 64);
    pair->a = rig_qp_new(rig, pair->cq, options);
    pair->b = rig_qp_new(rig, pair->far, options);
    pair->near = rig_memory(rig, PAIR_BYTES);
    pair->there = rig_memory(rig, PAIR_BYTES);
    rig_fill(pair->near.bytes, PAIR_BYTES, 1);
    return pair;
}

static int setup(void **state)
{
    struct pair *pair = pair_new(NULL);
    rig_connect(pair->a, pair->b);
    *state = pair;
    return 0;
}

/* Not yet connected. */
static int setup_apart(void **state)
{
    *state = pair_new(NULL);
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;
    rig_delete(pair->rig);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define APART(name) cmocka_unit_test_setup_teardown(name, setup_apart, teardown)

#endif
