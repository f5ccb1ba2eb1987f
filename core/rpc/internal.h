/* internal.h: the state of the engine and of its endpoints. Only files of core/rpc include it.
 *
 *   engine.c    creation of the engine; completions of the device
 *   poll.c      the steps of a poll, and their order
 *   send.c      calls, replies, the open batch, mailbox READs
 *   lone.c      a call or reply that is alone, up to the device; message.h: shared with send.c
 *   receive.c   arrivals, checks of them, views, release
 *   gather.c    messages whose payload the device reads from a region
 *   arena.c     payloads that the peer writes to memory of the application
 *   run.c       messages of one kind, one behind the other: sent and received; run.h: shared with receive.c
 *   calls.c     call slots, deadlines, cancel
 *   abandon.c   telling the peer whose requests nobody waits for any more
 *   trace.c     telling the peer whose call a request is, for tracing
 *   endpoint.c  the link's service: memory, failure, draining, close
 *   body.c      its hello, and what the peer's asks for
 *   leave.c     disconnecting with FIN; the keepalive
 *   grow.c      rings that grow, and windows that are lent: memory and receives go to those who use them
 *   lane.c      the lane: how it is made, and how it ends
 *   lasting.c   endpoints that connect again; lasting.h
 *   word.c      what the two sides of a lane say
 *   after.c     messages that follow ops of a lane
 *
 * A position in a ring is a 64-bit byte count that only grows.
 */
#ifndef CORE_RPC_INTERNAL_H
#define CORE_RPC_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/chain.h"
#include "base/list.h"
#include "base/output.h"
#include "base/table.h"
#include "base/wheel.h"
#include "lane/lane.h"
#include "nic/drain.h"
#include "nic/queue.h"
#include "link/link.h"
#include "rpc/metrics.h"
#include "rpc/ring.h"
#include "rpc/rpc.h"
#include "rpc/wire.h"

/* ---- Calls of this side ---------------------------------------------------------------------- */

enum rpc_call_state {
    CALL_LIVE = 0, /* waits for its response */
    CALL_TIMED,    /* likewise, with a deadline */
    CALL_ENDED,    /* timed out, canceled or failed; waits on engine->ended for its completion */
    CALL_ANSWERED, /* like ENDED, but its late response has arrived */
    CALL_ZOMBIE,   /* completed; slot and allowance wait for the late response */
    CALL_FREE,
};

/* A blocked endpoint first reads the peer's mailbox after one tick of the wheel. As long as that
 * brings no new limit, the pauses double. */
#define READ_BACKOFF_MIN_NS UINT64_C(8000)
#define READ_BACKOFF_MAX_NS UINT64_C(1000000)

#define TIMER_CALL LINK_TIMER_SERVICE
#define TIMER_READ (LINK_TIMER_SERVICE + 1)
#define TIMER_GRANT (LINK_TIMER_SERVICE + 2)
#define TIMER_LANE (LINK_TIMER_SERVICE + 3)
#define TIMER_ATTEMPT (LINK_TIMER_SERVICE + 4)
#define TIMER_KEPT (LINK_TIMER_SERVICE + 5)

/* A lane that has failed is made again after a pause, which doubles each time: it takes system calls in a
 * poll, and the peer can be to blame. */
#define LANE_PAUSE_MIN_NS UINT64_C(10000000)
#define LANE_PAUSE_MAX_NS UINT64_C(10000000000)

/* No op of a lane needs a receive of the peer. If its device says all the same that it is not ready, the lane
 * fails after so many tries, which take less than 5 s: nothing watches over its queue pair as link_stuck does over
 * others. */
#define LANE_RNR_TRIES 7u

/* The device may read the call's payload from a region: it does not complete before, if it ends early. */
#define CALL_GATHERED 0xffu

struct rpc_call {
    /* In ENDED and ANSWERED, its link is on engine->ended; in ZOMBIE it may be on calls.telling. */
    struct wheel_timer timer;
    struct rpc_endpoint *endpoint;
    union {
        uint64_t user_data;
        struct rpc_call *next_free; /* FREE */
    };
    /* One word for run.c: with a live call it is the call id alone. */
    uint32_t call_id;
    uint32_t state; /* enum rpc_call_state */
    /* One word for run.c: the second of the request's header, but for the status. */
    uint32_t reply_bytes_max;
    uint16_t method;
    uint8_t kind;       /* CALL_GATHERED, or it has no meaning here */
    int8_t status;      /* ENDED: CRPC_E_* */
    uint64_t allowance; /* taken from the reply budget */
} __attribute__((aligned(CACHE_LINE_BYTES)));
static_assert(sizeof(struct rpc_call) == CACHE_LINE_BYTES, "a call is one cache line");
static_assert(offsetof(struct rpc_call, call_id) % 8 == 0 && CALL_LIVE == 0 &&
                  offsetof(struct rpc_call, state) - offsetof(struct rpc_call, call_id) == 4,
              "the word of a live call is its call id");
static_assert(offsetof(struct rpc_call, reply_bytes_max) % 8 == 0 &&
                  offsetof(struct rpc_call, method) - offsetof(struct rpc_call, reply_bytes_max) ==
                      offsetof(struct wire_message, method) -
                          offsetof(struct wire_message, limit_or_status) &&
                  offsetof(struct rpc_call, kind) - offsetof(struct rpc_call, method) ==
                      offsetof(struct wire_message, kind) - offsetof(struct wire_message, method),
              "a call has a word of its request's header");

static inline bool call_live(const struct rpc_call *call)
{
    return call->state <= CALL_TIMED;
}

/* A request of the peer. The index of its call id is its index in the table. */
struct rpc_request {
    uint64_t token; /* its call id is the lower half */
    /* A reply has fewer bytes. 0: this has been replied to, or there was none. */
    uint32_t reply_bytes_bound;
    uint32_t allowance; /* the charge of the longest reply; less than a ring */
};

