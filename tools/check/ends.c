/* ends.c: see ends.h. */
#include "ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

#define CALL_BYTES_MAX (END_BYTES_MAX / 4)
#define MEMORY_BYTES ((size_t)2 * END_BUFFERS * END_BYTES_MAX)

/* What the server does to each byte. The same fault on the way there and back does not undo itself. */
static uint8_t changed(uint8_t byte)
{
    return (uint8_t)(byte * 5 + 7);
}

static uint32_t pick(struct end *end, uint32_t below)
{
    end->random = end->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((end->random >> 32) * below >> 32);
}

static uint8_t *send_buffer(const struct end *end, uint32_t place)
{
    return end->memory + (size_t)place * END_BYTES_MAX;
}

static uint8_t *receive_buffer(const struct end *end, uint32_t place)
{
    return end->memory + (size_t)(END_BUFFERS + place) * END_BYTES_MAX;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool open_context(struct end *end, const struct subject *subject, uint32_t device,
                         struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options),
                                    .driver =
                                        subject->direct ? CRPC_DRIVER_MLX5 : CRPC_DRIVER_VERBS};
    const char *name = subject->device[device < subject->devices ? device : 0];
    snprintf(options.device, sizeof(options.device), "%s", name);
    if (end->service != SERVICE_CALLS) {
        options.flags = CRPC_CONTEXT_RAILS;
    }
    if (end->service == SERVICE_RAILS) {
        for (uint32_t rail = 0; rail < 2; rail++) {
            snprintf(options.rails[rail], sizeof(options.rails[rail]), "%s", subject->device[rail]);
        }
    }
    int32_t status = crpc_context_open(&options, &end->context, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

static bool open_channel(struct end *end, struct blob *blob, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    const crpc_channel_options options = {.struct_size = sizeof(options),
                                          .rails = end->service == SERVICE_RAILS ? 3 : 1,
                                          .split = CRPC_SPLIT_FIXED,
                                          .rail0_share =
                                              end->service == SERVICE_RAILS ? 512 : 1024};
    end->memory =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (end->memory == MAP_FAILED) {
        end->memory = NULL;
        return fails(outcome, "no memory");
    }
    int32_t status = crpc_region_register(end->context, end->memory, MEMORY_BYTES,
                                          CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                                          &end->region, &error);
    if (status == CRPC_OK) {
        status = crpc_channel_blob(end->context, &options, &end->channel, blob->data, &blob->bytes,
                                   &error);
    }
    return status == CRPC_OK || refused(outcome, status, error.message);
}

bool end_open(struct end *end, const struct subject *subject, uint32_t device, enum service service,
              bool serves, struct blob *blob, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    *end = (struct end){.service = service, .serves = serves, .random = 12345};
    blob->bytes = sizeof(blob->data);
    if (!open_context(end, subject, device, outcome)) {
        return false;
    }
    if (service != SERVICE_CALLS) {
        return open_channel(end, blob, outcome);
    }
    for (uint32_t place = 0; place < END_BUFFERS; place++) {
        end->sent[place] = malloc(CALL_BYTES_MAX);
        if (!end->sent[place]) {
            return fails(outcome, "no memory");
        }
    }
    const crpc_endpoint_options options = {.struct_size = sizeof(options)};
    int32_t status = crpc_endpoint_blob(end->context, &options, &end->endpoint, blob->data,
                                        &blob->bytes, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

bool end_join(struct end *end, const struct blob *peer, struct outcome *outcome)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status =
        end->service == SERVICE_CALLS
            ? crpc_endpoint_join(end->context, end->endpoint, peer->data, peer->bytes, &error)
            : crpc_channel_join(end->context, end->channel, peer->data, peer->bytes, &error);
    return status == CRPC_OK || refused(outcome, status, error.message);
}

void end_close(struct end *end)
{
    if (end->context) {
        crpc_context_close(end->context);
    }
    for (uint32_t place = 0; place < END_BUFFERS; place++) {
        free(end->sent[place]);
    }
    if (end->memory) {
        munmap(end->memory, MEMORY_BYTES);
    }
    *end = (struct end){0};
}

bool end_idle(const struct end *end)
{
    for (uint32_t place = 0; place < END_BUFFERS; place++) {
        if (end->open[place]) {
            return false;
        }
    }
    return true;
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool submit(struct end *end, const crpc_op *op, const void *payload, struct outcome *outcome)
{
    int32_t reason = CRPC_OK;
    crpc_submit(end->context, op, 1, payload, op->payload_bytes, &reason);
    return reason == CRPC_OK || fails(outcome, "an op was refused: %s", crpc_status_name(reason));
}

static bool call(struct end *end, uint32_t place, struct outcome *outcome)
{
    const uint32_t bytes = pick(end, pick(end, 4) ? 3000 : CALL_BYTES_MAX);
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .endpoint = end->endpoint,
                        .user_data = place,
                        .payload_bytes = bytes,
                        .reply_bytes_max = bytes};
    for (uint32_t i = 0; i < bytes; i++) {
        end->sent[place][i] = (uint8_t)pick(end, 256);
    }
    int32_t reason = CRPC_OK;
    crpc_submit(end->context, &op, 1, end->sent[place], bytes, &reason);
    if (reason == CRPC_E_AGAIN) {
        return true; /* later */
    }
    end->open[place] = reason == CRPC_OK;
    end->bytes[place] = bytes;
    return reason == CRPC_OK || fails(outcome, "a call was refused: %s", crpc_status_name(reason));
}

static bool submit_channel(struct end *end, uint8_t opcode, uint32_t place, uint8_t *buffer,
                           uint32_t bytes, struct outcome *outcome)
{
    const crpc_channel_op op = {.opcode = opcode,
                                .tag = place,
                                .channel = end->channel,
                                .user_data = place,
                                .region = end->region,
                                .address = (uint64_t)(uintptr_t)buffer,
                                .bytes = bytes};
    int32_t reason = CRPC_OK;
    crpc_channel_submit(end->context, &op, 1, &reason);
    return reason == CRPC_OK ||
           fails(outcome, "an op of a channel was refused: %s", crpc_status_name(reason));
}

static bool send_message(struct end *end, uint32_t place, struct outcome *outcome)
{
    const uint32_t bytes = 1 + pick(end, pick(end, 2) ? 5000 : END_BYTES_MAX - 1);
    uint8_t *buffer = send_buffer(end, place);
    for (uint32_t i = 0; i < bytes; i++) {
        buffer[i] = (uint8_t)pick(end, 256);
    }
    end->open[place] = true;
    end->bytes[place] = bytes;
    return submit_channel(end, CRPC_CHANNEL_RECEIVE, place, receive_buffer(end, place),
                          END_BYTES_MAX, outcome) &&
           submit_channel(end, CRPC_CHANNEL_SEND, place, buffer, bytes, outcome);
}

/* A channel gives buffers to its receives in their order, and here each place has its tag: so places go round. */
bool end_send(struct end *end, struct outcome *outcome)
{
    if (end->service != SERVICE_CALLS && !end_idle(end)) {
        return true;
    }
    for (uint32_t place = 0; place < END_BUFFERS; place++) {
        if (end->open[place]) {
            continue;
        }
        bool good = end->service == SERVICE_CALLS ? call(end, place, outcome)
                                                  : send_message(end, place, outcome);
        if (!good) {
            return false;
        }
    }
    return true;
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool answer(struct end *end, const crpc_completion *request, struct outcome *outcome)
{
    static uint8_t reply[CALL_BYTES_MAX];
    const uint8_t *payload = (const uint8_t *)(uintptr_t)request->payload;
    const crpc_op op = {.opcode = CRPC_OP_REPLY,
                        .flags = CRPC_OP_QUIET,
                        .endpoint = request->endpoint,
                        .token = request->token,
                        .payload_bytes = request->payload_bytes};
    if (request->payload_bytes > sizeof(reply)) {
        return fails(outcome, "a call of %u bytes came", request->payload_bytes);
    }
    for (uint32_t i = 0; i < request->payload_bytes; i++) {
        reply[i] = changed(payload[i]);
    }
    return submit(end, &op, reply, outcome);
}

static bool compare(struct end *end, uint32_t place, const uint8_t *sent, const uint8_t *came,
                    uint32_t bytes, struct outcome *outcome)
{
    const char *what = end->service == SERVICE_CALLS ? "a call" : "a message";
    if (!end->open[place] || bytes != end->bytes[place]) {
        return fails(outcome, "%s of %u bytes was answered with %u", what, end->bytes[place],
                     bytes);
    }
    for (uint32_t i = 0; i < bytes; i++) {
        if (came[i] != changed(sent[i])) {
            return fails(outcome, "%s of %u bytes: byte %u of the answer is 0x%02x, not 0x%02x",
                         what, bytes, i, came[i], changed(sent[i]));
        }
    }
    end->open[place] = false;
    end->done++;
    end->bytes_done += bytes;
    return true;
}

static bool received(struct end *end, const crpc_completion *done, struct outcome *outcome)
{
    const uint32_t place = (uint32_t)done->user_data;
    uint8_t *came = receive_buffer(end, place), *buffer = send_buffer(end, place);
    if (done->status != CRPC_OK) {
        return fails(outcome, "a receive ended with %s", crpc_status_name(done->status));
    }
    if (!end->serves) {
        return compare(end, place, buffer, came, done->payload_bytes, outcome);
    }
    for (uint32_t i = 0; i < done->payload_bytes; i++) {
        buffer[i] = changed(came[i]);
    }
    return submit_channel(end, CRPC_CHANNEL_RECEIVE, place, came, END_BYTES_MAX, outcome) &&
           submit_channel(end, CRPC_CHANNEL_SEND, place, buffer, done->payload_bytes, outcome);
}

static bool begin(struct end *end, const crpc_completion *connected, struct outcome *outcome)
{
    if (connected->status != CRPC_OK) {
        return fails(outcome, "cannot connect: %s", crpc_status_name(connected->status));
    }
    end->connected = true;
    for (uint32_t place = 0; end->service != SERVICE_CALLS && end->serves && place < END_BUFFERS;
         place++) {
        if (!submit_channel(end, CRPC_CHANNEL_RECEIVE, place, receive_buffer(end, place),
                            END_BYTES_MAX, outcome)) {
            return false;
        }
    }
    return true;
}

static bool take(struct end *end, const crpc_completion *one, struct outcome *outcome)
{
    const uint32_t place = (uint32_t)one->user_data;
    switch (one->kind) {
    case CRPC_COMPLETION_CONNECTED:
        return begin(end, one, outcome);
    case CRPC_COMPLETION_DISCONNECTED:
        end->connected = false;
        end->parted = true;
        return fails(outcome, "the connection has ended: %s", crpc_status_text(one->status));
    case CRPC_COMPLETION_REQUEST:
        return answer(end, one, outcome);
    case CRPC_COMPLETION_RESPONSE:
        return (one->status == CRPC_OK ||
                fails(outcome, "a call ended with %s", crpc_status_name(one->status))) &&
               compare(end, place, end->sent[place], (const uint8_t *)(uintptr_t)one->payload,
                       one->payload_bytes, outcome);
    case CRPC_COMPLETION_RECEIVED:
        return received(end, one, outcome);
    case CRPC_COMPLETION_SENT:
        return one->status == CRPC_OK ||
               fails(outcome, "a send ended with %s", crpc_status_name(one->status));
    default:
        return true;
    }
}

bool end_poll(struct end *end, struct outcome *outcome)
{
    crpc_completion completions[32];
    int32_t count = crpc_poll(end->context, completions, 32);
    for (int32_t i = 0; i < count; i++) {
        if (!take(end, &completions[i], outcome)) {
            return false;
        }
    }
    return count >= 0 || fails(outcome, "poll: %s", crpc_status_name(count));
}
