/* events.c: see events.h. */
#include "simnic/shim/kernel/events.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/descriptors.h"
#include "simnic/shim/kernel/program_memory.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

struct event {
    struct list queued;
    struct object *object;             /* NULL: of a port, or of a subscription */
    struct subscription *subscription; /* NULL: of something else, or it is gone */
    union {
        struct ib_uverbs_comp_event_desc completion;
        struct ib_uverbs_async_event_desc async;
        uint64_t cookie;
    } description;
};

static struct list *channels_of(struct context *context, enum channel_kind kind)
{
    switch (kind) {
    case CHANNEL_ASYNC:
        return &context->async_channels;
    case CHANNEL_DEVX:
        return &context->devx_channels;
    default:
        return &context->completion_channels;
    }
}

int channel_create(struct context *context, enum channel_kind kind, struct channel **channel,
                   int *fd)
{
    struct channel *c = calloc(1, sizeof(*c));
    if (!c) {
        return ENOMEM;
    }
    c->fd = eventfd(0, EFD_CLOEXEC);
    int result = c->fd < 0 ? errno : descriptors_add(c->fd, DESCRIPTOR_EVENTS, c);
    if (result) {
        if (c->fd >= 0) {
            real.close(c->fd);
        }
        free(c);
        return result;
    }
    c->context = context;
    c->kind = kind;
    c->references = 1;
    list_init(&c->events);
    list_init(&c->of_context);
    list_append(channels_of(context, kind), &c->of_context);
    *channel = c;
    *fd = c->fd;
    return 0;
}

struct channel *channel_of(int fd)
{
    struct file *file = descriptors_get(fd);
    struct channel *channel = NULL;
    if (file && file->kind == DESCRIPTOR_EVENTS) {
        channel = file->thing;
    }
    if (channel) {
        channel_hold(channel);
    }
    if (file) {
        descriptors_put(file);
    }
    return channel;
}

void channel_hold(struct channel *channel)
{
    channel->references++;
}

void channel_release(struct channel *channel)
{
    if (--channel->references) {
        return;
    }
    for (struct list *l = channel->events.next, *next; l != &channel->events; l = next) {
        next = l->next;
        free(container_of(l, struct event, queued));
    }
    list_remove(&channel->of_context);
    free(channel);
}

void channel_close(struct channel *channel)
{
    process_lock();
    channel->closed = true;
    list_remove(&channel->of_context);
    channel_release(channel);
    process_unlock();
}

void channel_lose_descriptor(struct channel *channel, int fd)
{
    process_lock();
    if (channel->fd == fd) {
        channel->fd = -1;
    }
    process_unlock();
}

