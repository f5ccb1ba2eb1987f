/* machine.h: what of the machine and of this process matters to copyrpc. */
#ifndef TOOLS_INFO_MACHINE_H
#define TOOLS_INFO_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

struct machine {
    char processor[64]; /* its name; "": not known */
    const char *
        epyc; /* "Milan": a processor that is faster with relaxed ordering; NULL: another, or not known */
    uint64_t memlock_bytes;    /* UINT64_MAX: no limit */
    bool may_lock;             /* the limit is not for this process: CAP_IPC_LOCK */
    bool relaxed_ordering_off; /* COPYRPC_RELAXED_ORDERING=off */
};

/* `cpuinfo` is /proc/cpuinfo, or a test's. */
void machine_read(const char *cpuinfo, struct machine *machine);

#endif
