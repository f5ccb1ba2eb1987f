/* calls.c: see calls.h. */
#include "calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call on its way into the library, which may have no room for it. */
struct call {
    crpc_op op;
    uint8_t *payload;
    uint64_t due; /* ns, or 0 */
    int canceled;
    struct call *next;
};

crpc_context *context;
struct thing things[THINGS_MAX];
const char *unknown;
static uint32_t things_count;
static struct call *calls;

uint32_t number(const struct line *line, const char *key)
{
    return (uint32_t)line_number(line, key, 0);
}

const char *status_text(int32_t status)
{
    static char number[16];
    snprintf(number, sizeof(number), "%d", status);
    return status > 0 ? number : crpc_status_name(status);
}

void tell_response(uint64_t id, int32_t status, const void *payload, uint32_t bytes)
{
    printf("event kind=response id=%" PRIu64 " status=%s length=%u checksum=%u\n", id,
           status_text(status), bytes, payload_checksum(payload, bytes));
}

struct thing *thing_add(const char *name)
{
    if (++things_count == THINGS_MAX) {
        abort(); /* run.py tells of a runner that died */
    }
    things[things_count] = (struct thing){.token = 0};
    snprintf(things[things_count].name, sizeof(things[0].name), "%s", name);
    return &things[things_count];
}

struct thing *thing_add_numbered(crpc_endpoint endpoint)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", things_count + 1);
    struct thing *thing = thing_add(name);
    thing->endpoint = endpoint;
    return thing;
}

/* The latest of the name; that of none if there is none. */
struct thing *thing_of(const struct line *line, const char *key)
{
    const char *name = line_text(line, key, "");
    for (uint32_t i = things_count; i > 0; i--) {
        if (strcmp(things[i].name, name) == 0) {
            return &things[i];
        }
    }
    unknown = "UNKNOWN_NAME";
    return &things[0];
}

crpc_endpoint_options options_of(const struct line *line, const struct thing *endpoint)
{
    const char *token = line_text(line, "token", "");
    crpc_endpoint_options options = {
        .struct_size = sizeof(options),
        .user_data = (uint64_t)(endpoint - things),
        .flags = (line_number(line, "call_only", 0) ? CRPC_ENDPOINT_CALL_ONLY : 0) |
                 (line_number(line, "serve_only", 0) ? CRPC_ENDPOINT_SERVE_ONLY : 0),
        .ring_bytes = number(line, "ring_bytes"),
        .request_bytes = number(line, "request_bytes"),
        .calls_max = number(line, "calls_max"),
        .batch_window = number(line, "batch_window"),
        .connect_timeout_ns = line_number(line, "connect_timeout_ms", 0) * 1000000u,
        .keepalive_ns = line_number(line, "keepalive_ms", 0) * 1000000u,
        .token_bytes = (uint32_t)strlen(token)};
    memcpy(options.token, token, strnlen(token, sizeof(options.token)));
    return options;
}

/* ---- Calls ---- */

/* Submits what there is room for. A call behind one of the same endpoint that must wait, waits too. */
void submit_calls(void)
{
    uint64_t full =
        0; /* the one endpoint known to have no room: enough to keep its calls in order */
    struct call **link = &calls, *call;
    while ((call = *link) != NULL) {
        uint64_t now = call->due ? now_ns() : 0;
        int32_t reason = CRPC_OK;
        call->op.timeout_ns = call->due - now;
        if (call->canceled || (call->due && call->due <= now)) {
            reason = call->canceled ? CRPC_E_CANCELED : CRPC_E_TIMEOUT;
        } else if (call->op.endpoint.bits == full) {
            reason = CRPC_E_AGAIN;
        } else {
            crpc_submit(context, &call->op, 1, call->payload, call->op.payload_bytes, &reason);
        }
        if (reason == CRPC_E_AGAIN) {
            full = call->op.endpoint.bits;
            link = &call->next;
            continue;
        }
        if (reason != CRPC_OK) {
            tell_response(call->op.user_data, reason, NULL, 0);
        }
        *link = call->next;
        free(call->payload);
        free(call);
    }
}

