/* held.c: the fault `taken=N:US`: a QP that fails has taken N WQEs of its SRQ, as adapters take them ahead of messages. It gives
 * them back, flushed, and then says EVENT_QP_LAST_WQE_REACHED; but not at once. They are lost if it is destroyed before: the
 * InfiniBand specification (volume 1, 11.5.4: "Last WQE Reached") has programs wait for that. */
#include "simnic/nic/internal.h"

#include <stdlib.h>

struct held_receives {
    uint64_t due_ns;
    uint32_t count;
    uint16_t index[];
};

/* It may have taken some: it could receive. */
static bool may_have_taken(const struct queue_pair *qp)
{
    return qp->could_receive && qp->shared_receive_queue && qp_transport(qp) == TRANSPORT_RC &&
           !qp->shared_receive_queue->tags;
}

static void take(struct nic *nic, struct queue_pair *qp)
{
    const struct fabric_fault *fault = &nic->fabric->fault;
    struct held_receives *held =
        calloc(1, sizeof(*held) + fault->taken_count * sizeof(held->index[0]));
    if (!held) {
        return;
    }
    held->due_ns = nic->now_ns + fault->taken_us * 1000ull;
    while (held->count < fault->taken_count && receive_take(nic, qp) != RECEIVE_EMPTY) {
        held->index[held->count++] = qp->receive.index;
    }
    qp->receive.taken = false;
    qp->held = held;
}

bool held_wait(struct nic *nic, struct queue_pair *qp)
{
    if (!qp->held && nic->fabric->fault.taken_count > 0 && may_have_taken(qp)) {
        qp->could_receive = false; /* once */
        take(nic, qp);
    }
    if (!qp->held) {
        return false;
    }
    if (nic->now_ns < qp->held->due_ns) {
        qp->timer_ns = qp->held->due_ns;
        qp_wake_at(nic, qp, qp->timer_ns);
        return true;
    }
    for (uint32_t i = 0; i < qp->held->count; i++) {
        cq_write_error(nic, qp, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, qp->held->index[i]);
    }
    held_forget(qp);
    return false;
}

void held_forget(struct queue_pair *qp)
{
    free(qp->held);
    qp->held = NULL;
}
