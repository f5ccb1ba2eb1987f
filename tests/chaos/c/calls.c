/* calls.c: the worker's calls, and its answers to those of its peers. */
#include <stddef.h>
#include <string.h>

#include "worker.h"

#define BURST 16
#define PAYLOAD_BYTES_MAX 8192u

struct deferred {
    crpc_endpoint endpoint;
    uint64_t token, id, due_ns;
    uint32_t reply_bytes_max;
    bool drop;
};

static struct deferred deferred[DEFERRED_MAX];
static uint32_t deferred_count;

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- Calls ---- */

static struct call *call_take(struct worker *worker, uint64_t id)
{
    struct call *call = &worker->calls[id % CALLS_MAX];
    return call->id ? NULL : call;
}

static void cancel(struct worker *worker, crpc_endpoint endpoint, const struct call *call)
{
    uint64_t id = new_id(worker);
    crpc_op op = {
        .opcode = CRPC_OP_CANCEL, .endpoint = endpoint, .user_data = id, .token = call->id};
    int32_t reason;
    op_begin(worker, OP_CANCEL, id, worker->connections[call->connection].id, call->id);
    if (crpc_submit(worker->context, &op, 1, NULL, 0, &reason) == 1) {
        worker->others_open++;
    } else {
        op_refused(worker, id, reason);
    }
}

static uint64_t timeout_of(struct worker *worker)
{
    switch (dice(worker, 8)) {
    case 0:
        return 0;
    case 1:
        return 1 + dice(worker, 1000000);
    case 2:
        return 1000000u + dice(worker, 100000000);
    default:
        return 5000000000u;
    }
}

void calls_some(struct worker *worker, int index)
{
    static uint8_t payload[BURST * PAYLOAD_BYTES_MAX];
    const struct connection *connection = &worker->connections[index];
    crpc_op ops[BURST];
    uint32_t count = 0, wanted = 1 + dice(worker, BURST);
    int32_t reason = CRPC_OK;
    if (connection->request_bytes_max < HEADER_BYTES) {
        return;
    }
    for (; count < wanted; count++) {
        uint64_t id = new_id(worker);
        struct call *call = call_take(worker, id);
        if (!call) {
            break;
        }
        uint32_t most = smaller(connection->request_bytes_max, PAYLOAD_BYTES_MAX);
        most = chance(worker, 8) ? most : smaller(most, 256);
        uint32_t bytes = HEADER_BYTES + dice(worker, most - HEADER_BYTES + 1);
        uint32_t reply = smaller(connection->reply_bytes_max, PAYLOAD_BYTES_MAX);
        reply = chance(worker, 8) ? reply : smaller(reply, 256);
        *call = (struct call){.id = id,
                              .begun_ns = now_ns(),
                              .timeout_ns = timeout_of(worker),
                              .reply_bytes_max = dice(worker, reply + 1),
                              .connection = index};
        ops[count] = (crpc_op){.opcode = CRPC_OP_CALL,
                               .method = (uint16_t)id,
                               .endpoint.bits = connection->handle,
                               .user_data = id,
                               .payload_offset = (uint64_t)count * PAYLOAD_BYTES_MAX,
                               .payload_bytes = bytes,
                               .reply_bytes_max = call->reply_bytes_max,
                               .timeout_ns = call->timeout_ns};
        content_fill(payload + ops[count].payload_offset, bytes, id);
        op_begin(worker, OP_CALL, id, connection->id, 0);
    }
    int32_t taken = crpc_submit(worker->context, ops, count, payload, sizeof(payload), &reason);
    taken = taken < 0 ? 0 : taken;
    worker->calls_open += (uint32_t)taken;
    for (uint32_t i = (uint32_t)taken; i < count; i++) {
        worker->calls[ops[i].user_data % CALLS_MAX].id = 0;
        op_refused(worker, ops[i].user_data, reason);
    }
    if (taken && chance(worker, 12)) {
        cancel(worker, ops[0].endpoint,
               &worker->calls[ops[dice(worker, (uint32_t)taken)].user_data % CALLS_MAX]);
    }
}

static enum verdict reply_verdict(const struct call *call, const crpc_completion *completion)
{
    const void *bytes = (const void *)(uintptr_t)completion->payload;
    uint64_t id;
    if (completion->method != (uint16_t)call->id) {
        return WRONG_ID;
    }
    if (completion->status != content_status(call->id)) {
        return WRONG_STATUS;
    }
    if (completion->payload_bytes > call->reply_bytes_max) {
        return WRONG_LENGTH;
    }
    if (call->reply_bytes_max < HEADER_BYTES) {
        return completion->payload_bytes == 0 ? RIGHT : WRONG_LENGTH;
    }
    enum verdict verdict = content_check(bytes, completion->payload_bytes, &id);
    return verdict == RIGHT && id != (call->id | REPLY_BIT) ? WRONG_ID : verdict;
}

