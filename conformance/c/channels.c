/* channels.c: the verbs of channels, and what comes of them. */
#include "runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    printf("event kind=%s id=%" PRIu64 " status=%s", received ? "received" : "sent", message->id,
           status_text(message->status));
    for (uint32_t i = 0; (whole || message->status == CRPC_E_TRUNCATED) && i < message->count;
         i++) {
        printf("%s%u", i ? "," : " length=", message->lengths[i]);
    }
    for (uint32_t i = 0; received && whole && i < message->count; i++) {
        printf("%s%u", i ? "," : " checksum=",
               checksum((const void *)(uintptr_t)message->ops[i].address, message->lengths[i]));
    }
    printf("\n");
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
        printf("event kind=rail endpoint=%s rail=%" PRIu64 " status=%s\n", channel->name,
               done->token, status_text(done->status));
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
    for (uint32_t i = 0; i < (*text("count") ? number("count") : 1); i++) {
        struct message *message = add_message(number("id") + i);
        uint8_t *memory = add_op(message, channel, CRPC_CHANNEL_SEND, number("tag"), length);
        memcpy(memory, payload_of(length, number("seed") + i), length);
        message->due = limit ? now_ns() + limit : 0;
    }
    return CRPC_OK;
}

/* rooms=100,200 tags=1,2: a group. */
static int32_t do_receive(crpc_channel channel)
{
    for (uint32_t i = 0; i < (*text("count") ? number("count") : 1); i++) {
        struct message *message = add_message(number("id") + i);
        const char *rooms = text("rooms"), *tags = text("tags");
        char *end;
        while (*rooms && message->count < OPS_MAX) {
            uint32_t bytes = (uint32_t)strtoul(rooms, &end, 10);
            rooms = *end ? end + 1 : end;
            uint32_t tag = (uint32_t)strtoul(tags, &end, 10);
            tags = *end ? end + 1 : end;
            add_op(message, channel, CRPC_CHANNEL_RECEIVE, tag, bytes);
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
    if (*text("share")) {
        options.split = CRPC_SPLIT_FIXED;
        options.rail0_share = number("share");
    }
    memcpy(options.token, token, strnlen(token, sizeof(options.token)));
    memcpy(options.key, key, strnlen(key, sizeof(options.key)));
    crpc_channel handle = {made->bits};
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes = sizeof(blob);
    int32_t status;
    if (strcmp(verb, "channel_blob") == 0) {
        status = crpc_channel_blob(context, &options, &handle, blob, &blob_bytes, NULL);
        tell_blob(blob, status == CRPC_OK ? blob_bytes : 0);
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
    uint32_t bytes = blob_of(blob);
    return tell_failure(it, crpc_channel_join(context, channel_of(it), blob, bytes, NULL));
}

/* ---- Looking ---- */

static int32_t tell_rails(void)
{
    crpc_rail_info info = {.struct_size = sizeof(info)};
    uint32_t count = 0;
    while (crpc_rail_get_info(context, count, &info) == CRPC_OK) {
        tell("device%u=%s", count++, info.device);
        info.struct_size = sizeof(info);
    }
    tell("count=%u", count);
    return CRPC_OK;
}

static int32_t tell_channel(crpc_channel channel)
{
    static const char *const rails[] = {"none", "lacked", "down", "up"};
    static const char *const splits[] = {"measured", "fixed", "hint"};
    crpc_channel_info info = {.struct_size = sizeof(info)};
    int32_t status = crpc_channel_get_info(context, channel, &info);
    tell("slots=%u queue_pairs=%u rail0=%s rail1=%s split=%s share=%u receives_open=%u "
         "sends_open=%u",
         info.slots, info.queue_pairs, rails[info.rail_state[0] & 3], rails[info.rail_state[1] & 3],
         splits[info.split % 3], info.rail0_share, info.receives_open, info.sends_open);
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
        tell("%s=%" PRIu64, names[i], (&s.messages_sent)[i]);
    }
    tell("rail1_failures=%" PRIu64 " rail1_recoveries=%" PRIu64 " protocol_errors=%" PRIu64,
         s.rail_failures[1], s.rail_recoveries[1], s.protocol_errors);
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
