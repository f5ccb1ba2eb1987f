/* destroy_vm_test.c: connections that end at every possible moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "place.h"
#include "rig.h"
#include "vm_tests.h"

enum stage {
    STARTED, /* cm_connect, nothing taken */
    ROUTED,
    REQUESTED, /* REQ sent */
    ASKED,     /* CONNECT_REQUEST taken */
    ACCEPTED,  /* REP sent */
    RESPONDED, /* CONNECT_RESPONSE taken */
    CONNECTED, /* both ends know */
    LEAVING,   /* cm_disconnect called by the client */
    STAGES,
};

static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};

/* Goes through the handshake as far as `stage`. */
static struct link link_up_to(struct rig *rig, const char *address, enum stage stage)
{
    struct link link = {
        .client_queue_pair = side_queue_pair(&rig->client),
        .server_queue_pair = side_queue_pair(&rig->server),
        .client = side_connect(&rig->client, address, NULL),
    };
    if (stage >= ROUTED) {
        side_expect(&rig->client, CM_EVENT_ROUTED);
    }
    if (stage >= REQUESTED) {
        assert_int_equal(
            cm_request(link.client, link.client_queue_pair, &transport, "ask", 4, NULL), CRPC_OK);
    }
    if (stage >= ASKED) {
        link.server = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST).identifier;
    }
    if (stage >= ACCEPTED) {
        assert_int_equal(
            cm_accept(link.server, link.server_queue_pair, &transport, "answer", 7, NULL), CRPC_OK);
    }
    if (stage >= RESPONDED) {
        side_expect(&rig->client, CM_EVENT_CONNECT_RESPONSE);
    }
    if (stage >= CONNECTED) {
        assert_int_equal(cm_establish(link.client, link.client_queue_pair, &transport, NULL),
                         CRPC_OK);
        side_expect(&rig->server, CM_EVENT_ESTABLISHED);
    }
    if (stage >= LEAVING) {
        cm_disconnect(link.client);
    }
    return link;
}

static void drop_queue_pairs(struct link *link)
{
    queue_pair_drop(&link->client_queue_pair);
    queue_pair_drop(&link->server_queue_pair);
}

/* Whatever the other side hears, it is the end. */
static enum cm_event_kind expect_end(struct side *side, struct cm_identifier *identifier)
{
    struct cm_event event;
    uint64_t start = clock_now_ns();
    do {
        assert_true(clock_now_ns() - start < RIG_WAIT_S * 1000000000ull);
        while (!cm_event_take(side->cm, &event)) {
            assert_true(clock_now_ns() - start < RIG_WAIT_S * 1000000000ull);
            usleep(1000);
        }
        assert_ptr_equal(event.identifier, identifier);
    } while (event.kind != CM_EVENT_FAILED && event.kind != CM_EVENT_REJECTED &&
             event.kind != CM_EVENT_DISCONNECTED);
    print_message("# kind %d, status %d: %s\n", event.kind, event.error.status,
                  event.error.message);
    return event.kind;
}

void test_destroy_client_stages(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    for (enum stage stage = STARTED; stage < STAGES; stage++) {
        for (int pause_ms = 0; pause_ms <= 20; pause_ms += 20) {
            struct link link = link_up_to(rig, at_port(place_address(0), listener), stage);
            usleep((useconds_t)pause_ms * 1000);
            cm_destroy(link.client);
            side_expect_silence(&rig->client);
            if (stage == REQUESTED) { /* the request was on its way */
                link.server = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST).identifier;
            }
            if (stage >= ACCEPTED) {
                expect_end(&rig->server, link.server);
            }
            cm_destroy(link.server);
            side_expect_silence(&rig->server);
            drop_queue_pairs(&link);
        }
    }
    cm_destroy(listener);
}

