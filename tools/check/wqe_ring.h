/* wqe_ring.h: reads WQEs where libmlx5 or a driver has written them, in the ring of a queue pair, and compares them. */
#ifndef TOOLS_CHECK_WQE_RING_H
#define TOOLS_CHECK_WQE_RING_H

#include <infiniband/mlx5dv.h>

#include "check.h"

/* The ring, and the next WQE. */
struct wqe_ring {
    const uint8_t *buffer;
    uint32_t blocks;
    uint32_t number;
    uint32_t position;
};

struct wqe {
    uint32_t units; /* of 16 bytes */
    uint8_t bytes[1024];
};

/* Begins at the ring's start: nothing was posted to the queue pair. */
bool wqe_ring_watch(struct wqe_ring *ring, struct ibv_qp *qp, struct outcome *outcome);
/* The next WQE that is no NOP. Checks its number and its index, and clears them. */
bool wqe_ring_next(struct wqe_ring *ring, struct wqe *wqe, struct outcome *outcome);
/* Checks that a word is this key, and clears it. */
bool wqe_ring_clear_key(struct wqe *wqe, uint32_t at, uint32_t key, struct outcome *outcome);
bool wqe_ring_same(const struct wqe *theirs, const struct wqe *ours, const char *what,
                   struct outcome *outcome);

#endif
