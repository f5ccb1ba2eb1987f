/* internal.h: the state of the engine and of its endpoints. Only files of core/rpc include it.
 *
 *
 *   engine.c    creation of the engine; completions of the device
 *   poll.c      the steps of a poll, and their order
 *   send.c      calls, replies, the open batch, mailbox READs
 *   receive.c   arrivals, checks of them, views, release
 *   calls.c     call slots, deadlines, cancel
 *   endpoint.c  the link's service: memory, hello, failure, draining, close
 *   leave.c     disconnecting with FIN; the keepalive
 *
 * A position in a ring is a 64-bit byte count that only grows.
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
    CALL_LIVE,     /* waits for its response */
    CALL_ENDED,    /* timed out, canceled or failed; waits on engine->ended for its completion */
    CALL_ANSWERED, /* like ENDED, but its late response has arrived */
    CALL_ZOMBIE,   /* completed; slot and allowance wait for the late response */
};

/* A blocked endpoint first reads the peer's mailbox after one tick of the wheel. As long as that
 * brings no new limit, the pauses double. */
#define READ_BACKOFF_MIN_NS UINT64_C(8000)
#define READ_BACKOFF_MAX_NS UINT64_C(1000000)

#define TIMER_CALL LINK_TIMER_SERVICE
#define TIMER_READ (LINK_TIMER_SERVICE + 1)

struct rpc_call {
    struct wheel_timer timer; /* in ENDED and ANSWERED, its link is on engine->ended */
    struct rpc_endpoint *endpoint;
    uint64_t user_data;
    uint32_t reply_bytes_max; /* the charge of this many bytes is taken from the reply budget */
    uint32_t call_id;
    uint32_t next_free;
    uint16_t method;
    uint8_t state;
    int8_t status; /* ENDED: CRPC_E_* */
} __attribute__((aligned(CACHE_LINE_BYTES)));
static_assert(sizeof(struct rpc_call) == CACHE_LINE_BYTES, "a call is one cache line");

#define NO_CALL UINT32_MAX

/* A request of the peer without a reply yet. The index of its call id is its index in the table. */
struct rpc_request {
    uint64_t token; /* 0 = none */
    uint32_t reply_bytes_max;
    uint32_t call_id;
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

/* The peer's side, from its hello. */
struct rpc_peer {
    uint64_t ring_address;
    uint64_t ring_bytes;
    uint64_t request_bytes; /* share of its ring for this side's requests */
    uint32_t ring_key;
    uint32_t mailbox_key;
    uint32_t calls; /* its call indices are below this number */
    uint32_t batch_window;
};

/* Sending, and the peer's limits. Positions are positions in the peer's ring. */
struct rpc_out {
    struct ring staging;  /* our send ring; same size and positions as the peer's receive ring */
    uint64_t produced;    /* end of what was written */
    uint64_t batch_start; /* of the open batch, if batch_messages > 0 */
    uint32_t batch_messages;
    bool batch_wants_completion;
    bool refused_for_limit;    /* an op got CRPC_E_AGAIN because of the peer's request limit */
    uint64_t request_produced; /* charges of all requests written */
    uint64_t request_sent;     /* of those in batches that were sent */
    uint64_t request_limit;    /* the peer's, as last known */
    uint64_t batches_sent;
    uint64_t batch_limit; /* the peer's, as last known */
};

/* Calls of this side. */
struct rpc_calls {
    uint64_t reply_budget;      /* Cr: share of our ring for replies */
    uint64_t reply_outstanding; /* allowances of calls whose response is not released */
    struct rpc_call *slots;
    uint32_t max;
    uint32_t live;
    uint32_t used; /* slots that are not FREE */
    uint32_t first_free;
    uint32_t ended; /* calls on engine->ended */
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

/* Receiving. */
struct rpc_in {
    struct ring ring;
    struct wire_mailbox *mailbox;
    uint64_t arrived;      /* end of the last batch that arrived */
    uint64_t parsed;       /* next byte to parse */
    uint64_t released;     /* the peer may overwrite everything before this */
    uint64_t batch_end;    /* of the batch being parsed */
    uint32_t batch_left;   /* messages of that batch not parsed yet */
    uint32_t batch_window; /* W */
    uint32_t *arrivals;    /* lengths of arrived batches not begun yet; a ring of a power of two */
    uint32_t arrivals_mask;
    uint32_t arrivals_head;
    uint32_t arrivals_tail; /* low 32 bits of the number of batches that have arrived */
    uint32_t sequence_expected;
    enum rpc_fin fin;
    bool distrusted; /* what has arrived must not be parsed */
    uint64_t batches_consumed;
    uint64_t request_share;     /* Cq */
    uint64_t request_consumed;  /* charges of released requests */
    uint64_t request_arrived;   /* charges of requests parsed */
    uint64_t request_published; /* the limit in our mailbox */
    uint64_t batch_published;
    /* parsed by this poll; the next poll releases it */
    uint64_t held_request_charge;
    uint64_t held_allowance;
    uint32_t held_batches;
};

/* READs of the peer's mailbox, for limits that no batch has brought. */
struct rpc_read {
    bool in_flight;
    uint32_t wqe;
    uint64_t backoff_ns;
    struct wheel_timer timer;
};

/* A message that the application writes in place. */
struct rpc_reservation {
    bool open;
    crpc_op op;
};

/* How far this side's disconnect has come. */
enum rpc_leave {
    LEAVE_NONE = 0,
    LEAVE_WANTED, /* the next batch carries FIN */
    LEAVE_SAID,
};

struct rpc_endpoint {
    struct link link; /* must come first: a handle's object is the link */

