/* queue.h: what the queues of nic/queue.h have in common on all real devices: how they are made and end,
 * their places in completion queues, and whose turn it is in a poll.
 *
 * A driver's queue struct begins with struct device_queue, and that of a completion queue for queues with
 * struct device_source.
 */
#ifndef CORE_NIC_DEVICE_QUEUE_H
#define CORE_NIC_DEVICE_QUEUE_H

#include "nic/device/device.h"

/* A completion queue for queues of one table. */
struct device_source {
    struct device_source *next;
    uint32_t places_left; /* that no queue has taken */
    uint32_t queues;
    bool
        tags; /* it is one of TM-SRQs: in the list of shared receives, polled in a way of its own */
};

struct device_queue {
    struct nic_queue base;
    const struct device_queue_driver *driver;
    struct device_queue_pair pair; /* not of an SRQ */
    struct ibv_srq *srq;
    struct device_source *send_source;
    uint32_t send_places;                 /* in that */
    struct device_source *receive_source; /* an SRQ's is its queues', too */
    uint32_t receive_places;              /* in that; 0 = an SRQ's */
};

static inline struct device_queue *to_device_queue(struct nic_queue *queue)
{
    return container_of(queue, struct device_queue, base);
}

/* ---- Making and ending ----------------------------------------------------------------------- */

/* What a driver adds. */
struct device_queue_driver {
    size_t queue_bytes; /* size of the driver's struct, which begins zeroed */
    /* Returns how many sends of this size a queue can have; it may be less if a library has limits of its
     * own. */
    uint32_t (*sends_max)(const struct device_nic *nic, const struct nic_queue_options *options);
    /* Takes places, creates pair.qp or srq, and makes the tables. Returns an errno value. */
    int (*make_rings)(struct device_queue *queue, struct nic_domain *domain,
                      const struct nic_queue_options *options);
    /* Destroys pair.qp, and frees what only the driver knows; as far as there is any of it. */
    void (*dismantle)(struct device_queue *queue);
    /* Creates a completion queue with so many entries or more; how many is in places_left. Returns NULL
     * and sets errno if it fails. */
    struct device_source *(*make_source)(struct device_nic *nic, uint32_t entries);
    /* The same for TM-SRQs. */
    struct device_source *(*make_tag_source)(struct device_nic *nic, uint32_t entries);
    void (*end_source)(struct device_source *source);
};

/* Body of nic_queue_operations.create. */
int32_t device_queue_create(const struct device_queue_driver *driver, struct nic *nic,
                            struct nic_domain *domain, const struct nic_queue_options *options,
                            struct nic_queue **result, crpc_error *error);
/* For make_rings. Takes so many places in completion queues of the queue's tables; 0 = none, or an SRQ's.
 * Returns an errno value. */
int device_queue_take_places(struct device_queue *queue, uint32_t sends, uint32_t receives);
/* For make_rings: keeps an SRQ. Its context is for core/cm, which hears of its limit. libmlx5 leaves that of
 * ibv_create_srq_ex unset. Returns 0; or, if there is none, errno. */
int device_queue_keep_srq(struct device_queue *queue, struct ibv_srq *srq);
/* Gives back the places that turned out not to be needed. */
void device_queue_keep_places(struct device_queue *queue, uint32_t sends, uint32_t receives);
/* The last part of nic_queue_operations.stop, when the device no longer has the queue pair. */
void device_queue_end(struct device_queue *queue);

/* Makes a UD queue pair, which has no peer, ready to receive and to send. Returns an errno value. */
int device_queue_ready(struct nic_queue *base);

/* Creates a queue pair with these attributes, among them the domain, for make_rings. libmlx5 alone would have the device put short payloads into CQEs ("scatter
 * to CQE"), and its ibv_poll_cq would copy them to where a receive wants them: by the processor, which cannot do that if this is
 * another device's memory. Here that is off. Returns NULL and sets errno if it fails. */
struct ibv_qp *device_queue_qp_create(struct device_nic *nic,
                                      struct ibv_qp_init_attr_ex *attributes);
/* dc.c: Creates a DCI or a DCT with these completion queues, SRQ, limits and domain. Returns NULL and sets errno
 * if it fails. */
struct ibv_qp *device_dc_create(struct device_queue *queue, struct ibv_qp_init_attr_ex *attributes,
                                const struct nic_queue_options *options);
/* modify.c: nic_queue_operations.modify. */
int32_t device_queue_modify(struct nic_queue *base, const struct nic_queue_change *change,
                            crpc_error *error);

