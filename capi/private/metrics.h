/* metrics.h: what is read of metrics. */
#ifndef CAPI_METRICS_H
#define CAPI_METRICS_H

#include "private/context.h"
#include "rpc/metrics.h"

#define METHOD_NAME_BYTES_MAX 255u

struct method_name {
    uint16_t method;
    char name[METHOD_NAME_BYTES_MAX + 1];
};

/* Returns NULL if it has none. */
const char *context_method_name(const struct crpc_context *context, uint32_t method);

/* Adds up the series of all endpoints, also of those that are gone, to a sum of zeros. Returns false if there is no memory. The
 * caller frees it in any case (metrics_group_free). */
bool context_sum_metrics(const struct crpc_context *context, struct metrics_group *sum);

#endif
