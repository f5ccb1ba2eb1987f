/* rig.h: a group of links of a service that does nothing, on an rdma_cm that does what the test says.
 * Events come when the test queues them, and time passes when the test says so.
 */
#ifndef CORE_LINK_TESTS_RIG_H
#define CORE_LINK_TESTS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/link.h"

/* Of every route that this rdma_cm finds. */
#define RIG_TRAFFIC_CLASS 106
#define RIG_SERVICE_LEVEL 3
#define RIG_EVENTS_MAX 1024u
#define RIG_COMPLETIONS 64u
#define RIG_CONNECT_TIMEOUT_NS UINT64_C(5000000000)

/* What an identifier was asked to do. */
struct cm_identifier {
    struct cm *cm;
    void *owner;
    uint32_t accepts;
    uint32_t established;
    uint32_t rejects;
    uint32_t disconnects;
    uint32_t private_bytes; /* of its last request, answer or rejection */
    uint8_t private_data[CM_PRIVATE_BYTES_MAX];
    cm_work *work; /* of cm_run, that the thread has not done */
    void *work_argument;
};

struct cm {
    struct cm_event events[RIG_EVENTS_MAX]; /* from head to tail - 1 */
    uint32_t head;
    uint32_t tail;
    uint32_t identifiers;
    uint32_t rejects;
    bool polling;      /* the owner polls; the thread does nothing meanwhile */
    uint32_t in_poll;  /* pieces of slow work in a poll */
    uint32_t attached; /* not detached again */
    int32_t attach_status;
    int32_t establish_status;
    int32_t hand_over_status;
    struct cm_identifier *last; /* NULL, or becomes a copy of each that is destroyed */
};

/* The link of the service. */
struct thing {
    struct link link;
    struct nic_queue_pair queue_pair; /* which nobody posts to */
    uint32_t probes;
    bool attached;
    bool awaits; /* something of its peer */
};

struct rig {
    struct cm cm;
    struct handles handles;
    struct log log;
    uint64_t clock_ns;
    struct nic nic; /* of nothing */
    struct link_group group;
    struct link_listener *listener;
    struct cm_identifier *listening;       /* the listener's */
    crpc_completion seen[RIG_COMPLETIONS]; /* by the last poll */
    uint32_t seen_count;
};

/* For cmocka_unit_test_setup_teardown; *state is a struct rig with a listener. rig_close fails the
 * test if an identifier is left. */
int rig_open(void **state);
/* The same with a plain service. */
int rig_open_plain(void **state);
int rig_close(void **state);

/* What links are accepted with. keepalive_ns is for ever, unless a test changes it. */
struct link_options rig_options(void);

/* Queues an event of an identifier; NULL for events of the device. */
void rig_event(struct rig *rig, enum cm_event_kind kind, struct cm_identifier *identifier);
/* The same with private data. */
void rig_private_event(struct rig *rig, enum cm_event_kind kind, struct cm_identifier *identifier,
                       const void *private_data, uint32_t private_bytes);
/* Queues the request of a stranger with a good hello. Returns its identifier. */
struct cm_identifier *rig_request(struct rig *rig);
/* The same with private data of its own. */
struct cm_identifier *rig_private_request(struct rig *rig, const void *private_data,
                                          uint32_t private_bytes);

/* What the cm thread does with the work of cm_run. */
void rig_work(struct cm_identifier *identifier);

/* Polls once, as engines do. Returns how many completions came. */
uint32_t rig_poll(struct rig *rig, uint32_t capacity);
/* The next completion is a connect request. Returns its link. */
struct thing *rig_take_request(struct rig *rig);
/* A connected link whose peer came to the listener. */
struct thing *rig_connect(struct rig *rig, const struct link_options *options);

#endif
