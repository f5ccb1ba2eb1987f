/* internal.h: the state of the engine and of an endpoint, for the files of core/rpc alone.
 *
 *   engine.c    life of the engine, completions of the device
 *   poll.c      poll, and what it does in which order
 *   send.c      calls, replies, the open batch, mailbox READs
 *   receive.c   arrivals, checks of what the peer sent, views, release
 *   calls.c     call slots, deadlines, cancel
 *   endpoint.c  an endpoint as a link: memory, hello, failure, draining, close
 *   leave.c     FIN, and what is probed meanwhile
 *
 * Positions in rings are 64-bit byte counts that only grow.
 */
#ifndef CORE_RPC_INTERNAL_H
#define CORE_RPC_INTERNAL_H

#include <assert.h>

#include "base/list.h"
#include "base/output.h"
#include "base/table.h"
#include "base/wheel.h"
#include "link/link.h"
#include "rpc/ring.h"
#include "rpc/rpc.h"
#include "rpc/wire.h"

/* ---- Calls of this side ---------------------------------------------------------------------- */

enum rpc_call_state {
    CALL_FREE = 0,
    CALL_LIVE,     /* awaits its response */
    CALL_ENDED,    /* timed out, canceled or failed; its completion waits on engine->ended */
    CALL_ANSWERED, /* as ENDED, and its late response has come */
    CALL_ZOMBIE,   /* its completion was given; slot and allowance wait for the late response */
};

/* The first mailbox READ of a blocked endpoint comes after one tick of the wheel; then less
 * often, as long as nothing comes of it. */
#define READ_BACKOFF_MIN_NS UINT64_C(8000)
#define READ_BACKOFF_MAX_NS UINT64_C(1000000)

#define TIMER_CALL LINK_TIMER_SERVICE
#define TIMER_READ (LINK_TIMER_SERVICE + 1)

struct rpc_call {
    struct wheel_timer timer; /* while ENDED or ANSWERED its link is on engine->ended */
    struct rpc_endpoint *endpoint;
    uint64_t user_data;
    uint32_t reply_bytes_max; /* its charge is taken from the reply budget */
    uint32_t call_id;
    uint32_t next_free;
    uint16_t method;
    uint8_t state;
    int8_t status; /* of an ENDED call: CRPC_E_* */
} __attribute__((aligned(CACHE_LINE_BYTES)));
static_assert(sizeof(struct rpc_call) == CACHE_LINE_BYTES, "a call is one cache line");

#define NO_CALL UINT32_MAX

/* A request of the peer that has no reply yet; found by the index of its call id. */
struct rpc_request {
    uint64_t token; /* 0 = none */
    uint32_t reply_bytes_max;
    uint32_t call_id;
};

/* A reply whose sender wants to know when the peer's device has it. */
struct rpc_sent_reply {
    uint64_t user_data;
    uint64_t token;
};

/* A batch that carries such replies. */
struct rpc_sent_batch {
    uint32_t wqe;          /* done when this send WQE is */
    uint32_t replies_tail; /* they end before this one */
};

/* ---- Endpoint -------------------------------------------------------------------------------- */

/* What the peer's hello tells of its side. */
struct rpc_peer {
    uint64_t ring_address;
    uint64_t ring_bytes;
    uint64_t request_bytes; /* share of its ring for our requests */
    uint32_t ring_key;
    uint32_t mailbox_key;
    uint32_t calls; /* its call indices are below this */
    uint32_t batch_window;
};

/* What is being sent, and how far the peer lets us go. Positions are those of the peer's ring. */
struct rpc_out {
    struct ring staging;  /* ours; same size and positions as the peer's receive ring */
    uint64_t produced;    /* end of what was written */
    uint64_t batch_start; /* of the open batch, if batch_messages > 0 */
    uint32_t batch_messages;
    bool batch_wants_completion;
    bool refused_for_limit;    /* an op got CRPC_E_AGAIN, and that was the peer's request limit */
    uint64_t request_produced; /* charges of all requests written */
    uint64_t request_limit;    /* the peer's, latest known */
    uint64_t batches_sent;
    uint64_t batch_limit; /* the peer's, latest known */
};

