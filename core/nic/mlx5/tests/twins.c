/* twins.c: see twins.h. */
#include "twins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "place.h"

static struct ibv_context *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    for (uint32_t i = 0; list && list[i]; i++) {
        if (strcmp(ibv_get_device_name(list[i]), place_device(0)) == 0) {
            context = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    assert_non_null(context);
    return context;
}

static struct ibv_cq *create_cq(struct ibv_context *context, uint32_t cqe_bytes)
{
    struct ibv_cq_init_attr_ex attributes = {.cqe = 63};
    struct mlx5dv_cq_init_attr direct = {.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
                                         .cqe_size = (uint16_t)cqe_bytes};
    struct ibv_cq_ex *cq = mlx5dv_create_cq(context, &attributes, &direct);
    assert_non_null(cq);
    return ibv_cq_ex_to_cq(cq);
}

static struct ibv_qp *create_qp(const struct twins *twins, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr attributes = {.send_cq = cq,
                                          .recv_cq = cq,
                                          .cap = {.max_send_wr = TWIN_DEPTH,
                                                  .max_recv_wr = 32,
                                                  .max_send_sge = TWIN_SGES,
                                                  .max_recv_sge = 1,
                                                  .max_inline_data = TWIN_INLINE_BYTES},
                                          .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(twins->pd, &attributes);
    assert_non_null(qp);
    return qp;
}

static void connect(const struct twins *twins, struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_port_attr port;
    union ibv_gid gid;
    const uint8_t gid_index = place_is_infiniband() ? 0 : 3;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .port_num = 1,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
                                                        IBV_ACCESS_REMOTE_READ |
                                                        IBV_ACCESS_REMOTE_ATOMIC};
    assert_int_equal(
        ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    assert_int_equal(ibv_query_gid(twins->context, 1, gid_index, &gid), 0);
    assert_int_equal(ibv_query_port(twins->context, 1, &port), 0);
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .rq_psn = 17,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.port_num = 1,
                    .dlid = port.lid,
                    .is_global = 1,
                    .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}},
    };
    assert_int_equal(ibv_modify_qp(qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                      .sq_psn = 17,
                                      .timeout = 14,
                                      .retry_cnt = 7,
                                      .rnr_retry = 7,
                                      .max_rd_atomic = 4};
    assert_int_equal(ibv_modify_qp(qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static void make(struct twins *twins, struct twin *twin, uint32_t cqe_bytes)
{
    twin->send_cq = create_cq(twins->context, cqe_bytes);
    twin->receive_cq = create_cq(twins->context, cqe_bytes);
    twin->sender = create_qp(twins, twin->send_cq);
    twin->receiver = create_qp(twins, twin->receive_cq);
    connect(twins, twin->sender, twin->receiver->qp_num);
    connect(twins, twin->receiver, twin->sender->qp_num);
}

static void take_over_cq(struct ibv_cq *cq, struct completion_queue *queue)
{
    struct mlx5dv_cq found = {0};
    struct mlx5dv_obj object = {.cq = {.in = cq, .out = &found}};
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
    *queue = (struct completion_queue){.entries = (uint8_t *)found.buf + found.cqe_size - 64,
                                       .mask = found.cqe_cnt - 1,
                                       .shift = found.cqe_size == 64 ? 6 : 7,
                                       .laps = (uint8_t)__builtin_ctz(found.cqe_cnt),
                                       .layout = COMPLETION_PLAIN,
                                       .record = found.dbrec,
                                       .doorbell = found.cq_uar,
                                       .number = found.cqn};
    completion_queue_init(queue);
}

static void take_over(struct twin *twin)
{
    struct mlx5dv_qp found = {0};
    struct mlx5dv_obj object = {.qp = {.in = twin->sender, .out = &found}};
    take_over_cq(twin->send_cq, &twin->sends);
    take_over_cq(twin->receive_cq, &twin->receives);
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    assert_int_equal(found.sq.stride, 64);
    twin->doorbell = (struct doorbell){.address = found.bf.reg,
                                       .push_bytes = found.bf.size,
                                       .copy = copy_function_of(copy_choose()),
                                       .users = 1};
    twin->queue = (struct send_queue){.buffer = found.sq.buf,
                                      .mask = found.sq.wqe_cnt - 1,
                                      .number = twin->sender->qp_num,
                                      .record = &found.dbrec[MLX5_SND_DBR],
                                      .doorbell = &twin->doorbell};
    twin->tracking =
        (struct tracking){.entries = calloc(found.sq.wqe_cnt, sizeof(*twin->tracking.entries)),
                          .mask = found.sq.wqe_cnt - 1};
    found = (struct mlx5dv_qp){0};
    object = (struct mlx5dv_obj){.qp = {.in = twin->receiver, .out = &found}};
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    twin->receive_buffer = found.rq.buf;
    twin->receive_entries = found.rq.wqe_cnt;
    twin->receive_stride = found.rq.stride;
    twin->receive_record = &found.dbrec[MLX5_RCV_DBR];
}

struct twins *twins_new(uint32_t cqe_bytes)
{
    struct twins *twins = calloc(1, sizeof(*twins));
    twins->context = open_device();
    twins->pd = ibv_alloc_pd(twins->context);
    assert_non_null(twins->pd);
    twins->memory = aligned_alloc(4096, 2 * TWIN_BYTES);
    memset(twins->memory, 0, 2 * TWIN_BYTES);
    twins->memory_region = ibv_reg_mr(twins->pd, twins->memory, 2 * TWIN_BYTES,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    assert_non_null(twins->memory_region);
    make(twins, &twins->theirs, cqe_bytes);
    make(twins, &twins->ours, cqe_bytes);
    take_over(&twins->ours);
    return twins;
}

static void unmake(struct twin *twin)
{
    ibv_destroy_qp(twin->sender);
    ibv_destroy_qp(twin->receiver);
    ibv_destroy_cq(twin->send_cq);
    ibv_destroy_cq(twin->receive_cq);
    free(twin->tracking.entries);
}

void twins_delete(struct twins *twins)
{
    unmake(&twins->theirs);
    unmake(&twins->ours);
    ibv_dereg_mr(twins->memory_region);
    free(twins->memory);
    ibv_dealloc_pd(twins->pd);
    ibv_close_device(twins->context);
    free(twins);
}

void twin_post_receive(struct twins *twins, struct twin *twin, bool own, uint64_t id,
                       uint64_t address, uint32_t bytes)
{
    if (!own) {
        struct ibv_sge sge = {.addr = address, .length = bytes, .lkey = twins->memory_region->lkey};
        struct ibv_recv_wr receive = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
        assert_int_equal(ibv_post_recv(twin->receiver, &receive, &bad), 0);
        return;
    }
    uint32_t index = twin->receive_counter++ & (twin->receive_entries - 1);
    uint8_t *place = twin->receive_buffer + (size_t)index * twin->receive_stride;
    uint8_t *next = wqe_data(place, address, twins->memory_region->lkey, bytes);
    if (twin->receive_stride > 16) {
        wqe_data(next, 0, MLX5_INVALID_LKEY, 0);
    }
    twin->receive_ids[index] = id;
    barrier_before_record();
    *(volatile uint32_t *)twin->receive_record = htobe32(twin->receive_counter & 0xffffu);
}

uint8_t twin_opcode(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_SEND:
        return MLX5_OPCODE_SEND;
    case IBV_WR_SEND_WITH_IMM:
        return MLX5_OPCODE_SEND_IMM;
    case IBV_WR_RDMA_WRITE:
        return MLX5_OPCODE_RDMA_WRITE;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return MLX5_OPCODE_RDMA_WRITE_IMM;
    case IBV_WR_RDMA_READ:
        return MLX5_OPCODE_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return MLX5_OPCODE_ATOMIC_CS;
    default:
        return MLX5_OPCODE_ATOMIC_FA;
    }
}

uint32_t twin_wc_opcode(uint8_t opcode)
{
    switch (opcode) {
    case MLX5_OPCODE_RDMA_WRITE:
    case MLX5_OPCODE_RDMA_WRITE_IMM:
        return IBV_WC_RDMA_WRITE;
    case MLX5_OPCODE_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case MLX5_OPCODE_ATOMIC_CS:
        return IBV_WC_COMP_SWAP;
    case MLX5_OPCODE_ATOMIC_FA:
        return IBV_WC_FETCH_ADD;
    default:
        return IBV_WC_SEND;
    }
}
