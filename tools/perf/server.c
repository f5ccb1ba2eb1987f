/* server.c: answers every request, all of a poll's with one submit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arenas.h"
#include "perf.h"

#define COMPLETIONS 1024
/* A signal that comes just before the wait does not end it. */
#define LOOK_NS 200000000u
#define WAIT_NS 100000u
#define GATHER_BYTES (4u << 20)

struct server {
    struct server
        *team;     /* the first of all: it listens, and gives each client to the next of them */
    uint32_t turn; /* of the first: whose the next client is */
    crpc_context *context;
    crpc_completion completions[COMPLETIONS];
    const struct perf_options *options;
    crpc_op replies[COMPLETIONS];
    uint32_t reply_count;
    uint8_t *gathered; /* payloads of `replies`, one after the other */
    uint64_t gathered_bytes;
    uint8_t *filler;    /* for replies of a size of their own */
    crpc_region region; /* of the filler, if the options say so */
    struct arenas arenas;
};

/* A reply is never refused for want of ring space; the table of replies to report is not used here. But one from a region may
 * have to wait until the one before it has left. Returns false if some are left. */
static bool send_replies(struct server *server)
{
    uint32_t sent = 0;
    while (sent < server->reply_count) {
        int32_t reason;
        int32_t taken =
            crpc_submit(server->context, server->replies + sent, server->reply_count - sent,
                        server->gathered, server->gathered_bytes, &reason);
        sent += taken > 0 ? (uint32_t)taken : 0;
        if (reason == CRPC_E_AGAIN) {
            server->reply_count -= sent;
            memmove(server->replies, server->replies + sent,
                    server->reply_count * sizeof(server->replies[0]));
            return false;
        }
        if (reason != CRPC_OK) {
            sent++; /* its client has gone, or took too small a reply; it will hear of that */
        }
    }
    server->reply_count = 0;
    server->gathered_bytes = 0;
    return true;
}

/* A reply of the filler, uncopied. Nothing is written there, so nobody waits for its completion. */
static void send_from_region(struct server *server, crpc_op *reply)
{
    reply->payload_offset = 0;
    reply->flags = CRPC_OP_REGION;
    reply->region = server->region;
    server->replies[server->reply_count++] = *reply;
}

static void send_alone(struct server *server, crpc_op *reply, const void *payload)
{
    reply->payload_offset = 0;
    crpc_submit(server->context, reply, 1, payload, reply->payload_bytes, NULL);
}

static void answer(struct server *server, const crpc_completion *request)
{
    const void *payload = (const void *)(uintptr_t)request->payload;
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .flags = CRPC_OP_QUIET,
                     .endpoint = request->endpoint,
                     .token = request->token,
                     .payload_offset = server->gathered_bytes,
                     .payload_bytes = request->payload_bytes};
    if (request->method == PERF_METHOD_SIZED && request->payload_bytes >= 4) {
        memcpy(&reply.payload_bytes, payload, sizeof(reply.payload_bytes));
        payload = server->filler;
    }
    if (reply.payload_bytes > request->reply_bytes_max) {
        reply.payload_bytes = 0;
        reply.status = CRPC_STATUS_OUT_OF_RANGE;
    }
    if (payload == server->filler && server->region.bits && reply.payload_bytes > 0) {
        send_from_region(server, &reply);
        return;
    }
    if (reply.payload_bytes > GATHER_BYTES - server->gathered_bytes) {
        send_alone(server, &reply, payload);
        return;
    }
    memcpy(server->gathered + server->gathered_bytes, payload, reply.payload_bytes);
    server->gathered_bytes += reply.payload_bytes;
    server->replies[server->reply_count++] = reply;
}

static void accept_client(struct server *server, crpc_endpoint client)
{
    const struct perf_options *options = server->options;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_options wanted = {.struct_size = sizeof(wanted),
                                    .connect_timeout_ns = options->timeout_ns,
                                    .ring_bytes =
                                        options->ring_bytes ? options->ring_bytes : 4u << 20,
                                    .peer_ring_bytes_max = PERF_PEER_RING_BYTES_MAX,
                                    .key_bytes = options->key_bytes};
    memcpy(wanted.key, options->key, sizeof(wanted.key));
    if (crpc_endpoint_accept(server->context, client, &wanted, &error) < 0) {
        perf_failed("accept", error.message);
        crpc_endpoint_close(server->context, client);
    }
}

