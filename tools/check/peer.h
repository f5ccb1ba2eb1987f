/* peer.h: copyrpc-check on another host: what carries blobs there and back, a TCP connection for each check. */
#ifndef TOOLS_CHECK_PEER_H
#define TOOLS_CHECK_PEER_H

#include "ends.h"

#define PEER_PORT_DEFAULT "7479"

/* Connects to "HOST" or "HOST:PORT", where copyrpc-check --listen runs, asks for a service, and swaps blobs. Returns the
 * connection, or -1 with the outcome set. While it is open, the peer serves. */
int peer_ask(const char *host, enum service service, const struct blob *own, struct blob *peer,
             struct outcome *outcome);

/* Serves one peer after another until a signal says to stop: a line on stdout for each. Returns the exit status. */
int peer_listen(const struct subject *subject, const char *port);

#endif
