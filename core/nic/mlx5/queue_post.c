/* queue_post.c: data path of queues with user data: posting.
 *
 * May assume that a WQE of the queue's largest kind fits into WQE_BLOCKS_MAX blocks, and that the op is
 * within the queue's limits (nic/queue.h). */
#include "base/copy.h"
#include "nic/mlx5/mlx5.h"
#include "nic/mlx5/pieces.h"

#define HEAD_BYTES ((uint32_t)sizeof(struct mlx5_wqe_ctrl_seg))
#define ADDRESS_BYTES ((uint32_t)sizeof(struct mlx5_wqe_datagram_seg))
#define REMOTE_BYTES ((uint32_t)sizeof(struct mlx5_wqe_raddr_seg))
#define ATOMIC_BYTES                                                                               \
    ((uint32_t)(sizeof(struct mlx5_wqe_atomic_seg) + sizeof(struct mlx5_wqe_data_seg)))

/* NIC_WORK_FENCE and NIC_WORK_SOLICITED, in the control segment. */
static inline uint8_t control_flags(uint32_t flags)
{
    return (uint8_t)((flags & NIC_WORK_FENCE ? MLX5_WQE_CTRL_FENCE : 0) |
                     (flags & NIC_WORK_SOLICITED ? MLX5_WQE_CTRL_SOLICITED : 0));
}

static inline bool has_immediate(uint8_t opcode)
{
    return opcode == NIC_SEND_IMMEDIATE || opcode == NIC_SEND_INVALIDATE ||
           opcode == NIC_WRITE_IMMEDIATE;
}

static inline bool is_remote(uint8_t opcode)
{
    return opcode >= NIC_WRITE && opcode <= NIC_FETCH_ADD;
}

