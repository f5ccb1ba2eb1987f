/* endpoint.c: the life of an endpoint: its memory, its failure, the draining of what was
 * pending, its end. Cold path.
 */
#include "rpc/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static void init_links(struct rpc_endpoint *endpoint)
{
    struct list *links[] = {&endpoint->work_link,    &endpoint->urgent_link,
                            &endpoint->ready_link,   &endpoint->release_link,
                            &endpoint->failing_link, &endpoint->acknowledged_link,
                            &endpoint->event_link,   &endpoint->all_link};
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        list_init(links[i]);
    }
    wheel_timer_init(&endpoint->read_timer, TIMER_READ);
    wheel_timer_init(&endpoint->life_timer, TIMER_LIFE);
}

int32_t endpoint_create(struct rpc_engine *engine, struct rpc_endpoint **out, crpc_error *error)
{
    struct rpc_endpoint *endpoint =
        aligned_alloc(CACHE_LINE_BYTES, align_up(sizeof(*endpoint), CACHE_LINE_BYTES));
    if (!endpoint) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an endpoint");
    }
    memset(endpoint, 0, sizeof(*endpoint));
    init_links(endpoint);
    endpoint->engine = engine;
    endpoint->call_bar = CRPC_E_STATE;
    endpoint->reply_bar = CRPC_E_STATE;
    endpoint->read_backoff_ns = READ_BACKOFF_MIN_NS;
    endpoint->leave_timeout_ns = CRPC_FOREVER;
    endpoint->handle = handles_add(&engine->handles, HANDLE_ENDPOINT, endpoint);
    if (endpoint->handle == 0) {
        free(endpoint);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an endpoint's handle");
    }
    list_append(&engine->endpoints, &endpoint->all_link);
    *out = endpoint;
    return CRPC_OK;
}

/* A CQ or the SRQ must never overflow: what could be outstanding is bounded here, for all endpoints
 * together, and whoever does not fit is refused. */
static int32_t check_room(const struct rpc_engine *engine, const crpc_endpoint_options *options,
                          crpc_error *error)
{
    const struct nic *nic = engine->nic;
    uint32_t window_max = nic_receive_low_mark(nic);
    if (engine->endpoint_count == engine->endpoints_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "this context has its endpoints_max of %u endpoints; close some or raise it "
            "in crpc_context_options",
            engine->endpoints_max);
    }
    if ((uint64_t)(engine->endpoint_count + 1) * nic->send_depth > nic->send_completion_depth) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "the completion queue of %s takes %u sends, enough for %u endpoints",
                         nic->device, nic->send_completion_depth, engine->endpoint_count);
    }
    if (engine->window_sum + options->batch_window > window_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "batch windows of all endpoints may sum to %u (two thirds of receive_depth), "
            "and %u are left: lower batch_window or raise receive_depth",
            window_max, window_max - engine->window_sum);
    }
    return CRPC_OK;
}

static bool make_call_slots(struct rpc_endpoint *endpoint, uint32_t count)
{
    endpoint->calls = aligned_alloc(CACHE_LINE_BYTES, count * sizeof(struct rpc_call));
    if (!endpoint->calls) {
        return false;
    }
    memset(endpoint->calls, 0, count * sizeof(struct rpc_call));
    for (uint32_t i = 0; i < count; i++) {
        struct rpc_call *call = &endpoint->calls[i];
        wheel_timer_init(&call->timer, TIMER_CALL);
        call->endpoint = endpoint;
        call->call_id = i;
        call->next_free = i + 1 < count ? i + 1 : NO_CALL;
    }
    endpoint->calls_max = count;
    endpoint->first_free_call = 0;
    return true;
}

static void set_shares(struct rpc_endpoint *endpoint, const crpc_endpoint_options *options)
{
    endpoint->request_share = options->request_bytes;
    endpoint->reply_budget = options->ring_bytes - WIRE_FIN_BYTES - options->request_bytes;
    if (options->flags & CRPC_ENDPOINT_CALL_ONLY) {
        endpoint->request_share = 0;
        endpoint->reply_budget = options->ring_bytes - WIRE_FIN_BYTES;
    } else if (options->flags & CRPC_ENDPOINT_SERVE_ONLY) {
        endpoint->request_share = options->ring_bytes - WIRE_FIN_BYTES;
        endpoint->reply_budget = 0;
    }
}

