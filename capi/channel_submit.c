/* channel_submit.c: the data path of channels. Each op is checked here, once, and so is the memory
 * that it names.
 */
#include "base/compiler.h"
#include "private/context.h"

/* ---- Checks of an op: what its opcode does not name must be zero ----------------------------- */

static inline bool receive_valid(const crpc_channel_op *op)
{
    return ((op->flags & ~CRPC_CHANNEL_MORE) | op->zero | op->timeout_ns | op->token) == 0;
}

static inline bool send_valid(const crpc_channel_op *op)
{
    return (op->flags | op->zero | op->token) == 0;
}

static bool cancel_valid(const crpc_channel_op *op)
{
    return (op->flags | op->zero | op->tag | op->region.bits | op->address | op->bytes |
            op->timeout_ns) == 0;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Cold: the registration is made now. There is no crpc_error to tell why it fails, so the log does. */
static int32_t cached_region(crpc_context *context, const crpc_channel_op *op,
                             struct registration **region)
{
    crpc_error failure;
    failure.message[0] = '\0';
    if (op->address == 0 || op->bytes > UINT64_MAX - op->address) {
        return CRPC_E_INVALID;
    }
    int32_t status =
        registration_cache_get(context->cache, op->address, op->bytes, region, &failure);
    if (unlikely(status != CRPC_OK)) {
        log_write(&context->log, CRPC_LOG_WARNING, "cannot register %u bytes for an op: %s",
                  (uint32_t)op->bytes, failure.message);
    }
    return status;
}

/* A rail could not register the memory, perhaps for a moment only, or for ever: then its device is gone. The log tells why. */
static __attribute__((cold, noinline)) int32_t complete_region(const crpc_context *context,
                                                               const struct channel *channel,
                                                               struct registration *region)
{
    crpc_error failure;
    const int32_t status =
        registration_cache_complete(context->cache, region, channel_rails(channel), &failure);
    if (status == CRPC_OK) {
        return status;
    }
    channel_look_for_lost(context->channels);
    return (region->nics & channel_rails(channel)) == channel_rails(channel) ? CRPC_OK : status;
}

/* The registration that the op's buffer lies in: `access` is what must be allowed there, `rails`
 * which must have it. NULL where there is nothing to lie anywhere. */
static inline int32_t find_memory(crpc_context *context, const struct channel *channel,
                                  const crpc_channel_op *op, uint32_t access, uint32_t rails,
                                  struct registration **region)
{
    *region = NULL;
    if (unlikely(op->bytes > CHANNEL_BUFFER_BYTES_MAX)) {
        return CRPC_E_TOO_BIG;
    }
    if (op->region.bits == 0) {
        if (op->bytes == 0) {
            return CRPC_OK;
        }
        int32_t status = cached_region(context, op, region);
        if (unlikely(status != CRPC_OK)) {
            return status;
        }
    } else {
        struct region *object = region_of(context, op->region);
        if (unlikely(!object)) {
            return CRPC_E_STALE;
        }
        if (op->bytes == 0) {
            return CRPC_OK;
        }
        *region = &object->rails;
    }
    uint64_t before = op->address - (*region)->address; /* huge if it begins before the region */
    if (unlikely(before > (*region)->bytes || op->bytes > (*region)->bytes - before ||
                 ((*region)->access & access) != access)) {
        return CRPC_E_INVALID;
    }
    if (likely(((*region)->nics & rails) == rails)) {
        return CRPC_OK;
    }
    return op->region.bits == 0 ? complete_region(context, channel, *region) : CRPC_E_UNSUPPORTED;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

/* How many of the ops are one message: 1, or more with CRPC_CHANNEL_MORE. */
static inline int32_t group_size(const crpc_channel_op *ops, uint32_t count, uint32_t *size)
{
    uint32_t members = 1;
    while (ops[members - 1].flags & CRPC_CHANNEL_MORE) {
        if (members == CHANNEL_GROUP_MAX) {
            return CRPC_E_TOO_BIG;
        }
        if (members == count || ops[members].opcode != CRPC_CHANNEL_RECEIVE ||
            ops[members].channel.bits != ops[0].channel.bits) {
            return CRPC_E_INVALID;
        }
        members++;
    }
    *size = members;
    return CRPC_OK;
}

/* One message to be received: *used of the ops. While the regions of a group are gathered each
 * counts as in use, lest a later one throws an earlier one out of the cache. */
static inline int32_t receive(crpc_context *context, struct channel *channel,
                              const crpc_channel_op *ops, uint32_t count, uint32_t *used)
{
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    const uint32_t rails = channel_rails(channel);
    struct registration *regions[CHANNEL_GROUP_MAX];
    uint32_t found = 0;
    int32_t status = group_size(ops, count, used);
    while (likely(status == CRPC_OK) && found < *used) {
        const crpc_channel_op *op = &ops[found];
        status = likely(receive_valid(op))
                     ? find_memory(context, channel, op, access, rails, &regions[found])
                     : CRPC_E_INVALID;
        if (likely(status == CRPC_OK)) {
            if (regions[found]) {
                regions[found]->users++;
            }
            found++;
        }
    }
    if (likely(status == CRPC_OK)) {
        status = channel_receive(channel, ops, regions, found);
    }
    for (uint32_t i = 0; i < found; i++) {
        if (regions[i]) {
            regions[i]->users--;
        }
    }
    return status;
}

static inline int32_t send_one(crpc_context *context, struct channel *channel,
                               const crpc_channel_op *op)
{
    struct registration *region;
    if (unlikely(!send_valid(op))) {
        return CRPC_E_INVALID;
    }
    if (unlikely(op->bytes > channel_send_bytes_max(context->channels))) {
        return CRPC_E_TOO_BIG;
    }
    int32_t status = find_memory(context, channel, op, 0, channel_rails(channel), &region);
    return likely(status == CRPC_OK) ? channel_send(channel, op, region) : status;
}

static inline int32_t submit_one(crpc_context *context, struct channel *channel,
                                 const crpc_channel_op *ops, uint32_t count, uint32_t *used)
{
    *used = 1;
    switch (ops->opcode) {
    case CRPC_CHANNEL_RECEIVE:
        return receive(context, channel, ops, count, used);
    case CRPC_CHANNEL_SEND:
        return send_one(context, channel, ops);
    case CRPC_CHANNEL_CANCEL:
        return cancel_valid(ops) ? channel_cancel(channel, ops) : CRPC_E_INVALID;
    default:
        return CRPC_E_UNSUPPORTED;
    }
}

int32_t crpc_channel_submit(crpc_context *context, const crpc_channel_op *ops, uint32_t count,
                            int32_t *reason)
{
    int32_t unused;
    reason = reason ? reason : &unused;
    if (unlikely(!context || (!ops && count > 0) || count > INT32_MAX)) {
        *reason = CRPC_E_INVALID;
        return CRPC_E_INVALID;
    }
    /* Ops of one channel tend to come together: its handle is looked up once. No handle is ~0. */
    crpc_channel handle = {~UINT64_C(0)};
    struct channel *channel = NULL;
    uint32_t taken = 0;
    uint32_t used;
    int32_t status = CRPC_OK;
    while (taken < count) {
        const crpc_channel_op *op = &ops[taken];
        if (op->channel.bits != handle.bits) {
            handle = op->channel;
            channel = channel_of(context, handle);
        }
        status =
            likely(channel) ? submit_one(context, channel, op, count - taken, &used) : CRPC_E_STALE;
        if (unlikely(status != CRPC_OK)) {
            break;
        }
        taken += used;
    }
    if (likely(context->channels)) {
        channel_submit_end(context->channels);
    }
    *reason = status;
    return (int32_t)taken;
}
