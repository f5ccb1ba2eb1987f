/* posting.h: how a WQE begins and ends, and the payload of a WRITE: what post.c and dynamic_post.c share. */
#ifndef CORE_NIC_MLX5_POSTING_H
#define CORE_NIC_MLX5_POSTING_H

#include "nic/mlx5/mlx5.h"

/* The place of a WQE of so many bytes. */
static inline uint8_t *posting_begin(struct mlx5_queue_pair *queue_pair, uint32_t bytes)
{
    struct send_queue *queue = &queue_pair->queue;
    queue_pair->device.base.place = NULL; /* until the device was told */
    uint32_t filled = 0;
    uint32_t position = queue->producer;
    uint8_t *wqe = send_queue_begin(queue, wqe_blocks(bytes), &filled);
    assume(wqe);
    if (unlikely(filled)) {
        /* Signaled whatever was requested: an error CQE may name any WQE (mlx5.h). */
        tracking_post(&queue_pair->tracking, position, queue->producer,
                      queue_pair->device.base.posted, TRACKING_FILLER);
    }
    return wqe;
}

static inline void posting_end(struct mlx5_queue_pair *queue_pair, uint8_t *wqe,
                               const void *wqe_end, uint8_t opcode, uint32_t immediate,
                               uint32_t flags)
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

/* The payload of a WRITE: in the WQE, or where the device reads it. `readable`: a constant, whether the processor may. Returns the
 * place behind it. */
static inline __attribute__((always_inline)) void *
posting_payload(void *segment, const struct nic_transfer *transfer, bool in_wqe, bool readable)
{
    if (in_wqe && likely(transfer->bytes != 0)) {
        return wqe_inline(segment, (const void *)(uintptr_t)transfer->local_address,
                          transfer->bytes);
    }
    if (!in_wqe && (readable || transfer->bytes != 0)) {
        return wqe_data(segment, transfer->local_address, transfer->local_key, transfer->bytes);
    }
    return segment;
}

#endif
