/* pair.c: see pair.h. */
#include "pair.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hold.h"
#include "place.h"

#define ROUND_TRIPS 1000u
#define MESSAGES 20u
/* Longer than what stays on one rail. */
#define MESSAGE_BYTES (128u << 10)
#define PAIRS_MAX 8u

crpc_context *pairs_contexts[2];
static struct pair pairs[PAIRS_MAX];
static uint32_t pair_count;
static uint32_t responses;
static uint8_t sent_bytes[MESSAGE_BYTES], received_bytes[MESSAGE_BYTES];

double pairs_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- Polling --------------------------------------------------------------------------------- */

static void reply(crpc_context *context, const crpc_completion *request)
{
    const crpc_op op = {
        .opcode = CRPC_OP_REPLY, .endpoint = request->endpoint, .token = request->token};
    assert_int_equal(crpc_submit(context, &op, 1, NULL, 0, NULL), 1);
}

static void take(crpc_context *context, const crpc_completion *one)
{
    assert_in_range(one->endpoint_user_data, 0, 2 * pair_count - 1);
    struct pair *pair = &pairs[one->endpoint_user_data / 2];
    uint32_t side = one->endpoint_user_data % 2;
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        pair->seen[side].connected++;
        pair->seen[side].connected_status = one->status;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        pair->seen[side].disconnected++;
        break;
    case CRPC_COMPLETION_REQUEST:
        reply(context, one);
        break;
    case CRPC_COMPLETION_RESPONSE:
        assert_int_equal(one->status, CRPC_OK);
        responses++;
        break;
    case CRPC_COMPLETION_SENT:
    case CRPC_COMPLETION_RECEIVED:
        assert_in_range(one->user_data, 0, PAIR_OPS_MAX - 1);
        pair->seen[side].ended[one->user_data]++;
        pair->seen[side].status[one->user_data] = one->status;
        break;
    default:
        break;
    }
}

uint32_t pairs_pump(void)
{
    crpc_completion completions[16];
    uint32_t sum = 0;
    for (int side = 0; side < 2; side++) {
        int32_t count = crpc_poll(pairs_contexts[side], completions, 16);
        assert_in_range(count, 0, 16);
        for (int32_t i = 0; i < count; i++) {
            take(pairs_contexts[side], &completions[i]);
        }
        sum += (uint32_t)count;
    }
    if (hold_complaint()) {
        fail_msg("%s", hold_complaint());
    }
    return sum;
}

void pairs_expect_sleep(void)
{
    for (int side = 0; side < 2; side++) {
        int32_t armed, status;
        uint32_t tries = 0;
        do {
            while (pairs_pump() > 0) {
            }
            armed = crpc_context_arm(pairs_contexts[side]);
            status = crpc_wait(pairs_contexts[side], 10000000);
            if (++tries > 200) {
                fail_msg("context %d does not sleep: arm %s, wait %s", side,
                         crpc_status_name(armed), crpc_status_name(status));
            }
        } while (armed != CRPC_OK || status != CRPC_E_TIMEOUT);
    }
}

/* ---- Connections ----------------------------------------------------------------------------- */

void pairs_open(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_RAILS,
                                    .initiators = place_initiators()};
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    snprintf(options.rails[0], sizeof(options.rails[0]), "%s", place_device(0));
    snprintf(options.rails[1], sizeof(options.rails[1]), "%s", place_device(1));
    memset(pairs, 0, sizeof(pairs));
    pair_count = 0;
    for (int side = 0; side < 2; side++) {
        if (crpc_context_open(&options, &pairs_contexts[side], &error) != CRPC_OK) {
            fail_msg("%s", error.message);
        }
    }
}

void pairs_close(void)
{
    for (int side = 0; side < 2; side++) {
        assert_int_equal(crpc_context_close(pairs_contexts[side]), CRPC_OK);
    }
    assert_int_equal(hold_left(), 0);
    if (hold_complaint()) {
        fail_msg("%s", hold_complaint());
    }
}

/* One end, of which the blob is there. Nothing but what the test does shall take time: no probes of idle
 * connections, and the transport is patient with a machine that is busy. */
