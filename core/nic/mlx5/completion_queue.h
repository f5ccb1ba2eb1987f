/* completion_queue.h: reads a completion queue where the device writes it.
 *
 *   next      the oldest completion not yet taken, in place, or NULL: one cache line is looked at
 *   advance   it was taken
 *   release   tells the device, once for all that was taken
 *   arm       asks for an event
 *
 * How an entry is known to be the device's or ours depends on the layout the queue was made with
 * (docs/cqe-compression.md has both, with sources):
 *
 *   PLAIN       the owner bit, which the device writes as the parity of its lap
 *   COMPRESSED  the same; an entry of format 3 is a title, with arrays of mini CQEs after it
 *   ENHANCED    the signature byte is the lap, modulo 256; the title is the ordinary entry before
 *
 * `layout` is an argument so that each caller's poll is compiled for the one it has. Completions of
 * a compressed block are given one by one in `expanded`, a copy: the only copy there is.
 *
 * Before the first lap every entry is marked as written in the lap before, so that a new queue
 * needs no test of its own.
 */
#ifndef CORE_NIC_MLX5_COMPLETION_QUEUE_H
#define CORE_NIC_MLX5_COMPLETION_QUEUE_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "nic/mlx5/barrier.h"

enum completion_layout { COMPLETION_PLAIN, COMPLETION_COMPRESSED, COMPLETION_ENHANCED };

/* What the first four bytes of a responder's mini CQE are (mlx5dv's MLX5DV_CQE_RES_FORMAT_*). */
enum completion_mini {
    COMPLETION_MINI_HASH = 1,
    COMPLETION_MINI_CHECKSUM = 2,
    COMPLETION_MINI_STRIDE = 4
};

#define COMPLETION_MINIS_PLAIN 8u    /* in an array */
#define COMPLETION_MINIS_ENHANCED 7u /* in an array */
#define COMPLETION_FORMAT_MASK 0x0cu
#define COMPLETION_FORMAT_COMPRESSED 0x0cu

/* A block of compressed completions that is being taken. */
struct completion_block {
    uint32_t count; /* 0 = none */
    uint32_t taken;
    uint32_t first;   /* index of the block's first place */
    uint16_t counter; /* wqe_counter of its first completion, where mini CQEs have none */
    bool titled;      /* ENHANCED: the title of an array that comes next is in `expanded` */
};

struct completion_queue {
    uint8_t *entries; /* of the 64 bytes that are used of each */
    uint32_t mask;    /* entries - 1; they are a power of two */
    uint8_t shift;    /* log2 of an entry's bytes: 6 or 7 */
    uint8_t laps;     /* log2 of the number of entries */
    uint8_t mini;     /* enum completion_mini */
    uint8_t layout;   /* enum completion_layout */
    uint8_t lap;      /* of the consumer index, modulo 256 */
    uint32_t stride;  /* bytes of an entry */
    uint32_t consumer;
    uint32_t released;
    uint8_t
        *place; /* of the entry at the consumer index: what follows from it by masking and shifting
                       is kept instead, as every completion needs it */
    uint8_t *end; /* of the entries */
    uint32_t *record;
    struct completion_block block;
    struct mlx5_cqe64 expanded;
    /* arming */
    uint8_t *doorbell;
    uint32_t number;
    uint32_t arm_sequence;
    uint64_t blocks; /* compressed, ever taken */
};

/* Marks all entries as the device's, and begins with the first. Before the queue's first use by the
 * device; entries, mask, shift and laps are set. */
void completion_queue_init(struct completion_queue *queue);

/* Goes on at this index, which the device has been told. */
void completion_queue_start(struct completion_queue *queue, uint32_t index);

/* compressed.c: the entry at the consumer index begins a block, or one is being taken; gives its
 * next completion. One with the opcode MLX5_CQE_INVALID if the block cannot be. */
const struct mlx5_cqe64 *completion_queue_expand(struct completion_queue *queue,
                                                 const struct mlx5_cqe64 *entry);
void completion_queue_end_block(struct completion_queue *queue);

/* ENHANCED: keeps the entry before the consumer index, which is to be released, as the title of an
 * array that may follow. */
void completion_queue_keep_title(struct completion_queue *queue);

/* An opcode that no device writes: of an entry whose queue pair is gone. */
#define COMPLETION_DROPPED 0x8u

/* drop.c: marks every entry of a queue pair, which the device adds no more of, as dropped. */
void completion_queue_drop(struct completion_queue *queue, uint32_t number);

