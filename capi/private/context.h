/* context.h: the contents of a crpc_context. Only files of capi include it. capi checks the
 * caller's input once; core only asserts it.
 */
#ifndef CAPI_CONTEXT_H
#define CAPI_CONTEXT_H

#include <stdbool.h>

#include "base/abi.h"
#include "base/list.h"
#include "base/log.h"
#include "channel/channel.h"
#include "nic/nic.h"
#include "queue/queue.h"
#include "rpc/rpc.h"

struct cm;
struct flight;
struct method_name;

/* The nic and the cm for calls; with rails, also the nics and the cm of the rails. */
#define CONTEXT_EVENT_FDS_MAX (2 + CHANNEL_RAILS_MAX + 1)

/* The region that an op of a queue has named last: the next ones tend to name the same. All zero = none. */
struct queue_memory {
    uint64_t handle;
    uint64_t address;
    uint64_t bytes;
    uint32_t access;
    uint32_t local_key;
};

/* Likewise the target. */
struct queue_aim {
    uint64_t handle; /* 0 = none */
    struct nic_target *target;
    uint32_t kind; /* of the queues whose ops may name it */
};

struct crpc_context {
    struct rpc_engine *engine;
    /* With CRPC_CONTEXT_RAILS and _QUEUES; otherwise NULL. Queues are on `nic`, in its own domain, as regions are. */
    struct channel_engine *channels;
    struct queue_engine *queues;
    uint8_t attention; /* CONTEXT_ARMED and so on: what a poll has to do beside polling */
    uint32_t
        plain_kind; /* HANDLE_ENDPOINT; where ops are looked at none, so that they take the way of what is unusual */
    struct handles handles; /* what a submit and a poll use of all this is in one cache line */
    struct nic *nic;
    struct flight *flight;  /* flight.h; NULL = nothing is recorded */
    struct cm *cm;          /* NULL = the nic has no device to watch */
    struct registrar calls; /* registers with `nic` only */

    /* With CRPC_CONTEXT_RAILS; otherwise NULL and 0. Each rail has a nic of its own, so that
     * channels and calls share no queue. */
    struct registrar rails;
    struct registration_cache *cache; /* registers with the rails */
    struct cm *rail_cm;               /* connects over rail 0, watches all; may be NULL */

    /* With CRPC_CONTEXT_QUEUES; otherwise NULL. */
    struct nic_piece *queue_pieces; /* of one crpc_queue_submit, with their keys */
    struct queue_memory queue_memory;
    struct queue_aim queue_aim;

    uint32_t poll_first; /* enum context_service that begins the next poll */

    int event_fds[CONTEXT_EVENT_FDS_MAX]; /* what crpc_wait sleeps on */
    uint32_t event_fd_count;
    int epoll_fd;
    int timer_fd;
    struct list regions;
    struct log log;
    uint32_t retry_timeout; /* of connections whose options say 0; 0 = as their kind has it */
    uint32_t retry_count;   /* likewise */
    uint32_t rail_queue_pairs_max;    /* of a channel */
    struct method_name *method_names; /* in the order of their methods */
    uint32_t method_name_count;
};

/* Descriptors may be readable: the next poll must empty them. */
#define CONTEXT_ARMED 0x1u
/* What comes in and goes out is counted. */
#define CONTEXT_MEASURED 0x2u
/* The last of it is recorded. */
#define CONTEXT_RECORDED 0x4u
#define CONTEXT_WATCHED (CONTEXT_MEASURED | CONTEXT_RECORDED)

/* Those that give completions, in the order in which a poll asks them. */
enum context_service {
    CONTEXT_CALLS,
    CONTEXT_CHANNELS,
    CONTEXT_QUEUES,
    CONTEXT_SERVICES,
};

struct region {
    struct list link;
    struct registration calls; /* with the nic for calls */
    struct registration rails; /* with the rails */
    uint64_t handle;
    uint64_t address;
    uint64_t bytes;
    uint32_t access;
    bool foreign;               /* another device's: the processor may not touch it */
    struct rpc_region payloads; /* with endpoints; if it is foreign, fd is this one's own */
};

static inline struct rpc_endpoint *endpoint_of(const struct crpc_context *context,
                                               crpc_endpoint endpoint)
{
    return handles_get(&context->handles, endpoint.bits, HANDLE_ENDPOINT);
}

