/* handle_test.c: handles that are zero, garbage, stale, foreign or of another kind, and NULLs,
 * for every function. */
#include <stdlib.h>

#include "fixture.h"
#include "handle_uses.h"
#include "nic/memory/random.h"

static uint8_t blob[104];
static crpc_queue left_queue, right_queue; /* not connected, as left_channel and right_channel */

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

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void all_stale(const struct uses *uses, crpc_context *context, uint64_t bits)
{
    for (size_t i = 0; i < uses->count; i++) {
        if (uses->list[i](context, bits) != CRPC_E_STALE) {
            fail_msg("function %zu took the handle %016llx", i, (unsigned long long)bits);
        }
    }
}

static void all_kinds_stale(crpc_context *context, uint64_t bits)
{
    all_stale(&endpoint_uses, context, bits);
    all_stale(&listener_uses, context, bits);
    all_stale(&region_uses, context, bits);
    all_stale(&channel_uses, context, bits);
    all_stale(&queue_uses, context, bits);
    all_stale(&target_uses, context, bits);
    all_stale(&grant_uses, context, bits);
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
    all_stale(&endpoint_uses, fixture.left, region.bits);
    all_stale(&listener_uses, fixture.left, region.bits);
    all_stale(&channel_uses, fixture.left, region.bits);
    all_stale(&listener_uses, fixture.left, fixture.left_endpoint.bits);
    all_stale(&region_uses, fixture.left, fixture.left_endpoint.bits);
    all_stale(&channel_uses, fixture.left, fixture.left_endpoint.bits);
    all_stale(&endpoint_uses, fixture.left, left_channel.bits);
    all_stale(&listener_uses, fixture.left, left_channel.bits);
    all_stale(&region_uses, fixture.left, left_channel.bits);
    const uint64_t not_queues[] = {region.bits, fixture.left_endpoint.bits, left_channel.bits};
    for (size_t i = 0; i < COUNT(not_queues); i++) {
        all_stale(&queue_uses, fixture.left, not_queues[i]);
        all_stale(&grant_uses, fixture.left, not_queues[i]);
    }
    all_stale(&endpoint_uses, fixture.left, left_queue.bits);
    all_stale(&listener_uses, fixture.left, left_queue.bits);
    all_stale(&region_uses, fixture.left, left_queue.bits);
    all_stale(&channel_uses, fixture.left, left_queue.bits);
    all_stale(&target_uses, fixture.left, left_queue.bits);
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
        all_stale(&endpoint_uses, fixture.left, taken.bits);
        all_stale(&region_uses, fixture.left, taken.bits);
        all_stale(&queue_uses, fixture.left, taken.bits);
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
    for (size_t i = 0; i < endpoint_uses.count; i++) {
        assert_int_equal(endpoint_uses.list[i](NULL, fixture.left_endpoint.bits), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < listener_uses.count; i++) {
        assert_int_equal(listener_uses.list[i](NULL, 0), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < region_uses.count; i++) {
        assert_int_equal(region_uses.list[i](NULL, 0), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < channel_uses.count; i++) {
        assert_int_equal(channel_uses.list[i](NULL, left_channel.bits), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < queue_uses.count; i++) {
        assert_int_equal(queue_uses.list[i](NULL, left_queue.bits), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < target_uses.count; i++) {
        assert_int_equal(target_uses.list[i](NULL, 0), CRPC_E_INVALID);
    }
    for (size_t i = 0; i < grant_uses.count; i++) {
        assert_int_equal(grant_uses.list[i](NULL, 0), CRPC_E_INVALID);
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
