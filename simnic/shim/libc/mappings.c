/* mappings.c: mmap and munmap: mappings of a device's descriptor are the NIC's pages
 * (kernel/mlx5_pages.c). */

/* With wide offsets as the default, the C library's headers give mmap() the name mmap64(). Here
 * both are defined. */
#undef _FILE_OFFSET_BITS

#include <errno.h>
#include <sys/mman.h>

#include "simnic/nic/nic.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/descriptors.h"
#include "simnic/shim/kernel/mlx5_pages.h"
#include "simnic/shim/process/real.h"

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    LOAD;
    struct file *file =
        flags & MAP_ANONYMOUS || !descriptors_is_virtual(fd) ? NULL : descriptors_get(fd);
    if (file && file->kind == DESCRIPTOR_UVERBS) {
        const struct context *context = file->thing;
        void *memory = context->unplugged
                           ? MAP_FAILED
                           : pages_map(context, address, bytes, protection, flags, offset);
        int error = context->unplugged ? EIO : errno;
        descriptors_put(file);
        errno = error;
        return memory;
    }
    if (file) {
        descriptors_put(file);
    }
    void *memory = real.mmap(address, bytes, protection, flags, fd, offset);
    if (flags & MAP_FIXED && memory != MAP_FAILED) {
        pages_unmap(memory, bytes); /* what was there is gone */
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
    /* Out of the tables first, as with close(), unless the kernel will refuse. */
    uintptr_t start = (uintptr_t)address;
    if (bytes && start % NIC_UAR_BYTES == 0 && bytes <= UINTPTR_MAX - start) {
        pages_unmap(address, bytes);
    }
    return real.munmap(address, bytes);
}
