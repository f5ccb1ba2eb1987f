/* report.c: what copyrpc-perf prints. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../common/text.h"
#include "latency.h"
#include "record.h"

void report_progress(const struct perf_options *options, double seconds, uint64_t answered,
                     uint64_t answered_before, double interval)
{
    char rate[16];
    bool terminal = isatty(STDERR_FILENO);
    text_of_count((double)(answered - answered_before) / interval, rate, sizeof(rate));
    if (options->calls) {
        fprintf(stderr, "%s%3.0f %%  %s calls/s%s", terminal ? "\r" : "",
                100.0 * (double)answered / (double)options->calls, rate, terminal ? "   " : "\n");
    } else {
        fprintf(stderr, "%s%.0f of %.0f s  %s calls/s%s", terminal ? "\r" : "", seconds,
                options->seconds, rate, terminal ? "   " : "\n");
    }
    if (terminal && seconds + 1 > options->seconds && !options->calls) {
        fputc('\n', stderr);
    }
}

static double per_call(const struct perf_result *result, uint64_t count)
{
    return result->stats.calls ? (double)count / (double)result->stats.calls : 0;
}

static double messages_per_batch(const struct perf_result *result)
{
    return result->stats.batches_sent
               ? (double)result->stats.calls / (double)result->stats.batches_sent
               : 0;
}

/* ---- As a document --------------------------------------------------------------------------- */

static json_t *record;

static bool is_sweep(const struct perf_options *options)
{
    return options->all || options->bytes_min != options->request_bytes;
}

static uint32_t reply_bytes(const struct perf_options *options, uint32_t bytes)
{
    return options->reply_bytes == UINT32_MAX ? bytes : options->reply_bytes;
}

static json_t *costs_json(const struct perf_result *result)
{
    const crpc_stats *stats = &result->stats;
    return json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "batches",
        per_call(result, stats->batches_sent), "wqes", per_call(result, stats->send_wqes),
        "doorbells", per_call(result, stats->doorbells), "signaled_wqes",
        per_call(result, stats->signaled_wqes), "inline_wqes", per_call(result, stats->inline_wqes),
        "receive_wqes", per_call(result, stats->receive_wqes), "mailbox_reads",
        per_call(result, stats->mailbox_reads), "completions",
        per_call(result, stats->completions));
}

/* Of one size, the document has all that its row has, too. */
static void add_json(const struct perf_options *options, const struct perf_result *result)
{
    const double rate = (double)result->answered / result->seconds;
    json_t *row = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:o}", "bytes",
        (json_int_t)result->bytes, "reply_bytes", (json_int_t)reply_bytes(options, result->bytes),
        "calls", (json_int_t)result->answered, "lost",
        (json_int_t)(result->sent - result->answered), "wrong", (json_int_t)result->wrong,
        "seconds", result->seconds, "calls_per_second", rate, "bytes_per_second",
        rate * result->bytes, "messages_per_batch", messages_per_batch(result), "held",
        (json_int_t)result->pace.held, "unsent", (json_int_t)result->pace.unsent, "late_most_ns",
        (json_int_t)result->pace.late_most_ns, "per_call", costs_json(result));
    latency_add(row, result->latency);
    json_t *more = is_sweep(options) ? NULL : json_copy(row);
    if (more) {
        json_object_del(more, "bytes");
        json_object_del(more, "latency_histogram"); /* once is enough */
        json_object_set_new(more, "request_bytes", json_integer((json_int_t)result->bytes));
    }
    record_add(record, row, more);
}

