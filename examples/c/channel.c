/* channel.c: sends messages over a channel, from one process to another, over two NICs if there are.
 *
 *   channel receive ADDRESS            e.g. channel receive 10.99.0.1:7473
 *   channel send ADDRESS [COUNT]
 *
 * The receiver posts buffers in the order in which messages are to come; each message goes straight
 * into one of them. Several are posted at a time, so that the sender need not wait.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <copyrpc.h>

#include "arguments.h"

#define DEPTH 4
#define BYTES (1u << 20)

static uint8_t memory[DEPTH][BYTES];

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "channel: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* Polls until something comes. */
static crpc_completion next(crpc_context *context)
{
    crpc_completion completion;
    while (crpc_poll(context, &completion, 1) == 0) {
        crpc_wait(context, CRPC_FOREVER);
    }
    return completion;
}

/* Of the next that is of this kind; others are of rails that were lost or came back. */
static crpc_completion await(crpc_context *context, uint8_t kind)
{
    crpc_completion completion;
    do {
        completion = next(context);
    } while (completion.kind != kind && completion.kind != CRPC_COMPLETION_DISCONNECTED);
    return completion;
}

static int32_t connect_channel(crpc_context *context, const char *address, int receives,
                               crpc_channel *channel, crpc_error *error)
{
    crpc_listener_options options = {.struct_size = sizeof(options),
                                     .flags = CRPC_LISTENER_CHANNELS};
    crpc_listener listener;
    int32_t status;
    if (!receives) {
        status = crpc_channel_connect(context, address, NULL, channel, error);
    } else {
        status = crpc_listener_open(context, address, &options, &listener, error);
        if (status == CRPC_OK) {
            channel->bits = await(context, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
            status = crpc_channel_accept(context, *channel, NULL, error);
        }
    }
    if (status == CRPC_OK) {
        status = await(context, CRPC_COMPLETION_CONNECTED).status;
        if (status != CRPC_OK) {
            crpc_channel_get_error(context, *channel, error);
        }
    }
    return status;
}

/* Message number n is n bytes shorter than its buffer, and filled with n. Over two rails, messages may complete in another order: so
 * each op says in its user_data which buffer it has. */
static int32_t post(crpc_context *context, crpc_channel channel, crpc_region region, int receives,
                    uint32_t number, uint32_t place)
{
    uint8_t *buffer = memory[place];
    crpc_channel_op op = {.opcode = receives ? CRPC_CHANNEL_RECEIVE : CRPC_CHANNEL_SEND,
                          .channel = channel,
                          .region = region,
                          .user_data = (uint64_t)number << 32 | place,
                          .address = (uint64_t)(uintptr_t)buffer,
                          .bytes = receives ? BYTES : BYTES - number % BYTES};
    int32_t reason;
    if (!receives) {
        memset(buffer, (int)(number & 0xff), BYTES);
    }
    crpc_channel_submit(context, &op, 1, &reason);
    return reason;
}

static int right(const crpc_completion *completion)
{
    uint32_t number = (uint32_t)(completion->user_data >> 32);
    const uint8_t *buffer = memory[(uint32_t)completion->user_data];
    uint8_t value = number & 0xff;
    return completion->payload_bytes == BYTES - number % BYTES && buffer[0] == value &&
           buffer[completion->payload_bytes - 1] == value;
}

int main(int argc, char **argv)
{
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_context_options options = {.struct_size = sizeof(options), .flags = CRPC_CONTEXT_RAILS};
    crpc_channel_info info = {.struct_size = sizeof(info)};
    crpc_context *context;
    crpc_channel channel;
    crpc_region region;
    uint32_t posted = 0, done = 0;
    answer_options(argc, argv, "receive ADDRESS\nsend ADDRESS [COUNT]",
                   "Sends messages over a channel, over two NICs if there are.");
    if (argc < 3 || (strcmp(argv[1], "send") != 0 && strcmp(argv[1], "receive") != 0)) {
        return failed("usage", "channel receive|send ADDRESS [COUNT]");
    }
    int receives = strcmp(argv[1], "receive") == 0;
    uint32_t count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 100;
    if (crpc_context_open(&options, &context, &error) != CRPC_OK ||
        crpc_region_register(context, memory, sizeof(memory),
                             CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, &region,
                             &error) != CRPC_OK ||
        connect_channel(context, argv[2], receives, &channel, &error) != CRPC_OK) {
        return failed(argv[2], error.message);
    }
    crpc_channel_get_info(context, channel, &info);
    for (; posted < DEPTH && (receives || posted < count); posted++) {
        post(context, channel, region, receives, posted, posted);
    }
    crpc_completion completion = {0};
    while (receives || done < count) {
        completion = await(context, receives ? CRPC_COMPLETION_RECEIVED : CRPC_COMPLETION_SENT);
        if (completion.kind == CRPC_COMPLETION_DISCONNECTED || completion.status != CRPC_OK) {
            break; /* the sender has left: receives that are open end with it */
        }
        if (receives && !right(&completion)) {
            return failed(argv[2], "a message is wrong");
        }
        done++;
        if (receives || posted < count) { /* refused if the sender has left: nothing more comes */
            post(context, channel, region, receives, posted++, (uint32_t)completion.user_data);
        }
    }
    if (completion.kind != CRPC_COMPLETION_DISCONNECTED) {
        crpc_channel_disconnect(context, channel, CRPC_FOREVER);
        await(context, CRPC_COMPLETION_DISCONNECTED);
    }
    printf("%s %u messages over %s\n", receives ? "received" : "sent", done,
           info.rail_state[1] == CRPC_RAIL_UP ? "two rails" : "one rail");
    return crpc_context_close(context) == CRPC_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
