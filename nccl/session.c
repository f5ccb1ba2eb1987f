/* session.c: contexts of copyrpc, which comms of one device share.
 *
 * One context for all would do until its rails' receives end: a device has some 32,000 in one queue, and a channel
 * takes CHANNEL_RECEIVES of two thirds of them. So there is another session when one is full. Opening takes tens of
 * milliseconds, and connect must not block: a thread does it, and its comms wait.
 */
#include "plugin.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COMPLETIONS 64

/* Of the lists of sessions, and of who uses them. Never held while something blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void *open_context(void *argument)
{
    struct session *session = argument;
    session->status =
        device_open(session->device, session->places, session->way, &session->context);
    if (session->status >= 0 && settings.gpu_direct) {
        session->status = flushers_open(session);
    }
    atomic_store_explicit(&session->state, session->status < 0 ? SESSION_FAILED : SESSION_OPEN,
                          memory_order_release);
    return NULL;
}

/* Signals are the application's. Returns false if there can be no thread. */
static bool start_opener(struct session *session)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&session->opener, NULL, open_context, session);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        WARN("cannot start a thread: %s", strerror(error));
    }
    return error == 0;
}

static struct session *new_session(struct device *device, struct way way)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return NULL;
    }
    session->device = device;
    session->way = way;
    session->places = device->channels_max;
    session->state = SESSION_OPENING;
    pthread_mutex_init(&session->lock, NULL);
    if (!start_opener(session)) {
        pthread_mutex_destroy(&session->lock);
        free(session);
        return NULL;
    }
    return session;
}

/* ---- Joining and leaving --------------------------------------------------------------------- */

static bool same_way(struct way one, struct way other)
{
    return one.traffic_class == other.traffic_class && one.service_level == other.service_level;
}

static struct session *find_session(const struct device *device, struct way way)
{
    struct session *session = device->sessions;
    while (session != NULL && (!same_way(session->way, way) || session->users == session->places ||
                               atomic_load(&session->state) == SESSION_FAILED)) {
        session = session->next;
    }
    return session;
}

struct session *session_join(struct device *device, struct way way)
{
    pthread_mutex_lock(&lock);
    struct session *session = find_session(device, way);
    if (session == NULL) {
        session = new_session(device, way);
        if (session != NULL) {
            session->next = device->sessions;
            device->sessions = session;
        }
    }
    if (session != NULL) {
        session->users++;
    }
    pthread_mutex_unlock(&lock);
    return session;
}

static bool leave(struct session *session)
{
    pthread_mutex_lock(&lock);
    bool last = --session->users == 0;
    if (last) {
        struct session **link = &session->device->sessions;
        while (*link != session) {
            link = &(*link)->next;
        }
        *link = session->next;
    }
    pthread_mutex_unlock(&lock);
    return last;
}

void session_leave(struct session *session)
{
    if (!leave(session)) {
        return;
    }
    pthread_join(session->opener, NULL);
    registrations_end(session);
    flushers_close(session);
    crpc_context_close(session->context);
    pthread_mutex_destroy(&session->lock);
    free(session);
}

/* ---- Polling --------------------------------------------------------------------------------- */

void session_poll(struct session *session)
{
    crpc_completion completions[COMPLETIONS];
    atomic_store_explicit(&session->polling, true, memory_order_relaxed);
    int32_t count = crpc_poll(session->context, completions, COMPLETIONS);
    session->polls++;
    for (int32_t i = 0; i < count; i++) {
        comm_take(session, &completions[i]);
    }
    atomic_store_explicit(&session->polling, false, memory_order_relaxed);
}
