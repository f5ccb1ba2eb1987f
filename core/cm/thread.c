/* thread.c: the cm thread: waits for events of rdma_cm, of the devices, and for work, and turns them
 * into queued events.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/error.h"
#include "cm/internal.h"

#define TROUBLE_PAUSE_NS 20000000 /* after what cannot be helped, so as not to spin on it */

/* An event of rdma_cm, copied so that the original can be acknowledged at once. */
struct seen {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    struct rdma_conn_param parameters;
    uint8_t private_data[256];
};

static void pause_briefly(void)
{
    struct timespec time = {.tv_nsec = TROUBLE_PAUSE_NS};
    nanosleep(&time, NULL);
}

void cm_kick(struct cm *cm)
{
    eventfd_write(cm->kick_fd, 1);
}

/* ---- Being busy with an identifier ----------------------------------------------------------- */

/* False if it is being destroyed, or handed over. */
static bool begin(struct cm *cm, struct cm_identifier *identifier)
{
    pthread_mutex_lock(&cm->mutex);
    bool alive = identifier->cm == cm && !identifier->dying;
    if (alive) {
        cm->busy = identifier;
    }
    pthread_mutex_unlock(&cm->mutex);
    return alive;
}

static void end(struct cm *cm)
{
    pthread_mutex_lock(&cm->mutex);
    cm->busy = NULL;
    pthread_cond_broadcast(&cm->idle);
    pthread_mutex_unlock(&cm->mutex);
}

/* ---- Work ------------------------------------------------------------------------------------ */

void cm_work_add(struct cm_identifier *identifier)
{
    struct cm *cm = identifier->cm;
    pthread_mutex_lock(&cm->mutex);
    if (!identifier->dying) {
        list_append_once(&cm->work, &identifier->work_link);
    }
    pthread_mutex_unlock(&cm->mutex);
    cm_kick(cm);
}

void cm_run(struct cm_identifier *identifier, cm_work *work, void *argument)
{
    pthread_mutex_lock(&identifier->cm->mutex);
    assert(!identifier->run && !list_linked(&identifier->work_link));
    identifier->run = work;
    identifier->run_argument = argument;
    pthread_mutex_unlock(&identifier->cm->mutex);
    cm_work_add(identifier);
}

int32_t cm_run_wait(struct cm_identifier *identifier, crpc_error *error)
{
    struct cm *cm = identifier->cm;
    struct cm_event event;
    pthread_mutex_lock(&cm->mutex);
    while (!cm_queue_take(cm, identifier, CM_EVENT_RAN, &event)) {
        pthread_cond_wait(&cm->idle, &cm->mutex);
    }
    pthread_mutex_unlock(&cm->mutex);
    *error = event.error;
    return event.error.status;
}

static void run(struct cm_identifier *identifier, cm_work *work)
{
    struct cm_event *event = cm_spare_event(identifier->cm, CM_EVENT_RAN, identifier);
    if (work(identifier->run_argument, &event->error) == CRPC_OK) {
        event->error = (crpc_error){.struct_size = sizeof(event->error)};
    }
    cm_queue_spare(identifier->cm, identifier);
}

/* Does the oldest piece; false if there is none. */
static bool work_step(struct cm *cm)
{
    pthread_mutex_lock(&cm->mutex);
    struct cm_identifier *identifier = NULL;
    cm_work *work = NULL;
    if (!list_empty(&cm->work)) {
        identifier = list_entry(cm->work.next, struct cm_identifier, work_link);
        list_remove(&identifier->work_link);
        cm->busy = identifier;
        work = identifier->run;
        identifier->run = NULL;
    }
    pthread_mutex_unlock(&cm->mutex);
    if (!identifier) {
        return false;
    }
    if (work) {
        run(identifier, work);
    } else {
        cm_route_next(identifier);
    }
    end(cm);
    return true;
}

/* ---- Events of rdma_cm ----------------------------------------------------------------------- */

static void tell(struct cm_identifier *identifier, enum cm_event_kind kind, const struct seen *seen)
{
    struct cm_event *event = cm_spare_event(identifier->cm, kind, identifier);
    cm_event_set_private(event, seen->private_data, seen->parameters.private_data_len);
    cm_queue_spare(identifier->cm, identifier);
}

