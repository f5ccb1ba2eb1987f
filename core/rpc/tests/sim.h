/* sim.h: a deterministic simulation of engines over the in-memory NIC in scheduled mode.
 *
 * Everything follows from the seed. A *side* is one end of a connection; its book has every call
 * it ever made, and since the simulation sees both ends, whatever arrives anywhere is compared
 * with the book.
 *
 *   sim_world.c    making and unmaking: fabric, engines, connections, payloads
 *   sim_act.c      what an application might do next
 *   sim_check.c    what a poll gave, and what must hold
 *   sim_lane.c     the same of lanes
 *   sim_gather.c   payloads from regions
 *   sim_arena.c    payloads that land in arenas
 *   sim_trace.c    calls with traces
 *   simulate.c     episodes, command line, TAP
 */
#ifndef CORE_RPC_TESTS_SIM_H
#define CORE_RPC_TESTS_SIM_H

#include "blob.h"
#include "link/tests/late_cm.h"
#include "link/tests/simulation.h"

#define SIM_ENGINES_MAX 3
#define SIM_SIDES_MAX 8
#define SIM_CALLS_MAX 4096
#define SIM_REQUESTS_MAX 128
#define SIM_VIEWS_MAX 64
#define SIM_SLOTS 128u    /* words of a lane's memory */
#define SIM_LANE_OPS 256u /* more than are ever open */
#define SIM_GATHER_SLOTS 6u
#define SIM_GATHER_BYTES 8192u
#define SIM_PLACES 3u
#define SIM_PLACE_BYTES 8192u

struct sim_call {
    uint32_t request_bytes;
    uint32_t reply_bytes_max;
    uint32_t reply_bytes;
    int32_t reply_status; /* as the peer gave it; CRPC_E_DROPPED */
    uint16_t method;
    bool has_deadline;
    uint64_t timeout_ns;
    bool cancel_asked;
    bool delivered; /* to the peer's application */
    bool replied;
    bool completed;
    bool abandoned;   /* as the peer was told */
    bool told;        /* its trace goes with it, if the peer takes that */
    bool told_placed; /* likewise, if its payload goes to an arena */
    bool may_vanish;  /* it has not left at once, and its payload would go to an arena */
    int32_t status;
    uint32_t after_slot; /* what the peer's box must have there at least when the call comes */
    uint64_t after;      /* 0 = anything */
};

struct sim_lane_op {
    uint8_t opcode;
    bool done;
    uint32_t slot;     /* in the peer's box */
    uint32_t own;      /* in this side's memory */
    uint64_t expected; /* READ: at least. Atomics: what they find */
};

/* What a side does with its lane. Its box is what it grants. */
struct sim_lane {
    bool used;     /* the side has asked for a lane */
    uint32_t life; /* of it, as last seen */
    bool troubled; /* its queue pair was cut or killed */
    bool gives;    /* the peer may have a right to the box */
    bool told;     /* `bytes` are those of a grant, which was not revoked */
    uint8_t bytes[LANE_GRANT_BYTES];
    uint64_t grant;             /* handle of that */
    struct nic_piece pieces[3]; /* of the op that is being submitted */
    struct lane_grant *taken;   /* the peer's; NULL = none, or not open */
    uint32_t taken_life;        /* of the last one */
    uint64_t op_count;
    uint64_t op_done; /* all before it have completed */
    uint64_t completed;
    struct sim_lane_op ops[SIM_LANE_OPS];
    uint64_t wrote[SIM_SLOTS]; /* to the peer's box */
    uint32_t last_slot;
    uint64_t changed; /* by atomics */
    uint32_t users;
    struct nic_keys keys;
    struct {
        uint64_t box[SIM_SLOTS];
        uint64_t source[SIM_SLOTS];
        uint64_t landing[SIM_SLOTS];
    } memory;
};

/* A payload in a region, until its op has completed. */
struct sim_gather_slot {
    uint8_t bytes[SIM_GATHER_BYTES];
    bool used;
    uint8_t opcode;
    uint64_t user_data;
};

struct sim_gather {
    uint32_t users;
    struct rpc_region region; /* of all slots */
    struct sim_gather_slot slots[SIM_GATHER_SLOTS];
};

struct sim_view {
    const uint8_t *address; /* NULL = none */
    uint32_t bytes;
    uint64_t key;
};

