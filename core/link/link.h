/* link.h: a link, which is one connection to one peer. It does what all services have in common.
 *
 * A service defines what two sides do over a link: calls (core/rpc) or channels (core/channel). A
 * service fills in one struct link_service. Its connection struct begins with a struct link, and
 * its engine contains a struct link_group. The link connects by rdma_cm or by blobs, keeps the
 * state and the events that the application sees, supervises the connection, and ends it.
 *
 *   hello.c    the hellos of both sides, and rejections
 *   connect.c  connecting and accepting; events of rdma_cm
 *   prove.c    the exchange of two sides that have a key; proof.c what they prove it with
 *   listen.c   listeners
 *   blob.c     connecting with data that the application carries
 *   life.c     states of a connection; the timer that supervises it
 *   task.c     slow system work, which no poll waits for
 *   events.c   the events that a poll returns, and their order
 *
 * Only one thread at a time may use a group and its links. This is cold path, except for the inline
 * functions below.
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

/* ---- Services -------------------------------------------------------------------------------- */

/* All links of a group belong to the same service. A function that fails fills *error, returns its
 * status, and leaves the link unchanged. */
struct link_service {
    const char *name; /* of one link, as in crpc_NAME_connect; used in messages */
    /* Over rdma_cm the private data is the application's, so that any program can be the peer: there is
     * no hello, and what is in link->peer is the private data alone. Links have neither a key nor a
     * keepalive: `prepare` leaves key_bytes 0 and sets keepalive_ns to CRPC_FOREVER. Blobs have hellos
     * all the same. */
    bool plain;
    const char *no_room; /* which limits to raise on a peer that has no room for a link */
    uint8_t number;      /* LINK_SERVICE_* */
    uint8_t version_min; /* of its protocol */
    uint8_t version_max;
    uint16_t features; /* features that this side knows */
    uint8_t handle_kind;
    uint8_t completion_flags; /* of the link's events */

    /* -- making -- */

    /* Allocates the service's struct and calls link_init. */
    int32_t (*create)(struct link_group *group, struct link **link, crpc_error *error);
    /* Creates what this side's options require, such as link->queue_pair and memory, and fills
     * link->options. The peer's features are those without link->options.features_left_out from then on. */
    int32_t (*prepare)(struct link *link, const void *options, crpc_error *error);
    /* Gives the peer its rights to this side's memory. Until then the peer can reach none of it. */
    int32_t (*expose)(struct link *link, crpc_error *error);
    /* Describes this side to the peer, after expose. */
    void (*fill_body)(const struct link *link, uint8_t body[LINK_BODY_BYTES]);
    /* Returns NULL, or what is wrong with the body of a peer's hello, e.g. "its ... is out of
     * range". */
    const char *(*body_fault)(const uint8_t body[LINK_BODY_BYTES]);
    /* Creates what depends on the peer, from link->peer. Runs in the cm thread if this side connected by
     * rdma_cm and has no key: it uses nothing but this link, and registers memory. */
    int32_t (*attach)(struct link *link, crpc_error *error);
    /* Undoes attach, even if attach failed or was not called. */
    void (*detach)(struct link *link);
    /* Undoes prepare, expose and attach, even if they failed or were not called. Calls
     * link_prove_end before it undoes prepare. */
    void (*unprepare)(struct link *link);
    /* Undoes everything. No task of the link is under way. Ends with link_remove and free. */
    void (*destroy)(struct link *link);

    /* -- life -- */

    /* The queue pair is connected. The service calls link_connected, now or later. */
    void (*opened)(struct link *link);
    /* Processes what the peer sent before it disconnected. */
    void (*settle)(struct link *link);
    /* The peer violated the protocol. The service discards what has arrived and was not
     * processed. */
    void (*distrust)(struct link *link);
    /* The link has failed, and link->error says why. If it was connected, the service calls
     * link_over, now or later, as soon as everything that arrived before is processed. */
    void (*failed)(struct link *link);
    /* The link has failed or was closed while link_joining, and its queue pair was left alone. Now the
     * queue pair is the service's again, and may be connected. */
    void (*abandoned)(struct link *link);
    /* The application has requested a disconnect, for the first time or again. */
    void (*leave)(struct link *link);
    /* Describes what the peer has not done in time, e.g. "3 calls were unanswered". */
    void (*describe_leave)(const struct link *link, char *text, size_t bytes);
    /* keepalive_ns have passed, or LINK_IDLE_INTERVALS times that on an idle link. Probes the peer if
     * nothing has arrived from it (link->heard). Returns false if the link is idle: nothing of the
     * peer is awaited. It then has to call link_start_keepalive when that changes. */
    bool (*keepalive)(struct link *link);
    /* The application has closed the link. Ends pending ops with CRPC_E_CLOSED. */
    void (*closed)(struct link *link);
    /* Returns true if the link has no pending op. Only then may DISCONNECTED be reported, or the
     * link be destroyed. */
    bool (*quiet)(const struct link *link);

