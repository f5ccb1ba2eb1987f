/* request_test.c: requests of strangers, many at once. */
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

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(a_flood_of_requests_is_taken_a_few_at_a_time),
        ONE(no_event_of_the_device_is_lost),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
