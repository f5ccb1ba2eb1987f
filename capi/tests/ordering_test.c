/* ordering_test.c: what lands late and what does not: relaxed ordering of buffers and arenas, and of nothing else; and
 * adaptive routing, for which a payload goes ahead of its immediate. The in-memory NIC has every relaxed byte land as late as it
 * may.
 */
#include <stdlib.h>

#include "fixture.h"

#define BYTES (64u << 10)
#define RIGHTS (CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ)

static uint8_t in[BYTES] __attribute__((aligned(4096)));
static uint8_t out[BYTES] __attribute__((aligned(4096)));
static crpc_channel left, right;

static crpc_context_options options_of(const char *device)
{
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES};
    snprintf(options.device, sizeof(options.device), "%s", device);
    return options;
}

/* Both contexts, with these options. */
static void open_with(uint32_t relaxed_ordering, uint32_t adaptive_routing, uint32_t bytes)
{
    crpc_error error = {.struct_size = sizeof(error)};
    memset(&fixture, 0, sizeof(fixture));
    memory_fabric_reset_default();
    memory_fabric_options(memory_fabric_default())->relaxed_late_percent = 100;
    for (int side = 0; side < 2; side++) {
        crpc_context_options options = options_of(side ? "memory1" : "memory0");
        options.relaxed_ordering = relaxed_ordering;
        options.adaptive_routing = adaptive_routing;
        options.adaptive_routing_bytes = bytes;
        if (crpc_context_open(&options, side ? &fixture.right : &fixture.left, &error) != CRPC_OK) {
            fail_msg("%s", error.message);
        }
    }
    memset(in, 0, sizeof(in));
    for (uint32_t i = 0; i < BYTES; i++) {
        out[i] = (uint8_t)(i * 7 + 1);
    }
}

static uint64_t late(void)
{
    return memory_fabric_counters(memory_fabric_default())->held;
}

static void submit(uint8_t opcode, crpc_channel channel, uint8_t *memory, uint64_t bytes)
{
    const crpc_channel_op op = {.opcode = opcode,
                                .channel = channel,
                                .address = (uint64_t)(uintptr_t)memory,
                                .bytes = bytes};
    int32_t reason;
    assert_int_equal(crpc_channel_submit(opcode == CRPC_CHANNEL_SEND ? fixture.left : fixture.right,
                                         &op, 1, &reason),
                     1);
}

/* One message; `early` says what its receiver can see before it polls. */
static void message(uint64_t bytes, bool early)
{
    memset(in, 0, sizeof(in));
    submit(CRPC_CHANNEL_RECEIVE, right, in, bytes);
    fixture_poll(fixture.right); /* tells of it */
    submit(CRPC_CHANNEL_SEND, left, out, bytes);
    assert_int_equal(memcmp(in, out, bytes) == 0, early);
    assert_int_equal(fixture_await(fixture.right, CRPC_COMPLETION_RECEIVED).status, CRPC_OK);
    assert_memory_equal(in, out, bytes);
    assert_int_equal(fixture_await(fixture.left, CRPC_COMPLETION_SENT).status, CRPC_OK);
}

static uint64_t data_wqes(void)
{
    crpc_channel_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_channel_get_stats(fixture.left, left, &stats), CRPC_OK);
    return stats.data_wqes;
}

static const crpc_channel_options over_rail0 = {
    .struct_size = sizeof(over_rail0), .split = CRPC_SPLIT_FIXED, .rail0_share = 1024};

/* ---- Relaxed ordering ------------------------------------------------------------------------- */

static void a_message_is_there_when_it_is_told(void **state)
{
    (void)state;
    open_with(CRPC_CHOICE_AUTO, CRPC_CHOICE_AUTO, 0);
    fixture_channels(&over_rail0, &left, &right);
    message(10, false);
    message(BYTES, false);
    assert_int_equal(late(), 2);
    fixture_close(NULL);
}

static void an_option_has_all_land_in_order(void **state)
{
    (void)state;
    open_with(CRPC_CHOICE_OFF, CRPC_CHOICE_AUTO, 0);
    fixture_channels(&over_rail0, &left, &right);
    message(10, true);
    message(BYTES, true);
    assert_int_equal(late(), 0);
    fixture_close(NULL);
}

