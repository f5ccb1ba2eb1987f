/* initiators_held_test.c: what endpoints do while another one has the only initiator, whose peer does not answer: it was killed, or
 * stopped. The device of a process that is stopped acknowledges nothing on simnic, so an initiator is held for as long as the test
 * likes. By mlx5. The peers are processes; this one sleeps whenever nothing comes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <infiniband/verbs.h>

#include "ends.h"
#include "place.h"
#include "signals.h"

#define WAITING 20u /* calls of each end that waits */
#define LOAD_ROUNDS 8u

/* The endpoint that holds the initiator, and others, whose peer is well. */
enum { HOLDER, FIRST, SECOND, THIRD };

static struct peer silent, well;

static void connect_end(uint32_t end, const struct peer *peer, uint64_t keepalive_ns)
{
    crpc_endpoint_options options = ends_options(end);
    options.keepalive_ns = keepalive_ns;
    ends_connect(end, peer->address, &options);
    UNTIL(ends[end].connected[HERE]);
    assert_int_equal(ends[end].connected_status[HERE], CRPC_OK);
    assert_int_equal(ends_call(HERE, end, 100, false, 0), CRPC_OK);
    UNTIL(ended_count == call_count);
    ends_expect(end, CRPC_OK);
    call_count = ended_count = 0;
}

static void open_all(uint64_t holder_keepalive_ns, uint64_t keepalive_ns)
{
    peer_start(&silent, NULL);
    peer_start(&well, NULL);
    ends_open(1, false);
    connect_end(HOLDER, &silent, holder_keepalive_ns);
    for (uint32_t end = FIRST; end <= THIRD; end++) {
        connect_end(end, &well, keepalive_ns);
    }
}

/* The teardown, also of a test that has failed. */
static int end_all(void **state)
{
    (void)state;
    ends_close();
    for (int i = 0; i < 2; i++) {
        struct peer *peer = i ? &well : &silent;
        if (peer->pid) {
            peer_kill(peer, SIGKILL);
        }
    }
    return 0;
}

static void stop_silent(void)
{
    int status;
    assert_int_equal(kill(silent.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(silent.pid, &status, WUNTRACED), silent.pid);
    assert_true(WIFSTOPPED(status));
}

static uint32_t resets_refused; /* so many are left */
static uint64_t sent_before[THIRD + 1];

/* `calls_each` of each end; the holder's is under way, and the others' wait. */
static void hold(uint32_t calls_each)
{
    const uint64_t before = ends_sends(HERE, HOLDER);
    assert_int_equal(ends_call(HERE, HOLDER, 200, false, 0), CRPC_OK);
    UNTIL(ends_sends(HERE, HOLDER) > before);
    for (uint32_t i = 0; i < calls_each; i++) {
        for (uint32_t end = FIRST; end <= THIRD; end++) {
            sent_before[end] = i == 0 ? ends_sends(HERE, end) : sent_before[end];
            assert_int_equal(ends_call(HERE, end, 50 * i, i % 2, 0), CRPC_OK);
        }
    }
}

static bool waits(uint32_t end)
{
    return ends_sends(HERE, end) == sent_before[end];
}

static void expect_waiting(void)
{
    assert_true(waits(FIRST) && waits(SECOND) && waits(THIRD));
}

static uint32_t ended_of(uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call_count; i++) {
        count += calls[i].end == end && calls[i].ended;
    }
    return count;
}

static void expect_holder_lost(void)
{
    UNTIL(ends[HOLDER].disconnected[HERE]);
    ends_expect(HOLDER, CRPC_E_DISCONNECTED);
    assert_int_equal(ends[HOLDER].disconnected[HERE], 1);
    assert_int_equal(ends[HOLDER].disconnected_status[HERE], CRPC_E_DISCONNECTED);
}

/* The others have lost nothing, and go on. */
static void expect_others_answered(void)
{
    for (uint32_t end = FIRST; end <= THIRD; end++) {
        assert_int_equal(ends_call(HERE, end, 9000, end % 2, 0), CRPC_OK);
    }
    UNTIL(ended_count == call_count);
    for (uint32_t end = FIRST; end <= THIRD; end++) {
        ends_expect(end, CRPC_OK);
        assert_int_equal(ends[end].disconnected[HERE], 0);
    }
}

/* ---- The peer does not come back ------------------------------------------------------------- */

/* Nothing was polled since it was killed, so its endpoint sends. */
static void a_killed_peer_holds_it_until_the_retries_run_out(void **state)
{
    (void)state;
    open_all(0, 0);
    peer_kill(&silent, SIGKILL);
    hold(WAITING);
    expect_waiting();
    expect_holder_lost();
    expect_others_answered();
}

