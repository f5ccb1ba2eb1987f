/* op.h: what makes an op valid: what its opcode does not name is zero, and its payload lies within the caller's.
 * Whoever reads an op of the caller first asks here: capi for one op. run.c has the same rules in fewer instructions.
 */
#ifndef CORE_RPC_OP_H
#define CORE_RPC_OP_H

#include <stdbool.h>

#include "base/abi.h"

static inline bool op_payload_fits(const crpc_op *op, uint64_t payload_bytes)
{
    uint64_t end = op->payload_offset + op->payload_bytes;
    return end <= payload_bytes && end >= op->payload_offset;
}

static inline bool op_call_valid(const crpc_op *op)
{
    return (op->flags | (uint32_t)op->status | op->token | op->region.bits) == 0;
}

static inline bool op_reply_valid(const crpc_op *op)
{
    return op->status >= 0 && ((op->flags & ~CRPC_OP_QUIET) | op->method | op->reply_bytes_max |
                               op->timeout_ns | op->region.bits) == 0;
}

static inline bool op_drop_valid(const crpc_op *op)
{
    return op_reply_valid(op) &&
           ((uint32_t)op->status | op->payload_offset | op->payload_bytes) == 0;
}

static inline bool op_cancel_valid(const crpc_op *op)
{
    return (op->flags | op->method | (uint32_t)op->status | op->payload_offset | op->payload_bytes |
            op->reply_bytes_max | op->timeout_ns | op->region.bits) == 0;
}

#endif
