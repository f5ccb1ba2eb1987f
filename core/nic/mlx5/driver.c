/* driver.c: the direct driver's tables of operations. */
#include "nic/mlx5/mlx5.h"

/* What has to do with no queue pair. */
#define NIC_OPERATIONS                                                                             \
    .driver = CRPC_DRIVER_MLX5, .bit = 1u << CRPC_DRIVER_MLX5, .name = "mlx5",                     \
    .query = mlx5_query, .open = mlx5_open, .close = mlx5_close,                                   \
    .domain_create = device_domain_create, .domain_destroy = device_domain_destroy,                \
    .memory_register = device_memory_register,                                                     \
    .memory_register_dmabuf = device_memory_register_dmabuf,                                       \
    .memory_deregister = device_memory_deregister, .window_create = device_window_create,          \
    .window_destroy = device_window_destroy, .queue_pair_begin = mlx5_queue_pair_begin,            \
    .queue_pair_make = mlx5_queue_pair_make, .queue_pair_adopt = mlx5_queue_pair_adopt,            \
    .queue_pair_create_dynamic = mlx5_dynamic_create, .poll = mlx5_poll, .refill = mlx5_refill,    \
    .arm = mlx5_arm, .disarm = mlx5_disarm, .queues = &mlx5_queue_operations

const struct nic_operations mlx5_operations = {
    NIC_OPERATIONS,
    .queue_pair_settle = device_queue_pair_settle,
    .queue_pair_drop = mlx5_queue_pair_drop,
    .queue_pair_unmake = mlx5_queue_pair_unmake,
    .queue_pair_destroy = mlx5_queue_pair_destroy,
    .queue_pair_address = device_queue_pair_address,
    .queue_pair_connect = device_queue_pair_connect,
    .queue_pair_fail = mlx5_queue_pair_fail,
    .post_write_immediate = mlx5_post_write_immediate,
    .post_written = mlx5_post_written,
    .post_write = mlx5_post_write,
    .post_foreign_write = mlx5_post_foreign_write,
    .post_read = mlx5_post_read,
    .post_pieces = mlx5_post_pieces,
    .post_atomic = mlx5_post_atomic,
    .fence_last = mlx5_fence_last,
    .post_bind = mlx5_post_bind,
    .post_invalidate = mlx5_post_invalidate,
    .ring_doorbell = mlx5_ring_doorbell,
};

const struct nic_operations mlx5_dynamic_operations = {
    NIC_OPERATIONS,
    .queue_pair_destroy = mlx5_dynamic_destroy,
    .queue_pair_address = device_queue_pair_address,
    .queue_pair_connect = mlx5_dynamic_connect,
    .queue_pair_fail = mlx5_dynamic_fail,
    .take_room = mlx5_dynamic_take_room,
    .post_write_immediate = mlx5_dynamic_write_immediate,
    .post_write = mlx5_dynamic_write,
    .post_foreign_write = mlx5_dynamic_foreign_write,
    .post_read = mlx5_dynamic_read,
    .post_pieces = mlx5_dynamic_pieces,
    .ring_doorbell = mlx5_dynamic_ring,
};
