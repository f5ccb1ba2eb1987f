/* sim_act.c: see sim.h. */
#include "sim.h"

#include <string.h>

/* ---- Polling --------------------------------------------------------------------------------- */

void sim_poll(struct sim *sim, struct sim_engine *engine, uint32_t capacity)
{
    crpc_completion completions[SIM_CAPACITY_MAX];
    if (chance(sim, 20)) {
        queue_progress(engine->engine);
    }
    uint32_t count = queue_poll(engine->engine, completions, capacity);
    if (count > capacity) {
        simulation_fail(&sim->base, "%u completions in an array of %u", count, capacity);
    }
    for (uint32_t i = 0; i < count && !sim->base.failed; i++) {
        sim_take(sim, engine, &completions[i]);
    }
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static uint32_t users_of(const struct sim *sim, const struct sim_queue *srq)
{
    uint32_t users = 0;
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        const struct sim_queue *one = &sim->queues[i];
        users += one->srq == srq && one->queue && !one->queue->nic->stopped;
    }
    return users;
}

void sim_close_queue(struct sim *sim, struct sim_queue *one)
{
    bool busy = one->is_srq && users_of(sim, one) > 0;
    bool joining = link_joining(&one->queue->link);
    int32_t status = queue_close(one->queue);
    if (status != (busy ? CRPC_E_BUSY : CRPC_OK)) {
        simulation_fail(&sim->base, "closing queue %u: %d", index_of(sim, one), status);
    }
    if (status == CRPC_OK) {
        simulation_tell(&sim->base, "queue %u: closed", index_of(sim, one));
        one->queue = NULL;
        one->closed = true;
        one->closed_joining = joining;
        one->room_due = false;
        sim->counts[SIM_CLOSES]++;
    }
}

/* What comes in is not seen by a poll: the engine keeps it. */
static void keep_what_comes(struct sim *sim, const struct sim_engine *engine)
{
    memory_fabric_run(sim->base.fabric, below(sim, 50));
    queue_progress(engine->engine);
}

/* Often its SRQ as well: it has to wait for a queue pair that a task connects, and tasks are short. */
static void close_with_srq(struct sim *sim, struct sim_queue *one)
{
    struct sim_queue *srq = one->srq;
    if (srq && srq->is_tags && chance(sim, 70)) {
        keep_what_comes(sim, one->engine);
    }
    sim_close_queue(sim, one);
    if (srq && srq->queue && chance(sim, 30)) {
        sim_close_queue(sim, srq);
    }
}

