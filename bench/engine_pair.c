/* engine_pair.c: see engine_pair.h. */
#include "engine_pair.h"

#include "../core/rpc/tests/blob.h"

#include <stdio.h>
#include <stdlib.h>

static crpc_completion requests[BENCH_DEPTH];
static uint32_t request_count;
static uint8_t payload[BENCH_BYTES];

static void need(int32_t status, const crpc_error *error)
{
    if (status != CRPC_OK) {
        fprintf(stderr, "bench: %s\n", error->message);
        exit(EXIT_FAILURE);
    }
}

static void connect_one(struct engine_pair *pair, uint32_t number)
{
    const crpc_endpoint_options options = {.flags = CRPC_ENDPOINT_FULL_SIZE,
                                           .ring_bytes = number == 0 ? 1u << 20 : 4096,
                                           .request_bytes = number == 0 ? 1u << 19 : 2048,
                                           .calls_max = number == 0 ? BENCH_DEPTH : 1,
                                           .batch_window = number == 0 ? 64 : 1,
                                           .connect_timeout_ns = CRPC_FOREVER,
                                           .keepalive_ns = CRPC_FOREVER,
                                           .retry_timeout = 14,
                                           .retry_count = 7};
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    for (int side = 0; side < 2; side++) {
        need(endpoint_blob(pair->engine[side], &options, &pair->endpoints[side][number], blob[side],
                           &error),
             &error);
    }
    for (int side = 0; side < 2; side++) {
        need(endpoint_join(pair->endpoints[side][number], blob[!side], &error), &error);
    }
}

void engine_pair_open(struct engine_pair *pair, uint32_t endpoints)
{
    const struct nic_options options = {.receive_depth = 4096,
                                        .send_depth = 128,
                                        .send_completion_depth =
                                            nic_send_places(128) * BENCH_ENDPOINTS_MAX,
                                        .signal_interval = 64};
    crpc_error error = {0};
    memory_fabric_reset_default();
    memory_fabric_options(memory_fabric_default())->send_completion_depth_max =
        nic_send_places(128) * BENCH_ENDPOINTS_MAX;
    for (int side = 0; side < 2; side++) {
        handles_init(&pair->handles[side]);
        need(memory_nic_open(memory_fabric_default(), &options, &pair->nic[side], &error), &error);
        need(rpc_engine_create(pair->nic[side], NULL, &pair->log, &pair->handles[side],
                               BENCH_ENDPOINTS_MAX, NULL, &pair->engine[side], &error),
             &error);
    }
    for (uint32_t i = 0; i < endpoints; i++) {
        connect_one(pair, i);
    }
    pair->endpoint_count = endpoints;
    for (int side = 0; side < 2; side++) {
        while (rpc_poll(pair->engine[side], requests, BENCH_DEPTH) > 0) { /* CONNECTED */
        }
    }
    request_count = 0;
}

void engine_pair_close(struct engine_pair *pair)
{
    for (int side = 0; side < 2; side++) {
        rpc_engine_destroy(pair->engine[side]);
        handles_free(&pair->handles[side]);
        pair->nic[side]->operations->close(pair->nic[side]);
    }
    memory_fabric_reset_default();
}

uint32_t engine_pair_submit(struct engine_pair *pair, uint32_t room)
{
    const crpc_op op = {
        .opcode = CRPC_OP_CALL, .payload_bytes = BENCH_BYTES, .reply_bytes_max = BENCH_BYTES};
    uint32_t count = 0;
    while (count < room && rpc_call(pair->endpoints[0][0], &op, payload) == CRPC_OK) {
        count++;
    }
    rpc_submit_end(pair->engine[0]);
    return count;
}

uint32_t engine_pair_client_poll(struct engine_pair *pair)
{
    static crpc_completion responses[BENCH_DEPTH];
    return rpc_poll(pair->engine[0], responses, BENCH_DEPTH);
}

uint32_t engine_pair_server_poll(struct engine_pair *pair)
{
    request_count = rpc_poll(pair->engine[1], requests, BENCH_DEPTH);
    return request_count;
}

void engine_pair_reply(struct engine_pair *pair)
{
    for (uint32_t i = 0; i < request_count; i++) {
        const crpc_op op = {.opcode = CRPC_OP_REPLY,
                            .flags = CRPC_OP_QUIET,
                            .token = requests[i].token,
                            .payload_bytes = requests[i].payload_bytes};
        if (rpc_reply(pair->endpoints[1][0], &op, (const void *)(uintptr_t)requests[i].payload) !=
            CRPC_OK) {
            fprintf(stderr, "bench: a reply was refused\n");
            exit(EXIT_FAILURE);
        }
    }
    request_count = 0;
    rpc_submit_end(pair->engine[1]);
}
