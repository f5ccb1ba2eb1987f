/* device.h: what the drivers of real devices share: devices, ports, memory and connections, but not
 * the data path. It uses libibverbs; a driver adds the queues. queue.h has the queues of nic/queue.h.
 *
 * A driver's nic struct begins with struct device_nic, and its queue pair struct with struct
 * device_queue_pair.
 */
#ifndef CORE_NIC_DEVICE_DEVICE_H
#define CORE_NIC_DEVICE_DEVICE_H

#include <assert.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <string.h>

#include "base/compiler.h"
#include "base/table.h"
#include "nic/nic.h"
#include "nic/queue.h"

struct device_source; /* queue.h */

struct device_queue_pair;
struct device_nic;

/* Tells of an event of a queue pair, or with IBV_EVENT_CQ_ERR of a completion queue of the nic. */
typedef void device_trouble_told(void *argument, enum ibv_event_type type, uint32_t number);

struct device_nic {
    struct nic base;
    /* In one line with what base ends with, which polls write, too. */
    uint32_t send_outstanding; /* WQEs of all queue pairs that are not known to be complete */
    uint32_t queue_pairs;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    uint16_t lid;
    uint16_t partition_index; /* of base.network.partition_key, in the port's table */
    uint8_t mtu_code;
    uint32_t send_wqes_max;    /* of a queue pair, as the device counts them */
    uint32_t receive_wqes_max; /* of a receive queue */
    uint8_t read_depth_out;    /* READs that one queue pair can have under way as initiator */
    uint8_t read_depth_in;     /* and as responder */
    uint8_t stream_failures_exponent_max; /* of a DCI's streams: so many as 2^n fail it */
    struct table by_number;               /* struct nic_queue_pair */
    uint32_t left_out;                    /* LEFT_OUT_* of left_out.h */
    struct table queues_by_number;        /* struct nic_queue: those of nic/queue.h are not above */
    struct device_source *queue_sources[NIC_TABLES]; /* lists */
    uint32_t queue_turn;        /* the next poll of queues begins with this table in its order */
    _Atomic bool watched;       /* core/cm's thread takes the device's events */
    _Atomic bool says_last_wqe; /* it has said so once, of any queue pair: last_wqe.c */
    _Atomic uint32_t last_wqe_waits; /* for one of which it has not in time */
    /* Of a driver that makes queues past the verbs: does for such a queue pair what ibv_modify_qp does for others. */
    int (*modify)(struct device_queue_pair *queue_pair, struct ibv_qp_attr *attributes, int mask);
    /* Their events come by a channel of their own; -1 and NULL = there is none. core/cm's thread waits for the descriptor, and takes the
     * events one by one: `told` is called for those that core/cm has to tell of. Nothing is told of a queue pair once it is unmade. Returns
     * false if there was no event. */
    int trouble_fd;
    bool (*take_trouble)(struct device_nic *nic, device_trouble_told *told, void *argument);
};

struct device_domain {
    struct nic_domain base;
    struct ibv_pd *pd;
};

struct device_queue_pair {
    struct nic_queue_pair base;
    struct ibv_qp *qp; /* NULL: not made, or past the verbs */
    uint32_t packet_sequence_number;
    _Atomic bool last_wqe_reached; /* it holds no receives of an SRQ any more: last_wqe.c */
    bool adopted;                  /* it is in by_number */
    bool settled;                  /* that was waited for, ... */
    bool last_wqe_missed;          /* ... in vain */
    bool atomics;                  /* the peer may use them, on memory that has the right */
    struct nic_ece ece;            /* as in struct nic_address */
    bool past_verbs;               /* it is made, and is no ibv_qp: device_nic.modify */
    uint32_t withheld; /* CRPC_ACCESS_REMOTE_*: what it may not do, whatever right the memory has */
};

static inline struct device_nic *to_device_nic(struct nic *nic)
{
    return container_of(nic, struct device_nic, base);
}

static inline struct device_queue_pair *to_device_queue_pair(struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, struct device_queue_pair, base);
}

/* Returns the protection domain of `domain`; of the nic itself if it is NULL. */
static inline struct ibv_pd *device_pd(struct device_nic *nic, struct nic_domain *domain)
{
    assert(!domain || domain->nic == &nic->base);
    return domain ? container_of(domain, struct device_domain, base)->pd : nic->pd;
}

