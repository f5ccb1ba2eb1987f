/* internal.h: the state of the engine and of its channels. Only files of core/channel include it.
 *
 *   engine.c    creation of the engine; completions of the devices
 *   poll.c      the steps of a poll, and their order
 *   channel.c   the link's service: memory, hello, failure, close, info
 *   leave.c     disconnecting with LEAVE and BYE; the keepalive
 *   op.c        ends of ops, and their completions
 *   control.c   control messages: taken once and in order, whatever carries them
 *   rail.c      rails that come up, are lost, and come back
 *   send.c      sends, arriving clear-to-sends, posting
 *   send_end.c  sends that end before they arrive
 *   receive.c   receives, outgoing clear-to-sends, arriving immediates
 *   grant.c     the peer's rights to write to the buffers of receives
 *   rights.c    the rights that the peer gave
 *   split.h     splits a buffer over the rails; speed.c by measurement, hint.c by a hint
 *   area.c      the memory that the peer writes
 *
 * Each direction numbers its messages from 0, with 64 bits. Message n uses slot n % slots.
 * Everything that is sent for it goes through queue pair n % queue_pairs of a rail.
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
    GRANT_BINDING, /* the binds are posted */
    GRANT_GRANTED,
    GRANT_WITHDRAWING, /* the invalidates are posted */
};

struct channel_window {
    struct nic_window window;
    struct channel_window *next; /* in the queue's list of free ones */
};

struct channel_incoming {
    uint64_t number;
    uint64_t bytes; /* sum over the immediates seen; without a record that is the size */
    uint32_t count; /* ops; 0 = the slot is free */
    uint32_t emitted;
    uint8_t mask; /* of shares; 0 until the first immediate arrives */
    uint8_t seen;
    bool record;
    bool open;           /* not complete yet */
    bool cts_posted;     /* its clear-to-send has been posted */
    bool cts_repeat;     /* its clear-to-send must be posted again */
    uint8_t cts_rail;    /* rail that carried the clear-to-send */
    uint8_t queue;       /* number % queue_pairs */
    uint8_t told;        /* mask of the rails of whose rights it told */
    bool arrived;        /* complete, but for rights that have not ended */
    bool withdraw_later; /* some of them wait for room in a send queue */
    bool repeat_open;    /* a clear-to-send of the slot that was repeated may be under way ... */
    uint8_t repeat_rail; /* ... over this rail */
    uint8_t grants[CHANNEL_RAILS_MAX];                                    /* enum grant_state */
    struct channel_window *windows[CHANNEL_RAILS_MAX][CHANNEL_GROUP_MAX]; /* NULL = none */
    struct channel_op ops[CHANNEL_GROUP_MAX];
};

/* ---- Messages being sent --------------------------------------------------------------------- */

struct channel_target {
    uint64_t address;
    uint64_t room;
    struct channel_right rights[CHANNEL_RAILS_MAX];
    uint32_t tag;
};

struct channel_outgoing {
    uint64_t number;
    uint32_t count; /* ops; 0 = the slot is free */
    uint32_t immediate;
    uint8_t queue; /* number % queue_pairs */
    uint8_t mask;
    uint8_t done;   /* shares that have arrived at the peer */
    uint8_t repeat; /* shares to send again, which are on no queue pair */
    bool record;
    uint8_t carrier[CHANNEL_RAILS_MAX]; /* rail that carries each share; NO_RAIL = none now */
    uint32_t part[CHANNEL_GROUP_MAX];   /* bytes of each buffer in share 0; the rest is share 1 */
    struct channel_op *ops[CHANNEL_GROUP_MAX];
    struct channel_target targets[CHANNEL_GROUP_MAX];
};

/* The next message to send, as far as it is known. */
struct channel_head {
    uint32_t count; /* 0 = its clear-to-send has not arrived */
    uint32_t filled;
    uint32_t rails;    /* mask of those over which it may be written, soon */
    uint64_t since_ns; /* it waits for rights over some of them; 0 = not yet */
    struct channel_op *ops[CHANNEL_GROUP_MAX];
    struct channel_target targets[CHANNEL_GROUP_MAX];
};

