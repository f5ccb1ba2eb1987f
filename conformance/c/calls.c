/* calls.c: calls and answers: what there is no room for waits here, in order. */
#include <stdlib.h>
#include <string.h>

#include "line.h"
#include "runner.h"

#define CALLS_MAX 8192
#define TRACE_BYTES 25 /* of a crpc_trace: what is behind is zero */

/* A call on its way into the library, which may have no room for it. */
struct call {
    crpc_op op;
    uint64_t due;     /* ns, or 0 */
    crpc_trace trace; /* with CRPC_OP_TRACED */
    uint32_t seed;
    int canceled;
};

static struct call calls[CALLS_MAX]; /* that wait for room, in order */
static uint32_t calls_count;

void tell_response(uint64_t id, int32_t status, uint64_t payload, uint32_t bytes)
{
    json_t *event = event_new("response");
    put_number(event, "id", id);
    put_status(event, status);
    put_number(event, "length", bytes);
    put_number(event, "checksum", checksum((const void *)(uintptr_t)payload, bytes));
    event_tell(event);
}

int32_t submit_op(const crpc_op *op, const void *payload)
{
    int32_t reason = CRPC_OK;
    crpc_submit(context, op, 1, payload, op->payload_bytes, &reason);
    return reason;
}

/* With its trace, which lies before the payload. */
static int32_t submit_call(const struct call *call)
{
    static uint8_t *both;
    crpc_op op = call->op;
    int32_t reason = CRPC_OK;
    const void *payload = payload_of(op.payload_bytes, call->seed);
    if (!(op.flags & CRPC_OP_TRACED)) {
        return submit_op(&op, payload);
    }
    both = realloc(both, sizeof(call->trace) + op.payload_bytes);
    memcpy(both, &call->trace, sizeof(call->trace));
    memcpy(both + sizeof(call->trace), payload, op.payload_bytes);
    op.payload_offset += op.flags & CRPC_OP_REGION ? 0 : sizeof(call->trace);
    crpc_submit(context, &op, 1, both, sizeof(call->trace) + op.payload_bytes, &reason);
    return reason;
}

/* Submits what there is room for. A call behind one of the same endpoint that must wait, waits too. */
void calls_submit(void)
{
    uint64_t full =
        0; /* the one endpoint that is known to have no room: enough to keep its order */
    uint32_t count = calls_count;
    calls_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct call *call = &calls[i];
        uint64_t now = call->due ? now_ns() : 0;
        int32_t reason = CRPC_E_AGAIN;
        if (call->canceled || (call->due && call->due <= now)) {
            reason = call->canceled ? CRPC_E_CANCELED : CRPC_E_TIMEOUT;
        } else if (call->op.endpoint.bits != full &&
                   !(call->op.flags & CRPC_OP_AFTER && lanes_waiting(call->op.endpoint.bits))) {
            call->op.timeout_ns = call->due - now;
            reason = submit_call(call);
        }
        if (reason == CRPC_E_AGAIN) {
            full = call->op.endpoint.bits;
            calls[calls_count++] = *call;
        } else if (reason != CRPC_OK) {
            tell_response(call->op.user_data, reason, 0, 0);
        }
    }
}

int calls_waiting(void)
{
    return calls_count > 0;
}

void calls_reset(void)
{
    calls_count = 0;
}

/* ---- Verbs ---- */

static crpc_op call_op(crpc_endpoint endpoint)
{
    return (crpc_op){.opcode = CRPC_OP_CALL,
                     .flags = (uint8_t)((number("after") ? CRPC_OP_AFTER : 0) |
                                        (number("idempotent") ? CRPC_OP_IDEMPOTENT : 0)),
                     .method = (uint16_t)number("method"),
                     .endpoint = endpoint,
                     .user_data = number("id"),
                     .payload_bytes = number("length"),
                     .reply_bytes_max = number("reply_max"),
                     .timeout_ns = nanoseconds("timeout_ms")};
}

/* Of ops whose payload is in the line's region: it is written there, as far as there is room, and the op names it. */
static void put_in_region(crpc_op *op, uint32_t index, uint32_t seed)
{
    const struct thing *region = *text("region") ? thing_named(text("region")) : NULL;
    uint64_t offset = number("offset") + (uint64_t)index * op->payload_bytes;
    if (!*text("region")) {
        return;
    }
    if (region && offset + op->payload_bytes <= region->bytes) {
        memcpy((uint8_t *)region->memory + offset, payload_of(op->payload_bytes, seed),
               op->payload_bytes);
    }
    op->flags = (uint8_t)((op->flags & ~CRPC_OP_QUIET) | CRPC_OP_REGION);
    op->region.bits = region ? region->bits : 0;
    op->payload_offset = offset;
}

