/* kv_server.c: a service of named methods, with the statuses that applications agree on.
 *
 *   kv_server [ADDRESS]        e.g. 10.99.0.1:7471, [fd10:99::1]:7471, *:7471 (the default)
 *
 * It keeps short values by their keys. A request has a key, a zero byte, and for kv.put the value. The
 * methods are a table, and serving one is a look at it: the library calls nobody back.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <copyrpc.h>

#include "arguments.h"

#define BATCH 64
#define ENTRIES 1000
#define KEY_BYTES 64u
#define VALUE_BYTES 1024u

struct request {
    const char *key; /* KEY_BYTES of them, zero behind its end */
    const uint8_t *value;
    uint32_t value_bytes;
};

/* What a handler fills: a value, or with an error a text. */
struct answer {
    const void *payload;
    uint32_t bytes;
};

static struct {
    char key[KEY_BYTES]; /* "" = free */
    uint8_t value[VALUE_BYTES];
    uint32_t bytes;
} entries[ENTRIES];

static volatile sig_atomic_t stop;
static uint32_t clients; /* that are connected */

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static int32_t error_of(int32_t status, const char *text, struct answer *answer)
{
    answer->payload = text;
    answer->bytes = (uint32_t)strlen(text);
    return status;
}

static int find(const char *key)
{
    int at = 0;
    while (at < ENTRIES && strcmp(entries[at].key, key) != 0) {
        at++;
    }
    return at;
}

static int32_t get(const struct request *request, struct answer *answer)
{
    int at = find(request->key);
    if (at == ENTRIES) {
        return error_of(CRPC_STATUS_NOT_FOUND, "there is no such key", answer);
    }
    answer->payload = entries[at].value;
    answer->bytes = entries[at].bytes;
    return CRPC_STATUS_OK;
}

static int32_t put(const struct request *request, struct answer *answer)
{
    int at = find(request->key);
    if (request->value_bytes > VALUE_BYTES) {
        return error_of(CRPC_STATUS_INVALID_ARGUMENT, "a value has 1024 bytes at most", answer);
    }
    if (at == ENTRIES && (at = find("")) == ENTRIES) {
        return error_of(CRPC_STATUS_RESOURCE_EXHAUSTED, "there are 1000 keys already", answer);
    }
    memcpy(entries[at].key, request->key, KEY_BYTES);
    memcpy(entries[at].value, request->value, request->value_bytes);
    entries[at].bytes = request->value_bytes;
    return CRPC_STATUS_OK;
}

static int32_t delete (const struct request *request, struct answer *answer)
{
    int at = find(request->key);
    if (at == ENTRIES) {
        return error_of(CRPC_STATUS_NOT_FOUND, "there is no such key", answer);
    }
    entries[at].key[0] = 0;
    return CRPC_STATUS_OK;
}

static struct method {
    const char *name;
    int32_t (*handle)(const struct request *request, struct answer *answer);
    int32_t number;
} methods[] = {
    {.name = "kv.get", .handle = get},
    {.name = "kv.put", .handle = put},
    {.name = "kv.delete", .handle = delete},
};
#define METHODS (sizeof(methods) / sizeof(methods[0]))

/* Gives each method the number of its name; -1 if two have the same, which is for the programmer to mend. */
static int number_methods(void)
{
    for (size_t i = 0; i < METHODS; i++) {
        methods[i].number = crpc_method_number(methods[i].name);
        for (size_t other = 0; other < i; other++) {
            if (methods[other].number == methods[i].number) {
                fprintf(stderr, "kv_server: rename %s or %s: both have the number %#x\n",
                        methods[other].name, methods[i].name, (unsigned)methods[i].number);
                return -1;
            }
        }
    }
    return 0;
}