/* Takes the dropped entries that are next, and gives their places back. */
void completion_queue_skip_dropped(struct completion_queue *queue);

/* Asks for an event when the device writes a completion after those taken so far: with our own
 * consumer index, which libmlx5 does not know (openucx/ucx#11728). If there is one already, the
 * event comes at once, so none is lost between the last poll and this. `solicited`: only for those
 * that ask for it, and errors. */
void completion_queue_arm(struct completion_queue *queue, bool solicited);

/* An event of this queue was taken; the next arm is a new one to the device. */
void completion_queue_event(struct completion_queue *queue);

static inline struct mlx5_cqe64 *completion_queue_at(const struct completion_queue *queue,
                                                     uint32_t index)
{
    return (struct mlx5_cqe64 *)(void *)(queue->entries +
                                         ((size_t)(index & queue->mask) << queue->shift));
}

static inline uint8_t completion_opcode(const struct mlx5_cqe64 *entry)
{
    return entry->op_own >> 4;
}

static inline uint32_t completion_number(const struct mlx5_cqe64 *entry)
{
    return be32toh(entry->sop_drop_qpn) & 0xffffffu;
}

/* Whether the device has written the entry in this lap. */
static inline bool completion_is_ours(const struct mlx5_cqe64 *entry, uint32_t lap,
                                      enum completion_layout layout)
{
    if (layout == COMPLETION_ENHANCED) {
        return *(const volatile uint8_t *)&entry->signature == (uint8_t)lap;
    }
    return ((*(const volatile uint8_t *)&entry->op_own ^ lap) & MLX5_CQE_OWNER_MASK) == 0;
}

static inline __attribute__((always_inline)) const struct mlx5_cqe64 *
completion_queue_next(struct completion_queue *queue, enum completion_layout layout)
{
    const struct mlx5_cqe64 *entry = (const struct mlx5_cqe64 *)(const void *)queue->place;
    if (layout != COMPLETION_PLAIN && unlikely(queue->block.count != 0)) {
        return completion_queue_expand(queue, entry);
    }
    if (!completion_is_ours(entry, queue->lap, layout)) {
        return NULL;
    }
    barrier_after_owner();
    __builtin_prefetch(queue->place + queue->stride); /* past the last, no harm is done */
    if (layout != COMPLETION_PLAIN) {
        if (unlikely((entry->op_own & COMPLETION_FORMAT_MASK) == COMPLETION_FORMAT_COMPRESSED)) {
            return completion_queue_expand(queue, entry);
        }
        queue->block.titled = false;
    }
    return entry;
}

static inline __attribute__((always_inline)) void
completion_queue_advance(struct completion_queue *queue, enum completion_layout layout)
{
    queue->consumer++;
    queue->place += queue->stride;
    if (unlikely(queue->place == queue->end)) {
        queue->place = queue->entries;
        queue->lap++;
    }
    if (layout != COMPLETION_PLAIN && unlikely(queue->block.count != 0) &&
        ++queue->block.taken == queue->block.count) {
        completion_queue_end_block(queue);
    }
}

/* The arrays of a block lie in places of completions already taken, so while it lasts none of its
 * places is given back. */
static inline void completion_queue_release(struct completion_queue *queue)
{
    uint32_t end = unlikely(queue->block.count != 0) ? queue->block.first : queue->consumer;
    if (queue->released != end) {
        if (unlikely(queue->layout == COMPLETION_ENHANCED)) {
            completion_queue_keep_title(queue);
        }
        queue->released = end;
        barrier_before_release();
        *(volatile uint32_t *)queue->record = htobe32(end & 0xffffffu);
    }
}

/* ---- Small payload that came in the CQE ------------------------------------------------------ */

/* Where the device has put a small message's payload ("scatter to CQE"): in the entry itself, in
 * the entry's first half of 128 bytes, or NULL: in the receive's own buffer. `entry` must be one in
 * the queue, not `expanded`, which never has payload. */
static inline const void *completion_payload(const struct completion_queue *queue,
                                             const struct mlx5_cqe64 *entry)
{
    uint8_t format = entry->op_own & COMPLETION_FORMAT_MASK;
    if (format == MLX5_INLINE_SCATTER_32) {
        return entry;
    }
    if (format == MLX5_INLINE_SCATTER_64) {
        return (const uint8_t *)entry - ((size_t)1 << queue->shift) / 2;
    }
    return NULL;
}

#endif
