/* internal.h: the state of the engine and of its channels. Only files of core/channel include it.
 *
 *   engine.c    creation of the engine; completions of the devices
 *   poll.c      the steps of a poll, and their order
 *   channel.c   the link's service: memory, hello, failure, close, info
 *   leave.c     disconnecting with LEAVE and BYE; the keepalive
 *   op.c        ends of ops, and their completions
 *   control.c   control messages: taken once and in order, whatever carries them
 *   rail.c      rails that come up, are lost, and come back
 *   queues.c    making a rail's queue pairs and windows, outside of the poll, and destroying them
 *   connect.c   connecting a rail's queue pairs, outside of the poll
 *   send.c      sends, and posting them
 *   send_end.c  sends that end before they arrive
 *   wake.c      waking a sender that sleeps
 *   receive.c   receives, arriving immediates
 *   grant.c     the peer's rights to write to the buffers of receives, outgoing clear-to-sends
 *   rights.c    arriving clear-to-sends: the rights that the peer gave
 *   split.h     splits a buffer over the rails; speed.c by measurement, hint.c by a hint,
 *               which hint_write.c writes
 *   area.c      the memory that the peer writes
 *
 * Each direction numbers its messages from 0, with 64 bits. Message n uses slot n % slots.
 * Everything that is sent for it goes through queue pair slot % queue_pairs of a rail.
 */
#ifndef CORE_CHANNEL_INTERNAL_H
#define CORE_CHANNEL_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/output.h"
#include "base/table.h"
#include "base/wheel.h"
#include "channel/channel.h"
#include "channel/wire.h"
#include "link/link.h"

/* ---- Ops ------------------------------------------------------------------------------------- */

/* An op that was accepted and has no completion yet. */
struct channel_op {
    struct list link; /* sends: send.free or send.waiting; finished ops: engine->finished */
    struct wheel_timer timer;
    struct channel *channel;
    struct registration *region; /* NULL = no bytes */
    uint64_t user_data;
    uint64_t address;
    uint64_t number; /* of the message; not known before the op has one */
    uint32_t bytes;  /* send: length; receive: room, and finally the received length */
    uint32_t tag;
    int8_t status;
    uint8_t kind;  /* CRPC_COMPLETION_SENT, _RECEIVED */
    uint8_t place; /* send: index of its buffer in the message, or NO_PLACE */
};

#define NO_PLACE 0xffu
#define NO_RAIL 0xffu

/* ---- Messages being received ----------------------------------------------------------------- */

/* The peer's right to write to the buffers of a message over a rail: grant.c. */
enum grant_state {
    GRANT_NONE = 0,
    GRANT_TELLING, /* the peer is being told; nothing had to be bound for it */
    GRANT_GRANTED,
    GRANT_WITHDRAWING, /* the invalidates are under way, or what still tells of it */
};

struct channel_window {
    struct nic_window window;
    struct channel_window *next; /* in the queue's list of free ones */
};

struct channel_windows {
    struct channel_window *all; /* NULL = none */
    uint32_t count;
    _Atomic uint32_t ended; /* as the next two: how many somebody destroys, or has */
    _Atomic uint32_t gone;
};

struct channel_incoming {
    uint64_t number;
    uint64_t bytes; /* sum over the immediates seen; without a record that is the size */
    uint32_t count; /* ops; 0 = the slot is free */
    uint32_t emitted;
    uint8_t mask; /* of shares; 0 until the first immediate arrives */
    uint8_t seen;
    bool record;
    bool open;                         /* not complete yet */
    uint8_t queue;                     /* of each rail: slot % queue_pairs */
    bool arrived;                      /* complete, but for rights that have not ended */
    bool withdraw_later;               /* some of them wait for room in a send queue */
    uint8_t grants[CHANNEL_RAILS_MAX]; /* enum grant_state */
    struct channel_window *windows[CHANNEL_RAILS_MAX][CHANNEL_GROUP_MAX]; /* NULL = none */
    struct channel_op ops[CHANNEL_GROUP_MAX];
};

/* ---- Messages being sent --------------------------------------------------------------------- */

struct channel_target {
    uint64_t address;
    uint64_t room;
    uint32_t keys[CHANNEL_RAILS_MAX]; /* of the rails in `told` */
    uint32_t tag;
};

