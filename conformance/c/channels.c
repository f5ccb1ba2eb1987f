/* channels.c: the verbs of channels, and what comes of them. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "line.h"

#define MESSAGES_MAX 4096
#define OPS_MAX 9 /* one more than the library takes, to see that it does not */

/* A send, or a receive of one buffer or several. The address is the user_data of its ops. */
struct message {
    crpc_channel_op ops[OPS_MAX];
    uint8_t *memory[OPS_MAX];
    uint32_t lengths[OPS_MAX]; /* that came */
    uint32_t count, left;
    int32_t status;
    uint64_t id, due; /* ns, or 0 */
    int waits;        /* for room in the library */
    int canceled;
};

static struct message messages[MESSAGES_MAX];
static uint32_t messages_count;

static crpc_channel channel_of(const struct thing *it)
{
    return (crpc_channel){it->bits};
}

/* ---- What became of them ---- */

static void tell_message(const struct message *message)
{
    int received = message->ops[0].opcode == CRPC_CHANNEL_RECEIVE;
    int whole = message->status == CRPC_OK;
    uint32_t sums[OPS_MAX];
    json_t *event = event_new(received ? "received" : "sent");
    put_number(event, "id", message->id);
    put_status(event, message->status);
    if (received && (whole || message->status == CRPC_E_TRUNCATED)) {
        put_numbers(event, "lengths", message->lengths, message->count);
    } else if (!received && (whole || message->status == CRPC_E_TRUNCATED)) {
        put_number(event, "length", message->lengths[0]);
    }
    for (uint32_t i = 0; received && whole && i < message->count; i++) {
        sums[i] = checksum((const void *)(uintptr_t)message->ops[i].address, message->lengths[i]);
    }
    if (received && whole) {
        put_numbers(event, "checksums", sums, message->count);
    }
    event_tell(event);
}

static void end_unposted(struct message *message, int32_t status)
{
    message->waits = 0;
    message->status = status;
    memset(message->lengths, 0, sizeof(message->lengths));
    tell_message(message);
}

/* Buffers of a message complete one by one; too long is the news, whatever became of the others. */
static void take_part(const crpc_completion *done)
{
    struct message *message = (struct message *)(uintptr_t)done->user_data;
    uint32_t place = 0;
    while (place + 1 < message->count && message->ops[place].address != done->payload) {
        place++;
    }
    message->lengths[place] = done->payload_bytes;
    if (done->status < 0 && message->status != CRPC_E_TRUNCATED) {
        message->status = done->status;
    }
    if (--message->left == 0) {
        tell_message(message);
    }
}

void channels_take(const crpc_completion *done, const struct thing *channel)
{
    if (done->kind == CRPC_COMPLETION_SENT || done->kind == CRPC_COMPLETION_RECEIVED) {
        take_part(done);
    } else if (done->kind == CRPC_COMPLETION_RAIL) {
        json_t *event = event_new("rail");
        put_text(event, "endpoint", channel->name);
        put_number(event, "rail", done->token);
        put_status(event, done->status);
        event_tell(event);
    }
}

/* ---- Into the library ---- */

/* What must wait holds up what comes after it, of its channel and kind. */
static int behind_another(const struct message *message)
{
    for (const struct message *other = messages; other < message; other++) {
        if (other->waits && other->ops[0].opcode == message->ops[0].opcode &&
            other->ops[0].channel.bits == message->ops[0].channel.bits) {
            return 1;
        }
    }
    return 0;
}

void channels_submit(void)
{
    for (struct message *message = messages; message < messages + messages_count; message++) {
        if (!message->waits) {
            continue;
        }
        uint64_t now = now_ns();
        int32_t reason = CRPC_E_AGAIN;
        if (message->canceled || (message->due && message->due <= now)) {
            end_unposted(message, message->canceled ? CRPC_E_CANCELED : CRPC_E_TIMEOUT);
            continue;
        }
        if (!behind_another(message)) {
            message->ops[0].timeout_ns = message->due ? message->due - now : 0;
            crpc_channel_submit(context, message->ops, message->count, &reason);
        }
        if (reason == CRPC_OK) {
            message->waits = 0;
        } else if (reason != CRPC_E_AGAIN) {
            end_unposted(message, reason);
        }
    }
}

int channels_waiting(void)
{
    int waiting = 0;
    for (uint32_t i = 0; i < messages_count; i++) {
        waiting += messages[i].waits;
    }
    return waiting;
}

void channels_reset(void)
{
    for (; messages_count > 0; messages_count--) {
        for (uint32_t i = 0; i < OPS_MAX; i++) {
            free(messages[messages_count - 1].memory[i]);
        }
    }
}

static struct message *add_message(uint64_t id)
{
    if (messages_count == MESSAGES_MAX) {
        abort(); /* run.py tells of a runner that died */
    }
    struct message *message = &messages[messages_count++];
    *message = (struct message){.id = id, .waits = 1};
    return message;
}

