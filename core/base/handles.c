#include "base/handles.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLOT UINT32_MAX
#define GENERATION_MAX ((1u << HANDLE_GENERATION_BITS) - 1)

void handles_init(struct handles *handles)
{
    static _Atomic uint32_t contexts;
    memset(handles, 0, sizeof(*handles));
    handles->context = (uint16_t)atomic_fetch_add_explicit(&contexts, 1, memory_order_relaxed);
    handles->first_free = NO_SLOT;
    handles->last_free = NO_SLOT;
}

void handles_free(struct handles *handles)
{
    free(handles->entries);
    free(handles->generations);
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
    uint32_t *generations = realloc(handles->generations, capacity * sizeof(*generations));
    if (!generations) {
        return false;
    }
    handles->generations = generations;
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
    slot = handles->used++;
    handles->generations[slot] = 0;
    return slot;
}

uint64_t handles_add(struct handles *handles, enum handle_kind kind, void *object)
{
    assert(kind != 0 && object);
    uint32_t slot = take_slot(handles);
    if (slot == NO_SLOT) {
        return 0;
    }
    uint64_t generation = ++handles->generations[slot];
    uint64_t bits = (uint64_t)kind << 56 | (uint64_t)handles->context << 40 |
                    generation << HANDLE_SLOT_BITS | slot;
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
    if (handles->generations[slot] == GENERATION_MAX) {
        return;
    }
    handles->next_free[slot] = NO_SLOT;
    if (handles->last_free == NO_SLOT) {
        handles->first_free = slot;
    } else {
        handles->next_free[handles->last_free] = slot;
    }
    handles->last_free = slot;
}
