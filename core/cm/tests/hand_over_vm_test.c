/* hand_over_vm_test.c: requests that go to another cm, whose owner may be another thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "cm/internal.h"
#include "place.h"
#include "rig.h"
#include "vm_tests.h"

#define USER_DATA UINT64_C(0xfedcba9876543210)
#define ROUNDS 60

static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};

/* The owner that identifiers have until they are taken. */
static int receiver;

/* A client that has asked, and the request at the side that listens. */
static struct link ask(struct rig *rig, struct side *listening,
                       const struct cm_identifier *listener)
{
    struct link link = {.client_queue_pair = side_queue_pair(&rig->client),
                        .client =
                            side_connect(&rig->client, at_port(place_address(0), listener), NULL)};
    side_expect(&rig->client, CM_EVENT_ROUTED);
    assert_int_equal(cm_request(link.client, link.client_queue_pair, &transport, "ask", 4, NULL),
                     CRPC_OK);
    link.server = side_expect(listening, CM_EVENT_CONNECT_REQUEST).identifier;
    return link;
}

static int32_t hand_over(struct cm_identifier *identifier, struct side *to)
{
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = cm_hand_over(identifier, to->cm, &receiver, USER_DATA, "ask", 4, &error);
    if (status != CRPC_OK) {
        print_message("# %s\n", error.message);
    }
    return status;
}

static struct cm_identifier *take(struct side *side)
{
    struct cm_event event = side_expect(side, CM_EVENT_HANDED_OVER);
    assert_ptr_equal(event.owner, &receiver);
    assert_true(event.user_data == USER_DATA);
    assert_true(event.private_bytes >= 4 && memcmp(event.private_data, "ask", 4) == 0);
    return event.identifier;
}

