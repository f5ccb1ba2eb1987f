/* arenas.c: the verbs of arenas, and payloads that stay in places. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "line.h"

int32_t arenas_keep(const struct thing *endpoint, const crpc_completion *done,
                    struct thing *request)
{
    request->payload = done->payload;
    request->bytes = done->payload_bytes;
    if (done->flags & CRPC_COMPLETION_PLACED) {
        request->memory = (void *)(uintptr_t)done->payload;
        return (int32_t)((done->payload - endpoint->arena) / endpoint->place_bytes);
    }
    request->memory = malloc(done->payload_bytes + 1);
    if (crpc_retain(context, done, request->memory, done->payload_bytes) < 0) {
        request->bytes = 0; /* run.py misses them */
    }
    return -1;
}

void arenas_forget(struct thing *it)
{
    if (it->mapped > 0) {
        munmap((uint8_t *)it->memory + it->bytes - it->mapped, it->mapped);
    } else if ((uintptr_t)it->memory != it->payload) { /* else it is a part of a region */
        free(it->memory);
    }
}

void arenas_return(const crpc_completion *done)
{
    if (done->flags & CRPC_COMPLETION_PLACED) {
        crpc_arena_give_back(context, done->endpoint, done->payload);
    }
}

static int32_t do_lend(struct thing *endpoint)
{
    const struct thing *region = thing_named(text("region"));
    const uint64_t offset = number64("offset");
    const uint32_t place_bytes = number("place_bytes");
    const crpc_region handle = {region ? region->bits : 0};
    int32_t status = crpc_arena_lend(context, (crpc_endpoint){endpoint->bits}, handle, offset,
                                     place_bytes, number("places"), NULL);
    if (status == CRPC_OK && region) {
        endpoint->arena = (uint64_t)(uintptr_t)region->memory + offset;
        endpoint->place_bytes = place_bytes;
    }
    return status;
}

/* Of a request, or of an endpoint whatever is in that place. */
static int32_t do_give_back(const struct thing *it)
{
    const uint64_t payload =
        has("place") ? it->arena + number64("place") * it->place_bytes : it->payload;
    return crpc_arena_give_back(context, (crpc_endpoint){it->bits}, payload);
}

int32_t arenas_run(const char *verb, struct thing *it)
{
    if (it && strcmp(verb, "lend") == 0) {
        return do_lend(it);
    } else if (it && strcmp(verb, "give_back") == 0) {
        return do_give_back(it);
    }
    return VERB_UNKNOWN;
}
