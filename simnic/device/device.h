/* device.h: the virtual ConnectX of one process: its memory keys, queues and doorbell pages, and
 * the machines that execute work requests, as the mlx5 Programmer's Reference Manual (PRM) and the
 * InfiniBand Architecture Specification volume 1 (IBTA) describe them. Pure C on memory: it makes
 * no system calls, takes no locks and does not know of file descriptors. Both rails are in one
 * device, as ports of it that share nothing but the numbers of their objects.
 *
 * Threads: everything here is called under one lock, the shim's. Handles of objects are pointers,
 * made and checked by the shim. */
#ifndef SIMNIC_DEVICE_H
#define SIMNIC_DEVICE_H

#include "fabric.h"
#include "base/list.h"
#include "rails.h"

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>

#define DEVICE_MAX_QUEUE_PAIRS 65536u
#define DEVICE_MAX_COMPLETION_QUEUES 65536u
#define DEVICE_MAX_SHARED_RECEIVE_QUEUES 16384u
#define DEVICE_MAX_KEYS (1u << 20)
#define DEVICE_MAX_PAGES 4096u
#define DEVICE_MAX_SGE 30u         /* data segments of a send request */
#define DEVICE_MAX_SEGMENTS 64u    /* that fit into a send WQE */
#define DEVICE_MAX_RECEIVE_SGE 32u /* data segments of a receive request */
#define DEVICE_MAX_READS 16u       /* outstanding READs and atomics of a QP, in either direction */
#define DEVICE_MAX_MESSAGE_BYTES (1u << 30)
#define DEVICE_WQE_MAX_BYTES 1024u /* 16 basic blocks */
#define DEVICE_IN_FLIGHT 256u      /* messages of a QP that wait for an acknowledgement */
#define DEVICE_MAX_TAGS 127u       /* of a tag-matching SRQ */
#define DEVICE_MAX_RENDEZVOUS_HEADER_BYTES 64u
#define DEVICE_MAX_MINI_CQES 64u /* completions in a compressed block */
#define DEVICE_UAR_BYTES 4096u
#define DEVICE_BLUEFLAME_BYTES 256u /* one buffer of a BlueFlame register */
#define DEVICE_REGISTERS 4u         /* buffers of a doorbell page: two registers with two each */

/* Access flags as ibv_access_flags. */
#define ACCESS_LOCAL_WRITE 1u
#define ACCESS_REMOTE_WRITE 2u
#define ACCESS_REMOTE_READ 4u
#define ACCESS_REMOTE_ATOMIC 8u
#define ACCESS_WINDOW_BIND 16u
#define ACCESS_ZERO_BASED 32u

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

#define TERMINATOR_KEY 0x100u /* "invalid" L_Key: ends a scatter list shorter than its WQE */

enum key_kind { KEY_FREE, KEY_REGION, KEY_WINDOW };

struct memory_key {
    uint32_t key; /* index in bits 8-31, variant in bits 0-7 */
    uint8_t kind;
    bool bound;          /* of a window */
    uint32_t domain;     /* number of the protection domain */
    uint32_t access;     /* ACCESS_ */
    uint32_t queue_pair; /* of a type 2 window: the QPN it is bound to */
    uint32_t region;     /* of a bound window: the key of the region it looks into */
    uint64_t start;      /* where the memory is in this process */
    uint64_t address;    /* what programs call that place (iova) */
    uint64_t bytes;
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
    uint32_t producer;
    uint32_t consumer;       /* as last read; it may be further */
    uint32_t last_solicited; /* producer index after the last solicited or failed completion */
    uint32_t last_notified;  /* producer index at the last event */
    uint32_t arm_value;      /* as last seen in the doorbell record */
    bool armed, armed_solicited, overrun;
    bool pad_128;                    /* MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD */
    struct compression *compression; /* NULL: CQEs are never compressed */
    bool enhanced; /* compressed in the layout that only DevX can ask for: compress.c */
    void *owner;   /* the shim's */
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
    uint8_t destination_gid[16];
    uint8_t source_gid_index, traffic_class, hop_limit, service_level;
    uint32_t flow_label;
    bool into_cqe; /* of a response: it is collected for the CQE, in wqe */
    struct segment segment[DEVICE_MAX_SEGMENTS];
    uint8_t wqe[DEVICE_WQE_MAX_BYTES]; /* as it was read */
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
    struct segment segment[DEVICE_MAX_RECEIVE_SGE];
};

