/* simulate_lasting.c: a simulation of endpoints that connect again, whose connections end in every way and at every moment, on the
 * in-memory NIC. Everything follows from the seed.
 *
 * One engine has the clients, the other the servers' ends. A connection is made at once, by blobs, or refused. Each call has a number,
 * which is its user_data and is in its payload; the servers count how often they have done each. So at the end it is known that each
 * call has completed once, and was done as often as it may be.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/checksum.h"
#include "base/error.h"
#include "blob.h"
#include "link/hello.h"
#include "link/internal.h"
#include "link/tests/simulation.h"
#include "rpc/lasting.h"

#define CLIENTS 3
#define CALLS 2048
#define HELD_MAX 64
#define COMPLETIONS 16
#define PAYLOAD_MAX 1500
#define MS UINT64_C(1000000)
#define DRAIN_ROUNDS 200000

struct call {
    uint32_t bytes;
    bool accepted;
    bool idempotent;
    bool timed;
    bool canceled;
    bool too_big;
    bool traced;
    uint32_t done;      /* by servers */
    uint32_t completed; /* at the client */
    int32_t status;
};

struct held {
    uint64_t handle; /* of the server's end */
    uint64_t token;
    uint32_t number;
};

struct client {
    uint64_t handle;
    bool connected;
    bool over; /* it was disconnected, or closed */
    bool closed;
    bool gone;     /* DISCONNECTED was given */
    bool refused;  /* ROOM has to come */
    bool reserved; /* it has a reservation, or had one when its connection ended: */
    uint8_t *place;
    uint32_t number; /* of that call */
};

enum {
    COUNT_CALLS,
    COUNT_CONNECTIONS,
    COUNT_LOST,
    COUNT_REFUSED,
    COUNT_UNKNOWN,
    COUNT_AGAIN,
    COUNT_NOT_STARTED,
    COUNT_TIMEOUTS,
    COUNT_ROOMS
};

struct sim {
    struct simulation base; /* must come first */
    struct handles handles[2];
    struct nic *nic[2];
    struct rpc_engine *engine[2]; /* of the clients, and of the servers */
    struct client clients[CLIENTS];
    struct call calls[CALLS];
    uint32_t call_count, accepted, completed;
    struct held held[HELD_MAX];
    uint32_t held_count;
    bool refuses;  /* the servers accept nothing */
    bool draining; /* they drop what comes */
    bool calm;     /* nothing more goes wrong */
    uint64_t counts[COUNT_ROOMS + 1];
};

static struct sim *the_sim; /* for the hook of link_group */

static uint32_t draw(struct sim *sim, uint32_t below)
{
    return random_below(&sim->base.random, below);
}

/* ---- Connections ------------------------------------------------------------------------------- */

static crpc_endpoint_options options_of(struct sim *sim, bool lasting)
{
    return (crpc_endpoint_options){.flags = (lasting ? CRPC_ENDPOINT_RECONNECT : 0) |
                                            (draw(sim, 2) ? CRPC_ENDPOINT_FULL_SIZE : 0),
                                   .user_data = 4711,
                                   .ring_bytes = 4096u << draw(sim, 2),
                                   .peer_ring_bytes_max = 1u << 20,
                                   .request_bytes = 2048,
                                   .calls_max = lasting ? 4u << draw(sim, 3) : 16,
                                   .batch_window = 4,
                                   .connect_timeout_ns = CRPC_FOREVER,
                                   .keepalive_ns = lasting ? 5 * MS : CRPC_FOREVER,
                                   .retry_timeout = 14,
                                   .retry_count = 7,
                                   .reconnect_pause_ns = lasting ? 1 * MS : 0,
                                   .reconnect_pause_max_ns = lasting ? 8 * MS : 0};
}

