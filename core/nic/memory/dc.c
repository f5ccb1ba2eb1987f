/* dc.c: the dynamically connected transport: DCIs, with and without streams (nic/queue.h), which send to DCTs.
 *
 * Each op is executed whole, in one step, and is answered in another. The ops of a stream do so one after the
 * other; those of several streams in any order. A DCI without streams has one, and dies with its first error. A DCT
 * does not die: an op that it refuses ends that op's stream alone.
 *
 * Of the stages that internal.h has, a DCI knows `rung` and `acknowledged`: all WQEs below the latter are done, and
 * perhaps some above it. */
#include "nic/memory/dc.h"

#include <stdlib.h>
#include <string.h>

#include "nic/memory/datagram.h"

/* The open WQEs of a stream are a list in their order. */
struct memory_stream {
    bool open; /* it has some: */
    uint32_t first;
    uint32_t last;
    bool failed;
    bool stuck; /* packets have got no answer since stuck_since */
    uint64_t stuck_since;
    uint64_t not_before;
};

/* ---- Making ---------------------------------------------------------------------------------- */

void memory_dc_make(struct memory_queue *queue)
{
    struct nic_queue *base = &queue->base;

    queue->streams =
        memory_allocate(base->streams > 0 ? base->streams : 1, sizeof(*queue->streams));
    if (base->streams > 0) {
        nic_queue_grant_failures(base, MEMORY_STREAM_FAILURES_EXPONENT);
    }
}

void memory_dc_free(struct memory_queue *queue)
{
    free(queue->streams);
    queue->streams = NULL;
}

void memory_dc_post(struct memory_queue *queue, uint32_t number, uint16_t id)
{
    const uint16_t known = queue->base.streams > 0 ? id : 0;
    struct memory_stream *stream = &queue->streams[known];

    memory_require(known == 0 || known < queue->base.streams, "stream %u of %u", id,
                   queue->base.streams);
    if (queue->base.streams > 0) {
        queue->base.stream_ids[number & queue->base.sends.mask] = known;
    }
    memory_wqe(queue->pair, number)->stream = known;
    if (stream->open) {
        memory_wqe(queue->pair, stream->last)->next = number;
    } else {
        stream->first = number;
    }
    stream->last = number;
    stream->open = true;
}

/* ---- The end of a WQE, the oldest of its stream ---------------------------------------------- */

static struct memory_stream *stream_of(struct memory_queue_pair *queue_pair, uint32_t number)
{
    return &queue_pair->queue->streams[memory_wqe(queue_pair, number)->stream];
}

static void finish(struct memory_queue_pair *queue_pair, uint32_t number)
{
    struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    struct memory_stream *stream = stream_of(queue_pair, number);

    memory_payload_free(wqe);
    wqe->done = true;
    stream->open = stream->last != number;
    stream->first = wqe->next;
    stream->stuck = false;
    while (queue_pair->acknowledged != queue_pair->rung &&
           memory_wqe(queue_pair, queue_pair->acknowledged)->done) {
        queue_pair->acknowledged++;
    }
    queue_pair->executed = queue_pair->acknowledged;
}

static void flush(struct memory_queue_pair *queue_pair, uint32_t number)
{
    if (!queue_pair->fabric->options.flush_signaled_only ||
        memory_wqe(queue_pair, number)->signaled || number + 1 == queue_pair->rung) {
        memory_complete_send(queue_pair, number, NIC_ERROR_FLUSHED);
    }
    finish(queue_pair, number);
}

static void fail(struct memory_queue_pair *queue_pair, uint32_t number, enum nic_error status)
{
    struct memory_queue *queue = queue_pair->queue;
    struct memory_fabric_counters *counters = &queue_pair->fabric->counters;

    counters->local_errors += status == NIC_ERROR_LOCAL;
    counters->remote_access_errors += status == NIC_ERROR_REMOTE_ACCESS;
    stream_of(queue_pair, number)->failed = true;
    memory_complete_send(queue_pair, number, status);
    finish(queue_pair, number);
    if (queue->base.streams == 0 || ++queue->streams_failed > queue->base.stream_failures_max) {
        memory_die(queue_pair);
    }
}

int32_t memory_dc_reset_stream(struct nic_queue *base, uint16_t stream, crpc_error *error)
{
    struct memory_queue *queue = memory_queue(base);
    int32_t status = nic_queue_check_stream(base, stream, error);

    if (status != CRPC_OK || !nic_queue_stream_failed(base, stream)) {
        return status;
    }
    memory_require(queue->streams[stream].failed, "stream %u has not failed", stream);
    if (queue->pair->dead) {
        return error_set(error, CRPC_E_SYSTEM, 0, "the queue has failed, not its stream %u alone",
                         stream);
    }
    queue->streams[stream].failed = false;
    queue->streams_failed--;
    nic_queue_renew_stream(base, stream);
    return CRPC_OK;
}