int32_t do_call(crpc_endpoint endpoint, const struct line *line)
{
    uint64_t timeout_ns = line_number(line, "timeout_ms", 0) * 1000000u;
    uint64_t count = line_number(line, "count", 1);
    struct call **link = &calls;
    for (uint32_t i = 0; i < count; i++) {
        struct call *call = calloc(1, sizeof(*call));
        call->due = timeout_ns ? now_ns() + timeout_ns : 0;
        call->op = (crpc_op){.opcode = CRPC_OP_CALL,
                             .method = (uint16_t)line_number(line, "method", 0),
                             .endpoint = endpoint,
                             .user_data = line_number(line, "id", 0) + i,
                             .payload_bytes = number(line, "length"),
                             .reply_bytes_max = number(line, "reply_max")};
        call->payload = payload_new(call->op.payload_bytes, line_number(line, "seed", 0) + i);
        while (*link) {
            link = &(*link)->next;
        }
        *link = call; /* the turn's end submits it */
    }
    return CRPC_OK;
}

int32_t do_cancel(crpc_endpoint endpoint, uint64_t id)
{
    crpc_op op = {.opcode = CRPC_OP_CANCEL, .endpoint = endpoint, .token = id};
    int32_t reason = CRPC_OK;
    for (struct call *call = calls; call; call = call->next) {
        call->canceled |= call->op.user_data == id;
    }
    crpc_submit(context, &op, 1, NULL, 0, &reason);
    return reason;
}

/* ---- Requests ---- */

int32_t answer(const struct thing *request, uint8_t opcode, int32_t status, const void *payload,
               uint32_t bytes)
{
    crpc_op op = {.opcode = opcode,
                  .flags = CRPC_OP_QUIET,
                  .status = status,
                  .endpoint = request->endpoint,
                  .token = request->token,
                  .payload_bytes = bytes};
    int32_t reason = CRPC_OK;
    crpc_submit(context, &op, 1, payload, bytes, &reason);
    return reason;
}

int32_t do_reply(const struct thing *request, const struct line *line)
{
    uint32_t length = number(line, "length");
    if (line_number(line, "echo", 0)) {
        return answer(request, CRPC_OP_REPLY, 0, request->payload, request->bytes);
    }
    uint8_t *payload = payload_new(length, line_number(line, "seed", 0));
    int32_t status = (int32_t)line_number(line, "status", 0);
    int32_t result = answer(request, CRPC_OP_REPLY, status, payload, length);
    free(payload);
    return result;
}

void take_request(const crpc_completion *done)
{
    const char *mode = things[done->user_data].mode;
    struct thing once = {.endpoint = done->endpoint, .token = done->token};
    const void *view = (const void *)(uintptr_t)done->payload;
    if (strcmp(mode, "echo") == 0) {
        answer(&once, CRPC_OP_REPLY, 0, view, done->payload_bytes);
    } else if (strcmp(mode, "fail") ==
               0) { /* the status that bindings send for a handler that failed */
        answer(&once, CRPC_OP_REPLY, 1, NULL, 0);
    } else if (strcmp(mode, "drop") == 0) {
        answer(&once, CRPC_OP_DROP, 0, NULL, 0);
    } else {
        struct thing *request = thing_add_numbered(done->endpoint);
        request->token = done->token;
        request->bytes = done->payload_bytes;
        request->payload = malloc(done->payload_bytes + 1);
        int32_t kept = crpc_retain(context, done, request->payload, done->payload_bytes);
        printf("event kind=request endpoint=%s request=%s method=%u length=%d checksum=%u "
               "reply_max=%u\n",
               things[done->user_data].name, request->name, done->method, kept,
               payload_checksum(request->payload, request->bytes), done->reply_bytes_max);
    }
}

void forget_all(void)
{
    for (; things_count > 0; things_count--) {
        free(things[things_count].payload);
    }
    for (struct call *call; (call = calls) != NULL; free(call)) {
        calls = call->next;
        free(call->payload);
    }
}

int calls_wait(void)
{
    return calls != NULL;
}
