/* mlx5_dc.c: types, flags and transitions of DCI and DCT QPs, as the kernel's mlx5_ib has them
 * (drivers/infiniband/hw/mlx5/qp.c: process_vendor_flags, modify_dci_qp_is_ok,
 * mlx5_ib_modify_dct). */
#include "simnic/shim/kernel/mlx5_dc.h"

#include <infiniband/verbs.h>
#include <rdma/mlx5-abi.h>

#include "simnic/nic/nic.h"

uint32_t mlx5_dc_type(uint32_t type, uint32_t driver_flags)
{
    if (type != IBV_QPT_DRIVER) {
        return type;
    }
    switch (driver_flags & (MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT)) {
    case MLX5_QP_FLAG_TYPE_DCI:
        return TYPE_DCI;
    case MLX5_QP_FLAG_TYPE_DCT:
        return TYPE_DCT;
    default:
        return 0;
    }
}

uint32_t mlx5_dc_flags(uint32_t type)
{
    if (type == TYPE_DCI) {
        return MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM;
    }
    return type == TYPE_DCT ? MLX5_QP_FLAG_TYPE_DCT : 0;
}

static bool valid(uint32_t mask, uint32_t required, uint32_t optional)
{
    required |= IBV_QP_STATE;
    return (mask & required) == required && (mask & ~(required | optional)) == 0;
}

/* The adapter makes a target when it becomes ready to receive. It stays ready until it is
 * destroyed. */
static bool target_allowed(uint8_t from, uint8_t to, uint32_t mask)
{
    if (from == STATE_RESET && to == STATE_INIT) {
        return valid(mask, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0);
    }
    if (from == STATE_INIT && to == STATE_RTR) {
        return valid(mask, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0);
    }
    return false;
}

static bool initiator_allowed(uint8_t from, uint8_t to, uint32_t mask)
{
    if (to == STATE_RESET) {
        return valid(mask, 0, 0);
    }
    if (to == STATE_ERR) {
        return from != STATE_RESET && valid(mask, 0, 0);
    }
    if (from == STATE_RESET && to == STATE_INIT) {
        return valid(mask, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0);
    }
    if (from == STATE_INIT && to == STATE_INIT) {
        return valid(mask, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
    }
    if (from == STATE_INIT && to == STATE_RTR) {
        return valid(mask, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV);
    }
    if (from == STATE_RTR && to == STATE_RTS) {
        return valid(mask,
                     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN,
                     IBV_QP_MIN_RNR_TIMER);
    }
    return from == STATE_RTS && to == STATE_RTS && valid(mask, 0, IBV_QP_MIN_RNR_TIMER);
}

bool mlx5_dc_transition_allowed(uint32_t type, uint8_t from, uint8_t to, uint32_t mask)
{
    mask &= ~(uint32_t)IBV_QP_CUR_STATE;
    return type == TYPE_DCT ? target_allowed(from, to, mask) : initiator_allowed(from, to, mask);
}
