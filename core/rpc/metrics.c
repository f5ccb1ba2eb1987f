/* metrics.c: see metrics.h. */
#include "rpc/metrics.h"

#include <assert.h>
#include <stdlib.h>

#include "rpc/internal.h"

#define NO_TICKET UINT64_MAX
#define TICKETS_AT_FIRST 64u
#define OWED_AT_FIRST 16u

/* ---- Numbers --------------------------------------------------------------------------------- */

uint32_t metrics_bucket(uint64_t ns)
{
    if (ns < (UINT64_C(1) << METRICS_FIRST_BITS)) {
        return 0;
    }
    if (ns >= (UINT64_C(1) << METRICS_LAST_BITS)) {
        return METRICS_BUCKETS - 1;
    }
    const uint32_t power = 63u - (uint32_t)__builtin_clzll(ns);
    const uint32_t part = (uint32_t)(ns >> (power - METRICS_BUCKET_BITS));
    /* `part` has the leading one, which counts as a power of its own: so 1 power less. */
    return ((power - METRICS_FIRST_BITS - 1) << METRICS_BUCKET_BITS) + part + 1;
}

uint64_t metrics_bucket_end_ns(uint32_t bucket)
{
    const uint64_t parts = 1u << METRICS_BUCKET_BITS;
    const uint32_t power = METRICS_FIRST_BITS + (bucket >> METRICS_BUCKET_BITS);
    return (parts + (bucket & (parts - 1))) << (power - METRICS_BUCKET_BITS);
}

uint32_t metrics_status_index(int32_t status)
{
    if (status >= 0) {
        return (uint32_t)minimum((uint64_t)status, METRICS_APPLICATION);
    }
    return METRICS_APPLICATION + (uint32_t)minimum((uint64_t) - (int64_t)status, 32);
}

void metrics_series_add(struct metrics_series *sum, const struct metrics_series *more)
{
    sum->started += more->started;
    sum->ended += more->ended;
    sum->request_bytes += more->request_bytes;
    sum->reply_bytes += more->reply_bytes;
    sum->sum_ns += more->sum_ns;
    for (uint32_t i = 0; i < METRICS_STATUSES; i++) {
        sum->statuses[i] += more->statuses[i];
    }
    for (uint32_t i = 0; i < METRICS_BUCKETS; i++) {
        sum->buckets[i] += more->buckets[i];
    }
}

static inline void count_end(struct metrics_series *series, int32_t status, uint64_t bytes,
                             uint64_t started_ns, uint64_t now_ns)
{
    const uint64_t ns = now_ns - started_ns;
    series->ended++;
    series->reply_bytes += bytes;
    series->sum_ns += ns;
    series->statuses[metrics_status_index(status)]++;
    series->buckets[metrics_bucket(ns)]++;
}

/* ---- Series ---------------------------------------------------------------------------------- */

/* Returns NULL if there is no memory. With `most` methods, the rest is one series. */
static __attribute__((cold, noinline)) struct metrics_series *
find_slowly(struct metrics_group *group, uint32_t side, uint32_t method, uint32_t most)
{
    for (;;) {
        struct metrics_series **at = &group->first[side];
        while (*at && (*at)->method < method) {
            at = &(*at)->next;
        }
        if (*at && (*at)->method == method) {
            return *at;
        }
        if (group->count[side] < most || method == METRICS_OTHER) {
            struct metrics_series *series = calloc(1, sizeof(*series));
            if (series) {
                series->method = method;
                series->side = side;
                series->next = *at;
                *at = series;
                group->count[side] += method != METRICS_OTHER;
            }
            return series;
        }
        method = METRICS_OTHER;
    }
}

static __attribute__((cold, noinline)) struct metrics_group *
make_group(struct rpc_endpoint *endpoint)
{
    struct metrics_group *group = calloc(1, sizeof(*group));
    if (group) {
        list_init(&group->link);
        endpoint->metrics = group;
    }
    return group;
}