/* For core/cm, which connects the queue pairs of these devices by rdma_cm (nic->rdma_cm). */
static inline struct ibv_context *device_context(const struct nic *nic)
{
    return container_of(nic, const struct device_nic, base)->context;
}

static inline struct ibv_qp *device_qp(const struct nic_queue_pair *queue_pair)
{
    return container_of(queue_pair, const struct device_queue_pair, base)->qp;
}

static inline bool device_is_made(const struct device_queue_pair *queue_pair)
{
    return queue_pair->qp || queue_pair->past_verbs;
}

/* Changes its state, or its attributes. Returns an errno value. core/cm does so, too. */
static inline int device_modify(struct nic_queue_pair *base, struct ibv_qp_attr *attributes,
                                int mask)
{
    struct device_queue_pair *queue_pair = to_device_queue_pair(base);
    return queue_pair->past_verbs ? to_device_nic(base->nic)->modify(queue_pair, attributes, mask)
                                  : ibv_modify_qp(queue_pair->qp, attributes, mask);
}

/* Returns what the peer of a queue pair may do, as IBV_ACCESS_REMOTE_*. core/cm asks, too. */
static inline unsigned int device_remote_access(const struct device_queue_pair *queue_pair)
{
    uint32_t withheld = queue_pair->withheld;
    return (withheld & CRPC_ACCESS_REMOTE_WRITE ? 0 : IBV_ACCESS_REMOTE_WRITE) |
           (withheld & CRPC_ACCESS_REMOTE_READ ? 0 : IBV_ACCESS_REMOTE_READ) |
           (withheld & CRPC_ACCESS_REMOTE_ATOMIC || !queue_pair->atomics
                ? 0
                : IBV_ACCESS_REMOTE_ATOMIC);
}

/* port.c: an open port of a device. */
struct device_port {
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr attributes;
    uint32_t number;
    uint32_t gid_index;
    union ibv_gid gid;
    uint16_t partition_index;
    uint16_t partition_key;
};

/* Tells whether a driver can use a device. NULL = it can use any device with the InfiniBand
 * transport. */
typedef bool device_usable(struct ibv_device *device);

bool device_has_srqs(const struct ibv_device_attr *device);
uint32_t device_receive_depth_max(const struct ibv_device_attr *device);
/* speed.c: returns the speed in Mbit/s; 0 = not known. */
uint32_t device_link_mbps(const struct ibv_context *context, uint32_t port,
                          const struct ibv_port_attr *attributes);
/* Describes a port. Sets the bit of `driver` in info->drivers if the driver can use the device. */
int32_t device_query(uint32_t index, uint32_t driver, device_usable *usable, crpc_device_info *info,
                     crpc_error *error);
/* Opens the requested device and port, among those that the driver can use. The caller closes
 * port->context. Returns CRPC_E_UNSUPPORTED if the device exists but the driver cannot use it. */
int32_t device_port_open(const struct nic_options *options, device_usable *usable,
                         struct device_port *port, crpc_error *error);

/* gid.c */
struct device_gid {
    union ibv_gid value;
    uint32_t index;
};

/* Returns the LID by which routers reach the port with this InfiniBand GID, as path.c explains; 0 = it has none. */
static inline uint16_t device_flid(const uint8_t gid[16])
{
    static const uint8_t site_local[4] = {0xfe, 0xc0};
    return memcmp(gid, site_local, sizeof(site_local)) == 0 ? (uint16_t)(gid[4] << 8 | gid[5]) : 0;
}

/* Chooses the GID that a context uses by default. Returns false if the port has no GID. */
bool device_gid_choose(struct ibv_context *context, uint32_t port,
                       const struct ibv_port_attr *attributes, struct device_gid *gid);
int32_t device_gid_take(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct device_gid *gid, crpc_error *error);

/* open.c: what the open and close of all drivers have in common. */
struct device_driver {
    const struct nic_operations *operations;
    size_t nic_bytes; /* size of the driver's struct, which begins with struct device_nic */
    device_usable *usable;
    /* Creates the driver's queues. If it fails, operations->close destroys what it created. */
    int32_t (*create_queues)(struct device_nic *nic, const struct nic_options *options,
                             crpc_error *error);
};

/* Opens the port that `options` names, and creates its protection domain, completion channel and
 * queues. */
