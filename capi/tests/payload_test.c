/* payload_test.c: ops whose payload is in a region, through the public API. */
#include "fixture.h"

#define BYTES 8192u

static uint8_t memory[BYTES];

static crpc_region region_of(crpc_context *context)
{
    crpc_region region;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_region_register(context, memory, BYTES, 0, &region, &error), CRPC_OK);
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)(i * 5 + i / 256);
    }
    return region;
}

static int32_t submit(const crpc_op *op)
{
    return fixture_submit(fixture.left, op, NULL, 0);
}

static void requests_and_replies(void **state)
{
    (void)state;
    crpc_region left = region_of(fixture.left), right = region_of(fixture.right);
    crpc_op op = fixture_region_op(left, 3, 6000);
    op.reply_bytes_max = 5000;
    assert_int_equal(submit(&op), CRPC_OK);
    crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.payload_bytes, 6000);
    assert_memory_equal((const void *)(uintptr_t)request.payload, memory + 3, 6000);
    crpc_op reply = {.opcode = CRPC_OP_REPLY,
                     .flags = CRPC_OP_REGION,
                     .status = 4,
                     .endpoint = request.endpoint,
                     .token = request.token,
                     .payload_offset = BYTES - 5000,
                     .payload_bytes = 5000,
                     .region = right};
    assert_int_equal(fixture_submit(fixture.right, &reply, NULL, 0), CRPC_OK);
    crpc_completion response = fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    assert_int_equal(response.status, 4);
    assert_int_equal(response.payload_bytes, 5000);
    assert_memory_equal((const void *)(uintptr_t)response.payload, memory + BYTES - 5000, 5000);
    fixture_expect(fixture.right, CRPC_COMPLETION_REPLY);
    assert_int_equal(crpc_region_deregister(fixture.left, left), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.right, right), CRPC_OK);
}

/* In an array, with others before and behind. */
static void among_others(void **state)
{
    (void)state;
    crpc_region region = region_of(fixture.left);
    crpc_op ops[10];
    int32_t reason;
    for (uint32_t i = 0; i < 10; i++) {
        ops[i] = i == 5 ? fixture_region_op(region, 7, 4000) : fixture_call_op(i);
        ops[i].user_data = i;
    }
    assert_int_equal(crpc_submit(fixture.left, ops, 10, NULL, 0, &reason), 10);
    fixture_poll(fixture.left);
    for (uint32_t seen = 0; seen < 10;) {
        assert_true(fixture_poll(fixture.right) > 0);
        for (int32_t i = 0; i < fixture.count; i++, seen++) {
            assert_int_equal(fixture.completions[i].payload_bytes, seen == 5 ? 4000 : 0);
        }
    }
}

