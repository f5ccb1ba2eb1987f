/* slow_test.c: peers whose addresses take long to find, or are not found: what a context does meanwhile for
 * everybody else. One process with two contexts that meet by blobs; hold.h makes the time pass.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "footprint.h"
#include "hold.h"
#include "pair.h"
#include "place.h"

/* ---- Slow ------------------------------------------------------------------------------------ */

/* The passive side connects the rail first, then it answers, and the active side connects it. */
static void a_rail(uint32_t which)
{
    struct pair *endpoint, *channel;
    pairs_open_with_others(&endpoint, &channel);
    hold_next(1, which, 1, 0);
    struct pair *slow = pair_connected(true); /* without its second rail */
    UNTIL(hold_count() == 1);
    pairs_go_on(endpoint, channel);
    pair_messages(slow);
    assert_int_equal(pair_rail_bytes(slow, 1), 0);
    assert_int_equal(pair_rail_state(slow, 0, 1), CRPC_RAIL_DOWN);
    assert_int_equal(pair_rail_state(slow, 1, 1), CRPC_RAIL_DOWN);
    hold_release();
    pair_await_rails(slow);
    pair_messages(slow);
    assert_true(pair_rail_bytes(slow, 1) > 0);
    pairs_close();
}

static void the_rail_that_a_peer_offers(void **state)
{
    (void)state;
    a_rail(0);
}

static void the_rail_that_a_peer_answers_with(void **state)
{
    (void)state;
    a_rail(1);
}

/* Both ends are held: one alone would send to the other in vain, and lose the connection. */
static struct pair *join_slowly(bool channel, int os_error)
{
    struct pair *slow = pair_make(channel);
    hold_next(0, 0, 2, os_error);
    pair_join(slow, 0);
    pair_join(slow, 1);
    if (hold_complaint()) {
        fail_msg("%s", hold_complaint());
    }
    assert_true(hold_wait(2));
    return slow;
}

static void a_join(bool of_channel)
{
    struct pair *endpoint, *channel;
    pairs_open_with_others(&endpoint, &channel);
    struct pair *slow = join_slowly(of_channel, 0);
    pairs_go_on(endpoint, channel);
    assert_int_equal(slow->seen[0].connected + slow->seen[1].connected, 0);
    hold_release();
    pair_await_connected(slow);
    if (of_channel) {
        pair_messages(slow);
    } else {
        pair_round_trips(slow);
    }
    pairs_close();
}

static void a_join_of_an_endpoint(void **state)
{
    (void)state;
    a_join(false);
}

static void a_join_of_a_channel(void **state)
{
    (void)state;
    a_join(true);
}

/* ---- Closed meanwhile ------------------------------------------------------------------------ */

/* Their queue pairs go when they have been connected. */
static void closed_while_it_joins(bool of_channel)
{
    struct pair *endpoint, *channel;
    pairs_open_with_others(&endpoint, &channel);
    struct pair *slow = join_slowly(of_channel, 0);
    pair_close_end(slow, 0);
    pair_close_end(slow, 1);
    pairs_go_on(endpoint, channel);
    assert_int_equal(hold_left(), 2);
    hold_release();
    UNTIL(hold_left() == 0);
    assert_int_equal(slow->seen[0].connected + slow->seen[1].connected, 0);
    pairs_go_on(endpoint, channel);
    pairs_close();
}

static void an_endpoint_is_closed(void **state)
{
    (void)state;
    closed_while_it_joins(false);
}

static void a_channel_is_closed(void **state)
{
    (void)state;
    closed_while_it_joins(true);
}

/* Open ops of both ends: three receives, and a send for which the peer has no receive. */
#define OPEN_RECEIVES 3u

static void leave_ops_open(struct pair *pair)
{
    for (uint32_t side = 0; side < 2; side++) {
        for (uint64_t i = 1; i <= OPEN_RECEIVES; i++) {
            pair_submit(pair, side, CRPC_CHANNEL_RECEIVE, 1, i);
        }
        pair_submit(pair, side, CRPC_CHANNEL_SEND, 2, OPEN_RECEIVES + 1);
    }
}

