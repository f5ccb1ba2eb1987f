/* call_test.c: calls between two processes over a real RDMA device: sizes, endpoints, order,
 * deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client_fixture.h"
#include "signals.h"

static void connect_all(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(client_connect(&client, peer.address, NULL), CRPC_OK);
    }
}

static void connect_and_leave(void **state)
{
    (void)state;
    connect_all(1);
    client_leave(&client);
}

static void echo_of_every_size_up_to_the_largest(void **state)
{
    (void)state;
    connect_all(1);
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(client.context, client.endpoints[0], &info), CRPC_OK);
    uint32_t most = info.request_bytes_max < info.reply_bytes_max ? info.request_bytes_max
                                                                  : info.reply_bytes_max;
    assert_true(most > 500000);
    for (uint32_t bytes = 0; bytes < 130; bytes++) {
        client_call(&client, 0, METHOD_ECHO, bytes, 0);
    }
    for (uint32_t bytes = 128; bytes < most; bytes *= 2) {
        client_call(&client, 0, METHOD_ECHO, bytes - 1, 0);
        client_call(&client, 0, METHOD_ECHO, bytes, 0);
        client_call(&client, 0, METHOD_ECHO, bytes + 1, 0);
    }
    client_call(&client, 0, METHOD_ECHO, most, 0);
    client_finish(&client, 60);
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .endpoint = client.endpoints[0],
                  .payload_bytes = info.request_bytes_max + 1};
    int32_t reason;
    void *larger = malloc(op.payload_bytes);
    assert_non_null(larger);
    assert_int_equal(crpc_submit(client.context, &op, 1, larger, op.payload_bytes, &reason), 0);
    assert_int_equal(reason, CRPC_E_TOO_BIG);
    free(larger);
    client_leave(&client);
}

static void ten_thousand_calls(uint32_t endpoints)
{
    connect_all(endpoints);
    for (uint32_t call = 0; call < 10000; call++) {
        client_call(&client, call % endpoints, METHOD_ECHO, (call * 37) % 200, 0);
        if (call % 64 == 63) {
            client_poll(&client, 0);
        }
    }
    client_finish(&client, 60);
    for (uint32_t call = 0; call < 10000; call++) {
        assert_int_equal(client.status[call], CRPC_OK);
    }
    client_leave(&client);
}

static void ten_thousand_calls_on_1_endpoint(void **state)
{
    (void)state;
    ten_thousand_calls(1);
}

static void ten_thousand_calls_on_2_endpoints(void **state)
{
    (void)state;
    ten_thousand_calls(2);
}

static void ten_thousand_calls_on_5_endpoints(void **state)
{
    (void)state;
    ten_thousand_calls(5);
}

static void ten_thousand_calls_on_8_endpoints(void **state)
{
    (void)state;
    ten_thousand_calls(8);
}

static void replies_come_in_the_order_they_were_given(void **state)
{
    (void)state;
    connect_all(1);
    for (uint32_t round = 0; round < 10; round++) {
        uint64_t first = client.submitted;
        for (uint32_t i = 0; i < REVERSE_COUNT; i++) {
            client_call(&client, 0, METHOD_REVERSE, 20 + i, 0);
        }
        client_finish(&client, 60);
        for (uint32_t i = 0; i < REVERSE_COUNT; i++) {
            assert_int_equal(client.order[first + i], first + REVERSE_COUNT - 1 - i);
        }
    }
    client_leave(&client);
}

static void drop_and_status_reach_the_caller(void **state)
{
    (void)state;
    connect_all(1);
    client_call(&client, 0, METHOD_DROP, 10, 0);
    client_call(&client, 0, METHOD_STATUS, 10, 0);
    client_finish(&client, 60);
    assert_int_equal(client.status[0], CRPC_E_DROPPED);
    assert_int_equal(client.status[1], 1234);
    client_leave(&client);
}

static uint64_t late_responses(void)
{
    crpc_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_context_get_stats(client.context, &stats), CRPC_OK);
    return stats.late_responses;
}

static void a_deadline_passes_and_the_late_reply_harms_nothing(void **state)
{
    (void)state;
    connect_all(1);
    double begun = now_seconds();
    for (uint32_t i = 0; i < 20; i++) {
        client_call(&client, 0, METHOD_LATE, 30, 50000000);
    }
    client_finish(&client, 60);
    assert_true(now_seconds() - begun >= 0.05);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(client.status[i], CRPC_E_TIMEOUT);
    }
    assert_int_equal(late_responses(), 0);
    double end = now_seconds() + 60;
    for (uint32_t i = 0; late_responses() < 20; i++) { /* arrive among these */
        client_call(&client, 0, i == 100 ? METHOD_RELEASE : METHOD_ECHO, 30, 0);
        client_finish(&client, 60);
        assert_true(now_seconds() < end);
        assert_true(client.submitted < CLIENT_CALLS_MAX);
    }
    for (uint32_t i = 0; i < 100; i++) {
        client_call(&client, 0, METHOD_ECHO, 30, 0);
    }
    client_finish(&client, 60);
    assert_int_equal(late_responses(), 20);
    client_leave(&client);
}

static void the_server_takes_leave_after_its_last_reply(void **state)
{
    (void)state;
    connect_all(1);
    for (uint32_t i = 0; i < 50; i++) {
        client_call(&client, 0, METHOD_ECHO, 100, 0);
    }
    client_call(&client, 0, METHOD_LEAVE, 100, 0);
    client_finish(&client, 60);
    assert_int_equal(client.status[50], CRPC_OK);
    double end = now_seconds() + 60;
    while (client.disconnected == 0) {
        assert_true(now_seconds() < end);
        client_poll(&client, 10000000);
    }
    assert_int_equal(client.disconnected_status, CRPC_OK);
    crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = client.endpoints[0]};
    int32_t reason;
    assert_int_equal(crpc_submit(client.context, &op, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_DISCONNECTED);
}

static void close_completes_what_is_pending(void **state)
{
    (void)state;
    connect_all(1);
    for (uint32_t i = 0; i < 100; i++) {
        client_call(&client, 0, METHOD_HOLD, 64, 0);
    }
    client_poll(&client, 0);
    assert_int_equal(crpc_endpoint_close(client.context, client.endpoints[0]), CRPC_OK);
    client_finish(&client, 60);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(client.status[i], CRPC_E_CLOSED);
    }
    assert_int_equal(client.disconnected, 0);
}

int main(void)
{
    signals_as_usual();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connect_and_leave, client_setup, client_teardown),
        cmocka_unit_test_setup_teardown(echo_of_every_size_up_to_the_largest, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(ten_thousand_calls_on_1_endpoint, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(ten_thousand_calls_on_2_endpoints, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(ten_thousand_calls_on_5_endpoints, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(ten_thousand_calls_on_8_endpoints, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(replies_come_in_the_order_they_were_given, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(drop_and_status_reach_the_caller, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(a_deadline_passes_and_the_late_reply_harms_nothing,
                                        client_setup, client_teardown),
        cmocka_unit_test_setup_teardown(the_server_takes_leave_after_its_last_reply, client_setup,
                                        client_teardown),
        cmocka_unit_test_setup_teardown(close_completes_what_is_pending, client_setup,
                                        client_teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
