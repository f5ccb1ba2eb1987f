/* life.c: the worker's connections: how they begin and end. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

#define LEAVE_NS 3000000000u

static struct connection *connection_take(struct worker *worker, uint64_t *index)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (worker->connections[i].life == FREE) {
            *index = i;
            worker->connections[i] = (struct connection){.life = CONNECTING, .room = -1};
            return &worker->connections[i];
        }
    }
    return NULL;
}

static crpc_endpoint endpoint_of(const struct connection *connection)
{
    return (crpc_endpoint){connection->handle};
}

static crpc_channel channel_of(const struct connection *connection)
{
    return (crpc_channel){connection->handle};
}

static int32_t close_handle(struct worker *worker, const struct connection *connection)
{
    return connection->is_channel ? crpc_channel_close(worker->context, channel_of(connection))
                                  : crpc_endpoint_close(worker->context, endpoint_of(connection));
}

/* It is over. Its ops that are open yet complete in the next polls. */
static void connection_close(struct worker *worker, struct connection *connection)
{
    if (connection->life == CONNECTING) {
        op_ended(worker, connection->connect_id, CRPC_E_CLOSED, 0, 0);
    } else if (connection->id) {
        op_ended(worker, connection->id, CRPC_E_CLOSED, 0, 0);
    }
    if (!mistaken(worker, "slot") && close_handle(worker, connection) != CRPC_OK) {
        trouble(worker, __LINE__, 0);
    }
    room_leave(worker, connection->room);
    connection->life = FREE;
}

static crpc_endpoint_options endpoint_options(struct worker *worker, uint64_t index)
{
    crpc_endpoint_options options = {.struct_size = sizeof(options), .user_data = index};
    options.ring_bytes = 1u << (14 + dice(worker, 6));
    options.calls_max = 1u << dice(worker, 9);
    options.batch_window = 1 + dice(worker, 64);
    options.keepalive_ns = 200000000u << dice(worker, 3);
    return options;
}

static crpc_channel_options channel_options(struct worker *worker, uint64_t index)
{
    crpc_channel_options options = {.struct_size = sizeof(options), .user_data = index};
    options.slots = 4u << dice(worker, 3);
    options.sends_max = CHANNEL_DEPTH;
    options.queue_pairs = 1 + dice(worker, 2);
    options.stripe_bytes_min = 4096;
    options.split = dice(worker, 2);
    options.rail0_share = options.split == CRPC_SPLIT_FIXED ? dice(worker, 1025) : 0;
    options.rails = chance(worker, 4) ? 1 : 3;
    options.keepalive_ns = 200000000u << dice(worker, 3);
    options.rail_retry_ns = 50000000u;
    return options;
}

static int32_t connect_to(struct worker *worker, struct connection *connection, uint64_t index,
                          crpc_error *error)
{
    int32_t status;
    if (connection->is_channel) {
        crpc_channel_options options = channel_options(worker, index);
        crpc_channel channel;
        options.token_bytes = sizeof(connection->connect_id);
        memcpy(options.token, &connection->connect_id, sizeof(connection->connect_id));
        status = crpc_channel_connect(worker->context, worker->channels, &options, &channel, error);
        connection->handle = channel.bits;
    } else {
        crpc_endpoint_options options = endpoint_options(worker, index);
        crpc_endpoint endpoint;
        options.token_bytes = sizeof(connection->connect_id);
        memcpy(options.token, &connection->connect_id, sizeof(connection->connect_id));
        status =
            crpc_endpoint_connect(worker->context, worker->connect, &options, &endpoint, error);
        connection->handle = endpoint.bits;
    }
    return status;
}

void connect_some(struct worker *worker)
{
    uint32_t used = 0;
    uint64_t index;
    if (!worker->connect && !worker->channels) {
        return;
    }
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        used += worker->connections[i].life != FREE;
    }
    for (; used < worker->connections_wanted; used++) {
        crpc_error error = {.struct_size = sizeof(error)};
        struct connection *connection = connection_take(worker, &index);
        if (!connection) {
            return;
        }
        connection->is_channel = worker->channels && (!worker->connect || chance(worker, 2));
        connection->room = connection->is_channel ? room_take(worker) : -1;
        if (connection->is_channel && connection->room < 0) {
            connection->life = FREE;
            return;
        }
        connection->connect_id = new_id(worker);
        op_begin(worker, OP_CONNECT, connection->connect_id, connection->is_channel, 0);
        int32_t status = connect_to(worker, connection, index, &error);
        if (status != CRPC_OK) {
            op_refused(worker, connection->connect_id, status);
            room_leave(worker, connection->room);
            connection->life = FREE;
            worker->failures++;
            return;
        }
    }
}

/* The peer's token is the id of its connect. */
static uint64_t peer_of(struct worker *worker, const struct connection *connection)
{
    uint64_t id = 0;
    if (connection->is_channel) {
        crpc_channel_info info = {.struct_size = sizeof(info)};
        crpc_channel_get_info(worker->context, channel_of(connection), &info);
        memcpy(&id, info.token, info.token_bytes == sizeof(id) ? sizeof(id) : 0);
    } else {
        crpc_endpoint_info info = {.struct_size = sizeof(info)};
        crpc_endpoint_get_info(worker->context, endpoint_of(connection), &info);
        memcpy(&id, info.token, info.token_bytes == sizeof(id) ? sizeof(id) : 0);
    }
    return id;
}

