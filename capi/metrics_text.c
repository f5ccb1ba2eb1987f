/* metrics_text.c: metrics as text, for Prometheus: the format of text/plain, version 0.0.4. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "private/metrics.h"
#include "private/text.h"

/* ---- Writing --------------------------------------------------------------------------------- */

/* As the value of a label. */
static void put_escaped(struct text *text, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n') {
            text_put_bytes(text, "\\n", 2);
        } else {
            if (*value == '\\' || *value == '"') {
                text_put_bytes(text, "\\", 1);
            }
            text_put_bytes(text, value, 1);
        }
    }
}

static void put_head(struct text *text, const char *name, const char *type, const char *help)
{
    text_put(text, "# HELP copyrpc_%s %s\n", name, help);
    text_put(text, "# TYPE copyrpc_%s %s\n", name, type);
}

/* ---- Labels ---------------------------------------------------------------------------------- */

/* Whose line it is. */
struct owner {
    const struct crpc_context *context;
    const struct rpc_endpoint *endpoint; /* NULL = all */
};

static void put_owner(struct text *text, const struct owner *owner)
{
    text_put(text, "{device=\"");
    put_escaped(text, owner->context->nic->device);
    text_put(text, "\",port=\"%u\"", owner->context->nic->port);
    if (owner->endpoint) {
        crpc_endpoint_info info;
        rpc_endpoint_info(owner->endpoint, &info);
        text_put(text, ",endpoint=\"%" PRIx64 "\",peer=\"", rpc_endpoint_handle(owner->endpoint));
        put_escaped(text, info.peer_address);
        text_put(text, "\"");
    }
}

static void put_method(struct text *text, const struct owner *owner, uint32_t method)
{
    const char *name =
        method == METRICS_OTHER ? "other" : context_method_name(owner->context, method);
    text_put(text, ",method=\"");
    if (name) {
        put_escaped(text, name);
    } else {
        text_put(text, "%u", method);
    }
    text_put(text, "\"");
}

/* ---- Counters that there always are ---------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
    bool of_context; /* alone */
    const char *help;
} counters[] = {
#define COUNTER(field, of_context, help)                                                           \
    {                                                                                              \
#field, offsetof(crpc_stats, field), of_context, help                                      \
    }
    COUNTER(calls, false, "Calls accepted."),
    COUNTER(responses, false, "Calls that the peer answered with a reply."),
    COUNTER(calls_failed, false, "Calls that completed with an error of the library."),
    COUNTER(requests, false, "Requests given to the application."),
    COUNTER(replies, false, "Replies and drops accepted."),
    COUNTER(late_responses, false, "Responses that came after their call had ended."),
    COUNTER(batches_sent, false, "Batches sent."),
    COUNTER(batches_received, false, "Batches received."),
    COUNTER(bytes_sent, false, "Bytes of batches sent, with headers."),
    COUNTER(bytes_received, false, "Bytes of batches received, with headers."),
    COUNTER(send_wqes, false, "Send work requests: batches and mailbox reads."),
    COUNTER(doorbells, false, "Doorbells rung for sends."),
    COUNTER(signaled_wqes, false, "Send work requests that asked for a completion."),
    COUNTER(inline_wqes, false, "Send work requests that contained their payload."),
    COUNTER(mailbox_reads, false, "Reads of the mailbox of a peer."),
    COUNTER(refused, false, "Ops refused with CRPC_E_AGAIN."),
    COUNTER(protocol_errors, false, "Connections whose peer broke the protocol."),
    COUNTER(receive_wqes, true, "Receives posted to the shared receive queue."),
    COUNTER(completions, true, "Completions taken from the device."),
    COUNTER(polls, true, "Polls."),
    COUNTER(polls_empty, true, "Polls that found nothing of endpoints."),
    COUNTER(unknown_completions, true, "Completions of the device that belong to nothing."),
    COUNTER(last_wqes_missed, true,
            "Connections closed before the device had given back their receives."),
#undef COUNTER
};

static uint64_t counter_of(const crpc_stats *stats, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)stats + offset, sizeof(value));
    return value;
}

static void put_gauge(struct text *text, const struct owner *owner, const char *name,
                      const char *help, uint64_t value)
{
    put_head(text, name, "gauge", help);
    text_put(text, "copyrpc_%s", name);
    put_owner(text, owner);
    text_put(text, "} %" PRIu64 "\n", value);
}

