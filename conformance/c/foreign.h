/* foreign.h: what the parts of the foreign peer know of each other: foreign.c has lines and connections, foreign_ops.c has ops,
 * foreign_verbs.c has queue pairs without rdma_cm. */
#ifndef CONFORMANCE_FOREIGN_H
#define CONFORMANCE_FOREIGN_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

#include "post.h"

#define PRIVATE_BYTES_MAX 196
#define RESULTS 4096u

/* A queue pair with its connection or for datagrams, a target of these, a listener, a request, or a region. */
struct thing {
    char name[32], private[PRIVATE_BYTES_MAX + 1]; /* what the peer has sent */
    struct rdma_cm_id *id;                         /* NULL = closed, or a region */
    struct ibv_qp *qp;                             /* of the connection, or without one */
    struct ibv_mr *region;
    struct ibv_mw *window;
    uint8_t *memory;
    struct ibv_qp_init_attr attributes; /* for when its device is known */
    struct rdma_conn_param parameters;
    uint8_t own_private[PRIVATE_BYTES_MAX];
    struct ibv_ah *target;  /* NULL = closed, or no target */
    uint32_t number;        /* of the target's queue pair */
    uint32_t queue_key;     /* of the target's queue pair, or of its own */
    struct ibv_ah_attr way; /* to the target */
    uint32_t sends_open, receives_open;
    uint64_t sends, receives; /* that were posted */
    int connected, over, draining;
    const char *status; /* why it ends */
};

/* ---- foreign.c ---- */

extern struct ibv_context *device;
extern struct ibv_pd *domain;
extern struct ibv_cq *completions; /* of all queues; NULL = none */
extern uint64_t *results;          /* of atomics */
extern struct ibv_mr *results_region;

/* Ends a queue: what is open is flushed. The first status is why. */
void queue_end(struct thing *it, const char *status);

/* ---- foreign_verbs.c: the verbs queue_blob, queue_address, queue_join_address, datagrams_open and target_* ----
 * All return whether they failed. */

int verbs_make(struct thing *made); /* with its attributes */
int verbs_tell_address(const struct thing *it);
int verbs_join(const struct thing *it); /* what the line says is the peer's */
int verbs_make_datagrams(struct thing *made);
/* Keeps what verbs_target_of has to know of a datagram that came. `header` is what lies before its message. */
void verbs_keep_letter(const struct thing *queue, const struct ibv_wc *done, const void *header);
int verbs_target(struct thing *made);    /* what the line says */
int verbs_target_of(struct thing *made); /* who has sent the datagram that came last */
int verbs_tell_target(const struct thing *target);
int verbs_close_target(struct thing *target);

/* ---- foreign_ops.c ---- */

void ops_submit(void); /* what there is room for */
int ops_take(void);    /* how many completions there were */
/* Binds a window of type 2 to a region, for the peer of the queue to write to, and waits for it. Returns whether it is bound. */
int ops_bind(const struct thing *queue, const struct thing *region, struct ibv_mw *window);

#endif