/* A reply that completes when the peer's device has acknowledged it. */
struct rpc_sent_reply {
    uint64_t user_data;
    uint64_t token;
};

/* A batch with such replies. */
struct rpc_sent_batch {
    uint32_t wqe;          /* the send WQE that must complete */
    uint32_t replies_tail; /* number after that of its last reply */
};

/* ---- Endpoint -------------------------------------------------------------------------------- */

/* The peer's side, from its hello, and what it has said since. */
struct rpc_peer {
    uint64_t ring_bytes_max;
    uint64_t request_bytes_max;
    uint32_t ring_key;
    uint32_t calls; /* its call indices are below this number */
    uint32_t batch_window_first;
    /* what a lone call uses */
    uint32_t batch_window; /* the largest */
    uint64_t ring_address; /* of the ring that this side writes to */
    uint64_t ring_bytes;
    uint64_t request_bytes; /* share of that ring for this side's requests */
};

/* A batch that is complete and not sent. Those set aside are sent before the open one. */
struct rpc_batch {
    uint64_t start;
    uint64_t end;
    uint64_t request_end; /* charges of all requests up to it */
    uint32_t messages;
    uint32_t replies_end; /* of the replies to report, those up to it */
    uint32_t gate;        /* of the lane, if it is gated */
    bool gated;
    bool wants_completion;
    bool gathers; /* of the open batch alone */
};

/* Sending, and the peer's limits. Positions are positions in the peer's ring. */
struct rpc_out {
    uint64_t produced;    /* end of what was written */
    uint64_t batch_start; /* of the open batch, if batch_messages > 0 */
    uint32_t batch_messages;
    bool batch_wants_completion;
    bool refused_for_limit;    /* an op got CRPC_E_AGAIN for the peer's limits or arena */
    uint64_t request_produced; /* charges of all requests written */
    uint64_t request_sent;     /* of those in batches that were sent */
    uint64_t request_limit;    /* the peer's, as last known */
    uint64_t batches_sent;     /* with the jumps of this side's YIELDs */
    uint64_t batch_limit;      /* the peer's, as last known */
    uint64_t heard; /* in the upper half: what the peer has said of its arena in the last batch */
    struct nic_transfer transfer; /* of the batch that was sent last; its keys are those of all */
    uint64_t
        time_mask; /* of wire_time_code, where it is in a header's second word; 0: it is not said */
    struct ring staging; /* our send ring; same size and positions as the peer's receive ring */
};

/* Calls of this side. */
struct rpc_calls {
    uint64_t reply_budget;      /* Cr: share of our ring for replies */
    uint64_t reply_outstanding; /* allowances of calls whose response is not released */
    struct rpc_call *slots;     /* of which there are `made`; if none are, one that stays FREE */
    struct rpc_call *first_free;
    uint32_t made;       /* a power of two, or 0 */
    uint32_t index_mask; /* what the index of a slot may be: made - 1, or 0 */
    uint32_t live;
    uint32_t used;             /* slots that are not FREE */
    uint32_t ended;            /* calls on engine->ended */
    struct list telling;       /* ZOMBIEs that the peer is to be told of, by timer.link */
    uint32_t max;              /* slots that there may be */
    struct rpc_call *memory;   /* for all of them; what is not made has not been touched */
    uint64_t reply_budget_max; /* of the largest ring */
};

/* Requests of the peer that wait for their reply. */
struct rpc_owed {
    struct rpc_request *slots;
    uint32_t slot_count; /* the peer's number of call slots */
    uint32_t count;
    uint64_t allowance;
    uint64_t allowance_max; /* the peer's reply budget */
    uint32_t token_sequence;
};

/* Replies that the peer's device has not acknowledged. */
struct rpc_sent {
    struct rpc_sent_reply *replies; /* ring of owed.slot_count entries */
    uint32_t replies_head;          /* counters; masked by owed.slot_count - 1 */
    uint32_t replies_acknowledged;  /* replies before this one can be reported */
    uint32_t replies_tail;
    int32_t status;                 /* the status that they are reported with */
    struct rpc_sent_batch *batches; /* ring as long as the send queue */
    uint32_t batch_slots;
    uint32_t batches_head;
    uint32_t batches_tail;
};

/* Whether the peer has sent FIN, relative to the batch that is being parsed. */
enum rpc_fin {
    FIN_NONE = 0,
    FIN_WITH_BATCH, /* with this batch, which may still have requests */
    FIN_BEFORE,     /* with an earlier batch; no more requests are allowed */
};

/* As which the next message of a batch is taken: as the one before. */
enum rpc_last {
    LAST_RESPONSE = 0,
    LAST_REQUEST,
    LAST_TIMED_REQUEST, /* which says how long its caller waits */
};

/* Receiving. */
struct rpc_in {
    /* what a lone call uses, and the beginning of `ring` */
    struct wire_mailbox *mailbox;
    uint64_t arrived;  /* end of the last batch that arrived */
    uint64_t parsed;   /* next byte to parse */
    uint64_t released; /* the peer may overwrite everything before this */
    uint64_t capacity; /* bytes of the ring that the peer writes to */
    uint64_t batches_consumed;
    uint64_t request_share;     /* Cq */
    uint64_t request_consumed;  /* charges of released requests */
    uint64_t request_arrived;   /* charges of requests parsed */
    uint64_t request_published; /* the limit in our mailbox */
    uint64_t batch_published;
    /* parsed by this poll; the next poll releases it, and what is between request_consumed and request_arrived */
    uint64_t held_allowance;
    uint32_t held_batches;
    uint32_t batch_window; /* W, with what is lent of it */
    uint32_t arrivals_head;
    uint32_t arrivals_tail; /* low 32 bits of the number of batches that have arrived */
    uint32_t sequence_expected;
    uint32_t returned; /* of this side's arena: WIRE_RETURNED_PLACES */
    union {
        struct {
            enum rpc_fin fin;
            bool distrusted; /* what has arrived must not be parsed */
            bool moving;   /* the peer has moved to the larger ring: grow.c looks when views end */
            uint16_t none; /* 0, the rest of the word */
        };
        uint64_t odd; /* one word for a lone call: 0 = nothing of these */
    };
    enum rpc_last last; /* of the messages that were taken one by one */
    uint32_t kind_mask; /* what of a header's last 16 bits tells if it is a request's */
    struct ring ring;
    uint64_t batch_end;  /* of the batch being parsed */
    uint32_t batch_left; /* messages of that batch not parsed yet */
    uint32_t arrivals_mask;
    uint32_t *arrivals; /* lengths of arrived batches not begun yet; a ring of a power of two */
};

