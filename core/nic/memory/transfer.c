/* transfer.c: the rules of a reliable connection, and immediate mode, which applies them on the
 * spot.
 *
 * Who dies of what: a WQE whose local key is wrong kills its own queue pair (NIC_ERROR_LOCAL). One
 * that the peer's device refuses kills the peer's queue pair at once, and its own when the refusal
 * arrives (NIC_ERROR_REMOTE_ACCESS). All other WQEs outstanding on a dead queue pair are flushed.
 */
#include "nic/memory/datagram.h"
#include "nic/memory/dc.h"
#include "nic/memory/tags.h"

#include <stdlib.h>
#include <string.h>

/* ---- Landing and arriving -------------------------------------------------------------------- */

void memory_land(struct memory_queue_pair *target, uint32_t remote_key, uint64_t address,
                 const void *data, uint32_t bytes)
{
    struct memory_fabric *fabric = target->fabric;

    if (bytes == 0) {
        return;
    }
    if (unlikely(fabric->landing)) {
        fabric->landing(fabric->landing_argument, &target->nic->base, target->base.number, address,
                        bytes);
    }
    uint8_t *const to = memory_at(target, remote_key, address);
    if (likely(fabric->options.relaxed_late_percent == 0) ||
        !memory_hold(target, remote_key, to, data, bytes)) {
        memmove(to, data, bytes);
    }
}

static void arrival_queue(struct memory_queue_pair *target, uint32_t immediate, uint32_t bytes)
{
    struct memory_nic *nic = target->nic;
    struct memory_arrival *arrival = nic->free_arrivals;

    memory_require(arrival, "more receives used than %s has", nic->base.device);
    nic->free_arrivals = arrival->next;
    *arrival = (struct memory_arrival){
        .covers = target->fabric->held_order, .immediate = immediate, .bytes = bytes};
    *target->arrivals_end = arrival;
    target->arrivals_end = &arrival->next;
    memory_active_update(target);
}

void memory_arrive(struct memory_queue_pair *target, uint32_t immediate, uint32_t bytes)
{
    (*memory_receives(target))--;
    if (memory_immediate(target->fabric)) {
        memory_complete_receive(target, immediate, bytes, target->fabric->held_order);
    } else {
        arrival_queue(target, immediate, bytes);
    }
}

bool memory_landed(struct memory_queue_pair *target, const struct memory_wqe *wqe)
{
    if (wqe->opcode == MEMORY_WRITE) {
        target->fabric->counters.plain_writes++;
        return true;
    }
    if (target->queue) {
        if (wqe->opcode == MEMORY_WRITE_IMMEDIATE &&
            memory_queue_take(target, 0, NULL) != TAKING_READY) {
            return false;
        }
        memory_queue_arrive(target, wqe);
    } else if (*memory_receives(target) == 0) {
        return false;
    } else {
        memory_arrive(target, wqe->transfer.immediate, wqe->transfer.bytes);
    }
    target->fabric->counters.writes++;
    return true;
}

void memory_receiver_not_ready(struct memory_queue_pair *queue_pair)
{
    struct memory_fabric *fabric = queue_pair->fabric;
    struct memory_wqe *wqe = memory_wqe(queue_pair, queue_pair->executed);

    if (!wqe->receiver_not_ready) {
        fabric->counters.receiver_not_ready++;
    }
    wqe->receiver_not_ready = true;
    if (fabric->options.receiver_not_ready_fails) {
        memory_execute_failed(queue_pair, NIC_ERROR_RNR);
    } else {
        queue_pair->not_before[LANE_TRANSFER] =
            fabric->now + fabric->options.receiver_not_ready_steps;
    }
}

/* ---- Failing --------------------------------------------------------------------------------- */

void memory_execute_failed(struct memory_queue_pair *queue_pair, enum nic_error status)
{
    if (status == NIC_ERROR_LOCAL) {
        queue_pair->fabric->counters.local_errors++;
    }
    memory_wqe(queue_pair, queue_pair->executed++)->status = (uint8_t)status;
    queue_pair->halted = true;
}