static bool all_ended(const struct pair *pair, uint32_t side)
{
    for (uint64_t i = 1; i <= OPEN_RECEIVES + 1; i++) {
        if (pair->seen[side].ended[i] == 0) {
            return false;
        }
    }
    return true;
}

static void expect_ended_once(const struct pair *pair, uint32_t side)
{
    for (uint64_t i = 1; i <= OPEN_RECEIVES + 1; i++) {
        assert_int_equal(pair->seen[side].ended[i], 1);
        assert_int_equal(pair->seen[side].status[i], CRPC_E_CLOSED);
    }
}

static void closed_while_its_rail_comes(uint32_t which)
{
    struct pair *endpoint, *channel;
    pairs_open_with_others(&endpoint, &channel);
    hold_next(1, which, 1, 0);
    struct pair *slow = pair_connected(true);
    UNTIL(hold_count() == 1);
    leave_ops_open(slow);
    pair_close_end(slow, 0);
    pair_close_end(slow, 1);
    UNTIL(all_ended(slow, 0) && all_ended(slow, 1));
    pairs_go_on(endpoint, channel);
    assert_int_equal(hold_left(), 1);
    hold_release();
    UNTIL(hold_left() == 0);
    pairs_expect_sleep();
    expect_ended_once(slow, 0);
    expect_ended_once(slow, 1);
    pairs_close();
}

static void a_channel_is_closed_whose_rail_comes(void **state)
{
    (void)state;
    closed_while_its_rail_comes(0);
    closed_while_its_rail_comes(1);
}

/* ---- Contexts that are closed ---------------------------------------------------------------- */

static struct {
    char stat[64]; /* of the thread that closes */
    atomic_bool closed;
    bool released_before;
} closing;

static bool is_asleep(void)
{
    char line[256] = "", *end;
    FILE *file = fopen(closing.stat, "re");
    bool read = file && fgets(line, sizeof(line), file);
    if (file) {
        fclose(file);
    }
    end = strrchr(line, ')');
    return read && end && end[1] == ' ' && end[2] == 'S';
}

/* Releases once the close sleeps, and has slept at 20 looks. Or at its end, which comes too early. */
static void *release_later(void *argument)
{
    (void)argument;
    for (uint32_t asleep = 0; asleep < 20 && !atomic_load(&closing.closed);) {
        usleep(1000);
        asleep = is_asleep() ? asleep + 1 : 0;
    }
    closing.released_before = !atomic_load(&closing.closed);
    hold_release();
    return NULL;
}

/* One end joins and is held; the other does not join. */
static void the_context_is_closed_while_it_joins(bool of_channel, bool closed_before)
{
    pthread_t helper;
    pairs_open();
    struct pair *slow = pair_make(of_channel);
    hold_next(0, 0, 1, 0);
    pair_join(slow, 0);
    if (hold_complaint()) {
        fail_msg("%s", hold_complaint());
    }
    assert_true(hold_wait(1));
    if (closed_before) {
        pair_close_end(slow, 0);
        pairs_expect_sleep();
    }
    snprintf(closing.stat, sizeof(closing.stat), "/proc/self/task/%d/stat", (int)gettid());
    atomic_store(&closing.closed, false);
    assert_int_equal(pthread_create(&helper, NULL, release_later, NULL), 0);
    int32_t status = crpc_context_close(pairs_contexts[0]);
    atomic_store(&closing.closed, true);
    uint32_t left = hold_left();
    assert_int_equal(pthread_join(helper, NULL), 0);
    assert_int_equal(status, CRPC_OK);
    assert_true(closing.released_before);
    assert_int_equal(left, 0);
    assert_null(hold_complaint());
    assert_int_equal(crpc_context_close(pairs_contexts[1]), CRPC_OK);
}

