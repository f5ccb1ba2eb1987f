/* queue_targets.c: the data path of queues whose ops go to targets: checks of these, what a datagram may be,
 * and which streams there are. All else is in queue_submit.c.
 */
#include "base/compiler.h"
#include "private/queue_batch.h"

struct nic_target *queue_find_target(crpc_context *context, uint64_t handle, uint32_t kind,
                                     int32_t *status)
{
    const struct queue_target *found = target_of(context, (crpc_target){handle});
    if (!found) {
        *status = handle == 0 ? CRPC_E_INVALID : CRPC_E_STALE;
        return NULL;
    }
    struct nic_target *target = queue_target_nic(found);
    if (target->kind != kind) {
        *status = CRPC_E_INVALID;
        return NULL;
    }
    context->queue_aim = (struct queue_aim){.handle = handle, .target = target, .kind = kind};
    return target;
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

static int32_t check_datagram(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key)
{
    if (op->flags & CRPC_QUEUE_FENCE) {
        return CRPC_E_INVALID;
    }
    int32_t status = queue_check_op(batch, op, local_key);
    return status == CRPC_OK && payload_bytes(batch, op) > batch->context->nic->mtu_bytes
               ? CRPC_E_TOO_BIG
               : status;
}

static int32_t check_of_stream(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key)
{
    crpc_queue_op first = *op; /* the same, of the stream that all have */
    first.stream = 0;
    return op->stream < queue_streams(batch) ? queue_check_op(batch, &first, local_key)
                                             : CRPC_E_INVALID;
}

int32_t queue_check_op_to_target(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key,
                                 struct nic_target **target)
{
    int32_t status = batch->limits->kind == NIC_QUEUE_UD ? check_datagram(batch, op, local_key)
                                                         : check_of_stream(batch, op, local_key);
    if (status == CRPC_OK) {
        *target = queue_find_target(batch->context, op->target.bits, batch->limits->kind, &status);
    }
    return status;
}

uint32_t queue_submit_to_targets(struct batch *batch, struct queue *queue, const crpc_queue_op *ops,
                                 uint32_t count, int32_t *status)
{
    uint32_t local_keys[CHUNK];
    struct nic_target *targets[CHUNK];
    const uint32_t limit = count < CHUNK ? count : CHUNK;
    uint32_t good = 0;
    int32_t refusal = CRPC_OK;
    while (good < limit && *status == CRPC_OK && ops[good].opcode != CRPC_QUEUE_RECEIVE) {
        good += queue_check_to_targets(batch, ops + good, limit - good, local_keys + good,
                                       targets + good, status);
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
