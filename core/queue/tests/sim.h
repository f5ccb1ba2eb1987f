/* sim.h: a deterministic simulation of queue engines over the in-memory NIC in scheduled mode, with an
 * rdma_cm that is as late as the generator wants. Everything follows from the seed. An oracle keeps each
 * op that was accepted: it completes exactly once, in order, with a status that something explains.
 *
 *   sim_act.c     what applications, devices and rdma_cm might do next
 *   sim_make.c    likewise: making queues, and connecting them
 *   sim_datagram.c   likewise of queues for datagrams and of targets, and what must hold of these
 *   sim_dc.c      likewise of DCIs, their streams, and DCTs
 *   sim_tags.c    likewise of TM-SRQs
 *   sim_check.c   what a poll gave, and what must hold
 *   simulate.c    the world, the end of an episode, command line, TAP
 */
#ifndef CORE_QUEUE_TESTS_SIM_H
#define CORE_QUEUE_TESTS_SIM_H

#include "link/tests/simulation.h"
#include "queue/internal.h"
#include "queue/tests/fake_cm.h"

#define SIM_ENGINES_MAX 3
#define SIM_QUEUES_MAX 96 /* of an episode, with those that are closed */
#define SIM_OPS_MAX 8192
#define SIM_SLOT_BYTES 64
#define SIM_SLOTS 64 /* for WRITEs, READs and atomics; each op has one more behind them */
#define SIM_MEMORY_BYTES ((SIM_SLOTS + SIM_OPS_MAX) * SIM_SLOT_BYTES)
#define SIM_CAPACITY_MAX 24
#define SIM_TARGETS_MAX 32
#define SIM_STREAMS_MAX 5
#define SIM_TAGS 4 /* different ones; few, so that messages often match */

struct sim_op {
    struct sim_queue *queue; /* of a receive from an SRQ, that */
    uint8_t opcode;
    bool done;
    bool silent;          /* completes only if it fails */
    bool bad;             /* its key is wrong: the remote one, or a datagram's local one */
    bool too_short;       /* a receive that no message fits, or a tag's buffer */
    int32_t status;       /* when it is done */
    uint64_t tag, mask;   /* of a TAG_ADD */
    bool wanted_back;     /* a TAG_REMOVE has named it */
    uint32_t named;       /* by a TAG_REMOVE */
    struct sim_queue *to; /* of a datagram, or a DCI's, that has got a key which is right there */
    bool arrived;
    bool acknowledged; /* a DCI's message that completed with success */
    uint16_t stream;
    uint32_t resets; /* of its stream, when it was accepted */
};

/* Of a DCI; one without streams has one. */
struct sim_stream {
    uint32_t resets;
    uint32_t open;          /* ops that have not completed */
    bool failed;            /* an op has, since the last reset */
    uint32_t failed_number; /* which */
    uint32_t next_send;     /* as in struct sim_queue */
    struct sim_queue *arrived_to;
    uint32_t arrived_number; /* of the last message there */
};

struct sim_queue {
    struct queue *queue; /* NULL = closed */
    uint64_t handle;
    struct sim_engine *engine;
    struct sim_queue *srq;  /* that it receives from */
    struct sim_queue *peer; /* NULL = not known yet */
    bool is_srq;
    bool is_datagrams;
    bool is_tags;        /* an SRQ, too */
    uint32_t unexpected; /* messages without a match that its polls have given */
    uint32_t looked_at;  /* of these, when a TAG_SYNC was accepted */
    uint32_t
        last_unexpected[SIM_TAGS]; /* of a connection: the count with the last message of the tag */
    bool is_dci;
    bool is_dct;
    uint32_t number; /* of its queue pair, if it is one of these */
    uint32_t streams;
    uint32_t failures_max;
    bool too_many; /* streams have failed at the same time */
    bool hurt;     /* something was done to its queue pair */
    struct sim_stream stream[SIM_STREAMS_MAX];
    bool sparse;
    bool asked; /* it waits to be accepted */
    bool by_rdma_cm;
    bool made;         /* it has its options */
    bool connected;    /* CONNECTED was seen with success */
    bool refused;      /* and without */
    bool disconnected; /* DISCONNECTED was seen */
    bool closed;
    bool closed_joining; /* while its queue pair was being connected: that may still get messages */
    bool draining;
    bool room_due;
    bool limit_due;       /* of an SRQ: its device has told, and the application has not heard */
    uint32_t limits_told; /* how often its device has */
    uint32_t limits_heard;
    uint32_t next_send; /* the lowest number that its next send may have */
    uint64_t sent;      /* messages */
    uint64_t received;
    uint64_t acknowledged; /* messages whose SEND completed with success */
    bool flushed;          /* a send */
    bool ended_by_us; /* failed, or when its time is over: what fails later is not the reason */
    bool unreachable; /* an op found no answer: the peer's leaving may say more */
    int32_t reason;   /* of the op that failed first, but for that */
};

