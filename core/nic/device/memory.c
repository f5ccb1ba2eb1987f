/* memory.c: registering memory with the device. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/page.h"
#include "nic/device/device.h"

static int access_flags(uint32_t access)
{
    int flags = 0;
    flags |= access & CRPC_ACCESS_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
    flags |= access & CRPC_ACCESS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0;
    flags |= access & CRPC_ACCESS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0;
    flags |= access & CRPC_ACCESS_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0;
    flags |= access & NIC_ACCESS_WINDOWS ? IBV_ACCESS_MW_BIND : 0;
    flags |= access & NIC_ACCESS_RELAXED ? IBV_ACCESS_RELAXED_ORDERING : 0;
    return flags;
}

/* A device without relaxed ordering ignores it: libibverbs leaves it out for a kernel that knows no optional rights. This is for
 * those that refuse it all the same. Returns true if it may be that. */
static bool may_refuse_relaxed(int flags, int os_error)
{
    return flags & IBV_ACCESS_RELAXED_ORDERING && (os_error == EINVAL || os_error == EOPNOTSUPP);
}

/* Some kernels and libibverbs itself say ENOMEM for memory that is not there at all. */
static bool all_mapped(void *address, size_t bytes)
{
    uintptr_t start = (uintptr_t)address & ~(page_bytes() - 1);
    return msync((void *)start, (uintptr_t)address + bytes - start, MS_ASYNC) == 0 ||
           errno != ENOMEM;
}

/* A device that was taken out refuses everything so, before its event is heard of. */
static void note_loss(struct nic *nic, int os_error)
{
    if (os_error == EIO || os_error == ENODEV) {
        nic_set(&nic->lost);
    }
}

static struct nic_keys keys_of(struct ibv_mr *region)
{
    return (struct nic_keys){
        .local_key = region->lkey, .remote_key = region->rkey, .driver = region};
}

int32_t device_memory_register(struct nic *base, struct nic_domain *domain, void *address,
                               size_t bytes, uint64_t remote_address, uint32_t access,
                               struct nic_keys *memory, crpc_error *error)
{
    struct ibv_pd *pd = device_pd(to_device_nic(base), domain);
    uint64_t seen_at = remote_address ? remote_address : (uint64_t)(uintptr_t)address;
    const int flags = access_flags(access);
    struct ibv_mr *region = ibv_reg_mr_iova(pd, address, bytes, seen_at, flags);
    if (!region && may_refuse_relaxed(flags, errno)) {
        region = ibv_reg_mr_iova(pd, address, bytes, seen_at, flags & ~IBV_ACCESS_RELAXED_ORDERING);
    }
    if (!region) {
        int os_error = errno;
        if (os_error == ENOMEM && !all_mapped(address, bytes)) {
            os_error = EFAULT;
        }
        char what[64];
        note_loss(base, os_error);
        snprintf(what, sizeof(what), "register %zu KiB of memory", (bytes + 1023) / 1024);
        return device_blame(error, os_error, bytes, base->device, what);
    }
    *memory = keys_of(region);
    return CRPC_OK;
}

/* All ways of saying no: libibverbs for a provider without it; the kernel for a driver without it,
 * before it knew of dma-bufs, and before it knew of such calls at all. */
static bool knows_no_dmabuf(int os_error)
{
    return os_error == EOPNOTSUPP || os_error == ENOSYS || os_error == EPROTONOSUPPORT ||
           os_error == ENOTTY;
}

int32_t device_memory_register_dmabuf(struct nic *base, struct nic_domain *domain, int fd,
                                      uint64_t offset, size_t bytes, uint64_t address,
                                      uint32_t access, struct nic_keys *memory, crpc_error *error)
{
    struct ibv_pd *pd = device_pd(to_device_nic(base), domain);
    const int flags = access_flags(access);
    struct ibv_mr *region = ibv_reg_dmabuf_mr(pd, offset, bytes, address, fd, flags);
    if (!region && may_refuse_relaxed(flags, errno)) {
        region =
            ibv_reg_dmabuf_mr(pd, offset, bytes, address, fd, flags & ~IBV_ACCESS_RELAXED_ORDERING);
    }
    if (!region) {
        int os_error = errno;
        char what[64];
        if (knows_no_dmabuf(os_error)) {
            return error_set(error, CRPC_E_UNSUPPORTED, os_error,
                             "%s: cannot register a dma-buf: that takes Linux 5.12 or later, and a "
                             "device whose driver supports it, as mlx5 does",
                             base->device);
        }
        if (os_error == EBADF) {
            return error_set(error, CRPC_E_INVALID, os_error,
                             "%s: cannot register descriptor %d: it is not open", base->device, fd);
        }
        note_loss(base, os_error);
        snprintf(what, sizeof(what), "register %zu KiB of a dma-buf", (bytes + 1023) / 1024);
        return device_blame(error, os_error, bytes, base->device, what);
    }
    *memory = keys_of(region);
    return CRPC_OK;
}

void device_memory_deregister(struct nic *nic, struct nic_keys *memory)
{
    (void)nic;
    if (memory->driver) {
        ibv_dereg_mr(memory->driver);
    }
    *memory = (struct nic_keys){0};
}
