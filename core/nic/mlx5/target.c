/* target.c: targets of datagrams and of DCIs: libmlx5 knows the way, which we keep as WQEs have it. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "nic/mlx5/mlx5.h"

int32_t mlx5_target_create(struct nic *nic, struct nic_domain *domain,
                           const struct nic_target_options *options, struct nic_target **result,
                           crpc_error *error)
{
    struct mlx5dv_ah found = {0};
    struct mlx5dv_obj object = {.ah = {.out = &found}};
    int32_t status =
        device_target_create(sizeof(struct mlx5_target), nic, domain, options, result, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct mlx5_target *target = container_of(*result, struct mlx5_target, device.base);
    object.ah.in = target->device.ah;
    int os_error = mlx5dv_init_obj(&object, MLX5DV_OBJ_AH);
    if (os_error) {
        device_target_destroy(*result);
        return error_set(error, CRPC_E_SYSTEM, os_error, "%s: libmlx5 does not show an address: %s",
                         nic->device, strerror(os_error));
    }
    target->address = *found.av;
    if (options->kind == NIC_QUEUE_DCI) {
        target->address.key.dc_key = htobe64(options->access_key);
    } else {
        target->address.key.qkey.qkey = htobe32(options->queue_key);
        target->address.key.qkey.reserved = 0;
    }
    target->address.dqp_dct = htobe32(options->address.queue_pair_number | MLX5_EXTENDED_UD_AV);
    return CRPC_OK;
}
