/* life.c: a queue as a link: how it is made, and how it ends. Cold path. */
#include "queue/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static int32_t create(struct link_group *group, struct link **link, crpc_error *error)
{
    struct queue *queue = lines_alloc(1, sizeof(*queue));
    if (!queue) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue");
    }
    list_init(&queue->refused_link);
    list_init(&queue->ended_link);
    list_init(&queue->failing_link);
    list_init(&queue->draining_link);
    wheel_timer_init(&queue->flush_timer, TIMER_FLUSH);
    queue->engine = engine_of_group(group);
    queue->operations = queue->engine->operations;
    queue->send_bar = queue->receive_bar = CRPC_E_STATE;
    int32_t status = link_init(&queue->link, group, error);
    if (status != CRPC_OK) {
        free(queue);
        return status;
    }
    *link = &queue->link;
    return CRPC_OK;
}

static void set_link_options(struct link_options *link, const struct queue_options *options)
{
    *link = (struct link_options){.user_data = options->user_data,
                                  .connect_timeout_ns = options->connect_timeout_ns,
                                  .keepalive_ns = CRPC_FOREVER,
                                  .transport = {.retry_timeout = options->retry_timeout,
                                                .retry_count = options->retry_count,
                                                .rnr_tries = options->rnr_tries,
                                                .reads_max = options->reads_max,
                                                .not_ready_timer = options->not_ready_timer},
                                  .private_bytes = options->private_bytes};
    memcpy(link->private_data, options->private_data, options->private_bytes);
}

/* What the driver only asserts. */
static int32_t check_kind(const struct queue_engine *engine, const struct queue_options *options,
                          crpc_error *error)
{
    int32_t status = nic_queue_check_kind(engine->nic, options->kind, error);
    if (status == CRPC_OK && options->streams > engine->nic->streams_max) {
        status = error_set(error, CRPC_E_UNSUPPORTED, 0,
                           "streams is %u; a DCI of %s can have %u with this driver",
                           options->streams, engine->nic->device, engine->nic->streams_max);
    }
    return status;
}

static enum nic_queue_table table_of(const struct queue_options *options)
{
    assert(options->streams == 0 || !(options->flags & QUEUE_SPARSE));
    return options->streams > 0            ? NIC_TABLE_UNORDERED
           : options->flags & QUEUE_SPARSE ? NIC_TABLE_SPARSE
                                           : NIC_TABLE_DENSE;
}

static int32_t make(struct queue *queue, const struct queue_options *options, crpc_error *error)
{
    struct queue_engine *engine = queue->engine;
    const struct nic_queue_options wanted = {
        .kind = options->kind,
        .table = table_of(options),
        .handle = queue->link.handle,
        .user_data = options->user_data,
        .receive_queue = options->receive_queue ? options->receive_queue->nic : NULL,
        .sends = options->sends,
        .send_pieces = options->send_pieces,
        .inline_bytes = options->inline_bytes,
        .receives = options->receives,
        .receive_pieces = options->receive_pieces,
        .queue_key = options->queue_key,
        .streams = options->streams,
        .stream_failures_max = options->stream_failures_max,
        .access_key = options->access_key,
        .transport = queue->link.options.transport,
        .tags = options->tags,
        .sequence_zero = options->flags & QUEUE_SEQUENCE_ZERO,
    };
    int32_t status = engine->operations->create(engine->nic, NULL, &wanted, &queue->nic, error);
    if (status != CRPC_OK) {
        queue->nic = NULL;
        return status;
    }
    engine->queue_count++;
    queue->access = options->kind == NIC_QUEUE_RC ? queue_all_access(engine) : 0;
    queue->srq_limit = 0;
    queue->srq = options->receive_queue;
    if (queue->srq) {
        queue->srq_handle = queue->srq->link.handle;
        queue->srq->users++;
        queue->uses_srq = true;
    }
    queue->link.queue_pair = queue->nic->pair;
    if (queue->nic->pair) {
        queue->number = queue->nic->pair->number;
        queue->connecting = options->kind == NIC_QUEUE_RC;
        engine->connecting += queue->connecting;
        if (!table_set(&engine->queue_pairs, queue->number, queue)) {
            return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a queue");
        }
    }
    queue->send_bar = options->sends == 0        ? CRPC_E_UNSUPPORTED
                      : queue_has_targets(queue) ? CRPC_OK
                                                 : CRPC_E_STATE;
    queue->receive_bar = options->receives > 0 ? CRPC_OK : CRPC_E_UNSUPPORTED;
    return CRPC_OK;
}

