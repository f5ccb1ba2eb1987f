/* dc_oracle.h: what dc_simulation.c knows of each op, and checks when it completes. */
#ifndef CORE_NIC_TESTS_DC_ORACLE_H
#define CORE_NIC_TESTS_DC_ORACLE_H

#include "nic/memory/random.h"
#include "nic/queue.h"

#define NICS 3u
#define DCTS 6u /* two of each nic */
#define DCIS 6u
#define TARGETS 4u /* of each DCI */
#define STREAMS 12u
#define OPS_MAX 20000u /* of an episode */
#define CONSTANTS 64u  /* slots that are only read; before them is the word for atomics */
#define SLOT_BYTES 32u
#define SLOTS (1u + CONSTANTS + OPS_MAX) /* each op has one of its own, here and there */
#define BYTES (SLOTS * SLOT_BYTES)
#define TOLD UINT32_MAX /* the immediate of all WRITEs */

enum op_state { OP_OPEN = 1, OP_DONE };

struct op {
    struct nic_queue *queue; /* NULL = it is gone */
    uint64_t old;            /* FETCH_ADD: what was found, plus 1 */
    uint64_t life;           /* of the DCT that it went to */
    uint32_t source;         /* number of its DCI */
    uint32_t dct;            /* index */
    uint16_t stream;
    uint8_t state;
    uint8_t opcode;
    uint8_t arrived; /* a message: how often */
    bool silent;     /* completes only if it fails */
    bool correct;    /* nothing is wrong with it */
    bool good;       /* it has succeeded */
};

struct dct {
    struct nic_queue *queue;
    uint32_t nic;
    uint64_t life; /* and its access key */
};

struct aim {
    struct nic_target *target;
    uint32_t dct;
    uint64_t life; /* 0 = the key is wrong */
};

struct dci {
    struct nic_queue *queue;
    uint32_t nic;
    struct aim aims[TARGETS];
    uint64_t next[STREAMS];               /* user data of the next to complete is not below */
    uint64_t next_message[STREAMS][DCTS]; /* likewise, to arrive there */
    uint32_t open[STREAMS];               /* without those that are silent */
    bool failed[STREAMS];
    bool struck; /* it was killed, or flushed */
};

struct world {
    struct memory_fabric *fabric;
    struct random_generator random;
    struct nic *nics[NICS];
    struct nic_keys keys[NICS];
    uint8_t *memory[NICS];
    struct nic_queue *srqs[NICS];
    struct dct dcts[DCTS];
    struct dci dcis[DCIS];
    struct op *ops;
    uint32_t op_count;
    uint64_t lives;
    uint32_t adds[NICS];
    uint64_t seed;
};

/* What was seen. */
struct tally {
    uint64_t completed, errors, messages, overtaken;
};

extern struct tally tally;

__attribute__((noreturn, format(printf, 2, 3))) void blame(const struct world *world,
                                                           const char *format, ...);
/* Slot 0 of a nic has the word for atomics, and those behind it constants: their number. */
uint8_t *slot_of(const struct world *world, uint32_t nic, uint64_t slot);
uint64_t op_slot(uint64_t number);

/* `ended`: nic_queue_take_ended has given it. */
void check_done(struct world *world, const crpc_completion *done, bool ended);
/* All ops of a queue that is gone have completed; silent ones perhaps not. */
void check_closed(struct world *world, const struct nic_queue *queue);
/* When nothing is under way: each FETCH_ADD of 1 has found another number, and each message that was sent has
 * arrived where it could. */
void check_all(struct world *world);

#endif
