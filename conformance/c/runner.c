/* runner.c: does in C what run.py says on stdin, one line a step, and tells on stdout what comes of it.
 * docs/conformance.md has the words. It decides nothing: what is right, only run.py knows. */
#include "line.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <copyrpc.h>

#define COMPLETIONS 64

/* What run.py has names for: endpoints, listeners, peers that want to connect, requests of peers. */
struct thing {
    char name[32], mode[8];
    crpc_endpoint endpoint; /* a listener's handle too, so that run.py can try the wrong kind */
    uint64_t token;         /* of a request, as all below */
    uint32_t bytes;
    uint8_t *payload;
};

/* A call on its way into the library, which may have no room for it. */
struct call {
    crpc_op op;
    uint8_t *payload;
    uint64_t due; /* ns, or 0 */
    int canceled;
    struct call *next;
};

static crpc_context *context;
static struct thing things[4096]; /* the first is none */
static uint32_t things_count;
static struct call *calls;
static const char *unknown; /* what of the line in hand is not known */

static uint32_t number(const struct line *line, const char *key)
{
    return (uint32_t)line_number(line, key, 0);
}

static const char *status_text(int32_t status)
{
    static char number[16];
    snprintf(number, sizeof(number), "%d", status);
    return status > 0 ? number : crpc_status_name(status);
}

static void tell_response(uint64_t id, int32_t status, const void *payload, uint32_t bytes)
{
    printf("event kind=response id=%" PRIu64 " status=%s length=%u checksum=%u\n", id,
           status_text(status), bytes, payload_checksum(payload, bytes));
}

static struct thing *thing_add(const char *name)
{
    if (++things_count == sizeof(things) / sizeof(things[0])) {
        abort(); /* run.py tells of a runner that died */
    }
    things[things_count] = (struct thing){.token = 0};
    snprintf(things[things_count].name, sizeof(things[0].name), "%s", name);
    return &things[things_count];
}

static struct thing *thing_add_numbered(crpc_endpoint endpoint)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", things_count + 1);
    struct thing *thing = thing_add(name);
    thing->endpoint = endpoint;
    return thing;
}

/* The latest of the name; that of none if there is none. */
static struct thing *thing_of(const struct line *line, const char *key)
{
    const char *name = line_text(line, key, "");
    for (uint32_t i = things_count; i > 0; i--) {
        if (strcmp(things[i].name, name) == 0) {
            return &things[i];
        }
    }
    unknown = "UNKNOWN_NAME";
    return &things[0];
}

static crpc_endpoint_options options_of(const struct line *line, const struct thing *endpoint)
{
    const char *token = line_text(line, "token", "");
    crpc_endpoint_options options = {
        .struct_size = sizeof(options),
        .user_data = (uint64_t)(endpoint - things),
        .flags = (line_number(line, "call_only", 0) ? CRPC_ENDPOINT_CALL_ONLY : 0) |
                 (line_number(line, "serve_only", 0) ? CRPC_ENDPOINT_SERVE_ONLY : 0),
        .ring_bytes = number(line, "ring_bytes"),
        .request_bytes = number(line, "request_bytes"),
        .calls_max = number(line, "calls_max"),
        .batch_window = number(line, "batch_window"),
        .connect_timeout_ns = line_number(line, "connect_timeout_ms", 0) * 1000000u,
        .keepalive_ns = line_number(line, "keepalive_ms", 0) * 1000000u,
        .token_bytes = (uint32_t)strlen(token)};
    memcpy(options.token, token, strnlen(token, sizeof(options.token)));
    return options;
}

/* ---- Calls ---- */

/* Submits what there is room for. A call behind one of the same endpoint that must wait, waits too. */
static void submit_calls(void)
{
    uint64_t full =
        0; /* the one endpoint known to have no room: enough to keep its calls in order */
    struct call **link = &calls, *call;
    while ((call = *link) != NULL) {
        uint64_t now = call->due ? now_ns() : 0;
        int32_t reason = CRPC_OK;
        call->op.timeout_ns = call->due - now;
        if (call->canceled || (call->due && call->due <= now)) {
            reason = call->canceled ? CRPC_E_CANCELED : CRPC_E_TIMEOUT;
        } else if (call->op.endpoint.bits == full) {
            reason = CRPC_E_AGAIN;
        } else {
            crpc_submit(context, &call->op, 1, call->payload, call->op.payload_bytes, &reason);
        }
        if (reason == CRPC_E_AGAIN) {
            full = call->op.endpoint.bits;
            link = &call->next;
            continue;
        }
        if (reason != CRPC_OK) {
            tell_response(call->op.user_data, reason, NULL, 0);
        }
        *link = call->next;
        free(call->payload);
        free(call);
    }
}

