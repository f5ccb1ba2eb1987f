/* plugin.h: what the plugin's parts know of each other.
 *
 *   tables.c     a table of calls for each version of NCCL's interface
 *   plugin.c     init, finalize, devices
 *   settings.c   COPYRPC_NCCL_*, and NCCL's own words for the same
 *   ports.h      the ports of the machine, and their pairs: ports.c, pair.c, words.c
 *   device.c     rails, and what NCCL is told about them
 *   interface.c  the address at which listen comms are met
 *   meet.c       two comms exchange blobs over TCP
 *   session.c    a context of copyrpc that comms share
 *   comm.c       a comm's channel, requests and completions
 *   connect.c    listen, connect, accept, close
 *   memory.c     registrations
 *   flush.c      what GPUs receive is pushed to their memory
 *   transfer.c   isend, irecv, iflush, test
 *
 * Comms share sessions: a session is a context of copyrpc on a device's rails, for up to
 * SESSION_CHANNELS_MAX comms. A context belongs to one thread at a time, and NCCL's threads meet in it:
 * the progress threads of the communicators send and test, and service threads connect and register
 * memory. So every call locks the session; only a test that finds another thread polling does without,
 * since that one polls for all.
 */
#ifndef NCCL_PLUGIN_H
#define NCCL_PLUGIN_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "copyrpc.h"
#include "meet.h"
#include "net_api.h"
#include "ports.h"

#define DEVICES_MAX PORTS_MAX
#define GROUP_MAX CRPC_CHANNEL_GROUP_MAX
#define RAIL_BYTES 72 /* "name:port" */
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
uint64_t now_ns(void);

/* ---- Settings: settings.c -------------------------------------------------------------------- */

#define SETTING_NOT_GIVEN UINT32_MAX

struct settings {
    uint32_t device_count; /* 0: all active ports that `hca` names, in pairs */
    char rails[DEVICES_MAX][CRPC_RAILS_MAX][RAIL_BYTES];
    const char *hca;             /* NCCL_IB_HCA; NULL = all */
    char address[ADDRESS_BYTES]; /* to be met at; "" = as NCCL chooses */
    uint32_t split;
    uint32_t share;
    char hint[64];
    uint32_t queue_pairs;
    uint32_t stripe_bytes_min;
    uint64_t connect_timeout_ns;
    bool gpu_direct;
    /* How packets travel; SETTING_NOT_GIVEN = as copyrpc has it. */
    uint32_t traffic_class; /* then NCCL may ask for one */
    uint32_t service_level;
    uint32_t partition_index;
    uint32_t gid_index;
    uint32_t retry_timeout;
    uint32_t retry_count;
    /* How what has arrived gets into memory, and the way of long messages, likewise. */
    uint32_t relaxed_ordering; /* 0 = no, 1 = yes, 2 = copyrpc chooses */
    uint32_t adaptive_routing; /* 0 = no, 1 = yes */
    uint32_t adaptive_routing_bytes;
    uint32_t ece; /* 0 = no, 1 = yes */
};

/* Reads the environment. A wrong value is a failure: a plugin that ran with another one instead
 * would mislead. Returns false after a warning. */
bool settings_read(struct settings *settings);

/* ---- Devices: device.c ----------------------------------------------------------------------- */

/* How packets travel. 0 = as copyrpc's own variables say, or by default. */
struct way {
    uint32_t traffic_class;
    uint32_t service_level;
};

struct device {
    char name[140]; /* "mlx5_0+mlx5_1" */
    char pci_path[PATH_MAX];
    char rails[CRPC_RAILS_MAX]
              [RAIL_BYTES]; /* "mlx5_0:1", as they were found; rails[1] may be "none" */
    uint64_t guid;
    uint64_t message_bytes_max;
    uint32_t speed_mbps;
    uint32_t rail_count;
    uint32_t port;
    uint32_t link;            /* CRPC_LINK_* */
    uint32_t channels_max;    /* of a context: receives and completions of a device end */
    int memory;               /* NET_MEMORY_* */
    struct session *sessions; /* of session.c */
};

