/* engine.h: the state of the engine and of an endpoint, for the files of core/rpc alone.
 *
 *   engine.c    life of the engine, poll, wait helpers
 *   send.c      calls, replies, the open batch, mailbox READs
 *   receive.c   arrivals, checks of what the peer sent, views, release
 *   calls.c     call slots, deadlines, cancel
 *   endpoint.c  life of an endpoint: memory, failure, draining, close
 *   leave.c     FIN and disconnect
 *   connect.c   rdma_cm; blob.c: connection data by other means
 *
 * Positions in rings are 64-bit byte counts that only grow.
 */
#ifndef CORE_RPC_ENGINE_H
#define CORE_RPC_ENGINE_H

#include <assert.h>

#include "base/clock.h"
#include "cm/cm.h"
#include "rpc/handshake.h"
#include "base/list.h"
#include "base/output.h"
#include "rpc/ring.h"
#include "rpc/rpc.h"
#include "base/table.h"
#include "base/wheel.h"
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

#define TIMER_CALL 1
#define TIMER_READ 2
#define TIMER_LIFE 3

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
struct rpc_owed {
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

struct rpc_endpoint {
    /* -- sending: everything call and reply touch comes first -- */
    struct rpc_engine *engine;
    int32_t call_bar;     /* CRPC_OK, or why no call can be made now */
    int32_t reply_bar;    /* the same for replies */
    struct ring staging;  /* ours; same size and positions as the peer's receive ring */
    uint64_t produced;    /* end of what was written */
    uint64_t batch_start; /* of the open batch, if batch_messages > 0 */
    uint32_t batch_messages;
    bool batch_wants_completion;
    bool refused; /* an op got CRPC_E_AGAIN: give CRPC_COMPLETION_ROOM when something frees */
    bool refused_for_limit;    /* and that was the peer's request limit */
    uint64_t request_produced; /* charges of all requests written */
    uint64_t request_limit;    /* the peer's, latest known */
    uint64_t batches_sent;
    uint64_t batch_limit;       /* the peer's, latest known */
    uint64_t reply_budget;      /* Cr: share of our ring for replies */
    uint64_t reply_outstanding; /* allowances of our calls whose response is not released */
    struct rpc_call *calls;
    uint32_t calls_max;
    uint32_t calls_live;
    uint32_t calls_used; /* slots not FREE */
    uint32_t first_free_call;

    /* -- replies owed -- */
    struct rpc_owed *owed;
    uint32_t owed_slots; /* the peer's number of call slots */
    uint32_t owed_count;
    uint64_t owed_allowance;
    uint64_t owed_allowance_max; /* the peer's reply budget */
    uint32_t token_sequence;
    struct rpc_sent_reply *sent_replies; /* ring of owed_slots entries */
    uint32_t sent_replies_head;          /* counters; masked by owed_slots - 1 */
    uint32_t sent_replies_acknowledged;  /* those before it are to be reported */
    uint32_t sent_replies_tail;
    int32_t sent_replies_status;         /* with which they are reported */
    struct rpc_sent_batch *sent_batches; /* ring as long as the send queue */
    uint32_t sent_batches_slots;
    uint32_t sent_batches_head;
    uint32_t sent_batches_tail;

    /* -- receiving -- */
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

    /* -- mailbox READ -- */
    bool read_in_flight;
    uint32_t read_wqe;
    uint64_t read_backoff_ns;
    struct wheel_timer read_timer;

    /* -- lists of the engine -- */
    struct list work_link;         /* may have something to send */
    struct list urgent_link;       /* to be sent at the end of this submit */
    struct list ready_link;        /* arrivals to parse */
    struct list release_link;      /* views to end */
    struct list acknowledged_link; /* sent replies to report */
    struct list failing_link;      /* to be drained, then reported or freed */
    struct list event_link;        /* events to report */
    struct list all_link;

    /* -- connection -- */
    struct nic_queue_pair *queue_pair;
    struct cm_identifier *identifier; /* NULL: by blob */
    struct rpc_listener *listener;    /* of a REQUESTED one, or one whose peer gave up */
    uint64_t handle;
    uint32_t state;  /* CRPC_STATE_* */
    uint32_t events; /* ENDPOINT_EVENT_* to report */
    bool passive;
    bool closed;     /* the application closed it: drain, then free */
    bool failing;    /* over: drain, then report */
    bool drained;    /* its pending ops have been ended */
    bool distrusted; /* what has arrived is not to be parsed */
    bool fin_wanted;
    bool fin_sent;
    bool fin_received;
    bool requests_over; /* the batch being parsed came after FIN */
    bool reserved;      /* a reservation is open */
    crpc_op reservation;
    uint64_t reservation_position;
    uint32_t ended_calls;          /* on engine->ended */
    struct wheel_timer life_timer; /* connect timeout, keepalive or leave timeout */
    uint64_t heard;                /* batches and READs since the life timer was set */
    uint64_t leave_timeout_ns;
    crpc_endpoint_options options;
    struct handshake_peer peer;
    uint32_t nonce;
    crpc_error error;
    crpc_stats stats;
};

#define ENDPOINT_EVENT_CONNECT_REQUEST 0x1u
#define ENDPOINT_EVENT_CONNECTED 0x2u
#define ENDPOINT_EVENT_ROOM 0x4u

struct rpc_listener {
    struct rpc_engine *engine;
    struct cm_identifier *identifier;
    uint64_t handle;
    uint64_t user_data;
    uint64_t requests;
    uint64_t refused;
    uint32_t backlog;
    uint32_t waiting; /* endpoints REQUESTED of it */
    struct list all_link;
};

/* ---- Engine ---------------------------------------------------------------------------------- */

#define CANCELS_MAX 256u
#define DEVICE_EVENTS_MAX 16u

struct rpc_cancel_done {
    uint64_t endpoint;
    uint64_t endpoint_user_data;
    uint64_t user_data;
    uint64_t count;
};

struct rpc_engine {
    struct nic *nic;
    const struct nic_operations *operations;
    struct cm *cm;
    struct log *log;
    const uint64_t *virtual_clock_ns;
    uint64_t now_ns; /* 0 = not read since the caller came in */
    uint64_t epoch;  /* number of the present poll: names its views */