void call_ended(struct worker *worker, const crpc_completion *completion)
{
    struct call *call = &worker->calls[completion->user_data % CALLS_MAX];
    enum verdict verdict = RIGHT;
    uint64_t left_ns = 0;
    if (call->id != completion->user_data) { /* the oracle will say that it has ended before */
        op_ended(worker, completion->user_data, completion->status, WRONG_ID, 0);
        return;
    }
    if (completion->status >= 0) {
        verdict = reply_verdict(call, completion);
    } else if (completion->status == CRPC_E_TIMEOUT && call->timeout_ns) {
        uint64_t passed_ns = now_ns() - call->begun_ns;
        left_ns = passed_ns < call->timeout_ns ? call->timeout_ns - passed_ns : 0;
        verdict = left_ns ? TOO_EARLY : RIGHT;
    }
    op_ended(worker, call->id, completion->status, verdict, left_ns);
    call->id = 0;
    worker->calls_open--;
}

/* ---- Answers ---- */

/* Writes the answer in place. Returns CRPC_OK or why it could not. */
static int32_t reply_in_place(struct worker *worker, crpc_op *op, uint64_t id)
{
    void *room;
    uint32_t bytes = op->payload_bytes;
    int32_t status = crpc_reserve(worker->context, op, &room);
    if (status != CRPC_OK) {
        return status;
    }
    if (chance(worker, 4)) { /* as if it had never been */
        crpc_abort(worker->context, op->endpoint);
        return CRPC_E_AGAIN;
    }
    content_fill(room, bytes, id);
    return crpc_commit(worker->context, op->endpoint, bytes);
}

/* Returns whether the answer is still to be given. */
static bool answer(struct worker *worker, const struct deferred *request)
{
    static uint8_t payload[PAYLOAD_BYTES_MAX];
    uint64_t id = request->id | REPLY_BIT, op_id = 0;
    int32_t reason = CRPC_OK;
    crpc_op op = {.opcode = request->drop ? CRPC_OP_DROP : CRPC_OP_REPLY,
                  .endpoint = request->endpoint,
                  .token = request->token};
    if (!request->drop) {
        op.status = content_status(request->id);
        op.payload_bytes =
            request->reply_bytes_max < HEADER_BYTES
                ? 0
                : HEADER_BYTES + dice(worker, request->reply_bytes_max - HEADER_BYTES + 1);
    }
    if (chance(worker, 2)) {
        op.flags = CRPC_OP_QUIET;
    } else {
        op.user_data = op_id = new_id(worker);
        op_begin(worker, OP_REPLY, op_id, 0, request->id);
    }
    if (op.payload_bytes && chance(worker, 8)) {
        reason = reply_in_place(worker, &op, id);
    } else {
        content_fill(payload, op.payload_bytes, id);
        if (op.payload_bytes && mistaken(worker, "wrong")) {
            payload[op.payload_bytes - 1] ^= 1;
        }
        crpc_submit(worker->context, &op, 1, payload, op.payload_bytes, &reason);
    }
    if (op_id && reason != CRPC_OK) {
        op_refused(worker, op_id, reason);
    } else if (op_id) {
        worker->others_open++;
    }
    if (reason != CRPC_OK && reason != CRPC_E_AGAIN && reason != CRPC_E_DISCONNECTED &&
        reason != CRPC_E_STALE && reason != CRPC_E_CLOSING) {
        trouble(worker, __LINE__, reason);
    }
    return reason == CRPC_E_AGAIN;
}

void replies_some(struct worker *worker)
{
    uint32_t left = 0;
    uint64_t now = deferred_count ? now_ns() : 0;
    for (uint32_t i = 0; i < deferred_count; i++) {
        if (deferred[i].due_ns > now || answer(worker, &deferred[i])) {
            deferred[left++] = deferred[i];
        }
    }
    deferred_count = left;
}

void request_came(struct worker *worker, const crpc_completion *completion)
{
    uint64_t id;
    enum verdict verdict =
        content_check((const void *)(uintptr_t)completion->payload, completion->payload_bytes, &id);
    if (verdict == RIGHT && completion->method != (uint16_t)id) {
        verdict = WRONG_ID;
    }
    struct deferred request = {.endpoint = completion->endpoint,
                               .token = completion->token,
                               .id = id,
                               .reply_bytes_max =
                                   smaller(completion->reply_bytes_max, PAYLOAD_BYTES_MAX),
                               .drop = chance(worker, 30)};
    journal_put(worker->journal, RECORD_EXECUTED, (int32_t)verdict, id, request.drop, 0);
    if (mistaken(worker, "twice")) {
        journal_put(worker->journal, RECORD_EXECUTED, (int32_t)verdict, id, request.drop, 0);
    }
    bool later = chance(worker, 10);
    if (later) {
        request.due_ns = now_ns() + dice(worker, 20000000);
    }
    if (later || answer(worker, &request)) {
        if (deferred_count < DEFERRED_MAX) {
            deferred[deferred_count++] = request;
        } else {
            trouble(worker, __LINE__, 0);
        }
    }
}
