/* latency.h: latencies as copyrpc-perf reports them. */
#ifndef TOOLS_PERF_LATENCY_H
#define TOOLS_PERF_LATENCY_H

#include <jansson.h>

#include "perf.h"

/* Returns an object with p50, p90, p99, p99.9, max and mean, in nanoseconds. The caller owns it. */
json_t *latency_json(const struct histogram *latency);
/* Adds these and the whole histogram to a row of a record. */
void latency_add(json_t *row, const struct histogram *latency);
/* Writes the whole histogram where the options say, in a log with the size as its tag. The last `seconds` are its time. */
void latency_write(const struct perf_options *options, uint32_t bytes,
                   const struct histogram *latency, double seconds);
/* Prints percentiles and the maximum on one line. */
void latency_print(const struct histogram *latency);

#endif
