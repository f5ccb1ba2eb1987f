/* task.c: slow system work of links, which no poll waits for. docs/design.md, section 6. */
#include "link/internal.h"

static int32_t run(void *argument, crpc_error *error)
{
    struct link_task *task = argument;
    return task->run(task, error);
}

/* The application has closed the link meanwhile, and nothing else holds it. */
static void destroy_if_over(struct link *link)
{
    const struct link_service *service = link->group->service;
    if (link->closed && link->busy == 0 && !list_linked(&link->event_link)) {
        assert(service->quiet(link));
        service->destroy(link);
    }
}

/* Nothing uses the link for the task any more. */
static void release(struct link_task *task)
{
    task->under_way = NULL;
    list_remove(&task->group_link);
    task->link->busy--;
}

static void finish(struct link_task *task, const crpc_error *error)
{
    release(task);
    task->ended(task, error);
}

void link_task_start(struct link_task *task, struct link *link,
                     int32_t (*work)(struct link_task *task, crpc_error *error),
                     void (*ended)(struct link_task *task, const crpc_error *error))
{
    struct link_group *group = link->group;
    crpc_error error = {0};
    int32_t status;
    assert(!task->under_way);
    *task = (struct link_task){.link = link, .run = work, .ended = ended};
    list_init(&task->group_link);
    link->busy++;
    if (group->cm) {
        status = cm_task_start(group->cm, run, task, &task->under_way, &error);
        if (status == CRPC_OK) {
            list_append(&group->tasks, &task->group_link);
            return;
        }
    } else {
        status = work(task, &error);
    }
    if (status == CRPC_OK) {
        error = (crpc_error){0};
    }
    finish(task, &error);
}

void link_task_wait(struct link_task *task)
{
    crpc_error error = {0};
    assert(task->under_way);
    cm_task_wait(task->under_way, &error);
    task->late = true;
    finish(task, &error);
}

void link_take_task_event(const struct cm_event *event)
{
    struct link_task *task = event->owner;
    struct link *link = task->link;
    task->late = true;
    finish(task, &event->error);
    destroy_if_over(link);
}

void link_tasks_forget(struct link *link)
{
    const crpc_error error = {.status = CRPC_E_CLOSED};
    struct list *at = link->group->tasks.next;
    while (link->busy > 0 && at != &link->group->tasks) {
        struct link_task *task = list_entry(at, struct link_task, group_link);
        at = at->next;
        if (task->link == link && cm_task_forget(task->under_way)) {
            finish(task, &error);
        }
    }
}

void link_tasks_drop(struct link_group *group)
{
    /* All that have not begun come first: else they would begin while others are waited for. */
    struct list *at = group->tasks.next;
    while (at != &group->tasks) {
        struct link_task *task = list_entry(at, struct link_task, group_link);
        at = at->next;
        if (cm_task_forget(task->under_way)) {
            release(task);
        }
    }
    while (!list_empty(&group->tasks)) {
        struct link_task *task = list_entry(group->tasks.next, struct link_task, group_link);
        crpc_error error = {0};
        cm_task_wait(task->under_way, &error);
        release(task);
    }
}
