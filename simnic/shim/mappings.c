/* mappings.c: mmap and munmap. Mappings of a device's descriptor are doorbell pages and clock pages,
 * which the shim must know of. */

/* With wide offsets as the default the C library's headers give mmap() the name mmap64(); here both
 * are defined. */
#undef _FILE_OFFSET_BITS

#include "clock.h"
#include "descriptors.h"
#include "doorbells.h"
#include "process.h"
#include "real.h"

#include <errno.h>
#include <sys/mman.h>

/* Where the file of the pages is lost, our own mapping of them is doubled (mremap's old size of 0). */
static void *map_pages(void *address, size_t bytes, int protection, int flags, off_t offset)
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

static bool is_page_in_use(size_t page)
{
    process_lock();
    bool used = page > 0 && page < DEVICE_MAX_PAGES && process.page_used[page];
    process_unlock();
    return used;
}

/* What the kernel's driver asks of a mapping: one page that there is, shared. */
static int check(size_t bytes, int flags, off_t offset)
{
    bool shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if (bytes > SIZE_MAX - DEVICE_UAR_BYTES) {
        return ENOMEM; /* as of any file */
    }
    if (bytes == 0 || bytes > DEVICE_UAR_BYTES || offset % DEVICE_UAR_BYTES || !shared) {
        return EINVAL;
    }
    int attached = process_attach(); /* a forked child has not yet */
    if (attached) {
        return attached;
    }
    return is_page_in_use((size_t)offset / DEVICE_UAR_BYTES) ? 0 : EINVAL;
}

static void *fail(int error)
{
    errno = error;
    return MAP_FAILED;
}

/* Doorbell pages are written only, and shared with no child, as the kernel's mappings of a device's
 * registers are. */
static void *map_device(void *address, size_t bytes, int protection, int flags, off_t offset)
{
    int error = check(bytes, flags, offset);
    if (error) {
        return fail(error);
    }
    size_t page = (size_t)offset / DEVICE_UAR_BYTES;
    if (page == CLOCK_INFO_PAGE) {
        clock_refresh();
    }
    protection = page == CLOCK_CORE_PAGE ? PROT_NONE : protection | PROT_READ;
    void *memory = map_pages(address, bytes, protection, flags, offset);
    if (memory == MAP_FAILED) {
        return memory;
    }
    madvise(memory, bytes, MADV_DONTFORK);
    if (!clock_is_page(page)) {
        doorbells_map((uint32_t)page, memory);
    } else if (page == CLOCK_CORE_PAGE && !clock_map(memory)) {
        real.munmap(memory, bytes);
        return fail(ENOMEM);
    }
    return memory;
}

static void forget(const void *address, size_t bytes)
{
    doorbells_unmap(address, bytes);
    clock_unmap(address, bytes);
}

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    LOAD;
    struct file *file =
        flags & MAP_ANONYMOUS || !descriptors_is_virtual(fd) ? NULL : descriptors_get(fd);
    if (file && file->kind == DESCRIPTOR_UVERBS) {
        void *memory = map_device(address, bytes, protection, flags, offset);
        int error = errno;
        descriptors_put(file);
        errno = error;
        return memory;
    }
    if (file) {
        descriptors_put(file);
    }
    void *memory = real.mmap(address, bytes, protection, flags, fd, offset);
    if (flags & MAP_FIXED && memory != MAP_FAILED) {
        forget(memory, bytes); /* what was there is no more */
    }
    return memory;
}

PUBLIC void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return map(address, bytes, protection, flags, fd, offset);
}

PUBLIC void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map(address, bytes, protection, flags, fd, offset);
}

PUBLIC int munmap(void *address, size_t bytes)
{
    LOAD;
    /* Out of the tables first, as with descriptors: but not for what the kernel refuses. */
    uintptr_t start = (uintptr_t)address;
    if (bytes && start % DEVICE_UAR_BYTES == 0 && bytes <= UINTPTR_MAX - start) {
        forget(address, bytes);
    }
    return real.munmap(address, bytes);
}
