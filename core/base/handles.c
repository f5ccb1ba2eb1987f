#include "base/handles.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLOT UINT32_MAX

/* Of the process, whose contexts may be used by several threads. */
static _Atomic uint64_t last_number;

void handles_init(struct handles *handles)
{
    memset(handles, 0, sizeof(*handles));
    handles->first_free = NO_SLOT;
    handles->last_free = NO_SLOT;
    handles->last_number = &last_number;
}

void handles_free(struct handles *handles)
{
    free(handles->entries);
    free(handles->next_free);
    memset(handles, 0, sizeof(*handles));
}

static bool grow(struct handles *handles)
{
    uint32_t capacity = handles->capacity ? handles->capacity * 2 : 64;
    if (capacity > HANDLE_SLOTS_MAX) {
        return false;
    }
    struct handle_entry *entries = realloc(handles->entries, capacity * sizeof(*entries));
    if (!entries) {
        return false;
    }
    handles->entries = entries;
    uint32_t *next_free = realloc(handles->next_free, capacity * sizeof(*next_free));
    if (!next_free) {
        return false;
    }
    handles->next_free = next_free;
    handles->capacity = capacity;
    return true;
}

static uint32_t take_slot(struct handles *handles)
{
    uint32_t slot = handles->first_free;
    if (slot != NO_SLOT) {
        handles->first_free = handles->next_free[slot];
        if (handles->first_free == NO_SLOT) {
            handles->last_free = NO_SLOT;
        }
        return slot;
    }
    if (handles->used == handles->capacity && !grow(handles)) {
        return NO_SLOT;
    }
    return handles->used++;
}

/* 0 = there is none left. */
static uint64_t take_number(struct handles *handles)
{
    uint64_t last = atomic_load_explicit(handles->last_number, memory_order_relaxed);
    do {
        if (last == HANDLE_NUMBER_MAX) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak_explicit(handles->last_number, &last, last + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    return last + 1;
}

static void give_slot(struct handles *handles, uint32_t slot)
{
    handles->next_free[slot] = NO_SLOT;
    if (handles->last_free == NO_SLOT) {
        handles->first_free = slot;
    } else {
        handles->next_free[handles->last_free] = slot;
    }
    handles->last_free = slot;
}

uint64_t handles_add(struct handles *handles, enum handle_kind kind, void *object)
{
    assert(kind != 0 && object);
    uint32_t slot = take_slot(handles);
    if (slot == NO_SLOT) {
        return 0;
    }
    uint64_t number = take_number(handles);
    if (number == 0) {
        handles->entries[slot] = (struct handle_entry){0};
        give_slot(handles, slot);
        return 0;
    }
    uint64_t bits = (uint64_t)kind << HANDLE_KIND_SHIFT | number << HANDLE_SLOT_BITS | slot;
    handles->entries[slot] = (struct handle_entry){.bits = bits, .object = object};
    return bits;
}

void handles_remove(struct handles *handles, uint64_t bits)
{
    uint32_t slot = bits & (HANDLE_SLOTS_MAX - 1);
    if (slot >= handles->used || handles->entries[slot].bits != bits) {
        return;
    }
    handles->entries[slot] = (struct handle_entry){0};
    give_slot(handles, slot);
}

void handles_swap(struct handles *handles, uint64_t one, uint64_t other)
{
    struct handle_entry *first = &handles->entries[one & (HANDLE_SLOTS_MAX - 1)];
    struct handle_entry *second = &handles->entries[other & (HANDLE_SLOTS_MAX - 1)];
    assert(first->bits == one && second->bits == other &&
           one >> HANDLE_KIND_SHIFT == other >> HANDLE_KIND_SHIFT);
    void *object = first->object;
    first->object = second->object;
    second->object = object;
}