static int32_t make_receive_side(struct rpc_endpoint *endpoint, crpc_error *error)
{
    const crpc_endpoint_options *options = &endpoint->options;
    uint32_t arrivals = power_of_two_at_least(options->batch_window);
    endpoint->arrivals = calloc(arrivals, sizeof(*endpoint->arrivals));
    if (!endpoint->arrivals || !make_call_slots(endpoint, options->calls_max)) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for %u call slots",
                         options->calls_max);
    }
    endpoint->arrivals_mask = arrivals - 1;
    endpoint->batch_window = options->batch_window;
    int32_t status = ring_create(&endpoint->ring, endpoint->engine->nic, options->ring_bytes,
                                 CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                 CRPC_ACCESS_REMOTE_READ, error);
    if (status != CRPC_OK) {
        return status;
    }
    set_shares(endpoint, options);
    if (getrandom(&endpoint->nonce, sizeof(endpoint->nonce), 0) !=
        (ssize_t)sizeof(endpoint->nonce)) {
        return error_set(error, CRPC_E_SYSTEM, errno, "getrandom failed: %s", strerror(errno));
    }
    endpoint->mailbox = ring_line(&endpoint->ring);
    endpoint->mailbox->nonce = endpoint->nonce;
    endpoint_publish(endpoint);
    return CRPC_OK;
}

int32_t endpoint_prepare(struct rpc_endpoint *endpoint, const crpc_endpoint_options *options,
                         crpc_error *error)
{
    struct rpc_engine *engine = endpoint->engine;
    int32_t status = check_room(engine, options, error);
    if (status != CRPC_OK) {
        return status;
    }
    /* What the new window promises must be there before it is promised. */
    if (engine->nic->receives_posted < nic_receive_low_mark(engine->nic)) {
        engine->operations->refill(engine->nic);
    }
    endpoint->options = *options;
    status = make_receive_side(endpoint, error);
    if (status == CRPC_OK) {
        status = engine->operations->queue_pair_create(engine->nic, endpoint, &endpoint->queue_pair,
                                                       error);
    }
    if (status == CRPC_OK &&
        !table_set(&engine->queue_pairs, endpoint->queue_pair->number, endpoint)) {
        engine->operations->queue_pair_destroy(endpoint->queue_pair);
        endpoint->queue_pair = NULL;
        status = error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for an endpoint");
    }
    if (status != CRPC_OK) {
        endpoint_unprepare(endpoint);
        return status;
    }
    engine->endpoint_count++;
    engine->window_sum += endpoint->batch_window;
    return CRPC_OK;
}

/* What the peer may make us set aside: as much as this side chose for itself, or what is modest. */
#define PEER_RING_BYTES_MODEST (UINT64_C(64) << 20)
#define PEER_CALLS_MODEST 65536u

static int32_t check_demands(const struct rpc_endpoint *endpoint, crpc_error *error)
{
    const struct handshake_peer *peer = &endpoint->peer;
    uint64_t ring_bytes_max = maximum(endpoint->ring.bytes, PEER_RING_BYTES_MODEST);
    if (peer->ring_bytes > ring_bytes_max) {
        return error_set(
            error, CRPC_E_NO_RESOURCE, 0,
            "the peer's ring has %llu bytes, which takes as many here; this side allows "
            "%llu: raise its ring_bytes, or lower the peer's",
            (unsigned long long)peer->ring_bytes, (unsigned long long)ring_bytes_max);
    }
    if (peer->calls > maximum(endpoint->calls_max, PEER_CALLS_MODEST)) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0,
                         "the peer wants room for %u open calls; raise this side's calls_max, or "
                         "lower the peer's",
                         peer->calls);
    }
    return CRPC_OK;
}

int32_t endpoint_attach(struct rpc_endpoint *endpoint, crpc_error *error)
{
    const struct handshake_peer *peer = &endpoint->peer;
    struct nic *nic = endpoint->engine->nic;
    uint32_t send_slots = power_of_two_at_least(nic->send_depth);
    int32_t status = check_demands(endpoint, error);
    if (status != CRPC_OK) {
        return status;
    }
    endpoint->owed = calloc(peer->calls, sizeof(*endpoint->owed));
    endpoint->sent_replies = calloc(peer->calls, sizeof(*endpoint->sent_replies));
    endpoint->sent_batches = calloc(send_slots, sizeof(*endpoint->sent_batches));
    if (!endpoint->owed || !endpoint->sent_replies || !endpoint->sent_batches) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM,
                         "no memory to owe replies to the peer's %u calls", peer->calls);
    }
    endpoint->owed_slots = peer->calls;
    endpoint->sent_batches_slots = send_slots;
    endpoint->owed_allowance_max = peer->ring_bytes - WIRE_FIN_BYTES - peer->request_bytes;
    endpoint->request_limit = peer->request_bytes;
    endpoint->batch_limit = peer->batch_window;
    return ring_create(&endpoint->staging, nic, peer->ring_bytes, 0, CRPC_ACCESS_LOCAL_WRITE,
                       error);
}

