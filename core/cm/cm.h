/* cm.h: rdma_cm without blocking. A thread of its own receives rdma_cm's events and the asynchronous
 * events of one or more devices, and passes them through a queue to the owner, which is the thread
 * that uses the context. The owner checks with one load whether the queue is empty.
 *
 * The cm thread only uses the queue and librdmacm, which is thread-safe, and what the work of cm_run
 * uses. Work that may be slow because of a peer has threads of its own: cm_task_start. Only the owner may call the functions below.
 */
#ifndef CORE_CM_CM_H
#define CORE_CM_CM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/abi.h"
#include "nic/nic.h"

struct cm;
struct cm_identifier; /* a listener or a connection */
struct cm_task;       /* slow work */

#define CM_PRIVATE_BYTES 56      /* private data that REQ and REP carry on every transport */
#define CM_PRIVATE_BYTES_MAX 196 /* of a REP */
#define CM_REJECT_BYTES_MAX 148

enum cm_event_kind {
    CM_EVENT_ROUTED = 1,      /* connect: address and route are known, and lead to this nic */
    CM_EVENT_CONNECT_REQUEST, /* listener: identifier is new, and now belongs to the owner */
    CM_EVENT_HANDED_OVER, /* likewise, of another cm's listener: owner, user_data and private data are
                                  those of cm_hand_over */
    CM_EVENT_CONNECT_RESPONSE, /* connect: accepted; private data is the peer's */
    CM_EVENT_ESTABLISHED,      /* accept: the peer is ready */
    CM_EVENT_REJECTED,         /* connect, and no response came: private data is the peer's, or
                                  empty if its application did not reject; error says who did,
                                  and why */
    CM_EVENT_FAILED,           /* connect or accept failed: error */
    CM_EVENT_RAN,              /* the work of cm_run has been done: error says how it ended */
    CM_EVENT_DISCONNECTED,     /* the peer or its kernel ended the connection; also the answer to
                                  cm_disconnect */
    CM_EVENT_QUEUE_PAIR,       /* a queue pair with an ibv_qp.qp_context failed: nic,
                                  queue_pair_number, error */
    CM_EVENT_PORT_ACTIVE,
    CM_EVENT_PORT_DOWN,
    CM_EVENT_DEVICE_FATAL,
    CM_EVENT_SRQ_LIMIT, /* an SRQ of nic/queue.h has reached its limit: nic, queue_handle */
    CM_EVENT_TASK, /* the work of cm_task_start has been done: owner is its argument, and error says
                      how it ended */
    CM_EVENT_ASKED, /* owner is a struct cm_asked, whose `answer` must be called */
};

struct cm_asked {
    void (*answer)(struct cm_asked *asked);
};

struct cm_event {
    enum cm_event_kind kind;
    void *owner;                      /* as passed to cm_listen, cm_connect or cm_own */
    struct cm_identifier *identifier; /* NULL for events of a device */
    uint32_t nic;                     /* of the device: its index in cm_open's array */
    uint32_t queue_pair_number;
    uint64_t queue_handle;
    uint64_t user_data;
    uint32_t private_bytes; /* can exceed what the peer sent: InfiniBand and RoCE add zeros */
    uint8_t private_data[CM_PRIVATE_BYTES_MAX];
    crpc_error error;
};

#define CM_NICS_MAX 2

/* Starts the thread. It watches the devices of all nics, 1 to CM_NICS_MAX, and connects queue pairs of
 * the first. rdma_cm must be true in each, and each must outlive the cm. If the system has no rdma_cm,
 * the devices are watched all the same: the status is CRPC_OK, and cm_lacks says what is missing. */
int32_t cm_open(struct nic *const *nics, uint32_t nic_count, struct cm **cm, crpc_error *error);
/* Returns NULL, or why this cm cannot connect, e.g. "no /dev/infiniband/rdma_cm: ...". */
const char *cm_lacks(const struct cm *cm);
/* Returns what this context tells copyrpc-top, from malloc, or NULL if there is no memory. The owner's thread calls it, in `answer`. */
typedef void *cm_snapshot(void *argument, size_t *bytes);
/* Has the thread listen to copyrpc-top from now on, until cm_close. At most once. Returns CRPC_OK; CRPC_E_NO_MEMORY, CRPC_E_SYSTEM:
 * then nothing has changed. */
int32_t cm_tell_start(struct cm *cm, cm_snapshot *snapshot, void *argument, crpc_error *error);
/* Stops the threads. All identifiers must have been destroyed before, and all tasks have ended. */
void cm_close(struct cm *cm);

/* Returns true if an event waits. Costs one relaxed load. */
bool cm_pending(const struct cm *cm);
/* Takes the oldest event. Returns false if there is none. */
bool cm_event_take(struct cm *cm, struct cm_event *event);
/* Returns a descriptor that is readable while events wait. */
int cm_event_fd(const struct cm *cm);
/* Discards waiting CM_EVENT_QUEUE_PAIR events of a destroyed queue pair, so that they are not taken
 * for events of a later queue pair with the same number. */
void cm_forget_queue_pair(struct cm *cm, uint32_t nic, uint32_t queue_pair_number);

