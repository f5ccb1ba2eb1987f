/* ring.c: see ring.h. */
#include "rpc/ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/page.h"

/* Maps the file twice and the mailbox's page once over an address range reserved in one piece. */
static uint8_t *map_twice(int fd, size_t bytes)
{
    size_t whole = 2 * bytes + page_bytes();
    uint8_t *base = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    const int access = PROT_READ | PROT_WRITE;
    if (mmap(base, bytes, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        mmap(base + bytes, bytes, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        mmap(base + 2 * bytes, page_bytes(), access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        int saved = errno;
        munmap(base, whole);
        errno = saved;
        return NULL;
    }
    /* A child of fork() must not make the kernel copy a page that the device writes to. */
    madvise(base, whole, MADV_DONTFORK);
    return base;
}

int32_t ring_map(struct ring *ring, uint64_t bytes, crpc_error *error)
{
    memset(ring, 0, sizeof(*ring));
    if (bytes % page_bytes() != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "ring_bytes=%llu is no multiple of this machine's page size, %zu",
                         (unsigned long long)bytes, page_bytes());
    }
    int fd = memfd_create("copyrpc-ring", MFD_CLOEXEC);
    if (fd < 0) {
        return error_set(error, CRPC_E_SYSTEM, errno, "memfd_create failed: %s", strerror(errno));
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || !(ring->address = map_twice(fd, bytes))) {
        int saved = errno;
        close(fd);
        return error_set(error, saved == ENOMEM ? CRPC_E_NO_MEMORY : CRPC_E_SYSTEM, saved,
                         "no memory for a ring of %llu bytes: %s; use a smaller ring_bytes",
                         (unsigned long long)bytes, strerror(saved));
    }
    close(fd);
    ring->bytes = bytes;
    return CRPC_OK;
}

int32_t ring_register(struct ring *ring, struct nic *nic, struct nic_domain *domain,
                      uint32_t access, uint32_t line_access, crpc_error *error)
{
    int32_t status = nic->operations->memory_register(nic, domain, ring->address, 2 * ring->bytes,
                                                      0, access, &ring->memory, error);
    if (status == CRPC_OK) {
        status = nic->operations->memory_register(nic, domain, ring_mailbox(ring), page_bytes(), 0,
                                                  line_access, &ring->mailbox_keys, error);
    }
    return status;
}

void ring_destroy(struct ring *ring, struct nic *nic)
{
    if (ring->mailbox_keys.driver) {
        nic->operations->memory_deregister(nic, &ring->mailbox_keys);
    }
    if (ring->memory.driver) {
        nic->operations->memory_deregister(nic, &ring->memory);
    }
    if (ring->address) {
        munmap(ring->address, 2 * ring->bytes + page_bytes());
    }
    memset(ring, 0, sizeof(*ring));
}
