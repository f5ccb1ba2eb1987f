/* op.h: what makes an op valid: what its opcode does not name is zero, and its payload lies within the caller's.
 * Whoever reads an op of the caller first asks here: capi for one op. run.c has the same rules in fewer instructions.
 */
#ifndef CORE_RPC_OP_H
#define CORE_RPC_OP_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/abi.h"

static inline bool op_payload_fits(const crpc_op *op, uint64_t payload_bytes)
{
    uint64_t end = op->payload_offset + op->payload_bytes;
    return end <= payload_bytes && end >= op->payload_offset;
}

/* What is a valid CALL: opcode and flags are compared as one. */
static inline bool op_is_call(const crpc_op *op)
{
    uint16_t head;
    memcpy(&head, op, sizeof(head));
    return head == CRPC_OP_CALL && ((uint32_t)op->status | op->token | op->region.bits) == 0;
}

/* Likewise with CRPC_OP_IDEMPOTENT, or without. What looks at most calls does not know that flag, so that they pay nothing for it. */
static inline bool op_idempotent_call_valid(const crpc_op *op)
{
    return op->opcode == CRPC_OP_CALL && (op->flags & ~CRPC_OP_IDEMPOTENT) == 0 &&
           ((uint32_t)op->status | op->token | op->region.bits) == 0;
}

/* What is a valid REPLY that is quiet, as most are: opcode, flags and method are compared as one. */
static inline bool op_is_quiet_reply(const crpc_op *op)
{
    uint32_t head;
    static_assert(offsetof(crpc_op, opcode) == 0 && offsetof(crpc_op, flags) == 1 &&
                      offsetof(crpc_op, method) == 2 && offsetof(crpc_op, status) == 4,
                  "the head of an op");
    memcpy(&head, op, sizeof(head));
    return head == (CRPC_OP_REPLY | CRPC_OP_QUIET << 8) && op->status >= 0 &&
           (op->reply_bytes_max | op->timeout_ns | op->region.bits) == 0;
}

static inline bool op_call_valid(const crpc_op *op)
{
    return (op->flags | (uint32_t)op->status | op->token | op->region.bits) == 0;
}

/* What neither REPLY nor DROP has, whose statuses differ. */
static inline bool op_answers(const crpc_op *op)
{
    return ((op->flags & ~CRPC_OP_QUIET) | op->method | op->reply_bytes_max | op->timeout_ns |
            op->region.bits) == 0;
}

static inline bool op_reply_valid(const crpc_op *op)
{
    return op->status >= 0 && op_answers(op);
}

static inline bool op_drop_valid(const crpc_op *op)
{
    return (op->status == 0 || op->status == CRPC_E_NOT_STARTED) && op_answers(op) &&
           (op->payload_offset | op->payload_bytes) == 0;
}

static inline bool op_cancel_valid(const crpc_op *op)
{
    return (op->flags | op->method | (uint32_t)op->status | op->payload_offset | op->payload_bytes |
            op->reply_bytes_max | op->timeout_ns | op->region.bits) == 0;
}

/* Of an op with CRPC_OP_TRACED. */
static inline bool op_trace_valid(const crpc_trace *trace)
{
    static const uint8_t zeros[sizeof(trace->reserved)];
    return memcmp(trace->reserved, zeros, sizeof(zeros)) == 0;
}

#endif