/* What a responder owes: the response to a READ or an atomic. */
struct owed_response {
    uint8_t operation; /* PACKET_READ_REQUEST or an atomic */
    uint32_t psn, packets, sent;
    uint64_t address;
    uint32_t key, bytes;
    uint64_t original; /* of an atomic */
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
    uint8_t source_gid_index;
    uint8_t destination_gid[16];
    uint32_t send_psn, receive_psn;
};

struct queue_pair {
    uint32_t number;
    uint32_t type;
    uint8_t rail;
    uint8_t state;
    uint8_t destination_rail;
    bool destination_known; /* the GID belongs to a rail */
    uint32_t user_index;
    uint32_t domain;
    uint32_t page; /* doorbell page */
    uint8_t *send_buffer, *receive_buffer, *record;
    uint32_t send_blocks; /* a power of two, or 0 */
    uint32_t receive_entries, receive_shift;
    bool signal_all, scatter_to_cqe, scatter_requests_to_cqe, receive_signature;
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
    uint32_t sent_packets;                                   /* of in_flight_next */
    bool parsed;   /* `request` is that of in_flight_next */
    bool rings;    /* a doorbell rang since the record was last read */
    bool drained;  /* the transition to SQD has been told */
    bool gap_told; /* a lost response was asked for again: once a gap */
    uint32_t reads_in_flight;
    uint8_t rnr_left, retries_left;
    bool response_valid;
    uint64_t wait_until_ns; /* an RNR NAK's, or 0 */
    uint64_t timer_ns;      /* when the oldest message times out, or 0 */
    /* The last doorbell: its first word and what the BlueFlame register held behind it, what that had
     * held before, the register itself, and the WQE that was rung there before. */
    uint8_t blueflame[DEVICE_BLUEFLAME_BYTES], blueflame_before[DEVICE_BLUEFLAME_BYTES];
    const uint8_t *blueflame_register;
    uint8_t *blueflame_seen;        /* what the register held when it was last looked at */
    const uint32_t *blueflame_rung; /* doorbells at that register, and how many there were then */
    uint8_t *blueflame_last;
    uint32_t blueflame_serial;
    uint32_t blueflame_bytes; /* 0: nothing */
    uint64_t blueflame_since_ns;
    uint32_t
        blueflame_rest; /* where in the register the next WQE of the push would be; 0: nowhere */
    struct send_request
        response; /* the READ or atomic whose response is coming, if response_valid */
    struct send_request request;
    struct in_flight in_flight[DEVICE_IN_FLIGHT];

    /* Responder. */
    uint16_t receive_next;
    uint32_t expected_psn;
    uint32_t msn;
    uint8_t
        current;   /* PACKET_SEND_FIRST or PACKET_WRITE_FIRST: inside such a message; 0xff: none */
    bool nak_sent; /* nothing is answered until expected_psn comes */
    bool ack_due, ack_wakes;
    uint8_t nak_due;     /* an AETH syndrome, or 0 */
    uint8_t last_wqe;    /* event LAST_WQE_REACHED: 1 due, 2 told */
    uint8_t tag_kind;    /* of the message that is coming in: enum tag_kind */
    uint16_t late_looks; /* at the receive queue of a QP in error */
    uint32_t offset;     /* bytes of the current message so far */
    uint64_t write_address;
    uint32_t write_key, write_left;
    uint32_t owed_head, owed_tail;
    struct owed_response owed[2 * DEVICE_MAX_READS];
    struct {
        uint32_t psn;
        uint64_t original;
        bool valid;
    } atomics[DEVICE_MAX_READS]; /* answers kept for a repeated request */
    uint32_t atomics_next;
    struct receive_request receive;
    struct rendezvous *rendezvous; /* if set, the send queue is the device's own */
    uint32_t xrc_domain, xrc_srqn; /* of an XRC target, and of its message */
    uint8_t (*groups)[16];         /* UD: multicast groups it is attached to */
    uint32_t group_count;
    uint32_t remote_qpn; /* XRC target, DCT: who sent last */

    struct dc_target *dc_target; /* DCT: its initiators */
    uint64_t dc_connection;      /* DCI: number of its connection, or 0 */
    uint64_t dc_access_key;      /* of that connection */
    uint32_t dc_first_psn;
    struct stream_set *streams; /* DCI: if one that fails leaves the others going */