/* calls_submit submits them. */
static int32_t do_call(crpc_endpoint endpoint)
{
    uint32_t count = has("count") ? number("count") : 1;
    for (uint32_t i = 0; i < count && calls_count < CALLS_MAX; i++) {
        struct call *call = &calls[calls_count++];
        *call = (struct call){.op = call_op(endpoint), .seed = number("seed") + i};
        call->due = call->op.timeout_ns ? now_ns() + call->op.timeout_ns : 0;
        call->op.user_data += i;
        put_in_region(&call->op, i, call->seed);
        if (bytes_of("trace", (uint8_t *)&call->trace, TRACE_BYTES) > 0) {
            call->op.flags |= CRPC_OP_TRACED;
        }
    }
    return CRPC_OK;
}

static int32_t do_cancel(crpc_endpoint endpoint)
{
    crpc_op op = {.opcode = CRPC_OP_CANCEL, .endpoint = endpoint, .token = number("id")};
    for (uint32_t i = 0; i < calls_count; i++) {
        calls[i].canceled |= calls[i].op.user_data == op.token;
    }
    return submit_op(&op, NULL);
}

crpc_op answer_op(const struct thing *request, uint8_t opcode, uint32_t status, uint32_t bytes)
{
    return (crpc_op){.opcode = opcode,
                     .flags = CRPC_OP_QUIET,
                     .status = (int32_t)status,
                     .endpoint = {request->bits},
                     .token = request->token,
                     .payload_bytes = bytes};
}

static int32_t do_reply(const struct thing *request)
{
    int echo = number("echo") != 0;
    crpc_op op = answer_op(request, CRPC_OP_REPLY, number("status"),
                           echo ? request->bytes : number("length"));
    lanes_submit(); /* those behind which it is sent */
    op.flags |= number("after") ? CRPC_OP_AFTER : 0;
    put_in_region(&op, 0, number("seed"));
    return submit_op(&op, echo ? request->memory : payload_of(op.payload_bytes, number("seed")));
}

static void tell_waiting(const struct thing *request)
{
    crpc_trace trace;
    const int32_t status =
        crpc_request_get_trace(context, (crpc_endpoint){request->bits}, request->token, &trace);
    put_number(answer(), "abandoned", request->abandoned);
    put_number(answer(), "waits_ms", request->waits_ns / 1000000);
    put_bytes(answer(), "trace", (const uint8_t *)&trace, status == CRPC_OK ? TRACE_BYTES : 0);
}

static int32_t do_drop(const struct thing *request)
{
    crpc_op op =
        answer_op(request, CRPC_OP_DROP, number("not_started") ? CRPC_E_NOT_STARTED : CRPC_OK, 0);
    return submit_op(&op, NULL);
}

static int32_t do_reserve(const struct thing *it, struct thing *made)
{
    void *address = NULL;
    made->op = *text("request") ? answer_op(it, CRPC_OP_REPLY, number("status"), number("length"))
                                : call_op((crpc_endpoint){it->bits});
    int32_t status = crpc_reserve(context, &made->op, &address);
    made->bits = it->bits;
    made->room = address;
    return status;
}

static int32_t do_commit(struct thing *it)
{
    uint32_t length = number("length");
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    int open = it->room && crpc_endpoint_get_info(context, it->op.endpoint, &info) == CRPC_OK;
    if (open && length <= it->op.payload_bytes) {
        memcpy(it->room, payload_of(length, number("seed")), length);
        it->room = NULL;
    }
    int32_t status = crpc_commit(context, it->op.endpoint, length);
    if (status < 0 && it->op.opcode == CRPC_OP_CALL) { /* as of calls that never had room */
        tell_response(it->op.user_data, status, 0, 0);
        return CRPC_OK;
    }
    return status;
}

int32_t calls_run(const char *verb, struct thing *it, struct thing *made)
{
#define IS(name) (strcmp(verb, name) == 0)
    const crpc_endpoint endpoint = {it ? it->bits : 0};
    if (IS("call")) {
        return do_call(endpoint);
    } else if (IS("cancel")) {
        return do_cancel(endpoint);
    } else if (it && IS("reply")) {
        return do_reply(it);
    } else if (it && IS("drop")) {
        return do_drop(it);
    } else if (it && IS("request")) {
        tell_waiting(it);
        return CRPC_OK;
    } else if (it && IS("payload")) {
        put_number(answer(), "length", it->bytes);
        put_number(answer(), "checksum", checksum(it->memory, it->bytes));
        return CRPC_OK;
    } else if (made && it && IS("reserve")) {
        return do_reserve(it, made);
    } else if (it && IS("commit")) {
        return do_commit(it);
    } else if (it && IS("abort")) {
        it->room = NULL;
        return crpc_abort(context, endpoint);
    }
    return VERB_UNKNOWN;
}