int32_t device_open(const struct device_driver *driver, const struct nic_options *options,
                    struct nic **result, crpc_error *error);
/* For the driver's close. Frees the nic. The driver must have destroyed its queues before. */
void device_close(struct device_nic *nic);
/* Fills *error: a queue of this depth could not be created, for the reason in errno. */
int32_t device_queue_failed(const struct nic *nic, const char *kind, uint32_t depth,
                            crpc_error *error);
/* The common part of the three steps of making a queue pair. The second is for any thread. The third adds it to by_number, and
 * returns false if there is no memory. */
void device_queue_pair_begin(struct device_nic *nic, struct device_queue_pair *queue_pair,
                             void *owner, uint32_t depth);
void device_queue_pair_made(struct device_queue_pair *queue_pair, struct ibv_qp *qp);
/* The second of one that is made past the verbs, and takes receives of the nic's SRQ. */
void device_queue_pair_made_past_verbs(struct device_queue_pair *queue_pair, uint32_t number);
bool device_queue_pair_adopt(struct device_nic *nic, struct device_queue_pair *queue_pair);
/* Does the same for the queue pair of a queue, which is its owner, in queues_by_number. Moves it to INIT:
 * it can have receives before it is connected. Events of the queue pair of a TM-SRQ's commands are for
 * nobody: it has no ibv_qp.qp_context, as that which libmlx5 hides. Returns an errno value. */
int device_queue_init(struct device_nic *nic, struct device_queue_pair *queue_pair,
                      struct nic_queue *queue, struct ibv_qp *qp);
/* The same for a DCT of a dynamic queue pair, which is ready then. Returns an errno value: EEXIST if its number is in by_number,
 * as of one that has failed and was not forgotten yet. */
int device_dct_init(struct device_nic *nic, struct device_queue_pair *queue_pair, void *owner,
                    struct ibv_qp *qp);
/* For one that was reset: packets of before do not fit what it sends next. */
void device_renew_sequence_number(struct device_queue_pair *queue_pair);
void device_queue_forget(struct device_nic *nic, const struct nic_queue_pair *queue_pair);
/* Removes it from by_number, and its WQEs from send_outstanding. */
void device_queue_pair_forget(struct device_nic *nic, struct nic_queue_pair *queue_pair);

/* events.c: returns the queue of the channel's next event, or NULL if there is none. */
struct ibv_cq *device_next_event(struct device_nic *nic);
/* Counts an event of this queue, which is acknowledged later together with others. */
void device_count_event(struct ibv_cq *cq, uint32_t *unacked);
/* Destroys a queue. Acknowledges its events first, because libibverbs waits for that. */
void device_destroy_cq(struct ibv_cq *cq, uint32_t unacked);

/* last_wqe.c: the end of a queue pair that takes receives of an SRQ. */
/* For core/cm, whose thread takes the events of this nic's device, or does so no more. */
static inline void device_watched(struct nic *nic, bool watched)
{
    atomic_store(&to_device_nic(nic)->watched, watched);
}

static inline void device_gave_last_wqe_back(struct device_queue_pair *queue_pair)
{
    atomic_store(&to_device_nic(queue_pair->base.nic)->says_last_wqe, true);
    atomic_store(&queue_pair->last_wqe_reached, true);
}

/* For core/cm's thread, before it acknowledges IBV_EVENT_QP_LAST_WQE_REACHED of this queue pair. */
static inline void device_last_wqe_reached(struct ibv_qp *qp)
{
    if (qp->qp_context) { /* or it has the commands of a TM-SRQ */
        device_gave_last_wqe_back(qp->qp_context);
    }
}

/* Waits until a queue pair in the error state has given back what receives it holds: then their completions are in its completion
 * queue. For at most 100 ms; not at all if it has not been connected, if nobody watches the device, or if the nic is about
 * to be closed. In any thread. */
void device_await_last_wqe(struct device_nic *nic, struct device_queue_pair *queue_pair);
/* The operation of nic.h: does so once, if it was adopted. */
void device_queue_pair_settle(struct nic_queue_pair *base);
/* If that was not enough, counts it in base.last_wqes_missed, and tells base.log of the first. In the thread that uses the nic. */
void device_note_last_wqe(const struct device_queue_pair *queue_pair);

/* domain.c */
int32_t device_domain_create(struct nic *nic, struct nic_domain **domain, crpc_error *error);
void device_domain_destroy(struct nic_domain *domain);

