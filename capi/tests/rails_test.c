/* rails_test.c: which ports become rails, what is said about it, and what a context without rails
 * refuses.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel/channel.h"
#include "fixture.h"

static uint8_t memory[8192];

/* ---- Opening --------------------------------------------------------------------------------- */

static int fresh_fabric(void **state)
{
    (void)state;
    memset(&fixture, 0, sizeof(fixture));
    memory_fabric_reset_default();
    return 0;
}

static int nothing_left(void **state)
{
    (void)state;
    const struct memory_fabric_counters *counters = memory_fabric_counters(memory_fabric_default());
    assert_int_equal(counters->left_open, 0);
    assert_int_equal(counters->nics, 0);
    assert_int_equal(counters->regions, 0);
    memory_fabric_reset_default();
    return 0;
}

static crpc_context_options options_of(const char *rail0, const char *rail1)
{
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .flags = CRPC_CONTEXT_RAILS,
                                    .device = "memory0",
                                    .log_level = CRPC_LOG_DEBUG};
    snprintf(options.rails[0], sizeof(options.rails[0]), "%s", rail0);
    snprintf(options.rails[1], sizeof(options.rails[1]), "%s", rail1);
    return options;
}

static crpc_context *open_rails(const char *rail0, const char *rail1)
{
    crpc_context_options options = options_of(rail0, rail1);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    if (crpc_context_open(&options, &context, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return context;
}

static void expect_rails(crpc_context *context, const char *rail0, const char *rail1)
{
    const char *const names[] = {rail0, rail1, NULL};
    crpc_rail_info info = {.struct_size = sizeof(info)};
    uint32_t index = 0;
    for (; names[index]; index++) {
        assert_int_equal(crpc_rail_get_info(context, index, &info), CRPC_OK);
        assert_int_equal(info.index, index);
        assert_string_equal(info.device, names[index]);
    }
    assert_int_equal(crpc_rail_get_info(context, index, &info), CRPC_E_NOT_FOUND);
    assert_int_equal(crpc_rail_get_info(context, UINT32_MAX, &info), CRPC_E_NOT_FOUND);
}

static bool logged(crpc_context *context, uint32_t level, const char *words)
{
    crpc_log_entry entry;
    bool found = false;
    while (crpc_context_log(context, &entry, 1) == 1) {
        found = found || (entry.level == level && strstr(entry.message, words));
    }
    return found;
}

static void opens_and_has(const char *rail0, const char *rail1, const char *has0, const char *has1)
{
    crpc_context *context = open_rails(rail0, rail1);
    expect_rails(context, has0, has1);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void rail_1_is_another_card(void **state)
{
    (void)state;
    struct memory_fabric_options *fabric = memory_fabric_options(memory_fabric_default());
    opens_and_has("", "", "memory0", "memory1");
    opens_and_has("memory1", "", "memory1", "memory0");
    opens_and_has("memory1:1", "memory0", "memory1", "memory0");
    opens_and_has("", "memory1:1", "memory0", "memory1");

    fabric->devices = 4;
    fabric->system_image_guid[1] = fabric->system_image_guid[0];
    opens_and_has("", "", "memory0", "memory2");
    fabric->devices_down = 1u << 2;
    opens_and_has("", "", "memory0", "memory3");
    opens_and_has("memory3", "", "memory3", "memory0");

    /* Where nothing is known of the cards, another device counts as one. */
    memset(fabric->system_image_guid, 0, sizeof(fabric->system_image_guid));
    opens_and_has("", "", "memory0", "memory1");
}

static void a_device_that_takes_the_place_of_another_is_said(void **state)
{
    (void)state;
    struct memory_fabric_options *fabric = memory_fabric_options(memory_fabric_default());
    const struct {
        const char *named, *taken;
        uint32_t down;
        bool said;
    } cases[] = {{"", "memory0", 0, false},
                 {"", "memory1", 1, true},
                 {"", "memory0", 2, false},
                 {"", "memory2", 3, true},
                 {"memory1", "memory1", 1, false}};
    fabric->devices = 4;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_context_options options = {.struct_size = sizeof(options),
                                        .log_level = CRPC_LOG_WARNING};
        crpc_context_info info = {.struct_size = sizeof(info)};
        crpc_context *context;
        strcpy(options.device, cases[i].named);
        fabric->devices_down = cases[i].down;
        assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
        assert_int_equal(crpc_context_get_info(context, &info), CRPC_OK);
        assert_string_equal(info.device, cases[i].taken);
        assert_int_equal(
            logged(context, CRPC_LOG_WARNING, "memory0 port 1 comes first, but is down"),
            cases[i].said);
        assert_int_equal(crpc_context_close(context), CRPC_OK);
    }
}

static void one_rail_is_enough_and_said(void **state)
{
    (void)state;
    struct memory_fabric_options *fabric = memory_fabric_options(memory_fabric_default());
    fabric->system_image_guid[1] = fabric->system_image_guid[0];
    crpc_context *context = open_rails("", "");
    expect_rails(context, "memory0", NULL);
    assert_true(logged(context, CRPC_LOG_INFO, "one rail, memory0:1"));
    assert_int_equal(crpc_context_close(context), CRPC_OK);

    /* Named, it is taken. */
    context = open_rails("", "memory1");
    expect_rails(context, "memory0", "memory1");
    assert_true(logged(context, CRPC_LOG_WARNING, "share its PCIe slot"));
    assert_int_equal(crpc_context_close(context), CRPC_OK);

    /* A port that is down is none, and nothing to warn of. */
    fabric->system_image_guid[1]++;
    fabric->devices_down = 1u << 1;
    context = open_rails("", "");
    expect_rails(context, "memory0", NULL);
    assert_false(logged(context, CRPC_LOG_WARNING, "left out"));
    assert_int_equal(crpc_context_close(context), CRPC_OK);
    fabric->devices_down = 0;

    /* One that cannot be opened is left out, unless it was named. */
    memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_OPEN, 3, CRPC_E_NO_RESOURCE);
    context = open_rails("", "");
    expect_rails(context, "memory0", NULL);
    assert_true(logged(context, CRPC_LOG_WARNING, "memory1 port 1 is left out"));
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

/* Who names one rail may mean one: every rail of another port is taken from whoever wants that port. */
static void no_second_rail_can_be_asked_for(void **state)
{
    (void)state;
    memory_fabric_options(memory_fabric_default())->devices = 4;
    opens_and_has("", "none", "memory0", NULL);
    opens_and_has("memory2", "none", "memory2", NULL);
    opens_and_has("memory3:1", "none", "memory3", NULL);
    crpc_context *context = open_rails("memory1", "none");
    assert_false(logged(context, CRPC_LOG_INFO, "no other HCA")); /* as was asked for */
    assert_int_equal(memory_fabric_counters(memory_fabric_default())->nics, 2);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void a_channel_may_ask_for_rails_that_are_not_there(void **state)
{
    (void)state;
    memory_fabric_options(memory_fabric_default())->devices = 1;
    crpc_context *context = open_rails("", "");
    crpc_channel_info info = {.struct_size = sizeof(info)};
    crpc_channel_options options = {.struct_size = sizeof(options), .rails = 3};
    crpc_channel channel;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_channel_blob(context, &options, &channel, blob, &bytes, NULL), CRPC_OK);
    assert_int_equal(crpc_channel_get_info(context, channel, &info), CRPC_OK);
    assert_int_equal(info.rail_state[1], CRPC_RAIL_NONE);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void a_rail_tells_about_itself(void **state)
{
    (void)state;
    crpc_context_options options = options_of("", "");
    crpc_context *context;
    crpc_rail_info info = {.struct_size = sizeof(info)};
    options.rail_receive_depth = 999;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(crpc_rail_get_info(context, i, &info), CRPC_OK);
        assert_int_equal(info.port, 1);
        assert_int_equal(info.link, CRPC_LINK_ETHERNET);
        assert_int_equal(info.link_mbps, 100000);
        assert_int_equal(info.mtu_bytes, 4096);
        assert_int_equal(info.gid[15], i + 1);
        assert_int_equal(info.driver, NIC_DRIVER_MEMORY);
        assert_int_equal(info.system_image_guid,
                         memory_fabric_options(memory_fabric_default())->system_image_guid[i]);
        assert_int_equal(info.receive_depth, 999);
        assert_int_equal(info.receives_left, 666);
        assert_int_equal(info.receives_completed, 0);
        assert_int_equal(info.message_bytes_max, 1u << 30);
    }
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static uint32_t queue_pairs_max(crpc_context *context)
{
    crpc_rail_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_rail_get_info(context, 0, &info), CRPC_OK);
    return info.queue_pairs_max;
}

/* What a context takes for completions is what its channels can have; and if the device has less, fewer of them. */
static void channels_fit_into_the_completion_queue(void **state)
{
    (void)state;
    struct memory_fabric_options *fabric = memory_fabric_options(memory_fabric_default());
    crpc_context_options options = options_of("", "none");
    crpc_channel_options two = {.struct_size = sizeof(two), .queue_pairs = 2};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context;
    crpc_channel channel;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    options.channels_max = 4;
    options.rail_queue_pairs_max = 1;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
    uint32_t bytes = sizeof(blob);
    assert_int_equal(crpc_channel_blob(context, &two, &channel, blob, &bytes, &error),
                     CRPC_E_INVALID);
    assert_non_null(strstr(error.message, "rail_queue_pairs_max 1"));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(crpc_channel_blob(context, NULL, &channel, blob, &bytes, NULL), CRPC_OK);
    }
    assert_int_equal(queue_pairs_max(context), 4);
    assert_int_equal(crpc_context_close(context), CRPC_OK);

    fabric->send_completion_depth_max = 3 * nic_send_places(CHANNEL_SEND_DEPTH) + 1;
    options.rail_queue_pairs_max = 0;
    assert_int_equal(crpc_context_open(&options, &context, NULL), CRPC_OK);
    assert_int_equal(queue_pairs_max(context), 3);
    assert_int_equal(crpc_channel_blob(context, &two, &channel, blob, &bytes, NULL), CRPC_OK);
    crpc_channel second;
    assert_int_equal(crpc_channel_blob(context, &two, &second, blob, &bytes, &error),
                     CRPC_E_NO_RESOURCE);
    assert_non_null(strstr(error.message, "enough for 3 queue pairs"));
    assert_int_equal(crpc_channel_close(context, channel), CRPC_OK);
    assert_int_equal(crpc_channel_blob(context, &two, &second, blob, &bytes, &error), CRPC_OK);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void names_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *rail0, *rail1;
        int32_t status;
        const char *words;
    } cases[] = {
        {":1", "", CRPC_E_INVALID, "rails[0]"},
        {"", ":", CRPC_E_INVALID, "rails[1]"},
        {"", "memory1:", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:0", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:x", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:-1", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:+1", CRPC_E_INVALID, "after the colon"},
        {"", "memory1: 1", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:1x", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:1:1", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:256", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:4294967297", CRPC_E_INVALID, "after the colon"},
        {"", "memory1:99999999999999999999", CRPC_E_INVALID, "after the colon"},
        {"", "memory0", CRPC_E_INVALID, "both rails are port 1 of memory0"},
        {"memory1", "memory1:1", CRPC_E_INVALID, "both rails are port 1 of memory1"},
        {"memory7", "", CRPC_E_NO_DEVICE, "rail 0: there is no in-memory device"},
        {"", "memory7", CRPC_E_NO_DEVICE, "rail 1: there is no in-memory device"},
        {"", "memory1:2", CRPC_E_NO_DEVICE, "rail 1: "},
        {"none", "", CRPC_E_INVALID, "rails[0] is \"none\""},
        {"none", "memory1", CRPC_E_INVALID, "rails[0] is \"none\""},
        {"", "none:1", CRPC_E_NO_DEVICE, "rail 1: there is no in-memory device"}, /* a name */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        crpc_context_options options = options_of(cases[i].rail0, cases[i].rail1);
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context *context;
        if (crpc_context_open(&options, &context, &error) != cases[i].status ||
            !strstr(error.message, cases[i].words)) {
            fail_msg("case %zu: %s: %s", i, crpc_status_name(error.status), error.message);
        }
    }
}