/* For link_group.connect. Both sides join within it; or the peer never does, and goes. */
static int32_t connect_by_blobs(struct link *link, const char *address, crpc_error *error)
{
    struct sim *sim = the_sim;
    struct rpc_endpoint *server;
    struct link_blob ours = {.magic = LINK_BLOB_MAGIC, .bytes = sizeof(ours)};
    uint8_t theirs[CRPC_BLOB_BYTES_MAX];
    (void)address;
    if (sim->refuses) {
        sim->counts[COUNT_REFUSED]++;
        return error_set(error, CRPC_E_REFUSED, 0, "refused");
    }
    const crpc_endpoint_options options = options_of(sim, false);
    int32_t status = endpoint_blob(sim->engine[1], &options, &server, theirs, error);
    if (status != CRPC_OK) {
        return status;
    }
    link_address_fill(&ours.address, link->queue_pair);
    hello_fill(link, &ours.hello);
    ours.checksum = checksum_of(&ours, offsetof(struct link_blob, checksum));
    link->state = CRPC_STATE_NEW;
    status = endpoint_join(server, (const uint8_t *)&ours, error);
    if (status == CRPC_OK) {
        status = link_join(link, theirs, LINK_BLOB_BYTES, error);
    }
    if (status != CRPC_OK) {
        link_close(&server->link);
    } else if (!sim->calm && draw(sim, 8) == 0) {
        link_close(&server->link); /* it dies as soon as it was there */
    }
    return status;
}

/* One of the servers' ends that is alive, or NULL. */
static struct rpc_endpoint *some_server(struct sim *sim)
{
    struct list *all = &sim->engine[1]->links.all;
    uint32_t count = 0;
    for (struct list *at = all->next; at != all; at = at->next) {
        count += !list_entry(at, struct link, all_link)->closed;
    }
    uint32_t chosen = count ? draw(sim, count) : 0;
    for (struct list *at = all->next; at != all; at = at->next) {
        struct link *link = list_entry(at, struct link, all_link);
        if (!link->closed && chosen-- == 0) {
            return endpoint_of_link(link);
        }
    }
    return NULL;
}

static struct rpc_endpoint *find(const struct sim *sim, uint32_t side, uint64_t handle)
{
    struct link *link = handles_get(&sim->handles[side], handle, HANDLE_ENDPOINT);
    return link ? endpoint_of_link(link) : NULL;
}

/* ---- Traces ------------------------------------------------------------------------------------ */

/* Each third call has one. */
static bool traced(uint32_t number)
{
    return number % 3 == 0;
}

static crpc_trace trace_of(uint32_t number)
{
    crpc_trace trace = {.flags = 1};
    memcpy(trace.trace_id, &number, sizeof(number));
    memcpy(trace.span_id, &number, sizeof(number));
    return trace;
}

static void check_trace(struct sim *sim, const crpc_completion *done, uint32_t number)
{
    const crpc_trace expected = trace_of(number);
    crpc_trace trace;
    const int32_t status =
        rpc_request_trace(find(sim, 1, done->endpoint.bits), done->token, &trace);
    const bool own = status == CRPC_OK && memcmp(&trace, &expected, sizeof(trace)) == 0;
    if (sim->calls[number].traced ? !own : status != CRPC_E_NOT_FOUND) {
        simulation_fail(&sim->base, "call %u has not its own trace", number);
    }
}

/* ---- Servers ----------------------------------------------------------------------------------- */

static void answer(struct sim *sim, const struct held *held, uint8_t opcode)
{
    struct rpc_endpoint *endpoint = find(sim, 1, held->handle);
    const crpc_op op = {.opcode = opcode,
                        .flags = CRPC_OP_QUIET,
                        .status = opcode == CRPC_OP_DROP ? CRPC_E_NOT_STARTED : 0,
                        .token = held->token,
                        .payload_bytes = opcode == CRPC_OP_DROP ? 0 : sizeof(held->number)};
    if (endpoint) {
        if (opcode == CRPC_OP_DROP) {
            rpc_drop(endpoint, &op);
        } else {
            rpc_reply(endpoint, &op, &held->number);
        }
        rpc_submit_end(sim->engine[1]);
    }
}

static void take_request(struct sim *sim, const crpc_completion *done)
{
    const uint8_t *payload = (const uint8_t *)(uintptr_t)done->payload;
    struct held held = {.handle = done->endpoint.bits, .token = done->token};
    memcpy(&held.number, payload, sizeof(held.number));
    if (held.number >= sim->call_count || done->payload_bytes != sim->calls[held.number].bytes ||
        !simulation_matches(payload + 4, done->payload_bytes - 4,
                            simulation_key(&sim->base, 0, 0, held.number))) {
        simulation_fail(&sim->base, "a request is not as it was sent: %u", held.number);
        return;
    }
    check_trace(sim, done, held.number);
    if (sim->draining) {
        answer(sim, &held, CRPC_OP_DROP);
        return;
    }
    sim->calls[held.number].done++;
    if (sim->held_count < HELD_MAX && draw(sim, 2)) {
        sim->held[sim->held_count++] = held;
    } else {
        answer(sim, &held, CRPC_OP_REPLY);
    }
}