/* A buffer of a message: in the region that the line names, or of its own. */
static uint8_t *add_op(struct message *message, crpc_channel channel, uint8_t opcode, uint32_t tag,
                       uint32_t bytes)
{
    const struct thing *region = thing_named(text("region"));
    uint8_t *memory = region ? (uint8_t *)region->memory + number("offset") : malloc(bytes + 1u);
    message->memory[message->count] = region ? NULL : memory;
    message->ops[message->count++] = (crpc_channel_op){.opcode = opcode,
                                                       .tag = tag,
                                                       .channel = channel,
                                                       .user_data = (uintptr_t)message,
                                                       .region = {region ? region->bits : 0},
                                                       .address = (uintptr_t)memory,
                                                       .bytes = bytes};
    message->left = message->count;
    return memory;
}

/* The turn's end submits them. */
static int32_t do_send(crpc_channel channel)
{
    uint32_t length = number("length");
    uint64_t limit = nanoseconds("timeout_ms");
    for (uint32_t i = 0; i < (has("count") ? number("count") : 1); i++) {
        struct message *message = add_message(number("id") + i);
        uint8_t *memory = add_op(message, channel, CRPC_CHANNEL_SEND, number("tag"), length);
        memcpy(memory, payload_of(length, number("seed") + i), length);
        message->due = limit ? now_ns() + limit : 0;
    }
    return CRPC_OK;
}

/* Several rooms are a group. */
static int32_t do_receive(crpc_channel channel)
{
    for (uint32_t i = 0; i < (has("count") ? number("count") : 1); i++) {
        struct message *message = add_message(number("id") + i);
        uint32_t rooms[OPS_MAX], tags[OPS_MAX] = {0};
        uint32_t count = numbers("rooms", rooms, OPS_MAX);
        numbers("tags", tags, OPS_MAX);
        for (uint32_t j = 0; j < count; j++) {
            add_op(message, channel, CRPC_CHANNEL_RECEIVE, tags[j], rooms[j]);
        }
        for (uint32_t j = 0; j + 1 < message->count; j++) {
            message->ops[j].flags = CRPC_CHANNEL_MORE;
        }
    }
    return CRPC_OK;
}

static int32_t do_cancel_send(crpc_channel channel)
{
    crpc_channel_op op = {.opcode = CRPC_CHANNEL_CANCEL, .channel = channel};
    for (struct message *message = messages; message < messages + messages_count; message++) {
        if (message->id == number("id") && message->ops[0].opcode == CRPC_CHANNEL_SEND) {
            message->canceled = 1;
            op.token = (uintptr_t)message;
        }
    }
    crpc_channel_submit(context, &op, 1, NULL);
    return CRPC_OK;
}

/* ---- Hints ------------------------------------------------------------------------------------- */

static crpc_hint *hint;    /* that this runner writes; one is enough */
static char hint_path[64]; /* its name */

/* Of this runner alone, so that scenarios can run side by side. */
static void hint_name(char name[64])
{
    snprintf(name, 64, "/conformance-%d-%s", (int)getpid(), text("hint"));
}

static int32_t do_hint_open(void)
{
    char name[64];
    crpc_hint *opened;
    hint_name(name);
    int32_t status = crpc_hint_open(name, &opened, NULL);
    if (status == CRPC_OK) {
        hint = opened;
        memcpy(hint_path, name, sizeof(hint_path));
    }
    return status;
}

static int32_t do_hint_close(void)
{
    int32_t status = crpc_hint_close(hint);
    shm_unlink(hint_path);
    hint = NULL;
    return status;
}

/* ---- Connecting ---- */

uint32_t channel_token(const struct thing *connection, uint8_t token[16])
{
    crpc_channel_info info = {.struct_size = sizeof(info)};
    crpc_channel_get_info(context, channel_of(connection), &info);
    memcpy(token, info.token, sizeof(info.token));
    return info.token_bytes;
}

/* channel_connect, _accept, _blob. */
static int32_t make_channel(const char *verb, struct thing *made)
{
    const char *token = text("token");
    const char *key = text("key");
    crpc_channel_options options = {.struct_size = sizeof(options),
                                    .user_data = (uintptr_t)made,
                                    .slots = number("slots"),
                                    .sends_max = number("sends_max"),
                                    .queue_pairs = number("queue_pairs"),
                                    .stripe_bytes_min = number("stripe_bytes_min"),
                                    .rails = number("rails"),
                                    .connect_timeout_ns = nanoseconds("connect_timeout_ms"),
                                    .keepalive_ns = nanoseconds("keepalive_ms"),
                                    .rail_retry_ns = nanoseconds("rail_retry_ms"),
                                    .retry_timeout = number("retry_timeout"),
                                    .retry_count = number("retry_count"),
                                    .token_bytes = (uint32_t)strlen(token),
                                    .key_bytes = (uint32_t)strlen(key)};
    if (has("share")) {
        options.split = CRPC_SPLIT_FIXED;
        options.rail0_share = number("share");
    }
    if (has("hint")) {
        options.split = CRPC_SPLIT_HINT;
        hint_name(options.hint);
    }
    memcpy(options.token, token, strnlen(token, sizeof(options.token)));
    memcpy(options.key, key, strnlen(key, sizeof(options.key)));
    crpc_channel handle = {made->bits};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes = sizeof(blob);
    int32_t status;
    if (strcmp(verb, "channel_blob") == 0) {
        status = crpc_channel_blob(context, &options, &handle, blob, &blob_bytes, NULL);
        put_bytes(answer(), "blob", blob, status == CRPC_OK ? blob_bytes : 0);
    } else {
        status = strcmp(verb, "channel_accept") == 0
                     ? crpc_channel_accept(context, handle, &options, NULL)
                     : crpc_channel_connect(context, text("address"), &options, &handle, NULL);
        status = tell_failure(made, status);
    }
    made->bits = handle.bits;
    return status;
}

