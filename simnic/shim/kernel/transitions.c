/* transitions.c: which QP state transitions the kernel allows (IBTA volume 1, 11.2.5.2, table
 * 91). */
#include "simnic/shim/kernel/transitions.h"

#include <infiniband/verbs.h>

#include "simnic/nic/nic.h"
#include "simnic/shim/kernel/mlx5_dc.h"

#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define MORE (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)

struct rule {
    uint8_t from, to;
    struct {
        uint32_t required, optional;
    } rc, uc, ud;
};

static const struct rule rules[] = {
    {STATE_RESET,
     STATE_INIT,
     {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
     {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
     {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0}},
    {STATE_INIT,
     STATE_INIT,
     {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
     {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
     {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY}},
    {STATE_INIT,
     STATE_RTR,
     {PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
      IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
     {PATH, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
     {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {STATE_RTR,
     STATE_RTS,
     {IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
          IBV_QP_MAX_QP_RD_ATOMIC,
      MORE | IBV_QP_MIN_RNR_TIMER},
     {IBV_QP_SQ_PSN, MORE},
     {IBV_QP_SQ_PSN, IBV_QP_QKEY}},
    {STATE_RTS, STATE_RTS, {0, MORE | IBV_QP_MIN_RNR_TIMER}, {0, MORE}, {0, IBV_QP_QKEY}},
    {STATE_RTS,
     STATE_SQD,
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
     {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {STATE_SQD, STATE_RTS, {0, MORE | IBV_QP_MIN_RNR_TIMER}, {0, MORE}, {0, IBV_QP_QKEY}},
    {STATE_SQD,
     STATE_SQD,
     {0, MORE | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX |
             IBV_QP_MIN_RNR_TIMER},
     {0, MORE | IBV_QP_AV | IBV_QP_PKEY_INDEX},
     {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {STATE_SQE, STATE_RTS, {0, 0}, {0, IBV_QP_ACCESS_FLAGS}, {0, IBV_QP_QKEY}},
};

bool transition_allowed(uint32_t type, uint8_t from, uint8_t to, uint32_t mask)
{
    if (type == TYPE_DCI || type == TYPE_DCT) {
        return mlx5_dc_transition_allowed(type, from, to, mask);
    }
    uint32_t always = IBV_QP_STATE | IBV_QP_CUR_STATE;
    if (to == STATE_RESET || to == STATE_ERR) {
        return (mask & ~always) == 0;
    }
    if (type == TYPE_RC && from == STATE_SQE) {
        return false;
    }
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct rule *r = &rules[i];
        if (r->from != from || r->to != to) {
            continue;
        }
        uint32_t required = type == TYPE_UD   ? r->ud.required
                            : type == TYPE_UC ? r->uc.required
                                              : r->rc.required;
        uint32_t optional = type == TYPE_UD   ? r->ud.optional
                            : type == TYPE_UC ? r->uc.optional
                                              : r->rc.optional;
        /* Programs give the attributes of both halves of an XRC connection to each. The kernel
         * ignores those of the other half. */
        uint32_t other = type == TYPE_XRC_INITIATOR
                             ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
                         : type == TYPE_XRC_TARGET
                             ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                             : 0;
        required &= ~other;
        mask &= ~other;
        return (mask & required) == required && (mask & ~(required | optional | always)) == 0;
    }
    return false;
}
