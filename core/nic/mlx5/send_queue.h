/* send_queue.h: a send queue: a ring of 64-byte blocks that WQEs lie in one after another.
 *
 *   begin   gives the place of a WQE, at the ring's start if it does not fit before the ring's end,
 *           which a NOP then fills: a WQE is always in one piece
 *   end     writes the control segment; the WQE is posted, but the device does not know
 *   ring    tells the device of all that was posted since, by one doorbell
 *
 * Positions are counts of blocks that never wrap in practice (32 bits; only differences and the
 * lower bits matter); the device knows their lower 16 bits. Between `consumer` and `producer` the
 * device may read, so nothing is written there. Whoever polls moves `consumer` (tracking.h tells
 * him how far).
 */
#ifndef CORE_NIC_MLX5_SEND_QUEUE_H
#define CORE_NIC_MLX5_SEND_QUEUE_H

#include <stdbool.h>

#include "nic/mlx5/doorbell.h"
#include "nic/mlx5/wqe.h"

struct send_queue {
    uint8_t *buffer;
    uint32_t mask;     /* blocks - 1; they are a power of two */
    uint32_t producer; /* end of what is posted */
    uint32_t rung;     /* end of what the device was told of */
    uint32_t consumer; /* all before it is done */
    uint32_t number;   /* of the queue pair */
    uint32_t *record;  /* the doorbell record's word for sends */
    struct doorbell *doorbell;
    uint32_t last; /* where the last WQE begins */
    uint64_t rings;
    uint64_t pushes; /* those of the rings that brought the WQEs with them */
};

static inline void *send_queue_at(const struct send_queue *queue, uint32_t position)
{
    return queue->buffer + (size_t)(position & queue->mask) * WQE_BLOCK_BYTES;
}

static inline uint32_t send_queue_room(const struct send_queue *queue)
{
    return queue->mask + 1 - (queue->producer - queue->consumer);
}

/* Blocks from `position` to the end of the ring. */
static inline uint32_t send_queue_run(const struct send_queue *queue, uint32_t position)
{
    return queue->mask + 1 - (position & queue->mask);
}

static inline void send_queue_end(struct send_queue *queue, void *wqe, const void *end,
                                  uint8_t opcode, uint8_t flags, uint32_t immediate)
{
    uint32_t bytes = (uint32_t)((const uint8_t *)end - (uint8_t *)wqe);
    wqe_control(wqe, queue->producer, opcode, queue->number, bytes / WQE_UNIT_BYTES, flags,
                immediate);
    queue->last = queue->producer;
    queue->producer += wqe_blocks(bytes);
}

/* Fills `blocks`, fewer than a WQE may have, up to the ring's end. */
static inline void send_queue_fill(struct send_queue *queue, uint32_t blocks)
{
    uint8_t *wqe = send_queue_at(queue, queue->producer);
    send_queue_end(queue, wqe, wqe + (size_t)blocks * WQE_BLOCK_BYTES, MLX5_OPCODE_NOP, 0, 0);
}

/* The place of a WQE of up to `blocks`, or NULL, and nothing has changed, if there is no room.
 * *filled: blocks that a NOP before it took. */
static inline void *send_queue_begin(struct send_queue *queue, uint32_t blocks, uint32_t *filled)
{
    uint32_t place = queue->producer & queue->mask;
    uint32_t fill = 0;
    if (unlikely(place + blocks > queue->mask + 1)) {
        fill = queue->mask + 1 - place;
    }
    if (unlikely(send_queue_room(queue) < blocks + fill)) {
        return NULL;
    }
    *filled = fill;
    if (unlikely(fill)) {
        send_queue_fill(queue, fill);
        return queue->buffer;
    }
    return queue->buffer + (size_t)place * WQE_BLOCK_BYTES;
}

/* One doorbell for all that was posted since the last: pushed whole if it is in one piece and small
 * enough, else the device reads it by DMA. */
static inline void send_queue_ring(struct send_queue *queue)
{
    uint32_t first = queue->rung;
    uint32_t blocks = queue->producer - first;
    if (blocks == 0) {
        return;
    }
    struct doorbell *doorbell = queue->doorbell;
    barrier_before_record();
    *(volatile uint32_t *)queue->record = htobe32(queue->producer & 0xffffu);
    barrier_before_doorbell();
    queue->rung = queue->producer;
    queue->rings++;
    if (likely(blocks * WQE_BLOCK_BYTES <= doorbell->push_bytes &&
               blocks <= send_queue_run(queue, first))) {
        doorbell_push(doorbell, send_queue_at(queue, first), blocks * WQE_BLOCK_BYTES);
        queue->pushes++;
    } else {
        doorbell_ring(doorbell, send_queue_at(queue, queue->last));
    }
}

#endif
