/* peer.h: the other side of the functional tests: a server in a process of its own, made by fork
 * before any context is open, that does what each request's method asks for. Everything goes
 * through the public API and a real RDMA device; TEST_ADDRESS names it (default 10.99.0.1, rail
 * 0 of the VM).
 */
#ifndef FUNCTIONAL_PEER_H
#define FUNCTIONAL_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "copyrpc.h"

enum method {
    METHOD_ECHO = 0,
    METHOD_HOLD = 1,    /* never answered */
    METHOD_REVERSE = 2, /* 16 of them are answered together, the last first */
    METHOD_DROP = 3,
    METHOD_LATE = 4,    /* echoed once METHOD_RELEASE comes */
    METHOD_LEAVE = 5,   /* echoed; then the server takes leave */
    METHOD_STATUS = 6,  /* answered with status 1234 and no payload */
    METHOD_RELEASE = 7, /* answers all METHOD_LATE, then is echoed */
};

#define REVERSE_COUNT 16
#define REFUSE_TOKEN "refuse me"
#define REFUSE_REASON 42u

struct peer {
    pid_t pid;
    char address[64]; /* host:port on which it listens */
};

/* `host` as in an address; NULL: TEST_ADDRESS. */
void peer_start(struct peer *peer, const char *host);
void peer_kill(struct peer *peer, int signal);
/* SIGTERM: it closes everything; fails the test if it does not exit with 0. */
void peer_stop(struct peer *peer);

const char *test_host(void);
double now_seconds(void);

#endif
