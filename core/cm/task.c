/* task.c: system work that may be slow because of a peer, e.g. when the kernel resolves its address.
 *
 * It runs neither in the owner's thread nor in the cm thread, which watches the devices and has all
 * connects to serve. Threads for it are made as they are needed, up to a bound, and stay until the cm
 * is closed. Tasks begin in the order in which they were started.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cm/internal.h"

struct cm_task {
    struct queued_event queued; /* must come first: who takes the event frees the task */
    struct cm *cm;
    cm_work *work;
    void *argument;
    bool begun; /* under the mutex, like the next */
    bool ended;
};
static_assert(offsetof(struct cm_task, queued) == 0, "who takes the event frees the task");

static struct cm_task *task_of_link(struct list *link)
{
    return container_of(list_entry(link, struct queued_event, link), struct cm_task, queued);
}

/* ---- The threads ----------------------------------------------------------------------------- */

/* Waits for a task. NULL: the cm is being closed. The mutex is held. */
static struct cm_task *next(struct cm *cm)
{
    while (list_empty(&cm->tasks)) {
        if (cm->stop) {
            return NULL;
        }
        cm->task_threads_idle++;
        pthread_cond_wait(&cm->task_waits, &cm->mutex);
        cm->task_threads_idle--;
    }
    struct cm_task *task = task_of_link(cm->tasks.next);
    list_remove(&task->queued.link);
    cm->tasks_waiting--;
    task->begun = true;
    return task;
}

static void *run(void *argument)
{
    struct cm *cm = argument;
    struct cm_task *task;
    pthread_setname_np(pthread_self(), "crpc-task");
    pthread_mutex_lock(&cm->mutex);
    while ((task = next(cm)) != NULL) {
        crpc_error *error = &task->queued.event.error;
        pthread_mutex_unlock(&cm->mutex);
        if (task->work(task->argument, error) == CRPC_OK) {
            *error = (crpc_error){.struct_size = sizeof(*error)};
        }
        pthread_mutex_lock(&cm->mutex);
        task->ended = true;
        cm_queue_append(cm, &task->queued);
        pthread_cond_broadcast(&cm->idle);
    }
    pthread_mutex_unlock(&cm->mutex);
    return NULL;
}

/* Makes a thread if all are busy and one more is allowed. Returns false if there is none at all. The
 * mutex is held. */
static bool have_thread(struct cm *cm, int *os_error)
{
    if (cm->tasks_waiting > cm->task_threads_idle && cm->task_thread_count < CM_TASK_THREADS_MAX) {
        *os_error = cm_start_thread(&cm->task_threads[cm->task_thread_count], run, cm);
        cm->task_thread_count += *os_error == 0;
    }
    return cm->task_thread_count > 0;
}

void cm_tasks_stop(struct cm *cm)
{
    assert(list_empty(&cm->tasks));
    pthread_mutex_lock(&cm->mutex);
    cm->stop = true;
    pthread_cond_broadcast(&cm->task_waits);
    pthread_mutex_unlock(&cm->mutex);
    for (uint32_t i = 0; i < cm->task_thread_count; i++) {
        pthread_join(cm->task_threads[i], NULL);
    }
}

/* ---- For the owner --------------------------------------------------------------------------- */

int32_t cm_task_start(struct cm *cm, cm_work *work, void *argument, struct cm_task **out,
                      crpc_error *error)
{
    struct cm_task *task = calloc(1, sizeof(*task));
    int os_error = 0;
    if (!task) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for work in the background");
    }
    task->cm = cm;
    task->work = work;
    task->argument = argument;
    task->queued.event = (struct cm_event){
        .kind = CM_EVENT_TASK, .owner = argument, .error.struct_size = sizeof(crpc_error)};
    pthread_mutex_lock(&cm->mutex);
    list_append(&cm->tasks, &task->queued.link);
    cm->tasks_waiting++;
    bool good = have_thread(cm, &os_error);
    if (good) {
        pthread_cond_signal(&cm->task_waits);
    } else {
        list_remove(&task->queued.link);
        cm->tasks_waiting--;
    }
    pthread_mutex_unlock(&cm->mutex);
    if (!good) {
        free(task);
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "cannot start a thread for work in the background: %s",
                         strerror(os_error));
    }
    *out = task;
    return CRPC_OK;
}

int32_t cm_task_wait(struct cm_task *task, crpc_error *error)
{
    struct cm *cm = task->cm;
    pthread_mutex_lock(&cm->mutex);
    while (!task->ended) {
        pthread_cond_wait(&cm->idle, &cm->mutex);
    }
    cm_queue_remove(cm, &task->queued);
    pthread_mutex_unlock(&cm->mutex);
    *error = task->queued.event.error;
    free(task);
    return error->status;
}

bool cm_task_forget(struct cm_task *task)
{
    struct cm *cm = task->cm;
    pthread_mutex_lock(&cm->mutex);
    bool begun = task->begun;
    if (!begun) {
        list_remove(&task->queued.link);
        cm->tasks_waiting--;
    }
    pthread_mutex_unlock(&cm->mutex);
    if (!begun) {
        free(task);
    }
    return !begun;
}
