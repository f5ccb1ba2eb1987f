/* pair_fixture.c: see pair_fixture.h. */
#include "pair_fixture.h"

struct pair pair;

int pair_setup(void **state)
{
    (void)state;
    crpc_channel_options options = pair_options();
    pair_open(&pair, 2, 2);
    pair_connect(&pair, &options);
    return 0;
}

int pair_teardown(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}
