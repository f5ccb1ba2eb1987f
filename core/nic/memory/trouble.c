/* trouble.c: what tests do to a fabric: cuts, faults, stalls, and a peer that keeps no rule. */
#include "nic/memory/internal.h"

#include <inttypes.h>
#include <string.h>

/* What is on its way to the peer, and the answers on their way back. */
static void packets_vanish(struct memory_queue_pair *queue_pair)
{
    queue_pair->answers_lost = queue_pair->executed != queue_pair->acknowledged &&
                               !memory_datagrams(queue_pair) && !memory_commands(queue_pair);
    queue_pair->payload_lost = true;
}

static void sever(struct memory_queue_pair *queue_pair)
{
    struct memory_queue_pair *peer = memory_peer(queue_pair);

    memory_queue_pair_update(queue_pair);
    packets_vanish(queue_pair);
    if (peer) {
        packets_vanish(peer);
    }
}

void memory_fabric_cut(struct nic_queue_pair *base)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);

    queue_pair->cut = true;
    sever(queue_pair);
}

void memory_fabric_cut_nic(struct nic *base)
{
    struct memory_nic *nic = memory_nic(base);

    nic->cut = true;
    for (struct memory_queue_pair *each = nic->queue_pairs; each; each = each->next) {
        memory_fabric_cut(&each->base);
    }
}

void memory_fabric_set_link(struct nic *base, bool up)
{
    struct memory_nic *nic = memory_nic(base);

    nic->link_down = !up;
    for (struct memory_queue_pair *each = nic->queue_pairs; each; each = each->next) {
        if (up) {
            memory_queue_pair_update(each);
        } else {
            sever(each);
        }
    }
}

void memory_fabric_kill(struct nic_queue_pair *base)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);

    memory_die(queue_pair);
    memory_settle(queue_pair);
}

void memory_fabric_stall(struct nic_queue_pair *base, uint64_t steps)
{
    struct memory_queue_pair *queue_pair = memory_queue_pair(base);

    queue_pair->stalled_until = queue_pair->fabric->now + 1 + steps;
}

/* ---- A hostile peer -------------------------------------------------------------------------- */

/* The queue pair that takes such a packet in; NULL and *status if none does. */
static struct memory_queue_pair *hostile_target(struct memory_fabric *fabric, uint32_t number,
                                                uint64_t address, uint32_t remote_key,
                                                uint32_t bytes, uint32_t access,
                                                enum nic_error *status)
{
    struct memory_queue_pair *target = memory_find(fabric, number);

    *status = NIC_ERROR_RETRY;
    if (!target || !target->open) {
        return NULL;
    }
    if (!memory_allows_remote(target, remote_key, address, bytes, access)) {
        *status = NIC_ERROR_REMOTE_ACCESS;
        memory_die(target);
        memory_settle(target);
        return NULL;
    }
    *status = NIC_ERROR_NONE;
    return target;
}

enum nic_error memory_fabric_write_immediate(struct memory_fabric *fabric,
                                             uint32_t target_queue_pair_number, uint64_t address,
                                             uint32_t remote_key, uint32_t bytes, const void *data,
                                             uint32_t immediate)
{
    enum nic_error status =
        memory_fabric_write(fabric, target_queue_pair_number, address, remote_key, bytes, data);
    struct memory_queue_pair *target = memory_find(fabric, target_queue_pair_number);

    if (status != NIC_ERROR_NONE) {
        return status;
    }
    if (*memory_receives(target) == 0) {
        return NIC_ERROR_RNR;
    }
    memory_arrive(target, immediate, bytes);
    return NIC_ERROR_NONE;
}

enum nic_error memory_fabric_write(struct memory_fabric *fabric, uint32_t target_queue_pair_number,
                                   uint64_t address, uint32_t remote_key, uint32_t bytes,
                                   const void *data)
{
    enum nic_error status;
    const struct memory_queue_pair *target =
        hostile_target(fabric, target_queue_pair_number, address, remote_key, bytes,
                       CRPC_ACCESS_REMOTE_WRITE, &status);

    if (target && bytes > 0) {
        memmove(memory_at(target, remote_key, address), data, bytes);
    }
    return status;
}

enum nic_error memory_fabric_read(struct memory_fabric *fabric, uint32_t target_queue_pair_number,
                                  uint64_t address, uint32_t remote_key, uint32_t bytes, void *data)
{
    enum nic_error status;
    const struct memory_queue_pair *target =
        hostile_target(fabric, target_queue_pair_number, address, remote_key, bytes,
                       CRPC_ACCESS_REMOTE_READ, &status);

    if (target && bytes > 0) {
        memmove(data, memory_at(target, remote_key, address), bytes);
    }
    return status;
}

const void *memory_fabric_place(struct nic *nic, uint32_t remote_key, uint64_t address)
{
    const struct memory_region *region = memory_region_find(memory_nic(nic), remote_key);

    memory_require(region && region->remote_key == remote_key &&
                       memory_region_allows(region, address, 1, 0),
                   "nothing is registered at 0x%" PRIx64 " under key 0x%x", address, remote_key);
    return (const void *)(uintptr_t)(address + region->shift);
}
