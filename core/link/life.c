/* life.c: how a link becomes connected, fails, takes leave and is closed, and the timer that watches
 * over it meanwhile.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/probe.h"
#include "link/hello.h"
#include "link/internal.h"
#include "link/prove.h"

/* ---- Groups ---------------------------------------------------------------------------------- */

static void assert_whole(const struct link_service *service)
{
    assert(service->name && service->no_room && service->version_min <= service->version_max);
    assert(service->create && service->prepare && service->fill_body && service->body_fault);
    assert(service->expose && service->attach && service->detach && service->unprepare &&
           service->destroy);
    assert(service->opened && service->settle && service->distrust && service->failed);
    assert(service->abandoned && service->leave && service->describe_leave && service->keepalive &&
           service->closed);
    assert(service->quiet);
    (void)service;
}

void link_group_init(struct link_group *group, const struct link_service *service, struct nic *nic,
                     struct cm *cm, struct log *log, struct handles *handles,
                     const uint64_t *virtual_clock_ns)
{
    assert_whole(service);
    *group = (struct link_group){.service = service,
                                 .nic = nic,
                                 .cm = cm,
                                 .log = log,
                                 .handles = handles,
                                 .virtual_clock_ns = virtual_clock_ns};
    list_init(&group->all);
    list_init(&group->listeners);
    list_init(&group->events);
    list_init(&group->tasks);
    list_init(&group->cm_ring);
    wheel_init(&group->wheel, link_now_ns(group));
    group->now_ns = 0;
    if (nic) {
        link_group_add_port(group, nic);
    }
}

void link_group_add_port(struct link_group *group, const struct nic *nic)
{
    assert(list_empty(&group->all));
    group->ece |= nic->ece;
    if (nic->link == CRPC_LINK_INFINIBAND) {
        group->route_features |= LINK_FEATURE_ROUTE_HEADERS;
    }
    if (nic->grh_required) {
        group->route_features |= LINK_FEATURE_ROUTE_HEADERS | LINK_FEATURE_GRH;
    }
}

void link_group_beside(struct link_group *group, struct link_group *other)
{
    assert(group->cm == other->cm && !list_linked(&group->cm_ring));
    list_append(&other->cm_ring, &group->cm_ring);
}

/* From here on the cm thread does nothing for the link, whose memory and queue pair are the owner's
 * alone. */
static void end_identifier(struct link *link)
{
    cm_destroy(link->identifier);
    link->identifier = NULL;
    link->working = false;
}

void link_group_close(struct link_group *group)
{
    while (!list_empty(&group->listeners)) {
        link_listener_close(list_entry(group->listeners.next, struct link_listener, all_link));
    }
    if (group->cm) {
        cm_hand_over_reject(group->cm, group);
    }
    link_tasks_drop(group);
    list_remove(&group->cm_ring);
    while (!list_empty(&group->all)) {
        struct link *link = list_entry(group->all.next, struct link, all_link);
        end_identifier(link);
        group->service->destroy(link);
    }
}

/* ---- The life timer -------------------------------------------------------------------------- */

/* Sets the timer to the next look after the peer. */
static void watch(struct link *link, bool idle)
{
    uint64_t pause_ns = link->options.keepalive_ns;
    assert(!link->idle);
    link->heard = 0;
    if (pause_ns == CRPC_FOREVER) {
        return;
    }
    if (idle && __builtin_mul_overflow(pause_ns, LINK_IDLE_INTERVALS, &pause_ns)) {
        pause_ns = CRPC_FOREVER - 1;
    }
    link->idle = idle;
    link->group->idle_timers += idle;
    link_set_timer(link->group, &link->life_timer, pause_ns);
}

static void not_idle(struct link *link)
{
    link->group->idle_timers -= link->idle;
    link->idle = false;
}

static void clear_timer(struct link *link)
{
    not_idle(link);
    wheel_clear(&link->group->wheel, &link->life_timer);
}

/* ---- Making ---------------------------------------------------------------------------------- */

int32_t link_secret_address(uint64_t *address, crpc_error *error)
{
    if (getrandom(address, sizeof(*address), 0) != (ssize_t)sizeof(*address)) {
        return error_set(error, CRPC_E_SYSTEM, errno, "getrandom failed: %s", strerror(errno));
    }
    *address = (*address & ((UINT64_C(1) << 62) - 1) & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1)) |
               UINT64_C(1) << 62;
    return CRPC_OK;
}

