/* mlx5_dc.h: what DCI and DCT QPs have of their own among the verbs: types and flags of mlx5_ib,
 * and transitions of state. */
#ifndef SIMNIC_SHIM_KERNEL_MLX5_DC_H
#define SIMNIC_SHIM_KERNEL_MLX5_DC_H

#include <stdbool.h>
#include <stdint.h>

/* The largest exponents of DCI streams: of those that an adapter may execute at once, and of those
 * that may fail before the DCI does. Ours are executed one after another, which an adapter may do,
 * too. */
#define MLX5_DC_LOG_STREAMS 15
#define MLX5_DC_LOG_FAILED_STREAMS 15

/* The type of a QP that is created as `type`, with mlx5_ib's flags: TYPE_DCI or TYPE_DCT for
 * IBV_QPT_DRIVER, 0 if that says neither. Other types are returned as they are. */
uint32_t mlx5_dc_type(uint32_t type, uint32_t driver_flags);

/* Flags of mlx5_ib that a QP of a DC type may have, besides those that all QPs may have. */
uint32_t mlx5_dc_flags(uint32_t type);

/* As transition_allowed, for DC types. */
bool mlx5_dc_transition_allowed(uint32_t type, uint8_t from, uint8_t to, uint32_t mask);

#endif
