/* table.c: one face for the three tables, as NCCL's own layers of compatibility give it. */
#include "harness.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned warnings;

static const struct net_table_v10 *v10(const struct net *net)
{
    return net->table;
}

static const struct net_table_v11 *v11(const struct net *net)
{
    return net->table;
}

static const struct net_table_v12 *v12(const struct net *net)
{
    return net->table;
}

__attribute__((format(printf, 5, 6))) static void
logger(int level, unsigned long parts, const char *where, int line, const char *format, ...)
{
    (void)parts;
    warnings += level == NET_LOG_WARN;
    if (getenv("HARNESS_LOG") != NULL) {
        va_list arguments;
        va_start(arguments, format);
        fprintf(stderr, "# %s %s:%d ", level == NET_LOG_WARN ? "WARN" : "INFO", where, line);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
}

#define COPY(of, member) net->member = (of)->member
#define COPY_CALLS(of)                                                                             \
    COPY(of, name), COPY(of, accept), COPY(of, register_memory), COPY(of, register_dmabuf),        \
        COPY(of, deregister), COPY(of, send), COPY(of, receive), COPY(of, flush), COPY(of, test),  \
        COPY(of, close_send), COPY(of, close_receive), COPY(of, close_listen),                     \
        COPY(of, device_registration), COPY(of, receive_consumed)

bool net_load(struct net *net, int version)
{
    memset(net, 0, sizeof(*net));
    net->version = version;
    net->library = dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (net->library == NULL) {
        fprintf(stderr, "# %s\n", dlerror());
        return false;
    }
    char symbol[32];
    snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
    net->table = dlsym(net->library, symbol);
    if (net->table == NULL) {
        return false;
    }
    if (version == 10) {
        COPY_CALLS(v10(net));
    } else if (version == 11) {
        COPY_CALLS(v11(net));
    } else {
        COPY_CALLS(v12(net));
    }
    return true;
}

void net_unload(struct net *net)
{
    dlclose(net->library);
}

int net_init(struct net *net)
{
    struct net_config config = {.traffic_class = -1};
    switch (net->version) {
    case 10:
        return v10(net)->init(logger, NULL);
    case 11:
        return v11(net)->init(&net->instance, 1, &config, logger, NULL);
    default:
        return v12(net)->init(&net->instance, 1, &config, logger, NULL);
    }
}

int net_devices(struct net *net, int *count)
{
    switch (net->version) {
    case 10:
        return v10(net)->devices(count);
    case 11:
        return v11(net)->devices(count);
    default:
        return v12(net)->devices(count);
    }
}

/* What the older ones lack is 0. */
int net_properties(struct net *net, int device, struct net_properties_v12 *properties)
{
    memset(properties, 0xa5, sizeof(*properties));
    if (net->version == 12) {
        return v12(net)->properties(device, properties);
    }
    struct net_properties_v11 more;
    memset(&more, 0xa5, sizeof(more));
    int result;
    if (net->version == 10) {
        struct net_properties_v10 less;
        memset(&less, 0xa5, sizeof(less));
        result = v10(net)->properties(device, &less);
        memcpy(&more, &less, sizeof(less));
        more.multi_request_max = 1;
    } else {
        result = v11(net)->properties(device, &more);
    }
    memset(properties, 0, sizeof(*properties));
    memcpy(properties, &more, offsetof(struct net_properties_v12, virtual_device));
    properties->virtual_device.count = more.virtual_device.count;
    properties->virtual_device.devices[0] = more.virtual_device.devices[0];
    properties->point_to_point_bytes_max = more.point_to_point_bytes_max;
    properties->collective_bytes_max = more.collective_bytes_max;
    properties->multi_request_max = more.multi_request_max;
    properties->rail = properties->plane = NET_UNDEFINED;
    return result;
}

int net_listen(struct net *net, int device, void *handle, void **listen_comm)
{
    switch (net->version) {
    case 10:
        return v10(net)->listen(device, handle, listen_comm);
    case 11:
        return v11(net)->listen(net->instance, device, handle, listen_comm);
    default:
        return v12(net)->listen(net->instance, device, handle, listen_comm);
    }
}

int net_connect(struct net *net, int device, void *handle, void **send_comm)
{
    struct net_config config = {.traffic_class = -1};
    void *device_comm = NULL;
    switch (net->version) {
    case 10:
        return v10(net)->connect(device, &config, handle, send_comm, &device_comm);
    case 11:
        return v11(net)->connect(net->instance, device, handle, send_comm, &device_comm);
    default:
        return v12(net)->connect(net->instance, device, handle, send_comm, &device_comm);
    }
}

int net_finalize(struct net *net)
{
    switch (net->version) {
    case 10:
        return NET_SUCCESS;
    case 11:
        return v11(net)->finalize(net->instance);
    default:
        return v12(net)->finalize(net->instance);
    }
}
