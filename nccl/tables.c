/* tables.c: NCCL's way in: a table for each version of the interface, and what is different in them.
 *
 * What is left out is NULL, and NCCL does not call it: device offload, virtual devices, attributes,
 * and news of what the GPU has consumed.
 */
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

#define NAME "copyrpc" /* NCCL_NET=copyrpc asks for it in every version */

/* ---- Init and finalize ----------------------------------------------------------------------- */

static int init_v10(net_logger logger, net_profiler profiler)
{
    (void)profiler;
    return plugin_init(logger);
}

/* What a communicator asks for. */
struct instance {
    int traffic_class;
};

static int traffic_class_of(const struct net_config *config)
{
    return config != NULL ? config->traffic_class : NET_UNDEFINED;
}

static int init_v11(void **out, uint64_t communicator, struct net_config *config, net_logger logger,
                    net_profiler profiler)
{
    (void)communicator, (void)profiler;
    struct instance *instance = calloc(1, sizeof(*instance));
    if (instance == NULL) {
        return NET_SYSTEM_ERROR;
    }
    instance->traffic_class = traffic_class_of(config);
    int result = plugin_init(logger);
    if (result == NET_SUCCESS) {
        *out = instance;
    } else {
        free(instance);
    }
    return result;
}

static int finalize(void *instance)
{
    free(instance);
    plugin_finalize();
    return NET_SUCCESS;
}

/* ---- Devices --------------------------------------------------------------------------------- */

static int count_devices(int *count)
{
    *count = (int)plugin_device_count();
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

/* Members that are in all versions. */
#define COPY_PROPERTIES(to, from)                                                                  \
    (to)->name = (from)->name, (to)->pci_path = (from)->pci_path, (to)->guid = (from)->guid,       \
    (to)->memory = (from)->memory, (to)->speed_mbps = (from)->speed_mbps,                          \
    (to)->port = (from)->port, (to)->latency_us = (from)->latency_us,                              \
    (to)->comms_max = (from)->comms_max, (to)->receives_max = (from)->receives_max,                \
    (to)->device_type = (from)->device_type, (to)->device_version = (from)->device_version

static int properties_v8(int index, struct net_properties_v8 *properties)
{
    struct net_properties_v12 all;
    int result = properties_v12(index, &all);
    if (result == NET_SUCCESS) {
        COPY_PROPERTIES(properties, &all);
        properties->registration_is_global = all.registration_is_global;
    }
    return result;
}

static int properties_v7(int index, struct net_properties_v7 *properties)
{
    struct net_properties_v12 all;
    int result = properties_v12(index, &all);
    if (result == NET_SUCCESS) {
        COPY_PROPERTIES(properties, &all);
    }
    return result;
}

/* ---- Listen and connect ---------------------------------------------------------------------- */

static int listen_v11(void *instance, int device, void *handle, void **listen_comm)
{
    (void)instance;
    return net_listen(device, handle, listen_comm);
}

static int connect_v9(int device, void *handle, void **send_comm, void **device_comm)
{
    (void)device_comm;
    return net_connect(device, NET_UNDEFINED, handle, send_comm);
}

static int connect_v10(int device, struct net_config *config, void *handle, void **send_comm,
                       void **device_comm)
{
    (void)device_comm;
    return net_connect(device, traffic_class_of(config), handle, send_comm);
}

static int connect_v11(void *instance, int device, void *handle, void **send_comm,
                       void **device_comm)
{
    (void)device_comm;
    const struct instance *asks = instance;
    return net_connect(device, asks != NULL ? asks->traffic_class : NET_UNDEFINED, handle,
                       send_comm);
}

/* ---- Memory and transfers -------------------------------------------------------------------- */

static int register_v7(void *comm, void *data, int bytes, int memory, void **registration)
{
    return bytes < 0 ? NET_INVALID_ARGUMENT
                     : net_register(comm, data, (size_t)bytes, memory, registration);
}

static int send_v8(void *comm, void *data, int bytes, int tag, void *registration, void **request)
{
    return bytes < 0 ? NET_INVALID_ARGUMENT
                     : net_send(comm, data, (size_t)bytes, tag, registration, NULL, request);
}

static int receive_v8(void *comm, int count, void **data, int *bytes, int *tags,
                      void **registrations, void **request)
{
    size_t sizes[GROUP_MAX];
    for (int i = 0; i < count && i < GROUP_MAX; i++) {
        if (bytes[i] < 0) {
            return NET_INVALID_ARGUMENT;
        }
        sizes[i] = (size_t)bytes[i];
    }
    return net_receive(comm, count, data, sizes, tags, registrations, NULL, request);
}

static int send_v9(void *comm, void *data, size_t bytes, int tag, void *registration,
                   void **request)
{
    return net_send(comm, data, bytes, tag, registration, NULL, request);
}

static int receive_v9(void *comm, int count, void **data, size_t *bytes, int *tags,
                      void **registrations, void **request)
{
    return net_receive(comm, count, data, bytes, tags, registrations, NULL, request);
}

/* ---- The tables ------------------------------------------------------------------------------ */

#define CALLS_OF_ALL                                                                               \
    .name = NAME, .devices = count_devices, .accept = net_accept,                                  \
    .register_dmabuf = net_register_dmabuf, .deregister = net_deregister, .flush = net_flush,      \
    .test = net_test, .close_send = net_close_comm, .close_receive = net_close_comm,               \
    .close_listen = net_close_listen

CRPC_API const struct net_table_v12 ncclNetPlugin_v12 = {
    CALLS_OF_ALL,         .init = init_v11,       .properties = properties_v12,
    .listen = listen_v11, .connect = connect_v11, .register_memory = net_register,
    .send = net_send,     .receive = net_receive, .finalize = finalize,
};

CRPC_API const struct net_table_v11 ncclNetPlugin_v11 = {
    CALLS_OF_ALL,         .init = init_v11,       .properties = properties_v11,
    .listen = listen_v11, .connect = connect_v11, .register_memory = net_register,
    .send = net_send,     .receive = net_receive, .finalize = finalize,
};

CRPC_API const struct net_table_v10 ncclNetPlugin_v10 = {
    CALLS_OF_ALL,         .init = init_v10,       .properties = properties_v10,
    .listen = net_listen, .connect = connect_v10, .register_memory = net_register,
    .send = net_send,     .receive = net_receive,
};

CRPC_API const struct net_table_v9 ncclNetPlugin_v9 = {
    CALLS_OF_ALL,         .init = plugin_init,   .properties = properties_v10,
    .listen = net_listen, .connect = connect_v9, .register_memory = net_register,
    .send = send_v9,      .receive = receive_v9,
};

CRPC_API const struct net_table_v8 ncclNetPlugin_v8 = {
    CALLS_OF_ALL,         .init = plugin_init,   .properties = properties_v8,
    .listen = net_listen, .connect = connect_v9, .register_memory = net_register,
    .send = send_v8,      .receive = receive_v8,
};

CRPC_API const struct net_table_v7 ncclNetPlugin_v7 = {
    CALLS_OF_ALL,         .init = plugin_init,   .properties = properties_v7,
    .listen = net_listen, .connect = connect_v9, .register_memory = register_v7,
    .send = send_v8,      .receive = receive_v8,
};
