/* nic.h: the interface of a NIC for the services above it: registering memory, creating and
 * connecting queue pairs, posting, polling, arming. A driver (verbs, mlx5, or memory for tests)
 * fills in struct nic_operations.
 *
 * Only one thread at a time may use a nic and its queue pairs. Exceptions: on a nic with rdma_cm,
 * threads of cm may at the same time register memory, make and destroy windows, and make, connect and unmake queue pairs
 * (queue_pair_make, _connect, _settle, _unmake), of which each belongs to its thread until then. Every function with "post", "ring",
 * "poll" or "refill" in its name belongs to the data path: it allocates no memory, takes no lock
 * and makes no system call of its own.
 *
 * A nic has one send CQ, one receive CQ, and one SRQ whose receives have no memory, or a receive queue of
 * each queue pair where the device has no SRQ. Payload always
 * arrives by RDMA WRITE, and a receive only carries the immediate. Queues for everything else are in
 * nic/queue.h.
 *
 * The services demand this of a NIC:
 *  - reliable connections: what is posted arrives once, or the queue pair fails;
 *  - RDMA WRITE with and without immediate, and RDMA READ;
 *  - the send WQEs of a queue pair complete in order, and their immediates arrive in order;
 *  - a plain WRITE has landed when a later WRITE with immediate of its queue pair completes at the
 *    peer;
 *  - of each aligned 64 bytes, the last 8 land no earlier than the rest (for clear-to-sends);
 *  - receives that all queue pairs of a nic share, or of each as many as its owner promises the peer
 *    (receive_queue_max);
 *  - a peer can write nothing more over a queue pair in the error state;
 *  - a peer reaches no memory of other protection domains than that of its connection's queue pair;
 *  - memory can be registered at an address that this side chooses.
 * They use windows where a device has them: nic->windows.
 * A device that lacks one of these, such as EFA with its SRD queue pairs (no order), needs a
 * protocol of its own.
 */
#ifndef CORE_NIC_NIC_H
#define CORE_NIC_NIC_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/compiler.h"
#include "nic/ece.h"

struct nic;
struct nic_domain;
struct nic_queue_pair;
struct nic_queue_operations;
struct nic_initiators; /* nic/initiators.h */
struct nic_piece;      /* nic/queue.h */
struct log;            /* base/log.h */

/* ---- Opening --------------------------------------------------------------------------------- */

/* How what a nic sends is to travel. Zeros leave it to the route that rdma_cm has found, and where there is none, to what a port has
 * by default. */
struct nic_network {
    uint8_t traffic_class;  /* of GRHs; with RoCE v2 of the IP headers */
    uint8_t service_level;  /* up to 15; of Ethernet up to 7: the priority */
    uint16_t partition_key; /* P_Key; without bit 15, any membership will do */
};

struct nic_options {
    char device[64]; /* "" = the first with an active port */
    /* Nobody has named a driver: what copyrpc-check has found to fail on the device is left out (device/left_out.h). */
    bool automatic;
    uint32_t port; /* 0 = the first active */
    bool gid_index_given;
    uint32_t gid_index;
    uint32_t receive_depth;         /* requested; 0 = 16384; lowered to the device's limit */
    uint32_t send_depth;            /* WQEs of each queue pair's send queue */
    uint32_t send_completion_depth; /* requested entries of the send CQ; lowered likewise */
    uint32_t signal_interval;       /* at least every n-th WQE is signaled; n <= send_depth / 2 */
    /* For dynamic queue pairs; 0 = the nic has none of either. One that has to be reset can be used at once if the send CQ has
     * places for more than the WQEs of all. */
    uint32_t initiators;
    uint32_t initiator_retry_timeout; /* as in struct nic_transport; 0 = 14 */
    uint32_t initiator_retry_count;   /* likewise; 0 = 7 */
    uint32_t features;                /* CRPC_FEATURE_* to use if the device has them */
    struct nic_network network;
    /* With CRPC_FEATURE_CQE_COMPRESSION: completions of receives, too. mlx5/open.c says why that is another thing. */
    bool compressed_receives;
    bool
        enhanced_layout; /* likewise: in the enhanced layout, if the device has it. mlx5/devx.h says what that takes */
    /* Which of the device's completion vectors raises the events: n = vector n - 1, modulo how many there are; 0 = those of a process take
     * turns. */
    uint32_t completion_vector;
    /* What the WQEs have to hold, and so how long a send queue is: the longest payload that is copied into one, and how many
     * pieces of memory; 0 = as much as the driver usually has, NIC_PIECES_MAX. The device may have less of either. */
    uint32_t inline_bytes;
    uint32_t pieces;
};