/* Calls of this side. */
struct rpc_calls {
    uint64_t reply_budget;      /* Cr: share of our ring for replies */
    uint64_t reply_outstanding; /* allowances of our calls whose response is not released */
    struct rpc_call *slots;
    uint32_t max;
    uint32_t live;
    uint32_t used; /* slots not FREE */
    uint32_t first_free;
    uint32_t ended; /* on engine->ended */
};

/* Requests of the peer that this side has not answered. */
struct rpc_owed {
    struct rpc_request *slots;
    uint32_t slot_count; /* the peer's number of call slots */
    uint32_t count;
    uint64_t allowance;
    uint64_t allowance_max; /* the peer's reply budget */
    uint32_t token_sequence;
};

/* Replies that the peer's device may not have yet. */
struct rpc_sent {
    struct rpc_sent_reply *replies; /* ring of owed.slot_count entries */
    uint32_t replies_head;          /* counters; masked by owed.slot_count - 1 */
    uint32_t replies_acknowledged;  /* those before it are to be reported */
    uint32_t replies_tail;
    int32_t status;                 /* with which they are reported */
    struct rpc_sent_batch *batches; /* ring as long as the send queue */
    uint32_t batch_slots;
    uint32_t batches_head;
    uint32_t batches_tail;
};

/* Whether the peer has taken leave, as the batch that is being parsed sees it. */
enum rpc_fin {
    FIN_NONE = 0,
    FIN_WITH_BATCH, /* with this one: its requests count */
    FIN_BEFORE,     /* with an earlier one: there are no more requests */
};

/* What the peer sends. */
struct rpc_in {
    struct ring ring;
    struct wire_mailbox *mailbox;
    uint64_t arrived;      /* end of the last batch that arrived */
    uint64_t parsed;       /* next byte to parse */
    uint64_t released;     /* all before this may be overwritten by the peer */
    uint64_t batch_end;    /* of the batch being parsed */
    uint32_t batch_left;   /* messages of it still to parse */
    uint32_t batch_window; /* W */
    uint32_t *arrivals;    /* lengths of arrived batches not yet begun, ring of a power of two */
    uint32_t arrivals_mask;
    uint32_t arrivals_head;
    uint32_t arrivals_tail;
    uint32_t sequence_expected;
    enum rpc_fin fin;
    bool distrusted; /* what has arrived is not to be parsed */
    uint64_t batches_consumed;
    uint64_t request_share;     /* Cq */
    uint64_t request_consumed;  /* charges of released requests */
    uint64_t request_arrived;   /* charges of requests parsed */
    uint64_t request_published; /* the limit in our mailbox */
    uint64_t batch_published;
    /* parsed by this poll, to be released by the next */
    uint64_t held_request_charge;
    uint64_t held_allowance;
    uint32_t held_batches;
};

/* The READ of the peer's mailbox, for limits that no batch has brought. */
struct rpc_read {
    bool in_flight;
    uint32_t wqe;
    uint64_t backoff_ns;
    struct wheel_timer timer;
};

/* A message that the application is writing in place. */
struct rpc_reservation {
    bool open;
    crpc_op op;
    uint64_t position;
};

/* How far this side has taken leave. */
enum rpc_leave {
    LEAVE_NONE = 0,
    LEAVE_WANTED, /* FIN goes with the next batch */
    LEAVE_SAID,
};

struct rpc_endpoint {
    struct link link; /* comes first: a handle's object is the link */

    struct rpc_engine *engine __attribute__((aligned(CACHE_LINE_BYTES)));
    int32_t call_bar;  /* CRPC_OK, or why no call can be made now */
    int32_t reply_bar; /* the same for replies */
    struct rpc_out out;
    struct rpc_calls calls;
    struct rpc_owed owed;
    struct rpc_sent sent;
    struct rpc_in in;
    struct rpc_read read;

    /* -- lists of the engine -- */
    struct list work_link;         /* may have something to send */
    struct list urgent_link;       /* to be sent at the end of this submit */
    struct list ready_link;        /* arrivals to parse */
    struct list release_link;      /* views to end */
    struct list acknowledged_link; /* sent replies to report */
    struct list failing_link;      /* to be drained */

