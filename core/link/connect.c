/* connect.c: connecting by rdma_cm, from both sides: what follows from each of its events. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "link/hello.h"
#include "link/internal.h"
#include "link/prove.h"

int32_t link_need_cm(const struct link_group *group, crpc_error *error)
{
    const char *name = group->service->name;
    const char *lacks = group->cm ? cm_lacks(group->cm) : "not for this device";
    if (!lacks) {
        return CRPC_OK;
    }
    return error_set(error, CRPC_E_UNSUPPORTED, 0,
                     "%s has no rdma_cm; connect with crpc_%s_blob and crpc_%s_join (%s)",
                     group->nic->device, name, name, lacks);
}

int32_t link_make(struct link_group *group, const void *options, struct link **out,
                  crpc_error *error)
{
    struct link *link;
    int32_t status = group->service->create(group, &link, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = link_prepare(link, options, error);
    if (status != CRPC_OK) {
        link_close(link);
        return status;
    }
    *out = link;
    return CRPC_OK;
}

int32_t link_prepare(struct link *link, const void *options, crpc_error *error)
{
    const struct link_service *service = link->group->service;
    int32_t status = service->prepare(link, options, error);
    if (status != CRPC_OK) {
        return status;
    }
    if (link->passive) { /* also if it was prepared before, with other options */
        link->peer.features = link->peer.hello.features & service->features &
                              (uint32_t)~link->options.features_left_out;
    }
    status = link_prove_prepare(link, error);
    if (status == CRPC_OK && !link->proof) {
        status = service->expose(link, error);
    }
    if (status != CRPC_OK) {
        service->unprepare(link);
    }
    return status;
}

int32_t link_attach(struct link *link, crpc_error *error)
{
    return link->proof ? CRPC_OK : link->group->service->attach(link, error);
}

void link_begin(struct link *link)
{
    link->state = CRPC_STATE_CONNECTING;
    link_set_timer(link->group, &link->life_timer, link->options.connect_timeout_ns);
}

void link_tell_ece(struct nic *nic)
{
    if (atomic_load(&nic->ece_refused) && !nic->ece_refused_told && nic->log) {
        nic->ece_refused_told = true;
        log_write(nic->log, CRPC_LOG_WARNING,
                  "%s has refused options of ECE that it offers: connections do without them, as "
                  "with COPYRPC_ECE=off",
                  nic->device);
    }
}

void link_open(struct link *link)
{
    assert(link->state == CRPC_STATE_CONNECTING && !link->opened);
    link->traffic_class = link->queue_pair->traffic_class;
    link->service_level = link->queue_pair->service_level;
    link_tell_ece(link->group->nic);
    if (link_proving(link)) {
        link_prove_begin(link);
        return;
    }
    link->opened = true;
    link->group->service->opened(link);
}

void link_take_private(struct link_peer *peer, const struct cm_event *event)
{
    *peer = (struct link_peer){.private_bytes = event->private_bytes};
    memcpy(peer->private_data, event->private_data, event->private_bytes);
}

/* ---- The connecting side --------------------------------------------------------------------- */

