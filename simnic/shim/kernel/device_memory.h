/* device_memory.h: memory on the adapter (MEMIC), which programs allocate, map and register: as the kernel's mlx5_ib has it (dm.c). */
#ifndef SIMNIC_SHIM_KERNEL_DEVICE_MEMORY_H
#define SIMNIC_SHIM_KERNEL_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simnic/session/rails.h"

#define DEVICE_MEMORY_BYTES (128u * 1024u)   /* of each device */
#define DEVICE_MEMORY_PAGE_BYTES 4096u       /* an allocation has pages of its own */
#define DEVICE_MEMORY_LOG_ALIGNMENT_MOST 12u /* of an allocation */
#define DEVICE_MEMORY_FIRST_PAGE 0x800u      /* MLX5_IB_MMAP_DEVICE_MEM << 8 */
#define DEVICE_MEMORY_PAGES (DEVICE_MEMORY_BYTES / DEVICE_MEMORY_PAGE_BYTES)
#define DEVICE_MEMORY_END_PAGE (DEVICE_MEMORY_FIRST_PAGE + DEVICE_MEMORY_PAGES * RAIL_COUNT)

struct context;
struct object;

static inline bool device_memory_has_page(size_t page)
{
    return page >= DEVICE_MEMORY_FIRST_PAGE && page < DEVICE_MEMORY_END_PAGE;
}

/* Whether this context may map so many bytes from a page on: an allocation of its own, whole. With the lock. */
bool device_memory_may_map(const struct context *context, size_t page, size_t bytes);
/* The program maps so many bytes from a page on, and the mapping keeps its pages, even if the allocation is freed meanwhile; or unmaps
 * them. With the lock. */
void device_memory_map(size_t page, size_t bytes);
void device_memory_unmap(size_t page, size_t bytes);
/* In a forked child: the parent's mappings are not there. */
void device_memory_forget(void);

/* An allocation is freed. With the lock. */
void device_memory_free(const struct object *object);

#endif
