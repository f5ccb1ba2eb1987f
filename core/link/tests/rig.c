/* rig.c: see rig.h. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "link/internal.h"

/* ---- rdma_cm --------------------------------------------------------------------------------- */

static struct cm_identifier *make_identifier(struct cm *cm, void *owner)
{
    struct cm_identifier *identifier = calloc(1, sizeof(*identifier));
    assert_non_null(identifier);
    identifier->cm = cm;
    identifier->owner = owner;
    cm->identifiers++;
    return identifier;
}

bool cm_pending(const struct cm *cm)
{
    return cm->head != cm->tail;
}

bool cm_event_take(struct cm *cm, struct cm_event *event)
{
    if (cm->head == cm->tail) {
        return false;
    }
    *event = cm->events[cm->head++ % RIG_EVENTS_MAX];
    if (event->kind != CM_EVENT_CONNECT_REQUEST && event->identifier) {
        event->owner = event->identifier->owner;
    }
    return true;
}

const char *cm_lacks(const struct cm *cm)
{
    (void)cm;
    return NULL;
}

void cm_forget_queue_pair(struct cm *cm, uint32_t nic, uint32_t queue_pair_number)
{
    (void)cm;
    (void)nic;
    (void)queue_pair_number;
}

int32_t cm_listen(struct cm *cm, const char *address, uint32_t backlog, void *owner,
                  struct cm_identifier **identifier, crpc_error *error)
{
    (void)address;
    (void)backlog;
    (void)error;
    *identifier = make_identifier(cm, owner);
    return CRPC_OK;
}

int32_t cm_connect(struct cm *cm, const char *address, void *owner,
                   struct cm_identifier **identifier, crpc_error *error)
{
    return cm_listen(cm, address, 0, owner, identifier, error);
}

static void note_private(struct cm_identifier *identifier, const void *private_data,
                         uint32_t private_bytes, uint32_t bytes_max)
{
    assert_in_range(private_bytes, 0, bytes_max);
    identifier->private_bytes = private_bytes;
    if (private_bytes > 0) {
        memcpy(identifier->private_data, private_data, private_bytes);
    }
}

int32_t cm_request(struct cm_identifier *identifier, const struct nic_queue_pair *queue_pair,
                   const struct nic_transport *transport, const void *private_data,
                   uint32_t private_bytes, crpc_error *error)
{
    (void)queue_pair;
    (void)transport;
    (void)error;
    note_private(identifier, private_data, private_bytes, CM_PRIVATE_BYTES);
    return CRPC_OK;
}

int32_t cm_establish(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                     const struct nic_transport *transport, crpc_error *error)
{
    (void)transport;
    queue_pair->traffic_class = RIG_TRAFFIC_CLASS;
    queue_pair->service_level = RIG_SERVICE_LEVEL;
    identifier->cm->in_poll += identifier->cm->polling;
    identifier->established++;
    return identifier->cm->establish_status == CRPC_OK
               ? CRPC_OK
               : error_set(error, identifier->cm->establish_status, 0, "not established");
}

int32_t cm_hand_over(struct cm_identifier *identifier, struct cm *to, void *owner,
                     uint64_t user_data, const void *private_data, uint32_t private_bytes,
                     crpc_error *error)
{
    if (identifier->cm->hand_over_status != CRPC_OK) {
        return error_set(error, identifier->cm->hand_over_status, 0, "not handed over");
    }
    assert_true(to->tail - to->head < RIG_EVENTS_MAX);
    identifier->cm->identifiers--;
    to->identifiers++;
    identifier->cm = to;
    identifier->owner = owner;
    struct cm_event *event = &to->events[to->tail++ % RIG_EVENTS_MAX];
    *event = (struct cm_event){.kind = CM_EVENT_HANDED_OVER,
                               .identifier = identifier,
                               .user_data = user_data,
                               .private_bytes = private_bytes};
    memcpy(event->private_data, private_data, private_bytes);
    return CRPC_OK;
}

void cm_hand_over_reject(struct cm *cm, const void *owner)
{
    for (uint32_t at = cm->head; at != cm->tail; at++) {
        const struct cm_event *event = &cm->events[at % RIG_EVENTS_MAX];
        if (event->kind == CM_EVENT_HANDED_OVER && event->identifier->owner == owner) {
            cm_reject(event->identifier, NULL, 0);
            cm_destroy(event->identifier);
            return; /* that has removed it: the tests hand over one */
        }
    }
}

