/* target.c: targets of ops, for the caller. */
#include <string.h>

#include "base/error.h"
#include "private/copyin.h"
#include "private/options.h"
#include "private/queue_batch.h"

#define SERVICE_LEVEL_MAX 15u

/* ---- Options --------------------------------------------------------------------------------- */

static int32_t check_options(const crpc_target_options *options, crpc_error *error)
{
    if (options->kind == CRPC_QUEUE_KIND_RC || options->kind == CRPC_QUEUE_KIND_SRQ ||
        options->kind == CRPC_QUEUE_KIND_DCT) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "ops of RC queues and SRQs have no target, and DCTs send nothing: a DCT's "
                         "target is of the kind DCI");
    }
    if (options->kind != CRPC_QUEUE_KIND_UD && options->kind != CRPC_QUEUE_KIND_DCI) {
        return error_set(
            error, CRPC_E_UNSUPPORTED, 0,
            "kind is %u; this version has targets of CRPC_QUEUE_KIND_UD (%u) and _DCI (%u)",
            options->kind, CRPC_QUEUE_KIND_UD, CRPC_QUEUE_KIND_DCI);
    }
    if (options->kind == CRPC_QUEUE_KIND_UD ? options->access_key != 0 : options->queue_key != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "targets of UD queues have a queue_key, and those of DCIs an access_key");
    }
    if (options->queue_key >= NIC_QUEUE_KEYS || options->service_level > SERVICE_LEVEL_MAX) {
        return error_set(
            error, CRPC_E_INVALID, 0,
            "queue_key is 0x%x, at most 0x7fffffff, and service_level is %u, at most %u",
            options->queue_key, options->service_level, SERVICE_LEVEL_MAX);
    }
    return CRPC_OK;
}

static int32_t take_options(struct nic_target_options *ours, const crpc_queue_address *address,
                            const crpc_target_options *theirs, crpc_error *error)
{
    crpc_target_options options;
    int32_t status = COPYIN(&options, theirs, target_options, error);
    if (status == CRPC_OK) {
        default32(&options.kind, CRPC_QUEUE_KIND_UD);
        status = check_options(&options, error);
    }
    if (status == CRPC_OK && options.kind == CRPC_QUEUE_KIND_UD) {
        default32(&options.queue_key, CRPC_QUEUE_KEY_DEFAULT);
    }
    if (status == CRPC_OK) {
        *ours = (struct nic_target_options){.kind = options.kind,
                                            .queue_key = options.queue_key,
                                            .access_key = options.access_key,
                                            .service_level = (uint8_t)options.service_level};
        status = queue_take_address(&ours->address, address, error);
    }
    return status;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static int32_t open_target(crpc_context *context, const crpc_queue_address *address,
                           const crpc_target_options *theirs, struct queue_target **target,
                           crpc_error *error)
{
    struct nic_target_options options;
    int32_t status = context_check_queues(context, error);
    if (status == CRPC_OK) {
        status = take_options(&options, address, theirs, error);
    }
    return status == CRPC_OK ? queue_target_open(context->queues, &options, target, error) : status;
}

int32_t crpc_target_open(crpc_context *context, const crpc_queue_address *address,
                         const crpc_target_options *options, crpc_target *target, crpc_error *error)
{
    crpc_error failure = {0};
    struct queue_target *made;
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = CRPC_E_INVALID;
    if (context && address && target) {
        status = open_target(context, address, options, &made, &failure);
    }
    if (status == CRPC_OK) {
        target->bits = queue_target_handle(made);
    }
    return give_error(error, &failure, status);
}

/* A receive that a datagram has taken, as a poll gives it. */
static int32_t check_datagram(const struct queue *queue, const crpc_completion *completion,
                              crpc_error *error)
{
    if (queue_limits(queue)->kind != NIC_QUEUE_UD || completion->kind != CRPC_COMPLETION_WORK ||
        completion->method != CRPC_QUEUE_RECEIVE || completion->status != CRPC_OK ||
        completion->payload_bytes < CRPC_QUEUE_HEADER_BYTES) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "the completion is not that of a RECEIVE of a UD queue, with CRPC_OK");
    }
    return CRPC_OK;
}

static int32_t open_source(crpc_context *context, const crpc_completion *completion,
                           const void *header, struct queue_target **target, crpc_error *error)
{
    uint8_t kept[NIC_DATAGRAM_HEADER_BYTES]; /* it may be in memory that a device writes to */
    struct queue *queue = queue_of(context, (crpc_queue){completion->endpoint.bits});
    if (!queue) {
        return CRPC_E_STALE;
    }
    int32_t status = check_datagram(queue, completion, error);
    memcpy(kept, header, sizeof(kept));
    return status == CRPC_OK ? queue_target_of(queue, completion, kept, target, error) : status;
}

int32_t crpc_target_of(crpc_context *context, const crpc_completion *completion, const void *header,
                       crpc_target *target, crpc_error *error)
{
    crpc_error failure = {0};
    struct queue_target *made;
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = CRPC_E_INVALID;
    if (context && completion && header && target) {
        status = open_source(context, completion, header, &made, &failure);
    }
    if (status == CRPC_OK) {
        target->bits = queue_target_handle(made);
    }
    return give_error(error, &failure, status);
}

/* ---- Closing, asking ------------------------------------------------------------------------- */

int32_t crpc_target_close(crpc_context *context, crpc_target target)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct queue_target *object = target_of(context, target);
    if (!object) {
        return CRPC_E_STALE;
    }
    context->queue_aim = (struct queue_aim){0}; /* it may be this one */
    queue_target_close(object);
    return CRPC_OK;
}

int32_t crpc_target_get_address(crpc_context *context, crpc_target target,
                                crpc_queue_address *address)
{
    if (!context || COPYOUT_CHECK(address, queue_address) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct queue_target *object = target_of(context, target);
    if (!object) {
        return CRPC_E_STALE;
    }
    queue_show_address(&queue_target_options(object)->address, address);
    return CRPC_OK;
}
