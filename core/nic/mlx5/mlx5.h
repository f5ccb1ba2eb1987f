/* mlx5.h: what the files of the direct driver share.
 *
 * libibverbs and libmlx5 create the queues. The driver then writes WQEs, rings doorbells and reads
 * completions without calling either library. nic.h has the rules for threads.
 *
 * These files implement the queues, and do not depend on the nic:
 *
 *   wqe.h               segments of a WQE
 *   send_queue.h        ring of WQEs; uses doorbell.h, copy.h and barrier.h
 *   completion_queue.h  ring of CQEs; also compressed.c and drop.c
 *   receive_queue.h     SRQ
 *   ../tracking.h       finds what was posted for a CQE
 *
 * devx.h has what is made past the verbs: completion queues with the enhanced layout, and their queue pairs.
 * dynamic.c and dynamic_post.c are dynamic queue pairs and the DCIs that they share (../initiators.h).
 * queue.c, queue_post.c, queue_poll.c, queue_tags.c and target.c are the queues of nic/queue.h.
 */
#ifndef CORE_NIC_MLX5_MLX5_H
#define CORE_NIC_MLX5_MLX5_H

#include "nic/device/queue.h"
#include "nic/initiators.h"
#include "nic/mlx5/completion_queue.h"
#include "nic/mlx5/driver.h"
#include "nic/mlx5/receive_queue.h"
#include "nic/mlx5/send_queue.h"
#include "nic/tracking.h"

/* With the control, remote address and inline segments, this is four blocks: what one push
 * carries. */
#define MLX5_INLINE_BYTES 220u

struct mlx5_devx; /* devx.h */

struct mlx5_doorbell {
    struct doorbell doorbell;
    struct mlx5_doorbell *next;
};

struct mlx5_nic {
    struct device_nic device;
    /* What a poll uses of each is in one cache line. */
    struct completion_queue receives __attribute__((aligned(CACHE_LINE_BYTES)));
    struct completion_queue sends __attribute__((aligned(CACHE_LINE_BYTES)));
    struct receive_queue receive_queue __attribute__((aligned(CACHE_LINE_BYTES)));
    struct mlx5_doorbell *doorbells;
    struct mlx5_devx *devx; /* NULL = completion queues and queue pairs are of the verbs: */
    struct ibv_cq *receive_cq;
    struct ibv_cq *send_cq;
    struct ibv_cq *spare_cq; /* see queue_pair.c */
    struct ibv_srq *srq;
    uint32_t receive_events_unacked;
    uint32_t send_events_unacked;
    uint32_t library_wqe_bytes; /* what libmlx5 counts for a send WQE */
};

/* The tracking table has an entry for each WQE, signaled or not, because an error CQE may belong to
 * any WQE. user_data is the number of WQEs posted so far, including this one. */
struct mlx5_queue_pair {
    struct device_queue_pair device;
    struct send_queue queue;
    struct tracking tracking;
    void *push_register; /* of the doorbell that it has, or will have when it is adopted */
    uint32_t push_bytes; /* its size */
    uint8_t
        *last_place;   /* a push from further on may reach the end of the ring; NULL = none does */
    bool initiator;    /* it begins a struct mlx5_initiator */
    bool fence_wanted; /* the WQE at fence_position must have a fence */
    uint32_t fence_position; /* behind a bind or an invalidate */
};

/* A DCI. */
struct mlx5_initiator {
    struct mlx5_queue_pair queue;
    struct nic_initiator shared;
};

struct mlx5_initiators {
    struct nic_initiators shared;
    struct mlx5_initiator *all; /* shared.count of them */
    struct nic_transport transport;
    uint32_t left; /* of these, whose user has left, and which are not mended */
    /* At most so many places of the send CQ have completions of what was discarded. */
    uint32_t stale;
};

struct mlx5_dynamic {
    struct device_queue_pair device; /* the DCT; without a qp once it has failed */
    struct nic_dynamic dynamic;
    struct nic_target *target; /* the peer's; NULL = it is not connected */
};

/* A completion queue for queues of nic/queue.h. */
struct mlx5_source {
    struct device_source device;
    struct completion_queue completions;
    struct ibv_cq *cq;
    uint32_t events_unacked;
};

struct mlx5_queue {
    struct device_queue device;
    struct send_queue sends;
    /* receives: of its own, a ring; of an SRQ, a list */
    uint8_t *receive_buffer;
    uint32_t receive_stride;
    uint32_t receive_counter; /* receives ever posted */
    uint32_t receive_rung;    /* of those that the device was told of */
    uint32_t *receive_record;
    struct receive_queue list;
    uint32_t list_head;               /* the next to be posted */
    struct device_queue_pair command; /* of a TM-SRQ: `sends` are its WQEs */
};

/* What the WQEs that name a target have in them. */
struct mlx5_target {
    struct device_target device;
    struct mlx5_wqe_av address;
};

static inline const struct mlx5_target *to_mlx5_target(const struct nic_target *target)
{
    return container_of(target, const struct mlx5_target, device.base);
}

