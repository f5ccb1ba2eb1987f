/* lane_test.c: lanes over a device, in one process: one context listens, another connects by rdma_cm, with
 * and without a key. Each opcode, large transfers, order with calls, and what the device does with peers that
 * use what they were not granted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "kept.h"
#include "leave_out.h"
#include "place.h"

#define SECONDS_MAX 60
#define BYTES (4u << 20)
#define ALL_ACCESS (CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC)

struct side {
    crpc_context *context;
    crpc_endpoint endpoint;
    crpc_region region;
    uint8_t *memory;
    struct kept kept; /* that nobody has awaited */
};

static struct side here, there; /* connects, and listens */

/* ---- Both sides ------------------------------------------------------------------------------ */

static void keep(struct side *side)
{
    kept_poll(&side->kept, side->context);
}

/* Polls both until this side has such a completion. Views do not last. */
static crpc_completion await(struct side *side, uint8_t kind)
{
    crpc_completion found = {0};
    time_t end = time(NULL) + SECONDS_MAX;
    while (!kept_take(&side->kept, kind, &found)) {
        if (time(NULL) >= end) {
            fail_msg("completion %u did not come in %d s", kind, SECONDS_MAX);
        }
        keep(&here);
        keep(&there);
    }
    return found;
}

static void open_side(struct side *side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options), .features = PLACE_FEATURES};
    memset(side, 0, sizeof(*side));
    snprintf(options.device, sizeof(options.device), "%s", place_device(0));
    side->memory = aligned_alloc(4096, BYTES);
    assert_non_null(side->memory);
    memset(side->memory, 0, BYTES);
    if (crpc_context_open(&options, &side->context, &error) != CRPC_OK ||
        crpc_region_register(side->context, side->memory, BYTES, CRPC_ACCESS_LOCAL_WRITE,
                             &side->region, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
}

static void close_side(struct side *side)
{
    assert_int_equal(crpc_context_close(side->context), CRPC_OK);
    free(side->memory);
}

static crpc_endpoint_options endpoint_options(bool key)
{
    crpc_endpoint_options options = {.struct_size = sizeof(options),
                                     .flags = CRPC_ENDPOINT_LANE,
                                     .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                     .retry_timeout = place_retry_timeout(),
                                     .key_bytes = key ? 32 : 0};
    memset(options.key, 7, options.key_bytes);
    return options;
}

static void connect(const crpc_endpoint_options *ours, const crpc_endpoint_options *theirs)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener listener;
    crpc_listener_info info = {.struct_size = sizeof(info)};
    char address[128];
    snprintf(address, sizeof(address), "%s:0", place_address(0));
    if (crpc_listener_open(there.context, address, NULL, &listener, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(crpc_listener_get_info(there.context, listener, &info), CRPC_OK);
    assert_int_equal(
        crpc_endpoint_connect(here.context, info.address, ours, &here.endpoint, &error), CRPC_OK);
    there.endpoint = await(&there, CRPC_COMPLETION_CONNECT_REQUEST).endpoint;
    assert_int_equal(crpc_endpoint_accept(there.context, there.endpoint, theirs, &error), CRPC_OK);
    assert_int_equal(await(&here, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_CONNECTED).status, CRPC_OK);
    assert_int_equal(crpc_listener_close(there.context, listener), CRPC_OK);
}

static int open_both(void **state)
{
    crpc_endpoint_options options = endpoint_options(*state != NULL);
    open_side(&here);
    open_side(&there);
    connect(&options, &options);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    close_side(&here);
    close_side(&there);
    return 0;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

/* Submits an op, as soon as there is a lane. */
static void submit(struct side *side, const crpc_lane_op *op)
{
    int32_t reason;
    while (crpc_lane_submit(side->context, side->endpoint, op, 1, NULL, 0, &reason) != 1) {
        assert_int_equal(reason, CRPC_E_AGAIN);
        await(side, CRPC_COMPLETION_ROOM);
    }
}

static crpc_completion await_work(struct side *side, uint8_t opcode, int32_t status)
{
    crpc_completion done = await(side, CRPC_COMPLETION_WORK);
    assert_int_equal(done.method, opcode);
    assert_int_equal(done.status, status);
    assert_int_equal(done.endpoint.bits, side->endpoint.bits);
    return done;
}

static crpc_grant give(struct side *side, uint32_t offset, uint32_t bytes, uint16_t access)
{
    const crpc_lane_op op = {.opcode = CRPC_LANE_GRANT,
                             .access = access,
                             .bytes = bytes,
                             .region = side->region,
                             .address = (uint64_t)(uintptr_t)side->memory + offset};
    submit(side, &op);
    return (crpc_grant){await_work(side, CRPC_LANE_GRANT, CRPC_OK).token};
}

/* The bytes of a grant of `there`, as they came to `here`; both have a lane then. */
static void carry(crpc_grant given, uint8_t bytes[CRPC_GRANT_BYTES])
{
    const crpc_op call = {
        .opcode = CRPC_OP_CALL, .endpoint = there.endpoint, .payload_bytes = CRPC_GRANT_BYTES};
    uint8_t ours[CRPC_GRANT_BYTES];
    int32_t reason;
    assert_int_equal(crpc_grant_get(there.context, given, ours), CRPC_OK);
    assert_int_equal(crpc_submit(there.context, &call, 1, ours, sizeof(ours), &reason), 1);
    crpc_completion request;
    do { /* here alone: the view must last */
        keep(&there);
    } while (crpc_poll(here.context, &request, 1) != 1 || request.kind != CRPC_COMPLETION_REQUEST);
    assert_int_equal(crpc_retain(here.context, &request, bytes, CRPC_GRANT_BYTES),
                     CRPC_GRANT_BYTES);
    const crpc_op drop = {.opcode = CRPC_OP_DROP,
                          .flags = CRPC_OP_QUIET,
                          .endpoint = here.endpoint,
                          .token = request.token};
    assert_int_equal(crpc_submit(here.context, &drop, 1, NULL, 0, &reason), 1);
    await(&there, CRPC_COMPLETION_RESPONSE);
}

static crpc_grant open_grant(crpc_grant given)
{
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_grant grant;
    carry(given, bytes);
    if (crpc_grant_open(here.context, here.endpoint, bytes, sizeof(bytes), &grant, &error) !=
        CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return grant;
}

static crpc_lane_op op_on(crpc_grant grant, uint8_t opcode, uint32_t offset, uint32_t bytes)
{
    return (crpc_lane_op){.opcode = opcode,
                          .bytes = bytes,
                          .region = {bytes ? here.region.bits : 0},
                          .address = bytes ? (uint64_t)(uintptr_t)here.memory : 0,
                          .grant = grant,
                          .offset = offset};
}

static void round_trip(void)
{
    const crpc_op call = {.opcode = CRPC_OP_CALL, .endpoint = here.endpoint};
    int32_t reason;
    assert_int_equal(crpc_submit(here.context, &call, 1, NULL, 0, &reason), 1);
    const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                           .flags = CRPC_OP_QUIET,
                           .endpoint = there.endpoint,
                           .token = await(&there, CRPC_COMPLETION_REQUEST).token};
    assert_int_equal(crpc_submit(there.context, &reply, 1, NULL, 0, &reason), 1);
    assert_int_equal(await(&here, CRPC_COMPLETION_RESPONSE).status, CRPC_OK);
}

/* ---- What works ------------------------------------------------------------------------------ */

static void each_opcode(void **state)
{
    (void)state;
    uint64_t word = UINT64_C(0x100000000);
    memcpy(there.memory + 4096, &word, 8);
    crpc_grant grant = open_grant(give(&there, 4096, 8192, ALL_ACCESS));
    crpc_lane_op op = op_on(grant, CRPC_LANE_FETCH_ADD, 0, 0);
    op.operand = 5;
    submit(&here, &op);
    assert_true(await_work(&here, CRPC_LANE_FETCH_ADD, CRPC_OK).token == word);
    op = op_on(grant, CRPC_LANE_COMPARE_SWAP, 0, 0);
    op.compare = word + 5;
    op.operand = 9;
    submit(&here, &op);
    assert_true(await_work(&here, CRPC_LANE_COMPARE_SWAP, CRPC_OK).token == word + 5);
    submit(&here, &op);
    assert_true(await_work(&here, CRPC_LANE_COMPARE_SWAP, CRPC_OK).token == 9);
    static const uint32_t sizes[] = {0, 1, 8, 60, 61, 500, 4096, 8192};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(here.memory, (int)i + 1, 8192);
        op = op_on(grant, CRPC_LANE_WRITE, 0, sizes[i]);
        submit(&here, &op);
        await_work(&here, CRPC_LANE_WRITE, CRPC_OK);
        memset(here.memory, 0, 8192);
        op = op_on(grant, CRPC_LANE_READ, 0, sizes[i]);
        submit(&here, &op);
        assert_int_equal(await_work(&here, CRPC_LANE_READ, CRPC_OK).payload_bytes, sizes[i]);
        assert_memory_equal(here.memory, there.memory + 4096, sizes[i]);
        assert_true(sizes[i] == 0 || here.memory[sizes[i] - 1] == i + 1);
    }
}

/* A large WRITE, and a call behind it: what was written is there. Calls without the flag go by. */
static void a_call_after_a_large_write(void **state)
{
    (void)state;
    int32_t reason;
    crpc_grant grant = open_grant(give(&there, 0, BYTES, CRPC_ACCESS_REMOTE_WRITE));
    for (uint8_t round = 1; round <= 5; round++) {
        memset(here.memory, round, BYTES);
        crpc_lane_op op = op_on(grant, CRPC_LANE_WRITE, 0, BYTES);
        submit(&here, &op);
        const crpc_op call = {
            .opcode = CRPC_OP_CALL, .flags = CRPC_OP_AFTER, .endpoint = here.endpoint};
        assert_int_equal(crpc_submit(here.context, &call, 1, NULL, 0, &reason), 1);
        crpc_completion request = await(&there, CRPC_COMPLETION_REQUEST);
        assert_int_equal(there.memory[0], round);
        assert_int_equal(there.memory[BYTES - 1], round);
        const crpc_op drop = {.opcode = CRPC_OP_DROP,
                              .flags = CRPC_OP_QUIET,
                              .endpoint = there.endpoint,
                              .token = request.token};
        assert_int_equal(crpc_submit(there.context, &drop, 1, NULL, 0, &reason), 1);
        await_work(&here, CRPC_LANE_WRITE, CRPC_OK);
        await(&here, CRPC_COMPLETION_RESPONSE);
    }
}

/* Grants come and go, more often than a key has variants; and then both sides leave. */
static void grants_come_and_go(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        crpc_grant given = give(&there, 64 * (i % 100), 64, ALL_ACCESS);
        crpc_grant grant = open_grant(given);
        crpc_lane_op op = op_on(grant, CRPC_LANE_WRITE, 0, 64);
        memset(here.memory, (int)i, 64);
        submit(&here, &op);
        const crpc_lane_op revoke = {.opcode = CRPC_LANE_REVOKE, .grant = given};
        submit(&there, &revoke);
        await_work(&here, CRPC_LANE_WRITE, CRPC_OK);
        await_work(&there, CRPC_LANE_REVOKE, CRPC_OK);
        assert_memory_equal(there.memory + 64 * (i % 100), here.memory, 64);
        assert_int_equal(crpc_lane_submit(here.context, here.endpoint, &op, 1, NULL, 0, NULL), 0);
        assert_int_equal(crpc_grant_close(here.context, grant), CRPC_OK);
    }
    assert_int_equal(crpc_region_deregister(there.context, there.region), CRPC_OK);
    assert_int_equal(crpc_endpoint_disconnect(here.context, here.endpoint, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(await(&there, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
    assert_int_equal(await(&here, CRPC_COMPLETION_DISCONNECTED).status, CRPC_OK);
}

static void only_one_side_wants_one(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        crpc_endpoint_options with = endpoint_options(false), without = with;
        crpc_endpoint_info info = {.struct_size = sizeof(info)};
        const crpc_lane_op op = {.opcode = CRPC_LANE_READ};
        int32_t reason;
        without.flags = 0;
        open_side(&here);
        open_side(&there);
        connect(i ? &with : &without, i ? &without : &with);
        assert_int_equal(crpc_lane_submit(here.context, here.endpoint, &op, 1, NULL, 0, &reason),
                         0);
        assert_int_equal(reason, CRPC_E_UNSUPPORTED);
        assert_int_equal(crpc_lane_submit(there.context, there.endpoint, &op, 1, NULL, 0, &reason),
                         0);
        assert_int_equal(reason, CRPC_E_UNSUPPORTED);
        assert_int_equal(crpc_endpoint_get_info(here.context, here.endpoint, &info), CRPC_OK);
        assert_int_equal(info.features & 0x1, 0);
        round_trip();
        close_both(NULL);
    }
}

/* ---- What the device refuses ----------------------------------------------------------------- */

static uint32_t checksum_of(const uint8_t *data, size_t bytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ data[i]) * 16777619u;
    }
    return hash;
}

/* The lanes of both sides fail of an op, which changes nothing, and calls go on. The lane is made again, without
 * the grants of before. */
static void expect_refused(crpc_grant grant, uint8_t opcode)
{
    const crpc_lane_op op = op_on(grant, opcode, 0, opcode <= CRPC_LANE_READ ? 8 : 0);
    uint8_t before[256];
    int32_t reason;
    memcpy(before, there.memory, sizeof(before));
    memset(here.memory, 0xee, 8);
    submit(&here, &op);
    await_work(&here, opcode, CRPC_E_ACCESS);
    assert_memory_equal(before, there.memory, sizeof(before));
    assert_int_equal(crpc_lane_submit(here.context, here.endpoint, &op, 1, NULL, 0, &reason), 0);
    assert_true(reason == CRPC_E_AGAIN || reason == CRPC_E_STALE);
    round_trip();
    do {
        crpc_completion room;
        round_trip();
        while (kept_take(&here.kept, CRPC_COMPLETION_ROOM, &room)) {
        }
        crpc_lane_submit(here.context, here.endpoint, &op, 1, NULL, 0, &reason);
    } while (reason == CRPC_E_AGAIN);
    assert_int_equal(reason, CRPC_E_STALE);
    round_trip();
}

/* Replaces bytes of a grant for READs, and uses it. Then the lane is good for others. */
static void expect_forged(uint32_t offset, const void *forged, uint32_t count, uint8_t opcode)
{
    uint8_t bytes[CRPC_GRANT_BYTES];
    crpc_grant grant;
    carry(give(&there, 64, 64, CRPC_ACCESS_REMOTE_READ), bytes);
    memcpy(bytes + offset, forged, count);
    uint32_t checksum = checksum_of(bytes, 44);
    memcpy(bytes + 44, &checksum, 4);
    assert_int_equal(
        crpc_grant_open(here.context, here.endpoint, bytes, sizeof(bytes), &grant, NULL), CRPC_OK);
    expect_refused(grant, opcode);
    const crpc_lane_op op =
        op_on(open_grant(give(&there, 64, 64, ALL_ACCESS)), CRPC_LANE_WRITE, 0, 64);
    submit(&here, &op);
    await_work(&here, CRPC_LANE_WRITE, CRPC_OK);
}

/* A grant with another key, or for more than was granted: only the device can know. */
static void grants_of_another_key(void **state)
{
    const uint32_t key = 0x12345600;
    (void)state;
    expect_forged(36, &key, sizeof(key), CRPC_LANE_READ);
}

static void grants_of_more_rights(void **state)
{
    const uint16_t access = ALL_ACCESS;
    (void)state;
    expect_forged(6, &access, sizeof(access), CRPC_LANE_WRITE);
    expect_forged(6, &access, sizeof(access), CRPC_LANE_FETCH_ADD);
}

static void grants_of_another_address(void **state)
{
    const uint64_t address = (uint64_t)(uintptr_t)there.memory;
    (void)state;
    expect_forged(24, &address, sizeof(address), CRPC_LANE_READ);
}

/* A peer that does not poll does not hear of a REVOKE, and has no right any more all the same. */
static void a_peer_that_does_not_answer(void **state)
{
    (void)state;
    crpc_grant given = give(&there, 64, 64, ALL_ACCESS);
    crpc_grant grant = open_grant(given);
    const crpc_lane_op revoke = {.opcode = CRPC_LANE_REVOKE, .grant = given, .operand = 20000000};
    crpc_completion done;
    submit(&there, &revoke);
    while (crpc_poll(there.context, &done, 1) == 0) {
    }
    assert_int_equal(done.kind, CRPC_COMPLETION_WORK);
    assert_int_equal(done.status, CRPC_OK);
    assert_int_equal(crpc_region_deregister(there.context, there.region), CRPC_OK);
    expect_refused(grant, CRPC_LANE_WRITE);
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)

int main(void)
{
    static char key;
    struct CMUnitTest tests[] = {
        LANE_TEST(each_opcode),
        cmocka_unit_test_prestate_setup_teardown(each_opcode, open_both, close_both, &key),
        LANE_TEST(a_call_after_a_large_write),
        LANE_TEST(grants_come_and_go),
        cmocka_unit_test(only_one_side_wants_one),
        LANE_TEST(grants_of_another_key),
        LANE_TEST(grants_of_more_rights),
        LANE_TEST(grants_of_another_address),
        LANE_TEST(a_peer_that_does_not_answer),
    };
    if (strncmp(place_device(0), "rxe", 3) == 0) {
        LEAVE_OUT(tests, grants_of_another_address,
                  "Soft-RoCE checks the bounds of the memory instead");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
