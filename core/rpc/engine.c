/* engine.c: the life of the engine, and poll: what it does in which order, and why in that
 * order. */
#include "rpc/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* ---- Life ------------------------------------------------------------------------------------ */

static void init_lists(struct rpc_engine *engine)
{
    struct list *lists[] = {&engine->work,     &engine->urgent, &engine->ready,
                            &engine->release,  &engine->ended,  &engine->acknowledged,
                            &engine->failing,  &engine->events, &engine->endpoints,
                            &engine->listeners};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        list_init(lists[i]);
    }
}

int32_t rpc_engine_create(struct nic *nic, struct cm *cm, struct log *log, uint32_t endpoints_max,
                          const uint64_t *virtual_clock_ns, struct rpc_engine **out,
                          crpc_error *error)
{
    struct rpc_engine *engine = calloc(1, sizeof(*engine));
    if (!engine) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a context");
    }
    engine->nic = nic;
    engine->operations = nic->operations;
    engine->cm = cm;
    engine->log = log;
    engine->endpoints_max = endpoints_max;
    engine->virtual_clock_ns = virtual_clock_ns;
    init_lists(engine);
    table_init(&engine->queue_pairs);
    handles_init(&engine->handles);
    wheel_init(&engine->wheel, engine_now_ns(engine));
    engine->now_ns = 0;
    engine->operations->refill(nic);
    *out = engine;
    return CRPC_OK;
}

void rpc_engine_destroy(struct rpc_engine *engine)
{
    while (!list_empty(&engine->listeners)) {
        rpc_listener_close(list_entry(engine->listeners.next, struct rpc_listener, all_link));
    }
    while (!list_empty(&engine->endpoints)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->endpoints.next, struct rpc_endpoint, all_link);
        cm_destroy(endpoint->identifier);
        endpoint_free(endpoint);
    }
    table_free(&engine->queue_pairs);
    handles_free(&engine->handles);
    free(engine);
}

struct handles *rpc_engine_handles(struct rpc_engine *engine)
{
    return &engine->handles;
}

uint32_t rpc_engine_endpoints(const struct rpc_engine *engine)
{
    return engine->endpoint_count;
}

uint32_t rpc_engine_endpoints_max(const struct rpc_engine *engine)
{
    return engine->endpoints_max;
}

uint32_t rpc_engine_window_left(const struct rpc_engine *engine)
{
    return nic_receive_low_mark(engine->nic) - engine->window_sum;
}

void rpc_engine_stats(const struct rpc_engine *engine, crpc_stats *stats)
{
    const size_t counters = (sizeof(crpc_stats) - offsetof(crpc_stats, calls)) / sizeof(uint64_t);
    *stats = engine->retired;
    const struct list *link;
    for (link = engine->endpoints.next; link != &engine->endpoints; link = link->next) {
        crpc_stats one;
        rpc_endpoint_stats(list_entry(link, struct rpc_endpoint, all_link), &one);
        for (size_t i = 0; i < counters; i++) {
            (&stats->calls)[i] += (&one.calls)[i];
        }
    }
    stats->receive_wqes = engine->nic->receive_wqes;
    stats->completions = engine->nic->completions;
    stats->unknown_completions += engine->nic->unknown_completions;
}

/* ---- Time ------------------------------------------------------------------------------------ */

uint64_t engine_now_ns(struct rpc_engine *engine)
{
    if (engine->now_ns == 0) {
        engine->now_ns = engine->virtual_clock_ns ? *engine->virtual_clock_ns : clock_now_ns();
    }
    return engine->now_ns;
}

uint64_t rpc_next_deadline_ns(const struct rpc_engine *engine)
{
    return wheel_next_ns(&engine->wheel);
}

/* ---- Events ---------------------------------------------------------------------------------- */

void engine_report(struct rpc_endpoint *endpoint, uint32_t events)
{
    endpoint->events |= events;
    list_append_once(&endpoint->engine->events, &endpoint->event_link);
}

void engine_device_event(struct rpc_engine *engine, int32_t status)
{
    if (engine->device_events_count < DEVICE_EVENTS_MAX) {
        engine->device_events[engine->device_events_count++] = status;
    }
}

/* ---- The device's completions ---------------------------------------------------------------- */

static void fail_by_device(struct rpc_endpoint *endpoint, const struct nic_completion *completion)
{
    static const char *const texts[] = {
        [NIC_ERROR_NONE] = "unknown",
        [NIC_ERROR_FLUSHED] = "the queue pair was taken down",
        [NIC_ERROR_RETRY] =
            "the peer's device does not answer: its program, machine or link is gone",
        [NIC_ERROR_RNR] = "the peer had no receive posted",
        [NIC_ERROR_REMOTE_ACCESS] = "the peer's device refused our access to its ring",
        [NIC_ERROR_LOCAL] = "our device refused a work request",
        [NIC_ERROR_OTHER] = "the device reported an error",
    };
    crpc_error error = {0};
    uint8_t status = completion->status <= NIC_ERROR_OTHER ? completion->status : NIC_ERROR_OTHER;
    error_set(&error, CRPC_E_DISCONNECTED, 0,
              "connection lost: %s (queue pair 0x%x, vendor syndrome 0x%x)", texts[status],
              completion->queue_pair_number, completion->vendor_syndrome);
    error.vendor_syndrome = completion->vendor_syndrome;
    endpoint_fail(endpoint, &error);
}

