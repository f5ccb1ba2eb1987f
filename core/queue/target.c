/* target.c: targets: queue pairs and DCTs to which ops of UD queues and DCIs go. Cold path.
 *
 * A device may need a target until the ops that name it have completed, and nobody counts these. So a target
 * that is closed stays until each queue has completed what it had posted then. One mark for each queue is
 * enough: targets that are closed while marks are set wait for the next ones. */
#include "queue/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

static_assert(offsetof(struct queue_target, nic) == 0, "queue_target_nic looks there");

/* ---- Making ---------------------------------------------------------------------------------- */

static int32_t check_address(const struct nic *nic, const struct nic_address *address,
                             crpc_error *error)
{
    if (!nic_address_valid(address)) {
        return error_set(error, CRPC_E_PROTOCOL, 0, "no queue pair can have the target's address");
    }
    if (address->link != nic->link) {
        return error_set(error, CRPC_E_UNREACHABLE, 0, "%s is not on the target's kind of link",
                         nic->device);
    }
    return CRPC_OK;
}

int32_t queue_target_open(struct queue_engine *engine, const struct nic_target_options *options,
                          struct queue_target **out, crpc_error *error)
{
    int32_t status = nic_queue_check_kind(engine->nic, options->kind, error);
    if (status == CRPC_OK) {
        status = check_address(engine->nic, &options->address, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    if (engine->device_lost) {
        return error_set(error, CRPC_E_NO_DEVICE, 0, "%s is lost", engine->nic->device);
    }
    queue_release_targets(engine);
    struct queue_target *target = calloc(1, sizeof(*target));
    uint64_t handle = target ? handles_add(engine->links.handles, HANDLE_TARGET, target) : 0;
    if (handle == 0) {
        free(target);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a target");
    }
    status = engine->operations->target_create(engine->nic, NULL, options, &target->nic, error);
    if (status != CRPC_OK) {
        handles_remove(engine->links.handles, handle);
        free(target);
        return status;
    }
    target->engine = engine;
    target->handle = handle;
    target->options = *options;
    list_init(&target->target_link);
    list_append(&engine->targets, &target->target_link);
    *out = target;
    return CRPC_OK;
}

int32_t queue_target_of(struct queue *queue, const crpc_completion *completion,
                        const uint8_t header[NIC_DATAGRAM_HEADER_BYTES],
                        struct queue_target **target, crpc_error *error)
{
    struct nic_target_options source;
    assert(queue->options.kind == NIC_QUEUE_UD);
    if (!nic_datagram_source(queue->engine->nic, completion, header, &source)) {
        return error_set(error, CRPC_E_PROTOCOL, 0,
                         "the header of the datagram does not say where it comes from");
    }
    source.queue_key = queue->options.queue_key;
    return queue_target_open(queue->engine, &source, target, error);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

uint64_t queue_target_handle(const struct queue_target *target)
{
    return target->handle;
}

const struct nic_target_options *queue_target_options(const struct queue_target *target)
{
    return &target->options;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void release(struct list *targets)
{
    struct list *at = targets->next;
    while (at != targets) {
        struct queue_target *target = list_entry(at, struct queue_target, target_link);
        at = at->next;
        target->engine->operations->target_destroy(target->nic);
        free(target);
    }
    list_init(targets);
}

/* Marks what is open now of queues that have targets. */
static void set_marks(struct queue_engine *engine)
{
    for (struct list *at = engine->links.all.next; at != &engine->links.all; at = at->next) {
        struct queue *queue = queue_from_link(list_entry(at, struct link, all_link));
        if (queue->nic && queue_has_targets(queue)) {
            queue->target_mark = queue->nic->sends.producer;
            queue->target_marked = true;
        }
    }
}

static bool marks_passed(struct queue_engine *engine)
{
    for (struct list *at = engine->links.all.next; at != &engine->links.all; at = at->next) {
        struct queue *queue = queue_from_link(list_entry(at, struct link, all_link));
        if (!queue->target_marked) {
            continue;
        }
        if (queue->nic && !queue->nic->stopped &&
            (int32_t)(queue->nic->sends.consumer - queue->target_mark) < 0) {
            return false;
        }
        queue->target_marked = false;
    }
    return true;
}

void queue_release_targets(struct queue_engine *engine)
{
    while (marks_passed(engine)) {
        release(&engine->targets_leaving);
        if (list_empty(&engine->targets_closed)) {
            break;
        }
        list_move_all(&engine->targets_leaving, &engine->targets_closed);
        set_marks(engine);
    }
}

void queue_target_close(struct queue_target *target)
{
    struct queue_engine *engine = target->engine;
    handles_remove(engine->links.handles, target->handle);
    list_remove(&target->target_link);
    list_append(&engine->targets_closed, &target->target_link);
    queue_release_targets(engine);
}

void queue_end_targets(struct queue_engine *engine)
{
    while (!list_empty(&engine->targets)) {
        struct queue_target *target =
            list_entry(engine->targets.next, struct queue_target, target_link);
        handles_remove(engine->links.handles, target->handle);
        list_remove(&target->target_link);
        list_append(&engine->targets_closed, &target->target_link);
    }
    release(&engine->targets_leaving);
    release(&engine->targets_closed);
}
