/* events.h: completion channels and async event files: queues of events that programs read(), as
 * ib_uverbs has them. Each has an eventfd, which is readable exactly while its queue is not
 * empty. */
#ifndef SIMNIC_SHIM_KERNEL_EVENTS_H
#define SIMNIC_SHIM_KERNEL_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"

struct object;
struct context;

struct channel {
    struct context *context;
    int fd; /* the eventfd, as the program knows it */
    bool async;
    bool closed;         /* the program closed it; objects may still name it */
    bool ended;          /* its device was unplugged: nothing comes any more */
    uint32_t references; /* objects that report to it, and the descriptor */
    struct list events;
    struct list of_context; /* among the async channels of a context, or its completion channels */
};

/* Makes a channel and its descriptor; *fd gets it. Returns 0 or an errno. Called with the process
 * lock. */
int channel_create(struct context *context, bool async, struct channel **channel, int *fd);
void channel_hold(struct channel *channel);
void channel_release(struct channel *channel); /* with the process lock */
/* The last descriptor was closed. Without the process lock. */
void channel_close(struct channel *channel);

/* The descriptor has been closed past the C library. */
void channel_lose_descriptor(struct channel *channel, int fd);

/* In a forked child: the channel goes on, with an empty queue. */
void channel_inherit(struct channel *channel, int fd);

/* The program's read() of the descriptor. */
ssize_t channel_read(struct channel *channel, int fd, void *buffer, size_t bytes);

/* The NIC tells of an event. With the process lock. owner: a struct object, or NULL for events of a
 * port. */
void events_completion(void *owner);
void events_async(int event, int rail, void *owner);

/* The context's device was unplugged: async event files get a last event, DEVICE_FATAL, and completion channels fail from now on. With
 * the process lock. */
void events_unplug(struct context *context);

/* Drops the events of an object that is being destroyed. */
void events_purge(struct object *object);

#endif
