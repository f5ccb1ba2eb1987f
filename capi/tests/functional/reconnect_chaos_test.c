/* reconnect_chaos_test.c: endpoints that connect again, while the processes of their servers are killed, stopped gracefully and started
 * again at random. Each call ends once; none that is not idempotent is done twice; none that is idempotent is lost.
 *
 * SEED in the environment says which run, OPS how long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contexts.h"
#include "copyrpc.h"
#include "place.h"

#define SERVERS 2
#define ENDPOINTS 4
#define COMPLETIONS 64
#define MS UINT64_C(1000000)
#define BYTES_MAX 12000

/* What all processes share. */
struct op {
    _Atomic uint32_t done; /* how often a server has done it */
    uint32_t ended;        /* how often it has completed */
    int32_t status;
    bool idempotent;
    bool timed;
};

static struct op *ops;
static uint32_t op_count;
static int ops_memory; /* a descriptor */
static char addresses[SERVERS][64];
static pid_t servers[SERVERS];
static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % below;
}

static struct op *map_ops(void)
{
    void *memory =
        mmap(NULL, op_count * sizeof(*ops), PROT_READ | PROT_WRITE, MAP_SHARED, ops_memory, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* ---- A server, in a process of its own --------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop;

static void ask_to_stop(int number)
{
    (void)number;
    asked_to_stop = 1;
}

#define HELD_MAX 64

struct server {
    crpc_context *context;
    crpc_listener listener;
    uint32_t connected;
    bool draining;
    uint32_t held_count;
    crpc_op held[HELD_MAX];
    uint32_t held_number[HELD_MAX];
};

static void must(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "server: %s\n", what);
        _exit(3);
    }
}

static void answer(const struct server *server, const crpc_op *op, uint32_t number)
{
    int32_t reason;
    if (crpc_submit(server->context, op, 1, &number, sizeof(number), &reason) != 1) {
        must(reason == CRPC_E_STALE || reason == CRPC_E_DISCONNECTED, "a reply was refused");
    }
}

static void serve(struct server *server, const crpc_completion *done)
{
    const uint32_t *words = (const uint32_t *)(uintptr_t)done->payload;
    crpc_op op = {.opcode = CRPC_OP_REPLY,
                  .flags = CRPC_OP_QUIET,
                  .endpoint = done->endpoint,
                  .token = done->token,
                  .payload_bytes = sizeof(uint32_t)};
    switch (done->kind) {
    case CRPC_COMPLETION_CONNECT_REQUEST:
        (void)crpc_endpoint_accept(server->context, done->endpoint, NULL, NULL);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (done->status != CRPC_OK) {
            crpc_endpoint_close(server->context, done->endpoint);
            break;
        }
        server->connected++;
        if (server->draining) { /* it was being connected when the drain began */
            crpc_endpoint_disconnect(server->context, done->endpoint, 5000 * MS);
        }
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        server->connected--;
        crpc_endpoint_close(server->context, done->endpoint);
        break;
    case CRPC_COMPLETION_REQUEST:
        must(words[0] < op_count, "a request has another payload");
        must(words[done->payload_bytes / 4 - 1] == words[0], "a request is torn");
        if (server->draining) {
            op.opcode = CRPC_OP_DROP;
            op.status = CRPC_E_NOT_STARTED;
            op.payload_bytes = 0;
            answer(server, &op, 0);
        } else {
            atomic_fetch_add(&ops[words[0]].done, 1);
            if (server->held_count < HELD_MAX && words[0] % 5 == 0) {
                server->held_number[server->held_count] = words[0];
                server->held[server->held_count++] = op;
            } else {
                answer(server, &op, words[0]);
            }
        }
        break;
    default:
        break;
    }
}

static void run_server(const char *address)
{
    static struct server server;
    const crpc_listener_options options = {.struct_size = sizeof(options)};
    crpc_error error = {.struct_size = sizeof(error)};
    crpc_completion done[COMPLETIONS];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, ask_to_stop);
    server.context = contexts_open(0);
    while (crpc_listener_open(server.context, address, &options, &server.listener, &error) !=
           CRPC_OK) {
        usleep(1000); /* the port is still that of the one that was killed */
    }
    for (uint32_t polls = 0; !server.draining || server.connected > 0; polls++) {
        const int32_t count = crpc_poll(server.context, done, COMPLETIONS);
        for (int32_t i = 0; i < count; i++) {
            serve(&server, &done[i]);
        }
        if (count == 0) {
            crpc_wait(server.context, 1 * MS);
        }
        if (asked_to_stop && !server.draining) {
            server.draining = true;
            crpc_listener_drain(server.context, server.listener, 5000 * MS);
        }
        if (polls % 8 == 0 && server.held_count > 0) {
            server.held_count--;
            answer(&server, &server.held[server.held_count], server.held_number[server.held_count]);
        }
    }
    _exit(0);
}

