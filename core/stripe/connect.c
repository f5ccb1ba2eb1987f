/* connect.c: channels and listeners by rdma_cm. Only the first queue pair, which is on rail 0, is
 * connected this way; the rails follow over it (rail.c). Cold path.
 */
#include "stripe/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

static int32_t need_cm(const struct stripe_engine *engine, crpc_error *error)
{
    if (engine->cm) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_UNSUPPORTED, 0,
                     "%s has no rdma_cm; connect with crpc_channel_blob and crpc_channel_join",
                     engine->rails[0].nic->device);
}

/* ---- The connecting side --------------------------------------------------------------------- */

int32_t stripe_connect(struct stripe_engine *engine, const char *address,
                       const crpc_channel_options *options, struct stripe_channel **out,
                       crpc_error *error)
{
    struct stripe_channel *channel;
    int32_t status = need_cm(engine, error);
    if (status == CRPC_OK) {
        status = channel_create(engine, &channel, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    status = channel_prepare(channel, options, error);
    if (status == CRPC_OK) {
        status = cm_connect(engine->cm, address, channel, &channel->identifier, error);
    }
    if (status != CRPC_OK) {
        channel_free(channel);
        return status;
    }
    channel->active = true;
    channel->state = CRPC_STATE_CONNECTING;
    channel_start_timer(channel, options->connect_timeout_ns);
    *out = channel;
    return CRPC_OK;
}

static void send_request(struct stripe_channel *channel)
{
    struct nic_transport transport = channel_transport(channel);
    struct stripe_hello hello;
    crpc_error error = {0};
    hello_fill(channel, &hello);
    if (cm_request(channel->identifier, channel->first->queue_pair, &transport, &hello,
                   sizeof(hello), &error) != CRPC_OK) {
        channel_fail(channel, &error);
    }
}

static void take_response(struct stripe_channel *channel, const struct cm_event *event)
{
    struct nic_transport transport = channel_transport(channel);
    struct stripe_hello hello;
    crpc_error error = {0};
    int32_t status =
        hello_check_response(event->private_data, event->private_bytes, &hello, &error);
    if (status == CRPC_OK) {
        status = channel_agree(channel, &hello, &error);
    }
    if (status == CRPC_OK) {
        status = cm_establish(channel->identifier, channel->first->queue_pair, &transport, &error);
    }
    if (status == CRPC_OK) {
        rails_open(channel);
    } else {
        channel_fail(channel, &error);
    }
}

/* ---- The listening side ---------------------------------------------------------------------- */

int32_t stripe_listener_open(struct stripe_engine *engine, const char *address, uint32_t backlog,
                             uint64_t user_data, struct stripe_listener **out, crpc_error *error)
{
    int32_t status = need_cm(engine, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct stripe_listener *listener = calloc(1, sizeof(*listener));
    if (listener) {
        listener->handle = handles_add(engine->handles, HANDLE_CHANNEL_LISTENER, listener);
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
        stripe_listener_close(listener);
        return status;
    }
    *out = listener;
    return CRPC_OK;
}

void stripe_listener_close(struct stripe_listener *listener)
{
    struct stripe_engine *engine = listener->engine;
    struct list *link = engine->channels.next;
    while (link != &engine->channels) {
        struct stripe_channel *channel = list_entry(link, struct stripe_channel, all_link);
        link = link->next;
        if (channel->listener != listener) {
            continue;
        }
        if (channel->state == CRPC_STATE_REQUESTED) {
            stripe_reject(channel, 0);
        } else if (channel->events & CHANNEL_EVENT_CONNECT_REQUEST) {
            stripe_close(channel); /* its peer gave up before anybody heard of it */
        } else {
            channel->listener = NULL;
        }
    }
    cm_destroy(listener->identifier);
    handles_remove(engine->handles, listener->handle);
    list_remove(&listener->all_link);
    free(listener);
}

uint64_t stripe_listener_handle(const struct stripe_listener *listener)
{
    return listener->handle;
}

void stripe_listener_info(const struct stripe_listener *listener, crpc_listener_info *info)
{
    *info = (crpc_listener_info){.port = cm_local_port(listener->identifier),
                                 .user_data = listener->user_data,
                                 .requests = listener->requests,
                                 .refused = listener->refused};
    cm_local_address(listener->identifier, info->address, sizeof(info->address));
}

static void refuse_request(struct stripe_listener *listener, struct cm_identifier *identifier,
                           const struct stripe_reject *reject, const crpc_error *error)
{
    char peer[64];
    cm_peer_address(identifier, peer, sizeof(peer));
    log_write(listener->engine->log, CRPC_LOG_WARNING, "refused a channel from %s: %s", peer,
              error->message);
    listener->refused++;
    cm_reject(identifier, reject, sizeof(*reject));
    cm_destroy(identifier);
}

static void take_connect_request(struct stripe_listener *listener, const struct cm_event *event)
{
    struct stripe_hello hello;
    struct stripe_reject reject;
    crpc_error error = {0};
    struct stripe_channel *channel;
    listener->requests++;
    if (hello_check_request(event->private_data, event->private_bytes, &hello, &reject, &error) !=
        CRPC_OK) {
        refuse_request(listener, event->identifier, &reject, &error);
        return;
    }
    if (listener->waiting >= listener->backlog) {
        error_set(&error, CRPC_E_NO_RESOURCE, 0, "the backlog of %u is full", listener->backlog);
    }
    if (error.status != CRPC_OK || channel_create(listener->engine, &channel, &error) != CRPC_OK) {
        reject.reason = STRIPE_REJECT_NO_ROOM;
        refuse_request(listener, event->identifier, &reject, &error);
        return;
    }
    channel->state = CRPC_STATE_REQUESTED;
    channel->passive = true;
    channel->listener = listener;
    listener->waiting++;
    channel->peer_hello = hello;
    channel->token_bytes = hello.token_bytes;
    for (uint32_t i = 0; i < hello.token_bytes; i++) {
        channel->token[i] = hello.token[i];
    }
    channel->identifier = event->identifier;
    cm_own(channel->identifier, channel);
    channel_report(channel, CHANNEL_EVENT_CONNECT_REQUEST);
}

int32_t stripe_accept(struct stripe_channel *channel, const crpc_channel_options *options,
                      crpc_error *error)
{
    struct stripe_hello hello;
    if (channel->state != CRPC_STATE_REQUESTED) {
        return error_set(error, CRPC_E_STATE, 0,
                         "this channel has no connect request to accept%s%s",
                         channel->error.status ? ": " : "", channel->error.message);
    }
    int32_t status = channel_prepare(channel, options, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = channel_agree(channel, &channel->peer_hello, error);
    if (status == CRPC_OK) {
        struct nic_transport transport = channel_transport(channel);
        hello_fill(channel, &hello);
        status = cm_accept(channel->identifier, channel->first->queue_pair, &transport, &hello,
                           sizeof(hello), error);
    }
    if (status != CRPC_OK) {
        channel_unprepare(channel);
        return status;
    }
    channel->listener->waiting--;
    channel->listener = NULL;
    channel->state = CRPC_STATE_CONNECTING;
    /* The peer's first offer may be faster than rdma_cm's last message. */
    rails_open(channel);
    channel_start_timer(channel, options->connect_timeout_ns);
    return CRPC_OK;
}

int32_t stripe_reject(struct stripe_channel *channel, uint32_t reason)
{
    if (channel->state != CRPC_STATE_REQUESTED) {
        return CRPC_E_STATE;
    }
    struct stripe_reject reject = {.magic = STRIPE_HELLO_MAGIC,
                                   .version_min = STRIPE_VERSION_MIN,
                                   .version_max = STRIPE_VERSION_MAX,
                                   .reason = STRIPE_REJECT_APPLICATION,
                                   .detail = reason};
    cm_reject(channel->identifier, &reject, sizeof(reject));
    stripe_close(channel);
    return CRPC_OK;
}

/* ---- Events of rdma_cm ----------------------------------------------------------------------- */

static void connection_lost(struct stripe_channel *channel, const crpc_error *given)
{
    crpc_error error = *given;
    if (error.status == CRPC_OK) {
        error_set(&error, CRPC_E_DISCONNECTED, 0,
                  "the peer closed the channel, or its program ended");
    }
    if (channel->state == CRPC_STATE_REQUESTED) { /* it gave up waiting: accept will say so */
        cm_destroy(channel->identifier);
        channel->identifier = NULL;
        channel->error = error;
        channel->state = CRPC_STATE_DISCONNECTED;
        channel->listener->waiting--;
        return;
    }
    stripe_take_completions(channel->engine); /* what it sent before it left */
    if (channel->state != CRPC_STATE_NEW) {
        channel_flush(channel);
        channel_fail(channel, &error);
    }
}

/* Rail 0's device is gone, or one of its queue pairs. */
static void take_device_event(struct stripe_engine *engine, const struct cm_event *event)
{
    struct stripe_queue *queue;
    switch (event->kind) {
    case CM_EVENT_QUEUE_PAIR:
        queue = table_get(&engine->rails[0].queues, event->queue_pair_number);
        if (queue && !queue->first) {
            rail_want_fence(queue->channel, 0);
            stripe_take_completions(engine);
        }
        break;
    case CM_EVENT_DEVICE_FATAL:
        for (struct list *link = engine->channels.next; link != &engine->channels;
             link = link->next) {
            rail_want_fence(list_entry(link, struct stripe_channel, all_link), 0);
        }
        stripe_take_completions(engine);
        break;
    default: /* a port that goes down shows on the rails themselves */
        break;
    }
}

static void take_cm_event(struct stripe_engine *engine, const struct cm_event *event)
{
    struct stripe_channel *channel = event->owner;
    crpc_error error = event->error;
    switch (event->kind) {
    case CM_EVENT_CONNECT_REQUEST:
        take_connect_request(event->owner, event);
        return;
    case CM_EVENT_QUEUE_PAIR:
    case CM_EVENT_PORT_ACTIVE:
    case CM_EVENT_PORT_DOWN:
    case CM_EVENT_DEVICE_FATAL:
        take_device_event(engine, event);
        return;
    case CM_EVENT_ROUTED:
        send_request(channel);
        return;
    case CM_EVENT_CONNECT_RESPONSE:
        take_response(channel, event);
        return;
    case CM_EVENT_ESTABLISHED:
        return;
    case CM_EVENT_REJECTED:
        if (event->private_bytes > 0 || error.status == CRPC_OK) {
            hello_explain_reject(event->private_data, event->private_bytes, &error);
        }
        channel_fail(channel, &error);
        return;
    case CM_EVENT_FAILED:
    case CM_EVENT_DISCONNECTED:
        connection_lost(channel, &error);
        return;
    }
}

void stripe_take_cm_events(struct stripe_engine *engine)
{
    struct cm_event event;
    while (cm_event_take(engine->cm, &event)) {
        take_cm_event(engine, &event);
    }
}
