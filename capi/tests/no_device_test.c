/* no_device_test.c: the library as it is installed, on a machine without an RDMA device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "copyrpc.h"

static int has_device(void)
{
    DIR *directory = opendir("/sys/class/infiniband");
    int count = 0;
    while (directory && readdir(directory)) {
        count++;
    }
    if (directory) {
        closedir(directory);
    }
    return count > 2;
}

static void open_says_what_is_missing_and_what_to_do(void **state)
{
    (void)state;
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context *context = NULL;
    assert_int_equal(crpc_context_open(NULL, &context, &error), CRPC_E_NO_DEVICE);
    assert_null(context);
    assert_int_equal(error.status, CRPC_E_NO_DEVICE);
    assert_non_null(strstr(error.message, "./dev vm"));
    assert_non_null(strstr(error.message, "rdma link add"));
}

static void query_ends_at_once(void **state)
{
    (void)state;
    crpc_device_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_device_query(0, &info, NULL), CRPC_E_NO_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_says_what_is_missing_and_what_to_do),
        cmocka_unit_test(query_ends_at_once),
    };
    if (has_device()) {
        printf("1..0 # SKIP there is an RDMA device\n");
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
