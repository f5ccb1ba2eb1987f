/* table.c: one face for all tables, as NCCL's own layers of compatibility give it. */
#include "harness.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned warnings;
static char log_text[1u << 20];

bool net_logged(const char *words)
{
    return strstr(log_text, words) != NULL;
}

static const void *table; /* of the net that is loaded: old calls have no place for it */

#define TABLE_OF(version)                                                                          \
    static const struct net_table_v##version *v##version(void)                                     \
    {                                                                                              \
        return table;                                                                              \
    }
TABLE_OF(7)
TABLE_OF(8)
TABLE_OF(9)
TABLE_OF(10)
TABLE_OF(11)
TABLE_OF(12)

__attribute__((format(printf, 5, 6))) static void
logger(int level, unsigned long parts, const char *where, int line, const char *format, ...)
{
    (void)parts;
    warnings += level == NET_LOG_WARN;
    va_list words;
    va_start(words, format);
    size_t used = strlen(log_text);
    vsnprintf(log_text + used, sizeof(log_text) - used, format, words);
    va_end(words);
    if (getenv("HARNESS_LOG") != NULL) {
        va_list arguments;
        va_start(arguments, format);
        fprintf(stderr, "# %s %s:%d ", level == NET_LOG_WARN ? "WARN" : "INFO", where, line);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
}

/* ---- Calls of old versions, in terms of new ones --------------------------------------------- */

static int register_by_v7(void *comm, void *data, size_t bytes, int memory, void **registration)
{
    return v7()->register_memory(comm, data, (int)bytes, memory, registration);
}

static int send_by_v8(void *comm, void *data, size_t bytes, int tag, void *registration,
                      void *profile, void **request)
{
    (void)profile;
    return v8()->send(comm, data, (int)bytes, tag, registration, request);
}

static int receive_by_v8(void *comm, int count, void **data, size_t *bytes, int *tags,
                         void **registrations, void **profiles, void **request)
{
    int sizes[16];
    for (int i = 0; i < count; i++) {
        sizes[i] = (int)bytes[i];
    }
    (void)profiles;
    return v8()->receive(comm, count, data, sizes, tags, registrations, request);
}

static int send_by_v9(void *comm, void *data, size_t bytes, int tag, void *registration,
                      void *profile, void **request)
{
    (void)profile;
    return v9()->send(comm, data, bytes, tag, registration, request);
}

static int receive_by_v9(void *comm, int count, void **data, size_t *bytes, int *tags,
                         void **registrations, void **profiles, void **request)
{
    (void)profiles;
    return v9()->receive(comm, count, data, bytes, tags, registrations, request);
}

/* ---- Loading --------------------------------------------------------------------------------- */

#define COPY(of, member) net->member = (of)->member
#define COPY_CALLS(of)                                                                             \
    COPY(of, name), COPY(of, accept), COPY(of, register_dmabuf), COPY(of, deregister),             \
        COPY(of, flush), COPY(of, test), COPY(of, close_send), COPY(of, close_receive),            \
        COPY(of, close_listen), COPY(of, device_registration), COPY(of, receive_consumed)
#define COPY_NEW_CALLS(of)                                                                         \
    COPY_CALLS(of), COPY(of, register_memory), COPY(of, send), COPY(of, receive)

static void take_calls(struct net *net)
{
    switch (net->version) {
    case 7: /* v8's calls are at the same places, and of the same types */
        COPY_CALLS(v7());
        net->register_memory = register_by_v7;
        net->send = send_by_v8;
        net->receive = receive_by_v8;
        break;
    case 8:
        COPY_CALLS(v8());
        COPY(v8(), register_memory);
        net->send = send_by_v8;
        net->receive = receive_by_v8;
        break;
    case 9:
        COPY_CALLS(v9());
        COPY(v9(), register_memory);
        net->send = send_by_v9;
        net->receive = receive_by_v9;
        break;
    case 10:
        COPY_NEW_CALLS(v10());
        break;
    case 11:
        COPY_NEW_CALLS(v11());
        break;
    default:
        COPY_NEW_CALLS(v12());
        break;
    }
}

bool net_load(struct net *net, int version)
{
    memset(net, 0, sizeof(*net));
    log_text[0] = '\0';
    net->version = version;
    net->traffic_class = NET_UNDEFINED;
    net->library = dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (net->library == NULL) {
        fprintf(stderr, "# %s\n", dlerror());
        return false;
    }
    char symbol[32];
    snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
    table = dlsym(net->library, symbol);
    if (table == NULL) {
        return false;
    }
    take_calls(net);
    return true;
}

void net_unload(struct net *net)
{
    dlclose(net->library);
}

int net_init(struct net *net)
{
    struct net_config config = {.traffic_class = net->traffic_class};
    switch (net->version) {
    case 7:
        return v7()->init(logger);
    case 8:
        return v8()->init(logger);
    case 9:
        return v9()->init(logger);
    case 10:
        return v10()->init(logger, NULL);
    case 11:
        return v11()->init(&net->instance, 1, &config, logger, NULL);
    default:
        return v12()->init(&net->instance, 1, &config, logger, NULL);
    }
}

int net_devices(struct net *net, int *count)
{
    (void)net;
    return v12()->devices(count); /* at the same place in all */
}

static int newer_properties(struct net *net, int device, struct net_properties_v12 *properties)
{
    struct net_properties_v11 more;
    memset(&more, 0xa5, sizeof(more));
    int result;
    if (net->version == 11) {
        result = v11()->properties(device, &more);
    } else {
        struct net_properties_v10 less;
        memset(&less, 0xa5, sizeof(less));
        result =
            net->version == 9 ? v9()->properties(device, &less) : v10()->properties(device, &less);
        memcpy(&more, &less, sizeof(less));
        more.multi_request_max = 1;
    }
    memcpy(properties, &more, offsetof(struct net_properties_v12, virtual_device));
    properties->virtual_device.count = more.virtual_device.count;
    properties->virtual_device.devices[0] = more.virtual_device.devices[0];
    properties->point_to_point_bytes_max = more.point_to_point_bytes_max;
    properties->collective_bytes_max = more.collective_bytes_max;
    properties->multi_request_max = more.multi_request_max;
    return result;
}

#define COPY_PROPERTY(member) properties->member = old.member
#define COPY_PROPERTIES                                                                            \
    COPY_PROPERTY(name), COPY_PROPERTY(pci_path), COPY_PROPERTY(guid), COPY_PROPERTY(memory),      \
        COPY_PROPERTY(speed_mbps), COPY_PROPERTY(port), COPY_PROPERTY(latency_us),                 \
        COPY_PROPERTY(comms_max), COPY_PROPERTY(receives_max), COPY_PROPERTY(device_type),         \
        COPY_PROPERTY(device_version)

static int oldest_properties(struct net *net, int device, struct net_properties_v12 *properties)
{
    int result;
    if (net->version == 8) {
        struct net_properties_v8 old;
        memset(&old, 0xa5, sizeof(old));
        result = v8()->properties(device, &old);
        COPY_PROPERTIES;
        COPY_PROPERTY(registration_is_global);
    } else {
        struct net_properties_v7 old;
        memset(&old, 0xa5, sizeof(old));
        result = v7()->properties(device, &old);
        COPY_PROPERTIES;
    }
    /* What NCCL takes for granted. */
    properties->virtual_device = (struct net_virtual_v12){.count = 1, .devices = {device}};
    properties->point_to_point_bytes_max = properties->collective_bytes_max = 1u << 30;
    properties->multi_request_max = 1;
    return result;
}

int net_properties(struct net *net, int device, struct net_properties_v12 *properties)
{
    if (net->version == 12) {
        memset(properties, 0xa5, sizeof(*properties));
        return v12()->properties(device, properties);
    }
    memset(properties, 0, sizeof(*properties));
    int result = net->version >= 9 ? newer_properties(net, device, properties)
                                   : oldest_properties(net, device, properties);
    properties->rail = properties->plane = NET_UNDEFINED;
    return result;
}

int net_listen(struct net *net, int device, void *handle, void **listen_comm)
{
    return net->version >= 11 ? v11()->listen(net->instance, device, handle, listen_comm)
                              : v10()->listen(device, handle, listen_comm);
}

int net_connect(struct net *net, int device, void *handle, void **send_comm)
{
    struct net_config config = {.traffic_class = net->traffic_class};
    void *device_comm = NULL;
    if (net->version >= 11) {
        return v11()->connect(net->instance, device, handle, send_comm, &device_comm);
    }
    return net->version == 10 ? v10()->connect(device, &config, handle, send_comm, &device_comm)
                              : v9()->connect(device, handle, send_comm, &device_comm);
}

int net_finalize(struct net *net)
{
    return net->version >= 11 ? v11()->finalize(net->instance) : NET_SUCCESS;
}
