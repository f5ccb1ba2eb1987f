/* metrics.h: counters and histograms of calls and requests, for each endpoint and method.
 *
 * They are counted where ops come in and completions go out, so that no path between the two needs to know of them: however a
 * call is sent and ends, it is counted once. A measured call has a ticket in place of its user_data, which the application gets
 * back with the completion. Without metrics there is no struct metrics, and none of this is called.
 */
#ifndef CORE_RPC_METRICS_H
#define CORE_RPC_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/list.h"

struct rpc_endpoint;

/* Each power of two has 4 buckets, from 2^8 ns on; the first has all below, the last all from 2^36 ns (69 s) on. */
#define METRICS_BUCKET_BITS 2u
#define METRICS_FIRST_BITS 8u
#define METRICS_LAST_BITS 36u
#define METRICS_BUCKETS (((METRICS_LAST_BITS - METRICS_FIRST_BITS) << METRICS_BUCKET_BITS) + 2)
/* Statuses: those of the application that have names, all others of it, and each CRPC_E_*. */
#define METRICS_APPLICATION 17u
#define METRICS_STATUSES (METRICS_APPLICATION + 1 + 32)
/* Methods of one endpoint and side; the rest is counted as METRICS_OTHER. */
#define METRICS_METHODS_MAX 64u
#define METRICS_OTHER 0x10000u

enum metrics_side {
    METRICS_CLIENT,
    METRICS_SERVER,
    METRICS_SIDES,
};

struct metrics_series {
    struct metrics_series *next; /* in the order of methods */
    uint32_t method;             /* or METRICS_OTHER */
    uint32_t side;
    uint64_t started;
    uint64_t ended;
    uint64_t request_bytes;
    uint64_t reply_bytes;
    uint64_t sum_ns;
    uint64_t statuses[METRICS_STATUSES];
    uint64_t buckets[METRICS_BUCKETS];
};

/* A call that has not completed. */
struct metrics_ticket {
    uint64_t user_data; /* the application's; of a free one, the next that is free */
    uint64_t started_ns;
    struct metrics_series *series; /* NULL = free */
};

/* A request that has not been answered. */
struct metrics_owed {
    uint64_t token;
    uint64_t started_ns;
    struct metrics_series *series;
};

/* Series of an endpoint. */
struct metrics_group {
    struct list link;
    struct metrics_series *first[METRICS_SIDES];
    struct metrics_series *last_used[METRICS_SIDES];
    uint32_t count[METRICS_SIDES];
    uint32_t owed_room;
    struct metrics_owed *owed; /* by the index of the call id */
};

struct metrics {
    struct metrics_ticket *tickets;
    uint64_t ticket_count;
    uint64_t ticket_free; /* UINT64_MAX = none */
    struct list
        left; /* groups of endpoints that are gone, some of whose calls have not completed */
    struct metrics_group retired;               /* sums of endpoints that are gone */
    struct metrics_series spare[METRICS_SIDES]; /* for what there is no memory for */
};

struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *metrics);

/* Each of these may make memory when a method, or more calls at once, come for the first time. */

/* Returns false if there is no memory. *ticket takes the place of user_data. */
bool metrics_take_ticket(struct metrics *metrics, uint64_t user_data, uint64_t *ticket);
/* The call was not accepted. */
void metrics_drop_ticket(struct metrics *metrics, uint64_t ticket);
/* The op was accepted at this time: a CALL, whose user_data is a ticket; a REPLY; or a DROP. */
void metrics_op(struct metrics *metrics, struct rpc_endpoint *endpoint, const crpc_op *op,
                uint64_t now_ns);
/* A RESPONSE: gives it the user_data of its call. */
void metrics_response(struct metrics *metrics, crpc_completion *completion, uint64_t now_ns);
/* endpoint NULL: it is gone. */
void metrics_request(struct metrics *metrics, struct rpc_endpoint *endpoint,
                     const crpc_completion *completion, uint64_t now_ns);
/* The endpoint is gone; its counts stay in the sum. group may be NULL. */
void metrics_leave(struct metrics *metrics, struct metrics_group *group);
/* Frees what was left and has no calls any more. */
void metrics_sweep_left(struct metrics *metrics);
static inline void metrics_sweep(struct metrics *metrics)
{
    if (!list_empty(&metrics->left)) {
        metrics_sweep_left(metrics);
    }
}

/* What the application calls it. */
static inline uint64_t metrics_user_data(const struct metrics *metrics, uint64_t user_data)
{
    return metrics && user_data < metrics->ticket_count ? metrics->tickets[user_data].user_data
                                                        : user_data;
}

uint32_t metrics_bucket(uint64_t ns);
/* The least time that is longer than those of the bucket. The last has none. */
uint64_t metrics_bucket_end_ns(uint32_t bucket);
uint32_t metrics_status_index(int32_t status);
void metrics_series_add(struct metrics_series *sum, const struct metrics_series *more);
/* Adds all series of the group to those of the sum. Returns false if there is no memory for one. */
bool metrics_group_add(struct metrics_group *sum, const struct metrics_group *more);
void metrics_group_free(struct metrics_group *group);

#endif
