/* work_vm_test.c: what the owner has the cm thread do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "place.h"
#include "rig.h"
#include "vm_tests.h"

#define SLOWLY_US 50000

static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};

/* A piece of work that a test can follow and hold up. */
struct work {
    const struct link *link; /* NULL: it connects nothing */
    atomic_bool begun;
    atomic_bool may_end;
    atomic_bool ended;
    int32_t status;
};

static int32_t work(void *argument, crpc_error *error)
{
    struct work *work = argument;
    int32_t status = work->status;
    atomic_store(&work->begun, true);
    while (!atomic_load(&work->may_end)) {
        usleep(100);
    }
    if (work->link) {
        status = cm_establish(work->link->client, work->link->client_queue_pair, &transport, error);
    } else if (status != CRPC_OK) {
        error_set(error, status, 0, "as the test wants");
    }
    usleep(SLOWLY_US);
    atomic_store(&work->ended, true);
    return status;
}

static struct cm_identifier *routed(struct rig *rig, const struct cm_identifier *listener)
{
    struct cm_identifier *identifier =
        side_connect(&rig->client, at_port(place_address(0), listener), rig);
    side_expect(&rig->client, CM_EVENT_ROUTED);
    return identifier;
}

/* The queue pair that the thread connects works. */
void test_work_connects(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct link link = {.client = routed(rig, listener),
                        .client_queue_pair = side_queue_pair(&rig->client),
                        .server_queue_pair = side_queue_pair(&rig->server)};
    struct work connects = {.link = &link, .may_end = true};
    assert_int_equal(cm_request(link.client, link.client_queue_pair, &transport, "ask", 4, NULL),
                     CRPC_OK);
    link.server = side_expect(&rig->server, CM_EVENT_CONNECT_REQUEST).identifier;
    assert_int_equal(cm_accept(link.server, link.server_queue_pair, &transport, "answer", 7, NULL),
                     CRPC_OK);
    side_expect(&rig->client, CM_EVENT_CONNECT_RESPONSE);
    cm_run(link.client, work, &connects);
    struct cm_event event = side_expect(&rig->client, CM_EVENT_RAN);
    assert_int_equal(event.error.status, CRPC_OK);
    assert_ptr_equal(event.identifier, link.client);
    assert_ptr_equal(event.owner, rig);
    assert_true(connects.ended);
    side_expect(&rig->server, CM_EVENT_ESTABLISHED);
    link_prove(rig, &link);
    link_down(rig, &link);
    cm_destroy(listener);
}

void test_work_can_be_waited_for(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct cm_identifier *identifier = routed(rig, listener);
    for (int i = 0; i < 4; i++) {
        struct work one = {.may_end = true, .status = i % 2 ? CRPC_E_MEMLOCK : CRPC_OK};
        crpc_error error = {0};
        cm_run(identifier, work, &one);
        if (i >= 2) { /* its event is there already */
            while (!cm_pending(rig->client.cm)) {
                usleep(100);
            }
        }
        assert_int_equal(cm_run_wait(identifier, &error), one.status);
        assert_int_equal(error.status, one.status);
        assert_true(one.ended);
        side_expect_silence(&rig->client);
    }
    cm_destroy(identifier);
    cm_destroy(listener);
}

/* What it uses may be freed after cm_destroy. */
void test_destroy_waits_for_work(void **state)
{
    struct rig *rig = *state;
    struct cm_identifier *listener = side_listen(&rig->server, place_at(0, "0"), NULL);
    struct cm_identifier *first = routed(rig, listener), *second = routed(rig, listener);
    struct work under_way = {.may_end = false}, not_begun = {.may_end = true};
    cm_run(first, work, &under_way);
    while (!atomic_load(&under_way.begun)) {
        usleep(100);
    }
    cm_run(second, work, &not_begun);
    cm_destroy(second); /* the thread is busy, and this does not wait */
    atomic_store(&under_way.may_end, true);
    cm_destroy(first);
    assert_true(under_way.ended);
    side_expect_silence(&rig->client);
    assert_false(not_begun.begun);
    cm_destroy(listener);
}
