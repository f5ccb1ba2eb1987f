/* ring.h: a ring that is mapped twice, back to back. Everything that begins in the first mapping is
 * therefore contiguous: a batch is never split, and the ring's end needs no marker. After the second
 * mapping of a receive ring follows the page of its mailbox.
 *
 * Small rings come from slabs: one file for several, one behind the other, each with its page. The second
 * mapping of a ring ends in the file where the next one begins, so it is one area of memory for the kernel,
 * together with the first mapping of the next ring. A ring is one of the vm.max_map_count areas of a process
 * then, and takes no system call once its slab is there.
 */
#ifndef CORE_RPC_RING_H
#define CORE_RPC_RING_H

#include <pthread.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/list.h"
#include "nic/nic.h"

struct ring_slab;

/* Rings of up to so many bytes come from slabs, of so many rings each. */
#define RING_SLAB_BYTES_MAX 16384u
#define RING_SLAB_RINGS 32u
/* Slabs are of rings of one size, with mailboxes or without: pages of 4 KiB have three such sizes. */
#define RING_SLAB_KINDS 6u

/* The slabs of an engine. A thread of cm may take rings, too. */
struct ring_slabs {
    pthread_mutex_t mutex;
    struct list with_room[RING_SLAB_KINDS];
};

enum ring_kind { RING_SEND, RING_RECEIVE };

struct ring {
    uint8_t *address; /* 2 * bytes, then the page of the mailbox */
    uint64_t bytes;   /* a power of two, and a multiple of the page size */
    struct nic_keys
        memory; /* of all this; of a send ring it is of this side's WQEs, of a receive ring of the peer's */
    struct nic_keys
        landing; /* of the mailbox's page, for this side's WQEs, if they use memory of another domain */
    uint32_t landing_key; /* of a receive ring: with which it is read into */
    struct ring_slab *slab;
};

void ring_slabs_init(struct ring_slabs *slabs);
/* All rings have been destroyed. */
void ring_slabs_free(struct ring_slabs *slabs);

/* Maps a ring of zeros: no peer reads what was another's. A RING_RECEIVE has a mailbox. Returns CRPC_OK, or
 * fills *error and returns its status. */
int32_t ring_map(struct ring_slabs *slabs, struct ring *ring, enum ring_kind kind, uint64_t bytes,
                 crpc_error *error);
/* Registers a ring that is mapped: for WQEs of this side, which use memory of the domain `own`, and a RING_RECEIVE for the peer,
 * too, which reaches that of `domain`. It may write and read both the ring, where nobody else writes, and the mailbox, which
 * nobody else reads. Returns as ring_map. */
int32_t ring_register(struct ring *ring, struct nic *nic, struct nic_domain *domain,
                      struct nic_domain *own, crpc_error *error);

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

/* READs of the peer's mailbox land here, behind the own one. The peer may read and write this, too: it is what it says
 * itself. */
static inline void *ring_landing(const struct ring *ring)
{
    return ring->address + 2 * ring->bytes + CACHE_LINE_BYTES;
}

#endif
