/* internal.h: the state of the engine and of its queues. Only files of core/queue include it.
 *
 *   engine.c   all queues of a context: poll, progress, what the device tells
 *   submit.c   ops to the device, and refusals
 *   tags.c     the same of commands that concern tags
 *   life.c     a queue as a link: made, opened, failed, ended
 *   peer.c     what the application asks of a queue
 *   change.c   queues that change while they are in use
 *   target.c   where ops of UD queues and DCIs go
 *
 * How a queue ends. An op is open from the moment that core/nic has accepted it until a poll has
 * written its completion.
 *
 *   failing   the queue pair is in the error state, and the device completes what is open
 *   stopped   the queue pair is gone. What was still open completes without the device
 *   over      nothing is open any more: DISCONNECTED is reported, or the queue is destroyed
 */
#ifndef CORE_QUEUE_INTERNAL_H
#define CORE_QUEUE_INTERNAL_H

#include <assert.h>

#include "base/list.h"
#include "base/output.h"
#include "base/table.h"
#include "base/wheel.h"
#include "link/link.h"
#include "nic/tags.h"
#include "queue/queue.h"

#ifndef CRPC_E_ACCESS
#define CRPC_E_ACCESS -27
#define CRPC_E_NOT_READY -28
#define CRPC_E_FLUSHED -29
#define CRPC_E_DEVICE -30
#endif

/* Completions that the engine has taken from the device before the application asked for them. */
#define QUEUE_HELD_MAX 64u

/* So long may a device take to flush a queue pair. */
#define QUEUE_FLUSH_TIMEOUT_NS UINT64_C(2000000000)
/* And so long for ops of a sparse queue that need not complete. Those that were done never do. */
#define QUEUE_SILENT_TIMEOUT_NS UINT64_C(10000000)

#define TIMER_FLUSH LINK_TIMER_SERVICE

struct queue {
    struct link link; /* must come first: a handle's object is the link */

    /* -- the data path -- */
    struct nic_queue *nic __attribute__((aligned(CACHE_LINE_BYTES))); /* NULL = not made */
    const struct nic_queue_operations *operations;
    int32_t send_bar;    /* CRPC_OK, or why ops that send are refused now */
    int32_t receive_bar; /* likewise */

    /* -- lists of the engine -- */
    struct list refused_link;  /* an op got CRPC_E_AGAIN */
    struct list ended_link;    /* nic_queue_take_ended has something to give */
    struct list failing_link;  /* not over yet */
    struct list draining_link; /* its sends must complete */

    /* -- the rest -- */
    struct queue_engine *engine;
    struct queue *srq; /* whose receives its messages take, until it is stopped; NULL = its own */
    uint64_t srq_handle;
    bool uses_srq; /* it counts as a user of that */
    uint32_t users;
    bool connecting;      /* it counts in engine->connecting */
    bool refused_send;    /* what got CRPC_E_AGAIN */
    bool refused_receive; /* likewise */
    bool refused_add;     /* likewise, a TAG_ADD */
    bool refused_command; /* likewise, another command of tags, which needs no free tag */
    bool nop;             /* the last that was sent is a NOP that nobody sees */
    bool silent_only;     /* it has failed, and what is open need not complete */
    bool flush_is_error;  /* link.error says no more than that the queue was flushed */
    bool loss_is_error;   /* likewise, that the peer has disconnected, or what an event told */
    uint32_t refused_at;  /* consumer of the sends when one got CRPC_E_AGAIN */
    int32_t ended_status; /* of ops that complete without the device */
    uint64_t dry_polls;   /* of the engine, when it failed */
    struct wheel_timer flush_timer;
    uint32_t number;
    uint32_t target_mark; /* when its sends up to here are done, none names a target of `leaving` */
    bool target_marked;   /* they are not done yet */
    struct queue_options options; /* without private data, which the link has */
    uint32_t access;              /* CRPC_ACCESS_REMOTE_*: what the peer may do */
    uint32_t srq_limit;           /* as it was set last */
};
static_assert(offsetof(struct queue, link) == 0, "a handle's object is the link");

