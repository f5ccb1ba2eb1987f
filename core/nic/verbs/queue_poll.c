/* queue_poll.c: data path of queues with user data: completions.
 *
 * Entries are taken out of a CQ into its stash, and leave that when all that they complete has found
 * room in the caller's array. */
#include <arpa/inet.h>

#include "nic/verbs/verbs.h"

/* The oldest entry that is not reported yet. NULL = none. */
static const struct ibv_wc *oldest(struct verbs_source *source)
{
    if (source->stash_count == 0) {
        int count = ibv_poll_cq(source->cq, VERBS_POLL_CHUNK, source->stash);
        if (count <= 0) {
            return NULL;
        }
        source->stash_first = 0;
        source->stash_count = (uint32_t)count;
    }
    return source->stash + source->stash_first;
}

static void take(struct verbs_source *source)
{
    source->stash_first++;
    source->stash_count--;
}

static void add_error(const struct ibv_wc *entry, crpc_completion *completion, enum nic_error error)
{
    completion->status = -(int32_t)error;
    completion->reply_bytes_max = entry->vendor_err;
    completion->flags |= NIC_DONE_DETAIL;
}

/* A receive that is too short is a local length error by the specification. rxe calls it an error of
 * operation, or an invalid request; elsewhere these are something else. */
enum nic_error verbs_receive_error(const struct ibv_wc *entry, bool soft_roce)
{
    bool length = entry->status == IBV_WC_LOC_LEN_ERR ||
                  (soft_roce && (entry->status == IBV_WC_LOC_QP_OP_ERR ||
                                 entry->status == IBV_WC_REM_INV_REQ_ERR));
    return length ? NIC_ERROR_LENGTH : verbs_error_of(entry, true);
}

/* ---- Sends ----------------------------------------------------------------------------------- */

static void report_send(struct nic_queue *queue, const struct tracking_done *done,
                        const struct ibv_wc *entry, int32_t before, crpc_completion *completion)
{
    nic_queue_done(completion, queue, done->opcode, done->user_data,
                   done->signaled ? CRPC_OK : before);
    if (done->signaled && unlikely(entry->status != IBV_WC_SUCCESS)) {
        add_error(entry, completion, verbs_error_of(entry, false));
        return;
    }
    if (nic_opcode_is_atomic(done->opcode)) {
        completion->token = queue->results[done->position & queue->sends.mask];
    }
    if (done->signaled) {
        completion->flags |= NIC_DONE_DETAIL;
        completion->payload_bytes = done->opcode == NIC_READ ? entry->byte_len : 0;
    }
}

/* Reports what an entry completes. Returns false if there was no room for all of it. */
static inline __attribute__((always_inline)) bool
complete_sends(struct nic_queue *queue, const struct ibv_wc *entry, uint32_t position,
               crpc_completion *completions, uint32_t capacity, uint32_t *count, uint32_t *errors,
               enum nic_queue_table table)
{
    struct tracking *tracking = &queue->sends;
    const bool failed = entry->status != IBV_WC_SUCCESS;
    struct tracking_done done;
    if (table == NIC_TABLE_DENSE || (table == NIC_TABLE_SPARSE && unlikely(failed))) {
        /* The WQEs before one that failed were done; those before one that was flushed perhaps not. */
        int32_t before = entry->status == IBV_WC_WR_FLUSH_ERR ? -NIC_ERROR_FLUSHED : CRPC_OK;
        while ((int32_t)(position - tracking->consumer) >= 0) {
            /* A flush that a refused post is given comes before the completions of what was taken. */
            if (table == NIC_TABLE_SPARSE && tracking->consumer != position &&
                tracking_at(tracking, tracking->consumer)->state == TRACKING_POSTED) {
                tracking_sparse_take(tracking, tracking->consumer);
                continue;
            }
            if (unlikely(*count == capacity)) {
                return false;
            }
            if (!tracking_dense_next(tracking, position, &done)) {
                break;
            }
            report_send(queue, &done, entry, before, &completions[*count]);
            *errors += completions[(*count)++].status != CRPC_OK;
        }
        return true;
    }
    const struct tracking_entry *named = tracking_at(tracking, position);
    bool shown = failed || named->state == TRACKING_SIGNALED;
    if (unlikely(shown && *count == capacity)) {
        return false;
    }
    done = table == NIC_TABLE_SPARSE ? tracking_sparse_take(tracking, position)
                                     : tracking_unordered_take(tracking, position);
    if (shown) {
        report_send(queue, &done, entry, CRPC_OK, &completions[(*count)++]);
        *errors += failed;
    }
    return true;
}