static void put_gauges(struct text *text, const struct owner *owner)
{
    const struct rpc_engine *engine = owner->context->engine;
    uint64_t calls = 0, requests = 0;
    const struct rpc_endpoint *endpoint = NULL;
    while ((endpoint = rpc_engine_next(engine, endpoint)) != NULL) {
        crpc_endpoint_info info;
        rpc_endpoint_info(endpoint, &info);
        calls += info.calls_open;
        requests += info.requests_open;
    }
    put_gauge(text, owner, "endpoints", "Endpoints that are open.", rpc_engine_endpoints(engine));
    put_gauge(text, owner, "endpoints_max", "Endpoints that there may be.",
              rpc_engine_endpoints_max(engine));
    put_gauge(text, owner, "calls_open", "Calls that wait for their response.", calls);
    put_gauge(text, owner, "requests_open", "Requests that wait for their reply.", requests);
    put_gauge(text, owner, "batch_window_left", "Receives that no batch window has yet.",
              rpc_engine_window_left(engine));
}

static void put_context_counters(struct text *text, const struct owner *owner)
{
    crpc_stats stats;
    rpc_engine_stats(owner->context->engine, &stats);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "context_%s_total", counters[i].name);
        put_head(text, name, "counter", counters[i].help);
        text_put(text, "copyrpc_%s", name);
        put_owner(text, owner);
        text_put(text, "} %" PRIu64 "\n", counter_of(&stats, counters[i].offset));
    }
}

static void put_endpoint_counters(struct text *text, const struct crpc_context *context)
{
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        struct owner owner = {.context = context};
        if (counters[i].of_context) {
            continue;
        }
        char name[64];
        snprintf(name, sizeof(name), "endpoint_%s_total", counters[i].name);
        put_head(text, name, "counter", counters[i].help);
        while ((owner.endpoint = rpc_engine_next(context->engine, owner.endpoint)) != NULL) {
            crpc_stats stats;
            rpc_endpoint_stats(owner.endpoint, &stats);
            text_put(text, "copyrpc_%s", name);
            put_owner(text, &owner);
            text_put(text, "} %" PRIu64 "\n", counter_of(&stats, counters[i].offset));
        }
    }
}

/* ---- Series of methods ----------------------------------------------------------------------- */

static void put_name(struct text *text, const struct owner *owner, const char *name,
                     const char *suffix, uint32_t method)
{
    text_put(text, "copyrpc_%s%s%s", owner->endpoint ? "endpoint_" : "", name, suffix);
    put_owner(text, owner);
    put_method(text, owner, method);
}

static void put_number(struct text *text, const struct owner *owner, const char *name,
                       const struct metrics_series *series, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)series + offset, sizeof(value));
    put_name(text, owner, name, "", series->method);
    text_put(text, "} %" PRIu64 "\n", value);
}

static const char *status_text(uint32_t index)
{
    if (index < METRICS_APPLICATION) {
        return crpc_application_status_name((int32_t)index);
    }
    return index == METRICS_APPLICATION ? "application"
                                        : crpc_status_name(-(int32_t)(index - METRICS_APPLICATION));
}

static void put_statuses(struct text *text, const struct owner *owner, const char *name,
                         const struct metrics_series *series, size_t unused)
{
    (void)unused;
    for (uint32_t i = 0; i < METRICS_STATUSES; i++) {
        if (series->statuses[i] > 0) {
            /* An error of the library counts as what an application calls it, too. */
            const int32_t error = i > METRICS_APPLICATION ? -(int32_t)(i - METRICS_APPLICATION) : 0;
            put_name(text, owner, name, "", series->method);
            text_put(text, ",status=\"%s\",error=\"%s\"} %" PRIu64 "\n",
                     error ? crpc_application_status_name(crpc_application_status(error))
                           : status_text(i),
                     error ? status_text(i) : "", series->statuses[i]);
        }
    }
}

