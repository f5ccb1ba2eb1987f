/* cm_world.h: connection managers of several processes, joined in one by a host that keeps messages
 * in memory and a clock that stands still until told otherwise; and the commands that librdmacm
 * issues, one function each. For the tests of this folder. */
#ifndef SIMNIC_CM_TESTS_CM_WORLD_H
#define SIMNIC_CM_TESTS_CM_WORLD_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "simnic/cm/cm.h"
#include "simnic/cm/message.h"
#include "simnic/session/rails.h"

/* Each test program uses some of these functions. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define PROCESSES 3
#define QUEUE 256

enum { ADDR_RESOLVED, ADDR_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE };
enum { UNREACHABLE = 7, REJECTED, ESTABLISHED, DISCONNECTED, MULTICAST_JOIN = 12 };
enum { TIMEWAIT_EXIT = 15 };

struct packet {
    uint32_t from, to, bytes;
    uint8_t data[CM_MESSAGE_MAX_BYTES];
};

struct world {
    struct process {
        struct world *world;
        uint32_t slot, generation;
        bool dead; /* the generation stays that of the dead */
        struct cm *cm;
        struct cm_file *file;
        int event_fd;
    } process[PROCESSES];
    void *shared;
    uint64_t now;
    struct packet queue[QUEUE];
    unsigned head, tail;
    bool full, broken;
    uint32_t link;
    char log[128];
};

static int host_send(void *context, uint32_t slot, int rail, const void *message, size_t bytes)
{
    struct process *process = context;
    struct world *world = process->world;
    assert_in_range(rail, 0, RAIL_COUNT - 1);
    assert_true(bytes <= CM_MESSAGE_MAX_BYTES);
    if (world->full) {
        return -EAGAIN;
    }
    if (world->broken || slot >= PROCESSES || world->process[slot].dead) {
        return -EHOSTUNREACH;
    }
    struct packet *packet = &world->queue[world->head++ % QUEUE];
    packet->from = process->slot;
    packet->to = slot;
    packet->bytes = bytes;
    memcpy(packet->data, message, bytes);
    return 0;
}

static uint32_t host_generation(void *context, uint32_t slot)
{
    struct process *process = context;
    return slot < PROCESSES ? process->world->process[slot].generation : 0;
}

static bool host_alive(void *context, uint32_t slot, uint32_t generation)
{
    struct process *process = context;
    return generation != 0 && host_generation(context, slot) == generation &&
           !process->world->process[slot].dead;
}

/* What is on its way to the asking process comes first. */
static bool host_gone(void *context, uint32_t slot, uint32_t generation)
{
    struct process *process = context;
    struct world *world = process->world;
    bool gone = !host_alive(context, slot, generation);
    for (unsigned i = world->tail; i != world->head; i++) {
        const struct packet *packet = &world->queue[i % QUEUE];
        gone &= packet->from != slot || packet->to != process->slot;
    }
    return gone;
}

static void host_wake(void *context)
{
    (void)context;
}

static uint64_t host_now(void *context)
{
    return ((struct process *)context)->world->now;
}

static void host_log(void *context, const char *text)
{
    snprintf(((struct process *)context)->world->log, 128, "%s", text);
}

static void start(struct world *world, uint32_t slot, uint32_t generation)
{
    struct process *process = &world->process[slot];
    process->world = world;
    process->slot = slot;
    process->generation = generation;
    process->dead = false;
    struct cm_host host = {.context = process,
                           .slot = slot,
                           .link = world->link,
                           .shared = world->shared,
                           .send = host_send,
                           .alive = host_alive,
                           .gone = host_gone,
                           .generation = host_generation,
                           .wake = host_wake,
                           .now_ns = host_now,
                           .log = host_log};
    process->cm = cm_create(&host);
    process->event_fd = eventfd(0, EFD_NONBLOCK);
    process->file = cm_file_open(process->cm, process->event_fd);
}

/* A process killed says nothing more, and its slot may go to another. */
static void kill_process(struct world *world, uint32_t slot)
{
    struct process *process = &world->process[slot];
    bool broken = world->broken;
    world->broken = true;
    process->dead = true;
    cm_destroy(process->cm);
    world->broken = broken;
    process->cm = NULL;
    close(process->event_fd);
}

static int setup_linked(void **state, uint32_t link)
{
    struct world *world = calloc(1, sizeof(*world));
    world->link = link;
    world->shared = calloc(1, CM_SHARED_BYTES);
    world->now = 1000000000;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        start(world, i, 10 + i);
    }
    *state = world;
    return 0;
}

