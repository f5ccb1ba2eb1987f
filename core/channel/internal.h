/* internal.h: the state of the engine and of a channel, for the files of core/channel alone.
 *
 *   engine.c    life of the engine, completions of the devices
 *   poll.c      poll, and what it does in which order
 *   channel.c   a channel as a link: memory, hello, failure, leave, close, info
 *   op.c        how an op ends, and its completion
 *   control.c   messages of control: in order and once, whatever carries them
 *   rail.c      how a rail comes up, is lost, and comes back
 *   send.c      sends, clear-to-sends that arrive, posting
 *   receive.c   receives, clear-to-sends that leave, immediates that arrive
 *   split.h     how a buffer is split over the rails; speed.c: by measurement; hint.c: by a hint
 *   area.c      the memory that the peer writes
 *
 * Message numbers are 64-bit counts from 0, each direction its own. Message n uses slot n % slots,
 * and of each rail queue pair n % queue_pairs, for everything it sends.
 */
#ifndef CORE_CHANNEL_INTERNAL_H
#define CORE_CHANNEL_INTERNAL_H

#include <assert.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/output.h"
#include "base/table.h"
#include "base/wheel.h"
#include "channel/channel.h"
#include "channel/wire.h"
#include "link/link.h"

/* ---- Ops ------------------------------------------------------------------------------------- */

/* An op that was taken and whose completion has not been given. */
struct channel_op {
    struct list link; /* sends: free, waiting; all: engine->finished */
    struct wheel_timer timer;
    struct channel *channel;
    struct registration *region; /* NULL: no bytes */
    uint64_t user_data;
    uint64_t address;
    uint64_t number; /* of the message, once it has one */
    uint32_t bytes;  /* send: what is sent; receive: room, and in the end what came */
    uint32_t tag;
    int8_t status;
    uint8_t kind;  /* CRPC_COMPLETION_SENT, _RECEIVED */
    uint8_t place; /* send: index in the message that it fills, or NO_PLACE */
};

#define NO_PLACE 0xffu
#define NO_RAIL 0xffu

/* ---- Messages being received ----------------------------------------------------------------- */

struct channel_incoming {
    uint64_t number;
    uint64_t bytes; /* that the immediates seen have told; without a record that is the size */
    uint32_t count; /* ops; 0 = the slot is free */
    uint32_t emitted;
    uint8_t mask; /* of shares; 0 until the first immediate tells it */
    uint8_t seen;
    bool record;
    bool open;        /* not complete */
    bool cts_posted;  /* its clear-to-send has been posted */
    bool cts_repeat;  /* and must be posted again */
    uint8_t cts_rail; /* rail that carried it */
    struct channel_op ops[CHANNEL_GROUP_MAX];
};

/* ---- Messages being sent --------------------------------------------------------------------- */

struct channel_target {
    uint64_t address;
    uint64_t room;
    uint32_t keys[CHANNEL_RAILS_MAX];
    uint32_t tag;
};

struct channel_outgoing {
    uint64_t number;
    uint32_t count; /* ops; 0 = the slot is free */
    uint32_t immediate;
    uint8_t queue; /* number % queue_pairs */
    uint8_t mask;
    uint8_t done;   /* shares that have arrived */
    uint8_t repeat; /* shares that must be sent again, and are on no queue pair */
    bool record;
    uint8_t carrier[CHANNEL_RAILS_MAX]; /* of each share; NO_RAIL = none at present */
    uint32_t part[CHANNEL_GROUP_MAX];   /* bytes of each buffer in share 0; the rest in share 1 */
    struct channel_op *ops[CHANNEL_GROUP_MAX];
    struct channel_target targets[CHANNEL_GROUP_MAX];
};

/* The next message to be sent, as far as it is known. */
struct channel_head {
    uint32_t count; /* 0 = its clear-to-send has not come */
    uint32_t filled;
    struct channel_op *ops[CHANNEL_GROUP_MAX];
    struct channel_target targets[CHANNEL_GROUP_MAX];
};

/* ---- Rails of a channel ---------------------------------------------------------------------- */

/* A share that is posted and not acknowledged. */
struct channel_posted {
    uint32_t wqe;
    uint16_t slot;
    uint16_t share;
};

