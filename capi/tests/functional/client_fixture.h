/* client_fixture.h: the client and the peer of a test program, for tests that begin with both. */
#ifndef FUNCTIONAL_CLIENT_FIXTURE_H
#define FUNCTIONAL_CLIENT_FIXTURE_H

#include "client.h"

extern struct client client;
extern struct peer peer;
int client_setup(void **state);
int client_teardown(void **state);

#endif
