/* internal.h: the state of a lane. Only files of core/lane include it. */
#ifndef CORE_LANE_INTERNAL_H
#define CORE_LANE_INTERNAL_H

#include <assert.h>

#include "base/list.h"
#include "lane/lane.h"
#include "nic/queue.h"

/* A serial is its grant's place, and how often that was used. So one number for each place says which
 * grants were revoked, whatever a peer claims. */
#define SERIAL_INDEX_BITS 16
#define SERIAL_INDEX_MASK ((UINT64_C(1) << SERIAL_INDEX_BITS) - 1)

/* A send WQE, at the index of its number. */
struct lane_entry {
    uint64_t user_data;
    uint32_t bytes; /* after an error, the vendor's syndrome */
    uint16_t place; /* of a grant */
    uint8_t opcode; /* enum lane_opcode; LANE_REVOKE: the invalidate, which has no completion */
    int8_t status;
};

enum given_state {
    GIVEN_FREE = 0,
    GIVEN_BINDING, /* its window's bind is under way */
    GIVEN_BOUND,
    GIVEN_REVOKED,      /* the peer is asked, or will be */
    GIVEN_INVALIDATE,   /* waits for a send WQE */
    GIVEN_INVALIDATING, /* the device is at it */
    GIVEN_ENDED,        /* waits for its completion */
};

/* A place for grants of this side. */
struct lane_given {
    struct lane_grant grant; /* must come first */
    struct nic_window window;
    struct nic_keys keys; /* of the memory */
    uint32_t *users;
    uint64_t user_data; /* of the REVOKE */
    uint64_t uses;
    struct wheel_timer timer;
    struct list link; /* of the lane: free, invalidate or ended */
    struct list tell_link;
    uint64_t tell_uses; /* the last of its uses that the peer is to be told of */
    uint16_t place;
    uint8_t state;
};

/* A grant of the peer. */
struct lane_taken {
    struct lane_grant grant; /* must come first */
    struct list link;
};

struct lane {
    struct nic *nic;
    const struct nic_operations *operations;
    struct nic_queue_pair *queue_pair; /* NULL = stopped */
    struct handles *handles;
    struct lane_options options;
    struct lane_identity identity;
    bool open;
    bool stopped;

    /* Entries [emitted, done) wait for their completion, [done, posted) are under way. */
    struct lane_entry *entries;
    uint32_t mask;
    uint32_t posted; /* that of the queue pair */
    uint32_t done;
    uint32_t emitted;
    uint64_t *results; /* what atomics have found, by entry; NULL = the nic has none */
    struct nic_keys results_keys;

    /* -- grants of this side -- */
    struct lane_given *given[LANE_GRANTS_MAX]; /* NULL = never used */
    uint32_t given_count;                      /* places that were ever used */
    struct list free;
    struct list tell;       /* REVOKEs that the peer is to be told of, by tell_link */
    struct list invalidate; /* to be invalidated */
    struct list ended;      /* REVOKEs to complete */
    bool told;              /* the peer owes the answer to a REVOKE */
    uint64_t told_serial;
    uint32_t revokes_open;

    /* -- of the peer -- */
    struct list taken;
    uint64_t revoked_uses[LANE_GRANTS_MAX]; /* up to this use, those of the place are revoked */
    bool answer_owed;
    uint64_t answer_serial;
    uint32_t answer_mark; /* what was posted before may still use it */
};

static inline struct lane_entry *lane_entry_at(const struct lane *lane, uint32_t number)
{
    return &lane->entries[number & lane->mask];
}

static inline uint64_t serial_of(uint64_t uses, uint32_t place)
{
    return uses << SERIAL_INDEX_BITS | place;
}

/* lane.c */
/* Books the WQE that is posted next. */
void lane_book(struct lane *lane, const struct lane_entry *entry);

/* grant.c */
/* The device has ended what an entry of a grant stands for. */
void lane_given_done(struct lane *lane, const struct lane_entry *entry);
/* Posts invalidates for which there is room. Returns true if it has posted any. */
bool lane_post_invalidates(struct lane *lane);
/* The lane ends: windows are destroyed, REVOKEs complete, handles become stale. The queue pair has
 * failed and is still there. */
void lane_end_grants(struct lane *lane, struct wheel *wheel);
void lane_free_grants(struct lane *lane);
void lane_emit_revokes(struct lane *lane, struct output *output);

#endif
