/* arm.c: sleeping until a completion comes. */
#include "nic/mlx5/devx.h"

#include <errno.h>

int mlx5_arm(struct nic *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    completion_queue_arm(&nic->receives, false);
    completion_queue_arm(&nic->sends, false);
    for (uint32_t table = 0; table < NIC_TABLES; table++) {
        for (struct device_source *one = nic->device.queue_sources[table]; one; one = one->next) {
            completion_queue_arm(&to_mlx5_source(one)->completions, false);
        }
    }
    return 0;
}

static struct mlx5_source *find_source(struct mlx5_nic *nic, const struct ibv_cq *cq)
{
    for (uint32_t table = 0; table < NIC_TABLES; table++) {
        for (struct device_source *one = nic->device.queue_sources[table]; one; one = one->next) {
            if (to_mlx5_source(one)->cq == cq) {
                return to_mlx5_source(one);
            }
        }
    }
    return NULL;
}

void mlx5_disarm(struct nic *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    struct ibv_cq *cq;
    errno = 0;
    while ((cq = device_next_event(&nic->device)) != NULL) {
        bool send = cq == nic->send_cq;
        struct mlx5_source *source = send || cq == nic->receive_cq ? NULL : find_source(nic, cq);
        if (source) {
            completion_queue_event(&source->completions);
            device_count_event(cq, &source->events_unacked);
            continue;
        }
        completion_queue_event(send ? &nic->sends : &nic->receives);
        device_count_event(cq, send ? &nic->send_events_unacked : &nic->receive_events_unacked);
        errno = 0;
    }
    const bool lost = errno == EIO; /* that channel's device is gone */
    if (nic->devx) {
        mlx5_devx_disarm(nic);
        if (lost) {
            mlx5_devx_lost(nic);
        }
    }
}