struct channel_queue {
    struct channel *channel;
    struct nic_queue_pair *queue_pair;
    const struct nic_operations *operations; /* of its nic: each post needs them */
    struct list doorbell_link;               /* engine->doorbells: something was posted */
    uint8_t rail;                            /* whose nic it is on */
    bool connected;                          /* to the peer's of this number */
    struct channel_posted *posted;           /* ring */
    uint32_t posted_mask;
    uint32_t posted_head;
    uint32_t posted_tail;
};

enum rail_state {
    RAIL_NONE = 0, /* not of this context, or not to be used */
    RAIL_LACKED,   /* the peer has none */
    RAIL_DOWN,     /* rail 0 at first: queue pair 0, which the hellos connected, carries control */
    RAIL_OFFERED,  /* the active side waits for the answer */
    RAIL_PROBING,  /* connected; no probe has come yet */
    RAIL_UP,
    RAIL_FENCED, /* nothing can arrive any more; reports are under way */
};

enum fence_stage {
    FENCE_NONE = 0,
    FENCE_WANTED,  /* an error was seen, or the peer reported one */
    FENCE_DRAINED, /* its queue pairs are in the error state; when the devices have been polled
                      dry once more, it is done */
};

struct rail_speed {
    uint64_t bytes;   /* acknowledged, of large shares ... */
    uint64_t busy_ns; /* ... in so much time with any under way */
    uint64_t mark_ns;
    uint32_t open; /* large shares under way */
};

struct channel_rail {
    enum rail_state state;
    enum fence_stage fence;
    uint32_t epoch;
    uint32_t attempts; /* since it was up last */
    uint32_t peer_key;
    bool failed_once;
    bool report_wanted; /* to be sent */
    bool offer_wanted;
    bool answer_wanted;
    bool report_known; /* the peer's, of this epoch */
    uint8_t answer;    /* CHANNEL_ANSWER_* */
    bool shown_up;     /* as the application knows it */
    uint32_t changes;  /* that the application has not been told */
    struct channel_report report;
    struct channel_queue *queues[CHANNEL_QUEUE_PAIRS_MAX];
    struct link_address peer[CHANNEL_QUEUE_PAIRS_MAX];
    struct wheel_timer retry_timer;
    struct rail_speed speed;
};

/* ---- Control --------------------------------------------------------------------------------- */

struct channel_outbox {
    struct channel_queue *queue;
    uint32_t wqe;
};

/* ---- Channel --------------------------------------------------------------------------------- */

/* What the peer writes, and what we write from. */
struct channel_area {
    uint8_t *base;
    size_t bytes; /* mapped */
    struct nic_keys keys[CHANNEL_RAILS_MAX];
};

struct channel_send {
    uint64_t number; /* of the head */
    uint32_t queue;  /* number % queue_pairs */
    uint32_t open;   /* ops taken, not finished */
    struct channel_head head;
    struct list waiting; /* ops that fill no place of the head */
    struct list free;    /* of `ops` */
    struct channel_op *ops;
    struct channel_outgoing *outgoing;
    uint32_t repeats; /* shares with their bit in `repeat` */
};

struct channel_receive {
    struct channel_incoming *incoming;
    uint64_t number;      /* of the next receive */
    uint64_t cts_number;  /* of the next whose clear-to-send is to be posted */
    uint32_t cts_repeats; /* slots with `cts_repeat` */
    uint32_t open;        /* ops taken, not finished */
    uint8_t preferred;    /* rail that led the message received last */
    uint8_t
        repeat_rail; /* on which a clear-to-send was repeated and may be under way; or NO_RAIL */
    uint32_t repeat_wqe; /* the last of these */
};

struct channel_messages {
    uint32_t in_sequence;
    uint32_t out_sequence;
    struct channel_outbox outbox[CHANNEL_INBOX_MESSAGES];
    uint32_t unsent; /* a bit of each in the outbox: what is seldom costs little to look for */
    uint32_t posted; /* likewise; neither: free */
    uint8_t arrived; /* a bit of each in the inbox */
};

/* How far this side has taken leave. */
enum channel_leave {
    LEAVE_NONE = 0,
    LEAVE_ASKED, /* by the application; LEAVE is to be sent */
    LEAVE_SAID,
    BYE_WANTED, /* all is sent: BYE is to be sent */
    BYE_SAID,
};

/* And the peer. */
enum channel_peer_leave {
    PEER_STAYS = 0,
    PEER_LEAVES, /* it receives no more than bye.posted */
    PEER_BYE,    /* and has sent all */
};

