/* hand_over.c: a request goes from one cm to another, whose owner is another thread.
 *
 * rdma_migrate_id moves the identifier to the other channel, and returns when the first cm's thread has acknowledged what
 * it had taken from its own. The kernel gives no event of an identifier between its request and the accept (ucma.c,
 * ucma_event_handler), so neither thread meets one meanwhile. Nothing relies on that: what the first thread works on is
 * waited for, what it meets later it drops, and what it has queued is dropped here. Then the accept says that it is too
 * late. No lock is held meanwhile: two owners may hand over to each other at the same time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cm/internal.h"

static int32_t take_place(struct cm *to, crpc_error *error)
{
    pthread_mutex_lock(&to->mutex);
    const bool full = to->handed_over == CM_HANDED_OVER_MAX;
    to->handed_over += !full;
    pthread_mutex_unlock(&to->mutex);
    return full ? error_set(error, CRPC_E_NO_RESOURCE, 0,
                            "%d requests that were handed over wait there to be accepted or "
                            "rejected: keep this one, or hand it to another context",
                            CM_HANDED_OVER_MAX)
                : CRPC_OK;
}

static void give_place(struct cm *to)
{
    pthread_mutex_lock(&to->mutex);
    to->handed_over--;
    pthread_mutex_unlock(&to->mutex);
}

void cm_hand_over_answered(struct cm_identifier *identifier)
{
    if (identifier->handed_over) {
        identifier->handed_over = false;
        give_place(identifier->cm);
    }
}

/* The first cm's thread finds its spare event by identifier->cm, so it must not be busy with it. */
static void set_cm(struct cm_identifier *identifier, struct cm *from, struct cm *to)
{
    pthread_mutex_lock(&from->mutex);
    while (from->busy == identifier) {
        pthread_cond_wait(&from->idle, &from->mutex);
    }
    identifier->cm = to;
    pthread_mutex_unlock(&from->mutex);
}

/* Every write to a channel is refused to a thread whose credentials are not the very ones that opened it, even if they say the
 * same (ib_safe_file_access in the kernel). Only here does a thread write to the channel of another. */
#define OTHER_CREDENTIALS                                                                          \
    ": this thread has not the credentials with which that context was opened: threads share "     \
    "them if user and groups are changed before the threads are started"

static int32_t migrate(struct cm_identifier *identifier, struct cm *to, crpc_error *error)
{
    struct cm *from = identifier->cm;
    struct list early;
    set_cm(identifier, from, to);
    if (rdma_migrate_id(identifier->id, to->channel)) {
        int os_error = errno;
        set_cm(identifier, from, from);
        return error_set(error, CRPC_E_SYSTEM, os_error, "rdma_cm cannot hand a request over: %s%s",
                         strerror(os_error), os_error == EACCES ? OTHER_CREDENTIALS : "");
    }
    cm_queue_purge(from, identifier, &early); /* their owner would be that of the other cm */
    cm_discard(&early);
    pthread_mutex_lock(&from->mutex);
    from->identifiers--;
    from->handed_over -= identifier->handed_over; /* it may have come so itself */
    pthread_mutex_unlock(&from->mutex);
    return CRPC_OK;
}

static void arrive(struct cm_identifier *identifier, struct cm *to, void *owner,
                   struct queued_event *request)
{
    pthread_mutex_lock(&to->mutex);
    to->identifiers++;
    identifier->handed_over = true;
    identifier->owner = owner;
    cm_queue_append(to, request);
    pthread_mutex_unlock(&to->mutex);
}

int32_t cm_hand_over(struct cm_identifier *identifier, struct cm *to, void *owner,
                     uint64_t user_data, const void *private_data, uint32_t private_bytes,
                     crpc_error *error)
{
    assert(identifier->passive && identifier->cm != to && to->channel);
    if (!cm_same_port(to, identifier->id)) {
        return error_set(error, CRPC_E_NO_DEVICE, 0,
                         "this request came in at %s port %u, and that context has %s port %u: a "
                         "connection stays at the port where it came in",
                         identifier->cm->nic->device, identifier->cm->nic->port, to->nic->device,
                         to->nic->port);
    }
    struct queued_event *request = calloc(1, sizeof(*request));
    if (!request) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory to hand a request over");
    }
    request->subject = identifier;
    request->event = (struct cm_event){
        .kind = CM_EVENT_HANDED_OVER, .identifier = identifier, .user_data = user_data};
    cm_event_set_private(&request->event, private_data, private_bytes);
    int32_t status = take_place(to, error);
    if (status == CRPC_OK) {
        status = migrate(identifier, to, error);
        if (status == CRPC_OK) {
            arrive(identifier, to, owner, request);
            return CRPC_OK;
        }
        give_place(to);
    }
    free(request);
    return status;
}

void cm_hand_over_reject(struct cm *cm, const void *owner)
{
    for (;;) {
        struct cm_identifier *identifier = NULL;
        pthread_mutex_lock(&cm->mutex);
        for (struct list *link = cm->queue.next; link != &cm->queue; link = link->next) {
            const struct queued_event *queued = list_entry(link, struct queued_event, link);
            if (queued->event.kind == CM_EVENT_HANDED_OVER && queued->subject->owner == owner) {
                identifier = queued->subject;
                break;
            }
        }
        pthread_mutex_unlock(&cm->mutex);
        if (!identifier) {
            return;
        }
        cm_reject(identifier, NULL, 0);
        cm_destroy(identifier); /* and its events */
    }
}
