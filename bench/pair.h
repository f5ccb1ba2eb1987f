/* pair.h: two contexts of one process whose endpoints, or queues, connect by blobs. */
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include <copyrpc.h>

/* Creates an endpoint in each context, which begin to connect to each other. Gives up if that fails. */
void pair_endpoints(crpc_context *const contexts[2], const crpc_endpoint_options *options,
                    crpc_endpoint endpoints[2]);
/* Sleeps until what is new in a context is connected. Gives up if something else comes. */
void pair_wait_connected(crpc_context *context);

#endif
