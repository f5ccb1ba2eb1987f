/* metrics.c: turning metrics on, names of methods, and what was counted of one method. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "private/copyin.h"
#include "private/metrics.h"

static_assert(METRICS_OTHER == CRPC_METHOD_OTHER && METRICS_CLIENT == CRPC_METRICS_CLIENT &&
                  METRICS_SERVER == CRPC_METRICS_SERVER &&
                  METRICS_APPLICATION == CRPC_STATUS_UNAUTHENTICATED + 1,
              "as the caller knows them");

int32_t context_measure(struct crpc_context *context, uint32_t flags, crpc_error *error)
{
    const char *wanted = getenv("COPYRPC_METRICS");
    context->plain_kind = HANDLE_ENDPOINT;
    if (!(flags & CRPC_CONTEXT_METRICS) && !(wanted && strcmp(wanted, "1") == 0)) {
        return CRPC_OK;
    }
    if (rpc_engine_measure(context->engine) != CRPC_OK) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for metrics");
    }
    context_watch(context, CONTEXT_MEASURED);
    return CRPC_OK;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* Returns the number of bytes of the character there, or 0 if it is none. */
static size_t character_bytes(const uint8_t *at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t bytes = at[0] < 0x80       ? 1
                         : at[0] >> 5 == 6  ? 2
                         : at[0] >> 4 == 14 ? 3
                         : at[0] >> 3 == 30 ? 4
                                            : 0;
    uint32_t code = bytes == 1 ? at[0] : at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if (at[i] >> 6 != 2) { /* also the zero at the end */
            return 0;
        }
        code = code << 6 | (at[i] & 0x3fu);
    }
    const bool good = code >= least[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return good ? bytes : 0;
}

static bool name_valid(const char *name)
{
    const size_t bytes = strnlen(name, METHOD_NAME_BYTES_MAX + 1);
    if (bytes == 0 || bytes > METHOD_NAME_BYTES_MAX) {
        return false;
    }
    for (size_t at = 0, more; at < bytes; at += more) {
        more = character_bytes((const uint8_t *)name + at);
        if (more == 0) {
            return false;
        }
    }
    return true;
}

