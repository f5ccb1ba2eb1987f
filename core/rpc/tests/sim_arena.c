/* sim_arena.c: arenas that sides lend. What lies in one is compared with the book when it comes and when it is given back, which
 * is in any order and at any time; and nothing may be written there between. */
#include "sim.h"

void sim_arena_choose(struct sim *sim, uint64_t seed)
{
    random_seed(&sim->arena_random, seed);
    sim->arena_percent =
        random_percent(&sim->arena_random, 70) ? random_between(&sim->arena_random, 1, 50) : 0;
}

void sim_arena_side(struct sim_side *side)
{
    struct sim_arena *arena = &side->arena;
    arena->region = (struct rpc_region){.address = (uint64_t)(uintptr_t)arena->memory,
                                        .bytes = sizeof(arena->memory),
                                        .fd = -1,
                                        .users = &arena->users};
    rpc_region_init(&arena->region);
}

void sim_arena_close(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].arena.users != 0) {
            simulation_fail(&sim->base, "side %u: its arena is still in use", i);
        }
    }
}

static void lend(struct sim_side *side)
{
    crpc_error error = {0};
    const uint32_t places = random_between(&side->sim->arena_random, 1, SIM_PLACES);
    const bool possible =
        side->endpoint->link.state == CRPC_STATE_CONNECTED && !side->endpoint->link.failing;
    if (rpc_arena_lend(side->endpoint, &side->arena.region, side->arena.region.address,
                       SIM_PLACE_BYTES, places, &error) == CRPC_OK) {
        side->arena.places = places;
    } else if (possible && side->endpoint->leave == LEAVE_NONE) {
        simulation_fail(&side->sim->base, "an arena could not be lent: %s", error.message);
    }
}

static struct sim_view *held_at(struct sim_side *side, uint64_t address)
{
    const uint64_t offset = address - side->arena.region.address;
    return offset < sizeof(side->arena.memory) ? &side->arena.held[offset / SIM_PLACE_BYTES] : NULL;
}

static void give_back(struct sim_side *side, struct sim_view *held)
{
    if (!simulation_matches(held->address, held->bytes, held->key)) {
        simulation_fail(&side->sim->base, "what was placed has changed");
    }
    if (side->endpoint &&
        rpc_arena_give_back(side->endpoint, (uint64_t)(uintptr_t)held->address) != CRPC_OK) {
        simulation_fail(&side->sim->base, "what was placed cannot be given back");
    }
    *held = (struct sim_view){0};
}

void sim_arena_act(struct sim *sim)
{
    struct random_generator *random = &sim->arena_random;
    if (!random_percent(random, sim->arena_percent)) {
        return;
    }
    struct sim_side *side = &sim->sides[random_below(random, sim->side_count)];
    if (side->arena.places == 0) {
        if (side->endpoint && random_percent(random, 60)) {
            lend(side);
        }
        return;
    }
    struct sim_view *held = &side->arena.held[random_below(random, SIM_PLACES)];
    if (held->address) {
        give_back(side, held);
    }
}

bool sim_arena_choose_bytes(struct sim_side *side, crpc_op *op)
{
    struct random_generator *random = &side->sim->arena_random;
    const bool large = side->endpoint->peer_arena.places > 0 && random_percent(random, 50);
    if (large) {
        op->payload_bytes = random_percent(random, 20)
                                ? SIM_PLACE_BYTES
                                : random_between(random, 2048, SIM_PLACE_BYTES);
    }
    return large;
}

void sim_arena_take(struct sim_side *side, const crpc_completion *completion, uint64_t key)
{
    struct sim_view *held = held_at(side, completion->payload);
    if (!held || held->address || completion->payload_bytes > SIM_PLACE_BYTES) {
        simulation_fail(&side->sim->base, "a payload came in no place, or in one that was held");
        return;
    }
    *held = (struct sim_view){.address = (const uint8_t *)(uintptr_t)completion->payload,
                              .bytes = completion->payload_bytes,
                              .key = key};
    side->sim->counts[SIM_PLACED]++;
}

bool sim_arena_watch(struct sim_side *side, uint64_t address, uint32_t bytes)
{
    const struct sim_view *held = held_at(side, address);
    if (held && (held->address || held_at(side, address + bytes - 1) != held)) {
        simulation_fail(&side->sim->base, "a WRITE of %u bytes lands in a place that is held",
                        bytes);
    }
    return held;
}