/* nic_queue_operations.reset_stream, .flush and .destroy. */
int32_t device_queue_reset_stream(struct nic_queue *base, uint16_t stream, crpc_error *error);
void device_queue_flush(struct nic_queue *base);
void device_queue_destroy(struct nic_queue *base);

/* ---- Targets --------------------------------------------------------------------------------- */

struct device_target {
    struct nic_target base;
    struct ibv_ah *ah;
};

static inline struct device_target *to_device_target(struct nic_target *target)
{
    return container_of(target, struct device_target, base);
}

/* target.c. Body of nic_queue_operations.target_create: `bytes` is the size of the driver's struct, which
 * begins with struct device_target. */
int32_t device_target_create(size_t bytes, struct nic *nic, struct nic_domain *domain,
                             const struct nic_target_options *options, struct nic_target **target,
                             crpc_error *error);
void device_target_destroy(struct nic_target *target);

/* ---- Data path: polling ---------------------------------------------------------------------- */

static inline struct nic_queue *device_queue_of(const struct device_nic *nic, uint32_t number)
{
    return table_get(&nic->queues_by_number, number);
}

/* Reports completions of one completion queue. An always_inline function of the driver, compiled for each
 * table. */
typedef uint32_t device_poll_source(struct device_nic *nic, struct device_source *source,
                                    crpc_completion *completions, uint32_t capacity,
                                    uint32_t *errors, enum nic_queue_table table);

/* The caller's array is full before all tables, or all completion queues of this one, have had their turn:
 * others come first the next time. */
void device_pass_turn(struct device_nic *nic, enum nic_queue_table table, uint32_t turn);

/* The completion queues of one table, which is a constant. */
static inline __attribute__((always_inline)) uint32_t
device_poll_sources(struct device_nic *nic, crpc_completion *completions, uint32_t capacity,
                    uint32_t *errors, device_poll_source *poll, enum nic_queue_table table)
{
    uint32_t count = 0;
    for (struct device_source *one = nic->queue_sources[table]; one; one = one->next) {
        count += poll(nic, one, completions + count, capacity - count, errors, table);
    }
    return count;
}

static inline __attribute__((always_inline)) uint32_t
device_poll_table(struct device_nic *nic, crpc_completion *completions, uint32_t capacity,
                  uint32_t *errors, device_poll_source *receives, device_poll_source *sends,
                  enum nic_queue_table table)
{
    switch (table) {
    case NIC_TABLE_RECEIVES:
        return device_poll_sources(nic, completions, capacity, errors, receives,
                                   NIC_TABLE_RECEIVES);
    case NIC_TABLE_SHARED:
        return device_poll_sources(nic, completions, capacity, errors, receives, NIC_TABLE_SHARED);
    case NIC_TABLE_DENSE:
        return device_poll_sources(nic, completions, capacity, errors, sends, NIC_TABLE_DENSE);
    case NIC_TABLE_SPARSE:
        return device_poll_sources(nic, completions, capacity, errors, sends, NIC_TABLE_SPARSE);
    case NIC_TABLE_UNORDERED:
        return device_poll_sources(nic, completions, capacity, errors, sends, NIC_TABLE_UNORDERED);
    default:
        return 0;
    }
}

/* Body of nic_queue_operations.poll. Receives first, unless a poll before was cut short: what a peer has
 * sent before it went away is seen before the error that its going causes. */
static inline __attribute__((always_inline)) uint32_t
device_queue_poll(struct device_nic *nic, crpc_completion *completions, uint32_t capacity,
                  uint32_t *errors, device_poll_source *receives, device_poll_source *sends)
{
    static const uint8_t order[NIC_TABLES] = {NIC_TABLE_RECEIVES, NIC_TABLE_SHARED, NIC_TABLE_DENSE,
                                              NIC_TABLE_SPARSE, NIC_TABLE_UNORDERED};
    uint32_t turn = nic->queue_turn;
    uint32_t count = 0;
    *errors = 0;
    nic->queue_turn = 0;
    for (uint32_t left = NIC_TABLES; left > 0; left--) {
        const enum nic_queue_table table = (enum nic_queue_table)order[turn];
        count += device_poll_table(nic, completions + count, capacity - count, errors, receives,
                                   sends, table);
        if (unlikely(count == capacity)) {
            device_pass_turn(nic, table, turn);
            break;
        }
        turn = turn + 1 < NIC_TABLES ? turn + 1 : 0;
    }
    return count;
}

#endif
