/* hint.c: the split by a hint: shared memory that a program outside writes and that is read once a
 * send. A seqlock: the sequence is odd while it is being written; what was read counts only if the
 * sequence was even and the same before and after.
 */
#include "channel/internal.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "channel/split.h"

#define HINT_VERSION 1u
#define TRIES 4

const struct channel_hint *hint_open(const char *name)
{
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    struct stat status;
    if (fd < 0) {
        return NULL;
    }
    void *page = MAP_FAILED;
    /* A shorter file would be SIGBUS to read. */
    if (fstat(fd, &status) == 0 && status.st_size >= (off_t)sizeof(struct channel_hint)) {
        page = mmap(NULL, sizeof(struct channel_hint), PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    return page == MAP_FAILED ? NULL : page;
}

void hint_close(const struct channel_hint *hint)
{
    if (hint) {
        munmap((void *)(uintptr_t)hint, sizeof(*hint));
    }
}

bool hint_read(const struct channel_hint *hint, uint32_t *rail0_share)
{
    const volatile struct channel_hint *shared = hint;
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = shared->sequence;
        atomic_thread_fence(memory_order_acquire);
        uint32_t magic = shared->magic;
        uint32_t version = shared->version;
        uint32_t share = shared->rail0_share;
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && shared->sequence == before) {
            if (magic != CHANNEL_HINT_MAGIC || version != HINT_VERSION || share > SPLIT_WHOLE) {
                return false;
            }
            *rail0_share = share;
            return true;
        }
    }
    return false;
}
