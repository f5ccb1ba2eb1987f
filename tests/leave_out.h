/* leave_out.h: for cmocka's tests that cannot be run where they are, in place of its skip(). What is left out here prints
 * "ok NUMBER - NAME # SKIP WHY", which runners of TAP count as skipped. */
#ifndef TESTS_LEAVE_OUT_H
#define TESTS_LEAVE_OUT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka wants the four above */
#include <cmocka.h>

#define LEAVE_OUT_MAX 160   /* tests of a program */
#define LEAVE_OUT_BYTES 192 /* of a name and why, which may be cut */

/* Leaves the test of `tests`, an array, out: it is counted as skipped, and says why. */
#define LEAVE_OUT(tests, function, why)                                                            \
    leave_out(tests, sizeof(tests) / sizeof((tests)[0]), function, why)

static inline void leave_out_nothing(void **state)
{
    (void)state;
}

static inline void leave_out(struct CMUnitTest *tests, size_t count, CMUnitTestFunction function,
                             const char *why)
{
    static char names[LEAVE_OUT_MAX][LEAVE_OUT_BYTES]; /* cmocka prints them later */
    static size_t used;
    for (size_t i = 0; i < count; i++) {
        if (tests[i].test_func != function) {
            continue;
        }
        assert_true(used < LEAVE_OUT_MAX);
        snprintf(names[used], LEAVE_OUT_BYTES, "%s # SKIP %s", tests[i].name, why);
        tests[i] = (struct CMUnitTest){.name = names[used++], .test_func = leave_out_nothing};
    }
}

#endif
