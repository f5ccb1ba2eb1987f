/* show.c: the table, and JSON. */
#include "show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <copyrpc.h>
#include <jansson.h>

#include "../common/text.h"

/* An endpoint, and what it did each second since it was asked before; negative = not known. */
struct row {
    const struct source *source;
    const struct snapshot_endpoint *endpoint;
    double calls;
    double requests;
    double bytes_sent;
    double bytes_received;
    double key;
};

static const char *state_text(uint32_t state)
{
    static const char *const texts[] = {
        [CRPC_STATE_NEW] = "new",
        [CRPC_STATE_REQUESTED] = "requested",
        [CRPC_STATE_CONNECTING] = "connecting",
        [CRPC_STATE_CONNECTED] = "connected",
        [CRPC_STATE_CLOSING] = "closing",
        [CRPC_STATE_DISCONNECTED] = "disconnected",
    };
    return state >= CRPC_STATE_NEW && state <= CRPC_STATE_DISCONNECTED ? texts[state] : "?";
}

static double age_of(const struct row *row)
{
    return ((double)row->source->context.time_ns - (double)row->endpoint->made_ns) / 1e9;
}

/* ---- Rates ----------------------------------------------------------------------------------- */

static const struct source *source_before(const struct sources *before, const struct source *source)
{
    for (uint32_t i = 0; i < before->count; i++) {
        const struct source *other = &before->all[i];
        if (other->pid == source->pid && strcmp(other->socket, source->socket) == 0 &&
            other->endpoints && other->context.time_ns < source->context.time_ns) {
            return other;
        }
    }
    return NULL;
}

/* Both lists have the same order, in which new ones come last and others have gone. `*next` is where to look first. */
static const struct snapshot_endpoint *endpoint_before(const struct source *before, uint64_t handle,
                                                       uint32_t *next)
{
    for (uint32_t i = 0; before && i < before->context.records; i++) {
        uint32_t place = (*next + i) % before->context.records;
        if (before->endpoints[place].handle == handle) {
            *next = place + 1;
            return &before->endpoints[place];
        }
    }
    return NULL;
}

static double rate(uint64_t now, uint64_t before, double seconds)
{
    return now >= before ? (double)(now - before) / seconds : 0;
}

static void set_rates(struct row *row, const struct source *source,
                      const struct snapshot_endpoint *before)
{
    const struct snapshot_endpoint *now = row->endpoint;
    if (before) {
        double seconds = (double)(row->source->context.time_ns - source->context.time_ns) / 1e9;
        row->calls = rate(now->calls, before->calls, seconds);
        row->requests = rate(now->requests, before->requests, seconds);
        row->bytes_sent = rate(now->bytes_sent, before->bytes_sent, seconds);
        row->bytes_received = rate(now->bytes_received, before->bytes_received, seconds);
    }
}

static double key_of(const struct row *row, enum sort sort)
{
    switch (sort) {
    case SORT_BYTES:
        return row->bytes_sent + row->bytes_received;
    case SORT_OPEN:
        return (double)row->endpoint->calls_open + row->endpoint->requests_open;
    case SORT_AGE:
        return age_of(row);
    default:
        return row->calls + row->requests;
    }
}

static int by_key(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? 1 : -1;
    }
    int order = strcmp(a->source->socket, b->source->socket);
    return order ? order
                 : (a->endpoint->handle > b->endpoint->handle) -
                       (a->endpoint->handle < b->endpoint->handle);
}

static struct row *rows_of(const struct sources *now, const struct sources *before, enum sort sort,
                           uint32_t *count)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        all += now->all[i].context.records;
    }
    struct row *rows = calloc(all + 1, sizeof(*rows));
    *count = 0;
    for (uint32_t i = 0; rows && i < now->count; i++) {
        const struct source *source = &now->all[i], *earlier = source_before(before, source);
        uint32_t next = 0;
        for (uint32_t j = 0; j < source->context.records && source->endpoints; j++) {
            struct row *row = &rows[(*count)++];
            *row = (struct row){source, &source->endpoints[j], -1, -1, -1, -1, 0};
            set_rates(row, earlier, endpoint_before(earlier, row->endpoint->handle, &next));
            row->key = key_of(row, sort);
        }
    }
    if (rows) {
        qsort(rows, *count, sizeof(*rows), by_key);
    }
    return rows;
}

/* ---- The table ------------------------------------------------------------------------------- */

static const char *rate_text(double value, char *text, size_t bytes)
{
    return value < 0 ? "-" : text_of_count(value, text, bytes);
}

static const char *bytes_text(double value, char *text, size_t bytes)
{
    return value < 0 ? "-" : text_of_bytes(value, text, bytes);
}

