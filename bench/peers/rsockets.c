/* rsockets.c: calls over rsockets, librdmacm's sockets over RDMA.
 *
 * A stream has no messages, so each begins with a header. The sockets do not block, and are looked at in turn: rpoll would
 * sleep in the kernel after 10 us. Their buffers are as large as there is use for: a call should not wait for room.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "peer.h"

#define MESSAGES_A_SEND 64u
#define BUFFER_BYTES_MIN (128u << 10) /* rsockets' default */
#define BUFFER_BYTES_MAX (4u << 20)
#define RECEIVE_BYTES_MIN (256u << 10)
#define ACCEPTED_MAX_BEFORE_53 3
#define RECEIVE_MESSAGES 4u /* what is left at the end is moved once in so many */

struct header {
    uint32_t slot;
    uint32_t bytes;
};

struct connection {
    int socket;
    uint32_t open; /* the client's calls that have no answer yet */
    /* What has arrived: complete messages from `used` to `complete`, the beginning of one from there to `filled`. */
    uint8_t *received;
    uint64_t used, complete, filled, room;
    /* The client's slots whose requests were not sent to their end, a ring of `depth` numbers, and how much of the first was. */
    uint32_t *waiting_slots;
    uint32_t first, waiting;
    uint64_t first_sent;
    struct header *headers; /* of the calls of one rsendmsg */
};

struct rsockets {
    struct connection *connections;
    uint32_t count;
};

static struct rsockets rsockets;

static bool failed_with_errno(const char *what)
{
    return peer_failed(what, strerror(errno));
}

static bool later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

static uint64_t message_bytes(const struct peer *peer)
{
    return sizeof(struct header) + peer->options.size;
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* Of a socket before it listens or connects: those that it accepts have the same. */
static bool set_buffers(const struct peer *peer, int socket)
{
    uint64_t wanted = 2 * message_bytes(peer) * peer->options.depth;
    int on = 1, bytes = (int)(wanted > BUFFER_BYTES_MAX   ? BUFFER_BYTES_MAX
                              : wanted < BUFFER_BYTES_MIN ? BUFFER_BYTES_MIN
                                                          : wanted);
    return rsetsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
           rsetsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
           rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0;
}

static bool add_connection(const struct peer *peer, int socket)
{
    struct connection *connection = &rsockets.connections[rsockets.count];
    int on = 1;
    uint64_t room = RECEIVE_MESSAGES * message_bytes(peer);
    *connection = (struct connection){.socket = socket,
                                      .room = room > RECEIVE_BYTES_MIN ? room : RECEIVE_BYTES_MIN};
    if (rsetsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
        rfcntl(socket, F_SETFL, O_NONBLOCK)) {
        return failed_with_errno("rsetsockopt");
    }
    connection->received = peer_memory(connection->room);
    connection->waiting_slots =
        peer_memory(peer->options.depth * sizeof(*connection->waiting_slots));
    connection->headers = peer_memory(MESSAGES_A_SEND * sizeof(*connection->headers));
    rsockets.count++;
    return true;
}

static struct addrinfo *address_of(const struct peer *peer)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    if (getaddrinfo(peer->options.host, peer->options.port, &hints, &found)) {
        peer_failed(peer->options.host, "no address");
    }
    rsockets.connections = peer_memory(peer->options.connections * sizeof(*rsockets.connections));
    return found;
}

static bool connect_all(struct peer *peer)
{
    struct addrinfo *address = address_of(peer);
    bool good = address;
    for (uint32_t i = 0; i < peer->options.connections && good; i++) {
        int socket = rsocket(address->ai_family, SOCK_STREAM, 0);
        good = socket >= 0 && set_buffers(peer, socket) &&
               rconnect(socket, address->ai_addr, address->ai_addrlen) == 0;
        good = good ? add_connection(peer, socket) : failed_with_errno("rconnect");
    }
    if (address) {
        freeaddrinfo(address);
    }
    return good;
}

static void leave(struct peer *peer)
{
    (void)peer;
    for (uint32_t i = 0; i < rsockets.count; i++) {
        rshutdown(rsockets.connections[i].socket, SHUT_RDWR);
        rclose(rsockets.connections[i].socket);
    }
}

/* Takes what has arrived. Returns whether anything has, a negative number if the connection has ended. */
static int32_t receive(const struct peer *peer, struct connection *connection)
{
    if (connection->used == connection->filled) {
        connection->used = connection->complete = connection->filled = 0;
    } else if (connection->room - connection->filled < message_bytes(peer) &&
               connection->used > 0) {
        memmove(connection->received, connection->received + connection->used,
                connection->filled - connection->used);
        connection->complete -= connection->used;
        connection->filled -= connection->used;
        connection->used = 0;
    }
    if (connection->filled == connection->room) {
        return 0;
    }
    ssize_t bytes = rrecv(connection->socket, connection->received + connection->filled,
                          connection->room - connection->filled, 0);
    if (bytes < 0 && later()) {
        return 0;
    }
    if (bytes <= 0) {
        return -1;
    }
    connection->filled += (uint64_t)bytes;
    while (connection->filled - connection->complete >= message_bytes(peer)) {
        connection->complete += message_bytes(peer);
    }
    return 1;
}

/* ---- The client's calls ---------------------------------------------------------------------- */

