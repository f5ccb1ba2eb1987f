/* context.c: contexts and their objects. */
#include "context.h"

#include "descriptors.h"
#include "doorbells.h"
#include "process.h"
#include "real.h"
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_OBJECTS (1u << 20)

struct list contexts = {&contexts, &contexts};

int context_open(int rail, int flags)
{
    int result = process_attach();
    if (result) {
        errno = result;
        return -1;
    }
    struct context *context = calloc(1, sizeof *context);
    if (!context) {
        errno = ENOMEM;
        return -1;
    }
    context->rail = rail;
    list_init(&context->async_channels);
    /* The descriptor is one of the file of doorbell pages, so that mmap needs no help but an
     * offset. */
    int fd = real.fcntl(process.page_file, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    result = fd < 0 ? errno : descriptors_add(fd, DESCRIPTOR_UVERBS, context);
    if (result) {
        if (fd >= 0)
            real.close(fd);
        free(context);
        errno = result;
        return -1;
    }
    process_lock();
    list_append(&contexts, &context->all);
    process_unlock();
    return fd;
}

struct object *object_create(struct context *context, uint16_t type)
{
    uint32_t handle = 0;
    while (handle < context->object_count && context->objects[handle])
        handle++;
    if (handle == context->object_count) {
        uint32_t count = context->object_count ? context->object_count * 2 : 64;
        struct object **grown =
            count <= MOST_OBJECTS ? realloc(context->objects, count * sizeof(void *)) : NULL;
        if (!grown)
            return NULL;
        memset(grown + context->object_count, 0, (count - context->object_count) * sizeof(void *));
        context->objects = grown;
        context->object_count = count;
    }
    struct object *object = calloc(1, sizeof *object);
    if (!object)
        return NULL;
    object->handle = handle;
    object->type = type;
    object->context = context;
    context->objects[handle] = object;
    return object;
}

static void destroy_thing(uint16_t type, void *thing)
{
    struct device *device = &process.device;
    switch (type) {
    case UVERBS_OBJECT_MR:
    case UVERBS_OBJECT_MW:
        key_destroy(device, thing);
        break;
    case UVERBS_OBJECT_CQ:
        cq_destroy(device, thing);
        break;
    case UVERBS_OBJECT_SRQ:
        srq_destroy(device, thing);
        break;
    case UVERBS_OBJECT_QP:
        qp_destroy(device, thing);
        break;
    default:
        break;
    }
}

struct object *object_create_for(struct context *context, uint16_t type, void *thing)
{
    struct object *object = thing ? object_create(context, type) : NULL;
    if (object)
        object->thing = thing;
    else if (thing)
        destroy_thing(type, thing);
    return object;
}

struct object *object_find(struct context *context, uint16_t type, uint64_t handle)
{
    if (handle >= context->object_count || !context->objects[handle])
        return NULL;
    return context->objects[handle]->type == type ? context->objects[handle] : NULL;
}

void object_use(struct object *object, struct object *parent)
{
    if (!parent)
        return;
    for (int i = 0; i < OBJECT_PARENTS; i++) {
        if (object->parents[i])
            continue;
        object->parents[i] = parent;
        parent->uses++;
        return;
    }
}

static void destroy_page(uint32_t page)
{
    doorbells_drop(page);
    device_remove_page(&process.device, page);
    process.page_used[page] = false;
}

int object_destroy(struct object *object)
{
    if (object->uses)
        return EBUSY;
    if (object->type == MLX5_IB_OBJECT_UAR)
        destroy_page((uint32_t)object->number);
    if (object->thing)
        destroy_thing(object->type, object->thing);
    events_purge(object);
    if (object->completions)
        channel_release(object->completions);
    for (int i = 0; i < OBJECT_PARENTS; i++)
        if (object->parents[i])
            object->parents[i]->uses--;
    object->context->objects[object->handle] = NULL;
    free(object);
    return 0;
}

/* The last descriptor is closed: everything goes, children first. */
void context_close(struct context *context)
{
    if (!process.attached) {
        list_remove(&context->all); /* inherited, and not used */
        return;
    }
    process_lock();
    for (bool any = true; any;) {
        any = false;
        for (uint32_t handle = 0; handle < context->object_count; handle++)
            if (context->objects[handle] && object_destroy(context->objects[handle]) == 0)
                any = true;
    }
    while (!list_empty(&context->async_channels))
        list_remove(context->async_channels.next);
    list_remove(&context->all);
    service_unlock();
    free(context->objects);
    free(context);
}

void contexts_inherit(void)
{
    for (struct list *l = contexts.next; l != &contexts; l = l->next) {
        struct context *context = container_of(l, struct context, all);
        context->objects = NULL; /* the memory is the parent's; a copy of it is lost here */
        context->object_count = 0;
    }
}