static int32_t handle(const crpc_completion *came, struct answer *answer)
{
    const uint8_t *payload = (const uint8_t *)(uintptr_t)came->payload;
    const struct method *method = methods;
    char key[KEY_BYTES] = "";
    struct request request = {.key = key};
    while (method < methods + METHODS && method->number != came->method) {
        method++;
    }
    if (method == methods + METHODS) {
        return error_of(CRPC_STATUS_UNIMPLEMENTED, "there is no such method", answer);
    }
    /* A copy, because the client's device can still write to the view: what is checked is what is used. */
    for (uint32_t at = 0; at < came->payload_bytes && at < KEY_BYTES; at++) {
        key[at] = (char)payload[at];
        if (!key[0]) {
            break;
        }
        if (!key[at]) {
            request.value = payload + at + 1;
            request.value_bytes = came->payload_bytes - at - 1;
            return method->handle(&request, answer);
        }
    }
    return error_of(CRPC_STATUS_INVALID_ARGUMENT, "a key has 1 to 63 bytes, and a zero byte",
                    answer);
}

static void answer_request(crpc_context *context, const crpc_completion *request)
{
    struct answer answer = {0};
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .flags = CRPC_OP_QUIET,
                     .endpoint = request->endpoint,
                     .token = request->token};
    reply.status = handle(request, &answer);
    if (answer.bytes > request->reply_bytes_max) { /* the client takes less */
        answer.bytes = 0;
        if (reply.status == CRPC_STATUS_OK) {
            reply.status = CRPC_STATUS_OUT_OF_RANGE;
        }
    }
    reply.payload_bytes = answer.bytes;
    crpc_submit(context, &reply, 1, answer.payload, answer.bytes, NULL);
}

/* What comes when this server is about to stop: its client can send it again elsewhere. */
static void drop_request(crpc_context *context, const crpc_completion *request)
{
    crpc_op drop = {.opcode = CRPC_OP_DROP,
                    .flags = CRPC_OP_QUIET,
                    .status = CRPC_E_NOT_STARTED,
                    .endpoint = request->endpoint,
                    .token = request->token};
    crpc_submit(context, &drop, 1, NULL, 0, NULL);
}

static void take(crpc_context *context, const crpc_completion *completion)
{
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        if (crpc_endpoint_accept(context, completion->endpoint, NULL, NULL) < 0) {
            crpc_endpoint_close(context, completion->endpoint);
        }
        break;
    case CRPC_COMPLETION_REQUEST:
        if (stop) {
            drop_request(context, completion);
        } else {
            answer_request(context, completion);
        }
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (completion->status < 0 || stop) {
            crpc_endpoint_close(context, completion->endpoint);
        } else {
            clients++;
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        crpc_endpoint_close(context, completion->endpoint);
        clients--;
        break;
    }
}

static void turn(crpc_context *context)
{
    static crpc_completion completions[BATCH];
    int32_t count = crpc_poll(context, completions, BATCH);
    for (int32_t i = 0; i < count; i++) {
        take(context, &completions[i]);
    }
    if (!count) {
        crpc_wait(context, 200000000); /* a signal may come just before it */
    }
}

/* Until it is told to stop. Then nobody else can connect, and its clients leave: those that do not are cut off after 5 s. */
static void serve(crpc_context *context, crpc_listener listener)
{
    while (!stop) {
        turn(context);
    }
    crpc_listener_drain(context, listener, 5000000000);
    while (clients > 0) {
        turn(context);
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
        "Keeps values by their keys, for the methods kv.get, kv.put and kv.delete. ADDRESS "
        "is *:7471 if none is given.");
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);

    if (number_methods() < 0) {
        return EXIT_FAILURE;
    }
    if (crpc_context_open(NULL, &context, &error) < 0 ||
        crpc_listener_open(context, argc > 1 ? argv[1] : "*:7471", NULL, &listener, &error) < 0) {
        fprintf(stderr, "kv_server: %s\n", error.message);
        return EXIT_FAILURE;
    }
    crpc_listener_get_info(context, listener, &info);
    printf("listening on %s\n", info.address);
    fflush(stdout);
    serve(context, listener);
    return crpc_context_close(context) < 0;
}
