/* load_test.c: the plugin where there is no RDMA device: what it exports, and that it says no. */
#include "harness.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* NCCL takes the highest version it finds, and one that the plugin does not mean to give would be
 * called with tables of another layout. */
static void test_exports(void **state)
{
    (void)state;
    void *library = dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    for (int version = 2; version <= 20; version++) {
        char name[40];
        snprintf(name, sizeof(name), "ncclNetPlugin_v%d", version);
        assert_int_equal(dlsym(library, name) != NULL,
                         version >= NET_VERSION_MIN && version <= NET_VERSION_MAX);
        snprintf(name, sizeof(name), "ncclCollNetPlugin_v%d", version);
        assert_null(dlsym(library, name));
    }
    const char *hidden[] = {"net_send", "settings", "session_join", "devices_find", "log_to"};
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        assert_null(dlsym(library, hidden[i]));
    }
    dlclose(library);
}

static void test_no_device(void **state)
{
    (void)state;
    for (int version = NET_VERSION_MIN; version <= NET_VERSION_MAX; version++) {
        struct net net;
        assert_true(net_load(&net, version));
        assert_string_equal(net.name, "copyrpc");
        warnings = 0;
        assert_int_equal(net_init(&net), NET_SYSTEM_ERROR);
        assert_true(warnings > 0);
        net_unload(&net);
    }
}

static void test_wrong_settings(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"COPYRPC_NCCL_SPLIT", "evenly"},
        {"COPYRPC_NCCL_SPLIT", "fixed"}, /* without a share */
        {"COPYRPC_NCCL_SPLIT", "hint"},  /* without a name */
        {"COPYRPC_NCCL_HINT", "no-slash"},
        {"COPYRPC_NCCL_SHARE", "1025"},
        {"COPYRPC_NCCL_SHARE", "-1"},
        {"COPYRPC_NCCL_QUEUE_PAIRS", "9"},
        {"COPYRPC_NCCL_QUEUE_PAIRS", "two"},
        {"COPYRPC_NCCL_STRIPE_BYTES", "4k"},
        {"COPYRPC_NCCL_CONNECT_SECONDS", "0"},
        {"COPYRPC_NCCL_GDR", "yes"},
        {"COPYRPC_NCCL_RAILS", "a,b,c"},
        {"COPYRPC_NCCL_RAILS", "a,,b"},
        {"COPYRPC_NCCL_RAILS", "a;"},
        {"COPYRPC_NCCL_RAILS", "1;2;3;4;5;6;7;8;9;0;1;2;3;4;5;6;7;8;9;0;1;2;3;4;5;6;7;8;9;0;1;2;3"},
        {"COPYRPC_NCCL_ADDRESS", "192.0.2.1;192.0.2.2"},
        {"COPYRPC_NCCL_ADDRESS", "192.0.2.1:80"},
        {"COPYRPC_NCCL_ADDRESS", "localhost"},
        {"NCCL_IB_TC", "256"},
        {"NCCL_IB_TC", "high"},
        {"NCCL_IB_SL", "16"},
        {"NCCL_IB_TIMEOUT", "0"},
        {"NCCL_IB_TIMEOUT", "32"},
        {"NCCL_IB_RETRY_CNT", "8"},
        {"NCCL_IB_GID_INDEX", "-2"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct net net;
        assert_true(net_load(&net, 12));
        setenv(wrong[i][0], wrong[i][1], 1);
        warnings = 0;
        int result = net_init(&net);
        unsetenv(wrong[i][0]);
        if (result != NET_INVALID_USAGE || warnings != 1) {
            fail_msg("%s=%s: %d, %u warnings", wrong[i][0], wrong[i][1], result, warnings);
        }
        net_unload(&net);
    }
}

static void test_right_settings(void **state)
{
    (void)state;
    static const char *const right[][2] = {
        {"COPYRPC_NCCL_SHARE", "0"},
        {"COPYRPC_NCCL_HINT", "/hint"},
        {"COPYRPC_NCCL_SPLIT", "measured"},
        {"COPYRPC_NCCL_RAILS", "a:1,b;c"},
        {"COPYRPC_NCCL_ADDRESS", "2001:db8::1"},
        {"COPYRPC_NCCL_QUEUE_PAIRS", ""}, /* as if not set */
        {"NCCL_IB_TC", "-1"},
        {"NCCL_IB_TC", "0x6a"},
        {"NCCL_IB_HCA", "^=mlx5_0:1"},
        {"NCCL_IB_PKEY", "1"},
    };
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        struct net net;
        assert_true(net_load(&net, 12));
        setenv(right[i][0], right[i][1], 1);
        int result = net_init(&net); /* gets as far as the device that is not there */
        unsetenv(right[i][0]);
        if (result != NET_SYSTEM_ERROR) {
            fail_msg("%s=%s: %d", right[i][0], right[i][1], result);
        }
        net_unload(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exports),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_wrong_settings),
        cmocka_unit_test(test_right_settings),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