static inline uint8_t device_opcode(uint8_t opcode)
{
    static const uint8_t opcodes[NIC_OPCODES] = {
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
    return opcodes[opcode];
}

/* ---- Any op ---------------------------------------------------------------------------------- */

/* The device puts what it finds at the place that the WQE's own position names. */
static uint8_t *put_atomic(const struct mlx5_queue *queue, uint8_t *place,
                           const struct nic_work *work, uint32_t position)
{
    uint64_t *result = &queue->device.base.results[position & queue->sends.mask];
    place = work->opcode == NIC_COMPARE_SWAP ? wqe_compare_swap(place, work->address, work->operand)
                                             : wqe_fetch_add(place, work->operand);
    return wqe_data(place, (uint64_t)(uintptr_t)result, queue->device.base.results_keys.local_key,
                    sizeof(*result));
}

/* Returns what the control segment says of the op's stream, if the queue has streams. */
static inline uint32_t note_stream(const struct nic_queue *base, const struct nic_work *work,
                                   uint32_t position)
{
    if (base->streams == 0) {
        return 0;
    }
    assert(work->stream < base->streams);
    base->stream_ids[position & base->sends.mask] = work->stream;
    return (uint32_t)work->stream << WQE_STREAM_SHIFT;
}

/* An op of any kind, wherever in the ring; to this target, or to the peer (NULL). Returns false if there is
 * no room. */
static __attribute__((noinline)) bool post_any(struct mlx5_queue *queue,
                                               const struct nic_work *work,
                                               const struct nic_target *target, uint32_t local_key,
                                               const struct nic_piece *pieces)
{
    struct nic_queue *base = &queue->device.base;
    struct send_queue *sends = &queue->sends;
    const bool atomic = nic_opcode_is_atomic(work->opcode);
    const bool in_wqe = work->flags & NIC_WORK_INLINE;
    struct nic_piece one;
    uint32_t count = 0, payload = 0, filled = 0;
    uint32_t position = sends->producer;
    if (work->opcode == NIC_NOP) {
        target = NULL; /* it goes nowhere */
    }
    uint32_t bytes =
        HEAD_BYTES + (target ? ADDRESS_BYTES : 0) + (is_remote(work->opcode) ? REMOTE_BYTES : 0);
    assert(work->opcode >= NIC_SEND && work->opcode <= NIC_NOP && (!atomic || base->results));
    if (!atomic && work->opcode != NIC_NOP) {
        pieces = nic_work_pieces(work, local_key, pieces, &one, &count);
        payload = in_wqe ? pieces_bytes(pieces, count) : 0;
    }
    bytes += atomic        ? ATOMIC_BYTES
             : payload > 0 ? wqe_inline_bytes(payload)
             : in_wqe      ? 0
                           : count * (uint32_t)sizeof(struct mlx5_wqe_data_seg);
    assert(count <= base->send_pieces && payload <= base->inline_bytes);
    assert(wqe_blocks(bytes) <= WQE_BLOCKS_MAX);
    uint8_t *wqe = send_queue_begin(sends, wqe_blocks(bytes), &filled);
    if (!wqe) {
        return false;
    }
    if (filled) {
        tracking_post(&base->sends, position, sends->producer, 0, TRACKING_FILLER);
        position = sends->producer;
    }
    uint8_t *place = wqe + HEAD_BYTES;
    if (target) {
        place = wqe_address(place, &to_mlx5_target(target)->address);
    }
    if (is_remote(work->opcode)) {
        place = wqe_remote_address(place, work->remote_address, work->remote_key);
    }
    place = atomic        ? put_atomic(queue, place, work, position)
            : payload > 0 ? pieces_inline(place, pieces, count, payload)
            : in_wqe      ? place
                          : pieces_segments(place, pieces, count);
    bool signaled = nic_queue_wants_cqe(base, work->flags, wqe_blocks((uint32_t)(place - wqe)));
    send_queue_end(sends, wqe, place, device_opcode(work->opcode),
                   control_flags(work->flags) | (signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                       note_stream(base, work, position),
                   has_immediate(work->opcode) ? htobe32(work->immediate) : 0);
    tracking_post_op(&base->sends, position, sends->producer, work->user_data,
                     nic_queue_state(base, work->flags), work->opcode);
    return true;
}

/* ---- Usual ops ------------------------------------------------------------------------------- */

/* To whom the ops of a queue go. */
enum post_way {
    POST_TO_PEER,
    POST_TO_TARGETS,
    POST_IN_STREAMS, /* to targets; each gets a CQE */
};

/* What changes while usual ops are posted: in local variables, because the compiler would have to load it again
 * behind each store to a WQE. */
struct posting {
    const struct nic_work *work;
    struct nic_target *const *target;
    uint16_t *stream; /* of the WQE, where the queue keeps it */
    uint8_t *wqe;
    struct tracking_entry *entry;
    uint32_t producer;
    uint32_t left; /* blocks to the end of the ring, or of its room */
    uint32_t last;
    uint32_t unsignaled;
    uint32_t cqes;
};

/* The opcode and the flags: the first two bytes of an op. */
static inline uint32_t head_of(const struct nic_work *work)
{
    uint16_t head;
    static_assert(offsetof(struct nic_work, opcode) == 0 && offsetof(struct nic_work, flags) == 1,
                  "they are read at once");
    memcpy(&head, work, sizeof(head));
    return le16toh(head);
}

#define HEAD_FLAGS(flags) ((uint32_t)(flags) << 8)
#define FLAGS_FREE (NIC_WORK_SIGNAL | NIC_WORK_FENCE | NIC_WORK_SOLICITED)

/* Posts the ops that come next, as long as they have this opcode, one piece, which is inline or is not, and fit
 * before the ring's end. What is the same for all is a constant at each call. */
static inline __attribute__((always_inline)) void
post_alike(struct mlx5_queue *queue, struct posting *at, const struct nic_work *works,
           const struct nic_work *end, const uint32_t *local_keys, const uint8_t opcode,
           const bool in_wqe, const enum post_way way)
{
    const bool to_targets = way != POST_TO_PEER;
    const struct nic_queue *base = &queue->device.base;
    const uint32_t number = queue->sends.number;
    const uint32_t interval = base->interval;
    const uint8_t quiet_state = base->quiet_state;
    const uint32_t usual = opcode | HEAD_FLAGS(in_wqe ? NIC_WORK_INLINE : 0);
    const uint32_t head =
        (HEAD_BYTES + (to_targets ? ADDRESS_BYTES : 0) + (is_remote(opcode) ? REMOTE_BYTES : 0)) /
        WQE_UNIT_BYTES;
    while (at->work != end) {
        const struct nic_work *work = at->work;
        uint8_t *wqe = at->wqe;
        const uint32_t payload = work->bytes;
        const uint32_t bytes =
            in_wqe ? wqe_inline_bytes(payload) : (uint32_t)sizeof(struct mlx5_wqe_data_seg);
        const uint32_t units = head + bytes / WQE_UNIT_BYTES;
        const uint32_t blocks = (units + 3) / 4;
        uint8_t state = quiet_state;
        uint32_t control = 0;
        if (unlikely(payload == 0 || blocks > at->left)) {
            break;
        }
        if (unlikely(head_of(work) != usual)) {
            if ((head_of(work) ^ usual) & ~HEAD_FLAGS(FLAGS_FREE)) {
                break;
            }
            control = control_flags(work->flags);
            if (work->flags & NIC_WORK_SIGNAL) {
                state = TRACKING_SIGNALED;
                at->unsignaled = interval;
            }
        }
        at->unsignaled += blocks;
        if (way == POST_IN_STREAMS) {
            *at->stream = work->stream;
            at->stream += blocks;
            control |= (uint32_t)work->stream << WQE_STREAM_SHIFT | MLX5_WQE_CTRL_CQ_UPDATE;
            at->cqes++;
        } else if (unlikely(at->unsignaled >= interval)) {
            control |= MLX5_WQE_CTRL_CQ_UPDATE;
            at->unsignaled = 0;
            at->cqes++;
        }
        uint8_t *place = wqe + HEAD_BYTES;
        if (to_targets) {
            place = wqe_address(place, &to_mlx5_target(*at->target++)->address);
        }
        if (is_remote(opcode)) {
            place = wqe_remote_address(place, work->remote_address, work->remote_key);
        }
        if (in_wqe) {
            struct mlx5_wqe_inl_data_seg *segment = (void *)place;
            segment->byte_count = htobe32(payload | MLX5_INLINE_SEG);
            copy_short(segment + 1, (const void *)(uintptr_t)work->address, payload);
        } else {
            wqe_data(place, work->address, local_keys[work - works], payload);
        }
        wqe_control(wqe, at->producer, device_opcode(opcode), number, units, control,
                    has_immediate(opcode) ? htobe32(work->immediate) : 0);
        *at->entry = (struct tracking_entry){.user_data = work->user_data,
                                             .position = at->producer,
                                             .blocks = (uint16_t)blocks,
                                             .state = state,
                                             .opcode = opcode};
        at->last = at->producer;
        at->producer += blocks;
        at->left -= blocks;
        at->wqe = wqe + (size_t)blocks * WQE_BLOCK_BYTES;
        at->entry += blocks;
        at->work = work + 1;
    }
}

/* Posts the ops of this opcode that come next, as long as they are usual, and returns how many. */
static inline __attribute__((always_inline)) uint32_t
post_usual(struct mlx5_queue *queue, const struct nic_work *works,
           struct nic_target *const *targets, const uint32_t *local_keys, uint32_t count,
           const uint8_t opcode, const enum post_way way)
{
    struct nic_queue *base = &queue->device.base;
    const struct nic_work *const end = works + count;
    const struct nic_work *before;
    const uint32_t producer = queue->sends.producer;
    struct posting at = {
        .work = works,
        .target = targets,
        .stream = way == POST_IN_STREAMS ? &base->stream_ids[producer & base->sends.mask] : NULL,
        .wqe = send_queue_at(&queue->sends, producer),
        .entry = tracking_at(&base->sends, producer),
        .producer = producer,
        .left = (uint32_t)minimum(send_queue_room(&queue->sends),
                                  send_queue_run(&queue->sends, producer)),
        .last = queue->sends.last,
        .unsignaled = base->unsignaled,
    };
    do {
        before = at.work;
        if (opcode != NIC_READ) {
            post_alike(queue, &at, works, end, local_keys, opcode, true, way);
        }
        post_alike(queue, &at, works, end, local_keys, opcode, false, way);
    } while (at.work != before && at.work != end);
    queue->sends.last = at.last;
    queue->sends.producer = base->sends.producer = at.producer;
    base->unsignaled = way == POST_IN_STREAMS ? 0 : at.unsignaled;
    base->stats.signaled += at.cqes;
    return (uint32_t)(at.work - works);
}

/* `way` is a constant. */
static inline __attribute__((always_inline)) uint32_t
post_some(struct mlx5_queue *queue, const struct nic_work *works, struct nic_target *const *targets,
          const uint32_t *local_keys, uint32_t count, const enum post_way way)
{
    switch (works->opcode) {
    case NIC_SEND:
        return post_usual(queue, works, targets, local_keys, count, NIC_SEND, way);
    case NIC_SEND_IMMEDIATE:
        return post_usual(queue, works, targets, local_keys, count, NIC_SEND_IMMEDIATE, way);
    case NIC_WRITE:
        return post_usual(queue, works, targets, local_keys, count, NIC_WRITE, way);
    case NIC_WRITE_IMMEDIATE:
        return post_usual(queue, works, targets, local_keys, count, NIC_WRITE_IMMEDIATE, way);
    case NIC_READ:
        return post_usual(queue, works, targets, local_keys, count, NIC_READ, way);
    default:
        return 0;
    }
}

uint32_t mlx5_queue_post(struct nic_queue *base, const struct nic_work *works,
                         const uint32_t *local_keys, const struct nic_piece *pieces, uint32_t count)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    uint32_t posted = 0;
    assert(!base->failed && !base->stopped);
    while (posted < count) {
        uint32_t some = post_some(queue, works + posted, NULL, local_keys + posted, count - posted,
                                  POST_TO_PEER);
        posted += some;
        if (some == 0) {
            if (!post_any(queue, &works[posted], NULL, local_keys[posted], pieces)) {
                break;
            }
            posted++;
        }
    }
    base->stats.sends += posted;
    return posted;
}

static inline uint32_t post_some_to(struct mlx5_queue *queue, const struct nic_work *works,
                                    struct nic_target *const *targets, const uint32_t *local_keys,
                                    uint32_t count)
{
    const struct nic_queue *base = &queue->device.base;
    assert(*targets ? (*targets)->kind == base->kind : works->opcode == NIC_NOP);
    return base->streams > 0 ? post_some(queue, works, targets, local_keys, count, POST_IN_STREAMS)
                             : post_some(queue, works, targets, local_keys, count, POST_TO_TARGETS);
}

uint32_t mlx5_queue_post_to(struct nic_queue *base, const struct nic_work *works,
                            struct nic_target *const *targets, const uint32_t *local_keys,
                            const struct nic_piece *pieces, uint32_t count)
{
    struct mlx5_queue *queue = to_mlx5_queue(base);
    uint32_t posted = 0;
    assert(!base->failed && !base->stopped &&
           (base->kind == NIC_QUEUE_UD || base->kind == NIC_QUEUE_DCI));
    while (posted < count) {
        uint32_t some = post_some_to(queue, works + posted, targets + posted, local_keys + posted,
                                     count - posted);
        posted += some;
        if (some == 0) {
            if (!post_any(queue, &works[posted], targets[posted], local_keys[posted], pieces)) {
                break;
            }
            posted++;
        }
    }
    base->stats.sends += posted;
    return posted;
}

/* ---- Receives -------------------------------------------------------------------------------- */

/* The segments of a receive. A list that is shorter than it may be ends with a key of its own. */
static inline void put_receive(uint8_t *place, const uint8_t *end, const struct nic_piece *pieces,
                               uint32_t count)
{
    place = pieces_segments(place, pieces, count);
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
    if (queue->list.buffer) { /* it is an SRQ */
        index = queue->list_head;
        struct mlx5_wqe_srq_next_seg *next = receive_queue_at(&queue->list, index);
        queue->list_head = be16toh(next->next_wqe_index);
        put_receive((uint8_t *)(next + 1), (const uint8_t *)next + queue->receive_stride, pieces,
                    count);
    } else {
        index = queue->receive_counter & base->receives.mask;
        if (unlikely(base->receives.entries[index].state != TRACKING_FREE)) {
            return false; /* the device has completed later ones before it, against all rules */
        }
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
    assert(!base->stopped);
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
    base->stats.doorbells += send_queue_ring(sends);
}