static void regions_are_relaxed_for_channels(void **state)
{
    (void)state;
    crpc_region region;
    open_with(CRPC_CHOICE_ON, CRPC_CHOICE_AUTO, 0);
    assert_int_equal(crpc_region_register(fixture.right, in, BYTES, RIGHTS, &region, NULL),
                     CRPC_OK);
    fixture_channels(&over_rail0, &left, &right);
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_RECEIVE,
                          .channel = right,
                          .region = region,
                          .address = (uint64_t)(uintptr_t)in,
                          .bytes = 100};
    assert_int_equal(crpc_channel_submit(fixture.right, &op, 1, NULL), 1);
    submit(CRPC_CHANNEL_SEND, left, out, 100);
    fixture_await(fixture.right, CRPC_COMPLETION_RECEIVED);
    assert_memory_equal(in, out, 100);
    fixture_await(fixture.left, CRPC_COMPLETION_SENT);
    assert_int_equal(late(), 1);
    fixture_close(NULL);
}

static void endpoints(uint32_t flags)
{
    const crpc_endpoint_options options = {
        .struct_size = sizeof(options), .flags = flags, .ring_bytes = 65536};
    fixture_connect(&options, &fixture.left_endpoint, &fixture.right_endpoint);
}

static void arenas_are_relaxed(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region from, to;
    open_with(CRPC_CHOICE_AUTO, CRPC_CHOICE_AUTO, 0);
    endpoints(CRPC_ENDPOINT_FULL_SIZE);
    assert_int_equal(crpc_region_register(fixture.left, out, BYTES, 0, &from, &error), CRPC_OK);
    assert_int_equal(
        crpc_region_register(fixture.right, in, BYTES, CRPC_ACCESS_LOCAL_WRITE, &to, &error),
        CRPC_OK);
    assert_int_equal(crpc_arena_lend(fixture.right, fixture.right_endpoint, to, 0, 4096, 4, &error),
                     CRPC_OK);
    for (int i = 0; i < 3; i++) { /* the peer hears of it */
        fixture_poll(fixture.right);
        fixture_poll(fixture.left);
    }
    crpc_op op = fixture_region_op(from, 0, 4096);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    assert_int_equal(in[1], 0);
    const crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
    assert_true(request.flags & CRPC_COMPLETION_PLACED);
    assert_memory_equal((const void *)(uintptr_t)request.payload, out, 4096);
    assert_int_equal(late(), 1);
    fixture_close(NULL);
}

/* Calls in the ring, and what peers of queues write, where a program may look without a completion. */
static void nothing_else_is(void **state)
{
    (void)state;
    crpc_region from, to;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region_info info = {.struct_size = sizeof(info)};
    const crpc_queue_options options = {.struct_size = sizeof(options)};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {sizeof(blobs[0]), sizeof(blobs[1])};
    crpc_queue ours, theirs;
    open_with(CRPC_CHOICE_ON, CRPC_CHOICE_AUTO, 0);
    endpoints(CRPC_ENDPOINT_FULL_SIZE);
    const crpc_completion request = fixture_request(1, "in the ring", 100);
    assert_string_equal((const char *)(uintptr_t)request.payload, "in the ring");
    assert_int_equal(crpc_region_register(fixture.left, out, BYTES, 0, &from, &error), CRPC_OK);
    assert_int_equal(crpc_region_register(fixture.right, in, BYTES, RIGHTS, &to, &error), CRPC_OK);
    assert_int_equal(crpc_region_get_info(fixture.right, to, &info), CRPC_OK);
    assert_int_equal(crpc_queue_blob(fixture.left, &options, &ours, blobs[0], &bytes[0], &error),
                     CRPC_OK);
    assert_int_equal(crpc_queue_blob(fixture.right, &options, &theirs, blobs[1], &bytes[1], &error),
                     CRPC_OK);
    assert_int_equal(crpc_queue_join(fixture.left, ours, blobs[1], bytes[1], &error), CRPC_OK);
    assert_int_equal(crpc_queue_join(fixture.right, theirs, blobs[0], bytes[0], &error), CRPC_OK);
    fixture_await(fixture.left, CRPC_COMPLETION_CONNECTED);
    fixture_await(fixture.right, CRPC_COMPLETION_CONNECTED);
    const crpc_queue_op write = {.opcode = CRPC_QUEUE_WRITE,
                                 .region = from,
                                 .address = (uint64_t)(uintptr_t)out,
                                 .bytes = 1000,
                                 .remote_key = info.remote_key,
                                 .remote_address = (uint64_t)(uintptr_t)in};
    assert_int_equal(crpc_queue_submit(fixture.left, ours, &write, 1, NULL, 0, NULL), 1);
    fixture_await(fixture.left, CRPC_COMPLETION_WORK);
    assert_memory_equal(in, out, 1000);
    assert_int_equal(late(), 0);
    fixture_close(NULL);
}