static int32_t do_join(const struct thing *it)
{
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t bytes = bytes_of("blob", blob, sizeof(blob));
    return tell_failure(it, crpc_channel_join(context, channel_of(it), blob, bytes, NULL));
}

/* ---- Looking ---- */

static int32_t tell_rails(void)
{
    crpc_rail_info info = {.struct_size = sizeof(info)};
    json_t *devices = json_array();
    uint32_t count = 0;
    while (crpc_rail_get_info(context, count++, &info) == CRPC_OK) {
        json_array_append_new(devices, json_string(info.device));
        info.struct_size = sizeof(info);
    }
    put_number(answer(), "count", json_array_size(devices));
    json_object_set_new(answer(), "devices", devices);
    return CRPC_OK;
}

static int32_t tell_channel(crpc_channel channel)
{
    static const char *const rails[] = {"none", "lacked", "down", "up"};
    static const char *const splits[] = {"measured", "fixed", "hint"};
    crpc_channel_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_channel_get_info(context, channel, &info);
    put_number(answer(), "slots", info.slots);
    put_number(answer(), "queue_pairs", info.queue_pairs);
    put_text(answer(), "rail0", rails[info.rail_state[0] & 3]);
    put_text(answer(), "rail1", rails[info.rail_state[1] & 3]);
    put_text(answer(), "split", splits[info.split % 3]);
    put_number(answer(), "share", info.rail0_share);
    put_number(answer(), "receives_open", info.receives_open);
    put_number(answer(), "sends_open", info.sends_open);
    return status;
}

static int32_t tell_stats(crpc_channel channel)
{
    crpc_channel_stats s = {.struct_size = sizeof(s)};
    int32_t status = crpc_channel_get_stats(context, channel, &s);
    const char *const names[] = {
        "messages_sent",   "messages_received", "bytes_sent",  "bytes_received", "sends_failed",
        "receives_failed", "truncated",         "rail0_bytes", "rail1_bytes"}; /* in their order */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        put_number(answer(), names[i], (&s.messages_sent)[i]);
    }
    put_number(answer(), "rail1_failures", s.rail_failures[1]);
    put_number(answer(), "rail1_recoveries", s.rail_recoveries[1]);
    put_number(answer(), "protocol_errors", s.protocol_errors);
    return status;
}

int32_t channels_run(const char *verb, struct thing *it, struct thing *made)
{
#define IS(name) (strcmp(verb, name) == 0)
    crpc_channel channel = {it ? it->bits : 0};
    uint64_t limit = nanoseconds("timeout_ms");
    if (made && (IS("channel_connect") || IS("channel_accept") || IS("channel_blob"))) {
        return make_channel(verb, made);
    } else if (IS("rails")) {
        return tell_rails();
    } else if (IS("hint_open")) {
        return do_hint_open();
    } else if (IS("hint_publish")) {
        return hint ? crpc_hint_publish(hint, number("share"), nanoseconds("lifetime_ms"))
                    : CRPC_E_STALE;
    } else if (IS("hint_close")) {
        return do_hint_close();
    } else if (!it) {
        return VERB_UNKNOWN;
    } else if (IS("channel_join")) {
        return do_join(it);
    } else if (IS("channel_reject")) {
        return crpc_channel_reject(context, channel, number("reason"));
    } else if (IS("channel_disconnect")) {
        return crpc_channel_disconnect(context, channel, limit ? limit : CRPC_FOREVER);
    } else if (IS("channel_close")) {
        return crpc_channel_close(context, channel);
    } else if (IS("channel_info")) {
        return tell_channel(channel);
    } else if (IS("channel_stats")) {
        return tell_stats(channel);
    } else if (IS("set_share")) {
        return crpc_channel_set_share(context, channel, number("share"));
    } else if (IS("send")) {
        return do_send(channel);
    } else if (IS("receive")) {
        return do_receive(channel);
    } else if (IS("cancel_send")) {
        return do_cancel_send(channel);
    }
    return VERB_UNKNOWN;
#undef IS
}