/* Sends as many of the waiting requests as the socket takes. */
static bool send_waiting(const struct peer *peer, struct connection *connection)
{
    struct iovec pieces[2 * MESSAGES_A_SEND];
    while (connection->waiting > 0) {
        uint32_t count =
            connection->waiting < MESSAGES_A_SEND ? connection->waiting : MESSAGES_A_SEND;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t slot =
                connection->waiting_slots[(connection->first + i) % peer->options.depth];
            connection->headers[i] = (struct header){slot, peer->options.size};
            pieces[2 * i] = (struct iovec){&connection->headers[i], sizeof(struct header)};
            pieces[2 * i + 1] = (struct iovec){peer_request(peer, slot), peer->options.size};
        }
        for (uint64_t i = 0, skip = connection->first_sent; skip > 0; i++) {
            uint64_t part = skip < pieces[i].iov_len ? skip : pieces[i].iov_len;
            pieces[i].iov_base = (uint8_t *)pieces[i].iov_base + part;
            pieces[i].iov_len -= part;
            skip -= part;
        }
        uint32_t empty =
            connection->first_sent >= sizeof(struct header); /* a header that was sent before */
        struct msghdr message = {.msg_iov = pieces + empty, .msg_iovlen = 2 * count - empty};
        ssize_t bytes = rsendmsg(connection->socket, &message, 0);
        if (bytes < 0) {
            return later() || failed_with_errno("rsendmsg");
        }
        connection->first_sent += (uint64_t)bytes;
        uint32_t done = (uint32_t)(connection->first_sent / message_bytes(peer));
        connection->first_sent %= message_bytes(peer);
        connection->first = (connection->first + done) % peer->options.depth;
        connection->waiting -= done;
        if (done < count) {
            return true;
        }
    }
    return true;
}

static int32_t send_slots(struct peer *peer, const uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct connection *connection = &rsockets.connections[slots[i] % peer->options.connections];
        connection
            ->waiting_slots[(connection->first + connection->waiting++) % peer->options.depth] =
            slots[i];
        connection->open++;
    }
    for (uint32_t i = 0; i < rsockets.count; i++) {
        if (!send_waiting(peer, &rsockets.connections[i])) {
            return -1;
        }
    }
    return (int32_t)count;
}

static int32_t take_replies(struct peer *peer)
{
    int32_t found = 0;
    for (uint32_t i = 0; i < rsockets.count; i++) {
        struct connection *connection = &rsockets.connections[i];
        if (connection->open == 0) {
            continue;
        }
        int32_t came = receive(peer, connection);
        if (came < 0 || !send_waiting(peer, connection)) {
            peer_failed("rrecv",
                        came < 0 ? "the connection was lost" : "and what waits cannot be sent");
            return -1;
        }
        found |= came;
        for (; connection->used < connection->complete; connection->used += message_bytes(peer)) {
            struct header header;
            memcpy(&header, connection->received + connection->used, sizeof(header));
            connection->open--;
            peer_answered(peer, header.slot,
                          connection->received + connection->used + sizeof(header), header.bytes);
        }
    }
    return found;
}

/* ---- The server ------------------------------------------------------------------------------ */

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

/* An echo: the reply to a complete request is the same bytes, its header included. */
static bool answer(const struct peer *peer, struct connection *connection, bool *idle)
{
    int32_t came = receive(peer, connection);
    if (came < 0) {
        return false;
    }
    *idle = *idle && came == 0;
    if (connection->used < connection->complete) {
        ssize_t bytes = rsend(connection->socket, connection->received + connection->used,
                              connection->complete - connection->used, 0);
        if (bytes < 0 && !later()) {
            return false;
        }
        connection->used += bytes > 0 ? (uint64_t)bytes : 0;
    }
    return true;
}

/* The thread of the library that watches accepted sockets goes on with memory that it has freed, once there are more than three:
 * rdma-core's pull request 1484. */
static bool can_accept(const struct peer *peer)
{
    int rdma_core = 0;
    if (peer->options.connections <= ACCEPTED_MAX_BEFORE_53 ||
        (sscanf(PEER_VERSION, "%*d.%*d.%d", &rdma_core) == 1 && rdma_core >= 53)) {
        return true;
    }
    return peer_failed("rsockets",
                       "a server with more than 3 connections hangs before rdma-core 53 "
                       "(linux-rdma/rdma-core pull request 1484); this is " PEER_VERSION);
}

static bool accept_all(struct peer *peer, int listener)
{
    peer_listening(peer);
    while (rsockets.count < peer->options.connections && !peer_stop) {
        int socket = raccept(listener, NULL, NULL);
        if (socket < 0 && !later()) {
            return failed_with_errno("raccept");
        }
        if (socket < 0) {
            nap();
        } else if (!add_connection(peer, socket)) {
            return false;
        }
    }
    return true;
}

static bool serve(struct peer *peer)
{
    if (!can_accept(peer)) {
        return false;
    }
    struct addrinfo *address = address_of(peer);
    int listener = address ? rsocket(address->ai_family, SOCK_STREAM, 0) : -1;
    if (listener < 0 || !set_buffers(peer, listener) ||
        rbind(listener, address->ai_addr, address->ai_addrlen) ||
        rlisten(listener, (int)peer->options.connections) ||
        rfcntl(listener, F_SETFL, O_NONBLOCK)) {
        return failed_with_errno("rlisten");
    }
    freeaddrinfo(address);
    if (!accept_all(peer, listener)) {
        return false;
    }
    for (uint32_t ended = 0; ended < rsockets.count && !peer_stop;) {
        bool idle = true;
        for (uint32_t i = 0; i < rsockets.count; i++) {
            struct connection *connection = &rsockets.connections[i];
            if (connection->socket >= 0 && !answer(peer, connection, &idle)) {
                rclose(connection->socket);
                connection->socket = -1;
                ended++;
            }
        }
        if (idle && peer->options.patient) {
            nap();
        }
    }
    rclose(listener);
    return true;
}

static const char *version(void)
{
    return PEER_VERSION;
}

int main(int argc, char **argv)
{
    const struct peer_transport transport = {"rsockets",   serve, connect_all, send_slots,
                                             take_replies, leave, version};
    return peer_main(argc, argv, &transport);
}
