/* service_test.c: statuses of the application, and the numbers of methods that have names. */
#include <string.h>

#include "fixture.h"

static void standard_statuses_have_the_numbers_and_names_of_grpc(void **state)
{
    (void)state;
    static const char *const names[] = {
        "OK",
        "CANCELED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };
    for (int32_t i = 0; i < 17; i++) {
        assert_string_equal(crpc_application_status_name(i), names[i]);
    }
    assert_int_equal(CRPC_STATUS_UNAUTHENTICATED, 16);
    assert_int_equal(CRPC_STATUS_RESOURCE_EXHAUSTED, 8);
    const int32_t others[] = {17, CRPC_STATUS_RESERVED_MAX, 256, INT32_MAX, -1, INT32_MIN};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_string_equal(crpc_application_status_name(others[i]), "?");
    }
}

/* A status of the library that nobody has thought of here would be CRPC_STATUS_OK or _UNKNOWN. */
static void every_error_has_an_equivalent(void **state)
{
    (void)state;
    int32_t status = -1;
    for (; strcmp(crpc_status_name(status), "CRPC_E_?") != 0; status--) {
        int32_t same = crpc_application_status(status);
        if (same <= CRPC_STATUS_OK || same > CRPC_STATUS_UNAUTHENTICATED ||
            (same == CRPC_STATUS_UNKNOWN && status != CRPC_E_DROPPED)) {
            fail_msg("%s is %d", crpc_status_name(status), same);
        }
    }
    assert_int_equal(crpc_application_status(status), CRPC_STATUS_UNKNOWN);
    assert_int_equal(crpc_application_status(INT32_MIN), CRPC_STATUS_UNKNOWN);
    assert_int_equal(crpc_application_status(CRPC_E_TIMEOUT), CRPC_STATUS_DEADLINE_EXCEEDED);
    assert_int_equal(crpc_application_status(CRPC_E_CANCELED), CRPC_STATUS_CANCELED);
    assert_int_equal(crpc_application_status(CRPC_E_DISCONNECTED), CRPC_STATUS_UNAVAILABLE);
    assert_int_equal(crpc_application_status(CRPC_E_KEY), CRPC_STATUS_UNAUTHENTICATED);
    const int32_t others[] = {0, 1, 16, 17, 256, INT32_MAX};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(crpc_application_status(others[i]), others[i]);
    }
}

/* The bindings have the same vectors: router_test.go and test_services.py. */
static void names_have_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t number;
    } vectors[] = {
        {"a", 0xe134},
        {"kv.get", 0xf810},
        {"kv.put", 0x9d15},
        {"echo", 0xfdbf},
        {"/helloworld.Greeter/SayHello", 0xbd85},
        {"gr\xc3\xbc\xc3\x9f\x65", 0xa245},
        {"queue.sum", 0x9af2}, /* these two have the same */
        {"lock.update_all", 0x9af2},
    };
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        if (crpc_method_number(vectors[i].name) != vectors[i].number) {
            fail_msg("%s has 0x%x", vectors[i].name, (unsigned)crpc_method_number(vectors[i].name));
        }
    }
    assert_int_equal(crpc_method_number(""), CRPC_E_INVALID);
    assert_int_equal(crpc_method_number(NULL), CRPC_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standard_statuses_have_the_numbers_and_names_of_grpc),
        cmocka_unit_test(every_error_has_an_equivalent),
        cmocka_unit_test(names_have_numbers),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