/* ---- Protection domains ---------------------------------------------------------------------- */

/* A queue pair, and memory that it and its peer can use. Whatever keys a peer knows or guesses, it
 * reaches only memory of the domain of the queue pair that it is connected to. The WQEs of a queue
 * pair also need memory of its own domain. Where a function takes a domain, NULL is the nic's own.
 *
 * The part of a domain that all drivers share. A driver's own struct begins with it. */
struct nic_domain {
    struct nic *nic;
};

/* ---- Memory ---------------------------------------------------------------------------------- */

struct nic_keys {
    uint32_t local_key;
    uint32_t remote_key;
    void *driver; /* the driver's own handle; NULL = not registered */
};

/* Windows may be bound to this memory. For memory_register, together with CRPC_ACCESS_*. */
#define NIC_ACCESS_WINDOWS 0x80000000u
/* Likewise. What WRITEs and READs put into this memory may land in any order, and later than what they put elsewhere, until a
 * completion for them is polled that the device has made after that: of a WRITE with immediate behind it on the same queue
 * pair, or of the READ. So the processor must not look for it in the memory itself. Devices that cannot do so ignore it. */
#define NIC_ACCESS_RELAXED 0x40000000u

/* A memory window of type 2B: the right of one peer, at the other end of one queue pair, to a part of
 * registered memory. Binding and invalidating are WQEs of that queue pair. */
struct nic_window {
    uint32_t remote_key; /* of the last bind that was posted; each bind has another */
    uint32_t access; /* CRPC_ACCESS_REMOTE_*, one or several: what the next bind lets the peer do.
                        window_create sets it to CRPC_ACCESS_REMOTE_WRITE */
    void *driver;    /* the driver's own handle; NULL = no window */
};

/* ---- Queue pairs ----------------------------------------------------------------------------- */

/* The address of a queue pair. Blobs exchange it, but for the last two members. */
struct nic_address {
    uint32_t queue_pair_number;
    uint32_t packet_sequence_number; /* of the first packet that it sends; 24 bits */
    uint16_t lid;
    uint8_t link;     /* CRPC_LINK_* */
    uint8_t mtu_code; /* 1 = 256 B ... 5 = 4096 B, as in the InfiniBand specification */
    uint8_t gid[16];
    bool grh_required; /* InfiniBand: as in struct nic */
    struct nic_ece
        ece; /* of a peer: what it has said. Of this side: what is offered, and once it is connected, what is in force */
    /* What the route there wants that rdma_cm has found, for this queue pair or for another of the same two sides, if the nic's own
     * network says 0; 0 = nothing. */
    uint8_t traffic_class;
    uint8_t service_level;
};

/* Returns false if no queue pair can have this address. An address from a peer is checked once,
 * with this function; queue_pair_connect asserts it. */
static inline bool nic_address_valid(const struct nic_address *address)
{
    return address->queue_pair_number >= 1 && address->queue_pair_number <= 0xffffff &&
           address->packet_sequence_number <= 0xffffff && address->mtu_code >= 1 &&
           address->mtu_code <= 5 &&
           (address->link == CRPC_LINK_ETHERNET || address->link == CRPC_LINK_INFINIBAND);
}

struct nic_transport {
    uint32_t retry_timeout; /* n: resend after 4.096 us * 2^n; 1..31 */
    uint32_t retry_count;   /* 1..7 */
    uint32_t rnr_tries; /* a peer without a receive fails the queue pair after so many, 1..7; 0 =
                               NIC_RNR_RETRY */
    uint32_t reads_max; /* READs and atomics under way at once, per direction; 0 =
                               NIC_READ_DEPTH; the device and the peer may lower it */
    bool atomics; /* the peer may use atomics, if the nic has them; of a queue it always may */
    uint32_t not_ready_timer; /* how long a peer waits that finds no receive: a code, 1..31; 0 =
                                 NIC_MIN_RNR_TIMER */
    uint64_t access_key;      /* of a dynamic queue pair: that of the peer's */
};