static void poll_servers(struct sim *sim)
{
    crpc_completion done[COMPLETIONS];
    const uint32_t count = rpc_poll(sim->engine[1], done, 1 + draw(sim, COMPLETIONS));
    for (uint32_t i = 0; i < count; i++) {
        struct rpc_endpoint *endpoint = find(sim, 1, done[i].endpoint.bits);
        if (done[i].kind == CRPC_COMPLETION_REQUEST) {
            take_request(sim, &done[i]);
        } else if (endpoint && (done[i].kind == CRPC_COMPLETION_DISCONNECTED ||
                                (done[i].kind == CRPC_COMPLETION_CONNECTED && done[i].status))) {
            link_close(&endpoint->link);
        }
    }
}

/* ---- Clients ----------------------------------------------------------------------------------- */

static struct client *client_of(struct sim *sim, uint64_t handle)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (sim->clients[i].handle == handle) {
            return &sim->clients[i];
        }
    }
    simulation_fail(&sim->base, "a completion of a handle that nobody knows");
    return NULL;
}

static void take_response(struct sim *sim, const crpc_completion *done)
{
    if (done->user_data >= sim->call_count) {
        simulation_fail(&sim->base, "a response to a call that was not made");
        return;
    }
    struct call *call = &sim->calls[done->user_data];
    uint32_t number;
    if (call->completed++) {
        simulation_fail(&sim->base, "call %u has completed twice", (uint32_t)done->user_data);
    }
    call->status = done->status;
    sim->completed++;
    if (done->status == CRPC_OK) {
        memcpy(&number, (const void *)(uintptr_t)done->payload, sizeof(number));
        if (done->payload_bytes != sizeof(number) || number != done->user_data) {
            simulation_fail(&sim->base, "call %u has another's answer", (uint32_t)done->user_data);
        }
    }
    sim->counts[COUNT_UNKNOWN] += done->status == CRPC_E_DISCONNECTED;
    sim->counts[COUNT_TIMEOUTS] += done->status == CRPC_E_TIMEOUT;
    sim->counts[COUNT_NOT_STARTED] += done->status == CRPC_E_NOT_STARTED;
}

static void take(struct sim *sim, const crpc_completion *done)
{
    struct client *client = client_of(sim, done->endpoint.bits);
    if (!client || done->endpoint_user_data != 4711) {
        simulation_fail(&sim->base, "a completion of nobody");
        return;
    }
    if (client->gone) {
        simulation_fail(&sim->base, "a completion of kind %u after the last", done->kind);
    }
    switch (done->kind) {
    case CRPC_COMPLETION_RESPONSE:
        take_response(sim, done);
        break;
    case CRPC_COMPLETION_CONNECTED:
        if (done->status != CRPC_OK || client->connected) {
            simulation_fail(&sim->base, "CONNECTED with %d while %sconnected", done->status,
                            client->connected ? "" : "not ");
        }
        client->connected = true;
        sim->counts[COUNT_CONNECTIONS]++;
        break;
    case CRPC_COMPLETION_RECONNECTING:
        client->connected = false;
        sim->counts[COUNT_LOST]++;
        break;
    case CRPC_COMPLETION_DISCONNECTED:
        if (!client->over) {
            simulation_fail(&sim->base, "DISCONNECTED, and nobody wanted it");
        }
        client->gone = true;
        break;
    case CRPC_COMPLETION_ROOM:
        sim->counts[COUNT_ROOMS]++;
        client->refused = false;
        break;
    case CRPC_COMPLETION_CANCEL:
        break;
    default:
        simulation_fail(&sim->base, "a completion of kind %u", done->kind);
    }
}

static void poll_clients(struct sim *sim)
{
    crpc_completion done[COMPLETIONS];
    const uint32_t count = rpc_poll(sim->engine[0], done, 1 + draw(sim, COMPLETIONS));
    for (uint32_t i = 0; i < count; i++) {
        take(sim, &done[i]);
    }
}

