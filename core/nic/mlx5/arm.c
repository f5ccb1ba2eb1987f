/* arm.c: sleeping until a completion comes. */
#include "nic/mlx5/mlx5.h"

int mlx5_arm(struct nic *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    completion_queue_arm(&nic->receives, false);
    completion_queue_arm(&nic->sends, false);
    return 0;
}

void mlx5_disarm(struct nic *base)
{
    struct mlx5_nic *nic = to_mlx5_nic(base);
    struct ibv_cq *cq;
    while ((cq = device_next_event(&nic->device)) != NULL) {
        bool send = cq == nic->send_cq;
        completion_queue_event(send ? &nic->sends : &nic->receives);
        device_count_event(cq, send ? &nic->send_events_unacked : &nic->receive_events_unacked);
    }
}
