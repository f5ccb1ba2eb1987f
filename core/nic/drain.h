/* drain.h: polls a nic until it is empty. */
#ifndef CORE_NIC_DRAIN_H
#define CORE_NIC_DRAIN_H

#include "nic/nic.h"

/* Passes each completion to `take`, which the compiler inlines. Returns true if one of them was an
 * error. The caller must then drain the nic once more: data that the peer sent before the
 * connection broke may have reached the receive queue after the poll had looked there, but before
 * the error reached the send queue. */
static inline __attribute__((always_inline)) bool
nic_drain(struct nic *nic, void (*take)(void *argument, const struct nic_completion *completion),
          void *argument)
{
    struct nic_completion completions[64];
    const uint32_t capacity = sizeof(completions) / sizeof(completions[0]);
    bool error = false;
    uint32_t count;
    do {
        count = nic->operations->poll(nic, completions, capacity);
        for (uint32_t i = 0; i < count; i++) {
            take(argument, &completions[i]);
            error |= completions[i].kind == NIC_COMPLETION_ERROR;
        }
    } while (count == capacity);
    return error;
}

#endif
