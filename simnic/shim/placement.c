/* placement.c: moves the service thread to the side of who wakes it.
 *
 * While all processors are busy, the scheduler leaves a thread where it last ran. If that is where the
 * program's thread spins, each message from a process that spins elsewhere interrupts that processor,
 * which takes 20 us in a virtual machine. On the sender's processor the service thread only goes before
 * the sender, which has nothing to do but wait for the answer. */
#include "placement.h"

#include <sched.h>

void placement_woken(struct placement *placement, uint32_t waker)
{
    cpu_set_t allowed, there;
    if (waker == (uint32_t)sched_getcpu()) {
        placement->wakes_from_elsewhere = 0;
        return;
    }
    if (++placement->wakes_from_elsewhere < PLACEMENT_WAKES) {
        return;
    }
    placement->wakes_from_elsewhere = 0;
    if (waker >= CPU_SETSIZE || sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
        !CPU_ISSET(waker, &allowed)) {
        return;
    }
    CPU_ZERO(&there);
    CPU_SET(waker, &there);
    sched_setaffinity(0, sizeof(there), &there);
    /* It stays there until the scheduler finds cause to move it. */
    sched_setaffinity(0, sizeof(allowed), &allowed);
}
