/* data.c: the data path: submit, poll, and writing in place. Each op is checked here, once. */
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "private/context.h"
#include "private/flight.h"
#include "rpc/metrics.h"
#include "rpc/op.h"

#define POLL_CAPACITY_MAX (1u << 20)

/* Copies the trace of an op. Returns false if there is none. */
static bool read_trace(const crpc_op *op, const uint8_t *payload, uint64_t payload_bytes,
                       crpc_trace *trace)
{
    if (op->token > payload_bytes || payload_bytes - op->token < sizeof(*trace)) {
        return false;
    }
    memcpy(trace, payload + op->token, sizeof(*trace));
    return op_trace_valid(trace);
}

/* An op that is not what most are: it has a trace, its message may have to follow one-sided ops, or its payload is in a region. */
static __attribute__((cold, noinline)) int32_t
submit_unusual(const crpc_context *context, struct rpc_endpoint *endpoint, const crpc_op *theirs,
               const uint8_t *payload, uint64_t payload_bytes)
{
    crpc_op op = *theirs;
    struct region *region = NULL;
    crpc_trace trace;
    const bool call = op.opcode == CRPC_OP_CALL, traced = call && op.flags & CRPC_OP_TRACED;
    if (traced) {
        if (!read_trace(&op, payload, payload_bytes, &trace)) {
            return CRPC_E_INVALID;
        }
        op.flags &= (uint8_t)~CRPC_OP_TRACED;
        op.token = 0;
    }
    const uint8_t flags = call ? op.flags & (uint8_t)~CRPC_OP_IDEMPOTENT : op.flags;
    const bool in_region = flags == CRPC_OP_REGION && theirs->region.bits != 0;
    if (in_region) {
        region = region_of(context, theirs->region);
        op.region.bits = 0;
        payload_bytes = region ? region->bytes : UINT64_MAX;
        op.flags &= (uint8_t)~CRPC_OP_REGION;
    } else {
        op.flags &= (uint8_t)~CRPC_OP_AFTER;
    }
    bool valid = call ? op_idempotent_call_valid(&op) : op_reply_valid(&op);
    if (!valid || !op_payload_fits(&op, payload_bytes)) {
        return CRPC_E_INVALID;
    }
    if (traced) {
        op.flags |= CRPC_OP_TRACED;
        op.token = (uint64_t)(uintptr_t)&trace;
    }
    if (in_region) {
        return region ? rpc_gather(endpoint, &op, &region->payloads) : CRPC_E_STALE;
    }
    return theirs->flags & CRPC_OP_AFTER ? rpc_after(endpoint, &op, payload + op.payload_offset)
                                         : rpc_submit(endpoint, &op, payload + op.payload_offset);
}

static inline int32_t submit_one(const crpc_context *context, struct rpc_endpoint *endpoint,
                                 const crpc_op *op, const uint8_t *payload, uint64_t payload_bytes)
{
    switch (op->opcode) {
    case CRPC_OP_CALL:
        if (unlikely(!op_call_valid(op) || !op_payload_fits(op, payload_bytes))) {
            return submit_unusual(context, endpoint, op, payload, payload_bytes);
        }
        return rpc_call(endpoint, op, payload + op->payload_offset);
    case CRPC_OP_REPLY:
        if (unlikely(!op_reply_valid(op) || !op_payload_fits(op, payload_bytes))) {
            return submit_unusual(context, endpoint, op, payload, payload_bytes);
        }
        return rpc_reply(endpoint, op, payload + op->payload_offset);
    case CRPC_OP_DROP:
        return op_drop_valid(op) ? rpc_drop(endpoint, op) : CRPC_E_INVALID;
    case CRPC_OP_CANCEL:
        return op_cancel_valid(op) ? rpc_cancel(endpoint, op) : CRPC_E_INVALID;
    default:
        return CRPC_E_UNSUPPORTED;
    }
}

/* Fewer ops are sooner submitted one by one. */
#define RUN_LEAST 4

/* Accepts ops of the same kind to the same endpoint, as many as there are one behind the other. */
static uint32_t submit_run(struct rpc_endpoint *endpoint, const crpc_op *ops, uint32_t count,
                           const uint8_t *payload, uint64_t payload_bytes)
{
    switch (ops->opcode) {
    case CRPC_OP_CALL:
        return rpc_calls(endpoint, ops, count, payload, payload_bytes);
    case CRPC_OP_REPLY:
        return rpc_replies(endpoint, ops, count, payload, payload_bytes);
    default:
        return 0;
    }
}