/* ---- Rails of a channel ---------------------------------------------------------------------- */

/* A share, or the binds or invalidates of a message, posted and not acknowledged yet. */
struct channel_posted {
    uint32_t wqe;
    uint16_t slot;
    uint16_t share; /* or POSTED_* */
};

#define POSTED_BIND CHANNEL_RAILS_MAX
#define POSTED_INVALIDATE (CHANNEL_RAILS_MAX + 1)
#define POSTED_REPEAT (CHANNEL_RAILS_MAX + 2) /* a clear-to-send */

struct channel_queue {
    struct channel *channel;
    struct nic_queue_pair *queue_pair;
    const struct nic_operations *operations; /* of its nic; cached, because each post needs them */
    struct list doorbell_link;               /* on engine->doorbells if something was posted */
    uint8_t rail;                            /* the rail that it belongs to */
    bool connected;                          /* to the peer's queue pair with the same index */
    struct link_progress progress;
    struct channel_posted *posted; /* ring */
    uint32_t posted_mask;
    uint32_t posted_head;
    uint32_t posted_tail;
    struct channel_window *windows; /* NULL = its device has none */
    struct channel_window *windows_free;
    uint32_t windows_count;
    uint32_t windows_left; /* free */
};

enum rail_state {
    RAIL_NONE = 0, /* the context has none, or the options leave it out */
    RAIL_LACKED,   /* the peer does not have it */
    RAIL_DOWN,     /* not in use; at first, queue pair 0 of rail 0 carries control */
    RAIL_OFFERED,  /* the active side has sent an offer and waits for the answer */
    RAIL_PROBING,  /* connected; no probe has arrived yet */
    RAIL_UP,
    RAIL_FENCED, /* nothing can arrive over it any more; reports are under way */
};

enum fence_stage {
    FENCE_NONE = 0,
    FENCE_WANTED,  /* this side saw an error, or the peer reported one */
    FENCE_DRAINED, /* its queue pairs are in the error state; the fence is done when the devices
                      have been polled empty once more */
};

struct rail_speed {
    uint64_t bytes;   /* of large shares that were acknowledged */
    uint64_t busy_ns; /* time during which large shares were under way */
    uint64_t mark_ns;
    uint32_t open; /* large shares under way now */
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
    struct wheel_timer retry_timer;
    struct rail_speed speed;
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
    uint32_t queue;  /* number % queue_pairs */
    uint32_t open;   /* ops accepted, not finished */
    struct channel_head head;
    struct list waiting; /* ops without a place in the head */
    struct list free;    /* of `ops` */
    struct channel_op *ops;
    struct channel_outgoing *outgoing;
    uint32_t repeats;   /* shares whose bit in `repeat` is set */
    bool rights_wanted; /* the head waits for rights */
    bool rights_late;   /* the last that waited did so in vain */
};

struct channel_receive {
    struct channel_incoming *incoming;
    uint64_t number;          /* of the next receive */
    uint64_t cts_number;      /* of the next receive whose clear-to-send must be posted */
    uint64_t grant_number;    /* of the next receive whose rights must be granted; not less */
    uint32_t queue;           /* number % queue_pairs */
    uint32_t withdraws_later; /* messages whose withdraw_later is set */
    uint32_t cts_repeats;     /* slots whose cts_repeat is set */
    uint32_t open;            /* ops accepted, not finished */
    uint32_t cts_lost; /* mask of rails that are lost; a clear-to-send may be under way over them */
    uint8_t preferred; /* leading rail of the last message received */
    uint32_t repeats_open; /* repeated clear-to-sends that may be under way */
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
    uint32_t up;    /* mask of the rails that are UP */
    uint32_t share; /* of rail 0, parts of 1024 */
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
    struct channel_messages control;

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

/* How often a sleeping sender looks for clear-to-sends: at first, and when none has come for a
 * while. */
#define LOOK_BACKOFF_MIN_NS UINT64_C(10000)
#define LOOK_BACKOFF_MAX_NS UINT64_C(1000000)

/* Windows of a queue pair for each of its messages: groups of more buffers may have to wait. */
#define WINDOWS_EACH 4u

/* How long a message waits for rights over more rails, if it has one over some: a peer that posts
 * receives and then does not poll cannot tell of them. After such a one, those that follow wait the
 * shorter time, until rights come in time. */
#define RIGHTS_WAIT_NS UINT64_C(50000000)
#define RIGHTS_WAIT_SHORT_NS UINT64_C(100000)

#define TIMER_SEND LINK_TIMER_SERVICE
#define TIMER_SETTLE (LINK_TIMER_SERVICE + 1)
#define TIMER_RAIL_0 (LINK_TIMER_SERVICE + 2) /* and TIMER_RAIL_0 + 1 */

struct engine_rail {
    struct nic *nic;
    const struct nic_operations *operations;
    struct table queues;        /* number -> struct channel_queue */
    uint32_t message_bytes_max; /* limit of one WQE */
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

