/* area.c: the memory of a channel that the peer writes, and that from which this side writes. */
#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/page.h"
#include "channel/internal.h"

int32_t area_map(struct channel_area *area, uint64_t bytes, crpc_error *error)
{
    area->bytes = align_up(bytes, page_bytes());
    area->base =
        mmap(NULL, area->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area->base == MAP_FAILED) {
        area->base = NULL;
        return error_set(error, CRPC_E_NO_MEMORY, errno, "no memory for a channel");
    }
    return CRPC_OK;
}

static int32_t register_at(struct channel_engine *engine, struct channel_area *area, uint32_t rails,
                           uint64_t remote_address, uint32_t access, crpc_error *error)
{
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        const struct engine_rail *rail = &engine->rails[i];
        if (!(rails & 1u << i)) {
            continue;
        }
        int32_t status =
            rail->operations->memory_register(rail->nic, NULL, area->base, area->bytes,
                                              remote_address, access, &area->keys[i], error);
        if (status != CRPC_OK) {
            return status;
        }
    }
    return CRPC_OK;
}

int32_t area_register(struct channel_engine *engine, struct channel_area *area, uint32_t rails,
                      crpc_error *error)
{
    return register_at(engine, area, rails, 0, 0, error);
}

/* All channels share the domains of the rails' nics. Only the address keeps others out. */
int32_t area_expose(struct channel_engine *engine, struct channel_area *area, uint32_t rails,
                    crpc_error *error)
{
    int32_t status = link_secret_address(&area->secret, error);
    return status == CRPC_OK
               ? register_at(engine, area, rails, area->secret,
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, error)
               : status;
}

void area_destroy(struct channel_engine *engine, struct channel_area *area)
{
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        if (area->keys[i].driver) {
            engine->rails[i].operations->memory_deregister(engine->rails[i].nic, &area->keys[i]);
        }
    }
    if (area->base) {
        munmap(area->base, area->bytes);
    }
    *area = (struct channel_area){0};
}
