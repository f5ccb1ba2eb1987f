/* cm_adversity_test.c: the connection manager when others misbehave or die: lost and forged
 * messages, dead processes, full rings, broken commands, threads cancelled as they wait. */
#include <sched.h>

#include "simnic/cm/tests/cm_world.h"

static void test_death(void **state)
{
    struct world *world = *state;
    struct connection made = establish(world, "127.0.0.1", 7000);
    create_asking(made.client, 201, "127.0.0.1", 7000);
    deliver(world);
    kill_process(world, 0);
    start(world, 0, 99); /* its slot goes to another, who must not be taken for it */
    pass(world, 200);
    struct rdma_ucm_event_resp event[2] = {event_any(made.client), event_any(made.client)};
    struct rdma_ucm_event_resp *gone = event[0].uid == 200 ? &event[0] : &event[1];
    struct rdma_ucm_event_resp *lost = event[0].uid == 200 ? &event[1] : &event[0];
    assert_int_equal(gone->event, DISCONNECTED);
    assert_int_equal(lost->event, UNREACHABLE);
    assert_int_equal((int)lost->status, -ETIMEDOUT);
    assert_int_equal(disconnect(made.client, made.client_id), 0);
    pass(world, 2000);
    event_of(made.client, TIMEWAIT_EXIT);
    no_event(made.client);
    uint32_t again = create(made.server, 300); /* the dead one's port is free */
    assert_int_equal(bind_to(made.server, again, "127.0.0.1", 7000), 0);
}

static void test_no_answer(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    serve(&world->process[0], "127.0.0.1", 7000);
    uint32_t id = create_resolved(client, 200, "127.0.0.1", 7000);
    world->broken = true;
    assert_int_equal(connect_to(client, id, ""), 0);
    pass(world, 4000);
    no_event(client);
    pass(world, 2000);
    assert_int_equal((int)event_of(client, UNREACHABLE).status, -ETIMEDOUT);
}

static void test_full_ring(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    serve(&world->process[0], "127.0.0.1", 7000);
    uint32_t id = create_resolved(client, 200, "127.0.0.1", 7000);
    world->full = true;
    assert_int_equal(connect_to(client, id, ""), 0);
    deliver(world);
    no_event(&world->process[0]);
    world->full = false;
    pass(world, 0);
    event_of(&world->process[0], CONNECT_REQUEST);
    no_event(&world->process[0]);
}

static void test_backlog(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    uint32_t listener = create(server, 100), id[2];
    assert_int_equal(bind_to(server, listener, "::", 7000), 0);
    assert_int_equal(listen_on(server, listener, 1), 0);
    for (int i = 0; i < 2; i++) {
        id[i] = create(client, 200 + i);
        resolve(client, id[i], i ? "::1" : "127.0.0.1", 7000);
        assert_int_equal(connect_to(client, id[i], ""), 0);
    }
    pass(world, 1000);
    event_of(server, CONNECT_REQUEST);
    no_event(server);
    pass(world, 1000); /* the second one asks again */
    event_of(server, CONNECT_REQUEST);
    no_event(server);
    no_event(client);
}

/* More than there are ephemeral ports, 28,232. Each looks at all that are bound, which takes a minute with the thread sanitizer:
 * there, as many as 10,000 connections need. */
#ifdef __SANITIZE_THREAD__
#define PORTS 10000
#else
#define PORTS 30000
#endif

static void test_many_ports(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    int bound = 0;
    for (; bound < PORTS; bound++) {
        uint32_t id = create(a, 1);
        ssize_t result = bind_to(a, id, "127.0.0.1", 0);
        if (result == -EADDRNOTAVAIL) {
            break;
        }
        assert_int_equal(result, 0);
    }
    /* Connections of this machine have ports, too. */
    assert_in_range(bound, PORTS < 28000 ? PORTS : 28000, PORTS < 30000 ? PORTS : 28232);
}

/* Who dies with the table of ports locked must not stop the others. */
static void test_dead_lock_holder(void **state)
{
    struct world *world = *state;
    uint64_t dead = 77ull << 32 | 3;
    memcpy(world->shared, &dead, sizeof(dead));
    serve(&world->process[0], "127.0.0.1", 7000);
}