static int32_t do_call(crpc_endpoint endpoint, const struct line *line)
{
    uint64_t timeout_ns = line_number(line, "timeout_ms", 0) * 1000000u;
    uint64_t count = line_number(line, "count", 1);
    struct call **link = &calls;
    for (uint32_t i = 0; i < count; i++) {
        struct call *call = calloc(1, sizeof(*call));
        call->due = timeout_ns ? now_ns() + timeout_ns : 0;
        call->op = (crpc_op){.opcode = CRPC_OP_CALL,
                             .method = (uint16_t)line_number(line, "method", 0),
                             .endpoint = endpoint,
                             .user_data = line_number(line, "id", 0) + i,
                             .payload_bytes = number(line, "length"),
                             .reply_bytes_max = number(line, "reply_max")};
        call->payload = payload_new(call->op.payload_bytes, line_number(line, "seed", 0) + i);
        while (*link) {
            link = &(*link)->next;
        }
        *link = call; /* the turn's end submits it */
    }
    return CRPC_OK;
}

static int32_t do_cancel(crpc_endpoint endpoint, uint64_t id)
{
    crpc_op op = {.opcode = CRPC_OP_CANCEL, .endpoint = endpoint, .token = id};
    int32_t reason = CRPC_OK;
    for (struct call *call = calls; call; call = call->next) {
        call->canceled |= call->op.user_data == id;
    }
    crpc_submit(context, &op, 1, NULL, 0, &reason);
    return reason;
}

/* ---- Requests ---- */

static int32_t answer(const struct thing *request, uint8_t opcode, int32_t status,
                      const void *payload, uint32_t bytes)
{
    crpc_op op = {.opcode = opcode,
                  .flags = CRPC_OP_QUIET,
                  .status = status,
                  .endpoint = request->endpoint,
                  .token = request->token,
                  .payload_bytes = bytes};
    int32_t reason = CRPC_OK;
    crpc_submit(context, &op, 1, payload, bytes, &reason);
    return reason;
}

static int32_t do_reply(const struct thing *request, const struct line *line)
{
    uint32_t length = number(line, "length");
    if (line_number(line, "echo", 0)) {
        return answer(request, CRPC_OP_REPLY, 0, request->payload, request->bytes);
    }
    uint8_t *payload = payload_new(length, line_number(line, "seed", 0));
    int32_t status = (int32_t)line_number(line, "status", 0);
    int32_t result = answer(request, CRPC_OP_REPLY, status, payload, length);
    free(payload);
    return result;
}

static void take_request(const crpc_completion *done)
{
    const char *mode = things[done->user_data].mode;
    struct thing once = {.endpoint = done->endpoint, .token = done->token};
    const void *view = (const void *)(uintptr_t)done->payload;
    if (strcmp(mode, "echo") == 0) {
        answer(&once, CRPC_OP_REPLY, 0, view, done->payload_bytes);
    } else if (strcmp(mode, "fail") ==
               0) { /* the status that bindings send for a handler that failed */
        answer(&once, CRPC_OP_REPLY, 1, NULL, 0);
    } else if (strcmp(mode, "drop") == 0) {
        answer(&once, CRPC_OP_DROP, 0, NULL, 0);
    } else {
        struct thing *request = thing_add_numbered(done->endpoint);
        request->token = done->token;
        request->bytes = done->payload_bytes;
        request->payload = malloc(done->payload_bytes + 1);
        int32_t kept = crpc_retain(context, done, request->payload, done->payload_bytes);
        printf("event kind=request endpoint=%s request=%s method=%u length=%d checksum=%u "
               "reply_max=%u\n",
               things[done->user_data].name, request->name, done->method, kept,
               payload_checksum(request->payload, request->bytes), done->reply_bytes_max);
    }
}

/* ---- Connections ---- */

/* What fails at once is told as what fails later is: of connecting there is one end. */
static int32_t begun(const struct thing *endpoint, int32_t status)
{
    if (status < 0) {
        printf("event kind=connected endpoint=%s status=%s\n", endpoint->name, status_text(status));
    }
    return CRPC_OK;
}

