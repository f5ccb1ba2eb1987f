/* rate.c: how fast a device is within one process: 8-byte WRITEs in lists of 32, and round trips of
 * WRITE_IMM between two QPs. Prints one line of JSON. Run it under `simnic run`. Times say
 * something about the machine; compare them with others of the same run only. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIST 32
#define DEPTH 1024

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_cq *cq[2];
static struct ibv_qp *qp[2];
static struct ibv_mr *region;
static uint64_t memory[1024];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void connect_to(struct ibv_qp *from, uint32_t to)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    if (ibv_modify_qp(from, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        fail("INIT");
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_4096,
                             .dest_qp_num = to,
                             .max_dest_rd_atomic = 1,
                             .min_rnr_timer = 1,
                             .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3}}};
    if (ibv_query_gid(context, 1, 3, &a.ah_attr.grh.dgid))
        fail("GID");
    if (ibv_modify_qp(from, &a,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        fail("RTR");
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    if (ibv_modify_qp(from, &a,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        fail("RTS");
}

static void open_all(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list || !list[0] || !(context = ibv_open_device(list[0])))
        fail("no device");
    domain = ibv_alloc_pd(context);
    region = ibv_reg_mr(domain, memory, sizeof memory,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    for (int i = 0; i < 2; i++) {
        cq[i] = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
        struct ibv_qp_init_attr init = {.send_cq = cq[i],
                                        .recv_cq = cq[i],
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {DEPTH, DEPTH, 1, 1, 0}};
        qp[i] = ibv_create_qp(domain, &init);
        if (!qp[i])
            fail("QP");
    }
    connect_to(qp[0], qp[1]->qp_num);
    connect_to(qp[1], qp[0]->qp_num);
}

static struct ibv_wc wait_for(struct ibv_cq *from)
{
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(from, 1, &wc)) == 0)
        ;
    if (n < 0 || wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}

static double write_rate(long count)
{
    struct ibv_sge sge = {(uintptr_t)memory, 8, region->lkey};
    struct ibv_send_wr wr[LIST], *bad;
    for (int i = 0; i < LIST; i++) {
        wr[i] = (struct ibv_send_wr){.next = i + 1 < LIST ? &wr[i + 1] : NULL,
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_WRITE,
                                     .send_flags = i + 1 < LIST ? 0 : IBV_SEND_SIGNALED};
        wr[i].wr.rdma.remote_addr = (uintptr_t)&memory[512];
        wr[i].wr.rdma.rkey = region->rkey;
    }
    double start = now();
    long posted = 0, completed = 0;
    while (completed < count) {
        while (posted < count && posted - completed <= DEPTH - 2 * LIST) {
            if (ibv_post_send(qp[0], wr, &bad))
                fail("post");
            posted += LIST;
        }
        wait_for(cq[0]);
        completed += LIST;
    }
    return (double)completed / (now() - start);
}

static double round_trip_ns(long count)
{
    struct ibv_sge sge = {(uintptr_t)memory, 8, region->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
                       *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)&memory[512];
    wr.wr.rdma.rkey = region->rkey;
    struct ibv_recv_wr receive = {0}, *bad_receive;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 16; j++)
            ibv_post_recv(qp[i], &receive, &bad_receive);
    double start = now();
    for (long i = 0; i < count; i++)
        for (int side = 0; side < 2; side++) {
            wr.send_flags = i % 64 == 0 ? IBV_SEND_SIGNALED : 0;
            if (ibv_post_send(qp[side], &wr, &bad))
                fail("post");
            if (i % 64 == 0)
                wait_for(cq[side]);
            wait_for(cq[1 - side]);
            ibv_post_recv(qp[1 - side], &receive, &bad_receive);
        }
    return (now() - start) * 1e9 / (double)count;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 2000000;
    open_all();
    write_rate(count / 10); /* to warm up */
    double rate = write_rate(count), ns = round_trip_ns(count / 20);
    printf("{\"writes_per_second\": %.0f, \"write_imm_round_trip_ns\": %.0f}\n", rate, ns);
    return 0;
}