static void test_bad_commands(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    uint8_t zeros[600] = {0};
    struct rdma_ucm_create_id_resp response;
    struct rdma_ucm_create_id create_command = {.response = (uintptr_t)&response, .ps = 5};
    assert_int_equal(issue_on(a->file, 99, zeros, 8, 0), -EINVAL);
    assert_non_null(strstr(world->log, "99"));
    assert_int_equal(issue_on(a->file, RDMA_USER_CM_CMD_GET_OPTION, zeros, 8, 0), -ENOSYS);
    assert_non_null(strstr(world->log, "13"));
    assert_int_equal(cm_file_write(a->file, zeros, 7, true), -EINVAL);
    assert_int_equal(issue(a, CREATE_ID, create_command, sizeof(response)), -EINVAL);
    create_command.ps = RDMA_PS_TCP;
    assert_int_equal(issue(a, CREATE_ID, create_command, 3), -ENOSPC);
    create_command.response = 0;
    assert_int_equal(issue(a, CREATE_ID, create_command, 4), -EFAULT);
    struct rdma_ucm_cmd_hdr header = {.cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = 24, .out = 4};
    assert_int_equal(cm_file_write(a->file, &header, sizeof(header), true), -EINVAL);
    /* Too short a body, and one full of zeros, of every command. */
    for (uint32_t number = 0; number <= RDMA_USER_CM_CMD_JOIN_MCAST; number++) {
        assert_true(issue_on(a->file, number, zeros, 1, 1000) < 0);
        assert_true(issue_on(a->file, number, zeros, sizeof(zeros), 0) < 0);
        assert_true(issue_on(a->file, number, zeros, sizeof(zeros), 1000) < 0);
    }
    uint32_t id = create(a, 1);
    assert_true(connect_to(a, id, "") == -EINVAL);
    assert_true(accept_id(a, id, 1, "") == -EINVAL);
    assert_true(disconnect(a, id) == -EINVAL);
    struct ib_uverbs_qp_attr attr;
    assert_true(attributes(a, id, 1, &attr) == -EINVAL);
    assert_true(disconnect(a, 77777777) == -ENOENT);
}

/* Both ends at once: neither waits for the other. */
static void test_both_disconnect(void **state)
{
    struct world *world = *state;
    struct connection made = establish(world, "127.0.0.1", 7000);
    assert_int_equal(disconnect(made.client, made.client_id), 0);
    assert_int_equal(disconnect(made.server, made.served), 0);
    deliver(world);
    event_of(made.client, DISCONNECTED);
    event_of(made.server, DISCONNECTED);
    assert_int_equal(disconnect(made.client, made.client_id), 0);
    destroy(made.server, made.served);
    deliver(world);
    no_event(made.client);
}

static void test_hostile_messages(void **state)
{
    struct world *world = *state;
    struct connection made = establish(world, "127.0.0.1", 7000);
    struct cm *cm = made.server->cm;
    uint8_t noise[CM_MESSAGE_MAX_BYTES];
    struct cm_message message;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        for (size_t b = 0; b < sizeof(noise); b++) {
            noise[b] = rand();
        }
        memcpy(&message, noise, sizeof(message));
        message.magic = CM_MESSAGE_MAGIC;
        message.bytes = sizeof(message);
        message.type %= 12;
        message.source_generation = i % 3 ? 12 : 10;
        message.destination_generation = 10;
        message.private_length %= 200;
        message.destination_communication_id &= i % 2 ? 0xffff0003 : 3;
        if (i % 5 == 0) {
            message.ip_version = 4;
            memcpy(message.source_address, rails[0].ipv4, 4);
            memcpy(message.destination_address, rails[0].ipv4, 4);
            message.destination_port = htons(7000);
            message.port_space = RDMA_PS_TCP;
            message.queue_pair_type = 2;
        }
        cm_receive(cm, 2, &message, sizeof(message));
        cm_receive(cm, i % 3, noise, i % sizeof(noise));
        world->tail = world->head;
    }
    for (int i = 0; i < 4; i++) {
        event_of(made.server, CONNECT_REQUEST);
    }
    no_event(made.server);
    assert_int_equal(disconnect(made.client, made.client_id), 0);
    deliver(world);
    event_of(made.server, DISCONNECTED);
}

static _Atomic pid_t waiter; /* the thread that is in wait_for_event, or about to be */

static void *wait_for_event(void *argument)
{
    struct process *process = argument;
    waiter = gettid();
    struct rdma_ucm_event_resp response;
    struct {
        struct rdma_ucm_cmd_hdr header;
        struct rdma_ucm_get_event body;
    } command = {{RDMA_USER_CM_CMD_GET_EVENT, 8, sizeof(response)}, {(uintptr_t)&response}};
    ssize_t result = cm_file_write(process->file, &command, sizeof(command), false);
    return (void *)(result < 0 ? (intptr_t)result : (intptr_t)response.uid);
}

/* Starts a thread that waits for an event, and returns when it sleeps: from where it tells its
 * number on, it sleeps for an event only. */
static pthread_t start_waiter(struct process *process)
{
    char path[64], line[256];
    pthread_t thread;
    waiter = 0;
    pthread_create(&thread, NULL, wait_for_event, process);
    for (bool asleep = false; !asleep; sched_yield()) {
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)waiter);
        FILE *file = waiter ? fopen(path, "r") : NULL;
        asleep =
            file && fgets(line, sizeof(line), file) && strncmp(strrchr(line, ')'), ") S", 3) == 0;
        if (file) {
            fclose(file);
        }
    }
    return thread;
}

