/* sparse.h: arrays of which only those pages take memory that have been written to: for what most of its owners use little of.
 *
 * An array of less than a page is as one of lines_alloc (base/lines.h). Others take system calls to be made and
 * freed, so they are for the cold path.
 */
#ifndef CORE_BASE_SPARSE_H
#define CORE_BASE_SPARSE_H

#include <sys/mman.h>

#include "base/lines.h"
#include "base/page.h"

/* Allocates `count` times `bytes` bytes of zeros, count and bytes not 0, which begin at a cache line. Returns NULL if there is
 * no memory. */
static inline void *sparse_alloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        return NULL;
    }
    if (total < page_bytes()) {
        return lines_alloc(count, bytes);
    }
    void *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    /* A huge page would make 2 MiB of the first byte that is written. */
    madvise(memory, total, MADV_NOHUGEPAGE);
    return memory;
}

/* Frees it; count and bytes are those that it was allocated with. `memory` may be NULL. */
static inline void sparse_free(void *memory, size_t count, size_t bytes)
{
    if (count * bytes < page_bytes()) {
        free(memory);
    } else if (memory) {
        munmap(memory, count * bytes);
    }
}

#endif