    struct rpc_engine *engine __attribute__((aligned(CACHE_LINE_BYTES)));
    int32_t call_bar;  /* CRPC_OK, or why calls are refused now */
    int32_t reply_bar; /* likewise for replies */
    struct rpc_out out;
    struct rpc_calls calls;
    struct rpc_owed owed;
    struct rpc_sent sent;
    struct rpc_in in;
    struct rpc_read read;

    /* -- lists of the engine -- */
    struct list work_link;         /* may have something to send */
    struct list urgent_link;       /* must be sent at the end of this submit */
    struct list ready_link;        /* has arrivals to parse */
    struct list release_link;      /* has views to end */
    struct list acknowledged_link; /* has acknowledged replies to report */
    struct list failing_link;      /* must be drained */

    /* -- the rest -- */
    enum rpc_leave leave;
    struct rpc_reservation reservation;
    crpc_endpoint_options options;
    struct rpc_peer peer;
    crpc_stats stats;
    struct link_progress progress;
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
    uint64_t epoch; /* number of the last poll; identifies its views */

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
    uint64_t unknown_reported; /* how many of nic->unknown_completions were logged */
    crpc_stats retired;        /* sums of destroyed endpoints, and the engine's own counters */
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
/* Merges limits that the peer published. Returns false if they are impossible. */
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
    call->call_id += 1u << WIRE_CALL_INDEX_BITS; /* the next generation; it wraps around */
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

/* Ends a LIVE call before its response arrives. The call completes with `status`. */
void call_end(struct rpc_call *call, int32_t status);
void calls_end_all(struct rpc_endpoint *endpoint, int32_t status);
void engine_emit_ended(struct rpc_engine *engine, struct output *output);
void rpc_timer(struct link_group *group, struct wheel_timer *timer);

/* endpoint.c */
extern const struct link_service rpc_service;
/* Adds all counters of `more` to `sum`. */
void rpc_stats_add(crpc_stats *sum, const crpc_stats *more);
/* Ends the pending ops of failed endpoints, as soon as everything that arrived is processed. */
void engine_drain_failing(struct rpc_engine *engine);

/* leave.c */
void endpoint_leave(struct rpc_endpoint *endpoint);
bool endpoint_left(const struct rpc_endpoint *endpoint);
void endpoint_check_left(struct rpc_endpoint *endpoint);
void rpc_leave(struct link *link);
void rpc_describe_leave(const struct link *link, char *text, size_t bytes);
bool rpc_keepalive(struct link *link);

#endif
