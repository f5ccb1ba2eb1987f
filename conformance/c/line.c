/* line.c: see line.h. */
#include "line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PERIOD 4093u /* a prime, so that what was put at a wrong place differs from what is right */

static const char *words[32];
static char answer[4096];
static size_t answer_length;

const char *line_take(char *line)
{
    char *rest = NULL;
    size_t count = 0;
    memset(words, 0, sizeof(words));
    for (char *word; (word = strtok_r(line, " \n", &rest)) != NULL && count < 31; line = NULL) {
        words[count++] = word;
    }
    return count ? words[0] : "";
}

const char *text(const char *key)
{
    size_t length = strlen(key);
    for (size_t i = 1; words[i]; i++) {
        if (strncmp(words[i], key, length) == 0 && words[i][length] == '=') {
            return words[i] + length + 1;
        }
    }
    return "";
}

uint32_t number(const char *key)
{
    return (uint32_t)strtoul(text(key), NULL, 10);
}

uint64_t number64(const char *key)
{
    return strtoull(text(key), NULL, 10);
}

uint64_t nanoseconds(const char *key)
{
    return number(key) * (uint64_t)1000000;
}

void tell(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    answer[answer_length++] = ' ';
    char *end = answer + answer_length;
    answer_length += (size_t)vsnprintf(end, sizeof(answer) - answer_length, format, arguments);
    va_end(arguments);
}

void tell_end(const char *status)
{
    printf("done%s status=%s\n", answer, status);
    memset(answer, 0, answer_length);
    answer_length = 0;
}

const uint8_t *payload_of(uint32_t length, uint32_t seed)
{
    static uint8_t *payload;
    payload = realloc(payload, length + 1);
    for (uint32_t i = 0; i < length; i++) {
        payload[i] = (uint8_t)((seed * 40503u + i % PERIOD) * 2654435761u >> 24);
    }
    return payload;
}

uint32_t checksum_on(uint32_t sum, const void *payload, uint32_t length)
{
    sum = ~sum;
    for (uint32_t i = 0; i < length; i++) {
        sum ^= ((const uint8_t *)payload)[i];
        for (int bit = 0; bit < 8; bit++) {
            sum = sum >> 1 ^ (0xedb88320u & -(sum & 1u));
        }
    }
    return ~sum;
}

uint32_t checksum(const void *payload, uint32_t length)
{
    return checksum_on(0, payload, length);
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
