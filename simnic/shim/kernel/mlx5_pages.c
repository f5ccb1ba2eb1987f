/* mlx5_pages.c: see mlx5_pages.h. */
#include "simnic/shim/kernel/mlx5_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "simnic/shim/kernel/attach.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/device_memory.h"
#include "simnic/shim/kernel/verbs.h"
#include "simnic/shim/mmio/core_clock.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

#define PAGES_BYTES ((size_t)NIC_MAX_PAGES * NIC_UAR_BYTES)

/* A mapping of the program's. It ends as a whole, with its first page. */
struct mapping {
    uint8_t *address;
    size_t bytes;
    size_t page;
    struct list all;
};

static struct list mappings = {&mappings, &mappings};
static _Atomic uint32_t mapping_count; /* 0: nobody who unmaps needs the lock */

/* ---- the file ---- */

static uint64_t inode_of(int fd)
{
    struct stat status;
    return real.fstatat(fd, "", &status, AT_EMPTY_PATH) == 0 ? status.st_ino : 0;
}

bool pages_have_file(void)
{
    return inode_of(process.page_file) == process.page_file_inode;
}

int pages_open_file(void)
{
    int fd = memfd_create(PAGE_FILE_NAME, MFD_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    /* Out of the way of programs that close all descriptors that they know of. close() spares it
     * (shim/libc/files.c). */
    process.page_file = real.fcntl(fd, F_DUPFD_CLOEXEC, 500);
    if (process.page_file < 0) {
        process.page_file = fd;
    } else {
        real.close(fd);
    }
    process.page_file_inode = inode_of(process.page_file);
    return ftruncate(process.page_file, (off_t)PAGES_BYTES) == 0 ? 0 : errno;
}

int pages_open(void)
{
    int result = pages_open_file();
    if (result) {
        return result;
    }
    void *memory = real.mmap(NULL, PAGES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                             process.page_file, 0);
    if (memory == MAP_FAILED) {
        return errno;
    }
    madvise(memory, PAGES_BYTES, MADV_DONTFORK);
    process.page_memory = memory;
    process.page_used[0] = true; /* page 0 would be offset 0, which means no page */
    process.page_used[CORE_CLOCK_PAGE] = process.page_used[CLOCK_INFO_PAGE] = true;
    memset(&process.page_used[DEVICE_MEMORY_FIRST_PAGE], true,
           DEVICE_MEMORY_END_PAGE - DEVICE_MEMORY_FIRST_PAGE);
    return 0;
}

/* ---- giving pages out ---- */

int mlx5_alloc_page(const struct call *call)
{
    uint32_t page = 1;
    while (page < NIC_MAX_PAGES && process.page_used[page]) {
        page++;
    }
    if (page == NIC_MAX_PAGES) {
        return ENOMEM;
    }
    struct object *object = object_create(call->context, MLX5_IB_OBJECT_UAR);
    if (!object ||
        !nic_add_page(&process.nic, page, process.page_memory + (size_t)page * NIC_UAR_BYTES)) {
        if (object) {
            object_destroy(object);
        }
        return ENOMEM;
    }
    process.page_used[page] = true;
    object->number = page;
    attribute_out_handle(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, object->handle);
    int result = attribute_out64(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
                                 (uint64_t)page * NIC_UAR_BYTES);
    if (!result) {
        result = attribute_out32(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, NIC_UAR_BYTES);
    }
    if (!result) {
        result = attribute_out32(call, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page);
    }
    if (result) {
        object_destroy(object);
    }
    return result;
}

void pages_free(uint32_t page)
{
    if (page == 0) { /* none was found for it */
        return;
    }
    doorbells_drop(page);
    nic_remove_page(&process.nic, page);
    process.page_used[page] = false;
}

/* ---- mapping ---- */

/* If the file of the pages is lost, our own mapping of them is doubled (mremap's old size of 0). */
static void *map_memory(void *address, size_t bytes, int protection, int flags, off_t offset)
{
    if (!process.page_file_lost) {
        return real.mmap(address, bytes, protection, flags | MAP_POPULATE, process.page_file,
                         offset);
    }
    void *memory = mremap(process.page_memory + offset, 0, bytes,
                          MREMAP_MAYMOVE | (flags & MAP_FIXED ? MREMAP_FIXED : 0), address);
    if (memory != MAP_FAILED && mprotect(memory, bytes, protection) != 0) {
        real.munmap(memory, bytes);
        return MAP_FAILED;
    }
    return memory;
}

static bool may_map(const struct context *context, size_t page, size_t bytes)
{
    process_lock();
    bool may = device_memory_has_page(page) ? device_memory_may_map(context, page, bytes)
                                            : page > 0 && page < NIC_MAX_PAGES &&
                                                  process.page_used[page] && bytes <= NIC_UAR_BYTES;
    process_unlock();
    return may;
}

/* mlx5_ib maps one page at a time, shared, that it has given out; or all of an allocation of device
 * memory. */
static int check(const struct context *context, size_t bytes, int flags, off_t offset)
{
    bool shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if (bytes > SIZE_MAX - NIC_UAR_BYTES) {
        return ENOMEM; /* as of any file */
    }
    if (bytes == 0 || offset % NIC_UAR_BYTES || !shared) {
        return EINVAL;
    }
    int attached = process_attach(); /* a forked child has not yet */
    if (attached) {
        return attached;
    }
    return may_map(context, (size_t)offset / NIC_UAR_BYTES, bytes) ? 0 : EINVAL;
}

static void *fail(int error)
{
    errno = error;
    return MAP_FAILED;
}

/* Returns false if there is no memory. */
static bool record(uint8_t *address, size_t page, size_t bytes)
{
    struct mapping *mapping = malloc(sizeof(*mapping));
    if (!mapping) {
        return false;
    }
    *mapping = (struct mapping){.address = address, .bytes = bytes, .page = page};
    process_lock();
    if (device_memory_has_page(page)) {
        device_memory_map(page, bytes);
    }
    list_append(&mappings, &mapping->all);
    atomic_fetch_add(&mapping_count, 1);
    process_unlock();
    return true;
}

static void forget(struct mapping *mapping)
{
    list_remove(&mapping->all);
    atomic_fetch_sub(&mapping_count, 1);
    free(mapping);
}

/* Has those know of a mapping who are concerned with its page. Returns false if there is no memory. */
static bool note(void *memory, size_t page, size_t bytes)
{
    if (!record(memory, page, bytes)) {
        return false;
    }
    if (!core_clock_is_page(page) && !device_memory_has_page(page)) {
        doorbells_map((uint32_t)page, memory);
    }
    return page != CORE_CLOCK_PAGE || core_clock_map(memory);
}

/* Programs only write to doorbell pages. No child shares them, as it shares none of a kernel's
 * mappings of registers. */
void *pages_map(const struct context *context, void *address, size_t bytes, int protection,
                int flags, off_t offset)
{
    int error = check(context, bytes, flags, offset);
    if (error) {
        return fail(error);
    }
    size_t page = (size_t)offset / NIC_UAR_BYTES;
    if (page == CLOCK_INFO_PAGE) {
        core_clock_refresh();
    }
    protection = page == CORE_CLOCK_PAGE ? PROT_NONE : protection | PROT_READ;
    void *memory = map_memory(address, bytes, protection, flags, offset);
    if (memory == MAP_FAILED) {
        return memory;
    }
    madvise(memory, bytes, MADV_DONTFORK);
    if (!note(memory, page, bytes)) {
        pages_unmap(memory, bytes);
        real.munmap(memory, bytes);
        return fail(ENOMEM);
    }
    return memory;
}

void pages_unmap(const void *address, size_t bytes)
{
    doorbells_unmap(address, bytes);
    core_clock_unmap(address, bytes);
    if (atomic_load(&mapping_count) == 0) {
        return;
    }
    process_lock();
    for (struct list *l = mappings.next, *next; l != &mappings; l = next) {
        struct mapping *mapping = container_of(l, struct mapping, all);
        next = l->next;
        if (mapping->address < (const uint8_t *)address ||
            mapping->address >= (const uint8_t *)address + bytes) {
            continue;
        }
        if (device_memory_has_page(mapping->page)) {
            device_memory_unmap(mapping->page, mapping->bytes);
        }
        forget(mapping);
    }
    process_unlock();
}

/* The child does not have the parent's pages (MADV_DONTFORK). But it has copies of what the parent's libraries know, and they unmap
 * the pages by their addresses when a device is closed. Memory of the child's own must not have come to lie there meanwhile. */
void pages_inherit(void)
{
    while (!list_empty(&mappings)) {
        struct mapping *mapping = container_of(mappings.next, struct mapping, all);
        real.mmap(mapping->address, mapping->bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        forget(mapping);
    }
}
