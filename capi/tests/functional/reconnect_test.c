/* reconnect_test.c: endpoints that connect again (CRPC_ENDPOINT_RECONNECT), of one process with contexts that are polled in turn: a
 * client's, and those of servers, which are closed and opened again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <stdbool.h>

#include "contexts.h"
#include "copyrpc.h"
#include "place.h"

#define CALLS 64
#define COMPLETIONS 16
#define MS UINT64_C(1000000)

/* What a server does with a request. */
enum policy { ANSWER, HOLD, NOT_START, DROP };

struct server {
    crpc_context *context; /* NULL: it does not run */
    crpc_listener listener;
    char address[64];
    bool paused; /* it is not polled */
    enum policy policy;
    crpc_endpoint_options options; /* it accepts with these */
    uint32_t connected;
    uint32_t requests;
    crpc_op held; /* the answer to the last one */
};

struct world {
    crpc_context *context;
    crpc_endpoint endpoint;
    struct server servers[2];
    uint32_t next;          /* the number of the next call */
    uint32_t served[CALLS]; /* how often a server has got each call */
    uint32_t ended[CALLS];  /* how often it has completed */
    int32_t status[CALLS];  /* and how */
    uint32_t counts[32];    /* completions of each kind */
    int32_t last[32];       /* status of the last one */
    char order[CALLS + 1];  /* the calls that were served, in this order, as letters */
    uint32_t order_count;
    crpc_completion request; /* the last that a server has made to the client */
};

/* ---- Servers ---------------------------------------------------------------------------------- */

static void start(struct server *server)
{
    const crpc_listener_options options = {.struct_size = sizeof(options)};
    crpc_listener_info info = {.struct_size = sizeof(info)};
    server->context = contexts_open(0);
    server->connected = 0;
    server->options.struct_size = sizeof(server->options);
    assert_int_equal(crpc_listener_open(server->context,
                                        server->address[0] ? server->address : place_at(0, "0"),
                                        &options, &server->listener, NULL),
                     CRPC_OK);
    assert_int_equal(crpc_listener_get_info(server->context, server->listener, &info), CRPC_OK);
    memcpy(server->address, info.address, sizeof(info.address));
}

/* At once: what is connected has no answer. */
static void stop(struct server *server)
{
    assert_int_equal(crpc_context_close(server->context), CRPC_OK);
    server->context = NULL;
}

static void serve(struct world *world, struct server *server, const crpc_completion *done)
{
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = CRPC_OP_QUIET,
                  .endpoint = done->endpoint,
                  .token = done->token};
    uint32_t number;
    switch (done->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        assert_int_equal(
            crpc_endpoint_accept(server->context, done->endpoint, &server->options, NULL), CRPC_OK);
        break;
    case CRPC_COMPLETION_CONNECTED:
        server->connected += done->status == CRPC_OK;
        break;
    case CRPC_COMPLETION_REQUEST:
        assert_int_equal(done->payload_bytes % sizeof(number), 0);
        memcpy(&number, (const void *)(uintptr_t)done->payload, sizeof(number));
        assert_true(number < CALLS);
        server->requests++;
        if (server->policy == NOT_START || server->policy == DROP) {
            op.opcode = CRPC_OP_DROP;
            op.status = server->policy == DROP ? 0 : CRPC_E_NOT_STARTED;
        } else {
            world->served[number]++;
            world->order[world->order_count++ % CALLS] = (char)('a' + number % 26);
        }
        if (server->policy == HOLD) {
            server->held = op;
        } else {
            contexts_submit(server->context, &op);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        assert_int_equal(crpc_endpoint_close(server->context, done->endpoint), CRPC_OK);
        break;
    default:
        break;
    }
}

/* ---- The client -------------------------------------------------------------------------------- */

