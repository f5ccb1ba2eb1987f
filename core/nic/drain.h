/* drain.h: polls a nic until it is empty. */
#ifndef CORE_NIC_DRAIN_H
#define CORE_NIC_DRAIN_H

#include "nic/nic.h"

#define NIC_DRAIN_MAX 64u /* completions that a drain asks for at once */

/* Passes each completion to `take`, which the compiler inlines; first those that were polled for it already. Returns true if
 * one of them was an error. The caller must then drain the nic once more: data that the peer sent before the
 * connection broke may have reached the receive queue after the poll had looked there, but before
 * the error reached the send queue. */
static inline __attribute__((always_inline)) bool
nic_drain_from(struct nic *nic, struct nic_completion completions[NIC_DRAIN_MAX], uint32_t count,
               void (*take)(void *argument, const struct nic_completion *completion),
               void *argument)
{
    bool error = false;
    while (true) {
        for (uint32_t i = 0; i < count; i++) {
            take(argument, &completions[i]);
            error |= completions[i].kind == NIC_COMPLETION_ERROR;
        }
        if (count != NIC_DRAIN_MAX) {
            return error;
        }
        count = nic->operations->poll(nic, completions, NIC_DRAIN_MAX);
    }
}

static inline __attribute__((always_inline)) bool
nic_drain(struct nic *nic, void (*take)(void *argument, const struct nic_completion *completion),
          void *argument)
{
    struct nic_completion completions[NIC_DRAIN_MAX];
    const uint32_t count = nic->operations->poll(nic, completions, NIC_DRAIN_MAX);
    return nic_drain_from(nic, completions, count, take, argument);
}

#endif