/* Accepts ops in their order, up to one that is refused: *reason is why, or CRPC_OK. */
static __attribute__((noinline)) uint32_t submit_several(const crpc_context *context,
                                                         const crpc_op *ops, uint32_t count,
                                                         const uint8_t *payload,
                                                         uint64_t payload_bytes, int32_t *reason)
{
    /* Ops of one endpoint tend to come together: its handle is looked up once. No handle is ~0. */
    crpc_endpoint handle = {~UINT64_C(0)};
    struct rpc_endpoint *endpoint = NULL;
    uint32_t taken = 0;
    int32_t status = CRPC_OK;
    while (taken < count) {
        const crpc_op *op = &ops[taken];
        if (op->endpoint.bits != handle.bits) {
            handle = op->endpoint;
            endpoint = endpoint_of(context, handle);
        }
        if (likely(endpoint) && count - taken >= RUN_LEAST &&
            op[RUN_LEAST - 1].endpoint.bits == handle.bits) {
            const uint32_t run = submit_run(endpoint, op, count - taken, payload, payload_bytes);
            taken += run;
            /* What ends a long run may begin another one; what ends a short one, or is refused, is taken by itself. */
            if (run >= RUN_LEAST) {
                continue;
            }
            op += run;
            if (op->endpoint.bits != handle.bits) {
                continue;
            }
        }
        status = likely(endpoint) ? submit_one(context, endpoint, op, payload, payload_bytes)
                                  : CRPC_E_STALE;
        if (unlikely(status != CRPC_OK)) {
            break;
        }
        taken++;
    }
    *reason = status;
    return taken;
}

/* ---- With metrics ----------------------------------------------------------------------------- */

/* So many are copied at a time, as calls get tickets in place of their user_data. */
#define MEASURED_AT_ONCE 64u

static bool take_tickets(struct metrics *metrics, crpc_op *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].opcode == CRPC_OP_CALL &&
            unlikely(!metrics_take_ticket(metrics, ops[i].user_data, &ops[i].user_data))) {
            while (i-- > 0) {
                if (ops[i].opcode == CRPC_OP_CALL) {
                    metrics_drop_ticket(metrics, ops[i].user_data);
                }
            }
            return false;
        }
    }
    return true;
}

/* Counts those that were accepted. */
static void count_ops(const crpc_context *context, struct metrics *metrics, const crpc_op *ops,
                      uint32_t count, uint32_t taken, uint64_t now_ns)
{
    crpc_endpoint handle = {~UINT64_C(0)};
    struct rpc_endpoint *endpoint = NULL;
    for (uint32_t i = 0; i < taken; i++) {
        if (ops[i].endpoint.bits != handle.bits) {
            handle = ops[i].endpoint;
            endpoint = endpoint_of(context, handle);
        }
        metrics_op(metrics, endpoint, &ops[i], now_ns);
    }
    for (uint32_t i = taken; i < count; i++) {
        if (ops[i].opcode == CRPC_OP_CALL) {
            metrics_drop_ticket(metrics, ops[i].user_data);
        }
    }
}

/* An op that is a series by itself, if it is as most are: *taken is how many were accepted. Otherwise returns false. */
static inline __attribute__((always_inline)) bool submit_alone(struct rpc_endpoint *endpoint,
                                                               const crpc_op *op, const void *place,
                                                               int32_t *reason, uint32_t *taken)
{
    if (op_is_call(op)) {
        *taken = rpc_call_alone(endpoint, op, place, reason);
        return true;
    }
    if (op_is_quiet_reply(op)) {
        *taken = rpc_reply_alone(endpoint, op, place, reason);
        return true;
    }
    return false;
}

static __attribute__((noinline)) uint32_t
submit_many_measured(const crpc_context *context, const crpc_op *ops, uint32_t count,
                     const uint8_t *payload, uint64_t payload_bytes, int32_t *reason)
{
    struct metrics *metrics = rpc_engine_metrics(context->engine);
    const uint64_t now_ns = rpc_engine_now_ns(context->engine);
    crpc_op copies[MEASURED_AT_ONCE];
    uint32_t all = 0;
    *reason = CRPC_OK;
    while (all < count) { /* ops may be NULL if there are none */
        const uint32_t some = (uint32_t)minimum(count - all, MEASURED_AT_ONCE);
        uint32_t taken;
        memcpy(copies, ops + all, some * sizeof(*ops));
        if (unlikely(!take_tickets(metrics, copies, some))) {
            *reason = CRPC_E_NO_MEMORY;
            break;
        }
        taken = submit_several(context, copies, some, payload, payload_bytes, reason);
        count_ops(context, metrics, copies, some, taken, now_ns);
        all += taken;
        if (taken < some) {
            break;
        }
    }
    return all;
}