/* ---- Adaptive routing -------------------------------------------------------------------------- */

static void a_long_payload_goes_ahead_of_its_immediate(void **state)
{
    (void)state;
    const struct {
        uint32_t choice, bytes;
        uint64_t longest; /* that goes with its immediate */
    } cases[] = {{CRPC_CHOICE_ON, 0, 8192},
                 {CRPC_CHOICE_ON, 1000, 1000},
                 {CRPC_CHOICE_OFF, 1000, BYTES},
                 {CRPC_CHOICE_AUTO, 1000, BYTES}}; /* the fabric is no InfiniBand */
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_with(CRPC_CHOICE_AUTO, cases[i].choice, cases[i].bytes);
        fixture_channels(&over_rail0, &left, &right);
        const uint64_t before = data_wqes();
        message(cases[i].longest, false);
        assert_int_equal(data_wqes() - before, 1);
        if (cases[i].longest < BYTES) {
            message(cases[i].longest + 1, false);
            assert_int_equal(data_wqes() - before, 3);
        }
        fixture_close(NULL);
    }
}

/* Each share has its own, also that without the record. */
static void over_both_rails(void **state)
{
    (void)state;
    const crpc_channel_options halves = {
        .struct_size = sizeof(halves), .split = CRPC_SPLIT_FIXED, .rail0_share = 512};
    open_with(CRPC_CHOICE_AUTO, CRPC_CHOICE_ON, 0);
    fixture_channels(&halves, &left, &right);
    const uint64_t before = data_wqes();
    message(BYTES, false);
    assert_int_equal(data_wqes() - before, 4);
    fixture_close(NULL);
}

/* ---- Options and environment ------------------------------------------------------------------- */

static void what_is_no_choice_is_refused(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    static const char *const variables[] = {"COPYRPC_RELAXED_ORDERING", "COPYRPC_ADAPTIVE_ROUTING",
                                            "COPYRPC_ECE"};
    for (int i = 0; i < 6; i++) {
        crpc_context_options options = options_of("memory0");
        options.relaxed_ordering = i == 0 ? 3 : 0;
        options.adaptive_routing = i == 1 ? 3 : 0;
        options.ece = i == 2 ? 3 : 0;
        if (i >= 3) {
            setenv(variables[i - 3], "perhaps", 1);
        }
        assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_INVALID);
        assert_non_null(strstr(error.message, i < 3 ? "CRPC_CHOICE_*" : "=perhaps"));
        if (i >= 3) {
            unsetenv(variables[i - 3]);
        }
    }
}

static void the_environment_is_for_those_who_do_not_say(void **state)
{
    (void)state;
    setenv("COPYRPC_RELAXED_ORDERING", "off", 1);
    setenv("COPYRPC_ADAPTIVE_ROUTING", "on", 1);
    open_with(CRPC_CHOICE_AUTO, CRPC_CHOICE_AUTO, 0);
    fixture_channels(&over_rail0, &left, &right);
    uint64_t before = data_wqes();
    message(BYTES, true);
    assert_int_equal(data_wqes() - before, 2);
    fixture_close(NULL);
    open_with(CRPC_CHOICE_ON, CRPC_CHOICE_OFF, 0);
    fixture_channels(&over_rail0, &left, &right);
    before = data_wqes();
    message(BYTES, false);
    assert_int_equal(data_wqes() - before, 1);
    fixture_close(NULL);
    unsetenv("COPYRPC_RELAXED_ORDERING");
    unsetenv("COPYRPC_ADAPTIVE_ROUTING");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_there_when_it_is_told),
        cmocka_unit_test(an_option_has_all_land_in_order),
        cmocka_unit_test(regions_are_relaxed_for_channels),
        cmocka_unit_test(arenas_are_relaxed),
        cmocka_unit_test(nothing_else_is),
        cmocka_unit_test(a_long_payload_goes_ahead_of_its_immediate),
        cmocka_unit_test(over_both_rails),
        cmocka_unit_test(what_is_no_choice_is_refused),
        cmocka_unit_test(the_environment_is_for_those_who_do_not_say),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