void cm_run(struct cm_identifier *identifier, cm_work *work, void *argument)
{
    assert_null(identifier->work);
    identifier->work = work;
    identifier->work_argument = argument;
}

void rig_work(struct cm_identifier *identifier)
{
    struct cm *cm = identifier->cm;
    const bool polling = cm->polling;
    cm_work *work = identifier->work;
    assert_non_null(work);
    identifier->work = NULL;
    cm->polling = false;
    struct cm_event event = {.kind = CM_EVENT_RAN, .identifier = identifier};
    if (work(identifier->work_argument, &event.error) == CRPC_OK) {
        assert_int_equal(event.error.status, CRPC_OK);
    }
    cm->polling = polling;
    assert_true(cm->tail - cm->head < RIG_EVENTS_MAX);
    cm->events[cm->tail++ % RIG_EVENTS_MAX] = event;
}

/* The service of these tests has no tasks. */
int32_t cm_task_start(struct cm *cm, cm_work *work, void *argument, struct cm_task **task,
                      crpc_error *error)
{
    (void)cm;
    (void)work;
    (void)argument;
    (void)task;
    (void)error;
    abort();
}

int32_t cm_task_wait(struct cm_task *task, crpc_error *error)
{
    (void)task;
    (void)error;
    abort();
}

bool cm_task_forget(struct cm_task *task)
{
    (void)task;
    abort();
}

static bool is_ran(const struct cm_event *event, const struct cm_identifier *identifier)
{
    return event->kind == CM_EVENT_RAN && event->identifier == identifier;
}

int32_t cm_run_wait(struct cm_identifier *identifier, crpc_error *error)
{
    struct cm *cm = identifier->cm;
    uint32_t kept = cm->head;
    if (identifier->work) {
        rig_work(identifier);
    }
    for (uint32_t i = cm->head; i != cm->tail; i++) {
        const struct cm_event event = cm->events[i % RIG_EVENTS_MAX];
        if (is_ran(&event, identifier)) {
            *error = event.error;
        } else {
            cm->events[kept++ % RIG_EVENTS_MAX] = event;
        }
    }
    assert_int_equal(cm->tail - kept, 1);
    cm->tail = kept;
    return error->status;
}

int32_t cm_accept(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                  const struct nic_transport *transport, const void *private_data,
                  uint32_t private_bytes, crpc_error *error)
{
    (void)transport;
    (void)error;
    queue_pair->traffic_class = RIG_TRAFFIC_CLASS;
    queue_pair->service_level = RIG_SERVICE_LEVEL;
    identifier->accepts++;
    note_private(identifier, private_data, private_bytes, CM_PRIVATE_BYTES_MAX);
    return CRPC_OK;
}

void cm_reject(struct cm_identifier *identifier, const void *private_data, uint32_t private_bytes)
{
    note_private(identifier, private_data, private_bytes, CM_REJECT_BYTES_MAX);
    identifier->rejects++;
    identifier->cm->rejects++;
}

void cm_disconnect(struct cm_identifier *identifier)
{
    identifier->disconnects++;
}

void cm_own(struct cm_identifier *identifier, void *owner)
{
    identifier->owner = owner;
}

static void forget_events(struct cm *cm, const struct cm_identifier *identifier)
{
    uint32_t kept = cm->head;
    for (uint32_t i = cm->head; i != cm->tail; i++) {
        if (cm->events[i % RIG_EVENTS_MAX].identifier != identifier) {
            cm->events[kept++ % RIG_EVENTS_MAX] = cm->events[i % RIG_EVENTS_MAX];
        }
    }
    cm->tail = kept;
}

void cm_destroy(struct cm_identifier *identifier)
{
    if (identifier) {
        forget_events(identifier->cm, identifier);
        if (identifier->cm->last) {
            *identifier->cm->last = *identifier;
        }
        identifier->cm->identifiers--;
        free(identifier);
    }
}

