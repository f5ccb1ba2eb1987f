/* wqes.h: reads WQEs where libmlx5 or a driver has written them, in the ring of a queue pair, and compares them. */
#ifndef TOOLS_CHECK_WQES_H
#define TOOLS_CHECK_WQES_H

#include <infiniband/mlx5dv.h>

#include "station.h"

/* The ring, and the next WQE. */
struct wqes {
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
bool wqes_watch(struct wqes *wqes, struct ibv_qp *qp, struct outcome *outcome);
/* The next WQE that is no NOP. Checks its number and its index, and clears them. */
bool wqes_next(struct wqes *wqes, struct wqe *wqe, struct outcome *outcome);
/* Checks that a word is this key, and clears it. */
bool wqes_clear_key(struct wqe *wqe, uint32_t at, uint32_t key, struct outcome *outcome);
bool wqes_same(const struct wqe *theirs, const struct wqe *ours, const char *what,
               struct outcome *outcome);

#endif
