/* peer.c: see peer.h. */
#include "peer.h"
#include "place.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COMPLETIONS 256
#define REPLIES_BYTES (4u << 20)
#define LATE_MAX 64

static volatile sig_atomic_t stop_asked;

struct late_reply {
    crpc_endpoint endpoint;
    uint64_t token;
    uint8_t payload[256];
    uint32_t payload_bytes;
};

struct server {
    crpc_context *context;
    crpc_completion reversed[REVERSE_COUNT];
    uint8_t reversed_payload[REVERSE_COUNT][256];
    uint32_t reversed_count;
    struct late_reply late[LATE_MAX];
    uint32_t late_count;
};

const char *test_host(void)
{
    return place_address(0);
}

double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void die(const char *what, const crpc_error *error)
{
    fprintf(stderr, "# peer: %s: %s\n", what, error ? error->message : "");
    _exit(3);
}

static void on_signal(int signal)
{
    (void)signal;
    stop_asked = 1;
}

/* Submits one reply, polling nothing: a reply is never refused for want of ring space. */
static void reply(struct server *server, crpc_endpoint endpoint, uint64_t token, int32_t status,
                  const void *payload, uint32_t bytes)
{
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = CRPC_OP_QUIET,
                  .status = status,
                  .endpoint = endpoint,
                  .token = token,
                  .payload_bytes = bytes};
    int32_t reason;
    crpc_submit(server->context, &op, 1, bytes ? payload : NULL, bytes, &reason);
    if (reason != CRPC_OK && reason != CRPC_E_DISCONNECTED && reason != CRPC_E_STALE) {
        fprintf(stderr, "# peer: reply: %s\n", crpc_status_name(reason));
        _exit(4);
    }
}

static void collect(struct server *server, const crpc_completion *request)
{
    uint32_t slot = server->reversed_count++;
    server->reversed[slot] = *request;
    crpc_retain(server->context, request, server->reversed_payload[slot],
                sizeof(server->reversed_payload[slot]));
    if (server->reversed_count < REVERSE_COUNT) {
        return;
    }
    while (server->reversed_count > 0) {
        slot = --server->reversed_count;
        const crpc_completion *one = &server->reversed[slot];
        reply(server, one->endpoint, one->token, 0, server->reversed_payload[slot],
              one->payload_bytes);
    }
}

static void answer_later(struct server *server, const crpc_completion *request)
{
    struct late_reply *late = &server->late[server->late_count++ % LATE_MAX];
    *late = (struct late_reply){.endpoint = request->endpoint,
                                .token = request->token,
                                .payload_bytes = request->payload_bytes};
    crpc_retain(server->context, request, late->payload, sizeof(late->payload));
}

static void answer_late(struct server *server)
{
    for (uint32_t i = 0; i < LATE_MAX; i++) {
        struct late_reply *late = &server->late[i];
        if (late->token) {
            reply(server, late->endpoint, late->token, 0, late->payload, late->payload_bytes);
            late->token = 0;
        }
    }
}

static void serve(struct server *server, const crpc_completion *request)
{
    const void *payload = (const void *)(uintptr_t)request->payload;
    crpc_op drop = {.opcode = CRPC_OP_DROP,
                    .flags = CRPC_OP_QUIET,
                    .endpoint = request->endpoint,
                    .token = request->token};
    switch (request->method) {
    case METHOD_HOLD:
        break;
    case METHOD_REVERSE:
        collect(server, request);
        break;
    case METHOD_DROP:
        crpc_submit(server->context, &drop, 1, NULL, 0, NULL);
        break;
    case METHOD_LATE:
        answer_later(server, request);
        break;
    case METHOD_RELEASE:
        answer_late(server);
        reply(server, request->endpoint, request->token, 0, payload, request->payload_bytes);
        break;
    case METHOD_STATUS:
        reply(server, request->endpoint, request->token, 1234, NULL, 0);
        break;
    case METHOD_LEAVE:
        reply(server, request->endpoint, request->token, 0, payload, request->payload_bytes);
        crpc_endpoint_disconnect(server->context, request->endpoint, CRPC_FOREVER);
        break;
    default:
        reply(server, request->endpoint, request->token, 0, payload, request->payload_bytes);
    }
}

static void decide(struct server *server, crpc_endpoint endpoint)
{
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .retry_timeout = place_retry_timeout()};
    crpc_endpoint_get_info(server->context, endpoint, &info);
    if (info.token_bytes == strlen(REFUSE_TOKEN) &&
        memcmp(info.token, REFUSE_TOKEN, info.token_bytes) == 0 && info.peer_address[0]) {
        crpc_endpoint_reject(server->context, endpoint, REFUSE_REASON);
    } else if (crpc_endpoint_accept(server->context, endpoint, &options, &error) != CRPC_OK) {
        fprintf(stderr, "# peer: accept: %s\n", error.message);
        crpc_endpoint_close(server->context, endpoint);
    }
}

static void take(struct server *server, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        decide(server, completion->endpoint);
        break;
    case CRPC_COMPLETION_REQUEST:
        serve(server, completion);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (completion->status < 0) {
            crpc_endpoint_close(server->context, completion->endpoint);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        crpc_endpoint_close(server->context, completion->endpoint);
        break;
    default:
        break;
    }
}

static void run(struct server *server)
{
    static crpc_completion completions[COMPLETIONS];
    while (!stop_asked) {
        int32_t count = crpc_poll(server->context, completions, COMPLETIONS);
        for (int32_t i = 0; i < count; i++) {
            take(server, &completions[i]);
        }
        if (count == 0) {
            crpc_wait(server->context, 50000000);
        }
    }
}

static void serve_until_stopped(const char *host, int ready)
{
    static struct server server;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    char address[128];
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .features = PLACE_FEATURES,
                                          .initiators = place_initiators()};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, on_signal);
    if (crpc_context_open(&options, &server.context, &error) != CRPC_OK) {
        die("open", &error);
    }
    snprintf(address, sizeof(address), "%s:0", host);
    if (crpc_listener_open(server.context, address, NULL, &listener, &error) != CRPC_OK) {
        die("listen", &error);
    }
    crpc_listener_get_info(server.context, listener, &info);
    if (write(ready, info.address, sizeof(info.address)) != (ssize_t)sizeof(info.address)) {
        die("pipe", NULL);
    }
    run(&server);
    crpc_context_close(server.context);
    _exit(0);
}

void peer_start(struct peer *peer, const char *host)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    fflush(NULL);
    peer->pid = fork();
    assert_true(peer->pid >= 0);
    if (peer->pid == 0) {
        close(ready[0]);
        serve_until_stopped(host ? host : test_host(), ready[1]);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], peer->address, sizeof(peer->address)), sizeof(peer->address));
    close(ready[0]);
}

void peer_kill(struct peer *peer, int signal)
{
    kill(peer->pid, signal);
    waitpid(peer->pid, NULL, 0);
    peer->pid = 0;
}

void peer_stop(struct peer *peer)
{
    int status = -1;
    kill(peer->pid, SIGTERM);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    peer->pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
