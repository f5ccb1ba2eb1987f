/* kinds.c: what endpoints, channels and queues have in common, by their own functions (world.h). */
#include <stdio.h>
#include <string.h>

#include "world.h"

/* ---- Options --------------------------------------------------------------------------------- */

static crpc_endpoint_options endpoint_options(uint32_t index, uint32_t side)
{
    crpc_endpoint_options options = {.struct_size = sizeof(options),
                                     .ring_bytes = 65536,
                                     .user_data = 2 * index + side,
                                     .connect_timeout_ns = timeout(),
                                     .key_bytes = links[index].key ? CRPC_KEY_BYTES_MIN : 0};
    memset(options.key, 'k', options.key_bytes);
    return options;
}

static crpc_channel_options channel_options(uint32_t index, uint32_t side)
{
    crpc_channel_options options = {.struct_size = sizeof(options),
                                    .user_data = 2 * index + side,
                                    .slots = 4, /* few windows, each of which can fail */
                                    .connect_timeout_ns = timeout(),
                                    .key_bytes = links[index].key ? CRPC_KEY_BYTES_MIN : 0};
    memset(options.key, 'k', options.key_bytes);
    if (links[index].hint && side == CLIENT) {
        options.split = CRPC_SPLIT_HINT;
        snprintf(options.hint, sizeof(options.hint), "%s", HINT);
    }
    return options;
}

