/* mlx5_devx_events.c: what DevX objects tell a program, as the kernel's devx.c has it: the program makes a channel, and subscribes to types
 * of events of an object. What it reads from the channel is the cookie that it gave for the subscription. Channels that bring events as
 * the adapter writes them (without MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA) there are none, and no eventfds of the program's. */
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "simnic/shim/kernel/answers.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/mlx5_devx.h"
#include "simnic/shim/kernel/verbs.h"

#define MOST_TYPES 16u /* in one subscription: MAX_NUM_EVENTS of the kernel */

/* The first event queues are the kernel's own. */
#define FIRST_EVENT_QUEUE 4u

int mlx5_devx_query_event_queue(const struct call *call)
{
    uint32_t vector;
    int result = attribute_in(call, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, &vector, sizeof(vector),
                              sizeof(vector));
    if (result) {
        return result;
    }
    return vector >= COMPLETION_VECTORS ? ENOENT
                                        : attribute_out32(call, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN,
                                                          FIRST_EVENT_QUEUE + vector);
}

uint32_t devx_vector_of(uint32_t event_queue)
{
    uint32_t vector = event_queue - FIRST_EVENT_QUEUE;
    return event_queue >= FIRST_EVENT_QUEUE && vector < COMPLETION_VECTORS ? vector : UINT32_MAX;
}

int mlx5_devx_create_channel(const struct call *call)
{
    const uint64_t flags = attribute_number(call, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, 0);
    struct channel *channel;
    if (flags != MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA) {
        return EOPNOTSUPP;
    }
    int fd, result = channel_create(call->context, CHANNEL_DEVX, &channel, &fd);
    if (!result) {
        attribute_out_handle(call, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, (uint64_t)fd);
    }
    return result;
}

/* Those of completion queues and of queue pairs. */
static bool is_known(const struct object *object, uint16_t type)
{
    if (object->thing_type == UVERBS_OBJECT_CQ) {
        return type == 0x00 || type == 0x04;
    }
    return object->thing_type == UVERBS_OBJECT_QP &&
           ((type >= 0x01 && type <= 0x03) || type == 0x05 || type == 0x07 || type == 0x10 ||
            type == 0x11 || type == 0x13);
}

int mlx5_devx_subscribe(const struct call *call)
{
    uint16_t types[MOST_TYPES];
    uint64_t cookie = 0;
    const struct ib_uverbs_attr *list =
        attribute(call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST);
    struct object *object = attribute_object(call, MLX5_IB_OBJECT_DEVX_OBJ,
                                             MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE);
    if (!object || !list || list->len > sizeof(types) || list->len % sizeof(types[0]) ||
        attribute(call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM)) {
        return EINVAL;
    }
    const uint32_t count = list->len / sizeof(types[0]);
    int result = attribute_in(call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, types,
                              sizeof(types), 0);
    if (!result && attribute(call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE)) {
        result = attribute_in(call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, &cookie,
                              sizeof(cookie), sizeof(cookie));
    }
    for (uint32_t i = 0; i < count && !result; i++) {
        result = is_known(object, types[i]) ? 0 : EINVAL;
    }
    if (result) {
        return result;
    }
    struct channel *channel = channel_of(
        (int)attribute_number(call, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, UINT64_MAX));
    if (!channel) {
        return EBADF;
    }
    if (channel->kind != CHANNEL_DEVX || channel->context != call->context) {
        result = EINVAL;
    }
    for (uint32_t i = 0; i < count && !result; i++) {
        result = events_subscribe(object, channel, types[i], cookie) ? 0 : ENOMEM;
    }
    channel_release(channel);
    return result;
}
