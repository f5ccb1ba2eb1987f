/* plot.c: results of --json as a script for gnuplot, with all data in it: of one size, latency over percentile; of several, rates and latencies over the
 * size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

#define US 1e3

/* A title in quotes of gnuplot. */
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            putchar('\\');
        }
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static json_t *rows_of(json_t *result)
{
    return json_object_get(result, "results");
}

/* Of calls, messages or ops. */
static double rate_of(const json_t *row)
{
    static const char *const rates[] = {"calls_per_second", "messages_per_second",
                                        "ops_per_second"};
    const json_t *rate = NULL;
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]) && !rate; i++) {
        rate = json_object_get(row, rates[i]);
    }
    return json_number_value(rate);
}

static double latency_us(const json_t *row, const char *percentile)
{
    return json_number_value(json_object_get(json_object_get(row, "latency_ns"), percentile)) / US;
}

/* ---- Data ------------------------------------------------------------------------------------ */

/* Where 90 % is as far from 99 % as that from 99.9 %. */
static void print_point(void *context, double percent, uint64_t ns, uint64_t count)
{
    const uint64_t *all = context;
    printf("%.6g %.3f\n", percent < 100 ? 100 / (100 - percent) : (double)*all, (double)ns / US);
    (void)count;
}

/* Returns false if the row has no histogram. */
static bool print_percentiles(size_t index, const json_t *row)
{
    const char *text = json_string_value(json_object_get(row, "latency_histogram"));
    struct histogram *latency = text ? histogram_decode(text) : NULL;
    if (!latency) {
        return false;
    }
    uint64_t count = histogram_count(latency);
    printf("$latency%zu << END\n", index);
    histogram_tell(latency, print_point, &count);
    printf("END\n");
    histogram_destroy(latency);
    return true;
}

static void print_sizes(size_t index, json_t *result)
{
    size_t number;
    json_t *row;
    printf("# bytes, a second, p50 and p99 in microseconds\n$sizes%zu << END\n", index);
    json_array_foreach(rows_of(result), number, row)
    {
        printf("%lld %.6g %.3f %.3f\n",
               (long long)json_integer_value(json_object_get(row, "bytes")), rate_of(row),
               latency_us(row, "p50"), latency_us(row, "p99"));
    }
    printf("END\n");
}

/* ---- Pictures -------------------------------------------------------------------------------- */

static void print_curve(bool first, const char *data, size_t index, const char *columns,
                        const char *path, const char *what)
{
    char title[512];
    snprintf(title, sizeof(title), "%s%s", path, what);
    printf("%s $%s%zu using %s title ", first ? "plot" : ",\\\n    ", data, index, columns);
    print_quoted(title);
}

static void plot_percentiles(char *const *paths, size_t count)
{
    printf("set terminal svg size 900,600 background rgb \"white\" noenhanced\n"
           "set title \"latency\"\nset ylabel \"us\"\nset xlabel \"percentile\"\nset grid\nset key "
           "left top\n"
           "set style data lines\nset logscale xy\n"
           "set xtics (\"0\" 1, \"50\" 2, \"90\" 10, \"99\" 100, \"99.9\" 1e3, \"99.99\" 1e4, "
           "\"99.999\" 1e5, "
           "\"99.9999\" 1e6, \"99.99999\" 1e7)\n");
    for (size_t i = 0; i < count; i++) {
        print_curve(i == 0, "latency", i, "1:2", paths[i], "");
    }
    printf("\n");
}

static void plot_sizes(char *const *paths, size_t count)
{
    printf("set terminal svg size 900,1000 background rgb \"white\" noenhanced\n"
           "set grid\nset key left bottom\nset style data linespoints\nset logscale x 2\nset "
           "logscale y\n"
           "set xlabel \"bytes\"\nset format x \"%%.0f\"\nset multiplot layout 2,1\n"
           "set title \"rate\"\nset ylabel \"a second\"\n");
    for (size_t i = 0; i < count; i++) {
        print_curve(i == 0, "sizes", i, "1:2", paths[i], "");
    }
    printf("\nset key left top\nset title \"latency\"\nset ylabel \"us\"\n");
    for (size_t i = 0; i < count; i++) {
        print_curve(i == 0, "sizes", i, "1:3", paths[i], ", p50");
        print_curve(false, "sizes", i, "1:4", paths[i], ", p99");
    }
    printf("\nunset multiplot\n");
}

static int plot(json_t *const *results, char *const *paths, size_t count)
{
    bool sweep = false;
    for (size_t i = 0; i < count; i++) {
        sweep |= json_array_size(rows_of(results[i])) > 1;
    }
    printf("# By copyrpc-perf plot; gnuplot makes an SVG of it.\n");
    for (size_t i = 0; i < count; i++) {
        if (sweep) {
            print_sizes(i, results[i]);
        } else if (!print_percentiles(i, json_array_get(rows_of(results[i]), 0))) {
            return perf_failed(paths[i], "it has no histogram that can be read");
        }
    }
    if (sweep) {
        plot_sizes(paths, count);
    } else {
        plot_percentiles(paths, count);
    }
    return EXIT_SUCCESS;
}

int plot_files(char *const *paths, size_t count)
{
    json_t **results = calloc(count, sizeof(*results));
    int status = EXIT_SUCCESS;
    if (!results) {
        return perf_failed("no memory", "for the results");
    }
    for (size_t i = 0; status == EXIT_SUCCESS && i < count; i++) {
        results[i] = record_load(paths[i]);
        status = results[i] ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (status == EXIT_SUCCESS) {
        status = plot(results, paths, count);
    }
    for (size_t i = 0; i < count; i++) {
        json_decref(results[i]);
    }
    free(results);
    return status;
}