static inline struct metrics_series *find(struct metrics *metrics, struct rpc_endpoint *endpoint,
                                          uint32_t side, uint16_t method)
{
    struct metrics_group *group = endpoint ? endpoint->metrics : NULL;
    if (likely(group && group->last_used[side] && group->last_used[side]->method == method)) {
        return group->last_used[side];
    }
    if (!group && endpoint) {
        group = make_group(endpoint);
    }
    struct metrics_series *series =
        group ? find_slowly(group, side, method, METRICS_METHODS_MAX) : NULL;
    if (!series) {
        return &metrics->spare[side];
    }
    group->last_used[side] = series;
    return series;
}

bool metrics_group_add(struct metrics_group *sum, const struct metrics_group *more)
{
    bool whole = true;
    for (uint32_t side = 0; side < METRICS_SIDES; side++) {
        const struct metrics_series *series;
        for (series = more->first[side]; series; series = series->next) {
            struct metrics_series *mine =
                find_slowly(sum, side, series->method, METRICS_METHODS_MAX * 4);
            if (mine) {
                metrics_series_add(mine, series);
            }
            whole = whole && mine;
        }
    }
    return whole;
}

void metrics_group_free(struct metrics_group *group)
{
    for (uint32_t side = 0; side < METRICS_SIDES; side++) {
        while (group->first[side]) {
            struct metrics_series *series = group->first[side];
            group->first[side] = series->next;
            free(series);
        }
    }
    free(group->owed);
    group->owed = NULL;
}

/* ---- Tickets --------------------------------------------------------------------------------- */

static __attribute__((cold, noinline)) bool more_tickets(struct metrics *metrics)
{
    const uint64_t count = metrics->ticket_count ? 2 * metrics->ticket_count : TICKETS_AT_FIRST;
    struct metrics_ticket *tickets = realloc(metrics->tickets, count * sizeof(*tickets));
    if (!tickets) {
        return false;
    }
    for (uint64_t i = metrics->ticket_count; i < count; i++) {
        tickets[i] = (struct metrics_ticket){.user_data = i + 1 < count ? i + 1 : NO_TICKET};
    }
    metrics->ticket_free = metrics->ticket_count;
    metrics->tickets = tickets;
    metrics->ticket_count = count;
    return true;
}

bool metrics_take_ticket(struct metrics *metrics, uint64_t user_data, uint64_t *ticket)
{
    if (unlikely(metrics->ticket_free == NO_TICKET) && !more_tickets(metrics)) {
        return false;
    }
    struct metrics_ticket *taken = &metrics->tickets[metrics->ticket_free];
    *ticket = metrics->ticket_free;
    metrics->ticket_free = taken->user_data;
    taken->user_data = user_data;
    return true;
}

void metrics_drop_ticket(struct metrics *metrics, uint64_t ticket)
{
    metrics->tickets[ticket].series = NULL;
    metrics->tickets[ticket].user_data = metrics->ticket_free;
    metrics->ticket_free = ticket;
}

/* ---- What is counted ------------------------------------------------------------------------- */

static void answered(struct rpc_endpoint *endpoint, const crpc_op *op, uint64_t now_ns)
{
    struct metrics_group *group = endpoint->metrics;
    const uint32_t index = (uint32_t)op->token & WIRE_CALL_INDEX_MASK;
    if (unlikely(!group || index >= group->owed_room)) {
        return;
    }
    struct metrics_owed *owed = &group->owed[index];
    if (unlikely(!owed->series || owed->token != op->token)) {
        return;
    }
    const int32_t status =
        op->opcode == CRPC_OP_DROP && op->status == 0 ? CRPC_E_DROPPED : op->status;
    count_end(owed->series, status, op->payload_bytes, owed->started_ns, now_ns);
    owed->series = NULL;
}

