/* sim_dc.c: see sim.h. Each message of a DCI brings the number of its op. It arrives where its target says, once
 * if the op completed with success, and those of a stream in order. Numbers of queue pairs may be used again,
 * so each DCT has an access key of its own. The oracle follows each stream: an op of it fails, those behind it
 * are flushed, until a reset. */
#include "sim.h"

#include <string.h>

#define NO_ACCESS_KEY UINT64_C(1000000)

/* ---- Queues ---------------------------------------------------------------------------------- */

uint64_t sim_access_key(const struct sim *sim, const struct sim_queue *one)
{
    return NO_ACCESS_KEY + index_of(sim, one);
}

static void open_queue(struct sim *sim, struct sim_queue *one, const struct queue_options *options)
{
    crpc_error error = {0};
    sim_expect_made(sim, one, queue_open(one->engine->engine, options, &one->queue, &error));
    if (one->made) {
        one->connected = true; /* without an event */
        one->handle = one->queue->link.handle;
        one->number = one->queue->number;
        one->failures_max = one->queue->nic->stream_failures_max;
    } else {
        one->queue = NULL;
    }
}

void sim_open_dci(struct sim *sim, struct sim_queue *one, const struct queue_options *given)
{
    struct queue_options options = *given;
    options.kind = NIC_QUEUE_DCI;
    options.sends = given->sends > 0 ? given->sends : 1;
    options.receives = options.receive_pieces = options.private_bytes = 0;
    options.receive_queue = NULL;
    one->srq = NULL;
    if (chance(sim, 70)) {
        options.streams = 1 + below(sim, SIM_STREAMS_MAX);
        options.stream_failures_max = 1 + below(sim, options.streams);
        options.flags = 0;
        one->sparse = false;
    }
    one->is_dci = true;
    one->streams = options.streams;
    open_queue(sim, one, &options);
}

