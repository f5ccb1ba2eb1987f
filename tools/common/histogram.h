/* histogram.h: counts latencies in the bins of an HdrHistogram with three significant digits: a bin is at most 0.1 % wide, from 1 ns to 18
 * minutes. Whatever reads HdrHistograms can read what it writes.
 *
 * It is not HdrHistogram_c because Debian 12 has no package of it.
 */
#ifndef TOOLS_COMMON_HISTOGRAM_H
#define TOOLS_COMMON_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

struct histogram;

/* Returns NULL if there is no memory. The caller frees it with histogram_destroy, which also takes NULL. */
struct histogram *histogram_create(void);
void histogram_destroy(struct histogram *histogram);

/* Longer than the last bin counts there; the maximum and the mean know better. */
void histogram_record(struct histogram *histogram, uint64_t ns);
void histogram_reset(struct histogram *histogram);

/* Adds all that `more` has counted. */
void histogram_add(struct histogram *histogram, const struct histogram *more);

uint64_t histogram_count(const struct histogram *histogram);
uint64_t histogram_max_ns(const struct histogram *histogram);
double histogram_mean_ns(const struct histogram *histogram);
/* Returns the largest value of the bin that contains the percentile, or the maximum if that is less; 0 if nothing was recorded. */
uint64_t histogram_percentile_ns(const struct histogram *histogram, double percent);

/* Tells the percentiles, closer and closer to 100, which is the last: each with the longest latency in it, and how many there are up to that. */
void histogram_tell(const struct histogram *histogram,
                    void (*told)(void *context, double percent, uint64_t ns, uint64_t count),
                    void *context);
/* Prints HdrHistogram's table of percentiles (.hgrm), in microseconds. */
void histogram_print(const struct histogram *histogram, FILE *stream);
/* Returns the base64 text of a line of a histogram log (.hlog), in nanoseconds: version 2 of the encoding, compressed. The caller frees it. NULL if there
 * is no memory. */
char *histogram_encode(const struct histogram *histogram);
/* Returns the histogram of such a text, which the caller destroys: its counts, with the maximum and the mean as far as the bins tell. NULL if the text is
 * of no histogram with bins as these are, or there is no memory. */
struct histogram *histogram_decode(const char *text);

#endif