/* READs of the peer's mailbox, for limits that no batch has brought. */
struct rpc_read {
    bool in_flight;
    bool waits; /* for an initiator: it is sent when there is one */
    uint32_t wqe;
    const struct wire_mailbox *landing; /* where it lands */
    uint64_t backoff_ns;
    struct wheel_timer timer;
};

/* A message that the application writes in place. */
struct rpc_reservation {
    bool open;
    crpc_op op;
};

/* The payload of a message, as long as the device may read it. */
struct rpc_gathered {
    uint32_t *users;       /* of its region; NULL = none */
    struct rpc_call *call; /* whose payload it is; NULL = a reply's */
    uint32_t call_id;      /* the slot may have another call by then */
};

/* Messages whose payload stays in a region: gather.c. */
struct rpc_gather {
    bool waits;             /* the open batch ends with such a message; this is its payload: */
    struct nic_piece piece; /* where it is */
    const void *source;     /* likewise, if the processor may read it; otherwise NULL */
    bool placed;            /* it goes to the peer's arena: */
    uint32_t place;
    uint64_t position;        /* where it would be in the send ring, if it is not placed */
    struct rpc_gathered open; /* who waits for it */
    struct rpc_gathered
        *sent; /* of batches that were sent, as sent.batches; NULL = there was none yet */
    struct list memories; /* regions as the queue pair can use them */
};

#define RPC_GROW_SAY_WANT 0x1u
#define RPC_GROW_SAY_RING 0x2u
#define RPC_GROW_SAY_MOVED 0x4u
#define RPC_GROW_SAY_YIELD 0x8u
#define RPC_GROW_SAY_ARENA 0x10u

/* Memory of this side that the peer writes payloads to: arena.c. */
struct rpc_arena {
    uint64_t address;
    uint32_t place_bytes;
    uint32_t places; /* 0: there is none */
    uint32_t taken;  /* a bit for each place with a payload that was not given back */
    bool readable;   /* by the processor */
    uint32_t *users; /* of its region */
    struct nic_keys keys;
};

/* The same at the other side. */
struct rpc_peer_arena {
    uint64_t address;
    uint32_t place_bytes;
    uint32_t key;
    uint32_t places; /* 0: it has lent none */
    uint32_t used;   /* a bit for each place with a payload that was not returned */
};

/* Rings that grow: grow.c. */
struct rpc_grow {
    uint8_t due;           /* RPC_GROW_SAY_*: to be said */
    bool waits;            /* what is not sent waits in out.staging until MOVED is said */
    bool offered;          /* RING was said, and the peer has not moved, as far as was parsed */
    bool moved;            /* it has, and what it wrote there is not parsed yet */
    bool want_heard;       /* the peer has said WANT */
    bool says_moved;       /* MOVED must be in the batch that is parsed */
    uint64_t moved_at;     /* the position where the larger ring begins */
    uint64_t old_produced; /* waits: end of what was written to staging_old */
    uint64_t ring_said_in; /* RING is sent when so many batches are */
    uint64_t idle_sent;    /* batches that were sent at the last keepalive */
    struct ring next;      /* of this side, not in use yet */
    struct ring old;       /* has views that end with this poll; or a READ lands there */
    struct wire_ring peer_next;
    struct ring staging_old; /* not waits: the device may read it until this WQE has completed: */
    uint32_t staging_old_wqe;
};

/* How far this side's disconnect has come. */
enum rpc_leave {
    LEAVE_NONE = 0,
    LEAVE_WANTED, /* the next batch carries FIN */
    LEAVE_SAID,
};

enum rpc_lane_state {
    RPC_LANE_NONE = 0, /* not asked for, or the endpoint is not connected */
    RPC_LANE_WAITS,    /* for the peer's address */
    RPC_LANE_JOINING,  /* a task connects its queue pair */
    RPC_LANE_JOINED,   /* waits until the peer's is connected */
    RPC_LANE_OPEN,
    RPC_LANE_FAILED, /* calls go on; it is made again */
};

/* Batches that wait for different ops of a lane. */
#define RPC_ASIDE_MAX 64u

#define RPC_LANE_SAY_ADDRESS 0x1u
#define RPC_LANE_SAY_READY 0x2u
#define RPC_LANE_SAY_ENDED 0x4u

#define RPC_LANE_HEARD_ADDRESS 0x1u
#define RPC_LANE_HEARD_READY 0x2u
#define RPC_LANE_HEARD_ENDED 0x4u

/* A second queue pair for one-sided ops: lane.c. */
struct rpc_lane {
    struct lane *lane;  /* NULL = none */
    uint8_t state;      /* enum rpc_lane_state */
    uint8_t due;        /* RPC_LANE_SAY_*: words to be said */
    uint8_t heard;      /* RPC_LANE_HEARD_*: words of the peer, of its life */
    bool gated;         /* the open batch waits for ops of the lane: those before `gate` */
    bool failed_behind; /* when it failed, a batch did */
    bool refused;       /* an op got CRPC_E_AGAIN */
    bool was_ready;     /* the peer has said so, of this life or of one before */
    uint32_t gate;
    struct rpc_batch *aside; /* RPC_ASIDE_MAX; if there are any, the open batch has messages */
    uint32_t aside_head;
    uint32_t aside_count;
    uint32_t number;      /* of its queue pair; 0 = none in the engine's table */
    uint32_t life;        /* how often this side has made it */
    uint32_t peer_life;   /* of which the peer has spoken last */
    uint32_t told_life;   /* of whose address it has told the peer; 0 = none */
    uint32_t ended_life;  /* whose end this side has told; 0 = none */
    uint64_t said_in;     /* what it has told is sent when so many batches are */
    uint64_t answered_in; /* likewise the answer to the peer's REVOKE */
    uint64_t pause_ns;
    struct wheel_timer timer;
    struct nic_address address; /* of the peer's, in its life: changes with what the peer says */
    struct nic_address join_address;
    struct link_task join; /* connects it to the join_address; a thread may read that */
    struct nic_completion failure;
    struct list done_link;    /* has completions to give */
    struct list failing_link; /* must be ended */
};

