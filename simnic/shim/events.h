/* events.h: completion channels and async event files: queues of what the kernel's uverbs gives to
 * read(), with an eventfd that is readable exactly while a queue is not empty. */
#ifndef SIMNIC_EVENTS_H
#define SIMNIC_EVENTS_H

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct object;
struct context;

struct channel {
    struct context *context;
    int fd; /* the eventfd, as the program knows it */
    bool async;
    bool closed;         /* the program closed it; objects may still name it */
    uint32_t references; /* objects that report to it, and the descriptor */
    struct list events;
    struct list of_context; /* async channels of a context */
};

/* Makes a channel and its descriptor; *fd gets it. Returns 0 or an errno. Called with the process
 * lock. */
int channel_create(struct context *context, bool async, struct channel **channel, int *fd);
void channel_hold(struct channel *channel);
void channel_release(struct channel *channel); /* with the process lock */
void channel_close(
    struct channel *channel); /* the last descriptor went; without the process lock */

/* The descriptor has been closed past the C library. */
void channel_lose_descriptor(struct channel *channel, int fd);

/* In a forked child: the channel goes on with nothing in it. */
void channel_inherit(struct channel *channel, int fd);

/* The program's read() of the descriptor. */
ssize_t channel_read(struct channel *channel, int fd, void *buffer, size_t bytes);

/* From the device, with the process lock. owner: a struct object, or NULL for events of a port. */
void events_completion(void *owner);
void events_async(int event, int rail, void *owner);

/* Drops what an object that is being destroyed has not yet told. */
void events_purge(struct object *object);

#endif
