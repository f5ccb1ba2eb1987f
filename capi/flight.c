/* flight.c: see private/flight.h. */
#include "private/flight.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "private/text.h"

/* ---- Records --------------------------------------------------------------------------------- */

/* Ops have their opcode, completions their kind and this. */
#define COMPLETION 0x80u
/* Of an op: it was refused, and `status` is why. */
#define REFUSED 0x40u

struct record {
    uint64_t time_ns;
    uint64_t number; /* user_data; of requests and their answers the token */
    uint32_t bytes;
    int32_t status;
    uint16_t method;
    uint8_t what;
};

/* Whether its number is the token of a request. */
static bool has_token(uint8_t what)
{
    switch (what & (uint8_t)~REFUSED) {
    case CRPC_OP_REPLY:
    case CRPC_OP_DROP:
    case CRPC_COMPLETION_REQUEST | COMPLETION:
    case CRPC_COMPLETION_ABANDONED | COMPLETION:
    case CRPC_COMPLETION_REPLY | COMPLETION:
        return true;
    default:
        return false;
    }
}

/* The records of the endpoint whose handle has this slot. */
struct ring {
    uint64_t handle;
    uint64_t count; /* that were made, of which the last are kept */
    struct record *records;
};

struct flight {
    uint32_t mask; /* records of each ring - 1 */
    uint32_t ring_count;
    struct ring *rings; /* by the slot of a handle */
};

static bool grow(struct flight *flight, uint32_t slot)
{
    const uint32_t count = power_of_two_at_least(slot + 1);
    struct ring *rings = realloc(flight->rings, count * sizeof(*rings));
    if (!rings) {
        return false;
    }
    memset(rings + flight->ring_count, 0, (count - flight->ring_count) * sizeof(*rings));
    flight->rings = rings;
    flight->ring_count = count;
    return true;
}

/* NULL: there is no memory. What had the slot before is closed. */
static __attribute__((cold, noinline)) struct ring *begin_ring(struct flight *flight,
                                                               uint64_t handle)
{
    const uint32_t slot = handle & (HANDLE_SLOTS_MAX - 1);
    if (slot >= flight->ring_count && !grow(flight, slot)) {
        return NULL;
    }
    struct ring *ring = &flight->rings[slot];
    if (!ring->records) {
        ring->records = calloc((size_t)flight->mask + 1, sizeof(*ring->records));
    }
    if (!ring->records) {
        return NULL;
    }
    ring->handle = handle;
    ring->count = 0;
    return ring;
}

static struct ring *find_ring(const struct flight *flight, uint64_t handle)
{
    const uint32_t slot = handle & (HANDLE_SLOTS_MAX - 1);
    return slot < flight->ring_count && flight->rings[slot].handle == handle ? &flight->rings[slot]
                                                                             : NULL;
}

static inline void record(struct flight *flight, crpc_endpoint endpoint, const struct record *made)
{
    struct ring *ring = find_ring(flight, endpoint.bits);
    if (unlikely(!ring) && !(ring = begin_ring(flight, endpoint.bits))) {
        return;
    }
    ring->records[ring->count++ & flight->mask] = *made;
}

static bool is_endpoint(crpc_endpoint endpoint)
{
    return endpoint.bits >> HANDLE_KIND_SHIFT == HANDLE_ENDPOINT;
}

static void record_op(struct flight *flight, const crpc_op *op, uint8_t what, int32_t status,
                      uint64_t time_ns)
{
    if (!is_endpoint(op->endpoint)) {
        return; /* it names no endpoint of this context: nothing is made for it */
    }
    const bool call = op->opcode == CRPC_OP_CALL;
    record(flight, op->endpoint,
           &(struct record){.time_ns = time_ns,
                            .number = call ? op->user_data : op->token,
                            .bytes = op->payload_bytes,
                            .status = status,
                            .method = op->method,
                            .what = what});
}

void flight_ops(struct flight *flight, const crpc_op *ops, uint32_t count, uint32_t taken,
                int32_t reason)
{
    const uint64_t time_ns = clock_now_ns();
    for (uint32_t i = 0; i < taken; i++) {
        record_op(flight, &ops[i], ops[i].opcode, ops[i].status, time_ns);
    }
    if (taken < count && find_ring(flight, ops[taken].endpoint.bits)) {
        record_op(flight, &ops[taken], ops[taken].opcode | REFUSED, reason, time_ns);
    }
}

/* ---- Text ------------------------------------------------------------------------------------ */

static const char *const op_names[] = {[CRPC_OP_CALL] = "call",
                                       [CRPC_OP_REPLY] = "reply",
                                       [CRPC_OP_DROP] = "drop",
                                       [CRPC_OP_CANCEL] = "cancel"};

static const char *const completion_names[] = {
    [CRPC_COMPLETION_RESPONSE] = "RESPONSE",
    [CRPC_COMPLETION_REPLY] = "REPLY",
    [CRPC_COMPLETION_CANCEL] = "CANCEL",
    [CRPC_COMPLETION_REQUEST] = "REQUEST",
    [CRPC_COMPLETION_CONNECT_REQUEST] = "CONNECT_REQUEST",
    [CRPC_COMPLETION_CONNECTED] = "CONNECTED",
    [CRPC_COMPLETION_DISCONNECTED] = "DISCONNECTED",
    [CRPC_COMPLETION_ROOM] = "ROOM",
    [CRPC_COMPLETION_WORK] = "WORK",
    [CRPC_COMPLETION_ABANDONED] = "ABANDONED",
    [CRPC_COMPLETION_RECONNECTING] = "RECONNECTING",
};

