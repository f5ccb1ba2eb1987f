/* dc_world.h: what the tests of DCIs and DCTs have in common: an end with its queues and memory,
 * targets, initiators, requests. */
#ifndef SIMNIC_TESTS_DC_WORLD_H
#define SIMNIC_TESTS_DC_WORLD_H

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "simnic/tests/way.h"

#define MEMORY_BYTES (1u << 20)
#define KEY 0x1122334455667788u
#define PATIENCE_S 20
#define RECEIVE_BYTES 32768u
#define LONG_BYTES 20000u /* packets of a message: five */

struct end {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *sends, *receives;
    struct ibv_srq *srq;
    struct ibv_ah *address;
    struct ibv_mr *region;
    uint8_t *memory; /* the lower half is sent from, the upper half received to */
};

struct initiator {
    struct ibv_qp *qp;
    struct ibv_qp_ex *extended;
    struct mlx5dv_qp_ex *driver;
    struct end *end;
};

/* Where a request goes. */
struct place {
    uint32_t target, key;
    uint64_t access_key, address;
};

static void open_end(struct end *end)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 64, .max_sge = 2}};
    assert_non_null(list);
    assert_non_null(list[0]);
    end->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(end->context);
    end->domain = ibv_alloc_pd(end->context);
    end->sends = ibv_create_cq(end->context, 256, NULL, NULL, 0);
    end->receives = ibv_create_cq(end->context, 256, NULL, NULL, 0);
    end->srq = ibv_create_srq(end->domain, &srq);
    end->memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end->region = ibv_reg_mr(end->domain, end->memory, MEMORY_BYTES,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    assert_true(end->domain && end->sends && end->receives && end->srq && end->region);
    struct ibv_ah_attr a = way_to_self(end->context);
    end->address = ibv_create_ah(end->domain, &a);
    assert_non_null(end->address);
}

static void close_end(struct end *end)
{
    assert_int_equal(ibv_destroy_ah(end->address), 0);
    assert_int_equal(ibv_dereg_mr(end->region), 0);
    assert_int_equal(ibv_destroy_srq(end->srq), 0);
    assert_int_equal(ibv_destroy_cq(end->sends), 0);
    assert_int_equal(ibv_destroy_cq(end->receives), 0);
    assert_int_equal(ibv_dealloc_pd(end->domain), 0);
    assert_int_equal(ibv_close_device(end->context), 0);
    munmap(end->memory, MEMORY_BYTES);
}

/* In state INIT: its number is not known yet. */
static struct ibv_qp *new_target(struct end *end)
{
    struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_DRIVER,
                                    .send_cq = end->receives,
                                    .recv_cq = end->receives,
                                    .srq = end->srq,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD,
                                    .pd = end->domain};
    struct mlx5dv_qp_init_attr d = {
        .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
        .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = KEY}};
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                               IBV_ACCESS_REMOTE_ATOMIC};
    struct ibv_qp *dct = mlx5dv_create_qp(end->context, &a, &d);
    assert_non_null(dct);
    assert_int_equal(dct->qp_num, 0);
    assert_int_equal(
        ibv_modify_qp(dct, &m,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    return dct;
}

static void start_target(struct end *end, struct ibv_qp *dct)
{
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_4096,
                            .min_rnr_timer = 1,
                            .ah_attr = way_to_self(end->context)};
    int mask = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV;
    assert_int_not_equal(ibv_modify_qp(dct, &m, mask), 0); /* no RNR timer */
    assert_int_equal(ibv_modify_qp(dct, &m, mask | IBV_QP_MIN_RNR_TIMER), 0);
    assert_int_not_equal(dct->qp_num, 0);
    m.qp_state = IBV_QPS_RTS; /* there is none */
    assert_int_not_equal(ibv_modify_qp(dct, &m, IBV_QP_STATE), 0);
}

static struct ibv_qp *ready_target(struct end *end)
{
    struct ibv_qp *dct = new_target(end);
    start_target(end, dct);
    return dct;
}

