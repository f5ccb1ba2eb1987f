/* queue_dc.c: DCIs and DCTs by libmlx5, which gives DCIs no ibv_post_send. What was chained is posted by the calls
 * of ibv_wr_post(3) and mlx5dv_wr_post(3). */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>

#include "base/lines.h"
#include "nic/verbs/verbs.h"

/* ---- Making ---------------------------------------------------------------------------------- */

uint32_t verbs_dc_wqes(const struct nic_queue *queue)
{
    /* When a WQE has completed, libmlx5 takes those before it for done, and after one that was late those behind it
     * for open. So it needs twice the places to believe that there is room where there is. */
    return (queue->sends.mask + 1) * (queue->streams > 0 ? 2 : 1);
}

int verbs_dc_create(struct device_queue *base, struct ibv_qp_init_attr_ex *attributes,
                    const struct nic_queue_options *options)
{
    struct verbs_queue *queue = to_verbs_queue(&base->base);
    base->pair.qp = device_dc_create(base, attributes, options);
    if (!base->pair.qp) {
        return errno;
    }
    if (options->kind == NIC_QUEUE_DCI) {
        queue->extended = ibv_qp_to_qp_ex(base->pair.qp);
        queue->ways = lines_alloc(VERBS_QUEUE_CHAIN, sizeof(*queue->ways));
        return queue->ways ? 0 : ENOMEM;
    }
    return 0;
}

/* ---- Posting --------------------------------------------------------------------------------- */

void verbs_dc_chain(struct verbs_queue *queue, uint32_t index, const struct nic_work *work,
                    const struct nic_target *target)
{
    struct nic_queue *base = &queue->device.base;
    queue->ways[index] = (struct verbs_way){.target = target};
    if (base->streams > 0) {
        assert(work->stream < base->streams);
        queue->ways[index].stream = work->stream;
        base->stream_ids[base->sends.producer & base->sends.mask] = work->stream;
    }
}

static void begin(struct ibv_qp_ex *qp, const struct ibv_send_wr *wqe)
{
    qp->wr_id = wqe->wr_id;
    qp->wr_flags = wqe->send_flags & ~(unsigned)IBV_SEND_INLINE;
    switch (wqe->opcode) {
    case IBV_WR_SEND:
        ibv_wr_send(qp);
        break;
    case IBV_WR_SEND_WITH_IMM:
        ibv_wr_send_imm(qp, wqe->imm_data);
        break;
    case IBV_WR_RDMA_WRITE:
        ibv_wr_rdma_write(qp, wqe->wr.rdma.rkey, wqe->wr.rdma.remote_addr);
        break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        ibv_wr_rdma_write_imm(qp, wqe->wr.rdma.rkey, wqe->wr.rdma.remote_addr, wqe->imm_data);
        break;
    case IBV_WR_RDMA_READ:
        ibv_wr_rdma_read(qp, wqe->wr.rdma.rkey, wqe->wr.rdma.remote_addr);
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        ibv_wr_atomic_cmp_swp(qp, wqe->wr.atomic.rkey, wqe->wr.atomic.remote_addr,
                              wqe->wr.atomic.compare_add, wqe->wr.atomic.swap);
        break;
    default:
        assert(wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
        ibv_wr_atomic_fetch_add(qp, wqe->wr.atomic.rkey, wqe->wr.atomic.remote_addr,
                                wqe->wr.atomic.compare_add);
        break;
    }
}

static void set_payload(struct ibv_qp_ex *qp, const struct ibv_send_wr *wqe)
{
    struct ibv_data_buf parts[NIC_QUEUE_PIECES_MAX];
    if (!(wqe->send_flags & IBV_SEND_INLINE)) {
        ibv_wr_set_sge_list(qp, (size_t)wqe->num_sge, wqe->sg_list);
        return;
    }
    for (int i = 0; i < wqe->num_sge; i++) {
        parts[i] = (struct ibv_data_buf){.addr = (void *)(uintptr_t)wqe->sg_list[i].addr,
                                         .length = wqe->sg_list[i].length};
    }
    ibv_wr_set_inline_data_list(qp, (size_t)wqe->num_sge, parts);
}

int verbs_dc_post(struct verbs_queue *queue)
{
    struct ibv_qp_ex *qp = queue->extended;
    struct mlx5dv_qp_ex *dc = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
    const struct verbs_way *way = queue->ways;
    const bool streams = queue->device.base.streams > 0;
    ibv_wr_start(qp);
    for (const struct ibv_send_wr *wqe = queue->chain; wqe; wqe = wqe->next, way++) {
        struct ibv_ah *ah = container_of(way->target, const struct device_target, base)->ah;
        begin(qp, wqe);
        if (streams) {
            mlx5dv_wr_set_dc_addr_stream(dc, ah, way->target->queue_pair_number,
                                         way->target->access_key, way->stream);
        } else {
            mlx5dv_wr_set_dc_addr(dc, ah, way->target->queue_pair_number, way->target->access_key);
        }
        set_payload(qp, wqe);
    }
    return ibv_wr_complete(qp); /* all or none */
}
