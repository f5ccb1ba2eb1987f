/* wqe.h: builds a WQE from segments. Each function writes one segment, and returns the place of the
 * next. The caller chooses their order, which depends on the opcode:
 *
 *   SEND, _IMM, _INVAL         control, any number of data or inline
 *   RDMA_WRITE, _WRITE_IMM     control, remote address, any number of data or inline
 *   RDMA_READ                  control, remote address, data
 *   ATOMIC_CS, ATOMIC_FA       control, remote address, atomic, data
 *   UMR                        control, window: binds or invalidates a memory window
 *   NOP                        control
 *
 * A queue pair without a peer has an address behind the control segment of each, but for UMR and NOP.
 *
 * Inline and data segments may be mixed, e.g. a header in the WQE and a gathered body. send_queue.h
 * writes the control segment last, when the length is known.
 *
 * Layouts: Ethernet Adapters Programming Manual (PRM) 0.40, 8.9.4 "Send WQE construction";
 * <infiniband/mlx5dv.h>. Everything is big-endian. Segments are multiples of 16 bytes. A WQE
 * never wraps around, because send_queue.h fills the ring's end with a NOP.
 */
#ifndef CORE_NIC_MLX5_WQE_H
#define CORE_NIC_MLX5_WQE_H

#include <assert.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define WQE_UNIT_BYTES 16u  /* the control segment gives the length in these units */
#define WQE_BLOCK_BYTES 64u /* the send queue consists of these blocks */
#define WQE_UNITS_MAX 63u   /* limit of the control segment's six bits */
#define WQE_BLOCKS_MAX 16u

/* Returns the size of a segment with `bytes` bytes of inline data. */
static inline uint32_t wqe_inline_bytes(uint32_t bytes)
{
    return (uint32_t)align_up(sizeof(struct mlx5_wqe_inl_data_seg) + bytes, WQE_UNIT_BYTES);
}

/* What is before the payload of a WRITE that is in its WQE. */
#define WQE_PUSH_HEAD_BYTES                                                                        \
    ((uint32_t)(sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg) +             \
                sizeof(struct mlx5_wqe_inl_data_seg)))

static inline uint32_t wqe_blocks(uint32_t bytes)
{
    return (bytes + WQE_BLOCK_BYTES - 1) / WQE_BLOCK_BYTES;
}

static inline void *wqe_remote_address(void *place, uint64_t address, uint32_t key)
{
    struct mlx5_wqe_raddr_seg *segment = place;
    static_assert(offsetof(struct mlx5_wqe_raddr_seg, rkey) == 8 &&
                      offsetof(struct mlx5_wqe_raddr_seg, reserved) == 12,
                  "one word");
    segment->raddr = htobe64(address);
    const uint64_t word = htole64(htobe32(key)); /* and zeros */
    memcpy(&segment->rkey, &word, sizeof(word));
    return segment + 1;
}

/* Where a datagram goes, or an op of a DCI. */
static inline void *wqe_address(void *place, const struct mlx5_wqe_av *address)
{
    struct mlx5_wqe_datagram_seg *segment = place;
    segment->av = *address;
    return segment + 1;
}

/* `bytes` must be at least 1; 0 would mean 2 GiB. */
static inline void *wqe_data(void *place, uint64_t address, uint32_t key, uint32_t bytes)
{
    struct mlx5_wqe_data_seg *segment = place;
    segment->byte_count = htobe32(bytes);
    segment->lkey = htobe32(key);
    segment->addr = htobe64(address);
    return segment + 1;
}

/* Puts the data into the WQE, so that the device need not read it by DMA. The device ignores the
 * rest of the last unit. */
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

#define WQE_BIND_BYTES 192u       /* with the control segment */
#define WQE_INVALIDATE_BYTES 128u /* likewise */

/* The segments behind the control segment of a UMR. In each, zeros are what is not said here. */
static inline uint8_t *wqe_window(void *place, uint8_t flags, uint16_t octowords, uint64_t mask,
                                  uint32_t bytes)
{
    struct mlx5_wqe_umr_ctrl_seg *control = place;
    memset(place, 0, bytes - sizeof(struct mlx5_wqe_ctrl_seg));
    control->flags =
        MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | flags;
    control->klm_octowords = htobe16(octowords);
    control->mkey_mask =
        htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
                MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN | mask);
    return (uint8_t *)(control + 1);
}

/* Binds a window of type 2 to [address, address + bytes) of the memory with the key `memory`, for the
 * peer of queue pair `number`. `rights` are MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*. Only the lowest byte
 * of `key` is new. */
static inline void *wqe_bind(void *place, uint64_t address, uint32_t bytes, uint32_t memory,
                             uint32_t number, uint32_t key, uint8_t rights)
{
    struct mlx5_wqe_mkey_context_seg *context = (struct mlx5_wqe_mkey_context_seg *)wqe_window(
        place, MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE, 4,
        MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC,
        WQE_BIND_BYTES);
    struct mlx5_wqe_umr_klm_seg *piece = (struct mlx5_wqe_umr_klm_seg *)(context + 1);
    context->qpn_mkey = htobe32(number << 8 | (key & 0xffu));
    context->access_flags = rights;
    context->start_addr = htobe64(address);
    context->len = htobe64(bytes);
    piece->byte_count = htobe32(bytes);
    piece->mkey = htobe32(memory);
    piece->address = htobe64(address);
    return (uint8_t *)place + WQE_BIND_BYTES - sizeof(struct mlx5_wqe_ctrl_seg);
}

/* Frees a window that is bound to this queue pair. */
static inline void *wqe_invalidate(void *place)
{
    struct mlx5_wqe_mkey_context_seg *context = (struct mlx5_wqe_mkey_context_seg *)wqe_window(
        place, MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN, 0, 0, WQE_INVALIDATE_BYTES);
    context->free = MLX5_WQE_MKEY_CONTEXT_FREE;
    context->qpn_mkey = htobe32(0xffffff00u);
    return (uint8_t *)place + WQE_INVALIDATE_BYTES - sizeof(struct mlx5_wqe_ctrl_seg);
}

#define WQE_STREAM_SHIFT 8 /* of the stream in the flags of wqe_control */

/* Writes the control segment. `flags` are MLX5_WQE_CTRL_CQ_UPDATE (request a completion),
 * _SOLICITED and _FENCE, and the stream of a DCI. `immediate` is in network byte order. `index` is the position
 * of the WQE's first block. */
static inline void wqe_control(void *wqe, uint32_t index, uint8_t opcode, uint32_t number,
                               uint32_t units, uint32_t flags, uint32_t immediate)
{
    /* Two words: of the fields the compiler makes a vector, which takes longer. */
    static_assert(offsetof(struct mlx5_wqe_ctrl_seg, opmod_idx_opcode) == 0 &&
                      offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds) == 4 &&
                      offsetof(struct mlx5_wqe_ctrl_seg, signature) == 8 &&
                      offsetof(struct mlx5_wqe_ctrl_seg, dci_stream_channel_id) == 9 &&
                      offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 11 &&
                      offsetof(struct mlx5_wqe_ctrl_seg, imm) == 12,
                  "this is what is written");
    uint64_t *words = wqe;
    words[0] = htobe64((uint64_t)((index & 0xffffu) << 8 | opcode) << 32 |
                       (uint32_t)(number << 8 | units));
    words[1] = htobe64((uint64_t)flags << 32 | be32toh(immediate));
}

#endif
