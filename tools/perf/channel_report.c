/* channel_report.c: what copyrpc-perf --channels prints. */
#include "channel_report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../common/text.h"
#include "latency.h"
#include "record.h"

/* ---- Progress -------------------------------------------------------------------------------- */

void channel_report_progress(const struct perf_options *options,
                             const struct channel_progress *progress)
{
    bool terminal = isatty(STDERR_FILENO);
    const crpc_channel_stats *now = &progress->now, *before = &progress->before;
    char text[32];
    double total = 0;
    fputs(terminal ? "\r" : "", stderr);
    if (options->calls) {
        fprintf(stderr, "%3.0f %%", 100.0 * (double)progress->messages / (double)options->calls);
    } else {
        fprintf(stderr, "%.0f of %.0f s", progress->seconds, options->seconds);
    }
    for (uint32_t i = 0; i < CRPC_RAILS_MAX; i++) {
        double rate = (double)(now->rail_bytes_sent[i] - before->rail_bytes_sent[i]);
        total += rate;
        fprintf(stderr, "  rail %u %s/s", i,
                text_of_bytes(rate / progress->interval, text, sizeof(text)));
    }
    fprintf(stderr, "  total %s/s", text_of_bytes(total / progress->interval, text, sizeof(text)));
    if (options->both) {
        double back = (double)(now->bytes_received - before->bytes_received);
        fprintf(stderr, "  back %s/s",
                text_of_bytes(back / progress->interval, text, sizeof(text)));
    }
    fputs(terminal ? "   " : "\n", stderr);
}

void channel_report_progress_end(void)
{
    if (isatty(STDERR_FILENO)) {
        fputc('\n', stderr);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static double per(uint64_t count, uint64_t messages)
{
    return messages ? (double)count / (double)messages : 0;
}

static const char *state_of(const struct channel_result *result, uint32_t rail)
{
    static const char *const names[] = {[CRPC_RAIL_NONE] = "none",
                                        [CRPC_RAIL_LACKED] = "lacked by the server",
                                        [CRPC_RAIL_DOWN] = "down",
                                        [CRPC_RAIL_UP] = "up"};
    uint32_t state = result->info.rail_state[rail];
    return state <= CRPC_RAIL_UP ? names[state] : "unknown";
}

static const char *split_of(const struct channel_result *result)
{
    static const char *const names[] = {[CRPC_SPLIT_MEASURED] = "measured",
                                        [CRPC_SPLIT_FIXED] = "fixed",
                                        [CRPC_SPLIT_HINT] = "hint"};
    return result->info.split <= CRPC_SPLIT_HINT ? names[result->info.split] : "unknown";
}

static json_t *rails_json(const struct channel_result *result)
{
    const crpc_channel_stats *stats = &result->stats;
    json_t *rails = json_array();
    for (uint32_t i = 0; i < result->rail_count; i++) {
        const crpc_rail_info *rail = &result->rails[i];
        json_array_append_new(
            rails,
            json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:I, s:I}", "device",
                      rail->device, "port", (int)rail->port, "driver", text_of_driver(rail->driver),
                      "state", state_of(result, i), "link_mbps", (int)rail->link_mbps, "bytes_sent",
                      (json_int_t)stats->rail_bytes_sent[i], "messages_sent",
                      (json_int_t)stats->rail_messages_sent[i], "bytes_per_second",
                      (double)stats->rail_bytes_sent[i] / result->seconds, "messages_per_second",
                      (double)stats->rail_messages_sent[i] / result->seconds, "failures",
                      (json_int_t)stats->rail_failures[i], "recoveries",
                      (json_int_t)stats->rail_recoveries[i]));
    }
    return rails;
}

static json_t *events_json(const struct channel_result *result)
{
    json_t *events = json_array();
    for (uint32_t i = 0; i < result->event_count && i < CHANNEL_EVENTS_MAX; i++) {
        const struct channel_event *event = &result->events[i];
        json_array_append_new(events,
                              json_pack("{s:f, s:i, s:b}", "seconds", event->seconds, "rail",
                                        (int)event->rail, "used", event->status == CRPC_OK));
    }
    return events;
}

/* The server's counts, which take in the warm-up. */
static json_t *server_json(const struct channel_result *result)
{
    const struct flow_report *report = &result->report;
    if (!result->reported) {
        return json_null();
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "messages",
                     (json_int_t)report->messages, "bytes", (json_int_t)report->bytes, "wrong",
                     (json_int_t)report->wrong, "clear_to_send_wqes",
                     (json_int_t)report->clear_to_send_wqes, "data_wqes",
                     (json_int_t)report->data_wqes, "control_wqes",
                     (json_int_t)report->control_wqes, "doorbells", (json_int_t)report->doorbells,
                     "shares_repeated", (json_int_t)report->shares_repeated);
}

static json_t *counts_json(const struct channel_result *result)
{
    const crpc_channel_stats *stats = &result->stats;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "data_wqes",
                     (json_int_t)stats->data_wqes, "clear_to_send_wqes",
                     (json_int_t)stats->clear_to_send_wqes, "control_wqes",
                     (json_int_t)stats->control_wqes, "doorbells", (json_int_t)stats->doorbells,
                     "shares_repeated", (json_int_t)stats->shares_repeated, "data_wqes_per_message",
                     per(stats->data_wqes, result->messages), "doorbells_per_message",
                     per(stats->doorbells, result->messages));
}

/* As that of a context; rail 0 stands for all. */
static crpc_context_info context_of(const struct channel_result *result)
{
    const crpc_rail_info *rail = &result->rails[0];
    crpc_context_info context = {.driver = rail->driver,
                                 .port = rail->port,
                                 .link = rail->link,
                                 .mtu_bytes = rail->mtu_bytes};
    memcpy(context.device, rail->device, sizeof(context.device));
    return context;
}

