/* compare.c: two results side by side: each figure of the new one as a ratio to the old one's, and what else was different. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

/* What two results should have in common for their figures to be compared. */
static const char *const places[] = {"mode",   "op",        "version",   "host",
                                     "kernel", "device",    "port",      "driver",
                                     "link",   "link_mbps", "mtu_bytes", "numa_node"};
/* Of a row; what it counts, and how long it took, depends on what was asked for. */
static const char *const counts[] = {"bytes", "reply_bytes", "calls",  "messages",
                                     "ops",   "ops_back",    "seconds"};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static void print_value(const json_t *value)
{
    if (json_is_string(value)) {
        fputs(json_string_value(value), stdout);
    } else if (value) {
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    } else {
        fputs("nothing", stdout);
    }
}

static void tell_difference(const char *what, const json_t *old, const json_t *new)
{
    if (!old && !new) {
        return;
    }
    if (!json_equal((json_t *)old, (json_t *)new)) {
        printf("  differs: %s was ", what);
        print_value(old);
        fputs(", is ", stdout);
        print_value(new);
        putchar('\n');
    }
}

static void tell_differences(json_t *old, json_t *new)
{
    json_t *was = json_object_get(old, "options"), *is = json_object_get(new, "options");
    const char *name;
    json_t *value;
    for (size_t i = 0; i < LENGTH(places); i++) {
        tell_difference(places[i], json_object_get(old, places[i]),
                        json_object_get(new, places[i]));
    }
    json_object_foreach(was, name, value)
    {
        tell_difference(name, value, json_object_get(is, name));
    }
    json_object_foreach(is, name, value)
    {
        if (!json_object_get(was, name)) {
            tell_difference(name, NULL, value);
        }
    }
}

static bool is_figure(const char *name)
{
    for (size_t i = 0; i < LENGTH(counts); i++) {
        if (strcmp(name, counts[i]) == 0) {
            return false;
        }
    }
    return true;
}

/* Returns how many figures both have. */
static uint32_t compare_figures(json_int_t bytes, const char *prefix, json_t *old, json_t *new)
{
    uint32_t count = 0;
    const char *name;
    json_t *value;
    json_object_foreach(new, name, value)
    {
        json_t *before = json_object_get(old, name);
        char whole[64];
        snprintf(whole, sizeof(whole), "%s%s", prefix, name);
        if (json_is_object(value)) {
            snprintf(whole, sizeof(whole), "%s.", name);
            count += compare_figures(bytes, whole, before, value);
        } else if (json_is_number(value) && json_is_number(before) && is_figure(name)) {
            const double was = json_number_value(before), is = json_number_value(value);
            if (was == 0 && is == 0) {
                continue;
            }
            printf("%12lld  %-26s %14.6g %14.6g", (long long)bytes, whole, was, is);
            if (was != 0) {
                printf(" %8.3f\n", is / was);
            } else {
                printf(" %8s\n", "-");
            }
            count++;
        }
    }
    return count;
}

static json_t *row_of(json_t *result, json_int_t bytes)
{
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(result, "results"), index, row)
    {
        if (json_integer_value(json_object_get(row, "bytes")) == bytes) {
            return row;
        }
    }
    return NULL;
}

static uint32_t compare_results(json_t *old, json_t *new)
{
    uint32_t count = 0;
    size_t index;
    json_t *row;
    printf("%12s  %-26s %14s %14s %8s\n", "bytes", "figure", "old", "new", "ratio");
    json_array_foreach(json_object_get(new, "results"), index, row)
    {
        const json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
        count += compare_figures(bytes, "", row_of(old, bytes), row);
    }
    return count;
}

static void print_name(const char *which, const char *path, json_t *result)
{
    printf("%s: %s, ", which, path);
    print_value(json_object_get(result, "date"));
    putchar('\n');
}

int compare_files(const char *old_path, const char *new_path)
{
    json_t *old = record_load(old_path);
    json_t *new = record_load(new_path);
    int status = EXIT_FAILURE;
    if (old && new) {
        print_name("old", old_path, old);
        print_name("new", new_path, new);
        tell_differences(old, new);
        status = compare_results(old, new) > 0
                     ? EXIT_SUCCESS
                     : perf_failed("compare", "the two have no size in common");
    }
    json_decref(old);
    json_decref(new);
    return status;
}