/* On a device: as NCCL's variables say, and where they and copyrpc's say nothing, as was asked for. NCCL asks for one
 * number, below 0 for none: on Ethernet it is a traffic class, on InfiniBand also a service level. */
struct way way_choose(const struct device *device, struct way asked);
struct way way_asked(const struct device *device, int number);

/* Finds the devices, which it opens for that. Returns a NET_* result, after a warning. */
int devices_find(const struct settings *settings, struct device *devices, uint32_t *count);

/* Opens the device's rails for so many channels. CRPC_OK, or a status and a warning. */
int32_t device_open(const struct device *device, uint32_t channels_max, struct way way,
                    crpc_context **context);

/* Opens the port of one rail, for queues. */
int32_t device_open_queues(const char *rail, crpc_context **context);

/* Of the newest version; the older ones have less. */
void device_properties(struct device *device, int index, struct net_properties_v12 *properties);

/* ---- Plugin: plugin.c ------------------------------------------------------------------------ */

extern struct settings settings;
int plugin_init(net_logger logger);
void plugin_finalize(void);
uint32_t plugin_device_count(void);
/* NULL if NCCL names a device that there is not. */
struct device *plugin_device(int index);

/* ---- Where to be met: interface.c ------------------------------------------------------------ */

/* Chooses an address of this machine, without a port: what COPYRPC_NCCL_ADDRESS says, and otherwise as
 * NCCL's own networks do. False after a warning. */
bool interface_choose(const struct settings *settings, struct sockaddr_storage *address);

/* ---- Sessions: session.c --------------------------------------------------------------------- */

#define SESSION_CHANNELS_MAX 256
/* NCCL has at most NET_REQUESTS_PER_COMM receives open on a comm, each of up to eight buffers. */
#define SLOTS NET_REQUESTS_PER_COMM
#define REQUESTS (NET_REQUESTS_PER_COMM * GROUP_MAX)

struct comm;
struct registration;

enum session_state { SESSION_OPENING, SESSION_OPEN, SESSION_FAILED };

struct session {
    struct device *device;
    struct way way;
    struct session
        *next; /* of the device; under the lock of all sessions, as are users and places */
    uint32_t users;
    uint32_t places; /* users that there may be */
    pthread_t opener;
    _Atomic(enum session_state) state;
    int32_t status; /* why it failed */

    pthread_mutex_t lock; /* of what follows */
    crpc_context *context;
    struct comm *comms[SESSION_CHANNELS_MAX];
    uint64_t comms_made;
    uint64_t polls;
    atomic_bool polling; /* whoever has the lock does so; a hint for those who have not */
    struct flusher *flushers[CRPC_RAILS_MAX]; /* NULL: no GPUDirect */
    struct registration *registrations;
    struct registration *leaving; /* those that open ops still use */
};

/* Gives a place in a session of the device: in one that is there, or in a new one, which a thread then
 * opens: this does not block for it. NULL: no memory, or no thread. */
struct session *session_join(struct device *device, struct way way);
/* The last one's closes the context. Waits for the thread that opens it. */
void session_leave(struct session *session);
/* The caller holds the session's lock. */
void session_poll(struct session *session);

/* ---- Comms: comm.c --------------------------------------------------------------------------- */

struct request {
    struct comm *comm; /* NULL: free */
    struct request *next_free;
    uint32_t parts;         /* buffers */
    atomic_uint parts_left; /* 0: done */
    int32_t status;         /* of the first part that failed */
    int32_t bytes[GROUP_MAX];
    /* Of a flush: flush.c. */
    const struct flush_keys *keys; /* NULL: it is none */
    uintptr_t flush_address;
    uint8_t unread; /* mask of rails on which a READ has yet to be posted */
};

enum comm_state {
    COMM_OPENING,    /* the session's context is being opened */
    COMM_MEETING,    /* blobs are exchanged */
    COMM_CONNECTING, /* the channel has joined */
    COMM_CONNECTED,
    COMM_FAILED,
};