/* Not by fork(): the child would be without the memory that the device of the client uses, until it becomes another program. */
static void start_server(uint32_t index)
{
    char memory[16], count[16];
    char *arguments[] = {"server", memory, count, addresses[index], NULL};
    snprintf(memory, sizeof(memory), "%d", ops_memory);
    snprintf(count, sizeof(count), "%u", op_count);
    assert_int_equal(posix_spawn(&servers[index], "/proc/self/exe", NULL, NULL, arguments, environ),
                     0);
}

/* Returns how it has ended. */
static int await_server(uint32_t index)
{
    int status;
    assert_int_equal(waitpid(servers[index], &status, 0), servers[index]);
    servers[index] = 0;
    return status;
}

/* ---- The client -------------------------------------------------------------------------------- */

struct client {
    crpc_context *context;
    crpc_endpoint endpoints[ENDPOINTS];
    uint32_t made, ended, connections, losses;
};

static void call(struct client *client)
{
    static uint32_t payload[BYTES_MAX / 4];
    const uint32_t number = client->made;
    const uint32_t words = 1 + draw(draw(20) ? 30 : BYTES_MAX / 4);
    const bool idempotent = draw(2), timed = draw(4) == 0;
    crpc_op op = {.opcode = CRPC_OP_CALL,
                  .flags = idempotent ? CRPC_OP_IDEMPOTENT : 0,
                  .endpoint = client->endpoints[draw(ENDPOINTS)],
                  .user_data = number,
                  .payload_bytes = words * 4,
                  .reply_bytes_max = 64,
                  .timeout_ns = timed ? (1 + draw(200)) * MS : 0};
    int32_t reason;
    for (uint32_t i = 0; i < words; i++) {
        payload[i] = number;
    }
    if (crpc_submit(client->context, &op, 1, payload, words * 4, &reason) == 1) {
        ops[number].idempotent = idempotent;
        ops[number].timed = timed;
        client->made++;
    } else {
        assert_int_equal(reason, CRPC_E_AGAIN);
    }
}

static void take(struct client *client, const crpc_completion *done)
{
    uint32_t number;
    switch (done->kind) {
    case CRPC_COMPLETION_RESPONSE:
        assert_true(done->user_data < client->made);
        ops[done->user_data].ended++;
        ops[done->user_data].status = done->status;
        client->ended++;
        if (done->status == CRPC_OK) {
            assert_int_equal(done->payload_bytes, sizeof(number));
            memcpy(&number, (const void *)(uintptr_t)done->payload, sizeof(number));
            assert_int_equal(number, done->user_data);
        }
        break;
    case CRPC_COMPLETION_CONNECTED:
        assert_int_equal(done->status, CRPC_OK);
        client->connections++;
        break;
    case CRPC_COMPLETION_RECONNECTING:
        client->losses++;
        break;
    case CRPC_COMPLETION_ROOM:
    case CRPC_COMPLETION_DEVICE:
        break;
    default:
        fail_msg("a completion of kind %u", done->kind);
    }
}

static void turn(struct client *client)
{
    crpc_completion done[COMPLETIONS];
    const int32_t count = crpc_poll(client->context, done, COMPLETIONS);
    for (int32_t i = 0; i < count; i++) {
        take(client, &done[i]);
    }
    if (count == 0) {
        crpc_wait(client->context, 1 * MS);
    }
}

/* Once in a while. */
static void harm(void)
{
    const uint32_t index = draw(SERVERS);
    if (!servers[index]) {
        start_server(index);
    } else if (draw(3)) {
        kill(servers[index], SIGKILL);
        await_server(index);
    } else {
        kill(servers[index], SIGTERM); /* it goes while others come and go */
        if (draw(2)) {
            return; /* and may be killed in the middle of it */
        }
        kill(servers[index], SIGKILL);
        await_server(index);
    }
}