struct rpc_endpoint {
    struct link link; /* must come first: a handle's object is the link */

    /* What a lone call uses, in as few cache lines as it has room in. */
    struct rpc_engine *engine __attribute__((aligned(CACHE_LINE_BYTES)));
    /* CRPC_OK, or why calls are refused now. CRPC_E_AGAIN if `lasting` takes them: `bar` says more. */
    int32_t call_bar;
    int32_t reply_bar; /* likewise for replies */
    union {
        struct {
            enum rpc_leave leave;
            bool lane_attention; /* words of the lane are due, or its ops hold the batch back */
            bool grow_attention; /* something of struct rpc_grow is due */
            uint16_t none;       /* 0, the rest of the word */
        };
        uint64_t attention; /* one word for lone.c: 0 = nothing of these */
    };
    struct chain release_link; /* has views to end */
    uint64_t user_data;        /* as in the options */
    struct rpc_out out;
    struct rpc_peer peer;
    struct rpc_calls calls;
    struct rpc_owed owed;
    struct rpc_in in;
    struct rpc_sent sent;
    struct rpc_read read;

    /* -- lists of the engine -- */
    struct list work_link;         /* may have something to send; on engine->work or ->urgent */
    struct list ready_link;        /* has arrivals to parse */
    struct list acknowledged_link; /* has acknowledged replies to report */
    struct list failing_link;      /* must be drained */

    /* -- the rest -- */
    struct rpc_reservation reservation;
    struct rpc_lane lane;
    struct rpc_gather gather;
    struct rpc_arena arena;
    struct rpc_peer_arena peer_arena;
    struct rpc_grow grow;
    crpc_endpoint_options options;
    crpc_stats stats;
    struct metrics_group *metrics; /* NULL = it has counted nothing */
    int32_t bar;                   /* CRPC_OK, or why no call can be sent now */
    struct rpc_lasting *lasting;   /* NULL: its end is its end */
    struct rpc_trace *traces;      /* owed.slot_count of them; NULL = the peer has sent none */
    struct link_progress progress;
};
static_assert(offsetof(struct rpc_endpoint, link) == 0, "a handle's object is the link");
static_assert(offsetof(struct rpc_endpoint, none) == offsetof(struct rpc_endpoint, attention) + 6 &&
                  offsetof(struct rpc_in, none) == offsetof(struct rpc_in, odd) + 6,
              "each is in one word with what is beside it");

static inline struct rpc_endpoint *endpoint_of_link(const struct link *link)
{
    return container_of(link, struct rpc_endpoint, link);
}

/* ---- Engine ---------------------------------------------------------------------------------- */

struct rpc_engine {
    struct nic *nic;
    const struct nic_operations *operations;
    struct log *log;
    uint64_t epoch;        /* number of the last poll; identifies its views */
    uint32_t receives_low; /* nic_receive_low_mark */

    struct list work;   /* flushed by the next poll */
    struct list urgent; /* flushed at the end of this submit */
    struct list ready;
    struct chain release; /* endpoints whose views the next poll ends */
    struct list ended;    /* struct rpc_call, by timer.link */
    struct list acknowledged;
    struct list failing;
    struct table queue_pairs; /* number -> struct rpc_endpoint */
    struct list lanes_done;   /* endpoints, by lane.done_link */
    struct list lanes_failing;
    struct table *lane_pairs; /* likewise for the queue pairs of lanes; NULL = there was none yet */
    uint32_t lane_places;     /* rpc_lane_places of all endpoints */
    struct link_group links;
    struct ring_slabs rings;

    uint32_t endpoint_count;
    uint32_t endpoints_max;
    uint32_t window_sum;
    uint32_t window_first;      /* rpc_small_window */
    uint32_t features_left_out; /* what its endpoints do not offer: tests have older peers so */
    uint64_t rings_grown; /* how often peers have moved to a larger ring, and given windows back: */
    uint64_t windows_back;
    struct nic_completion polled[NIC_DRAIN_MAX]; /* of the poll that goes on */
    uint64_t unknown_reported; /* how many of nic->unknown_completions were logged */
    struct metrics *metrics;   /* NULL = nothing is measured */
    crpc_stats retired;        /* sums of destroyed endpoints, and the engine's own counters */
    struct list kept_ended;    /* struct rpc_kept, by link */
};

static inline struct rpc_engine *engine_of_group(const struct link_group *group)
{
    return container_of(group, struct rpc_engine, links);
}

/* engine.c */
/* Polls the device until it is empty. */
void engine_take_completions(struct rpc_engine *engine);
/* The same after the first poll, which has given `count` of NIC_DRAIN_MAX completions. */
void engine_take_completions_from(struct rpc_engine *engine, struct nic_completion *completions,
                                  uint32_t count);
void rpc_device_event(struct link_group *group, const struct cm_event *event);

/* send.c */
/* Returns the place of the next message. A batch begins with its first one, whose place is after the batch's header. */
static inline uint8_t *rpc_next_place(const struct rpc_endpoint *endpoint)
{
    return ring_at(&endpoint->out.staging, endpoint->out.produced) +
           (endpoint->out.batch_messages == 0 ? WIRE_BATCH_HEADER_BYTES : 0);
}

