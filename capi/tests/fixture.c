/* fixture.c: see fixture.h. */
#include "base/clock.h"
#include "fixture.h"

struct fixture fixture;

crpc_context *fixture_context(const char *device)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = fixture.flags,
                                    .receive_depth = 1024,
                                    .log_level = CRPC_LOG_DEBUG};
    crpc_context *context;
    snprintf(options.device, sizeof(options.device), "%s", device);
    if (crpc_context_open(&options, &context, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return context;
}

void fixture_connect(const crpc_endpoint_options *options, crpc_endpoint *left,
                     crpc_endpoint *right)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    uint32_t left_bytes = sizeof(left_blob), right_bytes = sizeof(right_blob);
    assert_int_equal(
        crpc_endpoint_blob(fixture.left, options, left, left_blob, &left_bytes, &error), CRPC_OK);
    assert_int_equal(
        crpc_endpoint_blob(fixture.right, options, right, right_blob, &right_bytes, &error),
        CRPC_OK);
    assert_int_equal(crpc_endpoint_join(fixture.left, *left, right_blob, right_bytes, &error),
                     CRPC_OK);
    assert_int_equal(crpc_endpoint_join(fixture.right, *right, left_blob, left_bytes, &error),
                     CRPC_OK);
    assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(fixture_expect(fixture.right, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
}

static int open_on(uint32_t flags, bool infiniband, uint32_t grh_required)
{
    crpc_endpoint_options options = {.struct_size = sizeof(options),
                                     .flags = CRPC_ENDPOINT_FULL_SIZE,
                                     .ring_bytes = 65536,
                                     .calls_max = 64,
                                     .user_data = 4711};
    memset(&fixture, 0, sizeof(fixture));
    fixture.flags = flags;
    memory_fabric_reset_default();
    memory_fabric_options(memory_fabric_default())->retry_steps = 20;
    memory_fabric_options(memory_fabric_default())->infiniband = infiniband;
    memory_fabric_options(memory_fabric_default())->grh_required = grh_required;
    fixture.left = fixture_context("memory0");
    fixture.right = fixture_context("memory1");
    fixture_connect(&options, &fixture.left_endpoint, &fixture.right_endpoint);
    return 0;
}

static int open_all(uint32_t flags)
{
    return open_on(flags, false, 0);
}

int fixture_open_on_infiniband(uint32_t grh_required)
{
    return open_on(CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES | CRPC_CONTEXT_METRICS, true,
                   grh_required);
}

int fixture_open(void **state)
{
    (void)state;
    return open_all(0);
}

int fixture_open_with_rails(void **state)
{
    (void)state;
    return open_all(CRPC_CONTEXT_RAILS);
}

int fixture_open_with_queues(void **state)
{
    (void)state;
    return open_all(CRPC_CONTEXT_QUEUES);
}

int fixture_open_with_metrics(void **state)
{
    (void)state;
    return open_all(CRPC_CONTEXT_METRICS);
}

int fixture_open_with_all(void **state)
{
    (void)state;
    return open_all(CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES | CRPC_CONTEXT_METRICS);
}

int fixture_close(void **state)
{
    (void)state;
    assert_int_equal(crpc_context_close(fixture.left), CRPC_OK);
    assert_int_equal(crpc_context_close(fixture.right), CRPC_OK);
    const struct memory_fabric_counters *counters = memory_fabric_counters(memory_fabric_default());
    assert_int_equal(counters->left_open, 0);
    assert_int_equal(counters->nics, 0);
    assert_int_equal(counters->regions, 0);
    memory_fabric_reset_default();
    return 0;
}

int32_t fixture_poll(crpc_context *context)
{
    fixture.count = crpc_poll(context, fixture.completions, FIXTURE_COMPLETIONS);
    assert_true(fixture.count >= 0);
    return fixture.count;
}

crpc_completion fixture_also(crpc_context *context, uint8_t kind)
{
    for (int tries = 0; tries < 100; tries++) {
        for (int32_t i = 0; i < fixture.count; i++) {
            if (fixture.completions[i].kind == kind) {
                return fixture.completions[i];
            }
        }
        fixture_poll(context);
    }
    fail_msg("no completion of kind %u came", kind);
    return (crpc_completion){0};
}

crpc_completion fixture_expect(crpc_context *context, uint8_t kind)
{
    fixture_poll(context);
    return fixture_also(context, kind);
}

crpc_op fixture_call_op(uint64_t user_data)
{
    return (crpc_op){.opcode = CRPC_OP_CALL,
                     .endpoint = fixture.left_endpoint,
                     .user_data = user_data,
                     .reply_bytes_max = 64};
}

crpc_op fixture_region_op(crpc_region region, uint64_t offset, uint32_t bytes)
{
    crpc_op op = fixture_call_op(1);
    op.flags = CRPC_OP_REGION;
    op.region = region;
    op.payload_offset = offset;
    op.payload_bytes = bytes;
    return op;
}

int32_t fixture_submit(crpc_context *context, const crpc_op *op, const void *payload,
                       uint64_t payload_bytes)
{
    int32_t reason = 12345;
    int32_t taken = crpc_submit(context, op, 1, payload, payload_bytes, &reason);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

crpc_completion fixture_request(uint64_t user_data, const char *text, uint32_t reply_bytes_max)
{
    crpc_op op = fixture_call_op(user_data);
    op.payload_bytes = (uint32_t)strlen(text);
    op.reply_bytes_max = reply_bytes_max;
    assert_int_equal(fixture_submit(fixture.left, &op, text, op.payload_bytes), CRPC_OK);
    crpc_wait(fixture.left, 0); /* sends it, if other calls are open */
    return fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
}

int32_t fixture_reply(const crpc_completion *request, const char *text, uint8_t flags)
{
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = flags,
                  .endpoint = fixture.right_endpoint,
                  .user_data = 900,
                  .token = request->token,
                  .payload_bytes = (uint32_t)strlen(text)};
    return fixture_submit(fixture.right, &op, text, op.payload_bytes);
}

/* ---- Channels -------------------------------------------------------------------------------- */

void fixture_pump(void)
{
    crpc_context *const contexts[2] = {fixture.left, fixture.right};
    for (int side = 0; side < 2; side++) {
        const uint32_t room = FIXTURE_KEPT - fixture.kept_count[side];
        assert_true(room > 0);
        int32_t count = crpc_poll(contexts[side], &fixture.kept[side][fixture.kept_count[side]],
                                  room < FIXTURE_COMPLETIONS ? room : FIXTURE_COMPLETIONS);
        assert_true(count >= 0);
        fixture.kept_count[side] += (uint32_t)count;
    }
}

static bool take_kept(int side, uint8_t kind, crpc_completion *completion)
{
    crpc_completion *kept = fixture.kept[side];
    for (uint32_t i = 0; i < fixture.kept_count[side]; i++) {
        if (kept[i].kind == kind) {
            *completion = kept[i];
            fixture.kept_count[side]--;
            memmove(&kept[i], &kept[i + 1], (fixture.kept_count[side] - i) * sizeof(*kept));
            return true;
        }
    }
    return false;
}

crpc_completion fixture_await(crpc_context *context, uint8_t kind)
{
    const uint64_t end_ns = clock_now_ns() + 60000000000u;
    crpc_completion completion = {0};
    while (!take_kept(context == fixture.right, kind, &completion)) {
        if (clock_now_ns() > end_ns) {
            fail_msg("no completion of kind %u came within 60 s", kind);
        }
        fixture_pump();
    }
    return completion;
}

/* If this process had a pause, the channel was connected with one rail, and the other comes now. */
static void await_rails(crpc_context *context, crpc_channel channel)
{
    const uint64_t end_ns = clock_now_ns() + 60000000000u;
    crpc_channel_info info = {.struct_size = sizeof(info)};
    crpc_completion rail;
    assert_int_equal(crpc_channel_get_info(context, channel, &info), CRPC_OK);
    while (info.rail_state[0] == CRPC_RAIL_DOWN || info.rail_state[1] == CRPC_RAIL_DOWN) {
        assert_true(clock_now_ns() < end_ns);
        fixture_pump();
        assert_int_equal(crpc_channel_get_info(context, channel, &info), CRPC_OK);
    }
    fixture_pump(); /* what is still to be told of it */
    while (take_kept(context == fixture.right, CRPC_COMPLETION_RAIL, &rail)) {
    }
}

void fixture_channels(const crpc_channel_options *options, crpc_channel *left, crpc_channel *right)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    uint32_t left_bytes = sizeof(left_blob), right_bytes = sizeof(right_blob);
    assert_int_equal(crpc_channel_blob(fixture.left, options, left, left_blob, &left_bytes, &error),
                     CRPC_OK);
    assert_int_equal(
        crpc_channel_blob(fixture.right, options, right, right_blob, &right_bytes, &error),
        CRPC_OK);
    if (crpc_channel_join(fixture.left, *left, right_blob, right_bytes, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(crpc_channel_join(fixture.right, *right, left_blob, left_bytes, &error),
                     CRPC_OK);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    await_rails(fixture.left, *left);
    await_rails(fixture.right, *right);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

crpc_queue fixture_lone_queue(crpc_context *context, const crpc_queue_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_queue queue;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    if (crpc_queue_blob(context, options, &queue, blob, &bytes, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return queue;
}

void fixture_queues(const crpc_queue_options *options, crpc_queue *left, crpc_queue *right)
{
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    uint32_t left_bytes = sizeof(left_blob), right_bytes = sizeof(right_blob);
    assert_int_equal(crpc_queue_blob(fixture.left, options, left, left_blob, &left_bytes, &error),
                     CRPC_OK);
    assert_int_equal(
        crpc_queue_blob(fixture.right, options, right, right_blob, &right_bytes, &error), CRPC_OK);
    if (crpc_queue_join(fixture.left, *left, right_blob, right_bytes, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(crpc_queue_join(fixture.right, *right, left_blob, left_bytes, &error),
                     CRPC_OK);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

void fixture_lane(crpc_endpoint *left, crpc_endpoint *right)
{
    fixture_deep_lane(0, left, right);
}

void fixture_deep_lane(uint32_t depth, crpc_endpoint *left, crpc_endpoint *right)
{
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_LANE | CRPC_ENDPOINT_FULL_SIZE,
                                           .user_data = 815,
                                           .ring_bytes = 65536,
                                           .lane_depth = depth};
    fixture_connect(&options, left, right);
    for (uint32_t i = 0; i < 6; i++) {
        fixture_poll(fixture.left);
        assert_int_equal(fixture.count, 0);
        fixture_poll(fixture.right);
        assert_int_equal(fixture.count, 0);
    }
}

int32_t fixture_lane_submit(crpc_context *context, crpc_endpoint endpoint, const crpc_lane_op *op)
{
    int32_t reason = 12345;
    int32_t taken = crpc_lane_submit(context, endpoint, op, 1, NULL, 0, &reason);
    assert_int_equal(taken, reason == CRPC_OK);
    return reason;
}

crpc_grant fixture_grant(crpc_endpoint right, crpc_region region, void *address, uint32_t bytes,
                         uint16_t access)
{
    const crpc_lane_op op = {.opcode = CRPC_LANE_GRANT,
                             .access = access,
                             .bytes = bytes,
                             .user_data = 66,
                             .region = region,
                             .address = (uint64_t)(uintptr_t)address};
    assert_int_equal(fixture_lane_submit(fixture.right, right, &op), CRPC_OK);
    crpc_completion done = fixture_expect(fixture.right, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_OK);
    assert_int_equal(done.method, CRPC_LANE_GRANT);
    assert_int_equal(done.user_data, 66);
    return (crpc_grant){done.token};
}

crpc_grant fixture_open_grant(crpc_endpoint left, crpc_grant grant)
{
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_grant opened;
    assert_int_equal(crpc_grant_get(fixture.right, grant, bytes), CRPC_OK);
    assert_int_equal(crpc_grant_open(fixture.left, left, bytes, sizeof(bytes), &opened, &error),
                     CRPC_OK);
    return opened;
}
