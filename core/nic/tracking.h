/* tracking.h: finds what was posted for the 16-bit counter in a CQE: the user data, and how much of
 * the queue is free again.
 *
 * The device does not keep user data, so a table as long as the queue keeps it. A position counts
 * what the driver's queue consists of: blocks of 64 bytes (mlx5), or WQEs (verbs, whose wr_id it is).
 * There are five kinds of tables, for different orders of completions:
 *
 *   dense      send queue, in order; when a WQE completes, the unsignaled WQEs before it are
 *              reported, too
 *   sparse     send queue, in order; only the WQE that completed is reported
 *   unordered  send queue, in any order (DCI streams); all WQEs are signaled
 *   ordered receive, unordered receive (SRQ; tag matching): each WQE has one entry
 *
 * A counter names the first block of a WQE. It has 16 bits, and a queue has at most 2^15 entries,
 * so it determines a position between consumer and producer. Each entry also stores its own
 * position with all 32 bits. A stale entry, from an earlier lap and since covered by a larger WQE,
 * therefore does not match. A counter that matches no outstanding WQE is reported and not used, so
 * that a fault of the device does no harm here.
 *
 * Completions in any order need no search for room. A ring is written in order, so only the oldest
 * outstanding entry counts, and `unordered` skips entries that are done already.
 */
#ifndef CORE_NIC_TRACKING_H
#define CORE_NIC_TRACKING_H

#include <assert.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define TRACKING_ENTRIES_MAX (1u << 15)

enum tracking_state {
    TRACKING_FREE = 0,
    TRACKING_FILLER, /* a NOP at the ring's end; it completes, but has no user data */
    TRACKING_POSTED,
    TRACKING_SIGNALED, /* posted, and a CQE may name it */
    TRACKING_ENDED,    /* a receive that completes without a CQE: no CQE may name it */
};

/* The entry at the index of a WQE's first block. */
struct tracking_entry {
    uint64_t user_data;
    uint32_t position;
    uint16_t blocks;
    uint8_t state;  /* enum tracking_state */
    uint8_t opcode; /* of the owner's own numbering */
};

struct tracking {
    struct tracking_entry *entries;
    uint32_t mask;
    uint32_t consumer; /* position of the oldest entry that is not done */
    uint32_t producer; /* end of what was posted */
};

struct tracking_done {
    uint64_t user_data;
    uint32_t position;
    uint8_t opcode;
    bool signaled; /* the CQE belongs to this WQE itself */
    bool filler;   /* it is none of the owner's: dense only */
};

static inline struct tracking_entry *tracking_at(const struct tracking *tracking, uint32_t position)
{
    return &tracking->entries[position & tracking->mask];
}

/* Notes a WQE of so many blocks at the position. That is all that a sparse table needs. */
static inline void tracking_note(const struct tracking *tracking, uint32_t position,
                                 uint32_t blocks, uint64_t user_data, enum tracking_state state,
                                 uint8_t opcode)
{
    struct tracking_entry *entry = tracking_at(tracking, position);
    /* One store. */
    const uint16_t state_and_opcode = htole16((uint16_t)(state | (uint32_t)opcode << 8));
    static_assert(offsetof(struct tracking_entry, opcode) ==
                      offsetof(struct tracking_entry, state) + 1,
                  "side by side");
    entry->user_data = user_data;
    entry->position = position;
    entry->blocks = (uint16_t)blocks;
    memcpy(&entry->state, &state_and_opcode, sizeof(state_and_opcode));
}

/* Notes that a WQE was posted at [position, end). */
static inline void tracking_post_op(struct tracking *tracking, uint32_t position, uint32_t end,
                                    uint64_t user_data, enum tracking_state state, uint8_t opcode)
{
    tracking_note(tracking, position, end - position, user_data, state, opcode);
    tracking->producer = end;
}