/* Those that wait are looked at by keepalives much more often, and are not blamed. */
static void a_stopped_peer_holds_it_until_its_endpoint_fails(void **state)
{
    (void)state;
    open_all(50000000, 5000000);
    stop_silent();
    hold(WAITING);
    expect_waiting();
    expect_holder_lost();
    print_message("# the holder was lost; %u of the others' calls were answered before\n",
                  ended_of(FIRST) + ended_of(SECOND) + ended_of(THIRD));
    expect_others_answered();
}

/* The library finds this before libibverbs'. */
int __attribute__((visibility("default")))
ibv_modify_qp(struct ibv_qp *queue_pair, struct ibv_qp_attr *attributes, int mask)
{
    int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int);
    void *found = dlvsym(RTLD_NEXT, "ibv_modify_qp", "IBVERBS_1.1");
    memcpy(&modify, &found, sizeof(modify));
    if (resets_refused && mask & IBV_QP_STATE && attributes->qp_state == IBV_QPS_RESET) {
        resets_refused--;
        return EIO;
    }
    return modify(queue_pair, attributes, mask);
}

/* What was under way completes all the same, for nobody. Then, or when somebody needs the initiator, it is mended. */
static void the_device_does_not_mend_it_at_once(void **state)
{
    (void)state;
    open_all(CRPC_FOREVER, 0);
    stop_silent();
    hold(1);
    resets_refused = 1;
    assert_int_equal(crpc_endpoint_close(contexts[HERE], ends[HOLDER].handle[HERE]), CRPC_OK);
    assert_int_equal(resets_refused, 0);
    expect_waiting();
    assert_int_equal(kill(silent.pid, SIGCONT), 0);
    UNTIL(ended_of(HOLDER) == 1);
    ends_expect(HOLDER, CRPC_E_CLOSED);
    expect_others_answered();
}

static void the_holder_is_closed(void **state)
{
    (void)state;
    open_all(CRPC_FOREVER, 0);
    stop_silent();
    hold(WAITING);
    expect_waiting();
    assert_int_equal(crpc_endpoint_close(contexts[HERE], ends[HOLDER].handle[HERE]), CRPC_OK);
    UNTIL(ended_of(HOLDER) == 1);
    ends_expect(HOLDER, CRPC_E_CLOSED);
    assert_int_equal(ends[HOLDER].disconnected[HERE], 0);
    expect_others_answered();
}

/* ---- It comes back --------------------------------------------------------------------------- */

static void a_stopped_peer_goes_on(void **state)
{
    (void)state;
    open_all(CRPC_FOREVER, 0);
    stop_silent();
    hold(WAITING);
    expect_waiting();
    assert_int_equal(kill(silent.pid, SIGCONT), 0);
    expect_others_answered();
    UNTIL(ended_of(HOLDER) == 1);
    ends_expect(HOLDER, CRPC_OK);
    peer_stop(&silent);
    peer_stop(&well);
}

/* All of it ends while the calls wait. */
static void deadlines_and_cancels_of_calls_that_wait(void **state)
{
    (void)state;
    open_all(CRPC_FOREVER, 0);
    stop_silent();
    hold(2);
    const uint32_t first = call_count;
    for (uint32_t i = 0; i < WAITING; i++) {
        assert_int_equal(ends_call(HERE, FIRST, 100 + i, i % 2, 20000000), CRPC_OK);
    }
    for (uint32_t i = 0; i < WAITING; i++) {
        const uint32_t index = call_count;
        assert_int_equal(ends_call(HERE, SECOND, 100 + i, i % 2, 0), CRPC_OK);
        const crpc_op cancel = {
            .opcode = CRPC_OP_CANCEL, .endpoint = ends[SECOND].handle[HERE], .token = index};
        assert_int_equal(crpc_submit(contexts[HERE], &cancel, 1, NULL, 0, NULL), 1);
    }
    UNTIL(ended_count == 2 * WAITING && canceled == WAITING);
    expect_waiting();
    for (uint32_t i = first; i < call_count; i++) {
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(calls[i].status, calls[i].end == FIRST ? CRPC_E_TIMEOUT : CRPC_E_CANCELED);
    }
    assert_int_equal(kill(silent.pid, SIGCONT), 0);
    UNTIL(ended_count == call_count);
    for (uint32_t i = 0; i < first; i++) {
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(calls[i].status, CRPC_OK);
    }
    call_count = ended_count = 0;
    expect_others_answered();
    peer_stop(&silent);
    peer_stop(&well);
}

