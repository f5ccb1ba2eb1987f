/* sim_check.c: see sim.h. */
#include "sim.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

/* ---- Ops ------------------------------------------------------------------------------------- */

/* A WRITE with an immediate takes a receive, and leaves its memory alone. */
static bool is_write(const crpc_completion *completion)
{
    return completion->flags & NIC_DONE_IMMEDIATE && completion->reply_bytes_max == UINT32_MAX;
}

/* What must have happened for this status. */
static bool explained(const struct sim *sim, const struct sim_op *op, const struct sim_queue *one,
                      const crpc_completion *completion)
{
    int32_t status = completion->status;
    bool send = op->opcode != NIC_RECEIVE;
    bool message = op->opcode <= NIC_SEND_INVALIDATE;
    if (one->is_dci) {
        return sim_explains_dci(sim, op, completion);
    }
    if (op->opcode > NIC_RECEIVE) {
        return sim_explains_tag(sim, op, one, completion);
    }
    switch (status) {
    case CRPC_OK:
        return !op->bad && !op->silent && (!op->too_short || is_write(completion));
    case CRPC_E_ACCESS: /* a message may find a receive that is too short */
        return send && (op->bad || message) && !one->is_datagrams;
    case CRPC_E_DEVICE:
        return send && op->bad && one->is_datagrams;
    case CRPC_E_NOT_READY:
        return send && sim->impatient && !one->is_datagrams;
    case CRPC_E_TRUNCATED: /* or a tag's buffer was, and its queue tells so by a receive */
        return op->too_short || op->queue->is_tags;
    case CRPC_E_CLOSED:
        return op->queue->closed;
    case CRPC_E_NO_DEVICE:
        return one->engine->lost;
    case CRPC_E_DISCONNECTED:
        return send && !one->is_datagrams;
    case CRPC_E_FLUSHED:
        return true;
    default: /* our device has nothing to refuse */
        return false;
    }
}

/* One with streams ends by several, in whatever order they were polled. */
static bool ends_by_an_op(const struct sim_queue *one)
{
    return one->streams == 0 && !one->is_dct;
}

/* An op that has failed by itself is why its queue ends; what was flushed tells nothing. */
static void note_reason(struct sim_queue *one, int32_t status)
{
    switch (status) {
    case CRPC_OK:
    case CRPC_E_FLUSHED:
    case CRPC_E_CLOSED:
    case CRPC_E_NO_DEVICE:
        return;
    case CRPC_E_DISCONNECTED:
        one->unreachable |= one->reason == CRPC_OK;
        return;
    default:
        one->reason = one->reason == CRPC_OK ? status : one->reason;
    }
}

static bool is_of_an_op(int32_t status)
{
    return status == CRPC_E_ACCESS || status == CRPC_E_DEVICE || status == CRPC_E_NOT_READY ||
           status == CRPC_E_TRUNCATED;
}

static void check_reason(struct sim *sim, const struct sim_queue *one, int32_t status)
{
    crpc_error error = {.struct_size = sizeof(error)};
    if (one->queue) {
        queue_get_error(one->queue, &error);
        if (error.status != status || (status != CRPC_OK && error.message[0] == '\0')) {
            simulation_fail(&sim->base, "queue %u is disconnected with %d, and its error is %d",
                            index_of(sim, one), status, error.status);
        }
    }
    if (one->ended_by_us || one->engine->lost || !ends_by_an_op(one)) {
        return;
    }
    /* A message that is too long can come when all that it sent is done, and the queue has ended well by that. */
    if (one->draining && status == CRPC_OK && one->reason == CRPC_E_TRUNCATED) {
        return;
    }
    if (one->reason == CRPC_OK ? is_of_an_op(status)
        : one->unreachable     ? is_of_an_op(status) && status != one->reason
                               : status != one->reason) {
        simulation_fail(&sim->base, "queue %u has ended with %d; its first op that failed has %d",
                        index_of(sim, one), status, one->reason);
    }
}

