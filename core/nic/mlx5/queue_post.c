/* queue_post.c: data path of queues with user data: posting.
 *
 * May assume that a WQE of the queue's largest kind fits into WQE_BLOCKS_MAX blocks, and that the op is
 * within the queue's limits (nic/queue.h). */
#include "nic/mlx5/mlx5.h"

#define HEAD_BYTES ((uint32_t)sizeof(struct mlx5_wqe_ctrl_seg))
#define REMOTE_BYTES ((uint32_t)sizeof(struct mlx5_wqe_raddr_seg))
#define ATOMIC_BYTES                                                                               \
    ((uint32_t)(sizeof(struct mlx5_wqe_atomic_seg) + sizeof(struct mlx5_wqe_data_seg)))

static const uint8_t device_opcodes[NIC_OPCODES] = {
    [NIC_SEND] = MLX5_OPCODE_SEND,
    [NIC_SEND_IMMEDIATE] = MLX5_OPCODE_SEND_IMM,
    [NIC_SEND_INVALIDATE] = MLX5_OPCODE_SEND_INVAL,
    [NIC_WRITE] = MLX5_OPCODE_RDMA_WRITE,
    [NIC_WRITE_IMMEDIATE] = MLX5_OPCODE_RDMA_WRITE_IMM,
    [NIC_READ] = MLX5_OPCODE_RDMA_READ,
    [NIC_COMPARE_SWAP] = MLX5_OPCODE_ATOMIC_CS,
    [NIC_FETCH_ADD] = MLX5_OPCODE_ATOMIC_FA,
    [NIC_NOP] = MLX5_OPCODE_NOP,
};

/* Opcodes whose WQE has a remote address. */
#define REMOTE_OPCODES                                                                             \
    (1u << NIC_WRITE | 1u << NIC_WRITE_IMMEDIATE | 1u << NIC_READ | 1u << NIC_COMPARE_SWAP |       \
     1u << NIC_FETCH_ADD)
#define IMMEDIATE_OPCODES                                                                          \
    (1u << NIC_SEND_IMMEDIATE | 1u << NIC_SEND_INVALIDATE | 1u << NIC_WRITE_IMMEDIATE)

static inline uint32_t total_bytes(const struct nic_piece *pieces, uint32_t count)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
    }
    return bytes;
}

/* Bytes behind the control and remote address segments; `payload` is only used inline. */
static inline uint32_t body_bytes(const struct nic_work *work, uint32_t count, uint32_t payload)
{
    if (unlikely(nic_opcode_is_atomic(work->opcode))) {
        return ATOMIC_BYTES;
    }
    if (work->flags & NIC_WORK_INLINE) {
        return payload > 0 ? wqe_inline_bytes(payload) : 0;
    }
    return count * (uint32_t)sizeof(struct mlx5_wqe_data_seg);
}

static inline uint8_t *put_inline(uint8_t *place, const struct nic_piece *pieces, uint32_t count,
                                  uint32_t payload)
{
    if (likely(count == 1)) {
        return wqe_inline(place, (const void *)(uintptr_t)pieces->address, payload);
    }
    struct mlx5_wqe_inl_data_seg *segment = (void *)place;
    uint8_t *to = (uint8_t *)(segment + 1);
    segment->byte_count = htobe32(payload | MLX5_INLINE_SEG);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to, (const void *)(uintptr_t)pieces[i].address, pieces[i].bytes);
        to += pieces[i].bytes;
    }
    return place + wqe_inline_bytes(payload);
}

static inline uint8_t *put_pieces(uint8_t *place, const struct nic_piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (likely(pieces[i].bytes != 0)) {
            place = wqe_data(place, pieces[i].address, pieces[i].local_key, pieces[i].bytes);
        }
    }
    return place;
}

/* The device puts what it finds at the place that the WQE's own position names. */
static inline uint8_t *put_atomic(struct mlx5_queue *queue, uint8_t *place,
                                  const struct nic_work *work, uint32_t position)
{
    uint64_t *result = &queue->base.results[position & queue->sends.mask];
    place = work->opcode == NIC_COMPARE_SWAP ? wqe_compare_swap(place, work->compare, work->operand)
                                             : wqe_fetch_add(place, work->operand);
    return wqe_data(place, (uint64_t)(uintptr_t)result, queue->base.results_keys.local_key,
                    sizeof(*result));
}

/* Bits of nic/queue.h and of the control segment. */
static inline uint8_t control_flags(uint32_t flags)
{
    return (uint8_t)((flags & NIC_WORK_FENCE ? MLX5_WQE_CTRL_FENCE : 0) |
                     (flags & NIC_WORK_SOLICITED ? MLX5_WQE_CTRL_SOLICITED : 0));
}