static void take(struct world *world, const crpc_completion *done)
{
    world->counts[done->kind]++;
    world->last[done->kind] = done->status;
    if (done->kind != CRPC_COMPLETION_DEVICE) {
        assert_int_equal(done->endpoint.bits, world->endpoint.bits);
        assert_int_equal(done->endpoint_user_data, 4711);
    }
    if (done->kind == CRPC_COMPLETION_RESPONSE) {
        assert_true(done->user_data < CALLS);
        world->ended[done->user_data]++;
        world->status[done->user_data] = done->status;
    } else if (done->kind == CRPC_COMPLETION_REQUEST) {
        world->request = *done;
    }
}

static void turn(struct world *world)
{
    crpc_completion done[COMPLETIONS];
    for (uint32_t i = 0; i < 2; i++) {
        struct server *server = &world->servers[i];
        const bool runs = server->context && !server->paused;
        const int32_t count = runs ? crpc_poll(server->context, done, COMPLETIONS) : 0;
        for (int32_t k = 0; k < count; k++) {
            serve(world, server, &done[k]);
        }
    }
    const int32_t count = crpc_poll(world->context, done, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        take(world, &done[i]);
    }
}

#define UNTIL(condition) CONTEXTS_UNTIL(condition, turn(world))

/* Longer than the longest pause before an attempt. */
static void pass(struct world *world)
{
    for (uint32_t i = 0; i < 100; i++) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        turn(world);
    }
}

static void open_client(struct world *world, const char *addresses, uint32_t calls_max)
{
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_RECONNECT,
                                           .user_data = 4711,
                                           .calls_max = calls_max,
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .reconnect_pause_ns = 1 * MS,
                                           .reconnect_pause_max_ns = 20 * MS};
    crpc_error error = {.struct_size = sizeof(error)};
    world->context = contexts_open(0);
    if (crpc_endpoint_connect(world->context, addresses, &options, &world->endpoint, &error) !=
        CRPC_OK) {
        fail_msg("%s", error.message);
    }
}

/* A server and a client that is connected to it. */
static struct world *open_world(uint32_t calls_max)
{
    static struct world one;
    struct world *world = &one;
    one = (struct world){0};
    start(&world->servers[0]);
    open_client(world, world->servers[0].address, calls_max);
    UNTIL(world->counts[CRPC_COMPLETION_CONNECTED] == 1 && world->servers[0].connected == 1);
    assert_int_equal(world->last[CRPC_COMPLETION_CONNECTED], CRPC_OK);
    return world;
}

static void close_world(struct world *world)
{
    assert_int_equal(crpc_context_close(world->context), CRPC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        if (world->servers[i].context) {
            stop(&world->servers[i]);
        }
    }
    for (uint32_t i = 0; i < world->next; i++) {
        assert_int_equal(world->ended[i], 1);
    }
}

/* Returns why it was not accepted, or CRPC_OK. The payload is the call's number, as often as it fits. */
static int32_t try_call(struct world *world, uint8_t flags, uint64_t timeout_ns, uint32_t bytes)
{
    static uint32_t payload[4096];
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .flags = flags,
                        .endpoint = world->endpoint,
                        .user_data = world->next,
                        .payload_bytes = bytes,
                        .reply_bytes_max = 16,
                        .timeout_ns = timeout_ns};
    int32_t reason;
    assert_true(world->next < CALLS && bytes <= sizeof(payload));
    for (uint32_t i = 0; i < bytes / sizeof(payload[0]); i++) {
        payload[i] = world->next;
    }
    if (crpc_submit(world->context, &op, 1, payload, bytes, &reason) == 1) {
        world->next++;
    }
    memset(payload, 0xee, bytes); /* it is the caller's again */
    return reason;
}

/* Returns the number of the call. */
static uint32_t call(struct world *world, uint8_t flags, uint64_t timeout_ns)
{
    assert_int_equal(try_call(world, flags, timeout_ns, sizeof(uint32_t)), CRPC_OK);
    return world->next - 1;
}

