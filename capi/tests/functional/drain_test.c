/* drain_test.c: a server in C that ends gracefully while its clients go on to call: crpc_listener_drain. One process, with a context for
 * the server and one for its clients, polled in turn; and the same of channels and queues. DRAINS in the environment says how often.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>
#include <stdbool.h>

#include "contexts.h"
#include "copyrpc.h"
#include "place.h"

#define CLIENTS 3
#define OPEN_CALLS 8
#define HELD_MAX (CLIENTS * OPEN_CALLS)
#define COMPLETIONS 16

/* ---- Calls ------------------------------------------------------------------------------------ */

struct server {
    crpc_context *context;
    bool draining;
    uint32_t connected, ended;
    uint64_t acted;       /* requests that were answered */
    uint64_t not_started; /* and dropped */
    uint32_t held_count;
    crpc_op held[HELD_MAX]; /* answers that are given later */
};

struct clients {
    crpc_context *context;
    crpc_endpoint endpoints[CLIENTS];
    uint32_t connected, ended;
    uint32_t open[CLIENTS];
    bool over[CLIENTS]; /* it refuses calls */
    uint64_t accepted, answered, not_started;
};

static void serve(struct server *server, const crpc_completion *done)
{
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = CRPC_OP_QUIET,
                  .endpoint = done->endpoint,
                  .token = done->token};
    switch (done->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        assert_int_equal(crpc_endpoint_accept(server->context, done->endpoint, NULL, NULL),
                         CRPC_OK);
        break;
    case CRPC_COMPLETION_CONNECTED:
        assert_int_equal(done->status, CRPC_OK);
        server->connected++;
        break;
    case CRPC_COMPLETION_REQUEST:
        if (server->draining) {
            op.opcode = CRPC_OP_DROP;
            op.status = CRPC_E_NOT_STARTED;
            server->not_started++;
            contexts_submit(server->context, &op);
        } else if (done->method % 3 == 0) {
            server->held[server->held_count++] = op;
        } else {
            server->acted++;
            contexts_submit(server->context, &op);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        assert_int_equal(done->status, CRPC_OK);
        assert_int_equal(crpc_endpoint_close(server->context, done->endpoint), CRPC_OK);
        server->ended++;
        break;
    default:
        fail_msg("a server's completion of kind %u", done->kind);
    }
}

static void answer_held(struct server *server)
{
    while (server->held_count > 0) {
        server->acted++;
        contexts_submit(server->context, &server->held[--server->held_count]);
    }
}

static void take(struct clients *clients, const crpc_completion *done)
{
    switch (done->kind) {
    case CRPC_COMPLETION_CONNECTED:
        assert_int_equal(done->status, CRPC_OK);
        clients->connected++;
        break;
    case CRPC_COMPLETION_RESPONSE:
        clients->open[done->user_data]--;
        clients->answered += done->status == CRPC_OK;
        clients->not_started += done->status == CRPC_E_NOT_STARTED;
        break; /* anything else is counted nowhere, so the sum does not come out */
    case CRPC_COMPLETION_DISCONNECTED:
        assert_int_equal(done->status, CRPC_OK);
        clients->ended++;
        break;
    default:
        fail_msg("a client's completion of kind %u", done->kind);
    }
}

/* Each has as many calls open as may be, until it is told that no more are taken. */
static void call(struct clients *clients)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        while (!clients->over[i] && clients->open[i] < OPEN_CALLS) {
            const crpc_op op = {.opcode = CRPC_OP_CALL,
                                .method = (uint16_t)clients->accepted,
                                .endpoint = clients->endpoints[i],
                                .user_data = i};
            int32_t reason;
            if (crpc_submit(clients->context, &op, 1, NULL, 0, &reason) != 1) {
                assert_true(reason == CRPC_E_CLOSING || reason == CRPC_E_DISCONNECTED);
                clients->over[i] = true;
                break;
            }
            clients->accepted++;
            clients->open[i]++;
        }
    }
}

static void turn(struct server *server, struct clients *clients)
{
    crpc_completion done[COMPLETIONS];
    int32_t count = crpc_poll(server->context, done, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        serve(server, &done[i]);
    }
    if (clients->connected == CLIENTS) {
        call(clients);
    }
    count = crpc_poll(clients->context, done, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        take(clients, &done[i]);
    }
}