void endpoint_fill_handshake(struct rpc_endpoint *endpoint, struct wire_handshake *wire)
{
    const crpc_endpoint_options *options = &endpoint->options;
    *wire = (struct wire_handshake){
        .magic = WIRE_HANDSHAKE_MAGIC,
        .version_min = WIRE_VERSION_MIN,
        .version_max = WIRE_VERSION_MAX,
        .ring_log2 = (uint8_t)__builtin_ctz(options->ring_bytes),
        .calls_log2 = (uint8_t)__builtin_ctz(endpoint->calls_max),
        .ring_address = (uint64_t)(uintptr_t)endpoint->ring.address,
        .ring_key = endpoint->ring.memory.remote_key,
        .mailbox_key = endpoint->ring.line_memory.remote_key,
        .request_units = (uint32_t)(endpoint->request_share / WIRE_UNIT_BYTES),
        .batch_window = (uint16_t)endpoint->batch_window,
        .features = HANDSHAKE_FEATURES_KNOWN,
        .nonce = endpoint->nonce,
    };
    if (endpoint->passive) {
        wire->version_min = wire->version_max = (uint8_t)endpoint->peer.version;
        wire->features = (uint16_t)endpoint->peer.features;
    } else {
        wire->token_bytes = (uint8_t)options->token_bytes;
        memcpy(wire->token, options->token, options->token_bytes);
    }
}

/* ---- Becoming connected, or not -------------------------------------------------------------- */

void endpoint_connected(struct rpc_endpoint *endpoint)
{
    wheel_clear(&endpoint->engine->wheel, &endpoint->life_timer);
    endpoint->state = CRPC_STATE_CONNECTED;
    endpoint->call_bar = CRPC_OK;
    endpoint->reply_bar = CRPC_OK;
    engine_report(endpoint, ENDPOINT_EVENT_CONNECTED);
}

void endpoint_not_connected(struct rpc_endpoint *endpoint, const crpc_error *error)
{
    wheel_clear(&endpoint->engine->wheel, &endpoint->life_timer);
    cm_destroy(endpoint->identifier);
    endpoint->identifier = NULL;
    endpoint->error = *error;
    endpoint->state = CRPC_STATE_DISCONNECTED;
    endpoint->call_bar = CRPC_E_DISCONNECTED;
    endpoint->reply_bar = CRPC_E_DISCONNECTED;
    log_write(endpoint->engine->log, CRPC_LOG_INFO, "endpoint not connected: %s", error->message);
    engine_report(endpoint, ENDPOINT_EVENT_CONNECTED);
}

/* ---- Failing --------------------------------------------------------------------------------- */

/* What arrived and was not parsed is forgotten. */
static void distrust_arrivals(struct rpc_endpoint *endpoint)
{
    endpoint->distrusted = true;
    endpoint->arrivals_head = endpoint->arrivals_tail;
    endpoint->batch_left = 0;
    list_remove(&endpoint->ready_link);
}

void endpoint_fail(struct rpc_endpoint *endpoint, const crpc_error *error)
{
    struct rpc_engine *engine = endpoint->engine;
    if (endpoint->failing) {
        return;
    }
    endpoint->failing = true;
    endpoint->error = *error;
    endpoint->call_bar = CRPC_E_DISCONNECTED;
    endpoint->reply_bar = CRPC_E_DISCONNECTED;
    endpoint->reserved = false;
    endpoint->refused = false;
    wheel_clear(&engine->wheel, &endpoint->life_timer);
    wheel_clear(&engine->wheel, &endpoint->read_timer);
    list_remove(&endpoint->work_link);
    list_remove(&endpoint->urgent_link);
    engine->operations->queue_pair_fail(endpoint->queue_pair);
    if (endpoint->identifier) {
        cm_disconnect(endpoint->identifier);
    }
    list_append_once(&engine->failing, &endpoint->failing_link);
}