static void check(uint32_t count)
{
    uint32_t of_status[64] = {0};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t done = atomic_load(&ops[i].done);
        const struct op *op = &ops[i];
        const bool good = op->ended == 1 && (op->status != CRPC_OK || done >= 1) &&
                          (op->idempotent || done <= 1) &&
                          (op->status == CRPC_OK || (op->timed && op->status == CRPC_E_TIMEOUT) ||
                           (!op->idempotent && op->status == CRPC_E_DISCONNECTED));
        if (!good) {
            fail_msg("call %u (%s%s) has ended %u times, with status %d, and was done %u times", i,
                     op->idempotent ? "idempotent" : "once", op->timed ? ", timed" : "", op->ended,
                     op->status, done);
        }
        of_status[-op->status]++;
    }
    print_message("# %u calls: %u answered, %u timed out, %u unknown\n", count, of_status[0],
                  of_status[-CRPC_E_TIMEOUT], of_status[-CRPC_E_DISCONNECTED]);
}

static void find_ports(void)
{
    crpc_context *context = contexts_open(0);
    for (uint32_t i = 0; i < SERVERS; i++) {
        contexts_listen(context, 0, addresses[i]);
    }
    assert_int_equal(crpc_context_close(context), CRPC_OK);
}

static void every_call_ends_once_whatever_dies(void **state)
{
    (void)state;
    static struct client client;
    const char *seed = getenv("SEED"), *wanted = getenv("OPS");
    random_state = seed ? strtoull(seed, NULL, 10) : 1;
    random_state = random_state * UINT64_C(0x9e3779b97f4a7c15) | 1;
    print_message("# SEED=%s\n", seed ? seed : "1");
    op_count = wanted ? (uint32_t)strtoul(wanted, NULL, 10) : 20000;
    ops_memory = memfd_create("ops", 0);
    assert_true(ops_memory >= 0);
    assert_int_equal(ftruncate(ops_memory, (off_t)(op_count * sizeof(*ops))), 0);
    ops = map_ops();
    find_ports();
    for (uint32_t i = 0; i < SERVERS; i++) {
        start_server(i);
    }
    client.context = contexts_open(0);
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        const crpc_endpoint_options options = {.struct_size = sizeof(options),
                                               .flags = CRPC_ENDPOINT_RECONNECT,
                                               .calls_max = 256,
                                               .reconnect_pause_ns = 1 * MS,
                                               .reconnect_pause_max_ns = 20 * MS,
                                               .connect_timeout_ns = 1000 * MS,
                                               .keepalive_ns = 50 * MS};
        char both[2 * sizeof(addresses[0])];
        stpcpy(stpcpy(stpcpy(both, addresses[i % SERVERS]), ","), addresses[(i + 1) % SERVERS]);
        assert_int_equal(
            crpc_endpoint_connect(client.context, both, &options, &client.endpoints[i], NULL),
            CRPC_OK);
    }
    const time_t end = time(NULL) + 60 + op_count / 500;
    uint32_t next_harm = 50, turns = 0;
    while (client.made < op_count) {
        assert_true(time(NULL) < end);
        for (uint32_t burst = 1 + draw(20); burst > 0 && client.made < op_count; burst--) {
            call(&client);
        }
        turn(&client);
        /* Where no server is left, no more calls are accepted at some time. */
        if (client.made >= next_harm || ++turns == 100) {
            harm();
            next_harm = client.made + 1 + draw(op_count / 60);
            turns = 0;
        }
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (servers[i]) {
            kill(servers[i], SIGKILL);
            await_server(i);
        }
        start_server(i);
    }
    while (client.ended < client.made) {
        assert_true(time(NULL) < end);
        turn(&client);
    }
    check(client.made);
    print_message("# %u connections, %u lost or not made\n", client.connections, client.losses);
    assert_true(client.connections > ENDPOINTS);
    assert_int_equal(crpc_context_close(client.context), CRPC_OK);
    for (uint32_t i = 0; i < SERVERS; i++) {
        kill(servers[i], SIGTERM);
        assert_int_equal(await_server(i), 0);
    }
}

/* server DESCRIPTOR COUNT ADDRESS: a server */
int main(int count, char **arguments)
{
    if (count == 4) {
        ops_memory = atoi(arguments[1]);
        op_count = (uint32_t)strtoul(arguments[2], NULL, 10);
        ops = map_ops();
        run_server(arguments[3]);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_ends_once_whatever_dies)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
