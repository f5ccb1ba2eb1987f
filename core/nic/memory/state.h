/* state.h: what the in-memory NIC keeps: of completion queues, registrations, queue pairs, queues and fabrics. internal.h
 * includes it, and has what its files do with that.
 *
 * These are the stages of a WQE, number n of its queue pair; n < m means (int32_t)(m - n) > 0:
 *
 *     posted -> rung -> executed at the peer -> acknowledged -> completed (polled)
 *
 * Each queue pair has one counter for each arrow. The completions of WQEs below `acknowledged`, if
 * they have any, are in the send CQ. WQEs below `executed` have been executed at the peer, or have
 * failed there. WQEs below `rung` wait for that.
 */
#ifndef CORE_NIC_MEMORY_STATE_H
#define CORE_NIC_MEMORY_STATE_H

#include "nic/initiators.h"
#include "nic/memory/memory.h"
#include "nic/memory/random.h"
#include "nic/queue.h"

#define NUMBER_SLOTS 32768u /* limit of queue pairs per fabric; a power of two */
#define NUMBER_MASK 0xffffffu
#define REGION_SLOTS 32768u /* limit of registrations per nic */
#define NOT_ACTIVE 0xffffffffu
#define REMOTE_KEY_BIT 0x80000000u /* set in remote keys, but not in local keys: region.c */

/* ---- Completion queues: completion.c --------------------------------------------------------- */

struct memory_completion {
    struct nic_completion shown;
    uint64_t covers; /* a receive: what was held before has landed when this is polled */
    struct memory_queue_pair *queue_pair;
    bool receive;
};

struct memory_completion_queue {
    struct memory_completion *entries;
    uint32_t capacity;
    uint32_t mask; /* entries allocated - 1 */
    uint32_t head; /* next to poll */
    uint32_t tail; /* next to fill */
};

/* Of queues with user data (nic/queue.h): queue_completion.c. */
struct memory_queue_completion {
    struct memory_queue *queue; /* NULL = of one that was stopped */
    uint32_t place;             /* position of a send, or place of a receive */
    uint32_t immediate;
    uint32_t bytes;
    uint8_t status;  /* enum nic_error */
    uint8_t flags;   /* NIC_DONE_* */
    bool written;    /* a receive: by a WRITE, so nothing is in its buffer */
    uint32_t source; /* with NIC_DONE_GRH, or at a DCT: number of the queue pair that has sent */
    uint8_t kind;    /* enum memory_tagged, of what concerns tags. Of a command its opcode */
    bool missed;     /* a TAG_REMOVE that found nothing */
    uint32_t context;
    uint64_t tag;
};

/* A ring that grows. */
struct memory_queue_completions {
    struct memory_queue_completion *entries;
    uint32_t mask;
    uint32_t head;
    uint32_t tail;
};

/* ---- Nics and registrations: memory_nic.c, region.c ------------------------------------------ */

struct memory_domain {
    struct nic_domain base;
    struct memory_domain *next; /* of the nic */
    uint32_t users;             /* registrations and queue pairs */
};

struct memory_region {
    struct memory_domain *domain; /* NULL = the nic's own */
    uint64_t address;             /* as WQEs and peers name it */
    uint64_t bytes;
    uint64_t shift;  /* address + shift = where it is in this process; not 0: for peers only */
    uint32_t access; /* CRPC_ACCESS_* */
    uint32_t local_key;
    uint32_t remote_key;
    uint32_t slot;
    /* A window: address and bytes are those of the last bind. */
    bool window;
    bool bound;
    uint32_t bound_number; /* of the queue pair */
    uint32_t memory_key;   /* local key of the memory that it is bound to */
};

/* A WRITE with immediate that has taken its receive. Its completion is still under way. */
struct memory_arrival {
    struct memory_arrival *next;
    uint64_t covers; /* as of its completion */
    uint32_t immediate;
    uint32_t bytes;
    uint32_t receive; /* at a queue: place of the receive that it has taken */
    uint8_t flags;    /* likewise: NIC_DONE_* */
    bool written;     /* likewise: by a WRITE, so nothing is in the receive's buffer */
    uint32_t source;  /* likewise, of a datagram or a DCI: number of the queue pair that has sent */
    uint8_t tagged;   /* enum memory_tagged; `receive` may be the place of a tag */
    uint32_t context;
    uint64_t tag;
};

