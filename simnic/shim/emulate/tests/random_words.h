/* random_words.h: registers and memory filled with what a seed gives (xorshift64*, Marsaglia 2003,
 * Vigna 2016). */
#ifndef SIMNIC_SHIM_EMULATE_TESTS_RANDOM_WORDS_H
#define SIMNIC_SHIM_EMULATE_TESTS_RANDOM_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t random_state; /* not 0 */

static inline uint64_t random_word(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}

/* `bytes` is a multiple of 8. */
static inline void fill(void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = random_word();
        memcpy((uint8_t *)to + i, &word, 8);
    }
}

#endif