    /* -- optional: NULL if the service does not need it -- */

    /* Writes one event of LINK_EVENT_SERVICE. Clears that bit after the last one. */
    void (*emit_event)(struct link *link, struct output *output);
    /* The link has ended, or could not connect, and all that came before has been given. Returns true if another link of the
     * service will take its place (link_take_place): then the application is told of this, and not of an end. */
    bool (*comes_back)(struct link *link);
    /* The application is told that there may be room. The service may use it first. */
    void (*room)(struct link *link);
    /* The application requests a disconnect. Returns true if the service has seen to it: there is no connection to leave, but one
     * that comes back. */
    bool (*stay_away)(struct link *link);
    /* A timer of one of the service's kinds has expired. */
    void (*timer)(struct link_group *group, struct wheel_timer *timer);
    /* CM_EVENT_QUEUE_PAIR, _PORT_ACTIVE, _PORT_DOWN, _DEVICE_FATAL or _SRQ_LIMIT of a device that cm
     * watches. */
    void (*device_event)(struct link_group *group, const struct cm_event *event);
};

/* ---- All links of a service in one context --------------------------------------------------- */

#define LINK_CANCELS_MAX 256u
#define LINK_DEVICE_EVENTS_MAX 16u
/* Events of rdma_cm that a poll takes at most. Each costs system calls, and strangers cause them. */
#define LINK_CM_EVENTS_A_POLL 32u

struct link_cancel {
    uint64_t handle;
    uint64_t link_user_data;
    uint64_t user_data;
    uint64_t count;
};

struct link_group {
    const struct link_service *service;
    struct nic *nic;         /* nic of each link's first queue pair */
    bool dynamic;            /* these queue pairs are dynamic, and those of the peers */
    bool ece;                /* of any port: LINK_FEATURE_ECE is offered */
    uint16_t route_features; /* LINK_FEATURE_ROUTE_HEADERS and _GRH, as far as they are offered */
    /* Something waits to be given that no arrival brings: whoever makes it so sets this. A service whose polls
     * look at nothing else while it is false looks at all of it otherwise, and then says whether there is more. */
    bool attention;
    struct cm *cm;       /* NULL: nobody connects by rdma_cm, or watches the devices */
    uint64_t now_ns;     /* 0 = the clock was not read in this call of the API */
    struct wheel wheel;  /* what a poll looks at of it, and all before it, are a cache line */
    struct list cm_ring; /* of the groups with this cm */
    struct log *log;
    struct handles *handles;
    const uint64_t *virtual_clock_ns;
    uint32_t idle_timers; /* those of the wheel that belong to idle links */
    uint32_t lazy_polls;  /* that have not read the clock, since only idle timers were set */

    struct list all;
    struct list listeners;
    struct list events; /* links with events to report */
    struct list tasks;  /* that are under way: struct link_task */
    struct link_cancel cancels[LINK_CANCELS_MAX];
    uint32_t cancels_head;
    uint32_t cancels_tail;
    int32_t device_events[LINK_DEVICE_EVENTS_MAX];
    uint32_t device_event_count;
    /* How links connect where there is no cm: tests set it. It begins the link, too. Otherwise NULL. */
    int32_t (*connect)(struct link *link, const char *address, crpc_error *error);
};

/* Everything that the arguments point to stays the caller's and must outlive the group.
 * virtual_clock_ns is NULL, or points to the time of a simulation. */
void link_group_init(struct link_group *group, const struct link_service *service, struct nic *nic,
                     struct cm *cm, struct log *log, struct handles *handles,
                     const uint64_t *virtual_clock_ns);
/* The links of this group have queue pairs of this nic, too. Before there are any. */
void link_group_add_port(struct link_group *group, const struct nic *nic);
/* Both have the same cm. Whichever polls it, the services of both hear of the devices' events. */
void link_group_beside(struct link_group *group, struct link_group *other);
/* Closes all listeners and destroys all links. Waits for tasks that are under way. */
void link_group_close(struct link_group *group);

