/* line.h: the lines that the programs in C take and tell, each a JSON object: a command that is checked and looked into, an answer
 * that is gathered so that events may be told in between, and events. Also what other languages have: payloads, a checksum, the
 * time. */
#ifndef CONFORMANCE_LINE_H
#define CONFORMANCE_LINE_H

#include <jansson.h>
#include <stdint.h>

/* What a program tells of itself, and which verbs it knows. Lists end with NULL. */
struct line_program {
    const char *name;
    const char *const *verbs; /* NULL = all but `lacks` */
    const char *const *lacks; /* verbs, and members of verbs: "call.after" */
    const char *const *capabilities, *const *forms;
};

/* Reads the schema of commands: the first argument of the program. Ends the program if there is none. */
void line_begin(const struct line_program *program, int count, char *const *arguments);

/* The next line of standard input, which is there: run.py says lines at once. NULL when run.py has gone. */
char *line_read(void);

/* Takes a line as the command in hand. NULL, or how it is refused. */
const char *line_take(const char *line);
const char *line_verb(void);
/* Answers `hello`. */
void line_hello(void);

/* The value of a member of the command in hand: "" or 0 if it has no such member. A truth is 1 or 0. */
int has(const char *key);
const char *text(const char *key);
uint32_t number(const char *key);
uint64_t number64(const char *key);
uint64_t nanoseconds(const char *key); /* of milliseconds */
/* The bytes of a string of hexadecimal digits, at most `most`. Returns how many. */
uint32_t bytes_of(const char *key, uint8_t *bytes, uint32_t most);
/* The numbers of a list, at most `most`. Returns how many. */
uint32_t numbers(const char *key, uint32_t *values, uint32_t most);

/* Add members to an object. */
void put_text(json_t *to, const char *key, const char *value);
void put_number(json_t *to, const char *key, uint64_t value); /* below 2^53 */
void put_big(json_t *to, const char *key, uint64_t value); /* any of 64 bits, as decimal digits */
void put_bytes(json_t *to, const char *key, const uint8_t *bytes, uint32_t count);
void put_numbers(json_t *to, const char *key, const uint32_t *values, uint32_t count);

/* The answer to the command in hand, and its end, which says it. */
json_t *answer(void);
void tell_end(json_t *status);

/* An event, to which members are added until it is told. */
json_t *event_new(const char *kind);
void event_tell(json_t *event);

/* The payload of a length and a seed, until the next; docs/conformance.md says which bytes. */
const uint8_t *payload_of(uint32_t length, uint32_t seed);

/* CRC-32, as zlib has it. */
uint32_t checksum(const void *payload, uint32_t length);
/* The same of a payload that goes on: `sum` is that of what came before, 0 of nothing. */
uint32_t checksum_on(uint32_t sum, const void *payload, uint32_t length);

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);

#endif
