/* connect.c: endpoints and listeners by rdma_cm: what follows from each event, and the events
 * that the application gets to see. Cold path.
 */
#include "rpc/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static struct nic_transport transport_of(const struct rpc_endpoint *endpoint)
{
    return (struct nic_transport){.retry_timeout = endpoint->options.retry_timeout,
                                  .retry_count = endpoint->options.retry_count};
}

static int32_t need_cm(const struct rpc_engine *engine, crpc_error *error)
{
    if (engine->cm) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_UNSUPPORTED, 0,
                     "%s has no rdma_cm; connect with crpc_endpoint_blob and crpc_endpoint_join",
                     engine->nic->device);
}

static void start_connect_timer(struct rpc_endpoint *endpoint)
{
    struct rpc_engine *engine = endpoint->engine;
    engine->now_ns = 0;
    if (endpoint->options.connect_timeout_ns != CRPC_FOREVER) {
        wheel_set(&engine->wheel, &endpoint->life_timer,
                  deadline_after(engine_now_ns(engine), endpoint->options.connect_timeout_ns));
    }
    engine->now_ns = 0;
}

/* ---- The connecting side --------------------------------------------------------------------- */

int32_t rpc_endpoint_connect(struct rpc_engine *engine, const char *address,
                             const crpc_endpoint_options *options, struct rpc_endpoint **out,
                             crpc_error *error)
{
    struct rpc_endpoint *endpoint;
    int32_t status = need_cm(engine, error);
    if (status == CRPC_OK) {
        status = endpoint_create(engine, &endpoint, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    status = endpoint_prepare(endpoint, options, error);
    if (status == CRPC_OK) {
        status = cm_connect(engine->cm, address, endpoint, &endpoint->identifier, error);
    }
    if (status != CRPC_OK) {
        rpc_endpoint_close(endpoint);
        return status;
    }
    endpoint->state = CRPC_STATE_CONNECTING;
    start_connect_timer(endpoint);
    *out = endpoint;
    return CRPC_OK;
}

static void send_request(struct rpc_endpoint *endpoint)
{
    struct nic_transport transport = transport_of(endpoint);
    struct wire_handshake wire;
    crpc_error error = {0};
    endpoint_fill_handshake(endpoint, &wire);
    if (cm_request(endpoint->identifier, endpoint->queue_pair, &transport, &wire, sizeof(wire),
                   &error) != CRPC_OK) {
        endpoint_not_connected(endpoint, &error);
    }
}

static void take_response(struct rpc_endpoint *endpoint, const struct cm_event *event)
{
    struct nic_transport transport = transport_of(endpoint);
    crpc_error error = {0};
    int32_t status = handshake_check_response(event->private_data, event->private_bytes,
                                              &endpoint->peer, &error);
    if (status == CRPC_OK) {
        status = endpoint_attach(endpoint, &error);
    }
    if (status == CRPC_OK) {
        status = cm_establish(endpoint->identifier, endpoint->queue_pair, &transport, &error);
    }
    if (status == CRPC_OK) {
        endpoint_connected(endpoint);
    } else {
        endpoint_not_connected(endpoint, &error);
    }
}

/* ---- The listening side ---------------------------------------------------------------------- */

int32_t rpc_listener_open(struct rpc_engine *engine, const char *address, uint32_t backlog,
                          uint64_t user_data, struct rpc_listener **out, crpc_error *error)
{
    int32_t status = need_cm(engine, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct rpc_listener *listener = calloc(1, sizeof(*listener));
    if (listener) {
        listener->handle = handles_add(&engine->handles, HANDLE_LISTENER, listener);
    }
    if (!listener || listener->handle == 0) {
        free(listener);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a listener");
    }
    listener->engine = engine;
    listener->user_data = user_data;
    listener->backlog = backlog;
    list_append(&engine->listeners, &listener->all_link);
    status = cm_listen(engine->cm, address, backlog, listener, &listener->identifier, error);
    if (status != CRPC_OK) {
        rpc_listener_close(listener);
        return status;
    }
    *out = listener;
    return CRPC_OK;
}

void rpc_listener_close(struct rpc_listener *listener)
{
    struct rpc_engine *engine = listener->engine;
    struct list *link = engine->endpoints.next;
    while (link != &engine->endpoints) {
        struct rpc_endpoint *endpoint = list_entry(link, struct rpc_endpoint, all_link);
        link = link->next;
        if (endpoint->listener != listener) {
            continue;
        }
        if (endpoint->state == CRPC_STATE_REQUESTED) {
            rpc_endpoint_reject(endpoint, 0);
        } else if (endpoint->events & ENDPOINT_EVENT_CONNECT_REQUEST) {
            rpc_endpoint_close(endpoint); /* its peer gave up before anybody heard of it */
        } else {
            endpoint->listener = NULL;
        }
    }
    cm_destroy(listener->identifier);
    handles_remove(&engine->handles, listener->handle);
    list_remove(&listener->all_link);
    free(listener);
}

uint64_t rpc_listener_handle(const struct rpc_listener *listener)
{
    return listener->handle;
}

void rpc_listener_info(const struct rpc_listener *listener, crpc_listener_info *info)
{
    *info = (crpc_listener_info){.port = cm_local_port(listener->identifier),
                                 .user_data = listener->user_data,
                                 .requests = listener->requests,
                                 .refused = listener->refused};
    cm_local_address(listener->identifier, info->address, sizeof(info->address));
}

static void refuse_request(struct rpc_listener *listener, struct cm_identifier *identifier,
                           const struct wire_reject *reject, const crpc_error *error)
{
    char peer[64];
    cm_peer_address(identifier, peer, sizeof(peer));
    log_write(listener->engine->log, CRPC_LOG_WARNING, "refused a connection from %s: %s", peer,
              error->message);
    listener->refused++;
    cm_reject(identifier, reject, sizeof(*reject));
    cm_destroy(identifier);
}

static void take_connect_request(struct rpc_listener *listener, const struct cm_event *event)
{
    struct rpc_engine *engine = listener->engine;
    struct handshake_peer peer;
    struct wire_reject reject;
    crpc_error error = {0};
    struct rpc_endpoint *endpoint;
    listener->requests++;
    if (handshake_check_request(event->private_data, event->private_bytes, &peer, &reject,
                                &error) != CRPC_OK) {
        refuse_request(listener, event->identifier, &reject, &error);
        return;
    }
    /* The application may take its time to accept; cm keeps the backlog only until we hear of it. */
    if (listener->waiting >= listener->backlog) {
        error_set(&error, CRPC_E_NO_RESOURCE, 0, "the backlog of %u is full", listener->backlog);
    }
    if (error.status != CRPC_OK || endpoint_create(engine, &endpoint, &error) != CRPC_OK) {
        reject.reason = WIRE_REJECT_NO_ROOM;
        refuse_request(listener, event->identifier, &reject, &error);
        return;
    }
    endpoint->state = CRPC_STATE_REQUESTED;
    endpoint->passive = true;
    endpoint->listener = listener;
    listener->waiting++;
    endpoint->peer = peer;
    endpoint->identifier = event->identifier;
    cm_own(endpoint->identifier, endpoint);
    engine_report(endpoint, ENDPOINT_EVENT_CONNECT_REQUEST);
}

int32_t rpc_endpoint_accept(struct rpc_endpoint *endpoint, const crpc_endpoint_options *options,
                            crpc_error *error)
{
    struct wire_handshake wire;
    if (endpoint->state != CRPC_STATE_REQUESTED) {
        return error_set(error, CRPC_E_STATE, 0,
                         "this endpoint has no connect request to accept%s%s",
                         endpoint->error.status ? ": " : "", endpoint->error.message);
    }
    int32_t status = endpoint_prepare(endpoint, options, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = endpoint_attach(endpoint, error);
    if (status == CRPC_OK) {
        struct nic_transport transport = transport_of(endpoint);
        endpoint_fill_handshake(endpoint, &wire);
        status = cm_accept(endpoint->identifier, endpoint->queue_pair, &transport, &wire,
                           sizeof(wire), error);
    }
    if (status != CRPC_OK) {
        endpoint_unprepare(endpoint);
        return status;
    }
    endpoint->listener->waiting--;
    endpoint->listener = NULL;
    endpoint->state = CRPC_STATE_CONNECTING;
    start_connect_timer(endpoint);
    return CRPC_OK;
}

int32_t rpc_endpoint_reject(struct rpc_endpoint *endpoint, uint32_t reason)
{
    if (endpoint->state != CRPC_STATE_REQUESTED) {
        return CRPC_E_STATE;
    }
    struct wire_reject reject = {.magic = WIRE_HANDSHAKE_MAGIC,
                                 .version_min = WIRE_VERSION_MIN,
                                 .version_max = WIRE_VERSION_MAX,
                                 .reason = WIRE_REJECT_APPLICATION,
                                 .detail = reason};
    cm_reject(endpoint->identifier, &reject, sizeof(reject));
    rpc_endpoint_close(endpoint);
    return CRPC_OK;
}

/* ---- Events of rdma_cm ----------------------------------------------------------------------- */

static void connection_lost(struct rpc_endpoint *endpoint, const crpc_error *given)
{
    crpc_error error = *given;
    if (error.status == CRPC_OK) {
        error_set(&error, CRPC_E_DISCONNECTED, 0,
                  "the peer closed the connection, or its program ended");
    }
    switch (endpoint->state) {
    case CRPC_STATE_CONNECTED:
    case CRPC_STATE_CLOSING:
        engine_take_completions(endpoint->engine);
        endpoint_fail(endpoint, &error);
        break;
    case CRPC_STATE_CONNECTING:
        endpoint_not_connected(endpoint, &error);
        break;
    case CRPC_STATE_REQUESTED: /* the peer gave up waiting: accept will say so */
        cm_destroy(endpoint->identifier);
        endpoint->identifier = NULL;
        endpoint->error = error;
        endpoint->state = CRPC_STATE_DISCONNECTED;
        endpoint->listener->waiting--;
        break;
    default:
        break;
    }
}

static void queue_pair_lost(struct rpc_engine *engine, const struct cm_event *event)
{
    struct rpc_endpoint *endpoint = table_get(&engine->queue_pairs, event->queue_pair_number);
    if (endpoint) {
        connection_lost(endpoint, &event->error);
    }
}

static void device_lost(struct rpc_engine *engine, const crpc_error *error)
{
    struct list *link = engine->endpoints.next;
    while (link != &engine->endpoints) {
        struct rpc_endpoint *endpoint = list_entry(link, struct rpc_endpoint, all_link);
        link = link->next;
        connection_lost(endpoint, error);
    }
    log_write(engine->log, CRPC_LOG_ERROR, "device lost: %s", error->message);
    engine_device_event(engine, CRPC_E_NO_DEVICE);
}

static void take_rejection(struct rpc_endpoint *endpoint, const struct cm_event *event)
{
    crpc_error error = event->error;
    if (event->private_bytes > 0 || error.status == CRPC_OK) {
        handshake_explain_reject(event->private_data, event->private_bytes, &error);
    }
    endpoint_not_connected(endpoint, &error);
}

static void take_cm_event(struct rpc_engine *engine, const struct cm_event *event)
{
    struct rpc_endpoint *endpoint = event->owner;
    switch (event->kind) {
    case CM_EVENT_CONNECT_REQUEST:
        take_connect_request(event->owner, event);
        return;
    case CM_EVENT_QUEUE_PAIR:
        queue_pair_lost(engine, event);
        return;
    case CM_EVENT_PORT_ACTIVE:
        engine_device_event(engine, CRPC_OK);
        return;
    case CM_EVENT_PORT_DOWN:
        engine_device_event(engine, CRPC_E_UNREACHABLE);
        return;
    case CM_EVENT_DEVICE_FATAL:
        device_lost(engine, &event->error);
        return;
    case CM_EVENT_FAILED:
    case CM_EVENT_DISCONNECTED:
        connection_lost(endpoint, &event->error);
        return;
    default:
        break;
    }
    if (endpoint->state != CRPC_STATE_CONNECTING) {
        return; /* it was faster, or is over */
    }
    switch (event->kind) {
    case CM_EVENT_ROUTED:
        send_request(endpoint);
        break;
    case CM_EVENT_CONNECT_RESPONSE:
        take_response(endpoint, event);
        break;
    case CM_EVENT_ESTABLISHED:
        endpoint_connected(endpoint);
        break;
    case CM_EVENT_REJECTED:
        take_rejection(endpoint, event);
        break;
    default:
        break;
    }
}

void engine_take_cm_events(struct rpc_engine *engine)
{
    struct cm_event event;
    while (cm_event_take(engine->cm, &event)) {
        take_cm_event(engine, &event);
    }
}

/* ---- Events of the application --------------------------------------------------------------- */

static void emit_event(struct rpc_endpoint *endpoint, uint8_t kind, int32_t status,
                       uint64_t user_data, struct output *output)
{
    *output->next++ = (crpc_completion){.kind = kind,
                                        .status = status,
                                        .endpoint = {endpoint->handle},
                                        .user_data = user_data,
                                        .endpoint_user_data = endpoint->options.user_data};
}

/* Gives one of the endpoint's events, the one that has to come first. */
static void emit_first_event(struct rpc_endpoint *endpoint, struct output *output)
{
    if (endpoint->events & ENDPOINT_EVENT_CONNECT_REQUEST) {
        endpoint->events &= ~ENDPOINT_EVENT_CONNECT_REQUEST;
        if (endpoint->listener) {
            emit_event(endpoint, CRPC_COMPLETION_CONNECT_REQUEST, CRPC_OK,
                       endpoint->listener->user_data, output);
        }
    } else if (endpoint->events & ENDPOINT_EVENT_CONNECTED) {
        endpoint->events &= ~ENDPOINT_EVENT_CONNECTED;
        int32_t status = endpoint->state == CRPC_STATE_DISCONNECTED && !endpoint->drained
                             ? endpoint->error.status
                             : CRPC_OK;
        emit_event(endpoint, CRPC_COMPLETION_CONNECTED, status, endpoint->options.user_data,
                   output);
    } else {
        endpoint->events &= ~ENDPOINT_EVENT_ROOM;
        if (endpoint->refused) {
            endpoint->refused = false;
            endpoint->refused_for_limit = false;
            emit_event(endpoint, CRPC_COMPLETION_ROOM, CRPC_OK, endpoint->options.user_data,
                       output);
        }
    }
}

void engine_emit_events(struct rpc_engine *engine, struct output *output)
{
    while (engine->device_events_count > 0 && !output_full(output)) {
        int32_t status = engine->device_events[0];
        engine->device_events_count--;
        memmove(engine->device_events, engine->device_events + 1,
                engine->device_events_count * sizeof(engine->device_events[0]));
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_DEVICE, .status = status};
    }
    while (!list_empty(&engine->events) && !output_full(output)) {
        struct rpc_endpoint *endpoint =
            list_entry(engine->events.next, struct rpc_endpoint, event_link);
        emit_first_event(endpoint, output);
        if (endpoint->events == 0) {
            list_remove(&endpoint->event_link);
        }
    }
}
