/* queue.h: queues whose ops have user data, the part of a nic for core/queue. nic.h has the part for
 * calls and channels, and the rules: who may use a nic and its queues, and what the data path does not
 * do.
 *
 * A queue sends, receives, or both. It gives back the user data of each op, in the caller's array of
 * completions, whatever the order in which the device completes. Five kinds of tables do that
 * (nic/tracking.h). Which one a queue has follows from its options, and never changes:
 *
 *   DENSE      sends; every op completes. The device is asked for a CQE for the last WQE before each
 *              `ring`, for one in NIC_QUEUE_INTERVAL positions, and for those with NIC_WORK_SIGNAL. A
 *              CQE completes the ops before it, too
 *   SPARSE     sends; ops with NIC_WORK_SIGNAL complete, and others only if they fail. CQEs that
 *              nobody sees make room: one in a quarter of the ring
 *   UNORDERED  sends that complete in any order (a DCI's with streams); every op has a CQE
 *   RECEIVES   receives of one queue pair, in order
 *   SHARED     receives that several queue pairs share (SRQ), in any order
 *
 * The completion queues of a driver belong to one table each, so that its poll does not ask which
 * table a completion needs. A queue takes places in one of them when it is made. Their events are on
 * nic->event_fd, as those of nic.h are.
 *
 * An op completes exactly once: by nic_queue_operations.poll or, if its queue was stopped before, by
 * nic_queue_take_ended. */
#ifndef CORE_NIC_QUEUE_H
#define CORE_NIC_QUEUE_H

#include <stddef.h>
#include <string.h>

#include "nic/nic.h"
#include "nic/tracking.h"

/* ---- Ops ------------------------------------------------------------------------------------- */

enum nic_opcode {
    NIC_SEND = 1,
    NIC_SEND_IMMEDIATE,
    NIC_SEND_INVALIDATE,
    NIC_WRITE,
    NIC_WRITE_IMMEDIATE,
    NIC_READ,
    NIC_COMPARE_SWAP,
    NIC_FETCH_ADD,
    NIC_NOP,
    NIC_RECEIVE,
    NIC_TAG_ADD,    /* of a TM-SRQ, as the next ones: a buffer for one message whose tag matches */
    NIC_TAG_REMOVE, /* takes one back that no message has matched */
    NIC_TAG_SYNC,   /* the program has looked at all unexpected messages that polls have given */
    NIC_OPCODES,
};

#define NIC_WORK_SIGNAL 0x1u    /* asks for a completion of its own */
#define NIC_WORK_FENCE 0x2u     /* begins when all READs and atomics before it have ended */
#define NIC_WORK_SOLICITED 0x4u /* wakes a peer that waits for solicited messages only */
#define NIC_WORK_INLINE 0x8u  /* the payload travels in the WQE: it is read before `ring` returns */
#define NIC_WORK_PIECES 0x10u /* address and bytes say where in the array of pieces */

/* Memory of this side. A piece of 0 bytes is left out. */
struct nic_piece {
    uint64_t address;
    uint32_t bytes;
    uint32_t local_key; /* ignored if the payload is inline */
};

/* An op that sends, or concerns tags. It has the layout that it has for the application, so that arrays of them need
 * not be copied. */
struct nic_work {
    uint8_t opcode;
    uint8_t flags;   /* NIC_WORK_* */
    uint16_t stream; /* of a DCI with streams, below their number; otherwise ignored */
    /* *_IMMEDIATE: host byte order. SEND_INVALIDATE: the peer's key. TAG_SYNC: so many of the last messages
     * have not been looked at */
    uint32_t immediate;
    uint64_t user_data;
    uint64_t region; /* the caller's: its key is in another array */
    /* of the payload. PIECES: index of the first. COMPARE_SWAP: what to compare with */
    uint64_t address;
    uint32_t bytes;          /* of the payload. PIECES: how many */
    uint32_t remote_key;     /* WRITE, READ, atomics */
    uint64_t remote_address; /* the same; of atomics a multiple of 8. TAG_ADD: the tag */
    uint64_t operand; /* COMPARE_SWAP: the new value. FETCH_ADD: what is added. TAG_ADD: the mask.
                                TAG_REMOVE: user_data of the TAG_ADD */
    uint64_t target;  /* the caller's: `post_to` has it in another array */
};
static_assert(sizeof(struct nic_work) == 64, "an op is one cache line");

