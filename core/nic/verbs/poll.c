/* poll.c: data path of completions.
 *
 * Send WQEs of a queue pair complete in order, so an entry of the send CQ, signaled or not, good or
 * bad, says that its WQE and all before it are done. In the error state every WQE yields an entry.
 */
#include <arpa/inet.h>

#include "nic/verbs/verbs.h"

/* Fewer than capacity means that there are no more. */
static uint32_t take(struct verbs_source *source, struct ibv_wc *entries, uint32_t capacity)
{
    uint32_t stashed = 0;
    if (unlikely(source->stash_count != 0)) {
        stashed = verbs_source_unstash(source, entries, capacity);
        if (stashed == capacity) {
            return stashed;
        }
    }
    int count = ibv_poll_cq(source->cq, (int)(capacity - stashed), entries + stashed);
    /* A CQ that is broken is the subject of an event of the device. */
    return stashed + (likely(count >= 0) ? (uint32_t)count : 0);
}

enum nic_error verbs_error_of(const struct ibv_wc *entry, bool receive)
{
    switch (entry->status) {
    case IBV_WC_WR_FLUSH_ERR:
        return NIC_ERROR_FLUSHED;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return NIC_ERROR_RETRY;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return NIC_ERROR_RNR;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
        /* On the receive CQ it is this side's device that refused the peer's request. */
        return receive ? NIC_ERROR_LOCAL : NIC_ERROR_REMOTE_ACCESS;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
        return NIC_ERROR_LOCAL;
    default:
        return NIC_ERROR_OTHER;
    }
}

/* An error, or a receive that no WRITE with immediate took: a peer's SEND, which no one here sends.
 */
static __attribute__((cold)) void
receive_failed(struct verbs_nic *nic, struct nic_completion *completion, const struct ibv_wc *entry)
{
    struct nic_queue_pair *queue_pair = table_get(&nic->device.by_number, entry->qp_num);
    if (queue_pair && !queue_pair->failed) {
        verbs_queue_pair_fail(queue_pair);
    }
    completion->kind = NIC_COMPLETION_ERROR;
    completion->status =
        (uint8_t)(entry->status == IBV_WC_SUCCESS ? NIC_ERROR_OTHER : verbs_error_of(entry, true));
    completion->vendor_syndrome = entry->vendor_err;
    completion->completed = queue_pair ? queue_pair->completed : 0;
}

static inline void describe_receive(struct verbs_nic *nic, const struct ibv_wc *entry,
                                    struct nic_completion *completion)
{
    *completion = (struct nic_completion){
        .queue_pair_number = entry->qp_num,
        .kind = NIC_COMPLETION_RECEIVE,
    };
    if (likely(entry->status == IBV_WC_SUCCESS && entry->opcode == IBV_WC_RECV_RDMA_WITH_IMM)) {
        completion->immediate = ntohl(entry->imm_data);
        completion->byte_count = entry->byte_len;
    } else {
        receive_failed(nic, completion, entry);
    }
}

static inline bool take_shared_receive(struct verbs_nic *nic, const struct ibv_wc *entry,
                                       struct nic_completion *completion)
{
    nic->device.base.receives_posted--; /* good or bad, it took one from the SRQ */
    describe_receive(nic, entry, completion);
    return true;
}

/* One of the queue pair's own receive queue. When a queue pair fails, all of it completes, which is for nobody: why it has failed,
 * another completion says, or an event of the device. */
static inline bool take_own_receive(struct verbs_nic *nic, const struct ibv_wc *entry,
                                    struct nic_completion *completion)
{
    struct nic_queue_pair *queue_pair = table_get(&nic->device.by_number, entry->qp_num);
    if (unlikely(!queue_pair)) {
        nic->device.base.unknown_completions++;
        return false;
    }
    if (unlikely(entry->status == IBV_WC_WR_FLUSH_ERR)) {
        verbs_receives_stop(to_verbs_queue_pair(queue_pair));
        return false;
    }
    verbs_receive_used(nic, to_verbs_queue_pair(queue_pair));
    describe_receive(nic, entry, completion);
    return true;
}

/* Moves queue_pair->completed to what the entry says, unless it is there already. */
static void advance(struct verbs_nic *nic, struct nic_queue_pair *queue_pair,
                    const struct ibv_wc *entry)
{
    uint32_t step = (uint32_t)entry->wr_id + 1 - queue_pair->completed;
    if (likely((int32_t)step > 0)) {
        queue_pair->completed += step;
        nic->device.send_outstanding -= step;
    }
}

static inline bool take_send(struct verbs_nic *nic, const struct ibv_wc *entry,
                             struct nic_completion *completion)
{
    struct nic_queue_pair *queue_pair = table_get(&nic->device.by_number, entry->qp_num);
    if (unlikely(!queue_pair)) {
        nic->device.base.unknown_completions++;
        return false;
    }
    advance(nic, queue_pair, entry);
    *completion = (struct nic_completion){
        .queue_pair_number = entry->qp_num,
        .kind = NIC_COMPLETION_SEND,
        .completed = queue_pair->completed,
    };
    if (unlikely(entry->status != IBV_WC_SUCCESS)) {
        queue_pair->failed = true; /* the device has moved it to the error state */
        completion->kind = NIC_COMPLETION_ERROR;
        completion->status = (uint8_t)verbs_error_of(entry, false);
        completion->vendor_syndrome = entry->vendor_err;
    }
    return true;
}

/* take_one is a constant at each call, so it is inlined. It returns false if the entry gives no
 * completion. */
static inline __attribute__((always_inline)) uint32_t
poll_source(struct verbs_nic *nic, struct verbs_source *source,
            bool (*take_one)(struct verbs_nic *nic, const struct ibv_wc *entry,
                             struct nic_completion *completion),
            struct nic_completion *completions, uint32_t capacity)
{
    struct ibv_wc entries[VERBS_POLL_CHUNK];
    uint32_t count = 0;
    while (count < capacity) {
        uint32_t wanted = (uint32_t)minimum(capacity - count, VERBS_POLL_CHUNK);
        uint32_t taken = take(source, entries, wanted);
        for (uint32_t i = 0; i < taken; i++) {
            count += take_one(nic, &entries[i], &completions[count]);
        }
        if (taken < wanted) {
            break;
        }
    }
    return count;
}

static uint32_t poll_receives(struct verbs_nic *nic, struct nic_completion *completions,
                              uint32_t capacity)
{
    return nic->srq ? poll_source(nic, &nic->receive, take_shared_receive, completions, capacity)
                    : poll_source(nic, &nic->receive, take_own_receive, completions, capacity);
}

static uint32_t poll_sends(struct verbs_nic *nic, struct nic_completion *completions,
                           uint32_t capacity)
{
    return poll_source(nic, &nic->send, take_send, completions, capacity);
}

/* Receives first: what a peer wrote before it went away is seen before the error that its going
 * causes. An eighth is kept for sends, so that a flood of receives does not starve them; what they
 * leave of it goes to receives again, so that fewer than capacity means that there are no more. */
uint32_t verbs_poll(struct nic *base, struct nic_completion *completions, uint32_t capacity)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    uint32_t count;
    if (nic->device.send_outstanding == 0) {
        count = poll_receives(nic, completions, capacity);
    } else {
        uint32_t share = capacity - capacity / 8;
        uint32_t receives = poll_receives(nic, completions, share);
        count = receives + poll_sends(nic, completions + receives, capacity - receives);
        if (unlikely(receives == share && count < capacity)) {
            count += poll_receives(nic, completions + count, capacity - count);
        }
    }
    base->completions += count;
    return count;
}