void test_destroy_server_stages(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    for (enum stage stage = ASKED; stage < STAGES; stage++) {
        for (int pause_ms = 0; pause_ms <= 20; pause_ms += 20) {
            struct link link = link_up_to(rig, at_port(place_address(0), listener), stage);
            usleep((useconds_t)pause_ms * 1000);
            cm_destroy(link.server);
            side_expect_silence(&rig->server);
            /* Once accepted, it was a connection, whatever rdma_cm calls its end. */
            assert_int_equal(expect_end(&rig->client, link.client),
                             stage < ACCEPTED ? CM_EVENT_REJECTED : CM_EVENT_DISCONNECTED);
            cm_destroy(link.client);
            side_expect_silence(&rig->client);
            drop_queue_pairs(&link);
        }
    }
    cm_destroy(listener);
}

/* The client gives up before the server accepts: accept says so, or an event after it. */
void test_accept_too_late(void **state)
{
    struct rig *rig = *state;
    crpc_error error = {.struct_size = sizeof(error)};
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    for (int pause_ms = 0; pause_ms <= 20; pause_ms += 20) {
        struct link link = link_up_to(rig, at_port(place_address(0), listener), ASKED);
        cm_destroy(link.client);
        usleep((useconds_t)pause_ms * 1000);
        int32_t status =
            cm_accept(link.server, link.server_queue_pair, &transport, "answer", 7, &error);
        if (status == CRPC_OK) {
            expect_end(&rig->server, link.server);
        } else {
            print_message("# accept: %d: %s\n", status, error.message);
            assert_int_equal(status, CRPC_E_DISCONNECTED);
        }
        cm_destroy(link.server);
        drop_queue_pairs(&link);
    }
    cm_destroy(listener);
}

/* Requests that wait in the queue, in the kernel, or on the wire, when the listener goes. */
void test_destroy_listener(void **state)
{
    struct rig *rig = *state;
    for (int round = 0; round < 10; round++) {
        struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
        struct link links[4];
        for (int i = 0; i < 4; i++) {
            links[i] = link_up_to(rig, at_port(place_address(0), listener), REQUESTED);
        }
        usleep((useconds_t)(round % 5) * 1000);
        cm_destroy(listener);
        side_expect_silence(&rig->server);
        for (int i = 0; i < 4; i++) {
            struct cm_event event = side_expect(&rig->client, CM_EVENT_REJECTED);
            assert_int_equal(event.error.status, CRPC_E_REFUSED);
        }
        for (int i = 0; i < 4; i++) {
            cm_destroy(links[i].client);
            drop_queue_pairs(&links[i]);
        }
    }
}

/* The name server never answers: nobody waits for it, and the thread that does goes in the end. */
void test_destroy_lookup(void **state)
{
    struct side side = {0};
    (void)state;
    if (!file_overlay("/etc/resolv.conf",
                      "nameserver 10.99.0.77\noptions timeout:2 attempts:1\n")) {
        fail_msg("/etc/resolv.conf cannot be overlaid");
    }
    uint32_t threads = count_entries("/proc/self/task");
    uint64_t start = clock_now_ns();
    side_open(&side, place_device(0));
    for (int i = 0; i < 5; i++) {
        struct cm_identifier *identifier = side_connect(&side, "slow.example:7471", NULL);
        usleep((useconds_t)i * 10000);
        cm_destroy(identifier);
        side_expect_silence(&side);
    }
    side_close(&side);
    uint32_t left = count_entries("/proc/self/task") - threads;
    print_message("# %u look-ups still run %llu ms later\n", left,
                  (unsigned long long)(clock_now_ns() - start) / 1000000);
    while (count_entries("/proc/self/task") != threads) {
        assert_true(clock_now_ns() - start < RIG_WAIT_S * 1000000000ull);
        usleep(10000);
    }
}

