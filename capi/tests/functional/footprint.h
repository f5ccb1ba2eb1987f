/* footprint.h: what a process holds: memory, descriptors, threads. */
#ifndef FUNCTIONAL_FOOTPRINT_H
#define FUNCTIONAL_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

struct footprint {
    long resident_kib;
    uint32_t descriptors;
    uint32_t threads;
};

struct footprint footprint(void);
/* True if the process holds no more than it did, but for what an allocator keeps for itself, and a page
 * here and there: a leak of 8 bytes a call, or of a kilobyte a connection, is more, and so is one
 * descriptor or thread of every second connection. Prints both. */
bool footprint_is_back(const struct footprint *before);
/* The same of descriptors and threads alone. */
bool footprint_no_more_is_open(const struct footprint *before);

#endif
