/* sim.h: a deterministic simulation of striped channels over the in-memory NIC in scheduled mode.
 *
 * Everything follows from the seed. A *side* is one end of a channel; its book has every message it
 * ever posted receives for, and every send. Since the simulation sees both ends, it knows which send
 * belongs into which buffer, and compares whatever happens anywhere with the books.
 *
 *   sim_world.c    making and unmaking: fabric, engines, channels, memory
 *   sim_act.c      what an application might do next
 *   sim_trouble.c  links, queue pairs and nics that fail, and what that excuses
 *   sim_check.c    what a poll gave, and what must hold
 *   simulate.c     episodes, their ends, command line, TAP
 */
#ifndef CORE_CHANNEL_TESTS_SIM_H
#define CORE_CHANNEL_TESTS_SIM_H

#include "blob.h"
#include "link/prove.h"
#include "link/tests/late_cm.h"
#include "link/tests/simulation.h"

#define SIM_ENGINES_MAX 3
#define SIM_SIDES_MAX 8
#define SIM_SENDS_MAX 4096
#define SIM_MESSAGES_MAX 2048
#define SIM_TAGS 4
#define SIM_BLOCKS 160 /* of memory, of each side: one buffer each */
#define SIM_BLOCK_BYTES 2048
#define SIM_BUFFER_BYTES_MAX 1900
#define SIM_NONE 0xffffffffu

struct sim_send {
    uint32_t tag;
    uint32_t bytes;
    uint32_t block;   /* SIM_NONE: no bytes */
    uint32_t message; /* that it is part of; SIM_NONE: not posted */
    bool timed;
    bool cancel_asked;
    bool completed;
    int32_t status;
};

struct sim_buffer {
    uint64_t address;
    uint32_t bytes;
    uint32_t tag;
    uint32_t block;
    uint32_t send; /* of the peer's book; SIM_NONE: not known yet */
    bool completed;
    int32_t status;
};

struct sim_message {
    uint32_t count;
    uint32_t completed;
    struct sim_buffer buffers[CHANNEL_GROUP_MAX];
};

struct sim_block {
    bool used;
    bool receives;
    uint32_t message;
    uint32_t place;
};

struct sim_side {
    struct sim *sim;
    uint32_t index;
    struct sim_engine *engine;
    struct sim_side *peer;
    struct channel *channel; /* NULL once closed */
    uint64_t handle;
    uint32_t slots; /* agreed on */
    uint32_t sends_max;
    crpc_channel_options options; /* with the key, if it has one */
    bool other_key; /* the peer has another one, or none, or this side alone has none */

    struct sim_send sends[SIM_SENDS_MAX];
    uint32_t send_count;
    uint32_t sends_completed;
    uint32_t sends_seen;          /* messages posted to the peer, as far as the book knows */
    uint32_t last_sent[SIM_TAGS]; /* send + 1 */
    struct sim_message messages[SIM_MESSAGES_MAX];
    uint32_t message_count;
    uint32_t messages_completed;
    uint64_t cancels_submitted;
    uint64_t cancels_completed;
    struct sim_block blocks[SIM_BLOCKS];
    uint8_t *memory;

    bool connected_seen;
    bool connect_failed;
    bool disconnected_seen;
    bool leave_asked; /* by this side's application */
    bool leave_timed;
    bool closed;
    bool excused; /* trouble has left it without a rail for a moment */
    bool room_due;
    int8_t rail_shown[CHANNEL_RAILS_MAX];   /* -1: not told yet */
    uint32_t hurt_epoch[CHANNEL_RAILS_MAX]; /* a queue pair of this epoch was killed */
    uint64_t hurt_step[CHANNEL_RAILS_MAX];  /* the link came back at this step of the fabric */
};

