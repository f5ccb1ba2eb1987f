/* trace.c: whose call a request is, for tracing: a crpc_trace, in a word ahead of its request. docs/wire.md, "Traces".
 *
 * So requests are as ever, and cost as ever; only what has a trace pays for it. A word says which call it is of: the next one that is
 * made. At the peer it is kept until somebody asks, as that of the token which the next request will get, if it is the one. Nothing
 * depends on it: if the request does not follow, nobody asks.
 */
#include "base/copy.h"
#include "base/sparse.h"
#include "rpc/internal.h"
#include "rpc/lasting.h"
#include "rpc/message.h"
#include "rpc/op.h"
#include "rpc/run.h"

struct rpc_trace {
    uint64_t token; /* of its request; 0 = none yet */
    crpc_trace trace;
};

/* ---- Of this side's calls --------------------------------------------------------------------- */

uint64_t rpc_trace_charge(const struct rpc_endpoint *endpoint, const crpc_op *op)
{
    const uint64_t charge = wire_charge(sizeof(crpc_trace));
    const bool told = op->flags & CRPC_OP_TRACED && rpc_traces_selected(endpoint) &&
                      wire_charge(op->payload_bytes) + charge <= endpoint->peer.request_bytes_max;
    return told ? charge : 0;
}

void rpc_trace_say(struct rpc_endpoint *endpoint, const crpc_op *op)
{
    const uint64_t charge = rpc_trace_charge(endpoint, op);
    if (charge == 0) {
        return;
    }
    const struct rpc_call *free = endpoint->calls.first_free;
    const uint32_t call_id = free->call_id + (1u << WIRE_CALL_INDEX_BITS); /* as call_take does */
    endpoint_say_of(endpoint, WIRE_TRACE, call_id, (const void *)(uintptr_t)op->token,
                    sizeof(crpc_trace));
    endpoint->out.request_produced += charge;
}

int32_t rpc_trace_call(struct rpc_endpoint *endpoint, const crpc_op *op, const void *payload)
{
    assert(op->opcode == CRPC_OP_CALL && op->flags & CRPC_OP_TRACED);
    if (endpoint->lasting) {
        return rpc_lasting_call(endpoint->lasting, op, payload);
    }
    const int32_t status = rpc_possible(endpoint, op);
    if (status == CRPC_OK) {
        copy_short(rpc_book(endpoint, op) + WIRE_HEADER_BYTES, payload, op->payload_bytes);
    }
    return status;
}

/* ---- Of the peer's ---------------------------------------------------------------------------- */

/* The token that the next request gets, if it is of this call. */
static uint64_t next_token(const struct rpc_endpoint *endpoint, uint32_t call_id)
{
    const uint32_t sequence = endpoint->owed.token_sequence + 1;
    return (uint64_t)(sequence ? sequence : 1) << 32 | call_id;
}

const char *rpc_trace_take_word(struct rpc_endpoint *endpoint, const struct rpc_header *header,
                                const uint8_t *payload)
{
    const uint32_t index = header->call_id & WIRE_CALL_INDEX_MASK;
    const uint64_t charge = wire_charge(sizeof(crpc_trace));
    crpc_trace trace;
    if (header->payload_bytes != sizeof(trace) || header->limit_or_status != 0 ||
        rpc_header_method(*header) != 0) {
        return "the trace of a request is malformed";
    }
    if (endpoint->in.request_arrived + charge > endpoint->in.request_published) {
        return "its traces exceed the limit of requests";
    }
    if (endpoint->in.fin == FIN_BEFORE || index >= endpoint->owed.slot_count) {
        return "a trace comes too late, or is of no request";
    }
    wire_copy(&trace, payload);
    if (!op_trace_valid(&trace)) {
        return "the trace of a request has reserved bytes set";
    }
    endpoint->in.request_arrived += charge;
    if (!endpoint->traces) {
        endpoint->traces = sparse_alloc(endpoint->owed.slot_count, sizeof(*endpoint->traces));
    }
    if (endpoint->traces) { /* without memory, the request comes without its trace */
        endpoint->traces[index] =
            (struct rpc_trace){.token = next_token(endpoint, header->call_id), .trace = trace};
    }
    return NULL;
}

int32_t rpc_request_trace(struct rpc_endpoint *endpoint, uint64_t token, crpc_trace *trace)
{
    if (!rpc_find_owed(endpoint, token)) {
        return CRPC_E_STALE;
    }
    const struct rpc_trace *kept =
        endpoint->traces ? &endpoint->traces[(uint32_t)token & WIRE_CALL_INDEX_MASK] : NULL;
    if (!kept || kept->token != token) {
        return CRPC_E_NOT_FOUND;
    }
    *trace = kept->trace;
    return CRPC_OK;
}

void rpc_traces_free(struct rpc_endpoint *endpoint)
{
    sparse_free(endpoint->traces, endpoint->owed.slot_count, sizeof(*endpoint->traces));
    endpoint->traces = NULL;
}
