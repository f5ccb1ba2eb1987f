/* fake_cm.h: rdma_cm for engines on the in-memory NIC: what cm.h promises, in one thread. Requests find
 * listeners of other cms by their address, and queue pairs are really connected. What happens when is up
 * to the test: a cm that is late keeps events, work and tasks until fake_cm_step.
 */
#ifndef CORE_QUEUE_TESTS_FAKE_CM_H
#define CORE_QUEUE_TESTS_FAKE_CM_H

#include "base/list.h"
#include "cm/cm.h"

struct cm {
    bool late;
    bool begun;          /* what is late has begun, so tasks cannot be forgotten */
    bool pads;           /* private data comes with zeros behind it, as on InfiniBand */
    struct list ready;   /* events that the owner can take */
    struct list waiting; /* events that it cannot */
    struct list works;   /* identifiers with work of cm_run */
    struct list tasks;   /* that have not been done */
    uint32_t identifiers;
};

void fake_cm_init(struct cm *cm);
/* Fails the program if something is left. */
void fake_cm_end(const struct cm *cm);

/* How many things there are that wait. */
uint32_t fake_cm_waiting(const struct cm *cm);
/* Does one of them; `index` is below fake_cm_waiting. Events keep their order. */
void fake_cm_step(struct cm *cm, uint32_t index);
void fake_cm_step_all(struct cm *cm);

/* An event of the device. */
void fake_cm_device_event(struct cm *cm, enum cm_event_kind kind, uint32_t queue_pair_number,
                          int32_t status);
/* The device tells that an SRQ has reached its limit. */
void fake_cm_srq_limit(struct cm *cm, uint64_t queue_handle);

#endif