void memory_execute_refused(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target)
{
    queue_pair->fabric->counters.remote_access_errors++;
    memory_execute_failed(queue_pair, NIC_ERROR_REMOTE_ACCESS);
    if (target == queue_pair) { /* a loop: it dies of its own refusal */
        return;
    }
    memory_die(target);
    memory_settle(target);
}

void memory_deliver_arrival(struct memory_queue_pair *queue_pair)
{
    struct memory_arrival *arrival = queue_pair->arrivals;

    queue_pair->arrivals = arrival->next;
    if (!queue_pair->arrivals) {
        queue_pair->arrivals_end = &queue_pair->arrivals;
    }
    if (queue_pair->queue) {
        memory_queue_complete_receive(queue_pair, arrival, NIC_ERROR_NONE);
        free(arrival);
        return;
    }
    memory_complete_receive(queue_pair, arrival->immediate, arrival->bytes, arrival->covers);
    arrival->next = queue_pair->nic->free_arrivals;
    queue_pair->nic->free_arrivals = arrival;
}

void memory_die(struct memory_queue_pair *queue_pair)
{
    if (queue_pair->dead) {
        return;
    }
    queue_pair->dead = true;
    memory_queue_pair_update(queue_pair);
    /* What has arrived may have been acknowledged, so its completion is good; and a device writes it
     * before those of its death. */
    while (queue_pair->arrivals) {
        memory_deliver_arrival(queue_pair);
    }
    if (queue_pair->queue) {
        memory_queue_flush_receives(queue_pair);
    }
    memory_active_update(queue_pair);
}

void memory_payload_free(struct memory_wqe *wqe)
{
    memory_target_leave(wqe);
    if (!wqe->inlined) {
        free(wqe->payload);
    }
    wqe->payload = NULL;
}

void memory_acknowledged(struct memory_queue_pair *queue_pair)
{
    memory_payload_free(memory_wqe(queue_pair, queue_pair->acknowledged++));
}

void memory_fail_oldest(struct memory_queue_pair *queue_pair, enum nic_error status)
{
    memory_complete_send(queue_pair, queue_pair->acknowledged, status);
    memory_acknowledged(queue_pair);
    memory_die(queue_pair);
}

void memory_flush_oldest(struct memory_queue_pair *queue_pair)
{
    const uint32_t number = queue_pair->acknowledged;

    if (!queue_pair->fabric->options.flush_signaled_only ||
        memory_wqe(queue_pair, number)->signaled || number + 1 == queue_pair->rung) {
        memory_complete_send(queue_pair, number, NIC_ERROR_FLUSHED);
    }
    memory_acknowledged(queue_pair);
}

/* ---- Immediate mode -------------------------------------------------------------------------- */

static void write_now(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                      const struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    const void *data = wqe->inlined ? wqe->payload : (void *)(uintptr_t)transfer->local_address;

    if (!wqe->inlined && !memory_allows_local(queue_pair, transfer->local_key,
                                              transfer->local_address, transfer->bytes, 0)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
    } else if (!memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                                     transfer->bytes, CRPC_ACCESS_REMOTE_WRITE)) {
        memory_execute_refused(queue_pair, target);
    } else if (wqe->opcode == MEMORY_WRITE_IMMEDIATE && *memory_receives(target) == 0 &&
               !target->queue) {
        memory_receiver_not_ready(queue_pair);
    } else {
        memory_land(target, transfer->remote_key, transfer->remote_address, data, transfer->bytes);
        memory_landed(target, wqe);
        queue_pair->executed++;
    }
}

