/* wheel.h: a timer wheel for deadlines. Setting and clearing a timer take a few instructions,
 * however many timers there are. Nearly every deadline of a call is cleared before it passes.
 *
 * Time is divided into ticks of 8192 ns. The wheel compares a timer's tick with the current tick in
 * groups of six bits. The highest group that differs gives the timer's level, and the value of that
 * group gives its slot. Ten levels cover every tick of a 64-bit time, so no deadline is clamped.
 * When the current tick reaches a slot of a higher level, the timers of that slot move to lower
 * levels. A timer never fires early. It fires at most one tick late, plus the time between calls.
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
    uint64_t kind : 4; /* the owner's: tells what contains the timer */
};

struct wheel {
    uint64_t now;   /* tick */
    uint32_t count; /* timers that are set, including expired ones not taken yet */
    struct list expired;
    uint64_t occupied[WHEEL_LEVELS]; /* one bit per slot: it has timers */
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

/* The timer must not be set. If the deadline has passed already, it expires at the next advance. */
void wheel_set(struct wheel *wheel, struct wheel_timer *timer, uint64_t deadline_ns);

/* The timer may be set, not set, or expired but not taken. */
void wheel_clear(struct wheel *wheel, struct wheel_timer *timer);

/* Sets the current time. A time before the current time changes nothing. */
void wheel_advance(struct wheel *wheel, uint64_t now_ns);

/* Takes the expired timer with the earliest tick, which is then no longer set. Returns NULL if
 * there is none. */
struct wheel_timer *wheel_take(struct wheel *wheel);

/* Returns a time at which wheel_advance has something to do. It is never after the earliest
 * deadline, so a sleep until then is never too long. Returns UINT64_MAX if no timer is set, and 0
 * if an expired timer has not been taken. */
uint64_t wheel_next_ns(const struct wheel *wheel);

#endif
