/* loop.c: see loop.h. */
#include "loop.h"

#include <string.h>
#include <time.h>

#define RING_BYTES (1u << 20)

static crpc_context *server, *client;
static crpc_endpoint peer;
static crpc_completion completions[BATCH];
static crpc_op ops[BATCH];
static uint8_t requests[BATCH * REQUEST_BYTES], replies[BATCH * REQUEST_BYTES];
static crpc_error error = {.struct_size = sizeof(error)};

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *server_open(const char *address, char *listening, uint32_t bytes)
{
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    if (crpc_context_open(NULL, &server, &error) < 0 ||
        crpc_context_open(NULL, &client, &error) < 0 ||
        crpc_listener_open(server, address, NULL, &listener, &error) < 0) {
        return error.message;
    }
    crpc_listener_get_info(server, listener, &info);
    strncpy(listening, info.address, bytes - 1);
    return NULL;
}

void server_turn(void)
{
    crpc_op answers[BATCH];
    uint32_t count = 0, bytes = 0;
    int32_t polled = crpc_poll(server, completions, BATCH);
    for (int32_t i = 0; i < polled; i++) {
        const crpc_completion *done = &completions[i];
        if (done->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
            crpc_endpoint_accept(server, done->endpoint, NULL, NULL);
        } else if (done->kind == CRPC_COMPLETION_REQUEST) {
            answers[count++] = (crpc_op){.opcode = CRPC_OP_REPLY,
                                         .flags = CRPC_OP_QUIET,
                                         .endpoint = done->endpoint,
                                         .token = done->token,
                                         .payload_offset = bytes,
                                         .payload_bytes = done->payload_bytes};
            memcpy(replies + bytes, (const void *)(uintptr_t)done->payload, done->payload_bytes);
            bytes += done->payload_bytes;
        }
    }
    crpc_submit(server, answers, count, replies, bytes, NULL);
}

const char *c_client_connect(const char *address)
{
    if (crpc_endpoint_connect(client, address, NULL, &peer, &error) < 0) {
        return error.message;
    }
    crpc_completion done;
    while (crpc_poll(client, &done, 1) == 0) {
        server_turn();
    }
    return done.status == CRPC_OK ? NULL : crpc_status_text(done.status);
}

uint64_t c_round(uint64_t *submit_ns, uint64_t *poll_ns)
{
    uint64_t begun_ns = now_ns();
    for (uint32_t i = 0; i < BATCH; i++) {
        ops[i] = (crpc_op){.opcode = CRPC_OP_CALL,
                           .endpoint = peer,
                           .user_data = i,
                           .payload_offset = i * REQUEST_BYTES,
                           .payload_bytes = REQUEST_BYTES,
                           .reply_bytes_max = REQUEST_BYTES};
        memcpy(requests + i * REQUEST_BYTES, &i, sizeof(i));
    }
    if (crpc_submit(client, ops, BATCH, requests, sizeof(requests), NULL) != BATCH) {
        return 0;
    }
    *submit_ns = now_ns() - begun_ns;
    *poll_ns = 0;
    for (uint32_t answered = 0; answered < BATCH;) {
        server_turn();
        begun_ns = now_ns();
        int32_t count = crpc_poll(client, completions, BATCH);
        for (int32_t i = 0; i < count; i++) {
            const crpc_completion *done = &completions[i];
            uint32_t number;
            memcpy(&number, (const void *)(uintptr_t)done->payload, sizeof(number));
            if (done->kind != CRPC_COMPLETION_RESPONSE || done->status != CRPC_OK ||
                number != done->user_data) {
                return 0;
            }
        }
        if (count > 0) {
            *poll_ns += now_ns() - begun_ns;
            answered += (uint32_t)count;
        }
    }
    return *submit_ns + *poll_ns;
}

void close_all(void)
{
    crpc_context_close(client);
    crpc_context_close(server);
}
