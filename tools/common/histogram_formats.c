/* histogram_formats.c: what HdrHistogram's readers read: https://github.com/HdrHistogram. */
#include "histogram_bins.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TICKS 5 /* lines of the table until half of what was left is behind */
#define US 1e3

/* ---- Table of percentiles -------------------------------------------------------------------- */

static double deviation_ns(const struct histogram *histogram)
{
    const double mean = histogram_mean_ns(histogram);
    double sum = 0;
    for (uint32_t bin = 0; bin < HISTOGRAM_BINS; bin++) {
        const double away =
            (double)(histogram_bin_least_ns(bin) + histogram_bin_most_ns(bin)) / 2 - mean;
        sum += (double)histogram->bins[bin] * away * away;
    }
    return histogram->count ? sqrt(sum / (double)histogram->count) : 0;
}

/* Returns the percentile that is told after this one. */
static double next_percent(double percent)
{
    const double halvings = floor(log2(100 / (100 - percent))) + 1;
    return percent + 100 / (TICKS * exp2(halvings));
}

void histogram_print(const struct histogram *histogram, FILE *stream)
{
    const double count = (double)histogram->count;
    uint64_t seen = 0;
    double percent = 0;
    fprintf(stream, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount",
            "1/(1-Percentile)");
    for (uint32_t bin = 0; bin < HISTOGRAM_BINS && seen < histogram->count; bin++) {
        if (histogram->bins[bin] == 0) {
            continue;
        }
        seen += histogram->bins[bin];
        const double most_us = (double)histogram_bin_most_ns(bin) / US;
        for (; seen < histogram->count && percent <= 100 * (double)seen / count;
             percent = next_percent(percent)) {
            fprintf(stream, "%12.3f %2.12f %10llu %14.2f\n", most_us, percent / 100,
                    (unsigned long long)seen, 1 / (1 - percent / 100));
        }
    }
    if (histogram->count) {
        fprintf(stream, "%12.3f %2.12f %10llu\n", (double)histogram->max_ns / US, 1.0,
                (unsigned long long)seen);
    }
    fprintf(stream, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n",
            histogram_mean_ns(histogram) / US, deviation_ns(histogram) / US);
    fprintf(stream, "#[Max     = %12.3f, Total count    = %12llu]\n",
            (double)histogram->max_ns / US, (unsigned long long)histogram->count);
    fprintf(stream, "#[Buckets = %12u, SubBuckets     = %12u]\n", HISTOGRAM_BUCKETS,
            2 * HISTOGRAM_HALF);
}

/* ---- Log ------------------------------------------------------------------------------------- */

#define COOKIE 0x1c849313u
#define COOKIE_COMPRESSED 0x1c849314u
#define HEAD_BYTES 40u
#define COMPRESSED_HEAD_BYTES 8u
#define NUMBER_BYTES_MAX 9u

static uint8_t *put_big_endian(uint8_t *to, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
    return to + bytes;
}

/* ZigZag LEB128 of at most nine bytes, the last of which has eight bits. */
static uint8_t *put_number(uint8_t *to, int64_t value)
{
    uint64_t bits = (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
    for (uint32_t i = 1; i < NUMBER_BYTES_MAX && bits > 0x7f; i++) {
        *to++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *to++ = (uint8_t)bits;
    return to;
}

/* The counts up to the last that is not 0; so many zeros in a row are one negative number. */
static uint8_t *put_counts(uint8_t *to, const struct histogram *histogram)
{
    uint64_t left = histogram->count;
    int64_t zeros = 0;
    for (uint32_t bin = 0; left > 0; bin++) {
        const uint64_t count = histogram->bins[bin];
        left -= count;
        if (count == 0) {
            zeros++;
            continue;
        }
        if (zeros > 0) {
            to = put_number(to, zeros == 1 ? 0 : -zeros);
            zeros = 0;
        }
        to = put_number(to, (int64_t)count);
    }
    return to;
}

static uint32_t put_histogram(uint8_t *to, const struct histogram *histogram)
{
    const double ratio = 1; /* of whole numbers to what they stand for */
    uint64_t ratio_bits;
    uint32_t counts_bytes = (uint32_t)(put_counts(to + HEAD_BYTES, histogram) - (to + HEAD_BYTES));
    memcpy(&ratio_bits, &ratio, sizeof(ratio_bits));
    to = put_big_endian(to, COOKIE, 4);
    to = put_big_endian(to, counts_bytes, 4);
    to = put_big_endian(to, 0, 4); /* index of the first count */
    to = put_big_endian(to, HISTOGRAM_DIGITS, 4);
    to = put_big_endian(to, 1, 8);
    to = put_big_endian(to, HISTOGRAM_MOST_NS, 8);
    put_big_endian(to, ratio_bits, 8);
    return HEAD_BYTES + counts_bytes;
}

static void put_base64(char *to, const uint8_t *from, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t count = bytes - i < 3 ? bytes - i : 3;
        uint32_t bits = (uint32_t)from[i] << 16;
        bits |= count > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        bits |= count > 2 ? from[i + 2] : 0;
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = count > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = count > 2 ? digits[bits & 63] : '=';
    }
    *to = '\0';
}

char *histogram_encode(const struct histogram *histogram)
{
    /* The zeros between two counts are one number more. */
    const size_t plain_max = HEAD_BYTES + 2 * NUMBER_BYTES_MAX * (size_t)HISTOGRAM_BINS;
    uLongf bytes = compressBound(plain_max);
    uint8_t *plain = malloc(plain_max);
    uint8_t *packed = malloc(COMPRESSED_HEAD_BYTES + bytes);
    char *text = NULL;
    if (plain && packed) {
        const uint32_t plain_bytes = put_histogram(plain, histogram);
        if (compress(packed + COMPRESSED_HEAD_BYTES, &bytes, plain, plain_bytes) == Z_OK) {
            put_big_endian(put_big_endian(packed, COOKIE_COMPRESSED, 4), bytes, 4);
            text = malloc((COMPRESSED_HEAD_BYTES + bytes + 2) / 3 * 4 + 1);
        }
    }
    if (text) {
        put_base64(text, packed, COMPRESSED_HEAD_BYTES + bytes);
    }
    free(plain);
    free(packed);
    return text;
}
