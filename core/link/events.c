/* events.c: what a poll gives of links, and what has come due. */
#include <string.h>

#include "link/internal.h"

void link_report(struct link *link, uint32_t events)
{
    assert(events != 0 && (events & ~LINK_EVENTS_ALL) == 0);
    link->events |= events;
    list_append_once(&link->group->events, &link->event_link);
    link->group->attention = true;
}

/* ---- Giving events --------------------------------------------------------------------------- */

static void emit(const struct link *link, uint8_t kind, int32_t status, uint64_t user_data,
                 struct output *output)
{
    *output->next++ = (crpc_completion){.kind = kind,
                                        .flags = link->group->service->completion_flags,
                                        .status = status,
                                        .endpoint = {link->handle},
                                        .user_data = user_data,
                                        .endpoint_user_data = link->options.user_data};
}

/* It has ended, or could not connect. */
static void emit_end(struct link *link, uint8_t kind, struct output *output)
{
    const struct link_service *service = link->group->service;
    if (service->comes_back && service->comes_back(link)) {
        kind = CRPC_COMPLETION_RECONNECTING;
    }
    emit(link, kind, link->error.status, link->options.user_data, output);
}

static void emit_connected(struct link *link, struct output *output)
{
    if (link->state == CRPC_STATE_DISCONNECTED && !(link->events & LINK_EVENT_DISCONNECTED)) {
        emit_end(link, CRPC_COMPLETION_CONNECTED, output);
    } else {
        emit(link, CRPC_COMPLETION_CONNECTED, CRPC_OK, link->options.user_data, output);
    }
}

/* Gives the event that has to come first. False if it has to wait. */
static bool emit_first(struct link *link, struct output *output)
{
    const struct link_service *service = link->group->service;
    uint32_t first = link->events & -link->events;
    if (first == LINK_EVENT_DISCONNECTED && (link->cancels > 0 || !service->quiet(link))) {
        return false;
    }
    if (first == LINK_EVENT_SERVICE) {
        service->emit_event(link, output); /* there may be more of them */
        return true;
    }
    link->events &= ~first;
    switch (first) {
    case LINK_EVENT_CONNECT_REQUEST:
        emit(link, CRPC_COMPLETION_CONNECT_REQUEST, CRPC_OK, link->request_user_data, output);
        break;
    case LINK_EVENT_CONNECTED:
        emit_connected(link, output);
        break;
    case LINK_EVENT_ROOM:
        if (link->refused) {
            link->refused = false;
            if (service->room) {
                service->room(link);
            }
            emit(link, CRPC_COMPLETION_ROOM, CRPC_OK, link->options.user_data, output);
        }
        break;
    default:
        emit_end(link, CRPC_COMPLETION_DISCONNECTED, output);
    }
    return true;
}

static void emit_device_events(struct link_group *group, struct output *output)
{
    uint32_t given = 0;
    while (given < group->device_event_count && !output_full(output)) {
        *output->next++ = (crpc_completion){.kind = CRPC_COMPLETION_DEVICE,
                                            .status = group->device_events[given++]};
    }
    group->device_event_count -= given;
    memmove(group->device_events, group->device_events + given,
            group->device_event_count * sizeof(group->device_events[0]));
}

void link_emit_events_now(struct link_group *group, struct output *output)
{
    emit_device_events(group, output);
    struct list *at = group->events.next;
    while (at != &group->events && !output_full(output)) {
        struct link *link = list_entry(at, struct link, event_link);
        at = at->next;
        if (link->closed) {
            if (group->service->quiet(link) && link->busy == 0) {
                group->service->destroy(link);
            } else if (group->service->quiet(link)) {
                list_remove(&link->event_link); /* the end of its last task destroys it */
            }
            continue;
        }
        while (link->events != 0 && !output_full(output) && emit_first(link, output)) {
        }
        if (link->events == 0) {
            list_remove(&link->event_link);
        }
    }
}

void link_device_event(struct link_group *group, int32_t status)
{
    assert(group->device_event_count < LINK_DEVICE_EVENTS_MAX);
    group->device_events[group->device_event_count++] = status;
    group->attention = true;
}

/* ---- Time ------------------------------------------------------------------------------------ */

void link_set_timer(struct link_group *group, struct wheel_timer *timer, uint64_t delay_ns)
{
    if (delay_ns == CRPC_FOREVER) {
        return;
    }
    group->now_ns = 0;
    wheel_set(&group->wheel, timer, deadline_after(link_now_ns(group), delay_ns));
    group->now_ns = 0;
}

void link_expire_now(struct link_group *group)
{
    struct wheel_timer *timer;
    group->lazy_polls = 0;
    wheel_advance(&group->wheel, link_now_ns(group));
    while ((timer = wheel_take(&group->wheel)) != NULL) {
        if (timer->kind == LINK_TIMER_LIFE) {
            link_life_timer(container_of(timer, struct link, life_timer));
        } else {
            group->service->timer(group, timer);
        }
    }
}

/* ---- Cancels --------------------------------------------------------------------------------- */

int32_t link_cancel_possible(struct link *link)
{
    const struct link_group *group = link->group;
    if (link->state == CRPC_STATE_DISCONNECTED && !link->away) {
        return CRPC_E_DISCONNECTED;
    }
    if (group->cancels_tail - group->cancels_head < LINK_CANCELS_MAX) {
        return CRPC_OK;
    }
    link->refused = true;
    link_report(link, LINK_EVENT_ROOM); /* the next poll makes room */
    return CRPC_E_AGAIN;
}

void link_cancel_done(struct link *link, uint64_t user_data, uint64_t count)
{
    assert(link->group->cancels_tail - link->group->cancels_head < LINK_CANCELS_MAX);
    struct link_group *group = link->group;
    group->cancels[group->cancels_tail++ % LINK_CANCELS_MAX] =
        (struct link_cancel){.handle = link->handle,
                             .link_user_data = link->options.user_data,
                             .user_data = user_data,
                             .count = count};
    link->cancels++;
    link->group->attention = true;
}

void link_emit_cancels(struct link_group *group, struct output *output)
{
    while (group->cancels_head != group->cancels_tail && !output_full(output)) {
        const struct link_cancel *cancel =
            &group->cancels[group->cancels_head++ % LINK_CANCELS_MAX];
        struct link *link =
            handles_get(group->handles, cancel->handle, group->service->handle_kind);
        if (link) { /* or it is closed */
            link->cancels--;
        }
        *output->next++ =
            (crpc_completion){.kind = CRPC_COMPLETION_CANCEL,
                              .flags = group->service->completion_flags,
                              .status = cancel->count > 0 ? CRPC_OK : CRPC_E_NOT_FOUND,
                              .endpoint = {cancel->handle},
                              .user_data = cancel->user_data,
                              .token = cancel->count,
                              .endpoint_user_data = cancel->link_user_data};
    }
}
