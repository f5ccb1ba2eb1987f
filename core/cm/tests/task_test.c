/* task_test.c: work that other threads do. Runs without RDMA. What is slow here waits for a gate. */
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

#include "base/error.h"
#include "cm/internal.h"

#define TASKS_MAX 40

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
    uint32_t inside;
    uint32_t most; /* at once */
};

static struct cm cm;
static struct gate gate;
static struct cm_task *tasks[TASKS_MAX];

static int set_up(void **state)
{
    (void)state;
    memset(&cm, 0, sizeof(cm));
    memset(&gate, 0, sizeof(gate));
    cm.event_fd = eventfd(0, EFD_NONBLOCK);
    pthread_mutex_init(&cm.mutex, NULL);
    pthread_cond_init(&cm.idle, NULL);
    pthread_cond_init(&cm.task_waits, NULL);
    list_init(&cm.queue);
    list_init(&cm.tasks);
    pthread_mutex_init(&gate.mutex, NULL);
    pthread_cond_init(&gate.changed, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cm_tasks_stop(&cm);
    assert_false(cm_pending(&cm));
    close(cm.event_fd);
    return 0;
}

static int32_t pass_gate(void *argument, crpc_error *error)
{
    pthread_mutex_lock(&gate.mutex);
    gate.inside++;
    gate.most = gate.inside > gate.most ? gate.inside : gate.most;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open) {
        pthread_cond_wait(&gate.changed, &gate.mutex);
    }
    gate.inside--;
    pthread_mutex_unlock(&gate.mutex);
    return argument ? error_set(error, CRPC_E_UNREACHABLE, 0, "no way") : CRPC_OK;
}

static int32_t be_quick(void *argument, crpc_error *error)
{
    (void)argument;
    error_set(error, CRPC_E_SYSTEM, 0, "of a step that was tried again");
    return CRPC_OK;
}

static void wait_inside(uint32_t count)
{
    pthread_mutex_lock(&gate.mutex);
    while (gate.inside < count) {
        pthread_cond_wait(&gate.changed, &gate.mutex);
    }
    pthread_mutex_unlock(&gate.mutex);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void take(struct cm_event *event)
{
    struct pollfd wait = {.fd = cm_event_fd(&cm), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, -1), 1);
    assert_true(cm_pending(&cm));
    assert_true(cm_event_take(&cm, event));
    assert_int_equal(event->kind, CM_EVENT_TASK);
}

static struct cm_task *start(cm_work *work, void *argument)
{
    struct cm_task *task = NULL;
    crpc_error error = {0};
    assert_int_equal(cm_task_start(&cm, work, argument, &task, &error), CRPC_OK);
    assert_non_null(task);
    return task;
}

static void a_slow_task_holds_up_no_other(void **state)
{
    (void)state;
    struct cm_event event;
    int mark;
    start(pass_gate, NULL);
    wait_inside(1);
    for (uint32_t i = 0; i < 10; i++) {
        start(be_quick, &mark);
        take(&event);
        assert_ptr_equal(event.owner, &mark);
        assert_int_equal(event.error.status, CRPC_OK);
    }
    open_gate();
    take(&event);
    assert_null(event.owner);
}

static void an_error_comes_with_the_event(void **state)
{
    (void)state;
    struct cm_event event;
    int mark;
    open_gate();
    start(pass_gate, &mark);
    take(&event);
    assert_int_equal(event.error.status, CRPC_E_UNREACHABLE);
    assert_string_equal(event.error.message, "no way");
}

static void who_waits_takes_the_end(void **state)
{
    (void)state;
    crpc_error error = {0};
    int mark;
    struct cm_task *slow = start(pass_gate, &mark);
    struct cm_task *quick = start(be_quick, NULL);
    assert_int_equal(cm_task_wait(quick, &error), CRPC_OK);
    assert_int_equal(error.status, CRPC_OK);
    open_gate();
    assert_int_equal(cm_task_wait(slow, &error), CRPC_E_UNREACHABLE);
    assert_int_equal(error.status, CRPC_E_UNREACHABLE);
    assert_false(cm_pending(&cm));
}

/* So many strangers can be slow at once; others wait in turn, and can be dropped. */
static void threads_are_few(void **state)
{
    (void)state;
    struct cm_event event;
    uint32_t forgotten = 0;
    for (uint32_t i = 0; i < TASKS_MAX; i++) {
        tasks[i] = start(pass_gate, NULL);
    }
    wait_inside(CM_TASK_THREADS_MAX);
    for (uint32_t i = 0; i < TASKS_MAX; i += 2) {
        bool dropped = cm_task_forget(tasks[i]);
        assert_int_equal(dropped, i >= CM_TASK_THREADS_MAX); /* begun in their order */
        forgotten += dropped;
    }
    assert_false(cm_pending(&cm));
    open_gate();
    for (uint32_t i = 0; i < TASKS_MAX - forgotten; i++) {
        take(&event);
    }
    assert_int_equal(gate.most, CM_TASK_THREADS_MAX);
}

static void a_cm_without_tasks_has_no_threads(void **state)
{
    (void)state;
    assert_int_equal(cm.task_thread_count, 0);
    crpc_error error;
    cm_task_wait(start(be_quick, NULL), &error);
    assert_int_equal(cm.task_thread_count, 1);
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ONE(a_slow_task_holds_up_no_other),     ONE(an_error_comes_with_the_event),
        ONE(who_waits_takes_the_end),           ONE(threads_are_few),
        ONE(a_cm_without_tasks_has_no_threads),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