struct memory_nic {
    struct nic base;
    uint32_t ece; /* what its queue pairs offer */
    struct memory_fabric *fabric;
    struct memory_nic *next; /* of the fabric */
    struct memory_queue_pair *queue_pairs;
    struct memory_queue_pair *unmade; /* and not destroyed */
    struct memory_domain *domains;
    struct memory_completion_queue send_completions;
    struct memory_completion_queue receive_completions;
    struct memory_region **regions; /* by slot; NULL = free */
    uint32_t region_slots;
    struct memory_arrival *arrivals; /* receive_depth of them */
    struct memory_arrival *free_arrivals;
    uint32_t receives;       /* in the SRQ, as the hardware knows */
    uint32_t receives_given; /* without an SRQ: entries of all receive queues */
    bool armed;
    bool cut;
    bool link_down;
    bool sends_first;                    /* the next poll begins with sends */
    uint32_t device;                     /* n of memory<n> */
    uint64_t sends_until_ns;             /* what was rung: timed.c */
    struct nic_initiators initiators;    /* of which there are none, or: */
    struct nic_initiator *initiator_all; /* initiators.count of them */
    struct memory_queue *queues;
    struct memory_target *targets;
    struct memory_queue_completions queue_sends;
    struct memory_queue_completions queue_receives;
    bool queue_sends_first; /* the next poll of queues begins with sends */
};

/* ---- Queue pairs: queue_pair.c --------------------------------------------------------------- */

enum memory_opcode {
    MEMORY_WRITE,
    MEMORY_WRITE_IMMEDIATE,
    MEMORY_READ,
    MEMORY_BIND, /* local_* of its transfer: the memory; remote_key: new; immediate: the key before;
                    remote_address: the rights */
    MEMORY_INVALIDATE, /* remote_key */
    MEMORY_COMPARE_SWAP,
    MEMORY_FETCH_ADD,
    /* Of queues with user data alone: */
    MEMORY_SEND,
    MEMORY_NOP,
    MEMORY_DATAGRAM,
    MEMORY_TAG, /* a command: tags.h */
};

struct memory_wqe {
    struct nic_transfer transfer;
    uint8_t *payload; /* copied at post, fetched, or sampled; NULL = none */
    uint8_t opcode;
    uint8_t status; /* enum nic_error: from the peer's answer or from this device */
    bool signaled;
    bool inlined;            /* payload is in the queue pair's inline_bytes, not from malloc */
    bool receiver_not_ready; /* was counted already */
    bool fence;              /* waits for the answers of all READs and atomics before it */
    uint64_t compare;
    uint64_t operand;
    const struct nic_piece *pieces; /* instead of the transfer's local memory; NULL = none */
    uint32_t piece_count;
    /* Of queues with user data: */
    uint8_t flags;                /* NIC_DONE_* that the peer's receive shows */
    struct memory_target *target; /* of a datagram or a DCI: datagram.h */
    uint16_t stream;              /* of a DCI: dc.c */
    uint32_t next;                /* likewise: the one after it in its stream */
    bool executed;                /* likewise: its answer is on the way */
    bool done;                    /* likewise: acknowledged */
    bool missed;                  /* a command: what it names was not there */
    uint64_t due_ns;              /* with a clock, when it may execute: timed.c */
};

enum memory_stage {
    STAGE_START,  /* WRITE: fetch the payload. READ: send the request to the peer */
    STAGE_MOVE,   /* write pieces, or sample them */
    STAGE_ARRIVE, /* everything was written: take a receive, if needed */
};

/* The activities of one queue pair, which are delayed independently of each other. */
enum memory_lane {
    LANE_TRANSFER,    /* executes the oldest WQE that is not executed */
    LANE_RECEIVE,     /* delivers the completion of the oldest arrival */
    LANE_ACKNOWLEDGE, /* acknowledges the oldest WQE that is not acknowledged */
    LANES,
};

/* The rest of a payload that moves in pieces, which are taken from either end. */
struct memory_span {
    uint32_t low;
    uint32_t high;
    uint32_t pieces; /* number of pieces for the rest */
};

struct memory_queue_pair {
    struct nic_queue_pair base;
    struct memory_nic *nic;
    struct memory_fabric *fabric;
    struct memory_queue_pair *next; /* of the nic */
    struct memory_domain *domain;   /* of what its peer reaches; NULL = the nic's own */
    struct memory_domain *own;      /* of what its WQEs use: likewise, or NULL of a dynamic one */
    struct nic_dynamic dynamic;     /* zeroed = it is not dynamic */
    struct memory_queue *queue;     /* NULL = a queue pair of nic.h */
    uint32_t receive_depth;         /* of its own receive queue; 0 = it has none */
    uint32_t receives;              /* in that, as the hardware knows */
    uint32_t receives_posted;       /* likewise as this side knows */
    uint32_t withheld;              /* CRPC_ACCESS_REMOTE_*: what its peer may not do */
    bool receive_taken;             /* by the message that comes in now */
    uint32_t receive;               /* its place; of a message that has matched, that of the tag */
    uint8_t tagged;                 /* enum memory_tagged: that message */
    uint32_t tag_context;
    uint64_t tag;

