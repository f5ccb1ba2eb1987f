/* hint_write.c: writes a hint: the other side of hint.c, for a program that decides what the rails of others carry.
 *
 * There is one writer at a time: who has the lock of the file, which the system takes back when the process ends,
 * however it does. A hint is good for a time only, so that nobody follows a writer that is gone.
 */
#include "channel/hint_write.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "channel/split.h"
#include "channel/wire.h"

#define FILE_BYTES 4096
#define TRIES 8

struct hint_writer {
    int fd;
    volatile struct channel_hint *shared;
};

/* One that is there, or a new one that everybody may read. */
static int open_file(const char *name)
{
    for (int i = 0; i < TRIES; i++) {
        int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
        if (fd >= 0 || errno != ENOENT) {
            return fd;
        }
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static int32_t lock(int fd, const char *name, crpc_error *error)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        return CRPC_OK;
    }
    if (errno == EAGAIN || errno == EACCES) {
        return error_set(error, CRPC_E_BUSY, 0, "another program writes the hint %s: one may",
                         name);
    }
    return error_set(error, CRPC_E_SYSTEM, errno, "cannot lock the hint %s: %s", name,
                     strerror(errno));
}

static int32_t map(struct hint_writer *writer, const char *name, crpc_error *error)
{
    struct stat status;
    void *page = MAP_FAILED;
    if (fstat(writer->fd, &status) == 0 &&
        (status.st_size >= FILE_BYTES || posix_fallocate(writer->fd, 0, FILE_BYTES) == 0)) {
        page = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd, 0);
    }
    if (page == MAP_FAILED) {
        return error_set(error, CRPC_E_SYSTEM, errno, "cannot map the hint %s", name);
    }
    writer->shared = page;
    return CRPC_OK;
}

static void destroy(struct hint_writer *writer)
{
    if (writer->shared) {
        munmap((void *)(uintptr_t)writer->shared, FILE_BYTES);
    }
    close(writer->fd); /* and with it goes the lock */
    free(writer);
}

int32_t hint_writer_open(const char *name, struct hint_writer **out, crpc_error *error)
{
    struct hint_writer *writer = calloc(1, sizeof(*writer));
    if (!writer) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a hint");
    }
    writer->fd = open_file(name);
    if (writer->fd < 0) {
        int os_error = errno;
        free(writer);
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "cannot open the shared memory %s of a hint: %s", name,
                         strerror(os_error));
    }
    int32_t status = lock(writer->fd, name, error);
    if (status == CRPC_OK) {
        status = map(writer, name, error);
    }
    if (status != CRPC_OK) {
        destroy(writer);
        return status;
    }
    /* What the one before has left, this one cannot answer for. */
    hint_writer_publish(writer, CHANNEL_HINT_NONE, 0);
    *out = writer;
    return CRPC_OK;
}

void hint_writer_publish(struct hint_writer *writer, uint32_t rail0_share, uint64_t until_ns)
{
    assert(rail0_share <= SPLIT_WHOLE || rail0_share == CHANNEL_HINT_NONE);
    volatile struct channel_hint *shared = writer->shared;
    assert(shared);
    /* Odd already, if a writer was killed in the middle. */
    uint32_t sequence = shared->sequence | 1;
    shared->sequence = sequence;
    atomic_thread_fence(memory_order_release);
    shared->magic = CHANNEL_HINT_MAGIC;
    shared->version = 2;
    shared->rail0_share = rail0_share;
    shared->until_ns = until_ns;
    shared->zero = 0;
    atomic_thread_fence(memory_order_release);
    shared->sequence = sequence + 1;
}

void hint_writer_close(struct hint_writer *writer)
{
    hint_writer_publish(writer, CHANNEL_HINT_NONE, 0);
    destroy(writer);
}