void channel_inherit(struct channel *channel, int fd)
{
    int flags = real.fcntl(fd, F_GETFD), mode = real.fcntl(fd, F_GETFL);
    int own = eventfd(0, mode & O_NONBLOCK ? EFD_NONBLOCK : 0);
    list_init(&channel->events);
    if (own < 0) {
        return;
    }
    real.dup3(own, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
    real.close(own);
}

static void make_readable(const struct channel *channel)
{
    const uint64_t one = 1;
    if (channel->fd >= 0 && real.write(channel->fd, &one, sizeof(one)) < 0) {
        process_log("an event file cannot be signalled: %s", strerror(errno));
    }
}

static void queue(struct channel *channel, const struct event *what)
{
    if (channel->closed) {
        return;
    }
    struct event *event = malloc(sizeof(*event));
    if (!event) {
        return; /* the kernel loses an event for which there is no memory, too */
    }
    *event = *what;
    list_init(&event->queued);
    const bool was_empty = list_empty(&channel->events);
    list_append(&channel->events, &event->queued);
    if (was_empty) {
        make_readable(channel);
    }
}

/* poll() is to say POLLERR of the descriptor from now on, as the kernel says it of a completion channel whose device is gone. An eventfd
 * does if its counter overflows, which no write() can make it do; but the kernel's own signal can, of asynchronous input and output
 * (fs/eventfd.c). Where that is forbidden, the descriptor is only readable. */
static void fail_descriptor(const struct channel *channel)
{
    const uint64_t highest = UINT64_MAX - 1;
    uint64_t before;
    aio_context_t queue = 0;
    uint8_t byte;
    struct iocb signal = {.aio_lio_opcode = IOCB_CMD_PREAD,
                          .aio_fildes = (uint32_t)process.page_file,
                          .aio_buf = (uint64_t)(uintptr_t)&byte,
                          .aio_nbytes = sizeof(byte),
                          .aio_flags = IOCB_FLAG_RESFD,
                          .aio_resfd = (uint32_t)channel->fd};
    struct iocb *signals[] = {&signal};
    struct pollfd poll_fd = {channel->fd, POLLIN, 0};
    if (poll(&poll_fd, 1, 0) == 1 && real.read(channel->fd, &before, sizeof(before)) < 0) {
        return;
    }
    if (real.write(channel->fd, &highest, sizeof(highest)) < 0 ||
        syscall(SYS_io_setup, 1, &queue) != 0) {
        return;
    }
    if (syscall(SYS_io_submit, queue, 1, signals) != 1) {
        process_log("poll() will not say POLLERR of completion channels: %s", strerror(errno));
    }
    syscall(SYS_io_destroy, queue);
}

void events_unplug(struct context *context)
{
    const struct event fatal = {
        .description.async = {.event_type = IBV_EVENT_DEVICE_FATAL, .element = RAIL_PORT}};
    for (struct list *l = context->async_channels.next; l != &context->async_channels;
         l = l->next) {
        queue(container_of(l, struct channel, of_context), &fatal);
    }
    for (struct list *l = context->completion_channels.next; l != &context->completion_channels;
         l = l->next) {
        struct channel *channel = container_of(l, struct channel, of_context);
        channel->ended = true;
        if (channel->fd >= 0) {
            fail_descriptor(channel);
        }
    }
    /* Of these the kernel says for ever that they can be read (devx_async_event_poll). */
    for (struct list *l = context->devx_channels.next; l != &context->devx_channels; l = l->next) {
        struct channel *channel = container_of(l, struct channel, of_context);
        channel->ended = true;
        make_readable(channel);
    }
}

/* ---- events of DevX ---- */

/* The PRM's numbers; enum mlx5_event of the kernel. */
#define DEVX_COMPLETION 0x00

static int devx_type(int type)
{
    switch (type) {
    case EVENT_SQ_DRAINED:
        return 0x03;
    case EVENT_CQ_ERR:
        return 0x04;
    case EVENT_QP_FATAL:
        return 0x05;
    case EVENT_QP_REQ_ERR:
        return 0x10;
    case EVENT_QP_ACCESS_ERR:
        return 0x11;
    case EVENT_QP_LAST_WQE_REACHED:
        return 0x13;
    default:
        return -1;
    }
}

bool events_subscribe(struct object *object, struct channel *channel, uint16_t type,
                      uint64_t cookie)
{
    struct subscription *s = calloc(1, sizeof(*s));
    if (!s) {
        return false;
    }
    *s = (struct subscription){
        .channel = channel, .type = type, .cookie = cookie, .next = object->subscriptions};
    channel_hold(channel);
    object->subscriptions = s;
    return true;
}

static void tell_subscriptions(struct object *object, int type)
{
    for (struct subscription *s = object->subscriptions; s; s = s->next) {
        if (s->type == type && !s->pending) {
            s->pending = !s->channel->closed;
            queue(s->channel, &(struct event){.subscription = s, .description.cookie = s->cookie});
        }
    }
}

static void end_subscriptions(struct object *object)
{
    while (object->subscriptions) {
        struct subscription *s = object->subscriptions;
        struct list *events = &s->channel->events;
        for (struct list *l = events->next; l != events; l = l->next) {
            struct event *event = container_of(l, struct event, queued);
            event->subscription = event->subscription == s ? NULL : event->subscription;
        }
        object->subscriptions = s->next;
        channel_release(s->channel);
        free(s);
    }
}

/* ---- what the NIC tells ---- */

void events_completion(void *owner)
{
    struct object *object = owner;
    struct event event = {.object = object};
    if (object->type == MLX5_IB_OBJECT_DEVX_OBJ) {
        tell_subscriptions(object, DEVX_COMPLETION);
    }
    event.description.completion.cq_handle = object->user_handle;
    if (object->completions) {
        queue(object->completions, &event);
    }
}

void events_async(int type, int rail, void *owner)
{
    struct object *object = owner;
    struct event event = {.object = object};
    event.description.async.event_type = (uint32_t)type;
    event.description.async.element = object ? object->user_handle : RAIL_PORT;
    if (object && object->type == MLX5_IB_OBJECT_DEVX_OBJ) {
        if (type != EVENT_QP_LAST_WQE_REACHED ||
            !fabric_has_quirk(process.nic.fabric, QUIRK_DEVX)) {
            tell_subscriptions(object, devx_type(type));
        }
        return;
    }
    for (struct list *l = contexts.next; l != &contexts; l = l->next) {
        struct context *context = container_of(l, struct context, all);
        if (object ? context != object->context : context->rail != rail) {
            continue;
        }
        if (list_empty(&context->async_channels)) {
            continue;
        }
        /* Events of an object go to the context's first event file, those of a port to all. */
        for (struct list *m = context->async_channels.next; m != &context->async_channels;
             m = m->next) {
            queue(container_of(m, struct channel, of_context), &event);
            if (object) {
                break;
            }
        }
    }
}

/* An empty queue is not readable, unless its device is gone: poll() would say POLLERR then, which an eventfd cannot. */
static void calm(struct channel *channel)
{
    uint64_t count;
    struct pollfd poll_fd = {channel->fd, POLLIN, 0};
    if (!channel->ended && list_empty(&channel->events) && poll(&poll_fd, 1, 0) == 1 &&
        poll_fd.revents & POLLIN) {
        if (real.read(channel->fd, &count, sizeof(count)) < 0) {
            process_log("an event file cannot be read: %s", strerror(errno));
        }
    }
}

static void purge_channel(struct channel *channel, struct object *object)
{
    for (struct list *l = channel->events.next, *next; l != &channel->events; l = next) {
        next = l->next;
        struct event *event = container_of(l, struct event, queued);
        if (event->object != object) {
            continue;
        }
        list_remove(&event->queued);
        free(event);
    }
    if (!channel->closed) {
        calm(channel);
    }
}

void events_purge(struct object *object)
{
    if (object->completions) {
        purge_channel(object->completions, object);
    }
    struct list *channels = &object->context->async_channels;
    for (struct list *l = channels->next; l != channels; l = l->next) {
        purge_channel(container_of(l, struct channel, of_context), object);
    }
    if (object->type == MLX5_IB_OBJECT_DEVX_OBJ) {
        end_subscriptions(object);
    }
}

/* Takes the oldest event, which is there. */
static struct event take(struct channel *channel)
{
    struct event *event = container_of(channel->events.next, struct event, queued), taken = *event;
    if (event->subscription) {
        event->subscription->pending = false;
    }
    if (event->object && channel->kind == CHANNEL_ASYNC) {
        event->object->async_events++;
    } else if (event->object) {
        event->object->completion_events++;
    }
    list_remove(&event->queued);
    free(event);
    calm(channel);
    return taken;
}

static size_t event_bytes(const struct channel *channel)
{
    switch (channel->kind) {
    case CHANNEL_ASYNC:
        return sizeof(struct ib_uverbs_async_event_desc);
    case CHANNEL_DEVX:
        return sizeof(uint64_t);
    default:
        return sizeof(struct ib_uverbs_comp_event_desc);
    }
}

/* An event that does not fit stays in the queue. One whose buffer is not there is lost, as in the
 * kernel. Returns the event's size, -EAGAIN if there is none, or another negative errno. */
static ssize_t read_now(struct channel *channel, void *buffer, size_t bytes)
{
    size_t needed = event_bytes(channel);
    struct event event;
    ssize_t result = (ssize_t)needed;
    process_lock();
    if (list_empty(&channel->events)) {
        result = channel->ended ? -EIO : -EAGAIN;
    } else if (bytes < needed) {
        result = -EINVAL;
    } else {
        event = take(channel);
    }
    process_unlock();
    if (result > 0 && !program_write(buffer, &event.description, needed)) {
        result = -EFAULT;
    }
    return result;
}

ssize_t channel_read(struct channel *channel, int fd, void *buffer, size_t bytes)
{
    for (;;) {
        ssize_t result = read_now(channel, buffer, bytes);
        if (result != -EAGAIN || real.fcntl(fd, F_GETFL) & O_NONBLOCK) {
            errno = result < 0 ? (int)-result : errno;
            return result < 0 ? -1 : result;
        }
        struct pollfd poll_fd = {fd, POLLIN, 0};
        if (poll(&poll_fd, 1, -1) < 0) {
            return -1;
        }
        if (poll_fd.revents & (POLLNVAL | POLLERR)) {
            errno = read_now(channel, buffer, bytes) == -EIO ? EIO : EBADF;
            return -1;
        }
    }
}