/* Whether one more reply can be reported. */
static inline bool rpc_may_report(const struct rpc_endpoint *endpoint)
{
    return endpoint->sent.replies_tail - endpoint->sent.replies_head != endpoint->owed.slot_count;
}

/* The reply completes when the peer's device has acknowledged the open batch, which it is written into. */
static inline void rpc_report_reply(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    const uint32_t slot = endpoint->sent.replies_tail++ & (endpoint->owed.slot_count - 1);
    endpoint->sent.replies[slot] =
        (struct rpc_sent_reply){.user_data = op->user_data, .token = op->token};
    endpoint->out.batch_wants_completion = true;
}

/* So many messages have been written there, one behind the other. */
static inline void rpc_messages_written(struct rpc_endpoint *endpoint, uint64_t bytes,
                                        uint32_t messages)
{
    if (unlikely(endpoint->out.batch_messages == 0)) {
        endpoint->out.batch_start = endpoint->out.produced;
        endpoint->out.produced += WIRE_BATCH_HEADER_BYTES;
        list_append_once(&endpoint->engine->work, &endpoint->work_link);
    }
    endpoint->out.batch_messages += messages;
    endpoint->out.produced += bytes;
}

/* Counts an op as refused. for_limit: what the peer's mailbox says may change that. Returns CRPC_E_AGAIN. */
int32_t rpc_refuse(struct rpc_endpoint *endpoint, bool for_limit);
/* Returns CRPC_OK if a CALL or REPLY is possible now. Otherwise counts it as refused, and returns why. */
int32_t rpc_possible(struct rpc_endpoint *endpoint, const crpc_op *op);
/* Writes the message of an op that is possible, but for its payload, and returns its place. */
uint8_t *rpc_book(struct rpc_endpoint *endpoint, const crpc_op *op);
/* Sets what bars calls and replies of a connected endpoint. */
void rpc_set_bars(struct rpc_endpoint *endpoint);
static inline void rpc_set_call_bar(struct rpc_endpoint *endpoint, int32_t bar)
{
    endpoint->bar = bar;
    endpoint->call_bar = endpoint->lasting ? CRPC_E_AGAIN : bar;
}
/* The endpoint's batch leaves at the end of this submit. Cheaper before the batch begins. */
void rpc_make_urgent(struct rpc_endpoint *endpoint);
/* The call ends after so long. */
void call_set_deadline(struct rpc_call *call, uint64_t timeout_ns);
/* The endpoint had no open call, and has one now. */
void rpc_first_call(struct rpc_endpoint *endpoint);
void endpoint_flush(struct rpc_endpoint *endpoint);
/* An op was refused because of the peer's request limit, which has grown. */
void rpc_report_room(struct rpc_endpoint *endpoint);
/* A peer can only grant what it has consumed of what we sent, plus its share or window. A grant for requests that are still in
 * the staging ring would let it overflow. */
static inline bool rpc_limits_possible(const struct rpc_endpoint *endpoint, uint64_t request_limit,
                                       uint64_t batch_limit)
{
    return likely(request_limit <= endpoint->out.request_sent + endpoint->peer.request_bytes &&
                  batch_limit <=
                      endpoint->out.batches_sent + (uint64_t)endpoint->peer.batch_window);
}
/* Merges limits that the peer published. Returns false if they are impossible. */
static inline bool endpoint_merge_limits(struct rpc_endpoint *endpoint, uint64_t request_limit,
                                         uint64_t batch_limit)
{
    struct rpc_out *out = &endpoint->out;
    if (unlikely(!rpc_limits_possible(endpoint, request_limit, batch_limit))) {
        return false;
    }
    if (request_limit > out->request_limit) {
        out->request_limit = request_limit;
        if (unlikely(endpoint->link.refused)) {
            rpc_report_room(endpoint);
        }
    }
    if (batch_limit > out->batch_limit) {
        out->batch_limit = batch_limit;
        if (out->batch_messages > 0 || unlikely(endpoint->grow_attention) ||
            unlikely(endpoint->leave == LEAVE_WANTED)) {
            list_append_once(&endpoint->engine->work, &endpoint->work_link);
        }
    }
    return true;
}
void endpoint_sends_completed(struct rpc_endpoint *endpoint, uint32_t completed);
void endpoint_read_timer(struct rpc_endpoint *endpoint);
void endpoint_read_mailbox(struct rpc_endpoint *endpoint);
void engine_emit_sent_replies(struct rpc_engine *engine, struct output *output);

/* An initiator is lent to the endpoint, which has waited. */
void endpoint_granted(struct rpc_endpoint *endpoint);
/* For a dynamic queue pair without room: returns true if it has some now. Otherwise it waits, and endpoint_granted is called when
 * it has. */
bool rpc_take_room(struct rpc_endpoint *endpoint);
/* Returns true if the window and the send queue take another batch. One send WQE is kept for the mailbox
 * READ, without which a closed window might never open. */
static inline bool endpoint_may_send(struct rpc_endpoint *endpoint)
{
    return endpoint->out.batches_sent < endpoint->out.batch_limit &&
           (likely(nic_send_room(endpoint->link.queue_pair) > 1) || rpc_take_room(endpoint));
}
/* The same without what may get it room. */
static inline bool endpoint_may_send_now(const struct rpc_endpoint *endpoint)
{
    return endpoint->out.batches_sent < endpoint->out.batch_limit &&
           nic_send_room(endpoint->link.queue_pair) > 1;
}
/* The open batch is sent when so many are. */
static inline uint64_t rpc_open_batch(const struct rpc_endpoint *endpoint)
{
    return endpoint->out.batches_sent + endpoint->lane.aside_count + 1;
}
/* Sends the open batch. That must be possible. */
void endpoint_send(struct rpc_endpoint *endpoint);
/* Sends a batch of one word, which does not touch the open one, from a position of a send ring. That must be possible. mark:
 * what the immediate has beside the length. Returns the batch's length. */