static struct client *some_client(struct sim *sim, struct rpc_endpoint **endpoint)
{
    struct client *client = &sim->clients[draw(sim, CLIENTS)];
    *endpoint = find(sim, 0, client->handle);
    return *endpoint ? client : NULL;
}

static crpc_op make_op(struct sim *sim, uint8_t *payload)
{
    const uint32_t number = sim->call_count++;
    struct call *call = &sim->calls[number];
    *call = (struct call){.bytes = 4 + draw(sim, draw(sim, 4) ? 60 : PAYLOAD_MAX),
                          .idempotent = draw(sim, 2),
                          .timed = draw(sim, 4) == 0,
                          .too_big = draw(sim, 100) == 0};
    memcpy(payload, &number, sizeof(number));
    simulation_fill(payload + 4, call->bytes - 4, simulation_key(&sim->base, 0, 0, number));
    return (crpc_op){.opcode = CRPC_OP_CALL,
                     .flags = call->idempotent ? CRPC_OP_IDEMPOTENT : 0,
                     .method = 7,
                     .user_data = number,
                     .payload_bytes = call->bytes,
                     .reply_bytes_max = call->too_big ? 1u << 20 : 16,
                     .timeout_ns = call->timed ? 1 + draw(sim, 20 * MS) : 0};
}

/* The call was accepted, or might be later. */
static void note(struct sim *sim, struct client *client, uint32_t number, int32_t status)
{
    struct call *call = &sim->calls[number];
    if (status == CRPC_OK) {
        call->accepted = true;
        sim->accepted++;
        sim->counts[COUNT_CALLS]++;
    } else if (status == CRPC_E_AGAIN) {
        sim->counts[COUNT_AGAIN]++;
        client->refused = true;
    } else if (!(client->over && (status == CRPC_E_CLOSING || status == CRPC_E_DISCONNECTED)) &&
               !(client->reserved && status == CRPC_E_BUSY) &&
               !(call->too_big && status == CRPC_E_TOO_BIG)) {
        simulation_fail(&sim->base, "a call was refused with %d", status);
    }
}

static void act_call(struct sim *sim)
{
    static uint8_t payload[PAYLOAD_MAX + 64];
    struct rpc_endpoint *endpoint;
    struct client *client = some_client(sim, &endpoint);
    if (!client || sim->call_count == CALLS) {
        return;
    }
    crpc_op op = make_op(sim, payload);
    const bool alone = !op.flags && !op.timeout_ns && draw(sim, 2);
    const uint32_t number = (uint32_t)op.user_data;
    int32_t status;
    if (alone) {
        rpc_call_alone(endpoint, &op, payload, &status);
    } else {
        crpc_trace trace = trace_of(number);
        if (traced(number)) {
            op.flags |= CRPC_OP_TRACED;
            op.token = (uint64_t)(uintptr_t)&trace;
            sim->calls[number].traced = true;
        }
        status = rpc_submit(endpoint, &op, payload);
        memset(&trace, 0xff, sizeof(trace)); /* it was copied */
        rpc_submit_end(sim->engine[0]);
    }
    note(sim, client, number, status);
}

static void act_reserve(struct sim *sim)
{
    static uint8_t payload[PAYLOAD_MAX + 64];
    struct rpc_endpoint *endpoint;
    struct client *client = some_client(sim, &endpoint);
    if (!client || sim->call_count == CALLS) {
        return;
    }
    if (!client->reserved) {
        const crpc_op op = make_op(sim, payload);
        void *place;
        const int32_t status = rpc_reserve(endpoint, &op, &place);
        if (status == CRPC_OK) {
            client->reserved = true;
            client->place = place;
            client->number = (uint32_t)op.user_data;
        } else {
            note(sim, client, (uint32_t)op.user_data, status);
        }
        return;
    }
    /* The place is there, whatever has become of the connection. */
    struct call *call = &sim->calls[client->number];
    memset(client->place, 0xee, call->bytes);
    client->reserved = false;
    if (draw(sim, 4) == 0) {
        rpc_abort(endpoint);
        return;
    }
    call->bytes -= draw(sim, call->bytes - 3);
    memcpy(client->place, &client->number, sizeof(client->number));
    simulation_fill(client->place + 4, call->bytes - 4,
                    simulation_key(&sim->base, 0, 0, client->number));
    const int32_t status = rpc_commit(endpoint, call->bytes);
    if (status == CRPC_OK) {
        note(sim, client, client->number, CRPC_OK);
    } else if (status != CRPC_E_DISCONNECTED && status != CRPC_E_CLOSING) {
        simulation_fail(&sim->base, "a commit gave %d", status);
    }
}