static void tell_failed(struct cm_identifier *identifier, int status)
{
    struct cm_event *event = cm_spare_event(identifier->cm, CM_EVENT_FAILED, identifier);
    cm_connect_error(identifier->passive ? identifier->peer : identifier->target,
                     status < 0 ? -status : status, &event->error);
    cm_queue_spare(identifier->cm, identifier);
}

/* By the peer's host or application. On the passive side it means that the connecting side has
 * given up in the middle of the handshake. After the peer has accepted, it means that the peer has
 * closed the connection before it heard of our answer. */
static void tell_rejected(struct cm_identifier *identifier, const struct seen *seen)
{
    if (identifier->passive) {
        tell_failed(identifier, ECONNRESET);
        return;
    }
    if (identifier->answered) {
        tell(identifier, CM_EVENT_DISCONNECTED, seen);
        return;
    }
    crpc_error error = {.struct_size = sizeof(error)};
    uint32_t bytes = seen->parameters.private_data_len;
    bytes = bytes < CM_PRIVATE_BYTES_MAX ? bytes : CM_PRIVATE_BYTES_MAX;
    bool theirs =
        cm_reject_error(identifier->target, seen->status, seen->private_data, bytes, &error);
    if (cm_reject_of_address(seen->status, seen->private_data, bytes) &&
        cm_route_nobody_here(identifier, &error)) {
        return;
    }
    struct cm_event *event = cm_spare_event(identifier->cm, CM_EVENT_REJECTED, identifier);
    event->error = error;
    if (theirs) {
        cm_event_set_private(event, seen->private_data, bytes);
    }
    cm_queue_spare(identifier->cm, identifier);
}

/* The host does not answer. After it has accepted, it may be slow to hear of our answer. */
static void tell_unreachable(struct cm_identifier *identifier, int status)
{
    crpc_error error = {.struct_size = sizeof(error)};
    cm_connect_error(identifier->target, status < 0 ? -status : status, &error);
    if (identifier->passive || identifier->answered || !cm_route_nobody_here(identifier, &error)) {
        tell_failed(identifier, status);
    }
}

/* Begins an event of a device. */
static struct cm_event *device_event(struct cm *cm, const struct cm_device *device,
                                     enum cm_event_kind kind)
{
    struct cm_event *event = cm_spare_event(cm, kind, NULL);
    event->nic = (uint32_t)(device - cm->devices);
    return event;
}

static void tell_device_fatal(struct cm *cm, struct cm_device *device, const char *what)
{
    if (device->fatal_reported) {
        return;
    }
    device->fatal_reported = true;
    error_set(&device_event(cm, device, CM_EVENT_DEVICE_FATAL)->error, CRPC_E_SYSTEM, 0,
              "RDMA device %s: %s: close the context and open a new one", device->nic->device,
              what);
    cm_queue_spare(cm, NULL);
}

static void tell_device_gone(struct cm *cm, struct cm_device *device, const char *what)
{
    device->trouble_fd = -1;            /* it would be readable for ever */
    device_watched(device->nic, false); /* it says nothing any more */
    tell_device_fatal(cm, device, what);
    cm_devices_changed();
}

static void dispatch(struct cm_identifier *identifier, const struct seen *seen)
{
    switch (seen->type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        cm_route_event(identifier, seen->type, seen->status);
        return;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        cm_incoming(identifier, seen->id, &seen->parameters);
        return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        identifier->answered = true;
        cm_search_end(identifier);
        tell(identifier, CM_EVENT_CONNECT_RESPONSE, seen);
        return;
    case RDMA_CM_EVENT_ESTABLISHED:
        tell(identifier, CM_EVENT_ESTABLISHED, seen);
        return;
    case RDMA_CM_EVENT_REJECTED:
        tell_rejected(identifier, seen);
        return;
    case RDMA_CM_EVENT_UNREACHABLE:
        tell_unreachable(identifier, seen->status);
        return;
    case RDMA_CM_EVENT_CONNECT_ERROR:
        tell_failed(identifier, seen->status);
        return;
    case RDMA_CM_EVENT_DISCONNECTED:
        /* Answers the peer's request to disconnect, which it repeats until then; refused, and that
         * does not matter, where the event is the answer to ours. */
        rdma_disconnect(identifier->id);
        tell(identifier, CM_EVENT_DISCONNECTED, seen);
        return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        tell_device_gone(identifier->cm, identifier->cm->devices, "was removed");
        return;
    default:
        return; /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing follows from them here */
    }
}