static void unprepare(struct link *link);

static int32_t prepare(struct link *link, const void *given, crpc_error *error)
{
    struct queue *queue = queue_from_link(link);
    struct queue_engine *engine = queue->engine;
    const struct queue_options *options = given;
    assert(options->private_bytes <=
           (link->passive ? QUEUE_ACCEPT_BYTES_MAX : QUEUE_REQUEST_BYTES_MAX));
    assert(!options->receive_queue || !options->receive_queue->link.closed);
    if (engine->device_lost) {
        return error_set(error, CRPC_E_NO_DEVICE, 0, "%s is lost", engine->nic->device);
    }
    if (engine->queue_count == engine->queues_max) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "this context has its queues_max of %u queues; close some or raise it in "
                         "crpc_context_options",
                         engine->queues_max);
    }
    queue->options = *options;
    queue->options.private_bytes = 0;
    queue->options.peer_sends = options->kind == NIC_QUEUE_RC ? options->sends : 0;
    set_link_options(&link->options, options);
    int32_t status = check_kind(engine, options, error);
    if (status == CRPC_OK) {
        status = make(queue, options, error);
    }
    if (status != CRPC_OK) {
        unprepare(link);
    }
    return status;
}

/* ---- What plain links need only for blobs ---------------------------------------------------- */

static int32_t nothing_to_do(struct link *link, crpc_error *error)
{
    (void)link;
    (void)error;
    return CRPC_OK;
}

static void nothing(struct link *link)
{
    (void)link;
}

static bool no_keepalive(struct link *link)
{
    (void)link;
    return false;
}

static void fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES])
{
    (void)link;
    memset(body, 0, LINK_BODY_BYTES);
}

static const char *body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    for (uint32_t i = 0; i < LINK_BODY_BYTES; i++) {
        if (body[i] != 0) {
            return "its reserved bytes are set";
        }
    }
    return NULL;
}

/* ---- Connected ------------------------------------------------------------------------------- */

static void no_longer_connecting(struct queue *queue)
{
    queue->engine->connecting -= queue->connecting;
    queue->connecting = false;
}

