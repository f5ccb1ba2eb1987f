/* line.c: see line.h. */
#include "line.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PERIOD 4093u /* a prime, so that what was put at a wrong place differs from what is right */
#define LINE_BYTES 65536u

static const struct line_program *program;
static json_t *verbs;   /* what the schema says of each */
static json_t *command; /* in hand */
static json_t *told;    /* the answer */

/* ---- What a command may be ---- */

void line_begin(const struct line_program *of, int count, char *const *arguments)
{
    json_t *schema = count > 1 ? json_load_file(arguments[1], 0, NULL) : NULL;
    program = of;
    verbs = json_object_get(schema, "definitions");
    if (!verbs) {
        fprintf(stderr, "%s: the first argument is the schema of commands\n", of->name);
        exit(2);
    }
}

static int listed(const char *const *list, const char *word)
{
    while (list && *list && strcmp(*list, word) != 0) {
        list++;
    }
    return list && *list;
}

static int knows(const char *verb)
{
    return program->verbs ? listed(program->verbs, verb) : !listed(program->lacks, verb);
}

static int knows_member(const char *verb, const char *member)
{
    char name[128];
    snprintf(name, sizeof(name), "%s.%s", verb, member);
    return !listed(program->lacks, name);
}

static int matches(const char *value, const char *pattern)
{
    regex_t expression;
    if (regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB)) {
        return 0;
    }
    int good = regexec(&expression, value, 0, NULL, 0) == 0;
    regfree(&expression);
    return good;
}

/* Whether a value is what the schema says: a part of JSON Schema that all members can do with. */
static int fits(const json_t *value, const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    const json_t *choices = json_object_get(schema, "enum");
    const json_t *items = json_object_get(schema, "items");
    const json_t *least = json_object_get(schema, "minimum");
    const json_t *most = json_object_get(schema, "maximum");
    const json_int_t number = json_integer_value(value);
    size_t i = 0, equal = 0;
    json_t *one;
    json_array_foreach(choices, i, one)
    {
        equal += json_equal(one, value) != 0;
    }
    if (choices) {
        return equal > 0;
    }
    json_array_foreach(value, i, one)
    {
        if (!fits(one, items)) {
            return 0;
        }
    }
    switch (type ? *type : 0) {
    case 'i':
        return json_is_integer(value) && (!least || number >= json_integer_value(least)) &&
               (!most || number <= json_integer_value(most));
    case 's':
        return json_is_string(value) && (!pattern || matches(json_string_value(value), pattern));
    case 'b':
        return json_is_boolean(value);
    case 'a':
        return json_is_array(value);
    default:
        return 0;
    }
}

static const char *refused(const char *how, const char *member)
{
    put_text(answer(), "member", member);
    return how;
}

static const char *check(void)
{
    const json_t *schema = json_object_get(verbs, line_verb());
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const char *key;
    json_t *value;
    size_t index;
    if (!schema || !knows(line_verb())) {
        return "UNKNOWN_VERB";
    }
    json_object_foreach(command, key, value)
    {
        if (!json_object_get(properties, key) || !knows_member(line_verb(), key)) {
            return refused("UNKNOWN_MEMBER", key);
        }
    }
    json_object_foreach(command, key, value)
    {
        if (!fits(value, json_object_get(properties, key))) {
            return refused("WRONG_TYPE", key);
        }
    }
    json_array_foreach(required, index, value)
    {
        if (!json_object_get(command, json_string_value(value))) {
            return refused("MISSING_MEMBER", json_string_value(value));
        }
    }
    return NULL;
}

const char *line_take(const char *line)
{
    json_decref(command);
    command = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    return json_is_string(json_object_get(command, "do")) ? check() : "NO_COMMAND";
}

char *line_read(void)
{
    static char line[LINE_BYTES];
    size_t length = 0;
    while (length == 0 || line[length - 1] != '\n') {
        ssize_t got = read(STDIN_FILENO, line + length, sizeof(line) - 1 - length);
        if (got <= 0) {
            return NULL;
        }
        length += (size_t)got;
    }
    line[length] = '\0';
    return line;
}

