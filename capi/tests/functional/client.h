/* client.h: this side of the functional tests: connecting, calling, and keeping books on
 * completions. */
#ifndef FUNCTIONAL_CLIENT_H
#define FUNCTIONAL_CLIENT_H

#include "peer.h"

#define CLIENT_ENDPOINTS 8
#define CLIENT_CALLS_MAX 20000

struct client {
    crpc_context *context;
    crpc_endpoint endpoints[CLIENT_ENDPOINTS];
    uint32_t endpoint_count;
    uint64_t submitted;
    uint64_t completed;
    uint32_t disconnected;
    int32_t disconnected_status;
    int32_t connected_status;
    uint32_t connected;
    uint8_t seen[CLIENT_CALLS_MAX];   /* completions by user_data */
    int32_t status[CLIENT_CALLS_MAX]; /* theirs */
    uint64_t order[CLIENT_CALLS_MAX]; /* user_data in order of completion */
};

void client_open(struct client *client);
/* Waits for the completion; returns its status. The connection has PLACE_CONNECT_TIMEOUT_NS, unless `options` says
 * otherwise; it may be NULL. */
int32_t client_connect(struct client *client, const char *address,
                       const crpc_endpoint_options *options);
/* One call with `bytes` bytes that follow from its number; the reply is verified on arrival if
 * it is an echo. Polls as long as it is refused for want of room. */
void client_call(struct client *client, uint32_t endpoint, uint16_t method, uint32_t bytes,
                 uint64_t timeout_ns);
/* The same without a deadline, and without waiting for room: false if it was not taken. */
bool client_try_call(struct client *client, uint32_t endpoint, uint16_t method, uint32_t bytes);
void client_poll(struct client *client, uint64_t wait_ns);
/* Polls until all calls have completed; fails the test after `seconds`. */
void client_finish(struct client *client, double seconds);
/* Takes leave of all endpoints and waits for it. */
void client_leave(struct client *client);
void client_close(struct client *client);

#endif
