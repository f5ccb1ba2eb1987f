/* sides.c: see sides.h. */
#include "sides.h"

#include <stdio.h>
#include <stdlib.h>

#include "give_up.h"
#include "pair.h"

#define COMPLETIONS 16

struct side client, server;
crpc_endpoint_options sides_options;

static char address[sizeof(((crpc_listener_info *)NULL)->address)];

/* ---- Opening --------------------------------------------------------------------------------- */

void sides_open(const char *device, crpc_context_options options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    options.struct_size = sizeof(options);
    snprintf(options.device, sizeof(options.device), "%s", device);
    need(crpc_context_open(&options, &client.context, &error), &error);
    need(crpc_context_open(&options, &server.context, &error), &error);
}

void sides_listen(const char *host)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    snprintf(address, sizeof(address), "%s:0", host);
    need(crpc_listener_open(server.context, address, NULL, &listener, &error), &error);
    crpc_listener_get_info(server.context, listener, &info);
    snprintf(address, sizeof(address), "%s", info.address);
}

/* ---- One connection -------------------------------------------------------------------------- */

void sides_poll(struct side *side, bool ending)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(side->context, completions, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        switch (completions[i].kind) {
        case CRPC_COMPLETION_CONNECT_REQUEST:
            side->endpoint = completions[i].endpoint;
            need(crpc_endpoint_accept(side->context, side->endpoint, &sides_options, &error),
                 &error);
            break;
        case CRPC_COMPLETION_CONNECTED:
            crpc_endpoint_get_error(side->context, side->endpoint, &error);
            need(completions[i].status, &error);
            side->connected = true;
            break;
        default:
            if (!ending) {
                give_up("a connection has ended");
            }
            break;
        }
    }
}

void connect_by_blobs(void)
{
    crpc_endpoint endpoints[2];
    pair_endpoints((crpc_context *const[]){client.context, server.context}, &sides_options,
                   endpoints);
    client.endpoint = endpoints[0];
    server.endpoint = endpoints[1];
}

void connect_by_address(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    need(crpc_endpoint_connect(client.context, address, &sides_options, &client.endpoint, &error),
         &error);
}

void sides_connect(void (*connect)(void), bool ending)
{
    const double begin = clock_s(CLOCK_MONOTONIC);
    client.connected = server.connected = false;
    connect();
    while (!client.connected || !server.connected) {
        sides_poll(&client, ending);
        sides_poll(&server, ending);
        if (clock_s(CLOCK_MONOTONIC) - begin > SIDES_LIMIT_S) {
            give_up("a connection is not made");
        }
    }
}

/* ---- Times ----------------------------------------------------------------------------------- */

double clock_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double *room_for(size_t count)
{
    double *numbers = calloc(count, sizeof(*numbers));
    if (!numbers) {
        give_up("no memory");
    }
    return numbers;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

double median(double *numbers, size_t count)
{
    qsort(numbers, count, sizeof(*numbers), compare);
    return numbers[count / 2];
}
