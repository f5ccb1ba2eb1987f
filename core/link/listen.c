/* listen.c: listeners, and the requests that come to them. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "link/hello.h"
#include "link/internal.h"

int32_t link_listener_open(struct link_group *group, const char *address, uint32_t backlog,
                           uint64_t user_data, struct link_listener **out, crpc_error *error)
{
    assert(backlog > 0);
    int32_t status = link_need_cm(group, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct link_listener *listener = calloc(1, sizeof(*listener));
    if (listener) {
        listener->handle = handles_add(group->handles, HANDLE_LISTENER, listener);
    }
    if (!listener || listener->handle == 0) {
        free(listener);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a listener");
    }
    listener->group = group;
    listener->user_data = user_data;
    listener->backlog = backlog;
    list_append(&group->listeners, &listener->all_link);
    status = cm_listen(group->cm, address, backlog, listener, &listener->identifier, error);
    if (status != CRPC_OK) {
        link_listener_close(listener);
        return status;
    }
    *out = listener;
    return CRPC_OK;
}

void link_listener_close(struct link_listener *listener)
{
    struct link_group *group = listener->group;
    struct list *at = group->all.next;
    while (at != &group->all) {
        struct link *link = list_entry(at, struct link, all_link);
        at = at->next;
        if (link->listener != listener) {
            continue;
        }
        if (link->state == CRPC_STATE_REQUESTED || (link->events & LINK_EVENT_CONNECT_REQUEST)) {
            link_close(link); /* it waits, or its peer gave up before anybody heard of it */
        } else {
            link->listener = NULL;
        }
    }
    cm_destroy(listener->identifier);
    handles_remove(group->handles, listener->handle);
    list_remove(&listener->all_link);
    free(listener);
}

uint32_t link_listener_drain(struct link_listener *listener, uint64_t timeout_ns)
{
    struct link_group *group = listener->group;
    const uint64_t handle = listener->handle;
    uint32_t count = 0;
    link_listener_close(listener);
    struct list *at = group->all.next;
    while (at != &group->all) {
        struct link *link = list_entry(at, struct link, all_link);
        at = at->next;
        count += link->came_by == handle && !link->closed &&
                 link_disconnect(link, timeout_ns) == CRPC_OK;
    }
    return count;
}

uint64_t link_listener_handle(const struct link_listener *listener)
{
    return listener->handle;
}

void link_listener_info(const struct link_listener *listener, crpc_listener_info *info)
{
    uint64_t turned_away = cm_turned_away(listener->identifier);
    *info = (crpc_listener_info){.port = cm_local_port(listener->identifier),
                                 .user_data = listener->user_data,
                                 .requests = listener->requests + turned_away,
                                 .refused = listener->refused + turned_away};
    cm_local_address(listener->identifier, info->address, sizeof(info->address));
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void refuse(struct link_group *group, struct cm_identifier *identifier,
                   const struct link_reject *reject, const crpc_error *error)
{
    char peer[64];
    cm_peer_address(identifier, peer, sizeof(peer));
    log_write(group->log, CRPC_LOG_WARNING, "refused a connection from %s: %s", peer,
              error->message);
    if (group->service->plain) {
        cm_reject(identifier, NULL, 0);
    } else {
        cm_reject(identifier, reject, sizeof(*reject));
    }
    cm_destroy(identifier);
}

/* The application may take its time to accept; cm keeps the backlog of a listener only until we hear of a request. Of
 * what was handed over, cm keeps all of it. */
static int32_t make_link(struct link_group *group, const struct link_listener *listener,
                         struct link **link, crpc_error *error)
{
    if (listener && listener->waiting >= listener->backlog) {
        return error_set(error, CRPC_E_NO_RESOURCE, 0, "the backlog of %u is full",
                         listener->backlog);
    }
    return group->service->create(group, link, error);
}

/* Makes a link that waits to be accepted or rejected, or refuses the peer and returns NULL. listener: NULL = the request
 * was handed over. */
static struct link *take_request(struct link_group *group, const struct link_listener *listener,
                                 const struct cm_event *event, uint64_t user_data)
{
    const struct link_service *service = group->service;
    struct link_peer peer;
    struct link_reject reject;
    struct link *link = NULL;
    crpc_error error = {0};
    int32_t status = CRPC_OK;
    if (service->plain) {
        link_take_private(&peer, event);
    } else {
        status = hello_check_request(group, event->private_data, event->private_bytes, &peer,
                                     &reject, &error);
    }
    if (status == CRPC_OK) {
        hello_fill_reject(service, &reject, LINK_REJECT_NO_ROOM, 0);
        status = make_link(group, listener, &link, &error);
    }
    if (status != CRPC_OK) {
        refuse(group, event->identifier, &reject, &error);
        return NULL;
    }
    assert(link);
    link->state = CRPC_STATE_REQUESTED;
    link->passive = true;
    link->peer = peer;
    link->request_user_data = user_data;
    link->identifier = event->identifier;
    cm_own(link->identifier, link);
    link_report(link, LINK_EVENT_CONNECT_REQUEST);
    return link;
}

void link_take_request(struct link_listener *listener, const struct cm_event *event)
{
    assert(event->kind == CM_EVENT_CONNECT_REQUEST);
    struct link *link = take_request(listener->group, listener, event, listener->user_data);
    listener->requests++;
    if (link) {
        link->listener = listener;
        link->came_by = listener->handle;
        listener->waiting++;
    } else {
        listener->refused++;
    }
}

void link_take_handed_over(struct link_group *group, const struct cm_event *event)
{
    assert(event->kind == CM_EVENT_HANDED_OVER);
    take_request(group, NULL, event, event->user_data);
}

void link_forget_listener(struct link *link)
{
    if (link->listener) {
        link->listener->waiting--;
        link->listener = NULL;
    }
}

/* ---- Handing over ---------------------------------------------------------------------------- */

int32_t link_hand_over(struct link *link, struct link_group *to, uint64_t user_data,
                       crpc_error *error)
{
    const struct link_service *service = link->group->service;
    assert(service == to->service && link->group != to);
    if (link->state != CRPC_STATE_REQUESTED) {
        return link_no_request(link, "hand over", error);
    }
    int32_t status = link_need_cm(to, error);
    if (status != CRPC_OK) {
        return status;
    }
    const void *data = service->plain ? (const void *)link->peer.private_data : &link->peer.hello;
    const uint32_t bytes =
        service->plain ? link->peer.private_bytes : (uint32_t)sizeof(link->peer.hello);
    status = cm_hand_over(link->identifier, to->cm, to, user_data, data, bytes, error);
    if (status == CRPC_OK) {
        link->identifier = NULL;
        link->state = CRPC_STATE_DISCONNECTED;
        link_close(link);
    }
    return status;
}