int32_t link_start(struct link *link, const char *address, const void *options, crpc_error *error)
{
    const struct link_group *group = link->group;
    int32_t status = group->connect ? CRPC_OK : link_need_cm(group, error);
    if (status == CRPC_OK) {
        status = link_prepare(link, options, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    status = group->connect ? group->connect(link, address, error)
                            : cm_connect(group->cm, address, link, &link->identifier, error);
    if (status != CRPC_OK) {
        group->service->unprepare(link);
        return status;
    }
    if (!group->connect) {
        link_begin(link);
    }
    return CRPC_OK;
}

int32_t link_connect(struct link_group *group, const char *address, const void *options,
                     struct link **out, crpc_error *error)
{
    struct link *link;
    int32_t status = group->service->create(group, &link, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = link_start(link, address, options, error);
    if (status != CRPC_OK) {
        link_close(link);
        return status;
    }
    *out = link;
    return CRPC_OK;
}

/* Returns what the peer gets in the private data: a hello, which this fills, or the application's. */
static const void *our_private(struct link *link, struct link_hello *hello, uint32_t *bytes)
{
    if (link->group->service->plain) {
        *bytes = link->options.private_bytes;
        return link->options.private_data;
    }
    hello_fill(link, hello);
    link_prove_hello(link, hello);
    *bytes = sizeof(*hello);
    return hello;
}

static void send_request(struct link *link)
{
    struct link_hello hello;
    crpc_error error = {0};
    uint32_t bytes;
    const void *data = our_private(link, &hello, &bytes);
    if (cm_request(link->identifier, link->queue_pair, &link->options.transport, data, bytes,
                   &error) != CRPC_OK) {
        link_fail(link, &error);
    }
}

/* In the cm thread. Registering memory and moving a queue pair take system calls, for which no poll
 * may wait. What this uses of the link is the thread's until then: the owner fails, closes or
 * destroys a link only after cm_destroy, which waits. The memory comes first, so that it is there
 * when the peer's first message arrives. */
static int32_t attach_and_establish(void *argument, crpc_error *error)
{
    struct link *link = argument;
    int32_t status = link_attach(link, error);
    if (status == CRPC_OK) {
        status = cm_establish(link->identifier, link->queue_pair, &link->options.transport, error);
    }
    return status;
}

/* Returns false if the link has failed. */
static bool work_done(struct link *link, const crpc_error *error)
{
    link->working = false;
    if (error->status != CRPC_OK) {
        link_fail(link, error);
        return false;
    }
    return true;
}

static void take_response(struct link *link, const struct cm_event *event)
{
    const struct link_service *service = link->group->service;
    crpc_error error = {0};
    int32_t status = CRPC_OK;
    if (service->plain) {
        link_take_private(&link->peer, event);
    } else {
        status = hello_check_response(link->group, event->private_data, event->private_bytes,
                                      &link->peer, &error);
    }
    if (status == CRPC_OK && link->peer.features & link->options.features_left_out) {
        status = error_set(&error, CRPC_E_PROTOCOL, 0,
                           "the peer's hello is malformed: it selects features that were not "
                           "offered");
    }
    if (status == CRPC_OK) {
        status = link_prove_check(link, &error);
    }
    if (status == CRPC_OK) {
        link->options.transport.access_key = link->peer.nonce;
        link->working = true;
        cm_run(link->identifier, attach_and_establish, link);
    } else {
        link_fail(link, &error);
    }
}

bool link_take_early(struct link *link, const struct nic_completion *completion)
{
    assert(link->state == CRPC_STATE_CONNECTING && !link->opened);
    if (link->working) { /* its last steps: the peer reaches the queue pair already */
        crpc_error error;
        cm_run_wait(link->identifier, &error);
        if (!work_done(link, &error)) {
            return true;
        }
    }
    if (link_joining(link)) { /* likewise */
        link_task_wait(&link->join);
        if (link->failing || link->opened) {
            return link->failing;
        }
    }
    if (link_proving(link)) {
        link_prove_take(link, completion);
        return true;
    }
    link_open(link);
    return false;
}

static void take_rejection(struct link *link, const struct cm_event *event)
{
    crpc_error error = event->error;
    if (link->group->service->plain) {
        link_take_private(&link->peer, event);
        if (error.status == CRPC_OK) {
            error_set(&error, CRPC_E_REFUSED, 0, "the peer refused the connection");
        }
    } else if (event->private_bytes > 0 || error.status == CRPC_OK) {
        hello_explain_reject(link->group->service, event->private_data, event->private_bytes,
                             &error);
    }
    link_fail(link, &error);
}

/* ---- The accepting side ---------------------------------------------------------------------- */

int32_t link_no_request(const struct link *link, const char *what, crpc_error *error)
{
    return error_set(error, CRPC_E_STATE, 0, "this %s has no connect request to %s%s%s",
                     link->group->service->name, what, link->error.status ? ": " : "",
                     link->error.message);
}

int32_t link_accept(struct link *link, const void *options, crpc_error *error)
{
    const struct link_service *service = link->group->service;
    if (link->state != CRPC_STATE_REQUESTED) {
        return link_no_request(link, "accept", error);
    }
    int32_t status = link_prepare(link, options, error);
    if (status != CRPC_OK) {
        return status;
    }
    status = link_prove_check(link, error);
    link->key_differs = status == CRPC_E_KEY;
    if (status == CRPC_OK) {
        link->options.transport.access_key = link->peer.nonce;
        status = link_attach(link, error);
    }
    if (status == CRPC_OK) {
        struct link_hello hello;
        uint32_t bytes;
        const void *data = our_private(link, &hello, &bytes);
        status = cm_accept(link->identifier, link->queue_pair, &link->options.transport, data,
                           bytes, error);
    }
    if (status != CRPC_OK) {
        service->unprepare(link);
        return status;
    }
    link_forget_listener(link);
    link_begin(link);
    return CRPC_OK;
}

/* ---- Events of rdma_cm ----------------------------------------------------------------------- */

static void take_link_event(struct link *link, const struct cm_event *event)
{
    if (event->kind == CM_EVENT_FAILED || event->kind == CM_EVENT_DISCONNECTED) {
        link_lost(link, &event->error);
        return;
    }
    if (link->state != CRPC_STATE_CONNECTING) {
        return; /* it was faster, or is over */
    }
    switch (event->kind) {
    case CM_EVENT_ROUTED:
        send_request(link);
        break;
    case CM_EVENT_CONNECT_RESPONSE:
        take_response(link, event);
        break;
    case CM_EVENT_RAN:
        if (work_done(link, &event->error)) {
            link_open(link);
        }
        break;
    case CM_EVENT_ESTABLISHED:
        if (!link->opened && !link->working) {
            link_open(link);
        }
        break;
    case CM_EVENT_REJECTED:
        take_rejection(link, event);
        break;
    default:
        break;
    }
}

static void take_device_event(struct link_group *group, const struct cm_event *event)
{
    struct list *at = &group->cm_ring;
    do {
        struct link_group *one = list_entry(at, struct link_group, cm_ring);
        at = at->next;
        one->service->device_event(one, event);
    } while (at != &group->cm_ring);
}

static bool room_for_device_events(const struct link_group *group)
{
    const struct list *at = &group->cm_ring;
    do {
        if (list_entry(at, const struct link_group, cm_ring)->device_event_count ==
            LINK_DEVICE_EVENTS_MAX) {
            return false;
        }
        at = at->next;
    } while (at != &group->cm_ring);
    return true;
}

static void take_event(struct link_group *group, const struct cm_event *event)
{
    switch (event->kind) {
    case CM_EVENT_CONNECT_REQUEST:
        link_take_request(event->owner, event);
        break;
    case CM_EVENT_HANDED_OVER:
        link_take_handed_over(event->owner, event);
        break;
    case CM_EVENT_ASKED: {
        struct cm_asked *asked = event->owner;
        asked->answer(asked);
        break;
    }
    case CM_EVENT_TASK:
        link_take_task_event(event);
        break;
    case CM_EVENT_QUEUE_PAIR:
    case CM_EVENT_PORT_ACTIVE:
    case CM_EVENT_PORT_DOWN:
    case CM_EVENT_DEVICE_FATAL:
    case CM_EVENT_SRQ_LIMIT:
        take_device_event(group, event);
        break;
    default:
        take_link_event(event->owner, event);
    }
}

void link_take_cm_events(struct link_group *group)
{
    struct cm_event event;
    for (uint32_t i = 0; i < LINK_CM_EVENTS_A_POLL && room_for_device_events(group) &&
                         cm_event_take(group->cm, &event);
         i++) {
        take_event(group, &event);
    }
}
