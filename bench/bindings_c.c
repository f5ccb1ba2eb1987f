/* bindings_c.c: what a batch of calls costs its caller in C: the figure that the bindings' are held against.
 *
 *   bindings_c ADDRESS ROUNDS CALLS BYTES
 *
 * Client and server are two contexts of one thread, so that nothing but the calls into the library is timed: filling the ops and
 * submitting them, then, when the server has answered all, draining the completions. Prints JSON: medians and minima in
 * nanoseconds a call. bindings_python.py does the same in Python. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <copyrpc.h>

#define CALLS_MAX 1024

static crpc_completion completions[CALLS_MAX];
static crpc_op ops[CALLS_MAX];

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bindings_c: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static crpc_context *open_context(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    if (crpc_context_open(NULL, &context, &error) < 0) {
        fail("no context", error.message);
    }
    return context;
}

/* One turn of the server. Returns how many requests it answered. */
static uint32_t serve(crpc_context *server, const crpc_endpoint_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint32_t answered = 0;
    int32_t count = crpc_poll(server, completions, CALLS_MAX);
    for (int32_t i = 0; i < count; i++) {
        const crpc_completion *got = &completions[i];
        if (got->kind == CRPC_COMPLETION_CONNECT_REQUEST &&
            crpc_endpoint_accept(server, got->endpoint, options, &error) < 0) {
            fail("accept", error.message);
        } else if (got->kind == CRPC_COMPLETION_REQUEST) {
            crpc_op reply = {.opcode = CRPC_OP_REPLY,
                             .flags = CRPC_OP_QUIET,
                             .endpoint = got->endpoint,
                             .token = got->token,
                             .payload_bytes = got->payload_bytes};
            if (crpc_submit(server, &reply, 1, (const void *)(uintptr_t)got->payload,
                            got->payload_bytes, NULL) != 1) {
                fail("reply", "not taken");
            }
            answered++;
        }
    }
    return answered;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, uint64_t *times, uint32_t rounds, uint32_t calls,
                  const char *end)
{
    qsort(times, rounds, sizeof(*times), by_value);
    printf("\"%s\": {\"median_ns\": %.1f, \"least_ns\": %.1f}%s", name,
           (double)times[rounds / 2] / calls, (double)times[0] / calls, end);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fail("usage", "bindings_c ADDRESS ROUNDS CALLS BYTES");
    }
    uint32_t rounds = (uint32_t)atoi(argv[2]), calls = (uint32_t)atoi(argv[3]),
             bytes = (uint32_t)atoi(argv[4]);
    if (rounds == 0 || calls == 0 || calls > CALLS_MAX) {
        fail("usage", "1 to 1024 calls, at least 1 round");
    }
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_options options = {
        .struct_size = sizeof(options), .flags = CRPC_ENDPOINT_FULL_SIZE, .ring_bytes = 4u << 20};
    crpc_context *server = open_context(), *client = open_context();
    crpc_listener listener;
    crpc_endpoint endpoint;
    if (crpc_listener_open(server, argv[1], NULL, &listener, &error) < 0 ||
        crpc_endpoint_connect(client, argv[1], &options, &endpoint, &error) < 0) {
        fail(argv[1], error.message);
    }
    crpc_completion done;
    while (crpc_poll(client, &done, 1) == 0) {
        serve(server, &options);
    }
    if (done.status != CRPC_OK) {
        fail(argv[1], crpc_status_text(done.status));
    }
    uint64_t *submits = calloc(rounds, sizeof(*submits)), *drains = calloc(rounds, sizeof(*drains));
    uint8_t *payload = calloc(calls, bytes + 1u);
    if (!submits || !drains || !payload) {
        fail("no memory", "for so many rounds");
    }
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t begun = now_ns();
        for (uint32_t i = 0; i < calls; i++) {
            ops[i] = (crpc_op){.opcode = CRPC_OP_CALL,
                               .endpoint = endpoint,
                               .user_data = i,
                               .payload_offset = (uint64_t)i * bytes,
                               .payload_bytes = bytes,
                               .reply_bytes_max = bytes};
        }
        if (crpc_submit(client, ops, calls, payload, (uint64_t)calls * bytes, NULL) !=
            (int32_t)calls) {
            fail("submit", "not all taken");
        }
        submits[round] = now_ns() - begun;
        crpc_wait(client, 0); /* sends the batch */
        for (uint32_t answered = 0; answered < calls;) {
            answered += serve(server, &options);
        }
        crpc_wait(server, 0);
        for (uint32_t got = 0; got < calls;) {
            begun = now_ns();
            int32_t count = crpc_poll(client, completions, CALLS_MAX);
            for (int32_t i = 0; i < count; i++) {
                if (completions[i].kind != CRPC_COMPLETION_RESPONSE ||
                    completions[i].status != CRPC_OK) {
                    fail("call", crpc_status_text(completions[i].status));
                }
            }
            got += (uint32_t)count;
            if (count > 0) {
                drains[round] += now_ns() - begun;
            }
        }
    }
    printf("{");
    print("submit", submits, rounds, calls, ", ");
    print("drain", drains, rounds, calls, "}\n");
    free(submits);
    free(drains);
    free(payload);
    crpc_context_close(client);
    crpc_context_close(server);
    return 0;
}