static void a_context_is_closed(void **state)
{
    (void)state;
    /* Also what simnic itself keeps is there from the first time on. */
    the_context_is_closed_while_it_joins(false, false);
    struct footprint before = footprint();
    the_context_is_closed_while_it_joins(false, false);
    the_context_is_closed_while_it_joins(false, true);
    the_context_is_closed_while_it_joins(true, false);
    the_context_is_closed_while_it_joins(true, true);
    assert_true(footprint_no_more_is_open(&before));
}

/* ---- Addresses that nobody has --------------------------------------------------------------- */

static void nobody_has_the_address(bool of_channel, int os_error)
{
    struct pair *endpoint, *channel;
    pairs_open_with_others(&endpoint, &channel);
    struct pair *slow = join_slowly(of_channel, os_error);
    pair_round_trips(endpoint);
    hold_release();
    UNTIL(slow->seen[0].connected && slow->seen[1].connected);
    for (uint32_t side = 0; side < 2; side++) {
        crpc_error error = pair_error(slow, side);
        assert_int_equal(slow->seen[side].connected, 1);
        assert_int_equal(slow->seen[side].connected_status, CRPC_E_UNREACHABLE);
        assert_int_equal(error.status, CRPC_E_UNREACHABLE);
        assert_int_equal(error.os_error, os_error);
        print_message("# %s\n", error.message);
        assert_non_null(strstr(error.message, place_device(0)));
        assert_non_null(strstr(error.message, "address"));
        assert_non_null(strstr(error.message, strerror(os_error)));
        pair_close_end(slow, side);
    }
    UNTIL(hold_left() == 0);
    pairs_go_on(endpoint, channel);
    assert_int_equal(slow->seen[0].connected + slow->seen[1].connected, 2);
    assert_int_equal(slow->seen[0].disconnected + slow->seen[1].disconnected, 0);
    pairs_close();
}

static void nobody_has_the_address_of_an_endpoint(void **state)
{
    (void)state;
    nobody_has_the_address(false, ETIMEDOUT);
    nobody_has_the_address(false, EHOSTUNREACH);
}

static void nobody_has_the_address_of_a_channel(void **state)
{
    (void)state;
    nobody_has_the_address(true, ETIMEDOUT);
    nobody_has_the_address(true, EHOSTUNREACH);
}

/* It is offered again. */
static void nobody_has_the_address_of_a_rail(void **state)
{
    (void)state;
    for (uint32_t which = 0; which < 2; which++) {
        struct pair *endpoint, *channel;
        pairs_open_with_others(&endpoint, &channel);
        hold_next(1, which, 1, EHOSTUNREACH);
        struct pair *slow = pair_connected(true);
        UNTIL(hold_count() == 1);
        pair_round_trips(endpoint);
        hold_release();
        pair_await_rails(slow);
        pair_messages(slow);
        assert_true(pair_rail_bytes(slow, 1) > 0);
        pairs_close();
    }
}

/* Also after a test that has failed. */
static int release(void **state)
{
    (void)state;
    hold_release();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_rail_that_a_peer_offers, release),
        cmocka_unit_test_teardown(the_rail_that_a_peer_answers_with, release),
        cmocka_unit_test_teardown(a_join_of_an_endpoint, release),
        cmocka_unit_test_teardown(a_join_of_a_channel, release),
        cmocka_unit_test_teardown(an_endpoint_is_closed, release),
        cmocka_unit_test_teardown(a_channel_is_closed, release),
        cmocka_unit_test_teardown(a_channel_is_closed_whose_rail_comes, release),
        cmocka_unit_test_teardown(a_context_is_closed, release),
        cmocka_unit_test_teardown(nobody_has_the_address_of_an_endpoint, release),
        cmocka_unit_test_teardown(nobody_has_the_address_of_a_channel, release),
        cmocka_unit_test_teardown(nobody_has_the_address_of_a_rail, release),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("slow", tests, NULL, NULL);
}