int32_t link_init(struct link *link, struct link_group *group, crpc_error *error)
{
    const struct link_service *service = group->service;
    if (getrandom(&link->nonce, sizeof(link->nonce), 0) != (ssize_t)sizeof(link->nonce)) {
        return error_set(error, CRPC_E_SYSTEM, errno, "getrandom failed: %s", strerror(errno));
    }
    link->handle = handles_add(group->handles, service->handle_kind, link);
    if (link->handle == 0) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for the handle of a %s",
                         service->name);
    }
    link->group = group;
    link->made_ns = group->virtual_clock_ns ? *group->virtual_clock_ns : clock_now_ns();
    link->leave_timeout_ns = CRPC_FOREVER;
    list_init(&link->event_link);
    wheel_timer_init(&link->life_timer, LINK_TIMER_LIFE);
    list_append(&group->all, &link->all_link);
    return CRPC_OK;
}

void link_take_place(struct link *link, struct link *other)
{
    const uint64_t handle = link->handle;
    assert(other->away && link->group == other->group);
    handles_swap(link->group->handles, handle, other->handle);
    link->handle = other->handle;
    other->handle = handle;
    link->cancels = other->cancels;
    other->cancels = 0;
    other->away = false;
}

void link_remove(struct link *link)
{
    struct link_group *group = link->group;
    cm_destroy(link->identifier);
    clear_timer(link);
    list_remove(&link->event_link);
    list_remove(&link->all_link);
    handles_remove(group->handles, link->handle);
    link_prove_forget_key(link);
}

/* ---- Connected, and over --------------------------------------------------------------------- */

void link_connected(struct link *link)
{
    assert(link->state == CRPC_STATE_CONNECTING);
    clear_timer(link);
    link->state = CRPC_STATE_CONNECTED;
    probe3(connected, link->group->service->name, link->handle, link->passive);
    watch(link, true);
    link_report(link, LINK_EVENT_CONNECTED);
}

void link_fail(struct link *link, const crpc_error *error)
{
    struct link_group *group = link->group;
    if (link->failing) {
        return;
    }
    bool connecting = link->state == CRPC_STATE_CONNECTING || link->state == CRPC_STATE_NEW;
    link->failing = true;
    link->refused = false;
    link->error = *error;
    clear_timer(link);
    if (connecting) {
        end_identifier(link);
        link_prove_forget_key(link);
        link->state = CRPC_STATE_DISCONNECTED;
        probe4(connect_failed, group->service->name, link->handle, error->status, error->message);
        log_write(group->log, CRPC_LOG_INFO, "%s not connected: %s", group->service->name,
                  error->message);
        link_report(link, LINK_EVENT_CONNECTED);
    } else if (link->identifier) {
        cm_disconnect(link->identifier);
    }
    group->service->failed(link);
}

void link_over(struct link *link)
{
    assert(link->failing);
    link->state = CRPC_STATE_DISCONNECTED;
    probe4(disconnected, link->group->service->name, link->handle, link->error.status,
           link->error.message);
    if (link->error.status != CRPC_OK && !link->closed) {
        log_write(link->group->log, CRPC_LOG_WARNING, "%s lost: %s", link->group->service->name,
                  link->error.message);
    }
    link_report(link, LINK_EVENT_DISCONNECTED);
}

void link_lost(struct link *link, const crpc_error *given)
{
    crpc_error error = *given;
    if (error.status == CRPC_OK) {
        error_set(&error, CRPC_E_DISCONNECTED, 0,
                  "the peer closed the connection, or its program ended");
    }
    switch (link->state) {
    case CRPC_STATE_REQUESTED: /* the peer gave up waiting: accept will say so */
        cm_destroy(link->identifier);
        link->identifier = NULL;
        link->given_up = true;
        link->error = error;
        link->state = CRPC_STATE_DISCONNECTED;
        break;
    case CRPC_STATE_CONNECTING:
    case CRPC_STATE_CONNECTED:
    case CRPC_STATE_CLOSING:
        if (!link->failing) {
            link->group->service->settle(link);
            if (link_proving(link)) {
                link_prove_lost(link, &error);
            }
            link_fail(link, &error);
        }
        break;
    default:
        break;
    }
}

void link_violated(struct link *link, const char *format, ...)
{
    if (link->state == CRPC_STATE_DISCONNECTED) {
        return;
    }
    char text[160];
    char peer[64] = "by blob";
    const char *before = link->error.message; /* if it is failing already */
    crpc_error error = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (link->identifier) {
        cm_peer_address(link->identifier, peer, sizeof(peer));
    }
    error_set(&error, CRPC_E_PROTOCOL, 0, "the peer (%s) broke the protocol: %s%s%s", peer, text,
              *before ? ". That came before the end: " : "", before);
    probe3(protocol_error, link->group->service->name, link->handle, error.message);
    link->group->service->distrust(link);
    link_fail(link, &error);
    link->error = error;
}

void link_forget_queue_pair(struct link_group *group, uint32_t nic, uint32_t number)
{
    if (group->cm) {
        cm_forget_queue_pair(group->cm, nic, number);
    }
}

