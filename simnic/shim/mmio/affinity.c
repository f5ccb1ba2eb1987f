/* affinity.c: moves the service thread to the processor of the thread that wakes it.
 *
 * While all processors are busy, the scheduler leaves a thread where it last ran. If the program's
 * thread spins there, each message from a process that spins elsewhere interrupts that processor,
 * which takes 20 us in a virtual machine. On the sender's processor, the service thread only
 * interrupts the sender, which waits for the answer anyway. */
#include "simnic/shim/mmio/affinity.h"

#include <sched.h>

void affinity_woken(struct affinity *affinity, uint32_t waker)
{
    cpu_set_t allowed, there;
    if (waker == (uint32_t)sched_getcpu()) {
        affinity->wakes_from_elsewhere = 0;
        return;
    }
    if (++affinity->wakes_from_elsewhere < AFFINITY_WAKES) {
        return;
    }
    affinity->wakes_from_elsewhere = 0;
    if (waker >= CPU_SETSIZE || sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
        !CPU_ISSET(waker, &allowed)) {
        return;
    }
    CPU_ZERO(&there);
    CPU_SET(waker, &there);
    sched_setaffinity(0, sizeof(there), &there);
    /* The thread stays there until the scheduler finds a reason to move it. */
    sched_setaffinity(0, sizeof(allowed), &allowed);
}