/* ---- Completions ----------------------------------------------------------------------------- */

/* Polls write crpc_completions. Members that are not listed here are 0.
 *
 *   kind                NIC_COMPLETION_WORK
 *   flags               NIC_DONE_*
 *   method              the opcode; NIC_RECEIVE for all that takes a receive
 *   status              CRPC_OK, or an enum nic_error below zero: -NIC_ERROR_FLUSHED
 *   endpoint, endpoint_user_data   of the queue; for a receive from an SRQ, and for a TAG_ADD with
 *                       NIC_DONE_MATCHED, of the queue over which the message came
 *   user_data           the op's
 *   token               COMPARE_SWAP, FETCH_ADD: what was there before. RECEIVE that a WRITE_IMMEDIATE
 *                       has taken: length of the WRITE. RECEIVE of a datagram: nic_source_token. RECEIVE
 *                       of a DCT: number of the queue pair that has sent, 0 where the device does not say,
 *                       and for a WRITE_IMMEDIATE its length in the upper half
 *                       NIC_DONE_MATCHED: the message's tag
 *   view                NIC_DONE_MATCHED: the context in the message's header
 *   payload_bytes       READ, RECEIVE, TAG_ADD: how much of the buffer was filled, with NIC_DONE_DETAIL.
 *                       A datagram is behind NIC_DATAGRAM_HEADER_BYTES, which count
 *   reply_bytes_max     the immediate in host byte order, or the key that the peer has invalidated;
 *                       after an error, the device's syndrome
 */
#define NIC_COMPLETION_WORK 13u
#define NIC_DONE_OF_QUEUE 0x2u
#define NIC_DONE_IMMEDIATE 0x4u
#define NIC_DONE_INVALIDATED 0x8u
#define NIC_DONE_DETAIL 0x10u  /* the op had a CQE of its own */
#define NIC_DONE_MATCHED 0x20u /* TAG_ADD: a message has matched; its header is not in the buffer */
#define NIC_DONE_OF_DCT 0x20u  /* RECEIVE: it came to a DCT, and so the token is that of one */
#define NIC_DONE_GRH 0x40u     /* the header of a datagram says where it comes from */
#define NIC_DONE_RENDEZVOUS                                                                        \
    0x40u /* TAG_ADD: what matched is a rendezvous request, and all of it is in the buffer, header too */
#define NIC_DONE_SYNC 0x80u /* RECEIVE: it has a tag, and nothing matched: TAG_SYNC is due */

/* What precedes every datagram in its receive: a global route header as it was in the packet (IBTA 8.3).
 * With RoCE v2 over IPv4 it is the IPv4 header, in the last 20 bytes (RoCEv2 annex, A17.4.5.2). Without
 * NIC_DONE_GRH it is undefined. */
#define NIC_DATAGRAM_HEADER_BYTES 40u

/* Who has sent a datagram: the number of its queue pair, in the lower half. On InfiniBand, what leads back
 * there without a GRH is above it. */
