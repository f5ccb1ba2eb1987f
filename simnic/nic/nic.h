/* nic.h: the virtual ConnectX of one process: its memory keys, queues and doorbell pages, and the
 * machines that execute work requests. The mlx5 Programmer's Reference Manual (PRM) and the
 * InfiniBand Architecture Specification volume 1 (IBTA) say what it does.
 *
 * It works on memory alone: it makes no system calls, takes no locks, and knows no file
 * descriptors. Both rails are ports of one NIC. They share nothing but the numbers of their
 * objects.
 *
 * Threads: everything here is called under one lock, the shim's. Whoever calls checks the objects
 * that it passes. */
#ifndef SIMNIC_NIC_NIC_H
#define SIMNIC_NIC_NIC_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/wheel.h"
#include "simnic/fabric/fabric.h"
#include "simnic/session/rails.h"

#define NIC_MAX_QUEUE_PAIRS 65536u
#define NIC_LOG_RESERVED_NUMBERS 6u /* QPNs are reserved by blocks of so many */
#define NIC_RESERVED_NUMBERS (1u << NIC_LOG_RESERVED_NUMBERS)
#define NIC_MAX_COMPLETION_QUEUES 65536u
#define NIC_MAX_SHARED_RECEIVE_QUEUES 16384u
#define NIC_MAX_KEYS (1u << 20)
#define NIC_FIRST_KEY 16u /* index: keys 0x100 and 0x400 have other meanings in WQEs */
#define NIC_MAX_PAGES 4096u
#define NIC_MAX_SGE 30u         /* data segments of a send request */
#define NIC_MAX_SEGMENTS 64u    /* that fit into a send WQE */
#define NIC_MAX_RECEIVE_SGE 32u /* data segments of a receive request */
#define NIC_MAX_READS 16u       /* outstanding READs and atomics of a QP, in either direction */
#define NIC_MAX_MESSAGE_BYTES (1u << 30)
#define NIC_WQE_MAX_BYTES 1024u /* 16 basic blocks */
#define NIC_IN_FLIGHT 256u      /* messages of a QP that wait for an acknowledgement */
#define NIC_MAX_TAGS 127u       /* of a tag-matching SRQ */
#define NIC_MAX_RENDEZVOUS_HEADER_BYTES 64u
#define NIC_MAX_MINI_CQES 64u /* completions in a compressed block */
#define NIC_UAR_BYTES 4096u
#define NIC_BLUEFLAME_BYTES 256u /* one buffer of a BlueFlame register */
#define NIC_REGISTERS 4u         /* buffers of a doorbell page: two registers with two each */

/* Access flags as ibv_access_flags. */
#define ACCESS_LOCAL_WRITE 1u
#define ACCESS_REMOTE_WRITE 2u
#define ACCESS_REMOTE_READ 4u
#define ACCESS_REMOTE_ATOMIC 8u
#define ACCESS_WINDOW_BIND 16u
#define ACCESS_ZERO_BASED 32u
#define ACCESS_RELAXED_ORDERING (1u << 20)

enum queue_pair_state {
    STATE_RESET,
    STATE_INIT,
    STATE_RTR,
    STATE_RTS,
    STATE_SQD,
    STATE_SQE,
    STATE_ERR
};

/* As ib_uverbs_qp_type, with the driver's own types apart. */
enum queue_pair_type {
    TYPE_RC = 2,
    TYPE_UC = 3,
    TYPE_UD = 4,
    TYPE_XRC_INITIATOR = 9,
    TYPE_XRC_TARGET = 10,
    TYPE_DCI = 100,
    TYPE_DCT = 101,
};

enum key_kind { KEY_FREE, KEY_REGION, KEY_WINDOW, KEY_INDIRECT };

