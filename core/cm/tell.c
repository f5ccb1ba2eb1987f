/* tell.c: answers copyrpc-top (base/snapshot.h). The cm thread accepts and sends; the snapshot is made by the owner's next poll,
 * which owns the counters. So there is no race, and nothing of it on the hot path.
 *
 * Whoever connects may be slow or hostile. There are CLIENTS_MAX at once, none stays longer than CLIENT_NS, nothing is read from them,
 * and there is one snapshot each PAUSE_NS at most. A child of fork() has the socket, too, and nobody who accepts: copyrpc-top
 * sees that the process is gone, and cm_close shuts the socket down for both.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/snapshot.h"
#include "cm/internal.h"

#define CLIENTS_MAX (CM_TELL_FDS - 1)
#define BACKLOG 16
#define CLIENT_NS 2000000000u
#define PAUSE_NS 50000000u    /* between two snapshots */
#define STRANGER_NS 10000000u /* nobody is accepted for so long after a stranger, or an error */
#define NAMES_TRIED 1000u     /* processes of other PID namespaces may have the same names */

enum client_state { CLIENT_NONE, CLIENT_WAITS, CLIENT_IS_SENT };

struct client {
    enum client_state state;
    int fd;
    uint64_t until_ns;
    size_t sent;
};

struct cm_tell {
    struct cm_asked asked; /* must come first */
    struct cm *cm;
    cm_snapshot *snapshot;
    void *argument;
    int listen_fd;

    /* -- the thread's -- */
    struct client clients[CLIENTS_MAX];
    void *bytes; /* what clients are sent */
    size_t count;
    uint64_t accept_ns; /* not before */
    uint64_t ask_ns;    /* not before */
    bool asking;        /* the event is on its way, or its answer */

    /* -- under the mutex -- */
    void *answer;
    size_t answer_bytes;
    bool answered;
};

/* ---- Opening and closing --------------------------------------------------------------------- */

static int bind_name(int fd)
{
    static atomic_uint next;
    for (uint32_t i = 0; i < NAMES_TRIED; i++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, SNAPSHOT_NAME "%d.%u",
                              (int)getpid(), atomic_fetch_add(&next, 1));
        socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
        if (bind(fd, (const struct sockaddr *)&name, bytes) == 0) {
            return 0;
        }
        if (errno != EADDRINUSE) {
            break;
        }
    }
    return errno;
}

static int open_listener(int *fd)
{
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int os_error = *fd < 0 ? errno : bind_name(*fd);
    if (os_error == 0 && listen(*fd, BACKLOG)) {
        os_error = errno;
    }
    if (os_error && *fd >= 0) {
        close(*fd);
    }
    return os_error;
}

/* In a poll of the owner. */
static void answer(struct cm_asked *asked)
{
    struct cm_tell *tell = (struct cm_tell *)asked;
    size_t bytes = 0;
    void *snapshot = tell->snapshot(tell->argument, &bytes);
    pthread_mutex_lock(&tell->cm->mutex);
    tell->answer = snapshot;
    tell->answer_bytes = snapshot ? bytes : 0;
    tell->answered = true;
    pthread_mutex_unlock(&tell->cm->mutex);
    cm_kick(tell->cm);
}

int32_t cm_tell_start(struct cm *cm, cm_snapshot *snapshot, void *argument, crpc_error *error)
{
    struct cm_tell *tell = calloc(1, sizeof(*tell));
    if (!tell) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for its socket");
    }
    int os_error = open_listener(&tell->listen_fd);
    if (os_error) {
        free(tell);
        return error_set(error, CRPC_E_SYSTEM, os_error, "cannot make its socket: %s",
                         strerror(os_error));
    }
    tell->asked.answer = answer;
    tell->cm = cm;
    tell->snapshot = snapshot;
    tell->argument = argument;
    pthread_mutex_lock(&cm->mutex);
    cm->tell = tell;
    pthread_mutex_unlock(&cm->mutex);
    cm_kick(cm);
    return CRPC_OK;
}

static void drop(struct client *client)
{
    close(client->fd);
    *client = (struct client){.state = CLIENT_NONE};
}

void cm_tell_stop(struct cm *cm)
{
    struct cm_tell *tell = cm->tell;
    if (!tell) {
        return;
    }
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (tell->clients[i].state != CLIENT_NONE) {
            drop(&tell->clients[i]);
        }
    }
    shutdown(tell->listen_fd, SHUT_RDWR);
    close(tell->listen_fd);
    free(tell->bytes);
    free(tell->answer);
    free(tell);
    cm->tell = NULL;
}

/* ---- The thread ------------------------------------------------------------------------------ */