/* ---- A link ---------------------------------------------------------------------------------- */

/* The options that all services have. Zeros that mean a default have been replaced. */
struct link_options {
    uint64_t user_data;
    uint64_t connect_timeout_ns;
    uint64_t keepalive_ns;
    struct nic_transport transport;
    uint16_t
        features_left_out; /* of the service's, those that this link neither offers nor accepts */
    uint32_t token_bytes;
    uint8_t token[LINK_TOKEN_BYTES];
    uint32_t key_bytes; /* 0 = no key */
    uint8_t key[LINK_KEY_BYTES_MAX];
    uint32_t
        private_bytes; /* of a plain link, for the peer: at most CM_PRIVATE_BYTES to connect, and
                               CM_PRIVATE_BYTES_MAX to accept */
    uint8_t private_data[CM_PRIVATE_BYTES_MAX];
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
        (link_options)->key_bytes = (from)->key_bytes;                                             \
        memcpy((link_options)->key, (from)->key, LINK_KEY_BYTES_MAX);                              \
    } while (0)

/* The peer's hello, checked. Version and features are those that both sides use. */
struct link_peer {
    struct link_hello hello; /* as it came */
    bool proves;             /* it has a key; `body` comes with its last word */
    uint8_t body[LINK_BODY_BYTES];
    uint32_t nonce;
    uint32_t version;
    uint32_t features;
    bool grh_required; /* of its queue pairs: as in struct nic_address */
    uint32_t token_bytes;
    uint8_t token[LINK_TOKEN_BYTES];
    /* Of a plain link: what came with the request, the answer or the rejection. The network can have
     * added zeros. */
    uint32_t private_bytes;
    uint8_t private_data[CM_PRIVATE_BYTES_MAX];
};

/* Events to report to the application, in this order. */
#define LINK_EVENT_CONNECT_REQUEST 0x1u
#define LINK_EVENT_CONNECTED 0x2u
#define LINK_EVENT_SERVICE 0x4u
#define LINK_EVENT_ROOM 0x8u
#define LINK_EVENT_DISCONNECTED 0x10u /* when quiet; a closed link is then destroyed instead */

#define LINK_EVENTS_ALL 0x1fu

/* The peer of an idle link is probed after so many times keepalive_ns: docs/design.md, section 5. */
#define LINK_IDLE_INTERVALS 10u
/* While all timers are of idle links, one poll in so many reads the clock. */
#define LINK_LAZY_POLLS 16u

/* Slow system work for a link, such as connecting queue pairs to an address of the peer. In a thread of
 * cm, so it is not the poll that waits. What the work uses belongs to it until it has ended, even if
 * the link has failed or was closed meanwhile. */
struct link_task {
    struct link *link;
    struct cm_task *under_way; /* NULL = none */
    bool late;                 /* it was not done at once */
    int32_t (*run)(struct link_task *task, crpc_error *error);
    void (*ended)(struct link_task *task, const crpc_error *error);
    struct list group_link;
};

#define LINK_TIMER_LIFE 1u
#define LINK_TIMER_SERVICE 2u /* timers of the service have this kind or a higher one */

struct link {
    struct link_group *group;
    struct nic_queue_pair *queue_pair; /* the one that is connected; NULL before prepare */
    struct nic_domain *domain;         /* of what the peer reaches; NULL = the nic's own */
    struct link_task join;             /* connects it to join_address; it belongs to the task */
    struct nic_address join_address;
    uint64_t handle;
    uint64_t heard; /* arrivals from the peer since the life timer was set */
    uint32_t state; /* CRPC_STATE_*; 0 = not set yet */
    uint32_t events;
    bool passive; /* the peer initiated the connection */
    bool opened;  /* the queue pair is connected, and the peer has proved its key if it needs one */
    bool failing; /* the link has failed or ended */
    bool closed;  /* the application has closed it; no more events */
    bool working; /* the cm thread makes what depends on the peer, and connects the queue pair */
    bool idle;    /* the life timer runs slowly: nothing of the peer is awaited */
    bool refused; /* an op got CRPC_E_AGAIN; LINK_EVENT_ROOM must follow */
    bool away;    /* it has ended, and another link will take its place */
    /* The peer did, while the link waited to be accepted or rejected. */
    bool given_up;
    uint32_t cancels; /* whose completions are still to be given */
    uint32_t busy;    /* tasks under way; until they have ended, it is not destroyed */
    struct list event_link;
    struct list all_link;
    struct wheel_timer life_timer; /* connect timeout, keepalive or leave timeout */
    uint64_t leave_timeout_ns;
    struct cm_identifier *identifier; /* NULL = connected by blob, or destroyed */
    struct link_listener *listener; /* until the application accepts or rejects; NULL = none, or the
                                         request was handed over */
    uint64_t request_user_data;     /* the listener's, or of link_hand_over */
    uint64_t came_by;               /* the handle of the listener that it came by; 0 = none */
    uint32_t nonce;
    struct link_options options;
    struct link_peer peer;
    struct link_proof *proof; /* NULL = without a key */
    uint64_t made_ns;         /* when it was */
    bool key_differs;         /* one side has a key and the other none: a rejection says so */
    /* Of the route by which rdma_cm has connected the queue pair, for what the two sides connect later; 0 = none. From link_open on. */
    uint8_t traffic_class;
    uint8_t service_level;
    crpc_error error;
};

