/* driver.c: the direct driver's table of operations. */
#include "nic/mlx5/mlx5.h"

const struct nic_operations mlx5_operations = {
    .driver = CRPC_DRIVER_MLX5,
    .bit = 1u << CRPC_DRIVER_MLX5,
    .name = "mlx5",
    .query = mlx5_query,
    .open = mlx5_open,
    .close = mlx5_close,
    .domain_create = device_domain_create,
    .domain_destroy = device_domain_destroy,
    .memory_register = device_memory_register,
    .memory_register_dmabuf = device_memory_register_dmabuf,
    .memory_deregister = device_memory_deregister,
    .queue_pair_create = mlx5_queue_pair_create,
    .queue_pair_destroy = mlx5_queue_pair_destroy,
    .queue_pair_address = device_queue_pair_address,
    .queue_pair_connect = device_queue_pair_connect,
    .queue_pair_fail = mlx5_queue_pair_fail,
    .post_write_immediate = mlx5_post_write_immediate,
    .post_write = mlx5_post_write,
    .post_read = mlx5_post_read,
    .ring_doorbell = mlx5_ring_doorbell,
    .poll = mlx5_poll,
    .refill = mlx5_refill,
    .arm = mlx5_arm,
    .disarm = mlx5_disarm,
};
