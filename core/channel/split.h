/* split.h: splits a buffer over two rails. Parts are multiples of 128 bytes, so that two rails
 * never write into the same cache line. The computation only uses integers.
 *
 * What rail 0 is *due* of a buffer may be any number: it can be behind or ahead.
 */
#ifndef CORE_CHANNEL_SPLIT_H
#define CORE_CHANNEL_SPLIT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define SPLIT_WHOLE 1024u /* parts in which the application and the hint tell shares */
#define SPLIT_ALIGN 128u
#define SPLIT_FINE_BITS 20u /* shares are kept in parts of 2^20 */
#define SPLIT_FINE (1u << SPLIT_FINE_BITS)

static inline uint32_t split_fine(uint32_t share)
{
    assert(share <= SPLIT_WHOLE);
    return share * (SPLIT_FINE / SPLIT_WHOLE);
}

/* Returns what rail 0 is due of so many bytes, at most 2^43, by its share. */
static inline int64_t split_due(uint64_t bytes, uint32_t fine_share)
{
    assert(bytes <= UINT64_C(1) << 43 && fine_share <= SPLIT_FINE);
    return (int64_t)(bytes * fine_share >> SPLIT_FINE_BITS);
}

/* Returns what rail 0 is due besides, because of what both rails have under way: less if it has more than its part
 * of that, else more, so that both come to their end together. Only three quarters: what is under way may have been
 * sent already, and is counted until it is acknowledged. All of it would have each message undo the one before. To the
 * nearest multiple of SPLIT_ALIGN: small parts would be too small all the time. */
static inline int64_t split_behind(const uint64_t under_way[2], uint32_t fine_share)
{
    int64_t behind = split_due(under_way[0] + under_way[1], fine_share) - (int64_t)under_way[0];
    return behind - behind / 4 + SPLIT_ALIGN / 2;
}

/* Returns how many bytes at the start of a buffer rail 0 carries; rail 1 carries the rest. */
static inline uint32_t split_first(uint32_t bytes, int64_t due)
{
    if (due >= (int64_t)bytes) {
        return bytes;
    }
    return due <= 0 ? 0 : (uint32_t)due & ~(SPLIT_ALIGN - 1);
}

/* Returns the same for a buffer that goes over one rail: all or nothing. *owed is by how much rail 0 is behind its
 * share of such buffers, in parts of 2^20 of a byte: the rail that is further behind gets the next one. So neither is
 * ever further from its part than by half of the longest. A rail without a share gets none. */
static inline uint32_t split_whole(uint32_t bytes, uint32_t fine_share, int64_t *owed)
{
    assert(bytes <= 1u << 30 && fine_share <= SPLIT_FINE);
    if (fine_share == 0 || fine_share == SPLIT_FINE) {
        return fine_share ? bytes : 0;
    }
    int64_t whole = (int64_t)bytes << SPLIT_FINE_BITS;
    int64_t due = (int64_t)bytes * fine_share + *owed;
    bool first = due * 2 >= whole;
    *owed = due - (first ? whole : 0);
    return first ? bytes : 0;
}

#endif
