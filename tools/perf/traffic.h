/* traffic.h: one connection of copyrpc-perf --write, --read, --send or --atomic, on either side, with the queues
 * that its ops go over if it is not the connection itself: datagrams.c (--datagrams), dc.c (--dc), tags.c (--tag).
 *
 * The client says with the plan, by private data of rdma_cm, what it will do, and where its memory
 * is; the server answers where its own is. Each of them has, from the beginning of a region:
 *
 *   the head     what this side has done so far, and where its DCTs are: the other READs it
 *   local        what is sent, or READ into: so many places of the size of a message
 *   target       as many places, for the other side
 *   check        one place, for what is read back
 *
 * The side that sends keeps `depth` ops open. With TRAFFIC_BOTH both do. In ping-pong each side has one
 * message at a time, and answers that of the other; a WRITE is noticed by its last byte.
 */
#ifndef TOOLS_PERF_TRAFFIC_H
#define TOOLS_PERF_TRAFFIC_H

#include "perf.h"

#define TRAFFIC_MAGIC 0x33715063u /* "cPq3" */
#define TRAFFIC_BOTH 0x1u         /* the server sends, too */
#define TRAFFIC_PING_PONG 0x2u
#define TRAFFIC_DATAGRAMS 0x4u   /* the messages are: see datagrams.c */
#define TRAFFIC_DC 0x8u          /* from DCIs to DCTs: see dc.c */
#define TRAFFIC_TAGS 0x10u       /* the messages have tags: see tags.c */
#define TRAFFIC_UNEXPECTED 0x20u /* nobody has given buffers for those */
#define TRAFFIC_BYTES_MAX (1u << 30)
#define TRAFFIC_PING_PONG_DEPTH 2u /* the last message may still be open */
#define TRAFFIC_WHY_BYTES 148u     /* as much of it as a refusal carries */

#define TRAFFIC_GRH 0x80u /* CRPC_GRH_REQUIRED */

/* Where a UD queue or a DCT is, as in crpc_queue_address; shorter, because private data have 56 bytes. */
struct traffic_address {
    uint32_t queue_pair_number; /* 0 = there is none */
    uint16_t lid;
    uint8_t link;     /* and TRAFFIC_GRH */
    uint8_t mtu_bits; /* 8 = 256 bytes, up to 12 = 4096 */
    uint8_t gid[16];
};

/* Little-endian, as private data of the client. */
struct traffic_plan {
    uint32_t magic;
    uint8_t opcode; /* CRPC_QUEUE_* */
    uint8_t flags;
    uint16_t depth;
    uint16_t inline_bytes; /* messages up to this length are inline */
    uint16_t streams;      /* of each DCI; 0 = none */
    uint16_t targets;      /* DCTs that each DCI sends to; without TRAFFIC_DC 0 */
    uint16_t zero;
    uint32_t bytes; /* of each message */
    uint32_t key;   /* of the client's region */
    uint64_t address;
    struct traffic_address datagrams; /* the client's */
};
_Static_assert(sizeof(struct traffic_plan) == 56, "all that fits into private data of a client");

/* The same of the server. */
struct traffic_hello {
    uint32_t magic;
    uint32_t key;
    uint64_t address;
    struct traffic_address datagrams;
};

struct traffic_report {
    uint64_t done;     /* ops that have completed */
    uint64_t wrong;    /* messages of another length */
    uint64_t received; /* messages */
    uint64_t looks;    /* how often it has looked for more */
};

struct traffic_dct {
    struct traffic_address address;
    uint64_t access_key;
};

/* What the region begins with. */
struct traffic_head {
    struct traffic_report report;
    uint8_t zero[32];
    struct traffic_dct dcts[PERF_TARGETS_MAX];
};

struct traffic {
    crpc_context *context;
    crpc_queue queue;    /* the connection: reports are READ over it */
    crpc_queue sender;   /* UD queue or DCI for the ops; 0 = they go over `queue` */
    crpc_queue receiver; /* UD queue, SRQ or TM-SRQ for the receives; 0 = they are of `queue` */
    crpc_queue dcts[PERF_TARGETS_MAX];
    crpc_target targets[PERF_TARGETS_MAX];
    uint32_t datagram_bytes_max;
    crpc_region region;
    crpc_region_info place; /* of the region */
    struct traffic_plan plan;
    bool server;
    bool sends;
    bool receives;
    bool connected;
    bool aiming; /* it READs where the peer's DCTs are */
    bool begun;
    bool lost;
    bool reading;
    bool sync_due; /* messages have come that match nothing: see tags.c */
    int32_t lost_status;
    uint8_t *memory;
    uint64_t memory_bytes;
    uint64_t room;  /* of a place */
    uint64_t check; /* offset of the place for checks */
    uint32_t places;
    uint32_t receive_depth;
    uint64_t peer_address;
    uint32_t peer_key;
    struct traffic_address peer_datagrams;
    /* `depth` of them; the next is posted % depth. Their user_data say when they were posted: with streams, they
     * complete in any order. */
    crpc_queue_op *ops;
    crpc_queue_op *receive_ops;
    uint8_t *unexpected; /* where such a message ends up */
    uint64_t posted;
    uint64_t done;
    uint64_t received;
    uint64_t receives_posted;
    uint64_t arrived;          /* in ping-pong: messages of the other side */
    uint64_t wrong;            /* messages of the wrong length, or with wrong bytes */
    uint64_t looks;            /* traffic_tell, behind a poll */
    struct histogram *latency; /* NULL = not measured */
};

/* Returns NULL, or why the plan is not possible. */
const char *traffic_check(const struct traffic_plan *plan);
/* Allocates and registers memory, and makes the queues that need no connection. If it fails, prints why, keeps that
 * for traffic_why, and returns false. `user_data` is that of these queues. */