struct sim_engine {
    struct nic *nic;
    struct queue_engine *engine;
    struct handles handles;
    struct cm cm;
    struct nic_keys keys;
    struct link_listener *listener;
    char address[32];
    bool lost; /* its device */
    _Alignas(64) uint8_t memory[SIM_MEMORY_BYTES];
};

struct sim_target {
    struct queue_target *target; /* NULL = none */
    struct sim_engine *engine;
    struct sim_queue *to; /* NULL: its key is wrong */
    uint32_t kind;
};

/* What a message of a connection brings: the number alone, or all, and then it has a tag. The number says who has sent
 * it, and how many before. */
struct sim_message {
    uint8_t header[NIC_TAG_HEADER_BYTES];
    uint64_t number;
};

/* What the report counts, in its order. */
enum sim_count {
    SIM_OPS,
    SIM_ERRORS,
    SIM_REFUSALS,
    SIM_CONNECTED,
    SIM_CLOSES,
    SIM_DRAINS,
    SIM_LOST,
    SIM_DATAGRAMS,
    SIM_DC_MESSAGES,
    SIM_MATCHES,
    SIM_REMOVED,
    SIM_STREAMS_FAILED,
    SIM_RESETS,
    SIM_LIMITS,
    SIM_COUNTS
};

struct sim {
    struct simulation base;
    struct sim_engine engines[SIM_ENGINES_MAX];
    uint32_t engine_count;
    struct sim_queue queues[SIM_QUEUES_MAX];
    uint32_t queue_count;
    struct sim_op ops[SIM_OPS_MAX];
    uint32_t op_count;
    struct sim_target targets[SIM_TARGETS_MAX];
    bool abrupt;    /* all engines end while ops are open, and tasks may wait */
    bool calm;      /* no trouble in this episode */
    bool much_dc;   /* most queues are DCIs, DCTs and SRQs */
    bool much_tags; /* most are RC queues and TM-SRQs */
    bool impatient; /* a peer without a receive fails a queue at once */
    struct sim_message messages[SIM_OPS_MAX];
    uint64_t counts[SIM_COUNTS]; /* of all episodes */
};

static inline uint32_t below(struct sim *sim, uint32_t bound)
{
    return random_below(&sim->base.random, bound);
}

static inline bool chance(struct sim *sim, uint32_t percent)
{
    return random_percent(&sim->base.random, percent);
}

static inline uint32_t index_of(const struct sim *sim, const struct sim_queue *one)
{
    return (uint32_t)(one - sim->queues);
}

/* sim_datagram.c */
void sim_open_datagrams(struct sim *sim, struct sim_queue *one,
                        const struct queue_options *options);
void sim_change_targets(struct sim *sim);
/* Submits one, which may be refused. Returns false if it was, or if there is no target. */
bool sim_send_datagram(struct sim *sim, struct sim_queue *one, int32_t *reason);
/* The receive with this number has taken a datagram. */
void sim_check_datagram(struct sim *sim, struct sim_queue *one, uint32_t number,
                        const crpc_completion *completion);