static json_t *row_json(const struct perf_options *options, const struct channel_result *result)
{
    const uint64_t lost = result->reported ? result->sent - result->report.messages : result->sent;
    const uint64_t wrong = result->wrong + (result->reported ? result->report.wrong : 0);
    json_t *row =
        json_pack("{s:I, s:I, s:f, s:I, s:I, s:f, s:f}", "bytes",
                  (json_int_t)options->request_bytes, "messages", (json_int_t)result->messages,
                  "seconds", result->seconds, "lost", (json_int_t)lost, "wrong", (json_int_t)wrong,
                  "messages_per_second", (double)result->messages / result->seconds,
                  "bytes_per_second", (double)result->bytes / result->seconds);
    latency_add(row, result->latency);
    return row;
}

static void print_json(const struct perf_options *options, const struct channel_result *result)
{
    const crpc_context_info context = context_of(result);
    json_t *record = record_create(options, &context);
    json_t *settings =
        json_pack("{s:I, s:I, s:i, s:i, s:i, s:b, s:b, s:b, s:s, s:i, s:f}", "bytes_min",
                  (json_int_t)options->bytes_min, "bytes_max", (json_int_t)options->request_bytes,
                  "group", (int)options->group, "depth", (int)options->depth, "queue_pairs",
                  (int)result->info.queue_pairs, "both", (int)options->both, "verify",
                  (int)options->verify, "wait", (int)options->wait, "split", split_of(result),
                  "rail0_share", (int)result->info.rail0_share, "seconds", result->seconds);
    json_t *totals = json_pack(
        "{s:I, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "messages",
        (json_int_t)result->messages, "bytes", (json_int_t)result->bytes, "messages_per_second",
        (double)result->messages / result->seconds, "bytes_per_second",
        (double)result->bytes / result->seconds, "messages_received",
        (json_int_t)result->messages_received, "bytes_received", (json_int_t)result->bytes_received,
        "bytes_per_second_received", (double)result->bytes_received / result->seconds, "wrong",
        (json_int_t)result->wrong, "failed", (json_int_t)result->failed, "rails",
        rails_json(result), "counts", counts_json(result), "latency_ns",
        latency_json(result->latency), "rail_events", events_json(result), "server",
        server_json(result));
    json_object_update_new(record, settings);
    record_add(record, row_json(options, result), totals);
    record_print(options, record);
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_sizes(const struct perf_options *options, const struct channel_result *result)
{
    char least[32], most[32];
    text_of_bytes(options->bytes_min, least, sizeof(least));
    text_of_bytes(options->request_bytes, most, sizeof(most));
    if (options->bytes_min == options->request_bytes) {
        printf("%u messages of %u x %s open", options->depth, options->group, most);
    } else {
        printf("%u messages of %u x %s to %s open", options->depth, options->group, least, most);
    }
    printf("%s%s%s\n", options->both ? ", both ways" : "", options->verify ? ", verified" : "",
           options->wait ? ", sleeping" : "");
    cpus_print(&options->cpus, result->rails[0].device);
}

static void print_rail(const struct channel_result *result, uint32_t index)
{
    const crpc_channel_stats *stats = &result->stats;
    const crpc_rail_info *rail = &result->rails[index];
    char rate[32];
    printf(
        "  rail %u   %s/s by %s on %s, %s; %llu shares", index,
        text_of_bytes((double)stats->rail_bytes_sent[index] / result->seconds, rate, sizeof(rate)),
        text_of_driver(rail->driver), rail->device, state_of(result, index),
        (unsigned long long)stats->rail_messages_sent[index]);
    if (stats->rail_failures[index]) {
        printf("; lost %llu times, back %llu times",
               (unsigned long long)stats->rail_failures[index],
               (unsigned long long)stats->rail_recoveries[index]);
    }
    putchar('\n');
}

static void print_table(const struct perf_options *options, const struct channel_result *result)
{
    const crpc_channel_stats *stats = &result->stats;
    const struct flow_report *report = &result->report;
    char text[32], count[32];
    print_sizes(options, result);
    printf("  rate     %s/s, %s messages/s (%llu in %.2f s)\n",
           text_of_bytes((double)result->bytes / result->seconds, text, sizeof(text)),
           text_of_count((double)result->messages / result->seconds, count, sizeof(count)),
           (unsigned long long)result->messages, result->seconds);
    if (options->both) {
        printf("  back     %s/s\n",
               text_of_bytes((double)result->bytes_received / result->seconds, text, sizeof(text)));
    }
    for (uint32_t i = 0; i < result->rail_count; i++) {
        print_rail(result, i);
    }
    latency_print(result->latency);
    printf("  a message %.3f data WQEs, %.3f doorbells; the server: %.3f clear-to-sends\n",
           per(stats->data_wqes, result->messages), per(stats->doorbells, result->messages),
           per(report->clear_to_send_wqes, report->messages));
    printf("  split    %s, %u of 1024 to rail 0; %llu shares repeated\n", split_of(result),
           result->info.rail0_share, (unsigned long long)stats->shares_repeated);
    if (!result->reported) {
        printf("  the server did not say what it saw\n");
    } else if (report->messages != result->sent || report->wrong || result->wrong) {
        printf("  WRONG    %llu of %llu messages sent came; %llu wrong there, %llu here\n",
               (unsigned long long)report->messages, (unsigned long long)result->sent,
               (unsigned long long)report->wrong, (unsigned long long)result->wrong);
    }
}

void channel_report_result(const struct perf_options *options, const struct channel_result *result)
{
    if (options->json) {
        print_json(options, result);
    } else {
        print_table(options, result);
    }
    latency_write(options, options->request_bytes, result->latency, result->seconds);
    fflush(stdout);
}
