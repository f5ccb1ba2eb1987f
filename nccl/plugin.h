/* plugin.h: what the plugin's parts know of each other.
 *
 *   tables.c    a table of calls for each version of NCCL's interface
 *   plugin.c    init, finalize, devices
 *   settings.c  COPYRPC_NCCL_*
 *   device.c    rails, and what NCCL is told about them
 *   session.c   a context of copyrpc, its lock, its completions
 *   connect.c   listen, connect, accept, close
 *   transfer.c  registrations, isend, irecv, iflush, test
 *
 * NCCL's threads meet in a comm: the proxy's progress thread sends and tests while its service
 * thread registers memory. A context of copyrpc belongs to one thread at a time, so each send comm
 * has a session with a context of its own, each listen comm one that the receive comms accepted
 * from it share (NCCL accepts one and closes the listen comm), and every call locks the session.
 */
#ifndef NCCL_PLUGIN_H
#define NCCL_PLUGIN_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "copyrpc.h"
#include "net_api.h"

#define DEVICES_MAX 16
#define GROUP_MAX CRPC_CHANNEL_GROUP_MAX
#define TOKEN_BYTES CRPC_TOKEN_BYTES_MAX
#define ADDRESS_BYTES 64

/* ---- Log: plugin.c --------------------------------------------------------------------------- */

extern net_logger log_to;

/* Before init there is nobody to tell. */
#define LOG(level, parts, ...)                                                                     \
    do {                                                                                           \
        if (log_to != NULL) {                                                                      \
            log_to(level, parts, __func__, __LINE__, "NET/copyrpc: " __VA_ARGS__);                 \
        }                                                                                          \
    } while (0)
#define WARN(...) LOG(NET_LOG_WARN, NET_LOG_OF_ALL, __VA_ARGS__)
#define INFO(...) LOG(NET_LOG_INFO, NET_LOG_OF_INIT | NET_LOG_OF_NET, __VA_ARGS__)

/* What NCCL is to make of a status of copyrpc. */
int net_result(int32_t status);

/* ---- Settings: settings.c -------------------------------------------------------------------- */

struct settings {
    uint32_t device_count; /* 0: one, with rails as copyrpc chooses them */
    char rails[DEVICES_MAX][CRPC_RAILS_MAX][64];
    char address[DEVICES_MAX][ADDRESS_BYTES]; /* "" = of the rail's GID */
    uint32_t split;
    uint32_t share;
    char hint[64];
    uint32_t queue_pairs;
    uint32_t stripe_bytes_min;
    uint64_t connect_timeout_ns;
    bool gpu_direct;
};

/* Reads the environment. A wrong value is a failure: a plugin that ran with another one instead
 * would mislead. Returns false after a warning. */
bool settings_read(struct settings *settings);

/* ---- Devices: device.c ----------------------------------------------------------------------- */

struct device {
    char name[140]; /* "mlx5_0+mlx5_1" */
    char pci_path[PATH_MAX];
    char rails[CRPC_RAILS_MAX][64];  /* "mlx5_0:1", as they were found */
    char address[ADDRESS_BYTES + 8]; /* to listen on: "192.0.2.1:0" */
    uint64_t guid;
    uint64_t message_bytes_max;
    uint32_t speed_mbps;
    uint32_t port;
    int memory; /* NET_MEMORY_* */
};

/* Finds out what device `index` is. Opens it for that. Returns a NET_* result. */
int device_find(const struct settings *settings, uint32_t index, struct device *device);

/* Opens the device's rails for so many channels. CRPC_OK, or a status and a warning. */
int32_t device_open(const struct device *device, uint32_t channels_max, crpc_context **context);

/* Of the newest version; the older ones have less. */
void device_properties(struct device *device, int index, struct net_properties_v12 *properties);

/* ---- Plugin: plugin.c ------------------------------------------------------------------------ */

extern struct settings settings;
int plugin_init(net_logger logger);
void plugin_finalize(void);
uint32_t plugin_device_count(void);
/* NULL if NCCL names a device that there is not. */
struct device *plugin_device(int index);

/* ---- Sessions and comms ---------------------------------------------------------------------- */

/* NCCL has eight steps of each of its sub-transfers open, and up to eight of those share a comm's
 * group; when there is no room it tries again later. */
#define SLOTS 64
#define REQUESTS 256
#define LISTENER_CHANNELS_MAX 16

struct comm;

struct request {
    struct comm *comm; /* NULL: free */
    struct request *next_free;
    uint32_t parts; /* buffers */
    uint32_t parts_left;
    int32_t status; /* of the first part that failed */
    int32_t bytes[GROUP_MAX];
};

enum comm_state { COMM_CONNECTING, COMM_CONNECTED, COMM_FAILED };

struct session {
    pthread_mutex_t lock;
    crpc_context *context;
    const struct device *device;
    uint32_t users;
    struct comm *comms;
    uint64_t ids; /* given to comms so far: completions name one that may be gone */
    crpc_channel asking[LISTENER_CHANNELS_MAX]; /* to the listener, not yet accepted */
    uint32_t asking_count;
};

struct comm {
    struct session *session;
    struct comm *next;
    struct comm *next_connecting;
    uint64_t id;
    crpc_channel channel;
    enum comm_state state;
    int32_t status; /* why it failed */
    bool sends;
    struct request *free;
    struct request requests[REQUESTS];
};

/* A session with one user, or NULL and *status. */
struct session *session_open(const struct device *device, uint32_t channels_max, int32_t *status);
/* The last user's closes the context. */
void session_leave(struct session *session);

/* The caller holds the session's lock for all that follows, except comm_destroy. */
void session_poll(struct session *session);
/* Rejects who asks, or lets go of one who has given up meanwhile. */
void session_turn_away(struct session *session, crpc_channel channel, uint32_t reason);
/* NULL: no memory. The comm is a user of the session. */
struct comm *comm_create(struct session *session);
/* Ends its channel; its requests are gone with it. comm_destroy leaves the session too. */
void comm_remove(struct comm *comm);
void comm_destroy(struct comm *comm);
struct request *request_get(struct comm *comm, uint32_t parts);
void request_put(struct request *request);
uint64_t request_part(const struct request *request, uint32_t part);
/* Tells NCCL's log why something failed, with what copyrpc wrote of it. */
void comm_explain(struct comm *comm, const char *what, int32_t status);

/* ---- Calls of the tables --------------------------------------------------------------------- */

int net_listen(int device, void *handle, void **listen_comm);
int net_connect(int device, void *handle, void **send_comm);
int net_accept(void *listen_comm, void **receive_comm, void **device_comm);
int net_close_comm(void *comm);
int net_close_listen(void *listen_comm);
/* Lets go of connects that were begun and never asked for again. */
void net_forget_connects(void);

int net_register(void *comm, void *data, size_t bytes, int memory, void **registration);
int net_register_dmabuf(void *comm, void *data, size_t bytes, int memory, uint64_t offset, int fd,
                        void **registration);
int net_deregister(void *comm, void *registration);
int net_send(void *comm, void *data, size_t bytes, int tag, void *registration, void *profile,
             void **request);
int net_receive(void *comm, int count, void **data, size_t *bytes, int *tags, void **registrations,
                void **profiles, void **request);
int net_flush(void *comm, int count, void **data, int *bytes, void **registrations, void **request);
int net_test(void *request, int *done, int *bytes);

#endif
