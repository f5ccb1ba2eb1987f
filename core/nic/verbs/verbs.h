/* verbs.h: what the files of the portable driver share.
 *
 * The driver uses ibv_post_send and ibv_poll_cq, and nothing vendor-specific but for DC (queue_dc.c),
 * so it runs on every RoCE and InfiniBand device, including Soft-RoCE. It relies on the promises of nic.h: one thread
 * at a time, a check for room before each post, and validated arguments.
 *
 * Which devices it is for. Read in rdma-core's providers and the kernel's drivers; of these devices only Soft-RoCE (in the VM) and
 * simnic's run here.
 *
 *   mlx5, mlx4     all that nic.h wants
 *   rxe            likewise; fences need care (verbs_fence_needed)
 *   hns            likewise, if its firmware has SRQs; if not, as erdma
 *   bnxt_re        no receive without a piece: "HW needs at least one SGE for RQ entries". Its library adds one to those of queue
 *                  pairs, and not to those of SRQs. So it gets one of no bytes
 *   qedr           the same: "FW requires between 1-4 sges", for a WRITE with immediate takes a receive
 *   irdma          SRQs from the E830 on; before, a receive queue of each queue pair. No windows of type 2B, and atomics from the E830
 *                  on. As iWARP (X722, or by choice) it is refused: port.c
 *   erdma          no SRQs; one piece for a receive, one for a READ (max_sge_rd), and RC alone, so no queues for datagrams. It
 *                  refuses a queue pair without any receive. Refused where its driver says iWARP
 *   mana           no SRQs, no windows, no atomics, and no payload in a WQE: its library ignores IBV_SEND_INLINE, and the kernel
 *                  returns any max_inline_data that it was asked for. Its driver may leave vendor_id 0
 *   ionic          no SRQs
 *   vmw_pvrdma     SRQs; nothing is known to be missing
 *   siw, cxgb4     iWARP, which has no WRITE with immediate: refused
 *   efa            its queue pairs (SRD) keep no order, and its transport is neither InfiniBand's nor iWARP's: refused
 *
 * Why a piece is not given to all: in a receive of an mlx5 device a length of 0 means 2 GiB, and libmlx5 leaves empty pieces out for
 * queue pairs alone. Why this goes by vendor: no call tells, and finding out would take a connection of the device to itself at each
 * opening, which may never complete if the answer is no.
 *
 * What else differs is asked or limited: inline payload, at most what a queue pair is granted; pieces, at most max_sge and max_sge_rd;
 * READs under way, at most max_qp_rd_atom and max_qp_init_rd_atom; windows and atomics, by device_cap_flags and atomic_cap.
 */
#ifndef CORE_NIC_VERBS_VERBS_H
#define CORE_NIC_VERBS_VERBS_H

#include "base/list.h"
#include "nic/device/queue.h"
#include "nic/verbs/driver.h"

#define VERBS_CHAIN 4          /* send WQEs per ibv_post_send */
#define VERBS_REFILL_CHUNK 256 /* receives per ibv_post_srq_recv */
#define VERBS_POLL_CHUNK 32    /* entries per ibv_poll_cq */

/* A source of completions: first the stash, then the CQ.
 *
 * To destroy a queue pair, the driver must find its entries in the CQ. It can only do that by
 * taking all entries out of the CQ. The entries of other queue pairs wait in the stash. */
struct verbs_source {
    struct ibv_cq *cq;
    uint32_t depth;
    struct ibv_wc *stash; /* `depth` entries */
    uint32_t stash_first;
    uint32_t stash_count;
    uint32_t events_unacked;
};

/* vendor.c: what devices do not say themselves. */
struct verbs_vendor {
    bool soft_roce;     /* rxe, whose errors are not all those of the specification */
    bool receive_piece; /* a receive without any piece is not executed */
    bool no_inline;     /* payload cannot be in a WQE, although the library says so */
};

