/* sides.h: two sides in one thread, a context each, that connect to each other by the public API: for programs that
 * measure connections. Whatever goes wrong ends the program with a message.
 */
#ifndef BENCH_SIDES_H
#define BENCH_SIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <copyrpc.h>

#define SIDES_LIMIT_S 60 /* without any progress, on a machine that stands still */

struct side {
    crpc_context *context;
    crpc_endpoint endpoint; /* that was connected last */
    bool connected;
};

extern struct side client, server;
extern crpc_endpoint_options sides_options; /* of both ends of each connection */

/* Opens the contexts of both sides at a device, with these options but for the device. */
void sides_open(const char *device, crpc_context_options options);
/* The server listens at a host's address. */
void sides_listen(const char *host);

/* How to begin a connection. */
void connect_by_blobs(void);
void connect_by_address(void);

/* Takes what has come to a side that connects. ending: connections from before may end meanwhile; otherwise none may. */
void sides_poll(struct side *side, bool ending);
/* Makes one connection, and returns when both sides have it. */
void sides_connect(void (*connect)(void), bool ending);

double clock_s(clockid_t clock);
/* Returns room for numbers, to be freed. */
double *room_for(size_t count);
/* Sorts the numbers. */
double median(double *numbers, size_t count);

#endif
