/* queue_poll.c: data path of queues with user data: completions. Compiled once for each table, because
 * each completion queue belongs to one.
 *
 * An entry stays where it is until all that it completes has found room in the caller's array: then
 * the next poll goes on with it. */
#include "nic/mlx5/mlx5.h"

/* ---- Sends ----------------------------------------------------------------------------------- */

/* What the entry tells of its own WQE. */
static inline void add_detail(const struct mlx5_cqe64 *entry, uint8_t opcode,
                              crpc_completion *completion)
{
    completion->flags |= NIC_DONE_DETAIL;
    if (opcode == NIC_READ) {
        completion->payload_bytes = be32toh(entry->byte_cnt);
    }
}

static inline void add_result(const struct mlx5_queue *queue, const struct tracking_done *done,
                              crpc_completion *completion)
{
    if (unlikely(nic_opcode_is_atomic(done->opcode))) {
        completion->token = queue->device.base.results[done->position & queue->sends.mask];
    }
}

static __attribute__((cold, noinline)) void add_error(const struct mlx5_cqe64 *entry,
                                                      crpc_completion *completion)
{
    const struct mlx5_err_cqe *error = (const struct mlx5_err_cqe *)(const void *)entry;
    bool receive = completion->method == NIC_RECEIVE;
    completion->status = receive && error->syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR
                             ? -NIC_ERROR_LENGTH
                             : -(int32_t)mlx5_error_of(error->syndrome, receive);
    completion->reply_bytes_max = error->vendor_err_synd;
    completion->flags |= NIC_DONE_DETAIL;
}

static __attribute__((cold, noinline)) void sends_failed(struct nic_queue *queue, uint32_t position,
                                                         const struct mlx5_cqe64 *entry)
{
    const struct mlx5_err_cqe *error = (const struct mlx5_err_cqe *)(const void *)entry;
    /* The NOP at the ring's end is of stream 0, whose failure it may tell, and the table has no stream for it. If the
     * queue has failed, the op behind it says so, too. */
    if (queue->streams > 0 && tracking_at(&queue->sends, position)->state == TRACKING_FILLER) {
        return;
    }
    nic_queue_send_failed(queue, position, mlx5_error_of(error->syndrome, false));
}

/* The WQEs before one that failed were done; those before one that was flushed perhaps not. */
static __attribute__((cold, noinline)) int32_t status_before(const struct mlx5_cqe64 *entry)
{
    const struct mlx5_err_cqe *error = (const struct mlx5_err_cqe *)(const void *)entry;
    return error->syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR ? -NIC_ERROR_FLUSHED : CRPC_OK;
}

/* The same for all before it, and for its own WQE. At least that is left. What changes is in local variables,
 * because the compiler would have to load it again behind each completion. Returns false if there was no
 * room for all. */
static inline __attribute__((always_inline)) bool
complete_dense(struct mlx5_queue *queue, const struct mlx5_cqe64 *entry, uint32_t position,
               crpc_completion *completions, uint32_t capacity, uint32_t *count)
{
    struct nic_queue *base = &queue->device.base;
    struct tracking tracking = base->sends;
    const uint64_t handle = base->handle, queue_user_data = base->user_data;
    crpc_completion *to = completions + *count;
    crpc_completion *const end = completions + capacity;
    bool all = false;
    while (to != end) {
        const struct tracking_done done = tracking_dense_take(&tracking, position);
        if (likely(!done.filler)) {
            nic_queue_done_of(to, handle, queue_user_data, done.opcode, done.user_data, CRPC_OK);
            add_result(queue, &done, to);
            to++;
        }
        if (unlikely(!tracking_dense_left(&tracking, position))) {
            if (likely(done.signaled && !done.filler)) {
                add_detail(entry, done.opcode, to - 1);
            }
            all = true;
            break;
        }
    }
    *count = (uint32_t)(to - completions);
    base->sends.consumer = tracking.consumer;
    return all;
}

static __attribute__((cold, noinline)) bool
complete_dense_error(struct mlx5_queue *queue, const struct mlx5_cqe64 *entry, uint32_t position,
                     crpc_completion *completions, uint32_t capacity, uint32_t *count,
                     uint32_t *errors)
{
    struct nic_queue *base = &queue->device.base;
    struct tracking_done done;
    int32_t before = status_before(entry);
    while (*count < capacity && tracking_dense_next(&base->sends, position, &done)) {
        crpc_completion *completion = &completions[(*count)++];
        nic_queue_done(completion, base, done.opcode, done.user_data, before);
        if (done.signaled) {
            add_error(entry, completion);
        } else if (before == CRPC_OK) {
            add_result(queue, &done, completion);
        }
        *errors += completion->status != CRPC_OK;
    }
    return (int32_t)(position - base->sends.consumer) < 0;
}

