/* sim.h: a deterministic simulation of queue engines over the in-memory NIC in scheduled mode, with an
 * rdma_cm that is as late as the generator wants. Everything follows from the seed. An oracle keeps each
 * op that was accepted: it completes exactly once, in order, with a status that something explains.
 *
 *   sim_act.c     what applications, devices and rdma_cm might do next
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

struct sim_op {
    struct sim_queue *queue; /* of a receive from an SRQ, that */
    uint8_t opcode;
    bool done;
    bool silent;    /* completes only if it fails */
    bool bad;       /* its remote key is wrong */
    bool too_short; /* a receive that no message fits */
};

struct sim_queue {
    struct queue *queue; /* NULL = closed */
    uint64_t handle;
    struct sim_engine *engine;
    struct sim_queue *srq;  /* that it receives from */
    struct sim_queue *peer; /* NULL = not known yet */
    bool is_srq;
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

/* What the report counts, in its order. */
enum sim_count {
    SIM_OPS,
    SIM_ERRORS,
    SIM_REFUSALS,
    SIM_CONNECTED,
    SIM_CLOSES,
    SIM_DRAINS,
    SIM_LOST,
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
    bool abrupt;                   /* all engines end while ops are open, and tasks may wait */
    bool calm;                     /* no trouble in this episode */
    bool impatient;                /* a peer without a receive fails a queue at once */
    uint64_t numbers[SIM_OPS_MAX]; /* what messages carry */
    uint64_t counts[SIM_COUNTS];   /* of all episodes */
};

/* sim_act.c */
void sim_poll(struct sim *sim, struct sim_engine *engine, uint32_t capacity);
void sim_close_queue(struct sim *sim, struct sim_queue *one);
struct sim_queue *sim_new_queue(struct sim *sim, struct sim_engine *engine);

/* sim_check.c */
void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion);
/* Nothing comes from an engine of which nothing waits. */
void sim_check_sleep(struct sim *sim, struct sim_engine *engine);

#endif
