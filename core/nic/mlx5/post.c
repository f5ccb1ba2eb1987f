/* post.c: data path of the sending side, and the refill of the receives.
 *
 * May assume that the caller checked nic_send_room(): the ring has room for so many WQEs of the
 * largest kind, and for a NOP at its end.
 */
#include <arpa/inet.h>
#include <assert.h>

#include "nic/mlx5/mlx5.h"
#include "nic/mlx5/pieces.h"
#include "nic/mlx5/posting.h"

/* ---- Ringing --------------------------------------------------------------------------------- */

/* The WQE behind a bind or an invalidate waits for it, as libmlx5 has it. Which WQE that is, is known
 * when there is one, so this is done before the device hears of it: a WRITE alone costs nothing more.
 * A NOP that fills the ring's end has no effect to wait with, so the one behind it waits, too. */
static __attribute__((noinline)) void set_fence(struct mlx5_queue_pair *queue_pair)
{
    struct send_queue *queue = &queue_pair->queue;
    uint32_t position = queue_pair->fence_position;
    bool filler = true;
    while (filler && position != queue->producer) {
        struct mlx5_wqe_ctrl_seg *control = send_queue_at(queue, position);
        filler = (be32toh(control->opmod_idx_opcode) & 0xffu) == MLX5_OPCODE_NOP;
        if (!(control->fm_ce_se & MLX5_WQE_CTRL_FENCE)) { /* which includes the small one */
            control->fm_ce_se |= MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
        }
        position += wqe_blocks((be32toh(control->qpn_ds) & WQE_UNITS_MAX) * WQE_UNIT_BYTES);
    }
    queue_pair->fence_position = position;
    queue_pair->fence_wanted = filler;
}

/* Where the payload of a short WRITE goes if its WQE begins here. NULL if a push from here might be cut by the ring's end. */
static inline uint8_t *place_at(const struct mlx5_queue_pair *queue_pair, uint8_t *wqe)
{
    uint8_t *const place = wqe + WQE_PUSH_HEAD_BYTES;
    return likely(place <= queue_pair->last_place) ? place : NULL;
}

/* Inline, since the one WRITE that a flush posts is rung at once. */
static inline void ring(struct mlx5_queue_pair *queue_pair)
{
    struct nic_queue_pair *base = &queue_pair->device.base;
    struct send_queue *queue = &queue_pair->queue;
    if (unlikely(queue_pair->fence_wanted)) {
        set_fence(queue_pair);
    }
    base->stats.doorbells += send_queue_ring(queue);
    base->place = unlikely(queue_pair->fence_wanted || base->failed)
                      ? NULL
                      : place_at(queue_pair, send_queue_at(queue, queue->producer));
}

void mlx5_ring_doorbell(struct nic_queue_pair *base)
{
    ring(to_mlx5_queue_pair(base));
}

/* ---- Posting --------------------------------------------------------------------------------- */

/* `opcode` is a constant at each call, and so is whether the payload may be read here. */
static inline __attribute__((always_inline)) void post_write(struct nic_queue_pair *base,
                                                             uint8_t opcode, bool readable,
                                                             const struct nic_transfer *transfer,
                                                             uint32_t flags)
{
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    const uint32_t head = sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg);
    bool in_wqe = readable && transfer->bytes <= base->nic->inline_bytes_max;
    uint32_t bytes = head + (in_wqe ? wqe_inline_bytes(transfer->bytes)
                                    : (uint32_t)sizeof(struct mlx5_wqe_data_seg));
    uint8_t *wqe = posting_begin(queue_pair, bytes);
    void *segment = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
    segment = wqe_remote_address(segment, transfer->remote_address, transfer->remote_key);
    segment = posting_payload(segment, transfer, in_wqe, readable);
    base->stats.inline_wqes += in_wqe;
    posting_end(queue_pair, wqe, segment, opcode,
                opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? htonl(transfer->immediate) : 0, flags);
}

/* Batches of calls are so many bytes, or a multiple. */
#define COPY_UNIT_BYTES 32u

/* Half a unit, in one load or store. */
typedef uint64_t half_unit __attribute__((vector_size(16), aligned(4), may_alias));

/* Whole units, and not none. */
static inline void copy_units(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    intptr_t i = -(intptr_t)bytes; /* one index for both, which counts up to 0 */
    to += bytes;
    from += bytes;
    do {
        const half_unit low = *(const half_unit *)(const void *)(from + i);
        const half_unit high = *(const half_unit *)(const void *)(from + i + sizeof(low));
        *(half_unit *)(void *)(to + i) = low;
        *(half_unit *)(void *)(to + i + sizeof(low)) = high;
        i += COPY_UNIT_BYTES;
    } while (i != 0);
}

/* None of the three is inlined, since its frame would be that of the others. */
static __attribute__((noinline)) void post_one_of_several(struct nic_queue_pair *base,
                                                          const struct nic_transfer *transfer,
                                                          uint32_t flags)
{
    post_write(base, MLX5_OPCODE_RDMA_WRITE_IMM, true, transfer, flags);
}

