/* echo_server.c: answers every request with the request itself.
 *
 *   echo_server [ADDRESS]        e.g. 10.99.0.1:7471, [fd10:99::1]:7471, *:7471 (the default)
 *
 * One thread, any number of clients. The loop is the whole idea of copyrpc: poll fills an array
 * with whatever has happened, submit takes an array of what to do, and wait sleeps when there is
 * nothing.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <copyrpc.h>

#include "arguments.h"

#define BATCH 256
/* Before it sleeps: some tens of microseconds, as long as waking up takes. */
#define IDLE_POLLS 1000

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static int failed(const char *what, const crpc_error *error)
{
    fprintf(stderr, "echo_server: %s: %s\n", what, error->message);
    return EXIT_FAILURE;
}

/* A client wants to connect. A server that is choosy looks at its address and token first, with
 * crpc_endpoint_get_info, and may call crpc_endpoint_reject instead. */
static void accept_client(crpc_context *context, crpc_endpoint client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_endpoint_accept(context, client, NULL, &error) < 0) {
        fprintf(stderr, "echo_server: accept: %s\n", error.message);
        crpc_endpoint_close(context, client);
    }
}

/* The payload is a view into the receive ring, valid until the next poll; submit copies it to
 * the send ring. QUIET: we do not care to be told when the client has the reply. */
static void echo(crpc_context *context, const crpc_completion *request)
{
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .flags = CRPC_OP_QUIET,
                     .endpoint = request->endpoint,
                     .token = request->token,
                     .payload_bytes = request->payload_bytes};
    int32_t reason;
    if (request->payload_bytes > request->reply_bytes_max) {
        /* The client left no room for an answer this long: tell it so. */
        reply.payload_bytes = 0;
        reply.status = CRPC_STATUS_OUT_OF_RANGE;
    }
    crpc_submit(context, &reply, 1, (const void *)(uintptr_t)request->payload,
                request->payload_bytes, &reason);
    if (reason != CRPC_OK && reason != CRPC_E_DISCONNECTED) {
        fprintf(stderr, "echo_server: reply: %s\n", crpc_status_text(reason));
    }
}

static void serve(crpc_context *context)
{
    static crpc_completion completions[BATCH];
    uint32_t idle_polls = 0;
    while (!stop) {
        int32_t count = crpc_poll(context, completions, BATCH);
        for (int32_t i = 0; i < count; i++) {
            switch (completions[i].kind) {
            case CRPC_COMPLETION_CONNECT_REQUEST:
                accept_client(context, completions[i].endpoint);
                break;
            case CRPC_COMPLETION_REQUEST:
                echo(context, &completions[i]);
                break;
            case CRPC_COMPLETION_CONNECTED: /* or not: then there is nothing to disconnect */
                if (completions[i].status < 0) {
                    crpc_endpoint_close(context, completions[i].endpoint);
                }
                break;
            case CRPC_COMPLETION_DISCONNECTED:
                crpc_endpoint_close(context, completions[i].endpoint);
                break;
            }
        }
        if (count) {
            idle_polls = 0;
        } else if (++idle_polls > IDLE_POLLS) {
            crpc_wait(context, 200000000); /* a signal may come just before it */
        }
    }
}

int main(int argc, char **argv)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_context *context;
    crpc_listener listener;
    answer_options(
        argc, argv, "[ADDRESS]",
        "Answers every request with the request itself. ADDRESS is *:7471 if none is given.");
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);

    if (crpc_context_open(NULL, &context, &error) < 0) {
        return failed("no context", &error);
    }
    if (crpc_listener_open(context, argc > 1 ? argv[1] : "*:7471", NULL, &listener, &error) < 0) {
        return failed("cannot listen", &error);
    }
    crpc_listener_get_info(context, listener, &info);
    printf("listening on %s\n", info.address);
    fflush(stdout);
    serve(context);
    return crpc_context_close(context) < 0;
}