/* ---- Leave and close ------------------------------------------------------------------------- */

int32_t link_disconnect(struct link *link, uint64_t timeout_ns)
{
    struct link_group *group = link->group;
    if (group->service->stay_away && group->service->stay_away(link)) {
        group->now_ns = 0;
        return CRPC_OK;
    }
    if ((link->state != CRPC_STATE_CONNECTED && link->state != CRPC_STATE_CLOSING) ||
        link->failing) {
        return CRPC_E_STATE;
    }
    link->state = CRPC_STATE_CLOSING;
    link->leave_timeout_ns = timeout_ns;
    clear_timer(link);
    link_set_timer(group, &link->life_timer, timeout_ns);
    if (timeout_ns == CRPC_FOREVER) {
        watch(link, false);
    }
    group->service->leave(link);
    group->now_ns = 0;
    return CRPC_OK;
}

/* Rejects a connect request with the reason. */
static void reject_request(struct link *link, uint32_t reason)
{
    const struct link_service *service = link->group->service;
    struct link_reject reject;
    if (link->state != CRPC_STATE_REQUESTED) {
        return;
    }
    if (service->plain) {
        cm_reject(link->identifier, NULL, 0);
        return;
    }
    hello_fill_reject(service, &reject, LINK_REJECT_APPLICATION, reason);
    if (link->key_differs && reason == 0) {
        hello_fill_reject(service, &reject, LINK_REJECT_KEY, !link->peer.proves);
    }
    cm_reject(link->identifier, &reject, sizeof(reject));
}

static void close_link(struct link *link)
{
    struct link_group *group = link->group;
    link_forget_listener(link);
    link_prove_forget_key(link); /* its memory may stay until a later poll */
    handles_remove(group->handles, link->handle);
    clear_timer(link);
    end_identifier(link);
    link->closed = true;
    link->failing = true;
    link->refused = false;
    link->events = 0;
    group->service->closed(link);
    link_tasks_forget(link);
    link->state = CRPC_STATE_DISCONNECTED;
    if (!group->service->quiet(link)) {
        link_report(link, LINK_EVENT_DISCONNECTED);
    } else if (link->busy == 0) {
        group->service->destroy(link);
    } else { /* the end of its last task destroys it */
        list_remove(&link->event_link);
    }
}

int32_t link_reject(struct link *link, uint32_t reason)
{
    if (link->state != CRPC_STATE_REQUESTED && !link->given_up) {
        return CRPC_E_STATE;
    }
    reject_request(link, reason);
    close_link(link);
    return CRPC_OK;
}

int32_t link_reject_plain(struct link *link, const void *private_data, uint32_t private_bytes)
{
    assert(link->group->service->plain && private_bytes <= CM_REJECT_BYTES_MAX);
    if (link->state != CRPC_STATE_REQUESTED && !link->given_up) {
        return CRPC_E_STATE;
    }
    if (link->state == CRPC_STATE_REQUESTED) {
        cm_reject(link->identifier, private_data, private_bytes);
    }
    close_link(link);
    return CRPC_OK;
}

void link_close(struct link *link)
{
    reject_request(link, 0);
    close_link(link);
}

/* ---- The keepalive --------------------------------------------------------------------------- */

void link_start_keepalive(struct link *link)
{
    if (link->idle && !link->failing) {
        clear_timer(link);
        watch(link, false);
    }
}

void link_life_timer(struct link *link)
{
    const struct link_service *service = link->group->service;
    crpc_error error = {0};
    assert(!link->failing);
    not_idle(link);
    if (link->state == CRPC_STATE_CONNECTING) {
        error_set(&error, CRPC_E_TIMEOUT, 0,
                  "no connection within %llu ms; is the peer's program running and polling?",
                  (unsigned long long)(link->options.connect_timeout_ns / 1000000));
        if (link_proving(link)) {
            link_prove_lost(link, &error);
        }
        link_fail(link, &error);
    } else if (link->leave_timeout_ns != CRPC_FOREVER) {
        char text[128];
        service->describe_leave(link, text, sizeof(text));
        error_set(&error, CRPC_E_TIMEOUT, 0,
                  "the peer did not finish within the disconnect timeout: %s", text);
        link_fail(link, &error);
    } else {
        bool idle = !service->keepalive(link);
        if (!link->failing) {
            watch(link, idle);
        }
    }
}

/* ---- Asking ---------------------------------------------------------------------------------- */

void link_addresses(const struct link *link, char *peer, size_t peer_bytes, char *local,
                    size_t local_bytes)
{
    peer[0] = '\0';
    local[0] = '\0';
    if (link->identifier) {
        cm_peer_address(link->identifier, peer, peer_bytes);
        cm_local_address(link->identifier, local, local_bytes);
    }
}