/* A target is closed, and ops may name it; it is leaving, and those that may are marked; it is gone. */
struct queue_target {
    struct nic_target *nic;
    struct queue_engine *engine;
    uint64_t handle;
    struct list target_link;
    struct nic_target_options options;
};

struct queue_engine {
    struct nic *nic;
    const struct nic_queue_operations *operations;
    struct log *log;

    struct list refused;
    struct list ended;
    struct list failing;
    struct list draining;
    uint32_t connecting; /* queues whose first completion may come before they are open */
    uint32_t nops;       /* queues with such a NOP */
    uint64_t dry_polls;  /* so often the device had no more completions */
    bool device_lost;
    uint32_t held_first;
    uint32_t held_count;
    crpc_completion held[QUEUE_HELD_MAX];

    struct table queue_pairs; /* number -> struct queue */
    struct link_group links;
    uint32_t queue_count;
    uint32_t queues_max;
    struct list targets;         /* open */
    struct list targets_closed;  /* since the marks were set */
    struct list targets_leaving; /* before that */
};

static inline struct queue_engine *engine_of_group(const struct link_group *group)
{
    return container_of(group, struct queue_engine, links);
}

static inline struct queue *queue_from_link(const struct link *link)
{
    return container_of(link, struct queue, link);
}

/* Returns true if its ops that send name targets. */
static inline bool queue_has_targets(const struct queue *queue)
{
    return queue->options.kind == NIC_QUEUE_UD || queue->options.kind == NIC_QUEUE_DCI;
}

/* Returns true if ops have not completed. */
static inline bool queue_has_open(const struct queue *queue)
{
    return queue->nic &&
           (queue->nic->sends.consumer != queue->nic->sends.producer ||
            queue->nic->receives_open > 0 || (queue->nic->tags && queue->nic->tags->open > 0));
}

static inline bool queue_sends_open(const struct queue *queue)
{
    return queue->nic->sends.consumer != queue->nic->sends.producer;
}

/* engine.c */
void queue_device_event(struct link_group *group, const struct cm_event *event);
/* Fills *error for a completion with an error: an enum nic_error below zero. */
void queue_explain(const struct queue *queue, const crpc_completion *completion, crpc_error *error);

/* submit.c */
/* Notes that ops were refused for want of room. Returns CRPC_E_AGAIN. */
int32_t queue_no_room(struct queue *queue);
/* Why ops are refused that this bars, or that a queue which has failed. */
int32_t queue_barred(int32_t bar);
/* Reports room to those that ask for it and have it. */
void queue_check_refused(struct queue_engine *engine);
/* A sparse queue knows that its last ops are done only if a CQE says so. Does nothing if there is no
 * room for the NOP. */
void queue_post_nop(struct queue *queue);

/* tags.c */
/* A queue is closed: what it has got for a TM-SRQ, and is kept for the next poll, is that one's. */
void queue_rename_held(const struct queue *queue);

/* life.c */
extern const struct link_service queue_service;
/* Ends the queue pair or the SRQ. What is open completes with this status in the next polls. */
void queue_end(struct queue *queue, int32_t status);
/* Disconnects a draining queue if its sends have completed. */
void queue_check_drained(struct queue *queue);
/* Reports the end of failing queues of which nothing is open. */
void queue_check_failing(struct queue_engine *engine);

/* change.c */
/* What the peer of a new queue may do. */
uint32_t queue_all_access(const struct queue_engine *engine);
/* The device says that fewer receives are left in an SRQ than its limit. */
void queue_limit_reached(struct queue *queue);
/* link_service.emit_event: that, for the application. */
void queue_emit_limit(struct link *link, struct output *output);

/* target.c */
/* Frees closed targets that no op names any more. */
void queue_release_targets(struct queue_engine *engine);
/* Frees all targets. There are no queues any more. */
void queue_end_targets(struct queue_engine *engine);

#endif
