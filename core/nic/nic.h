/* nic.h: what a NIC is to the services above it: register memory, make and connect queue pairs,
 * post, poll, arm. Drivers (verbs, mlx5; memory for tests) fill in struct nic_operations.
 *
 * One thread at a time uses a nic and its queue pairs. Everything with "post", "ring", "poll" or
 * "refill" in its name is data path: no allocation, no lock of ours, no system call of ours.
 *
 * A nic has one send CQ, one receive CQ and one SRQ of receives without memory: payload always
 * arrives by RDMA WRITE, and a receive only carries the immediate.
 */
#ifndef CORE_NIC_NIC_H
#define CORE_NIC_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/abi.h"

struct nic;
struct nic_queue_pair;

/* ---- Opening --------------------------------------------------------------------------------- */

struct nic_options {
    char device[64]; /* "" = the first with an active port */
    uint32_t port;   /* 0 = the first active */
    bool gid_index_given;
    uint32_t gid_index;
    uint32_t receive_depth;         /* wanted; 0 = 16384; clamped to what the device can */
    uint32_t send_depth;            /* WQEs of each queue pair's send queue */
    uint32_t send_completion_depth; /* wanted entries of the send CQ; clamped likewise */
    uint32_t signal_interval;       /* at least one WQE in so many is signaled; <= send_depth / 2 */
    uint32_t features;              /* CRPC_FEATURE_* to be used where the device can */
};

/* ---- Memory ---------------------------------------------------------------------------------- */

struct nic_keys {
    uint32_t local_key;
    uint32_t remote_key;
    void *driver; /* the driver's own handle; NULL = not registered */
};

/* ---- Queue pairs ----------------------------------------------------------------------------- */

/* Where a queue pair is to be found: what the blob way exchanges. */
struct nic_address {
    uint32_t queue_pair_number;
    uint32_t packet_sequence_number; /* the first it will send; 24 bits */
    uint16_t lid;
    uint8_t link;     /* CRPC_LINK_* */
    uint8_t mtu_code; /* 1 = 256 B ... 5 = 4096 B, as in the InfiniBand specification */
    uint8_t gid[16];
};

struct nic_transport {
    uint32_t retry_timeout; /* 4.096 us * 2^n, 1..31 */
    uint32_t retry_count;   /* 1..7 */
};

/* What every connection has, whichever way it was made (the verbs specification's codes).
 * rdma_cm by itself leaves the RNR timer at 0, which means 655 ms, and rdma_init_qp_attr the
 * rest at its own. */
#define NIC_MIN_RNR_TIMER 12 /* 0.64 ms: how long a peer without a receive asks us to wait */
#define NIC_RNR_RETRY 7      /* for ever: the batch windows see to it that it never happens */
#define NIC_READ_DEPTH 4     /* READs under way at once, each way, where the device can */

#define NIC_MESSAGE_BYTES_MAX (1u << 30) /* of one WQE, where the port can */

struct nic_queue_pair_stats {
    uint64_t wqes;
    uint64_t doorbells;
    uint64_t signaled_wqes;
    uint64_t inline_wqes;
};

/* The part of a queue pair that all drivers share; a driver's own struct begins with it.
 *
 * Send WQEs complete in order, so two counters say everything: WQE number n (counted from 0) is
 * done when (int32_t)(completed - n) > 0. The driver moves `posted` at post and `completed` at
 * poll. */
struct nic_queue_pair {
    struct nic *nic;
    void *owner; /* of the service that made it */
    uint32_t number;
    uint32_t depth;
    uint32_t posted;
    uint32_t completed;
    uint32_t unsignaled; /* WQEs posted since the last signaled one */
    bool failed;         /* in the error state, or about to be */
    struct nic_queue_pair_stats stats;
};

static inline uint32_t nic_send_room(const struct nic_queue_pair *queue_pair)
{
    return queue_pair->depth - (queue_pair->posted - queue_pair->completed);
}

/* ---- Data path ------------------------------------------------------------------------------- */

#define NIC_POST_SIGNALED 0x1u /* ask for a completion of this WQE whatever the interval says */

struct nic_transfer {
    uint64_t local_address;
    uint64_t remote_address;
    uint32_t bytes;
    uint32_t local_key;
    uint32_t remote_key;
    uint32_t immediate; /* host byte order */
};

enum nic_completion_kind {
    NIC_COMPLETION_RECEIVE = 1, /* a WRITE with immediate has landed */
    NIC_COMPLETION_SEND = 2,    /* queue_pair->completed has moved */
    NIC_COMPLETION_ERROR = 3,   /* the queue pair is dead; `status` says why */
};

enum nic_error {
    NIC_ERROR_NONE = 0,
    NIC_ERROR_FLUSHED,       /* was outstanding when the queue pair died: not the cause */
    NIC_ERROR_RETRY,         /* transport retries exceeded: the peer is gone or unreachable */
    NIC_ERROR_RNR,           /* the peer had no receive posted */
    NIC_ERROR_REMOTE_ACCESS, /* the peer's device refused the address or key */
    NIC_ERROR_LOCAL,         /* length, protection or access error on this side */
    NIC_ERROR_OTHER,
};

struct nic_completion {
    uint32_t queue_pair_number;
    uint8_t kind;
    uint8_t status; /* enum nic_error */
    uint16_t reserved;
    uint32_t immediate;  /* RECEIVE, host byte order */
    uint32_t byte_count; /* RECEIVE */
    uint32_t completed;  /* SEND, and ERROR of a send: the new value of queue_pair->completed */
    uint32_t vendor_syndrome;
};

