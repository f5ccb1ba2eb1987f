/* sim_datagram.c: see sim.h. Targets are here, too. Each datagram brings the number of its op. It arrives where its target says, or
 * nowhere, and at most once. Numbers of queue pairs may be used again, so each queue has a key of its own. */
#include "sim.h"

#include <string.h>

#define HEADER NIC_DATAGRAM_HEADER_BYTES

static uint32_t key_of(const struct sim *sim, const struct sim_queue *one)
{
    return 1 + index_of(sim, one);
}

/* ---- Queues and targets ---------------------------------------------------------------------- */

void sim_open_datagrams(struct sim *sim, struct sim_queue *one, const struct queue_options *given)
{
    struct queue_options options = *given;
    crpc_error error = {0};
    options.kind = NIC_QUEUE_UD;
    options.queue_key = key_of(sim, one);
    options.private_bytes = 0;
    one->is_datagrams = true;
    sim_expect_made(sim, one, queue_open(one->engine->engine, &options, &one->queue, &error));
    if (one->made) {
        one->connected = true; /* without an event */
        one->handle = one->queue->link.handle;
        one->number = one->queue->number;
    } else {
        one->queue = NULL;
    }
}

/* One that ops can go to. */
static struct sim_queue *any_addressee(struct sim *sim)
{
    for (uint32_t tries = 0; tries < 12 && sim->queue_count > 0; tries++) {
        struct sim_queue *one = &sim->queues[below(sim, sim->queue_count)];
        if (one->queue && (one->is_datagrams || one->is_dct)) {
            return one;
        }
    }
    return NULL;
}

static struct sim_target *free_target(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_TARGETS_MAX; i++) {
        if (!sim->targets[i].target) {
            return &sim->targets[i];
        }
    }
    return NULL;
}

static void open_target(struct sim *sim)
{
    struct sim_target *place = free_target(sim);
    struct sim_queue *to = any_addressee(sim);
    struct sim_engine *engine = &sim->engines[below(sim, sim->engine_count)];
    struct queue_info info;
    crpc_error error = {0};
    if (!place || !to) {
        return;
    }
    bool wrong = chance(sim, 10);
    queue_get_info(to->queue, &info);
    struct nic_target_options options = {.kind = NIC_QUEUE_UD, .address = info.address};
    if (to->is_dct) {
        options.kind = NIC_QUEUE_DCI;
        options.access_key = wrong ? 12345 : sim_access_key(sim, to);
    } else {
        options.queue_key = wrong ? 12345 : key_of(sim, to);
    }
    *place = (struct sim_target){.engine = engine, .to = wrong ? NULL : to, .kind = options.kind};
    int32_t status = queue_target_open(engine->engine, &options, &place->target, &error);
    if (status != CRPC_OK &&
        status != (info.address.queue_pair_number == 0 ? CRPC_E_PROTOCOL : CRPC_E_NO_DEVICE)) {
        simulation_fail(&sim->base, "a target is not made: %s", error.message);
    }
    if (status == CRPC_E_NO_DEVICE && !engine->lost) {
        simulation_fail(&sim->base, "a target finds no device");
    }
}

void sim_close_target(struct sim_target *one)
{
    queue_target_close(one->target);
    one->target = NULL;
}

void sim_change_targets(struct sim *sim)
{
    struct sim_target *one = &sim->targets[below(sim, SIM_TARGETS_MAX)];
    if (one->target && chance(sim, 50)) {
        sim_close_target(one);
    } else {
        open_target(sim);
    }
}

