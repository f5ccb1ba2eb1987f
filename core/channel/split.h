/* split.h: how a buffer is split over two rails: integers only, parts a multiple of 128 bytes, so
 * that no two rails write into one line of a cache.
 */
#ifndef CORE_CHANNEL_SPLIT_H
#define CORE_CHANNEL_SPLIT_H

#include <assert.h>
#include <stdint.h>

#define SPLIT_WHOLE 1024u
#define SPLIT_ALIGN 128u

/* The bytes of a buffer that rail 0 carries, from its start; rail 1 carries the rest. A buffer below
 * stripe_bytes_min stays whole, on the rail with the larger share. bytes is at most 2^30. */
static inline uint32_t split_first(uint32_t bytes, uint32_t rail0_share, uint32_t stripe_bytes_min)
{
    assert(bytes <= 1u << 30 && rail0_share <= SPLIT_WHOLE);
    if (bytes < stripe_bytes_min) {
        return rail0_share * 2 >= SPLIT_WHOLE ? bytes : 0;
    }
    if (rail0_share >= SPLIT_WHOLE) {
        return bytes;
    }
    return (uint32_t)((uint64_t)bytes * rail0_share / SPLIT_WHOLE) & ~(SPLIT_ALIGN - 1);
}

#endif
