/* wheel.h: deadlines. Setting and clearing cost a few instructions whatever the number of
 * timers, since nearly every RPC deadline is cleared before it passes.
 *
 * Time is cut in ticks of 8192 ns. A timer lies at the level of the highest group of six bits in
 * which its tick differs from the present one, in the slot that the group names; ten levels hold
 * every tick of a 64-bit time, so nothing is ever clamped. When the present reaches a slot of a
 * higher level, its timers fall to lower ones. No timer fires early; it fires at most one tick
 * late, plus the time between calls.
 */
#ifndef CORE_BASE_WHEEL_H
#define CORE_BASE_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define WHEEL_TICK_BITS 13
#define WHEEL_LEVELS 10
#define WHEEL_SLOTS 64

struct wheel_timer {
    struct list link;
    uint64_t tick : 60;
    uint64_t kind : 4; /* the owner's: tells what the timer is part of */
};

struct wheel {
    uint64_t now;   /* tick */
    uint32_t count; /* timers set, expired ones that were not taken included */
    struct list expired;
    uint64_t occupied[WHEEL_LEVELS]; /* a bit for each slot that has timers */
    struct list slots[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct wheel *wheel, uint64_t now_ns);

static inline void wheel_timer_init(struct wheel_timer *timer, unsigned kind)
{
    list_init(&timer->link);
    timer->kind = kind & 0xf;
}

static inline bool wheel_timer_set(const struct wheel_timer *timer)
{
    return list_linked(&timer->link);
}

/* The timer must not be set. A deadline in the past expires at the next advance. */
void wheel_set(struct wheel *wheel, struct wheel_timer *timer, uint64_t deadline_ns);

/* Allowed for a timer that is not set, and for one that has expired but was not taken. */
void wheel_clear(struct wheel *wheel, struct wheel_timer *timer);

/* Moves the present to now_ns (an earlier time changes nothing). */
void wheel_advance(struct wheel *wheel, uint64_t now_ns);

/* Takes one expired timer, in order of tick; NULL if there is none. It is then no longer set. */
struct wheel_timer *wheel_take(struct wheel *wheel);

/* A time at which wheel_advance has something to do: at most the earliest deadline, so a sleep
 * until then is never too long. UINT64_MAX if no timer is set, 0 if some have expired. */
uint64_t wheel_next_ns(const struct wheel *wheel);

#endif
