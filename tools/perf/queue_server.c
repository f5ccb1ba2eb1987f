/* queue_server.c: copyrpc-perf server --queues: lends its memory to each client, takes its messages, and
 * does the same to it if asked to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/text.h"
#include "traffic.h"

#define COMPLETIONS 256
/* A signal that comes just before the wait does not end it. */
#define LOOK_NS 200000000u
#define CLIENTS_MAX 256

struct server {
    const struct perf_options *options;
    crpc_context *context;
    struct traffic *clients[CLIENTS_MAX];
    uint32_t places;   /* up to the last that was ever used */
    uint64_t count;    /* of clients that have gone */
    uint32_t watching; /* clients whose messages this side must look for, or to which it sends */
};

/* ---- Clients that come and go ---------------------------------------------------------------- */

static struct traffic **free_place(struct server *server)
{
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (!server->clients[i]) {
            return &server->clients[i];
        }
    }
    return NULL;
}

/* Whether its messages are found in memory, or it is sent to without being asked each time, or wants to know that
 * nothing more has come. */
static bool is_watched(const struct traffic *client)
{
    return client->sends || client->plan.flags & TRAFFIC_DATAGRAMS;
}

static void drop(struct server *server, struct traffic **place)
{
    server->watching -= (*place)->connected && is_watched(*place);
    traffic_close(*place);
    free(*place);
    *place = NULL;
}

static const char *read_plan(struct server *server, crpc_queue queue, struct traffic_plan *plan)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    if (crpc_queue_get_info(server->context, queue, &info) < 0 ||
        info.private_bytes < sizeof(*plan)) {
        return "it is no copyrpc-perf of this version";
    }
    memcpy(plan, info.private_data, sizeof(*plan));
    return traffic_check(plan);
}

static bool open_client(struct server *server, crpc_queue queue, struct traffic **place,
                        const char **why)
{
    struct traffic_plan plan;
    *why = place ? read_plan(server, queue, &plan) : "there are too many clients";
    if (*why) {
        return false;
    }
    *place = calloc(1, sizeof(**place));
    if (!*place) {
        *why = "no memory";
        return false;
    }
    if (!traffic_open(*place, server->context, &plan, true, (uint64_t)(uintptr_t)place)) {
        free(*place);
        *place = NULL;
        *why = traffic_why();
        return false;
    }
    uint32_t index = (uint32_t)(place - server->clients);
    server->places = index < server->places ? server->places : index + 1;
    /* Where the client's memory is, until it has connected. */
    (*place)->peer_address = plan.address;
    (*place)->peer_key = plan.key;
    (*place)->peer_datagrams = plan.datagrams;
    return true;
}

static void accept_client(struct server *server, crpc_queue queue)
{
    crpc_error error = {.struct_size = sizeof(error)};
    struct traffic **place = free_place(server);
    const char *why;
    if (!open_client(server, queue, place, &why)) {
        perf_failed("client refused", why);
        crpc_queue_reject(server->context, queue, why, (uint32_t)strnlen(why, TRAFFIC_WHY_BYTES));
        return;
    }
    struct traffic *client = *place;
    crpc_queue_options options = traffic_options(client);
    const struct traffic_hello hello = {.magic = TRAFFIC_MAGIC,
                                        .key = client->place.remote_key,
                                        .address = client->place.address,
                                        .datagrams = client->plan.datagrams};
    options.user_data = (uint64_t)(uintptr_t)place;
    options.connect_timeout_ns = server->options->timeout_ns;
    options.private_bytes = sizeof(hello);
    memcpy(options.private_data, &hello, sizeof(hello));
    client->queue = queue;
    if (crpc_queue_accept(server->context, queue, &options, &error) < 0) {
        perf_failed("accept", error.message);
        drop(server, place);
        return;
    }
    traffic_receive(client); /* a client may send as soon as it has heard */
}

static void tell_failure(const struct server *server, const struct traffic *client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue_get_error(server->context, client->queue, &error);
    perf_failed("a client did not connect", error.message);
}

static void say_goodbye(struct server *server, const struct traffic *client)
{
    char text[32];
    uint64_t messages = client->received ? client->received : client->arrived;
    printf("client %llu: %s of %s, ", (unsigned long long)++server->count,
           traffic_name(client->plan.opcode),
           text_of_bytes(client->plan.bytes, text, sizeof(text)));
    printf("%llu messages received, %llu sent, %llu wrong\n", (unsigned long long)messages,
           (unsigned long long)client->done, (unsigned long long)client->wrong);
    fflush(stdout);
}

/* ---- Running --------------------------------------------------------------------------------- */

static void take(struct server *server, const crpc_completion *completion, uint64_t now_ns)
{
    struct traffic **place = (struct traffic **)(uintptr_t)completion->endpoint_user_data;
    if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        accept_client(server, (crpc_queue){completion->endpoint.bits});
        return;
    }
    if (!(completion->flags & CRPC_COMPLETION_OF_QUEUE) || !place || !*place ||
        !traffic_owns(*place, completion->endpoint.bits)) {
        return; /* of a client that has gone */
    }
    struct traffic *client = *place;
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECTED:
        if (completion->status < 0) {
            tell_failure(server, client);
            drop(server, place);
        } else {
            traffic_begin(client, client->peer_address, client->peer_key);
            server->watching += is_watched(client);
        }
        break;
    case CRPC_COMPLETION_WORK:
        traffic_take(client, completion, now_ns);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        say_goodbye(server, client);
        drop(server, place);
        break;
    }
}

/* What is due for a client. Returns true if there was anything. */
static bool go_on(struct traffic *client, uint64_t now_ns)
{
    bool arrived = false;
    if (!client->begun || client->lost) {
        return false;
    }
    if (client->plan.flags & TRAFFIC_PING_PONG) {
        arrived = traffic_look(client, now_ns);
    } else if (client->sends) {
        traffic_post(client, UINT64_MAX, now_ns);
    }
    traffic_receive(client);
    traffic_tell(client);
    return arrived;
}

static void serve(struct server *server)
{
    static crpc_completion completions[COMPLETIONS];
    uint32_t idle = 0;
    while (!perf_stop) {
        int32_t count = crpc_poll(server->context, completions, COMPLETIONS);
        uint64_t now_ns = count > 0 ? perf_now_ns() : 0;
        bool busy = count > 0;
        for (int32_t i = 0; i < count; i++) {
            take(server, &completions[i], now_ns);
        }
        /* A WRITE of ping-pong is seen in memory only. */
        for (uint32_t i = 0; (count > 0 || server->watching > 0) && i < server->places; i++) {
            busy |= server->clients[i] && go_on(server->clients[i], now_ns);
        }
        idle = busy ? 0 : idle + 1;
        /* Without anybody who sends there is nothing to miss. */
        if (idle > (server->options->wait ? 0u : 100000u)) {
            crpc_wait(server->context, server->watching ? 1000000 : LOOK_NS);
        }
    }
}

int queue_serve(const struct perf_options *options)
{
    static struct server server;
    server.options = options;
    server.context = perf_listen(options);
    if (!server.context) {
        return EXIT_FAILURE;
    }
    serve(&server);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (server.clients[i]) {
            drop(&server, &server.clients[i]);
        }
    }
    crpc_context_close(server.context);
    return EXIT_SUCCESS;
}
