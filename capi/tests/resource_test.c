/* resource_test.c: regions, options, limits, the log, devices and statuses. */
#include <dirent.h>

#include "fixture.h"

static void regions(void **state)
{
    (void)state;
    static uint8_t memory[8192];
    crpc_region region;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_region_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_region_register(fixture.left, memory, sizeof(memory),
                                          CRPC_ACCESS_REMOTE_WRITE, &region, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "LOCAL_WRITE"));
    assert_int_equal(crpc_region_register(fixture.left, memory, 1, 0x100, &region, &error),
                     CRPC_E_INVALID);
    uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ;
    assert_int_equal(
        crpc_region_register(fixture.left, memory, sizeof(memory), access, &region, &error),
        CRPC_OK);
    assert_int_equal(crpc_region_get_info(fixture.left, region, &info), CRPC_OK);
    assert_int_equal(info.address, (uint64_t)(uintptr_t)memory);
    assert_int_equal(info.bytes, sizeof(memory));
    assert_int_equal(info.access, access);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_OK);
    assert_int_equal(crpc_region_deregister(fixture.left, region), CRPC_E_STALE);
    /* One that is left open goes with its context: the teardown looks for it. */
    assert_int_equal(crpc_region_register(fixture.left, memory, 64, 0, &region, NULL), CRPC_OK);
}

static void limits_of_the_header_are_allowed(void **state)
{
    (void)state;
    const crpc_endpoint_options cases[] = {
        {.ring_bytes = 4096, .request_bytes = 64},
        {.ring_bytes = 4096, .request_bytes = 4096 - 448},
        {.flags = CRPC_ENDPOINT_FULL_SIZE},
        {.calls_max = 1},
        {.calls_max = 1u << 20},
        {.batch_window = 1},
        {.retry_timeout = 31, .retry_count = 7},
    };
    const uint32_t intervals[] = {1, 64};
    crpc_context *context;
    crpc_context_info info = {.struct_size = sizeof(info)};
    for (size_t i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
        const crpc_context_options options = {.struct_size = sizeof(options),
                                              .signal_interval = intervals[i]};
        assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
        assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
        assert_int_equal(info.signal_interval, minimum(intervals[i], info.send_depth / 2));
        assert_int_equal(info.completion_vector, 0);
        crpc_context_close(context);
    }
    const crpc_context_options vector = {.struct_size = sizeof(vector), .completion_vector = 3};
    assert_int_equal(crpc_context_open(&vector, &context, NULL), CRPC_OK);
    assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
    assert_int_equal(info.completion_vector, 2);
    crpc_context_close(context);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_endpoint_options options = cases[i];
        crpc_endpoint endpoint;
        uint8_t blob[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(blob);
        options.struct_size = sizeof(options);
        assert_int_equal(crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, NULL),
                         CRPC_OK);
        assert_int_equal(crpc_endpoint_close(fixture.left, endpoint), CRPC_OK);
    }
}

static void endpoint_options_are_checked_with_a_message(void **state)
{
    (void)state;
    static const struct {
        crpc_endpoint_options options;
        const char *word;
    } cases[] = {
        {{.ring_bytes = 5000}, "ring_bytes"},
        {{.ring_bytes = 2048}, "ring_bytes"},
        {{.ring_bytes = 0x80000000u}, "ring_bytes"},
        {{.request_bytes = 33}, "request_bytes"},
        {{.request_bytes = 32}, "request_bytes"},
        {{.ring_bytes = 4096, .request_bytes = 4096 - 416}, "request_bytes"},
        {{.calls_max = (1u << 20) + 1}, "calls_max"},
        {{.batch_window = 1025}, "batch_window"},
        {{.retry_timeout = 32}, "retry"},
        {{.retry_count = 8}, "retry"},
        {{.token_bytes = 17}, "token"},
        {{.key_bytes = 15}, "key"},
        {{.key_bytes = 65}, "key"},
        {{.peer_ring_bytes_max = 4095}, "peer_ring_bytes_max"},
        {{.peer_ring_bytes_max = (1u << 30) + 1}, "peer_ring_bytes_max"},
        {{.flags = 3}, "CALL_ONLY"},
        {{.flags = 32}, "reserved"},
        {{.flags = CRPC_ENDPOINT_RECONNECT}, "only the side that connects"},
        {{.flags = CRPC_ENDPOINT_RECONNECT | CRPC_ENDPOINT_LANE}, "no lane"},
        {{.flags = CRPC_ENDPOINT_RECONNECT | CRPC_ENDPOINT_SERVE_ONLY}, "SERVE_ONLY"},
        {{.reconnect_pause_ns = 1}, "without CRPC_ENDPOINT_RECONNECT"},
        {{.reconnect_pause_max_ns = 1}, "without CRPC_ENDPOINT_RECONNECT"},
        {{.flags = CRPC_ENDPOINT_RECONNECT, .reconnect_pause_ns = 2, .reconnect_pause_max_ns = 1},
         "at most reconnect_pause_max_ns"},
        {{.flags = CRPC_ENDPOINT_RECONNECT, .reconnect_pause_ns = UINT64_C(5000000001)},
         "at most reconnect_pause_max_ns"},
        {{.flags = CRPC_ENDPOINT_RECONNECT, .reconnect_pause_max_ns = UINT64_C(3600000000001)},
         "an hour"},
        {{.flags = 1, .request_bytes = 64}, "request_bytes"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_endpoint_options options = cases[i].options;
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_endpoint endpoint;
        uint8_t blob[CRPC_BLOB_BYTES_MAX];
        uint32_t bytes = sizeof(blob);
        options.struct_size = sizeof(options);
        assert_int_equal(
            crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error),
            CRPC_E_INVALID);
        if (!strstr(error.message, cases[i].word)) {
            fail_msg("case %zu: %s", i, error.message);
        }
    }
}