static void options_that_are_wrong(void **state)
{
    (void)state;
    crpc_context_options cases[] = {
        {.flags = 0, .channels_max = 1},
        {.flags = 0, .rail_receive_depth = 100},
        {.flags = 0, .rails = {"memory0"}},
        {.flags = 0, .rails = {"", "memory1"}},
        {.flags = 0, .rails = {"", "none"}},
        {.flags = 0, .rail_queue_pairs_max = 1},
        {.flags = CRPC_CONTEXT_RAILS, .rail_queue_pairs_max = 9},
        {.flags = CRPC_CONTEXT_RAILS, .rail_receive_depth = 17},
        {.flags = CRPC_CONTEXT_RAILS, .rail_receive_depth = (1u << 24) + 1},
        {.flags = CRPC_CONTEXT_RAILS, .channels_max = (1u << 16) + 1},
        {.flags = CRPC_CONTEXT_RAILS},
    };
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    memset(cases[count - 1].rails[1], 'x', sizeof(cases[0].rails[1]));
    for (size_t i = 0; i < count; i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context *context;
        cases[i].struct_size = sizeof(cases[i]);
        assert_int_equal(crpc_context_open(&cases[i], &context, &error), CRPC_E_INVALID);
        assert_non_null(strstr(error.message, i == 0 || i == 9 ? "channels_max" : "rail"));
    }
}

