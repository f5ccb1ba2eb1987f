/* paging.h: on-demand paging: regions whose memory need not be there before the NIC accesses it, as the kernel's mlx5_ib has them
 * (odp.c). The NIC's access is the processor's here. So a page that is not present comes by the processor's own page fault, and one that
 * does not exist fails the operation. */
#ifndef SIMNIC_SHIM_KERNEL_PAGING_H
#define SIMNIC_SHIM_KERNEL_PAGING_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "simnic/session/rails.h"

#define PAGING_GENERAL (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT)
/* By transport: what a ConnectX-6 pages for. */
#define PAGING_RC                                                                                  \
    (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |  \
     IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV)
#define PAGING_XRC PAGING_RC
#define PAGING_DC PAGING_RC
#define PAGING_UD (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV)
#define PAGING_UC 0

/* Makes memory present as an access of the NIC would: to be read, or to be written. The range need not begin at a page. Returns 0;
 * EFAULT if some of it does not exist, or cannot be accessed so; ENOMEM. */
int paging_populate(uint64_t start, uint64_t bytes, bool write);

#endif
