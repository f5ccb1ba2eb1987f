/* arenas.c: see arenas.h. */
#include "arenas.h"

#include <stdlib.h>

#include "perf.h"

#define ALIGNMENT 4096u

struct arena {
    struct arena *next;
    crpc_endpoint client; /* 0: nobody's */
    crpc_region region;
    void *memory;
};

static struct arena *make(struct arenas *arenas, crpc_error *error)
{
    const size_t bytes = ((size_t)arenas->place_bytes * CRPC_ARENA_PLACES_MAX + ALIGNMENT - 1) &
                         ~(size_t)(ALIGNMENT - 1);
    struct arena *arena = calloc(1, sizeof(*arena));
    if (!arena || !(arena->memory = aligned_alloc(ALIGNMENT, bytes)) ||
        crpc_region_register(arenas->context, arena->memory, bytes, CRPC_ACCESS_LOCAL_WRITE,
                             &arena->region, error) != CRPC_OK) {
        if (arena) {
            free(arena->memory);
        }
        free(arena);
        return NULL;
    }
    arena->next = arenas->first;
    arenas->first = arena;
    return arena;
}

static struct arena *find(const struct arenas *arenas, crpc_endpoint client)
{
    struct arena *arena = arenas->first;
    while (arena && arena->client.bits != client.bits) {
        arena = arena->next;
    }
    return arena;
}

void arenas_lend(struct arenas *arenas, crpc_endpoint client)
{
    crpc_error error = {.struct_size = sizeof(error)};
    struct arena *arena = NULL;
    if (arenas->place_bytes == 0) {
        return;
    }
    arena = find(arenas, (crpc_endpoint){0});
    arena = arena ? arena : make(arenas, &error);
    if (!arena || crpc_arena_lend(arenas->context, client, arena->region, 0, arenas->place_bytes,
                                  CRPC_ARENA_PLACES_MAX, &error) != CRPC_OK) {
        perf_failed("--arena", error.status ? error.message : "no memory");
        return;
    }
    arena->client = client;
}

void arenas_end(struct arenas *arenas, crpc_endpoint client)
{
    struct arena *arena = find(arenas, client);
    if (arena) {
        arena->client = (crpc_endpoint){0};
    }
}

void arenas_free(struct arenas *arenas)
{
    while (arenas->first) {
        struct arena *next = arenas->first->next;
        free(arenas->first->memory);
        free(arenas->first);
        arenas->first = next;
    }
}