static int setup(void **state)
{
    return setup_linked(state, 0);
}

static int teardown(void **state)
{
    struct world *world = *state;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (world->process[i].cm) {
            kill_process(world, i);
        }
    }
    free(world->shared);
    free(world);
    return 0;
}

static void deliver(struct world *world)
{
    while (world->tail != world->head) {
        struct packet *packet = &world->queue[world->tail++ % QUEUE];
        if (world->process[packet->to].cm) {
            cm_receive(world->process[packet->to].cm, packet->from, packet->data, packet->bytes);
        }
    }
}

static void pass(struct world *world, unsigned milliseconds)
{
    for (unsigned i = 0; i <= milliseconds; i += 50) {
        deliver(world);
        for (uint32_t p = 0; p < PROCESSES; p++) {
            if (world->process[p].cm) {
                cm_run(world->process[p].cm);
            }
        }
        world->now += 50 * 1000000ull;
    }
    deliver(world);
}

static ssize_t issue_on(struct cm_file *file, uint32_t number, const void *body, size_t in,
                        size_t out)
{
    uint8_t buffer[1024];
    struct rdma_ucm_cmd_hdr header = {.cmd = number, .in = in, .out = out};
    memcpy(buffer, &header, sizeof(header));
    memcpy(buffer + sizeof(header), body, in);
    ssize_t result = cm_file_write(file, buffer, sizeof(header) + in, true);
    return result == (ssize_t)(sizeof(header) + in) ? 0 : result;
}

#define issue(process, number, body, out)                                                          \
    issue_on((process)->file, RDMA_USER_CM_CMD_##number, &(body), sizeof(body), out)

static uint32_t create_typed(struct process *process, uint64_t uid, uint16_t ps, uint8_t type)
{
    struct rdma_ucm_create_id_resp response;
    struct rdma_ucm_create_id command = {
        .uid = uid, .response = (uintptr_t)&response, .ps = ps, .qp_type = type};
    assert_int_equal(issue(process, CREATE_ID, command, sizeof(response)), 0);
    return response.id;
}

static uint32_t create(struct process *process, uint64_t uid)
{
    return create_typed(process, uid, RDMA_PS_TCP, 2);
}

static struct __kernel_sockaddr_storage at(const char *text, uint16_t port)
{
    struct __kernel_sockaddr_storage storage;
    struct sockaddr_in *in = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&storage;
    memset(&storage, 0, sizeof(storage));
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        return storage;
    }
    assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    return storage;
}

static uint16_t size_of(const struct __kernel_sockaddr_storage *address)
{
    return ((const struct sockaddr *)address)->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                    : sizeof(struct sockaddr_in6);
}

static ssize_t bind_to(struct process *process, uint32_t id, const char *text, uint16_t port)
{
    struct rdma_ucm_bind command = {.id = id, .addr = at(text, port)};
    command.addr_size = size_of(&command.addr);
    return issue(process, BIND, command, 0);
}

static ssize_t listen_on(struct process *process, uint32_t id, uint32_t backlog)
{
    struct rdma_ucm_listen command = {.id = id, .backlog = backlog};
    return issue(process, LISTEN, command, 0);
}

static ssize_t resolve_addr(struct process *process, uint32_t id, const char *text, uint16_t port)
{
    struct rdma_ucm_resolve_addr command = {
        .id = id, .timeout_ms = 1000, .dst_addr = at(text, port)};
    command.dst_size = size_of(&command.dst_addr);
    return issue(process, RESOLVE_ADDR, command, 0);
}

static struct rdma_ucm_event_resp event_any(struct process *process)
{
    struct rdma_ucm_event_resp response;
    struct rdma_ucm_get_event command = {.response = (uintptr_t)&response};
    memset(&response, 0xee, sizeof(response));
    struct pollfd descriptor = {.fd = process->event_fd, .events = POLLIN};
    int readable = poll(&descriptor, 1, 0);
    ssize_t result = issue(process, GET_EVENT, command, sizeof(response));
    assert_int_equal(readable, result == 0);
    if (result) {
        assert_int_equal(result, -EAGAIN);
        response.event = ~0u;
    }
    return response;
}

static struct rdma_ucm_event_resp event_of(struct process *process, uint32_t type)
{
    struct rdma_ucm_event_resp response = event_any(process);
    assert_int_equal(response.event, type);
    return response;
}