/* Attributes of all connections, by rdma_cm or by blob, unless struct nic_transport says otherwise, as
 * codes of the verbs specification. By
 * itself, rdma_cm would leave the RNR timer at 0, which means 655 ms, and rdma_init_qp_attr would
 * set its own values for the rest. */
#define NIC_MIN_RNR_TIMER 12 /* 0.64 ms: how long a peer without a receive makes us wait */
#define NIC_RNR_RETRY                                                                              \
    7 /* for ever: a peer that keeps the rules never needs it, and link_stuck ends others */
#define NIC_READ_DEPTH 4 /* READs under way at once, per direction; the device may lower it */

static inline uint8_t nic_rnr_retry(const struct nic_transport *transport)
{
    return (uint8_t)(transport->rnr_tries ? transport->rnr_tries - 1 : NIC_RNR_RETRY);
}

static inline uint8_t nic_min_rnr_timer(const struct nic_transport *transport)
{
    return (uint8_t)(transport->not_ready_timer ? transport->not_ready_timer : NIC_MIN_RNR_TIMER);
}

/* `limit` is the device's or the peer's. */
static inline uint8_t nic_read_depth(const struct nic_transport *transport, uint8_t limit)
{
    uint32_t wanted = transport->reads_max ? transport->reads_max : NIC_READ_DEPTH;
    return (uint8_t)(wanted < limit ? wanted : limit);
}

#define NIC_MESSAGE_BYTES_MAX (1u << 30) /* of one WQE; the port may lower it */
#define NIC_PIECES_MAX 8u                /* likewise; the device may lower it */
#define NIC_SEND_DEPTH_MAX 4096u         /* of nic_queue_pair_create_deep */

struct nic_queue_pair_stats {
    uint64_t wqes;
    uint64_t doorbells;
    uint64_t signaled_wqes;
    uint64_t inline_wqes;
    /* To be added to wqes, doorbells and inline_wqes: a driver may count what post_written posts here instead. */
    uint64_t written;
};

/* The part of a queue pair that all drivers share. A driver's own struct begins with it.
 *
 * Send WQEs complete in order, so two counters are enough. WQE number n, counted from 0, is done
 * when (int32_t)(completed - n) > 0. Posting advances `posted`, and polling advances
 * `completed`. */
struct nic_queue_pair {
    const struct nic_operations *operations; /* those that work on it */
    struct nic *nic;
    void *owner; /* of the service that created it */
    uint32_t number;
    uint32_t peer_number; /* of the queue pair that it is connected to; 0 = it is not connected */
    uint32_t depth;
    uint32_t posted;
    uint32_t completed;
    uint32_t unsignaled; /* WQEs posted since the last signaled one */
    bool failed;         /* in the error state, or about to be */
    uint8_t
        traffic_class; /* of the route by which rdma_cm has connected it, whatever the nic has; 0 = none */
    uint8_t service_level; /* likewise */
    /* Where the payload of the next WQE may be written: NIC_PLACE_BYTES. It stays valid until something is posted or polled. NULL = nowhere
     * now. */
    uint8_t *place;
    struct nic_queue_pair_stats stats;
};

#define NIC_PLACE_BYTES 192u

static inline uint32_t nic_send_room(const struct nic_queue_pair *queue_pair)
{
    return queue_pair->depth - (queue_pair->posted - queue_pair->completed);
}

/* ---- Data path ------------------------------------------------------------------------------- */

#define NIC_POST_SIGNALED 0x1u  /* request a completion of this WQE, regardless of the interval */
#define NIC_POST_INLINE 0x2u    /* post_pieces: the processor copies the pieces */
#define NIC_POST_IMMEDIATE 0x4u /* post_foreign_write, post_pieces: a WRITE with an immediate */
#define NIC_POST_RING 0x8u      /* post_write_immediate: ring the doorbell, too */

struct nic_transfer {
    uint64_t local_address;
    uint64_t remote_address;
    uint32_t bytes;
    uint32_t local_key;
    uint32_t remote_key;
    uint32_t immediate; /* host byte order */
};

/* An op on 8 bytes of the peer, which nothing else that its device does can divide. */
struct nic_atomic {
    uint64_t local_address;  /* of 8 bytes, a multiple of 8: there lands what was there before */
    uint64_t remote_address; /* a multiple of 8 */
    uint32_t local_key;
    uint32_t remote_key;
    bool swap;        /* puts `operand` there if `compare` is there; otherwise adds `operand` */
    uint64_t compare; /* host byte order, as what lands */
    uint64_t operand;
};