struct channel {
    struct link link; /* comes first: a handle's object is the link */
    struct channel_engine *engine __attribute__((aligned(CACHE_LINE_BYTES)));
    int32_t bar;        /* CRPC_OK, or why no op can be taken now */
    uint32_t slot_mask; /* slots agreed on - 1 */
    uint32_t queue_pairs;
    uint32_t up;    /* mask of the rails that are UP */
    uint32_t share; /* of rail 0, parts of 1024 */
    uint32_t stripe_bytes_min;
    uint32_t split; /* CRPC_SPLIT_* */
    const struct channel_hint *hint;
    struct channel_send send;
    struct channel_receive receive;
    struct channel_area area;
    struct channel_area staging; /* the same layout, for what we write */
    uint64_t peer_area;
    struct channel_rail rails[CHANNEL_RAILS_MAX];
    uint32_t common; /* mask of rails that both sides have */
    struct channel_messages control;

    /* -- lists of the engine -- */
    struct list work_link;    /* may have something to post */
    struct list waiting_link; /* has sends that wait for a clear-to-send */
    struct list fence_link;   /* has rails to be fenced */

    /* -- the rest -- */
    enum channel_leave leave;
    enum channel_peer_leave peer_leave;
    struct channel_bye bye; /* the peer's */
    uint32_t ops_left;      /* taken, completion not given */
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

/* A sleeper looks for clear-to-sends this often: at first, and when nothing came for a while. */
#define LOOK_BACKOFF_MIN_NS UINT64_C(10000)
#define LOOK_BACKOFF_MAX_NS UINT64_C(1000000)

#define TIMER_SEND LINK_TIMER_SERVICE
#define TIMER_SETTLE (LINK_TIMER_SERVICE + 1)
#define TIMER_RAIL_0 (LINK_TIMER_SERVICE + 2) /* and TIMER_RAIL_0 + 1 */

struct engine_rail {
    struct nic *nic;
    const struct nic_operations *operations;
    struct table queues;        /* number -> struct channel_queue */
    uint32_t message_bytes_max; /* of one WQE */
    uint32_t receives_promised;
    uint64_t receives_completed;
};

struct channel_engine {
    struct engine_rail rails[CHANNEL_RAILS_MAX];
    uint32_t rail_count;
    struct link_group links;

    struct list work;
    struct list doorbells;
    struct list waiting;
    struct list fences;
    struct list finished; /* struct channel_op */