static void a_failure_of_a_rail_leaves_nothing_behind(void **state)
{
    (void)state;
    crpc_context_options options = options_of("", "memory1");
    for (uint32_t nth = 1; nth <= 3; nth++) {
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context *context;
        memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_OPEN, nth, CRPC_E_MEMLOCK);
        assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_MEMLOCK);
        assert_true(strlen(error.message) > 10);
        assert_int_equal(memory_fabric_counters(memory_fabric_default())->nics, 0);
    }
}

/* ---- Regions --------------------------------------------------------------------------------- */

static uint64_t registrations(void)
{
    return memory_fabric_counters(memory_fabric_default())->regions;
}

static void a_region_is_registered_with_all(void **state)
{
    (void)state;
    crpc_context *context = open_rails("", "");
    const uint64_t before = registrations();
    crpc_region region;
    assert_int_equal(crpc_region_register(context, memory, sizeof(memory), 0, &region, NULL),
                     CRPC_OK);
    assert_int_equal(registrations(), before + 3); /* for calls, and for each rail */
    assert_int_equal(crpc_region_deregister(context, region), CRPC_OK);
    assert_int_equal(registrations(), before);

    /* A rail that cannot is left out. */
    memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, 3, CRPC_E_NO_MEMORY);
    assert_int_equal(crpc_region_register(context, memory, sizeof(memory), 0, &region, NULL),
                     CRPC_OK);
    assert_int_equal(registrations(), before + 2);
    assert_int_equal(crpc_region_deregister(context, region), CRPC_OK);
    assert_int_equal(registrations(), before);
    /* What is left goes with the context: the teardown looks for it. */
    assert_int_equal(crpc_region_register(context, memory, 64, 0, &region, NULL), CRPC_OK);
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void a_region_that_no_rail_can_register_fails(void **state)
{
    (void)state;
    memory_fabric_options(memory_fabric_default())->devices = 1;
    crpc_context *context = open_rails("", "");
    const uint64_t before = registrations();
    crpc_region region;
    for (uint32_t nth = 1; nth <= 2; nth++) {
        memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_REGISTER, nth,
                                   CRPC_E_MEMLOCK);
        assert_int_equal(crpc_region_register(context, memory, sizeof(memory), 0, &region, NULL),
                         CRPC_E_MEMLOCK);
        assert_int_equal(registrations(), before);
    }
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void dma_bufs(void **state)
{
    (void)state;
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE;
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 65536) == 0);
    for (int rails = 0; rails < 2; rails++) {
        fixture.flags = rails ? CRPC_CONTEXT_RAILS : 0;
        crpc_context *context = fixture_context("memory0");
        const uint64_t before = registrations();
        crpc_region_info info = {.struct_size = sizeof(info)};
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_region region;
        assert_int_equal(
            crpc_region_register_dmabuf(context, fd, 4096, 8192, 0x7000, access, &region, &error),
            CRPC_OK);
        assert_int_equal(registrations(), before + (rails ? 3 : 1));
        assert_int_equal(crpc_region_get_info(context, region, &info), CRPC_OK);
        assert_int_equal(info.address, 0x7000);
        assert_int_equal(info.bytes, 8192);
        assert_int_equal(info.access, access);
        assert_int_equal(crpc_region_deregister(context, region), CRPC_OK);

        const struct {
            int32_t fd;
            uint64_t offset, bytes, address;
            uint32_t access;
        } wrong[] = {
            {-1, 0, 64, 0, 0},          {fd, 0, 0, 0, 0},
            {fd, UINT64_MAX, 64, 0, 0}, {fd, 0, 64, UINT64_MAX - 62, 0},
            {fd, 65536, 64, 0, 0},      {fd, 0, 64, 0, CRPC_ACCESS_REMOTE_WRITE},
            {12345, 0, 64, 0, 0},       {fd, 0, 64, 0, CRPC_ACCESS_DEVICE | CRPC_ACCESS_HOST},
        };
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            assert_int_equal(crpc_region_register_dmabuf(context, wrong[i].fd, wrong[i].offset,
                                                         wrong[i].bytes, wrong[i].address,
                                                         wrong[i].access, &region, &error),
                             CRPC_E_INVALID);
            assert_true(strlen(error.message) > 10);
        }
        assert_int_equal(registrations(), before);
        assert_int_equal(crpc_context_close(context), CRPC_OK);
    }
    close(fd);
}

