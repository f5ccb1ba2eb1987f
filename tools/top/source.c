/* source.c: finds contexts in /proc/net/unix, and asks all of them at once. Whoever made a socket of that name may lie: texts are
 * made printable, and sizes are checked.
 */
#include "source.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SOURCES_MAX 512u
#define RECORD_BYTES_MAX 4096u
#define ANSWER_BYTES_MAX ((SNAPSHOT_ENDPOINTS_MAX + 1) * (size_t)RECORD_BYTES_MAX)

struct asked {
    int fd; /* -1: there is no more to come */
    uint8_t *bytes;
    size_t count;
    size_t room;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void make_printable(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text; text++) {
        if (!isprint((unsigned char)*text)) {
            *text = '?';
        }
    }
}

/* ---- Finding --------------------------------------------------------------------------------- */

static bool is_listed(const struct sources *sources, const char *name)
{
    for (uint32_t i = 0; i < sources->count; i++) {
        if (strcmp(sources->all[i].socket, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Connections are listed under the name of their listener, too. */
static bool find(struct sources *sources)
{
    FILE *file = fopen("/proc/net/unix", "r");
    char *line = NULL;
    size_t room = 0;
    if (!file) {
        fprintf(stderr, "copyrpc-top: cannot read /proc/net/unix: %s\n", strerror(errno));
        return false;
    }
    while (sources->count < SOURCES_MAX && getline(&line, &room, file) > 0) {
        const char *name = strstr(line, " @" SNAPSHOT_NAME);
        char *end = strchr(line, '\n');
        if (!name || !end) {
            continue;
        }
        *end = '\0';
        name += 2;
        const size_t bytes = strlen(name) + 1;
        if (bytes <= sizeof(sources->all->socket) && !is_listed(sources, name)) {
            memcpy(sources->all[sources->count++].socket, name, bytes);
        }
    }
    free(line);
    fclose(file);
    return true;
}

/* Fills in what /proc says of the process. Returns its state, or 0 if there is no such process any more. */
static char look_at_process(struct source *source)
{
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)source->pid);
    FILE *file = fopen(path, "r");
    size_t bytes = file ? fread(line, 1, sizeof(line) - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    line[bytes] = '\0';
    const char *begin = strchr(line, '(');
    char *end = strrchr(line, ')');
    if (!begin || !end || end[1] != ' ') {
        return 0;
    }
    char state = end[2];
    *end = '\0';
    snprintf(source->process, sizeof(source->process), "%.31s", begin + 1);
    make_printable(source->process, sizeof(source->process));
    return state == 'Z' || state == 'X' ? 0 : state;
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Returns false if nobody is there. */
static bool connect_to(struct source *source, struct asked *asked)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t length = strlen(source->socket);
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    memcpy(name.sun_path + 1, source->socket, length);
    asked->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (asked->fd < 0) {
        return false;
    }
    source->answer = "not polling";
    if (connect(asked->fd, (const struct sockaddr *)&name,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0) {
        if (getsockopt(asked->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) {
            source->pid = peer.pid;
            return true;
        }
    }
    bool full = errno == EAGAIN; /* too many ask, or nobody accepts */
    close(asked->fd);
    asked->fd = -1;
    source->pid = (pid_t)strtol(source->socket + strlen(SNAPSHOT_NAME), NULL, 10);
    return full;
}

static void end(struct asked *asked)
{
    close(asked->fd);
    asked->fd = -1;
}

static void receive(struct asked *asked)
{
    for (;;) {
        if (asked->count == asked->room) {
            size_t room = asked->room ? 2 * asked->room : 65536;
            uint8_t *bytes = room <= 2 * ANSWER_BYTES_MAX ? realloc(asked->bytes, room) : NULL;
            if (!bytes) {
                end(asked);
                return;
            }
            asked->bytes = bytes;
            asked->room = room;
        }
        ssize_t got = recv(asked->fd, asked->bytes + asked->count, asked->room - asked->count, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (got <= 0) {
            end(asked);
            return;
        }
        asked->count += (size_t)got;
    }
}

static void receive_all(struct asked *asked, uint32_t count, int timeout_ms)
{
    struct pollfd *wait = calloc(count + 1, sizeof(*wait));
    int64_t until_ms = now_ms() + timeout_ms;
    while (wait) {
        uint32_t open = 0;
        for (uint32_t i = 0; i < count; i++) {
            wait[i] = (struct pollfd){.fd = asked[i].fd, .events = POLLIN};
            open += asked[i].fd >= 0;
        }
        int64_t left_ms = until_ms - now_ms();
        if (open == 0 || left_ms <= 0 || poll(wait, count, (int)left_ms) < 0) {
            break;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (asked[i].fd >= 0 && wait[i].revents) {
                receive(&asked[i]);
            }
        }
    }
    free(wait);
}

/* Copies what both versions know of a struct. */
static void copy_known(void *to, size_t to_bytes, const uint8_t *from, size_t from_bytes)
{
    memset(to, 0, to_bytes);
    memcpy(to, from, from_bytes < to_bytes ? from_bytes : to_bytes);
}

static bool take(struct source *source, const struct asked *asked)
{
    struct snapshot_context *context = &source->context;
    const size_t begins = offsetof(struct snapshot_context, endpoints);
    copy_known(context, sizeof(*context), asked->bytes, asked->count);
    if (asked->count < begins || context->magic != SNAPSHOT_MAGIC ||
        context->version != SNAPSHOT_VERSION || context->context_bytes < begins ||
        context->context_bytes > RECORD_BYTES_MAX || context->endpoint_bytes > RECORD_BYTES_MAX ||
        context->records > SNAPSHOT_ENDPOINTS_MAX ||
        asked->count !=
            context->context_bytes + (size_t)context->records * context->endpoint_bytes) {
        *context = (struct snapshot_context){0};
        return false;
    }
    uint32_t context_bytes = context->context_bytes;
    copy_known(context, sizeof(*context), asked->bytes, context_bytes);
    make_printable(context->device, sizeof(context->device));
    make_printable(context->driver, sizeof(context->driver));
    source->endpoints = calloc(context->records + 1, sizeof(*source->endpoints));
    for (uint32_t i = 0; source->endpoints && i < context->records; i++) {
        struct snapshot_endpoint *endpoint = &source->endpoints[i];
        copy_known(endpoint, sizeof(*endpoint),
                   asked->bytes + context_bytes + (size_t)i * context->endpoint_bytes,
                   context->endpoint_bytes);
        make_printable(endpoint->peer, sizeof(endpoint->peer));
        make_printable(endpoint->local, sizeof(endpoint->local));
    }
    return source->endpoints != NULL;
}

static void take_answer(struct source *source, const struct asked *asked, char state)
{
    if (asked->count > 0 && asked->fd < 0) {
        source->answer = take(source, asked) ? "polling" : "version";
    } else if (asked->fd < 0 && asked->room > 0) {
        source->answer = "refused";
    } else if (state == 'T' || state == 't') {
        source->answer = "stopped";
    }
}

bool sources_ask(struct sources *sources, pid_t pid, int timeout_ms)
{
    struct asked *asked = calloc(SOURCES_MAX, sizeof(*asked));
    char *states = calloc(SOURCES_MAX, 1);
    *sources = (struct sources){.all = calloc(SOURCES_MAX, sizeof(*sources->all))};
    bool good = asked && states && sources->all && find(sources);
    uint32_t kept = 0;
    for (uint32_t i = 0; good && i < sources->count; i++) {
        struct source *source = &sources->all[i];
        if (!connect_to(source, &asked[kept])) {
            continue;
        }
        states[kept] = look_at_process(source);
        if (!states[kept] || (pid != 0 && source->pid != pid)) {
            if (asked[kept].fd >= 0) {
                end(&asked[kept]);
            }
            continue;
        }
        if (kept != i) {
            sources->all[kept] = *source;
        }
        kept++;
    }
    sources->count = kept;
    if (good) {
        receive_all(asked, kept, timeout_ms);
    }
    for (uint32_t i = 0; i < kept; i++) {
        take_answer(&sources->all[i], &asked[i], states[i]);
        if (asked[i].fd >= 0) {
            end(&asked[i]);
        }
        free(asked[i].bytes);
    }
    free(asked);
    free(states);
    if (!good) {
        sources_free(sources);
    }
    return good;
}

void sources_free(struct sources *sources)
{
    for (uint32_t i = 0; i < sources->count; i++) {
        free(sources->all[i].endpoints);
    }
    free(sources->all);
    *sources = (struct sources){0};
}
