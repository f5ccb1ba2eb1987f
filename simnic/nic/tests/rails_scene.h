/* rails_scene.h: QPs on one rail or two, with memory to write from and to; for the faults of rails, which it ends. The file that includes
 * this defines BYTES of that memory before. */
#ifndef SIMNIC_NIC_TESTS_RAILS_SCENE_H
#define SIMNIC_NIC_TESTS_RAILS_SCENE_H

#include "simnic/nic/tests/expect.h"

#define US 1000ull
#define MS 1000000ull

struct scene {
    struct rig *rig;
    struct rig_cq *cq;
    struct rig_memory from, to;
};

static int begin(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->rig = rig_new();
    s->cq = rig_cq_new(s->rig, 256, 64);
    s->from = rig_memory(s->rig, BYTES);
    s->to = rig_memory(s->rig, BYTES);
    rig_fill(s->from.bytes, BYTES, 7);
    *state = s;
    return 0;
}

static int end(void **state)
{
    struct scene *s = *state;
    rig_fault(s->rig, "none");
    rig_delete(s->rig);
    free(s);
    return 0;
}

static void write_all(struct scene *s, struct rig_qp *qp, uint32_t bytes)
{
    rig_rdma(qp, MLX5_OPCODE_RDMA_WRITE, SIGNALLED, &s->from, bytes, &s->to);
}

/* Lets time pass, in steps, until the next completion, which is good and comes within the limit; returns how long it took. */
static uint64_t pass_until_done(struct scene *s, uint64_t step_ns, uint64_t limit_ns)
{
    uint64_t start_ns = s->rig->now_ns;
    struct mlx5_cqe64 cqe;
    while (!rig_poll(s->cq, &cqe)) {
        assert_in_range(s->rig->now_ns - start_ns, 0, limit_ns);
        rig_pass(s->rig, step_ns);
    }
    assert_int_equal(cqe.op_own >> 4, MLX5_CQE_REQ);
    return s->rig->now_ns - start_ns;
}

#endif
