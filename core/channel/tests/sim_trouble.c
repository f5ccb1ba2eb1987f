/* sim_trouble.c: links, queue pairs and nics that fail, and what that excuses: a channel may be lost
 * if a rail was hurt while the other could not carry on. */
#include "sim.h"

static uint64_t fabric_steps(const struct sim *sim)
{
    return memory_fabric_counters(sim->base.fabric)->steps;
}

/* True if the rail works at this end, as far as both it and the simulation know. */
static bool half_sound(const struct sim_side *side, uint32_t rail)
{
    const struct channel *channel = side->channel;
    if (!channel || !channel->link.opened || side->engine->gone || side->engine->link_down[rail]) {
        return false;
    }
    const struct channel_rail *state = &channel->rails[rail];
    /* What stopped during a short pause of the link has failed after so many steps. */
    uint64_t settled =
        side->hurt_step[rail] + 4u * memory_fabric_options(side->sim->base.fabric)->retry_steps;
    if (state->state != RAIL_UP || state->fence != FENCE_NONE ||
        (side->hurt_step[rail] != 0 && fabric_steps(side->sim) < settled) ||
        state->epoch <= side->hurt_epoch[rail]) {
        return false;
    }
    for (uint32_t i = 0; i < channel->queue_pairs; i++) {
        if (state->queues[i]->queue_pair->failed) {
            return false;
        }
    }
    return true;
}

static bool sound(const struct sim_side *side, uint32_t rail)
{
    return half_sound(side, rail) && half_sound(side->peer, rail);
}

/* True if the channel can do without the rail. */
static bool can_spare(const struct sim_side *side, uint32_t rail)
{
    return side->excused || side->peer->excused || side->closed || side->disconnected_seen ||
           (side->connected_seen && side->peer->connected_seen && sound(side, rail ^ 1u));
}

static void excuse(struct sim_side *side, uint32_t rail)
{
    if (!can_spare(side, rail)) {
        simulation_tell(&side->sim->base, "side %u may be lost now", side->index);
        side->excused = side->peer->excused = true;
    }
}

/* ---- Links ----------------------------------------------------------------------------------- */

static bool engine_can_spare(const struct sim *sim, const struct sim_engine *engine, uint32_t rail)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].engine == engine && !can_spare(&sim->sides[i], rail)) {
            return false;
        }
    }
    return true;
}

static void link_down(struct sim *sim, struct sim_engine *engine, uint32_t rail)
{
    struct random_generator *random = &sim->base.random;
    if (engine->link_down[rail] || (sim->careful && !engine_can_spare(sim, engine, rail))) {
        return;
    }
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].engine == engine) {
            excuse(&sim->sides[i], rail);
        }
    }
    uint32_t pause = random_percent(random, 40) ? random_between(random, 1, 300)
                                                : random_between(random, 300, 3000);
    engine->link_down[rail] = true;
    engine->link_back[rail] = sim->base.step + pause;
    simulation_tell(&sim->base, "engine %u: link %u down for %u steps", engine->index, rail, pause);
    memory_fabric_set_link(engine->nics[rail], false);
}

void sim_mend(struct sim *sim, bool all)
{
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        struct sim_engine *engine = &sim->engines[i];
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            if (!engine->link_down[rail] || (engine->link_back[rail] > sim->base.step && !all)) {
                continue;
            }
            engine->link_down[rail] = false;
            simulation_tell(&sim->base, "engine %u: link %u back", i, rail);
            memory_fabric_set_link(engine->nics[rail], true);
            for (uint32_t j = 0; j < sim->side_count; j++) {
                if (sim->sides[j].engine == engine) {
                    sim->sides[j].hurt_step[rail] = fabric_steps(sim) + 1;
                }
            }
        }
    }
}

/* ---- Queue pairs and nics -------------------------------------------------------------------- */

