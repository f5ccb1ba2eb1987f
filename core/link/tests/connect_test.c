/* connect_test.c: peers that stop half way through the handshake. */
#include "link/internal.h"
#include "rig.h"

/* Polls until a little before the connect timeout, then past it. */
static void expect_timeout(struct rig *rig, uint64_t handle)
{
    rig->clock_ns += RIG_CONNECT_TIMEOUT_NS - 1000000;
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    rig->clock_ns += 2000000;
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_E_TIMEOUT);
    assert_int_equal(rig->seen[0].endpoint.bits, handle);
    assert_int_equal(rig->cm.identifiers, 1); /* the listener's */
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
}

static void a_peer_that_is_accepted_and_says_nothing_is_given_up(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct cm_identifier *identifier = rig_request(rig);
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    assert_int_equal(identifier->accepts, 1);
    expect_timeout(rig, thing->link.handle);
    assert_int_equal(link_disconnect(&thing->link, 0), CRPC_E_STATE);
}

static void a_peer_that_never_answers_is_given_up(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct link *link;
    assert_int_equal(link_connect(&rig->group, "192.0.2.2:2", &options, &link, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ROUTED, link->identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    expect_timeout(rig, link->handle);
}

/* What comes from it then belongs to nobody. */
static void a_peer_that_comes_too_late_finds_nobody(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct cm_identifier *identifier = rig_request(rig);
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, &options, NULL), CRPC_OK);
    rig->clock_ns += 2 * RIG_CONNECT_TIMEOUT_NS;
    rig_event(rig, CM_EVENT_DISCONNECTED,
              identifier); /* waits behind the timer: it is taken first */
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_E_DISCONNECTED);
    assert_int_equal(wheel_next_ns(&rig->group.wheel), UINT64_MAX);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(a_peer_that_is_accepted_and_says_nothing_is_given_up),
        ONE(a_peer_that_never_answers_is_given_up),
        ONE(a_peer_that_comes_too_late_finds_nobody),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