/* One is closed, and one takes leave and has no time for it. The third is not concerned. */
static void endpoints_that_wait_end(void **state)
{
    (void)state;
    open_all(CRPC_FOREVER, 0);
    stop_silent();
    hold(WAITING);
    assert_int_equal(crpc_endpoint_close(contexts[HERE], ends[FIRST].handle[HERE]), CRPC_OK);
    assert_int_equal(crpc_endpoint_disconnect(contexts[HERE], ends[SECOND].handle[HERE], 20000000),
                     CRPC_OK);
    UNTIL(ended_of(FIRST) == WAITING && ends[SECOND].disconnected[HERE]);
    ends_expect(FIRST, CRPC_E_CLOSED);
    assert_int_equal(ends[FIRST].disconnected[HERE], 0);
    ends_expect(SECOND, CRPC_E_DISCONNECTED);
    assert_int_equal(ends[SECOND].disconnected[HERE], 1);
    assert_int_equal(ends[SECOND].disconnected_status[HERE], CRPC_E_TIMEOUT);
    assert_true(waits(THIRD));
    assert_int_equal(kill(silent.pid, SIGCONT), 0);
    UNTIL(ended_count == call_count);
    ends_expect(THIRD, CRPC_OK);
    ends_expect(HOLDER, CRPC_OK);
}

/* ---- Under load ------------------------------------------------------------------------------ */

/* At whatever moment it is killed, each call ends once, and those of the others with an answer. */
static void a_peer_is_killed_under_load(void **state)
{
    unsigned seed = 20261128;
    for (uint32_t round = 0; round < LOAD_ROUNDS; round++) {
        open_all(0, 0);
        const double end = now_seconds() + (double)(rand_r(&seed) % 20000) / 1e6;
        uint32_t turn = 0;
        for (bool killed = false; !ends[HOLDER].disconnected[HERE]; turn++) {
            const uint32_t which = turn % (THIRD + 1);
            if (call_count < CALLS_MAX - 8) {
                const int32_t reason = ends_call(HERE, which, turn % 700, turn % 5 == 0, 0);
                assert_true(reason == CRPC_OK || reason == CRPC_E_AGAIN ||
                            (which == HOLDER && reason == CRPC_E_DISCONNECTED));
            }
            if (!killed && (now_seconds() >= end || call_count >= CALLS_MAX / 2)) {
                peer_kill(&silent, SIGKILL);
                killed = true;
            }
            if (turn % 16 == 15) {
                ends_pump();
            }
        }
        UNTIL(ended_count == call_count);
        for (uint32_t i = 0; i < call_count; i++) {
            assert_int_equal(calls[i].ended, 1);
            assert_true(calls[i].status == CRPC_OK ||
                        (calls[i].end == HOLDER && calls[i].status == CRPC_E_DISCONNECTED));
        }
        expect_others_answered();
        end_all(state);
    }
}

/* ---- Sleep ----------------------------------------------------------------------------------- */

/* Every endpoint but one has to wait; none is forgotten while all sleep. */
static void who_waits_asleep_is_woken(void **state)
{
    (void)state;
    peer_start(&well, NULL);
    ends_open(1, false);
    for (uint32_t i = 0; i < ENDS; i++) {
        ends_connect(i, well.address, NULL);
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        UNTIL(ends[i].connected[HERE]);
        assert_int_equal(ends[i].connected_status[HERE], CRPC_OK);
    }
    for (uint32_t round = 0; round < 30; round++) {
        for (uint32_t i = 0; i < ENDS; i++) {
            assert_int_equal(ends_call(HERE, i, round * 50, round % 2, 0), CRPC_OK);
        }
        UNTIL(ended_count == call_count);
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        ends_expect(i, CRPC_OK);
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        assert_int_equal(
            crpc_endpoint_disconnect(contexts[HERE], ends[i].handle[HERE], CRPC_FOREVER), CRPC_OK);
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        UNTIL(ends[i].disconnected[HERE]);
        assert_int_equal(ends[i].disconnected_status[HERE], CRPC_OK);
    }
    peer_stop(&well);
}

int main(void)
{
    signals_as_usual();
    setenv("TEST_INITIATORS", "1", 1); /* of the peers */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_killed_peer_holds_it_until_the_retries_run_out, end_all),
        cmocka_unit_test_teardown(a_stopped_peer_holds_it_until_its_endpoint_fails, end_all),
        cmocka_unit_test_teardown(the_holder_is_closed, end_all),
        cmocka_unit_test_teardown(the_device_does_not_mend_it_at_once, end_all),
        cmocka_unit_test_teardown(a_stopped_peer_goes_on, end_all),
        cmocka_unit_test_teardown(deadlines_and_cancels_of_calls_that_wait, end_all),
        cmocka_unit_test_teardown(endpoints_that_wait_end, end_all),
        cmocka_unit_test_teardown(a_peer_is_killed_under_load, end_all),
        cmocka_unit_test_teardown(who_waits_asleep_is_woken, end_all),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("held", tests, NULL, NULL);
}