struct verbs_nic {
    struct device_nic device;
    struct verbs_source receive;
    struct verbs_source send;
    struct ibv_srq *srq; /* NULL = the device has none */
    uint32_t inline_bytes_wanted;
    struct verbs_vendor vendor;
    struct ibv_recv_wr receives[VERBS_REFILL_CHUNK]; /* linked; all are equal */
    struct ibv_sge no_bytes; /* what each of them has, if vendor.receive_piece */
    /* Without an SRQ: */
    struct list
        short_of_receives;   /* struct verbs_queue_pair.short_link: those that have used some */
    uint32_t receives_given; /* entries of all receive queues */
};

/* Fences. A device that comes to a WQE with a fence waits for the READs and atomics before it. Soft-RoCE
 * (Linux 6.1) looks again when it resends one that is a READ or an atomic itself, and then waits for that one,
 * for ever. So it is told of a fence only if there is something to wait for: verbs_fence_needed. */
struct verbs_queue_pair {
    struct device_queue_pair device;
    uint32_t reads_end;        /* WQEs posted up to the last READ or atomic, with it */
    uint32_t reads_before_end; /* likewise up to the one before */
    uint32_t chained;          /* WQEs posted since the last ring */
    /* Its receive queue, if the device has no SRQ. */
    uint32_t receive_depth;
    uint32_t receives_posted;
    bool receives_stopped;
    struct list short_link;
    struct ibv_send_wr chain[VERBS_CHAIN]; /* linked; each uses its own row of `pieces` */
    struct ibv_sge pieces[VERBS_CHAIN][NIC_PIECES_MAX];
};

/* A completion queue for queues of nic/queue.h. Its stash also holds what was taken out of the CQ and
 * has not been reported yet. */
struct verbs_queue_source {
    struct device_source device;
    struct verbs_source source;
};

/* An entry of a TM-SRQ's completion queue: an extended one, which is read member by member. */
struct verbs_tag_entry {
    uint64_t wr_id;
    uint64_t tag;
    uint32_t context;
    uint32_t number; /* of the queue pair */
    uint32_t bytes;
    uint32_t immediate; /* host byte order; or the key that was invalidated */
    uint32_t vendor_error;
    uint32_t flags;  /* enum ibv_wc_flags */
    uint32_t status; /* enum ibv_wc_status */
    uint32_t opcode; /* enum ibv_wc_opcode */
};

/* A completion queue of one TM-SRQ, whose stash is its own. */
struct verbs_tag_source {
    struct verbs_queue_source plain; /* it has no stash there */
    struct ibv_cq_ex *cq;
    struct nic_queue *queue;
    struct verbs_tag_entry *stash; /* plain.source.depth entries */
};

static inline struct verbs_tag_source *to_verbs_tag_source(struct device_source *source)
{
    return container_of(source, struct verbs_tag_source, plain.device);
}

#define VERBS_QUEUE_CHAIN 16 /* WQEs of a queue for each ibv_post_send or ibv_post_recv */

/* Where a WQE of a DCI's chain goes. */
struct verbs_way {
    const struct nic_target *target;
    uint16_t stream;
};

struct verbs_queue {
    struct device_queue device;
    uint32_t reads_end;        /* the position behind the last READ or atomic */
    uint32_t chained;          /* of `chain`, since the last ring */
    struct ibv_send_wr *chain; /* linked; each uses its own part of `pieces` */
    struct ibv_sge *pieces;
    uint32_t receives_chained;
    struct ibv_recv_wr *receive_chain;
    struct ibv_sge *receive_pieces;
    struct ibv_qp_ex *extended; /* of a DCI; NULL: ibv_post_send */
    struct verbs_way *ways;     /* likewise, of `chain` */
    uint32_t receive_next; /* a ring's next entry; an SRQ's first free one: a list by `position` */
};

static inline struct verbs_queue *to_verbs_queue(struct nic_queue *queue)
{
    return container_of(queue, struct verbs_queue, device.base);
}

static inline struct verbs_source *to_verbs_source(struct device_source *source)
{
    return &container_of(source, struct verbs_queue_source, device)->source;
}

