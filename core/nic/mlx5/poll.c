/* poll.c: data path of completions. Compiled once for each layout of the queues, so that nothing
 * about it is asked for each entry.
 *
 * Send WQEs of a queue pair complete in order, so an entry of the send queue, signaled or not, good
 * or bad, says that its WQE and all before it are done. In the error state every WQE yields an
 * entry.
 */
#include "nic/mlx5/mlx5.h"

enum nic_error mlx5_error_of(uint8_t syndrome, bool receive)
{
    switch (syndrome) {
    case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
        return NIC_ERROR_FLUSHED;
    case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
        return NIC_ERROR_RETRY;
    case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
        return NIC_ERROR_RNR;
    case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
    case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
        /* On the receive queue it is this side's device that refused the peer's request. */
        return receive ? NIC_ERROR_LOCAL : NIC_ERROR_REMOTE_ACCESS;
    case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
    case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
    case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
    case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR:
    case MLX5_CQE_SYNDROME_MW_BIND_ERR:
        return NIC_ERROR_LOCAL;
    default:
        return NIC_ERROR_OTHER;
    }
}

static void describe_error(const struct mlx5_cqe64 *entry, bool receive,
                           struct nic_completion *completion)
{
    const struct mlx5_err_cqe *error = (const struct mlx5_err_cqe *)(const void *)entry;
    completion->kind = NIC_COMPLETION_ERROR;
    completion->status = (uint8_t)mlx5_error_of(error->syndrome, receive);
    completion->vendor_syndrome = error->vendor_err_synd;
}

/* ---- Receives -------------------------------------------------------------------------------- */

#define ENTRY_TOOK_RECEIVE 0x1u
#define ENTRY_GIVEN 0x2u /* *completion is one */

/* What is not a WRITE with immediate: an error; a peer's SEND, which no one here sends; an entry
 * that was dropped; or nothing we know. Returns ENTRY_*. */
static __attribute__((cold, noinline)) uint32_t receive_other(struct mlx5_nic *nic,
                                                              const struct mlx5_cqe64 *entry,
                                                              struct nic_completion *completion)
{
    uint8_t opcode = completion_opcode(entry);
    struct nic_queue_pair *queue_pair =
        table_get(&nic->device.by_number, completion->queue_pair_number);
    switch (opcode) {
    case COMPLETION_DROPPED:
        return ENTRY_TOOK_RECEIVE;
    case MLX5_CQE_RESP_SEND:
    case MLX5_CQE_RESP_SEND_IMM:
    case MLX5_CQE_RESP_SEND_INV:
        completion->kind = NIC_COMPLETION_ERROR;
        completion->status = NIC_ERROR_OTHER;
        break;
    case MLX5_CQE_RESP_ERR:
        describe_error(entry, true, completion);
        break;
    default:
        nic->device.base.unknown_completions++;
        return 0;
    }
    if (queue_pair && !queue_pair->failed) {
        queue_pair->operations->queue_pair_fail(queue_pair);
    }
    completion->completed = queue_pair ? queue_pair->completed : 0;
    return ENTRY_TOOK_RECEIVE | ENTRY_GIVEN;
}

static inline __attribute__((always_inline)) uint32_t
poll_receives(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity,
              enum completion_layout layout)
{
    struct completion_queue *queue = &nic->receives;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    uint32_t taken = 0;
    while (count < capacity && (entry = completion_queue_next(queue, layout)) != NULL) {
        struct nic_completion *completion = &completions[count];
        uint32_t is = ENTRY_TOOK_RECEIVE | ENTRY_GIVEN;
        completion->queue_pair_number = completion_number(entry);
        completion->kind = NIC_COMPLETION_RECEIVE;
        completion->immediate = be32toh(entry->imm_inval_pkey);
        completion->byte_count = be32toh(entry->byte_cnt);
        if (unlikely(completion_opcode(entry) != MLX5_CQE_RESP_WR_IMM)) {
            is = receive_other(nic, entry, completion);
        }
        if (likely(is & ENTRY_TOOK_RECEIVE)) {
            taken++;
            if (unlikely(!receive_queue_free(&nic->receive_queue, be16toh(entry->wqe_counter)))) {
                nic->device.base.unknown_completions++;
            }
        }
        count += is / ENTRY_GIVEN;
        completion_queue_advance(queue, layout);
    }
    nic->device.base.receives_posted -= taken;
    completion_queue_release(queue);
    return count;
}