static void act_cancel(struct sim *sim)
{
    struct rpc_endpoint *endpoint;
    struct client *client = some_client(sim, &endpoint);
    if (!client || sim->call_count == 0) {
        return;
    }
    const uint32_t number =
        sim->call_count - 1 - draw(sim, sim->call_count < 8 ? sim->call_count : 8);
    const crpc_op op = {.opcode = CRPC_OP_CANCEL, .token = number};
    if (rpc_cancel(endpoint, &op) == CRPC_OK) {
        sim->calls[number].canceled = true;
        rpc_submit_end(sim->engine[0]);
        const struct list *waiting = &endpoint->lasting->waiting;
        for (const struct list *at = waiting->next; at != waiting; at = at->next) {
            if (list_entry(at, struct rpc_kept, link)->op.user_data == number) {
                simulation_fail(&sim->base, "call %u was canceled, and waits", number);
            }
        }
    }
}

static void act_harm(struct sim *sim)
{
    struct rpc_endpoint *client, *server = some_server(sim);
    some_client(sim, &client);
    switch (draw(sim, 8)) {
    case 0:
        if (server) {
            link_close(&server->link);
        }
        break;
    case 1:
        if (server) {
            link_disconnect(&server->link, 10 * MS);
        }
        break;
    case 2:
        if (server && server->link.queue_pair) {
            memory_fabric_kill(server->link.queue_pair);
        }
        break;
    case 3:
        if (client && client->link.queue_pair) {
            memory_fabric_kill(client->link.queue_pair);
        }
        break;
    case 4:
        if (client && client->link.queue_pair) {
            memory_fabric_cut(client->link.queue_pair);
        }
        break;
    case 5:
        sim->refuses = !sim->refuses;
        break;
    case 6:
        sim->draining = !sim->draining;
        for (uint32_t i = 0; i < 4 && sim->draining && (server = some_server(sim)); i++) {
            link_disconnect(&server->link, 10 * MS);
        }
        break;
    default:
        memory_fabric_set_failures(sim->base.fabric,
                                   (enum memory_failure)(MEMORY_FAIL_REGISTER + draw(sim, 3)),
                                   1 + draw(sim, 3), CRPC_E_NO_RESOURCE);
    }
}

static void act_end(struct sim *sim)
{
    struct rpc_endpoint *endpoint;
    struct client *client = some_client(sim, &endpoint);
    if (!client || client->reserved || draw(sim, 20)) {
        return;
    }
    if (draw(sim, 2)) {
        if (!client->over) {
            const int32_t status =
                link_disconnect(&endpoint->link, draw(sim, 2) ? 5 * MS : CRPC_FOREVER);
            if (status != CRPC_OK) {
                simulation_fail(&sim->base, "a disconnect gave %d", status);
            }
        }
        client->over = true;
    } else {
        link_close(&endpoint->link);
        client->over = client->closed = true;
    }
}

/* ---- The episode ------------------------------------------------------------------------------- */

uint64_t sim_open(struct simulation *base, uint64_t seed, uint64_t steps)
{
    struct sim *sim = (struct sim *)base;
    uint64_t counts[COUNT_ROOMS + 1];
    memcpy(counts, sim->counts, sizeof(counts));
    simulation_open(base, seed);
    memset((uint8_t *)sim + sizeof(sim->base), 0, sizeof(*sim) - sizeof(sim->base));
    memcpy(sim->counts, counts, sizeof(counts));
    the_sim = sim;
    memory_fabric_options(base->fabric)->retry_steps = 100;
    const struct nic_options options = {.receive_depth = 1024,
                                        .send_depth = 16,
                                        .send_completion_depth = 4096,
                                        .signal_interval = 1 + draw(sim, 8)};
    crpc_error error = {0};
    for (uint32_t side = 0; side < 2; side++) {
        handles_init(&sim->handles[side]);
        if (memory_nic_open(base->fabric, &options, &sim->nic[side], &error) != CRPC_OK ||
            rpc_engine_create(sim->nic[side], NULL, &base->log, &sim->handles[side], 64,
                              &base->clock_ns, &sim->engine[side], &error) != CRPC_OK) {
            simulation_fail(base, "%s", error.message);
            return 0;
        }
    }
    rpc_links(sim->engine[0])->connect = connect_by_blobs;
    sim->calm = true; /* the first attempt tells its caller of a failure */
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct link *link;
        const crpc_endpoint_options endpoint_options = options_of(sim, true);
        if (rpc_connect_lasting(rpc_links(sim->engine[0]), "a:1,b:1", &endpoint_options, &link,
                                &error) != CRPC_OK) {
            simulation_fail(base, "%s", error.message);
            return 0;
        }
        sim->clients[i].handle = link->handle;
        endpoint_of_link(link)->lasting->random = random_next(&sim->base.random) | 1;
    }
    sim->calm = false;
    return steps;
}

