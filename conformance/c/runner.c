/* runner.c: does in C what run.py says on stdin, one line a step, and tells on stdout what comes of it.
 * docs/conformance.md has the verbs. It decides nothing: what is right, only run.py knows.
 */
#include "runner.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "line.h"
#include "post.h"

#define COMPLETIONS 64
#define THINGS_MAX 4096
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

crpc_context *context;
static struct thing things[THINGS_MAX]; /* their addresses are user_data */
static uint32_t things_count;
static int waits; /* the form: it sleeps in crpc_wait */

json_t *status_value(int32_t status)
{
    return status > 0 ? json_integer(status) : json_string(crpc_status_name(status));
}

void put_status(json_t *to, int32_t status)
{
    json_object_set_new(to, "status", status_value(status));
}

struct thing *thing_add(const char *name, uint64_t bits)
{
    struct thing *thing = &things[things_count++];
    if (things_count == THINGS_MAX) {
        abort(); /* run.py tells of a runner that died */
    }
    *thing = (struct thing){.bits = bits};
    snprintf(thing->name, sizeof(thing->name), "%s", name);
    if (!*name) {
        snprintf(thing->name, sizeof(thing->name), "%u", things_count);
    }
    return thing;
}

struct thing *thing_named(const char *name)
{
    for (uint32_t i = things_count; i > 0; i--) {
        if (strcmp(things[i - 1].name, name) == 0) {
            return &things[i - 1];
        }
    }
    return NULL;
}

/* The latest thing of the name that the line has; NULL if it has none. */
static struct thing *thing_find(const char **unknown)
{
    static const char *const keys[] = {"endpoint", "channel", "queue",  "listener", "connection",
                                       "request",  "room",    "region", "grant",    "target"};
    const char *name = "";
    for (size_t i = 0; i < COUNT(keys) && !*name; i++) {
        name = text(keys[i]);
    }
    struct thing *found = thing_named(name);
    *unknown = *name && !found ? "UNKNOWN_NAME" : NULL;
    return found;
}

static void tell_connection(const char *kind, const struct thing *endpoint, int32_t status)
{
    json_t *event = event_new(kind);
    put_text(event, "endpoint", endpoint->name);
    put_status(event, status);
    event_tell(event);
}

int32_t tell_failure(const struct thing *connection, int32_t status)
{
    if (status < 0) {
        tell_connection("connected", connection, status);
    }
    return CRPC_OK;
}

/* ---- Contexts and connections ---- */

static int32_t tell_context(void)
{
    crpc_context_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_context_get_info(context, &info);
    put_text(answer(), "device", info.device);
    put_text(answer(), "driver_name", info.driver_name);
    put_number(answer(), "endpoints", info.endpoints);
    put_number(answer(), "traffic_class", info.traffic_class);
    put_number(answer(), "service_level", info.service_level);
    return status;
}

static int32_t do_open(void)
{
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .endpoints_max = number("endpoints_max"),
                                    .receive_depth = number("receive_depth")};
    options.flags =
        (number("rails") ? CRPC_CONTEXT_RAILS : 0) | (number("queues") ? CRPC_CONTEXT_QUEUES : 0);
    options.channels_max = number("channels_max");
    options.queues_max = number("queues_max");
    options.initiators = number("initiators");
    options.traffic_class = number("traffic_class");
    options.service_level = number("service_level");
    options.log_level = number("log") ? CRPC_LOG_INFO : CRPC_LOG_OFF;
    waits = strcmp(text("form"), "wait") == 0;
    queues_open();
    options.driver = *text("driver") == 'm' ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS;
    snprintf(options.device, sizeof(options.device), "%s", text("device"));
    int32_t status = crpc_context_open(&options, &context, NULL);
    return status == CRPC_OK ? tell_context() : status;
}

static int32_t do_reset(void)
{
    int32_t status = crpc_context_close(context);
    context = NULL;
    calls_reset();
    channels_reset();
    post_reset();
    lanes_reset();
    for (; things_count > 0; things_count--) {
        arenas_forget(&things[things_count - 1]);
    }
    return status;
}

static int32_t tell_listener(crpc_listener listener)
{
    crpc_listener_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_listener_get_info(context, listener, &info);
    put_text(answer(), "address", info.address);
    put_number(answer(), "requests", info.requests);
    put_number(answer(), "refused", info.refused);
    return status;
}

static int32_t do_listen(struct thing *made)
{
    crpc_listener_options options = {.struct_size = sizeof(options),
                                     .backlog = number("backlog"),
                                     .user_data = (uintptr_t)made,
                                     .flags = number("channels") ? CRPC_LISTENER_CHANNELS
                                              : number("queues") ? CRPC_LISTENER_QUEUES
                                                                 : 0};
    crpc_listener handle = {0};
    int32_t status = crpc_listener_open(context, text("address"), &options, &handle, NULL);
    made->bits = handle.bits;
    made->service = number("service") ? made : NULL;
    return status == CRPC_OK ? tell_listener(handle) : status;
}

