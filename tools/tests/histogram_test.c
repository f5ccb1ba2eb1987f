/* histogram_test.c [FOLDER]: percentiles of histograms beside those of sorted values. The seed is TEST_SEED. With FOLDER: writes random values there, and
 * their histogram in both formats, for histogram_formats.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

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

static struct histogram *random_histogram(void)
{
    struct histogram *histogram = histogram_create();
    for (uint32_t i = 0; i < VALUES; i++) {
        histogram_record(histogram, i % 3 ? 3000 + 4 * (random_bits() % 100) : random_ns());
    }
    return histogram;
}

static void test_what_was_encoded_is_decoded(void **state)
{
    struct histogram *histogram = random_histogram();
    char *text = histogram_encode(histogram);
    struct histogram *decoded = histogram_decode(text);
    char *again = histogram_encode(decoded);
    (void)state;
    assert_string_equal(again, text);
    assert_int_equal(histogram_count(decoded), VALUES);
    assert_in_range(histogram_max_ns(decoded), histogram_max_ns(histogram),
                    histogram_max_ns(histogram) + histogram_max_ns(histogram) / 1000);
    free(again);
    free(text);
    histogram_destroy(decoded);
    histogram_destroy(histogram);
}

static void test_half_a_text_is_no_histogram(void **state)
{
    struct histogram *histogram = random_histogram();
    char *text = histogram_encode(histogram);
    (void)state;
    assert_null(histogram_decode("no base64"));
    for (size_t length = strlen(text); length-- > 0;) {
        text[length] = '\0';
        assert_null(histogram_decode(text));
    }
    free(text);
    histogram_destroy(histogram);
}

static void put_base64(char *to, const uint8_t *from, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    assert_int_equal(bytes % 3, 0);
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t bits = (uint32_t)from[i] << 16 | (uint32_t)from[i + 1] << 8 | from[i + 2];
        for (uint32_t k = 0; k < 4; k++) {
            *to++ = digits[bits >> (18 - 6 * k) & 63];
        }
    }
    *to = '\0';
}

/* Packs these bytes in place of a histogram's counts. */
static struct histogram *decode_counts(const uint8_t *counts, uint8_t count_bytes)
{
    /* The cookie; how many bytes of counts; offset 0; 3 digits; from 1 to 2^40 - 1; ratio 1.0. */
    uint8_t plain[1024] = {0x1c, 0x84, 0x93, 0x13, [15] = 3, [23] = 1, [27] = 0xff,
                           0xff, 0xff, 0xff, 0xff, 0x3f,     0xf0};
    uint8_t packed[2048] = {0x1c, 0x84, 0x93, 0x14};
    char text[4096];
    memcpy(plain + 40, counts, count_bytes);
    /* So long that base64 needs no padding. */
    for (uLong plain_bytes = 40 + count_bytes; plain_bytes < sizeof(plain); plain_bytes++) {
        uLongf bytes = sizeof(packed) - 8;
        plain[6] = (uint8_t)((plain_bytes - 40) >> 8);
        plain[7] = (uint8_t)(plain_bytes - 40);
        assert_int_equal(compress(packed + 8, &bytes, plain, plain_bytes), Z_OK);
        if (bytes % 3 == 1) {
            packed[6] = (uint8_t)(bytes >> 8);
            packed[7] = (uint8_t)bytes;
            put_base64(text, packed, 8 + bytes);
            return histogram_decode(text);
        }
    }
    fail();
    return NULL;
}

static void test_counts_that_are_too_many_are_refused(void **state)
{
    static const uint8_t most[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t zeros[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe};
    static const uint8_t half[] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
                                   0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe};
    static const uint8_t few[] = {2, 4};
    (void)state;
    struct histogram *decoded = decode_counts(few, sizeof(few));
    assert_int_equal(histogram_count(decoded), 3);
    assert_int_equal(histogram_max_ns(decoded), 1);
    histogram_destroy(decoded);
    assert_null(decode_counts(most, sizeof(most)));
    assert_null(decode_counts(zeros, sizeof(zeros)));
    assert_null(decode_counts(half, sizeof(half)));
}

static void test_random_counts_are_no_crash(void **state)
{
    uint32_t taken = 0;
    (void)state;
    for (uint32_t i = 0; i < 2000; i++) {
        uint8_t counts[200];
        for (size_t k = 0; k < sizeof(counts); k++) {
            counts[k] = (uint8_t)(random_bits() & (random_bits() % 8 ? 0x7f : 0xff));
        }
        struct histogram *decoded = decode_counts(counts, sizeof(counts));
        if (decoded) {
            char *text = histogram_encode(decoded);
            assert_non_null(text);
            free(text);
            histogram_destroy(decoded);
            taken++;
        }
    }
    assert_in_range(taken, 100, 1900);
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

/* Not in main: the version of TAP must be the first line. */
static int tell_seed(void **state)
{
    (void)state;
    printf("# TEST_SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles_are_those_of_sorted_values),
        cmocka_unit_test(test_a_percentile_of_round_counts_is_not_the_next),
        cmocka_unit_test(test_what_is_empty_is_0),
        cmocka_unit_test(test_a_sum_has_all_of_both),
        cmocka_unit_test(test_what_is_longer_than_the_bins_counts),
        cmocka_unit_test(test_what_was_encoded_is_decoded),
        cmocka_unit_test(test_half_a_text_is_no_histogram),
        cmocka_unit_test(test_counts_that_are_too_many_are_refused),
        cmocka_unit_test(test_random_counts_are_no_crash),
    };
    const char *seed = getenv("TEST_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : 88172645463325252u;
    if (argc == 2) {
        write_formats(argv[1]);
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, tell_seed, NULL);
}
