/* connect_rounds.c: how many connections a second two sides in one thread make and close, over a
 * device, by the public API, without a key and with one: by blobs, and by rdma_cm.
 *
 *   connect_rounds DEVICE ADDRESS ROUNDS
 *
 * A round makes and closes one connection of each sort, so that all have the same share of what else
 * the machine does. Prints JSON: the rate by the median of the rounds, and what a key multiplies it
 * with.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <copyrpc.h>

#define ROUNDS_MAX 100000
#define KEY_BYTES 32
#define COMPLETIONS 16
#define LIMIT_S 60 /* for one connection, on a machine that stands still */

struct side {
    crpc_context *context;
    crpc_endpoint endpoint;
    bool connected;
};

static struct side client, server;
static crpc_endpoint_options options;
static char address[sizeof(((crpc_listener_info *)NULL)->address)];

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "connect_rounds: %s\n", what);
    exit(EXIT_FAILURE);
}

static void need(int32_t status, const crpc_error *error)
{
    if (status < 0) {
        give_up(error->message);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void open_side(struct side *side, const char *device)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options wanted = {.struct_size = sizeof(wanted)};
    snprintf(wanted.device, sizeof(wanted.device), "%s", device);
    need(crpc_context_open(&wanted, &side->context, &error), &error);
}

static void listen_at(const char *host)
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

static void poll_side(struct side *side)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_completion completions[COMPLETIONS];
    int32_t count = crpc_poll(side->context, completions, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        switch (completions[i].kind) {
        case CRPC_COMPLETION_CONNECT_REQUEST:
            side->endpoint = completions[i].endpoint;
            need(crpc_endpoint_accept(side->context, side->endpoint, &options, &error), &error);
            break;
        case CRPC_COMPLETION_CONNECTED:
            crpc_endpoint_get_error(side->context, side->endpoint, &error);
            need(completions[i].status, &error);
            side->connected = true;
            break;
        default: /* the first that is closed may be heard of at the other side */
            break;
        }
    }
}

static void connect_by_blobs(void)
{
    struct side *sides[2] = {&client, &server};
    crpc_error error = {.struct_size = sizeof(error)};
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2] = {CRPC_BLOB_BYTES_MAX, CRPC_BLOB_BYTES_MAX};
    for (int i = 0; i < 2; i++) {
        need(crpc_endpoint_blob(sides[i]->context, &options, &sides[i]->endpoint, blobs[i],
                                &bytes[i], &error),
             &error);
    }
    for (int i = 0; i < 2; i++) {
        need(
            crpc_endpoint_join(sides[i]->context, sides[i]->endpoint, blobs[!i], bytes[!i], &error),
            &error);
    }
}

static void connect_by_address(void)
{
    crpc_error error = {.struct_size = sizeof(error)};
    need(crpc_endpoint_connect(client.context, address, &options, &client.endpoint, &error),
         &error);
}

/* Seconds from the first call until both sides have closed. */
static double connect_once(void (*connect)(void), bool with_key)
{
    double begin = seconds();
    client.connected = server.connected = false;
    options.key_bytes = with_key ? KEY_BYTES : 0;
    connect();
    while (!client.connected || !server.connected) {
        poll_side(&client);
        poll_side(&server);
        if (seconds() - begin > LIMIT_S) {
            give_up("a connection is not made");
        }
    }
    crpc_endpoint_close(client.context, client.endpoint);
    crpc_endpoint_close(server.context, server.endpoint);
    poll_side(&client);
    poll_side(&server);
    return seconds() - begin;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static double *room(size_t count)
{
    double *times = calloc(count, sizeof(*times));
    if (!times) {
        give_up("no memory");
    }
    return times;
}

static double rate(double *times, size_t count)
{
    qsort(times, count, sizeof(*times), compare);
    return 1 / times[count / 2];
}

static void measure(const char *name, void (*connect)(void), size_t rounds, const char *end)
{
    double *times[2] = {room(rounds), room(rounds)};
    for (int with_key = 0; with_key < 2; with_key++) { /* the first key loads libcrypto */
        connect_once(connect, with_key);
    }
    for (size_t i = 0; i < rounds; i++) {
        for (int with_key = 0; with_key < 2; with_key++) {
            times[with_key][i] = connect_once(connect, with_key);
        }
    }
    double without = rate(times[0], rounds), with = rate(times[1], rounds);
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
    options.struct_size = sizeof(options);
    options.keepalive_ns = CRPC_FOREVER;
    memset(options.key, 'k', KEY_BYTES);
    open_side(&client, argv[1]);
    open_side(&server, argv[1]);
    listen_at(argv[2]);
    printf("{");
    measure("blobs", connect_by_blobs, rounds, ", ");
    measure("rdma_cm", connect_by_address, rounds, "}\n");
    crpc_context_close(client.context);
    crpc_context_close(server.context);
    return 0;
}
