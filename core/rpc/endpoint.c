/* endpoint.c: an endpoint as a link: its memory, its failure, the draining of what was pending, its end.
 * Cold path.
 */
#include "rpc/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lines.h"
#include "base/page.h"
#include "base/sparse.h"
#include "rpc/lasting.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static void init_links(struct rpc_endpoint *endpoint)
{
    struct list *links[] = {&endpoint->work_link,      &endpoint->ready_link,
                            &endpoint->failing_link,   &endpoint->acknowledged_link,
                            &endpoint->lane.done_link, &endpoint->lane.failing_link};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        list_init(links[i]);
    }
    list_init(&endpoint->gather.memories);
    list_init(&endpoint->calls.telling);
    wheel_timer_init(&endpoint->read.timer, TIMER_READ);
    wheel_timer_init(&endpoint->lane.timer, TIMER_LANE);
}

static int32_t create(struct link_group *group, struct link **link, crpc_error *error)
{
    struct rpc_endpoint *endpoint = lines_alloc(1, sizeof(*endpoint));
    if (!endpoint) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an endpoint");
    }
    init_links(endpoint);
    endpoint->engine = engine_of_group(group);
    rpc_set_call_bar(endpoint, CRPC_E_STATE);
    endpoint->reply_bar = CRPC_E_STATE;
    endpoint->read.backoff_ns = READ_BACKOFF_MIN_NS;
    int32_t status = link_init(&endpoint->link, group, error);
    if (status != CRPC_OK) {
        free(endpoint);
        return status;
    }
    *link = &endpoint->link;
    return CRPC_OK;
}

/* What the peer may send takes so many receives: batches, and words before them. */
static uint32_t promised_receives(const crpc_endpoint_options *options, uint32_t batch_window)
{
    return batch_window + (options->key_bytes > 0 ? LINK_WORDS : 0);
}

/* Where receives are not shared, nobody lends what he does not use. So a window is never larger than it may be if there are as many
 * endpoints as there can be. */
static uint32_t limited_window(const struct rpc_engine *engine,
                               const crpc_endpoint_options *options)
{
    const struct nic *nic = engine->nic;
    if (nic->receive_queue_max == 0) {
        return options->batch_window;
    }
    const uint32_t each =
        (uint32_t)minimum(nic->receive_depth / engine->endpoints_max, nic->receive_queue_max);
    const uint32_t words = promised_receives(options, 0);
    const uint32_t most = nic_receives_of(each);
    return (uint32_t)minimum(options->batch_window, most > words ? most - words : 1);
}

/* A CQ or the SRQ must never overflow: what could be outstanding is bounded here, for all endpoints
 * together, and whoever does not fit is refused. */
static int32_t check_room(const struct rpc_engine *engine, const crpc_endpoint_options *options,
                          crpc_error *error)
{
    const struct nic *nic = engine->nic;
    uint32_t window_max = nic_receive_low_mark(nic);
    uint32_t queue_pairs = engine->endpoint_count + engine->lane_places + 1 +
                           rpc_lane_places(nic, options); /* with the new ones */
    if (queue_pairs > engine->endpoints_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "this context has its endpoints_max of %u endpoints, of which one with a lane counts "
            "as two or more; close some or raise it in crpc_context_options",
            engine->endpoints_max);
    }
    if (!engine->links.dynamic &&
        (uint64_t)queue_pairs * nic_send_places(nic->send_depth) > nic->send_completion_depth) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "the completion queue of %s takes %u sends, enough for %u endpoints",
                         nic->device, nic->send_completion_depth, engine->endpoint_count);
    }
    if (engine->window_sum + promised_receives(options, rpc_first_window(engine, options)) >
        window_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "batch windows of all endpoints may sum to %u (two thirds of receive_depth), "
            "and %u are left: lower batch_window or raise receive_depth",
            window_max, window_max - engine->window_sum);
    }
    return CRPC_OK;
}

static int32_t make_receive_side(struct rpc_endpoint *endpoint, crpc_error *error)
{
    const crpc_endpoint_options *options = &endpoint->options;
    uint32_t arrivals = power_of_two_at_least(options->batch_window);
    endpoint->in.arrivals = lines_alloc(arrivals, sizeof(*endpoint->in.arrivals));
    if (!endpoint->in.arrivals || !calls_init(endpoint, options->calls_max)) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for %u call slots",
                         options->calls_max);
    }
    endpoint->in.arrivals_mask = arrivals - 1;
    endpoint->in.batch_window = rpc_first_window(endpoint->engine, options);
    endpoint->in.capacity = rpc_first_ring_bytes(options);
    int32_t status = ring_map(&endpoint->engine->rings, &endpoint->in.ring, RING_RECEIVE,
                              endpoint->in.capacity, error);
    if (status != CRPC_OK) {
        return status;
    }
    rpc_set_shares(endpoint, endpoint->in.capacity);
    endpoint->in.mailbox = ring_mailbox(&endpoint->in.ring);
    endpoint->in.mailbox->nonce = endpoint->link.nonce;
    endpoint_publish(endpoint);
    return CRPC_OK;
}