static struct cm_tell *tell_of(struct cm *cm)
{
    pthread_mutex_lock(&cm->mutex);
    struct cm_tell *tell = cm->tell;
    pthread_mutex_unlock(&cm->mutex);
    return tell;
}

static uint32_t count_in(const struct cm_tell *tell, enum client_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        count += tell->clients[i].state == state;
    }
    return count;
}

static bool may_ask(const struct cm_tell *tell)
{
    return !tell->asking && count_in(tell, CLIENT_WAITS) > 0 && count_in(tell, CLIENT_IS_SENT) == 0;
}

static void earlier(uint64_t *until_ns, uint64_t ns)
{
    *until_ns = ns < *until_ns ? ns : *until_ns;
}

void cm_tell_watch(struct cm *cm, struct pollfd *wait, int *timeout_ms)
{
    struct cm_tell *tell = tell_of(cm);
    uint64_t now_ns = clock_now_ns(), until_ns = UINT64_MAX;
    *timeout_ms = -1;
    for (uint32_t i = 0; i < CM_TELL_FDS; i++) {
        wait[i] = (struct pollfd){.fd = -1};
    }
    if (!tell) {
        return;
    }
    if (count_in(tell, CLIENT_NONE) > 0) {
        if (tell->accept_ns > now_ns) {
            earlier(&until_ns, tell->accept_ns);
        } else {
            wait[0] = (struct pollfd){.fd = tell->listen_fd, .events = POLLIN};
        }
    }
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &tell->clients[i];
        if (client->state != CLIENT_NONE) {
            /* Without events, poll tells all the same when the client has gone. */
            short events = client->state == CLIENT_IS_SENT ? POLLOUT : 0;
            wait[1 + i] = (struct pollfd){.fd = client->fd, .events = events};
            earlier(&until_ns, client->until_ns);
        }
    }
    if (may_ask(tell)) {
        earlier(&until_ns, tell->ask_ns);
    }
    if (until_ns != UINT64_MAX) {
        *timeout_ms = until_ns > now_ns ? (int)((until_ns - now_ns) / 1000000 + 1) : 0;
    }
}

static bool is_friend(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

static void accept_clients(struct cm_tell *tell, uint64_t now_ns)
{
    for (uint32_t i = 0; i < CLIENTS_MAX && tell->accept_ns <= now_ns; i++) {
        struct client *client = &tell->clients[i];
        if (client->state != CLIENT_NONE) {
            continue;
        }
        int fd = accept4(tell->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                tell->accept_ns = now_ns + STRANGER_NS; /* too many files are open, perhaps */
            }
            return;
        }
        if (is_friend(fd)) {
            *client =
                (struct client){.state = CLIENT_WAITS, .fd = fd, .until_ns = now_ns + CLIENT_NS};
        } else {
            close(fd);
            tell->accept_ns = now_ns + STRANGER_NS;
        }
    }
}

static void take_answer(struct cm_tell *tell)
{
    pthread_mutex_lock(&tell->cm->mutex);
    bool answered = tell->answered;
    if (answered) {
        free(tell->bytes);
        tell->bytes = tell->answer;
        tell->count = tell->answer_bytes;
        tell->answer = NULL;
        tell->answered = false;
    }
    pthread_mutex_unlock(&tell->cm->mutex);
    if (!answered) {
        return;
    }
    tell->asking = false;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        if (tell->clients[i].state == CLIENT_WAITS) {
            tell->clients[i].state = CLIENT_IS_SENT;
        }
    }
}

static void send_to(const struct cm_tell *tell, struct client *client)
{
    while (client->sent < tell->count) {
        ssize_t sent = send(client->fd, (const uint8_t *)tell->bytes + client->sent,
                            tell->count - client->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                drop(client);
            }
            return;
        }
        client->sent += (size_t)sent;
    }
    drop(client);
}

void cm_tell_step(struct cm *cm, const struct pollfd *wait)
{
    struct cm_tell *tell = tell_of(cm);
    if (!tell) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    take_answer(tell);
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &tell->clients[i];
        if (client->state == CLIENT_NONE) {
            continue;
        }
        if (client->until_ns <= now_ns || wait[1 + i].revents & (POLLHUP | POLLERR | POLLNVAL)) {
            drop(client);
        } else if (client->state == CLIENT_IS_SENT) {
            send_to(tell, client);
        }
    }
    if (wait[0].revents) {
        accept_clients(tell, now_ns);
    }
    if (may_ask(tell) && tell->ask_ns <= now_ns) {
        tell->asking = true;
        tell->ask_ns = now_ns + PAUSE_NS;
        cm_spare_event(cm, CM_EVENT_ASKED, NULL)->owner = tell;
        cm_queue_spare(cm, NULL);
    }
}
