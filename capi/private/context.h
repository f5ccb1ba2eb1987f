/* context.h: what a crpc_context is made of, for the files of capi alone. Here the caller's
 * input is checked, once; core asserts.
 */
#ifndef CAPI_CONTEXT_H
#define CAPI_CONTEXT_H

#include <stdbool.h>

#include "abi.h"
#include "list.h"
#include "log.h"
#include "nic.h"
#include "rpc.h"

struct cm;

struct crpc_context {
    struct rpc_engine *engine;
    const struct handles *handles;
    bool armed; /* descriptors may be readable and must be emptied by the next poll */
    struct nic *nic;
    struct cm *cm; /* NULL: no rdma_cm on this machine or device */
    int epoll_fd;
    int timer_fd;
    struct list regions;
    struct log log;
};

struct region {
    struct list link;
    struct nic_memory memory;
    uint64_t handle;
    uint64_t address;
    uint64_t bytes;
    uint32_t access;
};

static inline struct rpc_endpoint *endpoint_of(const struct crpc_context *context,
                                               crpc_endpoint endpoint)
{
    return handles_get(context->handles, endpoint.bits, HANDLE_ENDPOINT);
}

/* Empties the descriptors that an arm may have made readable. */
void context_disarm(struct crpc_context *context);
void context_close_regions(struct crpc_context *context);

#endif