struct sim_engine {
    uint32_t index;
    struct nic *nics[CHANNEL_RAILS_MAX];
    bool link_down[CHANNEL_RAILS_MAX];
    uint64_t link_back[CHANNEL_RAILS_MAX]; /* step of the simulation */
    bool gone;                             /* cut for ever */
    bool asleep;                           /* its program waits for an event, or for its deadline */
    struct handles handles;
    _Atomic uint64_t last_handle;
    struct channel_engine *engine;
    struct cm cm; /* if the episode is late */
    struct registrar registrar;
    struct registration region;
    uint8_t *memory;
    uint64_t bytes;
};

/* What the report counts, in its order. */
enum sim_count {
    SIM_MESSAGES,
    SIM_TRUNCATED,
    SIM_FAILURES,
    SIM_RECOVERIES,
    SIM_ATTEMPTS,
    SIM_REPEATED,
    SIM_KEYS,
    SIM_KEYS_REFUSED,
    SIM_LATE,
    SIM_HELD,
    SIM_COUNTS
};

struct sim {
    struct simulation base;
    struct sim_engine engines[SIM_ENGINES_MAX];
    uint32_t engine_count;
    bool calm;     /* no trouble in this episode */
    bool careful;  /* none that could cost a channel */
    bool abrupt;   /* leave is taken in the middle of everything */
    uint32_t lazy; /* this engine seldom polls */
    bool sleepy;   /* in the end all sleep when they have nothing to do */
    /* Of what the library does off the poll. */
    struct late_times late;
    bool attempt_fails;          /* an attempt to use a rail is to fail, or has failed ... */
    enum memory_failure failure; /* ... at this */
    uint32_t side_count;
    struct sim_side sides[SIM_SIDES_MAX];
    uint64_t counts[SIM_COUNTS]; /* of all episodes */
    uint32_t straight_bytes;     /* 0 = immediates are in the last WRITE of a share */
};

/* sim_world.c */
uint64_t sim_send_key(const struct sim_side *side, uint32_t send);
/* What a buffer has before anything lands in it. */
uint64_t sim_blank_key(const struct sim_side *side, uint32_t message, uint32_t place);
/* Does what is late: some of it, or all. */
void sim_late(struct sim *sim, bool all);
/* SIM_NONE: all are used. */
uint32_t sim_block_take(struct sim_side *side);
void sim_block_give_back(struct sim_side *side, uint32_t block);

/* sim_act.c */
void sim_poll(struct sim *sim, struct sim_engine *engine, uint32_t capacity);
/* Polls once, unless the engine sleeps and nothing wakes it; and goes to sleep if that is how the episode is. */
void sim_poll_or_sleep(struct sim *sim, struct sim_engine *engine);
/* Makes sends and receives that are missing for those that wait. */
void sim_answer(struct sim *sim, struct sim_side *side);
void sim_leave(struct sim_side *side, uint64_t timeout_ns);

/* sim_trouble.c */
void sim_trouble(struct sim *sim);
/* Kills the queue pair over which the side compares its key. */
void sim_kill_first(struct sim_side *side);
/* Counts the attempt to use a rail that was to fail, if it has. */
void sim_count_attempts(struct sim *sim);
/* Links that are due come back; `all`: all of them. */
void sim_mend(struct sim *sim, bool all);

/* sim_check.c */
/* True if the channel may end badly: trouble, a close at once, or a leave with a time limit. */
bool sim_excused(const struct sim_side *side);
void sim_take(struct sim *sim, struct sim_engine *engine, const crpc_completion *completion);
/* Notes what the engine has posted since; after every call of it. */
void sim_look(struct sim *sim, const struct sim_engine *engine);
/* That what the peers may send finds receives. */
void sim_check_receives(struct sim *sim, const struct sim_engine *engine);
/* What tasks need that are not done is there, and is left alone. */
void sim_check_late(struct sim *sim, const struct sim_engine *engine);
void sim_watch(void *argument, struct nic *target, uint32_t queue_pair_number, uint64_t address,
               uint32_t bytes);

#endif
