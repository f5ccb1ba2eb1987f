/* pair_fixture.h: the pair of a test program, for tests that begin with two rails and a channel. */
#ifndef CORE_CHANNEL_TESTS_PAIR_FIXTURE_H
#define CORE_CHANNEL_TESTS_PAIR_FIXTURE_H

#include "pair.h"

extern struct pair pair;
int pair_setup(void **state);
int pair_teardown(void **state);

#endif