static uint32_t call_measured(struct metrics *metrics, struct rpc_endpoint *endpoint,
                              const crpc_op *op, const void *payload, uint64_t now_ns,
                              int32_t *reason)
{
    crpc_op copy = *op;
    if (unlikely(!metrics_take_ticket(metrics, op->user_data, &copy.user_data))) {
        *reason = CRPC_E_NO_MEMORY;
        return 0;
    }
    const uint32_t taken = rpc_call_alone(endpoint, &copy, payload, reason);
    if (likely(taken)) {
        metrics_op(metrics, endpoint, &copy, now_ns);
    } else {
        metrics_drop_ticket(metrics, copy.user_data);
    }
    return taken;
}

/* A lone op goes the way that it goes without metrics, and is counted when it has left. */
static uint32_t submit_measured(const crpc_context *context, const crpc_op *ops, uint32_t count,
                                const uint8_t *payload, uint64_t payload_bytes, int32_t *reason)
{
    struct rpc_endpoint *endpoint = count == 1 ? endpoint_of(context, ops->endpoint) : NULL;
    if (unlikely(!endpoint || !op_payload_fits(ops, payload_bytes))) {
        return submit_many_measured(context, ops, count, payload, payload_bytes, reason);
    }
    struct metrics *metrics = rpc_engine_metrics(context->engine);
    const uint64_t now_ns = rpc_engine_now_ns(context->engine);
    const uint8_t *place = payload + ops->payload_offset;
    if (op_is_call(ops)) {
        return call_measured(metrics, endpoint, ops, place, now_ns, reason);
    }
    if (op_is_quiet_reply(ops)) {
        const uint32_t taken = rpc_reply_alone(endpoint, ops, place, reason);
        if (likely(taken)) {
            metrics_op(metrics, endpoint, ops, now_ns);
        }
        return taken;
    }
    return submit_many_measured(context, ops, count, payload, payload_bytes, reason);
}

/* Ops that are counted, or recorded, or both. */
static uint32_t submit_watched(const crpc_context *context, const crpc_op *ops, uint32_t count,
                               const uint8_t *payload, uint64_t payload_bytes, int32_t *reason)
{
    const uint32_t taken =
        context->attention & CONTEXT_MEASURED
            ? submit_measured(context, ops, count, payload, payload_bytes, reason)
            : submit_several(context, ops, count, payload, payload_bytes, reason);
    if (context->flight) {
        flight_ops(context->flight, ops, count, taken, *reason);
    }
    return taken;
}

static __attribute__((noinline)) void
count_completions(crpc_context *context, crpc_completion *completions, uint32_t count)
{
    struct metrics *metrics = rpc_engine_metrics(context->engine);
    crpc_endpoint handle = {~UINT64_C(0)};
    struct rpc_endpoint *endpoint = NULL;
    uint64_t now_ns = 0;
    for (crpc_completion *completion = completions; completion < completions + count;
         completion++) {
        if (completion->kind != CRPC_COMPLETION_RESPONSE &&
            completion->kind != CRPC_COMPLETION_REQUEST) {
            continue;
        }
        now_ns = now_ns ? now_ns : clock_now_ns();
        if (completion->kind == CRPC_COMPLETION_RESPONSE) {
            metrics_response(metrics, completion, now_ns);
            continue;
        }
        if (completion->endpoint.bits != handle.bits) {
            handle = completion->endpoint;
            endpoint = endpoint_of(context, handle);
        }
        metrics_request(metrics, endpoint, completion, now_ns);
    }
    metrics_sweep(metrics);
}

/* ---- Submit ----------------------------------------------------------------------------------- */

static __attribute__((noinline)) int32_t submit_any(const crpc_context *context, const crpc_op *ops,
                                                    uint32_t count, const void *payload,
                                                    uint64_t payload_bytes, int32_t *reason)
{
    int32_t status = CRPC_E_INVALID;
    int32_t taken = CRPC_E_INVALID;
    if (likely(context && (ops || count == 0) && (payload || payload_bytes == 0) &&
               count <= INT32_MAX)) {
        /* An address to add offsets to: NULL is none, even plus zero. */
        static const uint8_t nothing;
        const uint8_t *const from = payload ? payload : &nothing;
        taken = (int32_t)(unlikely(context->attention & CONTEXT_WATCHED)
                              ? submit_watched(context, ops, count, from, payload_bytes, &status)
                              : submit_several(context, ops, count, from, payload_bytes, &status));
        rpc_submit_end(context->engine);
    }
    if (reason) {
        *reason = status;
    }
    return taken;
}

