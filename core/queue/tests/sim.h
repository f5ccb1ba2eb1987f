/* sim.h: a deterministic simulation of queue engines over the in-memory NIC in scheduled mode, with an
 * rdma_cm that is as late as the generator wants. Everything follows from the seed. An oracle keeps each
 * op that was accepted: it completes exactly once, in order, with a status that something explains.
 *
 *   sim_act.c     what applications, devices and rdma_cm might do next
 *   sim_datagram.c   likewise of queues for datagrams, and what must hold of these
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

struct sim_op {
    struct sim_queue *queue; /* of a receive from an SRQ, that */
    uint8_t opcode;
    bool done;
    bool silent;          /* completes only if it fails */
    bool bad;             /* its key is wrong: the remote one, or a datagram's local one */
    bool too_short;       /* a receive that no message fits */
    struct sim_queue *to; /* a datagram that has got a key which is right there */
    bool arrived;
};

struct sim_queue {
    struct queue *queue; /* NULL = closed */
    uint64_t handle;
    struct sim_engine *engine;
    struct sim_queue *srq;  /* that it receives from */
    struct sim_queue *peer; /* NULL = not known yet */
    bool is_srq;
    bool is_datagrams;
    uint32_t number; /* of its queue pair, if it is */
    bool sparse;
    bool asked; /* it waits to be accepted */
    bool by_rdma_cm;
    bool made;         /* it has its options */
    bool connected;    /* CONNECTED was seen with success */
    bool refused;      /* and without */
    bool disconnected; /* DISCONNECTED was seen */
    bool closed;
    bool draining;
    bool room_due;
    uint32_t next_send; /* the lowest number that its next send may have */
    uint64_t sent;      /* messages */
    uint64_t received;
    uint64_t acknowledged; /* messages whose SEND completed with success */
    bool flushed;          /* a send */
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
    bool abrupt;                   /* all engines end while ops are open, and tasks may wait */
    bool calm;                     /* no trouble in this episode */
    bool impatient;                /* a peer without a receive fails a queue at once */
    uint64_t numbers[SIM_OPS_MAX]; /* what messages carry */
    uint64_t counts[SIM_COUNTS];   /* of all episodes */
};

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

/* sim_act.c */
void sim_expect_made(struct sim *sim, struct sim_queue *one, int32_t status);
void sim_poll(struct sim *sim, struct sim_engine *engine, uint32_t capacity);
void sim_close_queue(struct sim *sim, struct sim_queue *one);
struct sim_queue *sim_new_queue(struct sim *sim, struct sim_engine *engine);

/* sim_check.c */
void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion);
/* Nothing comes from an engine of which nothing waits. */
void sim_check_sleep(struct sim *sim, struct sim_engine *engine);

#endif
