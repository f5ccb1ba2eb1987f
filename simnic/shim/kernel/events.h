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

/* CHANNEL_DEVX: its events are the cookies of subscriptions. */
enum channel_kind { CHANNEL_COMPLETIONS, CHANNEL_ASYNC, CHANNEL_DEVX };

struct channel {
    struct context *context;
    int fd; /* the eventfd, as the program knows it */
    enum channel_kind kind;
    bool closed;         /* the program closed it; objects may still name it */
    bool ended;          /* its device was unplugged: nothing comes any more */
    uint32_t references; /* objects that report to it, and the descriptor */
    struct list events;
    struct list of_context; /* among those of its kind of a context */
};

/* That a DevX object tells a channel of one type of event (MLX5_EVENT_TYPE_). */
struct subscription {
    struct channel *channel; /* held */
    uint16_t type;
    bool pending; /* its cookie waits in the channel: it is not queued twice */
    uint64_t cookie;
    struct subscription *next; /* of the object */
};

/* Makes a channel and its descriptor; *fd gets it. Returns 0 or an errno. Called with the process
 * lock. */
int channel_create(struct context *context, enum channel_kind kind, struct channel **channel,
                   int *fd);
/* The channel of a descriptor that the program names, held; NULL if the descriptor is of something else. */
struct channel *channel_of(int fd);
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
/* Has the object tell the channel, which is held from then on. Returns false if there is no memory. */
bool events_subscribe(struct object *object, struct channel *channel, uint16_t type,
                      uint64_t cookie);

/* The context's device was unplugged: async event files get a last event, DEVICE_FATAL, and completion channels fail from now on. With
 * the process lock. */
void events_unplug(struct context *context);

/* Drops the events of an object that is being destroyed, and its subscriptions. A cookie that waits in a channel stays there, as in the
 * kernel (devx_cleanup_subscription). */
void events_purge(struct object *object);

#endif