uint64_t endpoint_send_word(struct rpc_endpoint *endpoint, struct ring *staging, uint64_t position,
                            uint8_t kind, const void *word, uint32_t bytes, uint32_t mark);
/* Writes a word into the open batch, which has room for it and no reservation. call_id: of the call that it is about. */
void endpoint_say_of(struct rpc_endpoint *endpoint, uint8_t kind, uint32_t call_id,
                     const void *word, uint32_t bytes);
static inline void endpoint_say(struct rpc_endpoint *endpoint, uint8_t kind, const void *word,
                                uint32_t bytes)
{
    endpoint_say_of(endpoint, kind, 0, word, bytes);
}

/* receive.c */
void endpoint_arrival(struct rpc_endpoint *endpoint, uint32_t units);
/* The same before the link is open: it is parsed when it is. */
void endpoint_arrival_early(struct rpc_endpoint *endpoint, uint32_t units);
/* Nothing waits that an arrival may let go, and the peer does nothing but call and answer. */
static inline bool rpc_nothing_odd(const struct rpc_endpoint *endpoint)
{
    return (endpoint->attention | endpoint->in.odd | endpoint->out.batch_messages |
            endpoint->link.refused) == 0;
}
/* The same, and takes what it brings at once, as the end of a poll: nothing else waits to be taken, of no endpoint; nothing of this
 * one is odd; and there is room. Returns what the poll does. */
uint32_t endpoint_arrival_alone(struct rpc_endpoint *endpoint, uint32_t units,
                                crpc_completion *completions, uint32_t capacity);
void engine_emit_arrivals(struct rpc_engine *engine, struct output *output);

/* poll.c */
static inline void endpoint_publish(struct rpc_endpoint *endpoint)
{
    struct rpc_in *in = &endpoint->in;
    struct wire_mailbox *mailbox = in->mailbox;
    const uint64_t request_limit = in->request_consumed + in->request_share;
    const uint64_t batch_limit = in->batches_consumed + in->batch_window;
    in->request_published = request_limit;
    in->batch_published = batch_limit;
    /* The peer's device reads the mailbox at any time: each field is stored whole; the order between them does not matter, as both
     * only grow. Views ended before: release keeps their reads first. */
    atomic_store_explicit((_Atomic uint64_t *)&mailbox->request_limit, request_limit,
                          memory_order_release);
    atomic_store_explicit((_Atomic uint64_t *)&mailbox->batch_limit, batch_limit,
                          memory_order_release);
}
/* The end of a poll that has given so many completions, if something else may be to be done. Returns how many it gives in all. */
uint32_t rpc_poll_late(struct rpc_engine *engine, crpc_completion *completions, uint32_t given,
                       uint32_t capacity);

/* gather.c */
/* Posts and rings the open batch, whose last payload is in a region. slot: of sent.batches. */
void rpc_gather_post(struct rpc_endpoint *endpoint, const struct nic_transfer *transfer,
                     uint32_t slot);
/* The batch of the slot has been sent, and there is a gather.sent. */
void rpc_gather_done(struct rpc_endpoint *endpoint, uint32_t slot);
/* A call ends early. Returns true if it need not wait for the device: its payload has not left, and is copied. */
bool rpc_gather_let_go(struct rpc_call *call);
/* The queue pair has failed, or is no more: the device reads nothing. */
void rpc_gather_end_all(struct rpc_endpoint *endpoint);
void rpc_gather_destroy(struct rpc_endpoint *endpoint);

/* arena.c */
struct wire_arena rpc_arena_word(const struct rpc_endpoint *endpoint);
/* A message whose payload is in a place has arrived. Returns NULL and its address, or what is wrong with it. */
const char *rpc_arena_take(struct rpc_endpoint *endpoint, const struct wire_place *word,
                           uint64_t *address);
/* The peer may use a place again that has a payload. */
void rpc_arena_return(struct rpc_endpoint *endpoint, uint32_t place);
void rpc_arena_destroy(struct rpc_endpoint *endpoint);
/* The word ARENA of the peer. Returns NULL, or what is wrong with it. */
const char *rpc_arena_take_word(struct rpc_endpoint *endpoint, const uint8_t *payload);
/* Returns whether a place of the peer's arena is free, and which. */
bool rpc_arena_next(const struct rpc_endpoint *endpoint, uint32_t *place);
/* What the peer has said last. */
static inline uint32_t rpc_arena_heard(const struct rpc_endpoint *endpoint)
{
    return (uint32_t)(endpoint->out.heard >> 32);
}
/* The peer has said which places it has returned. Returns NULL, or what is wrong with it. */
const char *rpc_arena_hear(struct rpc_endpoint *endpoint, uint32_t returned);

/* calls.c */
static inline struct rpc_call *call_take(struct rpc_endpoint *endpoint)
{
    struct rpc_call *call = endpoint->calls.first_free;
    assert(call && call->state == CALL_FREE);
    endpoint->calls.first_free = call->next_free;
    endpoint->calls.used++;
    /* The next generation, which wraps around; and the state in the same word: CALL_LIVE. */
    const uint64_t call_id = (uint32_t)(call->call_id + (1u << WIRE_CALL_INDEX_BITS));
    memcpy(&call->call_id, &call_id, sizeof(call_id));
    return call;
}

static inline void call_free(struct rpc_endpoint *endpoint, struct rpc_call *call)
{
    assert(call->endpoint == endpoint && call->state != CALL_FREE);
    call->state = CALL_FREE;
    call->next_free = endpoint->calls.first_free;
    endpoint->calls.first_free = call;
    endpoint->calls.used--;
}