    struct list all;
    struct list on_page;
    struct list active; /* has something to send */
    struct list owing;  /* has something to answer */
    struct list timed;  /* has a timer */
};

struct doorbell_page {
    uint8_t *memory;                    /* NULL: not in use */
    uint8_t last[DEVICE_REGISTERS][64]; /* the WQE that was rung last, as its queue has it */
    uint8_t seen[DEVICE_REGISTERS]
                [DEVICE_BLUEFLAME_BYTES]; /* what the registers held at the last look */
    uint32_t rung[DEVICE_REGISTERS];      /* doorbells seen */
    struct list queue_pairs;
};

enum device_event {
    EVENT_CQ_ERR = 0,
    EVENT_QP_FATAL = 1,
    EVENT_QP_REQ_ERR = 2,
    EVENT_QP_ACCESS_ERR = 3,
    EVENT_COMM_EST = 4,
    EVENT_SQ_DRAINED = 5,
    EVENT_PATH_MIG = 6,
    EVENT_DEVICE_FATAL = 8,
    EVENT_PORT_ACTIVE = 9,
    EVENT_PORT_ERR = 10,
    EVENT_SRQ_ERR = 14,
    EVENT_SRQ_LIMIT_REACHED = 15,
    EVENT_QP_LAST_WQE_REACHED = 16,
};

/* What the device tells its surroundings; numbers of events as enum ibv_event_type. */
struct device_host {
    void *context;
    void (*completion_event)(void *context, void *cq_owner);
    void (*async_event)(void *context, int event, int rail, void *object_owner);
    void (*cm_message)(void *context, uint32_t source_slot, const void *message, uint32_t bytes);
    void (*trace)(void *context, uint32_t kind, uint32_t number, const void *bytes, uint32_t count);
};

struct device {
    struct fabric *fabric;
    struct device_host host;
    uint64_t now_ns;
    bool tracing;
    uint64_t stalled_until_ns;
    uint64_t packets_received;
    struct memory_key *keys;
    uint32_t key_count, key_next;
    struct queue_pair **queue_pairs;
    uint32_t queue_pair_next;
    void **completion_queues, **shared_receive_queues; /* by number */
    uint32_t completion_queue_last, shared_receive_queue_last;
    struct doorbell_page *pages[DEVICE_MAX_PAGES];
    uint32_t page_end; /* no page from here on is in use */
    struct list all_queue_pairs, all_completion_queues, all_shared_receive_queues;
    struct list active, owing, timed;
    struct list holding; /* compressed CQs with completions that are not written yet */
    uint64_t next_timer_ns;
    uint32_t rails_down; /* as last told by events */
    uint32_t fault_serial;
};

/* ---- device.c: life, doorbells, time ---- */
bool device_create(struct device *device, struct fabric *fabric, const struct device_host *host);
void device_destroy(struct device *device);
bool device_add_page(struct device *device, uint32_t page, uint8_t *memory);
void device_remove_page(struct device *device, uint32_t page);
/* What a page's registers hold now is not of a WQE to come: its queue goes. */
void device_forget_pushes(struct device *device, uint32_t page);
/* A number from 1 on that nothing in a table has, the next one after the last; 0 if all are given. */
uint32_t device_free_number(void *const *table, uint32_t end, uint32_t *last);

/* Looks at the doorbell pages. Returns whether anything rang. */
bool device_look_at_doorbells(struct device *device);

/* A program's store to a page has been seen to come, by other means: treat all queues of that page
 * as rung. */
void device_ring_page(struct device *device, uint32_t page);

/* Does a bounded amount of what there is to do. Returns whether there was something. */
bool device_run(struct device *device, uint64_t now_ns);

/* Returns when device_run must be called next even if nothing happens, or UINT64_MAX. */
uint64_t device_deadline_ns(const struct device *device);

/* ---- xrc.c ---- */
/* Has an XRC target receive from an SRQ. Returns false if there is none of its domain. */
bool xrc_select(struct device *device, struct queue_pair *qp, uint32_t srqn);
void xrc_forget(struct device *device, const struct shared_receive_queue *srq);

/* ---- keys.c ---- Registers memory; returns the key or 0. */
struct memory_key *key_create(struct device *device, enum key_kind kind, uint32_t domain);
void key_destroy(struct device *device, struct memory_key *key);
struct memory_key *key_find(struct device *device, uint32_t key);
/* Translates; NULL if the key, the range, the domain or the access is wrong. bytes may be zero. */
uint8_t *key_translate(struct device *device, uint32_t key, uint64_t address, uint64_t bytes,
                       uint32_t access, uint32_t domain);