/* The cm that it comes from is closed before the connection is made. */
void test_hand_over_connects(void **state)
{
    struct rig *rig = *state;
    struct side first;
    char owner;
    side_open(&first, place_device(0));
    struct cm_identifier *listener = side_listen(&first, place_at(0, "0"), NULL);
    struct link link = ask(rig, &first, listener);
    assert_int_equal(hand_over(link.server, &rig->server), CRPC_OK);
    side_expect_silence(&first);
    cm_destroy(listener);
    side_close(&first);

    link.server = take(&rig->server);
    cm_own(link.server, &owner);
    link.server_queue_pair = side_queue_pair(&rig->server);
    assert_int_equal(cm_accept(link.server, link.server_queue_pair, &transport, "answer", 7, NULL),
                     CRPC_OK);
    assert_int_equal(rig->server.cm->handed_over, 0);
    side_expect(&rig->client, CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(cm_establish(link.client, link.client_queue_pair, &transport, NULL), CRPC_OK);
    assert_ptr_equal(side_expect(&rig->server, CM_EVENT_ESTABLISHED).owner, &owner);
    link_prove(rig, &link);
    link_down(rig, &link);
}

/* As with requests that were not handed over: the kernel tells of it when they are accepted. */
static void expect_given_up(struct rig *rig, struct cm_identifier *identifier)
{
    struct nic_queue_pair *queue_pair = side_queue_pair(&rig->foreign);
    crpc_error error = {.struct_size = sizeof(error)};
    int32_t status = cm_accept(identifier, queue_pair, &transport, NULL, 0, &error);
    if (status == CRPC_OK) { /* it has crossed the end */
        struct cm_event event = side_expect(&rig->foreign, CM_EVENT_FAILED);
        assert_ptr_equal(event.identifier, identifier);
        status = event.error.status;
    }
    assert_int_equal(status, CRPC_E_DISCONNECTED);
    cm_destroy(identifier);
    queue_pair_drop(&queue_pair);
    assert_int_equal(rig->foreign.cm->identifiers + rig->foreign.cm->handed_over, 0);
}

/* rig->foreign, at the port of the other two. */
static void move_foreign(struct rig *rig)
{
    side_close(&rig->foreign);
    side_open(&rig->foreign, place_device(0));
}

/* Whether the peer gives up before or behind. */
void test_hand_over_given_up(void **state)
{
    struct rig *rig = *state;
    move_foreign(rig);
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    for (int before = 0; before < 2; before++) {
        struct link link = ask(rig, &rig->server, listener);
        if (before) {
            cm_destroy(link.client);
        }
        assert_int_equal(hand_over(link.server, &rig->foreign), CRPC_OK);
        struct cm_identifier *identifier = take(&rig->foreign);
        if (!before) {
            cm_destroy(link.client);
        }
        expect_given_up(rig, identifier);
        queue_pair_drop(&link.client_queue_pair);
    }
    side_expect_silence(&rig->server);
    side_expect_silence(&rig->foreign);
    cm_destroy(listener);
}

/* Destroys what it is told to, as soon as it is told. */
struct leaver {
    _Atomic(struct cm_identifier *) client;
    atomic_uint left; /* so many are destroyed, with their events */
    atomic_bool stop;
};

static void *leave(void *argument)
{
    struct leaver *leaver = argument;
    while (!atomic_load(&leaver->stop)) {
        struct cm_identifier *client = atomic_exchange(&leaver->client, NULL);
        if (client) {
            cm_destroy(client);
            atomic_fetch_add(&leaver->left, 1);
        }
    }
    return NULL;
}

/* The peer gives up at any moment of it. */
void test_hand_over_races(void **state)
{
    struct rig *rig = *state;
    struct leaver leaver = {NULL, 0, false};
    pthread_t thread;
    move_foreign(rig);
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    assert_int_equal(pthread_create(&thread, NULL, leave, &leaver), 0);
    for (useconds_t i = 0; i < ROUNDS; i++) {
        struct link link = ask(rig, &rig->server, listener);
        atomic_store(&leaver.client, link.client);
        usleep(i * 10);
        assert_int_equal(hand_over(link.server, &rig->foreign), CRPC_OK);
        expect_given_up(rig, take(&rig->foreign));
        /* The client may have a response, which goes with it: the next one is not to meet it. */
        while (atomic_load(&leaver.left) == i) {
            usleep(100);
        }
        queue_pair_drop(&link.client_queue_pair);
    }
    atomic_store(&leaver.stop, true);
    pthread_join(thread, NULL);
    cm_destroy(listener);
}

/* Hands back whatever comes, so many times. */
struct player {
    struct side *side;
    struct side *other;
    uint32_t turns;
};

static void *play(void *argument)
{
    struct player *player = argument;
    while (player->turns-- > 0) {
        assert_int_equal(hand_over(take(player->side), player->other), CRPC_OK);
    }
    return NULL;
}

/* Two owners hand over to each other at the same time: neither waits for the other. */
void test_hand_over_both_ways(void **state)
{
    struct rig *rig = *state;
    pthread_t thread;
    move_foreign(rig);
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct link links[4];
    for (int i = 0; i < 4; i++) {
        links[i] = ask(rig, &rig->server, listener);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(hand_over(links[i].server, &rig->foreign), CRPC_OK);
    }
    struct player ours = {.side = &rig->server, .other = &rig->foreign, .turns = ROUNDS};
    struct player theirs = {.side = &rig->foreign, .other = &rig->server, .turns = ROUNDS};
    assert_int_equal(pthread_create(&thread, NULL, play, &theirs), 0);
    play(&ours);
    pthread_join(thread, NULL);
    assert_int_equal(rig->foreign.cm->handed_over + rig->server.cm->handed_over, 4);
    for (int i = 0; i < 4; i++) {
        struct cm_identifier *identifier = take(&rig->foreign);
        cm_reject(identifier, NULL, 0);
        cm_destroy(identifier);
    }
    for (int i = 0; i < 4; i++) {
        struct cm_identifier *client = side_expect(&rig->client, CM_EVENT_REJECTED).identifier;
        cm_destroy(client);
        queue_pair_drop(&links[i].client_queue_pair);
    }
    assert_int_equal(rig->foreign.cm->identifiers + rig->client.cm->identifiers, 0);
    cm_destroy(listener);
}

/* What cannot go stays as it was. */
void test_hand_over_refused(void **state)
{
    struct rig *rig = *state;
    struct side third;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct link link = ask(rig, &rig->server, listener);
    assert_int_equal(hand_over(link.server, &rig->foreign), CRPC_E_NO_DEVICE);
    side_open(&third, place_device(0));
    third.cm->handed_over = CM_HANDED_OVER_MAX;
    assert_int_equal(hand_over(link.server, &third), CRPC_E_NO_RESOURCE);
    third.cm->handed_over = 0;
    side_expect_silence(&third);
    side_close(&third);
    link.server_queue_pair = side_queue_pair(&rig->server);
    assert_int_equal(cm_accept(link.server, link.server_queue_pair, &transport, "answer", 7, NULL),
                     CRPC_OK);
    side_expect(&rig->client, CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(cm_establish(link.client, link.client_queue_pair, &transport, NULL), CRPC_OK);
    side_expect(&rig->server, CM_EVENT_ESTABLISHED);
    link_down(rig, &link);
    cm_destroy(listener);
}

/* No kernel tells anything of a request before the accept. What it told all the same has no owner in the first thread. */
void test_hand_over_drops_early_events(void **state)
{
    struct rig *rig = *state;
    struct cm *cm = rig->server.cm;
    move_foreign(rig);
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct link link = ask(rig, &rig->server, listener);
    struct queued_event *early = calloc(1, sizeof(*early));
    assert_non_null(early);
    early->subject = link.server;
    early->event = (struct cm_event){.kind = CM_EVENT_FAILED, .identifier = link.server};
    pthread_mutex_lock(&cm->mutex);
    cm_queue_append(cm, early);
    pthread_mutex_unlock(&cm->mutex);
    assert_int_equal(hand_over(link.server, &rig->foreign), CRPC_OK);
    side_expect_silence(&rig->server);
    cm_destroy(take(&rig->foreign));
    side_expect(&rig->client, CM_EVENT_REJECTED);
    cm_destroy(link.client);
    queue_pair_drop(&link.client_queue_pair);
    cm_destroy(listener);
}

/* A cm that is closed rejects what its owner has not taken. */
void test_hand_over_not_taken(void **state)
{
    struct rig *rig = *state;
    int another;
    move_foreign(rig);
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct link link = ask(rig, &rig->server, listener);
    assert_int_equal(hand_over(link.server, &rig->foreign), CRPC_OK);
    cm_hand_over_reject(rig->foreign.cm, &another);
    assert_int_equal(rig->foreign.cm->identifiers, 1);
    cm_hand_over_reject(rig->foreign.cm, &receiver);
    assert_int_equal(rig->foreign.cm->identifiers, 0);
    assert_int_equal(rig->foreign.cm->handed_over, 0);
    side_expect(&rig->client, CM_EVENT_REJECTED);
    cm_destroy(link.client);
    queue_pair_drop(&link.client_queue_pair);
    cm_destroy(listener);
}
