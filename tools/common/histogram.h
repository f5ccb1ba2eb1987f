/* histogram.h: latencies in logarithmic bins of 0.5 % width, from 10 ns to 1000 s.
 *
 * HdrHistogram_c is no package of Debian 12, and GSL's histograms are GPL: this is
 * Boost.Histogram, which has logarithmic axes, behind a C interface.
 */
#ifndef TOOLS_COMMON_HISTOGRAM_H
#define TOOLS_COMMON_HISTOGRAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct histogram;

/* NULL if there is no memory. */
struct histogram *histogram_create(void);
void histogram_destroy(struct histogram *histogram);

void histogram_record(struct histogram *histogram, uint64_t ns);
void histogram_reset(struct histogram *histogram);

uint64_t histogram_count(const struct histogram *histogram);
uint64_t histogram_max_ns(const struct histogram *histogram);
double histogram_mean_ns(const struct histogram *histogram);
/* The upper edge of the bin below which `percent` of all lie; 0 if there are none. */
uint64_t histogram_percentile_ns(const struct histogram *histogram, double percent);

#ifdef __cplusplus
}
#endif

#endif