/* The same for an access that a peer asks a QP for: windows may be bound to one QP. */
uint8_t *key_translate_for_peer(struct device *device, const struct queue_pair *qp, uint32_t key,
                                uint64_t address, uint64_t bytes, uint32_t access);

/* ---- window.c ---- */
/* Executes a UMR WQE. Returns 0 or a syndrome. */
uint8_t window_execute(struct device *device, struct queue_pair *qp,
                       const struct send_request *request);
bool window_invalidate(struct device *device, struct queue_pair *qp, uint32_t key);

/* ---- cq.c ---- */
struct completion_queue *cq_create(struct device *device);
void cq_destroy(struct device *device, struct completion_queue *cq);
void cq_look_at_arms(struct device *device);
void cq_look_at_arm(struct device *device, struct completion_queue *cq);
struct cqe {
    struct mlx5_cqe64 fields; /* all but op_own */
    uint8_t opcode;           /* MLX5_CQE_ */
    bool solicited;
    uint32_t inline_bytes; /* data in the CQE: at most 32 or 64 */
    uint8_t inline_data[64];
};
void cq_write(struct device *device, struct completion_queue *cq, struct cqe *cqe);
/* Breaks a CQ for good, and the QPs that complete to it. cq may be NULL. */
void cq_overrun(struct device *device, struct completion_queue *cq);
void cq_write_error(struct device *device, struct queue_pair *qp, bool requester, uint8_t syndrome,
                    uint8_t opcode, uint16_t wqe_counter);
/* Moves what the program has not polled to a new buffer, as a resize does (PRM, MODIFY_CQ). */
bool cq_resize(struct device *device, struct completion_queue *cq, uint8_t *buffer,
               uint32_t entries, uint32_t entry_bytes);

/* Where a CQE is, and telling the program of it. */
uint8_t *cq_entry(const struct completion_queue *cq, uint32_t index);
void cq_fire(struct device *device, struct completion_queue *cq);

/* ---- compress.c ---- For CQs that have `compression` only, but for the first. */
/* format: one of MLX5DV_CQE_RES_FORMAT_. */
bool compression_create(struct completion_queue *cq, uint8_t format);
void compression_destroy(struct completion_queue *cq);
/* Takes a completion for which there is room. Returns false if it is to be written as it is. */
bool compression_take(struct device *device, struct completion_queue *cq, struct cqe *cqe);
/* Writes what waits; compression_end also has nothing to come look like it. */
void compression_flush(struct device *device, struct completion_queue *cq);
void compression_end(struct device *device, struct completion_queue *cq);
void compression_flush_all(struct device *device); /* at the end of a round */

/* ---- receive.c: receive WQEs, of a receive queue or an SRQ ---- */
enum receive_result { RECEIVE_OK, RECEIVE_EMPTY, RECEIVE_WRONG };
enum receive_result receive_take(struct device *device, struct queue_pair *qp);
/* Writes payload at an offset of the message; returns 0 or the syndrome of the error. */
uint8_t receive_scatter(struct device *device, struct queue_pair *qp, uint32_t offset,
                        const uint8_t *payload, uint32_t bytes);
struct shared_receive_queue *srq_create(struct device *device);
void srq_destroy(struct device *device, struct shared_receive_queue *srq);

/* ---- wqe.c ---- Parses request->wqe, `bytes` long, as the WQE at `index` of a QP. Never reads
 * outside; sets request->syndrome if it is wrong. */
void wqe_parse(const struct queue_pair *qp, struct send_request *request, uint16_t index,
               uint32_t bytes);

/* ---- requester.c, completer.c, responder.c, datagram.c ---- Each returns whether it did
 * something. */
bool requester_run(struct device *device, struct queue_pair *qp);
void requester_restart(struct device *device, struct queue_pair *qp);
/* Starts the timer of the oldest message, unless it runs. */
void requester_start_timer(struct device *device, struct queue_pair *qp);
void requester_flush(struct device *device, struct queue_pair *qp);
void completer_receive(struct device *device, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload);
void completer_complete(struct device *device, struct queue_pair *qp);
void completer_timeout(struct device *device, struct queue_pair *qp);
void responder_receive(struct device *device, struct queue_pair *qp, const struct packet *packet,
                       const uint8_t *payload);
