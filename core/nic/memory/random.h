/* random.h: the only source of randomness of the in-memory NIC and its simulations.
 *
 * The same seed gives the same run on every machine. Nothing here depends on the platform, the time
 * or an address. The generator is xorshift64* (Vigna, "An experimental exploration of Marsaglia's
 * xorshift generators, scrambled"); its state is set through splitmix64, so that seeds 1, 2, 3, ...
 * give unrelated runs. Do not use it for secrets.
 */
#ifndef CORE_NIC_MEMORY_RANDOM_H
#define CORE_NIC_MEMORY_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct random_generator {
    uint64_t state; /* never 0 */
};

/* Performs a splitmix64 step: advances *state, and returns 64 well-mixed bits. Useful for deriving
 * seeds. */
static inline uint64_t random_split(uint64_t *state)
{
    uint64_t mixed = (*state += UINT64_C(0x9e3779b97f4a7c15));
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* Initialises a generator. Every seed is allowed, including 0. */
static inline void random_seed(struct random_generator *generator, uint64_t seed)
{
    do {
        generator->state = random_split(&seed);
    } while (generator->state == 0);
}

/* Returns the next 64 random bits. */
static inline uint64_t random_next(struct random_generator *generator)
{
    uint64_t state = generator->state;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    generator->state = state;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Returns a number from 0 to limit - 1. `limit` is at least 1. The bias is below 2^-32. */
static inline uint32_t random_below(struct random_generator *generator, uint32_t limit)
{
    return (uint32_t)(((random_next(generator) >> 32) * limit) >> 32);
}

/* Returns a number from low to high, inclusive; low <= high and high - low < 2^32 - 1. */
static inline uint32_t random_between(struct random_generator *generator, uint32_t low,
                                      uint32_t high)
{
    return low + random_below(generator, high - low + 1);
}

/* Returns true in `percent` of 100 cases: never for 0, always for 100. */
static inline bool random_percent(struct random_generator *generator, uint32_t percent)
{
    return random_below(generator, 100) < percent;
}

#endif
