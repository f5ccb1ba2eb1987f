/* connect_rounds.c: how many connections a second two sides in one thread make and close, over a
 * device, by the public API, without a key and with one: by blobs, and by rdma_cm.
 *
 *   connect_rounds DEVICE ADDRESS ROUNDS
 *
 * A round makes and closes one connection of each sort, so that all have the same share of what else
 * the machine does. Prints JSON: the rate by the median of the rounds, and what a key multiplies it
 * with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sides.h"

#define ROUNDS_MAX 100000
#define KEY_BYTES 32

/* Seconds from the first call until both sides have closed. */
static double connect_once(void (*connect)(void), bool with_key)
{
    double begin = clock_s(CLOCK_MONOTONIC);
    sides_options.key_bytes = with_key ? KEY_BYTES : 0;
    sides_connect(connect, true); /* the first that is closed may be heard of at the other side */
    crpc_endpoint_close(client.context, client.endpoint);
    crpc_endpoint_close(server.context, server.endpoint);
    sides_poll(&client, true);
    sides_poll(&server, true);
    return clock_s(CLOCK_MONOTONIC) - begin;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static void measure(const char *name, void (*connect)(void), size_t rounds, const char *end)
{
    double *times[2] = {room_for(rounds), room_for(rounds)};
    for (int with_key = 0; with_key < 2; with_key++) { /* the first key loads libcrypto */
        connect_once(connect, with_key);
    }
    for (size_t i = 0; i < rounds; i++) {
        for (int with_key = 0; with_key < 2; with_key++) {
            times[with_key][i] = connect_once(connect, with_key);
        }
    }
    double without = 1 / median(times[0], rounds), with = 1 / median(times[1], rounds);
    printf("\"%s\": {\"connects_per_second\": %.0f, \"with_a_key\": %.0f, \"ratio\": %.3f}%s", name,
           without, with, with / without, end);
    free(times[0]);
    free(times[1]);
}

int main(int argc, char **argv)
{
    size_t rounds = argc == 4 ? strtoul(argv[3], NULL, 0) : 0;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: connect_rounds DEVICE ADDRESS ROUNDS\n");
        return 2;
    }
    sides_options.struct_size = sizeof(sides_options);
    sides_options.keepalive_ns = CRPC_FOREVER;
    memset(sides_options.key, 'k', KEY_BYTES);
    sides_open(argv[1], (crpc_context_options){0});
    sides_listen(argv[2]);
    printf("{");
    measure("blobs", connect_by_blobs, rounds, ", ");
    measure("rdma_cm", connect_by_address, rounds, "}\n");
    crpc_context_close(client.context);
    crpc_context_close(server.context);
    return 0;
}
