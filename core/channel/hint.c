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

#define TRIES 4

const struct channel_hint *hint_open(const char *name)
{
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    struct stat status;
    if (fd < 0) {
        return NULL;
    }
    void *page = MAP_FAILED;
    /* An empty file would be SIGBUS to read. What is behind the end of a file, in its last page, is zero. */
    if (fstat(fd, &status) == 0 && status.st_size >= (off_t)CHANNEL_HINT_BYTES_MIN) {
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

bool hint_read(const struct channel_hint *hint, uint64_t now_ns, uint32_t *rail0_share)
{
    const volatile struct channel_hint *shared = hint;
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = shared->sequence;
        atomic_thread_fence(memory_order_acquire);
        uint32_t magic = shared->magic;
        uint32_t version = shared->version;
        uint32_t share = shared->rail0_share;
        uint64_t until_ns = version == 1 ? UINT64_MAX : shared->until_ns;
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && shared->sequence == before) {
            if (magic != CHANNEL_HINT_MAGIC || version < 1 || version > 2 || share > SPLIT_WHOLE ||
                now_ns >= until_ns) {
                return false;
            }
            *rail0_share = share;
            return true;
        }
    }
    return false;
}
