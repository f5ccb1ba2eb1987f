/* xrc.c: extended reliable connections (IBTA annex A14). The target has no queues. Each message
 * names an SRQ of the same domain, which it is received from, and completes to that SRQ's CQ. */
#include "simnic/nic/internal.h"

bool xrc_select(struct nic *nic, struct queue_pair *qp, uint32_t srqn)
{
    struct shared_receive_queue *srq =
        srqn < NIC_MAX_SHARED_RECEIVE_QUEUES ? nic->shared_receive_queues[srqn] : NULL;
    if (!srq || !srq->completion_queue || srq->xrc_domain != qp->xrc_domain) {
        return false;
    }
    qp->shared_receive_queue = srq;
    qp->receive_queue_completions = srq->completion_queue;
    return true;
}

void xrc_forget(struct nic *nic, const struct shared_receive_queue *srq)
{
    for (struct list *l = nic->all_queue_pairs.next; l != &nic->all_queue_pairs; l = l->next) {
        struct queue_pair *qp = container_of(l, struct queue_pair, all);
        if (qp->type != TYPE_XRC_TARGET || qp->shared_receive_queue != srq) {
            continue;
        }
        qp->shared_receive_queue = NULL;
        qp->receive_queue_completions = NULL;
        qp->receive.taken = false;
    }
}