/* From now on, ops and completions are looked at on their way: CONTEXT_MEASURED or CONTEXT_RECORDED. */
static inline void context_watch(struct crpc_context *context, uint8_t attention)
{
    context->attention |= attention;
    context->plain_kind = 0;
}

/* The same where ops are not looked at; otherwise NULL. */
static inline struct rpc_endpoint *plain_endpoint_of(const struct crpc_context *context,
                                                     crpc_endpoint endpoint)
{
    /* As handles_get, with 32 bits: a kind that is loaded as 64 takes an instruction more. */
    const struct handles *handles = &context->handles;
    const uint32_t slot = endpoint.bits & (HANDLE_SLOTS_MAX - 1);
    if (slot >= handles->used || handles->entries[slot].bits != endpoint.bits ||
        (uint32_t)(endpoint.bits >> HANDLE_KIND_SHIFT) != context->plain_kind) {
        return NULL;
    }
    return handles->entries[slot].object;
}

static inline struct channel *channel_of(const struct crpc_context *context, crpc_channel channel)
{
    return handles_get(&context->handles, channel.bits, HANDLE_CHANNEL);
}

static inline struct queue *queue_of(const struct crpc_context *context, crpc_queue queue)
{
    return handles_get(&context->handles, queue.bits, HANDLE_QUEUE);
}

static inline struct queue_target *target_of(const struct crpc_context *context, crpc_target target)
{
    return handles_get(&context->handles, target.bits, HANDLE_TARGET);
}

static inline struct region *region_of(const struct crpc_context *context, crpc_region region)
{
    return handles_get(&context->handles, region.bits, HANDLE_REGION);
}

/* Returns what is the same for each nic of the context, of its options and of the environment. automatic: nobody has named a driver. */
struct nic_options context_nic_options(const crpc_context_options *options, bool automatic);
/* Logs what is left out of this nic, if anything is (nic->left_out). */
void context_tell_left_out(struct crpc_context *context, const struct nic *nic);

/* Starts the cm of the nics, which also watches their devices. If there is no rdma_cm, the cm only
 * watches, and a warning is logged. Sets *cm to NULL if a nic has no device or there is no thread. */
void context_open_cm(struct crpc_context *context, struct nic *const *nics, uint32_t nic_count,
                     struct cm **cm);

/* Has copyrpc-top shown what the context does, unless COPYRPC_TOP=0. If that is not possible, a warning is logged. */
void context_tell(struct crpc_context *context);

/* Opens the rails and their engine. context_close_rails undoes that, even if it failed half-way.
 * `driver` is what the caller and the environment request. */
/* ordering.c: checks what the options say, and completes them: from the environment, and with defaults. */
int32_t ordering_choose(crpc_context_options *options, crpc_error *error);
/* Has a nic do as they say. */
void ordering_apply(const crpc_context_options *options, struct nic *nic);
int32_t context_open_rails(struct crpc_context *context, const crpc_context_options *options,
                           uint32_t driver, crpc_error *error);
/* Closing has two steps: first the engine, then the nics. Regions are closed in between. */
void context_stop_rails(struct crpc_context *context);
void context_close_rails(struct crpc_context *context);
/* Returns CRPC_OK if the context has rails; otherwise *error says how to get them. */
int32_t context_check_rails(const struct crpc_context *context, crpc_error *error);

/* Returns the links of the context's channels; NULL, with *error filled, if it has no rails. */
static inline struct link_group *context_channel_links(const struct crpc_context *context,
                                                       crpc_error *error)
{
    return context_check_rails(context, error) == CRPC_OK ? channel_links(context->channels) : NULL;
}

/* Returns CRPC_OK if the context has queues; otherwise *error says how to get them. */
int32_t context_check_queues(const struct crpc_context *context, crpc_error *error);

static inline struct link_group *context_queue_links(const struct crpc_context *context,
                                                     crpc_error *error)
{
    return context_check_queues(context, error) == CRPC_OK ? queue_links(context->queues) : NULL;
}

/* Empties the descriptors that arming may have made readable. */
void context_disarm(struct crpc_context *context);
void context_close_regions(struct crpc_context *context);

/* Begins to measure, if the flags or the environment say so. */
int32_t context_measure(struct crpc_context *context, uint32_t flags, crpc_error *error);
void context_forget_methods(struct crpc_context *context);

#endif
