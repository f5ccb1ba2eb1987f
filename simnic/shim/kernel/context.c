/* context.c: see context.h. */
#include "simnic/shim/kernel/context.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simnic/shim/kernel/attach.h"
#include "simnic/shim/kernel/descriptors.h"
#include "simnic/shim/kernel/device_memory.h"
#include "simnic/shim/kernel/mlx5_pages.h"
#include "simnic/shim/mmio/service.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

#define MOST_OBJECTS (1u << 20)

struct list contexts = {&contexts, &contexts};

int context_open(int rail, int flags)
{
    int result = process_attach();
    if (result) {
        errno = result;
        return -1;
    }
    struct context *context = calloc(1, sizeof(*context));
    if (!context) {
        errno = ENOMEM;
        return -1;
    }
    context->rail = rail;
    list_init(&context->async_channels);
    list_init(&context->completion_channels);
    list_init(&context->devx_channels);
    /* The descriptor is one of the file of the NIC's pages, whose offsets libmlx5 maps. */
    int fd = real.fcntl(process.page_file, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    result = fd < 0 ? errno : descriptors_add(fd, DESCRIPTOR_UVERBS, context);
    if (result) {
        if (fd >= 0) {
            real.close(fd);
        }
        free(context);
        errno = result;
        return -1;
    }
    process_lock();
    nic_take_faults(&process.nic);
    const bool gone = process.nic.rails_unplugged >> rail & 1;
    list_append(&contexts, &context->all);
    service_unlock();
    if (gone) { /* just now: there was a file to open */
        descriptors_remove(fd);
        real.close(fd);
        errno = ENODEV;
        return -1;
    }
    return fd;
}

/* Doubles both tables. The table of free handles has room for all of them. */
static bool grow(struct context *context)
{
    uint32_t count = context->object_room ? context->object_room * 2 : 64;
    if (count > MOST_OBJECTS) {
        return false;
    }
    struct object **objects = realloc(context->objects, count * sizeof(*objects));
    if (!objects) {
        return false;
    }
    context->objects = objects;
    uint32_t *handles = realloc(context->free_handles, count * sizeof(*handles));
    if (!handles) {
        return false;
    }
    context->free_handles = handles;
    context->object_room = count;
    return true;
}

/* Counts an object that came (1) or went (-1), if it is one that `simnic ctl stats` shows. */
static void count_object(uint16_t type, int change)
{
    static const uint16_t types[FABRIC_OBJECTS] = {
        [FABRIC_PROTECTION_DOMAINS] = UVERBS_OBJECT_PD,
        [FABRIC_MEMORY_REGIONS] = UVERBS_OBJECT_MR,
        [FABRIC_MEMORY_WINDOWS] = UVERBS_OBJECT_MW,
        [FABRIC_COMPLETION_QUEUES] = UVERBS_OBJECT_CQ,
        [FABRIC_SHARED_RECEIVE_QUEUES] = UVERBS_OBJECT_SRQ,
        [FABRIC_QUEUE_PAIRS] = UVERBS_OBJECT_QP,
    };
    struct fabric_process_statistics *statistics =
        &process.fabric.file->statistics[process.fabric.slot];
    for (uint32_t i = 0; i < FABRIC_OBJECTS; i++) {
        if (types[i] == type) {
            statistics->objects[i] += (uint32_t)change;
        }
    }
}

struct object *object_create(struct context *context, uint16_t type)
{
    if (context->free_count == 0 && context->object_count == context->object_room &&
        !grow(context)) {
        return NULL;
    }
    struct object *object = calloc(1, sizeof(*object));
    if (!object) {
        return NULL;
    }
    object->handle = context->free_count ? context->free_handles[--context->free_count]
                                         : context->object_count++;
    object->type = type;
    object->context = context;
    context->objects[object->handle] = object;
    context->made = object;
    count_object(type, 1);
    return object;
}

static void destroy_thing(uint16_t type, void *thing)
{
    struct nic *nic = &process.nic;
    switch (type) {
    case UVERBS_OBJECT_MR:
    case UVERBS_OBJECT_MW:
        key_destroy(nic, thing);
        break;
    case UVERBS_OBJECT_CQ:
        cq_destroy(nic, thing);
        break;
    case UVERBS_OBJECT_SRQ:
        srq_destroy(nic, thing);
        break;
    case UVERBS_OBJECT_QP:
        qp_destroy(nic, thing);
        break;
    default:
        break;
    }
}

struct object *object_create_for(struct context *context, uint16_t type, void *thing)
{
    struct object *object = thing ? object_create(context, type) : NULL;
    if (object) {
        object->thing = thing;
        object->thing_type = type;
    } else if (thing) {
        destroy_thing(type, thing);
    }
    return object;
}

struct object *object_create_devx(struct context *context, uint16_t thing_type, void *thing)
{
    struct object *object = thing ? object_create(context, MLX5_IB_OBJECT_DEVX_OBJ) : NULL;
    if (object) {
        object->thing = thing;
        object->thing_type = thing_type;
        count_object(thing_type, 1);
    } else if (thing) {
        destroy_thing(thing_type, thing);
    }
    return object;
}

struct object *object_find_number(struct context *context, uint16_t type, uint64_t number)
{
    for (uint32_t handle = 0; handle < context->object_count; handle++) {
        struct object *object = context->objects[handle];
        if (object && object->type == type && object->number == number) {
            return object;
        }
    }
    return NULL;
}

struct object *object_find(struct context *context, uint16_t type, uint64_t handle)
{
    if (handle >= context->object_count || !context->objects[handle]) {
        return NULL;
    }
    return context->objects[handle]->type == type ? context->objects[handle] : NULL;
}

void object_use(struct object *object, struct object *parent)
{
    if (!parent) {
        return;
    }
    for (int i = 0; i < OBJECT_PARENTS; i++) {
        if (object->parents[i]) {
            continue;
        }
        object->parents[i] = parent;
        parent->uses++;
        return;
    }
}

int object_destroy(struct object *object)
{
    if (object->uses) {
        return EBUSY;
    }
    if (object->type == MLX5_IB_OBJECT_UAR) {
        pages_free((uint32_t)object->number);
    }
    if (object->thing) {
        destroy_thing(object->thing_type, object->thing);
    }
    if (object->release) {
        object->release(object);
    }
    if (object->type == UVERBS_OBJECT_DM) {
        device_memory_free(object);
    }
    if (object->mapping) {
        real.munmap(object->mapping, object->mapping_bytes);
    }
    events_purge(object);
    if (object->completions) {
        channel_release(object->completions);
    }
    for (int i = 0; i < OBJECT_PARENTS; i++) {
        if (object->parents[i]) {
            object->parents[i]->uses--;
        }
    }
    count_object(object->type, -1);
    if (object->thing_type != object->type) {
        count_object(object->thing_type, -1);
    }
    struct context *context = object->context;
    context->objects[object->handle] = NULL;
    if (context->made == object) {
        context->made = NULL;
    }
    context->free_handles[context->free_count++] = object->handle;
    free(object);
    return 0;
}

/* The last descriptor is closed: everything goes, children first. */
void context_close(struct context *context)
{
    if (!process.attached) {
        list_remove(&context->all); /* it was inherited, and never used */
        return;
    }
    process_lock();
    for (bool any = true; any;) {
        any = false;
        for (uint32_t handle = 0; handle < context->object_count; handle++) {
            if (context->objects[handle] && object_destroy(context->objects[handle]) == 0) {
                any = true;
            }
        }
    }
    while (!list_empty(&context->async_channels)) {
        list_remove(context->async_channels.next);
    }
    while (!list_empty(&context->completion_channels)) {
        list_remove(context->completion_channels.next);
    }
    while (!list_empty(&context->devx_channels)) {
        list_remove(context->devx_channels.next);
    }
    list_remove(&context->all);
    service_unlock();
    free(context->objects);
    free(context->free_handles);
    free(context);
}

/* What uses others goes before them. */
static const uint16_t order_of_destruction[] = {
    UVERBS_OBJECT_QP, UVERBS_OBJECT_SRQ, UVERBS_OBJECT_CQ, UVERBS_OBJECT_MW, UVERBS_OBJECT_MR};

static void unplug(struct context *context)
{
    context->unplugged = true;
    for (size_t i = 0; i < sizeof(order_of_destruction) / sizeof(*order_of_destruction); i++) {
        for (uint32_t handle = 0; handle < context->object_count; handle++) {
            struct object *object = context->objects[handle];
            if (object && object->thing_type == order_of_destruction[i] && object->thing) {
                destroy_thing(object->thing_type, object->thing);
                object->thing = NULL;
            }
        }
    }
    events_unplug(context);
}

void contexts_unplug(int rail)
{
    for (struct list *l = contexts.next; l != &contexts; l = l->next) {
        struct context *context = container_of(l, struct context, all);
        if (context->rail == rail && !context->unplugged) {
            unplug(context);
        }
    }
}

void contexts_inherit(void)
{
    for (struct list *l = contexts.next; l != &contexts; l = l->next) {
        struct context *context = container_of(l, struct context, all);
        /* The objects are the parent's. The child's copy of their memory is lost. */
        context->objects = NULL;
        context->free_handles = NULL;
        context->object_count = context->object_room = context->free_count = 0;
    }
}
