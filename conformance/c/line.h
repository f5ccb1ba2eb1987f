/* line.h: what the runner in C needs that other languages have: a line taken apart, payloads, a checksum,
 * the time. */
#ifndef CONFORMANCE_LINE_H
#define CONFORMANCE_LINE_H

#include <stdint.h>

#define LINE_PAIRS_MAX 24

/* "verb key=value key=value", taken apart in place. */
struct line {
    const char *verb;
    int count;
    struct {
        const char *key, *value;
    } pairs[LINE_PAIRS_MAX];
};

void line_parse(struct line *line, char *text);

/* The value of a key; `otherwise` if the line has no such key. */
const char *line_text(const struct line *line, const char *key, const char *otherwise);
uint64_t line_number(const struct line *line, const char *key, uint64_t otherwise);

/* The payload of a length and a seed, to be freed; docs/conformance.md says which bytes. */
uint8_t *payload_new(uint32_t length, uint64_t seed);

/* CRC-32, as zlib has it. */
uint32_t payload_checksum(const uint8_t *payload, uint32_t length);

/* The answer to a line: " key=value"s, gathered, so that events may be told in between. */
void reply_field(const char *format, ...) __attribute__((format(printf, 1, 2)));
void reply_payload(const uint8_t *payload, uint32_t length);
void reply_end(void);

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);

#endif