    /* -- the rest -- */
    enum rpc_leave leave;
    struct rpc_reservation reservation;
    crpc_endpoint_options options;
    struct rpc_peer peer;
    crpc_stats stats;
};
static_assert(offsetof(struct rpc_endpoint, link) == 0, "a handle's object is the link");

static inline struct rpc_endpoint *endpoint_of_link(const struct link *link)
{
    return container_of(link, struct rpc_endpoint, link);
}

/* ---- Engine ---------------------------------------------------------------------------------- */

struct rpc_engine {
    struct nic *nic;
    const struct nic_operations *operations;
    struct log *log;
    uint64_t epoch; /* number of the present poll: names its views */

    struct list work;
    struct list urgent;
    struct list ready;
    struct list release;
    struct list ended; /* struct rpc_call, by timer.link */
    struct list acknowledged;
    struct list failing;
    struct table queue_pairs; /* number -> struct rpc_endpoint */
    struct link_group links;

    uint32_t endpoint_count;
    uint32_t endpoints_max;
    uint32_t window_sum;
    uint64_t unknown_reported; /* of nic->unknown_completions, in the log */
    crpc_stats retired;        /* sums of endpoints that are gone, and the engine's own counters */
};

static inline struct rpc_engine *engine_of_group(const struct link_group *group)
{
    return container_of(group, struct rpc_engine, links);
}

/* engine.c */
void engine_take_completions(struct rpc_engine *engine);
void rpc_device_event(struct link_group *group, const struct cm_event *event);

/* send.c */
void endpoint_flush(struct rpc_endpoint *endpoint);
/* Takes limits that the peer published; false if they are impossible. */
bool endpoint_merge_limits(struct rpc_endpoint *endpoint, uint64_t request_limit,
                           uint64_t batch_limit);
void endpoint_sends_completed(struct rpc_endpoint *endpoint, uint32_t completed);
void endpoint_read_timer(struct rpc_endpoint *endpoint);
void endpoint_read_mailbox(struct rpc_endpoint *endpoint);
void engine_emit_sent_replies(struct rpc_engine *engine, struct output *output);

/* receive.c */
void endpoint_arrival(struct rpc_endpoint *endpoint, uint32_t units);
void engine_emit_arrivals(struct rpc_engine *engine, struct output *output);
void engine_release(struct rpc_engine *engine);
void endpoint_publish(struct rpc_endpoint *endpoint);

/* calls.c */
static inline struct rpc_call *call_take(struct rpc_endpoint *endpoint)
{
    assert(endpoint->calls.first_free != NO_CALL);
    struct rpc_call *call = &endpoint->calls.slots[endpoint->calls.first_free];
    endpoint->calls.first_free = call->next_free;
    endpoint->calls.used++;
    call->call_id += 1u << WIRE_CALL_INDEX_BITS; /* the next generation; wraps by itself */
    call->state = CALL_LIVE;
    return call;
}

static inline void call_free(struct rpc_call *call)
{
    struct rpc_endpoint *endpoint = call->endpoint;
    assert(call->state != CALL_FREE);
    call->state = CALL_FREE;
    call->next_free = endpoint->calls.first_free;
    endpoint->calls.first_free = call->call_id & WIRE_CALL_INDEX_MASK;
    endpoint->calls.used--;
}

/* Ends a LIVE call before its response: its completion will say `status`. */
void call_end(struct rpc_call *call, int32_t status);
void calls_end_all(struct rpc_endpoint *endpoint, int32_t status);
void engine_emit_ended(struct rpc_engine *engine, struct output *output);
void rpc_timer(struct link_group *group, struct wheel_timer *timer);

/* endpoint.c */
extern const struct link_service rpc_service;
/* Adds up all counters. */
void stats_add(crpc_stats *sum, const crpc_stats *more);
/* Ends what is pending of endpoints that are over and of which nothing is left to be taken. */
void engine_drain_failing(struct rpc_engine *engine);

/* leave.c */
void endpoint_leave(struct rpc_endpoint *endpoint);
bool endpoint_left(const struct rpc_endpoint *endpoint);
void endpoint_check_left(struct rpc_endpoint *endpoint);
void rpc_leave(struct link *link);
void rpc_describe_leave(const struct link *link, char *text, size_t bytes);
bool rpc_keepalive(struct link *link);

#endif