static void read_now(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                     const struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;

    if (!memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                              transfer->bytes, CRPC_ACCESS_REMOTE_READ)) {
        memory_execute_refused(queue_pair, target);
    } else if (!memory_allows_local(queue_pair, transfer->local_key, transfer->local_address,
                                    transfer->bytes, CRPC_ACCESS_LOCAL_WRITE)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
    } else {
        if (transfer->bytes > 0) {
            memmove((void *)(uintptr_t)transfer->local_address,
                    memory_at(target, transfer->remote_key, transfer->remote_address),
                    transfer->bytes);
        }
        queue_pair->fabric->counters.reads++;
        queue_pair->executed++;
    }
}

bool memory_send_invalidate(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                            const struct memory_wqe *wqe)
{
    if (!(wqe->flags & NIC_DONE_INVALIDATED) ||
        memory_window_invalidate(target, wqe->transfer.immediate)) {
        return true;
    }
    memory_queue_refuse(target, NIC_ERROR_LOCAL);
    memory_execute_refused(queue_pair, target);
    return false;
}

/* ---- Immediate mode, pieces, and queues with user data --------------------------------------------------- */

/* A message that a receive is needed for, or a WRITE of several pieces. */
static void queue_write_now(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                            struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    const bool write = wqe->opcode != MEMORY_SEND;

    if (!wqe->inlined && !memory_wqe_allows(queue_pair, wqe, 0)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
        return;
    }
    if (write && !memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                                       transfer->bytes, CRPC_ACCESS_REMOTE_WRITE)) {
        memory_execute_refused(queue_pair, target);
        return;
    }
    if (!wqe->inlined && !wqe->payload) {
        wqe->payload = memory_allocate(1, transfer->bytes);
        memory_wqe_gather(wqe, wqe->payload);
    }
    if (wqe->opcode == MEMORY_WRITE_IMMEDIATE && !target->queue) {
        if (*memory_receives(target) == 0) {
            memory_receiver_not_ready(queue_pair);
            return;
        }
    } else if (wqe->opcode != MEMORY_WRITE) {
        const enum memory_taking taking =
            memory_queue_take(target, write ? 0 : transfer->bytes, write ? NULL : wqe->payload);
        switch (taking) {
        case TAKING_EMPTY:
            memory_receiver_not_ready(queue_pair);
            return;
        case TAKING_REFUSED:
        case TAKING_TOO_LONG:
            memory_queue_refuse(target,
                                taking == TAKING_REFUSED ? NIC_ERROR_LOCAL : NIC_ERROR_LENGTH);
            memory_execute_refused(queue_pair, target);
            return;
        default:
            break;
        }
    }
    if (write) {
        memory_land(target, transfer->remote_key, transfer->remote_address, wqe->payload,
                    transfer->bytes);
    } else {
        memory_queue_land(target, wqe->payload, 0, transfer->bytes);
    }
    if (memory_send_invalidate(queue_pair, target, wqe)) {
        memory_landed(target, wqe);
        queue_pair->executed++;
    }
}

static void queue_read_now(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                           struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;

    if (!memory_allows_remote(target, transfer->remote_key, transfer->remote_address,
                              transfer->bytes, CRPC_ACCESS_REMOTE_READ)) {
        memory_execute_refused(queue_pair, target);
    } else if (!memory_wqe_allows(queue_pair, wqe, CRPC_ACCESS_LOCAL_WRITE)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
    } else {
        if (transfer->bytes > 0) {
            memory_wqe_scatter(wqe,
                               memory_at(target, transfer->remote_key, transfer->remote_address), 0,
                               transfer->bytes);
        }
        queue_pair->fabric->counters.reads++;
        queue_pair->executed++;
    }
}

static void atomic_now(struct memory_queue_pair *queue_pair, struct memory_queue_pair *target,
                       struct memory_wqe *wqe)
{
    if (!memory_atomic_allows(queue_pair, wqe)) {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
    } else if (memory_atomic_execute(target, wqe)) {
        memory_atomic_answer(queue_pair, queue_pair->executed);
        queue_pair->executed++;
    } else {
        memory_execute_refused(queue_pair, target);
    }
}

