/* handle_uses.c: see handle_uses.h. */
#include "handle_uses.h"

#include "fixture.h"

crpc_channel left_channel, right_channel;

static uint8_t blob[104];

static int32_t do_accept(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_accept(context, (crpc_endpoint){bits}, NULL, NULL);
}

static int32_t do_reject(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_reject(context, (crpc_endpoint){bits}, 1);
}

/* Any other. */
static crpc_context *beside(const crpc_context *context)
{
    return context == fixture.left ? fixture.right : fixture.left;
}

static int32_t do_hand_over(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_hand_over(context, (crpc_endpoint){bits}, beside(context), 0, NULL);
}

static int32_t do_join(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_join(context, (crpc_endpoint){bits}, blob, sizeof(blob), NULL);
}

static int32_t do_disconnect(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_disconnect(context, (crpc_endpoint){bits}, CRPC_FOREVER);
}

static int32_t do_close(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_close(context, (crpc_endpoint){bits});
}

static int32_t do_info(crpc_context *context, uint64_t bits)
{
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    return crpc_endpoint_get_info(context, (crpc_endpoint){bits}, &info);
}

static int32_t do_stats(crpc_context *context, uint64_t bits)
{
    crpc_stats stats = {.struct_size = sizeof(stats)};
    return crpc_endpoint_get_stats(context, (crpc_endpoint){bits}, &stats);
}

static int32_t do_error(crpc_context *context, uint64_t bits)
{
    crpc_error error = {.struct_size = sizeof(error)};
    return crpc_endpoint_get_error(context, (crpc_endpoint){bits}, &error);
}

static int32_t do_commit(crpc_context *context, uint64_t bits)
{
    return crpc_commit(context, (crpc_endpoint){bits}, 0);
}

static int32_t do_abort(crpc_context *context, uint64_t bits)
{
    return crpc_abort(context, (crpc_endpoint){bits});
}

static int32_t do_reserve(crpc_context *context, uint64_t bits)
{
    void *address;
    crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = {bits}};
    return crpc_reserve(context, &op, &address);
}

static int32_t do_retain(crpc_context *context, uint64_t bits)
{
    crpc_completion completion = {.endpoint = {bits}};
    return crpc_retain(context, &completion, NULL, 0);
}

static int32_t do_op(crpc_context *context, uint64_t bits, uint8_t opcode)
{
    crpc_op op = {.opcode = opcode, .endpoint = {bits}};
    int32_t reason;
    if (!context) {
        return crpc_submit(context, &op, 1, NULL, 0, &reason);
    }
    assert_int_equal(crpc_submit(context, &op, 1, NULL, 0, &reason), 0);
    return reason;
}

static int32_t do_call(crpc_context *context, uint64_t bits)
{
    return do_op(context, bits, CRPC_OP_CALL);
}

static int32_t do_reply(crpc_context *context, uint64_t bits)
{
    return do_op(context, bits, CRPC_OP_REPLY);
}

static int32_t do_drop(crpc_context *context, uint64_t bits)
{
    return do_op(context, bits, CRPC_OP_DROP);
}

static int32_t do_cancel(crpc_context *context, uint64_t bits)
{
    return do_op(context, bits, CRPC_OP_CANCEL);
}

static int32_t do_lane_submit(crpc_context *context, uint64_t bits)
{
    const crpc_lane_op op = {.opcode = CRPC_LANE_READ};
    int32_t reason;
    if (!context) {
        return crpc_lane_submit(context, (crpc_endpoint){bits}, &op, 1, NULL, 0, &reason);
    }
    assert_int_equal(crpc_lane_submit(context, (crpc_endpoint){bits}, &op, 1, NULL, 0, &reason), 0);
    return reason;
}

static int32_t do_grant_open(crpc_context *context, uint64_t bits)
{
    crpc_grant grant;
    return crpc_grant_open(context, (crpc_endpoint){bits}, blob, CRPC_GRANT_BYTES, &grant, NULL);
}