static crpc_endpoint_info info_of(const struct world *world)
{
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    assert_int_equal(crpc_endpoint_get_info(world->context, world->endpoint, &info), CRPC_OK);
    return info;
}

static void lose(struct world *world)
{
    const uint32_t before = world->counts[CRPC_COMPLETION_RECONNECTING];
    stop(&world->servers[0]);
    UNTIL(world->counts[CRPC_COMPLETION_RECONNECTING] > before);
}

static void come_back(struct world *world)
{
    const uint32_t before = world->counts[CRPC_COMPLETION_CONNECTED];
    world->servers[0].policy = ANSWER;
    start(&world->servers[0]);
    UNTIL(world->counts[CRPC_COMPLETION_CONNECTED] > before);
    assert_int_equal(world->last[CRPC_COMPLETION_CONNECTED], CRPC_OK);
}

/* ---- Connections ------------------------------------------------------------------------------- */

static void it_comes_back(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_stats stats = {.struct_size = sizeof(stats)};
    uint32_t number = call(world, 0, 0);
    UNTIL(world->ended[number]);
    for (uint32_t i = 0; i < 5; i++) {
        lose(world);
        assert_int_equal(world->last[CRPC_COMPLETION_RECONNECTING], CRPC_E_DISCONNECTED);
        assert_int_equal(info_of(world).state, CRPC_STATE_CONNECTING);
        come_back(world);
        number = call(world, 0, 0);
        UNTIL(world->ended[number]);
        assert_int_equal(world->status[number], CRPC_OK);
        assert_int_equal(info_of(world).state, CRPC_STATE_CONNECTED);
        assert_int_equal(info_of(world).connections, i + 2);
    }
    assert_int_equal(crpc_endpoint_get_error(world->context, world->endpoint, &error), CRPC_OK);
    assert_int_not_equal(error.status, CRPC_OK); /* why it reconnected */
    assert_int_equal(crpc_endpoint_get_stats(world->context, world->endpoint, &stats), CRPC_OK);
    assert_int_equal(stats.calls, 6);
    assert_int_equal(stats.responses, 6);
    assert_int_equal(world->counts[CRPC_COMPLETION_DISCONNECTED], 0);
    close_world(world);
}

static void what_waits_is_sent_when_there_is_a_server(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    lose(world);
    for (uint32_t i = 0; i < 26; i++) {
        /* in arrays and alone, long and short */
        assert_int_equal(try_call(world, i % 3 ? 0 : CRPC_OP_IDEMPOTENT, i % 2 ? 600000 * MS : 0,
                                  i % 5 ? 4 : 4000),
                         CRPC_OK);
    }
    assert_int_equal(info_of(world).calls_open, 26);
    assert_int_equal(info_of(world).calls_waiting, 26);
    const uint32_t short_one = call(world, 0, 5 * MS);
    UNTIL(world->ended[short_one]);
    assert_int_equal(world->status[short_one], CRPC_E_TIMEOUT);
    assert_int_equal(world->counts[CRPC_COMPLETION_RESPONSE], 1);
    come_back(world);
    UNTIL(world->counts[CRPC_COMPLETION_RESPONSE] == 27);
    for (uint32_t i = 0; i < 26; i++) {
        assert_int_equal(world->status[i], CRPC_OK);
        assert_int_equal(world->served[i], 1);
    }
    assert_int_equal(world->served[short_one], 0);
    assert_string_equal(world->order, "abcdefghijklmnopqrstuvwxyz");
    assert_int_equal(info_of(world).calls_open, 0);
    close_world(world);
}