/* Ends a LIVE call before its response arrives. The call completes with `status`. */
void call_end(struct rpc_call *call, int32_t status);
/* Its completion is given by the next poll. */
void call_report_end(struct rpc_call *call);
void calls_end_all(struct rpc_endpoint *endpoint, int32_t status);
/* Allocates memory for so many slots, a power of two. None is made yet. Returns false if there is none. */
bool calls_init(struct rpc_endpoint *endpoint, uint32_t max);
void calls_free(struct rpc_endpoint *endpoint);
/* Makes more slots, if that is needed and possible. Returns how many of `wanted` are free. */
uint32_t calls_make_room(struct rpc_endpoint *endpoint, uint32_t wanted);
void engine_emit_ended(struct rpc_engine *engine, struct output *output);
void rpc_timer(struct link_group *group, struct wheel_timer *timer);

/* abandon.c */
/* Returns true if the hellos of both sides say that deadlines are told of, abandoned calls, and what was not started. */
static inline bool rpc_deadlines_selected(const struct rpc_endpoint *endpoint)
{
    return (endpoint->link.peer.features & WIRE_FEATURE_DEADLINES) != 0;
}
/* The call has become a ZOMBIE. */
void rpc_abandon(struct rpc_call *call);
/* Part of a flush: writes what the peer's limit allows into the open batch. */
void rpc_abandon_say(struct rpc_endpoint *endpoint);
/* Of those that are to be told: whether only a higher limit helps. */
bool rpc_abandon_blocked(const struct rpc_endpoint *endpoint);
/* The limit may have risen since, or a place become free. */
void rpc_abandon_look(struct rpc_endpoint *endpoint);
struct rpc_header;
/* The peer's word. Returns NULL, or what is wrong with it. *given: whether *completion is one. */
const char *rpc_abandon_take_word(struct rpc_endpoint *endpoint, const struct rpc_header *header,
                                  crpc_completion *completion, bool *given);

/* trace.c. Of an op with CRPC_OP_TRACED, `token` is the address of the trace. */
/* Returns true if the hellos of both sides say that traces are told. */
static inline bool rpc_traces_selected(const struct rpc_endpoint *endpoint)
{
    return (endpoint->link.peer.features & WIRE_FEATURE_TRACES) != 0;
}
/* As rpc_call, which knows nothing of traces, for a call that has one. */
int32_t rpc_trace_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload);
/* What its trace is charged, besides the call. 0: it has none, or none that the peer is told. */
uint64_t rpc_trace_charge(const struct rpc_endpoint *endpoint, const crpc_op *op);
/* Writes it into the open batch, ahead of the call, which is possible. */
void rpc_trace_say(struct rpc_endpoint *endpoint, const crpc_op *op);
/* The peer's word. Returns NULL, or what is wrong with it. */
const char *rpc_trace_take_word(struct rpc_endpoint *endpoint, const struct rpc_header *header,
                                const uint8_t *payload);
void rpc_traces_free(struct rpc_endpoint *endpoint);

/* body.c */
/* For link_service. */
void rpc_fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES]);
const char *rpc_body_fault(const uint8_t body[LINK_BODY_BYTES]);
/* Takes what the peer's hello says, which body_fault has checked. */
void rpc_take_body(struct rpc_endpoint *endpoint);
/* Returns CRPC_OK if this side can have what the peer needs; otherwise fills *error. */
int32_t rpc_check_demands(const struct rpc_endpoint *endpoint, crpc_error *error);
/* Returns the share for replies of a ring that has another one for requests. It is no larger than that of the largest ring,
 * so that it never shrinks. */
static inline uint64_t rpc_reply_share(bool lane, uint64_t bytes, uint64_t share,
                                       uint64_t bytes_max, uint64_t share_max)
{
    const uint64_t aside = wire_aside_bytes(lane);
    return minimum(bytes - aside - share, bytes_max - aside - share_max);
}
/* Returns the share of this side's largest ring for requests. */
uint64_t rpc_request_share(const crpc_endpoint_options *options);
/* Sets the shares of this side's ring, which has so many bytes. */
void rpc_set_shares(struct rpc_endpoint *endpoint, uint64_t bytes);

/* endpoint.c */
extern const struct link_service rpc_service;
/* Adds all counters of `more` to `sum`. */
void rpc_stats_add(crpc_stats *sum, const crpc_stats *more);
/* Ends the pending ops of failed endpoints, as soon as everything that arrived is processed. Those of lanes
 * complete here, as far as there is room. */
void engine_drain_failing(struct rpc_engine *engine, struct output *output);
/* The endpoint, which is new, goes on where `before` has ended: it has its user_data and counters, and no token that was one of that. */
void rpc_inherit(struct rpc_endpoint *endpoint, struct rpc_endpoint *before);

/* leave.c */
void endpoint_leave(struct rpc_endpoint *endpoint);
bool endpoint_left(const struct rpc_endpoint *endpoint);
void endpoint_check_left(struct rpc_endpoint *endpoint);
void rpc_leave(struct link *link);
void rpc_describe_leave(const struct link *link, char *text, size_t bytes);
bool rpc_keepalive(struct link *link);

/* grow.c */
/* Bytes of the first ring. */
uint64_t rpc_first_ring_bytes(const crpc_endpoint_options *options);
uint32_t rpc_first_window(const struct rpc_engine *engine, const crpc_endpoint_options *options);
/* The first window of those that do not have their full size from the start. */
uint32_t rpc_small_window(const struct nic *nic, uint32_t endpoints_max);
/* Something is to be said: RPC_GROW_SAY_*. */
void rpc_grow_attend(struct rpc_endpoint *endpoint, uint8_t due);
/* A call is not possible: what may grow, so that it is, grows. */
void rpc_grow_for(struct rpc_endpoint *endpoint, uint64_t charge, uint64_t allowance);
/* Says what is due, as far as possible now. Returns false if nothing else may be sent yet. */
bool rpc_grow_flush(struct rpc_endpoint *endpoint);
/* Returns how many of the messages of the open batch are words about rings. */
static inline uint32_t rpc_grow_words(const struct rpc_endpoint *endpoint)
{
    return endpoint->grow.ring_said_in == rpc_open_batch(endpoint);
}
/* A reservation has ended, and grow_attention is true. */
void rpc_grow_lifted(struct rpc_endpoint *endpoint);
/* A word of the peer, whose kind is WIRE_WANT or above. Returns NULL, or what is wrong with it. */
const char *rpc_grow_take_word(struct rpc_endpoint *endpoint, uint16_t kind, const uint8_t *payload,
                               uint32_t bytes);
