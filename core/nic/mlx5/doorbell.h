/* doorbell.h: a BlueFlame register, by which the device learns of new WQEs.
 *
 * The first 8 bytes of a WQE's control segment written to it are a plain doorbell: the device reads
 * the WQE by DMA. More of the WQE written to it is a push: the device has what it needs. A register
 * has two buffers of equal size, used in turn, so that a write to one does not wait for, nor merge
 * with, the one before (PRM 8.8, "BlueFlame"; rdma-core, providers/mlx5/qp.c, post_send_db).
 *
 * Several queue pairs may have the same register, and then they share which buffer's turn it is.
 * One thread uses a nic, so there is no lock.
 */
#ifndef CORE_NIC_MLX5_DOORBELL_H
#define CORE_NIC_MLX5_DOORBELL_H

#include <stdint.h>
#include <string.h>

#include "nic/mlx5/barrier.h"
#include "nic/mlx5/copy.h"

struct doorbell {
    uint8_t *address;
    uint32_t push_bytes; /* size of a buffer; 0 = plain doorbells only */
    uint32_t turn;       /* offset of the buffer that is next */
    enum copy_kind copy;
    uint32_t users; /* queue pairs */
};

static inline void doorbell_ring(struct doorbell *doorbell, const void *wqe)
{
    uint64_t word;
    memcpy(&word, wqe, sizeof(word));
    *(volatile uint64_t *)(void *)(doorbell->address + doorbell->turn) = word;
    barrier_after_doorbell();
    doorbell->turn ^= doorbell->push_bytes;
}

/* bytes: a multiple of 64, at most push_bytes. The WQEs lie one after another. */
static inline void doorbell_push(struct doorbell *doorbell, const void *wqes, uint32_t bytes)
{
    copy_blocks(doorbell->copy, doorbell->address + doorbell->turn, wqes, bytes);
    barrier_after_doorbell();
    doorbell->turn ^= doorbell->push_bytes;
}

#endif
