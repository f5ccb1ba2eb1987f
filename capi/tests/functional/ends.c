/* ends.c: see ends.h. */
#include "ends.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "place.h"

#define HANG_NS                                                                                    \
    UINT64_C(60000000000) /* a sleep that lasts so long was not ended by what should have */
#define PATTERN_BYTES (1u << 17)

crpc_context *contexts[2];
struct end ends[ENDS];
struct call calls[CALLS_MAX];
uint32_t call_count, ended_count, canceled;

/* The payload of a call is this from its own offset on. */
static uint8_t pattern[PATTERN_BYTES];
static crpc_region regions[2];

/* Replies that were refused: behind a call from a region that is not sent yet nothing may be written. */
static struct late {
    int side;
    crpc_op op;
    uint8_t *payload;
    struct late *next;
} * late_first, **late_last = &late_first;

crpc_context *ends_context(uint32_t initiators)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_context_options options = {
        .struct_size = sizeof(options), .initiators = initiators, .log_level = CRPC_LOG_INFO};
    crpc_context *context;
    if (crpc_context_open(&options, &context, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    return context;
}

void ends_open(uint32_t initiators, bool there)
{
    memset(ends, 0, sizeof(ends));
    memset(calls, 0, sizeof(calls));
    call_count = ended_count = canceled = 0;
    late_first = NULL;
    late_last = &late_first;
    for (uint32_t i = 0; i < PATTERN_BYTES; i++) {
        pattern[i] = (uint8_t)(i * 131 + (i >> 8) * 7 + (i >> 16) * 3);
    }
    for (int side = HERE; side <= (there ? THERE : HERE); side++) {
        contexts[side] = ends_context(initiators);
        assert_int_equal(
            crpc_region_register(contexts[side], pattern, PATTERN_BYTES, 0, &regions[side], NULL),
            CRPC_OK);
    }
}

void ends_close(void)
{
    for (int side = HERE; side <= THERE; side++) {
        assert_true(!contexts[side] || crpc_context_close(contexts[side]) == CRPC_OK);
        contexts[side] = NULL;
    }
}

static uint32_t offset_of(uint32_t index)
{
    return index * 24 % (PATTERN_BYTES / 8);
}

static bool reply(int side, const crpc_op *op, const void *payload)
{
    int32_t reason = CRPC_OK;
    crpc_submit(contexts[side], op, 1, payload, op->payload_bytes, &reason);
    assert_true(reason == CRPC_OK || reason == CRPC_E_AGAIN);
    return reason == CRPC_OK;
}

static void echo(int side, const crpc_completion *request)
{
    const void *payload = (const void *)(uintptr_t)request->payload;
    const crpc_op op = {.opcode = CRPC_OP_REPLY,
                        .flags = CRPC_OP_QUIET,
                        .endpoint = request->endpoint,
                        .token = request->token,
                        .payload_bytes = request->payload_bytes};
    if (reply(side, &op, payload)) {
        return;
    }
    struct late *late = calloc(1, sizeof(*late));
    uint8_t *copy = malloc(op.payload_bytes + 1);
    assert_true(late && copy);
    *late = (struct late){.side = side, .op = op, .payload = copy};
    if (op.payload_bytes > 0) {
        memcpy(copy, payload, op.payload_bytes);
    }
    *late_last = late;
    late_last = &late->next;
}

static void reply_late(void)
{
    struct late **at = &late_first;
    while (*at) {
        struct late *late = *at;
        if (reply(late->side, &late->op, late->payload)) {
            *at = late->next;
            free(late->payload);
            free(late);
        } else {
            at = &late->next;
        }
    }
    late_last = at;
}

static void take_response(const crpc_completion *one)
{
    assert_in_range(one->user_data, 0, call_count - 1);
    struct call *call = &calls[one->user_data];
    assert_int_equal(call->ended, 0);
    call->ended++;
    call->status = one->status;
    ended_count++;
    if (one->status == CRPC_OK) {
        assert_int_equal(one->payload_bytes, call->bytes);
        assert_memory_equal((const void *)(uintptr_t)one->payload,
                            pattern + offset_of((uint32_t)one->user_data), call->bytes);
    }
}

static void take(int side, const crpc_completion *one)
{
    struct end *end = &ends[one->endpoint_user_data % ENDS];
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        end->connected[side]++;
        end->connected_status[side] = one->status;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        end->disconnected[side]++;
        end->disconnected_status[side] = one->status;
        break;
    case CRPC_COMPLETION_REQUEST:
        echo(side, one);
        break;
    case CRPC_COMPLETION_RESPONSE:
        take_response(one);
        break;
    case CRPC_COMPLETION_CANCEL:
        canceled += (uint32_t)one->token;
        break;
    default:
        assert_int_equal(one->kind, CRPC_COMPLETION_ROOM);
    }
}