struct memory_key {
    uint32_t key; /* index in bits 8-31, variant in bits 0-7 */
    uint8_t kind;
    bool bound;               /* of a window; of an indirect key: it leads somewhere */
    bool remote_invalidation; /* of an indirect key: a peer may invalidate it */
    uint32_t domain;          /* number of the protection domain */
    uint32_t access;          /* ACCESS_ */
    uint32_t queue_pair;      /* of a type 2 window: the QPN it is bound to */
    uint32_t region;          /* of a bound window: the key of the region it looks into */
    uint64_t start;           /* where the memory is in this process; not of an indirect key */
    uint64_t address;         /* what programs call that place (iova) */
    uint64_t bytes;
    struct key_layout *layout; /* of an indirect key: indirect.c */
};

struct compression; /* of a CQ: compress.c */
struct dc_target;   /* of a DCT: dc.c */
struct stream_set;  /* of a DCI: streams.c */
struct tag_list;    /* of a tag-matching SRQ: tag.c */
struct rendezvous;  /* of a QP at one: rendezvous.c */

struct completion_queue {
    uint32_t number;
    uint8_t *buffer; /* the program's */
    uint8_t *record; /* doorbell record: consumer index, arm */
    uint32_t entries;
    uint32_t entry_bytes; /* 64 or 128 */
    bool pads;            /* an entry of 128 bytes is written whole, even if 64 say everything */
    uint32_t producer;
    uint32_t consumer;       /* as last read; the program may have polled more since */
    uint32_t last_solicited; /* producer index after the last solicited or failed completion */
    uint32_t last_notified;  /* producer index at the last event */
    uint32_t arm_value;      /* as last seen in the doorbell record */
    bool armed, armed_solicited, overrun;
    struct compression *compression; /* NULL: CQEs are never compressed */
    bool blind;                      /* compressed whatever mini CQEs leave out: a quirk */
    bool enhanced;  /* compressed in the layout that only DevX can ask for: compress.c */
    uint8_t vector; /* the completion vector of its events */
    void *owner;    /* the host's */
    struct list all;
};

struct shared_receive_queue {
    uint32_t number;
    uint8_t *buffer, *record;
    uint32_t entries, entry_shift;
    uint32_t domain;
    uint16_t head;       /* index of the next WQE */
    uint16_t taken;      /* WQEs ever taken */
    uint32_t limit;      /* 0: not armed */
    uint32_t xrc_domain; /* 0: not an XRC SRQ */
    uint32_t user_index;
    struct completion_queue *completion_queue; /* of an XRC or tag-matching SRQ */
    struct tag_list *tags;                     /* NULL: not a tag-matching SRQ */
    void *owner;
    struct list all;
};

struct segment {
    uint64_t address;
    uint32_t bytes;
    uint32_t key;
    bool inlined; /* address is an offset in the WQE */
};

/* A send WQE, parsed and checked for its form. */
struct send_request {
    uint16_t index; /* of its first basic block */
    uint8_t blocks;
    uint8_t opcode; /* MLX5_OPCODE_ */
    bool signalled, solicited, fence;
    uint8_t syndrome; /* not 0: the WQE is wrong, and completes so */
    uint8_t segments;
    uint32_t immediate; /* as on the wire */
    uint64_t remote_address;
    uint32_t remote_key;
    uint32_t bytes;
    uint64_t swap_or_add, compare;
    /* Where a datagram or a DC message goes. */
    uint32_t destination_qpn, queue_key;
    uint64_t access_key;
    uint16_t stream; /* of a DCI */
    struct rail_way way;
    bool into_cqe; /* of a response: it is collected for the CQE, in wqe */
    struct segment segment[NIC_MAX_SEGMENTS];
    uint8_t wqe[NIC_WQE_MAX_BYTES]; /* as it was read */
};

/* A message that was sent and is not completed. */
struct in_flight {
    uint16_t index;
    uint8_t blocks, opcode;
    bool signalled, solicited;
    bool responds;    /* READ or atomic: completes by a response */
    bool done;        /* completes when its turn comes */
    uint8_t syndrome; /* fails with it when its turn comes */
    uint32_t first_psn, packets;
    uint32_t bytes;
    uint32_t settled; /* packets acknowledged or, of a response, received */
};

