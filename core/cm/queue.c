/* queue.c: the queue from the cm thread to the owner. Its length is an atomic of its own, so that
 * an owner who polls all the time pays one load while nothing happens. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "cm/internal.h"

struct cm_event *cm_spare_event(struct cm *cm, enum cm_event_kind kind,
                                struct cm_identifier *identifier)
{
    assert(cm->spare);
    struct cm_event *event = &cm->spare->event;
    *event = (struct cm_event){.kind = kind, .identifier = identifier};
    event->error.struct_size = sizeof(event->error);
    return event;
}

void cm_event_set_private(struct cm_event *event, const void *data, uint32_t bytes)
{
    event->private_bytes = bytes < CM_PRIVATE_BYTES_MAX ? bytes : CM_PRIVATE_BYTES_MAX;
    memcpy(event->private_data, data, event->private_bytes);
}

/* Under the mutex. */
static void set_length(struct cm *cm, uint32_t length)
{
    uint32_t before = atomic_load_explicit(&cm->pending, memory_order_relaxed);
    uint64_t value;
    atomic_store_explicit(&cm->pending, length, memory_order_relaxed);
    if (before == 0 && length != 0) {
        eventfd_write(cm->event_fd, 1);
    } else if (before != 0 && length == 0) {
        eventfd_read(cm->event_fd, &value);
    }
}

void cm_queue_remove(struct cm *cm, struct queued_event *queued)
{
    list_remove(&queued->link);
    if (queued->event.kind == CM_EVENT_CONNECT_REQUEST) {
        queued->subject->waiting--;
    }
    set_length(cm, atomic_load_explicit(&cm->pending, memory_order_relaxed) - 1);
}

void cm_queue_append(struct cm *cm, struct queued_event *queued)
{
    list_append(&cm->queue, &queued->link);
    if (queued->event.kind == CM_EVENT_CONNECT_REQUEST) {
        queued->subject->waiting++;
    }
    set_length(cm, atomic_load_explicit(&cm->pending, memory_order_relaxed) + 1);
}

void cm_queue_spare(struct cm *cm, struct cm_identifier *subject)
{
    assert(cm->spare);
    struct queued_event *queued = cm->spare;
    cm->spare = NULL;
    queued->subject = subject;
    pthread_mutex_lock(&cm->mutex);
    cm_queue_append(cm, queued);
    pthread_mutex_unlock(&cm->mutex);
}

void cm_queue_purge(struct cm *cm, const struct cm_identifier *subject, struct list *purged)
{
    list_init(purged);
    pthread_mutex_lock(&cm->mutex);
    struct list *next;
    for (struct list *link = cm->queue.next; link != &cm->queue; link = next) {
        struct queued_event *queued = list_entry(link, struct queued_event, link);
        next = link->next;
        if (queued->subject == subject) {
            cm_queue_remove(cm, queued);
            list_append(purged, &queued->link);
        }
    }
    pthread_mutex_unlock(&cm->mutex);
}

bool cm_queue_take(struct cm *cm, const struct cm_identifier *subject, enum cm_event_kind kind,
                   struct cm_event *event)
{
    for (struct list *link = cm->queue.next; link != &cm->queue; link = link->next) {
        struct queued_event *queued = list_entry(link, struct queued_event, link);
        if (queued->subject == subject && queued->event.kind == kind) {
            cm_queue_remove(cm, queued);
            *event = queued->event;
            free(queued);
            return true;
        }
    }
    return false;
}

bool cm_pending(const struct cm *cm)
{
    return atomic_load_explicit(&cm->pending, memory_order_relaxed) != 0;
}

int cm_event_fd(const struct cm *cm)
{
    return cm->event_fd;
}

bool cm_event_take(struct cm *cm, struct cm_event *event)
{
    if (!cm_pending(cm)) {
        return false;
    }
    pthread_mutex_lock(&cm->mutex);
    if (list_empty(&cm->queue)) {
        pthread_mutex_unlock(&cm->mutex);
        return false;
    }
    struct queued_event *queued = list_entry(cm->queue.next, struct queued_event, link);
    cm_queue_remove(cm, queued);
    if (queued->subject) {
        queued->event.owner = queued->subject->owner;
    }
    pthread_mutex_unlock(&cm->mutex);
    *event = queued->event;
    free(queued);
    return true;
}

void cm_forget_queue_pair(struct cm *cm, uint32_t nic, uint32_t queue_pair_number)
{
    pthread_mutex_lock(&cm->mutex);
    struct list *next;
    for (struct list *link = cm->queue.next; link != &cm->queue; link = next) {
        struct queued_event *queued = list_entry(link, struct queued_event, link);
        next = link->next;
        if (queued->event.kind == CM_EVENT_QUEUE_PAIR && queued->event.nic == nic &&
            queued->event.queue_pair_number == queue_pair_number) {
            cm_queue_remove(cm, queued);
            free(queued);
        }
    }
    pthread_mutex_unlock(&cm->mutex);
}
