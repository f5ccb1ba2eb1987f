/* verbs_world.h: what tests of single features through libibverbs have in common: a device, its domain and completion queue, queue pairs
 * that are connected to each other, and requests that complete. */
#ifndef SIMNIC_TESTS_VERBS_WORLD_H
#define SIMNIC_TESTS_VERBS_WORLD_H

#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define WORLD_GID 3 /* RoCE v2, IPv4 */
#define WORLD_QUEUE_KEY 0x11111111u
#define WORLD_PATIENCE_S 20
#define WORLD_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct world {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *cq;
};

static inline int world_set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct mlx5dv_context_attr devx = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    assert_non_null(list[0]);
    w->context = mlx5dv_open_device(list[0], &devx);
    ibv_free_device_list(list);
    assert_non_null(w->context);
    w->domain = ibv_alloc_pd(w->context);
    w->cq = ibv_create_cq(w->context, 255, NULL, NULL, 0);
    assert_true(w->domain && w->cq);
    *state = w;
    return 0;
}

static inline int world_tear_down(void **state)
{
    struct world *w = *state;
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    assert_int_equal(ibv_dealloc_pd(w->domain), 0);
    assert_int_equal(ibv_close_device(w->context), 0);
    free(w);
    return 0;
}

static inline struct ibv_qp *world_queue_pair(struct world *w, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr a = {
        .send_cq = w->cq, .recv_cq = w->cq, .qp_type = type, .cap = {64, 64, 4, 4, 64}};
    struct ibv_qp *qp = ibv_create_qp(w->domain, &a);
    assert_non_null(qp);
    return qp;
}

static inline struct ibv_ah_attr world_address(struct world *w)
{
    struct ibv_ah_attr a = {
        .is_global = 1, .port_num = 1, .grh = {.sgid_index = WORLD_GID, .hop_limit = 64}};
    assert_int_equal(ibv_query_gid(w->context, 1, WORLD_GID, &a.grh.dgid), 0);
    return a;
}

/* Of RC, UC or XRC. */
static inline void world_point(struct world *w, struct ibv_qp *qp, uint32_t to)
{
    bool reliable = qp->qp_type != IBV_QPT_UC;
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = WORLD_REMOTE};
    assert_int_equal(
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_1024,
                             .dest_qp_num = to,
                             .max_dest_rd_atomic = 4,
                             .min_rnr_timer = 1,
                             .ah_attr = world_address(w)};
    assert_int_equal(
        ibv_modify_qp(qp, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
        0);
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    assert_int_equal(ibv_modify_qp(qp, &a,
                                   IBV_QP_STATE | IBV_QP_SQ_PSN |
                                       (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                                 : 0)),
                     0);
}

static inline void world_connect(struct world *w, struct ibv_qp *pair[2], enum ibv_qp_type type)
{
    pair[0] = world_queue_pair(w, type);
    pair[1] = world_queue_pair(w, type);
    world_point(w, pair[0], pair[1]->qp_num);
    world_point(w, pair[1], pair[0]->qp_num);
}

static inline void world_disconnect(struct ibv_qp *pair[2])
{
    assert_int_equal(ibv_destroy_qp(pair[0]), 0);
    assert_int_equal(ibv_destroy_qp(pair[1]), 0);
}

static inline void world_start_datagrams(struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = WORLD_QUEUE_KEY};
    assert_int_equal(
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    a.qp_state = IBV_QPS_RTR;
    assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
    a.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static inline struct ibv_wc world_wait(struct ibv_cq *cq)
{
    struct ibv_wc wc = {0};
    time_t start = time(NULL);
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
        if (time(NULL) - start > WORLD_PATIENCE_S) {
            fail_msg("no completion");
        }
    }
    return wc;
}

static inline struct ibv_wc world_expect(struct ibv_cq *cq, enum ibv_wc_status status)
{
    struct ibv_wc wc = world_wait(cq);
    if (wc.status != status) {
        fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
    }
    return wc;
}

/* A request with one segment, signalled. */
static inline struct ibv_send_wr world_request(enum ibv_wr_opcode opcode, struct ibv_sge *from,
                                               uint64_t address, uint32_t key)
{
    struct ibv_send_wr wr = {.sg_list = from,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = address, .rkey = key}};
    return wr;
}

static inline void world_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(qp, wr, &bad), 0);
}

static inline void world_receive(struct ibv_qp *qp, struct ibv_sge *to)
{
    struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = to, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

#endif
