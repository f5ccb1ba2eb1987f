/* pair.h: two connected queue pairs of one process, for programs that measure. A failure ends the
 * program. */
#ifndef SIMNIC_TESTS_PAIR_H
#define SIMNIC_TESTS_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "simnic/tests/way.h"

#define PAIR_DEPTH 1024

struct pair {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *cq[2];
    struct ibv_qp *qp[2];
    struct ibv_mr *region;
    uint64_t memory[1024]; /* the second half is written to */
    long round_trips;
};

static inline void fail(const char *what)
{
    perror(what);
    exit(1);
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void connect_to(struct ibv_context *context, struct ibv_qp *from, uint32_t to)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    if (ibv_modify_qp(from, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
        fail("INIT");
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_4096,
                             .dest_qp_num = to,
                             .max_dest_rd_atomic = 1,
                             .min_rnr_timer = 1,
                             .ah_attr = way_to_self(context)};
    if (ibv_modify_qp(from, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
        fail("RTR");
    }
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    if (ibv_modify_qp(from, &a,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)) {
        fail("RTS");
    }
}

static inline void pair_open_on(struct pair *pair, int rail)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (!list || rail >= count || !(pair->context = ibv_open_device(list[rail]))) {
        fail("no device");
    }
    ibv_free_device_list(list);
    pair->domain = ibv_alloc_pd(pair->context);
    pair->region =
        ibv_reg_mr(pair->domain, pair->memory, sizeof(pair->memory),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    for (int i = 0; i < 2; i++) {
        pair->cq[i] = ibv_create_cq(pair->context, PAIR_DEPTH, NULL, NULL, 0);
        struct ibv_qp_init_attr init = {.send_cq = pair->cq[i],
                                        .recv_cq = pair->cq[i],
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {PAIR_DEPTH, PAIR_DEPTH, 1, 1, 0}};
        pair->qp[i] = ibv_create_qp(pair->domain, &init);
        if (!pair->qp[i]) {
            fail("QP");
        }
    }
    connect_to(pair->context, pair->qp[0], pair->qp[1]->qp_num);
    connect_to(pair->context, pair->qp[1], pair->qp[0]->qp_num);
    struct ibv_recv_wr receive = {0}, *bad;
    for (int i = 0; i < 32; i++) {
        ibv_post_recv(pair->qp[i % 2], &receive, &bad);
    }
}

static inline void pair_open(struct pair *pair)
{
    pair_open_on(pair, 0);
}

static inline struct ibv_wc wait_for(struct ibv_cq *from)
{
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(from, 1, &wc)) == 0) {
    }
    if (n < 0 || wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}

/* A WRITE with immediate data there, and one back. */
static inline void pair_round_trip(struct pair *pair)
{
    struct ibv_sge sge = {(uintptr_t)pair->memory, 8, pair->region->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
    struct ibv_send_wr *bad;
    struct ibv_recv_wr receive = {0}, *bad_receive;
    bool signaled = pair->round_trips++ % 64 == 0;
    wr.wr.rdma.remote_addr = (uintptr_t)&pair->memory[512];
    wr.wr.rdma.rkey = pair->region->rkey;
    wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
    for (int side = 0; side < 2; side++) {
        if (ibv_post_send(pair->qp[side], &wr, &bad)) {
            fail("post");
        }
        if (signaled) {
            wait_for(pair->cq[side]);
        }
        wait_for(pair->cq[1 - side]);
        ibv_post_recv(pair->qp[1 - side], &receive, &bad_receive);
    }
}

#endif