/* Seconds, exactly. */
static void put_seconds(struct text *text, uint64_t ns)
{
    text_put(text, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
}

/* A line for each power of two: the parts of one are for percentiles in C. */
static void put_histogram(struct text *text, const struct owner *owner, const char *name,
                          const struct metrics_series *series, size_t unused)
{
    (void)unused;
    uint64_t count = 0;
    for (uint32_t i = 0; i < METRICS_BUCKETS - 1; i++) {
        count += series->buckets[i];
        if (i % (1u << METRICS_BUCKET_BITS) == 0) {
            put_name(text, owner, name, "_bucket", series->method);
            text_put(text, ",le=\"");
            put_seconds(text, metrics_bucket_end_ns(i));
            text_put(text, "\"} %" PRIu64 "\n", count);
        }
    }
    put_name(text, owner, name, "_bucket", series->method);
    text_put(text, ",le=\"+Inf\"} %" PRIu64 "\n", series->ended);
    put_name(text, owner, name, "_sum", series->method);
    text_put(text, "} ");
    put_seconds(text, series->sum_ns);
    text_put(text, "\n");
    put_name(text, owner, name, "_count", series->method);
    text_put(text, "} %" PRIu64 "\n", series->ended);
}

typedef void writer(struct text *text, const struct owner *owner, const char *name,
                    const struct metrics_series *series, size_t offset);

static const struct {
    const char *name;
    const char *type;
    const char *help;
    uint32_t side;
    writer *write;
    size_t offset;
} families[] = {
    {"client_started_total", "counter", "Calls that were made.", METRICS_CLIENT, put_number,
     offsetof(struct metrics_series, started)},
    {"client_handled_total", "counter", "Calls that have ended, by status.", METRICS_CLIENT,
     put_statuses, 0},
    {"client_request_bytes_total", "counter", "Payload bytes of calls.", METRICS_CLIENT, put_number,
     offsetof(struct metrics_series, request_bytes)},
    {"client_reply_bytes_total", "counter", "Payload bytes of their replies.", METRICS_CLIENT,
     put_number, offsetof(struct metrics_series, reply_bytes)},
    {"client_handling_seconds", "histogram", "From a call's submit to its completion.",
     METRICS_CLIENT, put_histogram, 0},
    {"server_started_total", "counter", "Requests that were received.", METRICS_SERVER, put_number,
     offsetof(struct metrics_series, started)},
    {"server_handled_total", "counter", "Requests that were answered, by status.", METRICS_SERVER,
     put_statuses, 0},
    {"server_request_bytes_total", "counter", "Payload bytes of requests.", METRICS_SERVER,
     put_number, offsetof(struct metrics_series, request_bytes)},
    {"server_reply_bytes_total", "counter", "Payload bytes of replies.", METRICS_SERVER, put_number,
     offsetof(struct metrics_series, reply_bytes)},
    {"server_handling_seconds", "histogram", "From a request's completion to its reply's submit.",
     METRICS_SERVER, put_histogram, 0},
};

static void put_group(struct text *text, const struct owner *owner, size_t family,
                      const struct metrics_group *group)
{
    const struct metrics_series *series;
    for (series = group ? group->first[families[family].side] : NULL; series;
         series = series->next) {
        families[family].write(text, owner, families[family].name, series, families[family].offset);
    }
}

static void put_methods(struct text *text, const struct crpc_context *context, bool endpoints,
                        const struct metrics_group *sum)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        struct owner owner = {.context = context};
        put_head(text, families[i].name, families[i].type, families[i].help);
        put_group(text, &owner, i, sum);
        if (endpoints) {
            char name[64];
            snprintf(name, sizeof(name), "endpoint_%s", families[i].name);
            put_head(text, name, families[i].type, families[i].help);
            while ((owner.endpoint = rpc_engine_next(context->engine, owner.endpoint)) != NULL) {
                put_group(text, &owner, i, rpc_endpoint_metrics(owner.endpoint));
            }
        }
    }
}

int64_t crpc_context_metrics(crpc_context *context, uint32_t flags, char *out, uint64_t out_bytes)
{
    if (!context || flags & ~CRPC_METRICS_ENDPOINTS || (!out && out_bytes > 0)) {
        return CRPC_E_INVALID;
    }
    struct text text = {.at = out, .room = out_bytes};
    const struct owner owner = {.context = context};
    const bool endpoints = flags & CRPC_METRICS_ENDPOINTS;
    if (context->attention & CONTEXT_MEASURED) {
        struct metrics_group sum = {0};
        const bool whole = context_sum_metrics(context, &sum);
        if (whole) {
            put_methods(&text, context, endpoints, &sum);
        }
        metrics_group_free(&sum);
        if (!whole) {
            return CRPC_E_NO_MEMORY;
        }
    }
    put_gauges(&text, &owner);
    put_context_counters(&text, &owner);
    if (endpoints) {
        put_endpoint_counters(&text, context);
    }
    return text_end(&text);
}