    uint64_t look_backoff_ns; /* pause between looks for clear-to-sends while asleep */
    uint64_t look_ns;         /* time of the next look */
    bool binds_posted;        /* of a channel with two rails, since the last channel_submit_end */
    uint32_t windows_each;    /* WINDOWS_EACH; tests make them scarce */
    uint32_t channel_count;
    uint32_t channels_max;
    uint32_t wqe_bytes_max; /* limit of one WQE that all rails can keep */
};

/* Returns how often the slot of a message was used before. The number of slots is a power of
 * two. */
static inline uint32_t message_generation(const struct channel *channel, uint64_t number)
{
    return (uint32_t)(number >> __builtin_ctz(channel->slot_mask + 1)) & CHANNEL_GENERATION_MASK;
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

/* ---- queues: rail.c -------------------------------------------------------------------------- */

/* Creates the queue pairs of a rail up to `count`; those that exist stay. On failure, the rail has
 * none. */
int32_t queues_create(struct channel *channel, uint32_t rail, uint32_t count, crpc_error *error);
/* Destroys the queue pairs of a rail from index `from` on. */
void queues_destroy(struct channel *channel, uint32_t rail, uint32_t from);
/* Handles a queue pair in the error state. */
void queue_failed(struct channel_queue *queue);
static inline void queue_wants_doorbell(struct channel_queue *queue)
{
    list_append_once(&queue->channel->engine->doorbells, &queue->doorbell_link);
}

/* Begins to bring up the rails, after the hellos were exchanged. */
void rails_open(struct channel *channel);
/* Reports that the channel is connected. Does nothing if it was already, or if no rail is up. */
void channel_connected(struct channel *channel);
void rail_take_offer(struct channel *channel, const struct channel_control *message);
void rail_take_answer(struct channel *channel, const struct channel_control *message);
void rail_take_report(struct channel *channel, const struct channel_control *message);
void rail_take_probe(struct channel *channel, uint32_t rail, uint32_t epoch);
void rail_fill_offer(struct channel *channel, uint32_t rail, struct channel_control *message);
void rail_fill_report(struct channel *channel, uint32_t rail, struct channel_control *message);
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
/* Gives the head's free places to waiting sends, the oldest first. */
void sends_fill_places(struct channel *channel);
/* Makes the device complete what was not signaled, if only that is under way. */
void queue_ask_for_room(struct channel_queue *queue);
void outgoing_done(struct channel *channel, struct channel_outgoing *outgoing, uint32_t share);

/* ---- send_end.c ------------------------------------------------------------------------------ */

/* Returns true if the head is not full. It then never will be, if no more sends are accepted. */
bool sends_stuck(const struct channel *channel);
/* Ends waiting sends that can never be sent. */
void sends_end_waiting(struct channel *channel, int32_t status);
void sends_end_all(struct channel *channel, int32_t status);
void send_expired(struct channel_op *op);

/* ---- receive.c ------------------------------------------------------------------------------- */

void receives_post_cts(struct channel *channel);
/* Posts clear-to-sends again that a lost rail may not have delivered. */
void receives_repeat_cts(struct channel *channel, uint32_t rail);
/* Tells the peer of rights over a rail that has come up. */
void receives_renew_cts(struct channel *channel);
/* A repeated clear-to-send has landed. */
void receive_repeat_done(struct channel *channel, struct channel_incoming *incoming);
/* Nothing can land over a lost rail any more. */
void receives_forget_repeats(struct channel *channel, uint32_t rail);
/* More of a message's rights are there: tells of them, if its clear-to-send left without. */
void receive_tell_more(struct channel *channel, struct channel_incoming *incoming);
void receive_immediate(struct channel_queue *queue, uint32_t immediate, uint32_t bytes);
void receives_end_all(struct channel *channel, int32_t status);

/* ---- rights.c -------------------------------------------------------------------------------- */

/* Returns the mask of rails over which a message may be written now. */
static inline uint32_t rights_rails(const struct channel *channel,
                                    const struct channel_target *targets, uint32_t count)
{
    uint32_t rails = channel->up;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t rail = 0; rail < CHANNEL_RAILS_MAX; rail++) {
            if (targets[i].rights[rail].epoch != channel->rails[rail].epoch) {
                rails &= ~(1u << rail);
            }
        }
    }
    return rails;
}
/* Does the same, if the clear-to-send may have been written again since it was read: only its rights are
 * others then, and each is whole. */
