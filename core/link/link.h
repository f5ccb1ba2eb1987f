/* link.h: a link: one connection to one peer, and what every service makes of it alike.
 *
 * A service is what two sides do over a link: calls (core/rpc), channels (core/channel). Its struct
 * for a connection begins with a struct link, its engine holds a struct link_group, and it fills in
 * one struct link_service. The link connects, by rdma_cm or by blobs; it keeps the state and the
 * events that the application sees; it watches over the connection and ends it.
 *
 *   hello.c    the hello of both sides, and why one is rejected
 *   connect.c  connecting and accepting; what follows from each event of rdma_cm
 *   listen.c   listeners
 *   blob.c     connecting with data that the application carries
 *   life.c     connected, failing, taking leave, closed; the timer that watches over it
 *   events.c   what a poll gives of all this, in which order
 *
 * One thread at a time uses a group and its links. Cold path, but for what is inline here.
 */
#ifndef CORE_LINK_LINK_H
#define CORE_LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/handles.h"
#include "base/list.h"
#include "base/log.h"
#include "base/output.h"
#include "base/wheel.h"
#include "cm/cm.h"
#include "link/wire.h"
#include "nic/nic.h"

struct link;
struct link_group;

/* ---- What a service is ----------------------------------------------------------------------- */

/* The links of a group are all of one service. Where a function may fail it fills *error, returns
 * its status, and leaves the link as it was. */
struct link_service {
    const char *name;    /* of one link, as in crpc_NAME_connect: for messages */
    const char *no_room; /* what the peer's program can raise when it has no room for a link */
    uint8_t number;      /* LINK_SERVICE_* */
    uint8_t version_min; /* of its protocol */
    uint8_t version_max;
    uint16_t features; /* those known */
    uint8_t handle_kind;
    uint8_t completion_flags; /* of the link's events */

    /* -- making -- */

    /* Allocates the service's struct and calls link_init. */
    int32_t (*create)(struct link_group *group, struct link **link, crpc_error *error);
    /* Makes what this side's options ask for: link->queue_pair, memory; and fills link->options. */
    int32_t (*prepare)(struct link *link, const void *options, crpc_error *error);
    void (*fill_body)(const struct link *link, uint8_t body[LINK_BODY_BYTES]);
    /* NULL, or what is wrong with the body of a peer's hello: "its ... is out of range". */
    const char *(*body_fault)(const uint8_t body[LINK_BODY_BYTES]);
    /* Makes what depends on the peer, from link->peer. */
    int32_t (*attach)(struct link *link, crpc_error *error);
    /* Undoes attach, whether it was done whole, in part or not at all. */
    void (*detach)(struct link *link);
    /* Undoes prepare likewise, and attach. */
    void (*unprepare)(struct link *link);
    /* Undoes everything, and ends with link_remove and free. */
    void (*destroy)(struct link *link);

    /* -- life -- */

    /* The queue pair is connected: calls link_connected, now or later. */
    void (*opened)(struct link *link);
    /* Takes what the peer sent before it left. */
    void (*settle)(struct link *link);
    /* The peer broke the protocol: what has come from it and was not looked at is to be forgotten. */
    void (*distrust)(struct link *link);
    /* The link has failed: link->error says why. If it was connected, it calls link_over when
     * nothing that came before is left, now or later. */
    void (*failed)(struct link *link);
    /* The application takes leave, for the first time or again. */
    void (*leave)(struct link *link);
    /* Says what the peer has not done in time: "3 calls were unanswered". */
    void (*describe_leave)(const struct link *link, char *text, size_t bytes);
    /* keepalive_ns have gone by: probes the peer if nothing was heard (link->heard). True if they
     * are to be waited for again. */
    bool (*keepalive)(struct link *link);
    /* The application has closed it: ends what is pending with CRPC_E_CLOSED. */
    void (*closed)(struct link *link);
    /* True if no op of it is pending, so that DISCONNECTED may come, or destroy. */
    bool (*quiet)(const struct link *link);

    /* -- the rest; NULL: it has none of that -- */

    /* Gives one event of LINK_EVENT_SERVICE, and clears that if it was the last. */
    void (*emit_event)(struct link *link, struct output *output);
    /* A timer of one of the service's kinds has expired. */
    void (*timer)(struct link_group *group, struct wheel_timer *timer);
    /* CM_EVENT_QUEUE_PAIR, _PORT_ACTIVE, _PORT_DOWN or _DEVICE_FATAL of group->nic. */
    void (*device_event)(struct link_group *group, const struct cm_event *event);
};

/* ---- All links of a service in one context --------------------------------------------------- */

#define LINK_CANCELS_MAX 256u
#define LINK_DEVICE_EVENTS_MAX 16u