/* A message brings its number in its connection and direction, where its receive is. */
static void check_message(struct sim *sim, struct sim_queue *one, uint32_t number,
                          const crpc_completion *completion)
{
    const uint8_t *place = one->engine->memory + (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
    uint64_t brought;
    if (is_write(completion)) {
        return;
    }
    one = sim_connection_of(sim, one, place, completion);
    memcpy(&brought, sim_check_unexpected(sim, one, place, completion), sizeof(brought));
    if (!one->peer || brought != sim_message_number(sim, one->peer, one->received)) {
        simulation_fail(&sim->base, "queue %u: message %" PRIx64 " instead of %" PRIx64,
                        index_of(sim, one), brought, one->received);
    }
    one->received++;
}

static void check_queue_of(struct sim *sim, const struct sim_op *op, const struct sim_queue *one,
                           uint32_t number)
{
    if (op->queue != one && op->queue != one->srq) {
        simulation_fail(&sim->base, "op %u of queue %u completes at queue %u", number,
                        index_of(sim, op->queue), index_of(sim, one));
    }
    if (one->disconnected) {
        simulation_fail(&sim->base, "op %u: queue %u is disconnected", number, index_of(sim, one));
    }
    if (!one->closed && !one->is_srq && !one->connected && !one->refused) {
        simulation_fail(&sim->base, "op %u: queue %u is not connected yet", number,
                        index_of(sim, one));
    }
}

static void take_op(struct sim *sim, struct sim_queue *one, const crpc_completion *completion)
{
    uint32_t number = (uint32_t)completion->user_data;
    if (completion->user_data >= sim->op_count) {
        simulation_fail(&sim->base, "an op completes that there is not: %" PRIu64,
                        completion->user_data);
        return;
    }
    struct sim_op *op = &sim->ops[number];
    if (op->done) {
        simulation_fail(&sim->base, "op %u completes twice", number);
    }
    if (op->opcode != completion->method) {
        simulation_fail(&sim->base, "op %u (opcode %u) completes as %u", number, op->opcode,
                        completion->method);
    }
    check_queue_of(sim, op, one, number);
    if (!explained(sim, op, one, completion)) {
        simulation_fail(&sim->base, "op %u (opcode %u) has the status %d", number, op->opcode,
                        completion->status);
    }
    op->done = true;
    note_reason(one, completion->status);
    op->status = completion->status;
    sim->counts[SIM_OPS]++;
    sim->counts[SIM_ERRORS] += completion->status != CRPC_OK;
    if (op->opcode > NIC_RECEIVE) {
        sim_take_tag(sim, one, number, completion);
        return;
    }
    if (op->opcode == NIC_RECEIVE) {
        if (completion->status == CRPC_OK && one->is_datagrams) {
            sim_check_datagram(sim, one, number, completion);
        } else if (completion->status == CRPC_OK && one->is_dct) {
            sim_check_dc_message(sim, one, number, completion);
        } else if (completion->status == CRPC_OK) {
            check_message(sim, one, number, completion);
        }
        return;
    }
    if (one->is_dci) {
        sim_take_of_dci(sim, one, op, completion->status);
    }
    if (number < one->next_send && one->streams == 0) {
        simulation_fail(&sim->base, "op %u completes behind a later one", number);
    }
    one->next_send = number + 1;
    one->flushed |= completion->status == CRPC_E_FLUSHED;
    one->acknowledged += op->opcode <= NIC_SEND_INVALIDATE && completion->status == CRPC_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* The private data of a request says whose it is. */
static void take_request(struct sim *sim, struct sim_engine *engine,
                         const crpc_completion *completion)
{
    struct queue_info info;
    uint32_t asker;
    struct sim_queue *one = sim_new_queue(sim, engine);
    struct queue *queue = handles_get(&engine->handles, completion->endpoint.bits, HANDLE_QUEUE);
    if (!one) { /* there is no place for it in the books */
        queue_reject(queue, NULL, 0);
        return;
    }
    queue_get_info(queue, &info);
    memcpy(&asker, info.private_data, sizeof(asker));
    if (info.private_bytes < sizeof(asker) || asker >= sim->queue_count) {
        simulation_fail(&sim->base, "a request has lost its private data");
        return;
    }
    one->queue = queue;
    one->handle = completion->endpoint.bits;
    one->asked = true;
    one->by_rdma_cm = true;
    one->peer = &sim->queues[asker];
    one->peer->peer = one;
}

static void take_connected(struct sim *sim, struct sim_queue *one,
                           const crpc_completion *completion)
{
    struct queue_info info;
    uint32_t peer;
    if (one->connected || one->refused || !one->made) {
        simulation_fail(&sim->base, "queue %u is connected twice", index_of(sim, one));
    }
    one->connected = completion->status == CRPC_OK;
    one->refused = !one->connected;
    sim->counts[SIM_CONNECTED] += one->connected;
    if (!one->connected || !one->by_rdma_cm || !one->queue) {
        return;
    }
    queue_get_info(one->queue, &info);
    memcpy(&peer, info.private_data, sizeof(peer));
    if (info.private_bytes < sizeof(peer) || &sim->queues[peer] != one->peer) {
        simulation_fail(&sim->base, "queue %u has not got its peer's private data",
                        index_of(sim, one));
    }
}

static void take_disconnected(struct sim *sim, struct sim_queue *one, int32_t status)
{
    if (status == CRPC_OK && (!one->draining || (one->flushed && one->streams == 0))) {
        simulation_fail(&sim->base, "queue %u is disconnected well, and was not drained",
                        index_of(sim, one));
    }
    if (one->disconnected || !(one->connected || one->is_srq)) {
        simulation_fail(&sim->base, "queue %u is disconnected twice, or never was connected",
                        index_of(sim, one));
    }
    if (one->streams > 0 && !sim_is_ending(one)) {
        simulation_fail(&sim->base, "queue %u has ended for a stream of it", index_of(sim, one));
    }
    one->disconnected = true;
    one->room_due = false;
    check_reason(sim, one, status);
    for (uint32_t i = 0; i < sim->op_count; i++) {
        const struct sim_op *op = &sim->ops[i];
        if (op->queue == one && !op->done && !op->silent) {
            simulation_fail(&sim->base, "queue %u is disconnected, and op %u open",
                            index_of(sim, one), i);
        }
    }
}

/* Several that the device has told can come as one. */
static void take_limit(struct sim *sim, struct sim_queue *one)
{
    if (one->queue->srq_limit == 0 || ++one->limits_heard > one->limits_told) {
        simulation_fail(&sim->base, "a limit of queue %u, which it has not or has not reached",
                        index_of(sim, one));
    }
    one->limit_due = false;
    sim->counts[SIM_LIMITS]++;
}

void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion)
{
    if (!(completion->flags & NIC_DONE_OF_QUEUE)) {
        simulation_fail(&sim->base, "a completion of no queue");
    }
    if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        take_request(sim, engine, completion);
        return;
    }
    if (completion->endpoint_user_data >= sim->queue_count) {
        simulation_fail(&sim->base, "a completion of a queue that there is not");
        return;
    }
    struct sim_queue *one = &sim->queues[completion->endpoint_user_data];
    if (one->engine != engine || one->handle != completion->endpoint.bits) {
        simulation_fail(&sim->base, "a completion of queue %u has another's handle",
                        index_of(sim, one));
    }
    simulation_tell(&sim->base, "queue %u: kind %u, status %d, user data %" PRIu64,
                    index_of(sim, one), completion->kind, completion->status,
                    completion->user_data);
    if (completion->kind == NIC_COMPLETION_WORK) {
        take_op(sim, one, completion);
        return;
    }
    if (one->closed || one->disconnected) {
        simulation_fail(&sim->base, "an event of queue %u, which is closed or over",
                        index_of(sim, one));
    }
    switch (completion->kind) {
    case CRPC_COMPLETION_CONNECTED:
        take_connected(sim, one, completion);
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        take_disconnected(sim, one, completion->status);
        break;
    case CRPC_COMPLETION_ROOM:
        simulation_room(&sim->base, &one->room_due);
        break;
    case CRPC_COMPLETION_SRQ_LIMIT:
        take_limit(sim, one);
        break;
    default:
        simulation_fail(&sim->base, "a completion of kind %u", completion->kind);
    }
}

