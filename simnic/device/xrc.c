/* xrc.c: extended reliable connections (IBTA annex A14): the target has no queues; each message names
 * the SRQ, of the same domain, that it is received from, and that SRQ's CQ is where it completes. */
#include "device.h"

bool xrc_select(struct device *device, struct queue_pair *qp, uint32_t srqn)
{
    struct shared_receive_queue *srq =
        srqn < DEVICE_MAX_SHARED_RECEIVE_QUEUES ? device->shared_receive_queues[srqn] : NULL;
    if (!srq || !srq->completion_queue || srq->xrc_domain != qp->xrc_domain) {
        return false;
    }
    qp->shared_receive_queue = srq;
    qp->receive_queue_completions = srq->completion_queue;
    return true;
}

void xrc_forget(struct device *device, const struct shared_receive_queue *srq)
{
    for (struct list *l = device->all_queue_pairs.next; l != &device->all_queue_pairs;
         l = l->next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, all);
        if (qp->type != TYPE_XRC_TARGET || qp->shared_receive_queue != srq) {
            continue;
        }
        qp->shared_receive_queue = NULL;
        qp->receive_queue_completions = NULL;
        qp->receive.taken = false;
    }
}
