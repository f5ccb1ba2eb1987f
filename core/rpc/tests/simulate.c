/* simulate.c: runs episodes of the simulation and prints TAP.
 *
 *   simulate [--seed S] [--steps N] [--episode-steps N] [--verbose]
 *
 * Without --seed it takes a fixed one. An episode's own seed is printed when it fails, and
 * replays it alone.
 */
#include "sim.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAIN_ROUNDS 6000

/* ---- The end of an episode: everybody polls, answers, and takes leave ------------------------ */

static void drain_once(struct sim *sim)
{
    memory_fabric_run(sim->fabric, 200);
    sim->clock_ns += 200000;
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
            side->cancels_completed != side->cancels_submitted ||
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

/* First calls come to their end by themselves; then all take leave, those too whose peer is
 * gone. */
static void drain(struct sim *sim)
{
    uint32_t round;
    for (round = 0; round < DRAIN_ROUNDS && !sim->failed && !calls_over(sim); round++) {
        drain_once(sim);
    }
    if (!calls_over(sim)) {
        /* A side without keepalive cannot notice that its peer is gone; its leave will. */
        for (uint32_t i = 0; i < sim->side_count; i++) {
            const struct sim_side *side = &sim->sides[i];
            if (side->calls_completed != side->call_count && !sim_excused(side)) {
                sim_fail(sim, "side %u: deadlock: %u calls do not end", i,
                         side->call_count - side->calls_completed);
            }
        }
    }
    for (uint32_t i = 0; i < sim->side_count; i++) {
        struct sim_side *side = &sim->sides[i];
        if (side->endpoint && !side->disconnected_seen) {
            /* With a time limit only where nothing else could end it: the peer is gone. */
            uint64_t timeout_ns = sim_excused(side) ? 50000000 : CRPC_FOREVER;
            if (link_disconnect(&side->endpoint->link, timeout_ns) == CRPC_OK) {
                side->leave_asked = true;
            }
        }
    }
    for (round = 0; round < DRAIN_ROUNDS && !sim->failed && !over(sim); round++) {
        drain_once(sim);
    }
}

uint64_t sim_episode(struct sim *sim, uint64_t seed, uint64_t steps)
{
    sim_open(sim, seed);
    for (sim->step = 0; sim->step < steps && !sim->failed; sim->step++) {
        sim_act(sim);
        sim_check_fabric(sim);
    }
    uint64_t taken = sim->step;
    if (!sim->failed) {
        drain(sim);
        sim_check_fabric(sim);
        sim_check_books(sim);
    }
    if (!sim->failed) {
        sim_close(sim);
    }
    return taken;
}

/* What a stuck connection looks like. */
static void describe(const struct sim *world)
{
    for (uint32_t i = 0; i < world->side_count; i++) {
        const struct sim_side *side = &world->sides[i];
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
               endpoint->link.state, endpoint->batches_sent, endpoint->batch_limit,
               endpoint->batch_messages, endpoint->request_produced, endpoint->request_limit,
               endpoint->reply_outstanding, endpoint->reply_budget);
        printf("#   send queue %u of %u, owed %u, fin %d/%d/%d, slots %u, read %d, on work %d\n",
               endpoint->link.queue_pair ? endpoint->link.queue_pair->completed : 0,
               endpoint->link.queue_pair ? endpoint->link.queue_pair->posted : 0,
               endpoint->owed_count, endpoint->fin_wanted, endpoint->fin_sent,
               endpoint->fin_received, endpoint->calls_used, endpoint->read_in_flight,
               list_linked(&endpoint->work_link));
    }
}

/* ---- Command line ---------------------------------------------------------------------------- */

static struct sim sim;

static bool run_batch(uint64_t seed, uint64_t steps, uint64_t episode_steps, uint32_t number,
                      bool one)
{
    uint64_t taken = 0, episodes = 0, state = seed;
    uint64_t calls = 0, refusals = 0, late = 0, reads = 0, lies = 0, noticed = 0;
    while (taken < steps) {
        uint64_t episode_seed = one ? seed : random_split(&state);
        taken += sim_episode(&sim, episode_seed, episode_steps);
        episodes++;
        calls += sim.calls;
        refusals += sim.refusals;
        late += sim.late;
        reads += sim.reads;
        lies += sim.lies;
        noticed += sim.lies_noticed;
        if (sim.failed) {
            printf("not ok %u - simulation, seed %" PRIu64 "\n", number, seed);
            printf("# step %" PRIu64 ": %s\n", sim.step, sim.failure);
            printf("# replay: simulate --seed %" PRIu64 " --one --episode-steps %" PRIu64 "\n",
                   episode_seed, episode_steps);
            describe(&sim);
            return false;
        }
        if (one) {
            break;
        }
    }
    printf("ok %u - seed %" PRIu64 ": %" PRIu64 " steps, %" PRIu64 " episodes\n", number, seed,
           taken, episodes);
    printf("# %" PRIu64 " calls, %" PRIu64 " refusals, %" PRIu64 " late replies, %" PRIu64
           " mailbox READs, %" PRIu64 " lies, %" PRIu64 " of them noticed\n",
           calls, refusals, late, reads, lies, noticed);
    return true;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"episode-steps", required_argument, NULL, 'e'},
                                            {"one", no_argument, NULL, '1'},
                                            {"verbose", no_argument, NULL, 'v'},
                                            {0}};
    uint64_t seed = 1, steps = 1000000, episode_steps = 5000;
    bool one = false, seed_given = false;
    int option;
    while ((option = getopt_long(argc, argv, "s:n:e:1v", options, NULL)) != -1) {
        switch (option) {
        case 's':
            seed = strtoull(optarg, NULL, 0);
            seed_given = true;
            break;
        case 'n':
            steps = strtoull(optarg, NULL, 0);
            break;
        case 'e':
            episode_steps = strtoull(optarg, NULL, 0);
            break;
        case '1':
            one = true;
            break;
        case 'v':
            sim.verbose = true;
            break;
        default:
            return 2;
        }
    }
    /* Several seeds, so that one that is replayed is never far from its beginning. */
    uint32_t batches = seed_given ? 1 : 10;
    bool good = true;
    printf("1..%u\n", batches);
    for (uint32_t i = 0; i < batches; i++) {
        good &= run_batch(seed + i, steps / batches, episode_steps, i + 1, one);
        fflush(stdout);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