static void there_may_be_no_server_at_first(void **state)
{
    (void)state;
    static struct world one;
    struct world *world = &one;
    crpc_error error = {.struct_size = sizeof(error)};
    one = (struct world){0};
    start(&world->servers[0]);
    stop(&world->servers[0]); /* its port is free now */
    open_client(world, world->servers[0].address, 0);
    const uint32_t number = call(world, 0, 0);
    UNTIL(world->counts[CRPC_COMPLETION_RECONNECTING] >= 4);
    assert_int_equal(world->counts[CRPC_COMPLETION_CONNECTED], 0);
    assert_true(info_of(world).attempts_failed >= 4);
    assert_int_equal(world->last[CRPC_COMPLETION_RECONNECTING], CRPC_E_REFUSED);
    assert_int_equal(crpc_endpoint_get_error(world->context, world->endpoint, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_E_REFUSED);
    assert_non_null(strstr(error.message, world->servers[0].address));
    come_back(world);
    UNTIL(world->ended[number]);
    assert_int_equal(world->status[number], CRPC_OK);
    close_world(world);
}

static void each_connection_compares_keys(void **state)
{
    (void)state;
    static struct world one;
    struct world *world = &one;
    one = (struct world){0};
    start(&world->servers[0]);
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .flags = CRPC_ENDPOINT_RECONNECT,
                                           .user_data = 4711,
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS,
                                           .reconnect_pause_ns = 1 * MS,
                                           .reconnect_pause_max_ns = 20 * MS,
                                           .key_bytes = 16,
                                           .key = "sixteen bytes..."};
    world->servers[0].options = options;
    world->servers[0].options.flags = 0;
    world->servers[0].options.reconnect_pause_ns = 0;
    world->servers[0].options.reconnect_pause_max_ns = 0;
    world->context = contexts_open(0);
    assert_int_equal(crpc_endpoint_connect(world->context, world->servers[0].address, &options,
                                           &world->endpoint, NULL),
                     CRPC_OK);
    UNTIL(world->counts[CRPC_COMPLETION_CONNECTED] == 1);
    lose(world);
    come_back(world);
    uint32_t number = call(world, 0, 0);
    UNTIL(world->ended[number]);
    /* A server that has another key is not the one that is meant: what waits goes to none. */
    lose(world);
    world->servers[0].options.key[0] ^= 1;
    number = call(world, 0, 0);
    start(&world->servers[0]);
    UNTIL(world->last[CRPC_COMPLETION_RECONNECTING] == CRPC_E_KEY);
    pass(world);
    assert_int_equal(world->ended[number], 0);
    lose(world);
    world->servers[0].options.key[0] ^= 1;
    come_back(world);
    UNTIL(world->ended[number]);
    assert_int_equal(world->status[number], CRPC_OK);
    assert_int_equal(world->served[number], 1);
    close_world(world);
}

static void another_address_takes_over(void **state)
{
    (void)state;
    static struct world one;
    struct world *world = &one;
    char addresses[2 * sizeof(world->servers[0].address)];
    one = (struct world){0};
    start(&world->servers[0]);
    start(&world->servers[1]);
    stpcpy(stpcpy(stpcpy(addresses, world->servers[0].address), ","), world->servers[1].address);
    open_client(world, addresses, 0);
    UNTIL(world->counts[CRPC_COMPLETION_CONNECTED] == 1);
    assert_int_equal(info_of(world).address_index, 0);
    const uint32_t number = call(world, 0, 0);
    UNTIL(world->ended[number]);
    assert_int_equal(world->servers[0].requests, 1);
    lose(world);
    const uint32_t other = call(world, 0, 0);
    UNTIL(world->ended[other]);
    assert_int_equal(world->status[other], CRPC_OK);
    assert_int_equal(world->servers[1].requests, 1);
    assert_int_equal(info_of(world).address_index, 1);
    close_world(world);
}

/* ---- Calls that were sent ---------------------------------------------------------------------- */

