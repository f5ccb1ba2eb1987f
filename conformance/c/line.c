/* line.c: see line.h. */
#include "line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PERIOD                                                                                     \
    4093u /* a prime, so that a payload put at a wrong place differs from the right one */

void line_parse(struct line *line, char *text)
{
    char *rest = NULL;
    *line = (struct line){.verb = strtok_r(text, " \n", &rest)};
    for (char *word; line->verb && (word = strtok_r(NULL, " \n", &rest)) != NULL;) {
        char *equals = strchr(word, '=');
        if (equals && line->count < LINE_PAIRS_MAX) {
            *equals = '\0';
            line->pairs[line->count].key = word;
            line->pairs[line->count++].value = equals + 1;
        }
    }
}

const char *line_text(const struct line *line, const char *key, const char *otherwise)
{
    for (int i = 0; i < line->count; i++) {
        if (strcmp(line->pairs[i].key, key) == 0) {
            return line->pairs[i].value;
        }
    }
    return otherwise;
}

uint64_t line_number(const struct line *line, const char *key, uint64_t otherwise)
{
    const char *text = line_text(line, key, NULL);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

uint8_t *payload_new(uint32_t length, uint64_t seed)
{
    uint8_t *payload = malloc(length + 1);
    uint32_t value = (uint32_t)seed * 2654435761u + 1;
    for (uint32_t i = 0; i < length; i++) {
        if (i < PERIOD) {
            value = value * 1664525u + 1013904223u;
        }
        payload[i] = i < PERIOD ? (uint8_t)(value >> 24) : payload[i - PERIOD];
    }
    return payload;
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t payload_checksum(const uint8_t *payload, uint32_t length)
{
    uint32_t sum = 0xffffffffu;
    for (uint32_t i = 0; i < length; i++) {
        sum ^= payload[i];
        for (int bit = 0; bit < 8; bit++) {
            sum = sum >> 1 ^ (0xedb88320u & -(sum & 1u));
        }
    }
    return ~sum;
}

static char reply[4096];
static size_t reply_length;

void reply_field(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    reply[reply_length++] = ' ';
    reply_length +=
        (size_t)vsnprintf(reply + reply_length, sizeof(reply) - reply_length, format, arguments);
    va_end(arguments);
}

void reply_payload(const uint8_t *payload, uint32_t length)
{
    reply_field("length=%u checksum=%u", length, payload_checksum(payload, length));
}

void reply_end(void)
{
    printf("done%s\n", reply);
    reply_length = 0;
    reply[0] = '\0';
}
