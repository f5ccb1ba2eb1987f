/* ring.h: a ring that is mapped twice, back to back. Everything that begins in the first mapping is
 * therefore contiguous: a batch is never split, and the ring's end needs no marker. One page
 * follows the second mapping. In a receive ring it holds the mailbox; in a send ring, READs of the
 * peer's mailbox land there.
 */
#ifndef CORE_RPC_RING_H
#define CORE_RPC_RING_H

#include <stdint.h>

#include "base/abi.h"
#include "nic/nic.h"

struct ring {
    uint8_t *address;             /* 2 * bytes, then the page of the mailbox */
    uint64_t bytes;               /* a power of two, and a multiple of the page size */
    struct nic_keys memory;       /* of all 2 * bytes */
    struct nic_keys mailbox_keys; /* of the page after them */
};

/* Maps a ring. Returns CRPC_OK, or fills *error and returns its status. */
int32_t ring_map(struct ring *ring, uint64_t bytes, crpc_error *error);
/* Registers a ring that is mapped in a domain. `access` applies to the ring, line_access to the page after it
 * (CRPC_ACCESS_*). Returns as ring_map. */
int32_t ring_register(struct ring *ring, struct nic *nic, struct nic_domain *domain,
                      uint32_t access, uint32_t line_access, crpc_error *error);

/* Undoes both. Does nothing if the ring is all zeros. */
void ring_destroy(struct ring *ring, struct nic *nic);

static inline uint64_t ring_offset(const struct ring *ring, uint64_t position)
{
    return position & (ring->bytes - 1);
}

static inline uint8_t *ring_at(const struct ring *ring, uint64_t position)
{
    return ring->address + ring_offset(ring, position);
}

static inline void *ring_mailbox(const struct ring *ring)
{
    return ring->address + 2 * ring->bytes;
}

#endif