void ends_pump(void)
{
    crpc_completion completions[64];
    int32_t sum = 0;
    reply_late();
    for (int side = HERE; side <= THERE && contexts[side]; side++) {
        int32_t count = crpc_poll(contexts[side], completions, 64);
        assert_in_range(count, 0, 64);
        for (int32_t i = 0; i < count; i++) {
            take(side, &completions[i]);
        }
        sum += count;
    }
    if (sum == 0 && contexts[THERE]) {
        sched_yield();
    } else if (sum == 0) {
        assert_int_equal(crpc_wait(contexts[HERE], HANG_NS), CRPC_OK);
    }
}

crpc_endpoint_options ends_options(uint32_t end)
{
    return (crpc_endpoint_options){.struct_size = sizeof(crpc_endpoint_options),
                                   .user_data = end,
                                   .ring_bytes = 1u << 18,
                                   .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
}

int32_t ends_call(int side, uint32_t end, uint32_t bytes, bool from_region, uint64_t timeout_ns)
{
    assert_true(call_count < CALLS_MAX);
    const uint32_t offset = offset_of(call_count);
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .flags = from_region ? CRPC_OP_REGION : 0,
                        .endpoint = ends[end].handle[side],
                        .user_data = call_count,
                        .payload_offset = from_region ? offset : 0,
                        .payload_bytes = bytes,
                        .reply_bytes_max = bytes,
                        .timeout_ns = timeout_ns,
                        .region = from_region ? regions[side] : (crpc_region){0}};
    int32_t reason = CRPC_OK;
    calls[call_count] = (struct call){.end = end, .bytes = bytes};
    const int32_t count =
        crpc_submit(contexts[side], &op, 1, from_region || bytes == 0 ? NULL : pattern + offset,
                    from_region ? 0 : bytes, &reason);
    assert_int_equal(count, reason == CRPC_OK);
    call_count += (uint32_t)count;
    return reason;
}

uint64_t ends_sends(int side, uint32_t end)
{
    crpc_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(crpc_endpoint_get_stats(contexts[side], ends[end].handle[side], &stats),
                     CRPC_OK);
    return stats.send_wqes;
}

void ends_expect(uint32_t end, int32_t status)
{
    for (uint32_t i = 0; i < call_count; i++) {
        if (calls[i].end == end) {
            assert_int_equal(calls[i].ended, 1);
            assert_int_equal(calls[i].status, status);
        }
    }
}

crpc_listener ends_listen_there(char address[64])
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    crpc_listener listener;
    if (crpc_listener_open(contexts[THERE], place_at(0, "0"), NULL, &listener, &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(crpc_listener_get_info(contexts[THERE], listener, &info), CRPC_OK);
    memcpy(address, info.address, 64);
    return listener;
}

/* The completion is not for take(): its endpoint has no number yet. */
crpc_endpoint ends_await_request(void)
{
    double end = now_seconds() + ENDS_PATIENCE_S;
    crpc_completion one;
    for (;;) {
        assert_true(now_seconds() < end);
        if (crpc_poll(contexts[HERE], &one, 1) == 1) {
            take(HERE, &one);
        }
        if (crpc_poll(contexts[THERE], &one, 1) == 1) {
            if (one.kind == CRPC_COMPLETION_CONNECT_REQUEST) {
                return one.endpoint;
            }
            take(THERE, &one);
        }
    }
}

void ends_connect(uint32_t end, const char *address, const crpc_endpoint_options *options)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options plain = ends_options(end);
    if (crpc_endpoint_connect(contexts[HERE], address, options ? options : &plain,
                              &ends[end].handle[HERE], &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
}

void ends_blob(int side, uint32_t end, uint8_t blob[CRPC_BLOB_BYTES_MAX], uint32_t *bytes)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_endpoint_options options = ends_options(end);
    *bytes = CRPC_BLOB_BYTES_MAX;
    if (crpc_endpoint_blob(contexts[side], &options, &ends[end].handle[side], blob, bytes,
                           &error) != CRPC_OK) {
        fail_msg("%s", error.message);
    }
}

void ends_join(uint32_t end)
{
    uint8_t blobs[2][CRPC_BLOB_BYTES_MAX];
    uint32_t bytes[2];
    for (int side = HERE; side <= THERE; side++) {
        ends_blob(side, end, blobs[side], &bytes[side]);
    }
    for (int side = HERE; side <= THERE; side++) {
        assert_int_equal(crpc_endpoint_join(contexts[side], ends[end].handle[side], blobs[!side],
                                            bytes[!side], NULL),
                         CRPC_OK);
    }
}