static void what_may_have_been_done_ends_unless_it_is_idempotent(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    world->servers[0].policy = HOLD;
    for (uint32_t i = 0; i < 20; i++) {
        call(world, i % 2 ? CRPC_OP_IDEMPOTENT : 0, i % 4 < 2 ? 0 : 600000 * MS);
    }
    UNTIL(world->servers[0].requests == 20);
    lose(world);
    const uint32_t behind = call(world, 0, 0);
    come_back(world);
    UNTIL(world->counts[CRPC_COMPLETION_RESPONSE] == 21);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(world->status[i], i % 2 ? CRPC_OK : CRPC_E_DISCONNECTED);
        assert_int_equal(world->served[i], i % 2 ? 2 : 1);
    }
    assert_int_equal(world->status[behind], CRPC_OK);
    /* again in their order, and then what came behind */
    assert_string_equal(world->order, "abcdefghijklmnopqrst"
                                      "bdfhjlnprt"
                                      "u");
    close_world(world);
}

static void one_whose_time_has_passed_is_not_sent_again(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    world->servers[0].policy = HOLD;
    const uint32_t number = call(world, CRPC_OP_IDEMPOTENT, 300 * MS);
    UNTIL(world->servers[0].requests == 1);
    lose(world);
    UNTIL(world->ended[number]);
    assert_int_equal(world->status[number], CRPC_E_TIMEOUT);
    come_back(world);
    const uint32_t other = call(world, 0, 0);
    UNTIL(world->ended[other]);
    assert_int_equal(world->served[number], 1);
    close_world(world);
}

/* A server that ends gracefully drops what it has not begun. The next one does it, whether or not it is idempotent. */
static void what_was_not_started_is_sent_again(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    world->servers[0].policy = HOLD;
    const uint32_t begun = call(world, 0, 0);
    UNTIL(world->servers[0].requests == 1);
    const crpc_op answer = world->servers[0].held;
    world->servers[0].policy = NOT_START;
    assert_int_equal(
        crpc_listener_drain(world->servers[0].context, world->servers[0].listener, CRPC_FOREVER),
        1);
    for (uint32_t i = 0; i < 10; i++) {
        call(world, 0, 0);
    }
    UNTIL(info_of(world).calls_waiting == 10);
    assert_int_equal(world->counts[CRPC_COMPLETION_RESPONSE], 0);
    contexts_submit(world->servers[0].context, &answer);
    UNTIL(world->counts[CRPC_COMPLETION_RECONNECTING] >= 1);
    assert_int_equal(world->status[begun], CRPC_OK);
    assert_int_equal(world->ended[begun], 1);
    stop(&world->servers[0]);
    come_back(world);
    UNTIL(world->counts[CRPC_COMPLETION_RESPONSE] == 11);
    for (uint32_t i = 0; i < 11; i++) {
        assert_int_equal(world->status[i], CRPC_OK);
        assert_int_equal(world->served[i], 1);
    }
    close_world(world);
}

/* A server that stays says it of a call, and means that call. */
static void a_drop_by_a_server_that_stays_is_the_answer(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    world->servers[0].policy = NOT_START;
    const uint32_t first = call(world, CRPC_OP_IDEMPOTENT, 0);
    UNTIL(world->ended[first]);
    assert_int_equal(world->status[first], CRPC_E_NOT_STARTED);
    world->servers[0].policy = DROP;
    const uint32_t second = call(world, CRPC_OP_IDEMPOTENT, 0);
    UNTIL(world->ended[second]);
    assert_int_equal(world->status[second], CRPC_E_DROPPED);
    close_world(world);
}

/* ---- Limits ------------------------------------------------------------------------------------ */

static void no_more_wait_than_calls_max(void **state)
{
    (void)state;
    struct world *world = open_world(8);
    lose(world);
    for (uint32_t i = 0; i < 8; i++) {
        call(world, 0, i == 3 ? 30 * MS : 0);
    }
    assert_int_equal(try_call(world, 0, 0, 4), CRPC_E_AGAIN);
    const uint32_t rooms = world->counts[CRPC_COMPLETION_ROOM];
    UNTIL(world->ended[3]); /* which makes room */
    UNTIL(world->counts[CRPC_COMPLETION_ROOM] > rooms);
    call(world, 0, 0);
    assert_int_equal(try_call(world, 0, 0, 4), CRPC_E_AGAIN);
    come_back(world);
    UNTIL(world->counts[CRPC_COMPLETION_RESPONSE] == 9);
    close_world(world);
}