    struct nic_ece ece;     /* as in struct nic_address */
    uint64_t identity;      /* its own memory_identity */
    uint64_t peer_identity; /* memory_identity of its peer; 0 = not connected */
    bool made;              /* the device has it, or had */
    bool unmade;            /* it has it no more */
    bool adopted;           /* and it may be used */
    bool connected;
    bool dead; /* in the error state; base.failed is set when the owner knows */
    bool cut;
    bool severed;      /* cut, or its nic's link is down: it sends nothing */
    bool open;         /* connected or dynamic, and neither dead nor severed: it accepts packets */
    bool halted;       /* a WQE has failed: later ones do not execute */
    bool answers_lost; /* the peer must be asked again what it has executed */
    bool payload_lost; /* the payload of the executing WRITE must be fetched again */

    struct memory_wqe *wqes;
    uint32_t wqe_mask;
    uint8_t *inline_bytes;
    struct nic_piece *pieces; /* NIC_PIECES_MAX for each WQE; NULL = none were posted yet */
    uint32_t inline_stride;
    uint32_t rung;
    uint32_t executed;
    uint32_t acknowledged;

    struct memory_held *held;        /* relaxed.c: newest first */
    struct memory_arrival *arrivals; /* oldest first */
    struct memory_arrival **arrivals_end;

    /* Time: schedule.c. */
    enum memory_stage stage;
    struct memory_span span;     /* of the executing WQE */
    uint64_t words_left;         /* likewise for a small READ: bit n = word n is not sampled yet */
    struct memory_span response; /* of the READ being acknowledged */
    bool response_started;
    bool stuck; /* packets have got no answer since stuck_since */
    uint64_t stuck_since;
    uint64_t stalled_until;
    uint64_t not_before[LANES];
    uint32_t active_index; /* in fabric->active */
};

/* ---- Queues with user data: queue.c ---------------------------------------------------------- */

struct memory_queue {
    struct nic_queue base;
    struct memory_nic *nic;
    struct memory_queue *next;      /* of the nic */
    struct memory_queue_pair *pair; /* NULL = an SRQ */
    struct memory_domain *domain;
    struct nic_piece *send_pieces;    /* base.send_pieces for each position */
    struct nic_piece *receive_pieces; /* likewise */
    uint32_t *receive_counts;         /* pieces of each receive */
    /* Places of posted receives, in their order. Of the free ones there is a list by `position`. */
    uint32_t *posted;
    uint32_t posted_head;
    uint32_t posted_rung;
    uint32_t posted_tail;
    uint32_t free_first;
    struct memory_stream *streams; /* of a DCI: dc.c */
    uint32_t streams_failed;       /* as the device knows; base has what was polled */
    uint64_t access_key;           /* of a DCT */
    struct memory_tags *tags;      /* tags.h; NULL = none */
    uint32_t limit;                /* of an SRQ; 0 = none, or it was reached */
    bool limit_reached;            /* and nobody was told */
};

/* ---- Fabrics: fabric.c ----------------------------------------------------------------------- */

struct memory_planned_failure {
    uint32_t countdown; /* 0 = none */
    int32_t status;
};

struct memory_fabric {
    struct memory_fabric_options options;
    struct memory_fabric_counters counters;
    struct random_generator random;
    memory_fabric_landing *landing;
    void *landing_argument;
    struct memory_planned_failure failures[MEMORY_FAIL_KINDS];

    struct memory_nic *nics;
    struct memory_queue_pair **by_number; /* NUMBER_SLOTS; index is number % NUMBER_SLOTS */
    uint32_t next_number;                 /* 0 = none was given yet */
    uint32_t *freed_numbers;              /* a stack, NUMBER_SLOTS */
    uint32_t freed_count;
    uint16_t next_key_salt;

    uint64_t held_order;               /* of what is held next: relaxed.c */
    uint64_t now;                      /* steps */
    struct memory_queue_pair **active; /* queue pairs with something under way; NUMBER_SLOTS */
    uint32_t active_count;
};

#endif
