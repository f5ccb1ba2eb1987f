/* internal.h: what the files of core/cm share.
 *
 * There are two threads, a third while a name is looked up, and more once there were tasks:
 *
 *   owner    calls the functions of cm.h: creates, requests, accepts, destroys.
 *   cm       is the thread of cm_open. It receives events of rdma_cm and of the device, tries the
 *            addresses of a connect one after the other, and appends to the owner's queue.
 *   lookup   runs getaddrinfo once, passes the result to the cm thread, and ends.
 *   task     up to CM_TASK_THREADS_MAX of them run what cm_task_start was given (task.c).
 *
 * cm.mutex guards the queue, the work list, and cm.busy, the identifier that the cm thread works
 * on. A connecting identifier belongs to the cm thread from cm_connect until the thread has queued
 * CM_EVENT_ROUTED or CM_EVENT_FAILED; from the end of cm_request until the answer, since another
 * address may have to be asked; and from cm_run until it has queued CM_EVENT_RAN. Otherwise it belongs
 * to the owner. cm_destroy may be called at any time. It marks the identifier as dying and waits until
 * the cm thread has left it; from then on the identifier belongs to the caller alone. rdma_destroy_id waits until all events of its
 * identifier are acknowledged. No lock may therefore be held around it, and the cm thread
 * acknowledges every event before it handles the event.
 */
#ifndef CORE_CM_INTERNAL_H
#define CORE_CM_INTERNAL_H

#include <assert.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "base/list.h"
#include "cm/address.h"
#include "cm/cm.h"
#include "nic/device/device.h"

#define ADDRESSES_TRIED_MAX 8
#define RESOLVE_TIMEOUT_MS 2000 /* for an address, and again for its route */
#define CM_TASK_THREADS_MAX 8

struct queued_event {
    struct list link;
    struct cm_identifier *subject; /* its destruction removes the event; NULL for device events */
    struct cm_event event;
};

/* A device whose asynchronous events are read. */
struct cm_device {
    struct nic *nic;
    int async_fd;   /* the thread's; -1 once it gives no more events */
    int trouble_fd; /* likewise, of queues that are made past the verbs; -1: it has none */
    bool fatal_reported;
};

struct cm {
    struct nic *nic; /* whose queue pairs are connected; the first of the devices */
    struct cm_device devices[CM_NICS_MAX];
    uint32_t device_count;
    struct rdma_event_channel *channel; /* NULL: no rdma_cm, and `lacks` says why */
    crpc_error lacks;
    pthread_t thread;
    bool thread_started;
    int event_fd;               /* readable while events wait */
    int kick_fd;                /* wakes the thread for work, or to stop */
    uint8_t read_depth_out;     /* READs that a queue pair can have under way as initiator */
    uint8_t read_depth_in;      /* and as responder */
    struct cm_tell *tell;       /* NULL: nobody may ask; set once, under the mutex */
    struct queued_event *spare; /* the thread's; there before it takes an event, so none is lost */

    pthread_mutex_t mutex;
    pthread_cond_t idle; /* busy has changed, or a task has ended */
    struct cm_identifier *busy;
    bool stop;
    struct list work;  /* identifiers whose next address must be tried, or with work of cm_run */
    struct list queue; /* of struct queued_event */
    uint32_t identifiers;
    uint32_t handed_over; /* requests that came so, and are neither accepted nor destroyed */
    atomic_uint pending;  /* length of the queue; written under the mutex */

    /* -- task.c: under the mutex -- */
    struct list tasks; /* struct queued_event of those that no thread has taken */
    uint32_t tasks_waiting;
    pthread_cond_t task_waits;
    pthread_t task_threads[CM_TASK_THREADS_MAX];
    uint32_t task_thread_count;
    uint32_t task_threads_idle;
};

/* The way from a name to an address that answers. A listener has the name alone. */
struct cm_search {
    struct address_name name;
    struct cm_lookup *lookup;
    struct addrinfo *addresses;
    struct addrinfo *next_address;
    struct addrinfo *address; /* that is being tried */
    bool from_source;         /* from an address of the nic's own */
    uint32_t addresses_tried;
    crpc_error best_error;
    char trying[200]; /* the address being tried, for messages */

    /* Of the owner's request: each address is asked the same. */
    bool requested;
    struct rdma_conn_param parameters;
    struct ibv_ece ece;
    uint8_t private_data[CM_PRIVATE_BYTES];
};

struct cm_identifier {
    struct cm *cm;
    struct rdma_cm_id *id; /* NULL until the first address is tried */
    void *owner;
    bool dying;    /* under the mutex */
    bool passive;  /* came with a CONNECT_REQUEST */
    bool answered; /* connect: the peer has accepted; of the thread */

    bool handed_over; /* has a place among cm.handed_over */
    struct list work_link;
    cm_work *run; /* of cm_run; NULL: the next address must be tried; under the mutex */
    void *run_argument;
    uint8_t read_depth_out; /* passive: lowered to what the peer supports */
    uint8_t read_depth_in;
    uint32_t backlog;     /* listener */
    uint32_t waiting;     /* listener: requests in the queue; under the mutex */
    uint64_t turned_away; /* listener: requests that never came to the queue; under the mutex */

    /* connect: until an address has answered, for it is large; a listener has it, too */
    struct cm_search *search;
    bool requesting;                     /* the owner is in cm_request; under the mutex */
    char target[ADDRESS_HOST_BYTES + 8]; /* as given, for messages */
    char local[ADDRESS_TEXT_BYTES];      /* under the mutex */
    char peer[ADDRESS_TEXT_BYTES];
};