bool responder_answer(struct device *device, struct queue_pair *qp);
void responder_flush(struct device *device, struct queue_pair *qp);
void responder_flush_late(struct device *device, struct queue_pair *qp);
uint8_t requester_gather(struct device *device, struct queue_pair *qp,
                         const struct send_request *request, uint32_t offset, uint8_t *to,
                         uint32_t bytes);
bool datagram_send(struct device *device, struct queue_pair *qp, uint8_t *syndrome);
/* A datagram for a multicast group: every attached QP of this process gets it. */
void multicast_receive(struct device *device, const struct packet *packet, const uint8_t *payload);
bool multicast_attach(struct queue_pair *qp, const uint8_t group[16]);
bool multicast_detach(struct queue_pair *qp, const uint8_t group[16]);
void datagram_receive(struct device *device, struct queue_pair *qp, const struct packet *packet,
                      const uint8_t *payload);

/* ---- dc.c ---- */
/* Connects a DCI to the destination of qp->request. Returns false if it must wait for messages to
 * another destination. */
bool dc_connect(struct device *device, struct queue_pair *qp);
/* fabric_reserve for a request of a DCI: puts the DC header before the payload, and completes
 * *packet. Returns where the payload goes, or NULL. */
uint8_t *dc_reserve(struct device *device, const struct queue_pair *qp, uint32_t slot,
                    struct packet *packet);
void dc_receive(struct device *device, struct queue_pair *dct, const struct packet *packet,
                const uint8_t *payload);
/* Makes a QP a target. Returns false if there is no memory. */
bool dc_target_create(struct queue_pair *dct, uint64_t access_key);
void dc_target_destroy(struct queue_pair *dct);
/* Ends the connection of one initiator, whose QP at the target this is, or those of all. */
void dc_session_break(struct device *device, struct queue_pair *qp);
void dc_target_break(struct device *device, struct queue_pair *dct);

/* ---- streams.c ---- */
/* Has the streams of a DCI fail one by one, until 2^log_failed have. Returns false if there is no
 * memory. */
bool streams_create(struct queue_pair *dci, uint32_t log_failed);
void streams_destroy(struct queue_pair *dci);
void streams_clear(struct queue_pair *dci); /* none has failed */
/* Whether qp->request may go now: not while another stream has messages in flight. Gives it a syndrome
 * if its stream has failed. Only for DCIs with `streams`. */
bool streams_admit(struct queue_pair *dci);
/* The stream of the messages in flight fails with a syndrome that has been told. Returns false if the
 * QP does. */
bool streams_fail(struct device *device, struct queue_pair *dci, uint8_t syndrome);
/* A stream that has failed sends again. */
void streams_reset(struct queue_pair *dci, uint16_t stream);

/* ---- qp.c ---- */
struct queue_pair *qp_create(struct device *device);
void qp_destroy(struct device *device, struct queue_pair *qp);
struct queue_pair *qp_find(struct device *device, uint32_t qpn);
void qp_attach_page(struct device *device, struct queue_pair *qp);
/* Sets the state; queues are emptied or flushed as the state asks for. */
void qp_set_state(struct device *device, struct queue_pair *qp, uint8_t state);
/* A fatal error of the QP: to the error state; what was not completed is flushed. */
void qp_fail(struct device *device, struct queue_pair *qp);
/* An asynchronous event, EVENT_; none of a DCT. */
void qp_event(struct device *device, const struct queue_pair *qp, int event);
void qp_activate(struct device *device, struct queue_pair *qp);
void qp_owes(struct device *device, struct queue_pair *qp);
/* Has the device look at the QP's timers then at the latest. */
void qp_wake_at(struct device *device, struct queue_pair *qp, uint64_t time_ns);
uint32_t qp_mtu_bytes(const struct queue_pair *qp);
/* The place of a message in flight, by its position. */
static inline struct in_flight *qp_in_flight(struct queue_pair *qp, uint32_t position)
{
    return &qp->in_flight[position % DEVICE_IN_FLIGHT];
}

/* Difference of two packet sequence numbers, signed (IBTA 9.7.2). */
static inline int32_t psn_difference(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

/* Packets of a message. */
static inline uint32_t packets_of(uint32_t bytes, uint32_t mtu_bytes)
{
    return bytes ? (bytes + mtu_bytes - 1) / mtu_bytes : 1;
}

#endif