/* A receive WQE that a message is being written to. */
struct receive_request {
    bool taken;
    uint16_t index;
    uint8_t segments;
    uint64_t capacity;
    struct segment segment[NIC_MAX_RECEIVE_SGE];
};

/* What a responder owes: the response to a READ or an atomic. */
struct owed_response {
    uint8_t operation; /* PACKET_READ_REQUEST or an atomic */
    uint32_t psn, packets, sent;
    uint64_t address;
    uint32_t key, bytes;
    uint64_t original; /* of an atomic */
};

/* A QP's last doorbell, and what the BlueFlame register held at it: blueflame.c. */
struct push {
    /* The doorbell, which is the first word of a WQE, and what the register held behind it. */
    uint8_t held[NIC_BLUEFLAME_BYTES];
    uint8_t before[NIC_BLUEFLAME_BYTES]; /* what the register had held until then */
    uint32_t bytes;                      /* of the WQE; 0: there is nothing to look at */
    uint64_t since_ns;                   /* when it was first found incomplete, or 0 */
    const uint8_t *at;                   /* the register */
    uint8_t *seen;                       /* what the register held when it was last looked at */
    uint8_t *last;                       /* the WQE of the doorbell before at this register */
    const uint32_t *rung;                /* doorbells at this register, */
    uint32_t serial;                     /* and how many there were then */
    uint32_t rest; /* where in the register the next WQE of this push would be; 0: nowhere */
};

struct queue_pair_attributes {
    uint32_t destination_qpn;
    uint32_t queue_key;
    uint32_t access;
    uint8_t path_mtu; /* enum ibv_mtu */
    uint8_t timeout;  /* 4.096 us * 2^timeout; 0: for ever */
    uint8_t retry_count;
    uint8_t rnr_retry_count; /* 7: for ever */
    uint8_t min_rnr_timer;
    uint8_t max_reads;      /* max_rd_atomic: as a requester */
    uint8_t max_peer_reads; /* max_dest_rd_atomic: as a responder */
    uint16_t partition;     /* the P_Key */
    struct rail_way way;
    uint16_t
        udp_source_port; /* of RoCE v2: packets have no UDP header here, so this is for whoever asks */
    uint32_t send_psn, receive_psn;
    uint32_t ece; /* options in force: ece.h */
};

struct queue_pair {
    uint32_t number;
    uint32_t type;
    uint8_t rail;
    uint8_t state;
    uint8_t destination_rail; /* or PACKET_NO_RAIL */
    uint32_t user_index;
    uint32_t domain;
    uint32_t page; /* doorbell page */
    uint8_t *send_buffer, *receive_buffer, *record;
    uint32_t send_blocks; /* a power of two, or 0 */
    uint32_t receive_entries, receive_shift;
    bool offloads_rendezvous; /* its send queue is the NIC's: rendezvous.c */
    bool signal_all, scatter_to_cqe, scatter_requests_to_cqe, receive_signature;
    bool blocks_own_multicast; /* it does not receive what it sends to its groups */
    struct completion_queue *send_queue_completions, *receive_queue_completions;
    struct shared_receive_queue *shared_receive_queue;
    struct queue_pair_attributes attributes;
    void *owner;
    struct fabric_queue_pair_statistics *statistics;
    struct fabric_queue_pair_statistics own_statistics; /* if there was no place in shared memory */