static void queue_execute_now(struct memory_queue_pair *queue_pair,
                              struct memory_queue_pair *target, struct memory_wqe *wqe)
{
    if (memory_atomic(wqe)) {
        atomic_now(queue_pair, target, wqe);
    } else if (wqe->opcode == MEMORY_READ) {
        queue_read_now(queue_pair, target, wqe);
    } else {
        queue_write_now(queue_pair, target, wqe);
    }
}

void memory_execute_local(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe)
{
    if (wqe->opcode == MEMORY_DATAGRAM) {
        memory_datagram_execute(queue_pair, wqe);
    } else if (wqe->opcode == MEMORY_TAG) {
        memory_tags_execute(queue_pair);
        queue_pair->executed++;
    } else if (wqe->opcode == MEMORY_NOP || memory_window_execute(queue_pair, wqe)) {
        queue_pair->executed++;
    } else {
        memory_execute_failed(queue_pair, NIC_ERROR_LOCAL);
    }
}

/* The WQE that was just executed. */
static void acknowledge_now(struct memory_queue_pair *queue_pair)
{
    const struct memory_wqe *wqe = memory_wqe(queue_pair, queue_pair->acknowledged);

    if (unlikely(wqe->status != NIC_ERROR_NONE)) {
        memory_fail_oldest(queue_pair, wqe->status);
        return;
    }
    if (wqe->signaled) {
        memory_complete_send(queue_pair, queue_pair->acknowledged, NIC_ERROR_NONE);
    }
    if (unlikely(queue_pair->queue || wqe->pieces) || memory_atomic(wqe)) {
        memory_acknowledged(queue_pair);
    } else { /* it has no payload of its own */
        queue_pair->acknowledged++;
    }
}

/* One WQE; false if it cannot execute now. */
static bool execute_now(struct memory_queue_pair *queue_pair)
{
    const uint32_t number = queue_pair->executed;
    struct memory_wqe *wqe = memory_wqe(queue_pair, number);
    struct memory_queue_pair *target = memory_reach(queue_pair);

    if (unlikely(memory_stalled(queue_pair))) {
        return false;
    }
    if (unlikely(queue_pair->fabric->options.clock_ns) && memory_timed_waits(queue_pair, wqe)) {
        return false;
    }
    if (memory_local(wqe)) {
        memory_execute_local(queue_pair, wqe);
        acknowledge_now(queue_pair);
        return true;
    }
    if (unlikely(!target)) {
        return memory_wait_for_answer(queue_pair, LANE_TRANSFER);
    }
    if (unlikely(memory_stalled(target))) {
        return false;
    }
    queue_pair->stuck = false;
    if (unlikely(queue_pair->queue || wqe->pieces)) {
        queue_execute_now(queue_pair, target, wqe);
    } else if (wqe->opcode == MEMORY_READ) {
        read_now(queue_pair, target, wqe);
    } else if (unlikely(memory_atomic(wqe))) {
        atomic_now(queue_pair, target, wqe);
    } else {
        write_now(queue_pair, target, wqe);
    }
    if (queue_pair->executed == number) {
        return false;
    }
    acknowledge_now(queue_pair);
    return true;
}

bool memory_transfer_now(struct memory_queue_pair *queue_pair)
{
    bool moved = false;

    if (memory_is_dci(queue_pair)) {
        return memory_dc_now(queue_pair);
    }
    while (!queue_pair->dead && queue_pair->executed != queue_pair->rung &&
           execute_now(queue_pair)) {
        moved = true;
    }
    while (queue_pair->dead && queue_pair->acknowledged != queue_pair->rung) {
        memory_flush_oldest(queue_pair);
        moved = true;
    }
    return moved;
}

void memory_settle(struct memory_queue_pair *queue_pair)
{
    if (memory_immediate(queue_pair->fabric)) {
        memory_transfer_now(queue_pair);
    }
    memory_active_update(queue_pair);
}