static inline __attribute__((always_inline)) bool
complete_alone(struct mlx5_queue *queue, const struct mlx5_cqe64 *entry, uint32_t position,
               crpc_completion *completions, uint32_t capacity, uint32_t *count, uint32_t *errors,
               enum nic_queue_table table)
{
    struct tracking *tracking = &queue->device.base.sends;
    const struct tracking_entry *named = tracking_at(tracking, position);
    const bool failed = completion_opcode(entry) == MLX5_CQE_REQ_ERR;
    bool shown = named->state == TRACKING_SIGNALED || (failed && named->state == TRACKING_POSTED);
    if (unlikely(shown && *count == capacity)) {
        return false;
    }
    struct tracking_done done = table == NIC_TABLE_SPARSE
                                    ? tracking_sparse_take(tracking, position)
                                    : tracking_unordered_take(tracking, position);
    if (shown) {
        crpc_completion *completion = &completions[(*count)++];
        nic_queue_done(completion, &queue->device.base, done.opcode, done.user_data, CRPC_OK);
        if (unlikely(failed)) {
            add_error(entry, completion);
            ++*errors;
        } else {
            add_result(queue, &done, completion);
            add_detail(entry, done.opcode, completion);
        }
    }
    return true;
}

/* Reports what an entry completes. Returns false if there was no room for all of it. */
static inline __attribute__((always_inline)) bool
complete_sends(struct mlx5_queue *queue, const struct mlx5_cqe64 *entry, uint32_t position,
               crpc_completion *completions, uint32_t capacity, uint32_t *count, uint32_t *errors,
               enum nic_queue_table table)
{
    bool all;
    if (table != NIC_TABLE_DENSE) {
        all = complete_alone(queue, entry, position, completions, capacity, count, errors, table);
    } else if (likely(completion_opcode(entry) == MLX5_CQE_REQ)) {
        all = complete_dense(queue, entry, position, completions, capacity, count);
    } else {
        all = complete_dense_error(queue, entry, position, completions, capacity, count, errors);
    }
    queue->sends.consumer = queue->device.base.sends.consumer;
    return all;
}

/* Takes the entries of this queue that come next, each of a WQE that has succeeded and has no result: what they
 * have in common is looked up once. Returns how many. */
static inline __attribute__((always_inline)) uint32_t
complete_unordered(struct mlx5_queue *queue, struct completion_queue *entries,
                   crpc_completion *completions, uint32_t capacity)
{
    struct nic_queue *base = &queue->device.base;
    struct tracking tracking = base->sends;
    const uint32_t number = queue->sends.number;
    const uint64_t handle = base->handle, queue_user_data = base->user_data;
    const struct mlx5_cqe64 *entry;
    crpc_completion *to = completions;
    crpc_completion *const end = completions + capacity;
    while (to != end && (entry = completion_queue_next(entries, COMPLETION_PLAIN)) != NULL) {
        uint32_t position;
        if (unlikely(completion_opcode(entry) != MLX5_CQE_REQ ||
                     completion_number(entry) != number ||
                     !tracking_find(&tracking, be16toh(entry->wqe_counter), &position) ||
                     tracking_at(&tracking, position)->state != TRACKING_SIGNALED ||
                     nic_opcode_is_atomic(tracking_at(&tracking, position)->opcode))) {
            break;
        }
        const struct tracking_done done = tracking_unordered_take(&tracking, position);
        nic_queue_done_of(to, handle, queue_user_data, done.opcode, done.user_data, CRPC_OK);
        add_detail(entry, done.opcode, to);
        to++;
        completion_queue_advance(entries, COMPLETION_PLAIN);
    }
    queue->sends.consumer = base->sends.consumer = tracking.consumer;
    return (uint32_t)(to - completions);
}

static inline __attribute__((always_inline)) uint32_t
poll_sends(struct device_nic *nic, struct device_source *source, crpc_completion *completions,
           uint32_t capacity, uint32_t *errors, enum nic_queue_table table)
{
    struct completion_queue *queue = &to_mlx5_source(source)->completions;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    while ((entry = completion_queue_next(queue, COMPLETION_PLAIN)) != NULL) {
        uint8_t opcode = completion_opcode(entry);
        uint32_t position;
        struct nic_queue *owner = device_queue_of(nic, completion_number(entry));
        if (unlikely(!owner || (opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR) ||
                     !owner->sends.entries ||
                     !tracking_find(&owner->sends, be16toh(entry->wqe_counter), &position))) {
            nic->base.unknown_completions++;
        } else {
            if (table == NIC_TABLE_UNORDERED) {
                uint32_t some = complete_unordered(to_mlx5_queue(owner), queue, completions + count,
                                                   capacity - count);
                count += some;
                if (likely(some > 0)) {
                    continue;
                }
            }
            if (unlikely(opcode == MLX5_CQE_REQ_ERR)) {
                sends_failed(owner, position, entry);
            }
            if (unlikely(!complete_sends(to_mlx5_queue(owner), entry, position, completions,
                                         capacity, &count, errors, table))) {
                break;
            }
        }
        completion_queue_advance(queue, COMPLETION_PLAIN);
    }
    completion_queue_release(queue);
    return count;
}