/* connect, accept, blob: what makes an endpoint. */
static int32_t make_endpoint(const char *verb, struct thing *made)
{
    const char *token = text("token");
    const char *key = text("key");
    crpc_endpoint_options options = {
        .struct_size = sizeof(options),
        .user_data = (uintptr_t)made,
        .flags = (number("call_only") ? CRPC_ENDPOINT_CALL_ONLY : 0) |
                 (number("serve_only") ? CRPC_ENDPOINT_SERVE_ONLY : 0) |
                 (number("lane") ? CRPC_ENDPOINT_LANE : 0) |
                 (number("reconnect") ? CRPC_ENDPOINT_RECONNECT : 0),
        .ring_bytes = number("ring_bytes"),
        .peer_ring_bytes_max = number("peer_ring_bytes_max"),
        .request_bytes = number("request_bytes"),
        .calls_max = number("calls_max"),
        .batch_window = number("batch_window"),
        .connect_timeout_ns = nanoseconds("connect_timeout_ms"),
        .keepalive_ns = nanoseconds("keepalive_ms"),
        .retry_count = number("retry_count"),
        .token_bytes = (uint32_t)strlen(token),
        .key_bytes = (uint32_t)strlen(key),
        .reconnect_pause_ns = nanoseconds("reconnect_pause_ms"),
        .reconnect_pause_max_ns = nanoseconds("reconnect_pause_max_ms")};
    memcpy(options.token, token, strnlen(token, sizeof(options.token)));
    memcpy(options.key, key, strnlen(key, sizeof(options.key)));
    crpc_endpoint handle = {made->bits};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes = sizeof(blob);
    int32_t status;
    if (strcmp(verb, "blob") == 0) {
        status = crpc_endpoint_blob(context, &options, &handle, blob, &blob_bytes, NULL);
        put_bytes(answer(), "blob", blob, status == CRPC_OK ? blob_bytes : 0);
    } else {
        status = strcmp(verb, "accept") == 0
                     ? crpc_endpoint_accept(context, handle, &options, NULL)
                     : crpc_endpoint_connect(context, text("address"), &options, &handle, NULL);
        status = tell_failure(made, status);
    }
    made->bits = handle.bits;
    return status;
}

static int32_t do_join(const struct thing *endpoint)
{
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = bytes_of("blob", blob, sizeof(blob));
    int32_t status =
        crpc_endpoint_join(context, (crpc_endpoint){endpoint->bits}, blob, bytes, NULL);
    return tell_failure(endpoint, status);
}

/* ---- Regions, and what there is to see ---- */

static int32_t do_register(struct thing *made)
{
    uint32_t length = number("length");
    crpc_region handle = {0};
    made->memory = malloc(length + 1);
    made->bytes = length;
    int32_t status =
        crpc_region_register(context, made->memory, length, number("access"), &handle, NULL);
    made->bits = handle.bits;
    return status;
}

static int32_t tell_region(crpc_region region)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_region_get_info(context, region, &info);
    put_number(answer(), "bytes", info.bytes);
    put_number(answer(), "access", info.access);
    put_big(answer(), "address", info.address);
    put_number(answer(), "remote_key", info.remote_key);
    return status;
}

static int32_t tell_info(crpc_endpoint endpoint)
{
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_endpoint_get_info(context, endpoint, &info);
    static const char *const states[] = {"none",      "new",     "requested",   "connecting",
                                         "connected", "closing", "disconnected"};
    put_text(answer(), "state", states[info.state % COUNT(states)]);
    put_number(answer(), "request_bytes_max", info.request_bytes_max);
    put_number(answer(), "reply_bytes_max", info.reply_bytes_max);
    put_number(answer(), "calls_max", info.calls_max);
    put_number(answer(), "calls_open", info.calls_open);
    put_number(answer(), "requests_open", info.requests_open);
    put_number(answer(), "calls_waiting", info.calls_waiting);
    put_number(answer(), "address_index", info.address_index);
    put_number(answer(), "connections", info.connections);
    return status;
}

static int32_t tell_stats(const struct thing *it)
{
    crpc_stats s = {.struct_size = sizeof(s)};
    int32_t status = it ? crpc_endpoint_get_stats(context, (crpc_endpoint){it->bits}, &s)
                        : crpc_context_get_stats(context, &s);
    const char *const names[] = {"calls",      "responses",      "calls_failed", "requests",
                                 "replies",    "late_responses", "batches_sent", "batches_received",
                                 "bytes_sent", "bytes_received"}; /* in their order */
    for (size_t i = 0; i < COUNT(names); i++) {
        put_number(answer(), names[i], (&s.calls)[i]);
    }
    put_number(answer(), "protocol_errors", s.protocol_errors);
    return status;
}