static void a_call_that_is_too_big_for_the_next_server_ends(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    lose(world);
    static uint8_t payload[1 << 21];
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .endpoint = world->endpoint,
                        .user_data = world->next++,
                        .payload_bytes = sizeof(payload)};
    int32_t reason;
    assert_int_equal(crpc_submit(world->context, &op, 1, payload, sizeof(payload), &reason), 1);
    const uint32_t behind = call(world, 0, 0);
    come_back(world);
    UNTIL(world->ended[0] && world->ended[behind]);
    assert_int_equal(world->status[0], CRPC_E_TOO_BIG);
    assert_int_equal(world->status[behind], CRPC_OK);
    close_world(world);
}

/* ---- Ends -------------------------------------------------------------------------------------- */

static void a_wait_can_be_canceled(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    lose(world);
    call(world, 0, 0);
    call(world, CRPC_OP_IDEMPOTENT, 600000 * MS);
    const crpc_op cancel = {
        .opcode = CRPC_OP_CANCEL, .endpoint = world->endpoint, .user_data = 9, .token = 1};
    contexts_submit(world->context, &cancel);
    /* The place of the endpoint may be taken by the next attempt before this poll. */
    UNTIL(world->counts[CRPC_COMPLETION_CANCEL] == 1 && world->ended[1]);
    assert_int_equal(world->last[CRPC_COMPLETION_CANCEL], CRPC_OK);
    assert_int_equal(world->status[1], CRPC_E_CANCELED);
    assert_int_equal(world->ended[0], 0);
    come_back(world);
    UNTIL(world->ended[0]);
    assert_int_equal(world->served[1], 0);
    close_world(world);
}

static void a_disconnect_ends_it(void **state)
{
    (void)state;
    /* connected, while a call waits for its answer; away; and in an attempt */
    for (uint32_t i = 0; i < 3; i++) {
        struct world *world = open_world(0);
        if (i > 0) {
            lose(world);
        }
        if (i == 2) { /* a server that is not polled does not accept */
            start(&world->servers[0]);
            world->servers[0].paused = true;
            pass(world);
        }
        call(world, 0, 0);
        assert_int_equal(crpc_endpoint_disconnect(world->context, world->endpoint, CRPC_FOREVER),
                         CRPC_OK);
        if (i < 2) {
            assert_int_equal(
                crpc_endpoint_disconnect(world->context, world->endpoint, CRPC_FOREVER),
                i == 0 ? CRPC_OK : CRPC_E_STATE);
        }
        UNTIL(world->counts[CRPC_COMPLETION_DISCONNECTED] == 1);
        assert_int_equal(world->last[CRPC_COMPLETION_DISCONNECTED], CRPC_OK);
        assert_int_equal(world->ended[0], 1);
        assert_int_equal(world->status[0], i == 0 ? CRPC_OK : CRPC_E_CLOSING);
        assert_int_equal(info_of(world).state, CRPC_STATE_DISCONNECTED);
        assert_int_equal(try_call(world, 0, 0, 4), CRPC_E_DISCONNECTED);
        close_world(world);
    }
}

static void a_close_ends_what_waits(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    world->servers[0].policy = HOLD;
    call(world, CRPC_OP_IDEMPOTENT, 0);
    UNTIL(world->servers[0].requests == 1);
    lose(world);
    call(world, 0, 600000 * MS);
    assert_int_equal(crpc_endpoint_close(world->context, world->endpoint), CRPC_OK);
    assert_int_equal(crpc_endpoint_close(world->context, world->endpoint), CRPC_E_STALE);
    UNTIL(world->ended[0] && world->ended[1]);
    assert_int_equal(world->status[0], CRPC_E_CLOSED);
    assert_int_equal(world->status[1], CRPC_E_CLOSED);
    close_world(world);
}