/* The new identifier of a request to a listener that is going away belongs to nobody. */
static void dispatch_to_nobody(const struct seen *seen)
{
    if (seen->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        rdma_reject(seen->id, NULL, 0);
        rdma_destroy_id(seen->id);
    }
}

static void copy_event(struct seen *seen, const struct rdma_cm_event *event)
{
    seen->type = event->event;
    seen->status = event->status;
    seen->id = event->id;
    seen->parameters = event->param.conn;
    if (event->param.conn.private_data_len != 0) {
        memcpy(seen->private_data, event->param.conn.private_data,
               event->param.conn.private_data_len);
    }
    seen->parameters.private_data = seen->private_data;
}

/* Takes and handles one event; false if there is none. */
static bool connection_step(struct cm *cm)
{
    struct rdma_cm_event *event;
    struct seen seen;
    if (rdma_get_cm_event(cm->channel, &event)) {
        if (errno != EAGAIN && errno != EINTR) {
            pause_briefly();
        }
        return false;
    }
    bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    struct cm_identifier *identifier = (request ? event->listen_id : event->id)->context;
    copy_event(&seen, event);
    bool alive = begin(cm, identifier);
    rdma_ack_cm_event(event);
    if (alive) {
        dispatch(identifier, &seen);
        end(cm);
    } else {
        dispatch_to_nobody(&seen);
    }
    return true;
}

/* ---- Events of a device ---------------------------------------------------------------------- */

static void tell_port(struct cm *cm, const struct cm_device *device,
                      const struct ibv_async_event *event)
{
    if ((uint32_t)event->element.port_num != device->nic->port) {
        return;
    }
    bool active = event->event_type == IBV_EVENT_PORT_ACTIVE;
    enum cm_event_kind kind = active ? CM_EVENT_PORT_ACTIVE : CM_EVENT_PORT_DOWN;
    error_set(&device_event(cm, device, kind)->error, active ? CRPC_OK : CRPC_E_UNREACHABLE, 0,
              "%s port %u is %s", device->nic->device, device->nic->port,
              active ? "active again" : "down: cable, switch, or `ip link set ... down`");
    cm_queue_spare(cm, NULL);
}

static void tell_queue_pair(struct cm *cm, const struct cm_device *device, enum ibv_event_type type,
                            uint32_t number)
{
    struct cm_event *told = device_event(cm, device, CM_EVENT_QUEUE_PAIR);
    bool fatal = type == IBV_EVENT_QP_FATAL;
    told->queue_pair_number = number;
    error_set(&told->error, fatal ? CRPC_E_SYSTEM : CRPC_E_PROTOCOL, 0,
              "RDMA device %s shut down queue pair %u: %s", device->nic->device,
              told->queue_pair_number,
              fatal ? "a fault of the device or its driver"
                    : "the peer sent what the device does not allow");
    cm_queue_spare(cm, NULL);
}

/* The handle, and not the queue, because the SRQ may be gone when the owner takes this: ibv_destroy_srq
 * waits for the acknowledgement alone. */
static void tell_srq_limit(struct cm *cm, const struct cm_device *device,
                           const struct ibv_async_event *event)
{
    const struct nic_queue *queue = event->element.srq->srq_context;
    if (queue) { /* or it is the nic's, which has no limit */
        device_event(cm, device, CM_EVENT_SRQ_LIMIT)->queue_handle = queue->handle;
        cm_queue_spare(cm, NULL);
    }
}

static void tell_completion_queue(struct cm *cm, struct cm_device *device)
{
    tell_device_fatal(cm, device, "a completion queue overflowed or failed");
}

/* Acknowledged last: while an event is not, ibv_destroy_qp waits, so that cm_forget_queue_pair
 * after it finds all there is. */
