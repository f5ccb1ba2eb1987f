/* perf.h: what the files of copyrpc-perf share.
 *
 *   main.c     the command line; mode.c: what belongs to what
 *   context.c  opens the device
 *   server.c   answers
 *   client.c   calls and measures
 *   pace.c     when each call is due, with --rate
 *   team.c     runs several of either in threads
 *   cpus.c     pins threads
 *   report.c   progress, table, the demo's line
 *   record.c   JSON and CSV of all that is measured; compare.c and plot.c read it
 *
 * With --channels, it sends messages over channels instead of calls: flow.c, channel_server.c,
 * channel_client.c, channel_report.c. With --write, --read, --send or --atomic, it uses queues: traffic.c, traffic_ops.c,
 * address.c, datagrams.c, dc.c, tags.c, queue_server.c, queue_client.c, queue_report.c.
 */
#ifndef TOOLS_PERF_PERF_H
#define TOOLS_PERF_PERF_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <copyrpc.h>

#include "../common/histogram.h"
#include "cpus.h"
#include "pace.h"

#define PERF_ENDPOINTS_MAX 1024
#define PERF_THREADS_MAX 64
#define PERF_DEPTH_MAX 65536 /* open calls on all endpoints of a thread together */
#define PERF_BYTES_MAX (64u << 20)
#define PERF_QUEUE_PAIRS_MAX 64 /* of queues */
#define PERF_TARGETS_MAX 64     /* of a DCI */
#define PERF_QUEUES_MAX 65536
#define PERF_PEER_RING_BYTES_MAX (64u << 20)

/* Method 0 requests an echo. This method requests as many bytes as the first four bytes of the
 * request say. */
#define PERF_METHOD_SIZED 1

enum perf_tags { PERF_TAGS_NONE, PERF_TAGS_EXPECTED, PERF_TAGS_UNEXPECTED };

struct perf_options {
    const char *device;
    const char *address;
    uint32_t request_bytes;
    uint32_t reply_bytes; /* UINT32_MAX: the request is echoed, and checked */
    uint32_t depth;       /* open calls on each endpoint */
    uint32_t endpoints;   /* of each thread */
    uint32_t threads;     /* each with a context of its own */
    double seconds;       /* 0: until `calls` */
    double warmup_seconds;
    uint64_t timeout_ns; /* of the peer, to connect and to end */
    uint64_t calls;
    double
        rate; /* calls a second of all threads, each of which is due at its time; 0 = as the depth allows */
    uint32_t ring_bytes;
    uint32_t initiators;  /* of the context; 0 = endpoints are connected by RC */
    uint32_t arena_bytes; /* of a place that the server lends; 0 = nothing */
    /* Of the context: as in crpc_context_options. */
    bool gid_index_given;
    uint32_t gid_index;
    uint32_t traffic_class;
    uint32_t service_level;
    uint32_t partition_key;
    uint32_t retry_timeout;
    bool region; /* payloads are sent from a region */
    bool wait;   /* sleep instead of polling continuously */
    bool json;   /* a document (record.h), as JSON or, with csv, as CSV */
    bool csv;
    FILE *histogram;    /* where latencies are written to; NULL = nowhere */
    bool histogram_log; /* in lines of a log, not as a table */
    struct cpus cpus;
    bool demo;
    bool progress;
    uint32_t key_bytes; /* 0 = none */
    uint8_t key[64];

    /* Sizes: request_bytes is the largest. Of calls and queues they are doubled, from the smallest on. */
    uint32_t bytes_min;
    bool all; /* as far as the other side takes them */

    /* with --channels: request_bytes is the maximum of each buffer, and `calls` counts messages */
    bool channels;
    uint32_t group;
    uint32_t queue_pairs; /* 0 = 1, or what the client requests */
    uint32_t split;       /* CRPC_SPLIT_* */
    uint32_t rail0_share;
    const char *hint;
    char rails[CRPC_RAILS_MAX][64]; /* devices; empty = the library chooses */
    uint32_t rail_mask;             /* 0 = all */
    uint32_t stripe_bytes_min;      /* 0 = the library's default */
    bool both;
    bool verify;

    /* with queues: `calls` counts ops of each queue pair */
    bool queues;
    uint8_t opcode; /* CRPC_QUEUE_*; 0 = the server serves all */
    bool latency;
    bool datagrams;
    bool dc;
    uint32_t streams; /* of each DCI; 0 = none */
    uint32_t targets; /* DCTs of each DCI; 0 = 1 */
    enum perf_tags tags;
    uint32_t inline_bytes;
};

struct perf_result {
    uint32_t bytes; /* of a request */
    struct histogram *latency;
    double seconds;
    uint64_t sent;
    uint64_t answered; /* correctly */
    uint64_t failed;
    uint64_t wrong; /* answers with wrong bytes */
    struct pace_report pace;
    crpc_stats stats; /* of the measured time only */
    crpc_context_info context;
};

extern volatile sig_atomic_t perf_stop;

int perf_serve(const struct perf_options *options);
int perf_measure(const struct perf_options *options);
int channel_serve(const struct perf_options *options);
int queue_serve(const struct perf_options *options);
int queue_measure(const struct perf_options *options);
int channel_measure(const struct perf_options *options);
/* compare.c: prints how two results differ, which --json has written. */
int compare_files(const char *old_path, const char *new_path);
/* plot.c: prints a script for gnuplot that draws such results. */
int plot_files(char *const *paths, size_t count);

void report_progress(const struct perf_options *options, double seconds, uint64_t answered,
                     uint64_t answered_before, double interval);
/* What the first context is, before the first result; a result for each size; the end. */
void report_begin(const struct perf_options *options, const crpc_context_info *context);
void report_result(const struct perf_options *options, const struct perf_result *result);
void report_end(const struct perf_options *options);

/* Runs run(members[i]) for each of them, the first in this thread, and waits for all. `members` is an array of `count`
 * members of member_bytes each. The threads are pinned to processors in turn. Returns false, and has printed why, if a thread could not be started: then perf_stop is
 * set, and those that were are waited for. */
bool team_run(void *members, size_t member_bytes, uint32_t count, void (*run)(void *member),
              const struct cpus *cpus);

uint64_t perf_now_ns(void);
/* Prints what failed. Returns EXIT_FAILURE. */
int perf_failed(const char *what, const char *why);
/* Opens a context for what the options choose. Returns NULL if that failed, and has printed why. */
crpc_context *perf_open(const struct perf_options *options);
/* The same, and listens, and prints where. */
crpc_context *perf_listen(const struct perf_options *options);

#endif
