/* worker.h: what the files of the worker share.
 *
 * A worker is a program of the public header. It connects to servers, or is one, makes calls and
 * sends messages at random, and tells the oracle of each op and of each completion. Both sides do
 * the same: a server calls its clients, too. */
#ifndef CHAOS_WORKER_H
#define CHAOS_WORKER_H

#include <copyrpc.h>
#include <stdbool.h>
#include <stdint.h>

#include "content.h"
#include "journal.h"

#define CONNECTIONS_MAX 64
#define CALLS_MAX 4096
#define DEFERRED_MAX 4096
#define CHANNELS_MAX 16 /* that have memory */
#define TAGS 3
/* Open sends of a tag, and open receives. No group wants more of it, so each group becomes complete
 * however its tags are drawn. */
#define OPEN_OF_TAG 4
#define CHANNEL_DEPTH (TAGS * OPEN_OF_TAG)

enum life { FREE, CONNECTING, CONNECTED, LEAVING };
enum service { CALLS, CHANNELS, QUEUES, SERVICES };

struct slot {    /* a buffer of a channel; its tag is its number % TAGS */
    uint64_t id; /* of the op that has it; 0: none */
};

struct connection {
    enum life life;
    enum service service;
    bool accepted;
    uint64_t handle;
    uint64_t connect_id, id; /* of its two ops */
    uint64_t peer_connect_id;
    uint32_t request_bytes_max, reply_bytes_max;
    int room; /* of a channel or a queue: which memory */
};

struct call {
    uint64_t id; /* 0: none */
    uint64_t begun_ns, timeout_ns;
    uint32_t reply_bytes_max;
    int connection;
};

struct room { /* memory of a channel, which stays in use until its last op has ended */
    bool used;
    uint32_t open;
    struct slot sends[CHANNEL_DEPTH], receives[CHANNEL_DEPTH];
};

/* What a test of the oracle wants done wrong, and at which occasion. */
struct mistake {
    const char *what;
    uint64_t after;
    bool done;
};

struct worker {
    crpc_context *context;
    struct journal *journal;
    uint64_t life, next, dice;
    const char *listen;
    const char *peers[SERVICES]; /* addresses; NULL: it connects to none for that */
    uint32_t connections_wanted, pace_us;
    bool stopping, told_state;
    struct mistake mistake;
    struct connection connections[CONNECTIONS_MAX];
    struct call calls[CALLS_MAX];
    uint32_t calls_open, others_open; /* others: ops that complete and are in no table */
    struct room rooms[CHANNELS_MAX];
    crpc_region region;
    struct queue_room *queue_rooms; /* queues.c */
    uint32_t failures;              /* connects that failed, since one did not */
};

/* ---- main.c ---- */

uint64_t now_ns(void);
/* A random number below `most`, which is above 0. */
uint32_t dice(struct worker *worker, uint32_t most);
/* Whether something happens that does so once in `rarity` times. */
bool chance(struct worker *worker, uint32_t rarity);
uint64_t new_id(struct worker *worker);
/* Whether now is the time for this mistake. */
bool mistaken(struct worker *worker, const char *what);
void op_begin(struct worker *worker, enum op_type type, uint64_t id, uint64_t a, uint64_t b);
void op_refused(struct worker *worker, uint64_t id, int32_t reason);
void op_ended(struct worker *worker, uint64_t id, int32_t status, uint64_t a, uint64_t b);
/* Tells of something that the library must not do. */
void trouble(struct worker *worker, int line, int32_t status);

/* ---- life.c: connections ---- */

/* Connects until there are as many connections as are wanted. */
void connect_some(struct worker *worker);
/* Ends one now and then, in one of the ways there are. */
void leave_some(struct worker *worker);
/* Begins to end all; `life_over` says when all have ended. */
void leave_all(struct worker *worker);
bool life_over(const struct worker *worker);
/* CONNECT_REQUEST, CONNECTED, DISCONNECTED. */
void life_event(struct worker *worker, const crpc_completion *completion);

/* ---- calls.c ---- */

void calls_some(struct worker *worker, int connection);
/* Answers requests whose answers have been put off. */
void replies_some(struct worker *worker);
void call_ended(struct worker *worker, const crpc_completion *completion);
void request_came(struct worker *worker, const crpc_completion *completion);

/* ---- channels.c ---- */

/* Registers the memory of all channels. */
int32_t channels_open(struct worker *worker, crpc_error *error);
/* Gives a room, or -1 if all are in use. */
int room_take(struct worker *worker);
void room_leave(struct worker *worker, int room);
void channel_some(struct worker *worker, int connection);
void channel_sent(struct worker *worker, const crpc_completion *completion);
void channel_received(struct worker *worker, const crpc_completion *completion);

/* ---- queues.c ---- */

/* Registers the memory of all queues. */
int32_t queues_open(struct worker *worker, crpc_error *error);
/* Gives a room, or -1 if all are in use. */
int queue_room_take(struct worker *worker);
/* Its queue is closed, so the peer reaches it no more: tells what it has left. */
void queue_room_leave(struct worker *worker, int room);
uint32_t queue_rooms_used(const struct worker *worker);
bool queue_rooms_over(const struct worker *worker);
/* For connect and accept: the peer is told where the memory is. */
crpc_queue_options queue_options(struct worker *worker, const struct connection *connection,
                                 uint64_t index);
/* Of a connect request: the id of the peer's connect, or 0. */
uint64_t queue_peer_of(struct worker *worker, const struct connection *connection);
/* It is connected: the peer has told where its memory is. */
void queue_connected(struct worker *worker, const struct connection *connection);
void queue_some(struct worker *worker, const struct connection *connection);
void work_ended(struct worker *worker, const crpc_completion *completion);
/* Of a server: keeps receives in its SRQ, closes it as soon as no queue uses it, and says how many there
 * are. */
void shared_some(struct worker *worker);
void queues_stop(struct worker *worker);
uint32_t queues_shared(void);

#endif
