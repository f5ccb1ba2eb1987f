/* clock.h: monotonic time. */
#ifndef CORE_BASE_CLOCK_H
#define CORE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns now_ns + timeout_ns, or UINT64_MAX if that overflows. */
static inline uint64_t deadline_after(uint64_t now_ns, uint64_t timeout_ns)
{
    uint64_t deadline;
    return __builtin_add_overflow(now_ns, timeout_ns, &deadline) ? UINT64_MAX : deadline;
}

#endif