/* Returns true if the queue pair is there, and was not connected from this side. A dynamic one receives by then, and the peer may be
 * faster, as with blobs. */
static inline bool link_awaits_peer(const struct link *link)
{
    return !link->working && !link->join.under_way && link->queue_pair->peer_number == 0;
}

/* Returns the domain of the memory that the WQEs of its queue pair use. */
static inline struct nic_domain *link_own_domain(const struct link *link)
{
    return link->group->dynamic ? NULL : link->domain;
}

/* ---- Connecting: connect.c, blob.c ----------------------------------------------------------- */

/* The bodies of crpc_KIND_connect and _accept. `options` is the service's own struct. The handle
 * becomes stale in link_close. */
int32_t link_connect(struct link_group *group, const char *address, const void *options,
                     struct link **link, crpc_error *error);
int32_t link_accept(struct link *link, const void *options, crpc_error *error);
/* The second half of link_connect, for a link that the service has just created. If it fails, the link is as it was. */
int32_t link_start(struct link *link, const char *address, const void *options, crpc_error *error);
/* The link, which has just been created, takes the place of `other`, which is away: it has its handle from now on, and `other` a
 * new one, which nobody knows, to be closed. */
void link_take_place(struct link *link, struct link *other);

#define LINK_BLOB_BYTES 104
/* Writes LINK_BLOB_BYTES bytes to `blob`. */
int32_t link_blob(struct link_group *group, const void *options, struct link **link, uint8_t *blob,
                  crpc_error *error);
int32_t link_join(struct link *link, const void *blob, uint32_t blob_bytes, crpc_error *error);
/* Likewise for a plain link, to a queue pair of any program. The address comes from the peer, and is
 * checked. */
int32_t link_join_address(struct link *link, const struct nic_address *address, crpc_error *error);

/* The queue pair is connected: opens the link, or begins to compare keys. */
void link_open(struct link *link);

/* A link that is CONNECTING and not opened has had a completion of its queue pair: the peer's first
 * message can arrive before rdma_cm's last event. Returns true if the link has taken it, because
 * the peer has not proved its key yet, or if the link has failed; otherwise opens the link and returns
 * false. For a plain link, `completion` may be NULL. */
bool link_take_early(struct link *link, const struct nic_completion *completion);

/* For link_service.unprepare: ends what compares keys, while the link has its queue pair. */
void link_prove_end(struct link *link);

/* A task connects the link's queue pair: nobody else posts to it, fails or destroys it. */
static inline bool link_joining(const struct link *link)
{
    return link->join.under_way != NULL;
}

/* Convert addresses of queue pairs to and from their wire format. link_address_take also checks the
 * address, which comes from the peer. `grh_required`: the peer's hello says so. */
void link_address_fill(struct link_address *wire, const struct nic_queue_pair *queue_pair);
/* For an address that is told over the link: of a lane, or of a rail. `ece_vendor`: whose its options are; 0 = it has none. */
void link_address_tell(struct link_address *wire, uint32_t *ece_vendor, const struct link *link,
                       const struct nic_queue_pair *queue_pair);
int32_t link_address_take(struct nic_address *address, const struct link_address *wire,
                          bool grh_required, const struct nic *nic, crpc_error *error);
/* The same of an address that came over the link, which is open: of a lane, or of a rail. The way there is as the link's own is. Tasks may
 * call it. */
int32_t link_address_take_told(struct nic_address *address, const struct link_address *wire,
                               uint32_t ece_vendor, const struct link *link, const struct nic *nic,
                               crpc_error *error);
