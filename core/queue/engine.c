/* engine.c: all queues of a context: what a poll does in which order, and what the device tells. */
#include "queue/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"

/* ---- Life ------------------------------------------------------------------------------------ */

int32_t queue_engine_create(struct nic *nic, struct cm *cm, struct log *log,
                            struct handles *handles, uint32_t queues_max, struct link_group *beside,
                            const uint64_t *virtual_clock_ns, struct queue_engine **out,
                            crpc_error *error)
{
    assert(queues_max > 0);
    if (!nic->operations->queues) {
        return error_set(error, CRPC_E_UNSUPPORTED, 0, "the driver %s has no queues",
                         nic->operations->name);
    }
    struct queue_engine *engine = lines_alloc(1, sizeof(*engine));
    if (!engine) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for queues");
    }
    engine->nic = nic;
    engine->operations = nic->operations->queues;
    engine->log = log;
    engine->queues_max = queues_max;
    list_init(&engine->refused);
    list_init(&engine->ended);
    list_init(&engine->failing);
    list_init(&engine->draining);
    list_init(&engine->targets);
    list_init(&engine->targets_closed);
    list_init(&engine->targets_leaving);
    table_init(&engine->queue_pairs);
    link_group_init(&engine->links, &queue_service, nic, cm, log, handles, virtual_clock_ns);
    if (beside) {
        link_group_beside(&engine->links, beside);
    }
    *out = engine;
    return CRPC_OK;
}

void queue_engine_destroy(struct queue_engine *engine)
{
    /* An SRQ outlives the queue pairs that use it. */
    struct list *last = engine->links.all.previous;
    struct list *at = engine->links.all.next;
    for (bool more = at != &engine->links.all; more;) {
        struct link *link = list_entry(at, struct link, all_link);
        more = at != last;
        at = at->next;
        if (nic_kind_is_shared(queue_from_link(link)->options.kind)) {
            list_remove(&link->all_link);
            list_append(&engine->links.all, &link->all_link);
        }
    }
    link_group_close(&engine->links);
    queue_end_targets(engine);
    table_free(&engine->queue_pairs);
    free(engine);
}

struct link_group *queue_links(struct queue_engine *engine)
{
    return &engine->links;
}

uint32_t queue_engine_queues(const struct queue_engine *engine)
{
    return engine->queue_count;
}

