/* network_test.c: options of a context about the network, and the same from the environment: what is taken, and what is refused. */
#include <stdlib.h>

#include "fixture.h"
#include "link/link.h"
#include "private/context.h"

static const char *const variables[] = {"COPYRPC_TRAFFIC_CLASS", "COPYRPC_SERVICE_LEVEL",
                                        "COPYRPC_PARTITION_KEY", "COPYRPC_RETRY_TIMEOUT",
                                        "COPYRPC_RETRY_COUNT",   "COPYRPC_GID_INDEX"};

static int fresh_fabric(void **state)
{
    (void)state;
    memory_fabric_reset_default();
    return 0;
}

static int nothing_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        unsetenv(variables[i]);
    }
    assert_int_equal(memory_fabric_counters(memory_fabric_default())->nics, 0);
    memory_fabric_reset_default();
    return 0;
}

static crpc_context *open_with(crpc_context_options options)
{
    crpc_context *context = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    options.struct_size = sizeof(options);
    if (crpc_context_open(&options, &context, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return context;
}

static void expect_refused(crpc_context_options options, const char *word)
{
    crpc_context *context = NULL;
    crpc_error error = {.struct_size = sizeof(error)};
    options.struct_size = sizeof(options);
    assert_int_equal(crpc_context_open(&options, &context, &error), CRPC_E_INVALID);
    if (!strstr(error.message, word)) {
        fail_msg("\"%s\" is not in: %s", word, error.message);
    }
}

static void expect_info(const crpc_context *context, crpc_context_info wanted)
{
    crpc_context_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_context_get_info((crpc_context *)context, &info), CRPC_OK);
    assert_int_equal(info.traffic_class, wanted.traffic_class);
    assert_int_equal(info.service_level, wanted.service_level);
    assert_int_equal(info.partition_key, wanted.partition_key);
    assert_int_equal(info.retry_timeout, wanted.retry_timeout);
    assert_int_equal(info.retry_count, wanted.retry_count);
    assert_int_equal(info.gid_index, wanted.gid_index);
    assert_int_equal(info.flags, 0);
}

static void all_nics_of_a_context_are_told(void **state)
{
    (void)state;
    const crpc_context_options options = {.flags = CRPC_CONTEXT_RAILS,
                                          .traffic_class = 106,
                                          .service_level = 5,
                                          .partition_key = 0x7fff,
                                          .retry_timeout = 31,
                                          .retry_count = 7};
    crpc_context *context = open_with(options);
    expect_info(context, (crpc_context_info){.traffic_class = 106,
                                             .service_level = 5,
                                             .partition_key = 0xffff,
                                             .retry_timeout = 31,
                                             .retry_count = 7});
    assert_int_equal(context->rails.nic_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct nic_network *network = &context->rails.nics[i]->network;
        assert_int_equal(network->traffic_class, 106);
        assert_int_equal(network->service_level, 5);
        assert_int_equal(network->partition_key, 0xffff);
    }
    crpc_context_close(context);
}

static void the_environment_counts_where_options_say_nothing(void **state)
{
    (void)state;
    setenv("COPYRPC_TRAFFIC_CLASS", "0x6a", 1);
    setenv("COPYRPC_SERVICE_LEVEL", "3", 1);
    setenv("COPYRPC_PARTITION_KEY", "0xffff", 1);
    setenv("COPYRPC_RETRY_TIMEOUT", "20", 1);
    setenv("COPYRPC_RETRY_COUNT", "5", 1);
    setenv("COPYRPC_GID_INDEX", "1", 1);
    crpc_context *context = open_with((crpc_context_options){.flags = CRPC_CONTEXT_RAILS});
    expect_info(context, (crpc_context_info){.traffic_class = 106,
                                             .service_level = 3,
                                             .partition_key = 0xffff,
                                             .retry_timeout = 20,
                                             .retry_count = 5,
                                             .gid_index = 1});
    assert_int_equal(context->rails.nics[0]->gid_index, 1);
    assert_int_equal(context->rails.nics[1]->gid_index, 1);
    crpc_context_close(context);
    context = open_with((crpc_context_options){.flags = CRPC_CONTEXT_GID_INDEX,
                                               .traffic_class = 1,
                                               .service_level = 2,
                                               .partition_key = 0x7fff,
                                               .retry_timeout = 4,
                                               .retry_count = 3});
    expect_info(context, (crpc_context_info){.traffic_class = 1,
                                             .service_level = 2,
                                             .partition_key = 0xffff,
                                             .retry_timeout = 4,
                                             .retry_count = 3});
    crpc_context_close(context);
}

static void what_is_out_of_range_is_refused(void **state)
{
    (void)state;
    expect_refused((crpc_context_options){.traffic_class = 256}, "traffic_class is 256");
    expect_refused((crpc_context_options){.service_level = 16}, "service_level is 16");
    expect_refused((crpc_context_options){.partition_key = 0x10000}, "partition_key is 0x10000");
    expect_refused((crpc_context_options){.partition_key = 0x8000}, "partition_key is 0x8000");
    expect_refused((crpc_context_options){.partition_key = 0x8001},
                   "no P_Key 0x8001; it has 0xffff");
    expect_refused((crpc_context_options){.retry_timeout = 32}, "retry_timeout");
    expect_refused((crpc_context_options){.retry_count = 8}, "retry_count");
    expect_refused((crpc_context_options){.gid_index = 1}, "CRPC_CONTEXT_GID_INDEX");
    const uint32_t lone[] = {CRPC_CONTEXT_RAILS_GID_INDEX,
                             CRPC_CONTEXT_RAILS_GID_INDEX | CRPC_CONTEXT_RAILS,
                             CRPC_CONTEXT_RAILS_GID_INDEX | CRPC_CONTEXT_GID_INDEX};
    for (size_t i = 0; i < sizeof(lone) / sizeof(lone[0]); i++) {
        expect_refused((crpc_context_options){.flags = lone[i]}, "CRPC_CONTEXT_RAILS_GID_INDEX");
    }
}

static void a_variable_that_is_no_number_is_refused_by_its_name(void **state)
{
    (void)state;
    static const char *const values[] = {"x", "-1", "1x", " 1", "256000", "+1"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); j++) {
            setenv(variables[i], values[j], 1);
            expect_refused((crpc_context_options){0}, variables[i]);
        }
        setenv(variables[i], "", 1); /* as if it were not there */
        crpc_context_close(open_with((crpc_context_options){0}));
        unsetenv(variables[i]);
    }
}

