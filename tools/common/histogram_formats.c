/* histogram_formats.c: what HdrHistogram's readers read: https://github.com/HdrHistogram. */
#include "histogram_bins.h"

#include <math.h>
#include <stdbool.h>
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

void histogram_tell(const struct histogram *histogram,
                    void (*told)(void *context, double percent, uint64_t ns, uint64_t count),
                    void *context)
{
    uint64_t seen = 0;
    double percent = 0;
    for (uint32_t bin = 0; bin < HISTOGRAM_BINS && seen < histogram->count; bin++) {
        if (histogram->bins[bin] == 0) {
            continue;
        }
        seen += histogram->bins[bin];
        for (; seen < histogram->count && percent <= 100 * (double)seen / (double)histogram->count;
             percent = next_percent(percent)) {
            told(context, percent, histogram_bin_most_ns(bin), seen);
        }
    }
    if (histogram->count) {
        told(context, 100, histogram->max_ns, seen);
    }
}

static void print_row(void *context, double percent, uint64_t ns, uint64_t count)
{
    FILE *stream = context;
    fprintf(stream, "%12.3f %2.12f %10llu", (double)ns / US, percent / 100,
            (unsigned long long)count);
    if (percent < 100) {
        fprintf(stream, " %14.2f", 1 / (1 - percent / 100));
    }
    fputc('\n', stream);
}

void histogram_print(const struct histogram *histogram, FILE *stream)
{
    fprintf(stream, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount",
            "1/(1-Percentile)");
    histogram_tell(histogram, print_row, stream);
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
/* The zeros between two counts are one number more. */
#define PLAIN_BYTES_MAX (HEAD_BYTES + 2 * NUMBER_BYTES_MAX * HISTOGRAM_BINS)

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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
    uLongf bytes = compressBound(PLAIN_BYTES_MAX);
    uint8_t *plain = malloc(PLAIN_BYTES_MAX);
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

/* Returns how many bytes the text stands for; 0 if it is none. `to` has room for three of every four characters. */
static size_t take_base64(uint8_t *to, const char *text)
{
    const size_t length = strlen(text);
    size_t padding = 0, bytes = 0;
    if (length == 0 || length % 4 != 0) {
        return 0;
    }
    padding += text[length - 1] == '=';
    padding += text[length - 1] == '=' && text[length - 2] == '=';
    for (size_t i = 0; i < length; i += 4) {
        uint32_t bits = 0;
        for (size_t k = i; k < i + 4; k++) {
            const char *digit = k < length - padding ? strchr(digits, text[k]) : digits;
            if (!digit) {
                return 0;
            }
            bits = bits << 6 | (uint32_t)(digit - digits);
        }
        to[bytes++] = (uint8_t)(bits >> 16);
        to[bytes++] = (uint8_t)(bits >> 8);
        to[bytes++] = (uint8_t)bits;
    }
    return bytes - padding;
}

static uint64_t take_big_endian(const uint8_t *from, uint32_t bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        value = value << 8 | from[i];
    }
    return value;
}

/* Takes a number from *from, and moves behind it. Returns false if the bytes end before. */
static bool take_number(const uint8_t **from, const uint8_t *end, int64_t *value)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < NUMBER_BYTES_MAX; i++) {
        if (*from == end) {
            return false;
        }
        const uint8_t byte = *(*from)++;
        const bool last = i == NUMBER_BYTES_MAX - 1 || byte < 0x80;
        bits |= (uint64_t)(last ? byte : byte & 0x7f) << (7 * i);
        if (last) {
            break;
        }
    }
    *value = (int64_t)(bits >> 1 ^ (bits & 1 ? UINT64_MAX : 0));
    return true;
}

static bool take_counts(struct histogram *histogram, const uint8_t *from, const uint8_t *end)
{
    uint64_t bin = 0;
    while (from < end) {
        int64_t count;
        if (!take_number(&from, end, &count)) {
            return false;
        }
        if (count <= 0) {
            const uint64_t zeros = count == 0 ? 1 : -(uint64_t)count;
            if (zeros > HISTOGRAM_BINS - bin) {
                return false;
            }
            bin += zeros;
            continue;
        }
        if (bin == HISTOGRAM_BINS || (uint64_t)count > INT64_MAX - histogram->count) {
            return false;
        }
        histogram->bins[bin] = (uint64_t)count;
        histogram->count += (uint64_t)count;
        histogram->max_ns = histogram_bin_most_ns((uint32_t)bin);
        histogram->sum_ns += (double)count * (double)histogram_bin_least_ns((uint32_t)bin);
        bin++;
    }
    return true;
}

static bool take_histogram(struct histogram *histogram, const uint8_t *plain, size_t bytes)
{
    return bytes >= HEAD_BYTES && take_big_endian(plain, 4) == COOKIE &&
           take_big_endian(plain + 4, 4) == bytes - HEAD_BYTES &&
           take_big_endian(plain + 8, 4) == 0 &&
           take_big_endian(plain + 12, 4) == HISTOGRAM_DIGITS &&
           take_big_endian(plain + 16, 8) == 1 &&
           take_counts(histogram, plain + HEAD_BYTES, plain + bytes);
}

struct histogram *histogram_decode(const char *text)
{
    uint8_t *packed = malloc(strlen(text) + 1);
    uint8_t *plain = malloc(PLAIN_BYTES_MAX);
    struct histogram *histogram = histogram_create();
    bool taken = false;
    if (packed && plain && histogram) {
        const size_t bytes = take_base64(packed, text);
        uLongf plain_bytes = PLAIN_BYTES_MAX;
        taken = bytes > COMPRESSED_HEAD_BYTES && take_big_endian(packed, 4) == COOKIE_COMPRESSED &&
                take_big_endian(packed + 4, 4) == bytes - COMPRESSED_HEAD_BYTES &&
                uncompress(plain, &plain_bytes, packed + COMPRESSED_HEAD_BYTES,
                           bytes - COMPRESSED_HEAD_BYTES) == Z_OK &&
                take_histogram(histogram, plain, plain_bytes);
    }
    free(packed);
    free(plain);
    if (!taken) {
        histogram_destroy(histogram);
        return NULL;
    }
    return histogram;
}
