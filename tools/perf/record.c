/* record.c: see record.h. */
#include "record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "../common/text.h"
#include "../common/version.h"
#include "cpus.h"
#include "mode.h"

/* ---- How ------------------------------------------------------------------------------------- */

enum kind { NUMBER, SWITCH, SECONDS, COUNT, TEXT };

/* All that may change a figure. UINT32_MAX is not said, and so null. */
static const struct {
    const char *name;
    enum kind kind;
    size_t offset;
} fields[] = {
#define FIELD(kind, name, member)                                                                  \
    {                                                                                              \
        name, kind, offsetof(struct perf_options, member)                                          \
    }
    FIELD(NUMBER, "bytes_min", bytes_min),
    FIELD(NUMBER, "bytes_max", request_bytes),
    FIELD(NUMBER, "reply_bytes", reply_bytes),
    FIELD(NUMBER, "depth", depth),
    FIELD(NUMBER, "endpoints", endpoints),
    FIELD(NUMBER, "threads", threads),
    FIELD(TEXT, "cpus", cpus.text),
    FIELD(SECONDS, "seconds", seconds),
    FIELD(COUNT, "calls", calls),
    FIELD(SECONDS, "rate", rate),
    FIELD(SECONDS, "warmup_seconds", warmup_seconds),
    FIELD(NUMBER, "ring_bytes", ring_bytes),
    FIELD(NUMBER, "initiators", initiators),
    FIELD(SWITCH, "region", region),
    FIELD(SWITCH, "wait", wait),
    FIELD(NUMBER, "key_bytes", key_bytes),
    FIELD(NUMBER, "queue_pairs", queue_pairs),
    FIELD(NUMBER, "group", group),
    FIELD(NUMBER, "split", split),
    FIELD(NUMBER, "rail0_share", rail0_share),
    FIELD(NUMBER, "rail_mask", rail_mask),
    FIELD(NUMBER, "stripe_bytes_min", stripe_bytes_min),
    FIELD(SWITCH, "both", both),
    FIELD(SWITCH, "verify", verify),
    FIELD(SWITCH, "latency", latency),
    FIELD(SWITCH, "datagrams", datagrams),
    FIELD(SWITCH, "dc", dc),
    FIELD(NUMBER, "streams", streams),
    FIELD(NUMBER, "targets", targets),
    FIELD(NUMBER, "tags", tags),
    FIELD(NUMBER, "inline_bytes", inline_bytes),
    FIELD(NUMBER, "gid_index", gid_index),
    FIELD(NUMBER, "traffic_class", traffic_class),
    FIELD(NUMBER, "service_level", service_level),
    FIELD(NUMBER, "partition_key", partition_key),
    FIELD(NUMBER, "retry_timeout", retry_timeout),
#undef FIELD
};

static json_t *field_json(const struct perf_options *options, enum kind kind, size_t offset)
{
    const char *at = (const char *)options + offset;
    uint32_t number;
    uint64_t count;
    double seconds;
    switch (kind) {
    case NUMBER:
        memcpy(&number, at, sizeof(number));
        return number == UINT32_MAX ? json_null() : json_integer(number);
    case SWITCH:
        return json_boolean(*(const bool *)at);
    case SECONDS:
        memcpy(&seconds, at, sizeof(seconds));
        return json_real(seconds);
    case COUNT:
        memcpy(&count, at, sizeof(count));
        return json_integer((json_int_t)count);
    case TEXT:
        return json_string(at);
    }
    return NULL;
}

static json_t *options_json(const struct perf_options *options)
{
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        json_object_set_new(json, fields[i].name,
                            field_json(options, fields[i].kind, fields[i].offset));
    }
    return json;
}

/* ---- Where ----------------------------------------------------------------------------------- */

static uint32_t link_mbps(const crpc_context_info *context)
{
    crpc_device_info info = {.struct_size = sizeof(info)};
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = CRPC_OK;
    for (uint32_t i = 0; status != CRPC_E_NO_DEVICE; i++) {
        status = crpc_device_query(i, &info, &error);
        if (status == CRPC_OK && info.port == context->port &&
            strcmp(info.name, context->device) == 0) {
            return info.link_mbps;
        }
    }
    return 0;
}

json_t *record_create(const struct perf_options *options, const crpc_context_info *context)
{
    static const char *const modes[] = {
        [MODE_CALLS] = "calls", [MODE_CHANNELS] = "channels", [MODE_QUEUES] = "queues"};
    const time_t now = time(NULL);
    const int32_t node = cpus_device_node(context->device);
    char date[32], version[32];
    struct utsname host;
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    uname(&host);
    json_t *record = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:o, s:o, s:[]}", "format",
        RECORD_FORMAT, "mode", modes[mode_of(options)], "version",
        version_text(version, sizeof(version)), "date", date, "host", host.nodename, "kernel",
        host.release, "device", context->device, "port", (int)context->port, "driver",
        text_of_driver(context->driver), "link",
        context->link == CRPC_LINK_ETHERNET ? "RoCE" : "InfiniBand", "link_mbps",
        (int)link_mbps(context), "mtu_bytes", (int)context->mtu_bytes, "numa_node",
        node < 0 ? json_null() : json_integer(node), "options", options_json(options), "results");
    if (!record) {
        perf_failed("no memory", "for the report");
    }
    return record;
}

