/* allocated.h: how much memory each library of a program has from malloc, and how many pages the devices have pinned. A program that is
 * linked with allocated.c has malloc and ibv_reg_mr_iova from there.
 */
#ifndef BENCH_ALLOCATED_H
#define BENCH_ALLOCATED_H

#include <stdint.h>

enum allocated_by {
    ALLOCATED_COPYRPC,
    ALLOCATED_IBVERBS, /* and libmlx5 */
    ALLOCATED_RDMACM,
    ALLOCATED_SIMNIC, /* the virtual device, which on a machine with a NIC is not in the process */
    ALLOCATED_REST,
    ALLOCATED_BY,
};

extern const char *const allocated_names[ALLOCATED_BY];

/* Bytes that are allocated now, with what malloc adds to round them up. Any thread. */
uint64_t allocated_bytes(enum allocated_by who);
/* Bytes of all registrations that there have been: each counts for itself, though several may be of one page. */
uint64_t registered_bytes(void);

#endif
