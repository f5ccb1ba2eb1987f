/* transport_test.c: what queue pairs of the rarer types do with data: XRC, multicast; to be run under simnic. */
#include <fcntl.h>

#include "simnic/tests/verbs_world.h"

/* ---- XRC ---- */

struct xrc {
    struct ibv_xrcd *domain;
    struct ibv_srq *srq;
    struct ibv_qp *target, *initiator;
};

static struct xrc xrc_open(struct world *w, bool signal_all)
{
    struct xrc x;
    struct ibv_xrcd_init_attr domain = {.comp_mask =
                                            IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                        .fd = -1,
                                        .oflags = O_CREAT};
    x.domain = ibv_open_xrcd(w->context, &domain);
    assert_non_null(x.domain);
    struct ibv_srq_init_attr_ex srq = {.attr = {.max_wr = 16, .max_sge = 1},
                                       .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                    IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                       .srq_type = IBV_SRQT_XRC,
                                       .pd = w->domain,
                                       .xrcd = x.domain,
                                       .cq = w->cq};
    x.srq = ibv_create_srq_ex(w->context, &srq);
    assert_non_null(x.srq);
    struct ibv_qp_init_attr_ex target = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x.domain};
    struct ibv_qp_init_attr_ex initiator = {.qp_type = IBV_QPT_XRC_SEND,
                                            .comp_mask = IBV_QP_INIT_ATTR_PD,
                                            .pd = w->domain,
                                            .send_cq = w->cq,
                                            .sq_sig_all = signal_all,
                                            .cap = {.max_send_wr = 16, .max_send_sge = 1}};
    x.target = ibv_create_qp_ex(w->context, &target);
    x.initiator = ibv_create_qp_ex(w->context, &initiator);
    assert_true(x.target && x.initiator);
    world_point(w, x.target, x.initiator->qp_num);
    world_point(w, x.initiator, x.target->qp_num);
    return x;
}

static void xrc_close(struct xrc *x)
{
    assert_int_equal(ibv_destroy_qp(x->initiator), 0);
    assert_int_equal(ibv_destroy_qp(x->target), 0);
    assert_int_equal(ibv_destroy_srq(x->srq), 0);
    assert_int_equal(ibv_close_xrcd(x->domain), 0);
}

/* Where every request is signalled, libmlx5 asks for small responses in the CQE. Then it reads them from there for RC alone. */
static void test_xrc_responses(void **state)
{
    struct world *w = *state;
    for (int signal_all = 0; signal_all < 2; signal_all++) {
        uint64_t memory[2] = {0, 40};
        uint32_t number;
        struct ibv_mr *region =
            ibv_reg_mr(w->domain, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | WORLD_REMOTE);
        struct xrc x = xrc_open(w, signal_all);
        struct ibv_sge to = {(uintptr_t)&memory[0], 8, region->lkey};
        struct ibv_send_wr wr =
            world_request(IBV_WR_RDMA_READ, &to, (uintptr_t)&memory[1], region->rkey);
        assert_int_equal(ibv_get_srq_num(x.srq, &number), 0);
        wr.qp_type.xrc.remote_srqn = number;
        world_post(x.initiator, &wr);
        world_expect(w->cq, IBV_WC_SUCCESS);
        assert_int_equal(memory[0], 40);
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = (uintptr_t)&memory[1];
        wr.wr.atomic.rkey = region->rkey;
        wr.wr.atomic.compare_add = 2;
        world_post(x.initiator, &wr);
        world_post(x.initiator, &wr);
        world_expect(w->cq, IBV_WC_SUCCESS);
        world_expect(w->cq, IBV_WC_SUCCESS);
        assert_int_equal(memory[0], 42);
        assert_int_equal(memory[1], 44);
        wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        wr.wr.atomic.compare_add = 44;
        wr.wr.atomic.swap = 7;
        world_post(x.initiator, &wr);
        world_expect(w->cq, IBV_WC_SUCCESS);
        assert_int_equal(memory[0], 44);
        assert_int_equal(memory[1], 7);
        xrc_close(&x);
        assert_int_equal(ibv_dereg_mr(region), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_xrc_responses, world_set_up, world_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("transport", tests, NULL, NULL);
}