static bool device_step(struct cm *cm, struct cm_device *device)
{
    struct ibv_async_event event;
    if (device->async_fd < 0) {
        return false;
    }
    if (ibv_get_async_event(device_context(device->nic), &event)) {
        if (errno != EAGAIN && errno != EINTR) {
            /* It was unplugged: its descriptor would be in error for ever. */
            device->async_fd = -1;
            tell_device_gone(cm, device, "was removed");
        }
        return false;
    }
    switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        /* One without a context has the commands of a TM-SRQ. These have errors of their own, and nobody calls
         * cm_forget_queue_pair for it: told late, it would be taken for a later one with its number. */
        if (event.element.qp->qp_context) {
            tell_queue_pair(cm, device, event.event_type, event.element.qp->qp_num);
        }
        break;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        device_last_wqe_reached(event.element.qp);
        break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        tell_srq_limit(cm, device, &event);
        break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
        tell_port(cm, device, &event);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        tell_device_gone(cm, device, "failed or was removed");
        break;
    case IBV_EVENT_CQ_ERR:
        tell_completion_queue(cm, device);
        break;
    case IBV_EVENT_SRQ_ERR:
        tell_device_fatal(cm, device, "the shared receive queue failed");
        break;
    default:
        break;
    }
    ibv_ack_async_event(&event);
    return true;
}

struct troubled {
    struct cm *cm;
    struct cm_device *device;
};

static void tell_trouble(void *argument, enum ibv_event_type type, uint32_t number)
{
    const struct troubled *troubled = argument;
    if (type == IBV_EVENT_CQ_ERR) {
        tell_completion_queue(troubled->cm, troubled->device);
    } else {
        tell_queue_pair(troubled->cm, troubled->device, type, number);
    }
}

/* What came of queues that are made past the verbs. */
static bool trouble_step(struct cm *cm, struct cm_device *device)
{
    struct device_nic *nic = to_device_nic(device->nic);
    struct troubled troubled = {cm, device};
    return device->trouble_fd >= 0 && nic->take_trouble(nic, tell_trouble, &troubled);
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* Every step queues at most one event, and takes place only if there is memory for it. */
static bool have_spare(struct cm *cm)
{
    if (!cm->spare) {
        cm->spare = calloc(1, sizeof(*cm->spare));
    }
    if (!cm->spare) {
        pause_briefly();
    }
    return cm->spare != NULL;
}

static bool stopped(struct cm *cm)
{
    pthread_mutex_lock(&cm->mutex);
    bool stop = cm->stop;
    pthread_mutex_unlock(&cm->mutex);
    return stop;
}

void *cm_thread(void *argument)
{
    struct cm *cm = argument;
    /* Negative descriptors are left out: of rdma_cm, if there is none, and of devices that are gone. */
    struct pollfd wait[2 + 2 * CM_NICS_MAX + CM_TELL_FDS] = {
        {.fd = cm->channel ? cm->channel->fd : -1, .events = POLLIN},
        {.fd = cm->kick_fd, .events = POLLIN},
    };
    const uint32_t watched = 2 + 2 * cm->device_count;
    struct pollfd *tell = wait + watched;
    uint64_t kicks;
    int timeout_ms;
    pthread_setname_np(pthread_self(), "crpc-cm");
    while (!stopped(cm)) {
        for (uint32_t i = 0; i < cm->device_count; i++) {
            wait[2 + 2 * i] = (struct pollfd){.fd = cm->devices[i].async_fd, .events = POLLIN};
            wait[3 + 2 * i] = (struct pollfd){.fd = cm->devices[i].trouble_fd, .events = POLLIN};
        }
        cm_tell_watch(cm, tell, &timeout_ms);
        if (poll(wait, watched + CM_TELL_FDS, timeout_ms) < 0) {
            pause_briefly();
            continue;
        }
        eventfd_read(cm->kick_fd, &kicks);
        while (have_spare(cm) && work_step(cm)) {
        }
        for (uint32_t i = 0; i < cm->device_count; i++) {
            while (have_spare(cm) && device_step(cm, &cm->devices[i])) {
            }
            while (have_spare(cm) && trouble_step(cm, &cm->devices[i])) {
            }
        }
        while (cm->channel && have_spare(cm) && connection_step(cm)) {
        }
        if (have_spare(cm)) {
            cm_tell_step(cm, tell);
        }
    }
    return NULL;
}
