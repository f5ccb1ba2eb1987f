/* page.h: the size of a page of memory. */
#ifndef CORE_BASE_PAGE_H
#define CORE_BASE_PAGE_H

#include <stddef.h>
#include <unistd.h>

/* A power of two. */
static inline size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

#endif
