/* handle_test.c: handles that are zero, garbage, stale, foreign or of another kind, and NULLs,
 * for every function. */
#include <stdlib.h>

#include "fixture.h"
#include "nic/memory/random.h"

/* Every function that takes an endpoint, with arguments that would be good. */
static uint8_t blob[104];
static crpc_channel left_channel, right_channel; /* not connected */
static crpc_queue left_queue, right_queue;       /* likewise */

static crpc_channel new_channel(crpc_context *context)
{
    crpc_channel channel;
    uint8_t unused[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(unused);
    assert_int_equal(crpc_channel_blob(context, NULL, &channel, unused, &bytes, NULL), CRPC_OK);
    return channel;
}

/* A channel and a queue each, too. */
static int open_all_kinds(void **state)
{
    int failed = fixture_open_with_all(state);
    left_channel = new_channel(fixture.left);
    right_channel = new_channel(fixture.right);
    left_queue = fixture_lone_queue(fixture.left, NULL);
    right_queue = fixture_lone_queue(fixture.right, NULL);
    return failed;
}

static int32_t do_accept(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_accept(context, (crpc_endpoint){bits}, NULL, NULL);
}

static int32_t do_reject(crpc_context *context, uint64_t bits)
{
    return crpc_endpoint_reject(context, (crpc_endpoint){bits}, 1);
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

typedef int32_t use(crpc_context *context, uint64_t bits);

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

static use *const grant_uses[] = {do_grant_get, do_grant_close, do_grant_info};
static use *const endpoint_uses[] = {do_lane_submit, do_grant_open, do_accept,  do_reject, do_join,
                                     do_disconnect,  do_close,      do_info,    do_stats,  do_error,
                                     do_commit,      do_abort,      do_reserve, do_retain, do_call,
                                     do_reply,       do_drop,       do_cancel};

static int32_t do_listener_info(crpc_context *context, uint64_t bits)
{
    crpc_listener_info info = {.struct_size = sizeof(info)};
    return crpc_listener_get_info(context, (crpc_listener){bits}, &info);
}

static int32_t do_listener_close(crpc_context *context, uint64_t bits)
{
    return crpc_listener_close(context, (crpc_listener){bits});
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

static use *const listener_uses[] = {do_listener_info, do_listener_close};
static use *const region_uses[] = {do_region_info, do_region_deregister, do_channel_op_in_region};

static int32_t do_channel_accept(crpc_context *context, uint64_t bits)
{
    return crpc_channel_accept(context, (crpc_channel){bits}, NULL, NULL);
}

static int32_t do_channel_reject(crpc_context *context, uint64_t bits)
{
    return crpc_channel_reject(context, (crpc_channel){bits}, 1);
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

static use *const channel_uses[] = {do_channel_accept,     do_channel_reject, do_channel_join,
                                    do_channel_set_share,  do_channel_info,   do_channel_stats,
                                    do_channel_disconnect, do_channel_close,  do_channel_error,
                                    do_channel_receive,    do_channel_send,   do_channel_cancel};

/* ---- Queues ---------------------------------------------------------------------------------- */

static int32_t do_queue_accept(crpc_context *context, uint64_t bits)
{
    return crpc_queue_accept(context, (crpc_queue){bits}, NULL, NULL);
}

static int32_t do_queue_reject(crpc_context *context, uint64_t bits)
{
    return crpc_queue_reject(context, (crpc_queue){bits}, NULL, 0);
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

static use *const queue_uses[] = {
    do_queue_accept, do_queue_reject, do_queue_join,    do_queue_join_address, do_queue_get_address,
    do_queue_fail,   do_queue_drain,  do_queue_close,   do_queue_info,         do_queue_stats,
    do_queue_error,  do_queue_modify, do_queue_submit,  do_receive_queue,      do_queue_reset_stream};

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

static use *const target_uses[] = {do_target_close, do_target_get_address};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void all_stale(use *const *uses, size_t count, crpc_context *context, uint64_t bits)
{
    for (size_t i = 0; i < count; i++) {
        if (uses[i](context, bits) != CRPC_E_STALE) {
            fail_msg("function %zu took the handle %016llx", i, (unsigned long long)bits);
        }
    }
}

static void all_kinds_stale(crpc_context *context, uint64_t bits)
{
    all_stale(endpoint_uses, COUNT(endpoint_uses), context, bits);
    all_stale(listener_uses, COUNT(listener_uses), context, bits);
    all_stale(region_uses, COUNT(region_uses), context, bits);
    all_stale(channel_uses, COUNT(channel_uses), context, bits);
    all_stale(queue_uses, COUNT(queue_uses), context, bits);
    all_stale(target_uses, COUNT(target_uses), context, bits);
    all_stale(grant_uses, COUNT(grant_uses), context, bits);
}

static void zero_and_garbage(void **state)
{
    (void)state;
    struct random_generator random;
    random_seed(&random, 20261121);
    all_kinds_stale(fixture.left, 0);
    all_kinds_stale(fixture.left, UINT64_MAX);
    for (int i = 0; i < 2000; i++) {
        all_kinds_stale(fixture.left, random_next(&random));
    }
    /* One bit off a good one. */
    for (int bit = 0; bit < 64; bit++) {
        all_kinds_stale(fixture.left, fixture.left_endpoint.bits ^ UINT64_C(1) << bit);
        all_kinds_stale(fixture.left, left_channel.bits ^ UINT64_C(1) << bit);
        all_kinds_stale(fixture.left, left_queue.bits ^ UINT64_C(1) << bit);
    }
}

static void of_another_context(void **state)
{
    (void)state;
    all_kinds_stale(fixture.left, fixture.right_endpoint.bits);
    all_kinds_stale(fixture.right, fixture.left_endpoint.bits);
    all_kinds_stale(fixture.left, right_channel.bits);
    all_kinds_stale(fixture.right, left_channel.bits);
    all_kinds_stale(fixture.left, right_queue.bits);
    all_kinds_stale(fixture.right, left_queue.bits);
}

static void of_another_kind(void **state)
{
    (void)state;
    static uint8_t memory[64];
    crpc_region region;
    assert_int_equal(crpc_region_register(fixture.left, memory, sizeof(memory), 0, &region, NULL),
                     CRPC_OK);
    all_stale(endpoint_uses, COUNT(endpoint_uses), fixture.left, region.bits);
    all_stale(listener_uses, COUNT(listener_uses), fixture.left, region.bits);
    all_stale(channel_uses, COUNT(channel_uses), fixture.left, region.bits);
    all_stale(listener_uses, COUNT(listener_uses), fixture.left, fixture.left_endpoint.bits);
    all_stale(region_uses, COUNT(region_uses), fixture.left, fixture.left_endpoint.bits);
    all_stale(channel_uses, COUNT(channel_uses), fixture.left, fixture.left_endpoint.bits);
    all_stale(endpoint_uses, COUNT(endpoint_uses), fixture.left, left_channel.bits);
    all_stale(listener_uses, COUNT(listener_uses), fixture.left, left_channel.bits);
    all_stale(region_uses, COUNT(region_uses), fixture.left, left_channel.bits);
    const uint64_t not_queues[] = {region.bits, fixture.left_endpoint.bits, left_channel.bits};
    for (size_t i = 0; i < COUNT(not_queues); i++) {
        all_stale(queue_uses, COUNT(queue_uses), fixture.left, not_queues[i]);
        all_stale(grant_uses, COUNT(grant_uses), fixture.left, not_queues[i]);
    }
    all_stale(endpoint_uses, COUNT(endpoint_uses), fixture.left, left_queue.bits);
    all_stale(listener_uses, COUNT(listener_uses), fixture.left, left_queue.bits);
    all_stale(region_uses, COUNT(region_uses), fixture.left, left_queue.bits);
    all_stale(channel_uses, COUNT(channel_uses), fixture.left, left_queue.bits);
    all_stale(target_uses, COUNT(target_uses), fixture.left, left_queue.bits);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
    all_kinds_stale(fixture.left, region.bits);
}

static void closed_and_its_slot_used_again(void **state)
{
    (void)state;
    crpc_endpoint old = fixture.left_endpoint, left, right;
    assert_int_equal(crpc_endpoint_close(fixture.left, old), CRPC_OK);
    all_kinds_stale(fixture.left, old.bits);
    for (int i = 0; i < 20; i++) {
        fixture_connect(NULL, &left, &right);
        assert_true(left.bits != old.bits);
        all_kinds_stale(fixture.left, old.bits);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_E_STALE);
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
    }
}

static void a_closed_channel_is_stale_for_ever(void **state)
{
    (void)state;
    crpc_channel old = left_channel;
    assert_int_equal(crpc_channel_close(fixture.left, old), CRPC_OK);
    left_channel = new_channel(fixture.left);
    for (int i = 0; i < 20; i++) {
        crpc_channel channel = new_channel(fixture.left);
        assert_true(channel.bits != old.bits);
        all_kinds_stale(fixture.left, old.bits);
        assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_OK);
        assert_int_equal(crpc_channel_close(fixture.left, channel), CRPC_E_STALE);
    }
}

static void a_closed_queue_is_stale_for_ever(void **state)
{
    (void)state;
    const crpc_queue_options shared = {
        .struct_size = sizeof(shared), .kind = CRPC_QUEUE_KIND_SRQ, .receives = 1};
    const crpc_queue old = left_queue;
    assert_int_equal(crpc_queue_close(fixture.left, old), CRPC_OK);
    left_queue = fixture_lone_queue(fixture.left, NULL);
    for (int i = 0; i < 20; i++) {
        crpc_queue queue, srq;
        queue = fixture_lone_queue(fixture.left, NULL);
        assert_int_equal(crpc_queue_open(fixture.left, &shared, &srq, NULL), CRPC_OK);
        assert_true(queue.bits != old.bits && srq.bits != old.bits);
        all_kinds_stale(fixture.left, old.bits);
        assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_OK);
        assert_int_equal(crpc_queue_close(fixture.left, srq), CRPC_OK);
        assert_int_equal(crpc_queue_close(fixture.left, queue), CRPC_E_STALE);
        all_kinds_stale(fixture.left, srq.bits);
    }
}

/* Grants of both sides are handles of their own context. */
static void grants(void **state)
{
    (void)state;
    static uint8_t memory[64];
    crpc_endpoint left, right;
    crpc_region region;
    crpc_grant old = {0};
    assert_int_equal(crpc_region_register(fixture.right, memory, sizeof(memory),
                                          CRPC_ACCESS_LOCAL_WRITE, &region, NULL),
                     CRPC_OK);
    for (int i = 0; i < 5; i++) {
        fixture_lane(&left, &right);
        crpc_grant given = fixture_grant(right, region, memory, 64, CRPC_ACCESS_REMOTE_WRITE);
        crpc_grant taken = fixture_open_grant(left, given);
        all_kinds_stale(fixture.left, given.bits);
        all_kinds_stale(fixture.right, taken.bits);
        all_kinds_stale(fixture.left, old.bits);
        all_stale(endpoint_uses, COUNT(endpoint_uses), fixture.left, taken.bits);
        all_stale(region_uses, COUNT(region_uses), fixture.left, taken.bits);
        all_stale(queue_uses, COUNT(queue_uses), fixture.left, taken.bits);
        assert_int_equal(crpc_grant_close(fixture.left, taken), CRPC_OK);
        all_kinds_stale(fixture.left, taken.bits);
        taken = fixture_open_grant(left, given);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
        all_kinds_stale(fixture.left, taken.bits);
        all_kinds_stale(fixture.right, given.bits);
        old = taken;
    }
    assert_int_equal(crpc_region_deregister(fixture.right, region), CRPC_OK);
}

/* ---- NULL ------------------------------------------------------------------------------------ */

static void no_context(void **state)
{
    (void)state;
    crpc_completion completion = {0};
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_stats stats = {.struct_size = sizeof(stats)};
    crpc_log_entry entry;
    crpc_endpoint endpoint;
    crpc_listener listener;
    crpc_region region;
    crpc_channel channel;
    crpc_queue queue;
    crpc_cache_info cache = {.struct_size = sizeof(cache)};
    crpc_rail_info rail = {.struct_size = sizeof(rail)};
    uint32_t bytes = sizeof(blob);
    crpc_error error = {.struct_size = sizeof(error)};
    for (size_t i = 0; i < COUNT(endpoint_uses); i++) {
        assert_int_equal(endpoint_uses[i](NULL, fixture.left_endpoint.bits), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < COUNT(listener_uses); i++) {
        assert_int_equal(listener_uses[i](NULL, 0), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < COUNT(region_uses); i++) {
        assert_int_equal(region_uses[i](NULL, 0), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < COUNT(channel_uses); i++) {
        assert_int_equal(channel_uses[i](NULL, left_channel.bits), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < COUNT(queue_uses); i++) {
        assert_int_equal(queue_uses[i](NULL, left_queue.bits), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < COUNT(target_uses); i++) {
        assert_int_equal(target_uses[i](NULL, 0), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < COUNT(grant_uses); i++) {
        assert_int_equal(grant_uses[i](NULL, 0), CRPC_E_INVALID);
    }
    assert_int_equal(crpc_queue_connect(NULL, "a:1", NULL, &queue, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_open(NULL, NULL, &queue, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_blob(NULL, NULL, &queue, blob, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_connect(NULL, "a:1", NULL, &channel, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_blob(NULL, NULL, &channel, blob, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_region_register_dmabuf(NULL, 0, 0, 1, 0, 0, &region, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_cache_forget(NULL, NULL, 0), CRPC_E_INVALID);
    assert_int_equal(crpc_cache_get_info(NULL, &cache), CRPC_E_INVALID);
    assert_int_equal(crpc_rail_get_info(NULL, 0, &rail), CRPC_E_INVALID);
    assert_int_equal(crpc_poll(NULL, &completion, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_wait(NULL, 0), CRPC_E_INVALID);
    assert_int_equal(crpc_context_fd(NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_context_arm(NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_context_get_info(NULL, &info), CRPC_E_INVALID);
    assert_int_equal(crpc_context_get_stats(NULL, &stats), CRPC_E_INVALID);
    assert_int_equal(crpc_context_log(NULL, &entry, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_context_close(NULL), CRPC_OK);
    assert_int_equal(crpc_endpoint_connect(NULL, "a:1", NULL, &endpoint, &error), CRPC_E_INVALID);
    assert_true(strlen(error.message) > 0);
    assert_int_equal(crpc_endpoint_blob(NULL, NULL, &endpoint, blob, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_listener_open(NULL, "a:1", NULL, &listener, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_region_register(NULL, blob, 1, 0, &region, NULL), CRPC_E_INVALID);
}

static void no_memory_to_read_or_write(void **state)
{
    (void)state;
    crpc_context *left = fixture.left;
    crpc_endpoint endpoint = fixture.left_endpoint, other;
    crpc_op op = fixture_call_op(1);
    crpc_completion completion = {0};
    crpc_region region;
    crpc_listener listener;
    uint32_t bytes = sizeof(blob);
    int32_t reason;
    void *address;
    assert_int_equal(crpc_context_open(NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_device_query(0, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_submit(left, NULL, 1, NULL, 0, &reason), CRPC_E_INVALID);
    assert_int_equal(reason, CRPC_E_INVALID);
    reason = CRPC_E_INVALID;
    assert_int_equal(crpc_submit(left, NULL, 0, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_OK);
    assert_int_equal(crpc_submit(left, &op, 1, NULL, 8, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_submit(left, &op, UINT32_MAX, NULL, 0, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_poll(left, NULL, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_poll(left, &completion, 0), CRPC_E_INVALID);
    assert_int_equal(crpc_poll(left, &completion, (1u << 20) + 1), CRPC_E_INVALID);
    assert_int_equal(crpc_context_log(left, NULL, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_context_log(left, NULL, 0), 0);
    assert_int_equal(crpc_retain(left, NULL, blob, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_retain(left, &completion, NULL, 1), CRPC_E_INVALID);
    assert_int_equal(crpc_reserve(left, NULL, &address), CRPC_E_INVALID);
    assert_int_equal(crpc_reserve(left, &op, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_connect(left, NULL, NULL, &other, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_connect(left, "a:1", NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_blob(left, NULL, NULL, blob, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_blob(left, NULL, &other, NULL, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_blob(left, NULL, &other, blob, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_endpoint_join(left, endpoint, NULL, 104, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_listener_open(left, NULL, NULL, &listener, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_listener_open(left, "a:1", NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_region_register(left, NULL, 1, 0, &region, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_region_register(left, blob, 0, 0, &region, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_region_register(left, blob, UINT64_MAX, 0, &region, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_region_register(left, blob, 1, 0, NULL, NULL), CRPC_E_INVALID);
}

static void no_memory_for_a_channel(void **state)
{
    (void)state;
    crpc_context *left = fixture.left;
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND, .channel = left_channel};
    crpc_channel other;
    crpc_region region;
    uint32_t bytes = sizeof(blob);
    int32_t reason;
    assert_int_equal(crpc_channel_submit(left, NULL, 1, &reason), CRPC_E_INVALID);
    assert_int_equal(reason, CRPC_E_INVALID);
    assert_int_equal(crpc_channel_submit(left, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_OK);
    assert_int_equal(crpc_channel_submit(left, &op, UINT32_MAX, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_connect(left, NULL, NULL, &other, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_connect(left, "a:1", NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_blob(left, NULL, NULL, blob, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_blob(left, NULL, &other, NULL, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_blob(left, NULL, &other, blob, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_channel_join(left, left_channel, NULL, 104, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_region_register_dmabuf(left, -1, 0, 1, 0, 0, &region, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_region_register_dmabuf(left, 0, 0, 1, 0, 0, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_cache_forget(left, blob, UINT64_MAX), CRPC_E_INVALID);
    assert_int_equal(crpc_cache_get_info(left, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_rail_get_info(left, 0, NULL), CRPC_E_INVALID);
}

static void no_memory_for_a_queue(void **state)
{
    (void)state;
    crpc_context *left = fixture.left;
    crpc_queue other;
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_queue_open(left, NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_connect(left, NULL, NULL, &other, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_connect(left, "a:1", NULL, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_blob(left, NULL, NULL, blob, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_blob(left, NULL, &other, NULL, &bytes, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_blob(left, NULL, &other, blob, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_join(left, left_queue, NULL, 104, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_join_address(left, left_queue, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_modify(left, left_queue, NULL, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_get_address(left, left_queue, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_queue_reject(left, left_queue, NULL, 1), CRPC_E_INVALID);
}

static void a_blob_without_room_tells_how_much(void **state)
{
    (void)state;
    crpc_endpoint endpoint = {0};
    uint32_t bytes = 10;
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, NULL),
                     CRPC_E_TOO_BIG);
    assert_int_equal(bytes, 104);
    assert_int_equal(endpoint.bits, 0);
    crpc_channel channel = {0};
    bytes = 103;
    assert_int_equal(crpc_channel_blob(fixture.left, NULL, &channel, blob, &bytes, NULL),
                     CRPC_E_TOO_BIG);
    assert_int_equal(bytes, 104);
    assert_int_equal(channel.bits, 0);
    crpc_queue queue = {0};
    bytes = 103;
    assert_int_equal(crpc_queue_blob(fixture.left, NULL, &queue, blob, &bytes, NULL),
                     CRPC_E_TOO_BIG);
    assert_int_equal(bytes, 104);
    assert_int_equal(queue.bits, 0);
}

int main(void)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, open_all_kinds, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(zero_and_garbage),
        WITH_FIXTURE(of_another_context),
        WITH_FIXTURE(of_another_kind),
        WITH_FIXTURE(closed_and_its_slot_used_again),
        WITH_FIXTURE(a_closed_channel_is_stale_for_ever),
        WITH_FIXTURE(a_closed_queue_is_stale_for_ever),
        WITH_FIXTURE(grants),
        WITH_FIXTURE(no_context),
        WITH_FIXTURE(no_memory_to_read_or_write),
        WITH_FIXTURE(no_memory_for_a_channel),
        WITH_FIXTURE(no_memory_for_a_queue),
        WITH_FIXTURE(a_blob_without_room_tells_how_much),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