    /* Requester. */
    uint16_t send_producer; /* as last read from the doorbell record */
    uint16_t send_next;     /* basic block to look at next */
    uint32_t next_psn;
    uint32_t in_flight_head, in_flight_next, in_flight_tail; /* next: being sent */
    uint32_t sent_packets; /* of in_flight_next; slots, to a group */
    uint32_t full_slot;    /* of UC and UD: where there was no room */
    bool parsed;           /* `request` is that of in_flight_next */
    bool rings;            /* a doorbell rang since the record was last read */
    bool drained;          /* the transition to SQD has been told */
    bool gap_told;         /* a lost response was asked for again: once a gap */
    uint16_t rung_from;    /* send_next when the last doorbell was taken */
    uint32_t reads_in_flight;
    uint8_t rnr_left, retries_left;
    bool response_valid;
    uint64_t wait_until_ns; /* an RNR NAK's, or 0 */
    uint64_t timer_ns;      /* when the oldest message times out, or 0 */
    struct push push;
    /* The READ or atomic whose response is coming, if response_valid. */
    struct send_request response;
    struct send_request request;
    struct in_flight in_flight[NIC_IN_FLIGHT];

    /* Responder. */
    uint16_t receive_next;
    uint32_t expected_psn;
    uint32_t msn;
    uint8_t
        current;   /* inside such a message: PACKET_SEND_FIRST, PACKET_WRITE_FIRST, or NO_MESSAGE */
    bool nak_sent; /* nothing is answered until expected_psn comes */
    bool ack_due, ack_wakes;
    uint8_t nak_due;        /* an AETH syndrome, or 0 */
    bool last_wqe_told;     /* event LAST_WQE_REACHED */
    uint8_t tag_kind;       /* of the message that is coming in: enum tag_kind */
    uint16_t late_looks;    /* at the receive queue of a QP in error */
    uint32_t offset;        /* bytes of the current message so far */
    uint64_t write_address; /* of a WRITE: where its next packet goes, */
    uint32_t write_key, write_left;
    uint32_t owed_head, owed_tail;
    struct owed_response owed[2 * NIC_MAX_READS];
    struct {
        uint32_t psn;
        uint64_t original;
        bool valid;
    } atomics[NIC_MAX_READS]; /* answers kept for a repeated request */
    uint32_t atomics_next;
    struct receive_request receive;
    bool could_receive;            /* when it failed; until it has taken WQEs for it: held.c */
    struct held_receives *held;    /* NULL = none */
    struct rendezvous *rendezvous; /* if set, the send queue is the NIC's own */
    uint32_t xrc_domain, xrc_srqn; /* of an XRC target, and of its message */
    uint8_t (*groups)[16];         /* UD: multicast groups it is attached to */
    uint32_t group_count;

    struct dc_target *dc_target; /* DCT: its initiators */
    uint64_t dc_connection;      /* DCI: number of its connection, or 0 */
    uint64_t dc_access_key;      /* of that connection */
    uint32_t dc_first_psn;
    struct stream_set *streams; /* DCI: if a stream that fails leaves the others going */

    struct list all;
    struct list on_page;
    struct list active;       /* in turns: has something to send */
    struct list owing;        /* in turns: has something to answer */
    struct wheel_timer timed; /* set no later than what is due first: timer_ns, or wait_until_ns */
};

/* QPs that have something to do, which take turns. Those whose packet found no room in the ring to a slot wait in a
 * list of that slot: while the ring is full, a round looks at the first of them alone. */
struct turns {
    struct list ready;
    struct list no_room[FABRIC_SLOTS];
    uint64_t full_slots;             /* bit s: no_room[s] may have members */
    struct list no_rate[RAIL_COUNT]; /* those that wait for the port of a rail */
    uint32_t slow_rails;             /* bit r: no_rate[r] may have members */
};

struct doorbell_page {
    uint8_t *memory;
    uint8_t last[NIC_REGISTERS][64]; /* the WQE that was rung last, as its queue has it */
    /* What the registers held at the last look. */
    uint8_t seen[NIC_REGISTERS][NIC_BLUEFLAME_BYTES];
    uint32_t rung[NIC_REGISTERS]; /* doorbells seen */
    uint32_t
        last_number[NIC_REGISTERS / 2]; /* of each register: whose QP the last doorbell was of */
    struct list queue_pairs;
    uint32_t crowd;         /* how many those were when all of them were looked at */
    bool search;            /* all of them must be looked at once more: */
    uint64_t search_due_ns; /* when; 0: that is not determined yet */
};