struct link_cancel {
    uint64_t handle;
    uint64_t link_user_data;
    uint64_t user_data;
    uint64_t count;
};

struct link_group {
    const struct link_service *service;
    struct nic *nic; /* of each link's first queue pair */
    struct cm *cm;   /* NULL: no rdma_cm */
    struct log *log;
    struct handles *handles;
    const uint64_t *virtual_clock_ns;
    uint64_t now_ns; /* 0 = not read since the caller came in */
    struct wheel wheel;

    struct list all;
    struct list listeners;
    struct list events; /* links with events to be given */
    struct link_cancel cancels[LINK_CANCELS_MAX];
    uint32_t cancels_head;
    uint32_t cancels_tail;
    int32_t device_events[LINK_DEVICE_EVENTS_MAX];
    uint32_t device_event_count;
};

/* All but `group` stay the caller's and must outlive it. virtual_clock_ns is NULL, or where a
 * simulation keeps its time. */
void link_group_init(struct link_group *group, const struct link_service *service, struct nic *nic,
                     struct cm *cm, struct log *log, struct handles *handles,
                     const uint64_t *virtual_clock_ns);
/* Closes listeners and destroys links. */
void link_group_close(struct link_group *group);

/* ---- A link ---------------------------------------------------------------------------------- */

/* What the options of every service have in common; no zeros are left that mean a default. */
struct link_options {
    uint64_t user_data;
    uint64_t connect_timeout_ns;
    uint64_t keepalive_ns;
    struct nic_transport transport;
    uint32_t token_bytes;
    uint8_t token[LINK_TOKEN_BYTES];
};

/* From crpc_endpoint_options or crpc_channel_options, whose fields have the same names. */
#define link_options_set(link_options, from)                                                       \
    do {                                                                                           \
        (link_options)->user_data = (from)->user_data;                                             \
        (link_options)->connect_timeout_ns = (from)->connect_timeout_ns;                           \
        (link_options)->keepalive_ns = (from)->keepalive_ns;                                       \
        (link_options)->transport.retry_timeout = (from)->retry_timeout;                           \
        (link_options)->transport.retry_count = (from)->retry_count;                               \
        (link_options)->token_bytes = (from)->token_bytes;                                         \
        memcpy((link_options)->token, (from)->token, LINK_TOKEN_BYTES);                            \
    } while (0)

/* The peer's hello, as it was found good; version and features as agreed on. */
struct link_peer {
    uint8_t body[LINK_BODY_BYTES];
    uint32_t nonce;
    uint32_t version;
    uint32_t features;
    uint32_t token_bytes;
    uint8_t token[LINK_TOKEN_BYTES];
};

/* To be told to the application, in this order. */
#define LINK_EVENT_CONNECT_REQUEST 0x1u
#define LINK_EVENT_CONNECTED 0x2u
#define LINK_EVENT_SERVICE 0x4u
#define LINK_EVENT_ROOM 0x8u
#define LINK_EVENT_DISCONNECTED 0x10u /* once quiet; of a closed link: to be destroyed then */

#define LINK_EVENTS_ALL 0x1fu

#define LINK_TIMER_LIFE 1u
#define LINK_TIMER_SERVICE 2u /* the first kind of timer that is the service's */

struct link {
    struct link_group *group;
    struct nic_queue_pair *queue_pair; /* the one that is connected; NULL before prepare */
    uint64_t handle;
    uint64_t heard; /* signs of life of the peer since the life timer was set */
    uint32_t state; /* CRPC_STATE_*; 0 before it is any */
    uint32_t events;
    bool passive; /* the peer connected to us */
    bool opened;  /* the queue pair is connected, as far as this side knows */
    bool failing; /* it is over */
    bool closed;  /* and the application wants to hear nothing of it */
    bool refused; /* an op got CRPC_E_AGAIN: LINK_EVENT_ROOM when something frees */
    struct list event_link;
    struct list all_link;
    struct wheel_timer life_timer; /* connect timeout, keepalive or leave timeout */
    uint64_t leave_timeout_ns;
    struct cm_identifier *identifier; /* NULL: by blob, or given back */
    struct link_listener *listener;   /* until the application has decided */
    uint32_t nonce;
    struct link_options options;
    struct link_peer peer;
    crpc_error error;
};

/* ---- Connecting: connect.c, blob.c ----------------------------------------------------------- */

/* `options` is the service's own struct. The handle becomes stale in link_close. */
int32_t link_connect(struct link_group *group, const char *address, const void *options,
                     struct link **link, crpc_error *error);
int32_t link_accept(struct link *link, const void *options, crpc_error *error);
int32_t link_reject(struct link *link, uint32_t reason);