struct sim_target *sim_any_target(struct sim *sim, const struct sim_engine *engine, uint32_t kind)
{
    for (uint32_t tries = 0; tries < 20; tries++) {
        struct sim_target *one = &sim->targets[below(sim, SIM_TARGETS_MAX)];
        if (one->target && one->engine == engine && one->kind == kind) {
            return one;
        }
    }
    return NULL;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

bool sim_send_datagram(struct sim *sim, struct sim_queue *one, int32_t *reason)
{
    const uint32_t number = sim->op_count;
    const bool bad = !sim->calm && chance(sim, 1) && chance(sim, 30);
    const size_t slot = (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
    const uint64_t brought = number;
    struct sim_target *target = sim_any_target(sim, one->engine, NIC_QUEUE_UD);
    const uint32_t key = one->engine->keys.local_key ^ (bad ? 0x5500 : 0);
    struct nic_work work = {.opcode = chance(sim, 50) ? NIC_SEND : NIC_SEND_IMMEDIATE,
                            .flags = (uint8_t)((chance(sim, 40) ? NIC_WORK_SIGNAL : 0) |
                                               (!bad && chance(sim, 50) ? NIC_WORK_INLINE : 0)),
                            .immediate = number,
                            .user_data = number,
                            .address = (uint64_t)(uintptr_t)one->engine->memory + slot,
                            .bytes = sizeof(brought)};
    if (!target) {
        return false;
    }
    memcpy(one->engine->memory + slot, &brought, sizeof(brought));
    sim->ops[number] = (struct sim_op){.queue = one,
                                       .opcode = work.opcode,
                                       .bad = bad,
                                       .silent = one->sparse && !(work.flags & NIC_WORK_SIGNAL),
                                       .to = target->to};
    struct nic_target *const to = queue_target_nic(target->target);
    uint32_t taken = queue_submit_to(one->queue, &work, &to, &key, NULL, 1, reason);
    simulation_tell(&sim->base, "queue %u: datagram %u: %d", index_of(sim, one), number, *reason);
    sim->op_count += taken;
    if (taken == 1 && chance(sim, 5)) {
        queue_submit_end(one->queue); /* a target is closed when ops that name it have been rung */
        sim_close_target(target);
    }
    return taken == 1;
}

/* An answer would go to where it came from, if the key were the same. */
static void check_source(struct sim *sim, struct sim_queue *one, struct sim_queue *from,
                         const crpc_completion *completion, const uint8_t *header)
{
    struct sim_target *place = free_target(sim);
    crpc_error error = {0};
    if (!one->queue || !place || !chance(sim, 20)) {
        return;
    }
    int32_t status = queue_target_of(one->queue, completion, header, &place->target, &error);
    if (status != CRPC_OK) {
        if (!one->engine->lost) {
            simulation_fail(&sim->base, "a datagram comes from nowhere: %s", error.message);
        }
        return;
    }
    const struct nic_target_options *options = queue_target_options(place->target);
    if (options->address.queue_pair_number != from->number ||
        memcmp(options->address.gid, from->engine->nic->gid, 16) != 0) {
        simulation_fail(&sim->base, "a datagram of queue %u comes from elsewhere",
                        index_of(sim, from));
    }
    place->engine = one->engine;
    place->kind = NIC_QUEUE_UD;
    place->to = from == one ? one : NULL;
}

void sim_check_datagram(struct sim *sim, struct sim_queue *one, uint32_t number,
                        const crpc_completion *completion)
{
    const uint8_t *place = one->engine->memory + (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
    uint64_t brought;
    memcpy(&brought, place + HEADER, sizeof(brought));
    if (completion->payload_bytes != HEADER + sizeof(brought) || brought >= sim->op_count) {
        simulation_fail(&sim->base, "queue %u: a datagram of %u bytes that nobody has sent",
                        index_of(sim, one), completion->payload_bytes);
        return;
    }
    struct sim_op *op = &sim->ops[brought];
    bool immediate = op->opcode == NIC_SEND_IMMEDIATE;
    if (op->to != one || op->arrived || op->bad || completion->token != op->queue->number ||
        !(completion->flags & NIC_DONE_GRH) ||
        !(completion->flags & NIC_DONE_IMMEDIATE) == immediate ||
        completion->reply_bytes_max != (immediate ? (uint32_t)brought : 0)) {
        simulation_fail(&sim->base, "queue %u: datagram %llu is another's, or came before",
                        index_of(sim, one), (unsigned long long)brought);
    }
    op->arrived = true;
    sim->counts[SIM_DATAGRAMS]++;
    check_source(sim, one, op->queue, completion, place);
}

void sim_check_targets(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_TARGETS_MAX; i++) {
        if (sim->targets[i].target) {
            sim_close_target(&sim->targets[i]);
        }
    }
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        const struct queue_engine *engine = sim->engines[i].engine;
        queue_release_targets(sim->engines[i].engine);
        if (!list_empty(&engine->targets) || !list_empty(&engine->targets_closed) ||
            !list_empty(&engine->targets_leaving)) {
            simulation_fail(&sim->base, "engine %u keeps targets", i);
        }
    }
    if (memory_fabric_counters(sim->base.fabric)->targets > 0) {
        simulation_fail(&sim->base, "targets were forgotten");
    }
}
