/* devx_events.c: events of queues that are made by DevX. The kernel has channels for them (Linux, mlx5_ib's devx.c), from which one reads the
 * cookie of what has had an event.
 *
 * A cookie that waits in a channel stays there when its queue pair goes, and the number may be another's by then. So a cookie has a serial
 * number, too. core/cm's thread takes a cookie and tells of it with the mutex held, in which a queue pair is forgotten: after that, nothing
 * is told of it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nic/mlx5/devx.h"

/* The PRM's types of events. */
#define EVENT_COMPLETION 0x00
#define EVENT_CQ_ERROR 0x04
#define EVENT_FATAL 0x05
#define EVENT_REQUEST_ERROR 0x10
#define EVENT_ACCESS_ERROR 0x11
#define EVENT_LAST_WQE 0x13

/* enum ibv_event_type, the number and the serial number of a queue pair; of a completion queue in `completions`, which one it is. */
static uint64_t cookie_of(enum ibv_event_type type, uint32_t number, uint32_t serial)
{
    return (uint64_t)serial << 32 | (uint64_t)type << 24 | number;
}

#define COOKIE_RECEIVES 1u
#define COOKIE_SENDS 2u

static struct mlx5dv_devx_event_channel *create_channel(struct ibv_context *context)
{
    struct mlx5dv_devx_event_channel *channel = mlx5dv_devx_create_event_channel(
        context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
    if (!channel) {
        return NULL;
    }
    int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK)) {
        int os_error = errno;
        mlx5dv_devx_destroy_event_channel(channel);
        errno = os_error;
        return NULL;
    }
    return channel;
}

static bool wait_for(const struct mlx5_devx *devx, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(devx->wait_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int subscribe(struct mlx5dv_devx_event_channel *channel, struct mlx5dv_devx_obj *object,
                     uint16_t type, uint64_t cookie)
{
    int result = mlx5dv_devx_subscribe_devx_event(channel, object, sizeof(type), &type, cookie);
    return result ? devx_error(result) : 0;
}

int devx_events_of_completions(struct mlx5_nic *nic, struct devx_completion_queue *queue)
{
    struct mlx5_devx *devx = nic->devx;
    int os_error = subscribe(devx->completions, queue->object, EVENT_COMPLETION,
                             queue == &devx->sends ? COOKIE_SENDS : COOKIE_RECEIVES);
    return os_error ? os_error
                    : subscribe(devx->troubles, queue->object, EVENT_CQ_ERROR,
                                cookie_of(IBV_EVENT_CQ_ERR, 0, 0));
}

static bool add(struct mlx5_devx *devx, struct devx_queue_pair *made)
{
    pthread_mutex_lock(&devx->mutex);
    made->serial = ++devx->serial;
    bool added = table_set(&devx->queue_pairs, made->of->device.base.number, made);
    pthread_mutex_unlock(&devx->mutex);
    return added;
}

int devx_events_of_queue_pair(struct mlx5_nic *nic, struct devx_queue_pair *made)
{
    static const struct {
        uint16_t event;
        enum ibv_event_type type;
    } all[] = {
        {EVENT_LAST_WQE, IBV_EVENT_QP_LAST_WQE_REACHED},
        {EVENT_FATAL, IBV_EVENT_QP_FATAL},
        {EVENT_REQUEST_ERROR, IBV_EVENT_QP_REQ_ERR},
        {EVENT_ACCESS_ERROR, IBV_EVENT_QP_ACCESS_ERR},
    };
    if (!add(nic->devx, made)) {
        return ENOMEM;
    }
    int os_error = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && os_error == 0; i++) {
        os_error = subscribe(nic->devx->troubles, made->object, all[i].event,
                             cookie_of(all[i].type, made->of->device.base.number, made->serial));
    }
    return os_error;
}

void devx_events_forget(struct mlx5_nic *nic, uint32_t number)
{
    pthread_mutex_lock(&nic->devx->mutex);
    table_clear(&nic->devx->queue_pairs, number);
    pthread_mutex_unlock(&nic->devx->mutex);
}

/* ---- For core/cm's thread: device_nic.take_trouble ------------------------------------------- */

static void tell(struct mlx5_devx *devx, uint64_t cookie, device_trouble_told *told, void *argument)
{
    const uint32_t number = cookie & 0xffffffu;
    const enum ibv_event_type type = (enum ibv_event_type)(cookie >> 24 & 0xff);
    const struct devx_queue_pair *made = table_get(&devx->queue_pairs, number);
    if (type == IBV_EVENT_CQ_ERR) {
        told(argument, type, 0);
    } else if (made && made->serial == (uint32_t)(cookie >> 32)) {
        if (type == IBV_EVENT_QP_LAST_WQE_REACHED) {
            device_gave_last_wqe_back(&made->of->device);
        } else {
            told(argument, type, number);
        }
    }
}

static bool take_trouble(struct device_nic *base, device_trouble_told *told, void *argument)
{
    struct mlx5_devx *devx = container_of(base, struct mlx5_nic, device)->devx;
    struct mlx5dv_devx_async_event_hdr event;
    pthread_mutex_lock(&devx->mutex);
    bool any = mlx5dv_devx_get_event(devx->troubles, &event, sizeof(event)) >= 0;
    if (any) {
        tell(devx, event.cookie, told, argument);
    }
    pthread_mutex_unlock(&devx->mutex);
    return any;
}

/* ---- Completions ----------------------------------------------------------------------------- */

void mlx5_devx_disarm(struct mlx5_nic *nic)
{
    struct mlx5dv_devx_async_event_hdr event;
    while (mlx5dv_devx_get_event(nic->devx->completions, &event, sizeof(event)) >= 0) {
        completion_queue_event(event.cookie == COOKIE_SENDS ? &nic->sends : &nic->receives);
    }
}

void mlx5_devx_lost(struct mlx5_nic *nic)
{
    epoll_ctl(nic->devx->wait_fd, EPOLL_CTL_DEL, nic->devx->completions->fd, NULL);
    epoll_ctl(nic->devx->wait_fd, EPOLL_CTL_DEL, nic->device.channel->fd, NULL);
}

/* ---- Life ------------------------------------------------------------------------------------ */

int devx_events_open(struct mlx5_nic *nic)
{
    struct mlx5_devx *devx = nic->devx;
    devx->completions = create_channel(nic->device.context);
    devx->troubles = devx->completions ? create_channel(nic->device.context) : NULL;
    devx->wait_fd = devx->troubles ? epoll_create1(EPOLL_CLOEXEC) : -1;
    if (devx->wait_fd < 0 || !wait_for(devx, devx->completions->fd) ||
        !wait_for(devx, nic->device.channel->fd)) {
        return devx_error(0);
    }
    nic->device.base.event_fd = devx->wait_fd;
    nic->device.trouble_fd = devx->troubles->fd;
    nic->device.take_trouble = take_trouble;
    return 0;
}

void devx_events_close(struct mlx5_nic *nic)
{
    const struct mlx5_devx *devx = nic->devx;
    nic->device.base.event_fd = nic->device.channel->fd;
    nic->device.trouble_fd = -1;
    nic->device.take_trouble = NULL;
    if (devx->wait_fd >= 0) {
        close(devx->wait_fd);
    }
    if (devx->troubles) {
        mlx5dv_devx_destroy_event_channel(devx->troubles);
    }
    if (devx->completions) {
        mlx5dv_devx_destroy_event_channel(devx->completions);
    }
}
