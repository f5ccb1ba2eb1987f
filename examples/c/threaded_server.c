/* threaded_server.c: an echo server with several threads, each with a context of its own.
 *
 *   threaded_server THREADS [ADDRESS]    e.g. 10.99.0.1:7471, [fd10:99::1]:7471, *:7471 (the default)
 *
 * A context belongs to one thread, and contexts share nothing, so there are no locks here. One of them listens, and hands each
 * client over to the next thread, which accepts it and has it to itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <copyrpc.h>

#include "arguments.h"

#define BATCH 256
#define THREADS_MAX 64

static volatile sig_atomic_t stop;

struct worker {
    crpc_context *context;
    pthread_t thread;
    crpc_completion completions[BATCH];
    uint32_t clients; /* that it has had */
};

static struct worker workers[THREADS_MAX];
static uint32_t worker_count;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "threaded_server: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

static void accept_client(struct worker *worker, crpc_endpoint client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_endpoint_accept(worker->context, client, NULL, &error) < 0) {
        failed("accept", error.message);
        crpc_endpoint_close(worker->context, client);
        return;
    }
    worker->clients++;
}

/* A request comes to the first worker, which listens. It keeps one in worker_count. The others get theirs from it, with a handle
 * of their own; they accept them. */
static void place_client(struct worker *worker, crpc_endpoint client)
{
    static uint32_t turn;
    crpc_error error = {.struct_size = sizeof(error)};
    struct worker *next = worker == workers ? &workers[turn++ % worker_count] : worker;
    if (next == worker) {
        accept_client(worker, client);
    } else if (crpc_endpoint_hand_over(worker->context, client, next->context, 0, &error) < 0) {
        failed("hand over", error.message);
        crpc_endpoint_close(worker->context, client);
    }
}

static void echo(struct worker *worker, const crpc_completion *request)
{
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .flags = CRPC_OP_QUIET,
                     .endpoint = request->endpoint,
                     .token = request->token,
                     .payload_bytes = request->payload_bytes};
    if (request->payload_bytes > request->reply_bytes_max) {
        reply.payload_bytes = 0;
        reply.status = CRPC_STATUS_OUT_OF_RANGE;
    }
    crpc_submit(worker->context, &reply, 1, (const void *)(uintptr_t)request->payload,
                request->payload_bytes, NULL);
}

static void take(struct worker *worker, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        place_client(worker, completion->endpoint);
        break;
    case CRPC_COMPLETION_REQUEST:
        echo(worker, completion);
        break;
    case CRPC_COMPLETION_CONNECTED: /* or not: then there is nothing to disconnect */
        if (completion->status < 0) {
            crpc_endpoint_close(worker->context, completion->endpoint);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        crpc_endpoint_close(worker->context, completion->endpoint);
        break;
    }
}

static void *serve(void *argument)
{
    struct worker *worker = argument;
    while (!stop) {
        int32_t count = crpc_poll(worker->context, worker->completions, BATCH);
        for (int32_t i = 0; i < count; i++) {
            take(worker, &worker->completions[i]);
        }
        if (count == 0) {
            crpc_wait(worker->context, 200000000); /* a signal may come just before it */
        }
    }
    return NULL;
}

static int run(const char *address)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    for (uint32_t i = 0; i < worker_count; i++) {
        if (crpc_context_open(NULL, &workers[i].context, &error) < 0) {
            return failed("no context", error.message);
        }
    }
    if (crpc_listener_open(workers[0].context, address, NULL, &listener, &error) < 0) {
        return failed("cannot listen", error.message);
    }
    crpc_listener_get_info(workers[0].context, listener, &info);
    printf("listening on %s\n", info.address);
    fflush(stdout);
    uint32_t started = 1;
    int os_error = 0;
    while (started < worker_count && os_error == 0) {
        struct worker *worker = &workers[started];
        os_error = pthread_create(&worker->thread, NULL, serve, worker);
        started += os_error == 0;
    }
    stop = os_error ? 1 : stop;
    serve(&workers[0]); /* the first is this thread */
    for (uint32_t i = 1; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (uint32_t i = 0; i < worker_count; i++) {
        printf("thread %u had %u clients\n", i, workers[i].clients);
    }
    return os_error ? failed("no thread", strerror(os_error)) : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    answer_options(argc, argv, "THREADS [ADDRESS]",
                   "Answers every request with the request itself, in several threads. ADDRESS is "
                   "*:7471 if none is given.");
    worker_count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    if (worker_count == 0 || worker_count > THREADS_MAX) {
        return failed("usage", "threaded_server THREADS [ADDRESS], with 1 to 64 threads");
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    int status = run(argc > 2 ? argv[2] : "*:7471");
    /* Only now: a context must not be closed while another one may hand over to it. */
    for (uint32_t i = 0; i < worker_count; i++) {
        crpc_context_close(workers[i].context);
    }
    return status;
}