/* What the clear-to-sends of a message have told. */
struct channel_clear {
    uint32_t count;     /* buffers; 0 = nothing is known of it */
    uint32_t told;      /* mask of rails over which all have come, and hold: they are up */
    uint32_t announced; /* mask of those over which they come, as far as these tell */
    struct channel_target targets[CHANNEL_GROUP_MAX];
};

/* What a message that both rails carry tells of their speeds: speed.c. */
struct channel_sample {
    uint64_t began_ns;
    uint64_t bytes[CHANNEL_RAILS_MAX];    /* that each rail had to bring then, with its share */
    uint64_t since_ns[CHANNEL_RAILS_MAX]; /* of the rail then */
    uint64_t ended_ns[CHANNEL_RAILS_MAX];
    bool valid;
};

struct channel_outgoing {
    uint64_t number;
    uint32_t count; /* ops; 0 = the slot is free */
    uint32_t immediate;
    uint8_t queue; /* of each rail: slot % queue_pairs */
    uint8_t mask;
    uint8_t done;   /* shares that have arrived at the peer */
    uint8_t repeat; /* shares to send again, which are on no queue pair */
    bool record;
    uint8_t carrier[CHANNEL_RAILS_MAX]; /* rail that carries each share; NO_RAIL = none now */
    uint32_t part[CHANNEL_GROUP_MAX];   /* bytes of each buffer in share 0; the rest is share 1 */
    uint64_t bytes[CHANNEL_RAILS_MAX];  /* of each share that was posted */
    struct channel_sample sample;
    struct channel_op *ops[CHANNEL_GROUP_MAX];
    struct channel_clear clear;
};

/* The next message to send, as far as it is known. */
struct channel_head {
    uint32_t filled;
    struct channel_op *ops[CHANNEL_GROUP_MAX]; /* NULL = not filled */
    struct channel_clear clear;
};

/* ---- Rails of a channel ---------------------------------------------------------------------- */

/* A share, or what ends a step of a grant, posted and not acknowledged yet. */
struct channel_posted {
    uint32_t wqe;
    uint16_t slot;
    uint16_t share; /* or POSTED_GRANT */
};

#define POSTED_GRANT CHANNEL_RAILS_MAX /* invalidates, or a clear-to-send without binds */

struct channel_queue {
    struct channel *channel;
    struct nic_queue_pair *queue_pair;
    const struct nic_operations *operations; /* of its nic; cached, because each post needs them */
    struct list doorbell_link;               /* on engine->doorbells if something was posted */
    uint8_t rail;                            /* the rail that it belongs to */
    bool adopted;   /* it is made: it has a number, and is in the table of its rail */
    bool connected; /* to the peer's queue pair with the same index */
    bool busy;      /* a task makes or connects it: nobody else posts to it, fails or destroys it */
    struct link_progress progress;
    struct channel_posted *posted; /* ring */
    uint32_t posted_mask;
    uint32_t posted_head;
    uint32_t posted_tail;
    struct channel_windows windows; /* none: its device has none */
    struct channel_window *windows_free;
    uint32_t windows_left; /* free */
};

enum rail_state {
    RAIL_NONE = 0, /* the context has none, or the options leave it out */
    RAIL_LACKED,   /* the peer does not have it */
    RAIL_DOWN,     /* not in use; at first, queue pair 0 of rail 0 carries control */
    RAIL_MAKING, /* a task makes what it lacks of queue pairs and windows, once what it had has ended */
    RAIL_OFFERED,    /* the active side has sent an offer and waits for the answer */
    RAIL_CONNECTING, /* a task connects its queue pairs */
    RAIL_PROBING,    /* connected; no probe has arrived yet */
    RAIL_UP,
    RAIL_FENCED, /* nothing can arrive over it any more; reports are under way */
};

enum fence_stage {
    FENCE_NONE = 0,
    FENCE_WANTED,  /* this side saw an error, or the peer reported one */
    FENCE_DRAINED, /* its queue pairs are in the error state; the fence is done when the devices
                      have been polled empty once more */
};

