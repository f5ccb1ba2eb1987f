/* context.h: what a crpc_context is made of, for the files of capi alone. Here the caller's
 * input is checked, once; core asserts.
 */
#ifndef CAPI_CONTEXT_H
#define CAPI_CONTEXT_H

#include <stdbool.h>

#include "base/abi.h"
#include "base/list.h"
#include "base/log.h"
#include "channel/channel.h"
#include "nic/nic.h"
#include "rpc/rpc.h"

struct cm;

/* The nic and the cm of calls; with rails, theirs as well. */
#define CONTEXT_EVENT_FDS_MAX (2 + CHANNEL_RAILS_MAX + 1)

struct crpc_context {
    struct rpc_engine *engine;
    struct handles handles;
    bool armed; /* descriptors may be readable and must be emptied by the next poll */
    struct nic *nic;
    struct cm *cm;          /* NULL: no rdma_cm on this machine or device */
    struct registrar calls; /* nic alone */

    /* With CRPC_CONTEXT_RAILS, else NULL and 0. Each rail is a nic of its own, so that channels
     * and calls share no queue. */
    struct channel_engine *channels;
    bool channels_first; /* in the next poll: calls filled the last */
    struct registrar rails;
    struct registration_cache *cache; /* with the rails */
    struct cm *rail_cm;               /* of rail 0; NULL as above */

    int event_fds[CONTEXT_EVENT_FDS_MAX]; /* what a sleeper waits for */
    uint32_t event_fd_count;
    int epoll_fd;
    int timer_fd;
    struct list regions;
    struct log log;
};

struct region {
    struct list link;
    struct registration calls; /* with the nic of calls */
    struct registration rails; /* with the rails */
    uint64_t handle;
    uint64_t address;
    uint64_t bytes;
    uint32_t access;
};

static inline struct rpc_endpoint *endpoint_of(const struct crpc_context *context,
                                               crpc_endpoint endpoint)
{
    return handles_get(&context->handles, endpoint.bits, HANDLE_ENDPOINT);
}

static inline struct channel *channel_of(const struct crpc_context *context, crpc_channel channel)
{
    return handles_get(&context->handles, channel.bits, HANDLE_CHANNEL);
}

static inline struct region *region_of(const struct crpc_context *context, crpc_region region)
{
    return handles_get(&context->handles, region.bits, HANDLE_REGION);
}

/* Starts the rdma_cm of a nic, or leaves *cm NULL and says so in the log. */
void context_open_cm(struct crpc_context *context, struct nic *nic, struct cm **cm);

/* Opens the rails and their engine; context_close_rails undoes that, also where it failed half-way.
 * `driver` is what the caller and the environment ask for. */
int32_t context_open_rails(struct crpc_context *context, const crpc_context_options *options,
                           uint32_t driver, crpc_error *error);
/* First the engine, then (regions lie between them) the nics. */
void context_stop_rails(struct crpc_context *context);
void context_close_rails(struct crpc_context *context);
/* CRPC_OK if the context has rails, else says how to get them. */
int32_t context_check_rails(const struct crpc_context *context, crpc_error *error);

/* Empties the descriptors that an arm may have made readable. */
void context_disarm(struct crpc_context *context);
void context_close_regions(struct crpc_context *context);

#endif