static void kill_queue_pair(struct sim *sim, struct sim_side *side)
{
    uint32_t rail = random_below(&sim->base.random, CHANNEL_RAILS_MAX);
    uint32_t index = random_below(&sim->base.random, CHANNEL_QUEUE_PAIRS_MAX);
    struct channel_queue *queue = side->channel->rails[rail].queues[index];
    if (!queue || (sim->careful && !can_spare(side, rail))) {
        return;
    }
    excuse(side, rail);
    side->hurt_epoch[rail] = side->channel->rails[rail].epoch;
    simulation_tell(&sim->base, "side %u: queue pair %u of rail %u is killed", side->index, index,
                    rail);
    if (!queue->connected) {
        return;
    }
    memory_fabric_kill(queue->queue_pair);
}

void sim_kill_first(struct sim_side *side)
{
    struct sim *sim = side->sim;
    if (sim->careful && !can_spare(side, 0)) {
        return;
    }
    excuse(side, 0);
    simulation_tell(&sim->base, "side %u: its queue pair is killed while it compares its key",
                    side->index);
    memory_fabric_kill(side->channel->link.queue_pair);
}

static void stall(struct sim *sim, struct sim_side *side)
{
    uint32_t rail = random_below(&sim->base.random, CHANNEL_RAILS_MAX);
    struct channel_queue *queue = side->channel->rails[rail].queues[0];
    if (queue && queue->adopted) {
        memory_fabric_stall(queue->queue_pair, random_between(&sim->base.random, 1, 250));
    }
}

static void cut_nics(struct sim *sim, struct sim_engine *engine)
{
    simulation_tell(&sim->base, "engine %u is cut", engine->index);
    engine->gone = true;
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        memory_fabric_cut_nic(engine->nics[rail]);
    }
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].engine == engine) {
            sim->sides[i].excused = sim->sides[i].peer->excused = true;
        }
    }
}

/* ---- Attempts to use a rail ------------------------------------------------------------------ */

void sim_count_attempts(struct sim *sim)
{
    if (sim->attempt_fails && !memory_fabric_failure_pending(sim->base.fabric, sim->failure)) {
        sim->attempt_fails = false;
        sim->counts[SIM_ATTEMPTS]++;
    }
}

/* From now on, queue pairs are only made and connected in attempts to use a rail: one of those to
 * come fails. Nobody knows whose it is, so whoever is not connected yet may be lost. */
static void fail_attempt(struct sim *sim)
{
    struct random_generator *random = &sim->base.random;
    sim_count_attempts(sim);
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        if (!side->connected_seen && !side->closed && !sim_excused(side)) {
            if (sim->careful) {
                return;
            }
            side->excused = side->peer->excused = true;
        }
    }
    sim->attempt_fails = true;
    sim->failure = random_percent(random, 50) ? MEMORY_FAIL_CREATE : MEMORY_FAIL_CONNECT;
    uint32_t nth = random_between(random, 1, 4);
    if (!memory_fabric_options(sim->base.fabric)->no_windows && random_percent(random, 30)) {
        sim->failure = MEMORY_FAIL_WINDOW;
        nth = random_between(random, 1, 40);
    }
    simulation_tell(&sim->base, "attempt: failure %u, in %u calls", sim->failure, nth);
    memory_fabric_set_failures(sim->base.fabric, sim->failure, nth, CRPC_E_NO_RESOURCE);
}

void sim_trouble(struct sim *sim)
{
    struct random_generator *random = &sim->base.random;
    struct sim_engine *engine = &sim->engines[random_below(random, sim->engine_count)];
    struct sim_side *side = &sim->sides[random_below(random, sim->side_count)];
    uint32_t choice = random_below(random, 100);
    if (choice < 5) {
        fail_attempt(sim);
    } else if (choice < 55) {
        link_down(sim, engine, random_below(random, CHANNEL_RAILS_MAX));
    } else if (choice < 57 && !sim->careful) {
        link_down(sim, engine, 0);
        link_down(sim, engine, 1);
    } else if (choice < 58 && !sim->careful) {
        cut_nics(sim, engine);
    } else if (side->channel && choice < 80) {
        kill_queue_pair(sim, side);
    } else if (side->channel) {
        stall(sim, side);
    }
}
