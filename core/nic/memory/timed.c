/* timed.c: transfers that take time: in immediate mode, with a clock of the caller's.
 *
 * A device sends one transfer after the other, at its rate, whatever queue pairs they are on. A transfer lands, and is
 * acknowledged, a latency after its last byte was sent. What stays in the device (binds, invalidates) takes no
 * time, but waits for what is before it on its queue pair.
 */
#include "nic/memory/internal.h"

static bool has_device(const struct memory_nic *nic)
{
    return nic->device < MEMORY_DEVICES_NAMED;
}

static uint64_t sending_ns(const struct memory_nic *nic, uint32_t bytes)
{
    const uint32_t mbps = has_device(nic) ? nic->fabric->options.rate_mbps[nic->device] : 0;

    return mbps == 0 ? 0 : (uint64_t)bytes * 8000 / mbps;
}

void memory_timed_ring(struct memory_queue_pair *queue_pair, uint32_t from)
{
    struct memory_nic *nic = queue_pair->nic;
    const struct memory_fabric_options *options = &nic->fabric->options;
    const uint64_t latency_ns = has_device(nic) ? options->latency_ns[nic->device] : 0;

    for (uint32_t number = from; number != queue_pair->rung; number++) {
        struct memory_wqe *wqe = memory_wqe(queue_pair, number);
        if (memory_local(wqe)) {
            wqe->due_ns = 0;
            continue;
        }
        nic->sends_until_ns =
            maximum(nic->sends_until_ns, *options->clock_ns) + sending_ns(nic, wqe->transfer.bytes);
        wqe->due_ns = nic->sends_until_ns + latency_ns;
    }
}

bool memory_timed_waits(const struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe)
{
    return wqe->due_ns > *queue_pair->fabric->options.clock_ns;
}

uint64_t memory_fabric_next_ns(const struct memory_fabric *fabric)
{
    uint64_t next_ns = UINT64_MAX;

    for (uint32_t i = 0; fabric->options.clock_ns && i < fabric->active_count; i++) {
        struct memory_queue_pair *queue_pair = fabric->active[i];
        if (queue_pair->dead || queue_pair->executed == queue_pair->rung) {
            continue;
        }
        const struct memory_wqe *wqe = memory_wqe(queue_pair, queue_pair->executed);
        if (memory_timed_waits(queue_pair, wqe)) {
            next_ns = minimum(next_ns, wqe->due_ns);
        }
    }
    return next_ns;
}