/* ---- Execution at the target ----------------------------------------------------------------- */

/* Returns the DCT that packets of this WQE reach now, or NULL. */
static struct memory_queue_pair *reach(const struct memory_queue_pair *queue_pair,
                                       const struct memory_wqe *wqe)
{
    const struct memory_target *target = wqe->target;
    struct memory_queue_pair *found =
        memory_find(queue_pair->fabric, target->base.queue_pair_number);

    return found && !queue_pair->severed && found->open && found->queue &&
                   found->queue->base.kind == NIC_QUEUE_DCT &&
                   memcmp(target->gid, found->nic->base.gid, sizeof(target->gid)) == 0
               ? found
               : NULL;
}

/* Returns true if that was the end of it. */
static bool wait_for_answer(struct memory_queue_pair *queue_pair, uint32_t number)
{
    const struct memory_fabric *fabric = queue_pair->fabric;
    const uint32_t retry_steps = fabric->options.retry_steps;
    struct memory_stream *stream = stream_of(queue_pair, number);
    uint64_t waited;

    if (!stream->stuck) {
        stream->stuck_since = fabric->now;
    }
    stream->stuck = true;
    waited = fabric->now - stream->stuck_since;
    if (waited < retry_steps) {
        stream->not_before = fabric->now + minimum(retry_steps / 8 + 1, retry_steps - waited);
        return false;
    }
    fail(queue_pair, number, NIC_ERROR_RETRY);
    return true;
}

static bool wait_for_receive(struct memory_queue_pair *queue_pair, uint32_t number)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    struct memory_wqe *wqe = memory_wqe(queue_pair, number);

    fabric->counters.receiver_not_ready += !wqe->receiver_not_ready;
    wqe->receiver_not_ready = true;
    if (fabric->options.receiver_not_ready_fails) {
        fail(queue_pair, number, NIC_ERROR_RNR);
        return true;
    }
    stream_of(queue_pair, number)->not_before =
        fabric->now + fabric->options.receiver_not_ready_steps;
    return false;
}

static void message_now(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                        struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    struct memory_fabric_counters *counters = &queue_pair->fabric->counters;

    if (wqe->opcode == MEMORY_SEND) {
        memory_queue_land(target, wqe->payload, 0, transfer->bytes);
    } else {
        memory_land(target, transfer->remote_key, transfer->remote_address, wqe->payload,
                    transfer->bytes);
    }
    if (wqe->opcode == MEMORY_WRITE) {
        counters->plain_writes++;
        return;
    }
    counters->writes++;
    memory_queue_arrive_from(target, wqe, queue_pair->base.number);
}

/* A SEND or a WRITE. Returns true if it has moved. */
static bool execute_message(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                            uint32_t number)
{
    struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    const struct nic_transfer *transfer = &wqe->transfer;
    const bool send = wqe->opcode == MEMORY_SEND;
    enum memory_taking taking;

    if (!wqe->inlined && !memory_wqe_allows(queue_pair, wqe, 0)) {
        fail(queue_pair, number, NIC_ERROR_LOCAL);
        return true;
    }
    if (!send && !memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                                       transfer->bytes, CRPC_ACCESS_REMOTE_WRITE)) {
        fail(queue_pair, number, NIC_ERROR_REMOTE_ACCESS);
        return true;
    }
    if (wqe->opcode != MEMORY_WRITE) {
        taking = memory_queue_take(target, send ? transfer->bytes : 0, NULL);
        if (taking == TAKING_EMPTY) {
            return wait_for_receive(queue_pair, number);
        }
        if (taking != TAKING_READY) {
            memory_queue_refuse(target,
                                taking == TAKING_REFUSED ? NIC_ERROR_LOCAL : NIC_ERROR_LENGTH);
            fail(queue_pair, number, NIC_ERROR_REMOTE_ACCESS);
            return true;
        }
    }
    if (!wqe->inlined) {
        wqe->payload = memory_allocate(1, transfer->bytes);
        memory_wqe_gather(wqe, wqe->payload);
    }
    message_now(queue_pair, target, wqe);
    wqe->executed = true;
    return true;
}

