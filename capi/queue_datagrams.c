/* queue_datagrams.c: the data path of queues whose ops go to targets: checks of these, and what a datagram
 * may be. All else is in queue_submit.c.
 */
#include "base/compiler.h"
#include "private/queue_batch.h"

/* The target that was named last: the next ops tend to name the same. */
struct named {
    uint64_t handle; /* 0 = none */
    struct nic_target *target;
};

static int32_t find_target(const crpc_context *context, uint64_t handle, uint32_t kind,
                           struct named *named)
{
    if (handle == 0) {
        return CRPC_E_INVALID;
    }
    if (handle == named->handle) {
        return CRPC_OK;
    }
    const struct queue_target *target = target_of(context, (crpc_target){handle});
    if (!target) {
        return CRPC_E_STALE;
    }
    if (queue_target_options(target)->kind != kind) {
        return CRPC_E_INVALID;
    }
    *named = (struct named){.handle = handle, .target = queue_target_nic(target)};
    return CRPC_OK;
}

/* Of an op that was checked. */
static uint64_t payload_bytes(const struct batch *batch, const crpc_queue_op *op)
{
    uint64_t bytes = 0;
    if (!(op->flags & CRPC_QUEUE_PIECES)) {
        return op->bytes;
    }
    for (uint32_t i = 0; i < op->bytes; i++) {
        bytes += batch->context->queue_pieces[op->address + i].bytes;
    }
    return bytes;
}

static int32_t check_datagram(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key,
                              struct named *named)
{
    if (op->opcode != CRPC_QUEUE_SEND && op->opcode != CRPC_QUEUE_SEND_IMMEDIATE) {
        return CRPC_E_UNSUPPORTED;
    }
    if (op->flags & CRPC_QUEUE_FENCE) {
        return CRPC_E_INVALID;
    }
    int32_t status = queue_check_op(batch, op, local_key);
    if (status == CRPC_OK && payload_bytes(batch, op) > batch->context->nic->mtu_bytes) {
        status = CRPC_E_TOO_BIG;
    }
    return status == CRPC_OK
               ? find_target(batch->context, op->target.bits, batch->limits->kind, named)
               : status;
}

uint32_t queue_submit_datagrams(struct batch *batch, struct queue *queue, const crpc_queue_op *ops,
                                uint32_t count, int32_t *status)
{
    uint32_t local_keys[CHUNK];
    struct nic_target *targets[CHUNK];
    struct named named = {0};
    const uint32_t limit = count < CHUNK ? count : CHUNK;
    uint32_t good = 0;
    int32_t refusal = CRPC_OK;
    while (good < limit && ops[good].opcode != CRPC_QUEUE_RECEIVE) {
        *status = check_datagram(batch, &ops[good], &local_keys[good], &named);
        if (unlikely(*status != CRPC_OK)) {
            break;
        }
        targets[good++] = named.target;
    }
    if (good == 0) {
        return 0;
    }
    uint32_t taken = queue_submit_to(queue, (const struct nic_work *)ops, targets, local_keys,
                                     batch->context->queue_pieces, good, &refusal);
    if (unlikely(taken < good)) {
        *status = refusal;
    }
    return taken;
}
