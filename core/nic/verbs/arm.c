/* arm.c: sleeping until a completion comes.
 *
 * Both CQs share one completion channel, whose file descriptor does not block. Events are
 * acknowledged in batches, because each acknowledgement takes a lock of libibverbs.
 */
#include "verbs.h"

#define UNACKED_MAX 64

int verbs_arm(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    int os_error = ibv_req_notify_cq(nic->receive.cq, 0);
    return os_error ? os_error : ibv_req_notify_cq(nic->send.cq, 0);
}

static void count_event(struct verbs_source *source)
{
    if (++source->events_unacked == UNACKED_MAX) {
        ibv_ack_cq_events(source->cq, source->events_unacked);
        source->events_unacked = 0;
    }
}

void verbs_disarm(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    struct ibv_cq *cq;
    void *unused;
    while (ibv_get_cq_event(nic->device.channel, &cq, &unused) == 0) {
        count_event(cq == nic->send.cq ? &nic->send : &nic->receive);
    }
}
