/* modify.c: changing queues that are in use (nic/queue.h). Like real devices, this one does not let the
 * timeout and the retries of a connected queue pair change. Time is steps here, so its RNR timer is not
 * used (memory_fabric_options has receiver_not_ready_steps). */
#include <assert.h>

#include "nic/memory/internal.h"

#define REFUSED (NIC_CHANGE_RETRY_TIMEOUT | NIC_CHANGE_RETRY_COUNT | NIC_CHANGE_RNR_TRIES)

int32_t memory_queue_modify(struct nic_queue *base, const struct nic_queue_change *change,
                            crpc_error *error)
{
    struct memory_queue *queue = memory_queue(base);
    int32_t status;

    nic_queue_check_change(base, change);
    if (queue->pair && !queue->pair->connected) {
        memory_require(change->mask == NIC_CHANGE_ACCESS,
                       "a queue pair that is not connected changes 0x%x", change->mask);
    }
    if (memory_planned_failure(queue->nic->fabric, MEMORY_FAIL_MODIFY, &status, error)) {
        return status;
    }
    if (change->mask & REFUSED) {
        return nic_queue_refuse_change(base, change, 0, error);
    }
    if (change->mask & NIC_CHANGE_ACCESS) {
        assert(queue->pair); /* it is an RC queue */
        queue->pair->withheld = ~change->access;
    }
    if (change->mask & NIC_CHANGE_QUEUE_KEY) {
        base->queue_key = change->queue_key;
    }
    if (change->mask & NIC_CHANGE_SRQ_LIMIT) {
        queue->limit = change->srq_limit;
    }
    return CRPC_OK;
}

bool memory_queue_limit_reached(struct nic_queue *base)
{
    struct memory_queue *queue = memory_queue(base);
    const bool reached = queue->limit_reached;

    queue->limit_reached = false;
    return reached;
}
