/* rpc_rounds.c: a client and a server in one thread, over a device, by the public API: a given
 * number of rounds, for callgrind or the clock.
 *
 *   rpc_rounds DEVICE CALLS ROUNDS
 *
 * A round is CALLS calls of 32 bytes, all submitted at once, all answered at once. The functions
 * bench_* are what is counted (instructions.py asks for them with --toggle-collect); the device works
 * meanwhile in a thread of its own, and while it does nothing is counted. Prints JSON: what both
 * sides' counters say for each call. With $AFTERWARDS, runs that before it goes, while the device
 * still has its counters.
 *
 * If a round's requests or responses have not all landed when they are polled, they take more polls
 * and more batches. Then nothing can be said, and the status is 75: to be tried again with a greater
 * $LANDING_US.
 *
 * With $INITIATORS, the endpoints connect by DC. With $RECONNECT, the client's is one that comes back (CRPC_ENDPOINT_RECONNECT).
 *
 * With $COLD, a memory as large as the cache that callgrind simulates is walked before each, so that what they touch is
 * counted as it misses.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "give_up.h"
#include "not_inlined.h"
#include "pair.h"

#define CALLS_MAX 256
#define BYTES 32
#define LANDING_US 2000 /* for all of a round to land, if the environment does not say it */
#define TRY_AGAIN 75    /* EX_TEMPFAIL */

struct side {
    crpc_context *context;
    crpc_endpoint endpoint;
    crpc_op ops[CALLS_MAX];
    crpc_completion completions[CALLS_MAX];
};

static struct side client, server;
static uint8_t payload[CALLS_MAX * BYTES];
static useconds_t landing_us = LANDING_US;
static bool cold;
static uint32_t initiators;
static uint8_t others[4 << 20];

static void open_side(struct side *side, const char *device)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {
        .struct_size = sizeof(options), .endpoints_max = 1, .initiators = initiators};
    snprintf(options.device, sizeof(options.device), "%s", device);
    need(crpc_context_open(&options, &side->context, &error), &error);
}

/* Polls a side once. Returns the completion, which may be of kind 0: there was none. */
static crpc_completion poll_one(const struct side *side)
{
    crpc_completion completion;
    return crpc_poll(side->context, &completion, 1) == 1 ? completion : (crpc_completion){0};
}

/* What comes back connects by an address. Not inlined, so that the stack of what is counted lies as it does without. */
static __attribute__((noinline, cold)) void connect_lasting(const crpc_endpoint_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_listener_options listener_options = {.struct_size = sizeof(listener_options)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_endpoint_options lasting = *options;
    crpc_listener listener;
    uint32_t connected = 0;
    need(crpc_listener_open(server.context, "127.0.0.1:0", &listener_options, &listener, &error),
         &error);
    need(crpc_listener_get_info(server.context, listener, &info), &error);
    lasting.flags |= CRPC_ENDPOINT_RECONNECT;
    need(crpc_endpoint_connect(client.context, info.address, &lasting, &client.endpoint, &error),
         &error);
    while (connected < 2) {
        const crpc_completion done = poll_one(&server);
        if (done.kind == CRPC_COMPLETION_CONNECT_REQUEST) {
            server.endpoint = done.endpoint;
            need(crpc_endpoint_accept(server.context, done.endpoint, options, &error), &error);
        }
        connected += done.kind == CRPC_COMPLETION_CONNECTED;
        connected += poll_one(&client).kind == CRPC_COMPLETION_CONNECTED;
    }
}

static void connect_sides(void)
{
    /* On a busy machine all stands still for a second at times, which must cost no WQE. */
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_FULL_SIZE,
                                           .connect_timeout_ns = CRPC_FOREVER,
                                           .keepalive_ns = CRPC_FOREVER,
                                           .retry_timeout = initiators ? 0 : 20};
    crpc_endpoint endpoints[2];
    if (getenv("RECONNECT")) {
        connect_lasting(&options);
        return;
    }
    pair_endpoints((crpc_context *const[]){client.context, server.context}, &options, endpoints);
    client.endpoint = endpoints[0];
    server.endpoint = endpoints[1];
    pair_wait_connected(client.context);
    pair_wait_connected(server.context);
}

static void make_cold(void)
{
    if (cold) {
        for (size_t i = 0; i < sizeof(others); i += 64) {
            ((volatile uint8_t *)others)[i]++;
        }
    }
}

/* ---- What is counted ------------------------------------------------------------------------- */

NOT_INLINED static int32_t bench_submit(uint32_t calls)
{
    return crpc_submit(client.context, client.ops, calls, payload, sizeof(payload), NULL);
}

NOT_INLINED static int32_t bench_server_poll(void)
{
    return crpc_poll(server.context, server.completions, CALLS_MAX);
}

NOT_INLINED static int32_t bench_reply(uint32_t calls)
{
    return crpc_submit(server.context, server.ops, calls, payload, sizeof(payload), NULL);
}

NOT_INLINED static int32_t bench_client_poll(void)
{
    return crpc_poll(client.context, client.completions, CALLS_MAX);
}