enum nic_completion_kind {
    NIC_COMPLETION_RECEIVE = 1, /* a WRITE with immediate has arrived */
    NIC_COMPLETION_SEND = 2,    /* queue_pair->completed has advanced */
    NIC_COMPLETION_ERROR = 3,   /* the queue pair has failed; `status` says why */
};

enum nic_error {
    NIC_ERROR_NONE = 0,
    NIC_ERROR_FLUSHED,       /* was pending when the queue pair failed; not the cause */
    NIC_ERROR_RETRY,         /* too many transport retries: the peer is gone or unreachable */
    NIC_ERROR_RNR,           /* the peer had no receive posted */
    NIC_ERROR_REMOTE_ACCESS, /* the peer's device refused the address or key */
    NIC_ERROR_LOCAL,         /* length, protection or access error on this side */
    NIC_ERROR_OTHER,
    /* nic/queue.h alone: */
    NIC_ERROR_LENGTH,    /* the peer's message was longer than its receive */
    NIC_ERROR_REMOVED,   /* a TAG_ADD: a TAG_REMOVE has taken it back */
    NIC_ERROR_NOT_FOUND, /* a TAG_REMOVE: there was nothing to take back */
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
    /* Bit in crpc_device_info.drivers. 0: a driver for tests, which can open every port it
     * lists. */
    uint32_t bit;
    const char *name;

    /* Cold path. Functions with a crpc_error return CRPC_OK, or fill it and return its status. */
    /* Describes port `index`. All drivers of a table number the same ports in the same order. One
     * that cannot open a port describes it all the same, and leaves info->drivers 0. */
    int32_t (*query)(uint32_t index, crpc_device_info *info, crpc_error *error);
    int32_t (*open)(const struct nic_options *options, struct nic **nic, crpc_error *error);
    void (*close)(struct nic *nic);
    int32_t (*domain_create)(struct nic *nic, struct nic_domain **domain, crpc_error *error);
    /* All its memory has been deregistered, and its queue pairs destroyed. */
    void (*domain_destroy)(struct nic_domain *domain);
    /* Registers memory in a domain of the nic. Peers address it from remote_address on, which has
     * the same offset in a page, and by no other address; 0 = at its own address. Memory at another
     * than its own is for peers only: no WQE of this side names it, and no window is bound to it. */
    int32_t (*memory_register)(struct nic *nic, struct nic_domain *domain, void *address,
                               size_t bytes, uint64_t remote_address, uint32_t access,
                               struct nic_keys *memory, crpc_error *error);
    /* Registers memory of another device: [offset, offset + bytes) of a dma-buf. WQEs and peers
     * then address it as [address, address + bytes). Returns CRPC_E_UNSUPPORTED if the device or
     * the kernel does not support it. */
    int32_t (*memory_register_dmabuf)(struct nic *nic, struct nic_domain *domain, int fd,
                                      uint64_t offset, size_t bytes, uint64_t address,
                                      uint32_t access, struct nic_keys *memory, crpc_error *error);
    void (*memory_deregister)(struct nic *nic, struct nic_keys *memory);
    /* Creates a window that is not bound. The nic has windows. */
    int32_t (*window_create)(struct nic *nic, struct nic_window *window, crpc_error *error);
    /* Ends the right, if there is one. Nothing of a peer that is still under way to the window lands
     * afterwards. A window that is bound is destroyed before its queue pair, whose number may be used
     * again, and before its memory is deregistered. */
    void (*window_destroy)(struct nic *nic, struct nic_window *window);
    /* A dynamic queue pair (initiators.h): all it has of its own is what peers send to, a DCT. They need its access key, and reach it
     * from now on, also before it is connected. Its
     * operations are others than the nic's, without post_atomic, post_bind, post_invalidate and fence_last. Its memory is of two
     * domains: what peers reach is of `domain`, and what its WQEs use is of the nic's own. The nic has initiators.
     * NULL = no such nic can be opened. */
    int32_t (*queue_pair_create_dynamic)(struct nic *nic, struct nic_domain *domain, void *owner,
                                         uint64_t access_key, struct nic_queue_pair **queue_pair,
                                         crpc_error *error);
    /* The three steps of nic_queue_pair_create_deep, for who has the slow one done beside polls of the nic. `begin` and `adopt` make no
     * system call. From `begin` to `adopt`, and after an error of either of the others, nothing may be done with the queue pair but
     * the next step, or queue_pair_destroy. */
    /* Checks for room, and reserves it. */
    int32_t (*queue_pair_begin)(struct nic *nic, void *owner, uint32_t depth, uint32_t receives,
                                struct nic_queue_pair **queue_pair, crpc_error *error);
    /* Makes what the device has of it. In any thread; it uses nothing of the nic that changes. */
    int32_t (*queue_pair_make)(struct nic_queue_pair *queue_pair, struct nic_domain *domain,
                               crpc_error *error);
    /* From now on it is as others are, and has a number. */
    int32_t (*queue_pair_adopt)(struct nic_queue_pair *queue_pair, crpc_error *error);
    /* The steps before queue_pair_destroy, in this order, for who has the slow ones done beside polls, of a queue pair that has failed,
     * or was not adopted. Nothing else is done with it from the first of them on, but polls may still give completions of
     * it. queue_pair_destroy then makes no system call; it can come after any of them. */
    /* Waits until the device has given back what it holds of an SRQ's receives: at most 100 ms. In any thread. */
    void (*queue_pair_settle)(struct nic_queue_pair *queue_pair);
    /* Discards what has completed. */
    void (*queue_pair_drop)(struct nic_queue_pair *queue_pair);
    /* Destroys what the device has of it, whose number may be used again from then on. In any thread. */
    void (*queue_pair_unmake)(struct nic_queue_pair *queue_pair);
    /* Discards everything that was posted. No completion of it is polled afterwards, even if the
     * number is used again. */
    void (*queue_pair_destroy)(struct nic_queue_pair *queue_pair);
    void (*queue_pair_address)(const struct nic_queue_pair *queue_pair,
                               struct nic_address *address);
    /* The address is valid, and of the same kind of link as the nic. After an error, the queue pair may
     * be of no more use. */
    int32_t (*queue_pair_connect)(struct nic_queue_pair *queue_pair, const struct nic_address *peer,
                                  const struct nic_transport *transport, crpc_error *error);
    /* Moves the queue pair to the error state. The peer can no longer write over it, and everything
     * posted completes with NIC_ERROR_FLUSHED; or, of a dynamic one, never. */
    void (*queue_pair_fail)(struct nic_queue_pair *queue_pair);
    /* For a dynamic queue pair without room. Returns true if it has some now. Otherwise it gets some when a completion of its
     * own is polled, or it is one that nic_granted returns after a poll. NULL: these are the operations of others. */
    bool (*take_room)(struct nic_queue_pair *queue_pair);

