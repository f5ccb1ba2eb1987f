/* simulate.c: runs episodes of the simulation and prints TAP.
 *
 *   channel_simulate [--seed S] [--steps N] [--episode-steps N] [--episodes N] [--one] [--verbose]
 *
 * Without --seed it takes fixed ones. An episode's own seed is printed when it fails, and replays
 * it alone (--one).
 */
#include "sim.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAIN_ROUNDS 4000

/* ---- The end of an episode: the trouble ends, everything completes, everybody takes leave ----- */

static void drain_once(struct sim *sim)
{
    sim->step++;
    memory_fabric_run(sim->fabric, sim->abrupt ? random_between(&sim->random, 1, 60) : 200);
    sim->clock_ns += 100000;
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        sim_poll(sim, &sim->engines[i], 64);
    }
}

static bool ops_over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_side *side = &sim->sides[i];
        if (side->sends_completed != side->send_count ||
            side->messages_completed != side->message_count ||
            side->cancels_completed != side->cancels_submitted ||
            (side->room_due && side->channel && !side->disconnected_seen)) {
            return false;
        }
    }
    return true;
}

/* True if the side's rails are as they should be when nothing has gone wrong for long. */
static bool rails_are_up(const struct sim_side *side)
{
    if (!side->channel || !side->connected_seen || side->disconnected_seen || side->leave_asked ||
        side->peer->leave_asked || sim_excused(side)) {
        return true;
    }
    for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
        crpc_channel_info info;
        channel_info(side->channel, &info);
        if (channel_rails(side->channel) & 1u << rail && info.rail_state[rail] != CRPC_RAIL_UP) {
            return false;
        }
    }
    return true;
}

static bool rails_over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        if (!rails_are_up(&sim->sides[i]) ||
            (!sim_excused(&sim->sides[i]) && !sim->sides[i].connected_seen &&
             !sim->sides[i].closed)) {
            return false;
        }
    }
    return true;
}

static bool over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_side *side = &sim->sides[i];
        if (!side->closed && !side->disconnected_seen && !side->connect_failed) {
            return false;
        }
    }
    return ops_over(sim);
}

/* A side that cannot come to its end by itself is the only one that may be ended by force. */
static void end_side(struct sim_side *side)
{
    if (!side->channel || side->disconnected_seen || side->connect_failed) {
        return;
    }
    if (!side->connected_seen) {
        if (!sim_excused(side)) {
            return; /* its books are checked in the end */
        }
        link_close(&side->channel->link);
        side->channel = NULL;
        side->closed = true;
        return;
    }
    if (!side->leave_asked) {
        sim_leave(side, sim_excused(side) ? 50000000 : CRPC_FOREVER);
    } else if (sim_excused(side)) {
        /* It waits for a peer that is gone, or whose sends it will not receive. */
        link_close(&side->channel->link);
        side->channel = NULL;
        side->closed = true;
    }
}

static void drain(struct sim *sim)
{
    uint32_t round;
    sim_mend(sim, true);
    uint32_t rounds = sim->abrupt ? random_below(&sim->random, 8) : DRAIN_ROUNDS;
    for (round = 0; round < rounds && !sim->failed; round++) {
        drain_once(sim);
        if (round % 4 == 3) {
            for (uint32_t i = 0; i < sim->side_count && !sim->failed; i++) {
                sim_answer(sim, &sim->sides[i]);
            }
        }
        if (ops_over(sim) && rails_over(sim)) {
            break;
        }
    }
    for (uint32_t i = 0; i < sim->side_count && !sim->failed && !sim->abrupt; i++) {
        const struct sim_side *side = &sim->sides[i];
        bool done = side->sends_completed == side->send_count &&
                    side->messages_completed == side->message_count;
        bool expected = !sim_excused(side) && !side->leave_asked && !side->peer->leave_asked;
        if (expected && !done) {
            sim_fail(sim, "side %u: deadlock: %u sends and %u messages do not end", i,
                     side->send_count - side->sends_completed,
                     side->message_count - side->messages_completed);
        }
        if (expected && side->room_due && side->channel && side->connected_seen) {
            sim_fail(sim, "side %u: room was never reported", i);
        }
        if (!rails_are_up(side)) {
            sim_fail(sim, "side %u: a rail does not come back", i);
        }
    }
    for (uint32_t i = 0; i < sim->side_count && !sim->failed; i++) {
        end_side(&sim->sides[i]);
    }
    for (round = 0; round < DRAIN_ROUNDS && !sim->failed && !over(sim); round++) {
        drain_once(sim);
        for (uint32_t i = 0; i < sim->side_count && !sim->failed; i++) {
            if (!sim->sides[i].leave_asked) { /* connected only now */
                end_side(&sim->sides[i]);
            }
        }
    }
}

