/* simulate.c: an episode, and what the program says of it. See sim.h. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

#define DRAIN_ROUNDS 4000

/* ---- The end of an episode: the trouble ends, everything completes, everybody takes leave ----- */

static void drain_once(struct sim *sim)
{
    sim->base.step++;
    memory_fabric_run(sim->base.fabric,
                      sim->abrupt ? random_between(&sim->base.random, 1, 60) : 200);
    sim->base.clock_ns += 100000;
    sim_late(sim, !sim->abrupt || random_percent(&sim->late.random, 20));
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        sim_poll_or_sleep(sim, &sim->engines[i]);
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
             !sim->sides[i].connect_failed && !sim->sides[i].closed)) {
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
        side->engine->asleep = false;
        side->channel = NULL;
        side->closed = true;
        return;
    }
    if (!side->leave_asked) {
        sim_leave(side, sim_excused(side) ? 50000000 : CRPC_FOREVER);
    } else if (sim_excused(side)) {
        /* It waits for a peer that is gone, or whose sends it will not receive. */
        link_close(&side->channel->link);
        side->engine->asleep = false;
        side->channel = NULL;
        side->closed = true;
    }
}

void sim_drain(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    uint32_t round;
    sim_mend(sim, true);
    uint32_t rounds = sim->abrupt ? random_below(&sim->base.random, 8) : DRAIN_ROUNDS;
    for (round = 0; round < rounds && !sim->base.failed; round++) {
        drain_once(sim);
        if (round % 4 == 3) {
            for (uint32_t i = 0; i < sim->side_count && !sim->base.failed; i++) {
                sim_answer(sim, &sim->sides[i]);
            }
        }
        if (ops_over(sim) && rails_over(sim)) {
            break;
        }
    }
    for (uint32_t i = 0; i < sim->side_count && !sim->base.failed && !sim->abrupt; i++) {
        const struct sim_side *side = &sim->sides[i];
        bool done = side->sends_completed == side->send_count &&
                    side->messages_completed == side->message_count;
        bool expected = !sim_excused(side) && !side->leave_asked && !side->peer->leave_asked;
        if (expected && !done) {
            simulation_fail(&sim->base, "side %u: deadlock: %u sends and %u messages do not end", i,
                            side->send_count - side->sends_completed,
                            side->message_count - side->messages_completed);
        }
        if (expected && side->room_due && side->channel && side->connected_seen) {
            simulation_fail(&sim->base, "side %u: room was never reported", i);
        }
        if (!rails_are_up(side)) {
            simulation_fail(&sim->base, "side %u: a rail does not come back", i);
        }
    }
    for (uint32_t i = 0; i < sim->side_count && !sim->base.failed; i++) {
        end_side(&sim->sides[i]);
    }
    for (round = 0; round < DRAIN_ROUNDS && !sim->base.failed && !over(sim); round++) {
        drain_once(sim);
        for (uint32_t i = 0; i < sim->side_count && !sim->base.failed; i++) {
            if (!sim->sides[i].leave_asked) { /* connected only now */
                end_side(&sim->sides[i]);
            }
        }
    }
}

/* What a stuck channel looks like. */
void sim_describe(const struct simulation *base)
{
    const struct sim *sim = (const struct sim *)base;
    for (uint32_t i = 0; i < sim->side_count; i++) {
        const struct sim_side *side = &sim->sides[i];
        const struct channel *channel = side->channel;
        printf("# side %u (engine %u): sends %u/%u, messages %u/%u, posted %u%s%s%s%s\n", i,
               side->engine->index, side->sends_completed, side->send_count,
               side->messages_completed, side->message_count, side->sends_seen,
               side->excused ? ", excused" : "", side->closed ? ", closed" : "",
               side->leave_asked ? ", left" : "", side->disconnected_seen ? ", over" : "");
        if (!channel) {
            continue;
        }
        printf("#   state %u, %s, slots %u, queue pairs %u, head %u of %u over %u, granted %" PRIu64
               " and %" PRIu64 ", repeats %u, leave %d, peer %d, in %u out %u\n",
               channel->link.state, !channel->link.passive ? "active" : "passive",
               channel->slot_mask + 1, channel->queue_pairs, channel->send.head.filled,
               channel->send.head.clear.count, channel->send.head.clear.told,
               channel->receive.grant_number[0], channel->receive.grant_number[1],
               channel->send.repeats, channel->leave, channel->peer_leave,
               channel->control.in_sequence, channel->control.out_sequence);
        printf("#   messages received %" PRIu64 ", BYE tells of %" PRIu64 "; outbox",
               channel->stats.messages_received, channel->bye.sent);
        for (uint32_t place = 0; place < CHANNEL_INBOX_MESSAGES; place++) {
            printf(" %u", (channel->control.unsent >> place & 1) +
                              (channel->control.posted >> place & 1) * 2);
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

/* ---- The program ----------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static struct sim sim;
    static const char *const names[] = {"messages",
                                        "truncated ops",
                                        "rail failures",
                                        "recoveries",
                                        "failed attempts",
                                        "shares repeated",
                                        "sides with keys",
                                        "of them refused",
                                        "late tasks",
                                        "late pieces of payloads",
                                        NULL};
    const struct simulation_program program = {
        .name = "channel_simulate", .count_names = names, .counts = sim.counts};
    return simulation_main(argc, argv, &program, &sim.base);
}