/* Returns CRPC_OK, or fills *error and returns its status. */
typedef int32_t cm_work(void *argument, crpc_error *error);
/* Has `work` done by another thread than this one and the cm thread, so that neither waits for it.
 * CM_EVENT_TASK follows. Until that is taken, what `work` uses belongs to the thread, and the task
 * exists. Few threads serve all tasks, so one can wait for others before it begins. Returns CRPC_OK;
 * CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
int32_t cm_task_start(struct cm *cm, cm_work *work, void *argument, struct cm_task **task,
                      crpc_error *error);
/* Waits for the end of a task, and takes its event. Returns how it ended. */
int32_t cm_task_wait(struct cm_task *task, crpc_error *error);
/* Drops a task that has not begun: it gives no event. Otherwise returns false and changes nothing. */
bool cm_task_forget(struct cm_task *task);

/* This and the rest need a cm that lacks nothing. Listens; `address` as in crpc_listener_open. Blocks while it looks up a name. */
int32_t cm_listen(struct cm *cm, const char *address, uint32_t backlog, void *owner,
                  struct cm_identifier **identifier, crpc_error *error);
/* Starts to connect; `address` as in crpc_endpoint_connect. CM_EVENT_ROUTED or CM_EVENT_FAILED
 * follows. */
int32_t cm_connect(struct cm *cm, const char *address, void *owner,
                   struct cm_identifier **identifier, crpc_error *error);
/* After ROUTED: sends the REQ. CONNECT_RESPONSE, REJECTED or FAILED follows. The queue pair stays
 * in the state RESET until the response. Where a name has other addresses, and nobody listens at the first or it does not answer,
 * the others get the same REQ. */
int32_t cm_request(struct cm_identifier *identifier, const struct nic_queue_pair *queue_pair,
                   const struct nic_transport *transport, const void *private_data,
                   uint32_t private_bytes, crpc_error *error);
/* After CONNECT_RESPONSE: makes the queue pair ready, and tells the peer. The work of cm_run may call
 * it. Returns CRPC_OK; CRPC_E_PROTOCOL: the peer names a queue pair that no peer can have; and others. */
int32_t cm_establish(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                     const struct nic_transport *transport, crpc_error *error);
/* After CONNECT_REQUEST: makes the queue pair ready, and sends the REP. ESTABLISHED or FAILED
 * follows. Returns the same. */
int32_t cm_accept(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                  const struct nic_transport *transport, const void *private_data,
                  uint32_t private_bytes, crpc_error *error);
/* After ROUTED: has the cm thread do slow system work for a connection, once. CM_EVENT_RAN follows.
 * Until then what `work` uses belongs to the thread. cm_destroy waits while the work is under way; if
 * it has not begun, it is forgotten. */
void cm_run(struct cm_identifier *identifier, cm_work *work, void *argument);
/* Waits for the end of the work, and takes its CM_EVENT_RAN. Returns how it ended. */
int32_t cm_run_wait(struct cm_identifier *identifier, crpc_error *error);
void cm_reject(struct cm_identifier *identifier, const void *private_data, uint32_t private_bytes);
void cm_disconnect(struct cm_identifier *identifier);

/* So many requests that were handed over to a cm can wait there to be accepted or rejected. */
#define CM_HANDED_OVER_MAX 128

/* After CONNECT_REQUEST: hands the request over to another cm of this process, which lacks nothing. `to` may be in use by
 * its owner's thread, but must not be closed meanwhile. The identifier belongs to that thread when this returns CRPC_OK,
 * and comes to it with CM_EVENT_HANDED_OVER; its owner is `owner` until cm_own. Waits for the cm thread of the first cm,
 * as cm_destroy does. Otherwise nothing has changed: CRPC_E_NO_RESOURCE: too many wait there; CRPC_E_NO_DEVICE: that
 * cm has another port; CRPC_E_NO_MEMORY, CRPC_E_SYSTEM. */
int32_t cm_hand_over(struct cm_identifier *identifier, struct cm *to, void *owner,
                     uint64_t user_data, const void *private_data, uint32_t private_bytes,
                     crpc_error *error);
/* Rejects what was handed over to this owner and was not taken. */
void cm_hand_over_reject(struct cm *cm, const void *owner);
/* Sets the owner of an identifier that came with CONNECT_REQUEST. */
void cm_own(struct cm_identifier *identifier, void *owner);
/* Destroys an identifier in any state. cm_event_take returns no event of it afterwards. NULL is
 * allowed. */
void cm_destroy(struct cm_identifier *identifier);

/* Write an address, e.g. "192.0.2.1:7471" or "[2001:db8::1]:7471". */
void cm_local_address(const struct cm_identifier *identifier, char *text, size_t bytes);
void cm_peer_address(const struct cm_identifier *identifier, char *text, size_t bytes);
/* Returns how many requests a listener has refused that the owner never hears of: those that came
 * while its backlog was full, or over another device. */
uint64_t cm_turned_away(const struct cm_identifier *listener);
uint16_t cm_local_port(const struct cm_identifier *identifier);

#endif
