/* runner.c: does in C what run.py says on stdin, one line a step, and tells on stdout what comes of it.
 * docs/conformance.md has the words. It decides nothing: what is right, only run.py knows. */
#include "calls.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <copyrpc.h>

#define COMPLETIONS 64

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
    forget_all();
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
    poll(sources, 2, calls_wait() ? 10 : -1); /* calls that wait for room have deadlines */
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
