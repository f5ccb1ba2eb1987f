/* wqe_ring.c: see wqe_ring.h. */
#include "wqe_ring.h"

#include <string.h>

#include "nic/mlx5/wqe.h"

bool wqe_ring_watch(struct wqe_ring *ring, struct ibv_qp *qp, struct outcome *outcome)
{
    struct mlx5dv_qp found = {0};
    struct mlx5dv_obj object = {.qp = {.in = qp, .out = &found}};
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP);
    if (os_error) {
        return fails(outcome, "libmlx5 does not tell where a send queue is: %s",
                     strerror(os_error));
    }
    *ring =
        (struct wqe_ring){.buffer = found.sq.buf, .blocks = found.sq.wqe_cnt, .number = qp->qp_num};
    return true;
}

static void copy_wqe(const struct wqe_ring *ring, uint8_t *to, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++) { /* libmlx5's go on at the ring's start */
        memcpy(to + (size_t)i * WQE_BLOCK_BYTES,
               ring->buffer + (size_t)((ring->position + i) & (ring->blocks - 1)) * WQE_BLOCK_BYTES,
               WQE_BLOCK_BYTES);
    }
}

static uint32_t word_at(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return be32toh(word);
}

bool wqe_ring_next(struct wqe_ring *ring, struct wqe *wqe, struct outcome *outcome)
{
    uint32_t opcode = MLX5_OPCODE_NOP;
    while (opcode == MLX5_OPCODE_NOP) {
        copy_wqe(ring, wqe->bytes, 1);
        const uint32_t head = word_at(wqe->bytes), size = word_at(wqe->bytes + 4);
        opcode = head & 0xff;
        wqe->units = size & WQE_UNITS_MAX;
        if (size >> 8 != ring->number || (head >> 8 & 0xffff) != (ring->position & 0xffff)) {
            return fails(outcome,
                         "a WQE begins with 0x%08x 0x%08x: expected index %u of queue pair 0x%06x",
                         head, size, ring->position & 0xffff, ring->number);
        }
        const uint32_t blocks = wqe_blocks(wqe->units * WQE_UNIT_BYTES);
        memset(wqe->bytes, 0, sizeof(wqe->bytes));
        copy_wqe(ring, wqe->bytes, blocks);
        ring->position += blocks;
    }
    wqe->bytes[1] = wqe->bytes[2] = 0;
    memset(wqe->bytes + 4, 0, 3);
    memset(wqe->bytes + wqe->units * WQE_UNIT_BYTES, 0,
           sizeof(wqe->bytes) - wqe->units * WQE_UNIT_BYTES);
    return true;
}

bool wqe_ring_clear_key(struct wqe *wqe, uint32_t at, uint32_t key, struct outcome *outcome)
{
    if (word_at(wqe->bytes + at) != key) {
        return fails(outcome, "a WQE has the key 0x%08x, not 0x%08x, at byte %u",
                     word_at(wqe->bytes + at), key, at);
    }
    memset(wqe->bytes + at, 0, sizeof(key));
    return true;
}

bool wqe_ring_same(const struct wqe *theirs, const struct wqe *ours, const char *what,
                   struct outcome *outcome)
{
    if (theirs->units != ours->units) {
        return fails(outcome, "%s: a WQE of libmlx5 has %u units of 16 bytes, and ours %u", what,
                     theirs->units, ours->units);
    }
    for (uint32_t i = 0; i < theirs->units * WQE_UNIT_BYTES; i++) {
        if (theirs->bytes[i] != ours->bytes[i]) {
            return fails(outcome,
                         "%s: byte %u of a WQE of %u is 0x%02x by libmlx5, and 0x%02x by us", what,
                         i, theirs->units * WQE_UNIT_BYTES, theirs->bytes[i], ours->bytes[i]);
        }
    }
    return true;
}