    /* Data path. The caller must check nic_send_room() > 0 before it posts. Nothing is sent before
     * ring_doorbell, or a post with NIC_POST_RING. A post on a failed queue pair is discarded; the failure was or will be
     * reported. */
    void (*post_write_immediate)(struct nic_queue_pair *queue_pair,
                                 const struct nic_transfer *transfer, uint32_t flags);
    /* The same with NIC_POST_RING for a payload of 1 to NIC_PLACE_BYTES that has been written to queue_pair->place, which is not NULL:
     * nothing is copied. Returns 1, how many were posted, so that who has nothing else to do needs no frame for that. NULL = this
     * driver's queue pairs have no place. */
    uint32_t (*post_written)(struct nic_queue_pair *queue_pair, uint64_t remote_address,
                             uint32_t remote_key, uint32_t bytes, uint32_t immediate);
    /* The peer is not notified, and no receive is used. The data has arrived when the receive of a
     * later WRITE with immediate on this queue pair completes. transfer->immediate is ignored. */
    void (*post_write)(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                       uint32_t flags);
    /* One of both, as NIC_POST_IMMEDIATE says, of memory that may be another device's: the processor does not
     * read it, however short the payload is. */
    void (*post_foreign_write)(struct nic_queue_pair *queue_pair,
                               const struct nic_transfer *transfer, uint32_t flags);
    void (*post_read)(struct nic_queue_pair *queue_pair, const struct nic_transfer *transfer,
                      uint32_t flags);
    /* A WRITE, plain or as NIC_POST_IMMEDIATE says, or a READ, of 1 to nic->pieces_max pieces of this
     * side's memory, which have transfer->bytes together; the transfer has no local address. With NIC_POST_INLINE, the pieces of a
     * WRITE are copied by ring_doorbell at the latest, and need no keys; they have at most
     * nic->inline_bytes_max. Without it, the processor never looks at them: so they, or a single
     * one, may be another device's. */
    void (*post_pieces)(struct nic_queue_pair *queue_pair, bool read,
                        const struct nic_transfer *transfer, const struct nic_piece *pieces,
                        uint32_t count, uint32_t flags);
    /* The nic has atomics, and the peer's memory CRPC_ACCESS_REMOTE_ATOMIC. */
    void (*post_atomic)(struct nic_queue_pair *queue_pair, const struct nic_atomic *atomic,
                        uint32_t flags);
    /* The WQE that was posted last on this queue pair begins when all READs and atomics before it have
     * ended. It is a WRITE, a READ or an atomic, and the doorbell has not been rung since. */
    void (*fence_last)(struct nic_queue_pair *queue_pair);
    /* Lets the peer of this queue pair, and nobody else, do window->access to [address, address + bytes)
     * with window->remote_key, which this sets. `memory` contains the bytes, of which there is at least
     * one, and was registered with NIC_ACCESS_WINDOWS, and with CRPC_ACCESS_LOCAL_WRITE if the peer may
     * do more than read. It is at its own address. The window is not bound. What is posted later on this queue pair arrives when the right is there; for another
     * queue pair, wait for the completion. */
    void (*post_bind)(struct nic_queue_pair *queue_pair, struct nic_window *window,
                      const struct nic_keys *memory, uint64_t address, uint32_t bytes,
                      uint32_t flags);
    /* Ends the right of a window that was bound on this queue pair. The right has ended when the
     * completion of this WQE, or of a later one, is polled as NIC_COMPLETION_SEND. The window can then
     * be bound again, on any queue pair. */
    void (*post_invalidate)(struct nic_queue_pair *queue_pair, struct nic_window *window,
                            uint32_t flags);
    void (*ring_doorbell)(struct nic_queue_pair *queue_pair);
    /* Takes up to `capacity` completions, which is not 0, and returns how many. Decrements nic->receives_posted for
     * each receive. */
    uint32_t (*poll)(struct nic *nic, struct nic_completion *completions, uint32_t capacity);
    /* Posts receives until receives_posted == receive_depth, with one doorbell or one linked
     * list; without an SRQ, with one for each queue pair that has used some. */
    void (*refill)(struct nic *nic);

