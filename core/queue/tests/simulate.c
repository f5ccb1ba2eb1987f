/* simulate.c: see sim.h. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

const struct nic_operations *const nic_drivers[] = {&nic_memory_operations, NULL};

#define DRAIN_ROUNDS 2000

/* ---- The world ------------------------------------------------------------------------------- */

static void choose_fabric(struct sim *sim)
{
    struct memory_fabric_options *options = memory_fabric_options(sim->base.fabric);
    struct random_generator *random = &sim->base.random;
    options->reuse_numbers = random_percent(random, 50);
    options->pieces_max = random_between(random, 1, 4);
    options->delay_percent = random_percent(random, 50) ? random_below(random, 40) : 0;
    options->delay_steps = random_between(random, 1, 100);
    options->transfer_weight = random_between(random, 1, 6);
    options->receive_weight = random_between(random, 1, 6);
    options->acknowledge_weight = random_between(random, 1, 6);
    options->flush_signaled_only = random_percent(random, 50);
    options->retry_steps = 200;
    options->datagrams_lost_percent = random_below(random, 20);
    sim->impatient = random_percent(random, 20);
    options->receiver_not_ready_fails = sim->impatient;
}

static void open_engine(struct sim *sim, struct sim_engine *engine, bool late)
{
    static uint32_t engines; /* addresses are the program's */
    const struct nic_options options = {
        .receive_depth = 16, .send_depth = 16, .send_completion_depth = 64, .signal_interval = 4};
    const uint32_t access = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE |
                            CRPC_ACCESS_REMOTE_READ | CRPC_ACCESS_REMOTE_ATOMIC;
    crpc_error error = {0};
    handles_init(&engine->handles);
    fake_cm_init(&engine->cm);
    engine->cm.late = late;
    engine->cm.begun = random_percent(&sim->base.random, 50);
    engine->cm.pads = random_percent(&sim->base.random, 50);
    engine->lost = false;
    memset(engine->memory, 0, sizeof(engine->memory));
    snprintf(engine->address, sizeof(engine->address), "engine %u", ++engines);
    if (memory_nic_open(sim->base.fabric, &options, &engine->nic, &error) != CRPC_OK ||
        queue_engine_create(engine->nic, &engine->cm, &sim->base.log, &engine->handles,
                            random_between(&sim->base.random, 8, 40), NULL, &sim->base.clock_ns,
                            &engine->engine, &error) != CRPC_OK ||
        engine->nic->operations->memory_register(engine->nic, NULL, engine->memory,
                                                 sizeof(engine->memory), 0, access, &engine->keys,
                                                 &error) != CRPC_OK ||
        link_listener_open(queue_links(engine->engine), engine->address, 8, 0, &engine->listener,
                           &error) != CRPC_OK) {
        simulation_fail(&sim->base, "cannot open an engine: %s", error.message);
    }
}

uint64_t sim_open(struct simulation *base, uint64_t seed, uint64_t steps)
{
    struct sim *sim = (struct sim *)base;
    simulation_open(base, seed);
    sim->queue_count = sim->op_count = 0;
    memset(sim->targets, 0, sizeof(sim->targets));
    sim->calm = random_percent(&base->random, 40);
    sim->much_dc = random_percent(&base->random, 30);
    sim->much_tags = !sim->much_dc && random_percent(&base->random, 45);
    sim->engine_count = random_between(&base->random, 2, SIM_ENGINES_MAX);
    choose_fabric(sim);
    bool late = random_percent(&base->random, 60);
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        open_engine(sim, &sim->engines[i], late);
    }
    sim->abrupt = random_percent(&base->random, 15);
    return sim->abrupt ? minimum(steps, random_between(&base->random, 20, 2000)) : steps;
}

void sim_close(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        struct sim_engine *engine = &sim->engines[i];
        queue_engine_destroy(engine->engine);
        engine->nic->operations->memory_deregister(engine->nic, &engine->keys);
        engine->nic->operations->close(engine->nic);
    }
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        fake_cm_end(&sim->engines[i].cm);
        handles_free(&sim->engines[i].handles);
    }
    simulation_close(base);
}

/* ---- The end of an episode ------------------------------------------------------------------- */

static void drain_once(struct sim *sim)
{
    memory_fabric_run(sim->base.fabric, 50);
    sim_tell_limits(sim);
    sim->base.clock_ns += 1000000;
    for (uint32_t i = 0; i < sim->engine_count && !sim->base.failed; i++) {
        fake_cm_step_all(&sim->engines[i].cm);
        sim_poll(sim, &sim->engines[i], SIM_CAPACITY_MAX);
    }
}

/* What a TM-SRQ has not in common with its device. While messages come in, that may be. What the device keeps for one
 * whose sender has ended is not done, nor is it waited for. */
static const char *tags_undone(const struct nic_queue *nic)
{
    if (!nic || !nic->tags || nic->stopped || nic->sends.consumer != nic->sends.producer) {
        return NULL;
    }
    const struct memory_tag_counts counts = memory_fabric_tags(nic);
    return counts.listed + counts.cut_matched != nic->tags->open
               ? "waits for tags that its device has not"
           : (uint16_t)(counts.unexpected - counts.cut_unexpected) != (uint16_t)nic->tags->seen
               ? "has counted other messages than its device"
               : NULL;
}