void cm_local_address(const struct cm_identifier *identifier, char *text, size_t bytes)
{
    (void)identifier;
    snprintf(text, bytes, "192.0.2.1:1");
}

void cm_peer_address(const struct cm_identifier *identifier, char *text, size_t bytes)
{
    (void)identifier;
    snprintf(text, bytes, "192.0.2.2:2");
}

uint64_t cm_turned_away(const struct cm_identifier *listener)
{
    (void)listener;
    return 0;
}

uint16_t cm_local_port(const struct cm_identifier *identifier)
{
    (void)identifier;
    return 1;
}

/* ---- The service ----------------------------------------------------------------------------- */

static struct thing *thing_of(struct link *link)
{
    return container_of(link, struct thing, link);
}

static int32_t create(struct link_group *group, struct link **link, crpc_error *error)
{
    struct thing *thing = calloc(1, sizeof(*thing));
    assert_non_null(thing);
    *link = &thing->link;
    return link_init(*link, group, error);
}

static int32_t prepare(struct link *link, const void *options, crpc_error *error)
{
    (void)error;
    link->options = *(const struct link_options *)options;
    link->queue_pair = &container_of(link, struct thing, link)->queue_pair;
    return CRPC_OK;
}

static void fill_body(const struct link *link, uint8_t body[LINK_BODY_BYTES])
{
    (void)link;
    memset(body, 0, LINK_BODY_BYTES);
}

static const char *body_fault(const uint8_t body[LINK_BODY_BYTES])
{
    (void)body;
    return NULL;
}

static int32_t expose(struct link *link, crpc_error *error)
{
    (void)link;
    (void)error;
    return CRPC_OK;
}

static int32_t attach(struct link *link, crpc_error *error)
{
    struct cm *cm = link->group->cm;
    cm->in_poll += cm->polling;
    if (cm->attach_status != CRPC_OK) {
        return error_set(error, cm->attach_status, 0, "not attached");
    }
    thing_of(link)->attached = true;
    cm->attached++;
    return CRPC_OK;
}

static void detach(struct link *link)
{
    link->group->cm->attached -= thing_of(link)->attached;
    thing_of(link)->attached = false;
}

static void nothing(struct link *link)
{
    (void)link;
}

static void destroy(struct link *link)
{
    assert_false(link->working); /* the cm thread may use what goes now */
    detach(link);
    link_remove(link);
    free(thing_of(link));
}

static void failed(struct link *link)
{
    if (link->state != CRPC_STATE_DISCONNECTED) {
        link_over(link);
    }
}

static void describe_leave(const struct link *link, char *text, size_t bytes)
{
    (void)link;
    snprintf(text, bytes, "nothing");
}

static bool keepalive(struct link *link)
{
    thing_of(link)->probes += link->heard == 0;
    return thing_of(link)->awaits;
}

static bool quiet(const struct link *link)
{
    (void)link;
    return true;
}

/* Tells the number of the queue pair, so that a test can tell events apart. */
static void device_event(struct link_group *group, const struct cm_event *event)
{
    link_device_event(group, (int32_t)event->queue_pair_number);
}

#define COMMON                                                                                     \
    .no_room = "endpoints_max", .version_min = 1, .version_max = 1,                                \
    .handle_kind = HANDLE_ENDPOINT, .create = create, .prepare = prepare, .fill_body = fill_body,  \
    .body_fault = body_fault, .expose = expose, .attach = attach, .detach = detach,                \
    .unprepare = detach, .destroy = destroy, .opened = link_connected, .settle = nothing,          \
    .distrust = nothing, .failed = failed, .abandoned = nothing, .leave = nothing,                 \
    .describe_leave = describe_leave, .keepalive = keepalive, .closed = nothing, .quiet = quiet,   \
    .device_event = device_event

static const struct link_service service = {
    .name = "endpoint", .number = LINK_SERVICE_CALLS, .features = 0x6, COMMON};
static const struct link_service plain_service = {
    .name = "queue", .plain = true, .number = LINK_SERVICE_QUEUE, COMMON};

/* ---- The rig --------------------------------------------------------------------------------- */

