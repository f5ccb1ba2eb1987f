/* channel_server.c: copyrpc-perf server --channels: receives what each client has planned, looks at it,
 * and sends as much if asked to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/text.h"
#include "flow.h"

#define COMPLETIONS 256
/* A signal that comes just before the wait does not end it. */
#define LOOK_NS 200000000u
#define FLOWS_MAX 64

struct server {
    const struct perf_options *options;
    crpc_context *context;
    struct flow *flows[FLOWS_MAX];
    uint64_t clients;
};

/* ---- Clients that come and go ---------------------------------------------------------------- */

static struct flow **free_place(struct server *server)
{
    for (uint32_t i = 0; i < FLOWS_MAX; i++) {
        if (!server->flows[i]) {
            return &server->flows[i];
        }
    }
    return NULL;
}

static const char *read_plan(struct server *server, crpc_channel channel, struct flow_plan *plan)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    if (crpc_channel_get_info(server->context, channel, &info) < 0 ||
        info.token_bytes != sizeof(*plan)) {
        return "it is not copyrpc-perf";
    }
    memcpy(plan, info.token, sizeof(*plan));
    return flow_check(plan);
}

static void drop(struct server *server, struct flow **place)
{
    crpc_channel_close(server->context, (*place)->channel);
    flow_close(*place);
    free(*place);
    *place = NULL;
}

static void accept_client(struct server *server, crpc_channel channel)
{
    struct flow_plan plan;
    crpc_error error = {.struct_size = sizeof(error)};
    struct flow **place = free_place(server);
    const char *why = place ? read_plan(server, channel, &plan) : "there are too many clients";
    if (!why) {
        *place = calloc(1, sizeof(**place));
        why = *place ? NULL : "no memory";
    }
    if (why || !flow_open(*place, server->context, &plan, true)) {
        perf_failed("client refused", why ? why : "no memory for its messages");
        crpc_channel_reject(server->context, channel, 0);
        if (place) {
            free(*place);
            *place = NULL;
        }
        return;
    }
    (*place)->channel = channel;
    crpc_channel_options options = flow_channel_options(server->options, &plan);
    options.user_data = (uint64_t)(uintptr_t)place;
    if (!server->options->queue_pairs) {
        options.queue_pairs = CRPC_CHANNEL_QUEUE_PAIRS_MAX; /* as many as the client wants */
    }
    options.token_bytes = 0;
    if (crpc_channel_accept(server->context, channel, &options, &error) < 0) {
        perf_failed("accept", error.message);
        drop(server, place);
    }
}

static void tell_failure(const struct server *server, const struct flow *flow)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_channel_get_error(server->context, flow->channel, &error);
    perf_failed("a client did not connect", error.message);
}

static void say_goodbye(struct server *server, const struct flow *flow)
{
    char text[32];
    printf("client %llu: %llu messages, %s received, %llu wrong\n",
           (unsigned long long)++server->clients, (unsigned long long)flow->messages_received,
           text_of_bytes((double)flow->bytes_received, text, sizeof(text)),
           (unsigned long long)flow->wrong);
    fflush(stdout);
}

/* ---- Running --------------------------------------------------------------------------------- */

static void take(struct server *server, const crpc_completion *completion, uint64_t now_ns)
{
    struct flow **place = (struct flow **)(uintptr_t)completion->endpoint_user_data;
    if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        accept_client(server, (crpc_channel){completion->endpoint.bits});
        return;
    }
    if (!(completion->flags & CRPC_COMPLETION_OF_CHANNEL) || !place || !*place ||
        (*place)->channel.bits != completion->endpoint.bits) {
        return; /* of a client that has gone */
    }
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECTED:
        if (completion->status < 0) {
            tell_failure(server, *place);
            drop(server, place);
        } else {
            flow_begin(*place, (*place)->channel);
        }
        break;
    case CRPC_COMPLETION_RAIL:
        flow_tell_rail(completion);
        break;
    case CRPC_COMPLETION_SENT:
    case CRPC_COMPLETION_RECEIVED:
        flow_take(*place, completion, now_ns);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        say_goodbye(server, *place);
        drop(server, place);
        break;
    }
}

static void serve(struct server *server)
{
    static crpc_completion completions[COMPLETIONS];
    uint32_t idle = 0;
    while (!perf_stop) {
        int32_t count = crpc_poll(server->context, completions, COMPLETIONS);
        uint64_t now_ns = count > 0 ? perf_now_ns() : 0;
        for (int32_t i = 0; i < count; i++) {
            take(server, &completions[i], now_ns);
        }
        for (uint32_t i = 0; count > 0 && i < FLOWS_MAX; i++) {
            struct flow *flow = server->flows[i];
            if (!flow || flow->channel.bits == 0) {
                continue;
            }
            while (flow->stage == FLOW_STREAM && flow->receiving.number > 0 &&
                   flow_send(flow, now_ns)) {
            }
            flow_submit(flow, now_ns);
        }
        idle = count ? 0 : idle + 1;
        /* Without anybody who sends there is nothing to miss. */
        if (idle > (server->options->wait ? 0u : 100000u)) {
            crpc_wait(server->context, LOOK_NS);
        }
    }
}

int channel_serve(const struct perf_options *options)
{
    static struct server server;
    server.options = options;
    server.context = perf_listen(options);
    if (!server.context) {
        return EXIT_FAILURE;
    }
    serve(&server);
    for (uint32_t i = 0; i < FLOWS_MAX; i++) {
        if (server.flows[i]) {
            drop(&server, &server.flows[i]);
        }
    }
    crpc_context_close(server.context);
    return EXIT_SUCCESS;
}
