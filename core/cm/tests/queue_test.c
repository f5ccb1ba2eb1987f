/* queue_test.c: the queue from the cm thread to the owner. Runs without RDMA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm/internal.h"

struct fixture {
    struct cm cm;
    struct cm_identifier one, two;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->cm.event_fd = eventfd(0, EFD_NONBLOCK);
    pthread_mutex_init(&fixture->cm.mutex, NULL);
    list_init(&fixture->cm.queue);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    struct cm_event event;
    while (cm_event_take(&fixture->cm, &event)) {
    }
    close(fixture->cm.event_fd);
    free(fixture);
    return 0;
}

static bool readable(const struct cm *cm)
{
    struct pollfd wait = {.fd = cm_event_fd(cm), .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
}

static struct cm_event *prepare(struct cm *cm, enum cm_event_kind kind)
{
    cm->spare = calloc(1, sizeof(*cm->spare));
    return cm_spare_event(cm, kind, NULL);
}

static void add(struct cm *cm, enum cm_event_kind kind, struct cm_identifier *subject)
{
    prepare(cm, kind);
    cm_queue_spare(cm, subject);
    assert_null(cm->spare);
}

static void expect(struct cm *cm, enum cm_event_kind kind, void *owner)
{
    struct cm_event event;
    assert_true(readable(cm));
    assert_true(cm_pending(cm));
    assert_true(cm_event_take(cm, &event));
    assert_int_equal(event.kind, kind);
    assert_ptr_equal(event.owner, owner);
}

static void expect_empty(struct cm *cm)
{
    struct cm_event event;
    assert_false(readable(cm));
    assert_false(cm_pending(cm));
    assert_false(cm_event_take(cm, &event));
}

/* First in, first out, and readable just as long as something waits. */
static void test_order(void **state)
{
    struct fixture *fixture = *state;
    struct cm *cm = &fixture->cm;
    expect_empty(cm);
    for (int round = 0; round < 3; round++) {
        add(cm, CM_EVENT_ROUTED, &fixture->one);
        add(cm, CM_EVENT_PORT_DOWN, NULL);
        fixture->one.owner = &round; /* as cm_own may do after the event was queued */
        add(cm, CM_EVENT_DISCONNECTED, &fixture->one);
        expect(cm, CM_EVENT_ROUTED, &round);
        expect(cm, CM_EVENT_PORT_DOWN, NULL);
        expect(cm, CM_EVENT_DISCONNECTED, &round);
        expect_empty(cm);
    }
}

/* The length of private data is a byte on the wire, so the kernel may hand on more than an event
 * holds. */
static void test_long_private_data(void **state)
{
    struct fixture *fixture = *state;
    struct cm *cm = &fixture->cm;
    struct cm_event event;
    uint8_t data[255];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i + 1);
    }
    for (uint32_t bytes = 0; bytes <= sizeof(data); bytes++) {
        uint32_t kept = bytes < CM_PRIVATE_BYTES_MAX ? bytes : CM_PRIVATE_BYTES_MAX;
        const crpc_error untouched = {.struct_size = sizeof(untouched)};
        cm_event_set_private(prepare(cm, CM_EVENT_CONNECT_REQUEST), data, bytes);
        cm_queue_spare(cm, &fixture->one);
        assert_true(cm_event_take(cm, &event));
        assert_int_equal(event.private_bytes, kept);
        assert_memory_equal(event.private_data, data, kept);
        assert_memory_equal(&event.error, &untouched, sizeof(untouched)); /* it lies behind them */
    }
}

/* What a listener has waiting is counted for its backlog. */
static void test_waiting(void **state)
{
    struct fixture *fixture = *state;
    struct cm *cm = &fixture->cm;
    add(cm, CM_EVENT_CONNECT_REQUEST, &fixture->one);
    add(cm, CM_EVENT_CONNECT_REQUEST, &fixture->one);
    add(cm, CM_EVENT_ROUTED, &fixture->two);
    assert_int_equal(fixture->one.waiting, 2);
    expect(cm, CM_EVENT_CONNECT_REQUEST, NULL);
    assert_int_equal(fixture->one.waiting, 1);
    assert_int_equal(fixture->two.waiting, 0);
}

static void test_purge(void **state)
{
    struct fixture *fixture = *state;
    struct cm *cm = &fixture->cm;
    struct list purged;
    add(cm, CM_EVENT_CONNECT_REQUEST, &fixture->one);
    add(cm, CM_EVENT_ROUTED, &fixture->two);
    add(cm, CM_EVENT_CONNECT_REQUEST, &fixture->one);
    cm_queue_purge(cm, &fixture->one, &purged);
    assert_int_equal(fixture->one.waiting, 0);
    for (int i = 0; i < 2; i++) {
        struct queued_event *queued = list_entry(purged.next, struct queued_event, link);
        assert_ptr_equal(queued->subject, &fixture->one);
        list_remove(&queued->link);
        free(queued);
    }
    assert_true(list_empty(&purged));
    expect(cm, CM_EVENT_ROUTED, NULL);
    expect_empty(cm);
}

/* Only the dead queue pair's events go. */
static void test_forget(void **state)
{
    struct fixture *fixture = *state;
    struct cm *cm = &fixture->cm;
    struct cm_event event;
    for (uint32_t i = 0; i < 6; i++) {
        prepare(cm, CM_EVENT_QUEUE_PAIR)->queue_pair_number = 17 + i % 2;
        cm_queue_spare(cm, NULL);
    }
    add(cm, CM_EVENT_PORT_DOWN, NULL);
    cm_forget_queue_pair(cm, 0, 17);
    for (int i = 0; i < 3; i++) {
        assert_true(cm_event_take(cm, &event));
        assert_int_equal(event.queue_pair_number, 18);
    }
    expect(cm, CM_EVENT_PORT_DOWN, NULL);
    expect_empty(cm);
    prepare(cm, CM_EVENT_QUEUE_PAIR)->queue_pair_number = 17;
    cm_queue_spare(cm, NULL);
    cm_forget_queue_pair(cm, 0, 17);
    expect_empty(cm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waiting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_private_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_purge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forget, set_up, tear_down),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