static void make_end(struct pair *pair, uint32_t side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const uint64_t number = 2 * (uint64_t)(pair - pairs) + side;
    const crpc_endpoint_options endpoint_options = {.struct_size = sizeof(endpoint_options),
                                                    .user_data = number,
                                                    .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                                    .keepalive_ns = CRPC_FOREVER,
                                                    .retry_timeout = place_initiators() ? 0 : 16};
    const crpc_channel_options channel_options = {.struct_size = sizeof(channel_options),
                                                  .user_data = number,
                                                  .split = CRPC_SPLIT_FIXED,
                                                  .rail0_share = 0,
                                                  .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                                  .keepalive_ns = CRPC_FOREVER,
                                                  .rail_retry_ns = 10000000,
                                                  .retry_timeout = 16};
    crpc_channel channel;
    crpc_endpoint endpoint;
    int32_t status;
    pair->blob_bytes[side] = CRPC_BLOB_BYTES_MAX;
    if (pair->channel) {
        status = crpc_channel_blob(pairs_contexts[side], &channel_options, &channel,
                                   pair->blobs[side], &pair->blob_bytes[side], &error);
    } else {
        status = crpc_endpoint_blob(pairs_contexts[side], &endpoint_options, &endpoint,
                                    pair->blobs[side], &pair->blob_bytes[side], &error);
    }
    if (status != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    pair->handle[side] = pair->channel ? channel.bits : endpoint.bits;
}

void pair_join(struct pair *pair, uint32_t side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status;
    if (pair->channel) {
        status = crpc_channel_join(pairs_contexts[side], (crpc_channel){pair->handle[side]},
                                   pair->blobs[!side], pair->blob_bytes[!side], &error);
    } else {
        status = crpc_endpoint_join(pairs_contexts[side], (crpc_endpoint){pair->handle[side]},
                                    pair->blobs[!side], pair->blob_bytes[!side], &error);
    }
    if (status != CRPC_OK) {
        fail_msg("%s", error.message);
    }
}

struct pair *pair_make(bool channel)
{
    assert_true(pair_count < PAIRS_MAX);
    struct pair *pair = &pairs[pair_count++];
    pair->channel = channel;
    make_end(pair, 0);
    make_end(pair, 1);
    return pair;
}

void pair_close_end(struct pair *pair, uint32_t side)
{
    int32_t status =
        pair->channel
            ? crpc_channel_close(pairs_contexts[side], (crpc_channel){pair->handle[side]})
            : crpc_endpoint_close(pairs_contexts[side], (crpc_endpoint){pair->handle[side]});
    assert_int_equal(status, CRPC_OK);
}

crpc_error pair_error(struct pair *pair, uint32_t side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = pair->channel
                         ? crpc_channel_get_error(pairs_contexts[side],
                                                  (crpc_channel){pair->handle[side]}, &error)
                         : crpc_endpoint_get_error(pairs_contexts[side],
                                                   (crpc_endpoint){pair->handle[side]}, &error);
    assert_int_equal(status, CRPC_OK);
    return error;
}

void pair_await_connected(struct pair *pair)
{
    UNTIL(pair->seen[0].connected && pair->seen[1].connected);
    for (uint32_t side = 0; side < 2; side++) {
        if (pair->seen[side].connected_status != CRPC_OK) {
            fail_msg("%s", pair_error(pair, side).message);
        }
        assert_int_equal(pair->seen[side].connected, 1);
    }
}

struct pair *pair_connected(bool channel)
{
    struct pair *pair = pair_make(channel);
    pair_join(pair, 0);
    pair_join(pair, 1);
    pair_await_connected(pair);
    return pair;
}

uint32_t pair_rail_state(struct pair *pair, uint32_t side, uint32_t rail)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    assert_int_equal(
        crpc_channel_get_info(pairs_contexts[side], (crpc_channel){pair->handle[side]}, &info),
        CRPC_OK);
    return info.rail_state[rail];
}

void pair_await_rails(struct pair *pair)
{
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t rail = 0; rail < 2; rail++) {
            UNTIL(pair_rail_state(pair, side, rail) == CRPC_RAIL_UP);
        }
    }
}

uint64_t pair_rail_bytes(struct pair *pair, uint32_t rail)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(
        crpc_channel_get_stats(pairs_contexts[0], (crpc_channel){pair->handle[0]}, &stats),
        CRPC_OK);
    return stats.rail_bytes_sent[rail];
}

/* ---- Traffic --------------------------------------------------------------------------------- */

void pair_submit(struct pair *pair, uint32_t side, uint8_t opcode, uint32_t tag, uint64_t user_data)
{
    uint8_t *bytes = opcode == CRPC_CHANNEL_SEND ? sent_bytes : received_bytes;
    const crpc_channel_op op = {.opcode = opcode,
                                .tag = tag,
                                .channel = {pair->handle[side]},
                                .user_data = user_data,
                                .address = (uint64_t)(uintptr_t)bytes,
                                .bytes = MESSAGE_BYTES};
    assert_int_equal(crpc_channel_submit(pairs_contexts[side], &op, 1, NULL), 1);
}

void pair_messages(struct pair *pair)
{
    uint32_t *sent = &pair->seen[0].ended[0], *received = &pair->seen[1].ended[0];
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint32_t before = *sent;
        assert_int_equal(*received, before);
        memset(sent_bytes, (int)(i + 1), MESSAGE_BYTES);
        pair_submit(pair, 1, CRPC_CHANNEL_RECEIVE, 0, 0);
        pair_submit(pair, 0, CRPC_CHANNEL_SEND, 0, 0);
        UNTIL(*sent > before && *received > before);
        assert_int_equal(pair->seen[0].status[0], CRPC_OK);
        assert_int_equal(pair->seen[1].status[0], CRPC_OK);
        assert_memory_equal(sent_bytes, received_bytes, MESSAGE_BYTES);
    }
}

void pair_round_trips(struct pair *pair)
{
    const crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = {pair->handle[0]}};
    for (uint32_t i = 0; i < ROUND_TRIPS; i++) {
        uint32_t before = responses;
        assert_int_equal(crpc_submit(pairs_contexts[0], &op, 1, NULL, 0, NULL), 1);
        UNTIL(responses > before);
    }
}

void pairs_go_on(struct pair *endpoint, struct pair *channel)
{
    pair_round_trips(endpoint);
    pair_messages(channel);
    struct pair *new = pair_connected(false);
    pair_round_trips(new);
    pair_close_end(new, 0);
    pair_close_end(new, 1);
    pairs_expect_sleep();
}

void pairs_open_with_others(struct pair **endpoint, struct pair **channel)
{
    pairs_open();
    *endpoint = pair_connected(false);
    *channel = pair_connected(true);
    pair_await_rails(*channel);
}