    /* Requests one event on nic->event_fd for the next completion. Returns 0 or an errno value. */
    int (*arm)(struct nic *nic);
    /* Removes the events of earlier arms from event_fd. */
    void (*disarm)(struct nic *nic);

    const struct nic_queue_operations *queues; /* nic/queue.h; NULL = this driver has none */
};

/* The part of a nic that all drivers share. A driver's own struct begins with it. */
struct nic {
    const struct nic_operations *operations;
    struct nic_initiators *initiators; /* initiators.h; NULL = it has none */
    bool rdma_cm; /* core/cm can connect its queue pairs; it begins with struct device_nic */
    bool windows; /* it has memory windows of type 2B */
    bool atomics; /* it has COMPARE_SWAP and FETCH_ADD */
    bool dc;      /* its driver has DCIs and DCTs; making one says whether the device has, too */
    uint16_t completion_vector; /* of its completion queues */
    uint32_t streams_max;       /* that a DCI can have; 0 = none */
    uint32_t tags_max;          /* of a TM-SRQ; 0 = it has no TM-SRQs */
    char device[64];
    uint32_t port;
    uint32_t gid_index;
    uint8_t gid[16];
    struct nic_network
        network; /* as asked for; but its P_Key is always that of the port's table, or 0 where none is known */
    bool partition_given; /* it was asked for: no other will do */
    bool grh_required;    /* InfiniBand: whoever sends from this port or to it must use a GRH */
    uint32_t link;
    uint32_t mtu_bytes;
    uint32_t inline_bytes_max;
    uint32_t message_bytes_max; /* of one transfer, at most NIC_MESSAGE_BYTES_MAX */
    uint32_t pieces_max;        /* likewise, at most NIC_PIECES_MAX */
    uint32_t link_mbps;         /* active lane speed times width, Mbit/s; 0 = not known */
    uint64_t system_image_guid; /* equal for all ports of one card; 0 = not known */
    uint32_t features;          /* CRPC_FEATURE_* in use */
    uint32_t receive_depth;     /* granted size of the SRQ; or see receive_queue_max */
    uint32_t receives_posted;   /* in the SRQ, as far as this side knows */
    uint32_t send_depth;
    uint32_t send_completion_depth; /* granted */
    uint32_t signal_interval;
    int event_fd; /* becomes readable after arm; -1 = none */
    /* Steps that other threads take beside polls read these two. Both are relaxed: each is set once and stays, nothing else is read by it,
     * and a step that sees it late waits as if it had come before. */
    atomic_bool
        lost; /* its device was taken out or has failed: nothing can be made with it any more */
    atomic_bool
        closing; /* set by who will close it: what is destroyed from now on need not leave the rest as it was */
    /* Set by who has opened it; 0 at first. */
    bool relaxed; /* payloads that a completion tells of go to memory with NIC_ACCESS_RELAXED */
    /* A payload of more bytes goes ahead of its immediate in a WRITE without, which adaptive routing may spread; 0 = none does. */
    uint32_t straight_bytes;
    bool ece;                 /* its queue pairs offer what the device has of ECE */
    _Atomic bool ece_refused; /* the device did not take what it had offered */
    bool ece_refused_told;
    /* Not 0 = the device has no SRQ. Then this is the longest receive queue that a queue pair can have, receive_depth is what all of
     * them have together, and receives_posted is that without what was used. It is 0 as soon as one has less than two thirds of its
     * own, so that who refills below nic_receive_low_mark keeps its promise to each peer. */
    uint32_t receive_queue_max;
    uint64_t receive_wqes;        /* ever posted */
    uint64_t completions;         /* ever polled */
    uint64_t unknown_completions; /* without a queue pair, a known kind or a matching post */
    /* Queue pairs that were destroyed before the device had said that they hold no receives of its SRQ: device/last_wqe.c */
    uint64_t last_wqes_missed;
    struct log *
        log; /* of who has opened it, who sets it; NULL = none. It is for the thread that uses the nic */
    bool automatic;           /* as in the options */
    char layout_missing[240]; /* why enhanced_layout was in vain, for the log; "" = it was not */
    char left_out[800];       /* what is left out, and how to undo it, for the log; "" = nothing */
};