struct nic_operations {
    uint32_t driver; /* CRPC_DRIVER_* */
    uint32_t
        bit; /* in crpc_device_info.drivers; 0: a driver of tests, which can open what it lists */
    const char *name;

    /* Cold path. Those with a crpc_error return CRPC_OK or fill it. */
    int32_t (*query)(uint32_t index, crpc_device_info *info, crpc_error *error);
    int32_t (*open)(const struct nic_options *options, struct nic **nic, crpc_error *error);
    void (*close)(struct nic *nic);
    int32_t (*memory_register)(struct nic *nic, void *address, size_t bytes, uint32_t access,
                               struct nic_keys *memory, crpc_error *error);
    /* Memory of another device: [offset, offset + bytes) of a dma-buf, which WQEs and peers then
     * know as [address, address + bytes). CRPC_E_UNSUPPORTED where device or kernel cannot. */
    int32_t (*memory_register_dmabuf)(struct nic *nic, int fd, uint64_t offset, size_t bytes,
                                      uint64_t address, uint32_t access, struct nic_keys *memory,
                                      crpc_error *error);
    void (*memory_deregister)(struct nic *nic, struct nic_keys *memory);
    int32_t (*queue_pair_create)(struct nic *nic, void *owner, struct nic_queue_pair **queue_pair,
                                 crpc_error *error);
    /* Whatever was posted is forgotten; no completion of it is polled afterwards, even if the
     * number is used again. */
    void (*queue_pair_destroy)(struct nic_queue_pair *queue_pair);
    void (*queue_pair_address)(const struct nic_queue_pair *queue_pair,
                               struct nic_address *address);
    int32_t (*queue_pair_connect)(struct nic_queue_pair *queue_pair, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error);
    /* Moves it to the error state: nothing of the peer lands afterwards, everything posted
     * completes with NIC_ERROR_FLUSHED. */
    void (*queue_pair_fail)(struct nic_queue_pair *queue_pair);

    /* Data path. Posting needs nic_send_room() > 0, checked by the caller; nothing moves before
     * ring. A post on a failed queue pair is dropped (its flush was or will be reported). */
    void (*post_write_immediate)(struct nic_queue_pair *queue_pair,
                                 const struct nic_transfer *transfer, uint32_t flags);
    /* Nobody is told, and no receive is used: it has landed when the receive of a later WRITE with
     * immediate of this queue pair completes. transfer->immediate means nothing. */
    void (*post_write)(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                       uint32_t flags);
    void (*post_read)(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                      uint32_t flags);
    void (*ring_doorbell)(struct nic_queue_pair *queue_pair);
    /* Takes up to capacity completions; decrements nic->receives_posted for receives. */
    uint32_t (*poll)(struct nic *nic, struct nic_completion *completions, uint32_t capacity);
    /* Posts receives until receives_posted == receive_depth; one doorbell (or linked list). */
    void (*refill)(struct nic *nic);

    /* Asks for one event on nic->event_fd when a completion arrives. 0 or errno. */
    int (*arm)(struct nic *nic);
    /* Takes the events of earlier arms off event_fd. */
    void (*disarm)(struct nic *nic);
};

/* The part of a nic that all drivers share; a driver's own struct begins with it. */
struct nic {
    const struct nic_operations *operations;
    bool rdma_cm; /* core/cm can connect its queue pairs: it begins with struct device_nic */
    char device[64];
    uint32_t port;
    uint32_t gid_index;
    uint8_t gid[16];
    uint32_t link;
    uint32_t mtu_bytes;
    uint32_t inline_bytes_max;
    uint32_t message_bytes_max; /* of one transfer; NIC_MESSAGE_BYTES_MAX at the most */
    uint32_t link_mbps;         /* active speed times width; 0 = not known */
    uint64_t system_image_guid; /* the same for all ports of one card; 0 = not known */
    uint32_t features;          /* CRPC_FEATURE_* in use */
    uint32_t receive_depth;     /* of the SRQ, granted */
    uint32_t receives_posted;   /* believed to be in the SRQ */
    uint32_t send_depth;
    uint32_t send_completion_depth; /* granted */
    uint32_t signal_interval;
    int event_fd;                 /* readable after an armed completion; -1 = none */
    uint64_t receive_wqes;        /* ever posted */
    uint64_t completions;         /* ever polled */
    uint64_t unknown_completions; /* of no queue pair, of no known kind, or of nothing posted */
};

/* The drivers of this build, NULL-terminated, the preferred first. */
extern const struct nic_operations *const nic_drivers[];

/* Describes a port; info->drivers says which of the drivers can open it. */
int32_t nic_query(uint32_t index, crpc_device_info *info, crpc_error *error);

/* True if the driver can open the port that was described. */
static inline bool nic_can_open(const struct nic_operations *operations,
                                const crpc_device_info *info)
{
    return operations->bit == 0 || (info->drivers & operations->bit) != 0;
}

/* Opens with the driver asked for (CRPC_DRIVER_AUTO: the first that can). */
int32_t nic_open(uint32_t driver, const struct nic_options *options, struct nic **nic,
                 crpc_error *error);

/* Below this many posted receives it is time to refill (docs/flow-control.md, "Why a batch finds a receive"): batch
 * windows of all endpoints sum to at most this, so what peers may send always finds a receive. */
static inline uint32_t nic_receive_low_mark(const struct nic *nic)
{
    return nic->receive_depth - nic->receive_depth / 3;
}

#endif
