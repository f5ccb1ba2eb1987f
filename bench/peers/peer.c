/* peer.c: the part of a peer's program that all of them share. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "peer.h"

#define SLEEP_NS 5000000
#define PAGE_BYTES 4096u

volatile sig_atomic_t peer_stop;

static const struct option words[] = {
    {"size", required_argument, NULL, 's'},        {"depth", required_argument, NULL, 'q'},
    {"connections", required_argument, NULL, 'c'}, {"time", required_argument, NULL, 't'},
    {"calls", required_argument, NULL, 'n'},       {"warmup", required_argument, NULL, 'w'},
    {"patient", no_argument, NULL, 'p'},           {NULL, 0, NULL, 0}};

static void on_signal(int number)
{
    (void)number;
    peer_stop = 1;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool peer_failed(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return false;
}

void *peer_memory(uint64_t bytes)
{
    uint64_t pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    void *memory = aligned_alloc(PAGE_BYTES, (pages ? pages : 1) * PAGE_BYTES);
    if (!memory) {
        perror("memory");
        exit(EXIT_FAILURE);
    }
    memset(memory, 0, (pages ? pages : 1) * PAGE_BYTES);
    return memory;
}

void peer_listening(const struct peer *peer)
{
    printf("listening on %s:%s\n", peer->options.host, peer->options.port);
    fflush(stdout);
}

/* ---- What two sides tell each other before they are connected -------------------------------- */

static int tcp_socket(const struct peer *peer, bool listens)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    int on = 1, tcp = -1;
    bool good = false;
    if (getaddrinfo(peer->options.host, peer->options.port, &hints, &found) == 0) {
        tcp = socket(found->ai_family, SOCK_STREAM, 0);
        setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        good = listens ? bind(tcp, found->ai_addr, found->ai_addrlen) == 0 && listen(tcp, 1) == 0
                       : connect(tcp, found->ai_addr, found->ai_addrlen) == 0;
        freeaddrinfo(found);
    }
    if (!good) {
        peer_failed("TCP", strerror(errno));
        if (tcp >= 0) {
            close(tcp);
        }
    }
    return good ? tcp : -1;
}

int peer_tcp_connect(const struct peer *peer)
{
    return tcp_socket(peer, false);
}

int peer_tcp_accept(const struct peer *peer)
{
    int listener = tcp_socket(peer, true), tcp = -1;
    if (listener >= 0) {
        peer_listening(peer);
        tcp = accept(listener, NULL, NULL);
        close(listener);
    }
    return tcp;
}

