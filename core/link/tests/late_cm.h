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
#include "nic/memory/random.h"

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

/* ---- Simulations ----------------------------------------------------------------------------- */

#define LATE_CMS_MAX 8

/* The engines' cms in an episode, and when their tasks are done. */
struct late_times {
    uint32_t
        one_in; /* at one of so many steps, of each cm one; 0 = at once: there are no such cms */
    uint32_t count;
    struct cm *cms[LATE_CMS_MAX];
    struct random_generator random; /* of its own: other episodes are what they would be */
};

void late_times_choose(struct late_times *times, uint64_t seed);
/* Initialises the cm of the next engine, in an episode that has them. */
void late_times_add(struct late_times *times, struct cm *cm);
/* Does what is late: what is to be done at this step, or all. `task` gets the index of the cm and of its
 * task, and calls late_cm_run. */
typedef void late_task(void *argument, uint32_t cm, uint32_t index);
void late_times_run(struct late_times *times, bool all, late_task *task, void *argument);

#endif
