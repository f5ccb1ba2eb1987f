/* descriptors.c: the table of virtual file descriptors. */
#include "simnic/shim/kernel/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/events.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

#define MOST 65536

/* Read without the lock to see whether a descriptor is virtual at all: almost none is. */
static _Atomic(struct file *) table[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void descriptors_lock(void)
{
    pthread_mutex_lock(&lock);
}

void descriptors_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool descriptors_is_virtual(int fd)
{
    return fd >= 0 && fd < MOST && atomic_load_explicit(&table[fd], memory_order_relaxed) != NULL;
}

int descriptors_add(int fd, enum descriptor_kind kind, void *thing)
{
    if (fd >= MOST) {
        return EMFILE;
    }
    descriptors_fresh(fd);
    struct file *file = calloc(1, sizeof(*file));
    if (!file) {
        return ENOMEM;
    }
    *file = (struct file){kind, 1, thing};
    descriptors_lock();
    atomic_store(&table[fd], file);
    descriptors_unlock();
    return 0;
}

struct file *descriptors_get(int fd)
{
    if (!descriptors_is_virtual(fd)) {
        return NULL;
    }
    descriptors_lock();
    struct file *file = atomic_load(&table[fd]);
    if (file) {
        file->references++;
    }
    descriptors_unlock();
    return file;
}

void descriptors_put(struct file *file)
{
    descriptors_lock();
    bool last = --file->references == 0;
    descriptors_unlock();
    if (!last) {
        return;
    }
    switch (file->kind) {
    case DESCRIPTOR_UVERBS:
        context_close(file->thing);
        break;
    case DESCRIPTOR_EVENTS:
        channel_close(file->thing);
        break;
    case DESCRIPTOR_CM:
        if (file->thing) {
            cm_file_close(file->thing);
        }
        break;
    default:
        break;
    }
    free(file);
}

/* A child of vfork() has our memory and descriptors of its own. What it closes stays open here. */
static bool is_other_process(void)
{
    return process.pid && (uint32_t)syscall(SYS_getpid) != process.pid;
}

bool descriptors_duplicate(int fd, int copy)
{
    if (!descriptors_is_virtual(fd) || is_other_process()) {
        return true;
    }
    if (copy >= MOST) {
        return false;
    }
    descriptors_lock();
    struct file *file = atomic_load(&table[fd]);
    if (file) {
        file->references++;
        atomic_store(&table[copy], file);
    }
    descriptors_unlock();
    return true;
}

void descriptors_remove(int fd)
{
    if (!descriptors_is_virtual(fd) || is_other_process()) {
        return;
    }
    descriptors_lock();
    struct file *file = atomic_exchange(&table[fd], NULL);
    descriptors_unlock();
    if (file) {
        descriptors_put(file);
    }
}

/* The descriptor may be another file's by now, so what the virtual file stands for must not touch
 * it. */
static void lose_descriptor(int fd)
{
    struct file *file = descriptors_get(fd);
    if (!file) {
        return;
    }
    if (file->kind == DESCRIPTOR_EVENTS) {
        channel_lose_descriptor(file->thing, fd);
    } else if (file->kind == DESCRIPTOR_CM && file->thing) {
        cm_file_lose_descriptor(file->thing, fd);
    }
    descriptors_remove(fd);
    descriptors_put(file);
}

int descriptors_fresh(int fd)
{
    if (descriptors_is_virtual(fd) && !is_other_process()) {
        lose_descriptor(fd);
    }
    return fd;
}

void descriptors_sweep(void)
{
    for (int fd = 0; fd < MOST; fd++) {
        if (descriptors_is_virtual(fd) && real.fcntl(fd, F_GETFD) < 0) {
            descriptors_fresh(fd);
        }
    }
}

/* The parent's contexts go on in the child, empty, with a NIC of the child's own. Its connections
 * do not. Event files get an eventfd that is not the parent's. */
void descriptors_inherit(void)
{
    for (int fd = 0; fd < MOST; fd++) {
        struct file *file = atomic_load_explicit(&table[fd], memory_order_relaxed);
        if (!file) {
            continue;
        }
        file->references = file->references > 1 ? file->references : 1;
        if (file->kind == DESCRIPTOR_CM) {
            file->thing = NULL;
        } else if (file->kind == DESCRIPTOR_EVENTS) {
            channel_inherit(file->thing, fd);
        }
    }
}
