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

static crpc_queue queue_of(const struct connection *connection)
{
    return (crpc_queue){connection->handle};
}

static int32_t close_handle(struct worker *worker, const struct connection *connection)
{
    switch (connection->service) {
    case CHANNELS:
        return crpc_channel_close(worker->context, channel_of(connection));
    case QUEUES:
        return crpc_queue_close(worker->context, queue_of(connection));
    default:
        return crpc_endpoint_close(worker->context, endpoint_of(connection));
    }
}

static int32_t reject(struct worker *worker, const struct connection *connection)
{
    switch (connection->service) {
    case CHANNELS:
        return crpc_channel_reject(worker->context, channel_of(connection), 1);
    case QUEUES:
        return crpc_queue_reject(worker->context, queue_of(connection), NULL, 0);
    default:
        return crpc_endpoint_reject(worker->context, endpoint_of(connection), 1);
    }
}

/* Returns false if all memory of the service is in use. */
static bool take_room(struct worker *worker, struct connection *connection)
{
    connection->room = connection->service == CHANNELS ? room_take(worker)
                       : connection->service == QUEUES ? queue_room_take(worker)
                                                       : -1;
    return connection->service == CALLS || connection->room >= 0;
}

/* After its handle was closed. */
static void leave_room(struct worker *worker, const struct connection *connection)
{
    if (connection->service == CHANNELS) {
        room_leave(worker, connection->room);
    } else if (connection->service == QUEUES) {
        queue_room_leave(worker, connection->room);
    }
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
    leave_room(worker, connection);
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
    if (connection->service == QUEUES) {
        const crpc_queue_options options = queue_options(worker, connection, index);
        crpc_queue queue;
        status =
            crpc_queue_connect(worker->context, worker->peers[QUEUES], &options, &queue, error);
        connection->handle = queue.bits;
    } else if (connection->service == CHANNELS) {
        crpc_channel_options options = channel_options(worker, index);
        crpc_channel channel;
        options.token_bytes = sizeof(connection->connect_id);
        memcpy(options.token, &connection->connect_id, sizeof(connection->connect_id));
        status = crpc_channel_connect(worker->context, worker->peers[CHANNELS], &options, &channel,
                                      error);
        connection->handle = channel.bits;
    } else {
        crpc_endpoint_options options = endpoint_options(worker, index);
        crpc_endpoint endpoint;
        options.token_bytes = sizeof(connection->connect_id);
        memcpy(options.token, &connection->connect_id, sizeof(connection->connect_id));
        status = crpc_endpoint_connect(worker->context, worker->peers[CALLS], &options, &endpoint,
                                       error);
        connection->handle = endpoint.bits;
    }
    return status;
}

/* Returns false if there is nobody to connect to. */
static bool choose_service(struct worker *worker, enum service *service)
{
    enum service known[SERVICES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < SERVICES; i++) {
        if (worker->peers[i]) {
            known[count++] = (enum service)i;
        }
    }
    *service = count ? known[dice(worker, count)] : CALLS;
    return count > 0;
}

void connect_some(struct worker *worker)
{
    uint32_t used = 0;
    uint64_t index;
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        used += worker->connections[i].life != FREE;
    }
    for (; used < worker->connections_wanted; used++) {
        crpc_error error = {.struct_size = sizeof(error)};
        enum service service;
        struct connection *connection =
            choose_service(worker, &service) ? connection_take(worker, &index) : NULL;
        if (!connection) {
            return;
        }
        connection->service = service;
        if (!take_room(worker, connection)) {
            connection->life = FREE;
            return;
        }
        connection->connect_id = new_id(worker);
        op_begin(worker, OP_CONNECT, connection->connect_id, service, 0);
        int32_t status = connect_to(worker, connection, index, &error);
        if (status != CRPC_OK) {
            op_refused(worker, connection->connect_id, status);
            leave_room(worker, connection);
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
    if (connection->service == QUEUES) {
        id = queue_peer_of(worker, connection);
    } else if (connection->service == CHANNELS) {
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

static int32_t accept_it(struct worker *worker, const struct connection *connection, uint64_t index)
{
    if (connection->service == QUEUES) {
        const crpc_queue_options options = queue_options(worker, connection, index);
        return crpc_queue_accept(worker->context, queue_of(connection), &options, NULL);
    }
    if (connection->service == CHANNELS) {
        crpc_channel_options options = channel_options(worker, index);
        return crpc_channel_accept(worker->context, channel_of(connection), &options, NULL);
    }
    crpc_endpoint_options options = endpoint_options(worker, index);
    return crpc_endpoint_accept(worker->context, endpoint_of(connection), &options, NULL);
}

static void turn_away(struct worker *worker, const struct connection *connection)
{
    int32_t status = reject(worker, connection);
    if (status == CRPC_E_STATE) { /* the peer has given up */
        status = close_handle(worker, connection);
    }
    if (status != CRPC_OK && status != CRPC_E_STALE) {
        trouble(worker, __LINE__, status);
    }
}

static void connect_request(struct worker *worker, const crpc_completion *completion)
{
    uint64_t index;
    struct connection asked = {.handle = completion->endpoint.bits,
                               .service = completion->flags & CRPC_COMPLETION_OF_CHANNEL ? CHANNELS
                                          : completion->flags & CRPC_COMPLETION_OF_QUEUE ? QUEUES
                                                                                         : CALLS};
    struct connection *connection =
        worker->stopping || chance(worker, 50) ? NULL : connection_take(worker, &index);
    leak(worker);
    if (!connection) {
        turn_away(worker, &asked);
        return;
    }
    connection->service = asked.service;
    connection->accepted = true;
    connection->handle = asked.handle;
    if (!take_room(worker, connection)) {
        turn_away(worker, &asked);
        connection->life = FREE;
        return;
    }
    connection->connect_id = new_id(worker);
    connection->peer_connect_id = peer_of(worker, connection);
    op_begin(worker, OP_CONNECT, connection->connect_id, connection->service, 0);
    int32_t status = accept_it(worker, connection, index);
    if (status != CRPC_OK) {
        op_refused(worker, connection->connect_id, status);
        close_handle(worker, connection);
        leave_room(worker, connection);
        connection->life = FREE;
    }
}

static void connected(struct worker *worker, struct connection *connection, int32_t status)
{
    op_ended(worker, connection->connect_id, status, 0, 0);
    if (status != CRPC_OK) {
        worker->failures += !connection->accepted && status != CRPC_E_REFUSED;
        close_handle(worker, connection);
        leave_room(worker, connection);
        connection->life = FREE;
        return;
    }
    worker->failures = 0;
    connection->life = CONNECTED;
    connection->id = new_id(worker);
    op_begin(worker, OP_CONNECTION, connection->id, connection->connect_id,
             connection->peer_connect_id);
    if (connection->service == QUEUES) {
        queue_connected(worker, connection);
    } else if (connection->service == CALLS) {
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
        connection->service == QUEUES
            ? crpc_queue_drain(worker->context, queue_of(connection), timeout_ns)
        : connection->service == CHANNELS
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
    return worker->calls_open == 0 && worker->others_open == 0 && queue_rooms_over(worker);
}