static void begin_json(const struct perf_options *options, const crpc_context_info *context)
{
    record = record_create(options, context);
    json_t *more = json_pack("{s:i, s:i, s:i, s:b, s:f}", "depth", (int)options->depth, "endpoints",
                             (int)options->endpoints, "threads", (int)options->threads, "wait",
                             (int)options->wait, "rate", options->rate);
    json_object_update_new(record, more);
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_pace(const struct perf_options *options, const struct pace_report *pace)
{
    char rate[32], late[32];
    printf("  due      %s calls/s; %llu had to wait for others; sent up to %s late",
           text_of_count(options->rate, rate, sizeof(rate)), (unsigned long long)pace->held,
           text_of_time(pace->late_most_ns, late, sizeof(late)));
    if (pace->unsent) {
        printf("; %llu never went out, and are in no latency", (unsigned long long)pace->unsent);
    }
    putchar('\n');
}

static void begin_table(const struct perf_options *options, const crpc_context_info *context)
{
    char text[32], size[32] = "";
    char threads[32] = "";
    if (options->threads > 1) {
        snprintf(threads, sizeof(threads), ", in each of %u threads", options->threads);
    }
    if (!is_sweep(options)) {
        snprintf(size, sizeof(size), " of %u B", options->request_bytes);
    }
    printf("%s on %s: %u x %u calls%s open%s%s\n", text_of_driver(context->driver), context->device,
           options->endpoints, options->depth, size, threads, options->wait ? ", sleeping" : "");
    cpus_print(&options->cpus, context->device);
    if (!is_sweep(options)) {
        return;
    }
    if (options->rate > 0) {
        printf("%s calls/s are due\n", text_of_count(options->rate, text, sizeof(text)));
    }
    printf("%12s %10s %14s %10s %9s %9s %9s%s\n", "bytes", "calls", "bytes/s", "calls/s", "p50",
           "p99", "max", options->rate > 0 ? "       held     unsent" : "");
}

static void print_table(const struct perf_options *options, const struct perf_result *result)
{
    const crpc_stats *stats = &result->stats;
    char text[32];
    printf("  rate     %s calls/s (%llu in %.2f s, %llu lost)\n",
           text_of_count((double)result->answered / result->seconds, text, sizeof(text)),
           (unsigned long long)result->answered, result->seconds,
           (unsigned long long)(result->sent - result->answered));
    if (options->rate > 0) {
        print_pace(options, &result->pace);
    }
    latency_print(result->latency);
    printf("  batches  %.1f calls each; per call %.3f WQEs, %.3f doorbells, %.3f receive WQEs, "
           "%.4f mailbox READs\n",
           messages_per_batch(result), per_call(result, stats->send_wqes),
           per_call(result, stats->doorbells), per_call(result, stats->receive_wqes),
           per_call(result, stats->mailbox_reads));
}

static void print_row(const struct perf_options *options, const struct perf_result *result)
{
    const double rate = (double)result->answered / result->seconds;
    const uint64_t lost = result->sent - result->answered;
    char text[32], count[32];
    printf("%12u %10llu %14s %10s", result->bytes, (unsigned long long)result->answered,
           text_of_bytes(rate * result->bytes, text, sizeof(text)),
           text_of_count(rate, count, sizeof(count)));
    printf(" %9s", text_of_time(histogram_percentile_ns(result->latency, 50), text, sizeof(text)));
    printf(" %9s", text_of_time(histogram_percentile_ns(result->latency, 99), text, sizeof(text)));
    printf(" %9s", text_of_time(histogram_max_ns(result->latency), text, sizeof(text)));
    if (options->rate > 0) {
        printf(" %10llu %10llu", (unsigned long long)result->pace.held,
               (unsigned long long)result->pace.unsent);
    }
    putchar('\n');
    if (lost) {
        printf("  %llu calls lost, %llu of them answered wrongly\n", (unsigned long long)lost,
               (unsigned long long)result->wrong);
    }
}

/* What ./dev demo ends with, behind all else. */
static char demo[256];

static void note_demo(const struct perf_options *options, const struct perf_result *result)
{
    char p50[16], p99[16];
    text_of_time(histogram_percentile_ns(result->latency, 50), p50, sizeof(p50));
    text_of_time(histogram_percentile_ns(result->latency, 99), p99, sizeof(p99));
    snprintf(demo, sizeof(demo),
             "demo: calls=%llu lost=%llu depth=%u rate=%.0f/s p50=%s p99=%s driver=%s device=%s",
             (unsigned long long)result->sent,
             (unsigned long long)(result->sent - result->answered), options->depth,
             (double)result->answered / result->seconds, p50, p99,
             text_of_driver(result->context.driver), result->context.device);
}

/* ---- Both ------------------------------------------------------------------------------------ */

void report_begin(const struct perf_options *options, const crpc_context_info *context)
{
    if (options->json) {
        begin_json(options, context);
    } else {
        begin_table(options, context);
    }
    fflush(stdout);
}

void report_result(const struct perf_options *options, const struct perf_result *result)
{
    if (options->json) {
        add_json(options, result);
    } else if (is_sweep(options)) {
        print_row(options, result);
    } else {
        print_table(options, result);
    }
    latency_write(options, result->bytes, result->latency, result->seconds);
    note_demo(options, result);
    fflush(stdout);
}

void report_end(const struct perf_options *options)
{
    if (options->json) {
        record_print(options, record);
        record = NULL;
    }
    if (options->demo && demo[0]) {
        puts(demo);
        fflush(stdout);
    }
}