static inline struct verbs_nic *to_verbs_nic(struct nic *nic)
{
    return container_of(nic, struct verbs_nic, device.base);
}

static inline struct verbs_queue_pair *to_verbs_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct verbs_queue_pair, device.base);
}

/* open.c */
int32_t verbs_query(uint32_t index, crpc_device_info *info, crpc_error *error);
int32_t verbs_open(const struct nic_options *options, struct nic **result, crpc_error *error);
void verbs_close(struct nic *base);

/* Whether the device is told of a fence. All WQEs before `done` have completed; reads_end is behind the last READ
 * or atomic before the fence. */
static inline bool verbs_fence_needed(struct nic *nic, uint32_t reads_end, uint32_t done)
{
    return !to_verbs_nic(nic)->vendor.soft_roce || (int32_t)(reads_end - done) > 0;
}

/* queue_pair.c */
/* receives: entries of its receive queue, if there is no SRQ. */
struct ibv_qp *verbs_qp_create(struct verbs_nic *nic, struct nic_domain *domain, uint32_t depth,
                               uint32_t inline_bytes, uint32_t receives,
                               struct ibv_qp_init_attr *granted);
int32_t verbs_queue_pair_begin(struct nic *base, void *owner, uint32_t depth, uint32_t receives,
                               struct nic_queue_pair **result, crpc_error *error);
int32_t verbs_queue_pair_make(struct nic_queue_pair *base, struct nic_domain *domain,
                              crpc_error *error);
int32_t verbs_queue_pair_adopt(struct nic_queue_pair *base, crpc_error *error);
void verbs_queue_pair_drop(struct nic_queue_pair *base);
void verbs_queue_pair_unmake(struct nic_queue_pair *base);
void verbs_queue_pair_destroy(struct nic_queue_pair *base);
void verbs_queue_pair_fail(struct nic_queue_pair *base);

/* post.c */
void verbs_post_write_immediate(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                                uint32_t flags);
void verbs_post_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                      uint32_t flags);
void verbs_post_foreign_write(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                              uint32_t flags);
void verbs_post_read(struct nic_queue_pair *base, const struct nic_transfer *transfer,
                     uint32_t flags);
void verbs_post_pieces(struct nic_queue_pair *base, bool read, const struct nic_transfer *transfer,
                       const struct nic_piece *pieces, uint32_t count, uint32_t flags);
void verbs_post_atomic(struct nic_queue_pair *base, const struct nic_atomic *atomic,
                       uint32_t flags);
void verbs_fence_last(struct nic_queue_pair *base);
void verbs_post_bind(struct nic_queue_pair *base, struct nic_window *window,
                     const struct nic_keys *memory, uint64_t address, uint32_t bytes,
                     uint32_t flags);
void verbs_post_invalidate(struct nic_queue_pair *base, struct nic_window *window, uint32_t flags);
void verbs_ring_doorbell(struct nic_queue_pair *base);

/* receive.c: the SRQ, or the receive queues of queue pairs */
/* Makes what refill posts, and the SRQ if the device has one. */
int32_t verbs_receives_open(struct verbs_nic *nic, crpc_error *error);
void verbs_receives_close(struct verbs_nic *nic);
/* The three steps of a new queue pair. The first reserves receive_depth entries, which has been set. The others return an errno value.
 */
void verbs_receives_begin(struct verbs_queue_pair *queue_pair);
int verbs_receives_make(struct verbs_queue_pair *queue_pair);
int verbs_receives_adopt(struct verbs_queue_pair *queue_pair);
/* It is not filled up any more. */
void verbs_receives_stop(struct verbs_queue_pair *queue_pair);
/* The queue pair is gone. */
void verbs_receives_end(struct verbs_queue_pair *queue_pair);
/* One of a queue pair was used. */
void verbs_receive_used(struct verbs_nic *nic, struct verbs_queue_pair *queue_pair);
void verbs_refill(struct nic *base);