/* ---- What must hold -------------------------------------------------------------------------- */

static void check_ended(struct sim *sim, const struct sim_engine *engine)
{
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        const struct queue *queue = sim->queues[i].queue;
        if (queue && queue->nic && sim->queues[i].engine == engine &&
            queue->nic->ended_first != NIC_QUEUE_NO_ENTRY && !list_linked(&queue->ended_link)) {
            simulation_fail(&sim->base, "queue %u has receives that nobody reports", i);
        }
    }
}

/* As crpc_wait does it: arms, looks, and sleeps on the descriptor of the nic. */

void sim_check_sleep(struct sim *sim, struct sim_engine *engine)
{
    crpc_completion completions[SIM_CAPACITY_MAX];
    const struct nic_operations *operations = engine->nic->operations;
    struct pollfd fd = {.fd = engine->nic->event_fd, .events = POLLIN};
    check_ended(sim, engine);
    operations->disarm(engine->nic);
    operations->arm(engine->nic);
    queue_progress(engine->engine);
    if (!queue_something_waits(engine->engine) &&
        queue_next_deadline_ns(engine->engine) > sim->base.clock_ns && poll(&fd, 1, 0) == 0 &&
        queue_poll(engine->engine, completions, SIM_CAPACITY_MAX) > 0) {
        simulation_fail(&sim->base, "somebody who slept would have missed a completion of kind %u",
                        completions[0].kind);
    }
}

void sim_check_fabric(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        const struct sim_engine *engine = &sim->engines[i];
        if (engine->nic->unknown_completions > 0) {
            simulation_fail(base, "a completion that belongs to nothing");
        }
    }
}

void sim_check_books(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    if (sim->abrupt) {
        return;
    }
    for (uint32_t i = 0; i < sim->op_count; i++) {
        const struct sim_op *op = &sim->ops[i];
        if (!op->done && !op->silent) {
            simulation_fail(base, "op %u (opcode %u) of queue %u never completes", i, op->opcode,
                            index_of(sim, op->queue));
        }
    }
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        const struct sim_queue *one = &sim->queues[i];
        if (one->room_due) {
            simulation_fail(base, "queue %u never hears of room", i);
        }
        /* What its device has taken was reported before DISCONNECTED, unless the device is lost. */
        if (one->disconnected && one->peer && !one->engine->lost &&
            one->peer->acknowledged > one->received) {
            simulation_fail(base, "queue %u is disconnected, and messages never came", i);
        }
    }
    sim_check_targets(sim);
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        const struct queue_engine *engine = sim->engines[i].engine;
        if (queue_engine_queues(engine) > 0 || engine->nops > 0 || engine->connecting > 0 ||
            engine->links.wheel.count > 0 || queue_something_waits(engine)) {
            simulation_fail(base, "engine %u has something left", i);
        }
    }
}
