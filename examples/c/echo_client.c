/* echo_client.c: sends calls to echo_server and checks every answer.
 *
 *   echo_client ADDRESS [CALLS [BYTES]]       e.g. echo_client 10.99.0.1:7471 10000 100
 *
 * Up to DEPTH calls are open at a time. Each is known by its user_data, which comes back with
 * its answer.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <copyrpc.h>

#include "arguments.h"

#define DEPTH 64
#define BYTES_MAX 65536

static uint8_t payload[BYTES_MAX];

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "echo_client: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* Polls until there is something; gives the number of completions. */
static int32_t next(crpc_context *context, crpc_completion *completions)
{
    int32_t count;
    while ((count = crpc_poll(context, completions, DEPTH)) == 0) {
        crpc_wait(context, CRPC_FOREVER);
    }
    return count;
}

/* Opens as many calls as there is room for; gives how many, or an error. */
static int32_t send_calls(crpc_context *context, crpc_endpoint server, uint32_t first,
                          uint32_t count, uint32_t bytes)
{
    crpc_op ops[DEPTH];
    for (uint32_t i = 0; i < count; i++) {
        ops[i] = (crpc_op){.opcode = CRPC_OP_CALL,
                           .endpoint = server,
                           .user_data = first + i,
                           .payload_bytes = bytes,
                           .reply_bytes_max = bytes,
                           .timeout_ns = 10000000000u}; /* 10 s */
    }
    /* A prefix may be taken, for want of room: the rest is for after the next poll. */
    int32_t reason = CRPC_OK;
    int32_t taken = crpc_submit(context, ops, count, payload, bytes, &reason);
    if (taken <= 0 && count && reason != CRPC_E_AGAIN) {
        return taken < 0 ? taken : reason; /* e.g. a message larger than the server's ring takes */
    }
    return taken;
}

static int run(crpc_context *context, crpc_endpoint server, uint32_t calls, uint32_t bytes)
{
    static crpc_completion completions[DEPTH];
    uint32_t sent = 0, answered = 0;
    while (answered < calls) {
        uint32_t room = DEPTH - (sent - answered);
        uint32_t left = calls - sent;
        int32_t taken = send_calls(context, server, sent, left < room ? left : room, bytes);
        if (taken < 0) {
            return failed("call", crpc_status_text(taken));
        }
        sent += (uint32_t)taken;
        int32_t count = next(context, completions);
        for (int32_t i = 0; i < count; i++) {
            const crpc_completion *done = &completions[i];
            if (done->kind != CRPC_COMPLETION_RESPONSE) {
                continue; /* ROOM: there is room again; DISCONNECTED: the calls' status says so */
            }
            if (done->status != CRPC_OK) {
                return failed("call", crpc_status_text(done->status));
            }
            if (done->payload_bytes != bytes ||
                memcmp((const void *)(uintptr_t)done->payload, payload, bytes) != 0) {
                return failed("call", "the answer is not what was sent");
            }
            answered++;
        }
    }
    printf("%u calls of %u bytes answered\n", answered, bytes);
    return EXIT_SUCCESS;
}

/* Gives whether `text` is a number of at most `most`. */
static int number(const char *text, unsigned long most, uint32_t *value)
{
    char *end;
    unsigned long long parsed = strtoull(text, &end, 10);
    *value = (uint32_t)parsed;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && parsed <= most;
}

int main(int argc, char **argv)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_completion completions[DEPTH];
    crpc_context *context;
    crpc_endpoint server;
    uint32_t calls = 10000;
    uint32_t bytes = 100;
    answer_options(argc, argv, "ADDRESS [CALLS [BYTES]]",
                   "Sends calls to echo_server and checks every answer.");
    if (argc < 2 || argc > 4 || (argc > 2 && !number(argv[2], UINT32_MAX, &calls)) ||
        (argc > 3 && !number(argv[3], BYTES_MAX, &bytes))) {
        return failed("usage", "echo_client ADDRESS [CALLS [BYTES up to 65536]]");
    }
    for (uint32_t i = 0; i < bytes; i++) {
        payload[i] = (uint8_t)(i * 7 + 1);
    }
    if (crpc_context_open(NULL, &context, &error) < 0 ||
        crpc_endpoint_connect(context, argv[1], NULL, &server, &error) < 0) {
        return failed(argv[1], error.message);
    }
    next(context, completions); /* CRPC_COMPLETION_CONNECTED, for good or ill */
    if (completions[0].status != CRPC_OK) {
        crpc_endpoint_get_error(context, server, &error);
        return failed(argv[1], error.message);
    }
    int result = run(context, server, calls, bytes);
    if (crpc_endpoint_disconnect(context, server, CRPC_FOREVER) == CRPC_OK) {
        do { /* take leave: what is under way on either side finishes first */
            next(context, completions);
        } while (completions[0].kind != CRPC_COMPLETION_DISCONNECTED);
    }
    crpc_context_close(context);
    return result;
}
