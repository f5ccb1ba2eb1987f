/* sim_gather.c: payloads that the device reads from a region. An op that has completed has its payload overwritten at
 * once, so that one that completes too early is noticed where the payload arrives. */
#include "sim.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SPOILED 0xdb

void sim_gather_open(struct sim *sim, uint64_t seed)
{
    random_seed(&sim->gather_random, seed);
    sim->gather_percent =
        random_percent(&sim->gather_random, 60) ? random_between(&sim->gather_random, 1, 40) : 0;
    /* The memory of some sides is another device's, so that payloads of all lengths are gathered. */
    sim->gather_fd = memfd_create("payloads", MFD_CLOEXEC);
    if (sim->gather_fd < 0 || ftruncate(sim->gather_fd, sizeof(sim->sides[0].gather.slots)) != 0) {
        simulation_fail(&sim->base, "no file to stand for another device's memory");
    }
}

void sim_gather_side(struct sim_side *side)
{
    struct sim_gather *gather = &side->gather;
    const bool foreign = random_percent(&side->sim->gather_random, 50);
    gather->region = (struct rpc_region){.address = (uint64_t)(uintptr_t)gather->slots,
                                         .bytes = sizeof(gather->slots),
                                         .fd = foreign ? side->sim->gather_fd : -1,
                                         .foreign = foreign,
                                         .users = &gather->users};
    rpc_region_init(&gather->region);
}

void sim_gather_close(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_gather *gather = &sim->sides[i].gather;
        if (gather->users != 0 || !list_empty(&gather->region.memories)) {
            simulation_fail(&sim->base, "side %u: %u payloads are still in use", i, gather->users);
        }
    }
    close(sim->gather_fd);
}

bool sim_gather_wanted(struct sim *sim)
{
    return random_percent(&sim->gather_random, sim->gather_percent);
}

/* Returns a slot that no op uses, or SIM_GATHER_SLOTS. */
static uint32_t free_slot(const struct sim_gather *gather)
{
    uint32_t slot = 0;
    while (slot < SIM_GATHER_SLOTS && gather->slots[slot].used) {
        slot++;
    }
    return slot;
}

int32_t sim_gather_submit(struct sim_side *side, const crpc_op *op, const void *payload)
{
    struct sim_gather *gather = &side->gather;
    const uint32_t slot = free_slot(gather);
    if (slot == SIM_GATHER_SLOTS || op->payload_bytes > SIM_GATHER_BYTES) {
        return rpc_submit(side->endpoint, op, payload);
    }
    struct sim_gather_slot *place = &gather->slots[slot];
    crpc_op moved = *op;
    moved.payload_offset =
        (uint64_t)(place->bytes - (uint8_t *)gather->slots) +
        random_below(&side->sim->gather_random, SIM_GATHER_BYTES - op->payload_bytes + 1);
    memcpy((uint8_t *)gather->slots + moved.payload_offset, payload, op->payload_bytes);
    const int32_t status = rpc_gather(side->endpoint, &moved, &gather->region);
    if (status == CRPC_OK) {
        place->used = true;
        place->opcode = op->opcode;
        place->user_data = op->user_data;
        side->sim->counts[SIM_GATHERED]++;
    }
    return status;
}

void sim_gather_done(struct sim_side *side, uint8_t opcode, uint64_t user_data)
{
    for (uint32_t slot = 0; slot < SIM_GATHER_SLOTS; slot++) {
        struct sim_gather_slot *place = &side->gather.slots[slot];
        if (place->used && place->opcode == opcode && place->user_data == user_data) {
            memset(place->bytes, SPOILED, sizeof(place->bytes));
            place->used = false;
        }
    }
}
