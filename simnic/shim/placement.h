/* placement.h: on which processor the service thread runs while it does not poll. */
#ifndef SIMNIC_PLACEMENT_H
#define SIMNIC_PLACEMENT_H

#include <stdint.h>

#define PLACEMENT_WAKES 16u

struct placement {
    uint32_t wakes_from_elsewhere; /* in a row: by threads on other processors than this thread's */
};

/* The calling thread was woken by a thread on this processor. After PLACEMENT_WAKES of these in a row from
 * other processors than its own it moves to the last one's, if it is allowed to run there. Where it is
 * allowed to run stays as it is. */
void placement_woken(struct placement *placement, uint32_t waker);

#endif
