/* ring.c: see ring.h. */
#include "rpc/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/page.h"

/* A ring that is too large for the others has a slab for itself. */
struct ring_slab {
    struct ring_slabs *slabs;
    uint8_t *address;
    uint64_t ring_bytes;
    uint64_t page_bytes; /* of the mailbox behind each ring; 0 = none */
    uint32_t rings;
    uint32_t taken;   /* a bit for each ring */
    uint32_t dirty;   /* likewise: it was taken before */
    struct list link; /* on with_room; not linked if there is none */
};
static_assert(RING_SLAB_RINGS == 8 * sizeof(((struct ring_slab *)NULL)->taken),
              "a bit for each ring");

/* ---- Slabs ----------------------------------------------------------------------------------- */

static uint64_t mapped_bytes(const struct ring_slab *slab)
{
    return 2 * slab->ring_bytes + slab->page_bytes;
}

/* Maps each ring of the file twice, over an address range reserved in one piece. */
static uint8_t *map_twice(int fd, const struct ring_slab *slab)
{
    const uint64_t each = mapped_bytes(slab), in_file = slab->ring_bytes + slab->page_bytes;
    const int access = PROT_READ | PROT_WRITE;
    uint8_t *base = mmap(NULL, slab->rings * each, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    bool good = mmap(base, slab->ring_bytes, access, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    for (uint32_t i = 0; i < slab->rings && good; i++) {
        /* With the first mapping of the next ring, which follows in the file, too. */
        const uint64_t bytes = in_file + (i + 1 < slab->rings ? slab->ring_bytes : 0);
        good = mmap(base + i * each + slab->ring_bytes, bytes, access, MAP_SHARED | MAP_FIXED, fd,
                    (off_t)(i * in_file)) != MAP_FAILED;
    }
    if (!good) {
        int saved = errno;
        munmap(base, slab->rings * each);
        errno = saved;
        return NULL;
    }
    /* A child of fork() must not make the kernel copy a page that the device writes to. */
    madvise(base, slab->rings * each, MADV_DONTFORK);
    return base;
}

static struct ring_slab *slab_new(struct ring_slabs *slabs, uint64_t bytes, uint64_t page,
                                  crpc_error *error)
{
    struct ring_slab *slab = calloc(1, sizeof(*slab));
    if (!slab) {
        error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a ring");
        return NULL;
    }
    slab->slabs = slabs;
    slab->ring_bytes = bytes;
    slab->page_bytes = page;
    slab->rings = bytes <= RING_SLAB_BYTES_MAX ? RING_SLAB_RINGS : 1;
    list_init(&slab->link);
    int fd = memfd_create("copyrpc-ring", MFD_CLOEXEC);
    if (fd < 0) {
        error_set(error, CRPC_E_SYSTEM, errno, "memfd_create failed: %s", strerror(errno));
        free(slab);
        return NULL;
    }
    if (ftruncate(fd, (off_t)(slab->rings * (bytes + page))) != 0 ||
        !(slab->address = map_twice(fd, slab))) {
        int saved = errno;
        error_set(error, saved == ENOMEM ? CRPC_E_NO_MEMORY : CRPC_E_SYSTEM, saved,
                  "no memory for a ring of %llu bytes: %s; use a smaller ring_bytes, or, with "
                  "thousands of "
                  "connections, raise the limit vm.max_map_count",
                  (unsigned long long)bytes, strerror(saved));
        free(slab);
        slab = NULL;
    }
    close(fd);
    return slab;
}

static void slab_free(struct ring_slab *slab)
{
    assert(slab->taken == 0);
    list_remove(&slab->link);
    munmap(slab->address, slab->rings * mapped_bytes(slab));
    free(slab);
}

static struct list *with_room(struct ring_slabs *slabs, uint64_t bytes, uint64_t page)
{
    const uint32_t size = (uint32_t)__builtin_ctzll(RING_SLAB_BYTES_MAX / bytes);
    return &slabs->with_room[2 * size + (page != 0)];
}

static uint32_t all_rings(const struct ring_slab *slab)
{
    return slab->rings == 1 ? 1 : UINT32_MAX;
}

static uint8_t *slab_take(struct ring_slab *slab)
{
    const uint32_t place = (uint32_t)__builtin_ctz(~slab->taken);
    uint8_t *address = slab->address + place * mapped_bytes(slab);
    slab->taken |= 1u << place;
    if (slab->taken == all_rings(slab)) {
        list_remove(&slab->link);
    }
    if (slab->dirty & 1u << place) {
        memset(address + slab->ring_bytes, 0, slab->ring_bytes + slab->page_bytes);
    }
    slab->dirty |= 1u << place;
    return address;
}

/* One slab of each kind stays though it is empty, for who connects and closes all the time. */
static void slab_give(struct ring_slab *slab, const uint8_t *address)
{
    struct ring_slabs *slabs = slab->slabs;
    slab->taken &= ~(1u << (uint64_t)(address - slab->address) / mapped_bytes(slab));
    if (slab->rings == 1) {
        slab_free(slab);
        return;
    }
    struct list *others = with_room(slabs, slab->ring_bytes, slab->page_bytes);
    list_append_once(others, &slab->link);
    if (slab->taken == 0 && others->next->next != others) {
        slab_free(slab);
    }
}

void ring_slabs_init(struct ring_slabs *slabs)
{
    slabs->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (uint32_t i = 0; i < RING_SLAB_KINDS; i++) {
        list_init(&slabs->with_room[i]);
    }
}

void ring_slabs_free(struct ring_slabs *slabs)
{
    for (uint32_t i = 0; i < RING_SLAB_KINDS; i++) {
        if (!list_empty(&slabs->with_room[i])) {
            slab_free(list_entry(slabs->with_room[i].next, struct ring_slab, link));
        }
        assert(list_empty(&slabs->with_room[i]));
    }
    pthread_mutex_destroy(&slabs->mutex);
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static struct ring_slab *slab_for(struct ring_slabs *slabs, uint64_t bytes, uint64_t page,
                                  crpc_error *error)
{
    if (bytes > RING_SLAB_BYTES_MAX) {
        return slab_new(slabs, bytes, page, error);
    }
    struct list *list = with_room(slabs, bytes, page);
    if (!list_empty(list)) {
        return list_entry(list->next, struct ring_slab, link);
    }
    struct ring_slab *slab = slab_new(slabs, bytes, page, error);
    if (slab) {
        list_append(list, &slab->link);
    }
    return slab;
}

int32_t ring_map(struct ring_slabs *slabs, struct ring *ring, enum ring_kind kind, uint64_t bytes,
                 crpc_error *error)
{
    const uint64_t page = kind == RING_RECEIVE ? page_bytes() : 0;
    memset(ring, 0, sizeof(*ring));
    if (bytes % page_bytes() != 0) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "ring_bytes=%llu is no multiple of this machine's page size, %zu",
                         (unsigned long long)bytes, page_bytes());
    }
    pthread_mutex_lock(&slabs->mutex);
    struct ring_slab *slab = slab_for(slabs, bytes, page, error);
    if (slab) {
        *ring = (struct ring){.address = slab_take(slab), .bytes = bytes, .slab = slab};
    }
    pthread_mutex_unlock(&slabs->mutex);
    return slab ? CRPC_OK : error->status;
}

int32_t ring_register(struct ring *ring, struct nic *nic, struct nic_domain *domain,
                      struct nic_domain *own, crpc_error *error)
{
    const bool receives = ring->slab->page_bytes != 0;
    const uint64_t bytes = 2 * ring->bytes;
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE |
                            (receives ? CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_READ : 0);
    int32_t status = nic->operations->memory_register(nic, receives ? domain : own, ring->address,
                                                      bytes + ring->slab->page_bytes, 0, access,
                                                      &ring->memory, error);
    ring->landing_key = ring->memory.local_key;
    if (status == CRPC_OK && receives && own != domain) {
        status = nic->operations->memory_register(nic, own, ring->address + bytes,
                                                  ring->slab->page_bytes, 0,
                                                  CRPC_ACCESS_LOCAL_WRITE, &ring->landing, error);
        ring->landing_key = ring->landing.local_key;
    }
    return status;
}

static void deregister(struct nic *nic, struct nic_keys *memory)
{
    if (memory->driver) {
        nic->operations->memory_deregister(nic, memory);
    }
}

void ring_destroy(struct ring *ring, struct nic *nic)
{
    deregister(nic, &ring->memory);
    deregister(nic, &ring->landing);
    if (ring->address) {
        struct ring_slabs *slabs = ring->slab->slabs;
        pthread_mutex_lock(&slabs->mutex);
        slab_give(ring->slab, ring->address);
        pthread_mutex_unlock(&slabs->mutex);
    }
    memset(ring, 0, sizeof(*ring));
}
