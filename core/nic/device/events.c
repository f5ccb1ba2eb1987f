/* events.c: events of completion queues. All queues of a nic share one completion channel, whose
 * file descriptor does not block. Events are acknowledged in batches, because each acknowledgement
 * takes a lock of libibverbs. */
#include "nic/device/device.h"

#define UNACKED_MAX 64

struct ibv_cq *device_next_event(struct device_nic *nic)
{
    struct ibv_cq *cq;
    void *unused;
    return ibv_get_cq_event(nic->channel, &cq, &unused) == 0 ? cq : NULL;
}

void device_count_event(struct ibv_cq *cq, uint32_t *unacked)
{
    if (++*unacked == UNACKED_MAX) {
        ibv_ack_cq_events(cq, *unacked);
        *unacked = 0;
    }
}

void device_destroy_cq(struct ibv_cq *cq, uint32_t unacked)
{
    if (unacked != 0) {
        ibv_ack_cq_events(cq, unacked);
    }
    ibv_destroy_cq(cq);
}