/* Nothing is open any more: no target is kept for it. */
void sim_check_targets(struct sim *sim);
/* Of this engine and kind; NULL = hardly any. */
struct sim_target *sim_any_target(struct sim *sim, const struct sim_engine *engine, uint32_t kind);
void sim_close_target(struct sim_target *target);

/* sim_dc.c */
void sim_open_dci(struct sim *sim, struct sim_queue *one, const struct queue_options *options);
void sim_open_dct(struct sim *sim, struct sim_queue *one);
uint64_t sim_access_key(const struct sim *sim, const struct sim_queue *one);
/* As sim_send_datagram, of any op. */
bool sim_send_to_dct(struct sim *sim, struct sim_queue *one, int32_t *reason);
void sim_reset_stream(struct sim *sim, struct sim_queue *one);
/* What must have happened for this status of a DCI's op. */
bool sim_explains_dci(const struct sim *sim, const struct sim_op *op,
                      const crpc_completion *completion);
/* An op of a DCI has completed. */
void sim_take_of_dci(struct sim *sim, struct sim_queue *one, struct sim_op *op, int32_t status);
/* The receive with this number has taken a message of a DCI. */
void sim_check_dc_message(struct sim *sim, struct sim_queue *one, uint32_t number,
                          const crpc_completion *completion);
/* What ends a DCI with streams but an op of one. */
bool sim_is_ending(const struct sim_queue *one);
/* Before anything is closed: what must have arrived has, and the driver counts as the oracle. */
void sim_check_dc(struct sim *sim);

/* sim_tags.c */
/* Of the next message of this queue after so many. */
uint64_t sim_message_number(const struct sim *sim, const struct sim_queue *one, uint64_t sent);
/* Over which connection a message has come that completes at this queue, in a receive at this place: the queue, or
 * one that was closed, of whose TM-SRQ it is if the engine had kept it. */
struct sim_queue *sim_connection_of(struct sim *sim, struct sim_queue *one, const uint8_t *place,
                                    const crpc_completion *completion);
/* Puts a tag in front of a message, perhaps. Returns where it begins, and how long it is. */
uint64_t sim_choose_message(struct sim *sim, uint32_t number, uint32_t *bytes);
/* Submits one, which may be refused. Returns false if it was. */
bool sim_submit_tag(struct sim *sim, struct sim_queue *one, int32_t *reason);
/* What must have happened for this status of an op that concerns tags. */
bool sim_explains_tag(const struct sim *sim, const struct sim_op *op, const struct sim_queue *one,
                      const crpc_completion *completion);
/* Such an op has completed: at its TM-SRQ, or at the connection over which the message came. */
void sim_take_tag(struct sim *sim, struct sim_queue *one, uint32_t number,
                  const crpc_completion *completion);
/* A receive has taken a message. Returns where it brings its number. */
const uint8_t *sim_check_unexpected(struct sim *sim, struct sim_queue *one, const uint8_t *place,
                                    const crpc_completion *completion);

/* sim_make.c */
struct sim_engine *sim_any_engine(struct sim *sim);
/* One that is not closed. NULL = hardly any. */
struct sim_queue *sim_any_queue(struct sim *sim);
struct sim_queue *sim_new_queue(struct sim *sim, struct sim_engine *engine);
/* NULL = hardly any. */
struct sim_queue *sim_any_srq(struct sim *sim, const struct sim_engine *engine);
/* Only a lost device, and too many queues, are a reason not to. */
void sim_expect_made(struct sim *sim, struct sim_queue *one, int32_t status);
/* Makes a queue, or two that connect. */
void sim_make_something(struct sim *sim);
/* Accepts or rejects a queue that asks. */
void sim_answer(struct sim *sim, struct sim_queue *one);

/* sim_act.c */
void sim_poll(struct sim *sim, struct sim_engine *engine, uint32_t capacity);
void sim_close_queue(struct sim *sim, struct sim_queue *one);
/* What the devices have told since of limits of SRQs. */
void sim_tell_limits(struct sim *sim);

/* sim_check.c */
void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion);
/* Nothing comes from an engine of which nothing waits. */
void sim_check_sleep(struct sim *sim, struct sim_engine *engine);

#endif