/* Whether both sides know what is told of ECE. */
static inline bool link_tells_ece(const struct link *link)
{
    return link->group->ece && link->peer.hello.features & LINK_FEATURE_ECE;
}

/* When something has been connected: tells the nic's log if its device has refused options, once. */
void link_tell_ece(struct nic *nic);

/* ---- Listeners: listen.c --------------------------------------------------------------------- */

struct link_listener;

int32_t link_listener_open(struct link_group *group, const char *address, uint32_t backlog,
                           uint64_t user_data, struct link_listener **listener, crpc_error *error);
void link_listener_close(struct link_listener *listener);
/* Disconnects gracefully whatever is connected and came by the listener, as link_disconnect, and closes the listener. Returns how many
 * these are. */
uint32_t link_listener_drain(struct link_listener *listener, uint64_t timeout_ns);
/* HANDLE_LISTENER. */
uint64_t link_listener_handle(const struct link_listener *listener);
void link_listener_info(const struct link_listener *listener, crpc_listener_info *info);
/* The body of crpc_KIND_hand_over: the connect request becomes one of another group, of the same service and of another
 * cm, and the link is closed. Of `to`, it reads what never changes. */
int32_t link_hand_over(struct link *link, struct link_group *to, uint64_t user_data,
                       crpc_error *error);

/* ---- Life: life.c ---------------------------------------------------------------------------- */

/* Chooses at random where peers are to find memory, for nic_operations.memory_register. The queue pairs
 * of several peers can share a domain, and keys are easy to guess. So the address is the secret of this side
 * and one peer: a whole page, never 0, with 50 random bits if pages have 4 KiB, and far above all that a
 * process maps. Below the end of the address space is room for all that a link registers. */
int32_t link_secret_address(uint64_t *address, crpc_error *error);

/* For link_service.create. `link` is zeroed, and is the first member of the service's struct. */
int32_t link_init(struct link *link, struct link_group *group, crpc_error *error);
/* For link_service.destroy. */
void link_remove(struct link *link);

/* From now on, the application may use the link. */
void link_connected(struct link *link);
/* The link has ended, or could not connect. The link keeps its first error. */
void link_fail(struct link *link, const crpc_error *error);
/* Like link_fail, if rdma_cm or the device reports the end. First processes what the peer sent
 * before. */
void link_lost(struct link *link, const crpc_error *error);
/* Like link_fail, if the peer violated the protocol. The message is "the peer (ADDRESS) broke the
 * protocol: TEXT". Data that arrived before the end of a failing link may be malformed, too;
 * then this error replaces the earlier one and quotes it. */
