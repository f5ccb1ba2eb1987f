/* leak_test.c: a process that calls and connects for long has no more memory, descriptors or threads
 * than before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_fixture.h"
#include "footprint.h"
#include "signals.h"

#define CALLS 100000u
#define CONNECTIONS 1000u
#define WARM_UP_CONNECTIONS 50u

static void call(uint32_t count)
{
    client.submitted = client.completed = 0;
    memset(client.seen, 0, sizeof(client.seen));
    for (uint32_t i = 0; i < count; i++) {
        client_call(&client, 0, METHOD_ECHO, i % 64, 1000000000);
    }
    client_finish(&client, 60);
}

static void connect_and_leave(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
        client_leave(&client);
        assert_int_equal(crpc_endpoint_close(client.context, client.endpoints[0]), CRPC_OK);
        client.endpoint_count = client.disconnected = 0;
    }
}

static void calls_leave_nothing(void **state)
{
    (void)state;
    assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    call(CLIENT_CALLS_MAX);
    struct footprint before = footprint();
    for (uint32_t i = 0; i < CALLS / CLIENT_CALLS_MAX; i++) {
        call(CLIENT_CALLS_MAX);
    }
    assert_true(footprint_is_back(&before));
}

static void connections_leave_nothing(void **state)
{
    (void)state;
    connect_and_leave(WARM_UP_CONNECTIONS);
    struct footprint before = footprint();
    connect_and_leave(CONNECTIONS);
    assert_true(footprint_is_back(&before));
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_leave_nothing, client_setup, client_teardown),
        cmocka_unit_test_setup_teardown(connections_leave_nothing, client_setup, client_teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