static inline struct mlx5_queue *to_mlx5_queue(struct nic_queue *queue)
{
    return container_of(queue, struct mlx5_queue, device.base);
}

static inline struct mlx5_source *to_mlx5_source(struct device_source *source)
{
    return container_of(source, struct mlx5_source, device);
}

static inline struct mlx5_nic *to_mlx5_nic(struct nic *nic)
{
    return container_of(nic, struct mlx5_nic, device.base);
}

static inline struct mlx5_dynamic *to_mlx5_dynamic(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct mlx5_dynamic, device.base);
}

static inline struct mlx5_queue_pair *to_mlx5_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct mlx5_queue_pair, device.base);
}

/* open.c */
int32_t mlx5_query(uint32_t index, crpc_device_info *info, crpc_error *error);
int32_t mlx5_open(const struct nic_options *options, struct nic **result, crpc_error *error);
void mlx5_close(struct nic *base);

/* queue_pair.c */
/* Makes a queue pair of at least so many send WQEs, as libmlx5 counts them. */
struct ibv_qp *mlx5_qp_create(struct mlx5_nic *nic, struct nic_domain *domain, uint32_t send_wqes,
                              uint32_t inline_bytes, struct ibv_qp_init_attr *granted);
void mlx5_qp_destroy(struct mlx5_nic *nic, struct ibv_qp *qp);
int32_t mlx5_queue_pair_begin(struct nic *base, void *owner, uint32_t depth, uint32_t receives,
                              struct nic_queue_pair **result, crpc_error *error);
int32_t mlx5_queue_pair_make(struct nic_queue_pair *base, struct nic_domain *domain,
                             crpc_error *error);
int32_t mlx5_queue_pair_adopt(struct nic_queue_pair *base, crpc_error *error);
void mlx5_queue_pair_drop(struct nic_queue_pair *base);
void mlx5_queue_pair_unmake(struct nic_queue_pair *base);
void mlx5_queue_pair_destroy(struct nic_queue_pair *base);
void mlx5_queue_pair_fail(struct nic_queue_pair *base);

/* Bytes of the longest payload of a WQE, in it or as segments. */
static inline uint32_t mlx5_payload_bytes(const struct nic *nic)
{
    return (uint32_t)maximum(wqe_inline_bytes(nic->inline_bytes_max),
                             nic->pieces_max * sizeof(struct mlx5_wqe_data_seg));
}

/* What a queue pair of its own and an initiator have alike. A send queue for `depth` WQEs of up to so many blocks, but for its
 * doorbell. In any thread. Returns an errno value. */
int mlx5_find_send_queue(struct ibv_qp *qp, uint32_t blocks_of_one, uint32_t depth,
                         struct mlx5_queue_pair *queue_pair);
/* Its doorbell, which queue pairs may share. Returns an errno value. */
int mlx5_find_doorbell(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair);
/* Destroys the queue pair, if there is one, and frees what belongs to its send queue. */
void mlx5_queue_pair_dismantle(struct mlx5_nic *nic, struct mlx5_queue_pair *queue_pair,
                               struct ibv_qp *qp);

/* dynamic.c */
/* Makes the initiators of a nic. What is made when it fails, mlx5_initiators_end undoes. */
int32_t mlx5_initiators_make(struct mlx5_nic *nic, const struct nic_options *options,
                             crpc_error *error);
void mlx5_initiators_end(struct mlx5_nic *nic);
int32_t mlx5_dynamic_create(struct nic *base, struct nic_domain *domain, void *owner,
                            uint64_t access_key, struct nic_queue_pair **result, crpc_error *error);
void mlx5_dynamic_destroy(struct nic_queue_pair *base);
int32_t mlx5_dynamic_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                             const struct nic_transport *transport, crpc_error *error);
void mlx5_dynamic_fail(struct nic_queue_pair *base);
bool mlx5_dynamic_take_room(struct nic_queue_pair *base);
/* A WQE of an initiator has completed, or failed: *completion is its own, and becomes that of its user. Returns false if it has none:
 * the user has left, and the device would not mend the initiator then. */
bool mlx5_dynamic_done(struct mlx5_queue_pair *queue_pair, struct nic_completion *completion);

/* After a poll of the send CQ. */
void mlx5_dynamic_polled(struct mlx5_nic *nic);

/* dynamic_post.c */
void mlx5_dynamic_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                  uint32_t flags);
void mlx5_dynamic_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                        uint32_t flags);
void mlx5_dynamic_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                uint32_t flags);
void mlx5_dynamic_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                       uint32_t flags);
void mlx5_dynamic_pieces(struct nic_queue_pair *base, bool read,
                         const struct nic_transfer *transfer, const struct nic_piece *pieces,
                         uint32_t count, uint32_t flags);
void mlx5_dynamic_ring(struct nic_queue_pair *base);

/* driver.c: those of dynamic queue pairs. */
extern const struct nic_operations mlx5_dynamic_operations;