static void opened(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    no_longer_connecting(queue);
    if (queue->options.sends > 0) {
        queue->send_bar = CRPC_OK;
    }
    link_connected(link);
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* The peer has left, or the device reports an event. Of a queue that never connected that is what the
 * application was told, and a lost device is the reason for all. */
static void settle(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    queue->loss_is_error = link->state != CRPC_STATE_CONNECTING && !queue->engine->device_lost;
}

static void leave_srq(struct queue *queue)
{
    if (queue->uses_srq) {
        queue->uses_srq = false;
        queue->srq->users--;
    }
}

/* Its queue pair or SRQ goes; its table stays, with what is open. An SRQ that is closed waits for queue
 * pairs that are closed and still being connected. */
static void stop(struct queue *queue)
{
    struct queue_engine *engine = queue->engine;
    struct queue *srq = queue->srq;
    if (queue->nic->stopped || queue->nic->users > 0) {
        return;
    }
    bool pair = queue->nic->pair != NULL;
    bool marked = queue->target_marked;
    no_longer_connecting(queue);
    leave_srq(queue);
    queue->srq = NULL;
    queue->link.queue_pair = NULL;
    queue->operations->stop(queue->nic);
    if (marked) {
        queue_release_targets(engine);
    }
    if (pair) {
        table_clear(&engine->queue_pairs, queue->number);
        link_forget_queue_pair(&engine->links, 0, queue->number);
    }
    if (srq && srq->nic->ended_first != NIC_QUEUE_NO_ENTRY) {
        list_append_once(&engine->ended, &srq->ended_link);
    }
    if (srq && (srq->link.closed || srq->link.failing)) { /* it has waited for this */
        queue_end(srq, srq->ended_status);
    }
}

void queue_end(struct queue *queue, int32_t status)
{
    struct queue_engine *engine = queue->engine;
    wheel_clear(&engine->links.wheel, &queue->flush_timer);
    queue->ended_status = status;
    stop(queue);
    if (queue->nic->stopped && queue_has_open(queue)) {
        list_append_once(&engine->ended, &queue->ended_link);
        if (queue->link.closed) {
            link_report(&queue->link,
                        LINK_EVENT_DISCONNECTED); /* it is destroyed behind the last */
        }
    }
}

/* Nothing more is accepted. */
static void bar(struct queue *queue)
{
    no_longer_connecting(queue);
    if (queue->send_bar != CRPC_E_UNSUPPORTED) {
        queue->send_bar = CRPC_E_DISCONNECTED;
    }
    if (queue->receive_bar != CRPC_E_UNSUPPORTED) {
        queue->receive_bar = CRPC_E_DISCONNECTED;
    }
    queue->refused_send = queue->refused_receive = false;
    queue->refused_add = queue->refused_command = false;
    list_remove(&queue->refused_link);
    list_remove(&queue->draining_link);
}

static void failed(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    bar(queue);
    if (!queue->nic) {
        return;
    }
    bool connected = link->state != CRPC_STATE_DISCONNECTED;
    if (connected) {
        list_append_once(&queue->engine->failing, &queue->failing_link);
    }
    if (link_joining(link)) {
        return; /* abandoned comes */
    }
    if (queue->engine->device_lost) {
        queue_end(queue, CRPC_E_NO_DEVICE);
    } else if (!connected) {
        queue_end(queue, CRPC_E_FLUSHED);
    } else if (!queue->nic->stopped) {
        if (queue->options.kind != NIC_QUEUE_DCT) { /* it has nothing of its own */
            queue->operations->flush(queue->nic);
        }
        queue->dry_polls = queue->engine->dry_polls;
        link_set_timer(link->group, &queue->flush_timer, QUEUE_FLUSH_TIMEOUT_NS);
    }
}

static void abandoned(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    queue_end(queue, link->closed                 ? CRPC_E_CLOSED
                     : queue->engine->device_lost ? CRPC_E_NO_DEVICE
                                                  : CRPC_E_FLUSHED);
}

static void timer(struct link_group *group, struct wheel_timer *expired)
{
    struct queue *queue = container_of(expired, struct queue, flush_timer);
    if (!queue->silent_only && queue->options.kind != NIC_QUEUE_DCT) { /* that flushes nothing */
        log_write(
            group->log, CRPC_LOG_WARNING,
            "%s has not flushed queue pair 0x%x: the device is at fault; its ops end all the same",
            queue->engine->nic->device, queue->number);
    }
    queue_end(queue, CRPC_E_FLUSHED);
}

/* All that is open are ops of a sparse queue that complete only if they fail. */
static bool only_silent_open(const struct queue *queue)
{
    const struct tracking *sends = &queue->nic->sends;
    if (queue->nic->table != NIC_TABLE_SPARSE || queue->nic->receives_open > 0) {
        return false;
    }
    for (uint32_t at = sends->consumer; at != sends->producer;
         at += tracking_at(sends, at)->blocks) {
        if (tracking_at(sends, at)->state == TRACKING_SIGNALED) {
            return false;
        }
    }
    return true;
}

/* The device says which of them were flushed, if it has not done them; but it does not say when it has
 * said all. */
static void wait_for_silent(struct queue *queue)
{
    struct link_group *group = &queue->engine->links;
    if (!queue->silent_only && !queue->nic->stopped && only_silent_open(queue)) {
        queue->silent_only = true;
        wheel_clear(&group->wheel, &queue->flush_timer);
        link_set_timer(group, &queue->flush_timer, QUEUE_SILENT_TIMEOUT_NS);
    }
}

/* What was taken before comes first: arrivals whose receives were of an SRQ, too. */
static bool is_over(struct queue *queue)
{
    struct queue_engine *engine = queue->engine;
    if (queue_has_open(queue)) {
        wait_for_silent(queue);
        return false;
    }
    if (engine->held_count > 0 || link_joining(&queue->link)) {
        return false;
    }
    if (!queue->nic->stopped) {
        if (engine->dry_polls == queue->dry_polls) {
            return false;
        }
        queue_end(queue, CRPC_E_FLUSHED); /* receives that its messages took may be left */
    }
    return queue->nic->stopped && list_empty(&engine->ended);
}

void queue_check_failing(struct queue_engine *engine)
{
    struct list *at = engine->failing.next;
    while (at != &engine->failing) {
        struct queue *queue = list_entry(at, struct queue, failing_link);
        at = at->next;
        if (is_over(queue)) {
            list_remove(&queue->failing_link);
            link_over(&queue->link);
        }
    }
}

/* ---- Leaving --------------------------------------------------------------------------------- */

void queue_check_drained(struct queue *queue)
{
    const crpc_error none = {0};
    if (!queue_sends_open(queue)) {
        link_fail(&queue->link, &none);
    } else if (queue->nic->table == NIC_TABLE_SPARSE && queue->nic->interval > 1 && !queue->nop &&
               !queue->nic->failed) {
        queue_post_nop(queue);
    }
}

static void leave(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    if (queue->send_bar != CRPC_E_UNSUPPORTED) {
        queue->send_bar = CRPC_E_CLOSING;
    }
    list_append_once(&queue->engine->draining, &queue->draining_link);
    queue_check_drained(queue);
}

static void describe_leave(const struct link *link, char *text, size_t bytes)
{
    (void)link;
    snprintf(text, bytes, "ops that it sends have not completed");
}

static void closed(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    bar(queue);
    queue_rename_held(queue);
    list_remove(&queue->failing_link);
    leave_srq(queue);
    if (queue->nic && !link_joining(link)) {
        queue_end(queue, queue->engine->device_lost ? CRPC_E_NO_DEVICE : CRPC_E_CLOSED);
    }
}

/* One whose queue pair is being connected ends with that. */
static bool quiet(const struct link *link)
{
    const struct queue *queue = queue_from_link(link);
    return !link->closed || !queue->nic || link_joining(link) ||
           (queue->nic->stopped && !queue_has_open(queue));
}

static void unprepare(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    if (!queue->nic) {
        return;
    }
    stop(queue);
    assert(queue->nic->stopped);
    queue->engine->nops -= queue->nop;
    queue->nop = false;
    list_remove(&queue->ended_link);
    queue->operations->destroy(queue->nic);
    queue->nic = NULL;
    queue->number = 0;
    queue->srq_handle = 0;
    queue->engine->queue_count--;
    queue->send_bar = queue->receive_bar = CRPC_E_STATE; /* it may be accepted again */
}

static void destroy(struct link *link)
{
    struct queue *queue = queue_from_link(link);
    wheel_clear(&link->group->wheel, &queue->flush_timer);
    list_remove(&queue->refused_link);
    list_remove(&queue->failing_link);
    list_remove(&queue->draining_link);
    unprepare(link);
    link_remove(link);
    free(queue);
}

const struct link_service queue_service = {
    .name = "queue",
    .plain = true,
    .no_room = "queues_max or backlog",
    .number = LINK_SERVICE_QUEUE,
    .version_min = 1,
    .version_max = 1,
    .handle_kind = HANDLE_QUEUE,
    .completion_flags = NIC_DONE_OF_QUEUE,
    .create = create,
    .prepare = prepare,
    .expose = nothing_to_do,
    .fill_body = fill_body,
    .body_fault = body_fault,
    .attach = nothing_to_do,
    .detach = nothing,
    .unprepare = unprepare,
    .destroy = destroy,
    .opened = opened,
    .settle = settle,
    .distrust = nothing,
    .failed = failed,
    .abandoned = abandoned,
    .leave = leave,
    .describe_leave = describe_leave,
    .keepalive = no_keepalive,
    .closed = closed,
    .quiet = quiet,
    .emit_event = queue_emit_limit,
    .timer = timer,
    .device_event = queue_device_event,
};
