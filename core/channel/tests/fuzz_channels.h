/* fuzz_channels.h: what the fuzz target of channels consists of: a victim that has two channels,
 * one to an honest peer and one to a bad one, and what must hold whatever the bad one does.
 *
 *   fuzz_channels.c        what can happen, chosen by the input
 *   fuzz_channels_write.c  what the bad peer writes
 *   fuzz_channels_world.c  making and unmaking, books, what must hold
 */
#ifndef CORE_CHANNEL_TESTS_FUZZ_CHANNELS_H
#define CORE_CHANNEL_TESTS_FUZZ_CHANNELS_H

#include "blob.h"
#include "link/tests/fuzz_world.h"

#define OPS_MAX 512u
#define MEMORY_BYTES (64u << 10)
#define BUFFERS_BYTES (32u << 10) /* of it for the bad peer's channel */
#define BUFFER_BYTES_MAX 3000u
#define WQE_BYTES_MAX 2000u
#define TAGS 3u

enum op_state {
    OP_NONE = 0,
    OP_SEND,
    OP_RECEIVE,
    OP_CANCEL,
    OP_OVER,
};

struct op {
    uint8_t state; /* enum op_state */
    uint32_t bytes;
    uint64_t address;
};

/* One end of the channel between the victim and the bad peer. Both ends are real and keep their
 * books; what the bad peer writes beside its engine makes it bad. */
struct end {
    enum who who;
    struct channel *channel; /* NULL once closed */
    uint64_t handle;
    bool connected;
    bool never; /* it could not connect */
    bool over;
    bool room_due;
    struct op ops[OPS_MAX];
    uint32_t op_count;
    uint32_t open;
};

struct world {
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct log log;
    struct nic *nic[ENGINES][CHANNEL_RAILS_MAX];
    struct handles handles[ENGINES];
    struct channel_engine *engine[ENGINES];
    uint8_t *memory[ENGINES];
    struct registrar registrar[ENGINES];
    struct registration region[ENGINES];
    struct nic_keys open_keys[CHANNEL_RAILS_MAX]; /* for all memory of BAD: anybody may write it */
    struct cm late;                               /* the victim's, for an input that is late */
    struct channel *honest[2];                    /* of the victim and of the honest peer */
    bool honest_connected[2];
    struct end ends[2];            /* of the victim and of the bad peer */
    uint64_t queue_pairs, regions; /* without the bad peer's channel */
    uint32_t inputs;               /* that this world has seen */
    uint64_t rounds;
    uint32_t completed; /* ops of the round */
    uint32_t ahead;     /* control messages that the victim has not looked at */
};

extern struct world world;

/* The bad peer writes. */
void bad_writes(struct fuzz_input *input);

#endif
