/* histogram.h: counts latencies in logarithmic bins of 0.5 % width, from 10 ns to 1000 s.
 *
 * This is a C interface to Boost.Histogram, which has logarithmic axes. Debian 12 has no package of
 * HdrHistogram_c, and GSL's histograms are under the GPL.
 */
#ifndef TOOLS_COMMON_HISTOGRAM_H
#define TOOLS_COMMON_HISTOGRAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct histogram;

/* Returns NULL if there is no memory. The caller frees it with histogram_destroy. */
struct histogram *histogram_create(void);
void histogram_destroy(struct histogram *histogram);

void histogram_record(struct histogram *histogram, uint64_t ns);
void histogram_reset(struct histogram *histogram);

/* Adds all that `more` has counted. */
void histogram_add(struct histogram *histogram, const struct histogram *more);

uint64_t histogram_count(const struct histogram *histogram);
uint64_t histogram_max_ns(const struct histogram *histogram);
double histogram_mean_ns(const struct histogram *histogram);
/* Returns the upper edge of the bin that contains the percentile; 0 if nothing was recorded. */
uint64_t histogram_percentile_ns(const struct histogram *histogram, double percent);

#ifdef __cplusplus
}
#endif

#endif