static inline uint64_t nic_source_token(uint32_t number, uint16_t lid, uint8_t service_level)
{
    return (number & 0xffffffu) | (uint64_t)lid << 32 | (uint64_t)(service_level & 0xfu) << 48;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

enum nic_queue_kind {
    NIC_QUEUE_RC = 1, /* a queue pair, to be connected */
    NIC_QUEUE_SRQ,    /* receives, for the queue pairs that name it */
    /* A queue pair for datagrams, which may be lost. Each SEND and SEND_IMMEDIATE goes to a target of its
     * own, has at most nic->mtu_bytes, and no fence. Whoever knows its queue key can send to it. It is usable at
     * once. When a send has failed, `flush` must end its receives, for which the device may go on. */
    NIC_QUEUE_UD,
    /* The dynamically connected transport: reliable, and the device connects by itself to where the next op
     * goes. A DCI sends: all but SEND_INVALIDATE, each op to a target of its own, and receives nothing. It is
     * usable at once. Without streams, its ops begin and complete in the order of the queue. With streams
     * (table UNORDERED), those of one stream do. */
    NIC_QUEUE_DCI = 4,
    /* Takes what DCIs send that know its access key, into the receives of an SRQ, and has WRITEs, READs and
     * atomics of its domain's memory done. It sends nothing. It is usable at once, and never fails because of
     * one DCI. */
    NIC_QUEUE_DCT = 5,
    /* An SRQ that matches tags, for RC queues that send, too: nic/tags.h. Up to nic->tags_max tags. */
    NIC_QUEUE_TM_SRQ = 6,
};

/* Receives that queue pairs share. */
static inline bool nic_kind_is_shared(uint32_t kind)
{
    return kind == NIC_QUEUE_SRQ || kind == NIC_QUEUE_TM_SRQ;
}

enum nic_queue_table {
    NIC_TABLE_DENSE,
    NIC_TABLE_SPARSE,
    NIC_TABLE_UNORDERED,
    NIC_TABLE_RECEIVES,
    NIC_TABLE_SHARED,
    NIC_TABLES,
};

#define NIC_QUEUE_INTERVAL                                                                         \
    128u /* DENSE: one CQE in so many positions, or in a quarter of the ring */
#define NIC_QUEUE_DEPTH_MAX 8192u /* limit of sends and receives */
#define NIC_QUEUE_PIECES_MAX 16u
#define NIC_QUEUE_INLINE_MAX 512u

struct nic_queue_options {
    uint32_t kind;
    uint32_t table; /* of its sends: DENSE or SPARSE; with streams UNORDERED, elsewhere for tests */
    uint64_t handle; /* completions show both */
    uint64_t user_data;
    struct nic_queue
        *receive_queue;   /* an SRQ, which outlives it; NULL = receives of its own. DCT: not NULL */
    uint32_t sends;       /* ops of the largest kind for which there is always room; 0 = none */
    uint32_t send_pieces; /* of an op, 1 to NIC_QUEUE_PIECES_MAX */
    uint32_t inline_bytes;   /* of an op, 0 to NIC_QUEUE_INLINE_MAX */
    uint32_t receives;       /* 0 = none, or an SRQ's */
    uint32_t receive_pieces; /* of a receive */
    uint32_t queue_key;      /* UD: of what it receives; below NIC_QUEUE_KEYS */
    /* DCI: 0 = none, or up to nic->streams_max. Then an op that fails ends its own stream alone: the open ops
     * of that stream complete with NIC_ERROR_FLUSHED, and so do new ones, until `reset_stream`. */
    uint32_t streams;
    /* DCI with streams: with so many failed streams the queue goes on; one more fails it. Raised to one less
     * than a power of two, and lowered to the device's limit, which may be 0: nic_queue has the result. */
    uint32_t stream_failures_max;
    uint32_t tags;       /* TM_SRQ: for how many there is a place, 1 to nic->tags_max */
    uint64_t access_key; /* DCT */
    /* RC: its first packet has number 0, not a random one, unless rdma_cm connects it */
    bool sequence_zero;
    struct nic_transport transport; /* DCI: of all its connections. Others: from nic.h's _connect */
};

#define NIC_QUEUE_KEYS 0x80000000u /* those above need rights that programs do not have */

/* What can change while a queue is in use. The mask says which members count. */
#define NIC_CHANGE_NOT_READY_TIMER 0x1u /* RC */
#define NIC_CHANGE_ACCESS 0x2u          /* RC */
#define NIC_CHANGE_RETRY_TIMEOUT 0x4u   /* RC: devices refuse this and the next two */
#define NIC_CHANGE_RETRY_COUNT 0x8u
#define NIC_CHANGE_RNR_TRIES 0x10u
#define NIC_CHANGE_QUEUE_KEY 0x20u /* UD */
#define NIC_CHANGE_SRQ_LIMIT 0x40u /* SRQ, TM_SRQ: of its ordinary receives */

struct nic_queue_change {
    uint32_t mask;            /* NIC_CHANGE_*, of the queue's kind; at least one */
    uint32_t not_ready_timer; /* as in struct nic_transport, but not 0 */
    uint32_t access;          /* CRPC_ACCESS_REMOTE_*: what the peer may do with memory that has the
                                 right, too */
    uint32_t retry_timeout;   /* as in struct nic_transport: this and the next two */
    uint32_t retry_count;
    uint32_t rnr_tries;
    uint32_t queue_key; /* as in struct nic_queue_options */
    /* The device tells, once, that a message has taken a receive and left fewer than so many; by the
     * asynchronous event IBV_EVENT_SRQ_LIMIT_REACHED, for core/cm. At most the options' receives; 0 = it
     * tells nothing. */
    uint32_t srq_limit;
};

struct nic_queue_stats {
    uint64_t sends;
    uint64_t receives;
    uint64_t doorbells;
    uint64_t signaled;
};

/* ---- Targets --------------------------------------------------------------------------------- */

/* Where an op goes: what verbs calls an address handle, with the number and the key of a queue pair
 * there. */
struct nic_target_options {
    uint32_t kind;      /* of the queues whose ops may name it: NIC_QUEUE_UD or NIC_QUEUE_DCI */
    uint32_t queue_key; /* UD: of the queue pair there; below NIC_QUEUE_KEYS */
    uint8_t service_level;
    struct nic_address
        address;         /* valid, and of this link; the sequence number and MTU are not used */
    uint64_t access_key; /* DCI: of the DCT there */
};

/* The part of a target that all drivers share. A driver's own struct begins with it. */
struct nic_target {
    struct nic *nic;
    uint32_t kind;
    uint32_t queue_pair_number;
    uint32_t queue_key;
    uint64_t access_key;
};

/* ---- Their insides --------------------------------------------------------------------------- */

/* The part of a queue that all drivers share. A driver's own struct begins with it. */
struct nic_queue {
    struct nic *nic;
    /* For nic.h's queue_pair_address and _connect, and for core/cm; NULL = an SRQ. No other function of
     * nic.h may have it, and its counters stay 0. Its owner is the queue. */
    struct nic_queue_pair *pair;
    struct nic_queue *receiver; /* whose receives its messages take: itself, an SRQ, or NULL */
    uint64_t handle;
    uint64_t user_data;
    uint32_t kind;
    uint32_t table; /* of its sends */
    uint32_t send_pieces;
    uint32_t inline_bytes;
    uint32_t receive_pieces;
    /* A completion was an error: the device has moved it, or its sends, to the error state. Not that of a
     * stream, unless too many have failed. */
    bool failed;
    bool stopped;          /* its queue pair or SRQ is gone */
    struct tracking sends; /* no entries = it cannot send */
    uint32_t unsignaled;   /* positions since the last WQE with a CQE */
    uint32_t interval;     /* so many have one at the latest */
    uint8_t quiet_state;   /* enum tracking_state of an op without NIC_WORK_SIGNAL */
    uint64_t *results;     /* what atomics have found, by position; NULL = nic->atomics is false */
    struct nic_keys results_keys;
    struct tracking receives; /* no entries = it has none of its own */
    uint32_t receives_open;
    uint32_t receives_max; /* how many may be open */
    uint32_t ended_first;  /* of the receives that complete without a CQE: a list of entries */
    uint32_t ended_last;
    uint32_t users; /* of an SRQ: the queues that name it and are not stopped */
    uint32_t queue_key;
    uint32_t streams; /* of a DCI; 0 = it has none, nor what follows */
    uint32_t stream_failures_max;
    uint32_t streams_failed;  /* now */
    uint64_t *failed_streams; /* one bit each */
    uint16_t *stream_ids;     /* of the ops, by position */
    struct nic_tags
        *tags; /* of a TM-SRQ, whose `sends` are the commands that concern them; NULL = none */
    struct nic_queue_stats stats;
};

#define NIC_QUEUE_NO_ENTRY UINT32_MAX

struct nic_queue_operations {
    /* Cold path. */
    /* The queue pair has to be connected; until then nothing may be posted but receives. The domain is
     * that of all its memory. */
    int32_t (*create)(struct nic *nic, struct nic_domain *domain,
                      const struct nic_queue_options *options, struct nic_queue **queue,
                      crpc_error *error);
    /* Changes a queue. One of the kind RC is connected; before that, only its access can change. Not for a DCI
     * or a DCT, of which nothing changes. Returns CRPC_OK; CRPC_E_UNSUPPORTED: the device does not let it
     * change. Then it is as it was. */
    int32_t (*modify)(struct nic_queue *queue, const struct nic_queue_change *change,
                      crpc_error *error);
    /* Moves a queue pair to the error state: what is open completes with NIC_ERROR_FLUSHED. Not for an SRQ or
     * a DCT, nor for a queue that was stopped. */
    void (*flush)(struct nic_queue *queue);
    /* Makes a stream that has failed usable again. The queue has it, and has not failed. Returns CRPC_OK, also
     * if the stream has not failed; CRPC_E_STATE: not all its ops have completed, which they must first;
     * CRPC_E_SYSTEM, and the stream is as before. */
    int32_t (*reset_stream)(struct nic_queue *queue, uint16_t stream, crpc_error *error);
    /* Destroys the queue pair or the SRQ, which no queue uses. No poll gives a completion of it
     * afterwards: nic_queue_take_ended gives what was open. That includes receives of an SRQ that
     * messages over this queue have taken. */
    void (*stop)(struct nic_queue *queue);
    /* Frees a stopped queue. */
    void (*destroy)(struct nic_queue *queue);
    /* For ops of queues that were created with this domain. May block while the system finds the way. */
    int32_t (*target_create)(struct nic *nic, struct nic_domain *domain,
                             const struct nic_target_options *options, struct nic_target **target,
                             crpc_error *error);
    /* No op is open that names it, unless its queue was stopped. */
    void (*target_destroy)(struct nic_target *target);

    /* Data path. The queue was not stopped. It has not failed either when ops are posted. An op is one that
     * its kind knows; payload and pieces are within the queue's limits and nic->message_bytes_max.
     * COMPARE_SWAP and FETCH_ADD need nic->atomics; they and NOP have no payload. Nothing is sent, or
     * received into, before `ring`. */
    /* Posts ops up to the first for which there is no room, and returns how many. local_keys[i] is that of
     * works[i], unless it has pieces. An array, because what one op costs is half calls and loads. */
    uint32_t (*post)(struct nic_queue *queue, const struct nic_work *works,
                     const uint32_t *local_keys, const struct nic_piece *pieces, uint32_t count);
    /* The same for a UD queue or a DCI: works[i] goes to targets[i]. NULL is for the NOP that a SPARSE queue
     * needs to drain, if its `interval` is above 1: in others each op has a CQE. UD has no other NOP. */
    uint32_t (*post_to)(struct nic_queue *queue, const struct nic_work *works,
                        struct nic_target *const *targets, const uint32_t *local_keys,
                        const struct nic_piece *pieces, uint32_t count);
    /* Returns false if there is no room. */
    bool (*receive)(struct nic_queue *queue, uint64_t user_data, const struct nic_piece *pieces,
                    uint32_t count);
    /* Posts a command of a TM-SRQ: an op with the opcode NIC_TAG_*. TAG_ADD has a piece, or NULL for messages
     * without payload. Returns false if there is no room. The device may have it before `ring`. */
    bool (*tag)(struct nic_queue *queue, const struct nic_work *work,
                const struct nic_piece *piece);
    /* Gives the device what was posted. */
    void (*ring)(struct nic_queue *queue);
    /* Fills up to `capacity` completions, and returns how many; fewer means that there are no more. *errors
     * counts those with an error. A table that fills a poll comes last in the next one, so none starves
     * another. */
    uint32_t (*poll)(struct nic *nic, crpc_completion *completions, uint32_t capacity,
                     uint32_t *errors);
    /* For nic_queue_take_ended: the place of a receive of an SRQ may be used again. */
    void (*give_back)(struct nic_queue *queue, uint32_t index);
};

/* What was left open in a stopped queue, or is to complete without a CQE in one that was not: of a SPARSE
 * queue only ops with NIC_WORK_SIGNAL, since others may have been done. Fills up to `capacity` completions
 * with the status -NIC_ERROR_FLUSHED, and returns how many. */
uint32_t nic_queue_take_ended(struct nic_queue *queue, crpc_completion *completions,
                              uint32_t capacity);

/* Finds where the datagram of this completion comes from: all of *source but the queue key. `header` is
 * what precedes the message. It comes from the network. Returns false if it leads nowhere. */
bool nic_datagram_source(const struct nic *nic, const crpc_completion *completion,
                         const uint8_t header[NIC_DATAGRAM_HEADER_BYTES],
                         struct nic_target_options *source);

/* Returns the number of positions for which there is room. */
static inline uint32_t nic_queue_send_room(const struct nic_queue *queue)
{
    return queue->sends.entries
               ? queue->sends.mask + 1 - (queue->sends.producer - queue->sends.consumer)
               : 0;
}

/* ---- For drivers ----------------------------------------------------------------------------- */

/* Returns CRPC_E_UNSUPPORTED, and says so, if queues or targets of this kind need what the nic lacks. */
int32_t nic_queue_check_kind(const struct nic *nic, uint32_t kind, crpc_error *error);
/* The common part of target_create: fills a zeroed struct. */
void nic_target_init(struct nic_target *target, struct nic *nic,
                     const struct nic_target_options *options);
/* For modify: asserts what it demands. */
void nic_queue_check_change(const struct nic_queue *queue, const struct nic_queue_change *change);
/* For modify: fills *error, which names what the device does not let change, and returns its status. */
int32_t nic_queue_refuse_change(const struct nic_queue *queue,
                                const struct nic_queue_change *change, int os_error,
                                crpc_error *error);
/* The common part of create: fills a zeroed struct. */
void nic_queue_init(struct nic_queue *queue, struct nic *nic,
                    const struct nic_queue_options *options);
/* Allocates the tables, when their lengths are known: powers of two, or 0. Returns false if there is no
 * memory. nic_queue_release frees them. */
bool nic_queue_make_tables(struct nic_queue *queue, uint32_t send_positions,
                           uint32_t receive_entries);
void nic_queue_release(struct nic_queue *queue);
/* Registers memory for the results of atomics, if the nic has them. nic_queue_end_results frees it, when
 * the device uses it no more. */
int32_t nic_queue_make_results(struct nic_queue *queue, struct nic_domain *domain,
                               crpc_error *error);
void nic_queue_end_results(struct nic_queue *queue);
/* It no longer uses the receives of an SRQ. */
void nic_queue_leave(struct nic_queue *queue);
/* A receive that completes without a CQE. */
void nic_queue_end_receive(struct nic_queue *queue, uint32_t index);
/* Puts it, or a place of tags, into the list of those. */
void nic_queue_append_ended(struct nic_queue *queue, uint32_t index);

/* stream.c: */
/* Sets stream_failures_max to what is asked for, as devices count: they fail a queue with 2^n failed streams.
 * Returns n, at most exponent_max. */
uint32_t nic_queue_grant_failures(struct nic_queue *queue, uint32_t exponent_max);
/* The op at this position completes with an error, perhaps not for the first time: its queue has failed, or its
 * stream alone. */
void nic_queue_send_failed(struct nic_queue *queue, uint32_t position, enum nic_error status);
bool nic_queue_stream_failed(const struct nic_queue *queue, uint16_t stream);
/* Parts of reset_stream: its refusal, if ops of the stream are open; and what follows the device's part, for a
 * stream that has failed. */
int32_t nic_queue_check_stream(const struct nic_queue *queue, uint16_t stream, crpc_error *error);
void nic_queue_renew_stream(struct nic_queue *queue, uint16_t stream);

/* Counts a WQE of so many positions. Returns true if it gets a CQE. */
static inline bool nic_queue_wants_cqe(struct nic_queue *queue, uint32_t flags, uint32_t positions)
{
    queue->unsignaled += positions;
    if (!(flags & NIC_WORK_SIGNAL) && queue->unsignaled < queue->interval) {
        return false;
    }
    queue->unsignaled = 0;
    queue->stats.signaled++;
    return true;
}

/* Returns true if the last WQE must get a CQE, now that the device is about to be told of it. */
static inline bool nic_queue_wants_last_cqe(struct nic_queue *queue)
{
    if (queue->table != NIC_TABLE_DENSE || queue->unsignaled == 0) {
        return false;
    }
    queue->unsignaled = 0;
    queue->stats.signaled++;
    return true;
}

/* The state of a WQE in the table: TRACKING_SIGNALED is reported when it completes with success, and
 * TRACKING_POSTED only if it fails. */
static inline enum tracking_state nic_queue_state(const struct nic_queue *queue, uint32_t flags)
{
    return flags & NIC_WORK_SIGNAL ? TRACKING_SIGNALED : (enum tracking_state)queue->quiet_state;
}

/* Returns the pieces of an op: its own, or *one, which is filled. */
static inline const struct nic_piece *nic_work_pieces(const struct nic_work *work,
                                                      uint32_t local_key,
                                                      const struct nic_piece *pieces,
                                                      struct nic_piece *one, uint32_t *count)
{
    if (work->flags & NIC_WORK_PIECES) {
        *count = work->bytes;
        return pieces + work->address;
    }
    *one =
        (struct nic_piece){.address = work->address, .bytes = work->bytes, .local_key = local_key};
    *count = 1;
    return one;
}

static inline bool nic_opcode_is_atomic(uint8_t opcode)
{
    return opcode == NIC_COMPARE_SWAP || opcode == NIC_FETCH_ADD;
}

/* Writes a completion without detail: each byte once. Of an initializer, the compiler writes the zeros of all,
 * and then the rest. */
static inline void nic_queue_done_of(crpc_completion *completion, uint64_t handle,
                                     uint64_t queue_user_data, uint8_t opcode, uint64_t user_data,
                                     int32_t status)
{
    static_assert(offsetof(crpc_completion, status) == 4 &&
                      offsetof(crpc_completion, endpoint) == 8 &&
                      offsetof(crpc_completion, token) == 24 &&
                      offsetof(crpc_completion, endpoint_user_data) == 56,
                  "this is what is written");
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "kind is the lowest byte of a word");
    const uint64_t head = (uint64_t)(uint32_t)status << 32 | (uint64_t)opcode << 16 |
                          NIC_DONE_OF_QUEUE << 8 | NIC_COMPLETION_WORK;
    memcpy(completion, &head, sizeof(head));
    completion->endpoint.bits = handle;
    completion->user_data = user_data;
    memset(&completion->token, 0, 32);
    completion->endpoint_user_data = queue_user_data;
}

static inline void nic_queue_done(crpc_completion *completion, const struct nic_queue *queue,
                                  uint8_t opcode, uint64_t user_data, int32_t status)
{
    nic_queue_done_of(completion, queue->handle, queue->user_data, opcode, user_data, status);
}

/* Adds to a receive of a DCT who has sent. */
static inline void nic_queue_received_from(crpc_completion *completion, uint32_t number)
{
    completion->token = completion->token << 32 | (number & 0xffffffu);
    completion->flags |= NIC_DONE_OF_DCT;
}

/* Says how much a receive has got. A WRITE fills nothing of its buffer, and may be longer than that. */
static inline void nic_queue_received(crpc_completion *completion, uint32_t bytes, bool written)
{
    if (written) {
        completion->token = bytes;
    } else {
        completion->payload_bytes = bytes;
    }
}

#endif