void sim_open_dct(struct sim *sim, struct sim_queue *one)
{
    const struct queue_options options = {.kind = NIC_QUEUE_DCT,
                                          .user_data = index_of(sim, one),
                                          .receive_queue = one->srq->queue,
                                          .access_key = sim_access_key(sim, one)};
    one->is_dct = true;
    open_queue(sim, one, &options);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static struct sim_stream *stream_of(const struct sim_op *op)
{
    return &op->queue->stream[op->stream];
}

/* What is not a message: it reads or changes memory of the other side, at any slot. */
static void name_memory(struct sim *sim, struct sim_queue *one, const struct sim_engine *far,
                        bool bad, struct nic_work *work)
{
    const size_t slot = below(sim, SIM_SLOTS), there = below(sim, SIM_SLOTS);
    work->remote_key = far->keys.remote_key ^ (bad ? 0x5500 : 0);
    work->remote_address = (uint64_t)(uintptr_t)(far->memory + there * SIM_SLOT_BYTES);
    work->immediate = UINT32_MAX;
    if (!nic_opcode_is_atomic(work->opcode)) {
        work->address = (uint64_t)(uintptr_t)(one->engine->memory + slot * SIM_SLOT_BYTES);
        work->bytes = 1 + below(sim, 48);
    }
}

static bool is_message(uint8_t opcode)
{
    return opcode <= NIC_SEND_INVALIDATE;
}

/* Returns the op that is to be submitted next; *op is what the books say of it. */
static struct nic_work make_work(struct sim *sim, struct sim_queue *one,
                                 const struct sim_target *target, struct sim_op *op)
{
    const uint32_t number = sim->op_count;
    const struct sim_engine *far = target->to ? target->to->engine : one->engine;
    const uint8_t opcode = (uint8_t)(NIC_SEND + below(sim, NIC_NOP));
    struct nic_work work = {.opcode = opcode == NIC_SEND_INVALIDATE ? NIC_SEND : opcode,
                            .flags = (uint8_t)((chance(sim, 40) ? NIC_WORK_SIGNAL : 0) |
                                               (chance(sim, 20) ? NIC_WORK_FENCE : 0)),
                            .stream = (uint16_t)(one->streams ? below(sim, one->streams) : 0),
                            .user_data = number};
    *op = (struct sim_op){.queue = one,
                          .opcode = work.opcode,
                          .silent = one->sparse && !(work.flags & NIC_WORK_SIGNAL),
                          .to = target->to,
                          .stream = work.stream,
                          .resets = one->stream[work.stream].resets};
    if (is_message(work.opcode)) {
        sim->messages[number].number = number;
        work.immediate = number;
        work.flags |= NIC_WORK_INLINE;
        work.address = (uint64_t)(uintptr_t)&sim->messages[number].number;
        work.bytes = sizeof(sim->messages[number].number);
    } else if (work.opcode != NIC_NOP) {
        op->bad = !sim->calm && chance(sim, 3);
        name_memory(sim, one, far, op->bad, &work);
    }
    return work;
}

bool sim_send_to_dct(struct sim *sim, struct sim_queue *one, int32_t *reason)
{
    const uint32_t number = sim->op_count;
    struct sim_target *target = sim_any_target(sim, one->engine, NIC_QUEUE_DCI);
    if (!target) {
        sim_change_targets(sim);
        return false;
    }
    const struct nic_work work = make_work(sim, one, target, &sim->ops[number]);
    struct nic_target *const to = queue_target_nic(target->target);
    uint32_t taken =
        queue_submit_to(one->queue, &work, &to, &one->engine->keys.local_key, NULL, 1, reason);
    simulation_tell(&sim->base, "queue %u: op %u, opcode %u, stream %u, to queue %d: %d",
                    index_of(sim, one), number, work.opcode, work.stream,
                    target->to ? (int)index_of(sim, target->to) : -1, *reason);
    sim->op_count += taken;
    one->stream[work.stream].open += taken;
    if (taken == 1 && chance(sim, 5)) {
        queue_submit_end(one->queue); /* a target is closed when ops that name it have been rung */
        sim_close_target(target);
    }
    return taken == 1;
}

/* ---- Streams --------------------------------------------------------------------------------- */

bool sim_is_ending(const struct sim_queue *one)
{
    return one->ended_by_us || one->hurt || one->draining || one->closed || one->engine->lost ||
           one->too_many;
}

/* What a reset must return; CRPC_OK stands for CRPC_E_BUSY as well. */
static int32_t expected_reset(const struct sim_queue *one, uint32_t stream)
{
    const struct link *link = &one->queue->link;
    return one->streams == 0        ? CRPC_E_UNSUPPORTED
           : stream >= one->streams ? CRPC_E_INVALID
           : (link->state != CRPC_STATE_CONNECTED && link->state != CRPC_STATE_CLOSING) ||
                   link->failing || one->queue->nic->failed
               ? CRPC_E_STATE
               : CRPC_OK;
}

/* Often one that has failed; sometimes one too many. */
static uint32_t choose_stream(struct sim *sim, const struct sim_queue *one)
{
    const uint32_t first = below(sim, one->streams + 1);
    for (uint32_t i = 0; i < one->streams && chance(sim, 90); i++) {
        const uint32_t number = (first + i) % one->streams;
        if (one->stream[number].failed) {
            return number;
        }
    }
    return first;
}

/* The device knows of it before it was polled. */
static bool may_be_dead(const struct sim_queue *one)
{
    return one->hurt || queue_has_open(one->queue);
}

/* Completions that the engine keeps were not seen yet: then the driver knows more than the oracle. */
void sim_reset_stream(struct sim *sim, struct sim_queue *one)
{
    const uint32_t number = choose_stream(sim, one);
    const int32_t expected = expected_reset(one, number);
    const uint32_t failed = one->queue->nic->streams_failed;
    const bool keeps = one->engine->engine->held_count > 0;
    struct sim_stream *stream = &one->stream[number];
    crpc_error error = {0};
    int32_t status = queue_reset_stream(one->queue, number, &error);
    bool done = one->queue->nic->streams_failed < failed;
    simulation_tell(&sim->base, "queue %u: reset of stream %u: %d", index_of(sim, one), number,
                    status);
    if (status == CRPC_E_SYSTEM && expected == CRPC_OK && may_be_dead(one)) {
        return;
    }
    if (status == CRPC_E_BUSY ? expected != CRPC_OK || stream->open == 0 : status != expected) {
        simulation_fail(&sim->base, "queue %u: the reset of stream %u returns %d",
                        index_of(sim, one), number, status);
    }
    if (status != CRPC_OK) {
        return;
    }
    if (stream->failed ? !done || (stream->open > 0 && !keeps) : done && !keeps) {
        simulation_fail(&sim->base, "queue %u: stream %u, %u ops open, is%s reset",
                        index_of(sim, one), number, stream->open, done ? "" : " not");
    }
    if (done) {
        stream->failed = false;
        stream->resets++;
        sim->counts[SIM_RESETS]++;
    }
}

static uint32_t failed_streams(const struct sim_queue *one)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < one->streams; i++) {
        count += one->stream[i].failed;
    }
    return count;
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool is_gone(const struct sim_queue *to)
{
    return !to || to->closed || to->disconnected || to->hurt || to->ended_by_us || to->draining ||
           to->engine->lost;
}

/* An op before it has failed in the same stream. */
static bool is_behind_failure(const struct sim *sim, const struct sim_op *op)
{
    const struct sim_stream *stream = stream_of(op);
    return stream->resets == op->resets && stream->failed &&
           (uint32_t)(op - sim->ops) > stream->failed_number;
}

