#include "base/wheel.h"

#include <assert.h>

#define GROUP_BITS 6
#define GROUP_MASK (WHEEL_SLOTS - 1)
#define TICK_MASK ((UINT64_C(1) << 60) - 1)

void wheel_init(struct wheel *wheel, uint64_t now_ns)
{
    wheel->now = now_ns >> WHEEL_TICK_BITS;
    wheel->count = 0;
    list_init(&wheel->expired);
    for (int level = 0; level < WHEEL_LEVELS; level++) {
        wheel->occupied[level] = 0;
        for (int slot = 0; slot < WHEEL_SLOTS; slot++) {
            list_init(&wheel->slots[level][slot]);
        }
    }
}

static void place(struct wheel *wheel, struct wheel_timer *timer)
{
    if (timer->tick <= wheel->now) {
        list_append(&wheel->expired, &timer->link);
        return;
    }
    unsigned level = (63u - (unsigned)__builtin_clzll(timer->tick ^ wheel->now)) / GROUP_BITS;
    unsigned slot = (timer->tick >> (level * GROUP_BITS)) & GROUP_MASK;
    list_append(&wheel->slots[level][slot], &timer->link);
    wheel->occupied[level] |= UINT64_C(1) << slot;
}

void wheel_set(struct wheel *wheel, struct wheel_timer *timer, uint64_t deadline_ns)
{
    assert(!wheel_timer_set(timer));
    const uint64_t round = (UINT64_C(1) << WHEEL_TICK_BITS) - 1;
    timer->tick = ((deadline_ns >> WHEEL_TICK_BITS) + ((deadline_ns & round) != 0)) & TICK_MASK;
    wheel->count++;
    place(wheel, timer);
}

void wheel_clear(struct wheel *wheel, struct wheel_timer *timer)
{
    if (!wheel_timer_set(timer)) {
        return;
    }
    struct list *next = timer->link.next;
    list_remove(&timer->link);
    wheel->count--;
    /* `next` is the head of an emptied slot, or of the expired list, or another timer. */
    struct list *first_slot = &wheel->slots[0][0];
    if (list_empty(next) && next >= first_slot && next < first_slot + WHEEL_LEVELS * WHEEL_SLOTS) {
        unsigned index = (unsigned)(next - first_slot);
        wheel->occupied[index / WHEEL_SLOTS] &= ~(UINT64_C(1) << (index % WHEEL_SLOTS));
    }
}

/* The tick at which the next occupied slot begins; false if all are empty. Lower levels come first:
 * timers of a level lie within the present slot of the level above. */
static bool next_slot_tick(const struct wheel *wheel, uint64_t *tick)
{
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        if (wheel->occupied[level]) {
            /* Slots at or before the present one are empty at every level. */
            unsigned slot = (unsigned)__builtin_ctzll(wheel->occupied[level]);
            unsigned shift = level * GROUP_BITS;
            uint64_t above = ~UINT64_C(0) << (shift + GROUP_BITS);
            *tick = (wheel->now & above) | (uint64_t)slot << shift;
            return true;
        }
    }
    return false;
}

static void empty_slots_beginning_now(struct wheel *wheel)
{
    for (int level = WHEEL_LEVELS - 1; level >= 0; level--) {
        unsigned slot = (wheel->now >> (level * GROUP_BITS)) & GROUP_MASK;
        if (!(wheel->occupied[level] >> slot & 1)) {
            continue;
        }
        wheel->occupied[level] &= ~(UINT64_C(1) << slot);
        struct list timers;
        list_move_all(&timers, &wheel->slots[level][slot]);
        while (!list_empty(&timers)) {
            struct list *link = timers.next;
            list_remove(link);
            place(wheel, list_entry(link, struct wheel_timer, link));
        }
    }
}

void wheel_advance(struct wheel *wheel, uint64_t now_ns)
{
    uint64_t until = now_ns >> WHEEL_TICK_BITS;
    uint64_t tick;
    while (wheel->now < until && next_slot_tick(wheel, &tick) && tick <= until) {
        wheel->now = tick;
        empty_slots_beginning_now(wheel);
    }
    if (wheel->now < until) {
        wheel->now = until;
    }
}

struct wheel_timer *wheel_take(struct wheel *wheel)
{
    if (list_empty(&wheel->expired)) {
        return NULL;
    }
    struct list *link = wheel->expired.next;
    list_remove(link);
    wheel->count--;
    return list_entry(link, struct wheel_timer, link);
}

uint64_t wheel_next_ns(const struct wheel *wheel)
{
    uint64_t tick;
    if (!list_empty(&wheel->expired)) {
        return 0;
    }
    return next_slot_tick(wheel, &tick) ? tick << WHEEL_TICK_BITS : UINT64_MAX;
}