static __attribute__((noinline)) void
post_and_ring(struct nic_queue_pair *base, const struct nic_transfer *transfer, uint32_t flags)
{
    post_write(base, MLX5_OPCODE_RDMA_WRITE_IMM, true, transfer, flags);
    ring(to_mlx5_queue_pair(base));
}

/* A call that is waited for is a short WRITE, of which the device hears at once, and which has all of a push. Its place says that
 * nothing is needed of what others may need: no filler, no fence, no doorbell for several WQEs, and that the queue pair has
 * not failed. The payload is there already. */
uint32_t mlx5_post_written(struct nic_queue_pair *base, uint64_t remote_address,
                           uint32_t remote_key, uint32_t bytes, uint32_t immediate)
{
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    struct send_queue *queue = &queue_pair->queue;
    assert(base->place && nic_send_room(base) > 0 && bytes - 1 < NIC_PLACE_BYTES &&
           queue->producer == queue->rung && !queue_pair->fence_wanted && !base->failed);
    uint8_t *const wqe = base->place - WQE_PUSH_HEAD_BYTES;
    const uint32_t position = queue->producer, blocks = wqe_blocks(WQE_PUSH_HEAD_BYTES + bytes);
    base->place = place_at(queue_pair, wqe + (size_t)blocks * WQE_BLOCK_BYTES);
    struct mlx5_wqe_inl_data_seg *const segment =
        wqe_remote_address(wqe + sizeof(struct mlx5_wqe_ctrl_seg), remote_address, remote_key);
    segment->byte_count = htobe32(bytes | MLX5_INLINE_SEG);
    const uint32_t units = (WQE_PUSH_HEAD_BYTES + bytes + WQE_UNIT_BYTES - 1) / WQE_UNIT_BYTES;
    wqe_control(wqe, position, MLX5_OPCODE_RDMA_WRITE_IMM, queue->number, units, 0,
                htonl(immediate));
    base->stats.written++;
    base->posted++;
    if (unlikely(nic_post_signals(base))) {
        ((struct mlx5_wqe_ctrl_seg *)(void *)wqe)->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
    }
    to_device_nic(base->nic)->send_outstanding++;
    tracking_note(&queue_pair->tracking, position, blocks, base->posted, TRACKING_SIGNALED, 0);
    send_queue_push(queue, wqe, blocks, position + blocks);
    return 1;
}

static __attribute__((noinline)) void
post_and_push(struct nic_queue_pair *base, const struct nic_transfer *transfer, uint32_t flags)
{
    const uint32_t bytes = transfer->bytes;
    if (unlikely(!base->place || bytes - 1 >= NIC_PLACE_BYTES || bytes % COPY_UNIT_BYTES != 0 ||
                 (flags & NIC_POST_SIGNALED))) {
        post_and_ring(base, transfer, flags);
        return;
    }
    copy_units(base->place, (const uint8_t *)(uintptr_t)transfer->local_address, bytes);
    mlx5_post_written(base, transfer->remote_address, transfer->remote_key, bytes,
                      transfer->immediate);
}

void mlx5_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                               uint32_t flags)
{
    if (likely(flags & NIC_POST_RING)) {
        post_and_push(base, transfer, flags);
    } else {
        post_one_of_several(base, transfer, flags);
    }
}

void mlx5_post_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                     uint32_t flags)
{
    post_write(base, MLX5_OPCODE_RDMA_WRITE, true, transfer, flags);
}

void mlx5_post_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                             uint32_t flags)
{
    if (flags & NIC_POST_IMMEDIATE) {
        post_write(base, MLX5_OPCODE_RDMA_WRITE_IMM, false, transfer, flags);
    } else {
        post_write(base, MLX5_OPCODE_RDMA_WRITE, false, transfer, flags);
    }
}

void mlx5_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                    uint32_t flags)
{
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    uint8_t *wqe = posting_begin(queue_pair, WQE_BLOCK_BYTES);
    void *segment = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
    segment = wqe_remote_address(segment, transfer->remote_address, transfer->remote_key);
    if (transfer->bytes != 0) {
        segment = wqe_data(segment, transfer->local_address, transfer->local_key, transfer->bytes);
    }
    posting_end(queue_pair, wqe, segment, MLX5_OPCODE_RDMA_READ, 0, flags);
}