/* vendor.c */
struct verbs_vendor verbs_vendor_of(struct ibv_context *context);

/* poll.c */
uint32_t verbs_poll(struct nic *base, struct nic_completion *completions, uint32_t capacity);

/* source.c: the cold path of completion sources. */
bool verbs_source_open(struct verbs_source *source, struct verbs_nic *nic, uint32_t depth);
void verbs_source_close(struct verbs_source *source);
/* Takes up to `capacity` stashed entries, oldest first, and returns how many. */
uint32_t verbs_source_unstash(struct verbs_source *source, struct ibv_wc *entries,
                              uint32_t capacity);
/* Appends one entry, as if the device had written it. Returns false if there is no room. */
bool verbs_source_stash(struct verbs_source *source, const struct ibv_wc *entry);
/* Drops all present entries of a queue pair, and returns how many. Passes each to `dropped`, unless
 * that is NULL. */
typedef void verbs_dropped(void *argument, const struct ibv_wc *entry);
uint32_t verbs_source_drop(struct verbs_source *source, uint32_t queue_pair_number,
                           verbs_dropped *dropped, void *argument);

/* poll.c */
enum nic_error verbs_error_of(const struct ibv_wc *entry, bool receive);

/* queue.c */
extern const struct nic_queue_operations verbs_queue_operations;

/* queue_dc.c: DCIs and DCTs */
/* Returns how many WQEs libmlx5 is asked for. */
uint32_t verbs_dc_wqes(const struct nic_queue *queue);
/* Creates the DCI or DCT with these attributes. Returns an errno value. */
int verbs_dc_create(struct device_queue *queue, struct ibv_qp_init_attr_ex *attributes,
                    const struct nic_queue_options *options);
/* Says where WQE `index` of the chain goes, which is about to be posted. */
void verbs_dc_chain(struct verbs_queue *queue, uint32_t index, const struct nic_work *work,
                    const struct nic_target *target);
/* Posts the chain. Returns an errno value; then libmlx5 has taken nothing of it. */
int verbs_dc_post(struct verbs_queue *queue);

/* queue_post.c */
uint32_t verbs_queue_post(struct nic_queue *base, const struct nic_work *works,
                          const uint32_t *local_keys, const struct nic_piece *pieces,
                          uint32_t count);
uint32_t verbs_queue_post_to(struct nic_queue *base, const struct nic_work *works,
                             struct nic_target *const *targets, const uint32_t *local_keys,
                             const struct nic_piece *pieces, uint32_t count);
bool verbs_queue_receive(struct nic_queue *base, uint64_t user_data, const struct nic_piece *pieces,
                         uint32_t count);
void verbs_queue_ring(struct nic_queue *base);

/* queue_poll.c */
uint32_t verbs_queue_poll(struct nic *base, crpc_completion *completions, uint32_t capacity,
                          uint32_t *errors);

/* queue_tags.c */
struct device_source *verbs_tags_make_source(struct device_nic *nic, uint32_t entries);
void verbs_tags_end_source(struct device_source *source);
/* Returns an errno value. */
int verbs_tags_create_srq(struct device_queue *queue, struct nic_domain *domain,
                          const struct nic_queue_options *options);
bool verbs_queue_tag(struct nic_queue *base, const struct nic_work *work,
                     const struct nic_piece *piece);
/* As the polls of the other completion queues. */
uint32_t verbs_poll_tags(struct device_nic *nic, struct verbs_tag_source *source,
                         crpc_completion *completions, uint32_t capacity, uint32_t *errors);
/* Drops the entries of a queue pair of the TM-SRQ. Its receives complete all the same. */
void verbs_tags_drop(struct verbs_tag_source *source, const struct nic_queue *from,
                     uint32_t number);

/* queue_poll.c, for queue_tags.c */
enum nic_error verbs_receive_error(const struct ibv_wc *entry, bool soft_roce);

/* arm.c */
int verbs_arm(struct nic *base);
void verbs_disarm(struct nic *base);

#endif