static void what_is_not_possible(void **state)
{
    (void)state;
    crpc_region region = region_of(fixture.left);
    const crpc_region none = {0}, of_nothing = {region.bits + (UINT64_C(1) << 20)},
                      endpoint = {fixture.left_endpoint.bits};
    const struct {
        crpc_region region;
        uint64_t offset;
        uint32_t bytes;
        uint8_t opcode, flags;
        int32_t reason;
    } cases[] = {
        {none, 0, 4000, CRPC_OP_CALL, 0, CRPC_E_INVALID},
        {of_nothing, 0, 4000, CRPC_OP_CALL, 0, CRPC_E_STALE},
        {endpoint, 0, 4000, CRPC_OP_CALL, 0, CRPC_E_STALE},
        {region, 0, BYTES + 1, CRPC_OP_CALL, 0, CRPC_E_INVALID},
        {region, 1, BYTES, CRPC_OP_CALL, 0, CRPC_E_INVALID},
        {region, BYTES + 1, 0, CRPC_OP_CALL, 0, CRPC_E_INVALID},
        {region, UINT64_MAX, 1, CRPC_OP_CALL, 0, CRPC_E_INVALID},
        {region, UINT64_MAX - 4000, 4001, CRPC_OP_CALL, 0, CRPC_E_INVALID},
        {region, 0, 4000, CRPC_OP_CALL, CRPC_OP_AFTER, CRPC_E_INVALID},
        {region, 0, 4000, CRPC_OP_CALL, CRPC_OP_QUIET, CRPC_E_INVALID},
        {region, 0, 4000, CRPC_OP_CALL, 0x80, CRPC_E_INVALID},
        {region, 0, 0, CRPC_OP_DROP, 0, CRPC_E_INVALID},
        {region, 0, 0, CRPC_OP_CANCEL, 0, CRPC_E_INVALID},
        {region, 0, 4000, CRPC_OP_REPLY, CRPC_OP_QUIET, CRPC_E_INVALID},
        {region, 0, 4000, CRPC_OP_REPLY, CRPC_OP_AFTER, CRPC_E_INVALID},
        {region, 0, 4000, CRPC_OP_REPLY, 0, CRPC_E_STALE}, /* the token */
    };
    void *address;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_op op = {.opcode = cases[i].opcode,
                      .flags = cases[i].flags | CRPC_OP_REGION,
                      .endpoint = fixture.left_endpoint,
                      .payload_offset = cases[i].offset,
                      .payload_bytes = cases[i].bytes,
                      .region = cases[i].region};
        if (submit(&op) != cases[i].reason) {
            fail_msg("case %u", (unsigned)i);
        }
    }
    crpc_op op = fixture_region_op(region, 0, 4000);
    assert_int_equal(crpc_reserve(fixture.left, &op, &address), CRPC_E_INVALID);
    op.flags = 0; /* a region that no flag names */
    assert_int_equal(submit(&op), CRPC_E_INVALID);
    crpc_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_context_get_stats(fixture.left, &stats), CRPC_OK);
    assert_int_equal(stats.calls, 0);
}

static void a_region_that_is_in_use(void **state)
{
    (void)state;
    crpc_region region = region_of(fixture.left);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(fixture.left, fixture.left_endpoint, &info), CRPC_OK);
    memory_fabric_stall(memory_fabric_find(memory_fabric_default(), info.queue_pair_number), 3);
    const crpc_op op = fixture_region_op(region, 0, 4000);
    assert_int_equal(submit(&op), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_E_BUSY);
    fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    int32_t status = CRPC_E_BUSY;
    for (uint32_t i = 0; i < 10 && status == CRPC_E_BUSY; i++) {
        fixture_poll(fixture.left);
        status = crpc_region_deregister(fixture.left, region);
    }
    assert_int_equal(status, CRPC_OK);
    assert_int_equal(submit(&op), CRPC_E_STALE);
}

static void preparing(void **state)
{
    (void)state;
    crpc_region region = region_of(fixture.left);
    const crpc_region stale = {region.bits + (UINT64_C(1) << 20)};
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_region_prepare(NULL, region, fixture.left_endpoint, NULL),
                     CRPC_E_INVALID);
    assert_int_equal(crpc_region_prepare(fixture.left, stale, fixture.left_endpoint, &error),
                     CRPC_E_STALE);
    assert_string_equal(error.message, "there is no such region");
    assert_int_equal(
        crpc_region_prepare(fixture.left, region, (crpc_endpoint){region.bits}, &error),
        CRPC_E_STALE);
    assert_string_equal(error.message, "there is no such endpoint");
    memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(crpc_region_prepare(fixture.left, region, fixture.left_endpoint, &error),
                     CRPC_E_MEMLOCK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(crpc_region_prepare(fixture.left, region, fixture.left_endpoint, &error),
                         CRPC_OK);
    }
    /* What is prepared needs no registration. */
    memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    const crpc_op op = fixture_region_op(region, 0, 4000);
    assert_int_equal(submit(&op), CRPC_OK);
    fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_true(memory_fabric_failure_pending(memory_fabric_default(), MEMORY_FAIL_REGISTER));
    memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, 0, 0);
    assert_int_equal(crpc_endpoint_close(fixture.left, fixture.left_endpoint), CRPC_OK);
    fixture_poll(fixture.left);
    assert_int_equal(crpc_region_prepare(fixture.left, region, fixture.left_endpoint, &error),
                     CRPC_E_STALE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(requests_and_replies),    TEST(among_others), TEST(what_is_not_possible),
        TEST(a_region_that_is_in_use), TEST(preparing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