static void step(struct sim *sim)
{
    for (uint32_t i = draw(sim, 20); i > 0; i--) {
        memory_fabric_step(sim->base.fabric);
    }
}

static void answer_one(struct sim *sim)
{
    if (sim->held_count > 0) {
        const uint32_t chosen = draw(sim, sim->held_count);
        const struct held held = sim->held[chosen];
        sim->held[chosen] = sim->held[--sim->held_count];
        answer(sim, &held, CRPC_OP_REPLY);
    }
}

void sim_act(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    switch (draw(sim, 16)) {
    case 0:
    case 1:
    case 2:
        act_call(sim);
        break;
    case 3:
    case 4:
    case 5:
        poll_clients(sim);
        break;
    case 6:
    case 7:
        poll_servers(sim);
        break;
    case 8:
    case 9:
    case 10:
        step(sim);
        break;
    case 11:
        answer_one(sim);
        break;
    case 12:
        base->clock_ns += draw(sim, 2 * MS);
        break;
    case 13:
        act_reserve(sim);
        break;
    case 14:
        if (draw(sim, 4) == 0) {
            act_cancel(sim);
        }
        break;
    default:
        if (draw(sim, 6) == 0) {
            act_harm(sim);
        } else if (draw(sim, 20) == 0) {
            act_end(sim);
        }
    }
}

void sim_check_fabric(struct simulation *base)
{
    const struct memory_fabric_counters *counters = memory_fabric_counters(base->fabric);
    if (counters->send_overflows || counters->receive_overflows || counters->receiver_not_ready) {
        simulation_fail(
            base, "the fabric has seen %" PRIu64 " overflows, and %" PRIu64 " without a receive",
            counters->send_overflows + counters->receive_overflows, counters->receiver_not_ready);
    }
    const struct sim *sim = (const struct sim *)base;
    for (uint32_t i = 0; i < CLIENTS; i++) { /* what was under way, and what waited */
        const struct rpc_endpoint *endpoint = find(sim, 0, sim->clients[i].handle);
        if (endpoint &&
            endpoint->lasting->waiting_count > 2 * endpoint->lasting->options.calls_max) {
            simulation_fail(base, "%u calls wait", endpoint->lasting->waiting_count);
        }
    }
}

/* Whatever has become of the connections, each of these ends in its time. */
static void let_time_pass(struct sim *sim)
{
    sim->refuses = true;
    for (uint32_t i = 0; i < 100; i++) {
        sim->base.clock_ns += MS / 2;
        poll_clients(sim);
        step(sim);
    }
    for (uint32_t i = 0; i < sim->call_count; i++) {
        if (sim->calls[i].accepted && sim->calls[i].timed && sim->calls[i].completed == 0) {
            simulation_fail(&sim->base, "the time of call %u has passed, and it waits", i);
        }
    }
}

/* Nothing goes wrong any more: all calls must come to their end. */
void sim_drain(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    let_time_pass(sim);
    sim->calm = true;
    sim->refuses = sim->draining = false;
    for (uint32_t kind = 0; kind < MEMORY_FAIL_KINDS; kind++) {
        memory_fabric_set_failures(base->fabric, (enum memory_failure)kind, 0, CRPC_OK);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct rpc_endpoint *endpoint = find(sim, 0, sim->clients[i].handle);
        if (endpoint && sim->clients[i].reserved) {
            memset(sim->clients[i].place, 0xee, sim->calls[sim->clients[i].number].bytes);
            rpc_abort(endpoint);
            sim->clients[i].reserved = false;
        }
    }
    for (uint32_t round = 0; round < DRAIN_ROUNDS && !base->failed; round++) {
        bool over = sim->completed == sim->accepted;
        for (uint32_t i = 0; i < CLIENTS; i++) { /* those that are not over are connected again */
            const struct client *client = &sim->clients[i];
            over = over && (client->over ? client->closed || client->gone
                                         : client->connected && !client->refused);
        }
        if (over) {
            return;
        }
        if (round == DRAIN_ROUNDS - 1) {
            simulation_fail(base, "deadlock: not all is over");
        }
        step(sim);
        poll_servers(sim);
        answer_one(sim);
        poll_clients(sim);
        base->clock_ns += draw(sim, MS);
    }
}

