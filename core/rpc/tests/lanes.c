/* lanes.c: see lanes.h. */
#include "lanes.h"

crpc_endpoint_options lanes_options(void)
{
    crpc_endpoint_options options = pair_options();
    options.flags |= CRPC_ENDPOINT_LANE;
    options.request_bytes = 1024;
    return options;
}

struct rpc_endpoint *lanes_of(const struct lanes *lanes, uint32_t side)
{
    return lanes->pair.endpoint[side][0];
}

void lanes_open(struct lanes *lanes)
{
    const crpc_endpoint_options options = lanes_options();
    lanes_open_with(lanes, &options);
}

void lanes_open_with(struct lanes *lanes, const crpc_endpoint_options *options)
{
    crpc_error error = {0};
    memset(lanes, 0, sizeof(*lanes));
    pair_open(&lanes->pair, NULL);
    for (uint32_t side = 0; side < 2; side++) {
        struct nic *nic = lanes->pair.nic[side];
        assert_int_equal(
            nic->operations->memory_register(nic, NULL, lanes->memory[side], LANES_BYTES, 0,
                                             CRPC_ACCESS_LOCAL_WRITE | NIC_ACCESS_WINDOWS,
                                             &lanes->keys[side], &error),
            CRPC_OK);
    }
    pair_connect(&lanes->pair, options, options);
    lanes_settle(lanes);
}

void lanes_close(struct lanes *lanes)
{
    for (uint32_t side = 0; side < 2; side++) {
        rpc_engine_destroy(lanes->pair.engine[side]);
        assert_int_equal(lanes->users[side], 0);
        assert_int_equal(rpc_engine_create(lanes->pair.nic[side], NULL, &lanes->pair.log,
                                           &lanes->pair.handles[side], 1, NULL,
                                           &lanes->pair.engine[side], NULL),
                         CRPC_OK);
        lanes->pair.nic[side]->operations->memory_deregister(lanes->pair.nic[side],
                                                             &lanes->keys[side]);
    }
    pair_close(&lanes->pair);
}

void lanes_count(struct lanes *lanes, uint32_t side)
{
    for (uint32_t i = 0; i < lanes->pair.seen[side].count; i++) {
        const crpc_completion *one = &lanes->pair.seen[side].entries[i];
        lanes->requests += one->kind == CRPC_COMPLETION_REQUEST;
        lanes->rooms += one->kind == CRPC_COMPLETION_ROOM && side == 0;
        if (one->kind == CRPC_COMPLETION_WORK && one->method == LANE_REVOKE) {
            assert_int_equal(one->status, CRPC_OK);
            lanes->revoked++;
        }
    }
}

void lanes_settle(struct lanes *lanes)
{
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            pair_poll(&lanes->pair, side);
            lanes_count(lanes, side);
        }
    }
}

void lanes_expect(struct lanes *lanes, uint32_t side, uint8_t opcode, int32_t status)
{
    uint32_t found = 0;
    pair_poll(&lanes->pair, side);
    for (uint32_t i = 0; i < lanes->pair.seen[side].count; i++) {
        const crpc_completion *one = &lanes->pair.seen[side].entries[i];
        if (one->kind == CRPC_COMPLETION_WORK) {
            assert_int_equal(one->method, opcode);
            assert_int_equal(one->status, status);
            assert_int_equal(one->flags, 0);
            assert_int_equal(one->endpoint.bits, lanes_of(lanes, side)->link.handle);
            found++;
        }
    }
    assert_int_equal(found, 1);
}

int32_t lanes_after(struct rpc_endpoint *endpoint)
{
    const crpc_op op = {
        .opcode = CRPC_OP_CALL, .user_data = 1, .payload_bytes = 8, .reply_bytes_max = 8};
    int32_t status = rpc_after(endpoint, &op, "8 bytes");
    rpc_submit_end(endpoint->engine);
    return status;
}

const struct lane_grant *lanes_grant(struct lanes *lanes)
{
    struct pair *pair = &lanes->pair;
    const struct lane_memory memory = {.keys = &lanes->keys[1],
                                       .users = &lanes->users[1],
                                       .address = (uint64_t)(uintptr_t)lanes->memory[1],
                                       .bytes = LANES_BYTES,
                                       .access =
                                           CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ};
    const crpc_op call = {.opcode = CRPC_OP_CALL, .payload_bytes = LANE_GRANT_BYTES};
    uint8_t bytes[LANE_GRANT_BYTES];
    struct lane_grant *taken;
    crpc_error error = {0};
    assert_int_equal(rpc_lane_give(lanes_of(lanes, 1), &memory, 3), CRPC_OK);
    lanes_expect(lanes, 1, LANE_GRANT, CRPC_OK);
    lanes->grant = pair_find(pair, 1, CRPC_COMPLETION_WORK)->token;
    lane_grant_write(handles_get(&pair->handles[1], lanes->grant, HANDLE_GRANT), bytes);
    assert_int_equal(rpc_call(lanes_of(lanes, 1), &call, bytes), CRPC_OK);
    rpc_submit_end(pair->engine[1]);
    pair_poll(pair, 0);
    const crpc_completion *request = pair_find(pair, 0, CRPC_COMPLETION_REQUEST);
    assert_non_null(request);
    assert_int_equal(rpc_lane_take(lanes_of(lanes, 0), (const void *)(uintptr_t)request->payload,
                                   request->payload_bytes, &taken, &error),
                     CRPC_OK);
    assert_true(rpc_lane_has(lanes_of(lanes, 0), taken));
    const crpc_op drop = {.opcode = CRPC_OP_DROP, .flags = CRPC_OP_QUIET, .token = request->token};
    assert_int_equal(rpc_drop(lanes_of(lanes, 0), &drop), CRPC_OK);
    rpc_submit_end(pair->engine[0]);
    pair_poll(pair, 1);
    pair_poll(pair, 0);
    return taken;
}

int32_t lanes_revoke(struct lanes *lanes, uint64_t timeout_ns)
{
    struct lane_grant *grant = handles_get(&lanes->pair.handles[1], lanes->grant, HANDLE_GRANT);
    return grant ? rpc_lane_revoke(lanes_of(lanes, 1), grant, 4, timeout_ns) : CRPC_E_STALE;
}

struct lane_op lanes_op(const struct lanes *lanes, const struct lane_grant *grant, uint8_t opcode,
                        uint32_t offset, uint32_t bytes)
{
    return (struct lane_op){.opcode = opcode,
                            .bytes = bytes,
                            .local_key = lanes->keys[0].local_key,
                            .remote_key = grant->key,
                            .local_address = (uint64_t)(uintptr_t)lanes->memory[0],
                            .remote_address = grant->address + offset};
}

void lanes_write(struct lanes *lanes, const struct lane_grant *grant, uint32_t offset,
                 uint32_t bytes)
{
    struct lane_op op = lanes_op(lanes, grant, LANE_WRITE, offset, bytes);
    int32_t reason;
    assert_int_equal(rpc_lane_post(lanes_of(lanes, 0), &op, 1, &reason), 1);
    assert_int_equal(reason, CRPC_OK);
}
