/* affinity_test.c: a thread moves to who wakes it, and stays where it may run. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simnic/shim/mmio/affinity.h"
#include "tests/leave_out.h"

static uint32_t processors[2];
static cpu_set_t both;

static void run_on(uint32_t processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    assert_return_code(sched_setaffinity(0, sizeof(one), &one), 0);
}

static bool find_two_processors(void)
{
    cpu_set_t all;
    uint32_t found = 0;
    CPU_ZERO(&both);
    if (sched_getaffinity(0, sizeof(all), &all) != 0) {
        return false;
    }
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &both);
            processors[found++] = cpu;
        }
    }
    return found == 2;
}

static void expect_allowed(const cpu_set_t *expected)
{
    cpu_set_t allowed;
    assert_return_code(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    assert_true(CPU_EQUAL(&allowed, expected));
}

/* The scheduler may move the thread in the moment between the last wake and the look, or before. */
static void it_moves_to_who_wakes_it(void **state)
{
    (void)state;
    bool moved = false;
    for (int tries = 0; tries < 100 && !moved; tries++) {
        struct affinity affinity = {0};
        run_on(processors[0]);
        sched_setaffinity(0, sizeof(both), &both);
        for (uint32_t i = 0; i < AFFINITY_WAKES; i++) {
            affinity_woken(&affinity, processors[1]);
        }
        moved = (uint32_t)sched_getcpu() == processors[1];
        expect_allowed(&both);
    }
    assert_true(moved);
}

static void a_wake_at_its_side_starts_the_count_again(void **state)
{
    (void)state;
    struct affinity affinity = {0};
    run_on(processors[0]);
    for (uint32_t i = 0; i < AFFINITY_WAKES - 1; i++) {
        affinity_woken(&affinity, processors[1]);
    }
    assert_int_equal(affinity.wakes_from_elsewhere, AFFINITY_WAKES - 1);
    affinity_woken(&affinity, processors[0]);
    assert_int_equal(affinity.wakes_from_elsewhere, 0);
}

static void it_stays_where_it_may_run(void **state)
{
    (void)state;
    cpu_set_t one;
    struct affinity affinity = {0};
    run_on(processors[0]);
    sched_getaffinity(0, sizeof(one), &one);
    const uint32_t forbidden[] = {processors[0] + 1, CPU_SETSIZE, UINT32_MAX - 1};
    for (uint32_t nth = 0; nth < sizeof(forbidden) / sizeof(*forbidden); nth++) {
        for (uint32_t i = 0; i < 2 * AFFINITY_WAKES; i++) {
            affinity_woken(&affinity, forbidden[nth]);
        }
        assert_int_equal(sched_getcpu(), processors[0]);
        expect_allowed(&one);
    }
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(it_moves_to_who_wakes_it),
        cmocka_unit_test(a_wake_at_its_side_starts_the_count_again),
        cmocka_unit_test(it_stays_where_it_may_run),
    };
    if (!find_two_processors()) {
        LEAVE_OUT(tests, it_moves_to_who_wakes_it, "there is but one processor");
        LEAVE_OUT(tests, a_wake_at_its_side_starts_the_count_again, "there is but one processor");
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
