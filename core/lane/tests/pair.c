/* pair.c: see pair.h. */
#include "pair.h"

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

struct memory_fabric *fabric;
struct wheel wheel;
struct side near, far;

/* ---- Both sides ------------------------------------------------------------------------------ */

static void side_lane(struct side *side, uint64_t handle)
{
    const struct lane_options options = {
        .handle = handle, .user_data = handle + 1, .timer_kind = TIMER_GRANT, .depth = 16};
    crpc_error error = {0};
    assert_int_equal(lane_create(side->nic, &side->handles, &options, &side->lane, &error),
                     CRPC_OK);
}

static void side_open(struct side *side, uint64_t handle)
{
    const struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    crpc_error error = {0};
    memset(side, 0, sizeof(*side));
    assert_int_equal(memory_nic_open(fabric, &options, &side->nic, &error), CRPC_OK);
    handles_init(&side->handles);
    assert_int_equal(side->nic->operations->memory_register(
                         side->nic, NULL, side->memory, BYTES, 0,
                         CRPC_ACCESS_LOCAL_WRITE | NIC_ACCESS_WINDOWS, &side->keys, &error),
                     CRPC_OK);
    side_lane(side, handle);
}

static void connect_to(struct side *side, const struct side *other)
{
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic_address address;
    crpc_error error = {0};
    const struct nic_operations *operations = side->nic->operations;
    operations->queue_pair_address(lane_queue_pair(other->lane), &address);
    assert_int_equal(
        operations->queue_pair_connect(lane_queue_pair(side->lane), &address, &transport, &error),
        CRPC_OK);
}

void connect_both(uint32_t life)
{
    connect_to(&near, &far);
    connect_to(&far, &near);
    lane_open(near.lane, &(struct lane_identity){.own = 100, .peer = 200, .life = life});
    lane_open(far.lane, &(struct lane_identity){.own = 200, .peer = 100, .life = life});
}

int open_pair(void **state)
{
    (void)state;
    fabric = memory_fabric_create(1);
    memory_fabric_options(fabric)->mode = MEMORY_IMMEDIATE;
    wheel_init(&wheel, 0);
    side_open(&near, 10);
    side_open(&far, 20);
    connect_both(1);
    return 0;
}

static void side_close(struct side *side)
{
    lane_stop(side->lane, &wheel, CRPC_E_CLOSED);
    lane_destroy(side->lane);
    assert_int_equal(side->users, 0);
    side->nic->operations->memory_deregister(side->nic, &side->keys);
    side->nic->operations->close(side->nic);
    handles_free(&side->handles);
}

int close_pair(void **state)
{
    (void)state;
    side_close(&near);
    side_close(&far);
    assert_int_equal(wheel.count, 0);
    assert_int_equal(memory_fabric_counters(fabric)->left_open, 0);
    memory_fabric_destroy(fabric);
    return 0;
}

static void take(void *argument, const struct nic_completion *completion)
{
    struct side *side = argument;
    if (completion->kind == NIC_COMPLETION_ERROR) {
        lane_device_failed(side->lane, completion);
        lane_stop(side->lane, &wheel, CRPC_E_FLUSHED);
    } else {
        lane_completed(side->lane, completion->completed);
    }
}

void take_completions(struct side *side)
{
    while (nic_drain(side->nic, take, side)) {
    }
}

/* Polls once: what has come is in `seen`. */
void poll_side(struct side *side)
{
    struct output output = {.next = side->seen, .end = side->seen + SEEN_MAX};
    take_completions(side);
    lane_emit(side->lane, &output);
    side->count = (uint32_t)(output.next - side->seen);
}

const crpc_completion *expect_one(struct side *side, uint8_t opcode, int32_t status)
{
    poll_side(side);
    assert_int_equal(side->count, 1);
    assert_int_equal(side->seen[0].kind, CRPC_COMPLETION_WORK);
    assert_int_equal(side->seen[0].flags, 0);
    assert_int_equal(side->seen[0].method, opcode);
    assert_int_equal(side->seen[0].status, status);
    return &side->seen[0];
}