/* Data that land late on purpose: late.c. */
struct late_data {
    struct late_pieces *pieces; /* made when first needed */
    uint32_t count;
    uint64_t next_ns;    /* none is due before */
    uintptr_t low, high; /* none goes to memory below, or from there on */
    uint64_t owners;
};

/* As enum ibv_event_type. */
enum nic_event {
    EVENT_CQ_ERR = 0,
    EVENT_QP_FATAL = 1,
    EVENT_QP_REQ_ERR = 2,
    EVENT_QP_ACCESS_ERR = 3,
    EVENT_SQ_DRAINED = 5,
    EVENT_PORT_ACTIVE = 9,
    EVENT_PORT_ERR = 10,
    EVENT_SRQ_LIMIT_REACHED = 15,
    EVENT_QP_LAST_WQE_REACHED = 16,
};

/* What the NIC tells whoever made it. `cq_owner` and `object_owner` are that object's `owner`. */
struct nic_host {
    void *context;
    void (*completion_event)(void *context, void *cq_owner);
    void (*async_event)(void *context, int event, int rail, void *object_owner);
    void (*unplugged)(void *context, int rail); /* the host destroys all that is the device's */
    void (*cm_message)(void *context, uint32_t source_slot, const void *message, uint32_t bytes);
    void (*trace)(void *context, uint32_t kind, uint32_t number, const void *bytes, uint32_t count);
};

struct nic {
    struct fabric *fabric;
    struct nic_host host;
    uint64_t now_ns;
    bool tracing;
    uint64_t stalled_until_ns;
    uint64_t packets_received;
    struct memory_key *keys;
    uint32_t key_count, key_next;
    struct list layouts; /* of indirect keys */
    struct queue_pair **queue_pairs;
    uint32_t queue_pair_next;
    bool reserved_numbers[NIC_MAX_QUEUE_PAIRS / NIC_RESERVED_NUMBERS]; /* blocks of QPNs */
    void **completion_queues, **shared_receive_queues;                 /* by number */
    uint32_t completion_queue_last, shared_receive_queue_last;
    /* The host has a look at doorbells after each store: none is overwritten before it is seen, as far as the host
     * can tell. */
    bool sees_each_store;
    struct doorbell_page *pages[NIC_MAX_PAGES];
    uint32_t searches; /* pages with `search` */
    uint32_t page_end; /* no page from here on is in use */
    struct list all_queue_pairs, all_completion_queues, all_shared_receive_queues;
    struct turns active, owing;
    struct list holding; /* compressed CQs with completions that are not written yet */
    struct wheel timers;
    struct fault_dice answers_first; /* in a round in which ports are not ready for all */
    uint32_t rails_down;             /* as last told by events */
    uint32_t rails_unplugged;
    uint32_t fault_serial;
    struct late_data late;
};

/* ---- nic.c: life and time ---- */
bool nic_create(struct nic *nic, struct fabric *fabric, const struct nic_host *host);
void nic_destroy(struct nic *nic);

/* Does a bounded amount of what there is to do. Returns whether there was something. */
bool nic_run(struct nic *nic, uint64_t now_ns);

/* Takes note of faults that were set since it last looked, and tells the host what has happened. */
void nic_take_faults(struct nic *nic);

/* Returns when nic_run must be called next even if nothing happens, or UINT64_MAX. */
uint64_t nic_deadline_ns(const struct nic *nic);

/* ---- registers.c: doorbell pages ---- */
bool nic_add_page(struct nic *nic, uint32_t page, uint8_t *memory);
void nic_remove_page(struct nic *nic, uint32_t page);

/* Looks at the doorbell pages. Returns whether anything rang. */
bool nic_look_at_doorbells(struct nic *nic);

/* The program stored to a page, and nobody knows what: all queues of the page are taken as rung. */
void nic_ring_page(struct nic *nic, uint32_t page);