/* memory.c */
int32_t device_memory_register(struct nic *base, struct nic_domain *domain, void *address,
                               size_t bytes, uint64_t remote_address, uint32_t access,
                               struct nic_keys *memory, crpc_error *error);
int32_t device_memory_register_dmabuf(struct nic *base, struct nic_domain *domain, int fd,
                                      uint64_t offset, size_t bytes, uint64_t address,
                                      uint32_t access, struct nic_keys *memory, crpc_error *error);
void device_memory_deregister(struct nic *nic, struct nic_keys *memory);

/* window.c */
int32_t device_window_create(struct nic *base, struct nic_window *window, crpc_error *error);
void device_window_destroy(struct nic *base, struct nic_window *window);

/* dc.c: the states of a DCI and of a DCT. */
/* Finds out whether the nic has DC, and how many streams. */
void device_dc_describe(struct device_nic *nic);
struct mlx5dv_dci_streams;
/* Creates a DCI or a DCT with these completion queues, SRQ, limits and domain. streams: NULL = it has none. Returns NULL and
 * sets errno if it fails. */
struct ibv_qp *device_dci_create(struct device_nic *nic, struct ibv_qp_init_attr_ex *attributes,
                                 const struct mlx5dv_dci_streams *streams);
struct ibv_qp *device_dct_create(struct device_nic *nic, struct ibv_qp_init_attr_ex *attributes,
                                 uint64_t access_key);
/* Each returns an errno value. That of a DCT sets base->number, which it has not before. A DCI is ready to send. */
int device_dci_to_init(struct nic_queue_pair *base);
int device_dci_ready(struct nic_queue_pair *base, const struct nic_transport *transport);
int device_dct_ready(struct nic_queue_pair *base);

/* path.c: how packets find their way; for queue pairs of all kinds. */
/* Of an InfiniBand port: whoever sends from it or to it must use a GRH. */
static inline bool device_grh_required(const struct ibv_port_attr *attributes)
{
    return attributes->link_layer != IBV_LINK_LAYER_ETHERNET &&
           attributes->flags & IBV_QPF_GRH_REQUIRED;
}

/* Chooses the P_Key, and checks what the port does not have: CRPC_E_INVALID. */
int32_t device_port_network(struct device_port *port, const struct nic_network *wanted,
                            crpc_error *error);
/* Returns the way to an address of this link. There is a GRH on Ethernet, and on InfiniBand if either port requires one or a router
 * lies between their subnets. */
struct ibv_ah_attr device_way_to(const struct device_nic *nic, const struct nic_address *peer);
/* Puts what the nic was told into a way, which may be one that rdma_cm has found: core/cm asks, too. */
static inline void device_way_amend(const struct device_nic *nic, struct ibv_ah_attr *way)
{
    const struct nic_network *network = &nic->base.network;
    way->sl = network->service_level ? network->service_level : way->sl;
    if (network->traffic_class) {
        way->grh.traffic_class = network->traffic_class;
    }
}

/* connect.c */
/* To the state INIT, in which receives can be posted. Returns an errno value. device_queue_pair_connect
 * does it, too. */
int device_queue_pair_to_init(struct nic_queue_pair *base);
/* The same of one whose peers have rights. */
int device_queue_pair_rights_to_init(struct nic_queue_pair *base);
/* To the state RTS, from RTR. Returns an errno value. */
int device_queue_pair_to_send(struct nic_queue_pair *base, const struct nic_transport *transport);
void device_queue_pair_address(const struct nic_queue_pair *base, struct nic_address *address);
int32_t device_queue_pair_connect(struct nic_queue_pair *base, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error);

/* ece.c */
/* For one that has just been made. */
void device_ece_offer(struct device_queue_pair *queue_pair);
/* To the state RTR, from INIT, with what both ends have of ECE; without it if the device refuses that. core/cm calls it, too. Returns an
 * errno value. */
int device_ready_to_receive(struct device_queue_pair *queue_pair, struct nic_ece peer,
                            struct ibv_qp_attr *attributes, int mask);

/* blame.c: turns an errno value into advice for a person. `what` is e.g. "register 4096 KiB of
 * memory". Fills *error and returns its status. */
int32_t device_blame(crpc_error *error, int os_error, size_t pinned_bytes, const char *device,
                     const char *what);

#endif
