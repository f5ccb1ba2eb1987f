/* paging.c: see paging.h. */
#include "simnic/shim/kernel/paging.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/mman.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/verbs.h"
#include "simnic/shim/process/process.h"

#define PAGE 4095ull

/* A kernel before Linux 5.14 does not know the advice: it refuses a good page, too. */
static bool is_known(int advice)
{
    static uint8_t sample;
    return madvise((void *)((uintptr_t)&sample & ~PAGE), 4096, advice) == 0;
}

int paging_populate(uint64_t start, uint64_t bytes, bool write)
{
    uint64_t first = start & ~PAGE, last = (start + bytes + PAGE) & ~PAGE;
    if (start + bytes < start || last < start + bytes) { /* as the kernel's ib_umem_get */
        return EINVAL;
    }
    if (bytes == 0) {
        return 0;
    }
    /* msync fails with ENOMEM if the range has a hole, and touches nothing. */
    if (msync((void *)(uintptr_t)first, last - first, MS_ASYNC) != 0) {
        return errno == ENOMEM ? EFAULT : errno;
    }
    const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (madvise((void *)(uintptr_t)first, last - first, advice) == 0) {
        return 0;
    }
    if (errno == ENOMEM || errno == EAGAIN) {
        return ENOMEM;
    }
    return is_known(advice) ? EFAULT : 0;
}

/* ---- prefetching ---- */

struct advice {
    const struct object *domain;
    uint32_t kind;
    bool waits; /* for the pages: the program wants to know whether they came */
};

/* The region of a key, if this may be prefetched: the kernel's get_prefetchable_mr. */
static int find_region(const struct advice *advice, uint32_t lkey, const struct memory_key **region)
{
    const struct memory_key *key = key_find(&process.nic, lkey);
    *region = key;
    if (!key) {
        return ENOENT;
    }
    if (key->kind != KEY_REGION || !(key->access & IBV_ACCESS_ON_DEMAND)) {
        return EINVAL;
    }
    if (key->domain != (uint32_t)advice->domain->number) {
        return EPERM;
    }
    bool writable = key->access & IBV_ACCESS_LOCAL_WRITE;
    return advice->kind == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE && !writable ? EPERM : 0;
}

static int prefetch(const struct advice *advice, const struct ib_uverbs_sge *range)
{
    const struct memory_key *region;
    int result = find_region(advice, range->lkey, &region);
    if (result) {
        return result;
    }
    if (range->addr < region->address || range->addr - region->address > region->bytes ||
        range->length > region->bytes - (range->addr - region->address)) {
        return advice->waits ? EFAULT : 0;
    }
    if (advice->kind == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return 0; /* what is present is mapped for the adapter, which has nothing to map here */
    }
    result = paging_populate(region->start + (range->addr - region->address), range->length,
                             advice->kind == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE);
    if (result == EINVAL) {
        result = EFAULT; /* the range leaves the address space, as that of a whole one can */
    }
    return advice->waits ? result : 0;
}

static bool read_range(const struct ib_uverbs_attr *list, uint32_t which,
                       struct ib_uverbs_sge *range)
{
    const struct ib_uverbs_sge *at = (const struct ib_uverbs_sge *)(uintptr_t)list->data;
    return dma_copy(range, at + which, sizeof(*range));
}

int verb_advise_mr(const struct call *call)
{
    struct advice advice = {
        .domain = attribute_object(call, UVERBS_OBJECT_PD, UVERBS_ATTR_ADVISE_MR_PD_HANDLE),
        .kind = (uint32_t)attribute_number(call, UVERBS_ATTR_ADVISE_MR_ADVICE, UINT32_MAX)};
    uint32_t flags = (uint32_t)attribute_number(call, UVERBS_ATTR_ADVISE_MR_FLAGS, 0);
    const struct ib_uverbs_attr *list = attribute(call, UVERBS_ATTR_ADVISE_MR_SGE_LIST);
    struct ib_uverbs_sge range;
    if (!advice.domain || !list) {
        return ENOENT;
    }
    if (flags & ~(uint32_t)IB_UVERBS_ADVISE_MR_FLAG_FLUSH || list->len % sizeof(range)) {
        return EINVAL;
    }
    if (advice.kind > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return EOPNOTSUPP;
    }
    advice.waits = flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
    const uint32_t ranges = (uint32_t)(list->len / sizeof(range));
    const struct memory_key *region;
    /* The keys first: nothing is fetched for a list with a wrong one. */
    for (uint32_t i = 0; i < ranges && !advice.waits; i++) {
        int result =
            read_range(list, i, &range) ? find_region(&advice, range.lkey, &region) : EFAULT;
        if (result) {
            return result;
        }
    }
    for (uint32_t i = 0; i < ranges; i++) {
        int result = read_range(list, i, &range) ? prefetch(&advice, &range) : EFAULT;
        if (result) {
            return result;
        }
    }
    return 0;
}
