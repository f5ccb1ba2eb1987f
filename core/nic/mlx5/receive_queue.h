/* receive_queue.h: a shared receive queue whose receives are all equal and have no memory.
 *
 * The queue is an array of WQEs that are linked by index. The device follows the links, and the
 * doorbell record says how many WQEs it may use. A used WQE goes to the end of the list. All WQEs
 * are equal, so they are written once, and posting only counts: any number of receives costs one
 * store.
 *
 * The last WQE of the list is never used, because the next one is appended to its link.
 * Layout: PRM 8.8 "Shared receive queue"; <infiniband/mlx5dv.h>, struct mlx5_wqe_srq_next_seg.
 */
#ifndef CORE_NIC_MLX5_RECEIVE_QUEUE_H
#define CORE_NIC_MLX5_RECEIVE_QUEUE_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "nic/mlx5/barrier.h"

struct receive_queue {
    uint8_t *buffer;
    uint32_t stride;  /* bytes of a WQE */
    uint32_t entries; /* number of WQEs, including the list's last */
    uint32_t tail;    /* index of the list's last WQE */
    uint32_t counter; /* receives posted so far */
    uint32_t *record;
};

static inline struct mlx5_wqe_srq_next_seg *receive_queue_at(const struct receive_queue *queue,
                                                             uint32_t index)
{
    return (struct mlx5_wqe_srq_next_seg *)(void *)(queue->buffer + (size_t)index * queue->stride);
}

/* Writes every WQE as a receive without memory. Later, only their links change. */
static inline void receive_queue_init(struct receive_queue *queue)
{
    for (uint32_t i = 0; i < queue->entries; i++) {
        struct mlx5_wqe_data_seg *data = (void *)(receive_queue_at(queue, i) + 1);
        *data = (struct mlx5_wqe_data_seg){.lkey = htobe32(MLX5_INVALID_LKEY)};
    }
}

/* Appends a used WQE to the list, so that it can be posted again. Returns false if the index does
 * not exist. */
static inline bool receive_queue_free(struct receive_queue *queue, uint32_t index)
{
    if (unlikely(index >= queue->entries)) {
        return false;
    }
    receive_queue_at(queue, queue->tail)->next_wqe_index = htobe16((uint16_t)index);
    queue->tail = index;
    return true;
}

/* Posts the next `count` WQEs of the list. */
static inline void receive_queue_post(struct receive_queue *queue, uint32_t count)
{
    queue->counter += count;
    barrier_before_record();
    *(volatile uint32_t *)queue->record = htobe32(queue->counter & 0xffffu);
}

#endif
