/* wqe.h: builds a WQE from segments. Each function writes one segment and returns the place of the
 * next; what order they come in is the caller's business, as it is the opcode's:
 *
 *   SEND, SEND_IMM             control, any number of data or inline
 *   RDMA_WRITE, _WRITE_IMM     control, remote address, any number of data or inline
 *   RDMA_READ                  control, remote address, data
 *   ATOMIC_CS, ATOMIC_FA       control, remote address, atomic, data
 *   NOP                        control
 *
 * Inline and data segments may be mixed: a header in the WQE, the body gathered. The control
 * segment is written last, when the length is known (send_queue.h does).
 *
 * Layouts: Ethernet Adapters Programming Manual (PRM) 0.40, 8.9.4 "Send WQE construction";
 * <infiniband/mlx5dv.h>. Everything is big-endian. Segments are multiples of 16 bytes, and a WQE
 * never wraps around here, since send_queue.h fills the ring's end with a NOP.
 */
#ifndef CORE_NIC_MLX5_WQE_H
#define CORE_NIC_MLX5_WQE_H

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define WQE_UNIT_BYTES 16u  /* of which the control segment counts the length */
#define WQE_BLOCK_BYTES 64u /* of which the send queue is made */
#define WQE_UNITS_MAX 63u   /* what the control segment's six bits can say */
#define WQE_BLOCKS_MAX 16u

/* What a segment of so many bytes of inline data takes. */
static inline uint32_t wqe_inline_bytes(uint32_t bytes)
{
    return (uint32_t)align_up(sizeof(struct mlx5_wqe_inl_data_seg) + bytes, WQE_UNIT_BYTES);
}

static inline uint32_t wqe_blocks(uint32_t bytes)
{
    return (bytes + WQE_BLOCK_BYTES - 1) / WQE_BLOCK_BYTES;
}

static inline void *wqe_remote_address(void *place, uint64_t address, uint32_t key)
{
    struct mlx5_wqe_raddr_seg *segment = place;
    segment->raddr = htobe64(address);
    segment->rkey = htobe32(key);
    segment->reserved = 0;
    return segment + 1;
}

/* bytes: at least 1; 0 would mean 2 GiB. */
static inline void *wqe_data(void *place, uint64_t address, uint32_t key, uint32_t bytes)
{
    struct mlx5_wqe_data_seg *segment = place;
    segment->byte_count = htobe32(bytes);
    segment->lkey = htobe32(key);
    segment->addr = htobe64(address);
    return segment + 1;
}

/* The data is part of the WQE, so the device need not read it by DMA. What is left of the last
 * unit is not looked at by the device. */
static inline void *wqe_inline(void *place, const void *data, uint32_t bytes)
{
    struct mlx5_wqe_inl_data_seg *segment = place;
    segment->byte_count = htobe32(bytes | MLX5_INLINE_SEG);
    memcpy(segment + 1, data, bytes);
    return (uint8_t *)place + wqe_inline_bytes(bytes);
}

static inline void *wqe_compare_swap(void *place, uint64_t compare, uint64_t swap)
{
    struct mlx5_wqe_atomic_seg *segment = place;
    segment->swap_add = htobe64(swap);
    segment->compare = htobe64(compare);
    return segment + 1;
}

static inline void *wqe_fetch_add(void *place, uint64_t add)
{
    struct mlx5_wqe_atomic_seg *segment = place;
    segment->swap_add = htobe64(add);
    segment->compare = 0;
    return segment + 1;
}

/* Flags of the control segment: MLX5_WQE_CTRL_CQ_UPDATE (ask for a completion), _SOLICITED, _FENCE.
 * immediate: as it goes on the wire, so in network byte order. index: of the WQE's first block,
 * counted without end. */
static inline void wqe_control(void *wqe, uint32_t index, uint8_t opcode, uint32_t number,
                               uint32_t units, uint8_t flags, uint32_t immediate)
{
    struct mlx5_wqe_ctrl_seg *control = wqe;
    control->opmod_idx_opcode = htobe32((index & 0xffffu) << 8 | opcode);
    control->qpn_ds = htobe32(number << 8 | units);
    /* signature, reserved bytes and flags as one word */
    uint32_t word = htobe32(flags);
    memcpy(&control->signature, &word, sizeof(word));
    control->imm = immediate;
}

#endif
