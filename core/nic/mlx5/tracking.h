/* tracking.h: from the 16-bit counter in a CQE to what was posted: user data, and how much of the
 * queue is free again.
 *
 * The device keeps no user data, so a table as long as the queue does. Which of the five kinds
 * serves a queue depends on what order its completions keep:
 *
 *   dense      send queue, in order; every WQE is reported, also those that asked for no
 *              completion, when a later one completes
 *   sparse     send queue, in order; only WQEs that asked for a completion have user data
 *   unordered  send queue whose WQEs complete in any order (DCI streams); all are signaled
 *   ordered receive, unordered receive (SRQ; tag matching): a WQE is one entry
 *
 * A counter names the WQE's first block. It has 16 bits and a queue at most 2^15 entries, so it says
 * which position between consumer and producer is meant. An entry knows its own position in all 32
 * bits, which is the generation that the seed asks for: what was posted there laps ago, and is
 * covered by a larger WQE since, is told from what is outstanding. A counter of nothing outstanding
 * is reported, not believed: a device error must not become ours.
 *
 * Room after completions in any order needs no search: a ring is written in order, so what counts
 * is the oldest entry still outstanding, and `unordered` moves over entries that are done already.
 */
#ifndef CORE_NIC_MLX5_TRACKING_H
#define CORE_NIC_MLX5_TRACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#define TRACKING_ENTRIES_MAX (1u << 15)

enum tracking_state {
    TRACKING_FREE = 0,
    TRACKING_FILLER, /* a NOP at the ring's end: completes, but is nobody's */
    TRACKING_POSTED,
    TRACKING_SIGNALED, /* posted, and asked for a completion */
};

/* At the index of a WQE's first block. */
struct tracking_entry {
    uint64_t user_data;
    uint32_t position;
    uint16_t blocks;
    uint8_t state; /* enum tracking_state */
    uint8_t reserved;
};

struct tracking {
    struct tracking_entry *entries;
    uint32_t mask;
    uint32_t consumer; /* position of the oldest entry that is not done */
    uint32_t producer; /* end of what was posted */
};

struct tracking_done {
    uint64_t user_data;
    bool signaled; /* the CQE is this WQE's own */
};

static inline struct tracking_entry *tracking_at(const struct tracking *tracking, uint32_t position)
{
    return &tracking->entries[position & tracking->mask];
}

/* A WQE was posted at [position, end). */
static inline void tracking_post(struct tracking *tracking, uint32_t position, uint32_t end,
                                 uint64_t user_data, enum tracking_state state)
{
    *tracking_at(tracking, position) = (struct tracking_entry){.user_data = user_data,
                                                               .position = position,
                                                               .blocks = (uint16_t)(end - position),
                                                               .state = (uint8_t)state};
    tracking->producer = end;
}

/* The position that a CQE's counter means; false if nothing outstanding begins there: of all that
 * has that counter the entry knows only the position from the consumer on, and only if it was
 * posted. */
static inline bool tracking_find(const struct tracking *tracking, uint16_t counter,
                                 uint32_t *position)
{
    uint32_t ahead = (uint16_t)(counter - (uint16_t)tracking->consumer);
    *position = tracking->consumer + ahead;
    const struct tracking_entry *entry = tracking_at(tracking, *position);
    return likely(entry->position == *position && entry->state != TRACKING_FREE);
}

/* ---- Dense: walk from the oldest WQE to the one that completed ------------------------------- */

/* Takes the oldest WQE not done, if it is at or before `last`, a position from tracking_find:
 * true and *done, or false when all have been taken. */
static inline bool tracking_dense_next(struct tracking *tracking, uint32_t last,
                                       struct tracking_done *done)
{
    while ((int32_t)(last - tracking->consumer) >= 0) {
        uint32_t position = tracking->consumer;
        struct tracking_entry *entry = tracking_at(tracking, position);
        bool filler = entry->state == TRACKING_FILLER;
        *done = (struct tracking_done){.user_data = entry->user_data, .signaled = position == last};
        entry->state = TRACKING_FREE;
        tracking->consumer = position + entry->blocks;
        if (likely(!filler)) {
            return true;
        }
    }
    return false;
}

/* ---- Sparse: only the one that completed ----------------------------------------------------- */

static inline struct tracking_done tracking_sparse_take(struct tracking *tracking,
                                                        uint32_t position)
{
    struct tracking_entry *entry = tracking_at(tracking, position);
    tracking->consumer = position + entry->blocks;
    entry->state = TRACKING_FREE;
    return (struct tracking_done){.user_data = entry->user_data, .signaled = true};
}

/* ---- Unordered: the one that completed, wherever it is --------------------------------------- */

static inline struct tracking_done tracking_unordered_take(struct tracking *tracking,
                                                           uint32_t position)
{
    struct tracking_entry *entry = tracking_at(tracking, position);
    entry->state = TRACKING_FREE;
    /* Each entry is passed once, so this is constant time a completion on average. A filler asks for
     * no completion, so only one of a WQE after it says that the device has read it. */
    uint32_t next = tracking->consumer;
    while (next != tracking->producer) {
        const struct tracking_entry *oldest = tracking_at(tracking, next);
        if (oldest->state != TRACKING_FREE && oldest->state != TRACKING_FILLER) {
            break;
        }
        next += oldest->blocks;
        if (oldest->state == TRACKING_FREE) {
            tracking->consumer = next;
        }
    }
    return (struct tracking_done){.user_data = entry->user_data, .signaled = true};
}

/* ---- Receives: a WQE is one entry, named by its index or its counter -------------------------- */

/* Ordered: as sparse, and what is between was done before. Unordered: entries of an SRQ, by index;
 * which are free is the SRQ's list's business (receive_queue.h), so there is no room to compute. */
static inline void tracking_receive_post(struct tracking *tracking, uint32_t index,
                                         uint64_t user_data)
{
    struct tracking_entry *entry = &tracking->entries[index & tracking->mask];
    entry->user_data = user_data;
    entry->state = TRACKING_SIGNALED;
}

/* False if no receive is posted at this index: the counter is not to be believed. */
static inline bool tracking_receive_take(struct tracking *tracking, uint32_t index,
                                         uint64_t *user_data)
{
    if (unlikely(index > tracking->mask || tracking->entries[index].state == TRACKING_FREE)) {
        return false;
    }
    tracking->entries[index].state = TRACKING_FREE;
    *user_data = tracking->entries[index].user_data;
    return true;
}

#endif