/* Of `lost` and `closing`. */
static inline bool nic_is(const atomic_bool *state)
{
    return atomic_load_explicit(state, memory_order_relaxed);
}

static inline void nic_set(atomic_bool *state)
{
    atomic_store_explicit(state, true, memory_order_relaxed);
}

static inline bool nic_is_dynamic(const struct nic_queue_pair *queue_pair)
{
    return queue_pair->operations->take_room != NULL;
}

/* For one without room: returns true if it has some now. */
static inline bool nic_take_room(struct nic_queue_pair *queue_pair)
{
    return nic_is_dynamic(queue_pair) && queue_pair->operations->take_room(queue_pair);
}

#define NIC_PARTITION_OF_ETHERNET 0xffffu /* the default P_Key: there is no other */

/* Returns true if the two P_Keys name one partition. */
static inline bool nic_same_partition(uint16_t one, uint16_t other)
{
    return ((one ^ other) & 0x7fffu) == 0;
}

/* Chooses from a port's table of P_Keys, where 0 means that a place is free: the key `wanted`, or if that is 0, the first of a full
 * member (bit 15). Without bit 15 in `wanted`, and if there is no full membership, a limited one will do. Returns CRPC_OK and sets
 * *index; CRPC_E_INVALID: the table has no such key, and the error names those that it has. */
int32_t nic_partition_choose(const char *device, uint32_t port, const uint16_t *keys,
                             uint32_t count, uint16_t wanted, uint32_t *index, crpc_error *error);

/* The drivers of this build in order of preference, terminated by NULL. */
extern const struct nic_operations *const nic_drivers[];

/* Describes a port, as crpc_device_query. info->drivers says which drivers can open it. */
int32_t nic_query(uint32_t index, crpc_device_info *info, crpc_error *error);

/* Returns true if the driver can open the port that `info` describes. */
static inline bool nic_can_open(const struct nic_operations *operations,
                                const crpc_device_info *info)
{
    return operations->bit == 0 || (info->drivers & operations->bit) != 0;
}

/* Opens a nic with a driver. CRPC_DRIVER_AUTO takes the first driver that can open it. */
int32_t nic_open(uint32_t driver, const struct nic_options *options, struct nic **nic,
                 crpc_error *error);

