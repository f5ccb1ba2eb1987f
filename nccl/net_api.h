/* net_api.h: the binary interface between NCCL and a net plugin, in its versions 12 (NCCL 2.30),
 * 11 (2.28, 2.29), 10 (2.26, 2.27), 9 (2.24, 2.25), 8 (2.20 to 2.23) and 7 (2.19): the numbers, and
 * the order and types of what the tables hold. Written for this plugin from the facts, in names of
 * its own; tests/layout_test.c nails the layout down.
 *
 * NCCL takes the highest version it knows of those that a plugin exports as ncclNetPlugin_vN.
 */
#ifndef NCCL_NET_API_H
#define NCCL_NET_API_H

#include <stddef.h>
#include <stdint.h>

/* Results; an int in every ABI that NCCL runs on. */
#define NET_SUCCESS 0
#define NET_SYSTEM_ERROR 2
#define NET_INTERNAL_ERROR 3
#define NET_INVALID_ARGUMENT 4
#define NET_INVALID_USAGE 5
#define NET_REMOTE_ERROR 6

#define NET_HANDLE_BYTES 128     /* what listen may write, and every later connect sees */
#define NET_REQUESTS_PER_COMM 32 /* that NCCL has open for one sub-transfer */

/* What memory a regMr is for, and bits of what a device can. */
#define NET_MEMORY_HOST 0x1
#define NET_MEMORY_CUDA 0x2
#define NET_MEMORY_DMABUF 0x4

#define NET_DEVICE_HOST 0  /* the network is driven by the CPU, through this table */
#define NET_UNDEFINED (-1) /* of railId and planeId */

#define NET_LOG_WARN 2
#define NET_LOG_INFO 3
#define NET_LOG_OF_INIT 1ul
#define NET_LOG_OF_NET 16ul
#define NET_LOG_OF_ALL (~0ul)