static int32_t do_grant_get(crpc_context *context, uint64_t bits)
{
    uint8_t bytes[CRPC_GRANT_BYTES];
    return crpc_grant_get(context, (crpc_grant){bits}, bytes);
}

static int32_t do_grant_close(crpc_context *context, uint64_t bits)
{
    return crpc_grant_close(context, (crpc_grant){bits});
}

static int32_t do_grant_info(crpc_context *context, uint64_t bits)
{
    crpc_grant_info info = {.struct_size = sizeof(info)};
    return crpc_grant_get_info(context, (crpc_grant){bits}, &info);
}

static int32_t do_arena_lend(crpc_context *context, uint64_t bits)
{
    return crpc_arena_lend(context, (crpc_endpoint){bits}, (crpc_region){0}, 0, 64, 1, NULL);
}

static int32_t do_arena_give_back(crpc_context *context, uint64_t bits)
{
    return crpc_arena_give_back(context, (crpc_endpoint){bits}, 0);
}

static use *const of_grants[] = {do_grant_get, do_grant_close, do_grant_info};
static use *const of_endpoints[] = {
    do_lane_submit, do_grant_open, do_accept,         do_reject, do_hand_over, do_join,
    do_disconnect,  do_close,      do_info,           do_stats,  do_error,     do_commit,
    do_abort,       do_reserve,    do_retain,         do_call,   do_reply,     do_drop,
    do_cancel,      do_arena_lend, do_arena_give_back};

static int32_t do_listener_info(crpc_context *context, uint64_t bits)
{
    crpc_listener_info info = {.struct_size = sizeof(info)};
    return crpc_listener_get_info(context, (crpc_listener){bits}, &info);
}

static int32_t do_listener_close(crpc_context *context, uint64_t bits)
{
    return crpc_listener_close(context, (crpc_listener){bits});
}

static int32_t do_listener_drain(crpc_context *context, uint64_t bits)
{
    return crpc_listener_drain(context, (crpc_listener){bits}, 0);
}

static int32_t do_region_info(crpc_context *context, uint64_t bits)
{
    crpc_region_info info = {.struct_size = sizeof(info)};
    return crpc_region_get_info(context, (crpc_region){bits}, &info);
}

static int32_t do_region_deregister(crpc_context *context, uint64_t bits)
{
    return crpc_region_deregister(context, (crpc_region){bits});
}

static int32_t do_region_prepare(crpc_context *context, uint64_t bits)
{
    return crpc_region_prepare(
        context, (crpc_region){bits},
        context == fixture.right ? fixture.right_endpoint : fixture.left_endpoint, NULL);
}

/* Of an endpoint that is good. */
static int32_t do_region_lend(crpc_context *context, uint64_t bits)
{
    return crpc_arena_lend(
        context, context == fixture.right ? fixture.right_endpoint : fixture.left_endpoint,
        (crpc_region){bits}, 0, 64, 1, NULL);
}

/* An op that names the region, of a channel that is good. */
static int32_t do_channel_op_in_region(crpc_context *context, uint64_t bits)
{
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND,
                          .channel = context == fixture.right ? right_channel : left_channel,
                          .region = {bits}};
    int32_t reason;
    if (!context || bits == 0) { /* no region is allowed */
        return context ? CRPC_E_STALE : crpc_channel_submit(context, &op, 1, NULL);
    }
    assert_int_equal(crpc_channel_submit(context, &op, 1, &reason), 0);
    return reason;
}

static use *const of_listeners[] = {do_listener_info, do_listener_close, do_listener_drain};
static use *const of_regions[] = {do_region_info, do_region_deregister, do_region_prepare,
                                  do_region_lend, do_channel_op_in_region};

static int32_t do_channel_accept(crpc_context *context, uint64_t bits)
{
    return crpc_channel_accept(context, (crpc_channel){bits}, NULL, NULL);
}

