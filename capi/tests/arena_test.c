/* arena_test.c: arenas through the public API. */
#include "fixture.h"

#define PLACE 8192u
#define PLACES 4u
#define BYTES (PLACE * PLACES)

static uint8_t source[BYTES], memory[BYTES] __attribute__((aligned(16)));

static crpc_region region_of(crpc_context *context, uint8_t *address, uint32_t access)
{
    crpc_region region;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_region_register(context, address, BYTES, access, &region, &error),
                     CRPC_OK);
    return region;
}

static crpc_region open_source(void)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        source[i] = (uint8_t)(i * 5 + i / 256);
    }
    return region_of(fixture.left, source, 0);
}

/* The left side has heard of it when this returns. */
static crpc_region lend(uint32_t places)
{
    const crpc_region region = region_of(fixture.right, memory, CRPC_ACCESS_LOCAL_WRITE);
    crpc_error error = {.struct_size = sizeof(error)};
    if (crpc_arena_lend(fixture.right, fixture.right_endpoint, region, 0, PLACE, places, &error) !=
        CRPC_OK) {
        fail_msg("%s", error.message);
    }
    fixture_poll(fixture.right);
    fixture_poll(fixture.left);
    return region;
}

static int32_t call(crpc_region region, uint64_t offset, uint32_t bytes)
{
    const crpc_op op = fixture_region_op(region, offset, bytes);
    return fixture_submit(fixture.left, &op, NULL, 0);
}

static void payloads_land_in_the_region(void **state)
{
    (void)state;
    static uint8_t copy[PLACE];
    const crpc_region left = open_source(), right = lend(PLACES);
    for (uint32_t i = 0; i < 3 * PLACES; i++) {
        assert_int_equal(call(left, i, 5000), CRPC_OK);
        const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
        assert_int_equal(request.flags, CRPC_COMPLETION_PLACED);
        assert_int_equal(request.payload_bytes, 5000);
        const uint8_t *payload = (const uint8_t *)(uintptr_t)request.payload;
        assert_true(payload >= memory && payload + 5000 <= memory + BYTES);
        assert_memory_equal(payload, source + i, 5000);
        fixture_poll(fixture.right); /* no view: it stays */
        assert_int_equal(crpc_retain(fixture.right, &request, copy, 4999), CRPC_E_TOO_BIG);
        assert_int_equal(crpc_retain(fixture.right, &request, copy, sizeof(copy)), 5000);
        assert_memory_equal(copy, source + i, 5000);
        assert_int_equal(
            crpc_arena_give_back(fixture.right, fixture.right_endpoint, request.payload), CRPC_OK);
        assert_int_equal(crpc_retain(fixture.right, &request, copy, sizeof(copy)), CRPC_E_STALE);
        const crpc_op reply = {.opcode = CRPC_OP_REPLY,
                               .flags = CRPC_OP_QUIET,
                               .endpoint = request.endpoint,
                               .token = request.token};
        assert_int_equal(fixture_submit(fixture.right, &reply, NULL, 0), CRPC_OK);
        fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
    }
    assert_int_equal(crpc_region_deregister(fixture.right, right), CRPC_E_BUSY);
    assert_int_equal(crpc_endpoint_close(fixture.right, fixture.right_endpoint), CRPC_OK);
    fixture_poll(fixture.right);
    assert_int_equal(crpc_region_deregister(fixture.right, right), CRPC_OK);
}

static void lending_what_cannot_be(void **state)
{
    (void)state;
    const crpc_region good = region_of(fixture.right, memory, CRPC_ACCESS_LOCAL_WRITE);
    const crpc_region odd = region_of(fixture.right, memory + 1, CRPC_ACCESS_LOCAL_WRITE);
    const crpc_region to_read = region_of(fixture.right, memory, 0);
    const crpc_region stale = {good.bits + (UINT64_C(1) << 20)};
    const crpc_endpoint endpoint = fixture.right_endpoint, none = {good.bits};
    const struct {
        crpc_endpoint endpoint;
        crpc_region region;
        uint64_t offset;
        uint32_t place_bytes, places;
        int32_t status;
        const char *words;
    } cases[] = {
        {endpoint, stale, 0, PLACE, 1, CRPC_E_STALE, "there is no such region"},
        {none, good, 0, PLACE, 1, CRPC_E_STALE, "there is no such endpoint"},
        {endpoint, good, 0, PLACE, 0, CRPC_E_INVALID, "1 to 24 places"},
        {endpoint, good, 0, 16, CRPC_ARENA_PLACES_MAX + 1, CRPC_E_INVALID, "1 to 24 places"},
        {endpoint, good, 0, 0, 1, CRPC_E_INVALID, "1 to 24 places"},
        {endpoint, good, 0, 24, 1, CRPC_E_INVALID, "multiples of 16"},
        {endpoint, good, 8, PLACE, 1, CRPC_E_INVALID, "multiples of 16"},
        {endpoint, odd, 16, PLACE, 1, CRPC_E_INVALID, "multiples of 16"},
        {endpoint, good, 16, PLACE, PLACES, CRPC_E_INVALID, "are not in the region"},
        {endpoint, good, BYTES + 16, 16, 1, CRPC_E_INVALID, "are not in the region"},
        {endpoint, good, UINT64_MAX - 15, 16, 1, CRPC_E_INVALID, "are not in the region"},
        {endpoint, good, 0, UINT32_MAX - 15, PLACES, CRPC_E_INVALID, "are not in the region"},
        {endpoint, to_read, 0, PLACE, 1, CRPC_E_INVALID, "CRPC_ACCESS_LOCAL_WRITE"},
        {endpoint, odd, 15, 16, 1, CRPC_OK, ""},
        {endpoint, good, 0, PLACE, 1, CRPC_E_STATE, "has an arena already"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        const int32_t status =
            crpc_arena_lend(fixture.right, cases[i].endpoint, cases[i].region, cases[i].offset,
                            cases[i].place_bytes, cases[i].places, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].words)) {
            fail_msg("case %u: %d, %s", (unsigned)i, status, error.message);
        }
    }
    assert_int_equal(crpc_arena_lend(NULL, endpoint, good, 0, PLACE, 1, NULL), CRPC_E_INVALID);
    assert_int_equal(crpc_arena_give_back(NULL, endpoint, 0), CRPC_E_INVALID);
    assert_int_equal(crpc_arena_give_back(fixture.right, endpoint, 0), CRPC_E_STALE);
    assert_int_equal(crpc_arena_give_back(fixture.right, none, 0), CRPC_E_STALE);
}

/* The context goes while a payload is held. */
static void a_payload_that_is_never_given_back(void **state)
{
    (void)state;
    const crpc_region left = open_source();
    lend(1);
    assert_int_equal(call(left, 0, 5000), CRPC_OK);
    fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(call(left, 0, 5000), CRPC_OK); /* by the ring */
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_int_equal(request.flags, 0);
    assert_memory_equal((const void *)(uintptr_t)request.payload, source, 5000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(payloads_land_in_the_region),
        TEST(lending_what_cannot_be),
        TEST(a_payload_that_is_never_given_back),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