void link_violated(struct link *link, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* The service has processed everything that arrived before the link failed. */
void link_over(struct link *link);

int32_t link_disconnect(struct link *link, uint64_t timeout_ns);
/* The body of crpc_KIND_reject: closes a connect request, and tells the peer the reason, unless it
 * has given up. */
int32_t link_reject(struct link *link, uint32_t reason);
/* Likewise for a plain link, with private data of at most CM_REJECT_BYTES_MAX bytes. */
int32_t link_reject_plain(struct link *link, const void *private_data, uint32_t private_bytes);
/* Ends a link and makes its handle stale. A connect request is rejected with reason 0, or with no
 * private data. */
void link_close(struct link *link);

/* Something of the peer is awaited: if the link was idle, its peer is looked after more often. */
void link_start_keepalive(struct link *link);

/* Discards waiting events of a queue pair that the service has destroyed, so that they are not taken for events of a later queue pair with the same number. */
void link_forget_queue_pair(struct link_group *group, uint32_t nic, uint32_t number);

/* Writes both addresses, e.g. "192.0.2.1:7471", or "" if there is none. */
void link_addresses(const struct link *link, char *peer, size_t peer_bytes, char *local,
                    size_t local_bytes);

/* Fills in the members that crpc_endpoint_info and crpc_channel_info have in common. */
#define link_fill_info(link, info)                                                                 \
    do {                                                                                           \
        (info)->state = (link)->away ? CRPC_STATE_CONNECTING : (link)->state;                      \
        (info)->user_data = (link)->options.user_data;                                             \
        (info)->version = (link)->peer.version;                                                    \
        (info)->token_bytes = (link)->peer.token_bytes;                                            \
        memcpy((info)->token, (link)->peer.token, sizeof((info)->token));                          \
        link_addresses((link), (info)->peer_address, sizeof((info)->peer_address),                 \
                       (info)->local_address, sizeof((info)->local_address));                      \
    } while (0)

/* ---- Slow work: task.c ----------------------------------------------------------------------- */

/* Has `run` done in another thread, and then calls `ended` in a poll, with a status of CRPC_OK or with
 * why the work, or its start, failed. Without a cm, both happen before this returns. */
void link_task_start(struct link_task *task, struct link *link,
                     int32_t (*run)(struct link_task *task, crpc_error *error),
                     void (*ended)(struct link_task *task, const crpc_error *error));
/* Waits for a task that is under way, and calls `ended`. */
void link_task_wait(struct link_task *task);

/* ---- Queue pairs that stand still: progress.c ------------------------------------------------ */

/* A queue pair is given up if it completes nothing for more than so many keepalives. With the default of
 * 1 s that is more than the largest WQE takes on a slow network. */
#define LINK_STUCK_INTERVALS 20u

/* What a queue pair had done at the last keepalive. All zero for a new one. */
struct link_progress {
    uint32_t completed;
    uint32_t intervals; /* during which nothing completed, though something should have */
};

/* Looks at a queue pair, once a keepalive. Returns true if it must be given up. */
bool link_stuck(struct link_progress *progress, const struct nic_queue_pair *queue_pair);
/* Returns true if a completion must come. If not, and something was posted, only a further signaled
 * WQE shows whether the queue pair moves. */
bool link_awaits_completion(const struct nic_queue_pair *queue_pair);
/* nic_take_room of the link's queue pair. That may mend an initiator for which others have waited longer: the next poll tells them. */
bool link_take_room(struct link *link);

/* ---- Events: events.c ------------------------------------------------------------------------ */

/* Adds LINK_EVENT_* to what the next link_emit_events reports. */
void link_report(struct link *link, uint32_t events);
/* Reports the events of the device and of the links. Each poll calls it twice, so that CONNECTED
 * comes before the first completion of its link and DISCONNECTED after the last. */
void link_emit_events_now(struct link_group *group, struct output *output);
/* Reports an event of the device. Each event of cm causes one at most: link_take_cm_events takes it
 * only if there is room, so none is lost. */
void link_device_event(struct link_group *group, int32_t status);
/* Takes up to LINK_CM_EVENTS_A_POLL events, and fewer if the events of the device have to be reported
 * first. While some are left, link_something_waits says so. */
void link_take_cm_events(struct link_group *group);
void link_expire_now(struct link_group *group);

/* Whether a cancel can be taken now: CRPC_OK; CRPC_E_AGAIN (there is no room; ROOM will be reported);
 * CRPC_E_DISCONNECTED (the link has ended, and gives nothing after DISCONNECTED). */
int32_t link_cancel_possible(struct link *link);
/* Queues the completion of a cancel that ended `count` ops. It comes before DISCONNECTED. */
void link_cancel_done(struct link *link, uint64_t user_data, uint64_t count);
void link_emit_cancels(struct link_group *group, struct output *output);

static inline bool link_cm_waits(const struct link_group *group)
{
    return group->cm && cm_pending(group->cm);
}

/* Returns true if something of the above waits in the group itself. */
static inline bool link_rest_waits(const struct link_group *group)
{
    return !list_empty(&group->events) || group->cancels_head != group->cancels_tail ||
           group->device_event_count > 0;
}

/* Returns true if a poll would report something of the above. */
static inline bool link_something_waits(const struct link_group *group)
{
    return link_rest_waits(group) || link_cm_waits(group);
}

static inline void link_emit_events(struct link_group *group, struct output *output)
{
    if (unlikely(!list_empty(&group->events) || group->device_event_count > 0)) {
        link_emit_events_now(group, output);
    }
}

static inline void link_poll_cm(struct link_group *group)
{
    if (unlikely(link_cm_waits(group))) {
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

/* Sets a timer, unless delay_ns is CRPC_FOREVER. May be called outside of a poll, so it neither
 * uses the stored group->now_ns nor leaves a new one for a later caller. */
void link_set_timer(struct link_group *group, struct wheel_timer *timer, uint64_t delay_ns);

static inline void link_expire(struct link_group *group)
{
    if (group->wheel.count != 0 &&
        (group->wheel.count != group->idle_timers || ++group->lazy_polls >= LINK_LAZY_POLLS)) {
        link_expire_now(group);
    }
}

/* The next link_expire reads the clock. For whoever sleeps until a deadline and polls then. */
static inline void link_expire_promptly(struct link_group *group)
{
    group->lazy_polls = LINK_LAZY_POLLS;
}

#endif
