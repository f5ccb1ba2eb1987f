/* lines.h: memory that the data path writes, in cache lines of its own. Objects of several contexts are made by one thread, and
 * the allocator puts them side by side. If the end of one shared a line with the beginning of another, the processors of
 * both contexts would take the line from each other with each call (capi/tests/functional/lines_test.c).
 */
#ifndef CORE_BASE_LINES_H
#define CORE_BASE_LINES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* Allocates `count` times `bytes` bytes of zeros, count and bytes not 0. Returns NULL if there is no memory. free() frees it. */
static inline void *lines_alloc(size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total) ||
        __builtin_add_overflow(total, CACHE_LINE_BYTES - 1, &total)) {
        return NULL;
    }
    total &= ~(size_t)(CACHE_LINE_BYTES - 1);
    void *memory = aligned_alloc(CACHE_LINE_BYTES, total);
    return memory ? memset(memory, 0, total) : NULL;
}

#endif