/* `receives`: how many the peer may be promised at a time; 0 = it sends nothing that takes one. Where there is an SRQ, that is of no
 * account. Where there is none, the queue pair gets a receive queue (nic_receive_queue_depth) that is full at once; CRPC_E_NO_RESOURCE
 * if what those of all queue pairs have together would be more than receive_depth. */
int32_t nic_queue_pair_create(struct nic *nic, struct nic_domain *domain, void *owner,
                              uint32_t receives, struct nic_queue_pair **result, crpc_error *error);
/* The same with a send queue of `depth` WQEs: nic->send_depth, which others have, to
 * NIC_SEND_DEPTH_MAX. The device may have less: CRPC_E_NO_RESOURCE, CRPC_E_INVALID. */
int32_t nic_queue_pair_create_deep(struct nic *nic, struct nic_domain *domain, void *owner,
                                   uint32_t depth, uint32_t receives,
                                   struct nic_queue_pair **result, crpc_error *error);

/* How many places of the send CQ a queue pair with so many WQEs may fill: all of them complete when it fails, and so does what
 * fills the end of a ring in which a WQE does not wrap around. There is at most one such NOP in a ring. */
static inline uint32_t nic_send_places(uint32_t send_depth)
{
    return send_depth + 1;
}

/* How many receives are there at any time of a queue of `depth` that is filled up when it has less than two thirds. */
static inline uint32_t nic_receives_of(uint32_t depth)
{
    return depth - depth / 3;
}

/* The least depth of which there are so many. */
static inline uint32_t nic_receive_queue_depth(uint32_t receives)
{
    return receives > 0 ? receives + (receives - 1) / 2 : 0;
}

/* Below this many posted receives, the nic must be refilled. The batch windows of all endpoints add
 * up to at most this number, so that every batch finds a receive (docs/flow-control.md). */
static inline uint32_t nic_receive_low_mark(const struct nic *nic)
{
    return nic_receives_of(nic->receive_depth);
}

/* Registers memory at its own address: plain if fd < 0, otherwise `bytes` from fd_offset of a dma-buf, which is addressed as
 * `address` says. */
static inline int32_t nic_memory_register(struct nic *nic, struct nic_domain *domain, int fd,
                                          uint64_t fd_offset, uint64_t address, uint64_t bytes,
                                          uint32_t access, struct nic_keys *memory,
                                          crpc_error *error)
{
    return fd < 0 ? nic->operations->memory_register(nic, domain, (void *)(uintptr_t)address, bytes,
                                                     0, access, memory, error)
                  : nic->operations->memory_register_dmabuf(nic, domain, fd, fd_offset, bytes,
                                                            address, access, memory, error);
}

/* ---- For drivers: common parts of posting ---------------------------------------------------- */

/* Returns the key of a window's next bind: only its lowest byte is another. */
static inline uint32_t nic_window_next_key(uint32_t key)
{
    return (key & ~0xffu) | ((key + 1) & 0xffu);
}

/* Returns false if the queue pair has failed. The post is then discarded. */
static inline bool nic_post_begin(const struct nic_queue_pair *queue_pair,
                                  const struct nic_transfer *transfer)
{
    if (unlikely(queue_pair->failed)) {
        return false;
    }
    (void)transfer; /* in a build without assertions */
    assert(nic_send_room(queue_pair) > 0 && transfer->bytes <= queue_pair->nic->message_bytes_max);
    return true;
}

/* Returns true if the WQE that is being posted must be signaled, since so many before it were not. */
static inline bool nic_post_signals(struct nic_queue_pair *queue_pair)
{
    if (likely(++queue_pair->unsignaled < queue_pair->nic->signal_interval)) {
        return false;
    }
    queue_pair->unsignaled = 0;
    queue_pair->stats.signaled_wqes++;
    return true;
}

/* Counts the WQE that is being posted. Returns true if it must be signaled. */
static inline bool nic_post_count(struct nic_queue_pair *queue_pair, uint32_t flags)
{
    queue_pair->posted++;
    queue_pair->stats.wqes++;
    if (flags & NIC_POST_SIGNALED) {
        queue_pair->unsignaled = 0;
        queue_pair->stats.signaled_wqes++;
        return true;
    }
    return nic_post_signals(queue_pair);
}

#endif