bool mlx5_queue_post(struct nic_queue *base, const struct nic_work *work,
                     const struct nic_piece *pieces, uint32_t count)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    struct send_queue *sends = &queue->sends;
    const uint32_t opcode = work->opcode;
    const bool remote = REMOTE_OPCODES >> opcode & 1;
    uint32_t payload = work->flags & NIC_WORK_INLINE ? total_bytes(pieces, count) : 0;
    uint32_t bytes = HEAD_BYTES + (remote ? REMOTE_BYTES : 0) + body_bytes(work, count, payload);
    uint32_t filled = 0;
    uint32_t position = sends->producer;
    assert(!base->failed && !base->stopped && opcode >= NIC_SEND && opcode <= NIC_NOP);
    assert(wqe_blocks(bytes) <= WQE_BLOCKS_MAX);
    uint8_t *wqe = send_queue_begin(sends, wqe_blocks(bytes), &filled);
    if (unlikely(!wqe)) {
        return false;
    }
    if (unlikely(filled)) {
        tracking_post(&base->sends, position, sends->producer, 0, TRACKING_FILLER);
        position = sends->producer;
    }
    uint8_t *place = wqe + HEAD_BYTES;
    if (remote) {
        place = wqe_remote_address(place, work->remote_address, work->remote_key);
    }
    if (unlikely(nic_opcode_is_atomic(work->opcode))) {
        place = put_atomic(queue, place, work, position);
    } else if (!(work->flags & NIC_WORK_INLINE)) {
        place = put_pieces(place, pieces, count);
    } else if (likely(payload > 0)) {
        place = put_inline(place, pieces, count, payload);
    }
    bool signaled = nic_queue_wants_cqe(base, work->flags, wqe_blocks((uint32_t)(place - wqe)));
    send_queue_end(sends, wqe, place, device_opcodes[opcode],
                   control_flags(work->flags) | (signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0),
                   IMMEDIATE_OPCODES >> opcode & 1 ? htobe32(work->immediate) : 0);
    tracking_post_op(&base->sends, position, sends->producer, work->user_data,
                     nic_queue_state(base, work->flags), (uint8_t)opcode);
    base->stats.sends++;
    return true;
}

/* ---- Receives -------------------------------------------------------------------------------- */

/* The segments of a receive. A list that is shorter than it may be ends with a key of its own. */
static inline void put_receive(uint8_t *place, const uint8_t *end, const struct nic_piece *pieces,
                               uint32_t count)
{
    place = put_pieces(place, pieces, count);
    if (place != end) {
        struct mlx5_wqe_data_seg *last = (void *)place;
        *last = (struct mlx5_wqe_data_seg){.lkey = htobe32(MLX5_INVALID_LKEY)};
    }
}

bool mlx5_queue_receive(struct nic_queue *base, uint64_t user_data, const struct nic_piece *pieces,
                        uint32_t count)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    uint32_t index;
    assert(!base->failed && !base->stopped && base->receiver == base);
    assert(count <= base->receive_pieces);
    if (unlikely(base->receives_open == base->receives_max)) {
        return false;
    }
    if (base->kind == NIC_QUEUE_SRQ) {
        index = queue->list_head;
        struct mlx5_wqe_srq_next_seg *next = receive_queue_at(&queue->list, index);
        queue->list_head = be16toh(next->next_wqe_index);
        put_receive((uint8_t *)(next + 1), (const uint8_t *)next + queue->receive_stride, pieces,
                    count);
    } else {
        index = queue->receive_counter & base->receives.mask;
        uint8_t *wqe = queue->receive_buffer + (size_t)index * queue->receive_stride;
        put_receive(wqe, wqe + queue->receive_stride, pieces, count);
    }
    queue->receive_counter++;
    tracking_receive_post(&base->receives, index, user_data);
    base->receives_open++;
    base->stats.receives++;
    return true;
}

/* ---- Ringing --------------------------------------------------------------------------------- */

void mlx5_queue_ring(struct nic_queue *base)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    struct send_queue *sends = &queue->sends;
    if (queue->receive_rung != queue->receive_counter) {
        queue->receive_rung = queue->receive_counter;
        barrier_before_record();
        *(volatile uint32_t *)queue->receive_record = htobe32(queue->receive_counter & 0xffffu);
    }
    if (sends->rung == sends->producer) {
        return;
    }
    if (nic_queue_wants_last_cqe(base)) {
        struct mlx5_wqe_ctrl_seg *control = send_queue_at(sends, sends->last);
        control->fm_ce_se |= MLX5_WQE_CTRL_CQ_UPDATE;
    }
    send_queue_ring(sends);
    base->stats.doorbells = sends->rings;
}
