/* modify.c: changing queues that are in use (nic/queue.h).
 *
 * The InfiniBand specification has a table of what may change in which state (volume 1, 11.2.5.2), and the
 * kernel keeps to it for every driver. A connected queue pair is ready to send; there, its access and its RNR
 * timer may change. The timeout and the retries may not: only in the state SQD, in which nothing is sent.
 * mlx5's kernel driver does not go there, and others wait with it for answers of the peer. So we ask the
 * device for what the application wants, in one command, and hand on its answer.
 *
 * mlx5 alone has DC, and its kernel driver lets nothing change there that means something: nothing of a DCT that
 * is ready to receive (mlx5_ib_modify_dct), and of a DCI that is ready to send the RNR timer alone
 * (modify_dci_qp_is_ok), which is for whoever receives. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "nic/device/queue.h"

/* What verbs say if something cannot change. */
static bool refused(int os_error)
{
    return os_error == EINVAL || os_error == EOPNOTSUPP || os_error == ENOSYS;
}

static int32_t answer(const struct nic_queue *base, const struct nic_queue_change *change,
                      int os_error, crpc_error *error)
{
    if (os_error == 0) {
        return CRPC_OK;
    }
    if (refused(os_error)) {
        return nic_queue_refuse_change(base, change, os_error, error);
    }
    return device_blame(error, os_error, 0, base->nic->device, "change a queue");
}

static int set_limit(const struct device_queue *queue, uint32_t limit)
{
    struct ibv_srq_attr attributes = {.srq_limit = limit};
    return ibv_modify_srq(queue->srq, &attributes, IBV_SRQ_LIMIT);
}

static int set_key(struct device_queue *queue, uint32_t key)
{
    struct ibv_qp_attr attributes = {.qkey = key};
    int os_error = ibv_modify_qp(queue->pair.qp, &attributes, IBV_QP_QKEY);
    if (os_error == 0) {
        queue->base.queue_key = key;
    }
    return os_error;
}

static int set_connection(struct device_queue *queue, const struct nic_queue_change *change)
{
    struct device_queue_pair wanted = queue->pair;
    struct ibv_qp_attr attributes = {
        .min_rnr_timer = (uint8_t)change->not_ready_timer,
        .timeout = (uint8_t)change->retry_timeout,
        .retry_cnt = (uint8_t)change->retry_count,
        .rnr_retry = nic_rnr_retry(&(struct nic_transport){.rnr_tries = change->rnr_tries}),
    };
    int mask = (change->mask & NIC_CHANGE_NOT_READY_TIMER ? IBV_QP_MIN_RNR_TIMER : 0) |
               (change->mask & NIC_CHANGE_RETRY_TIMEOUT ? IBV_QP_TIMEOUT : 0) |
               (change->mask & NIC_CHANGE_RETRY_COUNT ? IBV_QP_RETRY_CNT : 0) |
               (change->mask & NIC_CHANGE_RNR_TRIES ? IBV_QP_RNR_RETRY : 0);
    int os_error;
    if (change->mask & NIC_CHANGE_ACCESS) {
        wanted.withheld = ~change->access;
        attributes.qp_access_flags = device_remote_access(&wanted);
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    os_error = ibv_modify_qp(queue->pair.qp, &attributes, mask);
    if (os_error == 0) {
        queue->pair.withheld = wanted.withheld;
    }
    return os_error;
}

int32_t device_queue_modify(struct nic_queue *base, const struct nic_queue_change *change,
                            crpc_error *error)
{
    struct device_queue *queue = to_device_queue(base);
    nic_queue_check_change(base, change);
    if (nic_kind_is_shared(base->kind)) {
        return answer(base, change, set_limit(queue, change->srq_limit), error);
    }
    if (base->kind == NIC_QUEUE_UD) {
        return answer(base, change, set_key(queue, change->queue_key), error);
    }
    if (base->pair->peer_number == 0) { /* device_remote_access tells who connects it */
        assert(change->mask == NIC_CHANGE_ACCESS);
        queue->pair.withheld = ~change->access;
        return CRPC_OK;
    }
    return answer(base, change, set_connection(queue, change), error);
}