    struct list work;
    struct list urgent;
    struct list ready;
    struct list release;
    struct list ended; /* struct rpc_call, by timer.link */
    struct list acknowledged;
    struct list failing;
    struct list events;
    struct list endpoints;
    struct list listeners;

    struct wheel wheel;
    struct table queue_pairs; /* number -> struct rpc_endpoint */
    struct handles handles;

    struct rpc_cancel_done cancels[CANCELS_MAX];
    uint32_t cancels_head;
    uint32_t cancels_tail;
    int32_t device_events[DEVICE_EVENTS_MAX];
    uint32_t device_events_count;

    uint32_t endpoint_count;
    uint32_t endpoints_max;
    uint32_t window_sum;
    uint64_t unknown_reported; /* of nic->unknown_completions, in the log */
    crpc_stats retired;        /* sums of endpoints that are gone, and the engine's own counters */
};

/* engine.c */
uint64_t engine_now_ns(struct rpc_engine *engine);
void engine_take_completions(struct rpc_engine *engine);
void engine_device_event(struct rpc_engine *engine, int32_t status);
/* Makes poll report the events (ENDPOINT_EVENT_*) of the endpoint. */
void engine_report(struct rpc_endpoint *endpoint, uint32_t events);

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
    struct rpc_call *call = &endpoint->calls[endpoint->first_free_call];
    endpoint->first_free_call = call->next_free;
    endpoint->calls_used++;
    call->call_id += 1u << WIRE_CALL_INDEX_BITS; /* the next generation; wraps by itself */
    call->state = CALL_LIVE;
    return call;
}

static inline void call_free(struct rpc_call *call)
{
    struct rpc_endpoint *endpoint = call->endpoint;
    call->state = CALL_FREE;
    call->next_free = endpoint->first_free_call;
    endpoint->first_free_call = call->call_id & WIRE_CALL_INDEX_MASK;
    endpoint->calls_used--;
}

/* Ends a LIVE call before its response: its completion will say `status`. */
void call_end(struct rpc_call *call, int32_t status);
void calls_end_all(struct rpc_endpoint *endpoint, int32_t status);
void engine_emit_ended(struct rpc_engine *engine, struct output *output);
void engine_emit_cancels(struct rpc_engine *engine, struct output *output);
void engine_expire(struct rpc_engine *engine);

/* endpoint.c */
int32_t endpoint_create(struct rpc_engine *engine, struct rpc_endpoint **endpoint,
                        crpc_error *error);
/* Makes what this side's options ask for: queue pair, receive ring, tables. */
int32_t endpoint_prepare(struct rpc_endpoint *endpoint, const crpc_endpoint_options *options,
                         crpc_error *error);
/* Makes what depends on the peer, from endpoint->peer. */
int32_t endpoint_attach(struct rpc_endpoint *endpoint, crpc_error *error);
void endpoint_detach(struct rpc_endpoint *endpoint);
void endpoint_unprepare(struct rpc_endpoint *endpoint);
void endpoint_fill_handshake(struct rpc_endpoint *endpoint, struct wire_handshake *wire);
/* It may be used from now on; reports CONNECTED. */
void endpoint_connected(struct rpc_endpoint *endpoint);
/* It never came to be; reports CONNECTED with the status of *error. */
void endpoint_not_connected(struct rpc_endpoint *endpoint, const crpc_error *error);
/* The connection is over. What arrived before is still delivered. */
void endpoint_fail(struct rpc_endpoint *endpoint, const crpc_error *error);
/* Likewise, but what arrived is not parsed any further. The endpoint may be failing already, as what
 * came before its end may be malformed: this error replaces the one it has. */
void endpoint_protocol_error(struct rpc_endpoint *endpoint, const char *what);
/* Ends what is pending of endpoints that are over; then reports or frees those that are drained. */
void engine_drain_failing(struct rpc_engine *engine);
void engine_emit_disconnected(struct rpc_engine *engine, struct output *output);
void endpoint_free(struct rpc_endpoint *endpoint);

/* leave.c */
void endpoint_leave(struct rpc_endpoint *endpoint);
bool endpoint_left(const struct rpc_endpoint *endpoint);
void endpoint_check_left(struct rpc_endpoint *endpoint);
void endpoint_life_timer(struct rpc_endpoint *endpoint);
void endpoint_start_keepalive(struct rpc_endpoint *endpoint);

/* connect.c */
void engine_take_cm_events(struct rpc_engine *engine);
void engine_emit_events(struct rpc_engine *engine, struct output *output);

#endif