static void start_initiator(struct ibv_qp *dci, uint8_t rnr_retry)
{
    struct ibv_qp_attr m = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    assert_int_equal(ibv_modify_qp(dci, &m, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
    m = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .ah_attr = way_to_self(dci->context)};
    assert_int_equal(ibv_modify_qp(dci, &m, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV), 0);
    m = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = 11,
                             .retry_cnt = 7,
                             .rnr_retry = rnr_retry,
                             .max_rd_atomic = 8};
    assert_int_equal(ibv_modify_qp(dci, &m,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static struct initiator new_initiator(struct end *end, uint8_t rnr_retry, bool streams)
{
    struct ibv_qp_init_attr_ex a = {
        .qp_type = IBV_QPT_DRIVER,
        .send_cq = end->sends,
        .recv_cq = end->sends,
        .cap = {.max_send_wr = 128, .max_send_sge = 2, .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = end->domain,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
    struct mlx5dv_qp_init_attr d = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
                                    .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};
    if (streams) {
        d.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        d.dc_init_attr.dci_streams.log_num_concurent = 3;
        d.dc_init_attr.dci_streams.log_num_errored = 1;
    }
    struct initiator i = {.end = end, .qp = mlx5dv_create_qp(end->context, &a, &d)};
    assert_non_null(i.qp);
    i.extended = ibv_qp_to_qp_ex(i.qp);
    i.driver = mlx5dv_qp_ex_from_ibv_qp_ex(i.extended);
    start_initiator(i.qp, rnr_retry);
    return i;
}

static struct place place_in(const struct end *end, const struct ibv_qp *dct)
{
    return (struct place){.target = dct->qp_num,
                          .key = end->region->rkey,
                          .access_key = KEY,
                          .address = (uintptr_t)end->memory + MEMORY_BYTES / 2};
}

/* ---- requests ---- */

static void begin(struct initiator *i, uint64_t id, bool signalled)
{
    ibv_wr_start(i->extended);
    i->extended->wr_id = id;
    i->extended->wr_flags = signalled ? IBV_SEND_SIGNALED : 0;
}

static void finish(struct initiator *i, const struct place *to, uint32_t bytes)
{
    mlx5dv_wr_set_dc_addr(i->driver, i->end->address, to->target, to->access_key);
    if (bytes) {
        ibv_wr_set_sge(i->extended, i->end->region->lkey, (uintptr_t)i->end->memory, bytes);
    }
    assert_int_equal(ibv_wr_complete(i->extended), 0);
}

static void write_to(struct initiator *i, const struct place *to, uint32_t bytes)
{
    begin(i, 1, true);
    ibv_wr_rdma_write(i->extended, to->key, to->address);
    finish(i, to, bytes);
}

static void send_to(struct initiator *i, const struct place *to, uint32_t immediate, uint32_t bytes,
                    bool signalled)
{
    begin(i, 2, signalled);
    ibv_wr_send_imm(i->extended, htobe32(immediate));
    finish(i, to, bytes);
}

static void post_receives(struct end *end, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        struct ibv_sge s = {(uintptr_t)end->memory + MEMORY_BYTES / 2 +
                                (size_t)(n % 16) * RECEIVE_BYTES,
                            RECEIVE_BYTES, end->region->lkey};
        struct ibv_recv_wr w = {.wr_id = 100 + n, .sg_list = &s, .num_sge = 1}, *bad;
        assert_int_equal(ibv_post_srq_recv(end->srq, &w, &bad), 0);
    }
}

static struct ibv_wc wait_for(struct ibv_cq *cq)
{
    struct ibv_wc wc = {0};
    time_t start = time(NULL);
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
        if (time(NULL) - start > PATIENCE_S) {
            fail_msg("no completion");
        }
    }
    return wc;
}

static void expect(struct ibv_cq *cq, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_for(cq);
    if (wc.status != status) {
        fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
    }
}

static void fill(uint8_t *bytes, uint32_t count, uint32_t seed)
{
    for (uint32_t n = 0; n < count; n++) {
        bytes[n] = (uint8_t)(n * 7 + seed + (n >> 8));
    }
}

#endif
