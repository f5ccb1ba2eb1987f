/* queue_tags.c: what only TM-SRQs have, for the caller: options, ops that concern tags, and the header of messages
 * that have one. */
#include <endian.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "nic/tags.h"
#include "private/queue_batch.h"

/* ---- Options --------------------------------------------------------------------------------- */

int32_t queue_check_tag_options(const crpc_context *context, const crpc_queue_options *options,
                                crpc_error *error)
{
    const uint32_t tags_max = context->nic->tags_max;
    if (options->kind != CRPC_QUEUE_KIND_TM_SRQ) {
        return options->tags == 0 ? CRPC_OK
                                  : error_set(error, CRPC_E_INVALID, 0, "only TM-SRQs have tags");
    }
    if (tags_max == 0) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0, "%s does not match tags",
                         context->nic->device);
    }
    if (options->tags > tags_max) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0, "%s: tags is %u, and may be at most %u",
                         context->nic->device, options->tags, tags_max);
    }
    return CRPC_OK;
}

int32_t queue_check_receive_queue(const struct queue *srq, uint32_t kind, crpc_error *error)
{
    const uint32_t its_kind = queue_limits(srq)->kind;
    if (!nic_kind_is_shared(its_kind)) {
        return error_set(error, CRPC_E_INVALID, 0, "receive_queue is not an SRQ");
    }
    if (its_kind == NIC_QUEUE_TM_SRQ && kind != CRPC_QUEUE_KIND_RC) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "receive_queue is a TM-SRQ: only RC queues may name it");
    }
    return CRPC_OK;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static bool concerns_tags(const crpc_queue_op *op)
{
    return op->opcode >= CRPC_QUEUE_TAG_ADD && op->opcode <= CRPC_QUEUE_TAG_SYNC;
}

static int32_t check(struct batch *batch, const crpc_queue_op *op, uint32_t *local_key)
{
    if (!concerns_tags(op)) {
        return CRPC_E_UNSUPPORTED;
    }
    if (op->target.bits != 0 || op->flags & CRPC_QUEUE_PIECES ||
        (op->opcode == CRPC_QUEUE_TAG_ADD && op->remote_address & ~op->operand)) {
        return CRPC_E_INVALID;
    }
    return queue_check_op(batch, op, local_key);
}

uint32_t queue_submit_tags(struct batch *batch, struct queue *queue, const crpc_queue_op *ops,
                           uint32_t count, int32_t *status)
{
    uint32_t local_keys[CHUNK] = {0};
    const uint32_t limit = count < CHUNK ? count : CHUNK;
    uint32_t good = 0;
    int32_t refusal = CRPC_OK;
    while (good < limit && ops[good].opcode != CRPC_QUEUE_RECEIVE) {
        *status = check(batch, &ops[good], &local_keys[good]);
        if (*status != CRPC_OK) {
            break;
        }
        good++;
    }
    if (good == 0) {
        return 0;
    }
    uint32_t taken = queue_tag(queue, (const struct nic_work *)ops, local_keys, good, &refusal);
    if (unlikely(taken < good)) {
        *status = refusal;
    }
    return taken;
}

/* ---- The header of a message ----------------------------------------------------------------- */

struct header {
    uint8_t kind;
    uint8_t zero[3];
    uint32_t context;
    uint64_t tag;
};
static_assert(sizeof(struct header) == CRPC_TAG_HEADER_BYTES &&
                  CRPC_TAG_HEADER_BYTES == NIC_TAG_HEADER_BYTES,
              "struct ibv_tmh");

int32_t crpc_tag_header_write(void *header, uint64_t tag, uint32_t context)
{
    const struct header ours = {
        .kind = CRPC_TAG_EAGER, .context = htobe32(context), .tag = htobe64(tag)};
    if (!header) {
        return CRPC_E_INVALID;
    }
    memcpy(header, &ours, sizeof(ours));
    return CRPC_OK;
}

int32_t crpc_tag_header_read(const void *message, uint32_t bytes, uint64_t *tag, uint32_t *context)
{
    struct header ours;
    if (!message && bytes > 0) {
        return CRPC_E_INVALID;
    }
    if (bytes < sizeof(ours)) {
        return CRPC_E_PROTOCOL;
    }
    memcpy(&ours, message, sizeof(ours));
    if (ours.kind > CRPC_TAG_EAGER) {
        return CRPC_E_PROTOCOL;
    }
    if (ours.kind != CRPC_TAG_NONE && tag) {
        *tag = be64toh(ours.tag);
    }
    if (ours.kind != CRPC_TAG_NONE && context) {
        *context = be32toh(ours.context);
    }
    return ours.kind;
}
