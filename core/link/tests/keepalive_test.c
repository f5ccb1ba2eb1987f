/* keepalive_test.c: how often a peer is probed: soon while something of it is awaited, slowly while the
 * link is idle, and not at all if the application does not want it.
 */
#include "link/internal.h"
#include "rig.h"

#define KEEPALIVE_NS UINT64_C(1000000000)

static struct thing *connect_with(struct rig *rig, uint64_t keepalive_ns)
{
    struct link_options options = rig_options();
    options.keepalive_ns = keepalive_ns;
    return rig_connect(rig, &options);
}

/* Lets time pass in steps of a tenth of the keepalive interval, polling. */
static void wait_intervals(struct rig *rig, uint32_t intervals)
{
    for (uint32_t i = 0; i < intervals * 10; i++) {
        rig->clock_ns += KEEPALIVE_NS / 10;
        assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 0);
    }
}

static void an_idle_peer_is_probed_slowly(void **state)
{
    struct rig *rig = *state;
    const struct thing *thing = connect_with(rig, KEEPALIVE_NS);
    wait_intervals(rig, LINK_IDLE_INTERVALS - 1);
    assert_int_equal(thing->probes, 0);
    wait_intervals(rig, 2);
    assert_int_equal(thing->probes, 1);
    wait_intervals(rig, 10 * LINK_IDLE_INTERVALS);
    assert_in_range(thing->probes, 10, 11);
}

/* Whoever sleeps is woken for it, and for nothing else. */
static void the_next_probe_is_the_next_deadline(void **state)
{
    struct rig *rig = *state;
    connect_with(rig, KEEPALIVE_NS);
    uint64_t deadline_ns = wheel_next_ns(&rig->group.wheel);
    /* A wheel looks in between where its slots are wide. */
    for (uint32_t looks = 0; deadline_ns < rig->clock_ns + KEEPALIVE_NS; looks++) {
        assert_in_range(looks, 0, WHEEL_LEVELS);
        rig->clock_ns = deadline_ns;
        rig_poll(rig, 1);
        deadline_ns = wheel_next_ns(&rig->group.wheel);
    }
    assert_int_not_equal(deadline_ns, UINT64_MAX);
}

static void a_peer_of_whom_something_is_awaited_is_probed_soon(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, KEEPALIVE_NS);
    wait_intervals(rig, 3);
    thing->awaits = true;
    link_start_keepalive(&thing->link);
    wait_intervals(rig, 2);
    assert_in_range(thing->probes, 1, 2);
    link_start_keepalive(&thing->link); /* again: it puts nothing off */
    wait_intervals(rig, 8);
    assert_in_range(thing->probes, 9, 10);
    thing->awaits = false;
    wait_intervals(rig, 2);
    uint32_t probes = thing->probes;
    wait_intervals(rig, LINK_IDLE_INTERVALS - 2);
    assert_int_equal(thing->probes, probes);
    wait_intervals(rig, 3);
    assert_int_equal(thing->probes, probes + 1);
}

static void a_peer_that_is_heard_is_not_probed(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, KEEPALIVE_NS);
    for (uint32_t i = 0; i < 5 * LINK_IDLE_INTERVALS; i++) {
        thing->link.heard++;
        wait_intervals(rig, 1);
    }
    assert_int_equal(thing->probes, 0);
}

static void without_keepalive_nobody_is_probed(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, CRPC_FOREVER);
    thing->awaits = true;
    link_start_keepalive(&thing->link);
    wait_intervals(rig, 5 * LINK_IDLE_INTERVALS);
    assert_int_equal(thing->probes, 0);
    assert_int_equal(wheel_next_ns(&rig->group.wheel), UINT64_MAX);
}

/* So long an interval that ten of them are more than there is. */
static void a_keepalive_of_centuries_is_no_short_one(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, UINT64_MAX / 2);
    wait_intervals(rig, 5 * LINK_IDLE_INTERVALS);
    thing->awaits = true;
    link_start_keepalive(&thing->link);
    wait_intervals(rig, 5 * LINK_IDLE_INTERVALS);
    assert_int_equal(thing->probes, 0);
}

/* A program that polls all the time and has idle links only does not read the clock in each poll. What
 * else has a deadline is as punctual as ever. */
static void polls_of_idle_links_rarely_read_the_clock(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, KEEPALIVE_NS);
    struct link_options options = rig_options();
    rig_poll(rig, 1);
    rig->clock_ns += LINK_IDLE_INTERVALS * KEEPALIVE_NS + KEEPALIVE_NS / 10;
    uint32_t polls = 1;
    for (link_expire(&rig->group); thing->probes == 0; polls++) {
        rig->group.now_ns = 0;
        link_expire(&rig->group);
        assert_in_range(polls, 1, LINK_LAZY_POLLS);
    }
    assert_in_range(polls, LINK_LAZY_POLLS - 1, LINK_LAZY_POLLS);
    rig_request(rig);
    struct thing *other = rig_take_request(rig);
    assert_int_equal(link_accept(&other->link, &options, NULL), CRPC_OK);
    rig->clock_ns += RIG_CONNECT_TIMEOUT_NS + 1000000;
    rig->group.now_ns = 0;
    link_expire(&rig->group);
    assert_int_equal(other->link.state, CRPC_STATE_DISCONNECTED);
    link_close(&other->link);
    assert_int_equal(rig->group.idle_timers, 1);
    link_close(&thing->link);
    assert_int_equal(rig->group.idle_timers, 0);
}

/* The timer of the link is that of its leave now. */
static void a_leave_keeps_its_time_limit(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, KEEPALIVE_NS);
    assert_int_equal(link_disconnect(&thing->link, 20 * KEEPALIVE_NS), CRPC_OK);
    link_start_keepalive(&thing->link);
    wait_intervals(rig, 19);
    rig->clock_ns += 2 * KEEPALIVE_NS;
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_DISCONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_E_TIMEOUT);
}

static void a_leave_without_limit_probes_soon(void **state)
{
    struct rig *rig = *state;
    struct thing *thing = connect_with(rig, KEEPALIVE_NS);
    thing->awaits = true;
    assert_int_equal(link_disconnect(&thing->link, CRPC_FOREVER), CRPC_OK);
    wait_intervals(rig, 5);
    assert_in_range(thing->probes, 4, 5);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        ONE(an_idle_peer_is_probed_slowly),
        ONE(the_next_probe_is_the_next_deadline),
        ONE(a_peer_of_whom_something_is_awaited_is_probed_soon),
        ONE(a_peer_that_is_heard_is_not_probed),
        ONE(without_keepalive_nobody_is_probed),
        ONE(a_keepalive_of_centuries_is_no_short_one),
        ONE(polls_of_idle_links_rarely_read_the_clock),
        ONE(a_leave_keeps_its_time_limit),
        ONE(a_leave_without_limit_probes_soon),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