uint32_t queue_engine_queues_max(const struct queue_engine *engine)
{
    return engine->queues_max;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static int32_t status_of(const crpc_completion *completion)
{
    switch (-completion->status) {
    case NIC_ERROR_FLUSHED:
        return CRPC_E_FLUSHED;
    case NIC_ERROR_RETRY:
        return CRPC_E_DISCONNECTED;
    case NIC_ERROR_RNR:
        return CRPC_E_NOT_READY;
    case NIC_ERROR_REMOTE_ACCESS:
        return CRPC_E_ACCESS;
    case NIC_ERROR_LENGTH:
        return CRPC_E_TRUNCATED;
    case NIC_ERROR_REMOVED:
        return CRPC_E_CANCELED;
    case NIC_ERROR_NOT_FOUND:
        return CRPC_E_NOT_FOUND;
    default:
        return CRPC_E_DEVICE;
    }
}

void queue_explain(const struct queue *queue, const crpc_completion *completion, crpc_error *error)
{
    static const char *const texts[] = {
        [NIC_ERROR_NONE] = "unknown",
        [NIC_ERROR_FLUSHED] = "the queue pair was taken down",
        [NIC_ERROR_RETRY] =
            "the peer's device does not answer: its program, machine or link is gone",
        [NIC_ERROR_RNR] = "the peer had no receive posted",
        [NIC_ERROR_REMOTE_ACCESS] = "the peer's device refused the address, the key or the right",
        [NIC_ERROR_LOCAL] = "our device refused an op: is its memory registered for this?",
        [NIC_ERROR_OTHER] = "the device reported an error",
        [NIC_ERROR_LENGTH] = "a message of the peer was longer than the receive",
    };
    const bool connected = queue->options.kind == NIC_QUEUE_RC;
    const uint32_t known = sizeof(texts) / sizeof(texts[0]);
    uint32_t reason = (uint32_t)-completion->status;
    bool flushed = reason == NIC_ERROR_FLUSHED;
    error_set(error, flushed ? CRPC_E_DISCONNECTED : status_of(completion), 0,
              "%s: %s (opcode %u, queue pair 0x%x, vendor syndrome 0x%x)",
              connected ? "connection lost" : "the queue has failed",
              texts[reason < known ? reason : NIC_ERROR_OTHER], completion->method, queue->number,
              completion->reply_bytes_max);
    error->vendor_syndrome = completion->reply_bytes_max;
}

static struct queue *queue_of(const struct queue_engine *engine, const crpc_completion *completion)
{
    return handles_get(engine->links.handles, completion->endpoint.bits, HANDLE_QUEUE);
}

/* An op that failed is the cause, and not that the queue was flushed or the peer has left: it can have
 * left because of that op. But that its device no longer answers says less than that it has left. */
static bool explains_more(const struct queue *queue, const crpc_completion *completion)
{
    int32_t reason = -completion->status;
    return reason != NIC_ERROR_FLUSHED &&
           (queue->flush_is_error || (queue->loss_is_error && reason != NIC_ERROR_RETRY));
}

/* A queue pair has failed. The first that says so may not be the cause: a flush, or rdma_cm. */
static void fail_by_device(struct queue *queue, const crpc_completion *completion)
{
    crpc_error error = {0};
    queue_explain(queue, completion, &error);
    if (!queue->link.failing) {
        queue->flush_is_error = completion->status == -NIC_ERROR_FLUSHED;
        link_fail(&queue->link, &error);
    } else if (explains_more(queue, completion)) {
        queue->flush_is_error = queue->loss_is_error = false;
        queue->link.error = error;
    }
}

static __attribute__((cold, noinline)) void take_errors(struct queue_engine *engine,
                                                        crpc_completion *first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (first[i].status != CRPC_OK) {
            struct queue *queue = queue_of(engine, &first[i]);
            /* A stream fails without its queue, and what comes to a DCT without that. A TM-SRQ has no end. */
            if (queue && queue->nic->failed && queue->options.kind != NIC_QUEUE_TM_SRQ) {
                fail_by_device(queue, &first[i]);
            }
            first[i].status = status_of(&first[i]);
        }
    }
}

/* ---- What nobody sees ------------------------------------------------------------------------ */

static uint32_t leave_out(crpc_completion *first, uint32_t count, uint32_t index)
{
    memmove(first + index, first + index + 1, (count - index - 1) * sizeof(*first));
    return count - 1;
}

/* The NOP of a queue is its last send: if all have completed, it is the last of them here. Returns how
 * many completions are left. */
static __attribute__((cold, noinline)) uint32_t hide_nops(struct queue_engine *engine,
                                                          crpc_completion *first, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        struct queue *queue = first[i].method == NIC_NOP ? queue_of(engine, &first[i]) : NULL;
        if (queue && queue->nop && !queue_sends_open(queue)) {
            queue->nop = false;
            engine->nops--;
            count = leave_out(first, count, i);
        }
    }
    return count;
}

/* ---- The device's completions ---------------------------------------------------------------- */

/* Takes what the device has. Returns how many completions there are. */
static inline uint32_t take(struct queue_engine *engine, crpc_completion *first, uint32_t capacity)
{
    uint32_t errors;
    uint32_t count = engine->operations->poll(engine->nic, first, capacity, &errors);
    engine->dry_polls += count < capacity;
    if (unlikely(errors > 0)) {
        take_errors(engine, first, count);
    }
    if (unlikely(engine->nops > 0)) {
        count = hide_nops(engine, first, count);
    }
    return count;
}

