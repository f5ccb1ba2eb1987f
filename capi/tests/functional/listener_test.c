/* listener_test.c: requests that nobody accepts, in one process: one context listens, another
 * connects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "copyrpc.h"
#include "place.h"

#define REQUESTS 3

/* How long messages may take. Nothing tells when those have arrived that the test is about; if they are
 * late, the situation is made again, with more time. */
static useconds_t pause_us;
static crpc_context *serving, *calling;
static crpc_listener listener;
static crpc_endpoint callers[REQUESTS];
static char address[128];

static void open_both(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    const crpc_context_options options = {.struct_size = sizeof(options),
                                          .initiators = place_initiators()};
    snprintf(address, sizeof(address), "%s:0", place_address(0));
    if (crpc_context_open(&options, &serving, &error) != CRPC_OK ||
        crpc_context_open(&options, &calling, &error) != CRPC_OK ||
        crpc_listener_open(serving, address, NULL, &listener, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(crpc_listener_get_info(serving, listener, &info), CRPC_OK);
    memcpy(address, info.address, sizeof(info.address));
}

static void close_both(void)
{
    crpc_context_close(calling);
    crpc_context_close(serving);
}

static void connect_all(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    /* The longest pause is shorter: it is this test that gives up, and not the time that is up. */
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    for (int i = 0; i < REQUESTS; i++) {
        if (crpc_endpoint_connect(calling, address, &options, &callers[i], &error) != CRPC_OK) {
            fail_msg("%s", error.message);
        }
    }
    crpc_completion unused;
    for (int i = 0; i < 10; i++) { /* resolving takes polls */
        crpc_poll(calling, &unused, 1);
        usleep(pause_us / 10);
    }
}

static void give_up(void)
{
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(crpc_endpoint_close(calling, callers[i]), CRPC_OK);
    }
    usleep(pause_us);
}

/* Returns false if the requests, or that they were given up, had not arrived. */
static bool is_closed_over_given_up(void)
{
    crpc_completion completion;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_info info = {.struct_size = sizeof(info)};
    connect_all();
    if (crpc_poll(serving, &completion, 1) != 1) {
        return false;
    }
    assert_int_equal(completion.kind, CRPC_COMPLETION_CONNECT_REQUEST);
    give_up();
    if (crpc_poll(serving, &completion, 1) != 1 ||
        completion.kind != CRPC_COMPLETION_CONNECT_REQUEST) {
        return false;
    }
    int32_t status = crpc_endpoint_accept(serving, completion.endpoint, NULL, &error);
    if (status == CRPC_OK) {
        return false;
    }
    assert_int_equal(status, CRPC_E_DISCONNECTED);
    print_message("# %s\n", error.message);
    assert_int_equal(crpc_listener_close(serving, listener), CRPC_OK);
    assert_int_equal(crpc_poll(serving, &completion, 1), 0); /* nobody hears of the third */
    assert_int_equal(crpc_context_get_info(serving, &info), CRPC_OK);
    assert_int_equal(info.endpoints, 0); /* requests go with their listener */
    return true;
}

/* They are taken from rdma_cm together, and given one by one: when the listener is closed, two have
 * been given, and the peers of all are gone. */
static void a_listener_is_closed_over_requests_that_were_given_up(void **state)
{
    (void)state;
    bool done = false;
    for (pause_us = 300000; !done && pause_us < 60000000; pause_us *= 4) {
        open_both();
        done = is_closed_over_given_up();
        close_both();
    }
    assert_true(done);
}

/* Polls both until one of them gives a completion of this kind. */
static crpc_completion poll_both_until(crpc_context *context, uint8_t kind)
{
    time_t end = time(NULL) + 60;
    crpc_completion completion, unused;
    for (;;) {
        assert_true(time(NULL) < end);
        if (crpc_poll(context, &completion, 1) == 1 && completion.kind == kind) {
            return completion;
        }
        crpc_poll(context == serving ? calling : serving, &unused, 1);
        usleep(1000);
    }
}

static void a_request_that_is_closed_is_refused(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    open_both();
    assert_int_equal(crpc_endpoint_connect(calling, address, &options, &callers[0], &error),
                     CRPC_OK);
    crpc_endpoint request = poll_both_until(serving, CRPC_COMPLETION_CONNECT_REQUEST).endpoint;
    assert_int_equal(crpc_endpoint_close(serving, request), CRPC_OK);
    assert_int_equal(poll_both_until(calling, CRPC_COMPLETION_CONNECTED).status, CRPC_E_REFUSED);
    assert_int_equal(crpc_endpoint_get_error(calling, callers[0], &error), CRPC_OK);
    print_message("# %s\n", error.message);
    assert_non_null(strstr(error.message, "application refused the connection, reason 0"));
    close_both();
}

/* Whether the news has come or not. */
static void a_request_that_was_given_up_ends_with_its_rejection(void **state)
{
    (void)state;
    crpc_context_info info = {.struct_size = sizeof(info)};
    crpc_completion completion;
    pause_us = 300000;
    open_both();
    connect_all();
    int count = crpc_poll(serving, &completion, 1);
    give_up();
    while (count == 1) {
        assert_int_equal(completion.kind, CRPC_COMPLETION_CONNECT_REQUEST);
        assert_int_equal(crpc_endpoint_reject(serving, completion.endpoint, 0), CRPC_OK);
        assert_int_equal(crpc_endpoint_reject(serving, completion.endpoint, 0), CRPC_E_STALE);
        count = crpc_poll(serving, &completion, 1);
    }
    assert_int_equal(count, 0);
    assert_int_equal(crpc_context_get_info(serving, &info), CRPC_OK);
    assert_int_equal(info.endpoints, 0);
    close_both();
}

static int count_refused(void)
{
    int count = 0;
    for (int i = 0; i < REQUESTS; i++) {
        crpc_error error = {.struct_size = sizeof(error)};
        assert_int_equal(crpc_endpoint_get_error(calling, callers[i], &error), CRPC_OK);
        assert_true(error.status == CRPC_OK || error.status == CRPC_E_REFUSED);
        count += error.status == CRPC_E_REFUSED;
    }
    return count;
}

/* One waits in the queue to the application, which looks away; the others find the backlog full. */
static void refused_requests_are_counted(void **state)
{
    (void)state;
    const crpc_listener_options options = {.struct_size = sizeof(options), .backlog = 1};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    time_t end = time(NULL) + 60;
    pause_us = 0;
    open_both();
    assert_int_equal(crpc_listener_close(serving, listener), CRPC_OK);
    assert_int_equal(crpc_listener_open(serving, address, &options, &listener, &error), CRPC_OK);
    connect_all();
    while (count_refused() < REQUESTS - 1) {
        crpc_completion unused;
        assert_true(time(NULL) < end);
        crpc_poll(calling, &unused, 1);
        usleep(1000);
    }
    poll_both_until(serving, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(crpc_listener_get_info(serving, listener, &info), CRPC_OK);
    assert_in_range(info.refused, REQUESTS - 1, UINT32_MAX); /* late answers are asked for again */
    assert_int_equal(info.requests, info.refused + 1);
    close_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_is_closed_is_refused),
        cmocka_unit_test(a_request_that_was_given_up_ends_with_its_rejection),
        cmocka_unit_test(refused_requests_are_counted),
        cmocka_unit_test(a_listener_is_closed_over_requests_that_were_given_up),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