/* ---- Lines and events ---- */

static int32_t run(const char *verb, const char **unknown)
{
#define IS(name) (strcmp(verb, name) == 0)
    struct thing *it = thing_find(unknown);
    crpc_endpoint endpoint = {it ? it->bits : 0};
    crpc_listener listener = {endpoint.bits};
    crpc_region region = {endpoint.bits};
    uint64_t limit = nanoseconds("timeout_ms");
    struct thing *made = *text("name") ? thing_add(text("name"), endpoint.bits) : NULL;
    if (*unknown) {
        return CRPC_OK;
    } else if (IS("hello")) {
        line_hello();
        return CRPC_OK;
    } else if (IS("open")) {
        return do_open();
    } else if (IS("reset")) {
        return do_reset();
    } else if (IS("context")) {
        return tell_context();
    } else if (IS("stats")) {
        return tell_stats(it);
    } else if (made && IS("listen")) {
        return do_listen(made);
    } else if (made && IS("register")) {
        return do_register(made);
    } else if (made && (IS("connect") || IS("accept") || IS("blob"))) {
        return make_endpoint(verb, made);
    } else if (it && IS("join")) {
        return do_join(it);
    } else if (IS("reject")) {
        return crpc_endpoint_reject(context, endpoint, number("reason"));
    } else if (IS("disconnect")) {
        return crpc_endpoint_disconnect(context, endpoint, limit ? limit : CRPC_FOREVER);
    } else if (IS("close")) {
        return crpc_endpoint_close(context, endpoint);
    } else if (IS("listener")) {
        return tell_listener(listener);
    } else if (it && IS("stop")) {
        return service_stop(it);
    } else if (IS("close_listener")) {
        return crpc_listener_close(context, listener);
    } else if (it && IS("serve")) {
        snprintf(it->mode, sizeof(it->mode), "%s", text("mode"));
        return CRPC_OK;
    } else if (IS("region")) {
        return tell_region(region);
    } else if (IS("deregister")) {
        return crpc_region_deregister(context, region);
    } else if (IS("info")) {
        return tell_info(endpoint);
    }
    int32_t status = calls_run(verb, it, made);
    if (status == VERB_UNKNOWN) {
        status = looks_run(verb, it, made);
    }
    if (status == VERB_UNKNOWN) {
        status = channels_run(verb, it, made);
    }
    if (status == VERB_UNKNOWN) {
        status = queues_run(verb, it, made);
    }
    if (status == VERB_UNKNOWN) {
        status = dynamic_run(verb, it, made);
    }
    if (status == VERB_UNKNOWN) {
        status = lanes_run(verb, it, made);
    }
    if (status == VERB_UNKNOWN) {
        status = arenas_run(verb, it);
    }
    if (status != VERB_UNKNOWN) {
        return status;
    }
    *unknown = "UNKNOWN_VERB";
    return CRPC_OK;
}

static void obey(const char *line)
{
    const char *refused = line_take(line);
    int32_t status = refused ? CRPC_OK : run(line_verb(), &refused);
    tell_end(refused ? json_string(refused) : status_value(status));
}

static void take_request(const struct thing *endpoint, const crpc_completion *done)
{
    struct thing *request = thing_add("", done->endpoint.bits);
    request->token = done->token;
    request->waits_ns = done->user_data;
    if (endpoint->service && endpoint->service->stops) {
        const crpc_op op = answer_op(request, CRPC_OP_DROP, CRPC_E_NOT_STARTED, 0);
        submit_op(&op, NULL);
        things_count--;
        return;
    }
    if (*endpoint->mode) {
        crpc_op op = answer_op(request, *endpoint->mode == 'd' ? CRPC_OP_DROP : CRPC_OP_REPLY,
                               *endpoint->mode == 'f' ? CRPC_STATUS_UNKNOWN
                                                      : CRPC_STATUS_OK, /* as bindings do */
                               *endpoint->mode == 'e' ? done->payload_bytes : 0);
        submit_op(&op, (const void *)(uintptr_t)done->payload);
        arenas_return(done);
        things_count--;
        return;
    }
    int32_t placed = arenas_keep(endpoint, done, request);
    json_t *event = event_new("request");
    put_text(event, "endpoint", (endpoint->service ? endpoint->service : endpoint)->name);
    put_text(event, "request", request->name);
    put_number(event, "method", done->method);
    put_number(event, "length", request->bytes);
    put_number(event, "checksum", checksum(request->memory, request->bytes));
    put_number(event, "reply_max", done->reply_bytes_max);
    json_object_set_new(event, "placed", json_integer(placed));
    event_tell(event);
}

static void take_abandoned(const crpc_completion *done)
{
    for (uint32_t i = 0; i < things_count; i++) {
        if (things[i].bits == done->endpoint.bits && things[i].token == done->token) {
            things[i].abandoned = 1;
        }
    }
}