/* The peer's first message can arrive before rdma_cm says that the connection is there. */
static void open_early(struct queue_engine *engine)
{
    for (uint32_t i = 0; i < engine->held_count; i++) {
        struct queue *queue = queue_of(engine, &engine->held[i]);
        if (queue && engine->held[i].status == CRPC_OK &&
            queue->link.state == CRPC_STATE_CONNECTING && !queue->link.opened) {
            link_take_early(&queue->link, NULL);
        }
    }
}

static void hold(struct queue_engine *engine)
{
    assert(engine->held_count == 0);
    uint32_t errors;
    engine->held_first = 0;
    engine->held_count =
        engine->operations->poll(engine->nic, engine->held, QUEUE_HELD_MAX, &errors);
    engine->dry_polls += engine->held_count < QUEUE_HELD_MAX;
    if (engine->connecting > 0) {
        open_early(engine);
    }
    if (errors > 0) {
        take_errors(engine, engine->held, engine->held_count);
    }
    if (engine->nops > 0) {
        engine->held_count = hide_nops(engine, engine->held, engine->held_count);
    }
}

static void give_held(struct queue_engine *engine, struct output *output)
{
    uint32_t count = (uint32_t)minimum(engine->held_count, (uint64_t)(output->end - output->next));
    if (count == 0) {
        return;
    }
    memcpy(output->next, engine->held + engine->held_first, count * sizeof(*output->next));
    output->next += count;
    engine->held_first += count;
    engine->held_count -= count;
}

/* What the device has is kept until CONNECTED has been reported for what it belongs to. */
static __attribute__((cold, noinline)) void take_slowly(struct queue_engine *engine,
                                                        struct output *output)
{
    for (;;) {
        link_emit_events(&engine->links, output);
        give_held(engine, output);
        if (output_full(output)) {
            return;
        }
        hold(engine);
        if (engine->held_count == 0) {
            return;
        }
    }
}

static inline void take_completions(struct queue_engine *engine, struct output *output)
{
    if (unlikely(engine->connecting > 0 || engine->held_count > 0)) {
        take_slowly(engine, output);
    } else if (likely(!output_full(output))) {
        output->next += take(engine, output->next, (uint32_t)(output->end - output->next));
    }
}

/* ---- What completes without the device ------------------------------------------------------- */

/* As hide_nops, of what nic_queue_take_ended has given for one queue. */
static uint32_t hide_nop(struct queue *queue, crpc_completion *first, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        if (first[i].method == NIC_NOP) {
            queue->nop = false;
            queue->engine->nops--;
            return leave_out(first, count, i);
        }
    }
    return count;
}

