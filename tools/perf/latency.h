/* latency.h: latencies as copyrpc-perf reports them. */
#ifndef TOOLS_PERF_LATENCY_H
#define TOOLS_PERF_LATENCY_H

#include <jansson.h>

#include "../common/histogram.h"

/* Returns an object with p50, p90, p99, p99.9, max and mean, in nanoseconds. The caller owns it. */
json_t *latency_json(const struct histogram *latency);
/* Prints the same on one line, without the mean. */
void latency_print(const struct histogram *latency);

#endif
