/* leave_out.h: for cmocka's tests that cannot be run where they are. Its skip() prints "not ok # SKIP", which runners of
 * TAP count as a failure. */
#ifndef TESTS_LEAVE_OUT_H
#define TESTS_LEAVE_OUT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above */
#include <cmocka.h>

/* Takes the test out of `tests`, an array, and says so. */
#define LEAVE_OUT(tests, function, why)                                                            \
    leave_out(tests, sizeof(tests) / sizeof((tests)[0]), function, why)

static inline void leave_out(struct CMUnitTest *tests, size_t count, CMUnitTestFunction function,
                             const char *why)
{
    for (size_t i = 0; i < count; i++) {
        if (tests[i].test_func == function && tests[i].name) {
            print_message("# %s is left out: %s\n", tests[i].name, why);
            tests[i].name = NULL; /* cmocka runs none without */
        }
    }
}

#endif
