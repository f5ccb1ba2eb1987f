/* late_cm.h: a cm without rdma_cm, for engines over the in-memory NIC, whose tasks are done when the test
 * says so. With it, what the library does off the poll is an event like others, and can be late.
 */
#ifndef CORE_LINK_TESTS_LATE_CM_H
#define CORE_LINK_TESTS_LATE_CM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/cm.h"
#include "link/link.h"

struct cm {
    struct list waiting; /* tasks that are not done */
    struct list ended;   /* whose event waits to be taken */
    uint32_t waiting_count;
    uint32_t done;   /* ever */
    uint32_t refuse; /* so many starts fail */
    bool not_begun;  /* tasks that are not done have not begun, and can be forgotten */
    uint32_t begun;  /* if so, except for so many, the oldest: as one ends, the next begins */
    bool waited;     /* somebody has waited for a task that was not done */
};

/* Its engine is made without a cm, and then given this one: engine->links.cm. */
void late_cm_init(struct cm *cm);
/* Does a task, the oldest first. Its end is the next event but those that wait. */
void late_cm_run(struct cm *cm, uint32_t index);
void late_cm_run_all(struct cm *cm);
/* The task that late_cm_run would do. */
const struct link_task *late_cm_task(const struct cm *cm, uint32_t index);
/* True if it has started, and is not done. */
bool late_cm_waits(const struct link_task *task);
/* Returns NULL, or what is wrong: a link is gone that a task still needs, or the queue pair is that it
 * connects. The group's cm is this one. */
const char *late_cm_fault(const struct link_group *group);

#endif
