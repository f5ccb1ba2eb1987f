/* engine.c: the life of the engine, and the completions of its device. */
#include "rpc/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "link/prove.h"
#include "nic/drain.h"
#include "nic/initiators.h"

/* ---- Life ------------------------------------------------------------------------------------ */

static void init_lists(struct rpc_engine *engine)
{
    struct list *lists[] = {&engine->work,       &engine->urgent,        &engine->ready,
                            &engine->ended,      &engine->failing,       &engine->acknowledged,
                            &engine->lanes_done, &engine->lanes_failing, &engine->kept_ended};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        list_init(lists[i]);
    }
    chain_init(&engine->release);
}

int32_t rpc_engine_create(struct nic *nic, struct cm *cm, struct log *log, struct handles *handles,
                          uint32_t endpoints_max, const uint64_t *virtual_clock_ns,
                          struct rpc_engine **out, crpc_error *error)
{
    assert(endpoints_max > 0);
    struct rpc_engine *engine = lines_alloc(1, sizeof(*engine));
    if (!engine) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a context");
    }
    engine->nic = nic;
    engine->operations = nic->operations;
    engine->log = log;
    engine->receives_low = nic_receive_low_mark(nic);
    engine->endpoints_max = endpoints_max;
    engine->window_first = rpc_small_window(nic, endpoints_max);
    init_lists(engine);
    table_init(&engine->queue_pairs);
    ring_slabs_init(&engine->rings);
    link_group_init(&engine->links, &rpc_service, nic, cm, log, handles, virtual_clock_ns);
    engine->links.dynamic = nic->initiators != NULL;
    engine->operations->refill(nic);
    *out = engine;
    return CRPC_OK;
}

void rpc_engine_destroy(struct rpc_engine *engine)
{
    link_group_close(&engine->links);
    metrics_destroy(engine->metrics);
    ring_slabs_free(&engine->rings);
    table_free(&engine->queue_pairs);
    if (engine->lane_pairs) {
        table_free(engine->lane_pairs);
        free(engine->lane_pairs);
    }
    free(engine);
}

int32_t rpc_engine_measure(struct rpc_engine *engine)
{
    engine->metrics = metrics_create();
    return engine->metrics ? CRPC_OK : CRPC_E_NO_MEMORY;
}

struct metrics *rpc_engine_metrics(const struct rpc_engine *engine)
{
    return engine->metrics;
}

struct metrics_group *rpc_endpoint_metrics(const struct rpc_endpoint *endpoint)
{
    return endpoint->metrics;
}

uint64_t rpc_endpoint_handle(const struct rpc_endpoint *endpoint)
{
    return endpoint->link.handle;
}

crpc_op *rpc_reserved(struct rpc_endpoint *endpoint)
{
    return endpoint->reservation.open ? &endpoint->reservation.op : NULL;
}

struct rpc_endpoint *rpc_engine_next(const struct rpc_engine *engine,
                                     const struct rpc_endpoint *endpoint)
{
    const struct list *at = endpoint ? &endpoint->link.all_link : &engine->links.all;
    return at->next == &engine->links.all
               ? NULL
               : endpoint_of_link(list_entry(at->next, struct link, all_link));
}

uint64_t rpc_engine_now_ns(struct rpc_engine *engine)
{
    return link_now_ns(&engine->links);
}

struct link_group *rpc_links(struct rpc_engine *engine)
{
    return &engine->links;
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
    *stats = engine->retired;
    stats->polls = engine->epoch;
    const struct rpc_endpoint *endpoint = NULL;
    while ((endpoint = rpc_engine_next(engine, endpoint)) != NULL) {
        crpc_stats one;
        rpc_endpoint_stats(endpoint, &one);
        rpc_stats_add(stats, &one);
    }
    stats->receive_wqes = engine->nic->receive_wqes;
    stats->completions = engine->nic->completions;
    stats->unknown_completions += engine->nic->unknown_completions;
    stats->last_wqes_missed = engine->nic->last_wqes_missed;
}

/* ---- The device's completions ---------------------------------------------------------------- */

static __attribute__((cold, noinline)) void fail_by_device(struct rpc_endpoint *endpoint,
                                                           const struct nic_completion *completion)
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
    link_fail(&endpoint->link, &error);
}

/* What the peer sends before this side has joined waits for that. By rdma_cm no peer that keeps the rules is so fast. */
static void hold_early(struct rpc_endpoint *endpoint, const struct nic_completion *completion)
{
    struct link *link = &endpoint->link;
    if (completion->kind != NIC_COMPLETION_RECEIVE) {
        fail_by_device(endpoint, completion);
    } else if (link->state != CRPC_STATE_NEW) {
        link_violated(link, "%s", "it wrote before it answered the connect request");
    } else if (link->proof) {
        link_prove_hold(link, completion->immediate);
    } else {
        endpoint_arrival_early(endpoint, completion->immediate);
    }
}