    uint64_t look_backoff_ns; /* between looks for clear-to-sends by one who sleeps */
    uint64_t look_ns;         /* when to look next */
    uint32_t channel_count;
    uint32_t channels_max;
    uint32_t wqe_bytes_max; /* that every rail can carry at once */
};

/* How often the slot of a message was used before; slots are a power of two. */
static inline uint32_t message_generation(const struct channel *channel, uint64_t number)
{
    return (uint32_t)(number >> __builtin_ctz(channel->slot_mask + 1)) & CHANNEL_GENERATION_MASK;
}

static inline struct channel_engine *engine_of_group(const struct link_group *group)
{
    return container_of(group, struct channel_engine, links);
}

/* ---- engine.c -------------------------------------------------------------------------------- */

/* Polls the devices dry, and fences rails that failed. */
void channel_take_completions(struct channel_engine *engine);
void channel_device_event(struct link_group *group, const struct cm_event *event);
void channel_timer(struct link_group *group, struct wheel_timer *timer);
static inline void channel_work(struct channel_engine *engine, struct channel *channel)
{
    list_append_once(&engine->work, &channel->work_link);
}
/* Posts what can be posted for a channel. */
void channel_flush(struct channel *channel);
/* Receives that one channel may use up on each rail: both shares of every slot, if the other rail is
 * lost, control, and probes. */
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

/* Ends an op: its completion is given by a later poll. */
void op_finish(struct channel_op *op, int32_t status);
void ops_emit_finished(struct channel_engine *engine, struct output *output);
/* Of a channel that goes: nobody is told. */
void ops_forget_finished(struct channel *channel);

/* ---- queues: rail.c -------------------------------------------------------------------------- */

/* Makes so many queue pairs of a rail, but for those that it has. On failure it has none. */
int32_t queues_create(struct channel *channel, uint32_t rail, uint32_t count, crpc_error *error);
/* Destroys those from number `from` on. */
void queues_destroy(struct channel *channel, uint32_t rail, uint32_t from);
/* One of them is in the error state. */
void queue_failed(struct channel_queue *queue);
static inline void queue_wants_doorbell(struct channel_queue *queue)
{
    list_append_once(&queue->channel->engine->doorbells, &queue->doorbell_link);
}

/* The channel's hellos have been exchanged: begins to bring up the rails. */
void rails_open(struct channel *channel);
void rail_take_offer(struct channel *channel, const struct channel_control *message);
void rail_take_answer(struct channel *channel, const struct channel_control *message);
void rail_take_report(struct channel *channel, const struct channel_control *message);
void rail_take_probe(struct channel *channel, uint32_t rail, uint32_t epoch);
void rail_fill_offer(struct channel *channel, uint32_t rail, struct channel_control *message);
void rail_fill_report(struct channel *channel, uint32_t rail, struct channel_control *message);
/* An error on one of its queue pairs. */
void rail_want_fence(struct channel *channel, uint32_t rail);
/* Takes the next step of the channel's fences; true if the devices must be polled again. */
bool channel_fence(struct channel *channel);
/* Offers a rail that is down again. */
void rail_retry(struct channel *channel, uint32_t rail);
/* True when no more rails are expected to come up soon. */
bool rails_settled(const struct channel *channel);

/* ---- control.c ------------------------------------------------------------------------------- */

void control_flush(struct channel *channel);
/* All WQEs of the queue before `completed` have succeeded. */
void control_acknowledge(struct channel_queue *queue, uint32_t completed);
/* Messages that a lost queue pair may not have delivered are sent again. */
void control_unsend(struct channel_queue *queue);
void control_take(struct channel *channel, uint32_t sequence);
void control_probe(struct channel *channel, uint32_t rail);
/* Posts an empty WRITE, whose acknowledgement tells that the peer is there, and that all before it has
 * been done. It uses no receive. Needs room and a rail that is up. */
void control_touch(struct channel_queue *queue);

/* ---- send.c ---------------------------------------------------------------------------------- */

/* Fills the head from what waits and posts what is complete. */
void sends_progress(struct channel *channel);
/* Posts shares that a lost rail has not delivered. */
void sends_repeat(struct channel *channel);
/* True if sends wait, and no more may come, for a message that cannot be completed. */
bool sends_stuck(const struct channel *channel);
/* Ends sends that wait and can never be sent. */
void sends_end_waiting(struct channel *channel, int32_t status);
void sends_end_all(struct channel *channel, int32_t status);
void send_expired(struct channel_op *op);
void outgoing_done(struct channel *channel, struct channel_outgoing *outgoing, uint32_t share);

/* ---- receive.c ------------------------------------------------------------------------------- */

void receives_post_cts(struct channel *channel);
void receives_repeat_cts(struct channel *channel, uint32_t rail);
void receive_immediate(struct channel_queue *queue, uint32_t immediate, uint32_t bytes);
void receives_end_all(struct channel *channel, int32_t status);

/* ---- channel.c ------------------------------------------------------------------------------- */

extern const struct link_service channel_service;
/* Nothing happens if it was already, or if its only rail has gone meanwhile. */
void channel_connected(struct channel *channel);
/* Looks whether a leave is complete. */
void channel_check_leave(struct channel *channel);

/* ---- speed.c, hint.c ------------------------------------------------------------------------- */

#define SPEED_SHARE_BYTES_MIN 16384u /* smaller shares tell of latency, not of speed */

void speed_begin(struct channel *channel, uint32_t rail, uint32_t bytes);
void speed_end(struct channel *channel, uint32_t rail, uint32_t bytes);
/* Nothing is under way on a rail that was lost. */
void speed_forget(struct channel_rail *rail);
void speed_init(struct channel *channel);

const struct channel_hint *hint_open(const char *name);
void hint_close(const struct channel_hint *hint);
/* False: there is none that can be believed. */
bool hint_read(const struct channel_hint *hint, uint32_t *rail0_share);

/* ---- area.c ---------------------------------------------------------------------------------- */

/* Anonymous pages, registered with the rails of the mask. */
int32_t area_create(struct channel_engine *engine, struct channel_area *area, uint64_t bytes,
                    uint32_t rails, uint32_t access, crpc_error *error);
void area_destroy(struct channel_engine *engine, struct channel_area *area);

#endif
