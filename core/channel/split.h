/* split.h: splits a buffer over two rails. Parts are multiples of 128 bytes, so that two rails
 * never write into the same cache line. The computation only uses integers.
 */
#ifndef CORE_CHANNEL_SPLIT_H
#define CORE_CHANNEL_SPLIT_H

#include <assert.h>
#include <stdint.h>

#define SPLIT_WHOLE 1024u
#define SPLIT_ALIGN 128u

/* Returns how many bytes at the start of a buffer rail 0 carries; rail 1 carries the rest. A buffer
 * shorter than stripe_bytes_min goes as a whole to the rail with the larger share. `bytes` is at
 * most 2^30. */
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