/* What connects does so or is given up; what was asked to drain, does; what has failed is over. What has
 * begun to come in to a TM-SRQ is there. */
static bool settled(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        if (queue_something_waits(sim->engines[i].engine)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        const struct sim_queue *one = &sim->queues[i];
        if (one->queue && tags_undone(one->queue->nic)) {
            return false;
        }
        if (!one->queue || one->asked || one->is_srq || one->disconnected || one->refused) {
            continue;
        }
        if (one->queue->link.state == CRPC_STATE_CONNECTING || one->queue->link.failing) {
            return false;
        }
    }
    return true;
}

/* What a close would hide. */
static const char *left_undone(const struct queue *queue)
{
    const struct nic_queue *nic = queue->nic;
    if (!nic) {
        return NULL;
    }
    if (nic->ended_first != NIC_QUEUE_NO_ENTRY) {
        return "keeps receives that have ended";
    }
    if (queue->link.state == CRPC_STATE_DISCONNECTED && queue_has_open(queue)) {
        return "is over and has ops open";
    }
    if ((queue->refused_send && nic->sends.consumer != queue->refused_at) ||
        (queue->refused_receive && nic->receives_open < nic->receives_max) ||
        (queue->refused_add && nic_tags_room(nic, NIC_TAG_ADD)) ||
        (queue->refused_command && nic_tags_room(nic, NIC_TAG_SYNC))) {
        return "has room and does not say so";
    }
    if (queue->link.state == CRPC_STATE_CLOSING && queue_sends_open(queue) &&
        nic->table == NIC_TABLE_SPARSE && nic->interval > 1 && !queue->nop &&
        nic_queue_send_room(nic) > 0) {
        return "drains and does not ask for its last ops";
    }
    return tags_undone(nic);
}

static void check_settled(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->queue_count && !sim->base.failed; i++) {
        const struct queue *queue = sim->queues[i].queue;
        const char *fault = queue ? left_undone(queue) : NULL;
        if (queue && sim->queues[i].limit_due && !sim->queues[i].disconnected) {
            fault = "never told that its limit was reached";
        }
        if (fault) {
            simulation_fail(&sim->base, "queue %u %s", i, fault);
        }
    }
}

/* First what has begun ends by itself; then queues are closed, whatever is open. */
void sim_drain(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    uint32_t round;
    if (sim->abrupt) {
        return;
    }
    for (round = 0; round < DRAIN_ROUNDS && !base->failed; round++) {
        drain_once(sim);
        if (round > 20 && settled(sim)) {
            break;
        }
    }
    check_settled(sim);
    if (round == DRAIN_ROUNDS) {
        simulation_fail(base, "a queue neither connects nor ends");
    }
    sim_check_dc(sim);
    for (uint32_t srqs = 0; srqs < 2; srqs++) {
        for (uint32_t i = 0; i < sim->queue_count && !base->failed; i++) {
            struct sim_queue *one = &sim->queues[i];
            if (one->queue && one->is_srq == (srqs == 1)) {
                sim_close_queue(sim, one);
            }
        }
    }
    for (round = 0; round < 400 && !base->failed; round++) {
        drain_once(sim);
    }
}

void sim_describe(const struct simulation *base)
{
    const struct sim *sim = (const struct sim *)base;
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        const struct sim_queue *one = &sim->queues[i];
        printf("# queue %u of engine %u%s%s%s%s%s%s%s%s%s", i,
               (uint32_t)(one->engine - sim->engines),
               one->is_tags        ? ", TM-SRQ"
               : one->is_srq       ? ", SRQ"
               : one->is_datagrams ? ", datagrams"
               : one->is_dct       ? ", DCT"
               : one->streams > 0  ? ", DCI with streams"
               : one->is_dci       ? ", DCI"
                                   : "",
               one->sparse ? ", sparse" : "", one->asked ? ", asked" : "",
               one->connected ? ", connected" : "", one->refused ? ", refused" : "",
               one->draining ? ", draining" : "", one->disconnected ? ", disconnected" : "",
               one->closed ? ", closed" : "", one->room_due ? ", room due" : "");
        if (one->queue && one->queue->nic) {
            const struct nic_queue *nic = one->queue->nic;
            printf("; state %u, sends %u to %u, receives %u%s%s", one->queue->link.state,
                   nic->sends.consumer, nic->sends.producer, nic->receives_open,
                   nic->failed ? ", failed" : "", nic->stopped ? ", stopped" : "");
        }
        printf("\n");
    }
}

/* ---- The program ----------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static struct sim sim;
    static const char *const names[] = {"ops",           "with an error",   "refusals",
                                        "connections",   "closes",          "drains",
                                        "lost devices",  "datagrams",       "messages to DCTs",
                                        "matched tags",  "tags taken back", "streams failed",
                                        "stream resets", "limits",          NULL};
    const struct simulation_program program = {
        .name = "queue_simulate", .count_names = names, .counts = sim.counts};
    return simulation_main(argc, argv, &program, &sim.base);
}