static void several_addresses_are_checked_one_by_one(void **state)
{
    (void)state;
    static const struct {
        const char *addresses;
        const char *word;
    } cases[] = {
        {"", "no port"},
        {",", "no port"},
        {"a:1,", "no port"},
        {"a:1,,b:2", "no port"},
        {"a:1,b", "b"},
        {"a:1,b:0", "b:0"},
        {"a:1, b:2", "space"},
        {"a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1", "16"},
    };
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_RECONNECT};
    static char longest[400];
    crpc_endpoint endpoint;
    for (size_t i = 0; i <= sizeof(cases) / sizeof(cases[0]); i++) {
        const bool last = i == sizeof(cases) / sizeof(cases[0]);
        crpc_error error = {.struct_size = sizeof(error)};
        memset(longest, 'a', sizeof(longest) - 1);
        assert_int_equal(crpc_endpoint_connect(fixture.left, last ? longest : cases[i].addresses,
                                               &options, &endpoint, &error),
                         CRPC_E_INVALID);
        if (!strstr(error.message, last ? "too long" : cases[i].word)) {
            fail_msg("case %zu: %s", i, error.message);
        }
    }
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_endpoint_connect(fixture.left, "a:1,b:2", NULL, &endpoint, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "CRPC_ENDPOINT_RECONNECT"));
}

static void context_options_are_checked_with_a_message(void **state)
{
    (void)state;
    crpc_context_options cases[] = {
        {.flags = 16},        {.gid_index = 1},
        {.log_level = 5},     {.endpoints_max = 1u << 19},
        {.receive_depth = 1}, {.signal_interval = 65},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context *context;
        cases[i].struct_size = sizeof(cases[i]);
        assert_int_equal(crpc_context_open(&cases[i], &context, &error), CRPC_E_INVALID);
        assert_true(strlen(error.message) > 10);
    }
    crpc_context_options options = {.struct_size = sizeof(options), .driver = CRPC_DRIVER_MLX5};
    crpc_context *context;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_UNSUPPORTED);
    memset(options.device, 'x', sizeof(options.device));
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_INVALID);
    options = (crpc_context_options){.struct_size = sizeof(options), .device = "none"};
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_E_NO_DEVICE);
}

static void no_room_for_another_endpoint(void **state)
{
    (void)state;
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint endpoint;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob), made = 0;
    crpc_endpoint_options options = {.struct_size = sizeof(options),
                                     .flags = CRPC_ENDPOINT_FULL_SIZE,
                                     .ring_bytes = 4096,
                                     .calls_max = 1};
    crpc_context_get_info(fixture.left, &info);
    assert_int_equal(info.batch_window_left, 683 - 64);
    while (crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error) == CRPC_OK) {
        made++;
        assert_true(made < 20);
    }
    assert_int_equal(made, 9);
    assert_int_equal(error.status, CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "batch_window"));
    options.batch_window = 43;
    assert_int_equal(crpc_endpoint_blob(fixture.left, &options, &endpoint, blob, &bytes, &error),
                     CRPC_OK);
    crpc_context_get_info(fixture.left, &info);
    assert_int_equal(info.batch_window_left, 0);
    assert_int_equal(info.endpoints, 11);
    assert_int_equal(crpc_endpoint_close(fixture.left, endpoint), CRPC_OK);
    crpc_context_get_info(fixture.left, &info);
    assert_int_equal(info.batch_window_left, 43);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) {
        count++;
    }
    closedir(directory);
    return count;
}