/* A batch of so many bytes has arrived in the larger ring, as the first one. Returns false if that is impossible. */
bool rpc_grow_arrival(struct rpc_endpoint *endpoint, uint64_t bytes);
/* That batch is the next to be parsed. */
void rpc_grow_swap(struct rpc_endpoint *endpoint);
/* All views have ended, and in.moving is true. */
void rpc_grow_release(struct rpc_endpoint *endpoint);
/* The WQEs before this number have completed. */
void rpc_grow_sent(struct rpc_endpoint *endpoint, uint32_t completed);
/* Lends the endpoint more of the engine's receives, as there are. */
void rpc_lend(struct rpc_endpoint *endpoint);
/* Once a keepalive: gives back what the peer has lent, if nothing was sent since the last one. */
void rpc_yield_if_idle(struct rpc_endpoint *endpoint);
/* For link_service.unprepare. */
void rpc_grow_destroy(struct rpc_endpoint *endpoint);

/* lane.c */
/* Returns true if the hellos of both sides say that they have a lane. */
static inline bool rpc_lane_selected(const struct rpc_endpoint *endpoint)
{
    return (endpoint->link.peer.features & WIRE_FEATURE_LANE) != 0;
}
static inline uint32_t rpc_lane_depth(const struct nic *nic, const crpc_endpoint_options *options)
{
    return (uint32_t)maximum(options->lane_depth, nic->send_depth);
}
/* For how many endpoints a lane counts. What its queue pair has open finds room in the send CQ, as what those
 * of endpoints have. */
static inline uint32_t rpc_lane_places(const struct nic *nic, const crpc_endpoint_options *options)
{
    const uint32_t of_endpoint = nic_send_places(nic->send_depth);
    const uint32_t of_lane = nic_send_places(rpc_lane_depth(nic, options));
    return options->flags & CRPC_ENDPOINT_LANE ? (of_lane + of_endpoint - 1) / of_endpoint : 0;
}
/* For link_service.prepare: makes a lane if the options ask for one. */
int32_t rpc_lane_make(struct rpc_endpoint *endpoint, crpc_error *error);
/* Undoes that, also if it failed or was not called. No task of the lane is under way. */
void rpc_lane_unmake(struct rpc_endpoint *endpoint);
/* The endpoint is connected. */
void rpc_lane_opened(struct rpc_endpoint *endpoint);
/* The endpoint has failed: the peer reaches nothing over the lane any more. */
void rpc_lane_cut(struct rpc_endpoint *endpoint);
/* Ends the lane; what is open completes with `status`. */
void rpc_lane_stop(struct rpc_endpoint *endpoint, int32_t status);
/* The lane has failed, and the endpoint has not. */
void rpc_lane_fail(struct rpc_endpoint *endpoint, const char *why);
bool rpc_lane_has_open(const struct rpc_endpoint *endpoint);
/* Returns false if the completion is of no lane. */
bool rpc_lane_take_completion(struct rpc_engine *engine, const struct nic_completion *completion);
bool rpc_lane_device_event(struct rpc_engine *engine, const struct cm_event *event);
/* Ends the lanes whose device has reported an error. */
void engine_end_lanes(struct rpc_engine *engine);
void engine_emit_lanes(struct rpc_engine *engine, struct output *output);
/* Something of the lane is to be said, or sent behind it. */
void rpc_lane_attend(struct rpc_endpoint *endpoint);
/* What has ended is to be told, and what waited for it is to be sent. */
void rpc_lane_look(struct rpc_endpoint *endpoint);
/* Connects its queue pair if both sides are in the same life, and this one knows the peer's address. */
void rpc_lane_join_if_both(struct rpc_endpoint *endpoint);
/* Opens it if both sides are ready. */
void rpc_lane_open_if_both(struct rpc_endpoint *endpoint);

/* Returns the share for replies of a ring of the peer that has so many bytes, and this share for requests. */
static inline uint64_t rpc_peer_reply_share(const struct rpc_endpoint *endpoint, uint64_t bytes,
                                            uint64_t request_bytes)
{
    const struct rpc_peer *peer = &endpoint->peer;
    return rpc_reply_share(rpc_lane_selected(endpoint), bytes, request_bytes, peer->ring_bytes_max,
                           peer->request_bytes_max);
}

/* after.c */
/* Returns a batch that is set aside: 0 is the first that will be sent. */
static inline struct rpc_batch *rpc_aside_at(const struct rpc_lane *lane, uint32_t index)
{
    assert(index < lane->aside_count);
    return &lane->aside[(lane->aside_head + index) % RPC_ASIDE_MAX];
}
/* Returns true if no message waits for ops of the lane. */
bool rpc_after_reached(const struct rpc_lane *lane);
/* Sends what was set aside, as far as possible now. */
void rpc_after_send(struct rpc_endpoint *endpoint);
/* The lane is made again: what no message waits for any more counts otherwise. */
void rpc_after_forget(struct rpc_lane *lane);

/* word.c */
/* Writes the words that are due into the open batch. Returns false if that must not be sent yet. */
bool rpc_lane_flush(struct rpc_endpoint *endpoint);
/* A message that is neither request nor response. Returns NULL, or what is wrong with it. */
const char *rpc_lane_take_word(struct rpc_endpoint *endpoint, uint16_t kind, const uint8_t *payload,
                               uint32_t bytes);
void rpc_lane_timer(struct wheel_timer *timer, struct rpc_engine *engine);
void rpc_lane_again(struct wheel_timer *timer);

#endif