struct comm {
    struct session *session;
    struct comm *next_connecting;
    uint64_t id; /* user_data of its channel: the lower bits are its index in the session */
    uint32_t index;
    crpc_channel channel;
    _Atomic(enum comm_state) state;
    int32_t status; /* why it failed */
    bool sends;
    uint8_t rails_lost; /* mask */
    uint8_t blob[CRPC_BLOB_BYTES_MAX];
    uint32_t blob_bytes;
    struct meeting *meeting; /* until it is connected */
    uint64_t polls_seen;     /* the session's when it was last tested */
    struct request *free;
    uint32_t requests_used; /* the rest was never used */
    struct request requests[REQUESTS];
};

/* Makes a comm in a session of the device, in the state COMM_OPENING. NULL: no memory. */
struct comm *comm_create(struct device *device, struct way way);
/* Ends its channel; its requests are gone with it. */
void comm_destroy(struct comm *comm);
/* In a session that is open: makes the channel, and its blob. The caller holds the session's lock for this and all
 * that follows. */
int32_t comm_make_channel(struct comm *comm);
int32_t comm_join(struct comm *comm, const void *blob, uint32_t blob_bytes);
void comm_take(struct session *session, const crpc_completion *completion);
struct request *request_get(struct comm *comm, uint32_t parts);
void request_put(struct request *request);
uint64_t request_part(const struct request *request, uint32_t part);
/* Tells NCCL's log why something failed, with what copyrpc wrote of it. */
void comm_explain(struct comm *comm, const char *what, int32_t status);

/* ---- Calls of the tables --------------------------------------------------------------------- */

int net_listen(int device, void *handle, void **listen_comm);
/* traffic_class: what NCCL asks for; below 0 nothing. */
int net_connect(int device, int traffic_class, void *handle, void **send_comm);
int net_accept(void *listen_comm, void **receive_comm, void **device_comm);
int net_close_comm(void *comm);
int net_close_listen(void *listen_comm);
/* Lets go of connects that were begun and never asked for again. */
void net_forget_connects(void);

int net_register(void *comm, void *data, size_t bytes, int memory, void **registration);
int net_register_dmabuf(void *comm, void *data, size_t bytes, int memory, uint64_t offset, int fd,
                        void **registration);
int net_deregister(void *comm, void *registration);
/* memory.c: the caller holds the session's lock. */
crpc_region registration_region(const struct registration *registration);
/* NULL: it is no memory of a GPU. */
const struct flush_keys *registration_flush_keys(const struct registration *registration);
uintptr_t registration_address(const struct registration *registration);
/* Takes back those that nothing uses any more. */
void registrations_sweep(struct session *session);
void registrations_end(struct session *session);

/* ---- Flushes: flush.c ------------------------------------------------------------------------ */

/* Memory to be registered: of a dma-buf, or fd < 0: of an address. */
struct buffer {
    int fd;
    uint64_t offset;
};

/* Of the first page of a GPU's buffer, for the queues that flush. */
struct flush_keys {
    crpc_region regions[CRPC_RAILS_MAX];
    uint32_t remote_keys[CRPC_RAILS_MAX];
};

/* By the thread that opens the session; and when its last user has left. */
int32_t flushers_open(struct session *session);
void flushers_close(struct session *session);
/* The caller holds the session's lock for these. */
int32_t flush_register(struct session *session, const struct buffer *buffer, uintptr_t address,
                       size_t bytes, struct flush_keys *keys);
void flush_deregister(struct session *session, struct flush_keys *keys);
/* Begins a flush, of which each rail is a part. `keys` are those of the memory, of which `address` is the beginning. */
void flush_begin(struct session *session, struct request *request, const struct flush_keys *keys,
                 uintptr_t address);
void flush_step(struct session *session, struct request *request);
void flushers_poll(struct session *session);

int net_send(void *comm, void *data, size_t bytes, int tag, void *registration, void *profile,
             void **request);
int net_receive(void *comm, int count, void **data, size_t *bytes, int *tags, void **registrations,
                void **profiles, void **request);
int net_flush(void *comm, int count, void **data, int *bytes, void **registrations, void **request);
int net_test(void *request, int *done, int *bytes);

#endif
