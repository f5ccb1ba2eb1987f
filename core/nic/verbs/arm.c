/* arm.c: sleeping until a completion comes. */
#include "nic/verbs/verbs.h"

int verbs_arm(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    int os_error = ibv_req_notify_cq(nic->receive.cq, 0);
    return os_error ? os_error : ibv_req_notify_cq(nic->send.cq, 0);
}

void verbs_disarm(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    struct ibv_cq *cq;
    while ((cq = device_next_event(&nic->device)) != NULL) {
        device_count_event(cq, cq == nic->send.cq ? &nic->send.events_unacked
                                                  : &nic->receive.events_unacked);
    }
}
