/* arm.c: sleeping until a completion comes. */
#include "nic/verbs/verbs.h"

int verbs_arm(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    int os_error = ibv_req_notify_cq(nic->receive.cq, 0);
    if (os_error == 0) {
        os_error = ibv_req_notify_cq(nic->send.cq, 0);
    }
    for (uint32_t table = 0; table < NIC_TABLES; table++) {
        struct device_source *one = nic->device.queue_sources[table];
        for (; one && os_error == 0; one = one->next) {
            os_error = ibv_req_notify_cq(to_verbs_source(one)->cq, 0);
        }
    }
    return os_error;
}

static struct verbs_source *find_source(struct verbs_nic *nic, const struct ibv_cq *cq)
{
    for (uint32_t table = 0; table < NIC_TABLES; table++) {
        for (struct device_source *one = nic->device.queue_sources[table]; one; one = one->next) {
            if (to_verbs_source(one)->cq == cq) {
                return to_verbs_source(one);
            }
        }
    }
    return cq == nic->send.cq ? &nic->send : &nic->receive;
}

void verbs_disarm(struct nic *base)
{
    struct verbs_nic *nic = to_verbs_nic(base);
    struct ibv_cq *cq;
    while ((cq = device_next_event(&nic->device)) != NULL) {
        device_count_event(cq, &find_source(nic, cq)->events_unacked);
    }
}