static void leak(struct worker *worker)
{
    static const int flags = O_RDONLY | O_CLOEXEC;
    if (mistaken(worker, "descriptor") && open("/dev/null", flags) < 0) {
        trouble(worker, __LINE__, 0);
    }
    if (mistaken(worker, "memory")) {
        static uint8_t *memory;
        memory = malloc(64u << 20);
        memset(memory, 1, memory ? 64u << 20 : 0);
    }
}

static void connect_request(struct worker *worker, const crpc_completion *completion)
{
    uint64_t index;
    bool is_channel = completion->flags & CRPC_COMPLETION_OF_CHANNEL;
    crpc_channel channel = {completion->endpoint.bits};
    struct connection *connection =
        worker->stopping || chance(worker, 50) ? NULL : connection_take(worker, &index);
    int room = connection && is_channel ? room_take(worker) : -1;
    int32_t status;
    leak(worker);
    if (!connection || (is_channel && room < 0)) {
        status = is_channel ? crpc_channel_reject(worker->context, channel, 1)
                            : crpc_endpoint_reject(worker->context, completion->endpoint, 1);
        if (status == CRPC_E_STATE) { /* the peer has given up */
            status = is_channel ? crpc_channel_close(worker->context, channel)
                                : crpc_endpoint_close(worker->context, completion->endpoint);
        }
        if (status != CRPC_OK && status != CRPC_E_STALE) {
            trouble(worker, __LINE__, status);
        }
        if (connection) {
            connection->life = FREE;
        }
        return;
    }
    connection->is_channel = is_channel;
    connection->accepted = true;
    connection->room = room;
    connection->handle = completion->endpoint.bits;
    connection->connect_id = new_id(worker);
    connection->peer_connect_id = peer_of(worker, connection);
    op_begin(worker, OP_CONNECT, connection->connect_id, is_channel, 0);
    if (is_channel) {
        crpc_channel_options options = channel_options(worker, index);
        status = crpc_channel_accept(worker->context, channel, &options, NULL);
    } else {
        crpc_endpoint_options options = endpoint_options(worker, index);
        status = crpc_endpoint_accept(worker->context, completion->endpoint, &options, NULL);
    }
    if (status != CRPC_OK) {
        op_refused(worker, connection->connect_id, status);
        close_handle(worker, connection);
        room_leave(worker, room);
        connection->life = FREE;
    }
}

static void connected(struct worker *worker, struct connection *connection, int32_t status)
{
    op_ended(worker, connection->connect_id, status, 0, 0);
    if (status != CRPC_OK) {
        worker->failures += !connection->accepted && status != CRPC_E_REFUSED;
        close_handle(worker, connection);
        room_leave(worker, connection->room);
        connection->life = FREE;
        return;
    }
    worker->failures = 0;
    connection->life = CONNECTED;
    connection->id = new_id(worker);
    op_begin(worker, OP_CONNECTION, connection->id, connection->connect_id,
             connection->peer_connect_id);
    if (!connection->is_channel) {
        crpc_endpoint_info info = {.struct_size = sizeof(info)};
        crpc_endpoint_get_info(worker->context, endpoint_of(connection), &info);
        connection->request_bytes_max = info.request_bytes_max;
        connection->reply_bytes_max = info.reply_bytes_max;
    }
}

void life_event(struct worker *worker, const crpc_completion *completion)
{
    struct connection *connection;
    if (completion->kind == CRPC_COMPLETION_CONNECT_REQUEST) {
        connect_request(worker, completion);
        return;
    }
    connection = &worker->connections[completion->endpoint_user_data % CONNECTIONS_MAX];
    if (connection->life == FREE || connection->handle != completion->endpoint.bits) {
        /* It was closed while it waited for this poll: the end has been told. */
        return;
    }
    if (completion->kind == CRPC_COMPLETION_CONNECTED) {
        connected(worker, connection, completion->status);
        return;
    }
    op_ended(worker, connection->id, completion->status, 0, 0);
    connection->id = 0;
    connection_close(worker, connection);
}

static void disconnect(struct worker *worker, struct connection *connection, uint64_t timeout_ns)
{
    int32_t status =
        connection->is_channel
            ? crpc_channel_disconnect(worker->context, channel_of(connection), timeout_ns)
            : crpc_endpoint_disconnect(worker->context, endpoint_of(connection), timeout_ns);
    if (status == CRPC_OK || status == CRPC_E_STATE) { /* STATE: the peer was first */
        connection->life = LEAVING;
    } else {
        trouble(worker, __LINE__, status);
    }
}

void leave_some(struct worker *worker)
{
    struct connection *connection = &worker->connections[dice(worker, CONNECTIONS_MAX)];
    uint32_t rarity = connection->accepted ? 40 : 4;
    if (connection->life == FREE || !chance(worker, rarity)) {
        return;
    }
    if (connection->life == CONNECTED && !chance(worker, 3)) {
        disconnect(worker, connection, chance(worker, 2) ? LEAVE_NS : dice(worker, 2000000));
    } else if (connection->life != LEAVING || chance(worker, 10)) {
        connection_close(worker, connection);
    }
}

void leave_all(struct worker *worker)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &worker->connections[i];
        if (connection->life == CONNECTING) {
            connection_close(worker, connection);
        } else if (connection->life == CONNECTED) {
            disconnect(worker, connection, LEAVE_NS);
        }
    }
}

bool life_over(const struct worker *worker)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (worker->connections[i].life != FREE) {
            return false;
        }
    }
    for (uint32_t i = 0; i < CHANNELS_MAX; i++) {
        if (worker->rooms[i].open) {
            return false;
        }
    }
    return worker->calls_open == 0 && worker->others_open == 0;
}
