/* layout_test.c: net_api.h against NCCL's layout. The numbers were taken with offsetof from NCCL
 * 2.30.7's own headers, on x86-64; they are the same on arm64. */
#include "net_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_properties(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct net_properties_v7), 56);
    assert_int_equal(offsetof(struct net_properties_v7, speed_mbps), 28);
    assert_int_equal(offsetof(struct net_properties_v7, receives_max), 44);
    assert_int_equal(offsetof(struct net_properties_v7, device_version), 52);
    assert_int_equal(sizeof(struct net_properties_v8), 64);
    assert_int_equal(offsetof(struct net_properties_v8, registration_is_global), 28);
    assert_int_equal(offsetof(struct net_properties_v8, speed_mbps), 32);
    assert_int_equal(offsetof(struct net_properties_v8, latency_us), 40);
    assert_int_equal(offsetof(struct net_properties_v8, device_version), 56);
    assert_int_equal(offsetof(struct net_properties_v10, force_flush), 32); /* and of version 9 */
    assert_int_equal(offsetof(struct net_properties_v10, speed_mbps), 36);
    assert_int_equal(sizeof(struct net_properties_v10), 104);
    assert_int_equal(sizeof(struct net_properties_v11), 112);
    assert_int_equal(sizeof(struct net_properties_v12), 128);
    assert_int_equal(offsetof(struct net_properties_v10, virtual_device), 64);
    assert_int_equal(offsetof(struct net_properties_v12, virtual_device), 64);
    assert_int_equal(offsetof(struct net_properties_v10, point_to_point_bytes_max), 88);
    assert_int_equal(offsetof(struct net_properties_v11, point_to_point_bytes_max), 88);
    assert_int_equal(offsetof(struct net_properties_v12, point_to_point_bytes_max), 104);
    assert_int_equal(offsetof(struct net_properties_v11, multi_request_max), 104);
    assert_int_equal(offsetof(struct net_properties_v12, multi_request_max), 120);
    assert_int_equal(offsetof(struct net_properties_v12, rail), 124);
    assert_int_equal(offsetof(struct net_properties_v12, plane), 126);
}

static void test_tables(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct net_table_v7), 152);
    assert_int_equal(sizeof(struct net_table_v8), 152);
    assert_int_equal(sizeof(struct net_table_v9), 160);
    assert_int_equal(offsetof(struct net_table_v7, init), 8);
    assert_int_equal(offsetof(struct net_table_v7, connect), 40);
    assert_int_equal(offsetof(struct net_table_v7, accept), 48);
    assert_int_equal(offsetof(struct net_table_v7, register_memory), 56);
    assert_int_equal(offsetof(struct net_table_v7, send), 80);
    assert_int_equal(offsetof(struct net_table_v8, send), 80);
    assert_int_equal(offsetof(struct net_table_v8, flush), 96);
    assert_int_equal(offsetof(struct net_table_v8, close_listen), 128);
    assert_int_equal(offsetof(struct net_table_v8, receive_consumed), 144);
    assert_int_equal(offsetof(struct net_table_v9, send), 80);
    assert_int_equal(offsetof(struct net_table_v9, flush), 96);
    assert_int_equal(offsetof(struct net_table_v9, make_virtual), 152);
    assert_int_equal(sizeof(struct net_table_v10), 160);
    assert_int_equal(sizeof(struct net_table_v11), 176);
    assert_int_equal(sizeof(struct net_table_v12), 176);
    assert_int_equal(offsetof(struct net_table_v12, accept), 48);
    assert_int_equal(offsetof(struct net_table_v12, flush), 96);
    assert_int_equal(offsetof(struct net_table_v12, test), 104);
    assert_int_equal(offsetof(struct net_table_v12, close_listen), 128);
    assert_int_equal(offsetof(struct net_table_v10, make_virtual), 152);
    assert_int_equal(offsetof(struct net_table_v12, finalize), 160);
    assert_int_equal(offsetof(struct net_table_v12, set_attributes), 168);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_tables),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