/* ---- What belongs to one connection ------------------------------------------------------------- */

static void a_reservation_is_ended_before_it_comes_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = open_world(0);
        const crpc_op op = {.opcode = CRPC_OP_CALL,
                            .endpoint = world->endpoint,
                            .user_data = world->next,
                            .payload_bytes = 4096};
        void *address;
        assert_int_equal(crpc_reserve(world->context, &op, &address), CRPC_OK);
        lose(world);
        world->servers[0].policy = ANSWER;
        start(&world->servers[0]);
        pass(world);
        memset(address, 0xee, 4096); /* it is the program's still */
        assert_int_equal(world->counts[CRPC_COMPLETION_CONNECTED], 1);
        assert_int_equal(i ? crpc_abort(world->context, world->endpoint)
                           : crpc_commit(world->context, world->endpoint, 4096),
                         CRPC_E_DISCONNECTED);
        UNTIL(world->counts[CRPC_COMPLETION_CONNECTED] == 2);
        /* A call in place is kept like others. */
        world->servers[0].policy = HOLD;
        crpc_op again = op;
        again.flags = CRPC_OP_IDEMPOTENT;
        assert_int_equal(crpc_reserve(world->context, &again, &address), CRPC_OK);
        memset(address, 0, 4096);
        world->next++;
        assert_int_equal(crpc_commit(world->context, world->endpoint, 4000), CRPC_OK);
        UNTIL(world->served[0] == 1);
        lose(world);
        assert_int_equal(crpc_reserve(world->context, &again, &address), CRPC_E_AGAIN);
        come_back(world);
        UNTIL(world->ended[0]);
        assert_int_equal(world->status[0], CRPC_OK);
        assert_int_equal(world->served[0], 2);
        close_world(world);
    }
}

static void who_wants_to_reserve_hears_of_the_next_connection(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .endpoint = world->endpoint,
                        .user_data = world->next,
                        .payload_bytes = sizeof(uint32_t)};
    void *address;
    lose(world);
    start(&world->servers[0]);
    world->servers[0].paused = true;
    pass(world); /* the attempt is under way, and none fails any more */
    assert_int_equal(crpc_reserve(world->context, &op, &address), CRPC_E_AGAIN);
    const uint32_t rooms = world->counts[CRPC_COMPLETION_ROOM];
    world->servers[0].paused = false;
    UNTIL(world->counts[CRPC_COMPLETION_ROOM] > rooms);
    assert_int_equal(crpc_reserve(world->context, &op, &address), CRPC_OK);
    memcpy(address, &world->next, sizeof(world->next));
    world->next++;
    assert_int_equal(crpc_commit(world->context, world->endpoint, sizeof(uint32_t)), CRPC_OK);
    UNTIL(world->ended[0]);
    assert_int_equal(world->status[0], CRPC_OK);
    close_world(world);
}