#define UNTIL(condition) CONTEXTS_UNTIL(condition, turn(&server, &clients))

/* Some requests have begun, some are on their way, and some will still be made. A third are held, of 24 that are open: so 40 and more
 * are answered before all that are open are held. */
static void drain_once(uint32_t number)
{
    static struct server server;
    static struct clients clients;
    char address[64];
    server = (struct server){.context = contexts_open(0)};
    clients = (struct clients){.context = contexts_open(0)};
    const crpc_listener listener = contexts_listen(server.context, 0, address);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                               .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
        assert_int_equal(
            crpc_endpoint_connect(clients.context, address, &options, &clients.endpoints[i], NULL),
            CRPC_OK);
    }
    UNTIL(server.connected == CLIENTS && clients.connected == CLIENTS);
    UNTIL(server.acted >= 20 + number % 20 && server.held_count > 0);
    server.draining = true;
    assert_int_equal(crpc_listener_drain(server.context, listener, CRPC_FOREVER), CLIENTS);
    assert_int_equal(crpc_listener_drain(server.context, listener, CRPC_FOREVER), CRPC_E_STALE);
    for (uint32_t i = 0; i < 20 + number % 7; i++) {
        turn(&server, &clients);
    }
    assert_int_equal(server.ended, 0); /* as some are not answered */
    answer_held(&server);
    UNTIL(server.ended == CLIENTS && clients.ended == CLIENTS);
    assert_int_equal(server.acted, clients.answered);
    assert_int_equal(server.not_started, clients.not_started);
    assert_int_equal(clients.answered + clients.not_started, clients.accepted);
    assert_int_equal(crpc_context_close(clients.context), CRPC_OK);
    assert_int_equal(crpc_context_close(server.context), CRPC_OK);
}

static void a_drain_loses_nothing(void **state)
{
    (void)state;
    const char *drains = getenv("DRAINS");
    const uint32_t count = drains ? (uint32_t)strtoul(drains, NULL, 10) : 20;
    for (uint32_t i = 0; i < count; i++) {
        drain_once(i);
    }
}

/* ---- The rest --------------------------------------------------------------------------------- */

struct heard {
    bool refused, gone;
};

/* What a client hears of a drain: that the connection which waits is refused, and that another one is gone. Which comes first is open. */
static void hear(crpc_context *client, crpc_context *server, crpc_endpoint waiting,
                 struct heard *heard)
{
    crpc_completion done;
    if (crpc_poll(client, &done, 1) == 1) {
        if (done.kind == CRPC_COMPLETION_CONNECTED && done.endpoint.bits == waiting.bits) {
            assert_int_equal(done.status, CRPC_E_REFUSED);
            heard->refused = true;
        }
        heard->gone = heard->gone || done.kind == CRPC_COMPLETION_DISCONNECTED;
    }
    crpc_poll(server, &done, 1);
}