void mlx5_post_pieces(struct nic_queue_pair *base, bool read, const struct nic_transfer *transfer,
                      const struct nic_piece *pieces, uint32_t count, uint32_t flags)
{
    const bool in_wqe = flags & NIC_POST_INLINE;
    if (!nic_post_begin(base, transfer)) {
        return;
    }
    assert(count <= base->nic->pieces_max &&
           !(read && (flags & (NIC_POST_INLINE | NIC_POST_IMMEDIATE))));
    assert(pieces_bytes(pieces, count) == transfer->bytes);
    assert(!in_wqe || transfer->bytes <= base->nic->inline_bytes_max);
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    const uint32_t head = sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg);
    uint32_t bytes = head + (in_wqe ? wqe_inline_bytes(transfer->bytes)
                                    : count * (uint32_t)sizeof(struct mlx5_wqe_data_seg));
    uint8_t *wqe = posting_begin(queue_pair, bytes);
    uint8_t *segment = wqe_remote_address(wqe + sizeof(struct mlx5_wqe_ctrl_seg),
                                          transfer->remote_address, transfer->remote_key);
    if (!in_wqe) {
        segment = pieces_segments(segment, pieces, count);
    } else if (transfer->bytes != 0) {
        segment = pieces_inline(segment, pieces, count, transfer->bytes);
    }
    base->stats.inline_wqes += in_wqe;
    if (flags & NIC_POST_IMMEDIATE) {
        posting_end(queue_pair, wqe, segment, MLX5_OPCODE_RDMA_WRITE_IMM,
                    htonl(transfer->immediate), flags);
    } else {
        posting_end(queue_pair, wqe, segment, read ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE,
                    0, flags);
    }
}

/* ---- Atomics, and the order behind READs ----------------------------------------------------- */

void mlx5_post_atomic(struct nic_queue_pair *base, const struct nic_atomic *atomic, uint32_t flags)
{
    static const struct nic_transfer none;
    if (!nic_post_begin(base, &none)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    assert(base->nic->atomics);
    uint8_t *wqe = posting_begin(queue_pair, WQE_BLOCK_BYTES);
    void *segment = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
    segment = wqe_remote_address(segment, atomic->remote_address, atomic->remote_key);
    segment = atomic->swap ? wqe_compare_swap(segment, atomic->compare, atomic->operand)
                           : wqe_fetch_add(segment, atomic->operand);
    segment = wqe_data(segment, atomic->local_address, atomic->local_key, sizeof(atomic->operand));
    posting_end(queue_pair, wqe, segment,
                atomic->swap ? MLX5_OPCODE_ATOMIC_CS : MLX5_OPCODE_ATOMIC_FA, 0, flags);
}

void mlx5_fence_last(struct nic_queue_pair *base)
{
    struct send_queue *queue = &to_mlx5_queue_pair(base)->queue;
    if (likely(queue->producer != queue->rung)) { /* a post on a failed queue pair is discarded */
        struct mlx5_wqe_ctrl_seg *control = send_queue_at(queue, queue->last);
        control->fm_ce_se |= MLX5_WQE_CTRL_FENCE;
    }
}

/* ---- Windows --------------------------------------------------------------------------------- */

static void end_local(struct mlx5_queue_pair *queue_pair, uint8_t *wqe, const void *wqe_end,
                      uint32_t key, uint32_t flags)
{
    posting_end(queue_pair, wqe, wqe_end, MLX5_OPCODE_UMR, htobe32(key), flags);
    if (queue_pair->fence_wanted) {
        set_fence(queue_pair);
    }
    queue_pair->fence_position = queue_pair->queue.producer;
    queue_pair->fence_wanted = true;
}

static uint8_t rights_of(uint32_t access)
{
    return (uint8_t)((access & CRPC_ACCESS_REMOTE_WRITE
                          ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE
                          : 0) |
                     (access & CRPC_ACCESS_REMOTE_READ
                          ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ
                          : 0) |
                     (access & CRPC_ACCESS_REMOTE_ATOMIC ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC
                                                         : 0));
}

void mlx5_post_bind(struct nic_queue_pair *base, struct nic_window *window,
                    const struct nic_keys *memory, uint64_t address, uint32_t bytes, uint32_t flags)
{
    static const struct nic_transfer none;
    if (!nic_post_begin(base, &none)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    uint32_t before = window->remote_key;
    assert(bytes > 0);
    uint8_t *wqe = posting_begin(queue_pair, WQE_BIND_BYTES);
    window->remote_key = nic_window_next_key(before);
    void *wqe_end =
        wqe_bind(wqe + sizeof(struct mlx5_wqe_ctrl_seg), address, bytes, memory->local_key,
                 base->number, window->remote_key, rights_of(window->access));
    end_local(queue_pair, wqe, wqe_end, before, flags);
}

void mlx5_post_invalidate(struct nic_queue_pair *base, struct nic_window *window, uint32_t flags)
{
    static const struct nic_transfer none;
    if (!nic_post_begin(base, &none)) {
        return;
    }
    struct mlx5_queue_pair *queue_pair = to_mlx5_queue_pair(base);
    uint8_t *wqe = posting_begin(queue_pair, WQE_INVALIDATE_BYTES);
    void *wqe_end = wqe_invalidate(wqe + sizeof(struct mlx5_wqe_ctrl_seg));
    end_local(queue_pair, wqe, wqe_end, window->remote_key, flags);
}

/* ---- Receives -------------------------------------------------------------------------------- */

void mlx5_refill(struct nic *base)
{
    uint32_t missing = base->receive_depth - base->receives_posted;
    if (missing != 0) {
        receive_queue_post(&to_mlx5_nic(base)->receive_queue, missing);
        base->receives_posted += missing;
        base->receive_wqes += missing;
    }
}