void endpoint_protocol_error(struct rpc_endpoint *endpoint, const char *what)
{
    const crpc_error *before = &endpoint->error; /* if the connection is over already */
    crpc_error error = {0};
    char peer[64] = "by blob";
    if (endpoint->identifier) {
        cm_peer_address(endpoint->identifier, peer, sizeof(peer));
    }
    endpoint->stats.protocol_errors++;
    error_set(&error, CRPC_E_PROTOCOL, 0, "the peer (%s) broke the protocol: %s%s%s", peer, what,
              before->status == CRPC_OK ? "" : ". That came before the end: ", before->message);
    distrust_arrivals(endpoint);
    endpoint_fail(endpoint, &error);
    endpoint->error = error;
}

static int32_t status_of_pending(const struct rpc_endpoint *endpoint)
{
    if (endpoint->closed) {
        return CRPC_E_CLOSED;
    }
    return endpoint->error.status == CRPC_E_PROTOCOL ? CRPC_E_PROTOCOL : CRPC_E_DISCONNECTED;
}

/* A peer only parts when it has every reply, so one that left has them, though the last
 * acknowledgement may have been lost as its queue pair went. */
static int32_t status_of_pending_replies(const struct rpc_endpoint *endpoint)
{
    return endpoint_left(endpoint) && !endpoint->closed ? CRPC_OK : status_of_pending(endpoint);
}

/* True when nothing is left of what came before the end: arrivals to parse, acknowledged
 * replies. */
static bool may_drain(const struct rpc_endpoint *endpoint)
{
    bool parsed = endpoint->batch_left == 0 && endpoint->arrivals_head == endpoint->arrivals_tail;
    return parsed && endpoint->sent_replies_head == endpoint->sent_replies_acknowledged;
}

void engine_drain_failing(struct rpc_engine *engine)
{
    struct list *link;
    for (link = engine->failing.next; link != &engine->failing; link = link->next) {
        struct rpc_endpoint *endpoint = list_entry(link, struct rpc_endpoint, failing_link);
        if (endpoint->drained || !may_drain(endpoint)) {
            continue;
        }
        endpoint->drained = true;
        endpoint->state = CRPC_STATE_DISCONNECTED;
        if (endpoint_left(endpoint)) {
            endpoint->error = (crpc_error){0};
        }
        if (endpoint->error.status != CRPC_OK) {
            log_write(engine->log, CRPC_LOG_WARNING, "endpoint lost: %s", endpoint->error.message);
        }
        calls_end_all(endpoint, status_of_pending(endpoint));
        if (endpoint->sent_replies_head != endpoint->sent_replies_tail) {
            endpoint->sent_replies_status = status_of_pending_replies(endpoint);
            endpoint->sent_replies_acknowledged = endpoint->sent_replies_tail;
            list_append_once(&engine->acknowledged, &endpoint->acknowledged_link);
        }
    }
}

static bool has_pending(const struct rpc_endpoint *endpoint)
{
    return endpoint->ended_calls > 0 || endpoint->calls_live > 0 ||
           endpoint->sent_replies_head != endpoint->sent_replies_tail;
}

void engine_emit_disconnected(struct rpc_engine *engine, struct output *output)
{
    struct list *link = engine->failing.next;
    while (link != &engine->failing && !output_full(output)) {
        struct rpc_endpoint *endpoint = list_entry(link, struct rpc_endpoint, failing_link);
        link = link->next;
        if (!endpoint->drained || has_pending(endpoint) || endpoint->events) {
            continue;
        }
        list_remove(&endpoint->failing_link);
        if (endpoint->closed) {
            endpoint_free(endpoint);
            continue;
        }
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_DISCONNECTED,
                                            .status = endpoint->error.status,
                                            .endpoint = {endpoint->handle},
                                            .user_data = endpoint->options.user_data,
                                            .endpoint_user_data = endpoint->options.user_data};
    }
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void fold_queue_pair_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats)
{
    if (endpoint->queue_pair) {
        stats->send_wqes += endpoint->queue_pair->stats.wqes;
        stats->doorbells += endpoint->queue_pair->stats.doorbells;
        stats->signaled_wqes += endpoint->queue_pair->stats.signaled_wqes;
        stats->inline_wqes += endpoint->queue_pair->stats.inline_wqes;
    }
}