/* What has come by another listener, and what waits to be accepted or is still being connected. */
static void what_a_drain_leaves(void **state)
{
    (void)state;
    crpc_context *server = contexts_open(0), *client = contexts_open(0);
    char address[2][64];
    crpc_listener listeners[2];
    crpc_endpoint endpoints[3];
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    crpc_endpoint_info info = {.struct_size = sizeof(info)};
    struct heard heard = {false, false};
    for (uint32_t i = 0; i < 2; i++) {
        listeners[i] = contexts_listen(server, 0, address[i]);
        assert_int_equal(crpc_endpoint_connect(client, address[i], &options, &endpoints[i], NULL),
                         CRPC_OK);
        const crpc_completion asked =
            contexts_poll_until(server, client, CRPC_COMPLETION_CONNECT_REQUEST);
        assert_int_equal(crpc_endpoint_accept(server, asked.endpoint, NULL, NULL), CRPC_OK);
        contexts_poll_until(server, client, CRPC_COMPLETION_CONNECTED);
    }
    assert_int_equal(crpc_endpoint_connect(client, address[0], &options, &endpoints[2], NULL),
                     CRPC_OK);
    contexts_poll_until(server, client, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(crpc_listener_drain(server, listeners[0], CRPC_FOREVER), 1);
    CONTEXTS_UNTIL(heard.refused && heard.gone, hear(client, server, endpoints[2], &heard));
    assert_int_equal(crpc_endpoint_get_info(client, endpoints[1], &info), CRPC_OK);
    assert_int_equal(info.state, CRPC_STATE_CONNECTED);
    assert_int_equal(crpc_listener_drain(server, listeners[1], CRPC_FOREVER), 1);
    contexts_poll_until(client, server, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(crpc_context_close(client), CRPC_OK);
    assert_int_equal(crpc_context_close(server), CRPC_OK);
}

/* Who does not answer is not waited for longer than the limit. */
static void a_drain_has_a_limit(void **state)
{
    (void)state;
    crpc_context *server = contexts_open(0), *client = contexts_open(0);
    char address[64];
    const crpc_listener listener = contexts_listen(server, 0, address);
    const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                           .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
    crpc_endpoint endpoint;
    assert_int_equal(crpc_endpoint_connect(client, address, &options, &endpoint, NULL), CRPC_OK);
    const crpc_completion asked =
        contexts_poll_until(server, client, CRPC_COMPLETION_CONNECT_REQUEST);
    assert_int_equal(crpc_endpoint_accept(server, asked.endpoint, NULL, NULL), CRPC_OK);
    contexts_poll_until(client, server, CRPC_COMPLETION_CONNECTED);
    const crpc_op op = {.opcode = CRPC_OP_CALL, .endpoint = endpoint};
    contexts_submit(client, &op);
    contexts_poll_until(server, client, CRPC_COMPLETION_REQUEST);
    assert_int_equal(crpc_listener_drain(server, listener, 20000000), 1);
    assert_int_equal(contexts_poll_until(server, client, CRPC_COMPLETION_DISCONNECTED).status,
                     CRPC_E_TIMEOUT);
    assert_int_equal(contexts_poll_until(client, server, CRPC_COMPLETION_RESPONSE).status,
                     CRPC_E_DISCONNECTED);
    assert_int_equal(crpc_context_close(client), CRPC_OK);
    assert_int_equal(crpc_context_close(server), CRPC_OK);
}

static void channels_and_queues(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t flags = i ? CRPC_CONTEXT_QUEUES : CRPC_CONTEXT_RAILS;
        crpc_context *server = contexts_open(flags), *client = contexts_open(flags);
        char address[64];
        const crpc_listener listener =
            contexts_listen(server, i ? CRPC_LISTENER_QUEUES : CRPC_LISTENER_CHANNELS, address);
        const crpc_channel_options channel_options = {
            .struct_size = sizeof(channel_options), .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
        const crpc_queue_options queue_options = {.struct_size = sizeof(queue_options),
                                                  .connect_timeout_ns = PLACE_CONNECT_TIMEOUT_NS};
        crpc_channel channel;
        crpc_queue queue;
        assert_int_equal(
            i ? crpc_queue_connect(client, address, &queue_options, &queue, NULL)
              : crpc_channel_connect(client, address, &channel_options, &channel, NULL),
            CRPC_OK);
        const uint64_t bits =
            contexts_poll_until(server, client, CRPC_COMPLETION_CONNECT_REQUEST).endpoint.bits;
        assert_int_equal(i ? crpc_queue_accept(server, (crpc_queue){bits}, NULL, NULL)
                           : crpc_channel_accept(server, (crpc_channel){bits}, NULL, NULL),
                         CRPC_OK);
        contexts_poll_until(server, client, CRPC_COMPLETION_CONNECTED);
        assert_int_equal(crpc_listener_drain(server, listener, CRPC_FOREVER), 1);
        assert_int_equal(contexts_poll_until(server, client, CRPC_COMPLETION_DISCONNECTED).status,
                         CRPC_OK);
        assert_int_equal(crpc_context_close(client), CRPC_OK);
        assert_int_equal(crpc_context_close(server), CRPC_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drain_loses_nothing),
        cmocka_unit_test(what_a_drain_leaves),
        cmocka_unit_test(a_drain_has_a_limit),
        cmocka_unit_test(channels_and_queues),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