/* What a task makes for a rail. All of it is the task's own until that has ended: queues.c. */
struct channel_making {
    struct link_task task;
    struct nic *nic;
    struct nic_queue_pair *queue_pairs[CHANNEL_QUEUE_PAIRS_MAX]; /* NULL = it is made already */
    struct channel_windows windows[CHANNEL_QUEUE_PAIRS_MAX];     /* `count` is what is made */
    uint32_t windows_wanted[CHANNEL_QUEUE_PAIRS_MAX];
};

/* What tasks end of a rail: of those, too, until they have ended. */
struct channel_ending {
    struct link_task task;
    struct channel_queue *queues[CHANNEL_QUEUE_PAIRS_MAX]; /* NULL = none */
};

struct channel_rail {
    enum rail_state state;
    enum fence_stage fence;
    uint32_t epoch;
    uint32_t attempts; /* since it was last up */
    uint32_t peer_key;
    bool failed_once;
    bool report_wanted; /* a report must be sent */
    bool offer_wanted;
    bool answer_wanted;
    bool report_known; /* the peer's report of this epoch has arrived */
    uint8_t answer;    /* CHANNEL_ANSWER_* */
    bool shown_up;     /* the state that the application was told */
    uint32_t changes;  /* changes that the application has not been told */
    struct channel_report report;
    struct channel_queue *queues[CHANNEL_QUEUE_PAIRS_MAX];
    struct link_address peer[CHANNEL_QUEUE_PAIRS_MAX];
    uint32_t peer_ece_vendor; /* of their options */
    struct wheel_timer retry_timer;
    struct channel_making making;
    struct channel_ending ending;
    struct link_task connect;
    struct nic_queue_pair *connecting[CHANNEL_QUEUE_PAIRS_MAX]; /* of the task; NULL = it is not */
    uint64_t under_way; /* bytes posted for messages, and not acknowledged; 0 for a fixed split */
    uint64_t since_ns; /* when the last share of a sample ended, if others were under way; else 0 */
};

/* ---- Control --------------------------------------------------------------------------------- */

struct channel_outbox {
    struct channel_queue *queue;
    uint32_t wqe;
};

/* ---- Channel --------------------------------------------------------------------------------- */

/* Memory that the peer writes, and memory that this side writes from. */
struct channel_area {
    uint8_t *base;
    size_t bytes;    /* mapped */
    uint64_t secret; /* where the peer finds it, on every rail; 0 = no peer may */
    struct nic_keys keys[CHANNEL_RAILS_MAX];
};

struct channel_send {
    uint64_t number; /* of the head */
    uint32_t queue;  /* slot % queue_pairs */
    uint32_t open;   /* ops accepted, not finished */
    struct channel_head head;
    struct list waiting; /* ops without a place in the head */
    struct list free;    /* of `ops` */
    struct channel_op *ops;
    struct channel_outgoing *outgoing;
    uint32_t repeats;   /* shares whose bit in `repeat` is set */
    bool rights_wanted; /* the head waits for clear-to-sends over more rails */
};

struct channel_receive {
    struct channel_incoming *incoming;
    uint64_t number;          /* of the next receive */
    uint32_t queue;           /* slot % queue_pairs */
    uint32_t withdraws_later; /* messages whose withdraw_later is set */
    uint32_t open;            /* ops accepted, not finished */
    /* Per rail that is up: of the next receive that must be granted, and told of, over it. */
    uint64_t grant_number[CHANNEL_RAILS_MAX];
};

struct channel_messages {
    uint32_t in_sequence;
    uint32_t out_sequence;
    struct channel_outbox outbox[CHANNEL_INBOX_MESSAGES];
    uint32_t unsent; /* one bit per message in the outbox, which makes the common case cheap */
    uint32_t posted; /* likewise; with neither bit set, the place is free */
    uint8_t arrived; /* one bit per message in the inbox */
    uint32_t repeats_left; /* messages that the peer may still send again */
};

/* Of a sender that sleeps, and of a peer that does: wake.c. */
struct channel_wake {
    bool asleep_wanted; /* ASLEEP must be sent */
    bool asleep_said;   /* it was, and WAKE has not come */
    bool owed;          /* the peer sleeps, and its clear-to-sends are not written */
    bool due;           /* they are; WAKE must be sent */
    uint64_t number;    /* of the message that it waits for */
};

