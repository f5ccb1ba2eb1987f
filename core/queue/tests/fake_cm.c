/* fake_cm.c: see fake_cm.h. */
#include "fake_cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"

struct queued {
    struct list link;
    struct cm_identifier *subject; /* whose destruction removes the event; NULL = of the device */
    struct cm_task *task;          /* that it is the end of */
    struct cm_event event;
};

struct cm_identifier {
    struct cm *cm;
    void *owner;
    struct cm_identifier *peer; /* NULL = none yet, or no more */
    const struct nic_queue_pair *queue_pair;
    bool passive;
    bool answered; /* accepted or rejected by the passive side */
    cm_work *work;
    void *work_argument;
    struct list work_link;
    struct list listen_link;
    char address[64];
};

struct cm_task {
    struct list link;
    struct cm *cm;
    cm_work *work;
    void *argument;
    struct queued *done; /* its event, which the owner has not taken; NULL = not done */
};

static struct list listeners = {.next = &listeners, .previous = &listeners};

static void require(bool held, const char *what)
{
    if (!held) {
        fprintf(stderr, "fake_cm: %s\n", what);
        abort();
    }
}

static void *make(size_t bytes)
{
    void *made = calloc(1, bytes);
    require(made != NULL, "no memory");
    return made;
}

void fake_cm_init(struct cm *cm)
{
    *cm = (struct cm){0};
    list_init(&cm->ready);
    list_init(&cm->waiting);
    list_init(&cm->works);
    list_init(&cm->tasks);
}