bool peer_tell(int tcp, const void *data, uint64_t bytes)
{
    return (send(tcp, &bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes) &&
            send(tcp, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes) ||
           peer_failed("TCP", strerror(errno));
}

void *peer_hear(int tcp, uint64_t *bytes)
{
    if (recv(tcp, bytes, sizeof(*bytes), MSG_WAITALL) == sizeof(*bytes)) {
        void *data = peer_memory(*bytes);
        if (recv(tcp, data, *bytes, MSG_WAITALL) == (ssize_t)*bytes) {
            return data;
        }
        free(data);
    }
    peer_failed("TCP", "the other side has told nothing");
    return NULL;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static bool numbered(const struct peer *peer)
{
    return peer->options.size <= PEER_NUMBERED_BYTES_MAX;
}

uint8_t *peer_request(const struct peer *peer, uint32_t slot)
{
    return peer->requests + (numbered(peer) ? (uint64_t)slot * peer->options.size : 0);
}

static void make_slots(struct peer *peer)
{
    const struct peer_options *options = &peer->options;
    peer->slot_count = options->depth * options->connections;
    peer->free_slots = peer_memory(peer->slot_count * sizeof(*peer->free_slots));
    peer->started_ns = peer_memory(peer->slot_count * sizeof(*peer->started_ns));
    peer->requests_bytes = (uint64_t)options->size * (numbered(peer) ? peer->slot_count : 1);
    peer->requests = peer_memory(peer->requests_bytes);
    peer->latency = histogram_create();
    for (uint32_t slot = 0; slot < peer->slot_count; slot++) {
        peer->free_slots[peer->free_count++] = slot;
        if (numbered(peer)) {
            memcpy(peer_request(peer, slot), &slot, sizeof(slot));
        }
    }
}

void peer_answered(struct peer *peer, uint32_t slot, const void *payload, uint64_t bytes)
{
    uint32_t number = slot;
    if (slot >= peer->slot_count) {
        peer->wrong++;
        return;
    }
    if (numbered(peer) && bytes >= sizeof(number)) {
        memcpy(&number, payload, sizeof(number));
    }
    if (number != slot || bytes != peer->options.size) {
        peer->wrong++;
    }
    if (peer->now_ns == 0) {
        peer->now_ns = clock_ns(); /* once for all answers of a look, as copyrpc-perf does */
    }
    peer->answered++;
    peer->free_slots[peer->free_count++] = slot;
    histogram_record(peer->latency, peer->now_ns - peer->started_ns[slot]);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Sends what may be sent, `most` calls at most. */
static bool send_calls(struct peer *peer, const struct peer_transport *transport, uint64_t most)
{
    uint32_t count = peer->free_count < most ? peer->free_count : (uint32_t)most;
    if (count == 0) {
        return true;
    }
    for (uint32_t i = 0; i < count; i++) {
        peer->started_ns[peer->free_slots[i]] = peer->now_ns;
    }
    int32_t taken = transport->send(peer, peer->free_slots, count);
    if (taken < 0) {
        return false;
    }
    peer->free_count -= (uint32_t)taken;
    memmove(peer->free_slots, peer->free_slots + taken,
            peer->free_count * sizeof(*peer->free_slots));
    peer->sent += (uint32_t)taken;
    return true;
}

/* Returns whether it found anything; a negative number if it failed. A patient client then sleeps, until it is likely that all that
 * is on its way is there. */
static int32_t look(struct peer *peer, const struct peer_transport *transport)
{
    peer->now_ns = 0;
    int32_t found = transport->progress(peer);
    peer->now_ns = clock_ns();
    if (found == 0 && peer->options.patient) {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
    return found;
}

/* Calls until the time is over or `calls` were sent, then until all are answered. Returns the seconds; none if it failed. */
static double run(struct peer *peer, const struct peer_transport *transport, double seconds,
                  uint64_t calls)
{
    uint64_t begun_ns = clock_ns(),
             end_ns = calls ? UINT64_MAX : begun_ns + (uint64_t)(seconds * 1e9);
    peer->sent = peer->answered = 0;
    peer->now_ns = begun_ns;
    histogram_reset(peer->latency);
    int32_t found = 0;
    while (found >= 0 && !peer_stop && peer->now_ns < end_ns &&
           (calls == 0 || peer->sent < calls)) {
        /* A patient client first takes all that has come: so few looks find little, whoever is slow. */
        if (!(found > 0 && peer->options.patient) &&
            !send_calls(peer, transport, calls ? calls - peer->sent : UINT64_MAX)) {
            return NAN;
        }
        found = look(peer, transport);
    }
    while (found >= 0 && !peer_stop && peer->answered < peer->sent) {
        found = look(peer, transport);
    }
    if (found < 0) {
        return NAN;
    }
    return (double)(clock_ns() - begun_ns) / 1e9;
}

static bool report(const struct peer *peer, const struct peer_transport *transport, double seconds)
{
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:{s:I, s:I, s:I}}", "peer",
        transport->name, "version", transport->version(), "size", (json_int_t)peer->options.size,
        "depth", (json_int_t)peer->options.depth, "connections",
        (json_int_t)peer->options.connections, "calls", (json_int_t)peer->answered, "lost",
        (json_int_t)(peer->sent - peer->answered), "wrong", (json_int_t)peer->wrong, "seconds",
        seconds, "calls_per_second", (double)peer->answered / seconds, "latency_ns", "p50",
        (json_int_t)histogram_percentile_ns(peer->latency, 50), "p99",
        (json_int_t)histogram_percentile_ns(peer->latency, 99), "max",
        (json_int_t)histogram_max_ns(peer->latency));
    if (!root) {
        return peer_failed("report", "no memory");
    }
    json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
    return true;
}

static bool measure(struct peer *peer, const struct peer_transport *transport)
{
    const struct peer_options *options = &peer->options;
    make_slots(peer);
    if (!transport->connect(peer)) {
        return false;
    }
    /* First each call once: by then all is connected, and the memory is registered. */
    double seconds = run(peer, transport, 0, peer->slot_count);
    if (!isnan(seconds) && options->warmup_seconds > 0) {
        seconds = run(peer, transport, options->warmup_seconds, 0);
    }
    if (!isnan(seconds)) {
        seconds = run(peer, transport, options->seconds, options->calls);
    }
    bool done = !isnan(seconds) && report(peer, transport, seconds);
    if (peer->wrong > 0) {
        peer_failed("replies", "some had the wrong bytes or length");
    }
    transport->leave(peer);
    return done && peer->wrong == 0 && peer->answered == peer->sent && peer->answered > 0;
}

/* ---- The command line ------------------------------------------------------------------------ */

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s server|client HOST PORT [--size BYTES] [--depth CALLS] [--connections N] "
            "[--time SECONDS | --calls N]\n"
            "       [--warmup SECONDS] [--patient]\n",
            program);
    return 2;
}

static bool parse(int argc, char **argv, struct peer_options *options)
{
    int word;
    *options = (struct peer_options){
        .size = 32, .depth = 1, .connections = 1, .seconds = 1, .warmup_seconds = 0.1};
    while ((word = getopt_long(argc, argv, "s:q:c:t:n:w:p", words, NULL)) != -1) {
        switch (word) {
        case 's':
            options->size = (uint32_t)strtoul(optarg, NULL, 0);
            break;
        case 'q':
            options->depth = (uint32_t)strtoul(optarg, NULL, 0);
            break;
        case 'c':
            options->connections = (uint32_t)strtoul(optarg, NULL, 0);
            break;
        case 't':
            options->seconds = strtod(optarg, NULL);
            break;
        case 'n':
            options->calls = strtoull(optarg, NULL, 0);
            break;
        case 'w':
            options->warmup_seconds = strtod(optarg, NULL);
            break;
        case 'p':
            options->patient = true;
            break;
        default:
            return false;
        }
    }
    if (argc - optind != 3) {
        return false;
    }
    options->host = argv[optind + 1];
    options->port = argv[optind + 2];
    return options->size >= 4 && options->depth > 0 && options->depth <= 65536 &&
           options->connections > 0 && options->connections <= PEER_CONNECTIONS_MAX &&
           options->seconds > 0;
}

int peer_main(int argc, char **argv, const struct peer_transport *transport)
{
    static struct peer peer;
    if (!parse(argc, argv, &peer.options)) {
        return usage(argv[0]);
    }
    const char *role = argv[optind];
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (strcmp(role, "server") == 0) {
        return transport->serve(&peer) ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    return strcmp(role, "client") == 0 ? (measure(&peer, transport) ? EXIT_SUCCESS : EXIT_FAILURE)
                                       : usage(argv[0]);
}