static int open_with(void **state, const struct link_service *served)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig->clock_ns = 1000000000;
    handles_init(&rig->handles);
    link_group_init(&rig->group, served, &rig->nic, &rig->cm, &rig->log, &rig->handles,
                    &rig->clock_ns);
    assert_int_equal(link_listener_open(&rig->group, "*:1", 128, 0, &rig->listener, NULL), CRPC_OK);
    rig->listening = rig->listener->identifier;
    *state = rig;
    return 0;
}

int rig_open(void **state)
{
    return open_with(state, &service);
}

int rig_open_plain(void **state)
{
    return open_with(state, &plain_service);
}

int rig_close(void **state)
{
    struct rig *rig = *state;
    link_group_close(&rig->group);
    assert_int_equal(rig->cm.identifiers, 0);
    assert_int_equal(rig->cm.attached, 0);
    handles_free(&rig->handles);
    free(rig);
    return 0;
}

struct link_options rig_options(void)
{
    return (struct link_options){.connect_timeout_ns = RIG_CONNECT_TIMEOUT_NS,
                                 .keepalive_ns = CRPC_FOREVER};
}

void rig_private_event(struct rig *rig, enum cm_event_kind kind, struct cm_identifier *identifier,
                       const void *private_data, uint32_t private_bytes)
{
    assert_true(rig->cm.tail - rig->cm.head < RIG_EVENTS_MAX);
    assert_in_range(private_bytes, 0, CM_PRIVATE_BYTES_MAX);
    struct cm_event *event = &rig->cm.events[rig->cm.tail++ % RIG_EVENTS_MAX];
    *event =
        (struct cm_event){.kind = kind, .identifier = identifier, .private_bytes = private_bytes};
    if (private_bytes > 0) {
        memcpy(event->private_data, private_data, private_bytes);
    }
}

void rig_event(struct rig *rig, enum cm_event_kind kind, struct cm_identifier *identifier)
{
    rig_private_event(rig, kind, identifier, NULL, 0);
}

struct cm_identifier *rig_private_request(struct rig *rig, const void *private_data,
                                          uint32_t private_bytes)
{
    struct cm_identifier *identifier = make_identifier(&rig->cm, NULL);
    rig_private_event(rig, CM_EVENT_CONNECT_REQUEST, identifier, private_data, private_bytes);
    rig->cm.events[(rig->cm.tail - 1) % RIG_EVENTS_MAX].owner = rig->listening->owner;
    return identifier;
}

struct cm_identifier *rig_request(struct rig *rig)
{
    const struct link_hello hello = {
        .magic = LINK_MAGIC, .version_min = 1, .version_max = 1, .service = LINK_SERVICE_CALLS};
    return rig_private_request(rig, &hello, sizeof(hello));
}

uint32_t rig_poll(struct rig *rig, uint32_t capacity)
{
    assert_in_range(capacity, 1, RIG_COMPLETIONS);
    struct output output = {.next = rig->seen, .end = rig->seen + capacity};
    rig->cm.polling = true;
    rig->group.now_ns = 0;
    link_expire_promptly(&rig->group);
    link_poll_cm(&rig->group);
    link_emit_events(&rig->group, &output);
    link_expire(&rig->group);
    link_emit_events(&rig->group, &output);
    rig->group.now_ns = 0;
    rig->cm.polling = false;
    rig->seen_count = (uint32_t)(output.next - rig->seen);
    return rig->seen_count;
}

struct thing *rig_take_request(struct rig *rig)
{
    assert_int_equal(rig_poll(rig, 1), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECT_REQUEST);
    struct link *link = handles_get(&rig->handles, rig->seen[0].endpoint.bits, HANDLE_ENDPOINT);
    assert_non_null(link);
    return thing_of(link);
}

struct thing *rig_connect(struct rig *rig, const struct link_options *options)
{
    struct cm_identifier *identifier = rig_request(rig);
    struct thing *thing = rig_take_request(rig);
    assert_int_equal(link_accept(&thing->link, options, NULL), CRPC_OK);
    rig_event(rig, CM_EVENT_ESTABLISHED, identifier);
    assert_int_equal(rig_poll(rig, RIG_COMPLETIONS), 1);
    assert_int_equal(rig->seen[0].kind, CRPC_COMPLETION_CONNECTED);
    assert_int_equal(rig->seen[0].status, CRPC_OK);
    return thing;
}