bool sim_explains_dci(const struct sim *sim, const struct sim_op *op,
                      const crpc_completion *completion)
{
    const bool with_streams = op->queue->streams > 0;
    const bool takes = is_message(op->opcode) || op->opcode == NIC_WRITE_IMMEDIATE;
    switch (completion->status) {
    case CRPC_OK:
        return !op->bad && !op->silent && !(with_streams && is_behind_failure(sim, op)) &&
               (op->to || op->opcode == NIC_NOP);
    case CRPC_E_ACCESS: /* a message may find a receive that is too short */
        return op->bad || is_message(op->opcode) || is_gone(op->to);
    case CRPC_E_NOT_READY:
        return sim->impatient && takes;
    case CRPC_E_DISCONNECTED:
        return is_gone(op->to) || op->queue->hurt;
    case CRPC_E_CLOSED:
        return op->queue->closed;
    case CRPC_E_NO_DEVICE:
        return op->queue->engine->lost;
    case CRPC_E_FLUSHED: /* what was reset since had failed before */
        return !with_streams || is_behind_failure(sim, op) || sim_is_ending(op->queue) ||
               op->resets != stream_of(op)->resets;
    default:
        return false;
    }
}

void sim_take_of_dci(struct sim *sim, struct sim_queue *one, struct sim_op *op, int32_t status)
{
    const uint32_t number = (uint32_t)(op - sim->ops);
    struct sim_stream *stream = stream_of(op);
    const bool is_cause = status != CRPC_OK && status != CRPC_E_FLUSHED &&
                          status != CRPC_E_CLOSED && status != CRPC_E_NO_DEVICE;
    stream->open--;
    op->acknowledged = is_message(op->opcode) && status == CRPC_OK;
    if (one->streams == 0) {
        return;
    }
    if (number < stream->next_send) {
        simulation_fail(&sim->base, "op %u of stream %u completes behind a later one", number,
                        op->stream);
    }
    stream->next_send = number + 1;
    if (!is_cause || op->resets != stream->resets) {
        return;
    }
    if (stream->failed) {
        simulation_fail(&sim->base, "op %u fails in stream %u, which has failed before", number,
                        op->stream);
    }
    stream->failed = true;
    stream->failed_number = number;
    one->too_many |= failed_streams(one) > one->failures_max;
    sim->counts[SIM_STREAMS_FAILED]++;
}

void sim_check_dc_message(struct sim *sim, struct sim_queue *one, uint32_t number,
                          const crpc_completion *completion)
{
    const uint8_t *place = one->engine->memory + (size_t)(SIM_SLOTS + number) * SIM_SLOT_BYTES;
    uint64_t brought;
    memcpy(&brought, place, sizeof(brought));
    if (completion->flags & NIC_DONE_IMMEDIATE && completion->reply_bytes_max == UINT32_MAX) {
        return; /* a WRITE */
    }
    if (completion->payload_bytes != sizeof(brought) || brought >= sim->op_count) {
        simulation_fail(&sim->base, "queue %u: a message of %u bytes that nobody has sent",
                        index_of(sim, one), completion->payload_bytes);
        return;
    }
    struct sim_op *op = &sim->ops[brought];
    const bool immediate = op->opcode == NIC_SEND_IMMEDIATE;
    if (!op->queue->is_dci || op->to != one || op->arrived || !is_message(op->opcode) ||
        completion->token != op->queue->number ||
        !(completion->flags & NIC_DONE_IMMEDIATE) == immediate ||
        completion->reply_bytes_max != (immediate ? (uint32_t)brought : 0)) {
        simulation_fail(&sim->base, "queue %u: message %llu is another's, or came before",
                        index_of(sim, one), (unsigned long long)brought);
        return;
    }
    struct sim_stream *stream = stream_of(op);
    if (stream->arrived_to == one && brought <= stream->arrived_number) {
        simulation_fail(&sim->base, "queue %u: message %llu has overtaken another",
                        index_of(sim, one), (unsigned long long)brought);
    }
    stream->arrived_to = one;
    stream->arrived_number = (uint32_t)brought;
    op->arrived = true;
    sim->counts[SIM_DC_MESSAGES]++;
}

void sim_check_dc(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->op_count; i++) {
        const struct sim_op *op = &sim->ops[i];
        if (op->acknowledged && !op->arrived && !is_gone(op->to)) {
            simulation_fail(&sim->base, "message %u was acknowledged, and never came", i);
        }
    }
    for (uint32_t i = 0; i < sim->queue_count; i++) {
        const struct sim_queue *one = &sim->queues[i];
        if (one->streams > 0 && one->queue && !sim_is_ending(one) &&
            one->queue->nic->streams_failed != failed_streams(one)) {
            simulation_fail(&sim->base, "queue %u: %u streams have failed, and it counts %u", i,
                            failed_streams(one), one->queue->nic->streams_failed);
        }
    }
}