void metrics_op(struct metrics *metrics, struct rpc_endpoint *endpoint, const crpc_op *op,
                uint64_t now_ns)
{
    if (op->opcode == CRPC_OP_CALL) {
        struct metrics_series *series = find(metrics, endpoint, METRICS_CLIENT, op->method);
        struct metrics_ticket *ticket = &metrics->tickets[op->user_data];
        series->started++;
        series->request_bytes += op->payload_bytes;
        ticket->started_ns = now_ns;
        ticket->series = series;
    } else if (op->opcode == CRPC_OP_REPLY || op->opcode == CRPC_OP_DROP) {
        answered(endpoint, op, now_ns);
    }
}

void metrics_response(struct metrics *metrics, crpc_completion *completion, uint64_t now_ns)
{
    const uint64_t number = completion->user_data;
    assert(number < metrics->ticket_count && metrics->tickets[number].series);
    struct metrics_ticket *ticket = &metrics->tickets[number];
    count_end(ticket->series, completion->status, completion->payload_bytes, ticket->started_ns,
              now_ns);
    completion->user_data = ticket->user_data;
    metrics_drop_ticket(metrics, number);
}

static __attribute__((cold, noinline)) bool make_owed_room(struct metrics_group *group,
                                                           uint32_t index)
{
    const uint32_t room = (uint32_t)maximum(power_of_two_at_least(index + 1),
                                            maximum(2 * group->owed_room, OWED_AT_FIRST));
    struct metrics_owed *owed = realloc(group->owed, room * sizeof(*owed));
    if (!owed) {
        return false;
    }
    memset(owed + group->owed_room, 0, (room - group->owed_room) * sizeof(*owed));
    group->owed = owed;
    group->owed_room = room;
    return true;
}

void metrics_request(struct metrics *metrics, struct rpc_endpoint *endpoint,
                     const crpc_completion *completion, uint64_t now_ns)
{
    struct metrics_series *series = find(metrics, endpoint, METRICS_SERVER, completion->method);
    series->started++;
    series->request_bytes += completion->payload_bytes;
    struct metrics_group *group = endpoint ? endpoint->metrics : NULL;
    const uint32_t index = (uint32_t)completion->token & WIRE_CALL_INDEX_MASK;
    if (likely(group && (index < group->owed_room || make_owed_room(group, index)))) {
        group->owed[index] = (struct metrics_owed){
            .token = completion->token, .started_ns = now_ns, .series = series};
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct metrics *metrics_create(void)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics) {
        metrics->ticket_free = NO_TICKET;
        list_init(&metrics->left);
        list_init(&metrics->retired.link);
        for (uint32_t side = 0; side < METRICS_SIDES; side++) {
            metrics->spare[side].method = METRICS_OTHER;
            metrics->spare[side].side = side;
        }
    }
    return metrics;
}

static void free_left(struct metrics_group *group)
{
    list_remove(&group->link);
    metrics_group_free(group);
    free(group);
}

void metrics_destroy(struct metrics *metrics)
{
    if (!metrics) {
        return;
    }
    /* The analyzer does not see that each is taken off the list. */
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc) */
    while (!list_empty(&metrics->left)) {
        free_left(list_entry(metrics->left.next, struct metrics_group, link));
    }
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
    metrics_group_free(&metrics->retired);
    free(metrics->tickets);
    free(metrics);
}

void metrics_leave(struct metrics *metrics, struct metrics_group *group)
{
    if (group) {
        list_append(&metrics->left, &group->link);
    }
}

static bool has_calls(const struct metrics_group *group)
{
    const struct metrics_series *series;
    for (series = group->first[METRICS_CLIENT]; series; series = series->next) {
        if (series->started != series->ended) {
            return true;
        }
    }
    return false;
}

void metrics_sweep_left(struct metrics *metrics)
{
    struct list *at = metrics->left.next;
    while (at != &metrics->left) {
        struct metrics_group *group = list_entry(at, struct metrics_group, link);
        at = at->next;
        if (!has_calls(group)) {
            if (!metrics_group_add(&metrics->retired, group)) {
                return; /* another time: a sum must not fall */
            }
            free_left(group);
        }
    }
}