/* thread.c */
void *cm_thread(void *argument);
/* Makes the cm thread try the next address. Any thread may call it. Does nothing if the identifier
 * is dying. */
void cm_work_add(struct cm_identifier *identifier);
void cm_kick(struct cm *cm);

/* devices.c */
/* A device of the process has failed, or was taken out: librdmacm is to forget it. May block for as long as it takes to open the
 * devices that are left. */
void cm_devices_changed(void);
/* Before a new cm: the same once more, if that was ever so. */
void cm_devices_refresh(void);

/* queue.c */
/* Appends the spare event to the queue. The cm thread uses no other way to report something. The
 * spare must exist. */
void cm_queue_spare(struct cm *cm, struct cm_identifier *subject);
/* Returns the event of the spare, with kind and identifier set and the rest zero. */
struct cm_event *cm_spare_event(struct cm *cm, enum cm_event_kind kind,
                                struct cm_identifier *identifier);
/* Copies private data to an event. The kernel hands on up to 255 bytes; what no hello or rejection
 * can fill is left out. */
void cm_event_set_private(struct cm_event *event, const void *data, uint32_t bytes);
/* Moves the queued events of a dying identifier from the queue to `purged`. */
void cm_queue_purge(struct cm *cm, const struct cm_identifier *subject, struct list *purged);

/* Takes the event of this kind of an identifier. Returns false if there is none. The mutex is
 * held. */
bool cm_queue_take(struct cm *cm, const struct cm_identifier *subject, enum cm_event_kind kind,
                   struct cm_event *event);

/* Append an event to the queue, or take it out. The mutex is held. */
void cm_queue_append(struct cm *cm, struct queued_event *queued);
void cm_queue_remove(struct cm *cm, struct queued_event *queued);

/* open.c: starts a thread that gets no signals: these are the application's. Returns an errno value. */
int cm_start_thread(pthread_t *thread, void *(*function)(void *), void *argument);

/* task.c: for cm_close. No task is under way. */
void cm_tasks_stop(struct cm *cm);

/* lookup.c */
int32_t cm_lookup_start(struct cm_identifier *identifier, crpc_error *error);
/* Takes the result, and ends the lookup. */
int cm_lookup_take(struct cm_identifier *identifier, struct addrinfo **addresses);
void cm_lookup_cancel(struct cm_identifier *identifier);

/* connect.c: sends what the owner has requested to the address of `id`: first from cm_request, and then from the cm thread. */
int32_t cm_request_send(struct cm_identifier *identifier, crpc_error *error);

/* route.c: called by the cm thread */
void cm_route_next(struct cm_identifier *identifier);
/* Nobody is at this address: goes on with the next, or queues CM_EVENT_FAILED. Returns false, and does nothing, if the name had no other. */
bool cm_route_nobody_here(struct cm_identifier *identifier, const crpc_error *error);
void cm_route_event(struct cm_identifier *identifier, enum rdma_cm_event_type type, int status);
bool cm_same_port(const struct cm *cm, const struct rdma_cm_id *id);

/* source.c: finds the nic's own address in the subnet of `peer`. Returns false if it has none there. */
bool cm_source_for(const struct nic *nic, const struct sockaddr *peer,
                   struct sockaddr_storage *source);

/* request.c: called by the cm thread */
void cm_incoming(struct cm_identifier *listener, struct rdma_cm_id *id,
                 const struct rdma_conn_param *parameters);

/* hand_over.c */
/* The request is accepted or destroyed: its place is free. */
void cm_hand_over_answered(struct cm_identifier *identifier);

/* identifier.c */
struct cm_identifier *cm_identifier_new(struct cm *cm, void *owner);
/* The same, with a search for that name. */
struct cm_identifier *cm_identifier_new_to(struct cm *cm, void *owner,
                                           const struct address_name *name);
void cm_search_end(struct cm_identifier *identifier);
void cm_identifier_free(struct cm_identifier *identifier);
void cm_note_addresses(struct cm_identifier *identifier);
/* Frees what cm_queue_purge gave, which the owner will never take; with a request goes the identifier that it would have
 * got. */
void cm_discard(struct list *events);

/* trouble.c */
#define REFUSAL_OTHER_DEVICE 1
#define REFUSAL_BACKLOG_FULL 2
#define REFUSAL_BYTES 8
void cm_refusal_write(uint8_t bytes[REFUSAL_BYTES], uint32_t reason);
int32_t cm_resolve_error(const char *target, int os_error, crpc_error *error);
int32_t cm_other_device_error(const char *target, const struct nic *nic,
                              const struct rdma_cm_id *id, crpc_error *error);
int32_t cm_connect_error(const char *target, int os_error, crpc_error *error);
/* Fills *error. Returns true if the private data comes from the peer's application. */
bool cm_reject_error(const char *target, int reason, const uint8_t *private_data,
                     uint32_t private_bytes, crpc_error *error);
/* Another address of that host may be the right one: nobody listens at this one, or the listener there does not use its device. An
 * application that refuses without a word looks the same. */
bool cm_reject_of_address(int reason, const uint8_t *private_data, uint32_t private_bytes);

/* ---- copyrpc-top: tell.c --------------------------------------------------------------------- */

#define CM_TELL_FDS 9
struct pollfd;
/* Fills in CM_TELL_FDS entries, and until when to wait; -1 = for ever. */
void cm_tell_watch(struct cm *cm, struct pollfd *wait, int *timeout_ms);
/* Queues an event at most, for which there must be a spare one. */
void cm_tell_step(struct cm *cm, const struct pollfd *wait);
/* The thread has ended. */
void cm_tell_stop(struct cm *cm);

#endif
