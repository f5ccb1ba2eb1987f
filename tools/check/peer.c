/* peer.c: see peer.h.
 *
 * Each side sends one message of fixed length: which service, and its blob. Anybody can connect and send anything: the
 * message is checked before it is used, and a blob is checked by the library, as always. */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC "copyrpc-check 1\n"
#define MAGIC_BYTES 16 /* without the end of the string */
#define DONE_MS 1000

struct message {
    char magic[MAGIC_BYTES];
    uint32_t service; /* big-endian, as the next */
    uint32_t bytes;   /* of the blob; of an answer 0 = refused, and the blob says why */
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
};

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

/* ---- TCP ------------------------------------------------------------------------------------- */

static void set_patience(int fd, uint32_t seconds)
{
    const struct timeval time = {.tv_sec = (time_t)seconds};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

static bool send_message(int fd, uint32_t service, const void *blob, uint32_t bytes)
{
    struct message message = {.service = htonl(service), .bytes = htonl(bytes)};
    memcpy(message.magic, MAGIC, MAGIC_BYTES);
    const size_t room = sizeof(message.blob);
    memcpy(message.blob, blob, bytes < room ? bytes : room);
    return send(fd, &message, sizeof(message), MSG_NOSIGNAL) == (ssize_t)sizeof(message);
}

static bool receive_message(int fd, struct message *message)
{
    if (recv(fd, message, sizeof(*message), MSG_WAITALL) != (ssize_t)sizeof(*message)) {
        return false;
    }
    message->service = ntohl(message->service);
    message->bytes = ntohl(message->bytes);
    return memcmp(message->magic, MAGIC, MAGIC_BYTES) == 0 &&
           message->service <= SERVICE_CHANNELS && message->bytes <= sizeof(message->blob);
}

static int connect_to_one(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        set_patience(fd, 10);
        if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
            int os_error = errno;
            close(fd);
            errno = os_error;
            fd = -1;
        }
    }
    return fd;
}

/* "host", "host:port" or "[2001:db8::1]:port". */
static bool split(const char *text, char *host, size_t host_bytes, char *port, size_t port_bytes)
{
    const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
    if (colon && (colon < bracket || (!bracket && strchr(text, ':') != colon))) {
        colon = NULL; /* of an IPv6 address */
    }
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    if (*text == '[' && length >= 2 && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    snprintf(port, port_bytes, "%s", colon ? colon + 1 : PEER_PORT_DEFAULT);
    snprintf(host, host_bytes, "%.*s", (int)length, text);
    return length > 0 && length < host_bytes && *port;
}

static int dial(const char *text, struct outcome *outcome)
{
    char host[256], port[16];
    struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM};
    if (!split(text, host, sizeof(host), port, sizeof(port))) {
        fails(outcome, "'%s' is no name of a host", text);
        return -1;
    }
    int status = getaddrinfo(host, port, &hints, &list), fd = -1;
    if (status != 0) {
        fails(outcome, "cannot find the host: %s", gai_strerror(status));
        return -1;
    }
    for (const struct addrinfo *one = list; one && fd < 0; one = one->ai_next) {
        fd = connect_to_one(one);
    }
    if (fd < 0) {
        fails(outcome, "cannot connect to the host: %s: does copyrpc-check --listen run there?",
              strerror(errno));
    }
    freeaddrinfo(list);
    return fd;
}

int peer_ask(const char *host, enum service service, const struct blob *own, struct blob *peer,
             struct outcome *outcome)
{
    struct message answer;
    int fd = dial(host, outcome);
    if (fd < 0) {
        return -1;
    }
    if (!send_message(fd, service, own->data, own->bytes) || !receive_message(fd, &answer)) {
        fails(outcome, "the host does not answer as copyrpc-check --listen does");
        close(fd);
        return -1;
    }
    if (answer.bytes == 0) {
        answer.blob[sizeof(answer.blob) - 1] = '\0';
        fails(outcome, "the host refuses: %.200s", (const char *)answer.blob);
        close(fd);
        return -1;
    }
    peer->bytes = answer.bytes;
    memcpy(peer->data, answer.blob, answer.bytes);
    return fd;
}

/* ---- The listener ---------------------------------------------------------------------------- */

/* The peer says nothing more: it closes the connection when it is done. */
static bool is_done(int fd, int patience_ms)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, patience_ms) != 0;
}

static void refuse(int fd, uint32_t service, const char *why)
{
    struct message refusal = {.service = htonl(service)};
    memcpy(refusal.magic, MAGIC, MAGIC_BYTES);
    snprintf((char *)refusal.blob, sizeof(refusal.blob), "%.250s", why);
    (void)!send(fd, &refusal, sizeof(refusal), MSG_NOSIGNAL);
}

static void serve(const struct subject *subject, int fd)
{
    static struct end end;
    struct message request;
    struct blob own, peer;
    struct outcome outcome = {0};
    set_patience(fd, 10);
    if (!receive_message(fd, &request) || request.bytes == 0) {
        puts("somebody connected who is not copyrpc-check");
        return;
    }
    peer.bytes = request.bytes;
    memcpy(peer.data, request.blob, request.bytes);
    const char *what = request.service == SERVICE_CALLS ? "calls" : "channels";
    bool good = end_open(&end, subject, 0, request.service, true, &own, &outcome) &&
                end_join(&end, &peer, &outcome);
    if (!good) {
        refuse(fd, request.service, outcome.seen);
    } else {
        good = send_message(fd, request.service, own.data, own.bytes) ||
               fails(&outcome, "the peer is gone");
    }
    while (good && !stopped && !is_done(fd, 0)) {
        for (uint32_t i = 0; good && i < 1000; i++) {
            good = end_poll(&end, &outcome);
        }
    }
    /* A peer that is done ends the queue pairs a moment before or after it closes. */
    const bool done = good || (end.parted && is_done(fd, DONE_MS));
    printf("%s: %s\n", what, done ? "done" : outcome.seen);
    end_close(&end);
}

static int open_listener(const char *port)
{
    struct addrinfo *list,
        hints = {.ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const int yes = 1, no = 0;
    int status = getaddrinfo(NULL, port, &hints, &list);
    if (status != 0) {
        fprintf(stderr, "copyrpc-check: port '%s': %s\n", port, gai_strerror(status));
        return -1;
    }
    int fd = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    }
    if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, 4) != 0) {
        fprintf(stderr, "copyrpc-check: cannot listen on port %s: %s\n", port, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

int peer_listen(const struct subject *subject, const char *port)
{
    struct sigaction action = {.sa_handler = stop};
    int fd = open_listener(port);
    if (fd < 0) {
        return 2;
    }
    sigaction(SIGINT, &action, NULL); /* no SA_RESTART: accept returns */
    sigaction(SIGTERM, &action, NULL);
    printf("listening on port %s with %s\n", port, subject->device[0]);
    fflush(stdout);
    while (!stopped) {
        int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (one >= 0) {
            serve(subject, one);
            close(one);
            fflush(stdout);
        }
    }
    close(fd);
    return EXIT_SUCCESS;
}
