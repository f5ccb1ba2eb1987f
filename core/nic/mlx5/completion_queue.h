/* completion_queue.h: reads a completion queue where the device writes it.
 *
 *   next      returns the oldest completion not taken yet, in place, or NULL; reads one cache line
 *   advance   takes it
 *   release   tells the device, once for all completions taken
 *   arm       requests an event
 *
 * The layout with which a queue was created decides how an entry tells whether the device has
 * written it (docs/cqe-compression.md has the formats, with sources):
 *
 *   PLAIN       by the owner bit, which is the parity of the device's lap
 *   COMPRESSED  likewise; an entry of format 3 is a title, and arrays of mini CQEs follow it
 *   ENHANCED    by the signature byte, which is the lap modulo 256; the entry before is the title
 *
 * `layout` is an argument, so that the compiler makes a poll for each layout. Completions of a
 * compressed block are returned one by one in `expanded`. This is the only copy of completions.
 *
 * Before the first lap, every entry is marked as written in the lap before, so that a new queue is
 * no special case.
 */
#ifndef CORE_NIC_MLX5_COMPLETION_QUEUE_H
#define CORE_NIC_MLX5_COMPLETION_QUEUE_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "nic/mlx5/barrier.h"

enum completion_layout { COMPLETION_PLAIN, COMPLETION_COMPRESSED, COMPLETION_ENHANCED };

/* What the first four bytes of a responder's mini CQE contain (mlx5dv's
 * MLX5DV_CQE_RES_FORMAT_*). */
enum completion_mini {
    COMPLETION_MINI_HASH = 1,
    COMPLETION_MINI_CHECKSUM = 2,
    COMPLETION_MINI_STRIDE = 4
};

#define COMPLETION_MINIS_PLAIN 8u    /* in an array */
#define COMPLETION_MINIS_ENHANCED 7u /* in an array */
#define COMPLETION_FORMAT_MASK 0x0cu
#define COMPLETION_FORMAT_COMPRESSED 0x0cu

/* The block of compressed completions that is being taken. */
struct completion_block {
    uint32_t count; /* 0 = none */
    uint32_t taken;
    uint32_t first;   /* index of the block's first place */
    uint16_t counter; /* wqe_counter of its first completion, if mini CQEs have none */
    bool titled;      /* ENHANCED: `expanded` has the title of the next array */
};

struct completion_queue {
    uint8_t *entries; /* the 64 bytes of each that are used */
    uint32_t mask;    /* entries - 1; their number is a power of two */
    uint8_t shift;    /* log2 of an entry's bytes: 6 or 7 */
    uint8_t laps;     /* log2 of the number of entries */
    uint8_t mini;     /* enum completion_mini */
    uint8_t layout;   /* enum completion_layout */
    uint8_t lap;      /* of the consumer index, modulo 256 */
    uint32_t stride;  /* bytes of an entry */
    uint32_t consumer;
    uint32_t released;
    /* Address of the entry at the consumer index. It follows from the index, but every completion
     * needs it, so it is kept. */
    uint8_t *place;
    uint8_t *end; /* of the entries */
    uint32_t *record;
    struct completion_block block;
    struct mlx5_cqe64 expanded;
    /* arming */
    uint8_t *doorbell;
    uint32_t number;
    uint32_t arm_sequence;
    uint64_t blocks; /* compressed blocks taken */
};

/* Marks all entries as the device's, and begins with the first. The device must not have used the
 * queue yet; entries, mask, shift and laps must be set. */
void completion_queue_init(struct completion_queue *queue);

/* Continues at this index, which the device must know already. */
void completion_queue_start(struct completion_queue *queue, uint32_t index);

/* compressed.c: returns the next completion of a block, which is being taken or begins with the
 * entry at the consumer index. If the block is invalid, the completion has the opcode
 * MLX5_CQE_INVALID. */
const struct mlx5_cqe64 *completion_queue_expand(struct completion_queue *queue,
                                                 const struct mlx5_cqe64 *entry);
void completion_queue_end_block(struct completion_queue *queue);

/* ENHANCED: keeps the entry before the consumer index, which will be released, because it may be
 * the title of a following array. */
void completion_queue_keep_title(struct completion_queue *queue);

/* An opcode that no device writes. It marks entries whose queue pair was destroyed. */
#define COMPLETION_DROPPED 0x8u

/* drop.c: marks all entries of a queue pair as dropped. The device must not add more of them. */
void completion_queue_drop(struct completion_queue *queue, uint32_t number);

/* drop.c: takes all entries of a queue pair out of a PLAIN queue, and gives each to `removed`, oldest first. The
 * others stay in their order, and the room is there at once. The device must not add more of them. */
typedef void completion_removed(void *argument, const struct mlx5_cqe64 *entry);
void completion_queue_remove(struct completion_queue *queue, uint32_t number,
                             completion_removed *removed, void *argument);

/* Takes the dropped entries that come next, and releases their places. */
void completion_queue_skip_dropped(struct completion_queue *queue);

/* Requests an event for the next completion after those taken so far. If there is one already, the
 * event comes at once, so that none is lost between the last poll and this call. It uses our own
 * consumer index, which libmlx5 does not know (openucx/ucx#11728). `solicited`: only completions
 * that request an event, and errors, cause one. */
void completion_queue_arm(struct completion_queue *queue, bool solicited);

/* Notes that an event of this queue was taken, so that the device accepts the next arm. */
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

/* Returns true if the device has written the entry in this lap. */
static inline bool completion_is_ours(const struct mlx5_cqe64 *entry, uint32_t lap,
                                      enum completion_layout layout)
{
    if (layout == COMPLETION_ENHANCED) {
        return *(const volatile uint8_t *)&entry->signature == (uint8_t)lap;
    }
    return ((*(const volatile uint8_t *)&entry->op_own ^ lap) & MLX5_CQE_OWNER_MASK) == 0;
}

/* Returns true if `next` would return a completion. */
static inline bool completion_queue_ready(const struct completion_queue *queue,
                                          enum completion_layout layout)
{
    return (layout != COMPLETION_PLAIN && queue->block.count != 0) ||
           completion_is_ours((const struct mlx5_cqe64 *)(const void *)queue->place, queue->lap,
                              layout);
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
    __builtin_prefetch(queue->place + queue->stride); /* harmless past the last entry */
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

/* The arrays of a block lie in places of completions that were taken already. None of these places
 * is released before the whole block is taken. */
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

/* ---- Small payload in the CQE ---------------------------------------------------------------- */

/* Returns where the device has put the payload of a small message ("scatter to CQE"): in the entry
 * itself or in the first half of a 128-byte entry. Returns NULL if it is in the receive's own
 * buffer. `entry` must be in the queue; `expanded` never has payload. */
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