/* ---- Sends ----------------------------------------------------------------------------------- */

static inline void send_done(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                             uint32_t position)
{
    struct nic_queue_pair *base = &queue_pair->device.base;
    uint32_t posted = (uint32_t)tracking_sparse_take(&queue_pair->tracking, position).user_data;
    nic->device.send_outstanding -= posted - base->completed;
    base->completed = posted;
    queue_pair->queue.consumer = queue_pair->tracking.consumer;
}

/* Not inlined, since most polls have no use for it: few WQEs are signaled. */
static __attribute__((noinline)) uint32_t
poll_sends(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity)
{
    const enum completion_layout layout = nic->sends.layout;
    struct completion_queue *queue = &nic->sends;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    while (count < capacity && (entry = completion_queue_next(queue, layout)) != NULL) {
        struct nic_completion *completion = &completions[count];
        uint8_t opcode = completion_opcode(entry);
        uint32_t number = completion_number(entry);
        uint32_t position;
        struct nic_queue_pair *base = table_get(&nic->device.by_number, number);
        if (unlikely(!base || (opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR) ||
                     !tracking_find(&to_mlx5_queue_pair(base)->tracking,
                                    be16toh(entry->wqe_counter), &position))) {
            nic->device.base.unknown_completions += opcode != COMPLETION_DROPPED;
        } else {
            send_done(nic, to_mlx5_queue_pair(base), position);
            completion->queue_pair_number = number;
            completion->kind = NIC_COMPLETION_SEND;
            completion->completed = base->completed;
            if (unlikely(opcode == MLX5_CQE_REQ_ERR)) {
                base->failed = true; /* the device has moved it to the error state */
                base->place = NULL;
                describe_error(entry, false, completion);
            }
            if (likely(!to_mlx5_queue_pair(base)->initiator) ||
                mlx5_dynamic_done(to_mlx5_queue_pair(base), completion)) {
                count++;
            }
        }
        completion_queue_advance(queue, layout);
    }
    completion_queue_release(queue);
    if (unlikely(nic->device.base.initiators)) {
        mlx5_dynamic_polled(nic);
    }
    return count;
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* Receives first: what a peer wrote before it went away is seen before the error that its going
 * causes. An eighth is kept for sends, so that a flood of receives does not starve them; what they
 * leave of it goes to receives again, so that fewer than capacity means that there are no more. */
static inline __attribute__((always_inline)) uint32_t
poll_both(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity,
          enum completion_layout layout, enum completion_layout of_sends)
{
    const bool sending = nic->device.send_outstanding != 0;
    const uint32_t share = sending ? capacity - capacity / 8 : capacity;
    const uint32_t receives = poll_receives(nic, completions, share, layout);
    uint32_t count = receives;
    if (sending && unlikely(completion_queue_ready(&nic->sends, of_sends))) {
        count += poll_sends(nic, completions + count, capacity - count);
    }
    if (unlikely(receives == share && count < capacity)) {
        count += poll_receives(nic, completions + count, capacity - count, layout);
    }
    nic->device.base.completions += count;
    return count;
}

static __attribute__((noinline)) uint32_t
poll_plain(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity)
{
    return poll_both(nic, completions, capacity, COMPLETION_PLAIN, COMPLETION_PLAIN);
}

static __attribute__((noinline)) uint32_t
poll_compressed(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity)
{
    return poll_both(nic, completions, capacity, COMPLETION_COMPRESSED, COMPLETION_COMPRESSED);
}

static __attribute__((noinline)) uint32_t
poll_enhanced(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity)
{
    return poll_both(nic, completions, capacity, COMPLETION_ENHANCED, COMPLETION_ENHANCED);
}

/* Receives are not compressed, as in most of what asks for the enhanced layout. */
static __attribute__((noinline)) uint32_t
poll_enhanced_sends(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity)
{
    return poll_both(nic, completions, capacity, COMPLETION_COMPRESSED, COMPLETION_ENHANCED);
}

/* There is a receive. Takes it if it is as most are, and alone: so a lone call comes, which takes some 50 instructions less
 * without the frame and the loops of poll_plain. Otherwise returns false. */
static inline bool take_lone(struct mlx5_nic *nic, struct nic_completion *completion)
{
    struct completion_queue *queue = &nic->receives;
    const struct mlx5_cqe64 *entry = (const struct mlx5_cqe64 *)(const void *)queue->place;
    uint8_t *const next = queue->place + queue->stride;
    barrier_after_owner();
    const uint32_t index = be16toh(entry->wqe_counter);
    /* The last place of the queue is left to the others, and so is an index that does not exist. */
    if (unlikely(completion_opcode(entry) != MLX5_CQE_RESP_WR_IMM || next == queue->end ||
                 index >= nic->receive_queue.entries) ||
        completion_is_ours((const struct mlx5_cqe64 *)(const void *)next, queue->lap,
                           COMPLETION_PLAIN) ||
        unlikely(completion_queue_ready(&nic->sends, COMPLETION_PLAIN))) {
        return false;
    }
    completion->queue_pair_number = completion_number(entry);
    completion->kind = NIC_COMPLETION_RECEIVE;
    completion->immediate = be32toh(entry->imm_inval_pkey);
    completion->byte_count = be32toh(entry->byte_cnt);
    receive_queue_free(&nic->receive_queue, index);
    const uint32_t consumer = queue->consumer + 1;
    queue->consumer = consumer;
    queue->place = next;
    barrier_before_release();
    queue->released =
        consumer; /* behind the barrier, so that the compiler makes no vector of both */
    *(volatile uint32_t *)queue->record = htobe32(consumer & 0xffffffu);
    nic->device.base.receives_posted--;
    nic->device.base.completions++;
    return true;
}

static inline bool nothing_to_poll(const struct mlx5_nic *nic, enum completion_layout layout,
                                   enum completion_layout of_sends)
{
    return !completion_queue_ready(&nic->receives, layout) &&
           (nic->device.send_outstanding == 0 || !completion_queue_ready(&nic->sends, of_sends));
}

/* In a function of its own, so that who has none pays nothing for it. */
static __attribute__((noinline)) uint32_t
poll_any_compressed(struct mlx5_nic *nic, struct nic_completion *completions, uint32_t capacity)
{
    if (nic->sends.layout == COMPLETION_COMPRESSED) {
        return nothing_to_poll(nic, COMPLETION_COMPRESSED, COMPLETION_COMPRESSED)
                   ? 0
                   : poll_compressed(nic, completions, capacity);
    }
    if (nic->receives.layout == COMPLETION_ENHANCED) {
        return nothing_to_poll(nic, COMPLETION_ENHANCED, COMPLETION_ENHANCED)
                   ? 0
                   : poll_enhanced(nic, completions, capacity);
    }
    return nothing_to_poll(nic, COMPLETION_COMPRESSED, COMPLETION_ENHANCED)
               ? 0
               : poll_enhanced_sends(nic, completions, capacity);
}

/* Who waits in a loop finds nothing nearly always. That needs no frame, and so no more than a look. */
uint32_t mlx5_poll(struct nic *base, struct nic_completion *completions, uint32_t capacity)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    assert(capacity > 0);
    if (likely(nic->receives.layout == COMPLETION_PLAIN)) {
        if (completion_queue_ready(&nic->receives, COMPLETION_PLAIN)) {
            return take_lone(nic, completions) ? 1 : poll_plain(nic, completions, capacity);
        }
        if (nic->device.send_outstanding == 0 ||
            likely(!completion_queue_ready(&nic->sends, COMPLETION_PLAIN))) {
            return 0;
        }
        return poll_plain(nic, completions, capacity);
    }
    return poll_any_compressed(nic, completions, capacity);
}
