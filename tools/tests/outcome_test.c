/* outcome_test.c: what copyrpc-check makes of what it cannot set up: that is no reason to leave anything out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../check/check.h"

static void expect(int32_t status, enum verdict verdict)
{
    struct outcome outcome = {0};
    assert_false(refused(&outcome, status, "no more than 64 KiB, 100 % of it"));
    assert_int_equal(outcome.verdict, verdict);
    assert_true(outcome.setting_up);
    assert_string_equal(outcome.seen, "no more than 64 KiB, 100 % of it");
}

static void test_what_the_machine_lacks_is_not_here(void **state)
{
    (void)state;
    expect(CRPC_E_MEMLOCK, VERDICT_NOT_HERE);
    expect(CRPC_E_NO_MEMORY, VERDICT_NOT_HERE);
    expect(CRPC_E_NO_RESOURCE, VERDICT_NOT_HERE);
    expect(CRPC_E_NO_DEVICE, VERDICT_NOT_HERE);
    expect(CRPC_E_UNSUPPORTED, VERDICT_NOT_HERE);
}

static void test_the_rest_fails_and_is_not_remembered(void **state)
{
    (void)state;
    expect(CRPC_E_UNREACHABLE, VERDICT_FAILED);
    expect(CRPC_E_SYSTEM, VERDICT_FAILED);
}

static void test_what_a_check_finds_is_remembered(void **state)
{
    struct outcome outcome = {0};
    (void)state;
    assert_false(fails(&outcome, "%u of %u", 1, 2));
    assert_int_equal(outcome.verdict, VERDICT_FAILED);
    assert_false(outcome.setting_up);
    assert_string_equal(outcome.seen, "1 of 2");
}

/* What is too long is cut off. */
static void test_where_it_failed_comes_first(void **state)
{
    struct outcome outcome = {0};
    char most[sizeof(outcome.seen)];
    (void)state;
    refused(&outcome, CRPC_E_SYSTEM, "100 %");
    assert_false(fails_in(&outcome, "vector %u", 3));
    assert_string_equal(outcome.seen, "vector 3: 100 %");
    assert_int_equal(outcome.verdict, VERDICT_FAILED);
    assert_true(outcome.setting_up);
    memset(most, 'x', sizeof(most) - 1);
    most[sizeof(most) - 1] = '\0';
    fails(&outcome, "%s", most);
    fails_in(&outcome, "so long");
    assert_int_equal(strlen(outcome.seen), sizeof(outcome.seen) - 1);
    assert_memory_equal(outcome.seen, "so long: xxx", 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_machine_lacks_is_not_here),
        cmocka_unit_test(test_the_rest_fails_and_is_not_remembered),
        cmocka_unit_test(test_what_a_check_finds_is_remembered),
        cmocka_unit_test(test_where_it_failed_comes_first),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