/* An arena that a side lends. */
struct sim_arena {
    uint32_t users;
    uint32_t places; /* 0: not lent */
    struct rpc_region region;
    struct sim_view held[SIM_PLACES];
    uint8_t memory[SIM_PLACES * SIM_PLACE_BYTES] __attribute__((aligned(16)));
};

struct sim_request {
    uint64_t token;
    uint32_t number; /* in the peer's book */
};

struct sim_side {
    struct sim *sim;
    uint32_t index;
    struct sim_engine *engine;
    struct sim_side *peer;
    struct rpc_endpoint *endpoint; /* NULL once closed */
    uint64_t handle;
    struct nic_queue_pair *queue_pair;
    struct sim_call calls[SIM_CALLS_MAX];
    uint32_t call_count;
    uint32_t calls_completed;
    uint32_t requests_seen; /* of the peer's book */
    struct sim_request requests[SIM_REQUESTS_MAX];
    uint32_t request_count;
    uint64_t replies_submitted; /* not quiet */
    uint64_t replies_completed;
    uint64_t cancels_submitted;
    uint64_t cancels_completed;
    bool connected_seen;
    bool disconnected_seen;
    bool leave_asked;       /* by this side's application */
    bool leave_timed;       /* with a timeout */
    bool closed;            /* likewise */
    uint64_t words_address; /* where the peer writes what it says of its key; 0 = without one */
    bool other_key;         /* the peer has another one */
    bool troubled;          /* a cut or kill reached the connection */
    bool lied_to;           /* something malformed was written to its ring */
    bool room_due;          /* an op got AGAIN */
    bool reserved;
    crpc_op reservation;
    uint8_t *reserved_place;
    uint32_t reserved_request; /* index in requests, of a reserved reply */
    struct sim_lane lane;
    struct sim_gather gather;
    struct sim_arena arena;
};

/* A malformed batch. */
struct sim_lie {
    struct wire_batch header;
    struct wire_message message[4]; /* the second and fourth stand for payload */
};

struct sim_engine {
    struct nic *nic;
    struct rpc_engine *engine;
    struct handles handles;
    struct cm cm; /* if the episode is late */
    struct sim_view views[SIM_VIEWS_MAX];
    uint32_t view_count;
};

/* What the report counts, in its order. */
enum sim_count {
    SIM_CALLS,
    SIM_REFUSALS,
    SIM_LATE,
    SIM_READS,
    SIM_LIES,
    SIM_LIES_NOTICED,
    SIM_KEYS,
    SIM_KEYS_REFUSED,
    SIM_TASKS,      /* done late */
    SIM_TASKS_OVER, /* of them: the link had failed or was closed */
    SIM_LANE_ACCEPTED,
    SIM_GRANTS,
    SIM_REVOKES,
    SIM_LIVES, /* lanes made again */
    SIM_GATHERED,
    SIM_PLACED,
    SIM_VANISHED,
    SIM_RINGS_GROWN,
    SIM_WINDOWS_BACK,
    SIM_ABANDONED,
    SIM_NOT_STARTED,
    SIM_DYNAMIC_CALLS,
    SIM_TRACED,
    SIM_HELD, /* pieces of payloads that landed late */
    SIM_COUNTS
};

struct sim {
    struct simulation base;
    bool scarce; /* there are not as many receives as all windows might want */
    struct sim_engine engines[SIM_ENGINES_MAX];
    uint32_t engine_count;
    uint32_t side_count;
    bool calm;     /* no trouble in this episode */
    uint32_t lazy; /* this engine seldom polls, so that its peers get far ahead of it */
    /* Of what the library does off the poll. */
    struct late_times late;
    uint32_t initiators; /* of each engine, whose endpoints are dynamic; 0 = they are not */
    bool lanes;          /* some connections have them */
    struct random_generator lane_random;
    struct random_generator run_random; /* whether ops come one by one */
    struct random_generator age_random; /* which engines are older */
    struct random_generator trace_random;
    struct random_generator gather_random;
    uint32_t gather_percent; /* of the messages */
    int gather_fd;
    struct random_generator arena_random;
    uint32_t arena_percent; /* of the steps */
    bool abrupt;            /* all engines end while tasks may wait */
    bool heavy;             /* most messages are as long as they can be, so that rings fill up */
    struct sim_side sides[SIM_SIDES_MAX]; /* each begins with its own connection */
    uint64_t counts[SIM_COUNTS];          /* of all episodes */
};