static void end_some(struct sim *sim, struct sim_queue *one)
{
    uint64_t limit_ns;
    switch (below(sim, 6)) {
    case 0:
        one->ended_by_us |= queue_fail(one->queue) == CRPC_OK;
        break;
    case 1:
    case 2:
    case 3:
        limit_ns = chance(sim, 50) ? CRPC_FOREVER : below(sim, 20000000);
        if (queue_drain(one->queue, limit_ns) == CRPC_OK) {
            one->draining = true;
            one->ended_by_us |= limit_ns != CRPC_FOREVER;
            sim->counts[SIM_DRAINS]++;
        }
        break;
    default:
        close_with_srq(sim, one);
    }
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static struct nic_piece piece_at(const struct sim_engine *engine, size_t offset, uint32_t bytes)
{
    return (struct nic_piece){.address = (uint64_t)(uintptr_t)(engine->memory + offset),
                              .bytes = bytes,
                              .local_key = engine->keys.local_key};
}

static void refused(struct sim *sim, struct sim_queue *one, int32_t reason)
{
    if (reason == CRPC_E_AGAIN) {
        one->room_due = true;
        sim->counts[SIM_REFUSALS]++;
    }
}

/* One op, which may be refused. Returns false if it was. */
static bool submit_one(struct sim *sim, struct sim_queue *one, bool *message)
{
    const uint32_t number = sim->op_count;
    const struct sim_engine *far = one->peer ? one->peer->engine : one->engine;
    struct sim_op *op = &sim->ops[number];
    uint8_t opcode = (uint8_t)(NIC_SEND + below(sim, NIC_NOP));
    opcode = opcode == NIC_SEND_INVALIDATE ? NIC_SEND : opcode;
    opcode = sim->much_tags && chance(sim, 70) ? NIC_SEND : opcode;
    struct nic_work work = {.opcode = opcode, .user_data = number};
    struct nic_piece pieces[2];
    int32_t reason = CRPC_OK;
    uint32_t key = one->engine->keys.local_key;
    size_t slot = below(sim, SIM_SLOTS);
    *op = (struct sim_op){.queue = one, .opcode = opcode};
    *message = opcode <= NIC_SEND_IMMEDIATE;
    work.flags =
        (uint8_t)((chance(sim, 40) ? NIC_WORK_SIGNAL : 0) | (chance(sim, 20) ? NIC_WORK_FENCE : 0));
    op->silent = one->sparse && !(work.flags & NIC_WORK_SIGNAL);
    if (*message) {
        sim->messages[number].number = sim_message_number(sim, one, one->sent);
        work.immediate = (uint32_t)one->sent;
        work.flags |= NIC_WORK_INLINE;
        work.address = sim_choose_message(sim, number, &work.bytes);
    } else if (opcode != NIC_NOP) {
        op->bad = !sim->calm && chance(sim, 1) && chance(sim, 30);
        work.remote_key = far->keys.remote_key ^ (op->bad ? 0x5500 : 0);
        work.remote_address = (uint64_t)(uintptr_t)(far->memory + slot * SIM_SLOT_BYTES);
        work.immediate = UINT32_MAX;
        if (!nic_opcode_is_atomic(opcode)) {
            pieces[0] = piece_at(one->engine, (size_t)below(sim, SIM_SLOTS) * SIM_SLOT_BYTES, 24);
            pieces[1] = piece_at(one->engine, (size_t)below(sim, SIM_SLOTS) * SIM_SLOT_BYTES,
                                 1 + below(sim, 24));
            work.flags |= NIC_WORK_PIECES;
            work.bytes = 1 + below(sim, 2);
        }
    }
    uint32_t taken = queue_submit(one->queue, &work, &key, pieces, 1, &reason);
    simulation_tell(&sim->base, "queue %u: op %u, opcode %u: %d", index_of(sim, one), number,
                    opcode, reason);
    if (taken == 1) {
        one->sent += *message;
        sim->op_count++;
        return true;
    }
    refused(sim, one, reason);
    return false;
}

static bool submit_to_target(struct sim *sim, struct sim_queue *one)
{
    int32_t reason = CRPC_OK;
    if (one->is_dci ? sim_send_to_dct(sim, one, &reason) : sim_send_datagram(sim, one, &reason)) {
        return true;
    }
    refused(sim, one, reason);
    return false;
}

static void submit(struct sim *sim, struct sim_queue *one)
{
    bool message;
    for (uint32_t count = 1 + below(sim, 12); count > 0 && sim->op_count < SIM_OPS_MAX; count--) {
        if (!(one->is_datagrams || one->is_dci ? submit_to_target(sim, one)
                                               : submit_one(sim, one, &message))) {
            break;
        }
    }
    queue_submit_end(one->queue);
}

static void receive(struct sim *sim, struct sim_queue *one)
{
    int32_t reason = CRPC_OK;
    for (uint32_t count = 1 + below(sim, 12); count > 0 && sim->op_count < SIM_OPS_MAX; count--) {
        const uint32_t number = sim->op_count;
        const size_t offset = (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
        const bool too_short = !sim->calm && chance(sim, 1) && chance(sim, 30);
        const struct nic_piece pieces[] = {piece_at(one->engine, offset, 4),
                                           piece_at(one->engine, offset + 4, too_short ? 2 : 56)};
        const struct nic_work work = {
            .opcode = NIC_RECEIVE, .flags = NIC_WORK_PIECES, .user_data = number, .bytes = 2};
        const uint32_t no_key = 0;
        sim->ops[number] =
            (struct sim_op){.queue = one, .opcode = NIC_RECEIVE, .too_short = too_short};
        if (queue_receive(one->queue, &work, &no_key, pieces, 1, &reason) == 0) {
            refused(sim, one, reason);
            break;
        }
        sim->op_count++;
    }
    queue_submit_end(one->queue);
}

static void change_tags(struct sim *sim, struct sim_queue *one)
{
    if (chance(sim, 70)) { /* what the engine keeps, nobody has looked at */
        keep_what_comes(sim, one->engine);
    }
    for (uint32_t count = 1 + below(sim, 8); count > 0 && sim->op_count < SIM_OPS_MAX; count--) {
        int32_t reason = CRPC_OK;
        if (!sim_submit_tag(sim, one, &reason)) {
            refused(sim, one, reason);
            break;
        }
    }
    queue_submit_end(one->queue);
}

/* ---- Changes --------------------------------------------------------------------------------- */

void sim_tell_limits(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        struct sim_queue *one = &sim->queues[i];
        if (one->queue && one->is_srq && one->queue->nic && !one->queue->nic->stopped &&
            memory_queue_limit_reached(one->queue->nic)) {
            fake_cm_srq_limit(&one->engine->cm, one->handle);
            one->limit_due = true;
            one->limits_told++;
        }
    }
}

/* What is changed makes no op fail: what the peers may do stays as it is. */
static void change(struct sim *sim, struct sim_queue *one)
{
    const uint32_t receives = one->queue->options.receives;
    const bool connected = one->queue->link.state == CRPC_STATE_CONNECTED;
    struct nic_queue_change change = {.mask = NIC_CHANGE_ACCESS | NIC_CHANGE_NOT_READY_TIMER,
                                      .access = one->queue->access,
                                      .not_ready_timer = 1 + below(sim, 31),
                                      .retry_count = 3,
                                      .queue_key = one->queue->options.queue_key};
    crpc_error error = {0};
    if (one->is_srq) {
        change.mask = NIC_CHANGE_SRQ_LIMIT;
        change.srq_limit = chance(sim, 20) ? 0 : 1 + below(sim, receives);
    } else if (one->is_datagrams) {
        change.mask = NIC_CHANGE_QUEUE_KEY;
    } else if (chance(sim, 30)) {
        change.mask |= NIC_CHANGE_RETRY_COUNT;
    }
    const int32_t status = queue_modify(one->queue, &change, &error);
    if (status == CRPC_OK && one->is_srq && change.srq_limit == 0) {
        one->limit_due = false;
    }
    if (status == CRPC_E_UNSUPPORTED
            ? !(change.mask & NIC_CHANGE_RETRY_COUNT)
            : status != CRPC_OK && connected && !one->queue->link.failing) {
        simulation_fail(&sim->base, "queue %u does not change: %s", index_of(sim, one),
                        error.message);
    }
}

/* ---- Trouble --------------------------------------------------------------------------------- */

static void trouble(struct sim *sim)
{
    struct sim_queue *one = sim_any_queue(sim);
    struct nic_queue_pair *pair = one ? one->queue->link.queue_pair : NULL;
    if (!pair) {
        return;
    }
    one->hurt = true;
    switch (below(sim, 6)) {
    case 0:
        memory_fabric_cut(pair);
        break;
    case 1:
        memory_fabric_kill(pair);
        break;
    case 2:
        fake_cm_device_event(&one->engine->cm, CM_EVENT_QUEUE_PAIR, pair->number,
                             CRPC_E_DISCONNECTED);
        break;
    case 3:
        if (chance(sim, 4)) {
            fake_cm_device_event(&one->engine->cm, CM_EVENT_DEVICE_FATAL, 0, CRPC_E_NO_DEVICE);
            one->engine->lost = true;
            sim->counts[SIM_LOST]++;
        }
        break;
    default:
        memory_fabric_stall(pair, below(sim, 400));
    }
}

/* ---- What happens next ----------------------------------------------------------------------- */

static void use_something(struct sim *sim)
{
    struct sim_queue *one = sim_any_queue(sim);
    if (!one) {
        return;
    }
    if (one->asked) {
        sim_answer(sim, one);
    } else if (!one->is_dci && !one->is_dct && chance(sim, one->is_srq ? 20 : 4)) {
        change(sim, one);
    } else if (one->is_tags && chance(sim, 60)) {
        change_tags(sim, one);
    } else if (one->is_dci && chance(sim, 20)) {
        sim_reset_stream(sim, one);
    } else if (one->is_srq || (!one->is_dci && chance(sim, 50))) {
        receive(sim, one);
    } else {
        submit(sim, one);
    }
}

void sim_act(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    struct sim_engine *engine = sim_any_engine(sim);
    uint32_t what = below(sim, 1000);
    if (what < 300) {
        use_something(sim);
    } else if (what < 550) {
        for (uint32_t i = 1 + below(sim, 12); i > 0; i--) {
            memory_fabric_step(base->fabric);
        }
    } else if (what < 800) {
        sim_poll(sim, engine, 1 + below(sim, SIM_CAPACITY_MAX));
    } else if (what < 870) {
        uint32_t waiting = fake_cm_waiting(&engine->cm);
        if (waiting > 0) {
            fake_cm_step(&engine->cm, below(sim, waiting));
        }
    } else if (what < 930) {
        base->clock_ns += below(sim, 500000);
    } else if (what < 950) {
        sim_check_sleep(sim, engine);
    } else if (what < 960) {
        sim_change_targets(sim);
    } else if (what < 980) {
        sim_make_something(sim);
    } else if (what < 988) {
        struct sim_queue *one = sim_any_queue(sim);
        if (one) {
            end_some(sim, one);
        }
    } else if (!sim->calm && chance(sim, 30)) {
        trouble(sim);
    }
    sim_tell_limits(sim);
}