/* Carries the messages of both sides until none is due. */
void talk(void)
{
    struct side *sides[] = {&near, &far};
    bool said = true;
    while (said) {
        said = false;
        for (uint32_t i = 0; i < 2; i++) {
            struct lane *from = sides[i]->lane, *to = sides[1 - i]->lane;
            if (lane_revoke_due(from)) {
                assert_null(lane_take_revoke(to, lane_revoke_say(from)));
                said = true;
            }
            if (lane_answer_due(from)) {
                assert_null(lane_take_answer(to, lane_answer_say(from), &wheel));
                said = true;
            }
        }
    }
}

/* ---- Grants ---------------------------------------------------------------------------------- */

int32_t try_give(struct side *side, uint32_t offset, uint32_t bytes, uint32_t access)
{
    const struct lane_memory memory = {.keys = &side->keys,
                                       .users = &side->users,
                                       .address = (uint64_t)(uintptr_t)side->memory + offset,
                                       .bytes = bytes,
                                       .access = access};
    return lane_give(side->lane, &memory, 7);
}

/* A grant of this side. */
struct lane_grant *give(struct side *side, uint32_t offset, uint32_t bytes, uint32_t access)
{
    assert_int_equal(try_give(side, offset, bytes, access), CRPC_OK);
    const crpc_completion *done = expect_one(side, LANE_GRANT, CRPC_OK);
    assert_int_equal(done->user_data, 7);
    struct lane_grant *grant = handles_get(&side->handles, done->token, HANDLE_GRANT);
    assert_non_null(grant);
    assert_true(lane_grant_revocable(grant));
    return grant;
}

int32_t try_take(struct side *side, const uint8_t *bytes, uint32_t count, struct lane_grant **grant)
{
    crpc_error error = {0};
    int32_t status = lane_take(side->lane, bytes, count, grant, &error);
    assert_int_equal(error.status, status);
    assert_true(status == CRPC_OK || strlen(error.message) > 10);
    return status;
}

/* What the near side makes of a grant of the far side. */
struct lane_grant *take_far(const struct lane_grant *given)
{
    uint8_t bytes[LANE_GRANT_BYTES];
    struct lane_grant *grant;
    lane_grant_write(given, bytes);
    assert_int_equal(try_take(&near, bytes, sizeof(bytes), &grant), CRPC_OK);
    assert_int_equal(grant->address, given->address);
    assert_int_equal(grant->bytes, given->bytes);
    assert_int_equal(grant->access, given->access);
    assert_ptr_equal(handles_get(&near.handles, grant->handle, HANDLE_GRANT), grant);
    return grant;
}

struct lane_op op_on(const struct lane_grant *grant, uint8_t opcode, uint32_t offset,
                     uint32_t bytes)
{
    return (struct lane_op){.opcode = opcode,
                            .bytes = bytes,
                            .local_key = near.keys.local_key,
                            .remote_key = grant->key,
                            .local_address = (uint64_t)(uintptr_t)near.memory,
                            .remote_address = grant->address + offset,
                            .user_data = 900};
}

void post(const struct lane_op *op)
{
    assert_int_equal(lane_post(near.lane, op, 1), 1);
}

/* The near side's lane has failed of an op, and only that. */
void expect_refused(const struct lane_op *op)
{
    uint8_t before[BYTES];
    memcpy(before, far.memory, BYTES);
    post(op);
    expect_one(&near, op->opcode, CRPC_E_ACCESS);
    assert_false(lane_is_open(near.lane));
    assert_int_equal(lane_post(near.lane, op, 1), 0);
    assert_memory_equal(before, far.memory, BYTES);
    poll_side(&near);
    assert_int_equal(near.count, 0);
}