/* sim_world.c */
/* The bytes that a request or reply of a side's call has. */
uint64_t sim_key(const struct sim_side *side, uint32_t number, bool reply);
/* Does what is late: some of it, or all. */
void sim_late(struct sim *sim, bool all);

/* sim_act.c */
void sim_poll(struct sim_engine *engine, struct sim *sim, uint32_t capacity);
/* Answers the oldest request, if there is one. */
bool sim_answer(struct sim_side *side);
void sim_finish_reservation(struct sim_side *side);

/* sim_check.c */
struct sim_side *sim_side_of(struct sim *sim, const struct sim_engine *engine, uint64_t handle);
/* True if the connection may end badly: trouble, a close at once, or a leave with a time limit. */
/* Both sides know of deadlines and of calls that are abandoned. */
bool sim_tells(const struct sim_side *side);
bool sim_excused(const struct sim_side *side);
void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion);
void sim_check_views(struct sim *sim, struct sim_engine *engine);
void sim_check_engine(struct sim *sim, const struct sim_engine *engine);
void sim_watch(void *argument, struct nic *target, uint32_t queue_pair_number, uint64_t address,
               uint32_t bytes);

/* sim_gather.c */
void sim_gather_open(struct sim *sim, uint64_t seed);
void sim_gather_side(struct sim_side *side);
/* All engines have ended: nothing is in use. */
void sim_gather_close(struct sim *sim);
/* Whether the next message is to have its payload in the region. */
bool sim_gather_wanted(struct sim *sim);
/* Submits a CALL, or a REPLY that is not quiet, with its payload in the region if that has room. Returns as rpc_call. */
int32_t sim_gather_submit(struct sim_side *side, const crpc_op *op, const void *bytes);
/* An op has completed: its payload may change. */
void sim_gather_done(struct sim_side *side, uint8_t opcode, uint64_t user_data);

/* sim_trace.c */
/* The call that the side makes next may get a trace. */
void sim_trace_choose(struct sim_side *side, crpc_op *op);
void sim_trace_book(const struct sim_side *side, const crpc_op *op, struct sim_call *call);
/* A request has come, which is this call of the peer's. */
void sim_trace_request(struct sim_side *side, uint32_t number, const crpc_completion *completion);

/* sim_arena.c */
void sim_arena_choose(struct sim *sim, uint64_t seed);
void sim_arena_side(struct sim_side *side);
/* All engines have ended: nothing is in use. */
void sim_arena_close(struct sim *sim);
/* Lends something, or gives something back. */
void sim_arena_act(struct sim *sim);
/* Makes a call large at times, if the peer has lent an arena. Returns whether it did: then the payload should be in a region. */
bool sim_arena_choose_bytes(struct sim_side *side, crpc_op *op);
/* A message has come whose payload is in an arena. */
void sim_arena_take(struct sim_side *side, const crpc_completion *completion, uint64_t key);
/* Returns whether what the peer writes lands in the side's arena, where it must be allowed to. */
bool sim_arena_watch(struct sim_side *side, uint64_t address, uint32_t bytes);

/* sim_lane.c */
void sim_lanes_choose(struct sim *sim, uint64_t seed);
/* Whether the next side is to ask for a lane. */
bool sim_lane_wanted(struct sim *sim);
void sim_lane_open(struct sim_side *side);
/* Its engine has ended. */
void sim_lane_close(struct sim_side *side);
void sim_lane_act(struct sim *sim);
/* Submits something before the side takes leave. */
void sim_lane_last(struct sim_side *side);
/* Makes the lane's ops take long, sometimes: several messages then wait for them. Returns whether they do. */
bool sim_lane_slow(struct sim_side *side);
/* Makes a call, which may have to follow the ops of the lane: *after says which. Returns as rpc_call. */
int32_t sim_lane_call(struct sim_side *side, const crpc_op *op, const void *bytes,
                      struct sim_call *after);
/* A call has come, which the peer has made. */
void sim_lane_request(struct sim_side *side, const struct sim_call *call);
void sim_lane_take(struct sim_side *side, const crpc_completion *completion);
/* Returns true if all ops have completed. */
bool sim_lane_over(const struct sim_side *side);
void sim_lane_watch(struct sim *sim, const struct nic *target, uint32_t queue_pair_number,
                    uint64_t address);

#endif
