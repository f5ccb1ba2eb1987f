/* unplug_test.c: what becomes of calls, channels and contexts when a device is taken out, and that a new context works when it is
 * plugged in again, in the same process. On simnic: no other place has a device that can be pulled. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"

#define PATIENCE_S 60.0
#define CALLS 100u
#define SLEEP_NS 300000000u

struct end {
    crpc_context *context;
    crpc_endpoint endpoint;
    uint32_t connected, disconnected, requests;
    int32_t connected_status, disconnected_status, device_status;
    uint32_t ended[CALLS]; /* completions of each call */
    int32_t status[CALLS];
};

static struct end server, client;
static crpc_listener listener;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void set_fault(const char *specification)
{
    char command[512];
    snprintf(command, sizeof(command), "'%s' ctl fault %s", getenv("TEST_SIMNIC"), specification);
    assert_int_equal(system(command), 0);
}

static int plug_in(void **state)
{
    (void)state;
    set_fault("none");
    return 0;
}

static void take(struct end *end, const crpc_completion *one)
{
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        assert_int_equal(crpc_endpoint_accept(end->context, one->endpoint, NULL, NULL), CRPC_OK);
        end->endpoint = one->endpoint;
        break;
    case CRPC_COMPLETION_CONNECTED:
        end->connected++;
        end->connected_status = one->status;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        end->disconnected++;
        end->disconnected_status = one->status;
        break;
    case CRPC_COMPLETION_REQUEST: /* kept, and never answered */
        end->requests++;
        break;
    case CRPC_COMPLETION_RESPONSE:
        assert_in_range(one->user_data, 0, CALLS - 1);
        end->ended[one->user_data]++;
        end->status[one->user_data] = one->status;
        break;
    case CRPC_COMPLETION_DEVICE:
        end->device_status = one->status;
        break;
    default:
        break;
    }
}

static void pump(struct end *end)
{
    crpc_completion completions[16];
    const int32_t count = end->context ? crpc_poll(end->context, completions, 16) : 0;
    assert_in_range(count, 0, 16);
    for (int32_t i = 0; i < count; i++) {
        take(end, &completions[i]);
    }
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        const double until_end = seconds() + PATIENCE_S;                                           \
        while (!(condition)) {                                                                     \
            assert_true(seconds() < until_end);                                                    \
            pump(&server);                                                                         \
            pump(&client);                                                                         \
            sched_yield();                                                                         \
        }                                                                                          \
    } while (0)

static void open_end(struct end *end, const char *device)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options), .features = PLACE_FEATURES};
    snprintf(options.device, sizeof(options.device), "%s", device);
    *end = (struct end){0};
    if (crpc_context_open(&options, &end->context, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
}

/* Both ends on the second device, and connected by rdma_cm. */
static void connect_both(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    char address[128];
    open_end(&server, getenv("TEST_DEVICE1"));
    open_end(&client, getenv("TEST_DEVICE1"));
    snprintf(address, sizeof(address), "%s:0", getenv("TEST_ADDRESS1"));
    if (crpc_listener_open(server.context, address, NULL, &listener, &error) != CRPC_OK ||
        crpc_listener_get_info(server.context, listener, &info) != CRPC_OK ||
        crpc_endpoint_connect(client.context, info.address, NULL, &client.endpoint, &error) !=
            CRPC_OK) {
        fail_msg("%s", error.message);
    }
    UNTIL(client.connected == 1 && server.connected == 1);
    assert_int_equal(client.connected_status, CRPC_OK);
}

static void close_both(void)
{
    assert_int_equal(crpc_context_close(client.context), CRPC_OK);
    assert_int_equal(crpc_context_close(server.context), CRPC_OK);
    client.context = server.context = NULL;
}

static void submit_calls(void)
{
    crpc_op ops[CALLS];
    memset(ops, 0, sizeof(ops));
    for (uint32_t i = 0; i < CALLS; i++) {
        ops[i] = (crpc_op){.opcode = CRPC_OP_CALL, .endpoint = client.endpoint, .user_data = i};
    }
    assert_int_equal(crpc_submit(client.context, ops, CALLS, NULL, 0, NULL), CALLS);
}

static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* With nothing to do, it returns when its time is over, and takes no processor until then. */
static void expect_sleep(crpc_context *context)
{
    const double before = processor_seconds(), end = seconds() + PATIENCE_S;
    while (crpc_wait(context, SLEEP_NS) != CRPC_E_TIMEOUT) {
        crpc_completion completions[16];
        assert_true(seconds() < end);
        crpc_poll(context, completions, 16);
    }
    assert_true(processor_seconds() - before < SLEEP_NS * 1e-9 / 2);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void test_each_call_ends_once_and_the_context_can_be_closed(void **state)
{
    (void)state;
    connect_both();
    submit_calls();
    UNTIL(server.requests == CALLS);
    set_fault("rail1=unplugged");
    UNTIL(client.disconnected == 1 && server.disconnected == 1);
    UNTIL(client.device_status < 0 && server.device_status < 0);
    assert_int_equal(client.device_status, CRPC_E_NO_DEVICE);
    assert_int_equal(server.device_status, CRPC_E_NO_DEVICE);
    assert_int_equal(client.disconnected_status, CRPC_E_SYSTEM);
    assert_int_equal(server.disconnected_status, CRPC_E_SYSTEM);
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(client.ended[i], 1);
        assert_int_equal(client.status[i], CRPC_E_DISCONNECTED);
    }
    expect_sleep(client.context);
    expect_sleep(server.context);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_endpoint endpoint;
    const int32_t status =
        crpc_endpoint_connect(client.context, "127.0.0.2:1", NULL, &endpoint, &error);
    if (status == CRPC_OK) { /* or it is told later */
        client.connected = 0;
        UNTIL(client.connected == 1);
        assert_true(client.connected_status < 0);
    }
    close_both();
}

static void test_a_new_context_works_when_it_is_back(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        connect_both();
        set_fault("rail1=unplugged");
        UNTIL(client.disconnected == 1 && server.disconnected == 1);
        crpc_context *none = NULL;
        crpc_error error = {.struct_size = sizeof(error)};
        crpc_context_options options = {.struct_size = sizeof(options), .features = PLACE_FEATURES};
        snprintf(options.device, sizeof(options.device), "%s", getenv("TEST_DEVICE1"));
        assert_int_equal(crpc_context_open(&options, &none, &error), CRPC_E_NO_DEVICE);
        set_fault("none");
        close_both();
        connect_both();
        submit_calls();
        UNTIL(server.requests == CALLS);
        close_both();
    }
}

static void test_it_may_be_back_before_anybody_looks(void **state)
{
    (void)state;
    connect_both();
    set_fault("rail1=unplugged");
    UNTIL(client.disconnected == 1 && server.disconnected == 1);
    close_both();
    set_fault("none");
    connect_both();
    close_both();
}

static void test_all_devices_may_go_and_come_back(void **state)
{
    (void)state;
    connect_both();
    set_fault("rail0=unplugged,rail1=unplugged");
    UNTIL(client.disconnected == 1 && server.disconnected == 1);
    close_both();
    set_fault("none");
    connect_both();
    close_both();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, plug_in, plug_in)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_call_ends_once_and_the_context_can_be_closed),
        TEST(test_a_new_context_works_when_it_is_back),
        TEST(test_it_may_be_back_before_anybody_looks),
        TEST(test_all_devices_may_go_and_come_back),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
