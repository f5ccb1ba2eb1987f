/* datagram.h: what the files of the in-memory NIC share of datagrams: datagram.c. */
#ifndef CORE_NIC_MEMORY_DATAGRAM_H
#define CORE_NIC_MEMORY_DATAGRAM_H

#include "nic/memory/internal.h"

struct memory_target {
    struct nic_target base;
    struct memory_target *next; /* of the nic */
    struct memory_domain *domain;
    uint8_t gid[16];
    uint32_t open; /* ops that name it and are not acknowledged */
};

static inline struct memory_target *memory_target(struct nic_target *target)
{
    return container_of(target, struct memory_target, base);
}

int32_t memory_target_create(struct nic *nic, struct nic_domain *domain,
                             const struct nic_target_options *options, struct nic_target **target,
                             crpc_error *error);
void memory_target_destroy(struct nic_target *target);
void memory_target_free(struct memory_nic *nic, struct memory_target *target);
/* The WQE names a target (NULL = none), until it is acknowledged. */
void memory_target_name(struct memory_wqe *wqe, struct memory_target *target);
void memory_target_leave(struct memory_wqe *wqe);
void memory_datagram_execute(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe);

#endif