#define LINK_BLOB_BYTES 104
/* Writes LINK_BLOB_BYTES. */
int32_t link_blob(struct link_group *group, const void *options, struct link **link, uint8_t *blob,
                  crpc_error *error);
int32_t link_join(struct link *link, const void *blob, uint32_t blob_bytes, crpc_error *error);

/* For a service whose queue pair had a completion: the peer's first message may be faster than
 * rdma_cm's last. */
void link_open(struct link *link);

/* The addresses of queue pairs, as they travel. link_address_take checks one of the peer's. */
void link_address_fill(struct link_address *wire, const struct nic_queue_pair *queue_pair);
int32_t link_address_take(struct nic_address *address, const struct link_address *wire,
                          const struct nic *nic, crpc_error *error);

/* ---- Listeners: listen.c --------------------------------------------------------------------- */

struct link_listener;

int32_t link_listener_open(struct link_group *group, const char *address, uint32_t backlog,
                           uint64_t user_data, struct link_listener **listener, crpc_error *error);
void link_listener_close(struct link_listener *listener);
/* HANDLE_LISTENER. */
uint64_t link_listener_handle(const struct link_listener *listener);
void link_listener_info(const struct link_listener *listener, crpc_listener_info *info);

/* ---- Life: life.c ---------------------------------------------------------------------------- */

/* For create. `link` is zeroed and begins the service's struct. */
int32_t link_init(struct link *link, struct link_group *group, crpc_error *error);
/* For destroy. */
void link_remove(struct link *link);

/* The application may use it from now on. */
void link_connected(struct link *link);
/* It is over, or never came to be. The first error counts. */
void link_fail(struct link *link, const crpc_error *error);
/* The same, told by rdma_cm or the device: what the peer sent before is taken first. */
void link_lost(struct link *link, const crpc_error *error);
/* The same, because the peer broke the protocol: "the peer (ADDRESS) broke the protocol: TEXT". The
 * link may be failing already, as what came before its end may be malformed: then this error
 * replaces the one that it has, and tells it. */
void link_violated(struct link *link, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* A failed link has nothing left of what came before. */
void link_over(struct link *link);

int32_t link_disconnect(struct link *link, uint64_t timeout_ns);
void link_close(struct link *link);

/* Watches over the link for keepalive_ns, unless its timer is set already. */
void link_start_keepalive(struct link *link);

/* For a service that has destroyed a queue pair of group->nic: events of it that still wait are not
 * taken for the next queue pair of that number. */
void link_forget_queue_pair(struct link_group *group, uint32_t number);

/* "192.0.2.1:7471"; "" if there is none. */
void link_addresses(const struct link *link, char *peer, size_t peer_bytes, char *local,
                    size_t local_bytes);

/* ---- Events: events.c ------------------------------------------------------------------------ */

/* Makes the next link_emit_events give LINK_EVENT_*. */
void link_report(struct link *link, uint32_t events);
/* Gives events of the device and of links. Twice a poll: CONNECTED comes before the first completion
 * of its link, DISCONNECTED after the last. */
void link_emit_events_now(struct link_group *group, struct output *output);
void link_device_event(struct link_group *group, int32_t status);
void link_take_cm_events(struct link_group *group);
void link_expire_now(struct link_group *group);

/* False if there is no room: then it has to be tried again, and ROOM will be given. */
bool link_cancel_possible(struct link *link);
/* The completion of a cancel that ended `count` ops. */
void link_cancel_done(struct link *link, uint64_t user_data, uint64_t count);
void link_emit_cancels(struct link_group *group, struct output *output);

/* True if a poll would give something of these. */
static inline bool link_something_waits(const struct link_group *group)
{
    return !list_empty(&group->events) || group->cancels_head != group->cancels_tail ||
           group->device_event_count > 0 || (group->cm && cm_pending(group->cm));
}

static inline void link_emit_events(struct link_group *group, struct output *output)
{
    if (unlikely(!list_empty(&group->events) || group->device_event_count > 0)) {
        link_emit_events_now(group, output);
    }
}

static inline void link_poll_cm(struct link_group *group)
{
    if (group->cm && unlikely(cm_pending(group->cm))) {
        link_take_cm_events(group);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static inline uint64_t link_now_ns(struct link_group *group)
{
    if (group->now_ns == 0) {
        group->now_ns = group->virtual_clock_ns ? *group->virtual_clock_ns : clock_now_ns();
    }
    return group->now_ns;
}

/* Cold path: it may be called from outside of poll, so it neither trusts group->now_ns nor leaves
 * one behind for a later caller. CRPC_FOREVER sets nothing. */
void link_set_timer(struct link_group *group, struct wheel_timer *timer, uint64_t delay_ns);

static inline void link_expire(struct link_group *group)
{
    if (group->wheel.count != 0) {
        link_expire_now(group);
    }
}

#endif
