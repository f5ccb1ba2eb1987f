/* last_wqe.c: a queue pair in the error state may still hold receives of its SRQ. The device gives them back, flushed, and then says
 * IBV_EVENT_QP_LAST_WQE_REACHED. Those of one that is destroyed before are lost for ever (InfiniBand Architecture
 * Specification, volume 1, "Last WQE Reached"; ibv_get_async_event(3)): nobody could tell how many, and only a new SRQ, for
 * which all queue pairs would have to be new, would have as many as before. So who destroys one waits for that.
 *
 * The event comes with core/cm's thread, as a rule before anybody wants to destroy the queue pair: most have failed by
 * themselves. Devices that never say it (Soft-RoCE in older kernels) are known after LAST_WQE_MISSES_MAX waits.
 *
 * Whoever destroys one all the same cannot know whether receives are lost. So these are counted, and the log tells of the first:
 * an SRQ that has lost too many leaves batches without a receive, and all that its user would see is that peers wait.
 */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "nic/device/device.h"

/* Adapters take microseconds, and the thread as long as the machine is busy. */
#define LAST_WQE_WAIT_MS 100u
#define LAST_WQE_LOOK_NS 20000
#define LAST_WQE_MISSES_MAX 2u

static bool may_hold_receives(const struct device_nic *nic,
                              const struct device_queue_pair *queue_pair)
{
    const bool shared = queue_pair->past_verbs || queue_pair->qp->srq;
    return shared && queue_pair->base.peer_number != 0 && !nic_is(&nic->base.closing) &&
           !nic_is(&nic->base.lost);
}

/* Whether somebody will tell. */
static bool worth_waiting(struct device_nic *nic)
{
    return atomic_load(&nic->watched) && (atomic_load(&nic->says_last_wqe) ||
                                          atomic_load(&nic->last_wqe_waits) < LAST_WQE_MISSES_MAX);
}

/* Returns whether it has been told. */
static bool wait_for_it(struct device_nic *nic, struct device_queue_pair *queue_pair)
{
    const uint64_t end_ns = clock_now_ns() + LAST_WQE_WAIT_MS * UINT64_C(1000000);
    while (!atomic_load(&queue_pair->last_wqe_reached)) {
        if (clock_now_ns() >= end_ns) {
            atomic_fetch_add(&nic->last_wqe_waits, 1);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = LAST_WQE_LOOK_NS}, NULL);
    }
    return true;
}

void device_await_last_wqe(struct device_nic *nic, struct device_queue_pair *queue_pair)
{
    queue_pair->last_wqe_missed = may_hold_receives(nic, queue_pair) &&
                                  !atomic_load(&queue_pair->last_wqe_reached) &&
                                  !(worth_waiting(nic) && wait_for_it(nic, queue_pair));
}

void device_queue_pair_settle(struct nic_queue_pair *base)
{
    struct device_queue_pair *queue_pair = to_device_queue_pair(base);
    if (queue_pair->adopted && !queue_pair->settled) {
        device_await_last_wqe(to_device_nic(base->nic), queue_pair);
        queue_pair->settled = true;
    }
}

/* Where nobody watches the device, whose log says that, this is told of the first as well. */
void device_note_last_wqe(const struct device_queue_pair *queue_pair)
{
    struct nic *nic = queue_pair->base.nic;
    if (queue_pair->last_wqe_missed && nic->last_wqes_missed++ == 0 && nic->log) {
        log_write(
            nic->log, CRPC_LOG_WARNING,
            "%s did not say LAST_WQE_REACHED of queue pair 0x%06x, which may have taken shared "
            "receives with it; last_wqes_missed counts these. If peers wait for receives one "
            "day, close the context and open a new one",
            nic->device, queue_pair->base.number);
    }
}
