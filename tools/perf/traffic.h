/* traffic.h: one queue of copyrpc-perf --write, --read, --send or --atomic, on either side.
 *
 * The client says with the plan, by private data of rdma_cm, what it will do, and where its memory
 * is; the server answers where its own is. Each of them has, from the beginning of a region:
 *
 *   the report   what this side has done so far: the other READs it
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

#define TRAFFIC_MAGIC 0x32715063u /* "cPq2" */
#define TRAFFIC_BOTH 0x1u         /* the server sends, too */
#define TRAFFIC_PING_PONG 0x2u
#define TRAFFIC_DATAGRAMS 0x4u /* the messages are: see datagrams.c */
#define TRAFFIC_BYTES_MAX (1u << 30)
#define TRAFFIC_PING_PONG_DEPTH 2u /* the last message may still be open */

/* Where a queue for datagrams is, as in crpc_queue_address; shorter, because private data have 56 bytes. */
struct traffic_address {
    uint32_t queue_pair_number; /* 0 = there is none */
    uint16_t lid;
    uint8_t link;
    uint8_t mtu_bits; /* 8 = 256 bytes, up to 12 = 4096 */
    uint8_t gid[16];
};

/* Little-endian, as private data of the client. */
struct traffic_plan {
    uint32_t magic;
    uint8_t opcode; /* CRPC_QUEUE_* */
    uint8_t flags;
    uint16_t zero;
    uint32_t depth;
    uint32_t bytes;        /* of each message */
    uint32_t inline_bytes; /* messages up to this length are inline */
    uint32_t key;          /* of the client's region */
    uint64_t address;
    struct traffic_address datagrams; /* the client's */
};

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

struct traffic {
    crpc_context *context;
    crpc_queue queue;
    crpc_queue datagrams; /* for the messages; 0 = they go over `queue` */
    crpc_target target;
    uint32_t datagram_bytes_max;
    crpc_region region;
    crpc_region_info place; /* of the region */
    struct traffic_plan plan;
    bool server;
    bool sends;
    bool receives;
    bool begun;
    bool lost;
    bool reading;
    int32_t lost_status;
    uint8_t *memory;
    uint64_t memory_bytes;
    uint64_t room; /* of a place */
    uint32_t places;
    uint32_t receive_depth;
    uint64_t peer_address;
    uint32_t peer_key;
    struct traffic_address peer_datagrams;
    crpc_queue_op *ops; /* `depth` of them; the next is posted % depth */
    crpc_queue_op *receive_ops;
    uint64_t *started_ns; /* of the same */
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
/* Allocates and registers memory. If it fails, prints why and returns false. `user_data` is that of the queue for
 * datagrams. */
bool traffic_open(struct traffic *traffic, crpc_context *context, const struct traffic_plan *plan,
                  bool server, uint64_t user_data);
/* Closes the queue, too. */
void traffic_close(struct traffic *traffic);
/* Returns the options to connect or accept with, but for the private data. */
crpc_queue_options traffic_options(const struct traffic *traffic);
/* Posts the receives that are due; as soon as there is a queue. */
void traffic_receive(struct traffic *traffic);
/* The queue has connected, and this is the peer's memory; traffic->peer_datagrams is set. */
void traffic_begin(struct traffic *traffic, uint64_t peer_address, uint32_t peer_key);
/* Returns the queue over which the messages go. */
crpc_queue traffic_queue(const struct traffic *traffic);
/* Posts up to `most` ops, as far as the depth allows. In ping-pong: the client's next message, if none
 * is under way. */
void traffic_post(struct traffic *traffic, uint64_t most, uint64_t now_ns);
/* Takes a CRPC_COMPLETION_WORK of the queue. */
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

/* datagrams.c: makes the queue for datagrams, and says in the plan where it is. If it fails, prints why and
 * returns false; so does datagrams_aim, which makes the target. */
bool datagrams_open(struct traffic *traffic, uint64_t user_data);
bool datagrams_aim(struct traffic *traffic, const struct traffic_address *there);
void datagrams_close(struct traffic *traffic);

#endif