/* A READ or an atomic: what is found waits for the answer. */
static void execute_question(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                             uint32_t number)
{
    struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    const struct nic_transfer *transfer = &wqe->transfer;

    if (memory_atomic(wqe)) {
        wqe->executed = memory_atomic_execute(target, wqe);
    } else if (memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                                    transfer->bytes, CRPC_ACCESS_REMOTE_READ)) {
        wqe->payload = memory_allocate(1, transfer->bytes);
        if (transfer->bytes > 0) {
            memcpy(wqe->payload, memory_at(target, transfer->remote_key, transfer->remote_address),
                   transfer->bytes);
        }
        queue_pair->fabric->counters.reads++;
        wqe->executed = true;
    }
    if (!wqe->executed) {
        fail(queue_pair, number, NIC_ERROR_REMOTE_ACCESS);
    }
}

static bool execute(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                    uint32_t number)
{
    const struct memory_wqe *wqe = memory_wqe(queue_pair, number);

    if (wqe->target->base.access_key != target->queue->access_key) {
        fail(queue_pair, number, NIC_ERROR_REMOTE_ACCESS);
    } else if (wqe->opcode == MEMORY_READ || memory_atomic(wqe)) {
        execute_question(queue_pair, target, number);
    } else {
        return execute_message(queue_pair, target, number);
    }
    return true;
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void acknowledge(struct memory_queue_pair *queue_pair, uint32_t number)
{
    const struct memory_wqe *wqe = memory_wqe(queue_pair, number);

    if (wqe->opcode == MEMORY_READ) {
        if (!memory_wqe_allows(queue_pair, wqe, CRPC_ACCESS_LOCAL_WRITE)) {
            fail(queue_pair, number, NIC_ERROR_LOCAL);
            return;
        }
        memory_wqe_scatter(wqe, wqe->payload, 0, wqe->transfer.bytes);
    } else if (memory_atomic(wqe)) {
        memory_atomic_answer(queue_pair, number);
    }
    if (wqe->signaled) {
        memory_complete_send(queue_pair, number, NIC_ERROR_NONE);
    }
    finish(queue_pair, number);
}

/* The next of the oldest WQE of a stream, which was rung. Returns true if it has moved. */
static bool move(struct memory_queue_pair *queue_pair, uint32_t number)
{
    const struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    struct memory_queue_pair *target;

    if (stream_of(queue_pair, number)->failed) {
        flush(queue_pair, number);
        return true;
    }
    if (wqe->opcode == MEMORY_NOP) {
        acknowledge(queue_pair, number);
        return true;
    }
    target = reach(queue_pair, wqe);
    if (!target) { /* nor does an answer come back */
        return wait_for_answer(queue_pair, number);
    }
    if (memory_stalled(target)) {
        return false;
    }
    stream_of(queue_pair, number)->stuck = false;
    if (wqe->executed) {
        acknowledge(queue_pair, number);
        return true;
    }
    return execute(queue_pair, target, number);
}

/* ---- Time ------------------------------------------------------------------------------------ */

bool memory_dc_step(struct memory_queue_pair *queue_pair)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    const uint32_t count = queue_pair->rung - queue_pair->acknowledged;

    if (count == 0 || memory_stalled(queue_pair)) {
        return false;
    }
    if (queue_pair->dead) {
        flush(queue_pair, queue_pair->acknowledged);
        return true;
    }
    const uint32_t start = random_below(&fabric->random, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = queue_pair->acknowledged + (start + i) % count;
        if (memory_wqe(queue_pair, number)->done) {
            continue;
        }
        struct memory_stream *stream = stream_of(queue_pair, number);
        if (fabric->now < stream->not_before) {
            continue;
        }
        if (random_percent(&fabric->random, fabric->options.delay_percent)) {
            stream->not_before =
                fabric->now + random_between(&fabric->random, 1,
                                             (uint32_t)maximum(1, fabric->options.delay_steps));
            continue;
        }
        return move(queue_pair, stream->first);
    }
    return false;
}

bool memory_dc_now(struct memory_queue_pair *queue_pair)
{
    bool moved = false;

    if (memory_stalled(queue_pair)) {
        return false;
    }
    for (uint32_t number = queue_pair->acknowledged;
         number != queue_pair->rung && !queue_pair->dead; number++) {
        const struct memory_wqe *wqe = memory_wqe(queue_pair, number);
        while (!queue_pair->dead && !wqe->done && stream_of(queue_pair, number)->first == number &&
               move(queue_pair, number)) {
            moved = true;
        }
    }
    while (queue_pair->dead && queue_pair->acknowledged != queue_pair->rung) {
        flush(queue_pair, queue_pair->acknowledged);
        moved = true;
    }
    return moved;
}
