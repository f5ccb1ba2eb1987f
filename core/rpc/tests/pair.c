/* pair.c: see pair.h. */
#include "pair.h"

bool pair_without_srq;
uint32_t pair_ece[2];
static uint8_t payload[1u << 20];

crpc_endpoint_options pair_options(void)
{
    return (crpc_endpoint_options){.flags = CRPC_ENDPOINT_FULL_SIZE,
                                   .ring_bytes = 4096,
                                   .peer_ring_bytes_max = 64u << 20,
                                   .request_bytes = 2048,
                                   .calls_max = 16,
                                   .batch_window = 8,
                                   .connect_timeout_ns = CRPC_FOREVER,
                                   .keepalive_ns = CRPC_FOREVER,
                                   .retry_timeout = 14,
                                   .retry_count = 7};
}

void pair_open(struct pair *pair, const struct nic_options *given)
{
    struct nic_options options = {.receive_depth = 256,
                                  .send_depth = 32,
                                  .send_completion_depth = 1024,
                                  .signal_interval = 8};
    crpc_error error = {0};
    if (given) {
        options = *given;
    }
    memset(pair, 0, sizeof(*pair));
    pair->clock_ns = 1000000000;
    pair->fabric = memory_fabric_create(1);
    memory_fabric_options(pair->fabric)->mode = MEMORY_IMMEDIATE;
    memory_fabric_options(pair->fabric)->retry_steps = 20;
    memory_fabric_options(pair->fabric)->no_srq = pair_without_srq;
    for (int side = 0; side < 2; side++) {
        handles_init(&pair->handles[side]);
        memory_fabric_options(pair->fabric)->ece[0] = pair_ece[side];
        assert_int_equal(memory_nic_open(pair->fabric, &options, &pair->nic[side], &error),
                         CRPC_OK);
        assert_int_equal(rpc_engine_create(pair->nic[side], NULL, &pair->log, &pair->handles[side],
                                           16, &pair->clock_ns, &pair->engine[side], &error),
                         CRPC_OK);
    }
}

uint32_t pair_connect(struct pair *pair, const crpc_endpoint_options *left,
                      const crpc_endpoint_options *right)
{
    const crpc_endpoint_options *options[2] = {left, right};
    uint8_t blob[2][CRPC_BLOB_BYTES_MAX];
    crpc_error error = {0};
    uint32_t number = pair->connections++;
    for (int side = 0; side < 2; side++) {
        assert_int_equal(endpoint_blob(pair->engine[side], options[side],
                                       &pair->endpoint[side][number], blob[side], &error),
                         CRPC_OK);
    }
    for (int side = 0; side < 2; side++) {
        assert_int_equal(endpoint_join(pair->endpoint[side][number], blob[!side], &error), CRPC_OK);
    }
    for (uint32_t side = 0; side < 2; side++) {
        assert_int_equal(pair_poll(pair, side), 1);
        assert_non_null(pair_find(pair, side, CRPC_COMPLETION_CONNECTED));
    }
    return number;
}

void pair_close(struct pair *pair)
{
    for (int side = 0; side < 2; side++) {
        rpc_engine_destroy(pair->engine[side]);
        handles_free(&pair->handles[side]);
        pair->nic[side]->operations->close(pair->nic[side]);
    }
    assert_int_equal(memory_fabric_counters(pair->fabric)->left_open, 0);
    assert_int_equal(memory_fabric_counters(pair->fabric)->send_overflows, 0);
    assert_int_equal(memory_fabric_counters(pair->fabric)->receive_overflows, 0);
    memory_fabric_destroy(pair->fabric);
}

void pair_begin_with_older(struct pair *pair, uint32_t older, uint32_t features)
{
    const crpc_endpoint_options options = pair_options();
    pair_close(pair);
    pair_open(pair, NULL);
    pair->engine[older]->features_left_out = features;
    pair_connect(pair, &options, &options);
}

uint32_t pair_poll(struct pair *pair, uint32_t side)
{
    struct pair_log *seen = &pair->seen[side];
    seen->count = rpc_poll(pair->engine[side], seen->entries, PAIR_COMPLETIONS);
    return seen->count;
}

const crpc_completion *pair_find(const struct pair *pair, uint32_t side, uint8_t kind)
{
    for (uint32_t i = 0; i < pair->seen[side].count; i++) {
        if (pair->seen[side].entries[i].kind == kind) {
            return &pair->seen[side].entries[i];
        }
    }
    return NULL;
}

int32_t pair_call(struct pair *pair, uint32_t side, uint32_t connection, uint64_t user_data,
                  uint32_t bytes, uint8_t fill, uint32_t reply_bytes_max)
{
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .user_data = user_data,
                  .payload_bytes = bytes,
                  .reply_bytes_max = reply_bytes_max};
    memset(payload, fill, bytes);
    int32_t status = rpc_call(pair->endpoint[side][connection], &op, payload);
    rpc_submit_end(pair->engine[side]);
    return status;
}

int32_t pair_echo(struct pair *pair, uint32_t side, uint32_t connection,
                  const crpc_completion *request, uint8_t flags)
{
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = flags,
                  .user_data = request->token,
                  .token = request->token,
                  .payload_bytes = request->payload_bytes};
    int32_t status =
        rpc_reply(pair->endpoint[side][connection], &op, (const void *)(uintptr_t)request->payload);
    rpc_submit_end(pair->engine[side]);
    return status;
}

void pair_round_trip(struct pair *pair, uint32_t connection)
{
    assert_int_equal(pair_call(pair, 0, connection, 77, 40, 0x5a, 40), CRPC_OK);
    pair_poll(pair, 1);
    const crpc_completion *request = pair_find(pair, 1, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(pair_echo(pair, 1, connection, request, CRPC_OP_QUIET), CRPC_OK);
    pair_poll(pair, 0);
    const crpc_completion *response = pair_find(pair, 0, CRPC_COMPLETION_RESPONSE);
    assert_non_null(response);
    assert_int_equal(response->status, CRPC_OK);
    assert_int_equal(response->user_data, 77);
    assert_int_equal(response->payload_bytes, 40);
    assert_int_equal(*(const uint8_t *)(uintptr_t)response->payload, 0x5a);
}

void pair_close_window(struct pair *pair)
{
    const struct rpc_endpoint *endpoint = pair->endpoint[0][0];
    while (endpoint->out.batches_sent < endpoint->out.batch_limit) {
        assert_int_equal(pair_call(pair, 0, 0, 100, 16, 1, 8), CRPC_OK);
        pair_poll(pair, 0);
    }
}

void pair_expect_end(struct pair *pair, uint64_t user_data, int32_t status, uint32_t polls)
{
    for (uint32_t i = 0; i < polls; i++) {
        pair->clock_ns += 1000000;
        pair_poll(pair, 0);
        const crpc_completion *end = pair_find(pair, 0, CRPC_COMPLETION_RESPONSE);
        if (end) {
            assert_int_equal(end->user_data, user_data);
            assert_int_equal(end->status, status);
            return;
        }
    }
    fail_msg("call %u did not end", (unsigned)user_data);
}