static void show_context(const struct source *source, const struct source *before)
{
    const struct snapshot_context *context = &source->context;
    char text[32];
    printf("%7d %-16.16s ", (int)source->pid, source->process);
    if (strcmp(source->answer, "polling") != 0) {
        printf("%s\n", strcmp(source->answer, "version") == 0 ? "has another version of copyrpc"
                                                              : source->answer);
        return;
    }
    double polls = before ? rate(context->polls, before->context.polls,
                                 (double)(context->time_ns - before->context.time_ns) / 1e9)
                          : -1;
    printf("%s port %u, %s, %s polls/s, %u of %u endpoints", context->device, context->port,
           context->driver, rate_text(polls, text, sizeof(text)), context->endpoints,
           context->endpoints_max);
    if (context->records < context->endpoints) {
        printf(", %u of them are shown", context->records);
    }
    printf("\n");
}

static void show_row(const struct row *row)
{
    const struct snapshot_endpoint *one = row->endpoint;
    char calls[32], requests[32], sent[32], received[32], open[32], batches[32];
    snprintf(open, sizeof(open), "%u/%u", one->calls_open, one->calls_max);
    printf("%7d %-24.24s %-12s %8s %8s %10s %10s %11s %6u %8" PRIu64 " %8s %6u %6" PRIu64
           " %5" PRIu64 " %7.0fs\n",
           (int)row->source->pid, one->peer[0] ? one->peer : "-", state_text(one->state),
           rate_text(row->calls, calls, sizeof(calls)),
           rate_text(row->requests, requests, sizeof(requests)),
           bytes_text(row->bytes_sent, sent, sizeof(sent)),
           bytes_text(row->bytes_received, received, sizeof(received)), open, one->requests_open,
           one->refused, text_of_count((double)one->batches_sent, batches, sizeof(batches)),
           one->window_left, one->calls_failed, one->protocol_errors, age_of(row));
}

void show_table(const struct sources *now, const struct sources *before, enum sort sort,
                uint32_t lines_max)
{
    uint32_t count, lines = 2;
    struct row *rows = rows_of(now, before, sort, &count);
    for (uint32_t i = 0; i < now->count && lines < lines_max; i++, lines++) {
        show_context(&now->all[i], source_before(before, &now->all[i]));
    }
    if (now->count == 0) {
        printf("no process of copyrpc is seen\n");
    }
    printf("\n%7s %-24s %-12s %8s %8s %10s %10s %11s %6s %8s %8s %6s %6s %5s %8s\n", "PID", "PEER",
           "STATE", "CALLS/s", "REQS/s", "SENT/s", "RECEIVED/s", "OPEN/MAX", "OWED", "REFUSED",
           "BATCHES", "WINDOW", "FAILED", "WRONG", "AGE");
    for (uint32_t i = 0; rows && i < count && lines < lines_max; i++, lines++) {
        show_row(&rows[i]);
    }
    fflush(stdout);
    free(rows);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *rate_json(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *row_json(const struct row *row)
{
    const struct snapshot_endpoint *one = row->endpoint;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:f, s:o, s:o, s:o, s:o}", "peer", one->peer, "local",
                  one->local, "state", state_text(one->state), "age_seconds", age_of(row),
                  "calls_per_second", rate_json(row->calls), "requests_per_second",
                  rate_json(row->requests), "bytes_sent_per_second", rate_json(row->bytes_sent),
                  "bytes_received_per_second", rate_json(row->bytes_received));
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"calls_open", one->calls_open},
        {"calls_max", one->calls_max},
        {"requests_open", one->requests_open},
        {"window_left", one->window_left},
        {"calls", one->calls},
        {"responses", one->responses},
        {"calls_failed", one->calls_failed},
        {"requests", one->requests},
        {"replies", one->replies},
        {"late_responses", one->late_responses},
        {"batches_sent", one->batches_sent},
        {"batches_received", one->batches_received},
        {"bytes_sent", one->bytes_sent},
        {"bytes_received", one->bytes_received},
        {"refused", one->refused},
        {"mailbox_reads", one->mailbox_reads},
        {"protocol_errors", one->protocol_errors},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        json_object_set_new(object, counts[i].name, json_integer((json_int_t)counts[i].value));
    }
    return object;
}

static json_t *context_json(const struct source *source, const struct row *rows, uint32_t count)
{
    const struct snapshot_context *context = &source->context;
    json_t *endpoints = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].source == source) {
            json_array_append_new(endpoints, row_json(&rows[i]));
        }
    }
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "pid",
                     (int)source->pid, "process", source->process, "socket", source->socket,
                     "answer", source->answer, "device", context->device, "driver", context->driver,
                     "port", (json_int_t)context->port, "polls", (json_int_t)context->polls,
                     "polls_empty", (json_int_t)context->polls_empty, "queues",
                     (json_int_t)context->queues, "endpoints_all", (json_int_t)context->endpoints,
                     "endpoints_max", (json_int_t)context->endpoints_max, "endpoints", endpoints);
}

void show_json(const struct sources *now, const struct sources *before, enum sort sort)
{
    uint32_t count;
    struct row *rows = rows_of(now, before, sort, &count);
    json_t *contexts = json_array();
    for (uint32_t i = 0; rows && i < now->count; i++) {
        json_array_append_new(contexts, context_json(&now->all[i], rows, count));
    }
    json_t *root = json_pack("{s:o}", "contexts", contexts);
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(root);
    free(rows);
}