static int32_t make_queue_pair(struct rpc_endpoint *endpoint, crpc_error *error)
{
    struct rpc_engine *engine = endpoint->engine;
    struct nic *nic = engine->nic;
    struct link *link = &endpoint->link;
    int32_t status = engine->links.dynamic
                         ? engine->operations->queue_pair_create_dynamic(
                               nic, link->domain, endpoint, link->nonce, &link->queue_pair, error)
                         : nic_queue_pair_create(nic, link->domain, endpoint,
                                                 promised_receives(&endpoint->options,
                                                                   endpoint->options.batch_window),
                                                 &link->queue_pair, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (!table_set(&engine->queue_pairs, link->queue_pair->number, endpoint)) {
        link->queue_pair->operations->queue_pair_destroy(link->queue_pair);
        link->queue_pair = NULL;
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an endpoint");
    }
    engine->endpoint_count++;
    engine->window_sum += promised_receives(&endpoint->options, endpoint->in.batch_window);
    return CRPC_OK;
}

static void unprepare(struct link *link);

static int32_t prepare(struct link *link, const void *given, crpc_error *error)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    struct rpc_engine *engine = endpoint->engine;
    const crpc_endpoint_options *options = given;
    endpoint->options = *options;
    endpoint->options.batch_window = limited_window(engine, options);
    explicit_bzero(endpoint->options.key, sizeof(endpoint->options.key)); /* the link has it */
    int32_t status = check_room(engine, &endpoint->options, error);
    if (status != CRPC_OK) {
        return status;
    }
    /* What the new window promises must be there before it is promised. */
    if (engine->nic->receives_posted < engine->receives_low) {
        engine->operations->refill(engine->nic);
    }
    endpoint->user_data = options->user_data;
    link_options_set(&link->options, options);
    link->options.features_left_out =
        engine->features_left_out | (options->flags & CRPC_ENDPOINT_LANE ? 0 : WIRE_FEATURE_LANE);
    status = engine->operations->domain_create(engine->nic, &endpoint->link.domain, error);
    if (status == CRPC_OK) {
        status = make_receive_side(endpoint, error);
    }
    if (status == CRPC_OK) {
        status = make_queue_pair(endpoint, error);
    }
    if (status == CRPC_OK) {
        status = rpc_lane_make(endpoint, error);
    }
    if (status != CRPC_OK) {
        unprepare(link);
    }
    return status;
}

static int32_t expose(struct link *link, crpc_error *error)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    return ring_register(&endpoint->in.ring, endpoint->engine->nic, link->domain,
                         link_own_domain(link), error);
}

/* ---- What depends on the peer ---------------------------------------------------------------- */

static int32_t attach(struct link *link, crpc_error *error)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    const struct rpc_peer *peer = &endpoint->peer;
    struct nic *nic = endpoint->engine->nic;
    uint32_t send_slots = power_of_two_at_least(nic->send_depth);
    rpc_take_body(endpoint);
    int32_t status = rpc_check_demands(endpoint, error);
    if (status != CRPC_OK) {
        return status;
    }
    endpoint->owed.slot_count = peer->calls;
    endpoint->owed.slots = sparse_alloc(peer->calls, sizeof(*endpoint->owed.slots));
    endpoint->sent.replies = sparse_alloc(peer->calls, sizeof(*endpoint->sent.replies));
    endpoint->sent.batches = lines_alloc(send_slots, sizeof(*endpoint->sent.batches));
    if (!endpoint->owed.slots || !endpoint->sent.replies || !endpoint->sent.batches) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM,
                         "no memory to owe replies to the peer's %u calls", peer->calls);
    }
    endpoint->sent.batch_slots = send_slots;
    endpoint->owed.allowance_max =
        rpc_peer_reply_share(endpoint, peer->ring_bytes, peer->request_bytes);
    endpoint->out.request_limit = peer->request_bytes;
    endpoint->out.batch_limit = peer->batch_window_first;
    status = ring_map(&endpoint->engine->rings, &endpoint->out.staging, RING_SEND,
                      maximum(peer->ring_bytes, page_bytes()), error);
    return status == CRPC_OK ? ring_register(&endpoint->out.staging, nic, link->domain,
                                             link_own_domain(link), error)
                             : status;
}

