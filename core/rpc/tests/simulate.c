/* simulate.c: an episode, and what the program says of it. See sim.h. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

#define DRAIN_ROUNDS 6000

/* ---- The end of an episode: everybody polls, answers, and takes leave ------------------------ */

static void drain_once(struct sim *sim)
{
    memory_fabric_run(sim->base.fabric, 200);
    sim->base.clock_ns += 200000;
    sim_late(sim, true);
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        if (side->endpoint && side->reserved) {
            sim_finish_reservation(side);
        }
        while (sim_answer(side)) {
        }
    }
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        sim_poll(&sim->engines[i], sim, SIM_VIEWS_MAX);
    }
}

static bool over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_side *side = &sim->sides[i];
        if (side->calls_completed != side->call_count ||
            side->replies_completed != side->replies_submitted ||
            side->cancels_completed != side->cancels_submitted || !sim_lane_over(side) ||
            (!side->closed && !side->disconnected_seen)) {
            return false;
        }
    }
    return true;
}

static bool calls_over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (sim->sides[i].calls_completed != sim->sides[i].call_count) {
            return false;
        }
    }
    return true;
}

static bool connecting(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (!sim->sides[i].closed && !sim->sides[i].connected_seen) {
            return true;
        }
    }
    return false;
}

/* First all are connected or given up, and calls come to their end by themselves; then all take leave, those too whose peer is
 * gone. */
void sim_drain(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    uint32_t round;
    if (sim->abrupt) {
        return;
    }
    for (round = 0; round < DRAIN_ROUNDS && !sim->base.failed && connecting(sim); round++) {
        drain_once(sim);
    }
    for (round = 0; round < DRAIN_ROUNDS && !sim->base.failed && !calls_over(sim); round++) {
        drain_once(sim);
    }
    if (!calls_over(sim)) {
        /* A side without keepalive cannot notice that its peer is gone; its leave will. */
        for (uint32_t i = 0; i < sim->side_count; i++) {
            const struct sim_side *side = &sim->sides[i];
            if (side->calls_completed != side->call_count && !sim_excused(side)) {
                simulation_fail(&sim->base, "side %u: deadlock: %u calls do not end", i,
                                side->call_count - side->calls_completed);
            }
        }
    }
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        if (side->endpoint && !side->disconnected_seen) {
            sim_lane_last(side);
            /* With a time limit only where nothing else could end it: the peer is gone. */
            uint64_t timeout_ns = sim_excused(side) ? 50000000 : CRPC_FOREVER;
            if (link_disconnect(&side->endpoint->link, timeout_ns) == CRPC_OK) {
                side->leave_asked = true;
            }
        }
    }
    for (round = 0; round < DRAIN_ROUNDS && !sim->base.failed && !over(sim); round++) {
        drain_once(sim);
    }
}

/* What a stuck connection looks like. */
void sim_describe(const struct simulation *base)
{
    const struct sim *sim = (const struct sim *)base;
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_side *side = &sim->sides[i];
        const struct rpc_endpoint *endpoint = side->endpoint;
        printf("# side %u: calls %u/%u, open requests %u%s%s%s%s\n", i, side->calls_completed,
               side->call_count, side->request_count, side->troubled ? ", troubled" : "",
               side->closed ? ", closed" : "", side->leave_asked ? ", left" : "",
               side->disconnected_seen ? ", over" : "");
        if (!endpoint) {
            continue;
        }
        printf("#   state %u, batches %" PRIu64 " of %" PRIu64
               ", messages waiting %u, requests %" PRIu64 " of %" PRIu64 ", reply room %" PRIu64
               " of %" PRIu64 "\n",
               endpoint->link.state, endpoint->out.batches_sent, endpoint->out.batch_limit,
               endpoint->out.batch_messages, endpoint->out.request_produced,
               endpoint->out.request_limit, endpoint->calls.reply_outstanding,
               endpoint->calls.reply_budget);
        printf("#   send queue %u of %u, owed %u, leave %d, its fin %d, slots %u, read %d, on work "
               "%d\n",
               endpoint->link.queue_pair ? endpoint->link.queue_pair->completed : 0,
               endpoint->link.queue_pair ? endpoint->link.queue_pair->posted : 0,
               endpoint->owed.count, endpoint->leave, endpoint->in.fin, endpoint->calls.used,
               endpoint->read.in_flight, list_linked(&endpoint->work_link));
    }
}

/* ---- The program ----------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static struct sim sim;
    static const char *const names[] = {"calls",
                                        "refusals",
                                        "late replies",
                                        "mailbox READs",
                                        "lies",
                                        "of them noticed",
                                        "sides with keys",
                                        "of them refused",
                                        "late tasks",
                                        "of them of what was over",
                                        "ops of lanes",
                                        "grants",
                                        "of them revoked",
                                        "lanes made again",
                                        "payloads from regions",
                                        "of them in arenas",
                                        "calls taken out of their batch",
                                        "rings that grew",
                                        "windows given back",
                                        "requests abandoned",
                                        "calls not started",
                                        "calls over shared initiators",
                                        "requests with a trace",
                                        "late pieces of payloads",
                                        NULL};
    const struct simulation_program program = {
        .name = "simulate", .count_names = names, .counts = sim.counts};
    return simulation_main(argc, argv, &program, &sim.base);
}