/* How far this side's disconnect has come. */
enum channel_leave {
    LEAVE_NONE = 0,
    LEAVE_ASKED, /* the application disconnects; LEAVE must be sent */
    LEAVE_SAID,
    BYE_WANTED, /* everything was sent; BYE must be sent */
    BYE_SAID,
};

/* How far the peer's disconnect has come. */
enum channel_peer_leave {
    PEER_STAYS = 0,
    PEER_LEAVES, /* it receives no more than bye.posted messages */
    PEER_BYE,    /* and it has sent everything */
};

struct channel {
    struct link link; /* must come first: a handle's object is the link */
    struct channel_engine *engine __attribute__((aligned(CACHE_LINE_BYTES)));
    int32_t bar;        /* CRPC_OK, or why ops are refused now */
    uint32_t slot_mask; /* slots agreed with the peer, minus 1 */
    uint32_t queue_pairs;
    uint32_t up;          /* mask of the rails that are UP */
    uint32_t share;       /* of rail 0, parts of SPLIT_FINE */
    int64_t owed;         /* by how much rail 0 is behind with whole buffers: split.h */
    uint64_t measured_ns; /* when the last sample was complete */
    uint32_t stripe_bytes_min;
    uint32_t split; /* CRPC_SPLIT_* */
    const struct channel_hint *hint;
    struct channel_send send;
    struct channel_receive receive;
    struct channel_area area;
    struct channel_area staging; /* same layout; what this side writes from */
    uint64_t peer_area;
    struct channel_rail rails[CHANNEL_RAILS_MAX];
    uint32_t common; /* mask of rails that both sides have */
    uint32_t usable; /* those of them whose devices here are not lost: memory has keys for these */
    struct channel_messages control;
    struct channel_wake wake;

    /* -- lists of the engine -- */
    struct list work_link;    /* may have something to post */
    struct list waiting_link; /* has sends that wait for a clear-to-send */
    struct list fence_link;   /* has rails to fence */

    /* -- the rest -- */
    enum channel_leave leave;
    enum channel_peer_leave peer_leave;
    struct channel_bye bye;    /* the peer's */
    uint32_t ops_left;         /* ops accepted, without completion */
    uint32_t silent_intervals; /* keepalive intervals since anything came or was probed */
    struct wheel_timer settle_timer;
    crpc_channel_options options;
    crpc_channel_stats stats;
};
static_assert(offsetof(struct channel, link) == 0, "a handle's object is the link");

static inline struct channel *channel_of_link(const struct link *link)
{
    return container_of(link, struct channel, link);
}

/* ---- Engine ---------------------------------------------------------------------------------- */

/* How often a sleeping sender looks for clear-to-sends: at first, and when none has come for a while. If its peer has been
 * asked to wake it, that is for a peer that has posted a receive and does not poll. */
#define LOOK_BACKOFF_MIN_NS UINT64_C(10000)
#define LOOK_BACKOFF_MAX_NS UINT64_C(1000000)
#define LOOK_BACKOFF_ASKED_MAX_NS UINT64_C(16000000)

/* Windows of a queue pair for each of its messages: groups of more buffers may have to wait. */
#define WINDOWS_EACH 4u

#define TIMER_SEND LINK_TIMER_SERVICE
#define TIMER_SETTLE (LINK_TIMER_SERVICE + 1)
#define TIMER_RAIL_0 (LINK_TIMER_SERVICE + 2) /* and TIMER_RAIL_0 + 1 */

struct engine_rail {
    struct nic *nic;
    const struct nic_operations *operations;
    struct table queues;        /* number -> struct channel_queue */
    uint32_t message_bytes_max; /* limit of one WQE */
    uint32_t receives_promised;
    uint32_t queue_pairs;
    uint64_t receives_completed;
};

struct channel_engine {
    struct engine_rail rails[CHANNEL_RAILS_MAX];
    uint32_t rail_count;
    uint32_t lost; /* mask of rails whose devices are lost, for as long as the engine lives */
    struct link_group links;

    struct list work;
    struct list doorbells;
    struct list waiting;
    struct list fences;
    struct list finished; /* struct channel_op */