static int32_t do_channel_reject(crpc_context *context, uint64_t bits)
{
    return crpc_channel_reject(context, (crpc_channel){bits}, 1);
}

static int32_t do_channel_hand_over(crpc_context *context, uint64_t bits)
{
    return crpc_channel_hand_over(context, (crpc_channel){bits}, beside(context), 0, NULL);
}

static int32_t do_channel_join(crpc_context *context, uint64_t bits)
{
    return crpc_channel_join(context, (crpc_channel){bits}, blob, sizeof(blob), NULL);
}

static int32_t do_channel_set_share(crpc_context *context, uint64_t bits)
{
    return crpc_channel_set_share(context, (crpc_channel){bits}, 512);
}

static int32_t do_channel_disconnect(crpc_context *context, uint64_t bits)
{
    return crpc_channel_disconnect(context, (crpc_channel){bits}, CRPC_FOREVER);
}

static int32_t do_channel_close(crpc_context *context, uint64_t bits)
{
    return crpc_channel_close(context, (crpc_channel){bits});
}

static int32_t do_channel_info(crpc_context *context, uint64_t bits)
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    return crpc_channel_get_info(context, (crpc_channel){bits}, &info);
}

static int32_t do_channel_stats(crpc_context *context, uint64_t bits)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    return crpc_channel_get_stats(context, (crpc_channel){bits}, &stats);
}

static int32_t do_channel_error(crpc_context *context, uint64_t bits)
{
    crpc_error error = {.struct_size = sizeof(error)};
    return crpc_channel_get_error(context, (crpc_channel){bits}, &error);
}

static int32_t do_channel_op(crpc_context *context, uint64_t bits, uint8_t opcode)
{
    crpc_channel_op op = {.opcode = opcode, .channel = {bits}};
    int32_t reason;
    if (!context) {
        return crpc_channel_submit(context, &op, 1, &reason);
    }
    assert_int_equal(crpc_channel_submit(context, &op, 1, &reason), 0);
    return reason;
}

static int32_t do_channel_receive(crpc_context *context, uint64_t bits)
{
    return do_channel_op(context, bits, CRPC_CHANNEL_RECEIVE);
}

static int32_t do_channel_send(crpc_context *context, uint64_t bits)
{
    return do_channel_op(context, bits, CRPC_CHANNEL_SEND);
}

static int32_t do_channel_cancel(crpc_context *context, uint64_t bits)
{
    return do_channel_op(context, bits, CRPC_CHANNEL_CANCEL);
}

static use *const of_channels[] = {do_channel_accept, do_channel_reject,     do_channel_hand_over,
                                   do_channel_join,   do_channel_set_share,  do_channel_info,
                                   do_channel_stats,  do_channel_disconnect, do_channel_close,
                                   do_channel_error,  do_channel_receive,    do_channel_send,
                                   do_channel_cancel};

/* ---- Queues ---------------------------------------------------------------------------------- */

static int32_t do_queue_accept(crpc_context *context, uint64_t bits)
{
    return crpc_queue_accept(context, (crpc_queue){bits}, NULL, NULL);
}

static int32_t do_queue_reject(crpc_context *context, uint64_t bits)
{
    return crpc_queue_reject(context, (crpc_queue){bits}, NULL, 0);
}

static int32_t do_queue_hand_over(crpc_context *context, uint64_t bits)
{
    return crpc_queue_hand_over(context, (crpc_queue){bits}, beside(context), 0, NULL);
}

static int32_t do_queue_join(crpc_context *context, uint64_t bits)
{
    return crpc_queue_join(context, (crpc_queue){bits}, blob, sizeof(blob), NULL);
}

static int32_t do_queue_join_address(crpc_context *context, uint64_t bits)
{
    const crpc_queue_address address = {.struct_size = sizeof(address)};
    return crpc_queue_join_address(context, (crpc_queue){bits}, &address, NULL);
}

static int32_t do_queue_get_address(crpc_context *context, uint64_t bits)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    return crpc_queue_get_address(context, (crpc_queue){bits}, &address);
}