static void destroy_queue_pair(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    if (!endpoint->queue_pair) {
        return;
    }
    fold_queue_pair_stats(endpoint, &endpoint->stats);
    table_clear(&engine->queue_pairs, endpoint->queue_pair->number);
    uint32_t number = endpoint->queue_pair->number;
    engine->operations->queue_pair_destroy(endpoint->queue_pair);
    endpoint->queue_pair = NULL;
    if (engine->cm) {
        cm_forget_queue_pair(engine->cm, number);
    }
    engine->endpoint_count--;
    engine->window_sum -= endpoint->batch_window;
}

/* Undoes endpoint_attach, whether it was done whole, in part or not at all. */
void endpoint_detach(struct rpc_endpoint *endpoint)
{
    ring_destroy(&endpoint->staging, endpoint->engine->nic);
    free(endpoint->owed);
    free(endpoint->sent_replies);
    free(endpoint->sent_batches);
    endpoint->owed = NULL;
    endpoint->sent_replies = NULL;
    endpoint->sent_batches = NULL;
    endpoint->owed_slots = 0;
}

/* Undoes endpoint_prepare likewise, and endpoint_attach. */
void endpoint_unprepare(struct rpc_endpoint *endpoint)
{
    destroy_queue_pair(endpoint);
    endpoint_detach(endpoint);
    ring_destroy(&endpoint->ring, endpoint->engine->nic);
    free(endpoint->calls);
    free(endpoint->arrivals);
    endpoint->calls = NULL;
    endpoint->arrivals = NULL;
    endpoint->calls_max = 0;
}

void endpoint_free(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    list_remove(&endpoint->release_link);
    list_remove(&endpoint->all_link);
    endpoint_unprepare(endpoint);
    crpc_stats *sum = &engine->retired;
    const uint64_t *from = &endpoint->stats.calls;
    uint64_t *to = &sum->calls;
    size_t counters = (sizeof(crpc_stats) - offsetof(crpc_stats, calls)) / sizeof(uint64_t);
    for (size_t i = 0; i < counters; i++) {
        to[i] += from[i];
    }
    free(endpoint);
}

void rpc_endpoint_close(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    if (endpoint->state == CRPC_STATE_REQUESTED) {
        endpoint->listener->waiting--;
    }
    handles_remove(&engine->handles, endpoint->handle);
    endpoint->closed = true;
    endpoint->failing = true;
    endpoint->reserved = false;
    endpoint->refused = false;
    endpoint->events = 0;
    wheel_clear(&engine->wheel, &endpoint->life_timer);
    wheel_clear(&engine->wheel, &endpoint->read_timer);
    list_remove(&endpoint->work_link);
    list_remove(&endpoint->urgent_link);
    list_remove(&endpoint->event_link);
    distrust_arrivals(endpoint);
    cm_destroy(endpoint->identifier);
    endpoint->identifier = NULL;
    destroy_queue_pair(endpoint);
    if (has_pending(endpoint) || list_linked(&endpoint->release_link)) {
        /* Its memory stays until the next poll, since views may be in use. */
        list_append_once(&engine->failing, &endpoint->failing_link);
        return;
    }
    list_remove(&endpoint->failing_link);
    endpoint_free(endpoint);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

uint64_t rpc_endpoint_handle(const struct rpc_endpoint *endpoint)
{
    return endpoint->handle;
}

const crpc_error *rpc_endpoint_error(const struct rpc_endpoint *endpoint)
{
    return &endpoint->error;
}

void rpc_endpoint_stats(const struct rpc_endpoint *endpoint, crpc_stats *stats)
{
    *stats = endpoint->stats;
    fold_queue_pair_stats(endpoint, stats);
}

void rpc_endpoint_info(const struct rpc_endpoint *endpoint, crpc_endpoint_info *info)
{
    *info = (crpc_endpoint_info){
        .state = endpoint->state,
        .user_data = endpoint->options.user_data,
        .request_bytes_max = wire_payload_max(endpoint->peer.request_bytes),
        .reply_bytes_max = wire_payload_max(endpoint->reply_budget),
        .calls_max = endpoint->calls_max,
        .calls_open = endpoint->calls_live,
        .requests_open = endpoint->owed_count,
        .queue_pair_number = endpoint->queue_pair ? endpoint->queue_pair->number : 0,
        .version = endpoint->peer.version,
        .features = endpoint->peer.features,
        .token_bytes = endpoint->peer.token_bytes,
    };
    memcpy(info->token, endpoint->peer.token, sizeof(info->token));
    if (endpoint->identifier) {
        cm_peer_address(endpoint->identifier, info->peer_address, sizeof(info->peer_address));
        cm_local_address(endpoint->identifier, info->local_address, sizeof(info->local_address));
    }
}
