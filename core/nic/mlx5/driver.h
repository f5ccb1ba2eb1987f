/* driver.h: the direct driver, for the table of drivers. */
#ifndef CORE_NIC_MLX5_DRIVER_H
#define CORE_NIC_MLX5_DRIVER_H

#include "nic/nic.h"

extern const struct nic_operations mlx5_operations;

#endif
