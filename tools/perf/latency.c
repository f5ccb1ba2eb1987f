/* latency.c: see latency.h. */
#include "latency.h"

#include <stdio.h>

#include "../common/text.h"

json_t *latency_json(const struct histogram *latency)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "p50",
                     (json_int_t)histogram_percentile_ns(latency, 50), "p90",
                     (json_int_t)histogram_percentile_ns(latency, 90), "p99",
                     (json_int_t)histogram_percentile_ns(latency, 99), "p99.9",
                     (json_int_t)histogram_percentile_ns(latency, 99.9), "max",
                     (json_int_t)histogram_max_ns(latency), "mean", histogram_mean_ns(latency));
}

void latency_print(const struct histogram *latency)
{
    static const double percents[] = {50, 90, 99, 99.9};
    char text[32];
    printf("  latency ");
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        printf(" p%g %s ", percents[i],
               text_of_time(histogram_percentile_ns(latency, percents[i]), text, sizeof(text)));
    }
    printf(" max %s\n", text_of_time(histogram_max_ns(latency), text, sizeof(text)));
}