static void a_failure_at_any_step_leaves_nothing_behind(void **state)
{
    (void)state;
    struct memory_fabric *fabric = memory_fabric_default();
    const struct memory_fabric_counters *counters = memory_fabric_counters(fabric);
    int descriptors = open_descriptors();
    uint64_t regions_before = counters->regions, queue_pairs = counters->queue_pairs;
    uint64_t domains = counters->domains;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint endpoint;
    crpc_context *context;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_DOMAIN, 1, CRPC_E_NO_RESOURCE);
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_E_MEMLOCK);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_CREATE, 1, CRPC_E_NO_RESOURCE);
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_OPEN, 1, CRPC_E_NO_MEMORY);
    assert_int_equal(crpc_context_open(NULL, &context, &error), CRPC_E_NO_MEMORY);
    assert_int_equal(counters->regions, regions_before);
    assert_int_equal(counters->queue_pairs, queue_pairs);
    assert_int_equal(counters->domains, domains);
    assert_int_equal(open_descriptors(), descriptors);

    uint8_t other[CRPC_BLOB_BYTES_MAX];
    crpc_endpoint there;
    assert_int_equal(crpc_endpoint_blob(fixture.left, NULL, &endpoint, blob, &bytes, &error),
                     CRPC_OK);
    bytes = sizeof(other);
    assert_int_equal(crpc_endpoint_blob(fixture.right, NULL, &there, other, &bytes, &error),
                     CRPC_OK);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_REGISTER, 1, CRPC_E_MEMLOCK);
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, other, bytes, &error),
                     CRPC_E_MEMLOCK);
    memory_fabric_set_failures(fabric, MEMORY_FAIL_CONNECT, 1, CRPC_E_UNREACHABLE);
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, other, bytes, &error),
                     CRPC_E_UNREACHABLE);
    assert_int_equal(crpc_endpoint_join(fixture.left, endpoint, other, bytes, &error), CRPC_OK);
}

/* By blobs, and over before it says so: the peer's ring is what the other one joins. */
static int32_t join_a_ring_of(uint32_t ring_bytes, const crpc_endpoint_options *ours,
                              crpc_error *error)
{
    crpc_endpoint_options theirs = {.struct_size = sizeof(theirs), .ring_bytes = ring_bytes};
    crpc_endpoint left, right;
    uint8_t left_blob[CRPC_BLOB_BYTES_MAX], right_blob[CRPC_BLOB_BYTES_MAX];
    uint32_t left_bytes = sizeof(left_blob), right_bytes = sizeof(right_blob);
    assert_int_equal(crpc_endpoint_blob(fixture.left, ours, &left, left_blob, &left_bytes, error),
                     CRPC_OK);
    assert_int_equal(
        crpc_endpoint_blob(fixture.right, &theirs, &right, right_blob, &right_bytes, error),
        CRPC_OK);
    int32_t status = crpc_endpoint_join(fixture.left, left, right_blob, right_bytes, error);
    crpc_endpoint_close(fixture.left, left);
    crpc_endpoint_close(fixture.right, right);
    return status;
}

static void a_larger_ring_of_the_peer_must_be_allowed(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint_options large = {.struct_size = sizeof(large), .ring_bytes = 4u << 20};
    crpc_endpoint_options small = {.struct_size = sizeof(small), .ring_bytes = 4096};
    uint64_t regions_before = memory_fabric_counters(memory_fabric_default())->regions;
    assert_int_equal(join_a_ring_of(1u << 20, NULL, &error), CRPC_OK);
    assert_int_equal(join_a_ring_of(2u << 20, NULL, &error), CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "peer_ring_bytes_max"));
    assert_non_null(strstr(error.message, "1048576"));
    assert_int_equal(join_a_ring_of(1u << 20, &small, &error), CRPC_OK);
    assert_int_equal(join_a_ring_of(2u << 20, &small, &error), CRPC_E_NO_RESOURCE);
    assert_int_equal(join_a_ring_of(4u << 20, &large, &error), CRPC_OK); /* as large as its own */
    assert_int_equal(join_a_ring_of(8u << 20, &large, &error), CRPC_E_NO_RESOURCE);
    large.peer_ring_bytes_max = 8u << 20;
    assert_int_equal(join_a_ring_of(8u << 20, &large, &error), CRPC_OK);
    small.peer_ring_bytes_max = 8192;
    assert_int_equal(join_a_ring_of(8192, &small, &error), CRPC_OK);
    assert_int_equal(join_a_ring_of(16384, &small, &error), CRPC_E_NO_RESOURCE);
    assert_int_equal(memory_fabric_counters(memory_fabric_default())->regions, regions_before);
}

