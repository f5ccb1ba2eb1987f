/* open.c: makes a cm and starts its thread. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lines.h"
#include "cm/internal.h"

static int32_t channel_error(crpc_error *error, int os_error)
{
    switch (os_error) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
        return error_set(error, CRPC_E_SYSTEM, os_error,
                         "no /dev/infiniband/rdma_cm: load the kernel module: `modprobe rdma_ucm`; "
                         "in a container, make the device visible");
    case EACCES:
    case EPERM:
        return error_set(
            error, CRPC_E_SYSTEM, os_error,
            "no permission for /dev/infiniband/rdma_cm: as root, `chmod 666` it or add "
            "a udev rule (rdma-core installs one)");
    default:
        return error_set(error, CRPC_E_SYSTEM, os_error, "cannot open /dev/infiniband/rdma_cm: %s",
                         strerror(os_error));
    }
}

static int unblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? errno : 0;
}

static uint8_t clamp_read_depth(int device_max)
{
    if (device_max < 1) {
        return 1;
    }
    return device_max < UINT8_MAX ? (uint8_t)device_max : UINT8_MAX;
}

/* Leaves the channel NULL if there is none. */
static int open_channel(struct cm *cm)
{
    cm_devices_refresh();
    cm->channel = rdma_create_event_channel();
    if (!cm->channel) {
        channel_error(&cm->lacks, errno);
        return 0;
    }
    return unblock(cm->channel->fd);
}

static int32_t open_descriptors(struct cm *cm, crpc_error *error)
{
    struct ibv_device_attr device;
    cm->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cm->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int os_error = cm->event_fd < 0 || cm->kick_fd < 0 ? errno : 0;
    os_error = os_error ? os_error : open_channel(cm);
    for (uint32_t i = 0; i < cm->device_count && !os_error; i++) {
        os_error = unblock(cm->devices[i].async_fd);
    }
    os_error = os_error ? os_error : ibv_query_device(device_context(cm->nic), &device);
    if (os_error) {
        return error_set(error, CRPC_E_SYSTEM, os_error, "cannot prepare for connections: %s",
                         strerror(os_error));
    }
    cm->read_depth_out = clamp_read_depth(device.max_qp_init_rd_atom);
    cm->read_depth_in = clamp_read_depth(device.max_qp_rd_atom);
    return CRPC_OK;
}

int cm_start_thread(pthread_t *thread, void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int os_error = pthread_create(thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return os_error;
}

static void watch_devices(struct cm *cm, bool watched)
{
    for (uint32_t i = 0; i < cm->device_count; i++) {
        device_watched(cm->devices[i].nic, watched);
    }
}

int32_t cm_open(struct nic *const *nics, uint32_t nic_count, struct cm **cm, crpc_error *error)
{
    assert(nic_count >= 1 && nic_count <= CM_NICS_MAX);
    struct cm *made = lines_alloc(1, sizeof(*made)); /* each poll looks at it */
    if (!made) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a connection manager");
    }
    made->nic = nics[0];
    made->device_count = nic_count;
    for (uint32_t i = 0; i < nic_count; i++) {
        assert(nics[i]->rdma_cm);
        made->devices[i] = (struct cm_device){.nic = nics[i],
                                              .async_fd = device_context(nics[i])->async_fd,
                                              .trouble_fd = to_device_nic(nics[i])->trouble_fd};
    }
    made->event_fd = -1;
    made->kick_fd = -1;
    list_init(&made->work);
    list_init(&made->queue);
    list_init(&made->tasks);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->idle, NULL);
    pthread_cond_init(&made->task_waits, NULL);
    int32_t status = open_descriptors(made, error);
    if (status == CRPC_OK) {
        int os_error = cm_start_thread(&made->thread, cm_thread, made);
        made->thread_started = os_error == 0;
        if (os_error) {
            status =
                error_set(error, CRPC_E_SYSTEM, os_error,
                          "cannot start the connection manager's thread: %s", strerror(os_error));
        }
    }
    if (status) {
        cm_close(made);
        return status;
    }
    watch_devices(made, true);
    *cm = made;
    return CRPC_OK;
}

const char *cm_lacks(const struct cm *cm)
{
    return cm->channel ? NULL : cm->lacks.message;
}

static void stop_thread(struct cm *cm)
{
    pthread_mutex_lock(&cm->mutex);
    cm->stop = true;
    pthread_mutex_unlock(&cm->mutex);
    cm_kick(cm);
    pthread_join(cm->thread, NULL);
}

void cm_close(struct cm *cm)
{
    assert(cm->identifiers == 0);
    if (cm->thread_started) {
        watch_devices(cm, false);
        stop_thread(cm);
    }
    cm_tell_stop(cm);
    cm_tasks_stop(cm);
    struct list *link =
        cm->queue.next; /* events of devices, and of who asks, are all that can be left */
    while (link != &cm->queue) {
        struct queued_event *queued = list_entry(link, struct queued_event, link);
        link = link->next;
        free(queued);
    }
    free(cm->spare);
    if (cm->channel) {
        rdma_destroy_event_channel(cm->channel);
    }
    if (cm->event_fd >= 0) {
        close(cm->event_fd);
    }
    if (cm->kick_fd >= 0) {
        close(cm->kick_fd);
    }
    pthread_cond_destroy(&cm->task_waits);
    pthread_cond_destroy(&cm->idle);
    pthread_mutex_destroy(&cm->mutex);
    free(cm);
}
