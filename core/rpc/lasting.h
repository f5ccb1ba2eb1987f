/* lasting.h: an endpoint that connects again when its connection is lost (CRPC_ENDPOINT_RECONNECT).
 *
 * Each connection has a struct rpc_endpoint of its own. The one that is next takes the handle of the one before it, so what
 * the application holds stays the same, and the paths of calls and answers know nothing of it. What makes the difference is that
 * call_bar is never CRPC_OK: each call takes the way of those that are not possible, and comes here.
 *
 * A call is kept, with a copy of its payload, until its slot is used again. So when a connection has ended it is known what
 * each call had sent, and nothing is done for a response. A call that was not sent waits for the next connection, and so does
 * one that may be sent twice.
 */
#ifndef CORE_RPC_LASTING_H
#define CORE_RPC_LASTING_H

#include "rpc/internal.h"

/* ---- State ----------------------------------------------------------------------------------- */

struct rpc_kept {
    struct wheel_timer timer; /* waits, and has a deadline */
    struct list
        link; /* on in_flight, waiting or unused of its endpoint, or on engine->kept_ended */
    struct rpc_kept *made_before;
    struct rpc_lasting *lasting;
    crpc_op op;
    crpc_trace trace;     /* with CRPC_OP_TRACED */
    uint64_t deadline_ns; /* 0 = none */
    /* in_flight: */
    uint64_t request_end; /* out.request_produced behind it */
    uint32_t call_id;     /* of its call, unless that has ended and its slot is another's */
    int32_t status;       /* kept_ended: that of its completion */
    uint8_t *payload;
    uint32_t payload_room;
};

struct rpc_lasting {
    struct rpc_endpoint *endpoint; /* that of now */
    crpc_endpoint_options options; /* of all, with the key */
    char *addresses[RPC_ADDRESSES_MAX];
    uint32_t address_count;
    uint32_t address;     /* of the connection, or the attempt, of now or last */
    uint32_t failed;      /* attempts, since the last connection that lasted */
    uint64_t connections; /* that were made */
    uint64_t opened_ns;   /* when it has connected last; 0 = not since the last end */
    uint64_t random;
    bool ending;   /* the application has disconnected or closed it */
    bool reserved; /* a reservation was open when the connection ended: somebody may write there */
    bool attempt_due; /* the next attempt waits for the end of that */
    bool refused;     /* a call got CRPC_E_AGAIN since too many wait, or it is away */
    struct wheel_timer timer;
    struct list in_flight; /* in the order in which they were sent; some have ended */
    struct list waiting;   /* for a connection, or behind others that do */
    struct list unused;
    uint32_t waiting_count;
    uint32_t ended;            /* on engine->kept_ended */
    struct rpc_kept **by_slot; /* of each call slot: what was sent last with it, or NULL */
    struct rpc_kept *made_last;
    crpc_error error; /* why the last connection or attempt has ended */
};

/* ---- For endpoint.c -------------------------------------------------------------------------- */

/* The connection has been made. */
void rpc_lasting_opened(struct rpc_lasting *lasting);
/* It has ended: nothing more is sent. */
void rpc_lasting_cut(struct rpc_lasting *lasting);
/* All that had arrived has been processed. The calls that need not end with it wait for the next one. */
void rpc_lasting_take_back(struct rpc_lasting *lasting);
/* It will not come back. What waits ends with `status`. */
void rpc_lasting_end(struct rpc_lasting *lasting, int32_t status);
void rpc_lasting_free(struct rpc_lasting *lasting);
void rpc_lasting_info(const struct rpc_lasting *lasting, crpc_endpoint_info *info);

/* For link_service. */
bool rpc_lasting_comes_back(struct link *link);
bool rpc_lasting_stay_away(struct link *link);
void rpc_lasting_room(struct link *link);

/* ---- For calls ------------------------------------------------------------------------------- */

/* As rpc_call. */
int32_t rpc_lasting_call(struct rpc_lasting *lasting, const crpc_op *op, const void *payload);
/* Returns true if a call that keeps nothing has to be refused now, and that later is better: CRPC_E_AGAIN. */
bool rpc_lasting_refuses(struct rpc_lasting *lasting);
/* As rpc_gather of a CALL, if *done; otherwise that goes on. */
int32_t rpc_lasting_gather(struct rpc_lasting *lasting, const crpc_op *op,
                           const struct rpc_region *region, bool *done);
/* The rest of rpc_commit, for a CALL whose payload is at `payload`, where it will be sent from. Returns what keeps it, or NULL: there is no memory. */
struct rpc_kept *rpc_lasting_keep(struct rpc_lasting *lasting, const crpc_op *op,
                                  const void *payload);
/* The call that was booked last is the one that is kept. */
void rpc_lasting_booked(struct rpc_lasting *lasting, struct rpc_kept *kept,
                        const struct rpc_call *call);
/* What waited for the end of a reservation goes on. */
void rpc_lasting_lifted(struct rpc_lasting *lasting);
/* Nobody writes to what was reserved when the connection ended. Returns whether there was such a reservation. */
bool rpc_lasting_lift(struct rpc_lasting *lasting);
/* A live call was dropped with this status. Returns true if it waits for the next connection. */
bool rpc_lasting_drop(struct rpc_lasting *lasting, const struct rpc_call *call, int32_t status);
/* Ends what waits and has this user_data. Returns how many these are. */
uint64_t rpc_lasting_cancel(struct rpc_lasting *lasting, uint64_t user_data);

void rpc_lasting_emit(struct rpc_engine *engine, struct output *output);
void rpc_lasting_attempt(struct wheel_timer *timer);
void rpc_lasting_expire(struct wheel_timer *timer);

#endif
