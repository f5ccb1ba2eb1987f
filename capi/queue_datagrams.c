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

int32_t queue_check_datagram(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key)
{
    if (op->flags & CRPC_QUEUE_FENCE) {
        return CRPC_E_INVALID;
    }
    int32_t status = queue_check_op(batch, op, local_key);
    return status == CRPC_OK && payload_bytes(batch, op) > batch->context->nic->mtu_bytes
               ? CRPC_E_TOO_BIG
               : status;
}

/* Finds the targets of ops that are good. Returns how many have one. */
static uint32_t find_targets(const struct batch *batch, const crpc_queue_op *ops, uint32_t count,
                             struct named *named, struct nic_target **targets, int32_t *status)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t handle = ops[i].target.bits;
        if (unlikely(handle != named->handle || handle == 0)) {
            int32_t found = find_target(batch->context, handle, batch->limits->kind, named);
            if (found != CRPC_OK) {
                *status = found;
                return i;
            }
        }
        targets[i] = named->target;
    }
    return count;
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
    while (good < limit && *status == CRPC_OK && ops[good].opcode != CRPC_QUEUE_RECEIVE) {
        uint32_t run =
            queue_check_datagrams(batch, ops + good, limit - good, local_keys + good, status);
        good += find_targets(batch, ops + good, run, &named, targets + good, status);
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
