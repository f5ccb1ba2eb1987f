/* cm.h: rdma_cm without blocking: names are resolved and events are taken by a thread of their own,
 * and handed to the thread that owns the context through a queue whose emptiness costs one load.
 *
 * The thread touches nothing but the queue and librdmacm (which is thread-safe); everything else
 * here is called by the owner. It also takes the device's asynchronous events.
 */
#ifndef CORE_CM_CM_H
#define CORE_CM_CM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "nic/nic.h"

struct cm;            /* of one nic */
struct cm_identifier; /* a listener or a connection */

#define CM_PRIVATE_BYTES 56      /* what both REQ and REP carry on every transport */
#define CM_PRIVATE_BYTES_MAX 196 /* of a REP */
#define CM_REJECT_BYTES_MAX 148

enum cm_event_kind {
    CM_EVENT_ROUTED = 1,       /* connect: address and route are known and lead to this nic */
    CM_EVENT_CONNECT_REQUEST,  /* listener: identifier is new and the owner's from now on */
    CM_EVENT_CONNECT_RESPONSE, /* connect: accepted; private data is the peer's */
    CM_EVENT_ESTABLISHED,      /* accept: the peer is ready */
    CM_EVENT_REJECTED,         /* connect, and no response came: private data is the peer's, 0 bytes
                                  if not its application rejected; error says who and why */
    CM_EVENT_FAILED,           /* connect or accept came to nothing: error */
    CM_EVENT_DISCONNECTED,     /* the peer, or its kernel, took the connection down; also the answer
                                  to cm_disconnect */
    CM_EVENT_QUEUE_PAIR,       /* the device killed one: queue_pair_number, error */
    CM_EVENT_PORT_ACTIVE,
    CM_EVENT_PORT_DOWN,
    CM_EVENT_DEVICE_FATAL,
};

struct cm_event {
    enum cm_event_kind kind;
    void *owner;                      /* as given to cm_listen, cm_connect or cm_own */
    struct cm_identifier *identifier; /* NULL for events of the device */
    uint32_t queue_pair_number;
    uint32_t private_bytes; /* may be more than the peer gave: InfiniBand and RoCE pad with zeros */
    uint8_t private_data[CM_PRIVATE_BYTES_MAX];
    crpc_error error;
};

/* Starts the thread. nic->rdma_cm must be true. */
int32_t cm_open(struct nic *nic, struct cm **cm, crpc_error *error);
/* All identifiers must have been destroyed. */
void cm_close(struct cm *cm);

/* True if cm_event_take would give something: one relaxed load. */
bool cm_pending(const struct cm *cm);
/* Takes the oldest event; false if there is none. */
bool cm_event_take(struct cm *cm, struct cm_event *event);
/* Readable while events wait. */
int cm_event_fd(const struct cm *cm);
/* After a queue pair has been destroyed: CM_EVENT_QUEUE_PAIR events of it that still wait are
 * dropped, so that none is taken for the next queue pair of that number. */
void cm_forget_queue_pair(struct cm *cm, uint32_t queue_pair_number);

/* address as in crpc_listener_open. Resolves a name on the spot. */
int32_t cm_listen(struct cm *cm, const char *address, uint32_t backlog, void *owner,
                  struct cm_identifier **identifier, crpc_error *error);
/* address as in crpc_endpoint_connect. Ends in CM_EVENT_ROUTED or CM_EVENT_FAILED. */
int32_t cm_connect(struct cm *cm, const char *address, void *owner,
                   struct cm_identifier **identifier, crpc_error *error);
/* After ROUTED: sends the REQ. Ends in CONNECT_RESPONSE, REJECTED or FAILED. The queue pair stays
 * in RESET until the response. */
int32_t cm_request(struct cm_identifier *identifier, const struct nic_queue_pair *queue_pair,
                   const struct nic_transport *transport, const void *private_data,
                   uint32_t private_bytes, crpc_error *error);
/* After CONNECT_RESPONSE: makes the queue pair ready and tells the peer so. */
int32_t cm_establish(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                     const struct nic_transport *transport, crpc_error *error);
/* After CONNECT_REQUEST: makes the queue pair ready and sends the REP. Ends in ESTABLISHED or
 * FAILED. */
int32_t cm_accept(struct cm_identifier *identifier, struct nic_queue_pair *queue_pair,
                  const struct nic_transport *transport, const void *private_data,
                  uint32_t private_bytes, crpc_error *error);
void cm_reject(struct cm_identifier *identifier, const void *private_data, uint32_t private_bytes);
void cm_disconnect(struct cm_identifier *identifier);
/* Sets the owner of an identifier that came with CONNECT_REQUEST. */
void cm_own(struct cm_identifier *identifier, void *owner);
/* Ends it whatever its state; none of its events is taken afterwards. NULL is allowed. */
void cm_destroy(struct cm_identifier *identifier);

/* "192.0.2.1:7471", "[2001:db8::1]:7471" */
void cm_local_address(const struct cm_identifier *identifier, char *text, size_t bytes);
void cm_peer_address(const struct cm_identifier *identifier, char *text, size_t bytes);
uint16_t cm_local_port(const struct cm_identifier *identifier);

#endif