static void no_event(struct process *process)
{
    assert_int_equal(event_any(process).event, ~0u);
}

static void resolve(struct process *process, uint32_t id, const char *text, uint16_t port)
{
    assert_int_equal(resolve_addr(process, id, text, port), 0);
    assert_int_equal(event_of(process, ADDR_RESOLVED).status, 0);
    struct rdma_ucm_resolve_route command = {.id = id, .timeout_ms = 1000};
    assert_int_equal(issue(process, RESOLVE_ROUTE, command, 0), 0);
    assert_int_equal(event_of(process, ROUTE_RESOLVED).status, 0);
}

static ssize_t connect_to(struct process *process, uint32_t id, const char *data)
{
    struct rdma_ucm_connect command = {.id = id};
    command.conn_param.valid = 1;
    command.conn_param.qp_num = 0x111;
    command.conn_param.responder_resources = 3;
    command.conn_param.initiator_depth = 5;
    command.conn_param.retry_count = 6;
    command.conn_param.rnr_retry_count = 7;
    command.conn_param.flow_control = 1;
    command.conn_param.private_data_len = strlen(data);
    memcpy(command.conn_param.private_data, data, strlen(data));
    command.ece.vendor_id = 0x15b3;
    command.ece.attr_mod = 9;
    return issue(process, CONNECT, command, 0);
}

static ssize_t accept_id(struct process *process, uint32_t id, uint64_t uid, const char *data)
{
    struct rdma_ucm_accept command = {.id = id, .uid = uid};
    command.conn_param.valid = data != NULL;
    command.conn_param.qp_num = 0x222;
    command.conn_param.responder_resources = 4;
    command.conn_param.initiator_depth = 2;
    command.conn_param.rnr_retry_count = 5;
    command.conn_param.private_data_len = data ? strlen(data) : 0;
    memcpy(command.conn_param.private_data, data ? data : "", data ? strlen(data) : 0);
    return issue(process, ACCEPT, command, 0);
}

static uint32_t destroy(struct process *process, uint32_t id)
{
    struct rdma_ucm_destroy_id_resp response;
    struct rdma_ucm_destroy_id command = {.response = (uintptr_t)&response, .id = id};
    assert_int_equal(issue(process, DESTROY_ID, command, sizeof(response)), 0);
    return response.events_reported;
}

static ssize_t disconnect(struct process *process, uint32_t id)
{
    struct rdma_ucm_disconnect command = {.id = id};
    return issue(process, DISCONNECT, command, 0);
}

static ssize_t attributes(struct process *process, uint32_t id, uint32_t state,
                          struct ib_uverbs_qp_attr *to)
{
    struct rdma_ucm_init_qp_attr command = {.response = (uintptr_t)to, .id = id, .qp_state = state};
    return issue(process, INIT_QP_ATTR, command, sizeof(*to));
}

static uint32_t create_resolved(struct process *process, uint64_t uid, const char *text,
                                uint16_t port)
{
    uint32_t id = create(process, uid);
    resolve(process, id, text, port);
    return id;
}

/* An identifier that has asked a server, which has not been told yet. */
static uint32_t create_asking(struct process *process, uint64_t uid, const char *text,
                              uint16_t port)
{
    uint32_t id = create_resolved(process, uid, text, port);
    assert_int_equal(connect_to(process, id, ""), 0);
    return id;
}

struct connection {
    struct process *server, *client;
    uint32_t listener, served, client_id;
};

static uint32_t serve(struct process *server, const char *address, uint16_t port)
{
    uint32_t id = create(server, 100);
    assert_int_equal(bind_to(server, id, address, port), 0);
    assert_int_equal(listen_on(server, id, 4), 0);
    return id;
}

static struct connection establish(struct world *world, const char *address, uint16_t port)
{
    struct connection made = {.server = &world->process[0], .client = &world->process[1]};
    made.listener = serve(made.server, address, port);
    made.client_id = create_resolved(made.client, 200, address, port);
    assert_int_equal(connect_to(made.client, made.client_id, "hello"), 0);
    deliver(world);
    made.served = event_of(made.server, CONNECT_REQUEST).id;
    assert_int_equal(accept_id(made.server, made.served, 101, "welcome"), 0);
    deliver(world);
    event_of(made.client, CONNECT_RESPONSE);
    assert_int_equal(accept_id(made.client, made.client_id, 0, NULL), 0);
    deliver(world);
    event_of(made.server, ESTABLISHED);
    return made;
}

#endif
