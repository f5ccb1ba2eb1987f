/* ring.h: memory that appears twice, back to back, so that whatever begins in the first half is
 * contiguous: a batch is never split and needs no marker at the ring's end. A page follows the
 * second half, for the mailbox (receive ring) or the landing place of mailbox READs (send ring).
 */
#ifndef CORE_RPC_RING_H
#define CORE_RPC_RING_H

#include <stdint.h>

#include "base/abi.h"
#include "nic/nic.h"

struct ring {
    uint8_t *address;             /* of 2 * bytes, then the mailbox's page */
    uint64_t bytes;               /* a power of two, a multiple of the page size */
    struct nic_keys memory;       /* all 2 * bytes */
    struct nic_keys mailbox_keys; /* the page after it */
};

/* Maps and registers a ring with these accesses (CRPC_ACCESS_*). CRPC_OK, or *error is filled. */
int32_t ring_create(struct ring *ring, struct nic *nic, uint64_t bytes, uint32_t access,
                    uint32_t line_access, crpc_error *error);

/* Allowed for a ring that is all zeros. */
void ring_destroy(struct ring *ring, struct nic *nic);

static inline uint8_t *ring_at(const struct ring *ring, uint64_t position)
{
    return ring->address + (position & (ring->bytes - 1));
}

static inline void *ring_mailbox(const struct ring *ring)
{
    return ring->address + 2 * ring->bytes;
}

#endif
