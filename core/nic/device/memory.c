/* memory.c: registering memory with the device. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"
#include "error.h"

static int access_flags(uint32_t access)
{
    int flags = 0;
    flags |= access & CRPC_ACCESS_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
    flags |= access & CRPC_ACCESS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0;
    flags |= access & CRPC_ACCESS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0;
    flags |= access & CRPC_ACCESS_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0;
    return flags;
}

/* Some kernels and libibverbs itself say ENOMEM for memory that is not there at all. */
static bool all_mapped(void *address, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)address & ~(page - 1);
    return msync((void *)start, (uintptr_t)address + bytes - start, MS_ASYNC) == 0 ||
           errno != ENOMEM;
}

int32_t device_memory_register(struct nic *base, void *address, size_t bytes, uint32_t access,
                               struct nic_memory *memory, crpc_error *error)
{
    struct device_nic *nic = to_device_nic(base);
    struct ibv_mr *region = ibv_reg_mr(nic->pd, address, bytes, access_flags(access));
    if (!region) {
        int os_error = errno;
        if (os_error == ENOMEM && !all_mapped(address, bytes)) {
            os_error = EFAULT;
        }
        char what[64];
        snprintf(what, sizeof(what), "register %zu KiB of memory", (bytes + 1023) / 1024);
        return device_blame(error, os_error, bytes, base->device, what);
    }
    memory->local_key = region->lkey;
    memory->remote_key = region->rkey;
    memory->driver = region;
    return CRPC_OK;
}

void device_memory_deregister(struct nic *nic, struct nic_memory *memory)
{
    (void)nic;
    if (memory->driver) {
        ibv_dereg_mr(memory->driver);
    }
    *memory = (struct nic_memory){0};
}
