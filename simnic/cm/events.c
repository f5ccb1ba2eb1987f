/* events.c: the queue of events that each file has, and GET_EVENT. */
#include "simnic/cm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The counter of the event descriptor is above zero exactly while events wait, so that poll tells.
 * These are direct system calls, since write() to this descriptor is a command to the connection
 * manager in this process. */
static void signal_events(struct cm_file *file)
{
    uint64_t count = 1;
    bool wanted = file->first != NULL;
    if (wanted == file->signalled) {
        return;
    }
    file->signalled = wanted;
    long done = file->event_fd < 0
                    ? 0
                    : syscall(wanted ? SYS_write : SYS_read, file->event_fd, &count, sizeof(count));
    (void)done;
}

struct cm_event *event_new(struct cm_id *id, enum cm_event_type type, int status)
{
    struct cm_event *event = calloc(1, sizeof(*event));
    if (!event) {
        return NULL;
    }
    event->id = id;
    event->response.uid = id->uid;
    event->response.id = id->number;
    event->response.event = type;
    event->response.status = status;
    return event;
}

/* A program learns of a new identifier from GET_EVENT. The kernel reports events of it only after
 * the program has accepted it, and so given it a uid. An error before that makes the accept
 * fail. */
void event_queue(struct cm_event *event)
{
    if (!event) {
        return;
    }
    struct cm_file *file = event->id->file;
    if (event->id->uid == 0 && !event->group) {
        free(event);
        return;
    }
    event->next = NULL;
    *file->last = event;
    file->last = &event->next;
    signal_events(file);
    pthread_cond_broadcast(&file->changed);
}

void event_report(struct cm_id *id, enum cm_event_type type, int status)
{
    event_queue(event_new(id, type, status));
}

/* Takes out of a file's queue the events that count for an identifier (or a group, if one is given)
 * and returns them. */
static struct cm_event *take(struct cm_file *file, struct cm_id *id, struct cm_multicast *group)
{
    struct cm_event *taken = NULL, **taken_last = &taken, **at = &file->first;
    while (*at) {
        struct cm_event *event = *at;
        if (group ? event->group != group : (event->id != id && event->request != id)) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        event->next = NULL;
        *taken_last = event;
        taken_last = &event->next;
    }
    file->last = at;
    signal_events(file);
    return taken;
}

struct cm_id *events_take_request(struct cm_id *id)
{
    for (struct cm_event *event = id->file->first; event; event = event->next) {
        struct cm_id *request = event->id == id ? event->request : NULL;
        if (!request) {
            continue;
        }
        event->request = NULL;
        return request;
    }
    return NULL;
}

static void free_events(struct cm_event *event)
{
    while (event) {
        struct cm_event *next = event->next;
        free(event);
        event = next;
    }
}

void events_drop_id(struct cm_id *id)
{
    free_events(take(id->file, id, NULL));
}

void events_drop_group(struct cm_file *file, struct cm_multicast *group)
{
    free_events(take(file, NULL, group));
}

void events_move(struct cm_id *id, struct cm_file *to)
{
    struct cm_event *moved = take(id->file, id, NULL);
    for (struct cm_event *event = moved; event; event = event->next) {
        if (event->request) {
            event->request->file = to;
        }
    }
    id->file = to;
    *to->last = moved;
    while (*to->last) {
        to->last = &(*to->last)->next;
    }
    signal_events(to);
    pthread_cond_broadcast(&to->changed);
}

/* Old programs do not know ECE, and 32-bit programs do not have the padding before it. */
#define EVENT_MIN_BYTES offsetof(struct rdma_ucm_event_resp, reserved)

static int deliver(struct cm_file *file, const struct rdma_ucm_get_event *command,
                   uint32_t out_bytes)
{
    struct cm_event *event = file->first;
    size_t bytes = out_bytes < sizeof(event->response) ? out_bytes : sizeof(event->response);
    int error = call_copy_out(command->response, &event->response, bytes);
    if (error) {
        return error;
    }
    file->first = event->next;
    if (!file->first) {
        file->last = &file->first;
    }
    signal_events(file);
    event->id->events_reported++;
    if (event->group) {
        event->group->events_reported++;
    }
    if (event->request) {
        event->request->hidden = false;
        event->request->file = file;
        event->id->backlog++;
    }
    free(event);
    return 0;
}

/* A thread may be cancelled while it waits in the kernel's write(), so it may be here, too. */
static void waiter_cancelled(void *argument)
{
    struct cm_file *file = argument;
    struct cm *cm = file->cm;
    file->users--;
    pthread_cond_broadcast(&file->changed);
    pthread_mutex_unlock(&cm->lock);
}

static void wait_for_event(struct cm_file *file, int cancel_state)
{
    pthread_cleanup_push(waiter_cancelled, file);
    pthread_setcancelstate(cancel_state, NULL);
    pthread_cond_wait(&file->changed, &file->cm->lock);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(0);
}

int events_get(struct cm_file *file, const struct cm_call *call, bool nonblocking)
{
    struct rdma_ucm_get_event command;
    if (call->out_bytes < EVENT_MIN_BYTES) {
        return -ENOSPC;
    }
    if (!call_copy_in(call, &command, sizeof(command))) {
        return -EINVAL;
    }
    while (!file->first) {
        if (file->closing) {
            return -EBADF;
        }
        if (nonblocking) {
            return -EAGAIN;
        }
        wait_for_event(file, call->cancel_state);
    }
    return file->closing ? -EBADF : deliver(file, &command, call->out_bytes);
}
