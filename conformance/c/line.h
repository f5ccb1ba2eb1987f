/* line.h: what the runner in C needs that other languages have: a line taken apart, payloads, a checksum, the time, and an
 * answer that is gathered so that events may be told in between. */
#ifndef CONFORMANCE_LINE_H
#define CONFORMANCE_LINE_H

#include <stdint.h>

/* Takes "verb key=value key=value" apart, in place. Returns the verb. */
const char *line_take(char *line);

/* The value of a key of the line in hand: "" or 0 if the line has no such key. */
const char *text(const char *key);
uint32_t number(const char *key);
uint64_t number64(const char *key);
uint64_t nanoseconds(const char *key); /* of milliseconds */

/* Adds " key=value"s to the answer. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tell_end(const char *status);

/* The payload of a length and a seed, until the next; docs/conformance.md says which bytes. */
const uint8_t *payload_of(uint32_t length, uint32_t seed);

/* CRC-32, as zlib has it. */
uint32_t checksum(const void *payload, uint32_t length);
/* The same of a payload that goes on: `sum` is that of what came before, 0 of nothing. */
uint32_t checksum_on(uint32_t sum, const void *payload, uint32_t length);

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);

#endif
