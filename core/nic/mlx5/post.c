/* post.c: data path of the sending side, and the refill of the receives.
 *
 * May assume that the caller checked nic_send_room(): the ring has room for so many WQEs of the
 * largest kind, and for a NOP at its end.
 */
#include <arpa/inet.h>
#include <assert.h>

#include "nic/mlx5/mlx5.h"

/* The place of a WQE of so many bytes. */
static inline uint8_t *begin(struct mlx5_queue_pair *queue_pair, uint32_t bytes)
{
    struct send_queue *queue = &queue_pair->queue;
    uint32_t filled = 0;
    uint32_t position = queue->producer;
    uint8_t *wqe = send_queue_begin(queue, wqe_blocks(bytes), &filled);
    assert(wqe);
    if (unlikely(filled)) {
        /* Signaled whatever was requested: an error CQE may name any WQE (mlx5.h). */
        tracking_post(&queue_pair->tracking, position, queue->producer,
                      queue_pair->device.base.posted, TRACKING_FILLER);
    }
    return wqe;
}

static inline void end(struct mlx5_queue_pair *queue_pair, uint8_t *wqe, const void *wqe_end,
                       uint8_t opcode, uint32_t immediate, uint32_t flags)
{
    struct nic_queue_pair *base = &queue_pair->device.base;
    struct send_queue *queue = &queue_pair->queue;
    uint32_t position = queue->producer;
    uint8_t control = nic_post_count(base, flags) ? MLX5_WQE_CTRL_CQ_UPDATE : 0;
    send_queue_end(queue, wqe, wqe_end, opcode, control, immediate);
    to_device_nic(base->nic)->send_outstanding++;
    tracking_post(&queue_pair->tracking, position, queue->producer, base->posted,
                  TRACKING_SIGNALED);
}

/* `opcode` is a constant at each call. */
static inline __attribute__((always_inline)) void post_write(struct nic_queue_pair *base,
                                                             uint8_t opcode,
                                                             const struct nic_transfer *transfer,
                                                             uint32_t flags)
{
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    const uint32_t head = sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg);
    bool in_wqe = transfer->bytes <= base->nic->inline_bytes_max;
    uint32_t bytes = head + (in_wqe ? wqe_inline_bytes(transfer->bytes)
                                    : (uint32_t)sizeof(struct mlx5_wqe_data_seg));
    uint8_t *wqe = begin(queue_pair, bytes);
    void *segment = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
    segment = wqe_remote_address(segment, transfer->remote_address, transfer->remote_key);
    if (in_wqe && likely(transfer->bytes != 0)) {
        segment =
            wqe_inline(segment, (const void *)(uintptr_t)transfer->local_address, transfer->bytes);
    } else if (!in_wqe) {
        segment = wqe_data(segment, transfer->local_address, transfer->local_key, transfer->bytes);
    }
    base->stats.inline_wqes += in_wqe;
    end(queue_pair, wqe, segment, opcode,
        opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? htonl(transfer->immediate) : 0, flags);
}

void mlx5_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                               uint32_t flags)
{
    post_write(base, MLX5_OPCODE_RDMA_WRITE_IMM, transfer, flags);
}

void mlx5_post_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                     uint32_t flags)
{
    post_write(base, MLX5_OPCODE_RDMA_WRITE, transfer, flags);
}

void mlx5_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                    uint32_t flags)
{
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    uint8_t *wqe = begin(queue_pair, WQE_BLOCK_BYTES);
    void *segment = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
    segment = wqe_remote_address(segment, transfer->remote_address, transfer->remote_key);
    if (transfer->bytes != 0) {
        segment = wqe_data(segment, transfer->local_address, transfer->local_key, transfer->bytes);
    }
    end(queue_pair, wqe, segment, MLX5_OPCODE_RDMA_READ, 0, flags);
}

void mlx5_ring_doorbell(struct nic_queue_pair *base)
{
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    send_queue_ring(&queue_pair->queue);
    base->stats.doorbells = queue_pair->queue.rings;
}

void mlx5_refill(struct nic *base)
{
    uint32_t missing = base->receive_depth - base->receives_posted;
    if (missing != 0) {
        receive_queue_post(&to_mlx5_nic(base)->receive_queue, missing);
        base->receives_posted += missing;
        base->receive_wqes += missing;
    }
}