static json_t *list_of(const char *const *words)
{
    json_t *list = json_array();
    while (words && *words) {
        json_array_append_new(list, json_string(*words++));
    }
    return list;
}

static json_t *lacks(void)
{
    json_t *list = json_array();
    for (const char *const *word = program->lacks; word && *word; word++) {
        if (strchr(*word, '.')) { /* verbs are just not among those that are known */
            json_array_append_new(list, json_string(*word));
        }
    }
    return list;
}

/* None lacks anything. */
static json_t *forms(void)
{
    json_t *object = json_object();
    for (const char *const *word = program->forms; word && *word; word++) {
        json_object_set_new(object, *word, json_array());
    }
    return object;
}

void line_hello(void)
{
    json_t *known = json_array();
    const char *verb;
    json_t *schema;
    json_object_foreach(verbs, verb, schema)
    {
        if (knows(verb)) {
            json_array_append_new(known, json_string(verb));
        }
    }
    put_number(answer(), "protocol", 1);
    put_text(answer(), "name", program->name);
    put_text(answer(), "language", "C");
    json_object_set_new(answer(), "verbs", known);
    json_object_set_new(answer(), "lacks", lacks());
    json_object_set_new(answer(), "capabilities", list_of(program->capabilities));
    json_object_set_new(answer(), "forms", forms());
}

/* ---- Members of the command ---- */

const char *line_verb(void)
{
    return text("do");
}

int has(const char *key)
{
    return json_object_get(command, key) != NULL;
}

const char *text(const char *key)
{
    const char *value = json_string_value(json_object_get(command, key));
    return value ? value : "";
}

uint64_t number64(const char *key)
{
    const json_t *value = json_object_get(command, key);
    return json_is_string(value) ? strtoull(text(key), NULL, 10)
           : json_is_true(value) ? 1
                                 : (uint64_t)json_integer_value(value);
}

uint32_t number(const char *key)
{
    return (uint32_t)number64(key);
}

uint64_t nanoseconds(const char *key)
{
    return number64(key) * 1000000;
}

uint32_t bytes_of(const char *key, uint8_t *bytes, uint32_t most)
{
    const char *digits = text(key);
    uint32_t count = 0;
    for (; count < most && digits[0] && digits[1]; digits += 2) {
        bytes[count++] = (uint8_t)strtoul((char[]){digits[0], digits[1], '\0'}, NULL, 16);
    }
    return count;
}

uint32_t numbers(const char *key, uint32_t *values, uint32_t most)
{
    const json_t *list = json_object_get(command, key);
    uint32_t count = 0;
    for (; count < most && count < json_array_size(list); count++) {
        values[count] = (uint32_t)json_integer_value(json_array_get(list, count));
    }
    return count;
}

/* ---- What is told ---- */

void put_text(json_t *to, const char *key, const char *value)
{
    json_object_set_new(to, key, json_string(value));
}

void put_number(json_t *to, const char *key, uint64_t value)
{
    json_object_set_new(to, key, json_integer((json_int_t)value));
}

void put_big(json_t *to, const char *key, uint64_t value)
{
    json_object_set_new(to, key, json_sprintf("%llu", (unsigned long long)value));
}

void put_bytes(json_t *to, const char *key, const uint8_t *bytes, uint32_t count)
{
    char *digits = malloc((size_t)2 * count + 1);
    digits[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        snprintf(digits + (size_t)2 * i, 3, "%02x", bytes[i]);
    }
    put_text(to, key, digits);
    free(digits);
}

void put_numbers(json_t *to, const char *key, const uint32_t *values, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(list, json_integer(values[i]));
    }
    json_object_set_new(to, key, list);
}

static void print(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

json_t *answer(void)
{
    told = told ? told : json_object();
    return told;
}

void tell_end(json_t *status)
{
    json_object_set_new(answer(), "done", status);
    print(told);
    told = NULL;
}

json_t *event_new(const char *kind)
{
    json_t *event = json_object();
    put_text(event, "event", kind);
    return event;
}

void event_tell(json_t *event)
{
    print(event);
}

/* ---- Payloads, time ---- */

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