uint64_t sim_episode(struct sim *sim, uint64_t seed, uint64_t steps)
{
    sim_open(sim, seed);
    if (random_percent(&sim->random, 25)) { /* ends while channels still connect, or have just */
        steps = minimum(steps, random_between(&sim->random, 20, 1500));
    }
    for (; sim->step < steps && !sim->failed; sim->step++) {
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

/* What a stuck channel looks like. */
static void describe(const struct sim *world)
{
    for (uint32_t i = 0; i < world->side_count; i++) {
        const struct sim_side *side = &world->sides[i];
        const struct channel *channel = side->channel;
        printf("# side %u (engine %u): sends %u/%u, messages %u/%u, posted %u%s%s%s%s\n", i,
               side->engine->index, side->sends_completed, side->send_count,
               side->messages_completed, side->message_count, side->sends_seen,
               side->excused ? ", excused" : "", side->closed ? ", closed" : "",
               side->leave_asked ? ", left" : "", side->disconnected_seen ? ", over" : "");
        if (!channel) {
            continue;
        }
        printf("#   state %u, %s, slots %u, queue pairs %u, head %u of %u, told %" PRIu64
               ", repeated %u, repeats %u, bye %d%d%d, in %u out %u\n",
               channel->link.state, !channel->link.passive ? "active" : "passive",
               channel->slot_mask + 1, channel->queue_pairs, channel->head.filled,
               channel->head.count, channel->cts_number, channel->cts_repeat_rail, channel->repeats,
               channel->bye_wanted, channel->bye_sent, channel->bye_received, channel->in_sequence,
               channel->out_sequence);
        printf("#   messages received %" PRIu64 ", BYE tells of %" PRIu64 "; outbox",
               channel->stats.messages_received, channel->bye.sent);
        for (uint32_t place = 0; place < CHANNEL_INBOX_MESSAGES; place++) {
            printf(" %u", (channel->outbox_unsent >> place & 1) +
                              (channel->outbox_posted >> place & 1) * 2);
        }
        printf("; %s\n", channel->link.error.message);
        for (uint32_t r = 0; r < CHANNEL_RAILS_MAX; r++) {
            const struct channel_rail *rail = &channel->rails[r];
            printf("#   rail %u: state %d, fence %d, epoch %u, wanted report %d offer %d answer "
                   "%d, known %d\n",
                   r, rail->state, rail->fence, rail->epoch, rail->report_wanted,
                   rail->offer_wanted, rail->answer_wanted, rail->report_known);
        }
    }
}

/* ---- Command line ---------------------------------------------------------------------------- */

static struct sim sim;

struct plan {
    uint64_t seed;
    uint64_t steps;
    uint64_t episode_steps;
    uint64_t episodes; /* at the most */
};

static bool run_batch(const struct plan *plan, uint32_t number, bool one)
{
    uint64_t taken = 0, episodes = 0, state = plan->seed;
    uint64_t sent = 0, truncated = 0, repeated = 0, failures = 0, recoveries = 0;
    while (taken < plan->steps && episodes < plan->episodes) {
        uint64_t episode_seed = one ? plan->seed : random_split(&state);
        taken += sim_episode(&sim, episode_seed, plan->episode_steps);
        episodes++;
        sent += sim.sent;
        truncated += sim.truncated;
        repeated += sim.repeated;
        failures += sim.failures;
        recoveries += sim.recoveries;
        if (sim.failed) {
            printf("not ok %u - simulation, seed %" PRIu64 "\n", number, plan->seed);
            printf("# step %" PRIu64 ": %s\n", sim.step, sim.failure);
            printf("# replay: channel_simulate --seed %" PRIu64 " --one --episode-steps %" PRIu64
                   "\n",
                   episode_seed, plan->episode_steps);
            describe(&sim);
            return false;
        }
        if (one) {
            break;
        }
    }
    printf("ok %u - seed %" PRIu64 ": %" PRIu64 " steps, %" PRIu64 " episodes\n", number,
           plan->seed, taken, episodes);
    printf("# %" PRIu64 " messages, %" PRIu64 " truncated ops, %" PRIu64 " rail failures, %" PRIu64
           " recoveries, %" PRIu64 " shares repeated\n",
           sent, truncated, failures, recoveries, repeated);
    return true;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"episode-steps", required_argument, NULL, 'e'},
                                            {"episodes", required_argument, NULL, 'p'},
                                            {"one", no_argument, NULL, '1'},
                                            {"verbose", no_argument, NULL, 'v'},
                                            {0}};
    struct plan plan = {.seed = 1, .steps = 1000000, .episode_steps = 5000, .episodes = UINT64_MAX};
    bool one = false, seed_given = false;
    int option;
    while ((option = getopt_long(argc, argv, "s:n:e:p:1v", options, NULL)) != -1) {
        switch (option) {
        case 's':
            plan.seed = strtoull(optarg, NULL, 0);
            seed_given = true;
            break;
        case 'n':
            plan.steps = strtoull(optarg, NULL, 0);
            break;
        case 'e':
            plan.episode_steps = strtoull(optarg, NULL, 0);
            break;
        case 'p':
            plan.episodes = strtoull(optarg, NULL, 0);
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
    plan.steps /= batches;
    bool good = true;
    printf("1..%u\n", batches);
    for (uint32_t i = 0; i < batches; i++) {
        good &= run_batch(&plan, i + 1, one);
        plan.seed++;
        fflush(stdout);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