static bool status_good(const struct call *call)
{
    switch (call->status) {
    case CRPC_OK:
        return call->done >= 1;
    case CRPC_E_TIMEOUT:
        return call->timed;
    case CRPC_E_CANCELED:
        return call->canceled;
    case CRPC_E_TOO_BIG:
        return call->too_big && call->done == 0;
    case CRPC_E_NOT_STARTED:
        return call->idempotent || call->done == 0;
    default:
        return true; /* see below */
    }
}

void sim_check_books(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    bool ends = false;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        ends |= sim->clients[i].over;
    }
    for (uint32_t i = 0; i < sim->call_count; i++) {
        const struct call *call = &sim->calls[i];
        const bool unknown = call->status == CRPC_E_DISCONNECTED;
        const bool ended = call->status == CRPC_E_CLOSED || call->status == CRPC_E_CLOSING;
        if (!call->accepted && call->completed == 0 && call->done == 0) {
            continue;
        }
        if (call->completed != call->accepted) {
            simulation_fail(base, "call %u has completed %u times", i, call->completed);
        } else if (!call->idempotent && call->done > 1) {
            simulation_fail(base, "call %u was done %u times", i, call->done);
        } else if (!status_good(call) || (ended && !ends) ||
                   (unknown && call->idempotent && !ends) ||
                   (call->status == CRPC_E_CLOSING && !call->idempotent && call->done > 0)) {
            simulation_fail(base, "call %u (%s%s%s) has ended with %d, and was done %u times", i,
                            call->idempotent ? "idempotent" : "once", call->timed ? ", timed" : "",
                            call->canceled ? ", canceled" : "", call->status, call->done);
        }
    }
}

void sim_close(struct simulation *base)
{
    struct sim *sim = (struct sim *)base;
    for (uint32_t side = 0; side < 2; side++) {
        rpc_engine_destroy(sim->engine[side]);
        handles_free(&sim->handles[side]);
        sim->nic[side]->operations->close(sim->nic[side]);
    }
    simulation_close(base);
}

void sim_describe(const struct simulation *base)
{
    const struct sim *sim = (const struct sim *)base;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *client = &sim->clients[i];
        const struct rpc_endpoint *endpoint = find(sim, 0, client->handle);
        printf("# client %u:%s%s%s", i, client->connected ? " connected" : "",
               client->over ? " over" : "", client->reserved ? " reserved" : "");
        if (endpoint && endpoint->lasting) {
            const struct rpc_lasting *lasting = endpoint->lasting;
            printf(" state %u%s bar %d, %u wait, %u live, %u failed attempts%s%s%s",
                   endpoint->link.state, endpoint->link.away ? " away" : "", endpoint->bar,
                   lasting->waiting_count, endpoint->calls.live, lasting->failed,
                   lasting->ending ? ", ending" : "", lasting->reserved ? ", reserved" : "",
                   wheel_timer_set(&lasting->timer) ? ", timer" : "");
            printf("%s%s%s", client->refused ? ", was refused" : "",
                   lasting->refused ? ", is to be told" : "",
                   endpoint->link.refused ? ", as soon as there is room" : "");
        }
        printf("\n");
    }
    printf("# %u of %u calls have completed, %u are held\n", sim->completed, sim->accepted,
           sim->held_count);
}

int main(int argc, char **argv)
{
    static struct sim sim;
    static const char *const names[] = {
        "calls",        "connections", "lost or not made", "refused", "unknown",
        "told to wait", "not started", "timeouts",         "rooms",   NULL};
    const struct simulation_program program = {
        .name = "simulate_lasting", .count_names = names, .counts = sim.counts};
    return simulation_main(argc, argv, &program, &sim.base);
}