/* ---- keys.c ---- Each returns NULL if there is none. */
struct memory_key *key_create(struct nic *nic, enum key_kind kind, uint32_t domain);
struct memory_key *key_find(struct nic *nic, uint32_t key);
void key_destroy(struct nic *nic, struct memory_key *key);
/* ACCESS_ of the access flags in a memory key's context (MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_). */
uint32_t key_access_of(uint8_t flags);
/* An indirect key, which leads to pieces of other keys' memory once a UMR WQE has said which: at most so many `octowords` of layout. Its
 * `variant` is the program's. Returns NULL if there is no memory. */
struct memory_key *key_create_indirect(struct nic *nic, uint32_t domain, uint32_t octowords,
                                       uint8_t variant);

/* ---- late.c ---- */
/* What is still to land in a key's memory does: somebody may lose the right to it. */
void late_end_right(struct nic *nic, const struct memory_key *key);

/* ---- cq.c, compress.c ---- */
struct completion_queue *cq_create(struct nic *nic);
void cq_destroy(struct nic *nic, struct completion_queue *cq);
/* Moves what the program has not polled to a new buffer, as a resize does (PRM, MODIFY_CQ). */
bool cq_resize(struct nic *nic, struct completion_queue *cq, uint8_t *buffer, uint32_t entries,
               uint32_t entry_bytes);
/* Has the CQ compress. `format` is one of MLX5DV_CQE_RES_FORMAT_. Returns false if there is no
 * memory. */
bool compression_create(struct completion_queue *cq, uint8_t format);

/* ---- receive.c, tag.c ---- */
struct shared_receive_queue *srq_create(struct nic *nic);
void srq_destroy(struct nic *nic, struct shared_receive_queue *srq);
/* Makes an SRQ a tag-matching one. Returns false if there is no memory. */
bool tags_create(struct shared_receive_queue *srq, uint32_t places);

/* ---- qp.c ---- */
struct queue_pair *qp_create(struct nic *nic);
struct queue_pair *qp_find(struct nic *nic, uint32_t qpn); /* NULL: there is none */
void qp_destroy(struct nic *nic, struct queue_pair *qp);
/* Takes a block of NIC_RESERVED_NUMBERS numbers, which no QP gets until they are given back, and returns the first; 0 if there is none
 * that is free. */
uint32_t qp_reserve_numbers(struct nic *nic);
void qp_release_numbers(struct nic *nic, uint32_t first);
/* Has the QP ring at its page. Call it once type, rail and page are set. */
void qp_attach_page(struct nic *nic, struct queue_pair *qp);
/* Where the packets of a QP go that are sent so: a rail, or PACKET_NO_RAIL. */
uint8_t qp_rail_reached(const struct nic *nic, const struct queue_pair *qp,
                        const struct rail_way *way);
/* Shows the QP's path in its statistics: call it when attributes have changed. */
void qp_tell_path(struct queue_pair *qp, const struct rail_way *way);
/* Sets the state; queues are emptied or flushed as the state asks for. */
void qp_set_state(struct nic *nic, struct queue_pair *qp, uint8_t state);

/* ---- dc.c, streams.c, multicast.c ---- */
/* Makes a QP a target. Returns false if there is no memory. */
bool dc_target_create(struct queue_pair *dct, uint64_t access_key);
/* Has the streams of a DCI fail one by one, until 2^log_failed have. Returns false if there is no
 * memory. */
bool streams_create(struct queue_pair *dci, uint32_t log_failed);
/* A stream that has failed sends again. Returns false if it has not failed. */
bool streams_reset(struct queue_pair *dci, uint16_t stream);
/* Each returns false if it cannot: there is no room, or the QP is not in the group. */
bool multicast_attach(struct nic *nic, struct queue_pair *qp, const uint8_t group[16]);
bool multicast_detach(struct nic *nic, struct queue_pair *qp, const uint8_t group[16]);

#endif
