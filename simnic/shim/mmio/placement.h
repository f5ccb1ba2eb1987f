/* placement.h: on which processor the service thread runs while it does not poll. */
#ifndef SIMNIC_SHIM_MMIO_PLACEMENT_H
#define SIMNIC_SHIM_MMIO_PLACEMENT_H

#include <stdint.h>

#define PLACEMENT_WAKES 16u

struct placement {
    uint32_t wakes_from_elsewhere; /* in a row, by threads on other processors */
};

/* The calling thread was woken by a thread that runs on processor `waker`. After PLACEMENT_WAKES
 * wakes in a row from other processors than its own, the calling thread moves to the last waker's,
 * if it may run there. The set of processors on which it may run stays as it is. */
void placement_woken(struct placement *placement, uint32_t waker);

#endif
