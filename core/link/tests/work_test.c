/* work_test.c: what the cm thread does for a link that connects, and what can happen meanwhile. The
 * thread works when the test says so; it never does so in a poll.
 */
#include "link/internal.h"
#include "rig.h"

#include <string.h>

static const struct nic_completion arrival = {.kind = NIC_COMPLETION_RECEIVE};

/* A link that connects and has been routed; the peer's answer waits to be taken. */
static struct link *connect_one(struct rig *rig)
{
    const struct link_options options = rig_options();
    const struct link_hello hello = {
        .magic = LINK_MAGIC, .version_min = 1, .version_max = 1, .service = LINK_SERVICE_CALLS};
    struct link *link;
    assert_int_equal(link_connect(&rig->group, "192.0.2.2:2", &options, &link, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ROUTED, link->identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    rig_event(rig, CM_EVENT_CONNECT_RESPONSE, link->identifier);
    struct cm_event *event = &rig->cm.events[(rig->cm.tail - 1) % RIG_EVENTS_MAX];
    event->private_bytes = sizeof(hello);
    memcpy(event->private_data, &hello, sizeof(hello));
    return link;
}

/* Likewise, and the thread has been told what to do. */
static struct link *answered_one(struct rig *rig)
{
    struct link *link = connect_one(rig);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    assert_non_null(link->identifier->work);
    return link;
}

static void expect_connected(struct rig *rig, int32_t status)
{
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, status);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    assert_int_equal(rig->cm.in_poll, 0);
}

static void a_poll_neither_allocates_nor_connects(void **state)
{
    struct rig *rig = *state;
    struct link *link = connect_one(rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
        assert_int_equal(rig->cm.in_poll, 0);
        assert_int_equal(link->identifier->established, 0);
        assert_int_equal(link->state, CRPC_STATE_CONNECTING);
    }
    rig_work(link->identifier);
    assert_int_equal(rig->cm.attached, 1);
    assert_int_equal(link->identifier->established, 1);
    expect_connected(rig, CRPC_OK);
    assert_int_equal(link->state, CRPC_STATE_CONNECTED);
}

/* Its first message comes when the thread has made the queue pair ready, before the owner has heard
 * of that. */
static void a_peer_can_be_faster_than_the_thread(void **state)
{
    struct rig *rig = *state;
    for (int done = 0; done < 2; done++) {
        struct link *link = answered_one(rig);
        if (done) {
            rig_work(link->identifier);
        }
        rig->cm.polling = true;
        assert_false(link_take_early(link, &arrival));
        rig->cm.polling = false;
        assert_true(link->opened);
        assert_int_equal(link->identifier->established, 1);
        expect_connected(rig, CRPC_OK); /* once */
    }
}

static void work_that_fails_ends_the_connect(void **state)
{
    struct rig *rig = *state;
    for (int kind = 0; kind < 4; kind++) {
        struct link *link = answered_one(rig);
        rig->cm.attach_status = kind % 2 ? CRPC_OK : CRPC_E_MEMLOCK;
        rig->cm.establish_status = kind % 2 ? CRPC_E_SYSTEM : CRPC_OK;
        if (kind < 2) {
            rig_work(link->identifier);
        } else {
            assert_true(link_take_early(link, &arrival));
        }
        expect_connected(rig, kind % 2 ? CRPC_E_SYSTEM : CRPC_E_MEMLOCK);
        assert_int_equal(link->state, CRPC_STATE_DISCONNECTED);
        assert_false(link->opened);
        link_close(link);
        rig->cm.attach_status = CRPC_OK;
        rig->cm.establish_status = CRPC_OK;
    }
}

/* The thread forgets it, or its result is forgotten. */
static void a_link_that_is_closed_meanwhile_is_gone(void **state)
{
    struct rig *rig = *state;
    for (int done = 0; done < 2; done++) {
        struct link *link = answered_one(rig);
        if (done) {
            rig_work(link->identifier);
        }
        link_close(link);
        assert_int_equal(rig->cm.identifiers, 1); /* the listener's */
        assert_int_equal(rig->cm.attached, 0);
        assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
        assert_false(cm_pending(&rig->cm));
    }
}

static void a_link_that_fails_meanwhile_is_not_revived(void **state)
{
    struct rig *rig = *state;
    for (int kind = 0; kind < 4; kind++) {
        struct link *link = answered_one(rig);
        int32_t status = CRPC_E_DISCONNECTED;
        if (kind % 2) {
            rig->clock_ns += 2 * RIG_CONNECT_TIMEOUT_NS;
            status = CRPC_E_TIMEOUT;
        } else {
            rig_event(rig, CM_EVENT_DISCONNECTED, link->identifier);
        }
        if (kind == 2) {
            rig_work(link->identifier); /* behind it in the queue */
        }
        expect_connected(rig, status);
        assert_false(link->working);
        assert_false(link->opened);
        assert_int_equal(link->state, CRPC_STATE_DISCONNECTED);
        assert_false(cm_pending(&rig->cm));
        link_close(link);
    }
}

/* The teardown closes the group; the service finds that the thread has left its links. */
static void a_group_can_close_meanwhile(void **state)
{
    struct rig *rig = *state;
    struct link *first = answered_one(rig), *second = answered_one(rig);
    rig_work(first->identifier);
    assert_true(first->working && second->working);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(a_poll_neither_allocates_nor_connects),
        ONE(a_peer_can_be_faster_than_the_thread),
        ONE(work_that_fails_ends_the_connect),
        ONE(a_link_that_is_closed_meanwhile_is_gone),
        ONE(a_link_that_fails_meanwhile_is_not_revived),
        ONE(a_group_can_close_meanwhile),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