static void take_connect_request(struct thing *listener, const crpc_completion *done)
{
    if (listener->service) {
        service_accept(listener, done->endpoint);
        return;
    }
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    char private[CRPC_QUEUE_PRIVATE_BYTES_MAX + 1] = "";
    struct thing *connection = thing_add("", done->endpoint.bits);
    if (done->flags & CRPC_COMPLETION_OF_QUEUE) {
        queue_private(connection, private);
    } else if (done->flags & CRPC_COMPLETION_OF_CHANNEL) {
        info.token_bytes = channel_token(connection, info.token);
    } else {
        crpc_endpoint_get_info(context, done->endpoint, &info);
    }
    json_t *event = event_new("connect_request");
    put_text(event, "listener", listener->name);
    put_text(event, "connection", connection->name);
    json_object_set_new(event, "token", json_stringn((char *)info.token, info.token_bytes));
    put_text(event, "private", private);
    event_tell(event);
}

static void take(const crpc_completion *done)
{
    struct thing *thing = (struct thing *)(uintptr_t)done->endpoint_user_data;
    if (done->flags & CRPC_COMPLETION_OF_QUEUE) {
        queues_take(done, thing);
    } else if (!(done->flags & CRPC_COMPLETION_OF_CHANNEL) &&
               (done->kind == CRPC_COMPLETION_WORK || done->kind == CRPC_COMPLETION_ROOM ||
                done->kind == CRPC_COMPLETION_DISCONNECTED)) {
        lanes_take(done, thing);
    }
    if (done->kind == CRPC_COMPLETION_RESPONSE) {
        tell_response(done->user_data, done->status, done->payload, done->payload_bytes);
        arenas_return(done);
    } else if (done->kind == CRPC_COMPLETION_REQUEST) {
        take_request(thing, done);
    } else if (done->kind == CRPC_COMPLETION_ABANDONED) {
        take_abandoned(done);
    } else if (done->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        take_connect_request((struct thing *)(uintptr_t)done->user_data, done);
    } else if ((done->kind == CRPC_COMPLETION_CONNECTED ||
                done->kind == CRPC_COMPLETION_DISCONNECTED) &&
               thing->service) {
        service_take(thing, done);
    } else if (done->kind == CRPC_COMPLETION_CONNECTED) {
        thing->connected = done->status == CRPC_OK;
        tell_connection("connected", thing, done->status);
    } else if (done->kind == CRPC_COMPLETION_RECONNECTING) {
        if (thing->connected) { /* how many attempts fail is a matter of time */
            tell_connection("reconnecting", thing, done->status);
        }
        thing->connected = 0;
    } else if (done->kind == CRPC_COMPLETION_DISCONNECTED) {
        tell_connection("disconnected", thing, done->status);
    } else {
        channels_take(done, thing);
    } /* ROOM: what waits is tried anyway */
}

void turn(void)
{
    crpc_completion done[COMPLETIONS];
    int32_t count;
    do {
        count = context ? crpc_poll(context, done, COMPLETIONS) : 0;
        for (int32_t i = 0; i < count; i++) {
            take(&done[i]);
        }
        lanes_submit(); /* before calls that are to follow them */
        calls_submit();
        channels_submit();
        queues_submit();
    } while (count > 0);
    fflush(stdout);
}

/* Sleeps until run.py or the library has something; false when run.py has gone. */
static int sleep_and_obey(void)
{
    struct pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = context ? crpc_context_fd(context) : -1, .events = POLLIN}};
    if (context && waits) {
        poll(sources, 1, 0);
        if (!sources[0].revents) {
            return crpc_wait(context, 1000000) != CRPC_E_SYSTEM; /* for so long run.py waits */
        }
    } else if (context && crpc_context_arm(context) == CRPC_E_AGAIN) {
        return 1;
    } else {
        poll(sources, 2,
             calls_waiting() || channels_waiting() ? 10 : -1); /* what waits has deadlines */
    }
    if (!sources[0].revents) {
        return 1;
    }
    /* run.py waits for the answer to a line before it says the next. */
    const char *line = line_read();
    if (line) {
        obey(line);
    }
    return line != NULL;
}

int main(int count, char **arguments)
{
    static const char *const lacks[] = {"window", NULL};
    static const char *const capabilities[] = {
        "handles",      "strict_regions", "room_events", "early_calls",
        "early_cancel", "busy_rooms",     "any_place",   NULL};
    static const char *const forms[] = {"wait", NULL};
    static const struct line_program program = {
        .name = "c", .lacks = lacks, .capabilities = capabilities, .forms = forms};
    line_begin(&program, count, arguments);
    do {
        turn();
    } while (sleep_and_obey());
    return crpc_context_close(context);
}