static void rails_have_the_index_of_their_gid_by_a_flag(void **state)
{
    (void)state;
    static const struct {
        uint32_t flags, second;
    } cases[] = {{CRPC_CONTEXT_GID_INDEX, 0},
                 {CRPC_CONTEXT_GID_INDEX | CRPC_CONTEXT_RAILS_GID_INDEX, 1}};
    for (size_t named = 0; named < 2; named++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            crpc_context_options options = {.flags = cases[i].flags | CRPC_CONTEXT_RAILS,
                                            .gid_index = 1};
            strcpy(options.rails[1], named ? "memory1" : "");
            crpc_context *context = open_with(options);
            assert_int_equal(context->nic->gid_index, 1);
            assert_int_equal(context->rails.nics[0]->gid_index, 1);
            assert_int_equal(context->rails.nics[1]->gid_index, cases[i].second);
            crpc_context_close(context);
        }
    }
}

/* ---- Retries --------------------------------------------------------------------------------- */

struct retries {
    uint32_t timeout, count;
};

static struct retries retries_of(const crpc_context *context, uint64_t handle,
                                 enum handle_kind kind)
{
    const struct link *link = handles_get(&context->handles, handle, kind);
    const struct nic_transport *transport = &link->options.transport;
    return (struct retries){transport->retry_timeout, transport->retry_count};
}

static void expect_retries(struct retries found, uint32_t timeout, uint32_t count)
{
    assert_int_equal(found.timeout, timeout);
    assert_int_equal(found.count, count);
}

static struct retries endpoint_retries(crpc_context *context, uint32_t own)
{
    const crpc_endpoint_options options = {.struct_size = sizeof(options), .retry_timeout = own};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    crpc_endpoint endpoint;
    assert_int_equal(crpc_endpoint_blob(context, &options, &endpoint, blob, &bytes, NULL), CRPC_OK);
    return retries_of(context, endpoint.bits, HANDLE_ENDPOINT);
}

static struct retries channel_retries(crpc_context *context, uint32_t own)
{
    const crpc_channel_options options = {.struct_size = sizeof(options), .retry_timeout = own};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    crpc_channel channel;
    assert_int_equal(crpc_channel_blob(context, &options, &channel, blob, &bytes, NULL), CRPC_OK);
    return retries_of(context, channel.bits, HANDLE_CHANNEL);
}