static int32_t do_queue_modify(crpc_context *context, uint64_t bits)
{
    const crpc_queue_change change = {.struct_size = sizeof(change)};
    return crpc_queue_modify(context, (crpc_queue){bits}, &change, NULL);
}

static int32_t do_queue_fail(crpc_context *context, uint64_t bits)
{
    return crpc_queue_fail(context, (crpc_queue){bits});
}

static int32_t do_queue_drain(crpc_context *context, uint64_t bits)
{
    return crpc_queue_drain(context, (crpc_queue){bits}, CRPC_FOREVER);
}

static int32_t do_queue_reset_stream(crpc_context *context, uint64_t bits)
{
    return crpc_queue_reset_stream(context, (crpc_queue){bits}, 0);
}

static int32_t do_queue_close(crpc_context *context, uint64_t bits)
{
    return crpc_queue_close(context, (crpc_queue){bits});
}

static int32_t do_queue_info(crpc_context *context, uint64_t bits)
{
    crpc_queue_info info = {.struct_size = sizeof(info)};
    return crpc_queue_get_info(context, (crpc_queue){bits}, &info);
}

static int32_t do_queue_stats(crpc_context *context, uint64_t bits)
{
    crpc_queue_stats stats = {.struct_size = sizeof(stats)};
    return crpc_queue_get_stats(context, (crpc_queue){bits}, &stats);
}

static int32_t do_queue_error(crpc_context *context, uint64_t bits)
{
    crpc_error error = {.struct_size = sizeof(error)};
    return crpc_queue_get_error(context, (crpc_queue){bits}, &error);
}

static int32_t do_queue_submit(crpc_context *context, uint64_t bits)
{
    const crpc_queue_op op = {.opcode = CRPC_QUEUE_NOP};
    int32_t reason;
    if (!context) {
        return crpc_queue_submit(context, (crpc_queue){bits}, &op, 1, NULL, 0, &reason);
    }
    assert_int_equal(crpc_queue_submit(context, (crpc_queue){bits}, &op, 1, NULL, 0, &reason), 0);
    return reason;
}

static int32_t do_receive_queue(crpc_context *context, uint64_t bits)
{
    const crpc_queue_options options = {.struct_size = sizeof(options), .receive_queue = {bits}};
    crpc_queue queue;
    uint8_t unused[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(unused);
    if (bits == 0 && context) {
        return CRPC_E_STALE; /* it means none */
    }
    return crpc_queue_blob(context, &options, &queue, unused, &bytes, NULL);
}

static use *const of_queues[] = {
    do_queue_accept,       do_queue_reject,      do_queue_hand_over, do_queue_join,
    do_queue_join_address, do_queue_get_address, do_queue_fail,      do_queue_drain,
    do_queue_close,        do_queue_info,        do_queue_stats,     do_queue_error,
    do_queue_modify,       do_queue_submit,      do_receive_queue,   do_queue_reset_stream};

/* ---- Targets --------------------------------------------------------------------------------- */

static int32_t do_target_close(crpc_context *context, uint64_t bits)
{
    return crpc_target_close(context, (crpc_target){bits});
}

static int32_t do_target_get_address(crpc_context *context, uint64_t bits)
{
    crpc_queue_address address = {.struct_size = sizeof(address)};
    return crpc_target_get_address(context, (crpc_target){bits}, &address);
}

static use *const of_targets[] = {do_target_close, do_target_get_address};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const struct uses endpoint_uses = {of_endpoints, COUNT(of_endpoints)};
const struct uses listener_uses = {of_listeners, COUNT(of_listeners)};
const struct uses region_uses = {of_regions, COUNT(of_regions)};
const struct uses channel_uses = {of_channels, COUNT(of_channels)};
const struct uses queue_uses = {of_queues, COUNT(of_queues)};
const struct uses target_uses = {of_targets, COUNT(of_targets)};
const struct uses grant_uses = {of_grants, COUNT(of_grants)};