    uint64_t look_backoff_ns;   /* pause between looks for clear-to-sends while asleep */
    uint64_t look_ns;           /* time of the next look */
    uint64_t look_asked_max_ns; /* LOOK_BACKOFF_ASKED_MAX_NS; tests make it CRPC_FOREVER: no look */
    uint32_t windows_each;      /* WINDOWS_EACH; tests make them scarce */
    uint32_t channel_count;
    uint32_t channels_max;
    uint32_t wqe_bytes_max; /* limit of one WQE that all rails can keep */
    /* A share that is longer has its immediate in a WRITE of its own, and its message a record. */
    uint32_t straight_bytes;
};

/* Returns how often the slot of a message was used before. The number of slots is a power of
 * two. */
static inline uint32_t message_generation(const struct channel *channel, uint64_t number)
{
    return (uint32_t)(number >> __builtin_ctz(channel->slot_mask + 1)) & CHANNEL_GENERATION_MASK;
}

/* Advances the queue pair of a message to that of the message `number`, the next. */
static inline void queue_advance(const struct channel *channel, uint64_t number, uint32_t *queue)
{
    if (++*queue == channel->queue_pairs || ((uint32_t)number & channel->slot_mask) == 0) {
        *queue = 0;
    }
}

static inline struct channel_engine *engine_of_group(const struct link_group *group)
{
    return container_of(group, struct channel_engine, links);
}

/* ---- engine.c -------------------------------------------------------------------------------- */

/* Polls the devices until they are empty, and fences rails that failed. */
void channel_take_completions(struct channel_engine *engine);
void channel_device_event(struct link_group *group, const struct cm_event *event);
void channel_timer(struct link_group *group, struct wheel_timer *timer);
static inline void channel_work(struct channel_engine *engine, struct channel *channel)
{
    list_append_once(&engine->work, &channel->work_link);
}
/* Posts everything that can be posted for a channel. */
void channel_flush(struct channel *channel);
/* Returns how many receives one channel may use on each rail: for both shares of every slot,
 * because the other rail may be lost, for control messages, and for probes. */
static inline uint32_t receives_of(uint32_t slots)
{
    return 2 * slots + CHANNEL_INBOX_MESSAGES + 2;
}
static inline void rail_refill(struct engine_rail *rail)
{
    if (rail->nic->receives_posted < nic_receive_low_mark(rail->nic)) {
        rail->operations->refill(rail->nic);
    }
}

/* ---- op.c ------------------------------------------------------------------------------------ */

/* Ends an op. A later poll returns its completion. */
void op_finish(struct channel_op *op, int32_t status);
void ops_emit_finished(struct channel_engine *engine, struct output *output);
/* Discards the finished ops of a channel that is being destroyed, without completions. */
void ops_forget_finished(struct channel *channel);

/* ---- queues.c, rail.c ------------------------------------------------------------------------ */

/* Makes `count` queue pairs of a rail at once, without windows. On failure, the rail has none. */
int32_t queues_create(struct channel *channel, uint32_t rail, uint32_t count, crpc_error *error);
/* Has a task make what a rail that is DOWN lacks of queue pairs and windows: it is MAKING. Then calls rail_made, now or in
 * a later poll. */
void queues_make(struct channel *channel, uint32_t rail);
/* The task that makes them has ended, or never will: gives up what it has made. */
void queues_give_up(struct channel *channel, uint32_t rail);
/* Has tasks destroy the queue pairs of a rail from index `from` on, none of which is busy, and their windows. When these are gone, now or
 * in a later poll, calls grants_lost. */
void queues_end(struct channel *channel, uint32_t rail, uint32_t from);
/* Destroys the queue pairs of a rail, at once, and all windows. Those that are busy stay until their task has ended, which then does
 * this again, and what tasks end is left to them but for the windows. */
void queues_destroy(struct channel *channel, uint32_t rail);
/* Handles a queue pair in the error state. */
void queue_failed(struct channel_queue *queue);
static inline void queue_wants_doorbell(struct channel_queue *queue)
{
    list_append_once(&queue->channel->engine->doorbells, &queue->doorbell_link);
}