static void give_ended(struct queue_engine *engine, struct output *output)
{
    struct list *at = engine->ended.next;
    while (at != &engine->ended && !output_full(output)) {
        struct queue *queue = list_entry(at, struct queue, ended_link);
        crpc_completion *first = output->next;
        at = at->next;
        uint32_t count =
            nic_queue_take_ended(queue->nic, first, (uint32_t)(output->end - output->next));
        for (uint32_t i = 0; i < count; i++) {
            first[i].status = queue->nic->stopped ? queue->ended_status : CRPC_E_FLUSHED;
        }
        if (queue->nop && !queue_sends_open(queue)) {
            count = hide_nop(queue, first, count);
        }
        output->next += count;
        if (queue->nic->stopped ? !queue_has_open(queue)
                                : queue->nic->ended_first == NIC_QUEUE_NO_ENTRY) {
            list_remove(&queue->ended_link);
        }
    }
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void check_draining(struct queue_engine *engine)
{
    struct list *at = engine->draining.next;
    while (at != &engine->draining) {
        struct queue *queue = list_entry(at, struct queue, draining_link);
        at = at->next;
        queue_check_drained(queue);
    }
}

/* What may have changed now that completions were taken. */
static inline void look_around(struct queue_engine *engine)
{
    if (unlikely(!list_empty(&engine->draining))) {
        check_draining(engine);
    }
    if (unlikely(!list_empty(&engine->failing))) {
        queue_check_failing(engine);
    }
    if (unlikely(!list_empty(&engine->refused))) {
        queue_check_refused(engine);
    }
}

/* The order matters: CONNECTED comes before the first completion of its queue; rdma_cm is asked before
 * the device, so that what the device has done is not taken for lost; DISCONNECTED comes last, when
 * nothing of its queue is open. */
uint32_t queue_poll(struct queue_engine *engine, crpc_completion *completions, uint32_t capacity)
{
    assert(completions || capacity == 0);
    struct output output = {.next = completions, .end = completions + capacity};
    engine->links.now_ns = 0;
    link_poll_cm(&engine->links);
    link_emit_events(&engine->links, &output);
    take_completions(engine, &output);
    if (unlikely(!list_empty(&engine->ended))) {
        give_ended(engine, &output);
    }
    link_expire(&engine->links);
    look_around(engine);
    link_emit_events(&engine->links, &output);
    engine->links.now_ns = 0;
    return (uint32_t)(output.next - completions);
}

void queue_progress(struct queue_engine *engine)
{
    engine->links.now_ns = 0;
    if (engine->held_count == 0) {
        hold(engine);
    }
    look_around(engine);
    link_expire_promptly(&engine->links);
    engine->links.now_ns = 0;
}

/* A failing queue of which nothing is open waits for a poll that finds nothing more. */
static bool failing_waits(const struct queue_engine *engine)
{
    for (const struct list *at = engine->failing.next; at != &engine->failing; at = at->next) {
        if (!queue_has_open(list_entry(at, const struct queue, failing_link))) {
            return true;
        }
    }
    return false;
}

bool queue_something_waits(const struct queue_engine *engine)
{
    return engine->held_count > 0 || !list_empty(&engine->ended) ||
           link_something_waits(&engine->links) || failing_waits(engine);
}

uint64_t queue_next_deadline_ns(const struct queue_engine *engine)
{
    return wheel_next_ns(&engine->links.wheel);
}

/* ---- What else the device tells -------------------------------------------------------------- */

/* Also before it is joined: it can have receives. */
static void lose_queue(struct queue *queue, const crpc_error *error)
{
    if (queue->link.state == CRPC_STATE_NEW) {
        link_fail(&queue->link, error);
    } else {
        link_lost(&queue->link, error);
    }
}

/* As if all were closed: nothing that is open can be hoped for. */
static void lose_device(struct queue_engine *engine, const crpc_error *event)
{
    crpc_error error = *event;
    error.status = CRPC_E_NO_DEVICE;
    engine->device_lost = true;
    for (uint32_t srqs = 0; srqs < 2; srqs++) { /* an SRQ outlives the queue pairs that use it */
        struct list *at = engine->links.all.next;
        while (at != &engine->links.all) {
            struct queue *queue = queue_from_link(list_entry(at, struct link, all_link));
            at = at->next;
            if (nic_kind_is_shared(queue->options.kind) != (srqs == 1)) {
                continue;
            }
            lose_queue(queue, &error);
            if (list_linked(&queue->failing_link)) { /* also if it had failed before */
                queue_end(queue, CRPC_E_NO_DEVICE);
            }
        }
    }
}

void queue_device_event(struct link_group *group, const struct cm_event *event)
{
    struct queue_engine *engine = engine_of_group(group);
    struct queue *queue;
    switch (event->kind) {
    case CM_EVENT_QUEUE_PAIR:
        queue = table_get(&engine->queue_pairs, event->queue_pair_number);
        if (queue) {
            lose_queue(queue, &event->error);
        }
        break;
    case CM_EVENT_DEVICE_FATAL:
        lose_device(engine, &event->error);
        break;
    case CM_EVENT_SRQ_LIMIT:
        queue = handles_get(engine->links.handles, event->queue_handle, HANDLE_QUEUE);
        if (queue) { /* or it was closed */
            queue_limit_reached(queue);
        }
        break;
    default: /* a port that goes down shows on the queues themselves */
        break;
    }
}
