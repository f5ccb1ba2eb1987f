/* histogram_bins.h: the bins of a histogram, for the files that implement it.
 *
 * Each bucket covers twice as much as the one before, in 1024 bins of equal width. The first has 2048 of them, each of 1 ns. */
#ifndef TOOLS_COMMON_HISTOGRAM_BINS_H
#define TOOLS_COMMON_HISTOGRAM_BINS_H

#include <stddef.h>

#include "histogram.h"

#define HISTOGRAM_DIGITS 3
#define HISTOGRAM_HALF_BITS 10
#define HISTOGRAM_HALF (1u << HISTOGRAM_HALF_BITS)
#define HISTOGRAM_BUCKETS 30u
#define HISTOGRAM_BINS ((HISTOGRAM_BUCKETS + 1) * HISTOGRAM_HALF)
#define HISTOGRAM_MOST_NS ((UINT64_C(1) << (HISTOGRAM_HALF_BITS + HISTOGRAM_BUCKETS)) - 1)

struct histogram {
    uint64_t count;
    uint64_t max_ns;
    double sum_ns;
    uint64_t bins[HISTOGRAM_BINS];
};

static inline uint32_t histogram_bin_of(uint64_t ns)
{
    uint32_t bucket =
        63 - HISTOGRAM_HALF_BITS - (uint32_t)__builtin_clzll(ns | (2 * HISTOGRAM_HALF - 1));
    return (bucket << HISTOGRAM_HALF_BITS) + (uint32_t)(ns >> bucket);
}

/* Returns the width of a bin. */
static inline uint64_t histogram_bin_ns(uint32_t bin)
{
    return bin < HISTOGRAM_HALF ? 1 : UINT64_C(1) << (bin / HISTOGRAM_HALF - 1);
}

static inline uint64_t histogram_bin_least_ns(uint32_t bin)
{
    uint64_t width = histogram_bin_ns(bin);
    return width == 1 ? bin : (HISTOGRAM_HALF + bin % HISTOGRAM_HALF) * width;
}

static inline uint64_t histogram_bin_most_ns(uint32_t bin)
{
    return histogram_bin_least_ns(bin) + histogram_bin_ns(bin) - 1;
}

#endif
