/* latency.c: see latency.h. */
#include "latency.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../common/text.h"
#include "../common/version.h"

json_t *latency_json(const struct histogram *latency)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "p50",
                     (json_int_t)histogram_percentile_ns(latency, 50), "p90",
                     (json_int_t)histogram_percentile_ns(latency, 90), "p99",
                     (json_int_t)histogram_percentile_ns(latency, 99), "p99.9",
                     (json_int_t)histogram_percentile_ns(latency, 99.9), "max",
                     (json_int_t)histogram_max_ns(latency), "mean", histogram_mean_ns(latency));
}

void latency_add(json_t *row, const struct histogram *latency)
{
    char *text = histogram_encode(latency);
    json_object_set_new(row, "latency_ns", latency_json(latency));
    json_object_set_new(row, "latency_histogram", text ? json_string(text) : json_null());
    free(text);
}

static void write_log_head(FILE *file, double start)
{
    char version[32];
    const time_t whole = (time_t)start;
    fprintf(file,
            "#[Logged with copyrpc-perf %s, in nanoseconds]\n#[Histogram log format version 1.3]\n"
            "#[StartTime: %.3f (seconds since epoch), %.24s]\n"
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_"
            "Histogram\"\n",
            version_text(version, sizeof(version)), start, ctime(&whole));
}

static void write_log_line(FILE *file, uint32_t bytes, const struct histogram *latency,
                           double start, double seconds)
{
    char *text = histogram_encode(latency);
    if (!text) {
        perf_failed("no memory", "for the histogram");
        return;
    }
    fprintf(file, "Tag=%u,%.3f,%.3f,%.3f,%s\n", bytes, start, seconds,
            (double)histogram_max_ns(latency) / 1e6, text);
    free(text);
}

void latency_write(const struct perf_options *options, uint32_t bytes,
                   const struct histogram *latency, double seconds)
{
    static bool begun;
    FILE *file = options->histogram;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double start = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - seconds;
    if (!file) {
        return;
    }
    if (options->histogram_log) {
        if (!begun) {
            write_log_head(file, start);
            begun = true;
        }
        write_log_line(file, bytes, latency, start, seconds);
    } else {
        histogram_print(latency, file);
    }
    if (fflush(file) != 0) {
        perf_failed("--histogram", "the file could not be written");
    }
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