static void requests_of_a_lost_connection_are_stale(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    struct server *server = &world->servers[0];
    /* The server calls its client. The test finds the endpoint by a request of the client. */
    server->policy = HOLD;
    call(world, 0, 0);
    UNTIL(server->requests == 1);
    const crpc_op ask = {.opcode = CRPC_OP_CALL, .endpoint = server->held.endpoint};
    contexts_submit(server->context, &ask);
    UNTIL(world->counts[CRPC_COMPLETION_REQUEST] == 1);
    const crpc_op late = {
        .opcode = CRPC_OP_REPLY, .endpoint = world->endpoint, .token = world->request.token};
    int32_t reason;
    lose(world);
    assert_int_equal(crpc_submit(world->context, &late, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_DISCONNECTED);
    come_back(world);
    server->policy = HOLD;
    call(world, 0, 0);
    UNTIL(server->requests == 2);
    const crpc_op ask_again = {.opcode = CRPC_OP_CALL, .endpoint = server->held.endpoint};
    contexts_submit(server->context, &ask_again);
    UNTIL(world->counts[CRPC_COMPLETION_REQUEST] == 2);
    assert_int_not_equal(world->request.token, late.token);
    assert_int_equal(crpc_submit(world->context, &late, 1, NULL, 0, &reason), 0);
    assert_int_equal(reason, CRPC_E_STALE);
    contexts_submit(server->context, &server->held);
    UNTIL(world->ended[1]);
    close_world(world);
}

static void payloads_of_regions(void **state)
{
    (void)state;
    struct world *world = open_world(0);
    static uint32_t memory[16384];
    crpc_region region;
    assert_int_equal(crpc_region_register(world->context, memory, sizeof(memory), 0, &region, NULL),
                     CRPC_OK);
    world->servers[0].policy = HOLD;
    int32_t reason;
    for (uint32_t i = 0; i < 4; i++) { /* long and short, idempotent and not */
        const crpc_op op = {.opcode = CRPC_OP_CALL,
                            .flags = (uint8_t)(CRPC_OP_REGION | (i % 2 ? CRPC_OP_IDEMPOTENT : 0)),
                            .endpoint = world->endpoint,
                            .region = region,
                            .user_data = world->next,
                            .payload_offset = i * 16384,
                            .payload_bytes = i < 2 ? 16384 : 64};
        memory[i * 4096] = world->next++;
        /* The ring grows, and one in a region ends its batch: meanwhile there is no room. */
        UNTIL(crpc_submit(world->context, &op, 1, NULL, 0, &reason) == 1);
    }
    UNTIL(world->servers[0].requests == 4);
    lose(world);
    /* What waits has been copied: the region may go. */
    const crpc_op op = {.opcode = CRPC_OP_CALL,
                        .flags = CRPC_OP_REGION,
                        .endpoint = world->endpoint,
                        .region = region,
                        .user_data = world->next,
                        .payload_bytes = 16384};
    memory[0] = world->next++;
    assert_int_equal(crpc_submit(world->context, &op, 1, NULL, 0, &reason), 1);
    UNTIL(world->ended[0] && world->ended[2]);
    turn(world);
    assert_int_equal(crpc_region_deregister(world->context, region), CRPC_OK);
    memset(memory, 0xee, sizeof(memory));
    come_back(world);
    UNTIL(world->counts[CRPC_COMPLETION_RESPONSE] == 5);
    for (uint32_t i = 0; i < 5; i++) {
        const bool once = i == 0 || i == 2;
        assert_int_equal(world->status[i], once ? CRPC_E_DISCONNECTED : CRPC_OK);
        assert_int_equal(world->served[i], i == 1 || i == 3 ? 2 : 1);
    }
    close_world(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(what_waits_is_sent_when_there_is_a_server),
        cmocka_unit_test(there_may_be_no_server_at_first),
        cmocka_unit_test(each_connection_compares_keys),
        cmocka_unit_test(another_address_takes_over),
        cmocka_unit_test(what_may_have_been_done_ends_unless_it_is_idempotent),
        cmocka_unit_test(one_whose_time_has_passed_is_not_sent_again),
        cmocka_unit_test(what_was_not_started_is_sent_again),
        cmocka_unit_test(a_drop_by_a_server_that_stays_is_the_answer),
        cmocka_unit_test(no_more_wait_than_calls_max),
        cmocka_unit_test(a_call_that_is_too_big_for_the_next_server_ends),
        cmocka_unit_test(a_wait_can_be_canceled),
        cmocka_unit_test(a_disconnect_ends_it),
        cmocka_unit_test(a_close_ends_what_waits),
        cmocka_unit_test(a_reservation_is_ended_before_it_comes_back),
        cmocka_unit_test(who_wants_to_reserve_hears_of_the_next_connection),
        cmocka_unit_test(requests_of_a_lost_connection_are_stale),
        cmocka_unit_test(payloads_of_regions),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
