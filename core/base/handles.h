/* handles.h: checked handles: 64 bits that name an object of one kind of one context.
 *
 *   bits 63..60  kind, never 0
 *   bits 59..20  number, which no other handle of the process has
 *   bits 19..0   slot in its context's table
 *
 * So a handle never becomes valid again, nor in another context, however many were opened meanwhile. A
 * process may make 2^40 handles, which takes 12 days at a million a second. Then it gets no more.
 */
#ifndef CORE_BASE_HANDLES_H
#define CORE_BASE_HANDLES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum handle_kind {
    HANDLE_ENDPOINT = 1,
    HANDLE_LISTENER = 2,
    HANDLE_REGION = 3,
    HANDLE_CHANNEL = 4,
    HANDLE_QUEUE = 5,
    HANDLE_TARGET = 6,
    HANDLE_GRANT = 7,
};

#define HANDLE_SLOT_BITS 20
#define HANDLE_KIND_SHIFT 60
#define HANDLE_NUMBER_MAX ((UINT64_C(1) << (HANDLE_KIND_SHIFT - HANDLE_SLOT_BITS)) - 1)
#define HANDLE_SLOTS_MAX (1u << HANDLE_SLOT_BITS)

struct handle_entry {
    uint64_t bits; /* 0 = free */
    void *object;
};

struct handles {
    struct handle_entry *entries;
    uint32_t *next_free; /* queue of free slots, oldest first */
    uint32_t first_free;
    uint32_t last_free;
    uint32_t used; /* slots ever used */
    uint32_t capacity;
    _Atomic uint64_t *last_number; /* the process's; a simulation may have its own */
};

void handles_init(struct handles *handles);
void handles_free(struct handles *handles);

/* Returns 0 if there is no free slot, number or memory. Entries may move in memory, but the objects that
 * handles_get returned stay where they are. */
uint64_t handles_add(struct handles *handles, enum handle_kind kind, void *object);
/* Does nothing if the handle was removed before. */
void handles_remove(struct handles *handles, uint64_t bits);
/* Each of the two handles names what the other one named. Both are valid, and of the same kind. */
void handles_swap(struct handles *handles, uint64_t one, uint64_t other);

/* Returns the object, or NULL if the handle is stale, belongs to another context, is of another
 * kind, or is garbage. */
static inline void *handles_get(const struct handles *handles, uint64_t bits, enum handle_kind kind)
{
    uint32_t slot = bits & (HANDLE_SLOTS_MAX - 1);
    if (slot >= handles->used || handles->entries[slot].bits != bits ||
        bits >> HANDLE_KIND_SHIFT != kind) {
        return NULL;
    }
    return handles->entries[slot].object;
}

#endif