/* One op by itself, as a call that is waited for is, needs no frame here: some 30 instructions less. */
int32_t crpc_submit(crpc_context *context, const crpc_op *ops, uint32_t count, const void *payload,
                    uint64_t payload_bytes, int32_t *reason)
{
    /* A branch for each: of the first two, the compiler would make one of six instructions. */
    if (unlikely(count != 1)) {
        return submit_any(context, ops, count, payload, payload_bytes, reason);
    }
    if (unlikely(!context || !ops || (!payload && payload_bytes > 0))) {
        return submit_any(context, ops, count, payload, payload_bytes, reason);
    }
    struct rpc_endpoint *endpoint = plain_endpoint_of(context, ops->endpoint);
    if (unlikely(!endpoint || !op_payload_fits(ops, payload_bytes))) {
        return submit_any(context, ops, count, payload, payload_bytes, reason);
    }
    /* Made of numbers: NULL is no address to add an offset to, even 0. */
    const void *place = (const void *)((uintptr_t)payload + ops->payload_offset);
    uint32_t taken;
    return submit_alone(endpoint, ops, place, reason, &taken)
               ? (int32_t)taken
               : submit_any(context, ops, count, payload, payload_bytes, reason);
}

static uint32_t poll_service(crpc_context *context, uint32_t service, crpc_completion *completions,
                             uint32_t capacity)
{
    switch (service) {
    case CONTEXT_CALLS:
        return rpc_poll(context->engine, completions, capacity);
    case CONTEXT_CHANNELS:
        return context->channels ? channel_poll(context->channels, completions, capacity) : 0;
    default:
        return context->queues ? queue_poll(context->queues, completions, capacity) : 0;
    }
}

/* Another than calls begins, since the one before it filled the last poll. */
static __attribute__((noinline)) uint32_t
poll_in_turn(crpc_context *context, crpc_completion *completions, uint32_t capacity)
{
    uint32_t service = context->poll_first, count = 0;
    context->poll_first = CONTEXT_CALLS;
    for (uint32_t i = 0; i < CONTEXT_SERVICES; i++) {
        uint32_t found = poll_service(context, service, completions + count, capacity - count);
        count += found;
        service = (service + 1) % CONTEXT_SERVICES;
        if (found > 0 && count == capacity) {
            context->poll_first = service;
        }
    }
    return count;
}

/* Calls first: they are many and short. But where one fills the array, the next one comes first the next
 * time, so that none keeps another out. All are polled whatever the room: rpc_poll ends the views of the
 * poll before, and they send what has gathered. */
static __attribute__((noinline)) uint32_t poll_all(crpc_context *context,
                                                   crpc_completion *completions, uint32_t capacity)
{
    if (unlikely(context->poll_first != CONTEXT_CALLS)) {
        return poll_in_turn(context, completions, capacity);
    }
    const uint32_t calls = rpc_poll(context->engine, completions, capacity);
    uint32_t count = calls;
    if (context->channels) {
        count += channel_poll(context->channels, completions + count, capacity - count);
    }
    const uint32_t others = count;
    if (context->queues) {
        count += queue_poll(context->queues, completions + count, capacity - count);
    }
    if (unlikely(others == capacity)) {
        context->poll_first = calls == capacity ? CONTEXT_CHANNELS : CONTEXT_QUEUES;
    }
    return count;
}

static __attribute__((noinline)) int32_t
poll_with_attention(crpc_context *context, crpc_completion *completions, uint32_t capacity)
{
    if (context->attention & CONTEXT_ARMED) {
        context_disarm(context);
    }
    const uint32_t count = context->channels || context->queues
                               ? poll_all(context, completions, capacity)
                               : rpc_poll(context->engine, completions, capacity);
    if (context->attention & CONTEXT_MEASURED) {
        count_completions(context, completions, count);
    }
    if (context->flight) {
        flight_completions(context, completions, count);
    }
    return (int32_t)count;
}

int32_t crpc_poll(crpc_context *context, crpc_completion *completions, uint32_t capacity)
{
    if (unlikely(!context || !completions || capacity == 0 || capacity > POLL_CAPACITY_MAX)) {
        return CRPC_E_INVALID;
    }
    if (unlikely(context->attention)) {
        return poll_with_attention(context, completions, capacity);
    }
    if (unlikely(context->channels || context->queues)) {
        return (int32_t)poll_all(context, completions, capacity);
    }
    return (int32_t)rpc_poll(context->engine, completions, capacity);
}

