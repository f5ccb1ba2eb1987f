/* fuzz_calls.h: what the fuzz target of calls consists of: a victim that has two connections, one
 * to an honest peer and one to a bad one, and what must hold whatever the bad one does.
 *
 *   fuzz_calls.c        what can happen, chosen by the input
 *   fuzz_calls_world.c  making and unmaking, books, what must hold
 *   fuzz_calls_lanes.c  lanes
 */
#ifndef CORE_RPC_TESTS_FUZZ_CALLS_H
#define CORE_RPC_TESTS_FUZZ_CALLS_H

#include "blob.h"
#include "link/tests/fuzz_world.h"

#define OPS_MAX 512u
#define TOKENS_MAX 64u
#define PAYLOAD_BYTES 8192u

enum op_state {
    OP_NONE = 0,
    OP_CALL,
    OP_REPLY,
    OP_LANE,
    OP_CANCEL,
    OP_OVER,
};

/* One end of the connection between the victim and the bad peer. Both ends are real and keep their
 * books; what the bad peer writes beside its engine makes it bad. */
struct end {
    enum who who;
    struct rpc_endpoint *endpoint; /* NULL once closed */
    uint64_t handle;
    bool connected;
    bool over;
    bool may_fail; /* to connect */
    bool room_due;
    bool reserved;
    crpc_op reservation;
    uint8_t *place;
    uint8_t ops[OPS_MAX];     /* enum op_state */
    uint32_t limits[OPS_MAX]; /* of the replies to calls */
    uint32_t op_count;
    uint32_t open;
    uint64_t tokens[TOKENS_MAX];
    uint32_t token_count;
};

struct world {
    struct memory_fabric *fabric;
    uint64_t clock_ns;
    struct log log;
    struct nic *nic[ENGINES];
    struct handles handles[ENGINES];
    struct rpc_engine *engine[ENGINES];
    struct cm late;                 /* the victim's, for an input that is late */
    struct rpc_endpoint *honest[2]; /* of the victim and of the honest peer */
    struct end ends[2];             /* of the victim and of the bad peer */
    uint64_t queue_pairs, regions;  /* without the bad peer's connection */
    uint32_t inputs;                /* that this world has seen */
    bool dynamic;                   /* its endpoints connect by DC, and have no lanes */
    uint64_t rounds;
    bool answered;
    /* What was written to the victim since it looked last. */
    uint64_t ahead_bytes;
    uint32_t ahead_batches;
};

extern struct world *world; /* of the input */
extern uint8_t payload[PAYLOAD_BYTES];

/* Books an op that may have been accepted. */
void end_booked(struct end *end, int32_t status, enum op_state state, const crpc_op *op);

/* Memory that is granted; it outlives the connections. */
void lanes_open(void);
void lanes_close(void);
/* Makes a word of the bad peer, which is nearly right. Returns how many bytes of its body there are. */
uint32_t lanes_word(struct fuzz_input *input, const struct rpc_endpoint *target,
                    struct wire_message *message, uint8_t body[LANE_GRANT_BYTES]);
/* The bad peer writes over its lane. */
void lanes_write(struct fuzz_input *input);
void lanes_act(struct fuzz_input *input, struct end *end);
/* An op of a lane has completed. */
void lanes_done(const struct end *end, const crpc_completion *one);

#endif