static void take_completion(struct rpc_engine *engine, const struct nic_completion *completion)
{
    struct rpc_endpoint *endpoint = table_get(&engine->queue_pairs, completion->queue_pair_number);
    if (unlikely(!endpoint)) {
        engine->retired.unknown_completions++;
        return;
    }
    if (unlikely(endpoint->state == CRPC_STATE_CONNECTING) && endpoint->passive) {
        endpoint_connected(endpoint); /* its first batch was faster than rdma_cm's last message */
    }
    if (unlikely(endpoint->state != CRPC_STATE_CONNECTED &&
                 endpoint->state != CRPC_STATE_CLOSING)) {
        return;
    }
    switch (completion->kind) {
    case NIC_COMPLETION_RECEIVE:
        if (likely(!endpoint->distrusted)) {
            endpoint_arrival(endpoint, completion->immediate);
        }
        break;
    case NIC_COMPLETION_SEND:
        endpoint_sends_completed(endpoint, completion->completed);
        break;
    default:
        fail_by_device(endpoint, completion);
    }
}

void engine_take_completions(struct rpc_engine *engine)
{
    struct nic_completion completions[64];
    const uint32_t capacity = sizeof(completions) / sizeof(completions[0]);
    uint32_t count;
    bool again;
    do {
        count = engine->operations->poll(engine->nic, completions, capacity);
        again = count == capacity;
        for (uint32_t i = 0; i < count; i++) {
            take_completion(engine, &completions[i]);
            /* What a peer sent before its connection broke may have come to the receive queue after it
             * was looked at, and before the error came to the send queue. */
            again |= completions[i].kind == NIC_COMPLETION_ERROR;
        }
    } while (again);
    if (unlikely(engine->nic->unknown_completions != engine->unknown_reported)) {
        engine->unknown_reported = engine->nic->unknown_completions;
        log_write(engine->log, CRPC_LOG_WARNING,
                  "%s: %" PRIu64 " completions so far that belong to nothing: device or driver at "
                  "fault; all else goes on",
                  engine->nic->device, engine->unknown_reported);
    }
}

/* ---- Poll ------------------------------------------------------------------------------------ */

static void flush_work(struct rpc_engine *engine)
{
    while (!list_empty(&engine->work)) {
        endpoint_flush(list_entry(engine->work.next, struct rpc_endpoint, work_link));
    }
}

void rpc_progress(struct rpc_engine *engine)
{
    engine->now_ns = 0;
    flush_work(engine);
    engine_take_completions(engine);
    flush_work(engine); /* what was waiting for send WQEs or limits */
    engine->now_ns = 0;
}

bool rpc_something_waits(const struct rpc_engine *engine)
{
    return !list_empty(&engine->ready) || !list_empty(&engine->ended) ||
           !list_empty(&engine->acknowledged) || !list_empty(&engine->events) ||
           !list_empty(&engine->failing) || engine->cancels_head != engine->cancels_tail ||
           engine->device_events_count > 0 || (engine->cm && cm_pending(engine->cm));
}

/* The order matters in five places:
 *  - views end first, so that the limits sent with what has gathered are the latest;
 *  - rdma_cm is asked after the device, and drains the device again before it believes a
 *    disconnect, so that what the peer sent before it left is not lost;
 *  - CONNECTED comes before the endpoint's first request, ended calls before new arrivals, so that
 *    a flood does not starve them;
 *  - deadlines come after arrivals: a response that is here wins;
 *  - DISCONNECTED comes last, when nothing of the endpoint is pending any more. */
uint32_t rpc_poll(struct rpc_engine *engine, crpc_completion *completions, uint32_t capacity)
{
    struct output output = {.next = completions, .end = completions + capacity};
    engine->epoch++;
    engine->now_ns = 0;
    engine_release(engine);
    flush_work(engine);
    engine_take_completions(engine);
    if (engine->cm && unlikely(cm_pending(engine->cm))) {
        engine_take_cm_events(engine);
    }
    engine_emit_events(engine, &output);
    engine_emit_ended(engine, &output);
    engine_emit_arrivals(engine, &output);
    engine_expire(engine);
    engine_drain_failing(engine);
    engine_emit_ended(engine, &output);
    engine_emit_cancels(engine, &output);
    engine_emit_sent_replies(engine, &output);
    engine_emit_disconnected(engine, &output);
    flush_work(engine); /* limits that have just come may let something go */
    uint32_t count = (uint32_t)(output.next - completions);
    engine->retired.polls++;
    engine->retired.polls_empty += count == 0;
    engine->now_ns = 0;
    return count;
}
