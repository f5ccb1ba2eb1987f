/* client_fixture.c: see client_fixture.h. */
#include "client_fixture.h"

#include <stddef.h>

struct client client;
struct peer peer;

int client_setup(void **state)
{
    (void)state;
    peer_start(&peer, NULL);
    client_open(&client);
    return 0;
}

int client_teardown(void **state)
{
    (void)state;
    client_close(&client);
    peer_stop(&peer);
    return 0;
}