/* Where it is, or belongs. */
static uint32_t place_of(const struct crpc_context *context, uint32_t method)
{
    uint32_t low = 0, high = context->method_name_count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (context->method_names[middle].method < method) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool named(const struct crpc_context *context, uint32_t place, uint32_t method)
{
    return place < context->method_name_count && context->method_names[place].method == method;
}

const char *context_method_name(const struct crpc_context *context, uint32_t method)
{
    const uint32_t place = place_of(context, method);
    return named(context, place, method) ? context->method_names[place].name : NULL;
}

void context_forget_methods(struct crpc_context *context)
{
    free(context->method_names);
}

int32_t crpc_context_name_method(crpc_context *context, uint16_t method, const char *name)
{
    if (!context || (name && !name_valid(name))) {
        return CRPC_E_INVALID;
    }
    const uint32_t place = place_of(context, method);
    struct method_name *names = context->method_names;
    const bool known = named(context, place, method);
    const size_t behind = context->method_name_count - place;
    if (!name) {
        if (known) {
            memmove(names + place, names + place + 1, (behind - 1) * sizeof(*names));
            context->method_name_count--;
        }
        return CRPC_OK;
    }
    if (!known) {
        names = realloc(names, (context->method_name_count + 1) * sizeof(*names));
        if (!names) {
            return CRPC_E_NO_MEMORY;
        }
        memmove(names + place + 1, names + place, behind * sizeof(*names));
        context->method_names = names;
        context->method_name_count++;
    }
    names[place].method = method;
    memcpy(names[place].name, name, strlen(name) + 1);
    return CRPC_OK;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

bool context_sum_metrics(const struct crpc_context *context, struct metrics_group *sum)
{
    const struct metrics *metrics = rpc_engine_metrics(context->engine);
    struct metrics_group spare = {.first = {(struct metrics_series *)&metrics->spare[0],
                                            (struct metrics_series *)&metrics->spare[1]}};
    const bool lost =
        metrics->spare[METRICS_CLIENT].started + metrics->spare[METRICS_SERVER].started;
    bool whole =
        metrics_group_add(sum, &metrics->retired) && (!lost || metrics_group_add(sum, &spare));
    const struct rpc_endpoint *endpoint = NULL;
    while ((endpoint = rpc_engine_next(context->engine, endpoint)) != NULL) {
        const struct metrics_group *group = rpc_endpoint_metrics(endpoint);
        whole = whole && (!group || metrics_group_add(sum, group));
    }
    for (const struct list *at = metrics->left.next; at != &metrics->left; at = at->next) {
        whole = whole && metrics_group_add(sum, list_entry(at, struct metrics_group, link));
    }
    return whole;
}

/* ---- One method ------------------------------------------------------------------------------ */

/* The end of the bucket that the time lies in which so many of a thousand do not exceed. */
static uint64_t quantile_ns(const struct metrics_series *series, uint64_t thousandths)
{
    /* Rounded up, and of the rest by itself, so that nothing overflows. */
    const uint64_t whole = series->ended / 1000, rest = series->ended % 1000;
    const uint64_t wanted = whole * thousandths + (rest * thousandths + 999) / 1000;
    uint64_t count = 0;
    for (uint32_t i = 0; i < METRICS_BUCKETS && wanted > 0; i++) {
        count += series->buckets[i];
        if (count >= wanted) {
            return metrics_bucket_end_ns((uint32_t)minimum(i, METRICS_BUCKETS - 2));
        }
    }
    return 0;
}

static void add_method(struct metrics_series *sum, const struct metrics_group *group, uint32_t side,
                       uint32_t method)
{
    const struct metrics_series *series;
    for (series = group ? group->first[side] : NULL; series; series = series->next) {
        if (series->method == method || method == CRPC_METHOD_ALL) {
            metrics_series_add(sum, series);
        }
    }
}

static void fill(crpc_method_metrics *metrics, const struct metrics_series *series)
{
    *metrics = (crpc_method_metrics){.started = series->started,
                                     .ended = series->ended,
                                     .request_bytes = series->request_bytes,
                                     .reply_bytes = series->reply_bytes,
                                     .sum_ns = series->sum_ns,
                                     .p50_ns = quantile_ns(series, 500),
                                     .p90_ns = quantile_ns(series, 900),
                                     .p99_ns = quantile_ns(series, 990),
                                     .p999_ns = quantile_ns(series, 999),
                                     .p100_ns = quantile_ns(series, 1000)};
    memcpy(metrics->statuses, series->statuses, sizeof(metrics->statuses));
    for (uint32_t i = 1; i < 32; i++) {
        metrics->errors[i] = series->statuses[metrics_status_index(-(int32_t)i)];
    }
    metrics->errors[0] = series->statuses[METRICS_STATUSES - 1];
}

int32_t crpc_endpoint_get_method_metrics(crpc_context *context, crpc_endpoint endpoint,
                                         uint32_t side, uint32_t method,
                                         crpc_method_metrics *metrics)
{
    if (!context || COPYOUT_CHECK(metrics, method_metrics) != CRPC_OK || side >= METRICS_SIDES ||
        method > CRPC_METHOD_ALL) {
        return CRPC_E_INVALID;
    }
    if (!(context->attention & CONTEXT_MEASURED)) {
        return CRPC_E_STATE;
    }
    struct metrics_series series = {0};
    struct metrics_group sum = {0};
    if (endpoint.bits == 0) {
        const bool whole = context_sum_metrics(context, &sum);
        add_method(&series, &sum, side, method);
        metrics_group_free(&sum);
        if (!whole) {
            return CRPC_E_NO_MEMORY;
        }
    } else {
        const struct rpc_endpoint *object = endpoint_of(context, endpoint);
        if (!object) {
            return CRPC_E_STALE;
        }
        add_method(&series, rpc_endpoint_metrics(object), side, method);
    }
    crpc_method_metrics ours;
    fill(&ours, &series);
    COPYOUT(metrics, &ours, method_metrics);
    return CRPC_OK;
}
