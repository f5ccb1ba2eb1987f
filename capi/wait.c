/* wait.c: sleeping until there is something to poll, without losing a wake-up: first everything is
 * looked at, then the device is armed, then everything is looked at once more.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "cm/cm.h"
#include "private/context.h"

void context_disarm(struct crpc_context *context)
{
    uint64_t expirations;
    context->nic->operations->disarm(context->nic);
    for (uint32_t i = 0; i < context->rails.nic_count; i++) {
        context->rails.nics[i]->operations->disarm(context->rails.nics[i]);
    }
    ssize_t got = read(context->timer_fd, &expirations, sizeof(expirations));
    (void)got; /* EAGAIN when the timer has not fired */
    context->attention &= (uint8_t)~CONTEXT_ARMED;
}

/* Sends what has gathered; true if crpc_poll has something to give or to do. */
static bool look(struct crpc_context *context)
{
    rpc_progress(context->engine);
    bool waits = rpc_something_waits(context->engine);
    if (context->channels) {
        channel_progress(context->channels);
        waits = channel_something_waits(context->channels) || waits;
    }
    if (context->queues) {
        queue_progress(context->queues);
        waits = queue_something_waits(context->queues) || waits;
    }
    return waits;
}

static uint64_t next_deadline_ns(const struct crpc_context *context)
{
    uint64_t deadline_ns = rpc_next_deadline_ns(context->engine);
    if (context->channels) {
        deadline_ns = minimum(deadline_ns, channel_next_deadline_ns(context->channels));
    }
    return context->queues ? minimum(deadline_ns, queue_next_deadline_ns(context->queues))
                           : deadline_ns;
}

static int arm(struct crpc_context *context)
{
    int os_error = context->nic->operations->arm(context->nic);
    for (uint32_t i = 0; i < context->rails.nic_count && !os_error; i++) {
        os_error = context->rails.nics[i]->operations->arm(context->rails.nics[i]);
    }
    return os_error;
}

/* True if something came while the devices were being armed. *os_error is set if one cannot be
 * armed. */
static bool arm_and_look(struct crpc_context *context, int *os_error)
{
    if (context->attention & CONTEXT_ARMED) {
        context_disarm(context);
    }
    *os_error = arm(context);
    context->attention |= CONTEXT_ARMED;
    return look(context);
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

/* Sleeps on the devices and on rdma_cm; for ever if there is no timeout. Returns poll's result. A
 * device that was unplugged leaves its descriptor in error for ever: nobody sleeps on that again. What
 * follows from it comes from the thread that watches the device. */
static int sleep_on(struct crpc_context *context, const struct timespec *timeout)
{
    struct pollfd fds[CONTEXT_EVENT_FDS_MAX];
    uint32_t count = context->event_fd_count, left = 0;
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = (struct pollfd){.fd = context->event_fds[i], .events = POLLIN};
    }
    int ready = ppoll(fds, count, timeout, NULL);
    for (uint32_t i = 0; i < count && ready > 0; i++) {
        if (likely(!(fds[i].revents & (POLLERR | POLLHUP | POLLNVAL)))) {
            context->event_fds[left++] = fds[i].fd;
            continue;
        }
        epoll_ctl(context->epoll_fd, EPOLL_CTL_DEL, fds[i].fd, NULL);
        context->event_fd_count--;
        log_write(&context->log, CRPC_LOG_ERROR,
                  "a device gives no more events: it was removed, or its driver has failed");
    }
    return ready;
}

static int sleep_until(struct crpc_context *context, uint64_t now_ns, uint64_t until_ns)
{
    struct timespec timeout = timespec_of(until_ns > now_ns ? until_ns - now_ns : 0);
    return sleep_on(context, until_ns == UINT64_MAX ? NULL : &timeout);
}

int32_t crpc_wait(crpc_context *context, uint64_t timeout_ns)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    if (look(context)) {
        return CRPC_OK;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t end_ns = timeout_ns == CRPC_FOREVER ? UINT64_MAX : deadline_after(now_ns, timeout_ns);
    for (;;) {
        uint64_t deadline_ns = next_deadline_ns(context);
        if (deadline_ns <= now_ns) {
            return CRPC_OK;
        }
        if (end_ns <= now_ns) {
            return CRPC_E_TIMEOUT;
        }
        int os_error;
        if (arm_and_look(context, &os_error)) {
            return CRPC_OK;
        }
        if (os_error) {
            errno = os_error;
            return CRPC_E_SYSTEM;
        }
        int ready = sleep_until(context, now_ns, minimum(deadline_ns, end_ns));
        if (ready < 0) {
            return errno == EINTR ? CRPC_E_INTERRUPTED : CRPC_E_SYSTEM;
        }
        if (look(context)) {
            return CRPC_OK;
        }
        now_ns = clock_now_ns();
    }
}

int32_t crpc_context_fd(crpc_context *context)
{
    return context ? context->epoll_fd : CRPC_E_INVALID;
}

int32_t crpc_context_arm(crpc_context *context)
{
    int os_error;
    if (!context) {
        return CRPC_E_INVALID;
    }
    if (look(context) || arm_and_look(context, &os_error)) {
        return CRPC_E_AGAIN;
    }
    uint64_t deadline_ns = next_deadline_ns(context);
    /* A zero it_value would disarm the timer: time 0 has passed, and so has 1 ns. */
    struct itimerspec at = {.it_value = timespec_of(maximum(deadline_ns, 1))};
    if (deadline_ns == UINT64_MAX) {
        at.it_value = (struct timespec){0};
    }
    if (os_error) {
        errno = os_error;
        return CRPC_E_SYSTEM;
    }
    if (timerfd_settime(context->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) != 0) {
        return CRPC_E_SYSTEM;
    }
    const struct timespec not_at_all = {0};
    while (sleep_on(context, &not_at_all) < 0) {
        if (errno != EINTR) {
            return CRPC_E_SYSTEM;
        }
    }
    return CRPC_OK;
}