bool traffic_open(struct traffic *traffic, crpc_context *context, const struct traffic_plan *plan,
                  bool server, uint64_t user_data);
/* Returns why the last traffic_open has failed. */
const char *traffic_why(void);
/* Closes its queues, too. */
void traffic_close(struct traffic *traffic);
/* Returns true if this is the handle of one of its queues. */
bool traffic_owns(const struct traffic *traffic, uint64_t bits);
/* Returns the options to connect or accept with, but for the private data. */
crpc_queue_options traffic_options(const struct traffic *traffic);
/* Posts the receives that are due; as soon as there is a queue. */
void traffic_receive(struct traffic *traffic);
/* The queue has connected, and this is the peer's memory; traffic->peer_datagrams is set. Sets `begun`, if need be
 * when the peer's DCTs are known; `lost` if they are not to be had. */
void traffic_begin(struct traffic *traffic, uint64_t peer_address, uint32_t peer_key);
/* Returns the queue over which the ops go. */
crpc_queue traffic_sender(const struct traffic *traffic);
/* Posts up to `most` ops, as far as the depth allows. In ping-pong: the client's next message, if none
 * is under way. */
void traffic_post(struct traffic *traffic, uint64_t most, uint64_t now_ns);
/* Takes a CRPC_COMPLETION_WORK of one of its queues. */
void traffic_take(struct traffic *traffic, const crpc_completion *completion, uint64_t now_ns);
/* Ping-pong: looks whether a message of the other side has arrived, and answers it (the server), or
 * records how long it took (the client). Returns true if one has. */
bool traffic_look(struct traffic *traffic, uint64_t now_ns);
/* Publishes the report. */
void traffic_tell(struct traffic *traffic);
/* Starts to READ `bytes` of the peer's memory, from `offset` on, into the place for checks, of which
 * it returns the address; NULL if that fails. They are there when traffic->reading is false. */
const void *traffic_read(struct traffic *traffic, uint64_t offset, uint32_t bytes);
/* Returns the first local place. */
const uint8_t *traffic_local(const struct traffic *traffic);
/* Returns the offset of the first target in the memory of either side. */
uint64_t traffic_target(const struct traffic *traffic);
/* Returns true if these bytes of a message are those that the server or the client sends. */
bool traffic_content(const struct traffic *traffic, const uint8_t *bytes, bool server);
const char *traffic_name(uint8_t opcode);

/* ---- For traffic_ops.c, datagrams.c, dc.c and tags.c ------------------------------------------ */

bool traffic_is_atomic(const struct traffic_plan *plan);
bool traffic_is_ping_pong(const struct traffic_plan *plan);
/* Returns how many bytes are sent before a message. */
uint32_t traffic_sent_header(const struct traffic_plan *plan);
/* Returns how many bytes lie before a message in its receive. */
uint32_t traffic_received_header(const struct traffic_plan *plan);
/* Return where something is sent from, and where it goes to, on this side. */
uint8_t *traffic_local_place(const struct traffic *traffic, uint64_t index);
uint8_t *traffic_target_place(const struct traffic *traffic, uint64_t index);
/* Prints what has failed, and keeps it for traffic_why. Returns false. */
bool traffic_failed(const char *what, const char *why);
/* Returns the options of a queue over which the ops go. */
crpc_queue_options traffic_sender_options(const struct traffic *traffic, uint32_t kind,
                                          uint64_t user_data);
/* Submits `count` ops of a ring, from the next on. Returns how many were accepted. */
uint64_t traffic_submit(struct traffic *traffic, crpc_queue queue, const crpc_queue_op *ring,
                        uint32_t length, uint64_t next, uint64_t count);
/* Returns the place of a receive. */
uint8_t *traffic_place(const struct traffic *traffic, uint64_t receive);
/* Returns what a message of either side has in front. */
uint8_t traffic_first_byte(bool server);

/* address.c: where a queue is, in short; and the way there, which is a target of datagrams or (DCI) of a DCT. If
 * address_aim fails, it prints why and returns false. */
struct traffic_address address_of(crpc_context *context, crpc_queue queue);
bool address_aim(crpc_context *context, const struct traffic_address *there,
                 const crpc_target_options *options, crpc_target *target);

/* datagrams.c: makes the queue for datagrams, and says in the plan where it is. If it fails, prints why and
 * returns false; so does datagrams_aim, which makes the target. */
bool datagrams_open(struct traffic *traffic, uint64_t user_data);
bool datagrams_aim(struct traffic *traffic);

/* dc.c: makes the DCI of a side that sends, and the DCTs of one that is sent to, of which the head of its memory
 * tells. If it fails, prints why and returns false; so does dc_aim, which makes targets of what the peer's head
 * tells. */
bool dc_open(struct traffic *traffic, uint64_t user_data);
bool dc_aim(struct traffic *traffic, const void *dcts);
void dc_close(struct traffic *traffic);
/* Says where the op with this number goes. */
void dc_direct(const struct traffic *traffic, crpc_queue_op *op, uint64_t number);

/* tags.c: makes the TM-SRQ of a side that receives. If it fails, prints why and returns false. */
bool tags_open(struct traffic *traffic, uint64_t user_data);
/* Returns the tag of the message, and of the buffer, with this number. */
uint64_t tags_of(const struct traffic *traffic, uint64_t number);
/* Numbers the next receives, which are `count`. */
void tags_number(struct traffic *traffic, uint64_t count);
/* Tells the device that the messages which match nothing were looked at. */
void tags_synchronize(struct traffic *traffic);
/* Takes the completion of a TAG_ADD or RECEIVE. */
void tags_take(struct traffic *traffic, const crpc_completion *completion);

#endif
