/* sleep_test.c: sleeping: crpc_wait, and the descriptor with crpc_context_arm. */
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "private/context.h"
#include "signals.h"

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void wait_ends_in_time_and_for_events(void **state)
{
    (void)state;
    uint64_t begun = now_ns();
    assert_int_equal(crpc_wait(fixture.right, 5000000), CRPC_E_TIMEOUT);
    assert_true(now_ns() - begun >= 5000000);
    assert_int_equal(crpc_wait(fixture.right, 0), CRPC_E_TIMEOUT);
    crpc_op op = fixture_call_op(1);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    assert_int_equal(crpc_wait(fixture.right, CRPC_FOREVER), CRPC_OK);
    assert_int_equal(fixture_poll(fixture.right), 1);
    assert_int_equal(crpc_wait(fixture.right, 0), CRPC_E_TIMEOUT);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void wait_ends_for_a_signal(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm};
    /* Again and again: the first may come before it sleeps. */
    const struct itimerval often = {.it_value = {.tv_usec = 20000},
                                    .it_interval = {.tv_usec = 20000}};
    const struct itimerval never = {0};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int32_t status = crpc_wait(fixture.right, 60000000000);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_int_equal(status, CRPC_E_INTERRUPTED);
}

static void arm_bears_signals(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 5000; i++) {
        /* At some step of these: at each of them in the end. */
        const struct itimerval once = {.it_value = {.tv_usec = 1 + i % 50}};
        setitimer(ITIMER_REAL, &once, NULL);
        for (int j = 0; j < 50; j++) {
            assert_int_equal(crpc_context_arm(fixture.right), CRPC_OK);
        }
    }
}

static bool readable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

static void the_descriptor_wakes_after_arm(void **state)
{
    (void)state;
    int fd = crpc_context_fd(fixture.right);
    int outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    assert_true(fd >= 0);
    assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event), 0);
    for (int round = 0; round < 1000; round++) {
        assert_int_equal(crpc_context_arm(fixture.right), CRPC_OK);
        assert_false(readable(fd));
        crpc_op op = fixture_call_op(1);
        assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
        fixture_poll(fixture.left);
        assert_true(readable(fd));
        assert_int_equal(epoll_wait(outer, &event, 1, 0), 1);
        crpc_completion request = fixture_expect(fixture.right, CRPC_COMPLETION_REQUEST);
        assert_int_equal(fixture_reply(&request, "", CRPC_OP_QUIET), CRPC_OK);
        fixture_expect(fixture.left, CRPC_COMPLETION_RESPONSE);
        assert_false(readable(fd));
    }
    /* Armed too late: it says so instead of sleeping over it. */
    crpc_op op = fixture_call_op(1);
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    fixture_poll(fixture.left);
    assert_int_equal(crpc_context_arm(fixture.right), CRPC_E_AGAIN);
    close(outer);
}

/* As the kernel leaves the descriptor of an unplugged device: in error, for ever. */
static void unplug(crpc_context *context)
{
    int ends[2], fd = context->nic->event_fd;
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(epoll_ctl(crpc_context_fd(context), EPOLL_CTL_DEL, fd, NULL), 0);
    assert_int_equal(dup2(ends[1], fd), fd);
    assert_int_equal(epoll_ctl(crpc_context_fd(context), EPOLL_CTL_ADD, fd, &event), 0);
    close(ends[1]);
}

static void nobody_spins_on_a_device_that_was_unplugged(void **state)
{
    (void)state;
    const uint64_t pause_ns = 20000000;
    int fd = crpc_context_fd(fixture.left);
    unplug(fixture.left);
    assert_true(readable(fd)); /* whoever sleeps wakes once */
    assert_int_equal(fixture_poll(fixture.left), 0);
    assert_int_equal(crpc_context_arm(fixture.left), CRPC_OK);
    assert_false(readable(fd));
    unplug(fixture.right);
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ns = now_ns();
        assert_int_equal(crpc_wait(fixture.right, pause_ns), CRPC_E_TIMEOUT);
        assert_true(now_ns() - begin_ns >= pause_ns);
    }
    assert_false(readable(crpc_context_fd(fixture.right)));
    crpc_log_entry entry;
    assert_int_equal(crpc_context_log(fixture.right, &entry, 1), 1);
    assert_non_null(strstr(entry.message, "gives no more events"));
}

static void the_descriptor_wakes_for_a_deadline(void **state)
{
    (void)state;
    crpc_op op = fixture_call_op(1);
    op.timeout_ns = 10000000;
    assert_int_equal(fixture_submit(fixture.left, &op, NULL, 0), CRPC_OK);
    int waits = 0;
    do {
        assert_int_equal(crpc_context_arm(fixture.left), CRPC_OK);
        struct pollfd one = {.fd = crpc_context_fd(fixture.left), .events = POLLIN};
        assert_int_equal(poll(&one, 1, 2000), 1);
        assert_true(waits++ < 20);
    } while (fixture_poll(fixture.left) == 0);
    assert_int_equal(fixture.completions[0].status, CRPC_E_TIMEOUT);
}

int main(void)
{
    signals_as_usual();
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(wait_ends_in_time_and_for_events),
        WITH_FIXTURE(wait_ends_for_a_signal),
        WITH_FIXTURE(arm_bears_signals),
        WITH_FIXTURE(the_descriptor_wakes_after_arm),
        WITH_FIXTURE(nobody_spins_on_a_device_that_was_unplugged),
        WITH_FIXTURE(the_descriptor_wakes_for_a_deadline),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