typedef void (*net_logger)(int level, unsigned long parts, const char *where, int line,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Told about events of a transfer; this plugin has none to tell. */
typedef int (*net_profiler)(void **event, int type, void *parent, int64_t plugin, void *data);

/* config of connect (10) or init (11, 12); older versions have none */
struct net_config {
    int traffic_class;
};

struct net_virtual_v10 {
    int count;
    int devices[4];
};

struct net_virtual_v12 {
    int count;
    int devices[8];
};

/* What the properties of every version begin with, and go on with. */
#define NET_PROPERTIES_FIRST                                                                       \
    char *name;                                                                                    \
    char *pci_path; /* in /sys; NULL: not on PCI */                                                \
    uint64_t guid;  /* ports of one NIC have the same */                                           \
    int memory      /* NET_MEMORY_* */
#define NET_PROPERTIES_FROM_SPEED                                                                  \
    int speed_mbps;                                                                                \
    int port;                                                                                      \
    float latency_us; /* 0: not known */                                                           \
    int comms_max;                                                                                 \
    int receives_max; /* of one group */                                                           \
    int device_type;  /* NET_DEVICE_HOST */                                                        \
    int device_version
/* What those from version 9 on begin with. */
#define NET_PROPERTIES_TO_VIRTUAL                                                                  \
    NET_PROPERTIES_FIRST;                                                                          \
    int registration_is_global;                                                                    \
    int force_flush;                                                                               \
    NET_PROPERTIES_FROM_SPEED

struct net_properties_v7 {
    NET_PROPERTIES_FIRST;
    NET_PROPERTIES_FROM_SPEED;
};

struct net_properties_v8 {
    NET_PROPERTIES_FIRST;
    int registration_is_global;
    NET_PROPERTIES_FROM_SPEED;
};

/* Of version 9, too. */
struct net_properties_v10 {
    NET_PROPERTIES_TO_VIRTUAL;
    struct net_virtual_v10 virtual_device;
    size_t point_to_point_bytes_max;
    size_t collective_bytes_max;
};

struct net_properties_v11 {
    NET_PROPERTIES_TO_VIRTUAL;
    struct net_virtual_v10 virtual_device;
    size_t point_to_point_bytes_max;
    size_t collective_bytes_max;
    int multi_request_max;
};

struct net_properties_v12 {
    NET_PROPERTIES_TO_VIRTUAL;
    struct net_virtual_v12 virtual_device;
    size_t point_to_point_bytes_max;
    size_t collective_bytes_max;
    int multi_request_max;
    int16_t rail;
    int16_t plane;
};

/* Calls from accept on. `device_comm` is for networks that a GPU drives. accept, and connect above
 * it, do not block: they return success and no comm until there is one. isend and irecv may return
 * success and no request, which means: again later; an iflush without a request has nothing to wait
 * for. Entries that are NULL are not called. `size` is the type of lengths: int in old versions. */
#define NET_CALLS_OF_MEMORY(size)                                                                  \
    int (*accept)(void *listen_comm, void **receive_comm, void **device_comm);                     \
    int (*register_memory)(void *comm, void *data, size bytes, int memory, void **registration);   \
    int (*register_dmabuf)(void *comm, void *data, size_t bytes, int memory, uint64_t offset,      \
                           int fd, void **registration);                                           \
    int (*deregister)(void *comm, void *registration)
#define NET_CALLS_OF_TRANSFER(size)                                                                \
    int (*send)(void *comm, void *data, size bytes, int tag, void *registration, void **request);  \
    int (*receive)(void *comm, int count, void **data, size *bytes, int *tags,                     \
                   void **registrations, void **request)
/* From version 10 on: with something for a profiler. */
#define NET_CALLS_OF_PROFILED_TRANSFER                                                             \
    int (*send)(void *comm, void *data, size_t bytes, int tag, void *registration, void *profile,  \
                void **request);                                                                   \
    int (*receive)(void *comm, int count, void **data, size_t *bytes, int *tags,                   \
                   void **registrations, void **profiles, void **request)
#define NET_CALLS_FROM_FLUSH                                                                       \
    int (*flush)(void *comm, int count, void **data, int *bytes, void **registrations,             \
                 void **request);                                                                  \
    int (*test)(void *request, int *done, int *bytes);                                             \
    int (*close_send)(void *comm);                                                                 \
    int (*close_receive)(void *comm);                                                              \
    int (*close_listen)(void *comm);                                                               \
    int (*device_registration)(void *comm, void *registration, void **device_pointer);             \
    int (*receive_consumed)(void *comm, int count, void *request)
#define NET_CALLS_FROM_ACCEPT                                                                      \
    NET_CALLS_OF_MEMORY(size_t);                                                                   \
    NET_CALLS_OF_PROFILED_TRANSFER;                                                                \
    NET_CALLS_FROM_FLUSH

#define NET_CALLS_TO_9(version)                                                                    \
    const char *name;                                                                              \
    int (*init)(net_logger logger);                                                                \
    int (*devices)(int *count);                                                                    \
    int (*properties)(int device, struct net_properties_v##version *properties);                   \
    int (*listen)(int device, void *handle, void **listen_comm);                                   \
    int (*connect)(int device, void *handle, void **send_comm, void **device_comm)

struct net_table_v7 {
    NET_CALLS_TO_9(7);
    NET_CALLS_OF_MEMORY(int);
    NET_CALLS_OF_TRANSFER(int);
    NET_CALLS_FROM_FLUSH;
};

struct net_table_v8 {
    NET_CALLS_TO_9(8);
    NET_CALLS_OF_MEMORY(size_t);
    NET_CALLS_OF_TRANSFER(int);
    NET_CALLS_FROM_FLUSH;
};

struct net_table_v9 {
    NET_CALLS_TO_9(10);
    NET_CALLS_OF_MEMORY(size_t);
    NET_CALLS_OF_TRANSFER(size_t);
    NET_CALLS_FROM_FLUSH;
    int (*make_virtual)(int *device, struct net_virtual_v10 *virtual_device);
};

struct net_table_v10 {
    const char *name;
    int (*init)(net_logger logger, net_profiler profiler);
    int (*devices)(int *count);
    int (*properties)(int device, struct net_properties_v10 *properties);
    int (*listen)(int device, void *handle, void **listen_comm);
    int (*connect)(int device, struct net_config *config, void *handle, void **send_comm,
                   void **device_comm);
    NET_CALLS_FROM_ACCEPT;
    int (*make_virtual)(int *device, struct net_virtual_v10 *virtual_device);
};

/* From version 11 on, init makes an instance for every NCCL communicator, and finalize ends it. */
#define NET_TABLE_FROM_11(version, virtual_type)                                                   \
    struct net_table_v##version {                                                                  \
        const char *name;                                                                          \
        int (*init)(void **instance, uint64_t communicator, struct net_config *config,             \
                    net_logger logger, net_profiler profiler);                                     \
        int (*devices)(int *count);                                                                \
        int (*properties)(int device, struct net_properties_v##version *properties);               \
        int (*listen)(void *instance, int device, void *handle, void **listen_comm);               \
        int (*connect)(void *instance, int device, void *handle, void **send_comm,                 \
                       void **device_comm);                                                        \
        NET_CALLS_FROM_ACCEPT;                                                                     \
        int (*make_virtual)(int *device, struct virtual_type *virtual_device);                     \
        int (*finalize)(void *instance);                                                           \
        int (*set_attributes)(void *instance, void *attributes);                                   \
    }

NET_TABLE_FROM_11(11, net_virtual_v10);
NET_TABLE_FROM_11(12, net_virtual_v12);

#endif