/* ---- Receives -------------------------------------------------------------------------------- */

static inline void describe_receive(const struct mlx5_cqe64 *entry, uint8_t opcode,
                                    crpc_completion *completion)
{
    nic_queue_received(completion, be32toh(entry->byte_cnt), opcode == MLX5_CQE_RESP_WR_IMM);
    completion->reply_bytes_max = opcode == MLX5_CQE_RESP_SEND ? 0 : be32toh(entry->imm_inval_pkey);
    completion->flags |=
        (uint8_t)(NIC_DONE_DETAIL | (opcode == MLX5_CQE_RESP_SEND       ? 0
                                     : opcode == MLX5_CQE_RESP_SEND_INV ? NIC_DONE_INVALIDATED
                                                                        : NIC_DONE_IMMEDIATE));
}

/* What is told besides of a message of a UD queue pair or a DCI. */
static __attribute__((noinline)) void describe_source(const struct mlx5_cqe64 *entry,
                                                      const struct nic_queue *queue,
                                                      crpc_completion *completion)
{
    const uint32_t word = be32toh(entry->flags_rqpn);
    const bool infiniband = queue->nic->link == CRPC_LINK_INFINIBAND;
    if (queue->kind == NIC_QUEUE_DCT) {
        nic_queue_received_from(completion, word);
        return;
    }
    completion->token = nic_source_token(word, infiniband ? be16toh(entry->slid) : 0,
                                         infiniband ? (uint8_t)(word >> 24) : 0);
    completion->flags |= word >> 28 & 3 ? NIC_DONE_GRH : 0;
}

void mlx5_receive_done(const struct mlx5_cqe64 *entry, struct nic_queue *owner, uint64_t user_data,
                       crpc_completion *completion, uint32_t *errors)
{
    const uint8_t opcode = completion_opcode(entry);
    nic_queue_done(completion, owner, NIC_RECEIVE, user_data, CRPC_OK);
    if (opcode != MLX5_CQE_RESP_ERR) {
        describe_receive(entry, opcode, completion);
    } else {
        add_error(entry, completion);
        owner->failed = true;
        ++*errors;
    }
}

static inline __attribute__((always_inline)) uint32_t
poll_receives(struct device_nic *nic, struct device_source *source, crpc_completion *completions,
              uint32_t capacity, uint32_t *errors, enum nic_queue_table table)
{
    struct completion_queue *queue = &to_mlx5_source(source)->completions;
    const struct mlx5_cqe64 *entry;
    uint32_t count = 0;
    if (table == NIC_TABLE_SHARED && unlikely(source->tags)) {
        return mlx5_poll_tags(nic, to_mlx5_source(source), completions, capacity, errors);
    }
    while (count < capacity && (entry = completion_queue_next(queue, COMPLETION_PLAIN)) != NULL) {
        uint8_t opcode = completion_opcode(entry);
        struct nic_queue *owner = device_queue_of(nic, completion_number(entry));
        struct nic_queue *receiver = owner ? owner->receiver : NULL;
        uint32_t index = be16toh(entry->wqe_counter);
        uint64_t user_data;
        if (table == NIC_TABLE_RECEIVES && likely(receiver)) {
            index &= receiver->receives.mask;
        }
        if (unlikely(!receiver ||
                     !((opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_INV) ||
                       opcode == MLX5_CQE_RESP_ERR) ||
                     !tracking_receive_take(&receiver->receives, index, &user_data))) {
            nic->base.unknown_completions++;
        } else {
            crpc_completion *completion = &completions[count++];
            receiver->receives_open--;
            if (table == NIC_TABLE_SHARED) {
                receive_queue_free(&to_mlx5_queue(receiver)->list, index);
            }
            nic_queue_done(completion, owner, NIC_RECEIVE, user_data, CRPC_OK);
            if (likely(opcode != MLX5_CQE_RESP_ERR)) {
                describe_receive(entry, opcode, completion);
                if (unlikely(owner->kind >= NIC_QUEUE_UD)) {
                    describe_source(entry, owner, completion);
                }
            } else {
                add_error(entry, completion);
                owner->failed |= owner->kind != NIC_QUEUE_DCT;
                ++*errors;
            }
        }
        completion_queue_advance(queue, COMPLETION_PLAIN);
    }
    completion_queue_release(queue);
    return count;
}

/* ---- All ------------------------------------------------------------------------------------- */

uint32_t mlx5_queue_poll(struct nic *base, crpc_completion *completions, uint32_t capacity,
                         uint32_t *errors)
{
    return device_queue_poll(to_device_nic(base), completions, capacity, errors, poll_receives,
                             poll_sends);
}
