/* queue_report.h: what copyrpc-perf prints of queues: a row for each size. */
#ifndef TOOLS_PERF_QUEUE_REPORT_H
#define TOOLS_PERF_QUEUE_REPORT_H

#include "perf.h"

struct queue_row {
    uint32_t bytes;
    double seconds;
    uint64_t ops;      /* ping-pong: round trips */
    uint64_t ops_back; /* with --both, as the server has counted */
    uint64_t lost;     /* messages that did not arrive */
    uint64_t wrong;    /* messages or places with wrong bytes or counts */
    uint64_t doorbells;
    uint64_t signaled_wqes;
    const struct histogram *latency;
};

void queue_report_begin(const struct perf_options *options, const crpc_context_info *context);
void queue_report_row(const struct perf_options *options, const struct queue_row *row);
void queue_report_end(const struct perf_options *options);
/* A line on stderr; queue_report_progress_end ends it on a terminal. */
void queue_report_progress_end(void);
void queue_report_progress(const struct perf_options *options, double seconds,
                           double ops_per_second);

#endif