static void detach(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    rpc_gather_destroy(endpoint);
    rpc_arena_destroy(endpoint);
    rpc_grow_destroy(endpoint);
    ring_destroy(&endpoint->out.staging, endpoint->engine->nic);
    rpc_traces_free(endpoint);
    sparse_free(endpoint->owed.slots, endpoint->owed.slot_count, sizeof(*endpoint->owed.slots));
    sparse_free(endpoint->sent.replies, endpoint->owed.slot_count, sizeof(*endpoint->sent.replies));
    free(endpoint->sent.batches);
    endpoint->owed.slots = NULL;
    endpoint->sent.replies = NULL;
    endpoint->sent.batches = NULL;
    endpoint->owed.slot_count = 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void opened(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    endpoint->out.transfer.local_key = endpoint->out.staging.memory.local_key;
    endpoint->out.transfer.remote_key = endpoint->peer.ring_key;
    const bool timed = rpc_deadlines_selected(endpoint);
    endpoint->out.time_mask = timed ? WIRE_TIME_HIGH_MASK : 0;
    endpoint->in.kind_mask = timed ? (1u << WIRE_KIND_BITS) - 1 : UINT16_MAX;
    rpc_set_bars(endpoint);
    link_connected(link);
    if (endpoint->lasting) {
        rpc_lasting_opened(endpoint->lasting);
    }
    if (endpoint->in.arrivals_head != endpoint->in.arrivals_tail) {
        list_append_once(&endpoint->engine->ready, &endpoint->ready_link);
    }
    rpc_lane_opened(endpoint);
}

static void settle(struct link *link)
{
    engine_take_completions(endpoint_of_link(link)->engine);
}

/* What arrived and was not parsed is forgotten. */
static void forget_arrivals(struct rpc_endpoint *endpoint)
{
    endpoint->in.distrusted = true;
    endpoint->in.arrivals_head = endpoint->in.arrivals_tail;
    endpoint->in.batch_left = 0;
    list_remove(&endpoint->ready_link);
}

static void distrust(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    endpoint->stats.protocol_errors++;
    forget_arrivals(endpoint);
}

/* Nothing more is sent. */
static void stop(struct rpc_endpoint *endpoint)
{
    rpc_set_call_bar(endpoint, CRPC_E_DISCONNECTED);
    endpoint->reply_bar = CRPC_E_DISCONNECTED;
    if (endpoint->lasting) {
        rpc_lasting_cut(endpoint->lasting);
    }
    endpoint->reservation.open = false;
    wheel_clear(&endpoint->engine->links.wheel, &endpoint->read.timer);
    list_remove(&endpoint->work_link);
}

/* The initiator that a queue pair had may be another's now. The next poll tells it, though nothing has come from the device. */
static void look_at_grants(struct rpc_engine *engine)
{
    engine->links.attention |= engine->links.dynamic;
}

static void failed(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    stop(endpoint);
    if (link->queue_pair && !link_joining(link)) {
        /* Also if it has never been connected for the application: the peer can write, and use up
         * receives, as soon as the device is. */
        link->queue_pair->operations->queue_pair_fail(link->queue_pair);
        look_at_grants(endpoint->engine);
    }
    rpc_lane_cut(endpoint);
    if (link->state != CRPC_STATE_DISCONNECTED) {
        list_append_once(&endpoint->engine->failing, &endpoint->failing_link);
        endpoint->engine->links.attention = true;
    }
}

static void abandoned(struct link *link)
{
    link->queue_pair->operations->queue_pair_fail(link->queue_pair);
    look_at_grants(endpoint_of_link(link)->engine);
}

/* ---- Draining -------------------------------------------------------------------------------- */

static int32_t status_of_pending(const struct rpc_endpoint *endpoint)
{
    if (endpoint->link.closed) {
        return CRPC_E_CLOSED;
    }
    return endpoint->link.error.status == CRPC_E_PROTOCOL ? CRPC_E_PROTOCOL : CRPC_E_DISCONNECTED;
}

/* A peer only parts when it has every reply, so one that left has them, though the last
 * acknowledgement may have been lost as its queue pair went. */
static int32_t status_of_pending_replies(const struct rpc_endpoint *endpoint)
{
    return endpoint_left(endpoint) && !endpoint->link.closed ? CRPC_OK
                                                             : status_of_pending(endpoint);
}

/* True when nothing is left of what came before the end: arrivals to parse, acknowledged
 * replies. */
static bool may_drain(const struct rpc_endpoint *endpoint)
{
    bool parsed =
        endpoint->in.batch_left == 0 && endpoint->in.arrivals_head == endpoint->in.arrivals_tail;
    return parsed && endpoint->sent.replies_head == endpoint->sent.replies_acknowledged;
}

static void drain(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    list_remove(&endpoint->failing_link);
    if (endpoint_left(endpoint)) {
        endpoint->link.error = (crpc_error){0};
    }
    rpc_gather_end_all(endpoint);
    if (endpoint->lasting) {
        rpc_lasting_take_back(endpoint->lasting);
    }
    calls_end_all(endpoint, status_of_pending(endpoint));
    rpc_lane_stop(endpoint, status_of_pending(endpoint));
    if (endpoint->sent.replies_head != endpoint->sent.replies_tail) {
        endpoint->sent.status = status_of_pending_replies(endpoint);
        endpoint->sent.replies_acknowledged = endpoint->sent.replies_tail;
        list_append_once(&engine->acknowledged, &endpoint->acknowledged_link);
        engine->links.attention = true;
    }
    link_over(&endpoint->link);
}

void engine_drain_failing(struct rpc_engine *engine, struct output *output)
{
    struct list *at = engine->failing.next;
    while (at != &engine->failing) {
        struct rpc_endpoint *endpoint = list_entry(at, struct rpc_endpoint, failing_link);
        at = at->next;
        if (may_drain(endpoint)) {
            drain(endpoint);
            engine_emit_lanes(engine, output);
        }
    }
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static bool has_pending(const struct rpc_endpoint *endpoint)
{
    return endpoint->calls.ended > 0 || endpoint->calls.live > 0 ||
           endpoint->sent.replies_head != endpoint->sent.replies_tail ||
           rpc_lane_has_open(endpoint) || (endpoint->lasting && endpoint->lasting->ended > 0);
}

/* The memory of a closed endpoint stays until the next poll, since views may be in use. */
static bool quiet(const struct link *link)
{
    const struct rpc_endpoint *endpoint = endpoint_of_link(link);
    return !has_pending(endpoint) && !(link->closed && chain_linked(&endpoint->release_link));
}

static void fold_queue_pair_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats)
{
    if (endpoint->link.queue_pair) {
        const struct nic_queue_pair_stats *more = &endpoint->link.queue_pair->stats;
        stats->send_wqes += more->wqes + more->written;
        stats->doorbells += more->doorbells + more->written;
        stats->signaled_wqes += more->signaled_wqes;
        stats->inline_wqes += more->inline_wqes + more->written;
    }
}

static void destroy_queue_pair(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    struct nic_queue_pair *queue_pair = endpoint->link.queue_pair;
    if (!queue_pair) {
        return;
    }
    fold_queue_pair_stats(endpoint, &endpoint->stats);
    uint32_t number = queue_pair->number;
    table_clear(&engine->queue_pairs, number);
    queue_pair->operations->queue_pair_destroy(queue_pair);
    look_at_grants(engine);
    endpoint->link.queue_pair = NULL;
    link_forget_queue_pair(&engine->links, 0, number);
    engine->endpoint_count--;
    engine->window_sum -= promised_receives(&endpoint->options, endpoint->in.batch_window);
}

static void unprepare(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    link_prove_end(link);
    rpc_lane_unmake(endpoint);
    destroy_queue_pair(endpoint);
    detach(link);
    ring_destroy(&endpoint->in.ring, endpoint->engine->nic);
    calls_free(endpoint);
    free(endpoint->in.arrivals);
    endpoint->in.arrivals = NULL;
    if (endpoint->link.domain) {
        endpoint->engine->operations->domain_destroy(endpoint->link.domain);
        endpoint->link.domain = NULL;
    }
}

static void closed(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    stop(endpoint);
    forget_arrivals(endpoint);
    if (!link_joining(link)) {
        destroy_queue_pair(endpoint);
    }
    rpc_lane_stop(endpoint, CRPC_E_CLOSED);
    if (endpoint->lasting) {
        rpc_lasting_end(endpoint->lasting, CRPC_E_CLOSED);
    }
    if (has_pending(endpoint)) {
        list_append_once(&endpoint->engine->failing, &endpoint->failing_link);
        endpoint->engine->links.attention = true;
    } else {
        list_remove(&endpoint->failing_link);
    }
}

void rpc_stats_add(crpc_stats *sum, const crpc_stats *more)
{
    const size_t counters = (sizeof(*sum) - offsetof(crpc_stats, calls)) / sizeof(uint64_t);
    for (size_t i = 0; i < counters; i++) {
        (&sum->calls)[i] += (&more->calls)[i];
    }
}

/* When its engine ends an endpoint may be as it was. The others take their timers from the same wheel. */
static void clear_timers(struct rpc_endpoint *endpoint)
{
    struct wheel *wheel = &endpoint->engine->links.wheel;
    wheel_clear(wheel, &endpoint->read.timer);
    for (uint32_t i = 0; i < endpoint->calls.made && endpoint->calls.live > 0; i++) {
        if (call_live(&endpoint->calls.slots[i])) {
            wheel_clear(wheel, &endpoint->calls.slots[i].timer);
        }
    }
}

static void destroy(struct link *link)
{
    struct rpc_endpoint *endpoint = endpoint_of_link(link);
    clear_timers(endpoint);
    chain_remove(&endpoint->engine->release, &endpoint->release_link);
    list_remove(&endpoint->failing_link);
    unprepare(link);
    rpc_stats_add(&endpoint->engine->retired, &endpoint->stats);
    metrics_leave(endpoint->engine->metrics, endpoint->metrics);
    rpc_lasting_free(endpoint->lasting);
    link_remove(link);
    free(endpoint);
}

void rpc_inherit(struct rpc_endpoint *endpoint, struct rpc_endpoint *before)
{
    destroy_queue_pair(before); /* then all that it has done is in the counters */
    endpoint->stats = before->stats;
    before->stats = (crpc_stats){0};
    endpoint->metrics = before->metrics;
    before->metrics = NULL;
    endpoint->owed.token_sequence = before->owed.token_sequence;
    endpoint->user_data = before->user_data;
    endpoint->options.user_data = before->user_data;
    endpoint->link.options.user_data = before->user_data;
    rpc_set_call_bar(endpoint, CRPC_E_STATE);
    endpoint->reply_bar = CRPC_E_DISCONNECTED;
}

const struct link_service rpc_service = {
    .name = "endpoint",
    .no_room = "endpoints_max, receive_depth or backlog, or lower its batch windows",
    .number = LINK_SERVICE_CALLS,
    .version_min = WIRE_VERSION_MIN,
    .version_max = WIRE_VERSION_MAX,
    .features = WIRE_FEATURE_LANE | WIRE_FEATURE_DEADLINES | WIRE_FEATURE_TRACES,
    .handle_kind = HANDLE_ENDPOINT,
    .create = create,
    .prepare = prepare,
    .expose = expose,
    .fill_body = rpc_fill_body,
    .body_fault = rpc_body_fault,
    .attach = attach,
    .detach = detach,
    .unprepare = unprepare,
    .destroy = destroy,
    .opened = opened,
    .settle = settle,
    .distrust = distrust,
    .failed = failed,
    .abandoned = abandoned,
    .leave = rpc_leave,
    .describe_leave = rpc_describe_leave,
    .keepalive = rpc_keepalive,
    .closed = closed,
    .quiet = quiet,
    .comes_back = rpc_lasting_comes_back,
    .room = rpc_lasting_room,
    .stay_away = rpc_lasting_stay_away,
    .timer = rpc_timer,
    .device_event = rpc_device_event,
};

/* ---- Asking ---------------------------------------------------------------------------------- */

void rpc_endpoint_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats)
{
    *stats = endpoint->stats;
    fold_queue_pair_stats(endpoint, stats);
}

const crpc_error *rpc_endpoint_error(const struct rpc_endpoint *endpoint)
{
    const bool before = endpoint->lasting && endpoint->link.error.status == CRPC_OK;
    return before ? &endpoint->lasting->error : &endpoint->link.error;
}

void rpc_endpoint_info(const struct rpc_endpoint *endpoint, crpc_endpoint_info *info)
{
    *info = (crpc_endpoint_info){
        .request_bytes_max =
            endpoint->link.working ? 0 : wire_payload_max(endpoint->peer.request_bytes_max),
        .reply_bytes_max = wire_payload_max(endpoint->calls.reply_budget_max),
        .calls_max = endpoint->calls.max,
        .calls_open = endpoint->calls.live,
        .requests_open = endpoint->owed.count,
        .queue_pair_number = endpoint->link.queue_pair ? endpoint->link.queue_pair->number : 0,
        .features = endpoint->link.peer.features,
    };
    link_fill_info(&endpoint->link, info);
    if (endpoint->lasting) {
        rpc_lasting_info(endpoint->lasting, info);
    }
}