/* Many at once, destroyed after random times; a fixed seed. */
void test_destroy_races(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    const char *address = at_port(place_address(0), listener);
    struct nic_queue_pair *queue_pairs[4];
    unsigned int seed = 1;
    uint32_t requests = 0;
    for (int round = 0; round < 100; round++) {
        struct cm_identifier *identifiers[4];
        struct cm_event event;
        for (int i = 0; i < 4; i++) {
            queue_pairs[i] = side_queue_pair(&rig->client);
            identifiers[i] = side_connect(&rig->client, address, &queue_pairs[i]);
        }
        usleep((useconds_t)rand_r(&seed) % 4000);
        while (cm_event_take(rig->client.cm, &event)) {
            assert_int_equal(event.kind, CM_EVENT_ROUTED);
            struct nic_queue_pair **queue_pair = event.owner;
            cm_request(event.identifier, *queue_pair, &transport, "ask", 4, NULL);
        }
        usleep((useconds_t)rand_r(&seed) % 4000);
        for (int i = 0; i < 4; i++) {
            cm_destroy(identifiers[i]);
            queue_pair_drop(&queue_pairs[i]);
        }
        /* What comes later than that is no event that the next rounds expect. */
        if (round % 10 == 9) {
            side_expect_silence(&rig->client);
        }
        while (cm_event_take(rig->server.cm, &event)) {
            requests += event.kind == CM_EVENT_CONNECT_REQUEST;
            cm_destroy(event.identifier);
        }
    }
    print_message("# %u requests reached the listener\n", requests);
    cm_destroy(listener);
}

/* A thread that has been joined, or was detached, may be listed for a moment longer; and simnic's thread has
 * a file open now and then. */
static void expect_no_more(const char *folder, uint32_t expected)
{
    uint32_t count = count_entries(folder);
    for (int i = 0; i < 6000 && count > expected; i++) {
        usleep(10000);
        count = count_entries(folder);
    }
    assert_in_range(count, 1, expected);
}

/* Everything that is opened is closed: two hundred times. */
void test_cycles(void **state)
{
    struct rig *rig;
    void *rig_state = NULL;
    (void)state;
    rig_set_up(&rig_state);
    rig_tear_down(&rig_state); /* librdmacm keeps what it opens first */
    uint32_t descriptors = count_entries("/proc/self/fd");
    uint32_t threads = count_entries("/proc/self/task");
    rig_set_up(&rig_state);
    rig = rig_state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    uint32_t open_descriptors = count_entries("/proc/self/fd");
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 200; i++) {
        struct link link = link_up(rig, at_port(place_address(0), listener));
        if (i % 20 == 0) {
            link_prove(rig, &link);
        }
        link_down(rig, &link);
    }
    print_message("# 200 connections in %llu ms\n",
                  (unsigned long long)(clock_now_ns() - start) / 1000000);
    expect_no_more("/proc/self/fd", open_descriptors);
    cm_destroy(listener);
    rig_tear_down(&rig_state);
    expect_no_more("/proc/self/fd", descriptors);
    expect_no_more("/proc/self/task", threads);
}

/* The whole program of a client that is going to be killed. */
void vanishing_client(const char *address)
{
    struct side side = {0};
    side_open(&side, place_device(0));
    struct nic_queue_pair *queue_pair = side_queue_pair(&side);
    struct cm_identifier *identifier = side_connect(&side, address, NULL);
    side_expect(&side, CM_EVENT_ROUTED);
    cm_request(identifier, queue_pair, &transport, "ask", 4, NULL);
    side_expect(&side, CM_EVENT_CONNECT_RESPONSE);
    cm_establish(identifier, queue_pair, &transport, NULL);
    pause();
}

/* A client that is killed: its kernel says so. */
void test_vanished_client(void **state)
{
    struct rig *rig = *state;
    int status;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    const char *address = at_port(place_address(0), listener);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "cm_vm_test", address, (char *)NULL);
        _exit(1);
    }
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->server);
    struct cm_identifier *identifier =
        side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST).identifier;
    assert_int_equal(cm_accept(identifier, queue_pair, &transport, "answer", 7, NULL), CRPC_OK);
    side_expect(&rig->server, CM_EVENT_ESTABLISHED);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    side_expect(&rig->server, CM_EVENT_DISCONNECTED);
    cm_destroy(identifier);
    cm_destroy(listener);
    queue_pair_drop(&queue_pair);
}
