/* queue_report.c: see queue_report.h. */
#include "queue_report.h"

#include <stdio.h>
#include <unistd.h>

#include "../common/text.h"
#include "latency.h"
#include "record.h"
#include "traffic.h"

static json_t *record;

static double per(uint64_t count, uint64_t ops)
{
    return ops ? (double)count / (double)ops : 0;
}

static const char *tags_name(const struct perf_options *options)
{
    return options->tags == PERF_TAGS_EXPECTED     ? "expected"
           : options->tags == PERF_TAGS_UNEXPECTED ? "unexpected"
                                                   : NULL;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void begin_json(const struct perf_options *options, const crpc_context_info *context)
{
    record = record_create(options, context);
    json_t *more = json_pack("{s:s, s:b, s:b, s:i, s:i, s:s?, s:i, s:i, s:b, s:b, s:b, s:i}", "op",
                             traffic_name(options->opcode), "datagrams", (int)options->datagrams,
                             "dc", (int)options->dc, "streams", (int)options->streams, "targets",
                             (int)options->targets, "tags", tags_name(options), "queue_pairs",
                             (int)options->queue_pairs, "depth", (int)options->depth, "both",
                             (int)options->both, "latency", (int)options->latency, "wait",
                             (int)options->wait, "inline_bytes", (int)options->inline_bytes);
    json_object_update_new(record, more);
}

static void add_json(const struct queue_row *row)
{
    double seconds = row->seconds > 0 ? row->seconds : 1;
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f}", "bytes",
        (json_int_t)row->bytes, "ops", (json_int_t)row->ops, "ops_back", (json_int_t)row->ops_back,
        "seconds", row->seconds, "ops_per_second", (double)row->ops / seconds, "bytes_per_second",
        (double)row->ops * row->bytes / seconds, "bytes_per_second_back",
        (double)row->ops_back * row->bytes / seconds, "doorbells_per_op",
        per(row->doorbells, row->ops), "lost", (json_int_t)row->lost, "wrong",
        (json_int_t)row->wrong, "signaled_wqes_per_op", per(row->signaled_wqes, row->ops),
        "mean_op_ns", row->ops ? row->seconds * 1e9 / (double)row->ops : 0);
    latency_add(json, row->latency);
    record_add(record, json, NULL);
}

/* ---- For people ------------------------------------------------------------------------------ */

static const char *kind_name(const struct perf_options *options)
{
    return options->datagrams                      ? " of datagrams"
           : options->dc                           ? " over DC"
           : options->tags == PERF_TAGS_EXPECTED   ? " with tags"
           : options->tags == PERF_TAGS_UNEXPECTED ? " with tags that nobody expects"
                                                   : "";
}

static void begin_table(const struct perf_options *options, const crpc_context_info *context)
{
    printf("%s%s by %s on %s", traffic_name(options->opcode), kind_name(options),
           text_of_driver(context->driver), context->device);
    if (options->latency) {
        printf(", one at a time");
    } else {
        printf(": %u x %u ops open", options->queue_pairs, options->depth);
    }
    if (options->dc) {
        printf(", to %u %s each", options->targets, options->targets == 1 ? "DCT" : "DCTs");
    }
    if (options->streams) {
        printf(", %u %s each", options->streams, options->streams == 1 ? "stream" : "streams");
    }
    if (options->inline_bytes) {
        printf(", up to %u B inline", options->inline_bytes);
    }
    printf("%s%s\n", options->both ? ", both ways" : "", options->wait ? ", sleeping" : "");
    cpus_print(&options->cpus, context->device);
    printf("%12s %10s %14s %10s%s %9s %9s %9s\n", "bytes", "ops", "bytes/s", "ops/s",
           options->both ? "         back/s" : "", "p50", "p99", "max");
}

static void print_row(const struct perf_options *options, const struct queue_row *row)
{
    char rate[32], count[32], text[32];
    double seconds = row->seconds > 0 ? row->seconds : 1;
    printf("%12u %10llu %14s %10s", row->bytes, (unsigned long long)row->ops,
           text_of_bytes((double)row->ops * row->bytes / seconds, rate, sizeof(rate)),
           text_of_count((double)row->ops / seconds, count, sizeof(count)));
    if (options->both) {
        printf(" %14s",
               text_of_bytes((double)row->ops_back * row->bytes / seconds, rate, sizeof(rate)));
    }
    printf(" %9s", text_of_time(histogram_percentile_ns(row->latency, 50), text, sizeof(text)));
    printf(" %9s", text_of_time(histogram_percentile_ns(row->latency, 99), text, sizeof(text)));
    printf(" %9s\n", text_of_time(histogram_max_ns(row->latency), text, sizeof(text)));
    if (options->datagrams && row->lost && !row->wrong) {
        printf("  %llu datagrams lost\n", (unsigned long long)row->lost);
    } else if (row->lost || row->wrong) {
        printf("  WRONG: %llu messages lost, %llu wrong\n", (unsigned long long)row->lost,
               (unsigned long long)row->wrong);
    }
}

/* ---- Both ------------------------------------------------------------------------------------ */

void queue_report_begin(const struct perf_options *options, const crpc_context_info *context)
{
    if (options->json) {
        begin_json(options, context);
    } else {
        begin_table(options, context);
    }
    fflush(stdout);
}

void queue_report_row(const struct perf_options *options, const struct queue_row *row)
{
    if (options->json) {
        add_json(row);
    } else {
        print_row(options, row);
    }
    latency_write(options, row->bytes, row->latency, row->seconds);
    fflush(stdout);
}

void queue_report_end(const struct perf_options *options)
{
    if (options->json) {
        record_print(options, record);
        record = NULL;
    }
}

void queue_report_progress_end(void)
{
    if (isatty(STDERR_FILENO)) {
        fputc('\n', stderr);
    }
}

void queue_report_progress(const struct perf_options *options, double seconds,
                           double ops_per_second)
{
    char rate[32];
    bool terminal = isatty(STDERR_FILENO);
    text_of_count(ops_per_second, rate, sizeof(rate));
    if (options->calls) {
        fprintf(stderr, "%s%.0f s  %s ops/s%s", terminal ? "\r" : "", seconds, rate,
                terminal ? "   " : "\n");
    } else {
        fprintf(stderr, "%s%.0f of %.0f s  %s ops/s%s", terminal ? "\r" : "", seconds,
                options->seconds, rate, terminal ? "   " : "\n");
    }
}