static inline void tracking_post(struct tracking *tracking, uint32_t position, uint32_t end,
                                 uint64_t user_data, enum tracking_state state)
{
    tracking_post_op(tracking, position, end, user_data, state, 0);
}

/* Finds the position that a CQE's counter names, from the consumer on. Returns false if no
 * outstanding WQE begins there. */
static inline bool tracking_find(const struct tracking *tracking, uint16_t counter,
                                 uint32_t *position)
{
    uint32_t ahead = (uint16_t)(counter - (uint16_t)tracking->consumer);
    *position = tracking->consumer + ahead;
    const struct tracking_entry *entry = tracking_at(tracking, *position);
    return likely(entry->position == *position && entry->state != TRACKING_FREE);
}

/* ---- Dense: walk from the oldest WQE to the one that completed ------------------------------- */

/* Returns true if not all up to `last`, a position from tracking_find, have been taken. */
static inline bool tracking_dense_left(const struct tracking *tracking, uint32_t last)
{
    return (int32_t)(last - tracking->consumer) >= 0;
}

/* Takes the oldest outstanding WQE or filler; there is one left up to `last`. */
static inline struct tracking_done tracking_dense_take(struct tracking *tracking, uint32_t last)
{
    uint32_t position = tracking->consumer;
    struct tracking_entry *entry = tracking_at(tracking, position);
    const struct tracking_done done = {.user_data = entry->user_data,
                                       .position = position,
                                       .opcode = entry->opcode,
                                       .signaled = position == last,
                                       .filler = entry->state == TRACKING_FILLER};
    entry->state = TRACKING_FREE;
    tracking->consumer = position + entry->blocks;
    return done;
}

/* Takes the oldest outstanding WQE up to `last`. Returns true and fills *done, or returns false if all
 * have been taken. */
static inline bool tracking_dense_next(struct tracking *tracking, uint32_t last,
                                       struct tracking_done *done)
{
    while (tracking_dense_left(tracking, last)) {
        *done = tracking_dense_take(tracking, last);
        if (likely(!done->filler)) {
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
    return (struct tracking_done){.user_data = entry->user_data,
                                  .position = position,
                                  .opcode = entry->opcode,
                                  .signaled = true};
}

/* ---- Unordered: the one that completed, wherever it is --------------------------------------- */

static inline struct tracking_done tracking_unordered_take(struct tracking *tracking,
                                                           uint32_t position)
{
    struct tracking_entry *entry = tracking_at(tracking, position);
    entry->state = TRACKING_FREE;
    /* Each entry is passed once, so a completion takes constant time on average. A filler requests
     * no completion. Only the completion of a later WQE shows that the device has read it. */
    uint32_t next = tracking->consumer;
    if (likely(position == next)) {
        next += entry->blocks;
        tracking->consumer = next;
    }
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
    return (struct tracking_done){.user_data = entry->user_data,
                                  .position = position,
                                  .opcode = entry->opcode,
                                  .signaled = true};
}

/* ---- Receives: one entry each ---------------------------------------------------------------- */

/* Ordered: like sparse; everything in between was done before. Unordered: entries of an SRQ, by
 * index. The list of the SRQ keeps the free entries (receive_queue.h), so there is no room to
 * compute. */
static inline void tracking_receive_post(struct tracking *tracking, uint32_t index,
                                         uint64_t user_data)
{
    struct tracking_entry *entry = &tracking->entries[index & tracking->mask];
    entry->user_data = user_data;
    entry->state = TRACKING_SIGNALED;
}

/* Returns false if no receive is posted at this index. The counter is then invalid. */
static inline bool tracking_receive_take(struct tracking *tracking, uint32_t index,
                                         uint64_t *user_data)
{
    if (unlikely(index > tracking->mask || tracking->entries[index].state != TRACKING_SIGNALED)) {
        return false;
    }
    tracking->entries[index].state = TRACKING_FREE;
    *user_data = tracking->entries[index].user_data;
    return true;
}

#endif
