/* cmocka.h: the system's, of either version. Found before it, by cmocka_dep. */
#ifndef TESTS_CMOCKA_CMOCKA_H
#define TESTS_CMOCKA_CMOCKA_H

#include_next <cmocka.h>

/* A macro without arguments, since version 1.1: no function, and no operation of a structure, could have that name. */
#undef stop

/* It prints "not ok # SKIP", which runners of TAP count as a failure: tests are left out with leave_out.h. */
#undef skip

/* Since version 2 there is one for each sign, and the old name is deprecated. */
#ifdef assert_uint_in_range
#undef assert_in_range
#define assert_in_range(value, least, most) assert_uint_in_range(value, least, most)
#endif

#endif
