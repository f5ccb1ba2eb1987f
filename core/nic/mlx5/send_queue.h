/* send_queue.h: a send queue, which is a ring of 64-byte blocks with WQEs one after the other.
 *
 *   begin   returns the place of a WQE. A WQE is always in one piece: if it does not fit before the
 *           ring's end, a NOP fills the end, and the WQE goes to the start
 *   end     writes the control segment; the WQE is then posted, but the device does not know it
 *   ring    tells the device about all WQEs posted since, with one doorbell
 *
 * A position is a 32-bit count of blocks; only differences and lower bits matter. The device knows
 * the lower 16 bits. The device may read between `consumer` and `producer`, so nothing is written
 * there. Polling advances `consumer`; tracking.h computes how far.
 */
#ifndef CORE_NIC_MLX5_SEND_QUEUE_H
#define CORE_NIC_MLX5_SEND_QUEUE_H

#include <stdbool.h>

#include "nic/mlx5/doorbell.h"
#include "nic/mlx5/wqe.h"

struct send_queue {
    uint8_t *buffer;
    uint32_t mask;     /* number of blocks - 1; the number is a power of two */
    uint32_t producer; /* end of what was posted */
    uint32_t rung;     /* end of what the device was told */
    uint32_t consumer; /* everything before it is done */
    uint32_t number;   /* of the queue pair */
    uint32_t *record;  /* the doorbell record's word for sends */
    struct doorbell *doorbell;
    uint32_t last;   /* position of the last WQE that was not pushed by itself */
    uint64_t rings;  /* doorbells of send_queue_ring */
    uint64_t pushes; /* of these, those that pushed the WQEs */
};

static inline void *send_queue_at(const struct send_queue *queue, uint32_t position)
{
    return queue->buffer + (size_t)(position & queue->mask) * WQE_BLOCK_BYTES;
}

static inline uint32_t send_queue_room(const struct send_queue *queue)
{
    return queue->mask + 1 - (queue->producer - queue->consumer);
}

/* Returns the number of blocks from `position` to the end of the ring. */
static inline uint32_t send_queue_run(const struct send_queue *queue, uint32_t position)
{
    return queue->mask + 1 - (position & queue->mask);
}

static inline void send_queue_end(struct send_queue *queue, void *wqe, const void *end,
                                  uint8_t opcode, uint32_t flags, uint32_t immediate)
{
    uint32_t bytes = (uint32_t)((const uint8_t *)end - (uint8_t *)wqe);
    wqe_control(wqe, queue->producer, opcode, queue->number, bytes / WQE_UNIT_BYTES, flags,
                immediate);
    queue->last = queue->producer;
    queue->producer += wqe_blocks(bytes);
}

/* Fills the last `blocks` of the ring with a NOP. There are fewer than a WQE may have. */
static inline void send_queue_fill(struct send_queue *queue, uint32_t blocks)
{
    uint8_t *wqe = send_queue_at(queue, queue->producer);
    send_queue_end(queue, wqe, wqe + (size_t)blocks * WQE_BLOCK_BYTES, MLX5_OPCODE_NOP, 0, 0);
}

/* Returns the place of a WQE of up to `blocks`, and sets *filled to the number of blocks that a NOP
 * before it takes. Returns NULL and changes nothing if there is no room. */
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

/* Posts and pushes a WQE that was written at the producer and ends at `end`, as the only one since the last doorbell: it is in one
 * piece, and small enough. */
static inline void send_queue_push(struct send_queue *queue, const void *wqe, uint32_t blocks,
                                   uint32_t end)
{
    struct doorbell *doorbell = queue->doorbell;
    queue->producer = end;
    barrier_before_record();
    *(volatile uint32_t *)queue->record = htobe32(end & 0xffffu);
    barrier_before_doorbell();
    queue->rung = end;
    doorbell_push(doorbell, wqe, blocks * WQE_BLOCK_BYTES);
}

/* Rings one doorbell for everything posted since the last. Pushes the WQEs if they are in one piece
 * and small enough; otherwise the device reads them by DMA. Returns how many doorbells were rung, 0 or 1. */
static inline uint32_t send_queue_ring(struct send_queue *queue)
{
    uint32_t first = queue->rung;
    uint32_t blocks = queue->producer - first;
    if (blocks == 0) {
        return 0;
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
    return 1;
}

#endif
