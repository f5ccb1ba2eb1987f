/* late_cm.c: see late_cm.h. */
#define CM_STUB_WITH_TASKS
#include "cm_stub.c"

#include "base/compiler.h"
#include "base/error.h"
#include "late_cm.h"

struct cm_task {
    struct list link;
    struct cm *cm;
    cm_work *work;
    void *argument;
    bool ended;
    crpc_error error;
};

void late_cm_init(struct cm *cm)
{
    *cm = (struct cm){0};
    list_init(&cm->waiting);
    list_init(&cm->ended);
}

static void run(struct cm_task *task)
{
    struct cm *cm = task->cm;
    list_remove(&task->link);
    cm->waiting_count--;
    cm->done++;
    task->ended = true;
    if (task->work(task->argument, &task->error) == CRPC_OK) {
        task->error = (crpc_error){0};
    }
    list_append(&cm->ended, &task->link);
}

void late_cm_run(struct cm *cm, uint32_t index)
{
    struct list *at = cm->waiting.next;
    while (index-- > 0) {
        at = at->next;
    }
    run(list_entry(at, struct cm_task, link));
}

void late_cm_run_all(struct cm *cm)
{
    while (cm->waiting_count > 0) {
        late_cm_run(cm, 0);
    }
}

const struct link_task *late_cm_task(const struct cm *cm, uint32_t index)
{
    const struct list *at = cm->waiting.next;
    while (index-- > 0) {
        at = at->next;
    }
    return list_entry(at, struct cm_task, link)->argument;
}

bool late_cm_waits(const struct link_task *task)
{
    return task->under_way && !task->under_way->ended;
}

const char *late_cm_fault(const struct link_group *group)
{
    const struct list *at;
    uint32_t tasks = group->cm->waiting_count, busy = 0;
    for (at = group->cm->ended.next; at != &group->cm->ended; at = at->next) {
        tasks++;
    }
    for (at = group->all.next; at != &group->all; at = at->next) {
        const struct link *link = list_entry(at, struct link, all_link);
        busy += link->busy;
        if (late_cm_waits(&link->join) && (!link->queue_pair || link->queue_pair->failed)) {
            return "a queue pair that is being connected has failed or is gone";
        }
    }
    return busy == tasks ? NULL : "the links do not have the tasks that are under way";
}

/* ---- Simulations ----------------------------------------------------------------------------- */

void late_times_choose(struct late_times *times, uint64_t seed)
{
    struct random_generator *random = &times->random;
    *times = (struct late_times){0};
    random_seed(random, seed);
    if (random_percent(random, 50)) {
        times->one_in = random_percent(random, 50) ? random_between(random, 1, 20)
                                                   : random_between(random, 20, 1000);
    }
}

void late_times_add(struct late_times *times, struct cm *cm)
{
    assert(times->one_in > 0 && times->count < LATE_CMS_MAX);
    late_cm_init(cm);
    cm->not_begun = random_percent(&times->random, 50);
    times->cms[times->count++] = cm;
}

void late_times_run(struct late_times *times, bool all, late_task *task, void *argument)
{
    if (times->one_in == 0 || (!all && random_below(&times->random, times->one_in) != 0)) {
        return;
    }
    for (uint32_t i = 0; i < times->count; i++) {
        const struct cm *cm = times->cms[i];
        for (bool more = true; more && cm->waiting_count > 0; more = all) {
            task(argument, i, random_below(&times->random, cm->waiting_count));
        }
    }
}

/* ---- What a cm does -------------------------------------------------------------------------- */

bool cm_pending(const struct cm *cm)
{
    return !list_empty(&cm->ended);
}

bool cm_event_take(struct cm *cm, struct cm_event *event)
{
    if (list_empty(&cm->ended)) {
        return false;
    }
    struct cm_task *task = list_entry(cm->ended.next, struct cm_task, link);
    list_remove(&task->link);
    *event =
        (struct cm_event){.kind = CM_EVENT_TASK, .owner = task->argument, .error = task->error};
    free(task);
    return true;
}

void cm_forget_queue_pair(struct cm *cm, uint32_t nic, uint32_t queue_pair_number)
{
    (void)cm;
    (void)nic;
    (void)queue_pair_number;
}

int32_t cm_task_start(struct cm *cm, cm_work *work, void *argument, struct cm_task **out,
                      crpc_error *error)
{
    if (cm->refuse > 0) {
        cm->refuse--;
        return error_set(error, CRPC_E_SYSTEM, 0, "no thread");
    }
    struct cm_task *task = calloc(1, sizeof(*task));
    if (!task) {
        abort();
    }
    task->cm = cm;
    task->work = work;
    task->argument = argument;
    list_append(&cm->waiting, &task->link);
    cm->waiting_count++;
    *out = task;
    return CRPC_OK;
}

int32_t cm_task_wait(struct cm_task *task, crpc_error *error)
{
    if (!task->ended) {
        task->cm->waited = true;
        run(task);
    }
    list_remove(&task->link);
    *error = task->error;
    free(task);
    return error->status;
}

static bool has_begun(const struct cm_task *task)
{
    const struct list *at = task->cm->waiting.next;
    for (uint32_t i = 0; i < task->cm->begun && at != &task->cm->waiting; i++, at = at->next) {
        if (at == &task->link) {
            return true;
        }
    }
    return task->ended || !task->cm->not_begun;
}

bool cm_task_forget(struct cm_task *task)
{
    struct cm *cm = task->cm;
    if (has_begun(task)) {
        return false;
    }
    list_remove(&task->link);
    cm->waiting_count--;
    free(task);
    return true;
}