void record_add(json_t *record, json_t *row, json_t *more)
{
    bool added = record && row && json_array_append(json_object_get(record, "results"), row) == 0 &&
                 (!more || json_object_update(record, more) == 0);
    json_decref(row);
    json_decref(more);
    if (!added) {
        perf_failed("no memory", "for the report");
    }
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static const char *const places[] = {"format", "mode",      "op",        "version",  "date",
                                     "host",   "kernel",    "device",    "port",     "driver",
                                     "link",   "link_mbps", "mtu_bytes", "numa_node"};
/* `count` and `count_per_second` are calls, messages or ops. */
static const char *const figures[] = {
    "bytes", "count", "seconds", "count_per_second", "bytes_per_second",
    "lost",  "wrong", "held",    "unsent",           "late_most_ns"};
static const char *const latencies[] = {"p50", "p90", "p99", "p99.9", "max", "mean"};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static void print_cell(const json_t *value)
{
    if (json_is_string(value)) { /* a name or a date; a host's may be anything */
        putchar('"');
        for (const char *at = json_string_value(value); *at; at++) {
            printf(*at == '"' ? "\"\"" : "%c", *at);
        }
        putchar('"');
    } else if (json_is_integer(value)) {
        printf("%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        printf("%.6g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        putchar(json_is_true(value) ? '1' : '0');
    }
}

static const json_t *figure_of(const json_t *row, const char *name)
{
    static const char *const units[] = {"calls", "messages", "ops"};
    const json_t *value = json_object_get(row, name);
    for (size_t i = 0; i < LENGTH(units) && strncmp(name, "count", 5) == 0 && !value; i++) {
        char of_unit[64];
        snprintf(of_unit, sizeof(of_unit), "%s%s", units[i], name + 5);
        value = json_object_get(row, of_unit);
    }
    return value;
}

static void print_head(const json_t *options)
{
    for (size_t i = 0; i < LENGTH(places); i++) {
        printf("%s,", places[i]);
    }
    for (size_t i = 0; i < LENGTH(figures); i++) {
        printf("%s,", figures[i]);
    }
    for (size_t i = 0; i < LENGTH(latencies); i++) {
        printf("%s_ns,", latencies[i]);
    }
    for (void *at = json_object_iter((json_t *)options); at;
         at = json_object_iter_next((json_t *)options, at)) {
        printf("option_%s%s", json_object_iter_key(at),
               json_object_iter_next((json_t *)options, at) ? "," : "\n");
    }
}

static void print_csv(json_t *record)
{
    json_t *options = json_object_get(record, "options");
    size_t index;
    json_t *row;
    print_head(options);
    json_array_foreach(json_object_get(record, "results"), index, row)
    {
        const json_t *latency = json_object_get(row, "latency_ns");
        for (size_t i = 0; i < LENGTH(places); i++) {
            print_cell(json_object_get(record, places[i]));
            putchar(',');
        }
        for (size_t i = 0; i < LENGTH(figures); i++) {
            print_cell(figure_of(row, figures[i]));
            putchar(',');
        }
        for (size_t i = 0; i < LENGTH(latencies); i++) {
            print_cell(json_object_get(latency, latencies[i]));
            putchar(',');
        }
        for (void *at = json_object_iter(options); at; at = json_object_iter_next(options, at)) {
            print_cell(json_object_iter_value(at));
            putchar(json_object_iter_next(options, at) ? ',' : '\n');
        }
    }
}

void record_print(const struct perf_options *options, json_t *record)
{
    if (record && options->csv) {
        print_csv(record);
    } else if (record) {
        json_dumpf(record, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    }
    fflush(stdout);
    json_decref(record);
}

/* ---- What others have printed ----------------------------------------------------------------- */

json_t *record_load(const char *path)
{
    json_error_t error;
    char why[JSON_ERROR_TEXT_LENGTH + 64];
    json_t *result = json_load_file(path, 0, &error);
    if (!result) {
        if (error.line > 0) {
            snprintf(why, sizeof(why), "line %d: %s", error.line, error.text);
        } else {
            snprintf(why, sizeof(why), "%s", error.text);
        }
        perf_failed(path, why);
        return NULL;
    }
    const json_t *format = json_object_get(result, "format");
    if (!json_is_array(json_object_get(result, "results")) || !json_is_integer(format)) {
        perf_failed(path, "this is no result of copyrpc-perf --json");
    } else if (json_integer_value(format) != RECORD_FORMAT) {
        perf_failed(path, "this result has a format that another version of copyrpc-perf reads");
    } else {
        return result;
    }
    json_decref(result);
    return NULL;
}