static inline __attribute__((always_inline)) uint32_t
poll_sends(struct device_nic *nic, struct device_source *base, crpc_completion *completions,
           uint32_t capacity, uint32_t *errors, enum nic_queue_table table)
{
    struct verbs_source *source = to_verbs_source(base);
    const struct ibv_wc *entry;
    uint32_t count = 0;
    while ((entry = oldest(source)) != NULL) {
        struct nic_queue *queue = device_queue_of(nic, entry->qp_num);
        uint32_t position;
        if (unlikely(!queue || !queue->sends.entries ||
                     !tracking_find(&queue->sends, (uint16_t)entry->wr_id, &position))) {
            nic->base.unknown_completions++;
        } else {
            if (unlikely(entry->status != IBV_WC_SUCCESS)) {
                nic_queue_send_failed(queue, position, verbs_error_of(entry, false));
            }
            if (unlikely(!complete_sends(queue, entry, position, completions, capacity, &count,
                                         errors, table))) {
                break;
            }
        }
        take(source);
    }
    return count;
}

/* ---- Receives -------------------------------------------------------------------------------- */

static void describe_receive(const struct ibv_wc *entry, crpc_completion *completion)
{
    completion->flags |= NIC_DONE_DETAIL;
    nic_queue_received(completion, entry->byte_len, entry->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    if (entry->wc_flags & IBV_WC_WITH_IMM) {
        completion->flags |= NIC_DONE_IMMEDIATE;
        completion->reply_bytes_max = ntohl(entry->imm_data);
    } else if (entry->wc_flags & IBV_WC_WITH_INV) {
        completion->flags |= NIC_DONE_INVALIDATED;
        completion->reply_bytes_max = entry->invalidated_rkey;
    }
}

/* What is told besides of a message of a UD queue pair or a DCI. */
static void describe_source(const struct ibv_wc *entry, const struct nic_queue *queue,
                            crpc_completion *completion)
{
    const bool infiniband = queue->nic->link == CRPC_LINK_INFINIBAND;
    if (queue->kind == NIC_QUEUE_DCT) {
        nic_queue_received_from(completion, entry->src_qp);
        return;
    }
    completion->token =
        nic_source_token(entry->src_qp, infiniband ? entry->slid : 0, infiniband ? entry->sl : 0);
    completion->flags |= entry->wc_flags & IBV_WC_GRH ? NIC_DONE_GRH : 0;
}

static inline __attribute__((always_inline)) uint32_t
poll_receives(struct device_nic *nic, struct device_source *base, crpc_completion *completions,
              uint32_t capacity, uint32_t *errors, enum nic_queue_table table)
{
    struct verbs_source *source = to_verbs_source(base);
    const struct ibv_wc *entry;
    uint32_t count = 0;
    if (table == NIC_TABLE_SHARED && unlikely(base->tags)) {
        return verbs_poll_tags(nic, to_verbs_tag_source(base), completions, capacity, errors);
    }
    while (count < capacity && (entry = oldest(source)) != NULL) {
        struct nic_queue *queue = device_queue_of(nic, entry->qp_num);
        struct nic_queue *receiver = queue ? queue->receiver : NULL;
        uint32_t index = (uint32_t)entry->wr_id;
        uint64_t user_data;
        if (unlikely(!receiver || !tracking_receive_take(&receiver->receives, index, &user_data))) {
            nic->base.unknown_completions++;
        } else {
            crpc_completion *completion = &completions[count++];
            receiver->receives_open--;
            if (table == NIC_TABLE_SHARED) {
                verbs_queue_operations.give_back(receiver, index);
            }
            nic_queue_done(completion, queue, NIC_RECEIVE, user_data, CRPC_OK);
            if (likely(entry->status == IBV_WC_SUCCESS)) {
                describe_receive(entry, completion);
                if (unlikely(queue->kind >= NIC_QUEUE_UD)) {
                    describe_source(entry, queue, completion);
                }
            } else {
                bool soft_roce = to_verbs_nic(&nic->base)->vendor.soft_roce;
                add_error(entry, completion, verbs_receive_error(entry, soft_roce));
                queue->failed |= queue->kind != NIC_QUEUE_DCT;
                ++*errors;
            }
        }
        take(source);
    }
    return count;
}

/* ---- All ------------------------------------------------------------------------------------- */

uint32_t verbs_queue_poll(struct nic *base, crpc_completion *completions, uint32_t capacity,
                          uint32_t *errors)
{
    return device_queue_poll(to_device_nic(base), completions, capacity, errors, poll_receives,
                             poll_sends);
}
