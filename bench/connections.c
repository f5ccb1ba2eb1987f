/* connections.c: what many connections of one process cost: memory of an idle endpoint, how fast they are made, and what a call costs
 * beside idle ones.
 *
 *   connections DEVICE ADDRESS HOW COUNT RING_BYTES BATCH_WINDOW ROUNDS
 *
 * Both sides are in this process, in a context each, so each connection has two endpoints. HOW is blobs or rdma_cm; RING_BYTES and
 * BATCH_WINDOW are 0 for the library's defaults. First one connection makes calls alone. Then COUNT are made, which are idle. Then
 * one of them makes calls, and then all of them in turns, ROUNDS calls each. ROUNDS 0: only the memory.
 *
 * Prints JSON. Memory is what has become of the process by an endpoint, without what simnic has allocated for its device, and with
 * all registered pages: see allocated.h. That of the kernel is not in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocated.h"
#include "give_up.h"
#include "sides.h"

#define COUNT_MAX 100000u
#define WARM_UP 8u /* connections before memory is looked at: what the first ones make is for all */
#define ALONE_CALLS 20000u
#define COMPLETIONS 256
#define REQUEST_BYTES 32

static uint32_t made, wanted;
static crpc_endpoint *client_endpoints; /* of all connections */

/* ---- Memory ---------------------------------------------------------------------------------- */

struct memory {
    uint64_t resident; /* a page that is mapped twice counts once */
    uint64_t registered;
    uint64_t mappings;
    uint64_t allocated[ALLOCATED_BY];
};

static uint64_t lines_of(const char *path)
{
    uint64_t lines = 0;
    FILE *file = fopen(path, "r");
    for (int c; file && (c = fgetc(file)) != EOF;) {
        lines += c == '\n';
    }
    if (file) {
        fclose(file);
    }
    return lines;
}

/* Without pages of files: how much of a library counts here changes as other processes that use it come and go. */
static uint64_t resident_bytes(void)
{
    char line[256];
    unsigned long long kib, anonymous = 0, shared = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "Pss_Anon: %llu kB", &kib) == 1) {
            anonymous = kib;
        } else if (sscanf(line, "Pss_Shmem: %llu kB", &kib) == 1) {
            shared = kib;
        }
    }
    if (!file || anonymous == 0) {
        give_up("/proc/self/smaps_rollup has no Pss_Anon");
    }
    fclose(file);
    return (anonymous + shared) * 1024;
}

static struct memory memory_now(void)
{
    struct memory now = {.registered = registered_bytes()};
    for (int who = 0; who < ALLOCATED_BY; who++) {
        now.allocated[who] = allocated_bytes((enum allocated_by)who);
    }
    now.mappings = lines_of("/proc/self/maps");
    now.resident = resident_bytes();
    return now;
}