int32_t crpc_retain(crpc_context *context, const crpc_completion *completion, void *buffer,
                    uint64_t buffer_bytes)
{
    if (!context || !completion || (!buffer && buffer_bytes > 0) ||
        completion->payload_bytes > INT32_MAX) {
        return CRPC_E_INVALID;
    }
    const struct rpc_endpoint *endpoint = endpoint_of(context, completion->endpoint);
    if (!endpoint || !rpc_view_valid(endpoint, completion)) {
        return CRPC_E_STALE;
    }
    if (completion->payload_bytes > buffer_bytes) {
        return CRPC_E_TOO_BIG;
    }
    if (completion->payload_bytes > 0) {
        memcpy(buffer, (const void *)(uintptr_t)completion->payload, completion->payload_bytes);
    }
    return (int32_t)completion->payload_bytes;
}

int32_t crpc_request_get_trace(crpc_context *context, crpc_endpoint endpoint, uint64_t token,
                               crpc_trace *trace)
{
    if (!context || !trace) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    return object ? rpc_request_trace(object, token, trace) : CRPC_E_STALE;
}

/* ---- Writing in place ------------------------------------------------------------------------ */

int32_t crpc_reserve(crpc_context *context, const crpc_op *op, void **address)
{
    if (!context || !op || !address || op->payload_offset != 0) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *endpoint = endpoint_of(context, op->endpoint);
    if (!endpoint) {
        return CRPC_E_STALE;
    }
    if (op->opcode == CRPC_OP_CALL ? !op_idempotent_call_valid(op) : !op_reply_valid(op)) {
        return CRPC_E_INVALID;
    }
    if (op->opcode != CRPC_OP_CALL && op->opcode != CRPC_OP_REPLY) {
        return CRPC_E_UNSUPPORTED;
    }
    return rpc_reserve(endpoint, op, address);
}

/* With metrics. `reserved` is the op of the reservation. */
static int32_t commit_measured(const crpc_context *context, struct rpc_endpoint *endpoint,
                               crpc_op *reserved, uint32_t payload_bytes)
{
    struct metrics *metrics = rpc_engine_metrics(context->engine);
    const uint64_t now_ns = rpc_engine_now_ns(context->engine);
    crpc_op op = *reserved;
    if (op.opcode == CRPC_OP_CALL && !metrics_take_ticket(metrics, op.user_data, &op.user_data)) {
        return CRPC_E_NO_MEMORY;
    }
    op.payload_bytes = payload_bytes;
    reserved->user_data = op.user_data;
    const int32_t status = rpc_commit(endpoint, payload_bytes);
    if (status == CRPC_OK) {
        metrics_op(metrics, endpoint, &op, now_ns);
    } else if (op.opcode == CRPC_OP_CALL) { /* it is reserved no more */
        metrics_drop_ticket(metrics, op.user_data);
    }
    return status;
}

/* Of a context that looks at ops, or not of an endpoint. */
static __attribute__((cold, noinline)) int32_t
commit_watched(const crpc_context *context, crpc_endpoint handle, uint32_t payload_bytes)
{
    struct rpc_endpoint *endpoint = endpoint_of(context, handle);
    crpc_op *reserved = endpoint ? rpc_reserved(endpoint) : NULL;
    if (!reserved || payload_bytes > reserved->payload_bytes) {
        return endpoint ? rpc_commit(endpoint, payload_bytes) : CRPC_E_STALE;
    }
    crpc_op op = *reserved;
    op.payload_bytes = payload_bytes;
    const int32_t status = context->attention & CONTEXT_MEASURED
                               ? commit_measured(context, endpoint, reserved, payload_bytes)
                               : rpc_commit(endpoint, payload_bytes);
    if (context->flight) {
        flight_ops(context->flight, &op, 1, status == CRPC_OK, status);
    }
    return status;
}

int32_t crpc_commit(crpc_context *context, crpc_endpoint endpoint, uint32_t payload_bytes)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = plain_endpoint_of(context, endpoint);
    return likely(object) ? rpc_commit(object, payload_bytes)
                          : commit_watched(context, endpoint, payload_bytes);
}

int32_t crpc_abort(crpc_context *context, crpc_endpoint endpoint)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct rpc_endpoint *object = endpoint_of(context, endpoint);
    return object ? rpc_abort(object) : CRPC_E_STALE;
}