/* Begins to bring up the rails, after the hellos were exchanged. */
void rails_open(struct channel *channel);
/* The queue pairs and windows of a rail that is MAKING are made; or the rail has none. */
void rail_made(struct channel *channel, uint32_t rail, bool good);
/* Reports that the channel is connected. Does nothing if it was already, or if no rail is up. */
void channel_connected(struct channel *channel);
void rail_take_offer(struct channel *channel, const struct channel_control *message);
void rail_take_answer(struct channel *channel, const struct channel_control *message);
void rail_take_report(struct channel *channel, const struct channel_control *message);
void rail_take_probe(struct channel *channel, uint32_t rail, uint32_t epoch);
void rail_fill_offer(struct channel *channel, uint32_t rail, struct channel_control *message);
void rail_fill_report(struct channel *channel, uint32_t rail, struct channel_control *message);
/* Connects the queue pairs of a rail that is DOWN or OFFERED to the peer's. Whatever follows from
 * that, an answer or a probe, happens when they are, now or in a later poll: connect.c. */
void rail_connect(struct channel *channel, uint32_t rail);
/* Answers the peer's offer: CHANNEL_ANSWER_*. */
void rail_answer(struct channel *channel, uint32_t rail, uint8_t answer);
/* A rail has failed. Returns true if the channel has ended, because nothing is left that carries
 * control, or will soon. */
bool rails_fail_without(struct channel *channel, uint32_t rail);
/* Requests a fence, after an error on a queue pair of the rail. */
void rail_want_fence(struct channel *channel, uint32_t rail);
/* Performs the next step of the channel's fences. Returns true if the devices must be polled
 * again. */
bool channel_fence(struct channel *channel);
/* Offers a rail again that is down. */
void rail_retry(struct channel *channel, uint32_t rail);
/* Returns true if no further rail is expected to come up soon. */
bool rails_settled(const struct channel *channel);

/* ---- control.c ------------------------------------------------------------------------------- */

void control_flush(struct channel *channel);
/* Acknowledges control messages: all WQEs of the queue before `completed` have succeeded. */
void control_acknowledge(struct channel_queue *queue, uint32_t completed);
/* Marks messages that a lost queue pair may not have delivered, so that they are sent again. */
void control_unsend(struct channel_queue *queue);
void control_take(struct channel *channel, uint32_t sequence);
void control_probe(struct channel *channel, uint32_t rail);
/* Posts an empty WRITE, which uses no receive. Its acknowledgement shows that the peer is there and
 * that everything posted before has been done. Needs room in the send queue and a rail that is
 * up. */
void control_touch(struct channel_queue *queue);

/* ---- send.c ---------------------------------------------------------------------------------- */

/* Fills the head with waiting sends, and posts messages that are complete. */
void sends_progress(struct channel *channel);
/* Posts shares again that a lost rail has not delivered. */
void sends_repeat(struct channel *channel);
/* A rail was lost, and what was told over it does not hold any more. */
void sends_rail_lost(struct channel *channel, uint32_t rail);
/* Gives the head's free places to waiting sends, the oldest first. */
void sends_fill_places(struct channel *channel);
/* Makes the device complete what was not signaled, if only that is under way. */
void queue_ask_for_room(struct channel_queue *queue);
/* A share is not under way any more on the rail that carries it. The split is not fixed, or was not. */
void outgoing_leaves_rail(struct channel *channel, struct channel_outgoing *outgoing,
                          uint32_t share);
void outgoing_done(struct channel *channel, struct channel_outgoing *outgoing, uint32_t share);

/* ---- wake.c ---------------------------------------------------------------------------------- */

/* The peer understands ASLEEP, and would get it now. */
bool wake_possible(const struct channel *channel);
/* The program goes to sleep: those that wait for clear-to-sends, and have for a while, ask to be woken. */
void wakes_want(struct channel_engine *engine);
/* Returns true if all that wait for clear-to-sends have asked to be woken. */
bool wakes_come(const struct channel_engine *engine);
void wake_fill_asleep(struct channel *channel, struct channel_control *message);
/* What the peer says: WAKE, and ASLEEP. */
void wake_take(struct channel *channel);
void wake_take_asleep(struct channel *channel, const struct channel_control *message);
/* Wakes a peer whose clear-to-sends are written over all rails that are up. wake.owed is set. */
void wake_if_granted(struct channel *channel);

/* ---- send_end.c ------------------------------------------------------------------------------ */