static int32_t do_open(const struct line *line)
{
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .endpoints_max = number(line, "endpoints_max"),
                                    .receive_depth = number(line, "receive_depth")};
    crpc_context_info info = {.struct_size = sizeof(info)};
    options.driver = *line_text(line, "driver", "") == 'm' ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS;
    snprintf(options.device, sizeof(options.device), "%s", line_text(line, "device", ""));
    int32_t status = context ? CRPC_OK : crpc_context_open(&options, &context, NULL);
    if (status == CRPC_OK) {
        crpc_context_get_info(context, &info);
        reply_field("device=%s driver=%s endpoints=%u", info.device, info.driver_name,
                    info.endpoints);
    }
    return status;
}

static int32_t do_reset(void)
{
    int32_t status = crpc_context_close(context);
    context = NULL;
    for (; things_count > 0; things_count--) {
        free(things[things_count].payload);
    }
    for (struct call *call; (call = calls) != NULL; free(call)) {
        calls = call->next;
        free(call->payload);
    }
    return status;
}

static int32_t tell_listener(crpc_listener listener)
{
    crpc_listener_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_listener_get_info(context, listener, &info);
    reply_field("address=%s requests=%u refused=%u", info.address, (unsigned)info.requests,
                (unsigned)info.refused);
    return status;
}

static int32_t do_listen(const struct line *line)
{
    struct thing *listener = thing_add(line_text(line, "listener", ""));
    crpc_listener_options options = {.struct_size = sizeof(options),
                                     .backlog = number(line, "backlog"),
                                     .user_data = (uint64_t)(listener - things)};
    crpc_listener handle = {0};
    const char *address = line_text(line, "address", "");
    int32_t status = crpc_listener_open(context, address, &options, &handle, NULL);
    listener->endpoint.bits = handle.bits;
    return status == CRPC_OK ? tell_listener(handle) : status;
}

static int32_t tell_stats(const struct line *line)
{
    crpc_stats stats = {.struct_size = sizeof(stats)};
    int32_t status =
        line_text(line, "endpoint", NULL)
            ? crpc_endpoint_get_stats(context, thing_of(line, "endpoint")->endpoint, &stats)
            : crpc_context_get_stats(context, &stats);
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {{"calls", stats.calls},
                  {"responses", stats.responses},
                  {"calls_failed", stats.calls_failed},
                  {"requests", stats.requests},
                  {"replies", stats.replies},
                  {"late_responses", stats.late_responses},
                  {"batches_sent", stats.batches_sent},
                  {"batches_received", stats.batches_received},
                  {"bytes_sent", stats.bytes_sent},
                  {"bytes_received", stats.bytes_received},
                  {"protocol_errors", stats.protocol_errors}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        reply_field("%s=%" PRIu64, fields[i].name, fields[i].value);
    }
    return status;
}

static int32_t tell_info(crpc_endpoint endpoint)
{
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_endpoint_get_info(context, endpoint, &info);
    reply_field(
        "request_bytes_max=%u reply_bytes_max=%u calls_max=%u calls_open=%u requests_open=%u",
        info.request_bytes_max, info.reply_bytes_max, info.calls_max, info.calls_open,
        info.requests_open);
    return status;
}

/* ---- Lines and events ---- */

/* The verbs that are about a thing there is. */
static int32_t run_on(struct thing *thing, const char *verb, const struct line *line)
{
    crpc_endpoint endpoint = thing->endpoint;
    crpc_listener listener = {endpoint.bits};
    uint64_t timeout_ms = number(line, "timeout_ms");
    if (strcmp(verb, "call") == 0) {
        return do_call(endpoint, line);
    } else if (strcmp(verb, "cancel") == 0) {
        return do_cancel(endpoint, line_number(line, "id", 0));
    } else if (strcmp(verb, "serve") == 0) {
        snprintf(thing->mode, sizeof(thing->mode), "%s", line_text(line, "mode", ""));
        return CRPC_OK;
    } else if (strcmp(verb, "disconnect") == 0) {
        return crpc_endpoint_disconnect(context, endpoint,
                                        timeout_ms ? timeout_ms * 1000000u : CRPC_FOREVER);
    } else if (strcmp(verb, "close") == 0) {
        return crpc_endpoint_close(context, endpoint);
    } else if (strcmp(verb, "info") == 0) {
        return tell_info(endpoint);
    } else if (strcmp(verb, "listener") == 0) {
        return tell_listener(listener);
    } else if (strcmp(verb, "close_listener") == 0) {
        return crpc_listener_close(context, listener);
    } else if (strcmp(verb, "reply") == 0) {
        return do_reply(thing, line);
    } else if (strcmp(verb, "drop") == 0) {
        return answer(thing, CRPC_OP_DROP, 0, NULL, 0);
    } else if (strcmp(verb, "payload") == 0) {
        reply_payload(thing->payload, thing->bytes);
        return CRPC_OK;
    } else if (strcmp(verb, "reject") == 0) {
        return crpc_endpoint_reject(context, endpoint, number(line, "reason"));
    } else if (strcmp(verb, "accept") == 0) {
        struct thing *accepted = thing_add(line_text(line, "endpoint", ""));
        crpc_endpoint_options options = options_of(line, accepted);
        accepted->endpoint = endpoint;
        return begun(accepted, crpc_endpoint_accept(context, endpoint, &options, NULL));
    }
    unknown = "UNKNOWN_VERB";
    return CRPC_OK;
}