/* The link is not open yet, or never will be. Returns true if the completion has been dealt with. */
static __attribute__((cold, noinline)) bool take_unopened(struct rpc_endpoint *endpoint,
                                                          const struct nic_completion *completion)
{
    struct link *link = &endpoint->link;
    if (link->failing || (link->state != CRPC_STATE_NEW && link->state != CRPC_STATE_CONNECTING)) {
        return true;
    }
    if (link->group->dynamic && link_awaits_peer(link)) {
        hold_early(endpoint, completion);
        return true;
    }
    return link->state == CRPC_STATE_NEW || link_take_early(link, completion);
}

static inline void take_completion(struct rpc_engine *engine,
                                   const struct nic_completion *completion)
{
    struct rpc_endpoint *endpoint = table_get(&engine->queue_pairs, completion->queue_pair_number);
    if (unlikely(!endpoint)) {
        engine->retired.unknown_completions += !rpc_lane_take_completion(engine, completion);
        return;
    }
    if (unlikely(!endpoint->link.opened) && take_unopened(endpoint, completion)) {
        return;
    }
    if (unlikely(endpoint->link.state != CRPC_STATE_CONNECTED &&
                 endpoint->link.state != CRPC_STATE_CLOSING)) {
        return;
    }
    switch (completion->kind) {
    case NIC_COMPLETION_RECEIVE:
        if (likely(!endpoint->in.distrusted)) {
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

static inline void take(void *engine, const struct nic_completion *completion)
{
    take_completion(engine, completion);
}

/* Endpoints that waited for an initiator have one. They use it now, or it goes to the next. */
static __attribute__((noinline)) void take_grants(struct rpc_engine *engine)
{
    const struct nic_queue_pair *queue_pair;
    while ((queue_pair = nic_granted(engine->nic)) != NULL) {
        struct rpc_endpoint *endpoint = queue_pair->owner;
        if (link_proving(&endpoint->link)) {
            link_prove_send(&endpoint->link);
        } else {
            endpoint_granted(endpoint);
        }
    }
}

void engine_take_completions(struct rpc_engine *engine)
{
    struct nic_completion completions[NIC_DRAIN_MAX];
    engine_take_completions_from(
        engine, completions,
        engine->nic->operations->poll(engine->nic, completions, NIC_DRAIN_MAX));
}

void engine_take_completions_from(struct rpc_engine *engine, struct nic_completion *completions,
                                  uint32_t count)
{
    if (nic_drain_from(engine->nic, completions, count, take, engine)) {
        while (nic_drain(engine->nic, take, engine)) {
        }
    }
    if (engine->nic->initiators) {
        take_grants(engine);
    }
    if (unlikely(!list_empty(&engine->lanes_failing))) {
        engine_end_lanes(engine);
    }
    if (unlikely(engine->nic->unknown_completions != engine->unknown_reported)) {
        engine->unknown_reported = engine->nic->unknown_completions;
        log_write(engine->log, CRPC_LOG_WARNING,
                  "%s: %" PRIu64 " completions so far that belong to nothing: device or driver at "
                  "fault; all else goes on",
                  engine->nic->device, engine->unknown_reported);
    }
}

/* ---- What else the device tells -------------------------------------------------------------- */

static void device_lost(struct rpc_engine *engine, const crpc_error *error)
{
    struct list *at = engine->links.all.next;
    while (at != &engine->links.all) {
        struct link *link = list_entry(at, struct link, all_link);
        at = at->next;
        link_lost(link, error);
    }
    log_write(engine->log, CRPC_LOG_ERROR, "device lost: %s", error->message);
    link_device_event(&engine->links, CRPC_E_NO_DEVICE);
}

void rpc_device_event(struct link_group *group, const struct cm_event *event)
{
    struct rpc_engine *engine = engine_of_group(group);
    struct rpc_endpoint *endpoint;
    switch (event->kind) {
    case CM_EVENT_QUEUE_PAIR:
        endpoint = table_get(&engine->queue_pairs, event->queue_pair_number);
        if (endpoint) {
            link_lost(&endpoint->link, &event->error);
        } else {
            rpc_lane_device_event(engine, event);
        }
        break;
    case CM_EVENT_PORT_ACTIVE:
        link_device_event(group, CRPC_OK);
        break;
    case CM_EVENT_PORT_DOWN:
        link_device_event(group, CRPC_E_UNREACHABLE);
        break;
    case CM_EVENT_DEVICE_FATAL:
        device_lost(engine, &event->error);
        break;
    default: /* of queues that calls do not have */
        break;
    }
}