/* ---- Without rails, and sleeping with them --------------------------------------------------- */

static void without_rails(void **state)
{
    (void)state;
    crpc_context *context = fixture.left;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_cache_info cache = {.struct_size = sizeof(cache)};
    crpc_rail_info rail = {.struct_size = sizeof(rail)};
    crpc_listener_options channels = {.struct_size = sizeof(channels),
                                      .flags = CRPC_LISTENER_CHANNELS};
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_SEND};
    crpc_channel channel;
    crpc_listener listener;
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    int32_t reason;
    assert_int_equal(crpc_channel_connect(context, "127.0.0.1:1", NULL, &channel, &error),
                     CRPC_E_STATE);
    assert_non_null(strstr(error.message, "open the context with CRPC_CONTEXT_RAILS"));
    memset(error.message, 0, sizeof(error.message));
    assert_int_equal(crpc_channel_blob(context, NULL, &channel, blob, &bytes, &error),
                     CRPC_E_STATE);
    assert_non_null(strstr(error.message, "open the context with CRPC_CONTEXT_RAILS"));
    memset(error.message, 0, sizeof(error.message));
    assert_int_equal(crpc_listener_open(context, "127.0.0.1:1", &channels, &listener, &error),
                     CRPC_E_STATE);
    assert_non_null(strstr(error.message, "open the context with CRPC_CONTEXT_RAILS"));
    assert_int_equal(crpc_cache_get_info(context, &cache), CRPC_E_STATE);
    assert_int_equal(crpc_cache_forget(context, NULL, 0), CRPC_E_STATE);
    assert_int_equal(crpc_rail_get_info(context, 0, &rail), CRPC_E_NOT_FOUND);
    assert_int_equal(crpc_channel_submit(context, &op, 1, &reason), 0);
    assert_int_equal(reason, CRPC_E_STALE);
}