static int32_t run(const struct line *line)
{
    const char *verb = line->verb ? line->verb : "";
    if (strcmp(verb, "open") == 0 || strcmp(verb, "context") == 0) {
        return do_open(line);
    } else if (strcmp(verb, "reset") == 0) {
        return do_reset();
    } else if (strcmp(verb, "listen") == 0) {
        return do_listen(line);
    } else if (strcmp(verb, "stats") == 0) {
        return tell_stats(line);
    } else if (strcmp(verb, "connect") == 0) {
        struct thing *endpoint = thing_add(line_text(line, "endpoint", ""));
        crpc_endpoint_options options = options_of(line, endpoint);
        return begun(endpoint, crpc_endpoint_connect(context, line_text(line, "address", ""),
                                                     &options, &endpoint->endpoint, NULL));
    }
    /* accept names an endpoint too, the new one */
    static const char *const keys[] = {"request", "connection", "listener", "endpoint"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (line_text(line, keys[i], NULL)) {
            return run_on(thing_of(line, keys[i]), verb, line);
        }
    }
    unknown = "UNKNOWN_VERB";
    return CRPC_OK;
}

static void obey(char *text)
{
    struct line line;
    line_parse(&line, text);
    unknown = NULL;
    int32_t status = run(&line);
    reply_field("status=%s", unknown ? unknown : status_text(status));
    reply_end();
}

static void take_connect_request(const crpc_completion *done)
{
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    struct thing *connection = thing_add_numbered(done->endpoint);
    crpc_endpoint_get_info(context, done->endpoint, &info);
    printf("event kind=connect_request listener=%s connection=%s token=%.*s\n",
           things[done->user_data].name, connection->name, (int)info.token_bytes,
           (char *)info.token);
}

static void take(const crpc_completion *done)
{
    switch (done->kind) {
    case CRPC_COMPLETION_RESPONSE:
        tell_response(done->user_data, done->status, (const void *)(uintptr_t)done->payload,
                      done->payload_bytes);
        break;
    case CRPC_COMPLETION_REQUEST:
        take_request(done);
        break;
    case CRPC_COMPLETION_CONNECT_REQUEST:
        take_connect_request(done);
        break;
    case CRPC_COMPLETION_CONNECTED:
    case CRPC_COMPLETION_DISCONNECTED:
        printf("event kind=%s endpoint=%s status=%s\n",
               done->kind == CRPC_COMPLETION_CONNECTED ? "connected" : "disconnected",
               things[done->user_data].name, status_text(done->status));
        break;
    default: /* ROOM: submit_calls tries anyway */
        break;
    }
}

static void turn(void)
{
    crpc_completion done[COMPLETIONS];
    int32_t count;
    do {
        count = context ? crpc_poll(context, done, COMPLETIONS) : 0;
        for (int32_t i = 0; i < count; i++) {
            take(&done[i]);
        }
        submit_calls();
    } while (count > 0);
    fflush(stdout);
}

/* Sleeps until run.py or the library has something; false when run.py has gone. */
static int sleep_and_obey(void)
{
    static char text[65536];
    static size_t length;
    struct pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = context ? crpc_context_fd(context) : -1, .events = POLLIN}};
    if (context && crpc_context_arm(context) == CRPC_E_AGAIN) {
        return 1;
    }
    poll(sources, 2, calls ? 10 : -1); /* calls that wait for room have deadlines */
    if (!sources[0].revents) {
        return 1;
    }
    ssize_t got = read(STDIN_FILENO, text + length, sizeof(text) - length - 1);
    length += got > 0 ? (size_t)got : 0;
    text[length] = '\0';
    for (char *end; (end = strchr(text, '\n')) != NULL;) {
        *end = '\0';
        obey(text);
        length -= (size_t)(end + 1 - text);
        memmove(text, end + 1, length + 1);
    }
    return got > 0;
}

int main(void)
{
    do {
        turn();
    } while (sleep_and_obey());
    return crpc_context_close(context);
}
