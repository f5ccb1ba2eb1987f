/* channel_report.h: what copyrpc-perf --channels has measured, and functions that print it. */
#ifndef TOOLS_PERF_CHANNEL_REPORT_H
#define TOOLS_PERF_CHANNEL_REPORT_H

#include "flow.h"

#define CHANNEL_EVENTS_MAX 256 /* how many events are kept */

/* A rail was lost, or came into use. */
struct channel_event {
    double seconds; /* since the run began */
    uint32_t rail;
    int32_t status;
};

struct channel_result {
    struct histogram *latency;
    double seconds;
    uint64_t messages; /* acknowledged */
    uint64_t bytes;
    uint64_t messages_received; /* with --both */
    uint64_t bytes_received;
    uint64_t sent; /* messages, including the warm-up */
    uint64_t failed;
    uint64_t wrong;
    bool reported;
    struct flow_report report; /* the server's */
    crpc_channel_stats stats;  /* of the measured time only */
    crpc_channel_info info;
    crpc_rail_info rails[CRPC_RAILS_MAX];
    uint32_t rail_count;
    struct channel_event events[CHANNEL_EVENTS_MAX];
    uint32_t event_count;
};

/* The contents of a progress line. */
struct channel_progress {
    double seconds;  /* since the run began */
    double interval; /* since the previous line */
    uint64_t messages;
    crpc_channel_stats before;
    crpc_channel_stats now;
};

void channel_report_progress(const struct perf_options *options,
                             const struct channel_progress *progress);
/* Ends the progress line. On a terminal, each line overwrites the previous one. */
void channel_report_progress_end(void);
void channel_report_result(const struct perf_options *options, const struct channel_result *result);

#endif
