/* checksum.h: FNV-1a of 32 bits, for data that an application carries (it detects damage, not forgery), and for the numbers of
 * methods that have names. */
#ifndef CORE_BASE_CHECKSUM_H
#define CORE_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t checksum_of(const void *data, size_t bytes)
{
    const uint8_t *from = (const uint8_t *)data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ from[i]) * 16777619u;
    }
    return hash;
}

#endif
