/* plugin.c: NCCL's way in: the tables, and what lasts from the first init to the last finalize. */
#include "plugin.h"

#include <string.h>

net_logger log_to;
struct settings settings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t inits;
static struct device devices[DEVICES_MAX];
static uint32_t device_count;

int net_result(int32_t status)
{
    switch (status) {
    case CRPC_E_TIMEOUT:
    case CRPC_E_CLOSING:
    case CRPC_E_DISCONNECTED:
    case CRPC_E_REFUSED:
    case CRPC_E_UNREACHABLE:
    case CRPC_E_VERSION:
    case CRPC_E_PROTOCOL:
    case CRPC_E_DROPPED:
        return NET_REMOTE_ERROR;
    case CRPC_E_UNSUPPORTED:
    case CRPC_E_NO_MEMORY:
    case CRPC_E_NO_DEVICE:
    case CRPC_E_NO_RESOURCE:
    case CRPC_E_MEMLOCK:
    case CRPC_E_SYSTEM:
        return NET_SYSTEM_ERROR;
    case CRPC_E_INVALID:
    case CRPC_E_TOO_BIG:
    case CRPC_E_TRUNCATED:
        return NET_INVALID_USAGE;
    default:
        return status >= 0 ? NET_SUCCESS : NET_INTERNAL_ERROR;
    }
}

/* Holds the lock. NCCL keeps to the devices that it saw first, so they are found once. */
static int find_devices(void)
{
    if (!settings_read(&settings)) {
        return NET_INVALID_USAGE;
    }
    uint32_t count = settings.device_count == 0 ? 1 : settings.device_count;
    for (uint32_t i = 0; i < count; i++) {
        int result = device_find(&settings, i, &devices[i]);
        if (result != NET_SUCCESS) {
            return result;
        }
    }
    device_count = count;
    return NET_SUCCESS;
}

static int init(net_logger logger)
{
    pthread_mutex_lock(&lock);
    log_to = logger;
    int result = device_count == 0 ? find_devices() : NET_SUCCESS;
    inits += result == NET_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

static int init_v10(net_logger logger, net_profiler profiler)
{
    (void)profiler;
    return init(logger);
}

/* Traffic classes: rdma_cm's default stays; docs/nccl.md says so. */
static int init_v11(void **instance, uint64_t communicator, struct net_config *config,
                    net_logger logger, net_profiler profiler)
{
    (void)communicator, (void)config, (void)profiler;
    int result = init(logger);
    if (result == NET_SUCCESS) {
        *instance = devices; /* NULL would do; but it is NCCL's word for "not made yet" */
    }
    return result;
}

static int finalize(void *instance)
{
    (void)instance;
    pthread_mutex_lock(&lock);
    if (inits > 0 && --inits == 0) {
        net_forget_connects();
    }
    pthread_mutex_unlock(&lock);
    return NET_SUCCESS;
}

struct device *plugin_device(int index)
{
    return index >= 0 && (uint32_t)index < device_count ? &devices[index] : NULL;
}

static int count_devices(int *count)
{
    *count = (int)device_count;
    return NET_SUCCESS;
}

static int properties_v12(int index, struct net_properties_v12 *properties)
{
    struct device *device = plugin_device(index);
    if (device == NULL) {
        return NET_INVALID_ARGUMENT;
    }
    device_properties(device, index, properties);
    return NET_SUCCESS;
}

static int properties_v11(int index, struct net_properties_v11 *properties)
{
    struct net_properties_v12 all;
    int result = properties_v12(index, &all);
    if (result != NET_SUCCESS) {
        return result;
    }
    memset(properties, 0, sizeof(*properties));
    memcpy(properties, &all, offsetof(struct net_properties_v12, virtual_device));
    properties->virtual_device.count = all.virtual_device.count;
    properties->virtual_device.devices[0] = all.virtual_device.devices[0];
    properties->point_to_point_bytes_max = all.point_to_point_bytes_max;
    properties->collective_bytes_max = all.collective_bytes_max;
    properties->multi_request_max = all.multi_request_max;
    return NET_SUCCESS;
}

static int properties_v10(int index, struct net_properties_v10 *properties)
{
    struct net_properties_v11 more;
    int result = properties_v11(index, &more);
    if (result == NET_SUCCESS) {
        memcpy(properties, &more, sizeof(*properties));
    }
    return result;
}

static int listen_v10(int device, void *handle, void **listen_comm)
{
    return net_listen(device, handle, listen_comm);
}

static int listen_v11(void *instance, int device, void *handle, void **listen_comm)
{
    (void)instance;
    return net_listen(device, handle, listen_comm);
}

static int connect_v10(int device, struct net_config *config, void *handle, void **send_comm,
                       void **device_comm)
{
    (void)config, (void)device_comm;
    return net_connect(device, handle, send_comm);
}

static int connect_v11(void *instance, int device, void *handle, void **send_comm,
                       void **device_comm)
{
    (void)instance, (void)device_comm;
    return net_connect(device, handle, send_comm);
}

/* What is left out is NULL, and NCCL does not call it: device offload, virtual devices,
 * attributes, and news of what the GPU has consumed. */
#define CALLS_FROM_ACCEPT                                                                          \
    .accept = net_accept, .register_memory = net_register, .register_dmabuf = net_register_dmabuf, \
    .deregister = net_deregister, .send = net_send, .receive = net_receive, .flush = net_flush,    \
    .test = net_test, .close_send = net_close_comm, .close_receive = net_close_comm,               \
    .close_listen = net_close_listen

CRPC_API const struct net_table_v12 ncclNetPlugin_v12 = {
    .name = "copyrpc",
    .init = init_v11,
    .devices = count_devices,
    .properties = properties_v12,
    .listen = listen_v11,
    .connect = connect_v11,
    CALLS_FROM_ACCEPT,
    .finalize = finalize,
};

CRPC_API const struct net_table_v11 ncclNetPlugin_v11 = {
    .name = "copyrpc",
    .init = init_v11,
    .devices = count_devices,
    .properties = properties_v11,
    .listen = listen_v11,
    .connect = connect_v11,
    CALLS_FROM_ACCEPT,
    .finalize = finalize,
};

CRPC_API const struct net_table_v10 ncclNetPlugin_v10 = {
    .name = "copyrpc",
    .init = init_v10,
    .devices = count_devices,
    .properties = properties_v10,
    .listen = listen_v10,
    .connect = connect_v10,
    CALLS_FROM_ACCEPT,
};