void fake_cm_end(const struct cm *cm)
{
    require(list_empty(&cm->tasks) && cm->identifiers == 0, "something is left");
    struct list *lists[] = {(struct list *)&cm->ready, (struct list *)&cm->waiting};
    for (uint32_t i = 0; i < 2; i++) {
        while (!list_empty(lists[i])) {
            struct queued *queued = list_entry(lists[i]->next, struct queued, link);
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed is off the list */
            require(queued->subject == NULL, "an event of nothing is left");
            list_remove(&queued->link);
            free(queued);
        }
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

static struct cm_event *add_event(struct cm *cm, struct cm_identifier *subject,
                                  enum cm_event_kind kind)
{
    struct queued *queued = make(sizeof(*queued));
    queued->subject = subject;
    queued->event = (struct cm_event){.kind = kind, .identifier = subject};
    list_append(cm->late ? &cm->waiting : &cm->ready, &queued->link);
    return &queued->event;
}

static void set_private(struct cm_event *event, const struct cm *cm, const void *data,
                        uint32_t bytes, uint32_t padded)
{
    if (bytes > 0) {
        memcpy(event->private_data, data, bytes);
    }
    event->private_bytes = cm->pads ? padded : bytes;
}

/* Without the events that came before it. */
static void forget_events(struct cm *cm, const struct cm_identifier *subject)
{
    struct list *lists[] = {&cm->ready, &cm->waiting};
    for (uint32_t i = 0; i < 2; i++) {
        struct list *at = lists[i]->next;
        while (at != lists[i]) {
            struct queued *queued = list_entry(at, struct queued, link);
            at = at->next; /* NOLINT(clang-analyzer-unix.Malloc): likewise */
            if (queued->subject == subject) {
                struct cm_identifier *asked = queued->event.identifier;
                list_remove(&queued->link);
                free(queued);
                if (asked != subject) { /* a request that no listener hears of any more */
                    cm_destroy(asked);
                    at = lists[i]->next;
                }
            }
        }
    }
}

bool cm_pending(const struct cm *cm)
{
    return !list_empty(&cm->ready);
}

bool cm_event_take(struct cm *cm, struct cm_event *event)
{
    if (list_empty(&cm->ready)) {
        return false;
    }
    struct queued *queued = list_entry(cm->ready.next, struct queued, link);
    list_remove(&queued->link);
    *event = queued->event;
    if (queued->subject) {
        event->owner = queued->subject->owner;
    }
    free(queued->task);
    free(queued);
    return true;
}

void cm_forget_queue_pair(struct cm *cm, uint32_t nic, uint32_t queue_pair_number)
{
    struct list *lists[] = {&cm->ready, &cm->waiting};
    (void)nic;
    for (uint32_t i = 0; i < 2; i++) {
        for (struct list *at = lists[i]->next, *next; at != lists[i]; at = next) {
            struct queued *queued = list_entry(at, struct queued, link);
            next = at->next;
            if (queued->event.kind == CM_EVENT_QUEUE_PAIR &&
                queued->event.queue_pair_number == queue_pair_number) {
                list_remove(&queued->link);
                free(queued);
            }
        }
    }
}

void fake_cm_device_event(struct cm *cm, enum cm_event_kind kind, uint32_t queue_pair_number,
                          int32_t status)
{
    struct cm_event *event = add_event(cm, NULL, kind);
    event->queue_pair_number = queue_pair_number;
    error_set(&event->error, status, 0, "the device says so");
}

void fake_cm_srq_limit(struct cm *cm, uint64_t queue_handle)
{
    add_event(cm, NULL, CM_EVENT_SRQ_LIMIT)->queue_handle = queue_handle;
}

/* ---- Slow work ------------------------------------------------------------------------------- */

static void run_work(struct cm_identifier *identifier)
{
    struct cm_event ran = {0};
    cm_work *work = identifier->work;
    identifier->work = NULL;
    list_remove(&identifier->work_link);
    if (work(identifier->work_argument, &ran.error) == CRPC_OK) {
        ran.error = (crpc_error){0};
    }
    add_event(identifier->cm, identifier, CM_EVENT_RAN)->error = ran.error;
}

void cm_run(struct cm_identifier *identifier, cm_work *work, void *argument)
{
    require(!identifier->work, "two pieces of work");
    identifier->work = work;
    identifier->work_argument = argument;
    list_append(&identifier->cm->works, &identifier->work_link);
    if (!identifier->cm->late) {
        run_work(identifier);
    }
}

int32_t cm_run_wait(struct cm_identifier *identifier, crpc_error *error)
{
    struct cm *cm = identifier->cm;
    struct list *lists[] = {&cm->ready, &cm->waiting};
    if (identifier->work) {
        run_work(identifier);
    }
    for (uint32_t i = 0; i < 2; i++) {
        for (struct list *at = lists[i]->next; at != lists[i]; at = at->next) {
            struct queued *queued = list_entry(at, struct queued, link);
            if (queued->subject == identifier && queued->event.kind == CM_EVENT_RAN) {
                *error = queued->event.error;
                list_remove(&queued->link);
                free(queued);
                return error->status;
            }
        }
    }
    require(false, "nothing to wait for");
    return CRPC_E_STATE;
}

static void run_task(struct cm_task *task)
{
    crpc_error error = {0};
    list_remove(&task->link);
    if (task->work(task->argument, &error) == CRPC_OK) {
        error = (crpc_error){0};
    }
    struct cm_event *event = add_event(task->cm, NULL, CM_EVENT_TASK);
    event->owner = task->argument;
    event->error = error;
    task->done = container_of(event, struct queued, event);
    task->done->task = task;
}

int32_t cm_task_start(struct cm *cm, cm_work *work, void *argument, struct cm_task **out,
                      crpc_error *error)
{
    struct cm_task *task = make(sizeof(*task));
    (void)error;
    *task = (struct cm_task){.cm = cm, .work = work, .argument = argument};
    list_append(&cm->tasks, &task->link);
    *out = task;
    if (!cm->late) {
        run_task(task);
    }
    return CRPC_OK;
}

int32_t cm_task_wait(struct cm_task *task, crpc_error *error)
{
    if (!task->done) {
        run_task(task);
    }
    *error = task->done->event.error;
    list_remove(&task->done->link);
    free(task->done);
    free(task);
    return error->status;
}

bool cm_task_forget(struct cm_task *task)
{
    if (task->done || task->cm->begun) {
        return false;
    }
    list_remove(&task->link);
    free(task);
    return true;
}

/* ---- What waits ------------------------------------------------------------------------------ */

static uint32_t length(const struct list *list)
{
    uint32_t count = 0;
    for (const struct list *at = list->next; at != list; at = at->next) {
        count++;
    }
    return count;
}

uint32_t fake_cm_waiting(const struct cm *cm)
{
    return !list_empty(&cm->waiting) + length(&cm->works) + length(&cm->tasks);
}

static struct list *element(struct list *list, uint32_t index)
{
    struct list *at = list->next;
    while (index-- > 0) {
        at = at->next;
    }
    return at;
}

void fake_cm_step(struct cm *cm, uint32_t index)
{
    require(index < fake_cm_waiting(cm), "nothing waits");
    if (!list_empty(&cm->waiting)) {
        if (index == 0) {
            struct list *event = cm->waiting.next;
            list_remove(event);
            list_append(&cm->ready, event);
            return;
        }
        index--;
    }
    if (index < length(&cm->works)) {
        run_work(list_entry(element(&cm->works, index), struct cm_identifier, work_link));
        return;
    }
    run_task(list_entry(element(&cm->tasks, index - length(&cm->works)), struct cm_task, link));
}

void fake_cm_step_all(struct cm *cm)
{
    while (fake_cm_waiting(cm) > 0) {
        fake_cm_step(cm, fake_cm_waiting(cm) - 1);
    }
}

/* ---- Connecting ------------------------------------------------------------------------------ */

const char *cm_lacks(const struct cm *cm)
{
    (void)cm;
    return NULL;
}

static struct cm_identifier *make_identifier(struct cm *cm, void *owner, const char *address)
{
    struct cm_identifier *identifier = make(sizeof(*identifier));
    identifier->cm = cm;
    identifier->owner = owner;
    list_init(&identifier->work_link);
    list_init(&identifier->listen_link);
    snprintf(identifier->address, sizeof(identifier->address), "%s", address);
    cm->identifiers++;
    return identifier;
}

static struct cm_identifier *find_listener(const char *address)
{
    for (struct list *at = listeners.next; at != &listeners; at = at->next) {
        struct cm_identifier *one = list_entry(at, struct cm_identifier, listen_link);
        if (strcmp(one->address, address) == 0) {
            return one;
        }
    }
    return NULL;
}

int32_t cm_listen(struct cm *cm, const char *address, uint32_t backlog, void *owner,
                  struct cm_identifier **identifier, crpc_error *error)
{
    (void)backlog;
    (void)error;
    require(!find_listener(address), "two listeners with one address");
    *identifier = make_identifier(cm, owner, address);
    list_append(&listeners, &(*identifier)->listen_link);
    return CRPC_OK;
}

int32_t cm_connect(struct cm *cm, const char *address, void *owner,
                   struct cm_identifier **identifier, crpc_error *error)
{
    (void)error;
    *identifier = make_identifier(cm, owner, address);
    add_event(cm, *identifier, CM_EVENT_ROUTED);
    return CRPC_OK;
}

int32_t cm_hand_over(struct cm_identifier *identifier, struct cm *to, void *owner,
                     uint64_t user_data, const void *private_data, uint32_t private_bytes,
                     crpc_error *error)
{
    (void)error;
    require(identifier->passive && identifier->cm != to, "nothing to hand over");
    forget_events(identifier->cm, identifier);
    identifier->cm->identifiers--;
    to->identifiers++;
    identifier->cm = to;
    identifier->owner = owner;
    struct cm_event *event = add_event(to, identifier, CM_EVENT_HANDED_OVER);
    event->user_data = user_data;
    set_private(event, to, private_data, private_bytes, private_bytes);
    if (!identifier->peer) { /* one of those that were forgotten */
        error_set(&add_event(to, identifier, CM_EVENT_FAILED)->error, CRPC_E_DISCONNECTED, 0,
                  "the peer has given up");
    }
    return CRPC_OK;
}

void cm_hand_over_reject(struct cm *cm, const void *owner)
{
    struct list *lists[] = {&cm->ready, &cm->waiting};
    for (uint32_t i = 0; i < 2; i++) {
        struct list *at = lists[i]->next;
        while (at != lists[i]) {
            const struct queued *queued = list_entry(at, struct queued, link);
            at = at->next;
            if (queued->event.kind == CM_EVENT_HANDED_OVER && queued->subject->owner == owner) {
                cm_reject(queued->subject, NULL, 0);
                cm_destroy(queued->subject);
                at = lists[i]->next;
            }
        }
    }
}

static void add_rejected(struct cm_identifier *identifier, const void *data, uint32_t bytes)
{
    struct cm_event *event = add_event(identifier->cm, identifier, CM_EVENT_REJECTED);
    set_private(event, identifier->cm, data, bytes, CM_REJECT_BYTES_MAX);
    error_set(&event->error, CRPC_E_REFUSED, 0, "the application there refused the connection");
}

int32_t cm_request(struct cm_identifier *identifier, const struct nic_queue_pair *queue_pair,
                   const struct nic_transport *transport, const void *private_data,
                   uint32_t private_bytes, crpc_error *error)
{
    (void)transport;
    (void)error;
    require(private_bytes <= CM_PRIVATE_BYTES, "private data of a request is too long");
    struct cm_identifier *listener = find_listener(identifier->address);
    identifier->queue_pair = queue_pair;
    if (!listener) {
        add_rejected(identifier, NULL, 0);
        return CRPC_OK;
    }
    struct cm *cm = listener->cm;
    struct cm_identifier *asked = make_identifier(cm, NULL, "");
    asked->passive = true;
    asked->peer = identifier;
    identifier->peer = asked;
    struct cm_event *event = add_event(cm, listener, CM_EVENT_CONNECT_REQUEST);
    event->identifier = asked;
    set_private(event, cm, private_data, private_bytes, CM_PRIVATE_BYTES);
    return CRPC_OK;
}

static int32_t connect_pair(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                            const struct nic_transport *transport, crpc_error *error)
{
    const struct nic_operations *operations = queue_pair->nic->operations;
    struct nic_address address;
    identifier->queue_pair = queue_pair;
    if (!identifier->peer) {
        return error_set(error, CRPC_E_DISCONNECTED, 0, "the peer has given up");
    }
    operations->queue_pair_address(identifier->peer->queue_pair, &address);
    return operations->queue_pair_connect(queue_pair, &address, transport, error);
}

int32_t cm_establish(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                     const struct nic_transport *transport, crpc_error *error)
{
    int32_t status = connect_pair(identifier, queue_pair, transport, error);
    if (status == CRPC_OK) {
        add_event(identifier->peer->cm, identifier->peer, CM_EVENT_ESTABLISHED);
    }
    return status;
}

int32_t cm_accept(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                  const struct nic_transport *transport, const void *private_data,
                  uint32_t private_bytes, crpc_error *error)
{
    require(private_bytes <= CM_PRIVATE_BYTES_MAX, "private data of an answer is too long");
    int32_t status = connect_pair(identifier, queue_pair, transport, error);
    if (status == CRPC_OK) {
        struct cm *cm = identifier->peer->cm;
        identifier->answered = true;
        struct cm_event *event = add_event(cm, identifier->peer, CM_EVENT_CONNECT_RESPONSE);
        set_private(event, cm, private_data, private_bytes, CM_PRIVATE_BYTES_MAX);
    }
    return status;
}

void cm_reject(struct cm_identifier *identifier, const void *private_data, uint32_t private_bytes)
{
    require(private_bytes <= CM_REJECT_BYTES_MAX, "private data of a rejection is too long");
    if (identifier->peer) {
        add_rejected(identifier->peer, private_data, private_bytes);
        identifier->peer->peer = NULL;
        identifier->peer = NULL;
    }
}

/* What the peer's side hears when this one goes. */
static void leave(struct cm_identifier *identifier)
{
    struct cm_identifier *peer = identifier->peer;
    if (!peer) {
        return;
    }
    peer->peer = identifier->peer = NULL;
    if (identifier->passive && !identifier->answered) {
        add_rejected(peer, NULL, 0);
    } else {
        bool asks = peer->passive && !peer->answered;
        struct cm_event *event =
            add_event(peer->cm, peer, asks ? CM_EVENT_FAILED : CM_EVENT_DISCONNECTED);
        if (asks) {
            error_set(&event->error, CRPC_E_TIMEOUT, 0, "the peer has given up");
        }
    }
}

void cm_disconnect(struct cm_identifier *identifier)
{
    if (identifier->peer) {
        leave(identifier);
        add_event(identifier->cm, identifier, CM_EVENT_DISCONNECTED);
    }
}

void cm_own(struct cm_identifier *identifier, void *owner)
{
    identifier->owner = owner;
}

void cm_destroy(struct cm_identifier *identifier)
{
    if (!identifier) {
        return;
    }
    leave(identifier);
    forget_events(identifier->cm, identifier);
    list_remove(&identifier->work_link);
    list_remove(&identifier->listen_link);
    identifier->cm->identifiers--;
    free(identifier);
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
