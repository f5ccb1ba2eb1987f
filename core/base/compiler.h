/* compiler.h: small helpers that C11 lacks, for gcc and clang. */
#ifndef CORE_BASE_COMPILER_H
#define CORE_BASE_COMPILER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Asserts the condition, for what callers see to. A build without assertions is optimised as if it always held. */
#ifdef NDEBUG
#define assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#else
#define assume(condition) assert(condition)
#endif

/* What follows is loaded after what is stored before: then no register keeps it meanwhile, and a long function may do without
 * saving any. */
#define store_first() __asm__ volatile("" : : : "memory")

#define CACHE_LINE_BYTES 64

#define container_of(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline uint64_t align_up(uint64_t value, uint64_t power_of_two)
{
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}

/* value must be at most 2^31. */
static inline uint32_t power_of_two_at_least(uint32_t value)
{
    assert(value <= 1u << 31);
    uint32_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

static inline uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t maximum(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
