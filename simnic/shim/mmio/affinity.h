/* affinity.h: on which processor the service thread runs while it does not poll. */
#ifndef SIMNIC_SHIM_MMIO_AFFINITY_H
#define SIMNIC_SHIM_MMIO_AFFINITY_H

#include <stdint.h>

#define AFFINITY_WAKES 16u

struct affinity {
    uint32_t wakes_from_elsewhere; /* in a row, by threads on other processors */
};

/* The calling thread was woken by a thread that runs on processor `waker`. After AFFINITY_WAKES
 * wakes in a row from other processors than its own, the calling thread moves to the last waker's,
 * if it may run there. The set of processors on which it may run stays as it is. */
void affinity_woken(struct affinity *affinity, uint32_t waker);

#endif
