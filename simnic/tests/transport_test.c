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

/* ---- multicast ---- */

static struct ibv_qp *member(struct world *w, uint32_t flags, const union ibv_gid *group)
{
    struct ibv_qp_init_attr_ex a = {.send_cq = w->cq,
                                    .recv_cq = w->cq,
                                    .qp_type = IBV_QPT_UD,
                                    .cap = {16, 16, 1, 1, 0},
                                    .comp_mask =
                                        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
                                    .pd = w->domain,
                                    .create_flags = flags};
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &a);
    assert_non_null(qp);
    world_start_datagrams(qp);
    assert_int_equal(ibv_attach_mcast(qp, group, 0), 0);
    return qp;
}

/* A member that blocks its own datagrams gets those of others. */
static void test_own_multicast(void **state)
{
    struct world *w = *state;
    uint8_t memory[256] = {0};
    struct ibv_mr *region = ibv_reg_mr(w->domain, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah_attr to = world_address(w);
    const uint8_t raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 1};
    memcpy(to.grh.dgid.raw, raw, sizeof(raw));
    struct ibv_ah *address = ibv_create_ah(w->domain, &to);
    assert_non_null(address);
    struct ibv_qp *members[2] = {member(w, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, &to.grh.dgid),
                                 member(w, 0, &to.grh.dgid)};
    for (int sender = 0; sender < 2; sender++) {
        struct ibv_sge sge = {(uintptr_t)memory, 8, region->lkey};
        struct ibv_sge space = {(uintptr_t)memory + 64, 64, region->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.ud = {address, 0xffffff, WORLD_QUEUE_KEY}};
        uint32_t received[2] = {0};
        world_receive(members[0], &space);
        world_receive(members[1], &space);
        world_post(members[sender], &wr);
        world_post(members[sender], &wr); /* for which only the first has a receive left */
        for (int due = sender ? 5 : 3; due; due--) {
            struct ibv_wc wc = world_expect(w->cq, IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV) {
                received[wc.qp_num == members[1]->qp_num]++;
            }
        }
        assert_int_equal(received[0], sender ? 2 : 0);
        assert_int_equal(received[1], 1);
    }
    assert_int_equal(ibv_destroy_qp(members[0]), 0);
    assert_int_equal(ibv_destroy_qp(members[1]), 0);
    assert_int_equal(ibv_destroy_ah(address), 0);
    assert_int_equal(ibv_dereg_mr(region), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_xrc_responses, world_set_up, world_tear_down),
        cmocka_unit_test_setup_teardown(test_own_multicast, world_set_up, world_tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("transport", tests, NULL, NULL);
}