static void the_log_keeps_the_latest_and_counts_the_lost(void **state)
{
    (void)state;
    crpc_log_entry entries[8];
    for (int i = 0; i < 300; i++) { /* each lost endpoint is a warning */
        crpc_endpoint left, right;
        crpc_endpoint_options options = {
            .struct_size = sizeof(options), .ring_bytes = 4096, .calls_max = 2};
        fixture_connect(&options, &left, &right);
        assert_int_equal(crpc_endpoint_close(fixture.right, right), CRPC_OK);
        crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = left};
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
        crpc_completion end = fixture_expect(fixture.left, CRPC_COMPLETION_DISCONNECTED);
        assert_int_equal(end.status, CRPC_E_DISCONNECTED);
        assert_int_equal(crpc_endpoint_close(fixture.left, left), CRPC_OK);
    }
    assert_int_equal(crpc_context_log(fixture.left, entries, 8), 8);
    assert_int_equal(entries[0].lost, 300 - 256);
    assert_int_equal(entries[0].level, CRPC_LOG_WARNING);
    assert_non_null(strstr(entries[0].message, "lost"));
    assert_int_equal(entries[1].lost, 0);
    int rest = 0, count;
    while ((count = crpc_context_log(fixture.left, entries, 8)) > 0) {
        rest += count;
    }
    assert_int_equal(rest, 248);
}

static void devices_are_listed(void **state)
{
    (void)state;
    crpc_device_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(crpc_device_query(0, &info, &error), CRPC_OK);
    assert_string_equal(info.name, "memory0");
    assert_int_equal(info.port_state, CRPC_PORT_ACTIVE);
    assert_int_equal(info.link_mbps, 100000);
    uint64_t card = info.system_image_guid;
    assert_int_not_equal(card, 0);
    assert_int_equal(crpc_device_query(1, &info, &error), CRPC_OK);
    assert_int_not_equal(info.system_image_guid, card);
    assert_int_equal(crpc_device_query(2, &info, &error), CRPC_E_NO_DEVICE);
}

static void every_status_has_a_name_and_a_text(void **state)
{
    (void)state;
    for (int32_t status = CRPC_E_NOT_STARTED; status <= 0; status++) {
        assert_memory_equal(crpc_status_name(status), status ? "CRPC_E_" : "CRPC_OK", 7);
        assert_string_not_equal(crpc_status_name(status), "CRPC_E_?");
        assert_true(strlen(crpc_status_text(status)) > 5);
    }
    assert_string_equal(crpc_status_name(CRPC_E_NOT_STARTED - 1), "CRPC_E_?");
    assert_string_equal(crpc_status_name(INT32_MIN), "CRPC_E_?");
    assert_string_equal(crpc_status_name(7), "CRPC_OK");
    assert_int_equal(crpc_version(),
                     CRPC_VERSION_MAJOR << 16 | CRPC_VERSION_MINOR << 8 | CRPC_VERSION_PATCH);
}

int main(void)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(regions),
        WITH_FIXTURE(limits_of_the_header_are_allowed),
        WITH_FIXTURE(endpoint_options_are_checked_with_a_message),
        WITH_FIXTURE(several_addresses_are_checked_one_by_one),
        WITH_FIXTURE(context_options_are_checked_with_a_message),
        WITH_FIXTURE(no_room_for_another_endpoint),
        WITH_FIXTURE(a_failure_at_any_step_leaves_nothing_behind),
        WITH_FIXTURE(a_larger_ring_of_the_peer_must_be_allowed),
        WITH_FIXTURE(the_log_keeps_the_latest_and_counts_the_lost),
        WITH_FIXTURE(devices_are_listed),
        cmocka_unit_test(every_status_has_a_name_and_a_text),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