static void a_device_that_cannot_be_armed(void **state)
{
    (void)state;
    for (uint32_t nth = 1; nth <= 3; nth++) { /* that of calls, and the rails' */
        memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_ARM, nth, CRPC_E_SYSTEM);
        errno = 0;
        assert_int_equal(crpc_wait(fixture.left, 1000000000), CRPC_E_SYSTEM);
        assert_int_equal(errno, EIO);
        memory_fabric_set_failures(memory_fabric_default(), MEMORY_FAIL_ARM, nth, CRPC_E_SYSTEM);
        errno = 0;
        assert_int_equal(crpc_context_arm(fixture.left), CRPC_E_SYSTEM);
        assert_int_equal(errno, EIO);
    }
    assert_int_equal(crpc_wait(fixture.left, 1000000), CRPC_E_TIMEOUT);
    assert_int_equal(crpc_context_arm(fixture.left), CRPC_OK);
}

static void calls_go_on_beside_rails(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        crpc_op op = fixture_call_op(7);
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
        assert_int_equal(crpc_wait(fixture.right, CRPC_FOREVER), CRPC_OK);
        crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
        assert_int_equal(fixture_reply(&request, "yes", CRPC_OP_QUIET), CRPC_OK);
        assert_int_equal(fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE).user_data, 7);
    }
}

int main(void)
{
#define ON_FABRIC(test) cmocka_unit_test_setup_teardown(test, fresh_fabric, nothing_left)
#define WITH_RAILS(test)                                                                           \
    cmocka_unit_test_setup_teardown(test, fixture_open_with_rails, fixture_close)
    const struct CMUnitTest tests[] = {
        ON_FABRIC(rail_1_is_another_card),
        ON_FABRIC(a_device_that_takes_the_place_of_another_is_said),
        ON_FABRIC(one_rail_is_enough_and_said),
        ON_FABRIC(no_second_rail_can_be_asked_for),
        ON_FABRIC(a_channel_may_ask_for_rails_that_are_not_there),
        ON_FABRIC(a_rail_tells_about_itself),
        ON_FABRIC(channels_fit_into_the_completion_queue),
        ON_FABRIC(names_that_are_wrong),
        ON_FABRIC(options_that_are_wrong),
        ON_FABRIC(a_failure_of_a_rail_leaves_nothing_behind),
        ON_FABRIC(a_region_is_registered_with_all),
        ON_FABRIC(a_region_that_no_rail_can_register_fails),
        ON_FABRIC(dma_bufs),
        cmocka_unit_test_setup_teardown(without_rails, fixture_open, fixture_close),
        WITH_RAILS(a_device_that_cannot_be_armed),
        WITH_RAILS(calls_go_on_beside_rails),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
