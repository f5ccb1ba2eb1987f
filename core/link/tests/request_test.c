/* request_test.c: requests of strangers: many at once, and those whose peers have given up. */
#include <string.h>

#include "link/internal.h"
#include "rig.h"

#define FLOOD 300u

/* ---- Floods ---------------------------------------------------------------------------------- */

/* Each one costs a poll system calls, and the connections that there are must not wait for all. */
static void a_flood_of_requests_is_taken_a_few_at_a_time(void **state)
{
    struct rig *rig = *state;
    crpc_listener_info info;
    uint32_t polls = 0, taken = 0, completions = 0;
    for (uint32_t i = 0; i < FLOOD; i++) {
        rig_request(rig);
    }
    while (link_something_waits(&rig->group)) { /* nobody sleeps meanwhile */
        completions += rig_poll(rig, RIG_COMPLETIONS);
        link_listener_info(rig->listener, &info);
        assert_in_range(info.requests - taken, taken < FLOOD, 32);
        taken = (uint32_t)info.requests;
        assert_in_range(++polls, 1, FLOOD);
    }
    assert_int_equal(taken, FLOOD);
    assert_int_equal(completions, 128); /* the backlog */
    assert_int_equal(info.refused, FLOOD - 128);
    assert_int_equal(rig->cm.rejects, FLOOD - 128);
}

/* ---- Events of the device -------------------------------------------------------------------- */

/* However many come at once, and however few fit a poll. */
static void no_event_of_the_device_is_lost(void **state)
{
    struct rig *rig = *state;
    static const uint32_t capacities[] = {1, 5, RIG_COMPLETIONS};
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        const uint32_t count = 33;
        uint32_t told = 0;
        for (uint32_t event = 0; event < count; event++) {
            rig_event(rig, CM_EVENT_QUEUE_PAIR, NULL);
            rig->cm.events[(rig->cm.tail - 1) % RIG_EVENTS_MAX].queue_pair_number = event;
        }
        while (link_something_waits(&rig->group)) {
            assert_int_not_equal(rig_poll(rig, capacities[i]), 0);
            for (uint32_t j = 0; j < rig->seen_count; j++) {
                assert_int_equal(rig->seen[j].kind, CRPC_COMPLETION_DEVICE);
                assert_int_equal(rig->seen[j].status, told++);
            }
        }
        assert_int_equal(told, count);
    }
}

/* ---- Peers that give up ---------------------------------------------------------------------- */

static struct thing *given_up_request(struct rig *rig)
{
    struct cm_identifier *identifier = rig_request(rig);
    struct thing *thing = rig_take_request(rig);
    rig_event(rig, CM_EVENT_FAILED, identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    assert_int_equal(thing->link.state, CRPC_STATE_DISCONNECTED);
    return thing;
}

static void expect_gone(struct rig *rig, uint64_t handle)
{
    assert_null(handles_get(&rig->handles, handle, HANDLE_ENDPOINT));
    assert_true(list_empty(&rig->group.all));
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    assert_int_equal(rig->cm.rejects, 0); /* there is nobody to tell */
}

static void a_request_that_was_given_up_ends_when_it_is_rejected(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct thing *thing = given_up_request(rig);
    uint64_t handle = thing->link.handle;
    crpc_error error = {.struct_size = sizeof(error)};
    assert_int_equal(link_accept(&thing->link, &options, &error), CRPC_E_STATE);
    assert_non_null(strstr(error.message, "no connect request"));
    assert_int_equal(link_reject(&thing->link, 7), CRPC_OK);
    expect_gone(rig, handle);
}

static void a_request_that_was_given_up_ends_when_it_is_closed(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = given_up_request(rig);
    uint64_t handle = thing->link.handle;
    link_close(&thing->link);
    expect_gone(rig, handle);
}

/* Its listener may be gone by then. */
static void a_request_that_was_given_up_outlives_its_listener(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = given_up_request(rig);
    uint64_t handle = thing->link.handle;
    link_listener_close(rig->listener);
    assert_ptr_equal(handles_get(&rig->handles, handle, HANDLE_ENDPOINT), &thing->link);
    assert_int_equal(link_reject(&thing->link, 0), CRPC_OK);
    expect_gone(rig, handle);
}

/* Only a request can be rejected: an accepted link that has ended is closed. */
static void what_was_accepted_is_not_rejected(void **state)
{
    struct rig *rig = *state;
    const struct link_options options = rig_options();
    struct thing *thing = rig_connect(rig, &options);
    assert_int_equal(link_reject(&thing->link, 0), CRPC_E_STATE);
    rig_event(rig, CM_EVENT_DISCONNECTED, thing->link.identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(link_reject(&thing->link, 0), CRPC_E_STATE);
}

/* A peer that asks and gives up, again and again, uses up the backlog and not the handles. */
static void requests_that_were_given_up_count_for_the_backlog(void **state)
{
    struct rig *rig = *state;
    crpc_listener_info info;
    struct thing *things[128];
    for (uint32_t i = 0; i < 128; i++) {
        things[i] = given_up_request(rig);
    }
    rig_request(rig);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    link_listener_info(rig->listener, &info);
    assert_int_equal(info.refused, 1);
    for (uint32_t i = 0; i < 128; i++) {
        assert_int_equal(link_reject(&things[i]->link, 0), CRPC_OK);
    }
    rig_request(rig);
    rig_take_request(rig);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(a_flood_of_requests_is_taken_a_few_at_a_time),
        ONE(no_event_of_the_device_is_lost),
        ONE(a_request_that_was_given_up_ends_when_it_is_rejected),
        ONE(a_request_that_was_given_up_ends_when_it_is_closed),
        ONE(a_request_that_was_given_up_outlives_its_listener),
        ONE(what_was_accepted_is_not_rejected),
        ONE(requests_that_were_given_up_count_for_the_backlog),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