static struct retries queue_retries(crpc_context *context, uint32_t own)
{
    const crpc_queue_options options = {.struct_size = sizeof(options), .retry_timeout = own};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = sizeof(blob);
    crpc_queue queue;
    crpc_queue_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_queue_blob(context, &options, &queue, blob, &bytes, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_get_info(context, queue, &info), CRPC_OK);
    const struct retries found = {info.retry_timeout, info.retry_count};
    const crpc_queue_change change = {.struct_size = sizeof(change),
                                      .changes = CRPC_QUEUE_CHANGE_RETRY_TIMEOUT |
                                                 CRPC_QUEUE_CHANGE_RETRY_COUNT,
                                      .retry_timeout = own};
    assert_int_equal(crpc_queue_modify(context, queue, &change, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_get_info(context, queue, &info), CRPC_OK);
    expect_retries(found, info.retry_timeout, info.retry_count);
    return found;
}

static void connections_have_the_retries_of_their_context(void **state)
{
    (void)state;
    const uint32_t flags = CRPC_CONTEXT_RAILS | CRPC_CONTEXT_QUEUES;
    crpc_context *context = open_with((crpc_context_options){.flags = flags});
    expect_retries(endpoint_retries(context, 0), 14, 6);
    expect_retries(channel_retries(context, 0), 17, 6);
    expect_retries(queue_retries(context, 0), 14, 6);
    crpc_context_close(context);
    context =
        open_with((crpc_context_options){.flags = flags, .retry_timeout = 20, .retry_count = 5});
    expect_retries(endpoint_retries(context, 0), 20, 5);
    expect_retries(channel_retries(context, 0), 20, 5);
    expect_retries(queue_retries(context, 0), 20, 5);
    expect_retries(endpoint_retries(context, 9), 9, 5);
    expect_retries(channel_retries(context, 9), 9, 5);
    expect_retries(queue_retries(context, 9), 9, 5);
    crpc_context_close(context);
}

/* A packet that is lost is sent again `retry_count` times, each after 4.096 us * 2^retry_timeout at least, so for so long a fabric may
 * be without a way. */
static void rails_outlast_a_fabric_that_finds_new_routes(void **state)
{
    (void)state;
    crpc_context *context = open_with((crpc_context_options){.flags = CRPC_CONTEXT_RAILS});
    const struct retries found = channel_retries(context, 0);
    assert_true(found.count * (UINT64_C(4096) << found.timeout) > UINT64_C(2000000000));
    crpc_context_close(context);
}

/* ---- GRH --------------------------------------------------------------------------------------- */

/* By addresses, in both directions, as queues of foreign programs are connected. */
static void connect_by_addresses(uint32_t grh_required)
{
    const crpc_queue left = fixture_lone_queue(fixture.left, NULL);
    const crpc_queue right = fixture_lone_queue(fixture.right, NULL);
    crpc_queue_address of_left = {.struct_size = sizeof(of_left)}, of_right = of_left;
    assert_int_equal(crpc_queue_get_address(fixture.left, left, &of_left), CRPC_OK);
    assert_int_equal(crpc_queue_get_address(fixture.right, right, &of_right), CRPC_OK);
    assert_int_equal(of_left.flags, grh_required & 1 ? CRPC_GRH_REQUIRED : 0);
    assert_int_equal(of_right.flags, grh_required & 2 ? CRPC_GRH_REQUIRED : 0);
    assert_int_equal(crpc_queue_join_address(fixture.left, left, &of_right, NULL), CRPC_OK);
    assert_int_equal(crpc_queue_join_address(fixture.right, right, &of_left, NULL), CRPC_OK);
}

/* Each queue pair of calls, lanes, channels, their rails and queues is told if its peer's port requires a GRH: the NIC in memory refuses
 * to connect one that is not. Each device is rail 0 of one side, and rail 1 of the other. */
static void every_queue_pair_knows_who_requires_a_grh(void **state)
{
    (void)state;
    for (uint32_t grh_required = 0; grh_required < 4; grh_required++) {
        crpc_context_info info = {.struct_size = sizeof(info)};
        crpc_device_info device = {.struct_size = sizeof(device)};
        crpc_endpoint one, other;
        crpc_channel left, right;
        const crpc_channel_options options = {
            .struct_size = sizeof(options), .queue_pairs = 2, .keepalive_ns = CRPC_FOREVER};
        assert_int_equal(fixture_open_on_infiniband(grh_required), 0);
        assert_int_equal(crpc_context_get_info(fixture.left, &info), CRPC_OK);
        assert_int_equal(info.flags, grh_required & 1 ? CRPC_GRH_REQUIRED : 0);
        assert_int_equal(crpc_device_query(1, &device, NULL), CRPC_OK);
        assert_int_equal(device.flags, grh_required & 2 ? CRPC_GRH_REQUIRED : 0);
        fixture_lane(&one, &other);
        fixture_channels(&options, &left, &right);
        connect_by_addresses(grh_required);
        assert_int_equal(fixture_close(NULL), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh_fabric, nothing_left)
    const struct CMUnitTest tests[] = {
        TEST(all_nics_of_a_context_are_told),
        TEST(the_environment_counts_where_options_say_nothing),
        TEST(what_is_out_of_range_is_refused),
        TEST(a_variable_that_is_no_number_is_refused_by_its_name),
        TEST(rails_have_the_index_of_their_gid_by_a_flag),
        TEST(connections_have_the_retries_of_their_context),
        TEST(rails_outlast_a_fabric_that_finds_new_routes),
        cmocka_unit_test(every_queue_pair_knows_who_requires_a_grh),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
