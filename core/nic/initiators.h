/* initiators.h: how dynamic queue pairs share the initiators of a nic.
 *
 * A dynamic queue pair receives as any other: it has a DCT, which is a number in the device and no more. It sends with a
 * DCI, which can send to any DCT, and has the send queue. A nic has few of these, and lends one to a queue pair from its
 * first WQE on until another queue pair needs it and all WQEs have completed. So a DCI works for one peer at a time: the
 * WQEs of a queue pair complete in order, and when one fails, no others are flushed than those of its own.
 *
 *   idle     nothing is under way. It was lent last to its user, which may go on with it; or another takes it
 *   busy     its user has WQEs under way
 *   called   likewise, but its user posts no more: a queue pair waits for it
 *   granted  it is lent to one that has waited, and was not told yet. No other takes it meanwhile
 *
 * Who waits gets one in the order of asking. A queue pair has room while one is lent to it: that is its depth.
 *
 * A driver has the DCIs and DCTs. Here is only whose turn it is, so that it can be tested without a device.
 */
#ifndef CORE_NIC_INITIATORS_H
#define CORE_NIC_INITIATORS_H

#include "base/list.h"
#include "nic/nic.h"

struct nic_initiator;

/* What a dynamic queue pair has beside the rest. */
struct nic_dynamic {
    struct nic_queue_pair *pair;
    struct nic_initiator *initiator; /* NULL = none is lent to it */
    struct list link;                /* on waiting or granted */
    bool waits;
};

/* The part of an initiator that all drivers share. */
struct nic_initiator {
    struct nic_dynamic *user; /* NULL = nobody */
    struct list link;         /* on idle or busy, unless it is called or granted, or has failed */
    bool called;
    bool failed; /* the driver must mend it before another can use it */
};

struct nic_initiators {
    struct list idle; /* the first is lent next: that which has been idle longest */
    struct list busy; /* the first is called next: that which has been busy longest */
    struct list waiting;
    struct list granted;      /* have waited, and have one now, which their owner does not know */
    struct nic_dynamic *told; /* whose owner knows since the last call of nic_initiators_granted */
    uint32_t waiting_count;
    uint32_t called_count;
    uint32_t depth; /* WQEs of each */
    uint32_t count;
};

void nic_initiators_init(struct nic_initiators *initiators, uint32_t depth);
/* Adds one, which nobody uses. */
void nic_initiators_add(struct nic_initiators *initiators, struct nic_initiator *initiator);
/* Fills a zeroed struct, and gives the queue pair no room. */
void nic_dynamic_init(struct nic_dynamic *dynamic, struct nic_queue_pair *pair);

/* For nic_operations.take_room: lends it an initiator, or notes that it waits. Does nothing if it has one. Returns true if
 * the queue pair has room now. */
bool nic_initiators_take(struct nic_initiators *initiators, struct nic_dynamic *dynamic);
/* All that was posted has completed, or was discarded: the initiator goes to who waits, or is idle. Its user may be NULL. */
void nic_initiators_rest(struct nic_initiators *initiators, struct nic_initiator *initiator);
/* A WQE of its user has failed, and with it the initiator. The user keeps it until it leaves. */
void nic_initiators_fail(struct nic_initiators *initiators, struct nic_initiator *initiator);
/* The queue pair sends no more. Returns its initiator if that has failed or has WQEs under way, and is nobody's then: the driver
 * mends it, and calls nic_initiators_rest. */
struct nic_initiator *nic_initiators_leave(struct nic_initiators *initiators,
                                           struct nic_dynamic *dynamic);
/* Returns a queue pair that has waited and has room now, once; NULL if there is none. It posts before the next call, which gives
 * what it does not use to others. So whoever calls this calls it until it returns NULL. */
struct nic_queue_pair *nic_initiators_granted(struct nic_initiators *initiators);

/* The same for a nic, which may have no initiators. */
static inline struct nic_queue_pair *nic_granted(struct nic *nic)
{
    return nic->initiators ? nic_initiators_granted(nic->initiators) : NULL;
}

static inline bool nic_grants_wait(const struct nic *nic)
{
    return nic->initiators && !list_empty(&nic->initiators->granted);
}

/* ---- Data path ------------------------------------------------------------------------------- */

/* Before the queue pair posts. It has room. */
static inline void nic_initiators_post(struct nic_initiators *initiators,
                                       const struct nic_dynamic *dynamic)
{
    struct nic_initiator *initiator = dynamic->initiator;
    assert(initiator && initiator->user == dynamic && nic_send_room(dynamic->pair) > 0);
    if (dynamic->pair->posted == dynamic->pair->completed) {
        list_remove(&initiator->link);
        list_append(&initiators->busy, &initiator->link);
    }
}

/* For nic_initiators_complete: its user posts no more until all has completed. */
static inline void nic_initiators_call(struct nic_initiators *initiators,
                                       struct nic_initiator *initiator)
{
    struct nic_queue_pair *pair = initiator->user->pair;
    if (!initiator->called) {
        list_remove(&initiator->link);
        initiator->called = true;
        initiators->called_count++;
    }
    pair->depth = pair->posted - pair->completed;
}

/* pair->completed of its user has advanced. Whoever waits while all are called already has this one called, so that all
 * get their turn, however much the others have to send. */
static inline void nic_initiators_complete(struct nic_initiators *initiators,
                                           struct nic_initiator *initiator)
{
    const struct nic_queue_pair *pair = initiator->user->pair;
    if (pair->posted == pair->completed) {
        nic_initiators_rest(initiators, initiator);
    } else if (unlikely(initiator->called ||
                        initiators->called_count < initiators->waiting_count)) {
        nic_initiators_call(initiators, initiator);
    }
}

#endif