static const char *name_of(const char *const *names, size_t count, uint32_t number)
{
    return number < count && names[number] ? names[number] : "?";
}

#define NAME_OF(names, number) name_of(names, sizeof(names) / sizeof((names)[0]), number)

/* What the record says beside its time, without a new line. now_ns: what the time counts from. */
static void describe(const struct record *record, uint64_t now_ns, char *text, size_t bytes)
{
    const bool completed = record->what & COMPLETION;
    const uint8_t what = record->what & (uint8_t) ~(COMPLETION | REFUSED);
    const double ms = (double)(now_ns - record->time_ns) / 1e6;
    int used = snprintf(text, bytes, "-%.3f ms %s %s 0x%" PRIx64 ", method %u, %u bytes", ms,
                        completed ? NAME_OF(completion_names, what) : NAME_OF(op_names, what),
                        has_token(record->what) ? "token" : "user_data", record->number,
                        record->method, record->bytes);
    if (used < 0 || (size_t)used >= bytes) {
        return;
    }
    if (record->status < 0) {
        snprintf(text + used, bytes - (size_t)used, ", %s%s",
                 record->what & REFUSED ? "refused: " : "", crpc_status_name(record->status));
    } else if (completed || record->status > 0) {
        snprintf(text + used, bytes - (size_t)used, ", status %d", record->status);
    }
}

/* A line longer than any. */
#define LINE_BYTES 200u

static uint64_t first_kept(const struct flight *flight, const struct ring *ring, uint64_t most)
{
    const uint64_t kept = minimum((uint64_t)flight->mask + 1, most);
    return ring->count > kept ? ring->count - kept : 0;
}

int64_t crpc_endpoint_flight_records(crpc_context *context, crpc_endpoint endpoint, char *text,
                                     uint64_t text_bytes)
{
    if (!context || (!text && text_bytes > 0)) {
        return CRPC_E_INVALID;
    }
    if (!endpoint_of(context, endpoint)) {
        return CRPC_E_STALE;
    }
    const struct flight *flight = context->flight;
    if (!flight) {
        return CRPC_E_STATE;
    }
    const struct ring *ring = find_ring(flight, endpoint.bits);
    const uint64_t now_ns = clock_now_ns();
    struct text written = {.at = text, .room = text_bytes};
    for (uint64_t i = ring ? first_kept(flight, ring, UINT64_MAX) : 0; ring && i < ring->count;
         i++) {
        char line[LINE_BYTES];
        describe(&ring->records[i & flight->mask], now_ns, line, sizeof(line));
        text_put(&written, "%s\n", line);
    }
    return text_end(&written);
}

/* ---- Completions ----------------------------------------------------------------------------- */

static void log_last(struct crpc_context *context, crpc_endpoint endpoint, uint64_t now_ns)
{
    const struct flight *flight = context->flight;
    const struct ring *ring = find_ring(flight, endpoint.bits);
    for (uint64_t i = ring ? first_kept(flight, ring, FLIGHT_LOGGED) : 0; ring && i < ring->count;
         i++) {
        char line[LINE_BYTES];
        describe(&ring->records[i & flight->mask], now_ns, line, sizeof(line));
        log_write(&context->log, CRPC_LOG_WARNING, "endpoint 0x%" PRIx64 ": %s", endpoint.bits,
                  line);
    }
}

void flight_completions(struct crpc_context *context, const crpc_completion *completions,
                        uint32_t count)
{
    struct flight *flight = context->flight;
    const uint64_t now_ns = count > 0 ? clock_now_ns() : 0;
    for (uint32_t i = 0; i < count; i++) {
        const crpc_completion *done = &completions[i];
        if (!is_endpoint(done->endpoint)) {
            continue;
        }
        const uint8_t what = done->kind | COMPLETION;
        record(flight, done->endpoint,
               &(struct record){.time_ns = now_ns,
                                .number = has_token(what) ? done->token : done->user_data,
                                .bytes = done->payload_bytes,
                                .status = done->status,
                                .method = done->method,
                                .what = what});
        if ((done->kind == CRPC_COMPLETION_DISCONNECTED ||
             done->kind == CRPC_COMPLETION_RECONNECTING) &&
            done->status < 0) {
            log_last(context, done->endpoint, now_ns);
        }
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

int32_t flight_open(struct crpc_context *context, uint32_t records, crpc_error *error)
{
    const char *wanted = getenv("COPYRPC_FLIGHT_RECORDS");
    if (records == 0 && wanted) {
        const unsigned long number = strtoul(wanted, NULL, 10);
        records = (uint32_t)minimum(number, FLIGHT_RECORDS_MAX);
    }
    if (records == 0) {
        return CRPC_OK;
    }
    context->flight = calloc(1, sizeof(*context->flight));
    if (!context->flight) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for flight records");
    }
    context->flight->mask = power_of_two_at_least(records) - 1;
    context_watch(context, CONTEXT_RECORDED);
    return CRPC_OK;
}

void flight_close(struct flight *flight)
{
    if (!flight) {
        return;
    }
    for (uint32_t i = 0; i < flight->ring_count; i++) {
        free(flight->rings[i].records);
    }
    free(flight->rings);
    free(flight);
}