static void place_client(struct server *server, crpc_endpoint client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    struct server *next = server;
    if (server == server->team) {
        next = server->team + server->turn++ % server->options->threads;
    }
    if (next == server) {
        accept_client(server, client);
    } else if (crpc_endpoint_hand_over(server->context, client, next->context, 0, &error) < 0) {
        perf_failed("hand over", error.message);
        crpc_endpoint_close(server->context, client);
    }
}

static void tell_failure(const struct server *server, crpc_endpoint client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_get_error(server->context, client, &error);
    perf_failed("a client did not connect", error.message);
}

static void take(struct server *server, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_REQUEST:
        answer(server, completion);
        if (completion->flags & CRPC_COMPLETION_PLACED) {
            crpc_arena_give_back(server->context, completion->endpoint, completion->payload);
        }
        break;
    case CRPC_COMPLETION_CONNECT_REQUEST:
        place_client(server, completion->endpoint);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (completion->status < 0) {
            tell_failure(server, completion->endpoint);
            crpc_endpoint_close(server->context, completion->endpoint);
        } else {
            arenas_lend(&server->arenas, completion->endpoint);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        arenas_end(&server->arenas, completion->endpoint);
        crpc_endpoint_close(server->context, completion->endpoint);
        break;
    }
}

static void serve(void *member)
{
    struct server *server = member;
    crpc_completion *completions = server->completions;
    uint32_t idle = 0;
    while (!perf_stop) {
        int32_t count = 0;
        if (server->reply_count < COMPLETIONS) {
            count = crpc_poll(server->context, completions, COMPLETIONS - server->reply_count);
        } else { /* no room for the replies of more requests */
            crpc_wait(server->context, WAIT_NS);
        }
        for (int32_t i = 0; i < count; i++) {
            take(server, &completions[i]);
        }
        bool all_sent = send_replies(server);
        idle = count || !all_sent ? 0 : idle + 1;
        /* Without anybody to answer there is no latency to spoil. */
        if (idle > (server->options->wait ? 0u : 100000u)) {
            crpc_wait(server->context, LOOK_NS);
        }
    }
}

/* Returns EXIT_SUCCESS, or has printed why not. What it has made by then is for close_server. */
static int open_server(struct server *server, const struct perf_options *options,
                       struct server *team)
{
    crpc_error error = {.struct_size = sizeof(error)};
    server->team = team;
    server->options = options;
    server->gathered = malloc(GATHER_BYTES);
    server->filler = calloc(1, PERF_BYTES_MAX);
    if (!server->gathered || !server->filler) {
        return perf_failed("no memory", "for replies");
    }
    /* The first is opened last: until then nobody can connect. */
    server->context = server == team ? perf_listen(options) : perf_open(options);
    if (!server->context) {
        return EXIT_FAILURE;
    }
    server->arenas = (struct arenas){server->context, options->arena_bytes, NULL};
    if (options->region && crpc_region_register(server->context, server->filler, PERF_BYTES_MAX, 0,
                                                &server->region, &error) != CRPC_OK) {
        return perf_failed("--region", error.message);
    }
    return EXIT_SUCCESS;
}

static void close_server(struct server *server)
{
    crpc_context_close(server->context);
    arenas_free(&server->arenas);
    free(server->gathered);
    free(server->filler);
}

int perf_serve(const struct perf_options *options)
{
    const uint32_t count = options->threads;
    struct server *team = calloc(count, sizeof(*team));
    int status = EXIT_SUCCESS;
    if (!team) {
        return perf_failed("no memory", "for the server");
    }
    for (uint32_t i = count; status == EXIT_SUCCESS && i-- > 0;) {
        status = open_server(&team[i], options, team);
    }
    if (status == EXIT_SUCCESS && !team_run(team, sizeof(*team), count, serve, &options->cpus)) {
        status = EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < count; i++) {
        close_server(&team[i]);
    }
    free(team);
    return status;
}