/* post.c */
void mlx5_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                               uint32_t flags);
uint32_t mlx5_post_written(struct nic_queue_pair *base, uint64_t remote_address,
                           uint32_t remote_key, uint32_t bytes, uint32_t immediate);
void mlx5_post_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                     uint32_t flags);
void mlx5_post_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                             uint32_t flags);
void mlx5_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                    uint32_t flags);
void mlx5_post_pieces(struct nic_queue_pair *base, bool read, const struct nic_transfer *transfer,
                      const struct nic_piece *pieces, uint32_t count, uint32_t flags);
void mlx5_post_atomic(struct nic_queue_pair *base, const struct nic_atomic *atomic, uint32_t flags);
void mlx5_fence_last(struct nic_queue_pair *base);
void mlx5_post_bind(struct nic_queue_pair *base, struct nic_window *window,
                    const struct nic_keys *memory, uint64_t address, uint32_t bytes,
                    uint32_t flags);
void mlx5_post_invalidate(struct nic_queue_pair *base, struct nic_window *window, uint32_t flags);
void mlx5_ring_doorbell(struct nic_queue_pair *base);
void mlx5_refill(struct nic *base);

/* poll.c */
uint32_t mlx5_poll(struct nic *base, struct nic_completion *completions, uint32_t capacity);

/* queue_pair.c: how much can be pushed to the register of a queue pair; 0 = nothing. */
uint32_t mlx5_push_bytes(const struct mlx5_nic *nic, const struct mlx5dv_qp *found);

/* queue_pair.c: a register that queue pairs share. NULL = no memory. */
struct doorbell *mlx5_doorbell_take(struct mlx5_nic *nic, const struct mlx5dv_qp *found);
void mlx5_doorbell_give(struct mlx5_nic *nic, struct doorbell *doorbell);

/* open.c: where a completion queue lies. Returns an errno value. */
int mlx5_find_completion_queue(struct ibv_cq *cq, bool compressed, struct completion_queue *queue);

/* queue.c */
extern const struct nic_queue_operations mlx5_queue_operations;

/* queue_tags.c */
struct device_source *mlx5_tags_make_source(struct device_nic *nic, uint32_t entries);
/* How many completions the commands and messages of a TM-SRQ may have at once. */
uint32_t mlx5_tags_places(const struct nic_queue_options *options);
/* Returns NULL and sets errno if it fails. */
struct ibv_srq *mlx5_tags_create_srq(struct mlx5_nic *nic, struct nic_domain *domain,
                                     const struct nic_queue_options *options,
                                     const struct mlx5_queue *queue);
/* Makes the queue pair for commands of a TM-SRQ that there is. Returns an errno value. */
int mlx5_tags_make(struct mlx5_nic *nic, struct nic_domain *domain,
                   const struct nic_queue_options *options, struct mlx5_queue *queue);
/* Destroys it, if there is one. */
void mlx5_tags_dismantle(struct mlx5_nic *nic, struct mlx5_queue *queue);
/* For completion_queue_remove: an entry of a queue pair of a TM-SRQ, which is gone. */
void mlx5_tags_removed(struct nic_queue *receiver, const struct nic_queue *from,
                       const struct mlx5_cqe64 *entry);
bool mlx5_queue_tag(struct nic_queue *base, const struct nic_work *work,
                    const struct nic_piece *piece);
/* As the polls of the other completion queues. */
uint32_t mlx5_poll_tags(struct device_nic *nic, struct mlx5_source *source,
                        crpc_completion *completions, uint32_t capacity, uint32_t *errors);

/* queue_poll.c, for queue_tags.c: a receive that was taken out of the table. */
void mlx5_receive_done(const struct mlx5_cqe64 *entry, struct nic_queue *owner, uint64_t user_data,
                       crpc_completion *completion, uint32_t *errors);

/* target.c */
int32_t mlx5_target_create(struct nic *base, struct nic_domain *domain,
                           const struct nic_target_options *options, struct nic_target **result,
                           crpc_error *error);

/* queue_post.c */
uint32_t mlx5_queue_post(struct nic_queue *base, const struct nic_work *works,
                         const uint32_t *local_keys, const struct nic_piece *pieces,
                         uint32_t count);
uint32_t mlx5_queue_post_to(struct nic_queue *base, const struct nic_work *works,
                            struct nic_target *const *targets, const uint32_t *local_keys,
                            const struct nic_piece *pieces, uint32_t count);
bool mlx5_queue_receive(struct nic_queue *base, uint64_t user_data, const struct nic_piece *pieces,
                        uint32_t count);
void mlx5_queue_ring(struct nic_queue *base);

/* queue_poll.c */
uint32_t mlx5_queue_poll(struct nic *base, crpc_completion *completions, uint32_t capacity,
                         uint32_t *errors);

/* poll.c */
enum nic_error mlx5_error_of(uint8_t syndrome, bool receive);

/* arm.c */
int mlx5_arm(struct nic *base);
void mlx5_disarm(struct nic *base);

#endif