uint32_t rights_read(const struct channel *channel, uint64_t number, struct channel_target *targets,
                     uint32_t count);
/* The head lacks rights over rails that are up. Returns those over which it may go now; 0: it waits,
 * and looks for them as for a clear-to-send, since they come without an event. */
uint32_t rights_await(struct channel *channel);

/* ---- grant.c --------------------------------------------------------------------------------- */

/* Creates the windows of a queue pair, unless it has them or its device has none. On failure, those
 * that exist stay until grants_destroy. */
int32_t grants_create(struct channel_queue *queue, crpc_error *error);
/* Ends all rights over a queue pair that is about to be destroyed. */
void grants_destroy(struct channel_queue *queue);
/* Begins to grant what is missing over the rails that are up. Returns false if some of it must wait. */
bool grants_begin(struct channel *channel, struct channel_incoming *incoming);
/* Returns the mask of rails that are up over which the rights are there, or will be when a later WQE of
 * queue pair `behind` arrives (NULL: none). */
uint32_t grants_to_tell(const struct channel *channel, const struct channel_incoming *incoming,
                        const struct channel_queue *behind);
/* The right to a buffer of a message over a rail of grants_to_tell. */
struct channel_right grant_right(const struct channel *channel,
                                 const struct channel_incoming *incoming, uint32_t index,
                                 uint32_t rail);
/* Ends the rights of a message that has arrived. Its receives complete, with the status in their ops,
 * when they have ended. */
void grants_withdraw(struct channel *channel, struct channel_incoming *incoming);
/* Goes on where there was no room. */
void grants_withdraw_later(struct channel *channel);
/* Notes what of a message is done when a WQE completes, POSTED_*. A queue pair that has failed takes none,
 * and none of this number completes. */
void queue_note(struct channel_queue *queue, const struct channel_incoming *incoming, uint32_t wqe,
                uint16_t what);
/* What was noted is done. */
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

#define SPEED_SHARE_BYTES_MIN 16384u /* smaller shares would measure latency, not speed */

void speed_begin(struct channel *channel, uint32_t rail, uint32_t bytes);
void speed_end(struct channel *channel, uint32_t rail, uint32_t bytes);
/* Discards the measurements of a rail that was lost. */
void speed_forget(struct channel_rail *rail);
void speed_init(struct channel *channel);

const struct channel_hint *hint_open(const char *name);
void hint_close(const struct channel_hint *hint);
/* Returns false if there is no valid hint. */
bool hint_read(const struct channel_hint *hint, uint32_t *rail0_share);

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
