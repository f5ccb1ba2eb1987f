/* drain.h: polls a nic dry. */
#ifndef CORE_NIC_DRAIN_H
#define CORE_NIC_DRAIN_H

#include "nic/nic.h"

/* Hands each completion to `take`, a function known where this is used: its call is inlined. True if
 * one of them was an error: then the nic is to be polled once more, since what a peer sent before
 * its connection broke may have come to the receive queue after that was looked at, and before the
 * error came to the send queue. */
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
