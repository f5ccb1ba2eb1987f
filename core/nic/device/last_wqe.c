/* last_wqe.c: a queue pair in the error state may still hold receives of its SRQ. The device gives them back, flushed, and then says
 * IBV_EVENT_QP_LAST_WQE_REACHED. Those of one that is destroyed before are lost for ever (InfiniBand Architecture
 * Specification, volume 1, "Last WQE Reached"; ibv_get_async_event(3)): nobody could tell how many, and only a new SRQ, for
 * which all queue pairs would have to be new, would have as many as before. So who destroys one waits for that.
 *
 * The event comes with core/cm's thread, as a rule before anybody wants to destroy the queue pair: most have failed by
 * themselves. Devices that never say it (Soft-RoCE in older kernels) are known after LAST_WQE_MISSES_MAX waits.
 */
#include <time.h>

#include "base/clock.h"
#include "nic/device/device.h"

/* Adapters take microseconds, and the thread as long as the machine is busy. */
#define LAST_WQE_WAIT_NS UINT64_C(100000000)
#define LAST_WQE_LOOK_NS 20000
#define LAST_WQE_MISSES_MAX 2u

/* Whether it can hold any, and somebody will tell. */
static bool worth_waiting(struct device_nic *nic, const struct device_queue_pair *queue_pair)
{
    return queue_pair->qp->srq && queue_pair->base.peer_number != 0 && !nic->base.closing &&
           !nic->base.lost && atomic_load(&nic->watched) &&
           (atomic_load(&nic->says_last_wqe) || nic->last_wqes_missed < LAST_WQE_MISSES_MAX);
}

void device_await_last_wqe(struct device_nic *nic, struct device_queue_pair *queue_pair)
{
    if (!worth_waiting(nic, queue_pair)) {
        return;
    }
    const uint64_t end_ns = clock_now_ns() + LAST_WQE_WAIT_NS;
    while (!atomic_load(&queue_pair->last_wqe_reached)) {
        if (clock_now_ns() >= end_ns) {
            nic->last_wqes_missed++;
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = LAST_WQE_LOOK_NS}, NULL);
    }
}
