/* histogram.c: see histogram.h. */
#include "histogram_bins.h"

#include <math.h>
#include <stdlib.h>

struct histogram *histogram_create(void)
{
    return calloc(1, sizeof(struct histogram));
}

void histogram_destroy(struct histogram *histogram)
{
    free(histogram);
}

void histogram_record(struct histogram *histogram, uint64_t ns)
{
    histogram->bins[histogram_bin_of(ns < HISTOGRAM_MOST_NS ? ns : HISTOGRAM_MOST_NS)]++;
    histogram->count++;
    histogram->sum_ns += (double)ns;
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
}

void histogram_reset(struct histogram *histogram)
{
    *histogram = (struct histogram){.count = 0};
}

void histogram_add(struct histogram *histogram, const struct histogram *more)
{
    for (uint32_t bin = 0; bin < HISTOGRAM_BINS; bin++) {
        histogram->bins[bin] += more->bins[bin];
    }
    histogram->count += more->count;
    histogram->sum_ns += more->sum_ns;
    histogram->max_ns = more->max_ns > histogram->max_ns ? more->max_ns : histogram->max_ns;
}

uint64_t histogram_count(const struct histogram *histogram)
{
    return histogram->count;
}

uint64_t histogram_max_ns(const struct histogram *histogram)
{
    return histogram->max_ns;
}

double histogram_mean_ns(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum_ns / (double)histogram->count : 0;
}

uint64_t histogram_percentile_ns(const struct histogram *histogram, double percent)
{
    /* A hair less: 99.9 % of 1000 is 999, and must not be the next because 99.9 is not a sum of powers of two. */
    const double wanted = ceil((double)histogram->count * nextafter(percent, 0) / 100);
    uint64_t seen = 0;
    for (uint32_t bin = 0; bin < HISTOGRAM_BINS; bin++) {
        seen += histogram->bins[bin];
        if (seen > 0 && (double)seen >= wanted) {
            const uint64_t most_ns = histogram_bin_most_ns(bin);
            return most_ns < histogram->max_ns && bin < HISTOGRAM_BINS - 1 ? most_ns
                                                                           : histogram->max_ns;
        }
    }
    return histogram->max_ns;
}
