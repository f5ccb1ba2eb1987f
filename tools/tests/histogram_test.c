/* histogram_test.c [FOLDER]: percentiles of histograms beside those of sorted values. The seed is TEST_SEED. With FOLDER: writes random values there, and
 * their histogram in both formats, for histogram_formats.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../common/histogram.h"

#define VALUES 20000u

static uint64_t random_state;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Of every length in bits up to 39. */
static uint64_t random_ns(void)
{
    return random_bits() >> (25 + random_bits() % 39);
}

static int compare(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void test_percentiles_are_those_of_sorted_values(void **state)
{
    static const double percents[] = {0, 0.01, 1, 10, 50, 90, 99, 99.9, 99.99, 100};
    static uint64_t values[VALUES];
    struct histogram *histogram = histogram_create();
    double sum = 0;
    (void)state;
    assert_non_null(histogram);
    for (uint32_t i = 0; i < VALUES; i++) {
        values[i] = random_ns();
        sum += (double)values[i];
        histogram_record(histogram, values[i]);
    }
    qsort(values, VALUES, sizeof(values[0]), compare);
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        /* In hundredths of a percent, and so exact. */
        const uint64_t hundredths = (uint64_t)(percents[i] * 100 + 0.5);
        const uint64_t rank = (VALUES * hundredths + 9999) / 10000;
        const uint64_t least = values[rank ? rank - 1 : 0];
        const uint64_t found = histogram_percentile_ns(histogram, percents[i]);
        assert_in_range(found, least, least + least / 1000);
    }
    assert_int_equal(histogram_count(histogram), VALUES);
    assert_int_equal(histogram_max_ns(histogram), values[VALUES - 1]);
    assert_true(histogram_mean_ns(histogram) == sum / VALUES);
    histogram_destroy(histogram);
}

static void test_a_percentile_of_round_counts_is_not_the_next(void **state)
{
    struct histogram *histogram = histogram_create();
    (void)state;
    for (uint64_t ns = 1; ns <= 1000; ns++) {
        histogram_record(histogram, ns);
    }
    assert_int_equal(histogram_percentile_ns(histogram, 99.9), 999);
    assert_int_equal(histogram_percentile_ns(histogram, 50), 500);
    assert_int_equal(histogram_percentile_ns(histogram, 100), 1000);
    histogram_destroy(histogram);
}

static void test_what_is_empty_is_0(void **state)
{
    struct histogram *histogram = histogram_create();
    (void)state;
    histogram_record(histogram, 5000);
    histogram_reset(histogram);
    assert_int_equal(histogram_count(histogram), 0);
    assert_int_equal(histogram_percentile_ns(histogram, 99), 0);
    assert_int_equal(histogram_max_ns(histogram), 0);
    assert_true(histogram_mean_ns(histogram) == 0);
    histogram_destroy(histogram);
    histogram_destroy(NULL);
}

static void test_a_sum_has_all_of_both(void **state)
{
    struct histogram *one = histogram_create(), *other = histogram_create();
    (void)state;
    for (uint64_t i = 1; i <= 100; i++) {
        histogram_record(i % 2 ? one : other, i);
    }
    histogram_add(one, other);
    assert_int_equal(histogram_count(one), 100);
    for (uint32_t percent = 1; percent <= 100; percent++) {
        assert_int_equal(histogram_percentile_ns(one, percent), percent);
    }
    assert_true(histogram_mean_ns(one) == 50.5);
    assert_int_equal(histogram_count(other), 50);
    histogram_destroy(one);
    histogram_destroy(other);
}

static void test_what_is_longer_than_the_bins_counts(void **state)
{
    struct histogram *histogram = histogram_create();
    (void)state;
    histogram_record(histogram, 0);
    histogram_record(histogram, UINT64_C(5) << 40);
    assert_int_equal(histogram_percentile_ns(histogram, 50), 0);
    assert_true(histogram_percentile_ns(histogram, 99) == UINT64_C(5) << 40);
    assert_true(histogram_max_ns(histogram) == UINT64_C(5) << 40);
    histogram_destroy(histogram);
}

/* With counts of one byte and of two, with one zero in a row and with many. */
static void write_formats(const char *folder)
{
    struct histogram *histogram = histogram_create();
    char path[4096];
    snprintf(path, sizeof(path), "%s/values", folder);
    FILE *values = fopen(path, "w");
    snprintf(path, sizeof(path), "%s/encoded", folder);
    FILE *encoded = fopen(path, "w");
    snprintf(path, sizeof(path), "%s/table", folder);
    FILE *table = fopen(path, "w");
    for (uint32_t i = 0; i < VALUES; i++) {
        uint64_t ns = i % 3 ? 3000 + 4 * (random_bits() % 100) : random_ns();
        histogram_record(histogram, ns);
        fprintf(values, "%llu\n", (unsigned long long)ns);
    }
    histogram_print(histogram, table);
    char *text = histogram_encode(histogram);
    fputs(text, encoded);
    free(text);
    fclose(values);
    fclose(encoded);
    fclose(table);
    histogram_destroy(histogram);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles_are_those_of_sorted_values),
        cmocka_unit_test(test_a_percentile_of_round_counts_is_not_the_next),
        cmocka_unit_test(test_what_is_empty_is_0),
        cmocka_unit_test(test_a_sum_has_all_of_both),
        cmocka_unit_test(test_what_is_longer_than_the_bins_counts),
    };
    const char *seed = getenv("TEST_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : 88172645463325252u;
    printf("# TEST_SEED=%llu\n", (unsigned long long)random_state);
    if (argc == 2) {
        write_formats(argv[1]);
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
