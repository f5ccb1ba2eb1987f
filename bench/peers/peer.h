/* peer.h: what the programs of the peers share: the command line, the calls that are open, the report.
 *
 * A call is a request of `size` bytes and a reply of the same bytes. The client keeps `depth` calls open on each of its
 * connections: as many as have been answered are sent anew, after each look for answers. That is what copyrpc-perf does, so
 * that the same work can be measured beside it.
 *
 * Each program has a struct peer_transport; peer.c has its main. Servers get the same options as their clients, and serve
 * one client until a signal ends them.
 */
#ifndef BENCH_PEERS_PEER_H
#define BENCH_PEERS_PEER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "../../tools/common/histogram.h"

/* Payloads up to so many bytes are different for each call, and begin with its number, for which the reply is checked. Larger
 * ones are all sent from one place, and replies are checked for their length: as copyrpc-perf does. */
#define PEER_NUMBERED_BYTES_MAX 65536u
#define PEER_CONNECTIONS_MAX 64

struct peer_options {
    const char *host;
    const char *port;
    uint32_t size;  /* bytes of a request, at least 4 */
    uint32_t depth; /* open calls of each connection */
    uint32_t connections;
    double seconds; /* how long to measure, unless `calls` says how much */
    double warmup_seconds;
    uint64_t calls;
    bool patient; /* sleep after each look that found nothing: for counting instructions */
};

struct peer {
    struct peer_options options;

    /* The client's calls are known by the number of their slot; slot n belongs to connection n % connections. */
    uint32_t slot_count;
    uint32_t free_count;
    uint32_t *free_slots;
    uint64_t *started_ns;
    uint8_t *requests; /* where the payloads of all slots are */
    uint64_t requests_bytes;

    uint64_t sent;
    uint64_t answered;
    uint64_t wrong;
    uint64_t now_ns; /* of the last look; 0 while it finds no answers */
    struct histogram *latency;
};

struct peer_transport {
    const char *name;
    /* Serves until peer_stop. Prints peer_listening() when a client may come. */
    bool (*serve)(struct peer *peer);
    /* The client's, which print why they fail. This returns whether it worked. */
    bool (*connect)(struct peer *peer);
    /* Sends the calls of these slots. Returns how many it took, from the beginning; a negative number if it failed. */
    int32_t (*send)(struct peer *peer, const uint32_t *slots, uint32_t count);
    /* Looks for answers once, and gives each to peer_answered. Returns whether it found anything to do, a negative number if
     * it failed. */
    int32_t (*progress)(struct peer *peer);
    void (*leave)(struct peer *peer);
    /* The version of the library, and settings that matter, for people. */
    const char *(*version)(void);
};

/* Set by SIGTERM and SIGINT. */
extern volatile sig_atomic_t peer_stop;

int peer_main(int argc, char **argv, const struct peer_transport *transport);

/* A reply to the call of this slot. */
void peer_answered(struct peer *peer, uint32_t slot, const void *payload, uint64_t bytes);
uint8_t *peer_request(const struct peer *peer, uint32_t slot);
/* Tells whoever started the server that a client may come. */
void peer_listening(const struct peer *peer);
/* Prints what failed, and returns false. */
bool peer_failed(const char *what, const char *why);
/* A TCP connection to the port, over which two sides tell each other where they are: the client's, and the server's, which tells
 * that a client may come. Negative if there is none. */
int peer_tcp_connect(const struct peer *peer);
int peer_tcp_accept(const struct peer *peer);
bool peer_tell(int tcp, const void *data, uint64_t bytes);
/* What the other side has told, which the caller frees; NULL if nothing has come. */
void *peer_hear(int tcp, uint64_t *bytes);
/* Memory that begins with a page, all zero. Ends the program if there is none. */
void *peer_memory(uint64_t bytes);

#endif
