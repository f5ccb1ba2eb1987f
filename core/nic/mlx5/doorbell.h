/* doorbell.h: a BlueFlame register, which tells the device about new WQEs.
 *
 * Writing the first 8 bytes of a WQE's control segment to the register is a plain doorbell: the
 * device reads the WQE by DMA. Writing the whole WQE is a push: the device reads nothing. A
 * register has two buffers of equal size that are used in turn, so that a write neither waits for
 * the write before nor merges with it (PRM 8.8, "BlueFlame"; rdma-core, providers/mlx5/qp.c,
 * post_send_db).
 *
 * Several queue pairs can have the same register. They then share the turn of its buffers. There is
 * no lock, because only one thread uses a nic.
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
    uint32_t turn;       /* offset of the next buffer */
    copy_function *copy;
    uint32_t users; /* queue pairs that use it */
};

static inline void doorbell_ring(struct doorbell *doorbell, const void *wqe)
{
    uint64_t word;
    memcpy(&word, wqe, sizeof(word));
    *(volatile uint64_t *)(void *)(doorbell->address + doorbell->turn) = word;
    barrier_after_doorbell();
    doorbell->turn ^= doorbell->push_bytes;
}

/* Pushes WQEs that lie one after the other. `bytes` is a multiple of 64, at most push_bytes. */
static inline void doorbell_push(struct doorbell *doorbell, const void *wqes, uint32_t bytes)
{
    doorbell->copy(doorbell->address + doorbell->turn, wqes, bytes);
    barrier_after_doorbell();
    doorbell->turn ^= doorbell->push_bytes;
}

#endif