static crpc_queue_options queue_options(uint32_t index, uint32_t side)
{
    crpc_queue_options options = {.struct_size = sizeof(options),
                                  .user_data = 2 * index + side,
                                  .sends = 16,
                                  .receives = 16,
                                  .connect_timeout_ns = timeout()};
    if (side == SERVER && links[index].shared.bits != 0) {
        options.receives = 0;
        options.receive_queue = links[index].shared;
    }
    return options;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

int32_t kind_connect(uint32_t index, const char *address, crpc_error *error)
{
    struct link *link = &links[index];
    const crpc_endpoint_options of_endpoint = endpoint_options(index, CLIENT);
    const crpc_channel_options of_channel = channel_options(index, CLIENT);
    const crpc_queue_options of_queue = queue_options(index, CLIENT);
    crpc_endpoint endpoint = {0};
    crpc_channel channel = {0};
    crpc_queue queue = {0};
    int32_t status =
        link->kind == OF_QUEUES
            ? crpc_queue_connect(contexts[CLIENT], address, &of_queue, &queue, error)
        : link->kind == OF_CHANNELS
            ? crpc_channel_connect(contexts[CLIENT], address, &of_channel, &channel, error)
            : crpc_endpoint_connect(contexts[CLIENT], address, &of_endpoint, &endpoint, error);
    link->bits[CLIENT] = endpoint.bits | channel.bits | queue.bits;
    link->made[CLIENT] = status == CRPC_OK;
    return status;
}

int32_t kind_accept(uint32_t index, crpc_error *error)
{
    crpc_context *context = contexts[SERVER];
    const uint64_t bits = links[index].bits[SERVER];
    const crpc_endpoint_options of_endpoint = endpoint_options(index, SERVER);
    const crpc_channel_options of_channel = channel_options(index, SERVER);
    const crpc_queue_options of_queue = queue_options(index, SERVER);
    switch (links[index].kind) {
    case OF_QUEUES:
        return crpc_queue_accept(context, (crpc_queue){bits}, &of_queue, error);
    case OF_CHANNELS:
        return crpc_channel_accept(context, (crpc_channel){bits}, &of_channel, error);
    default:
        return crpc_endpoint_accept(context, (crpc_endpoint){bits}, &of_endpoint, error);
    }
}

int32_t kind_reject(uint32_t index)
{
    const uint64_t bits = links[index].bits[SERVER];
    switch (links[index].kind) {
    case OF_QUEUES:
        return crpc_queue_reject(contexts[SERVER], (crpc_queue){bits}, "no", 2);
    case OF_CHANNELS:
        return crpc_channel_reject(contexts[SERVER], (crpc_channel){bits}, 7);
    default:
        return crpc_endpoint_reject(contexts[SERVER], (crpc_endpoint){bits}, 7);
    }
}

/* To the other side. */
int32_t kind_hand_over(uint32_t index, uint32_t side, uint64_t bits, uint64_t user_data,
                       crpc_error *error)
{
    crpc_context *from = contexts[side], *to = contexts[1 - side];
    switch (links[index].kind) {
    case OF_QUEUES:
        return crpc_queue_hand_over(from, (crpc_queue){bits}, to, user_data, error);
    case OF_CHANNELS:
        return crpc_channel_hand_over(from, (crpc_channel){bits}, to, user_data, error);
    default:
        return crpc_endpoint_hand_over(from, (crpc_endpoint){bits}, to, user_data, error);
    }
}

int32_t kind_blob(uint32_t index, uint32_t side, uint8_t *blob, uint32_t *bytes, crpc_error *error)
{
    struct link *link = &links[index];
    const crpc_endpoint_options of_endpoint = endpoint_options(index, side);
    const crpc_channel_options of_channel = channel_options(index, side);
    const crpc_queue_options of_queue = queue_options(index, side);
    crpc_endpoint endpoint = {0};
    crpc_channel channel = {0};
    crpc_queue queue = {0};
    *bytes = CRPC_BLOB_BYTES_MAX;
    int32_t status =
        link->kind == OF_QUEUES
            ? crpc_queue_blob(contexts[side], &of_queue, &queue, blob, bytes, error)
        : link->kind == OF_CHANNELS
            ? crpc_channel_blob(contexts[side], &of_channel, &channel, blob, bytes, error)
            : crpc_endpoint_blob(contexts[side], &of_endpoint, &endpoint, blob, bytes, error);
    link->bits[side] = endpoint.bits | channel.bits | queue.bits;
    link->made[side] = status == CRPC_OK;
    return status;
}

int32_t kind_join(uint32_t index, uint32_t side, const uint8_t *blob, uint32_t bytes,
                  crpc_error *error)
{
    const uint64_t bits = links[index].bits[side];
    switch (links[index].kind) {
    case OF_QUEUES:
        return crpc_queue_join(contexts[side], (crpc_queue){bits}, blob, bytes, error);
    case OF_CHANNELS:
        return crpc_channel_join(contexts[side], (crpc_channel){bits}, blob, bytes, error);
    default:
        return crpc_endpoint_join(contexts[side], (crpc_endpoint){bits}, blob, bytes, error);
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

int32_t kind_leave(uint32_t index, uint32_t side)
{
    const uint64_t bits = links[index].bits[side];
    switch (links[index].kind) {
    case OF_QUEUES:
        return crpc_queue_drain(contexts[side], (crpc_queue){bits}, timeout());
    case OF_CHANNELS:
        return crpc_channel_disconnect(contexts[side], (crpc_channel){bits}, timeout());
    default:
        return crpc_endpoint_disconnect(contexts[side], (crpc_endpoint){bits}, timeout());
    }
}

int32_t kind_close(uint32_t index, uint32_t side)
{
    const uint64_t bits = links[index].bits[side];
    switch (links[index].kind) {
    case OF_QUEUES:
        return crpc_queue_close(contexts[side], (crpc_queue){bits});
    case OF_CHANNELS:
        return crpc_channel_close(contexts[side], (crpc_channel){bits});
    default:
        return crpc_endpoint_close(contexts[side], (crpc_endpoint){bits});
    }
}

void kind_get_error(uint32_t index, uint32_t side, crpc_error *error)
{
    const uint64_t bits = links[index].bits[side];
    switch (links[index].kind) {
    case OF_QUEUES:
        crpc_queue_get_error(contexts[side], (crpc_queue){bits}, error);
        break;
    case OF_CHANNELS:
        crpc_channel_get_error(contexts[side], (crpc_channel){bits}, error);
        break;
    default:
        crpc_endpoint_get_error(contexts[side], (crpc_endpoint){bits}, error);
        break;
    }
}