static void print_memory(const char *name, const struct memory *from, const struct memory *to,
                         uint32_t endpoints)
{
    const double each = endpoints;
    const double of_simnic =
        (double)(to->allocated[ALLOCATED_SIMNIC] - from->allocated[ALLOCATED_SIMNIC]);
    double heap = 0;
    printf("\"%s\": {\"bytes\": %.0f, \"registered_bytes\": %.0f, \"mappings\": %.3f, \"heap\": {",
           name, ((double)(to->resident - from->resident) - of_simnic) / each,
           (double)(to->registered - from->registered) / each,
           (double)(to->mappings - from->mappings) / each);
    for (int who = 0; who < ALLOCATED_BY; who++) {
        double bytes = (double)(to->allocated[who] - from->allocated[who]);
        heap += who == ALLOCATED_SIMNIC ? 0 : bytes;
        printf("\"%s\": %.0f, ", allocated_names[who], bytes / each);
    }
    printf("\"all_but_simnic\": %.0f}}, ", heap / each);
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void tell_how_many(void)
{
    if (made < wanted) {
        fprintf(stderr, "connections: %u connections were made\n", made);
    }
}

/* Returns how many seconds it took. */
static double connect_up_to(uint32_t count, void (*connect)(void))
{
    const double begin = clock_s(CLOCK_MONOTONIC);
    while (made < count) {
        sides_connect(connect, false);
        client_endpoints[made++] = client.endpoint;
    }
    return clock_s(CLOCK_MONOTONIC) - begin;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static double library_s; /* in submits, and in polls that found something */

static int32_t poll_side(const struct side *side, crpc_completion *completions)
{
    const double begin = clock_s(CLOCK_MONOTONIC);
    const int32_t count = crpc_poll(side->context, completions, COMPLETIONS);
    if (count > 0) {
        library_s += clock_s(CLOCK_MONOTONIC) - begin;
    }
    return count;
}

static void submit(const struct side *side, const crpc_op *ops, uint32_t count)
{
    static const uint8_t payload[REQUEST_BYTES];
    const double begin = clock_s(CLOCK_MONOTONIC);
    if (crpc_submit(side->context, ops, count, payload, sizeof(payload), NULL) != (int32_t)count) {
        give_up("a call or a reply is refused");
    }
    library_s += clock_s(CLOCK_MONOTONIC) - begin;
}

/* Answers what has come. */
static void serve(void)
{
    static crpc_completion completions[COMPLETIONS];
    static crpc_op replies[COMPLETIONS];
    uint32_t requests = 0;
    int32_t count = poll_side(&server, completions);
    for (int32_t i = 0; i < count; i++) {
        if (completions[i].kind == CRPC_COMPLETION_REQUEST) {
            replies[requests++] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                            .flags = CRPC_OP_QUIET,
                                            .endpoint = completions[i].endpoint,
                                            .token = completions[i].token,
                                            .payload_bytes = REQUEST_BYTES};
        } else if (completions[i].kind == CRPC_COMPLETION_DISCONNECTED) {
            give_up("a connection has ended");
        }
    }
    if (requests > 0) {
        submit(&server, replies, requests);
    }
}

static uint32_t take_responses(void)
{
    static crpc_completion completions[COMPLETIONS];
    uint32_t responses = 0;
    int32_t count = poll_side(&client, completions);
    for (int32_t i = 0; i < count; i++) {
        if (completions[i].kind != CRPC_COMPLETION_RESPONSE || completions[i].status != CRPC_OK) {
            give_up("a call has failed");
        }
        responses++;
    }
    return responses;
}

/* One call of each of the first `count` endpoints at once. */
static void round_of_calls(uint32_t count)
{
    crpc_op ops[64];
    uint32_t submitted = 0, answered = 0;
    const double begin = clock_s(CLOCK_MONOTONIC);
    while (answered < count) {
        uint32_t now = 0;
        for (; now < sizeof(ops) / sizeof(ops[0]) && submitted + now < count; now++) {
            ops[now] = (crpc_op){.opcode = CRPC_OP_CALL,
                                 .endpoint = client_endpoints[submitted + now],
                                 .payload_bytes = REQUEST_BYTES,
                                 .reply_bytes_max = REQUEST_BYTES};
        }
        if (now > 0) {
            submit(&client, ops, now);
        }
        submitted += now;
        serve();
        answered += take_responses();
        if (clock_s(CLOCK_MONOTONIC) - begin > SIDES_LIMIT_S) {
            give_up("a call is not answered");
        }
    }
}

/* Prints the medians of the rounds: by the clock, and in the library, which is the part of both sides. */
static void measure_calls(const char *name, uint32_t count, uint32_t rounds)
{
    double *ns = room_for(rounds), *library_ns = room_for(rounds);
    round_of_calls(count);
    for (uint32_t i = 0; i < rounds; i++) {
        library_s = 0;
        const double begin = clock_s(CLOCK_MONOTONIC);
        round_of_calls(count);
        ns[i] = (clock_s(CLOCK_MONOTONIC) - begin) * 1e9 / count;
        library_ns[i] = library_s * 1e9 / count;
    }
    printf("\"%s\": {\"ns\": %.0f, \"library_ns\": %.0f}, ", name, median(ns, rounds),
           median(library_ns, rounds));
    free(ns);
    free(library_ns);
}

int main(int argc, char **argv)
{
    const uint32_t count = argc == 8 ? (uint32_t)strtoul(argv[4], NULL, 0) : 0;
    if (count <= WARM_UP || count > COUNT_MAX) {
        fprintf(stderr,
                "usage: connections DEVICE ADDRESS HOW COUNT RING_BYTES BATCH_WINDOW ROUNDS\n");
        return 2;
    }
    void (*connect)(void) = strcmp(argv[3], "blobs") == 0 ? connect_by_blobs : connect_by_address;
    sides_options = (crpc_endpoint_options){.struct_size = sizeof(sides_options),
                                            .keepalive_ns = CRPC_FOREVER,
                                            .ring_bytes = (uint32_t)strtoul(argv[5], NULL, 0),
                                            .batch_window = (uint32_t)strtoul(argv[6], NULL, 0)};
    const uint32_t rounds = (uint32_t)strtoul(argv[7], NULL, 0);
    wanted = count;
    atexit(tell_how_many);
    printf("{\"connections\": %u, ", count);
    const char *initiators = getenv("INITIATORS"); /* with it, endpoints connect by DC */
    const struct memory before = memory_now();
    sides_open(argv[1], (crpc_context_options){
                            .endpoints_max = count,
                            /* 0 = as many as are needed */
                            .receive_depth = sides_options.batch_window * count / 2 * 3,
                            .initiators = initiators ? (uint32_t)strtoul(initiators, NULL, 0) : 0,
                            .log_level = CRPC_LOG_ERROR,
                        });
    sides_listen(argv[2]);
    client_endpoints = calloc(count, sizeof(*client_endpoints));
    if (!client_endpoints) {
        give_up("no memory");
    }
    const struct memory opened = memory_now();
    print_memory("context_for_each", &before, &opened, 2 * count);
    connect_up_to(1, connect);
    if (rounds > 0) {
        measure_calls("alone", 1, ALONE_CALLS);
    }
    connect_up_to(WARM_UP, connect);
    const struct memory first = memory_now();
    const double seconds = connect_up_to(count, connect);
    const struct memory idle = memory_now();
    print_memory("idle_endpoint", &first, &idle, 2 * (count - WARM_UP));
    printf("\"connects_per_second\": %.0f, ", (count - WARM_UP) / seconds);
    if (rounds > 0) {
        measure_calls("one_of_all", 1, ALONE_CALLS);
        measure_calls("all", count, rounds);
        const struct memory used = memory_now();
        print_memory("used_endpoint", &first, &used, 2 * (count - WARM_UP));
    }
    printf("\"mappings_of_all\": %llu}\n", (unsigned long long)lines_of("/proc/self/maps"));
    return 0;
}