static void test_waiting(void **state)
{
    struct world *world = *state;
    struct process *a = &world->process[0];
    void *result;
    uint32_t id = create(a, 100);
    pthread_t thread = start_waiter(a);
    assert_int_equal(resolve_addr(a, id, "127.0.0.1", 1), 0);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, 100);
    thread = start_waiter(a);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    thread = start_waiter(a);
    cm_file_close(a->file);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, -EBADF);
    a->file = cm_file_open(a->cm, a->event_fd);
}

static struct packet *last_packet(struct world *world)
{
    return &world->queue[(world->head - 1) % QUEUE];
}

/* What was meant for a process that is dead is not for the next one in its slot. */
static void test_message_to_the_dead(void **state)
{
    struct world *world = *state;
    struct process *client = &world->process[1];
    serve(&world->process[0], "127.0.0.1", 7000);
    create_asking(client, 200, "127.0.0.1", 7000);
    kill_process(world, 0);
    start(world, 0, 99);
    serve(&world->process[0], "127.0.0.1", 7000);
    deliver(world);
    no_event(&world->process[0]);
}

/* The next process in a slot has no say in the connections of the one before, even if it knows
 * their ids. */
static void test_message_of_a_successor(void **state)
{
    struct world *world = *state;
    struct connection made = establish(world, "127.0.0.1", 7000);
    struct packet packet = *last_packet(world); /* its RTU, which names both ends */
    struct cm_message message;
    memcpy(&message, packet.data, sizeof(message));
    kill_process(world, 1);
    start(world, 1, 50);
    message.type = MESSAGE_DREQ;
    message.source_generation = 50;
    cm_receive(made.server->cm, 1, &message, sizeof(message));
    no_event(made.server);
    message.source_generation = 11;
    cm_receive(made.server->cm, 1, &message, sizeof(message));
    no_event(made.server);
    pass(world, 200);
    event_of(made.server, DISCONNECTED);
}

static ssize_t reject_id(struct process *process, uint32_t id, const char *data)
{
    struct rdma_ucm_reject command = {.id = id, .private_data_len = (uint8_t)strlen(data)};
    memcpy(command.private_data, data, strlen(data));
    return issue(process, REJECT, command, 0);
}

/* What a process said before it died is heard, also by who has found out already that it is dead, and also if another process has its
 * slot by then. */
static void last_words(struct world *world, bool accepts, bool successor)
{
    struct process *server = &world->process[0], *client = &world->process[1];
    serve(server, "127.0.0.1", 7000);
    create_asking(client, 200, "127.0.0.1", 7000);
    deliver(world);
    uint32_t request = event_of(server, CONNECT_REQUEST).id;
    if (accepts) {
        assert_int_equal(accept_id(server, request, 101, "yes"), 0);
    } else {
        assert_int_equal(reject_id(server, request, "no"), 0);
    }
    kill_process(world, 0);
    if (successor) {
        start(world, 0, 99);
    }
    world->now += 1000 * 1000000ull;
    cm_run(client->cm);
    no_event(client);
    deliver(world);
    struct rdma_ucm_event_resp event = event_of(client, accepts ? CONNECT_RESPONSE : REJECTED);
    assert_memory_equal(event.param.conn.private_data, accepts ? "yes" : "no", 3);
}

static void test_rejected_by_the_dead(void **state)
{
    last_words(*state, false, false);
}

static void test_accepted_by_the_dead(void **state)
{
    struct world *world = *state;
    last_words(world, true, false);
    pass(world, 200); /* nobody is there any more */
    event_of(&world->process[1], UNREACHABLE);
}

static void test_rejected_by_a_predecessor(void **state)
{
    last_words(*state, false, true);
}

static void test_request_twice(void **state)
{
    struct world *world = *state;
    struct process *server = &world->process[0], *client = &world->process[1];
    serve(server, "127.0.0.1", 7000);
    create_asking(client, 200, "127.0.0.1", 7000);
    struct packet packet = *last_packet(world);
    cm_receive(server->cm, packet.from, packet.data, packet.bytes);
    deliver(world);
    uint32_t accepted = event_of(server, CONNECT_REQUEST).id;
    no_event(server);
    assert_int_equal(accept_id(server, accepted, 101, ""), 0);
    cm_receive(server->cm, packet.from, packet.data, packet.bytes);
    deliver(world);
    event_of(client, CONNECT_RESPONSE);
    no_event(client);
    no_event(server);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_death),
        TEST(test_no_answer),
        TEST(test_full_ring),
        TEST(test_backlog),
        TEST(test_many_ports),
        TEST(test_dead_lock_holder),
        TEST(test_bad_commands),
        TEST(test_both_disconnect),
        TEST(test_hostile_messages),
        TEST(test_waiting),
        TEST(test_message_to_the_dead),
        TEST(test_message_of_a_successor),
        TEST(test_request_twice),
        TEST(test_rejected_by_the_dead),
        TEST(test_accepted_by_the_dead),
        TEST(test_rejected_by_a_predecessor),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
