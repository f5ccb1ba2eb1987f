/* relaxed.c: what WRITEs put into memory with NIC_ACCESS_RELAXED, where nothing has an order but what a completion says.
 *
 * It may lie in a buffer on its way, while what was written later lands, also what the same queue pair writes elsewhere. A
 * completion pushes it ahead of itself: when one of the same queue pair is polled, all that it was for is there. What the device
 * does for its driver pushes, too: a queue pair that fails or is destroyed, a window that ends, memory that is deregistered.
 */
#include "nic/memory/internal.h"

#include <stdlib.h>
#include <string.h>

struct memory_held {
    struct memory_held *next; /* landed later */
    uint64_t order;
    uint8_t *to;
    uint32_t bytes;
    uint8_t data[];
};

static bool is_relaxed(const struct memory_queue_pair *target, uint32_t remote_key)
{
    const struct memory_region *region = memory_region_find(target->nic, remote_key);

    if (region && region->window) {
        region = memory_region_find(target->nic, region->memory_key);
    }
    return region && region->access & NIC_ACCESS_RELAXED;
}

bool memory_hold(struct memory_queue_pair *target, uint32_t remote_key, void *to, const void *data,
                 uint32_t bytes)
{
    struct memory_fabric *fabric = target->fabric;
    struct memory_held *held;

    if (target->queue || !is_relaxed(target, remote_key) ||
        !random_percent(&fabric->random, fabric->options.relaxed_late_percent)) {
        return false;
    }
    held = memory_allocate(1, sizeof(*held) + bytes);
    *held = (struct memory_held){
        .next = target->held, .order = fabric->held_order++, .to = to, .bytes = bytes};
    memcpy(held->data, data, bytes);
    target->held = held;
    fabric->counters.held++;
    return true;
}

void memory_held_land(struct memory_queue_pair *target, uint64_t before)
{
    struct memory_held **link = &target->held;

    while (*link) {
        struct memory_held *held = *link;
        if (held->order >= before) {
            link = &held->next;
            continue;
        }
        memmove(held->to, held->data, held->bytes);
        *link = held->next;
        free(held);
    }
}

void memory_held_land_all(struct memory_nic *nic)
{
    for (struct memory_queue_pair *target = nic->queue_pairs; target; target = target->next) {
        memory_held_land(target, UINT64_MAX);
    }
}

void memory_held_drop(struct memory_queue_pair *target)
{
    while (target->held) {
        struct memory_held *held = target->held;
        target->held = held->next;
        free(held);
    }
}