/* ---------------------------------------------------------------------------------------------- */

static void prepare(void)
{
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        client.ops[i] = (crpc_op){.opcode = CRPC_OP_CALL,
                                  .endpoint = client.endpoint,
                                  .user_data = i,
                                  .payload_offset = (uint64_t)i * BYTES,
                                  .payload_bytes = BYTES,
                                  .reply_bytes_max = BYTES};
    }
}

static void answer(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *request = &server.completions[i];
        server.ops[i] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                  .flags = CRPC_OP_QUIET,
                                  .endpoint = request->endpoint,
                                  .token = request->token,
                                  .payload_offset = (uint64_t)i * BYTES,
                                  .payload_bytes = request->payload_bytes};
    }
    make_cold();
    if (bench_reply(count) != (int32_t)count) {
        give_up("a reply was refused");
    }
}

static void need_all(int32_t count, uint32_t calls)
{
    if (count < 0) {
        give_up("a poll failed");
    }
    if ((uint32_t)count != calls) {
        fprintf(stderr, "rpc_rounds: %d of %u had landed, so nothing can be said\n", count, calls);
        exit(TRY_AGAIN);
    }
}

static void run_round(uint32_t calls)
{
    make_cold();
    if (bench_submit(calls) != (int32_t)calls) {
        give_up("a call was refused");
    }
    usleep(landing_us);
    make_cold();
    need_all(bench_server_poll(), calls);
    for (uint32_t i = 0; i < calls; i++) {
        if (server.completions[i].kind != CRPC_COMPLETION_REQUEST) {
            give_up("the server got something else than a request");
        }
    }
    answer(calls);
    usleep(landing_us);
    make_cold();
    need_all(bench_client_poll(), calls);
    for (uint32_t i = 0; i < calls; i++) {
        if (client.completions[i].kind != CRPC_COMPLETION_RESPONSE ||
            client.completions[i].status != CRPC_OK ||
            client.completions[i].payload_bytes != BYTES) {
            give_up("the client got something else than its reply");
        }
    }
}

static void print_side(const char *name, const crpc_stats *after, const crpc_stats *before,
                       double calls, const char *end)
{
    printf("\"%s\": {\"batches\": %.4f, \"wqes\": %.4f, \"doorbells\": %.4f, "
           "\"inline_wqes\": %.4f, \"receive_wqes\": %.4f, \"completions\": %.4f}%s",
           name, (double)(after->batches_sent - before->batches_sent) / calls,
           (double)(after->send_wqes - before->send_wqes) / calls,
           (double)(after->doorbells - before->doorbells) / calls,
           (double)(after->inline_wqes - before->inline_wqes) / calls,
           (double)(after->receive_wqes - before->receive_wqes) / calls,
           (double)(after->completions - before->completions) / calls, end);
}

int main(int argc, char **argv)
{
    if (argc != 4 || atoi(argv[2]) < 1 || atoi(argv[2]) > CALLS_MAX) {
        fprintf(stderr, "usage: rpc_rounds DEVICE CALLS ROUNDS; CALLS at most %d\n", CALLS_MAX);
        return 2;
    }
    uint32_t calls = (uint32_t)atoi(argv[2]);
    uint64_t rounds = strtoull(argv[3], NULL, 0);
    const char *landing = getenv("LANDING_US");
    cold = getenv("COLD") != NULL;
    initiators = getenv("INITIATORS") ? (uint32_t)strtoul(getenv("INITIATORS"), NULL, 0) : 0;
    if (landing) {
        landing_us = (useconds_t)strtoul(landing, NULL, 0);
    }
    open_side(&client, argv[1]);
    open_side(&server, argv[1]);
    connect_sides();
    prepare();
    for (uint32_t i = 0; i < 4; i++) {
        run_round(calls);
    }
    crpc_stats before[2] = {{.struct_size = sizeof(crpc_stats)},
                            {.struct_size = sizeof(crpc_stats)}};
    crpc_stats after[2] = {{.struct_size = sizeof(crpc_stats)},
                           {.struct_size = sizeof(crpc_stats)}};
    crpc_context_get_stats(client.context, &before[0]);
    crpc_context_get_stats(server.context, &before[1]);
    for (uint64_t i = 0; i < rounds; i++) {
        run_round(calls);
    }
    crpc_context_get_stats(client.context, &after[0]);
    crpc_context_get_stats(server.context, &after[1]);
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_context_get_info(client.context, &info);
    printf("{\"driver\": \"%s\", \"calls\": %u, \"rounds\": %llu, ", info.driver_name, calls,
           (unsigned long long)rounds);
    print_side("client", &after[0], &before[0], (double)(calls * rounds), ", ");
    print_side("server", &after[1], &before[1], (double)(calls * rounds), "}\n");
    fflush(stdout);
    const char *afterwards = getenv("AFTERWARDS");
    if (afterwards && system(afterwards) != 0) {
        give_up("$AFTERWARDS failed");
    }
    crpc_context_close(client.context);
    crpc_context_close(server.context);
    return 0;
}
