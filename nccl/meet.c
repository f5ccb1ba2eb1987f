/* meet.c: see meet.h. */
#include "meet.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are little-endian");

static socklen_t address_bytes(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static int new_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void close_quietly(int fd)
{
    int error = errno;
    close(fd);
    errno = error;
}

/* ---- Sockets --------------------------------------------------------------------------------- */

int meet_listen(struct sockaddr_storage *address)
{
    int fd = new_socket(address->ss_family);
    if (fd < 0) {
        return -1;
    }
    socklen_t bytes = sizeof(*address);
    if (bind(fd, (struct sockaddr *)address, address_bytes(address)) < 0 ||
        listen(fd, SOMAXCONN) < 0 || getsockname(fd, (struct sockaddr *)address, &bytes) < 0) {
        close_quietly(fd);
        return -1;
    }
    return fd;
}

static struct meeting *new_meeting(int fd, uint64_t deadline_ns)
{
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    if (meeting == NULL) {
        close_quietly(fd);
        errno = ENOMEM;
        return NULL;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    meeting->fd = fd;
    meeting->deadline_ns = deadline_ns;
    return meeting;
}

struct meeting *meet_connect(const struct sockaddr_storage *address, uint64_t deadline_ns)
{
    int fd = new_socket(address->ss_family);
    if (fd < 0) {
        return NULL;
    }
    if (connect(fd, (const struct sockaddr *)address, address_bytes(address)) < 0 &&
        errno != EINPROGRESS) {
        close_quietly(fd);
        return NULL;
    }
    struct meeting *meeting = new_meeting(fd, deadline_ns);
    if (meeting != NULL) {
        meeting->connecting = true;
    }
    return meeting;
}

struct meeting *meet_accept(int listener, uint64_t deadline_ns)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd < 0 ? NULL : new_meeting(fd, deadline_ns);
}

void meet_end(struct meeting *meeting)
{
    if (meeting != NULL) {
        close(meeting->fd);
        free(meeting);
    }
}

/* ---- Talking --------------------------------------------------------------------------------- */

void meet_greet(struct meeting *meeting, const uint8_t token[MEET_TOKEN_BYTES], const void *blob,
                uint32_t blob_bytes, uint32_t traffic_class, uint32_t service_level)
{
    struct meet_greeting greeting = {.magic = MEET_MAGIC,
                                     .version = MEET_VERSION,
                                     .blob_bytes = blob_bytes,
                                     .traffic_class = (uint8_t)traffic_class,
                                     .service_level = (uint8_t)service_level};
    assert(meeting->out_bytes == 0 && blob_bytes <= sizeof(greeting.blob));
    memcpy(greeting.token, token, sizeof(greeting.token));
    memcpy(greeting.blob, blob, blob_bytes);
    memcpy(meeting->out, &greeting, sizeof(greeting));
    meeting->out_bytes = sizeof(greeting);
}

void meet_say(struct meeting *meeting, char word)
{
    assert(meeting->out_bytes < sizeof(meeting->out));
    meeting->out[meeting->out_bytes++] = (uint8_t)word;
}

static enum meet_result over(struct meeting *meeting, int os_error)
{
    meeting->os_error = os_error;
    return MEET_OVER;
}

static bool waits(int os_error)
{
    return os_error == EAGAIN || os_error == EWOULDBLOCK || os_error == EINTR;
}

/* MEET_HEARD: all is sent. */
static enum meet_result send_out(struct meeting *meeting)
{
    while (meeting->out_sent < meeting->out_bytes) {
        ssize_t sent = send(meeting->fd, meeting->out + meeting->out_sent,
                            meeting->out_bytes - meeting->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            /* The kernel says so as long as the connection is not there. */
            bool not_yet = waits(errno) || (meeting->connecting && errno == ENOTCONN);
            return not_yet ? MEET_WAITS : over(meeting, errno);
        }
        meeting->connecting = false;
        meeting->out_sent += (uint32_t)sent;
    }
    return MEET_HEARD;
}

/* What stands in the way of sending does not matter if the peer has said something before. */
static enum meet_result receive(struct meeting *meeting, void *data, size_t bytes,
                                ssize_t *received)
{
    *received = recv(meeting->fd, data, bytes, MSG_DONTWAIT);
    if (*received > 0) {
        return MEET_HEARD;
    }
    if (*received == 0) {
        return over(meeting, 0);
    }
    bool not_yet = waits(errno) || (meeting->connecting && errno == ENOTCONN);
    return not_yet ? MEET_WAITS : over(meeting, errno);
}

enum meet_result meet_step(struct meeting *meeting)
{
    if (send_out(meeting) == MEET_OVER) {
        return MEET_OVER;
    }
    while (meeting->in_bytes < sizeof(meeting->in)) {
        ssize_t received;
        enum meet_result result = receive(meeting, (uint8_t *)&meeting->in + meeting->in_bytes,
                                          sizeof(meeting->in) - meeting->in_bytes, &received);
        if (result != MEET_HEARD) {
            return result;
        }
        meeting->in_bytes += (uint32_t)received;
    }
    return MEET_HEARD;
}

bool meet_knows(const struct meeting *meeting, const uint8_t token[MEET_TOKEN_BYTES])
{
    const struct meet_greeting *in = &meeting->in;
    uint8_t difference = 0;
    for (uint32_t i = 0; i < MEET_TOKEN_BYTES; i++) { /* as long for each token */
        difference |= (uint8_t)(in->token[i] ^ token[i]);
    }
    return meeting->in_bytes == sizeof(*in) && in->magic == MEET_MAGIC &&
           in->version == MEET_VERSION && in->zero == 0 && in->blob_bytes <= sizeof(in->blob) &&
           difference == 0;
}

enum meet_result meet_hear(struct meeting *meeting, char *word)
{
    ssize_t received;
    /* If it cannot be sent, what the peer has said before is still there to be read. */
    send_out(meeting);
    return receive(meeting, word, 1, &received);
}
