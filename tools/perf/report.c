/* report.c: what copyrpc-perf prints. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "../common/text.h"
#include "latency.h"
#include "perf.h"

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

static void print_json(const struct perf_options *options, const struct perf_result *result)
{
    const crpc_stats *stats = &result->stats;
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "device",
        result->context.device, "driver", text_of_driver(result->context.driver), "request_bytes",
        (json_int_t)options->request_bytes, "reply_bytes",
        (json_int_t)(options->reply_bytes == UINT32_MAX ? options->request_bytes
                                                        : options->reply_bytes),
        "depth", (int)options->depth, "endpoints", (int)options->endpoints, "threads",
        (int)options->threads, "wait", (int)options->wait, "calls", (json_int_t)result->answered,
        "lost", (json_int_t)(result->sent - result->answered), "wrong", (json_int_t)result->wrong,
        "seconds", result->seconds, "calls_per_second", (double)result->answered / result->seconds,
        "messages_per_batch", messages_per_batch(result), "latency_ns",
        latency_json(result->latency));
    json_t *costs = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "batches",
        per_call(result, stats->batches_sent), "wqes", per_call(result, stats->send_wqes),
        "doorbells", per_call(result, stats->doorbells), "signaled_wqes",
        per_call(result, stats->signaled_wqes), "inline_wqes", per_call(result, stats->inline_wqes),
        "receive_wqes", per_call(result, stats->receive_wqes), "mailbox_reads",
        per_call(result, stats->mailbox_reads), "completions",
        per_call(result, stats->completions));
    if (!root || !costs || json_object_set_new(root, "per_call", costs)) {
        perf_failed("no memory", "for the report");
        return;
    }
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
}

static void print_table(const struct perf_options *options, const struct perf_result *result)
{
    const crpc_stats *stats = &result->stats;
    char text[32];
    char threads[32] = "";
    if (options->threads > 1) {
        snprintf(threads, sizeof(threads), ", in each of %u threads", options->threads);
    }
    printf("%s on %s: %u x %u calls of %u B open%s%s\n", text_of_driver(result->context.driver),
           result->context.device, options->endpoints, options->depth, options->request_bytes,
           threads, options->wait ? ", sleeping" : "");
    printf("  rate     %s calls/s (%llu in %.2f s, %llu lost)\n",
           text_of_count((double)result->answered / result->seconds, text, sizeof(text)),
           (unsigned long long)result->answered, result->seconds,
           (unsigned long long)(result->sent - result->answered));
    latency_print(result->latency);
    printf("  batches  %.1f calls each; per call %.3f WQEs, %.3f doorbells, %.3f receive WQEs, "
           "%.4f mailbox READs\n",
           messages_per_batch(result), per_call(result, stats->send_wqes),
           per_call(result, stats->doorbells), per_call(result, stats->receive_wqes),
           per_call(result, stats->mailbox_reads));
}

static void print_demo(const struct perf_options *options, const struct perf_result *result)
{
    char p50[16], p99[16];
    text_of_time(histogram_percentile_ns(result->latency, 50), p50, sizeof(p50));
    text_of_time(histogram_percentile_ns(result->latency, 99), p99, sizeof(p99));
    printf("demo: calls=%llu lost=%llu depth=%u rate=%.0f/s p50=%s p99=%s driver=%s device=%s\n",
           (unsigned long long)result->sent, (unsigned long long)(result->sent - result->answered),
           options->depth, (double)result->answered / result->seconds, p50, p99,
           text_of_driver(result->context.driver), result->context.device);
}

void report_result(const struct perf_options *options, const struct perf_result *result)
{
    if (options->json) {
        print_json(options, result);
    } else {
        print_table(options, result);
    }
    if (options->demo) {
        print_demo(options, result);
    }
    fflush(stdout);
}
