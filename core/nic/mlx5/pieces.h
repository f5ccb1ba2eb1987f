/* pieces.h: the payload of a WQE whose memory is in several places. */
#ifndef CORE_NIC_MLX5_PIECES_H
#define CORE_NIC_MLX5_PIECES_H

#include "nic/mlx5/wqe.h"
#include "nic/queue.h"

static inline uint32_t pieces_bytes(const struct nic_piece *pieces, uint32_t count)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
    }
    return bytes;
}

/* Copies them into the WQE. They have `payload` bytes together, at least 1. Returns the place of the next
 * segment. */
static inline uint8_t *pieces_inline(uint8_t *place, const struct nic_piece *pieces, uint32_t count,
                                     uint32_t payload)
{
    struct mlx5_wqe_inl_data_seg *segment = (void *)place;
    uint8_t *to = (uint8_t *)(segment + 1);
    segment->byte_count = htobe32(payload | MLX5_INLINE_SEG);
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].bytes != 0) {
            memcpy(to, (const void *)(uintptr_t)pieces[i].address, pieces[i].bytes);
            to += pieces[i].bytes;
        }
    }
    return place + wqe_inline_bytes(payload);
}

/* A segment for each that has bytes. */
static inline uint8_t *pieces_segments(uint8_t *place, const struct nic_piece *pieces,
                                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (likely(pieces[i].bytes != 0)) {
            place = wqe_data(place, pieces[i].address, pieces[i].local_key, pieces[i].bytes);
        }
    }
    return place;
}

#endif
