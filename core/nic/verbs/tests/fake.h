/* fake.h: a device that is a few arrays: what no real device can be made to do on demand, such as using a queue pair number again at
 * once, leaving entries in a CQ, or refusing a post. Functions of libibverbs that the driver calls are replaced: --wrap in
 * meson.build. */
#ifndef CORE_NIC_VERBS_TESTS_FAKE_H
#define CORE_NIC_VERBS_TESTS_FAKE_H

#include "nic/verbs/verbs.h"

#define FAKE_DEPTH 64
#define FAKE_POSTS_MAX 256

/* A CQ: entries wait in order. */
struct fake_queue {
    struct ibv_cq cq;
    struct ibv_wc entries[FAKE_DEPTH];
    uint32_t count;
};

struct fake_post {
    uint64_t wr_id;
    uint32_t queue_pair_number;
    unsigned int flags;
    enum ibv_wr_opcode opcode;
    uint32_t bytes;
    int pieces;
};

struct fake {
    struct ibv_context context;
    struct ibv_device device;
    struct fake_queue receive;
    struct fake_queue send;
    struct ibv_srq srq;
    struct ibv_device_attr attributes; /* what ibv_query_device says */
    struct fake_post posts[FAKE_POSTS_MAX];
    uint32_t post_count;
    uint32_t post_calls;
    uint32_t refuse_after; /* WQEs that the device still takes; UINT32_MAX = all */
    /* Receives of the SRQ, or of the queue pairs; how many pieces each must have. */
    uint32_t receives_posted;
    uint32_t receive_calls;
    uint32_t receive_room;
    int receive_pieces;
    int receive_error;     /* what a post is refused with */
    int srq_error;         /* what making one fails with; 0 = it does not */
    uint32_t last_receive; /* the queue pair that was given receives last */
    struct ibv_qp_cap cap; /* of the queue pair that was asked for last */
    uint32_t next_number;
    uint32_t destroyed;
    void (*at_destroy)(struct ibv_qp *qp);
};

extern struct fake fake;

/* cmocka fixtures: *state is a nic with an SRQ of FAKE_DEPTH receives, or without one. */
int fake_set_up(void **state);
int fake_set_up_without_srq(void **state);
int fake_tear_down(void **state);

/* A queue pair with this number, whose peer is promised so many receives. */
struct nic_queue_pair *fake_create(struct verbs_nic *nic, uint32_t number, uint32_t receives);

/* Adds an entry to a CQ. */
void fake_add(struct fake_queue *queue, uint32_t number, uint64_t wr_id, enum ibv_wc_status status);

#endif