/* Returns true if the head is not full. It then never will be, if no more sends are accepted. */
bool sends_stuck(const struct channel *channel);
/* Ends waiting sends that can never be sent. */
void sends_end_waiting(struct channel *channel, int32_t status);
void sends_end_all(struct channel *channel, int32_t status);
void send_expired(struct channel_op *op);

/* ---- receive.c ------------------------------------------------------------------------------- */

void receive_immediate(struct channel_queue *queue, uint32_t immediate, uint32_t bytes);
void receives_end_all(struct channel *channel, int32_t status);

/* ---- rights.c -------------------------------------------------------------------------------- */

/* Reads the clear-to-sends of a message that have come over rails that are up and not told of yet. The first
 * that come say what the targets are, and the others must agree; else the channel ends. */
void rights_read(struct channel *channel, uint64_t number, struct channel_clear *clear);

/* ---- grant.c --------------------------------------------------------------------------------- */

/* Returns how many windows each queue pair of the channel has where its device has any. */
uint32_t grants_windows(const struct channel *channel);
/* Makes so many. In any thread. On failure, those that are made stay until windows_destroy. */
int32_t windows_make(struct nic *nic, uint32_t count, struct channel_windows *windows,
                     crpc_error *error);
/* Destroys them, together with whoever else does so in another thread. When it returns, all are gone but those, one of each
 * thread, that others are at. */
void windows_end(struct nic *nic, struct channel_windows *windows);
/* Likewise, and waits for these. */
void windows_end_all(struct nic *nic, struct channel_windows *windows);
/* Nobody else uses them: ends them all, and frees their memory. */
void windows_destroy(struct nic *nic, struct channel_windows *windows);
/* From now on, a queue pair that has none has these. */
void grants_begin(struct channel_queue *queue, struct channel_windows *windows);
/* Ends all rights over a queue pair that is about to be destroyed. */
void grants_destroy(struct channel_queue *queue);
/* A rail is up: all open receives are to be granted over it. */
void grants_renew(struct channel *channel, uint32_t rail);
/* Grants receives over the rails that are up, and tells the peer, as far as there is room. */
void grants_post(struct channel *channel);
/* Ends the rights of a message that has arrived. Its receives complete, with the status in their ops,
 * when they have ended. */
void grants_withdraw(struct channel *channel, struct channel_incoming *incoming);
/* What was noted as POSTED_GRANT is done. */
void grant_done(struct channel_queue *queue, const struct channel_posted *posted);
/* The queue pairs of a rail were destroyed, and all rights over them. */
void grants_lost(struct channel *channel, uint32_t rail);

/* ---- channel.c, leave.c ---------------------------------------------------------------------- */

extern const struct link_service channel_service;
/* Checks whether a disconnect is complete. */
void channel_check_leave(struct channel *channel);
void channel_leave(struct link *link);
void channel_describe_leave(const struct link *link, char *text, size_t bytes);
bool channel_keepalive(struct link *link);

/* ---- speed.c, hint.c ------------------------------------------------------------------------- */

/* A message was posted of which each rail carries a share. */
void speed_begin(struct channel *channel, struct channel_outgoing *outgoing);
/* A share has arrived, and is not noted as done yet. */
void speed_end(struct channel *channel, struct channel_outgoing *outgoing, uint32_t share);
void speed_init(struct channel *channel);

const struct channel_hint *hint_open(const char *name);
void hint_close(const struct channel_hint *hint);
/* Returns false if there is no valid hint at that time. */
bool hint_read(const struct channel_hint *hint, uint64_t now_ns, uint32_t *rail0_share);

/* ---- area.c ---------------------------------------------------------------------------------- */

/* Allocates pages. */
int32_t area_map(struct channel_area *area, uint64_t bytes, crpc_error *error);
/* Registers them with the rails of the mask: for this side only, or for the peer to write. */
int32_t area_register(struct channel_engine *engine, struct channel_area *area, uint32_t rails,
                      crpc_error *error);
int32_t area_expose(struct channel_engine *engine, struct channel_area *area, uint32_t rails,
                    crpc_error *error);
/* Undoes both. */
void area_destroy(struct channel_engine *engine, struct channel_area *area);

#endif
