/* fuzz.h: what the fuzz targets of core share: the bytes of an input, and how a target says that
 * something is wrong. A target defines LLVMFuzzerTestOneInput. libFuzzer calls it (./dev fuzz), or
 * fuzz_main.c, with which it is an ordinary test.
 */
#ifndef CORE_LINK_TESTS_FUZZ_H
#define CORE_LINK_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- The bytes of an input: zeros when they are used up -------------------------------------- */

struct fuzz_input {
    const uint8_t *next;
    size_t left;
};

static inline void fuzz_bytes(struct fuzz_input *input, void *to, size_t bytes)
{
    size_t there = bytes < input->left ? bytes : input->left;
    memset(to, 0, bytes);
    if (there > 0) {
        memcpy(to, input->next, there);
        input->next += there;
        input->left -= there;
    }
}

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    uint8_t value = 0;
    if (input->left > 0) {
        value = *input->next++;
        input->left--;
    }
    return value;
}

static inline uint16_t fuzz_half(struct fuzz_input *input)
{
    uint16_t value;
    fuzz_bytes(input, &value, sizeof(value));
    return value;
}

static inline uint32_t fuzz_word(struct fuzz_input *input)
{
    uint32_t value;
    fuzz_bytes(input, &value, sizeof(value));
    return value;
}

static inline uint64_t fuzz_double_word(struct fuzz_input *input)
{
    uint64_t value;
    fuzz_bytes(input, &value, sizeof(value));
    return value;
}

/* From 0 to limit - 1; `limit` is at most 256. */
static inline uint32_t fuzz_below(struct fuzz_input *input, uint32_t limit)
{
    return fuzz_byte(input) % limit;
}

/* A number that is good more often than not, and otherwise near it, or anything. */
static inline uint64_t fuzz_near(struct fuzz_input *input, uint64_t good)
{
    uint8_t choice = fuzz_byte(input);
    if (choice < 216) {
        return good;
    }
    switch (choice % 8) {
    case 0:
        return good + 1;
    case 1:
        return good - 1;
    case 2:
        return good + (uint64_t)(int64_t)(int16_t)fuzz_half(input);
    case 3:
        return 0;
    case 4:
        return fuzz_byte(input);
    case 5:
        return UINT64_MAX << (fuzz_byte(input) & 63);
    case 6:
        return UINT64_C(1) << (fuzz_byte(input) & 63);
    default:
        return fuzz_double_word(input);
    }
}

/* ---- What must hold -------------------------------------------------------------------------- */

/* Ends the program unless the condition holds: libFuzzer and fuzz_main.c then tell the input. */
#define fuzz_check(condition, ...)                                                                 \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0)) {                                                   \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
