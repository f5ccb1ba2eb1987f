/* memory.c: protection domains, memory regions and windows. */
#include "simnic/shim/kernel/verbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/paging.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

#define ACCESS_KNOWN                                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                       \
     IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_ON_DEMAND)

static uint32_t next_domain = 1;

int verb_alloc_pd(const struct call *call)
{
    struct object *object = object_create(call->context, UVERBS_OBJECT_PD);
    if (!object) {
        return ENOMEM;
    }
    object->number = next_domain++ & 0xffffff;
    struct ib_uverbs_alloc_pd_resp response = {.pd_handle = object->handle};
    struct mlx5_ib_alloc_pd_resp driver = {.pdn = (uint32_t)object->number};
    int result = attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
    if (!result) {
        result = attribute_out(call, UVERBS_ATTR_UHW_OUT, &driver, sizeof(driver));
    }
    if (result) {
        object_destroy(object);
    }
    return result;
}

int mlx5_query_pd(const struct call *call)
{
    struct object *object =
        object_find(call->context, UVERBS_OBJECT_PD,
                    attribute_number(call, MLX5_IB_ATTR_QUERY_PD_HANDLE, UINT64_MAX));
    return object ? attribute_out32(call, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, (uint32_t)object->number)
                  : ENOENT;
}

/* As ib_check_mr_access: remote write needs local write. */
bool memory_access_makes_sense(uint32_t access)
{
    if (access & ~(uint32_t)ACCESS_KNOWN) {
        return false;
    }
    return !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) ||
           access & IBV_ACCESS_LOCAL_WRITE;
}

/* mlx5_ib pins the pages, and fails if one is not there, or cannot be written to. So they get their memory
 * here, as they would there: none is made later, under the first operations on it. With on-demand paging it is. */
int memory_pin(uint64_t start, uint64_t bytes, uint32_t access)
{
    return access & IBV_ACCESS_ON_DEMAND
               ? 0
               : paging_populate(start, bytes, access & IBV_ACCESS_LOCAL_WRITE);
}

/* The whole address space, as a region that is paged on demand. */
static bool is_implicit(const struct ib_uverbs_reg_mr *request)
{
    return request->access_flags & IBV_ACCESS_ON_DEMAND && request->start == 0 &&
           request->length == UINT64_MAX;
}

/* With nvidia-peermem, the kernel asks the drivers of other devices for memory that it cannot pin itself. Here, a
 * shared mapping without any right (PROT_NONE) stands for a GPU's memory: the NIC maps its pages for itself, and a
 * program that touches them gets SIGSEGV. Returns false if it is no such memory. */
static bool map_peer_memory(struct object *object, uint64_t start, uint64_t bytes)
{
    const uint64_t first = start & ~4095ull, length = ((start + bytes + 4095) & ~4095ull) - first;
    if (madvise((void *)(uintptr_t)first, length, MADV_POPULATE_READ) == 0) {
        return false; /* the program can read it: it has the memory, but not the right to write */
    }
    /* Of a shared mapping, a length of 0 makes a second one of the same pages: mremap(2). */
    void *mapping = mremap((void *)(uintptr_t)first, 0, length, MREMAP_MAYMOVE);
    if (mapping == MAP_FAILED) {
        return false;
    }
    if (mprotect(mapping, length, PROT_READ | PROT_WRITE) != 0 ||
        madvise(mapping, length, MADV_POPULATE_WRITE) != 0) {
        real.munmap(mapping, length);
        return false;
    }
    object->mapping = mapping;
    object->mapping_bytes = length;
    return true;
}

int verb_reg_mr(const struct call *call)
{
    struct ib_uverbs_reg_mr request;
    struct object *domain;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_PD,
                                      &request.pd_handle, &domain);
    if (result) {
        return result;
    }
    if (!memory_access_makes_sense(request.access_flags) ||
        (request.start & 4095) != (request.hca_va & 4095)) {
        return request.access_flags & ~(uint32_t)ACCESS_KNOWN ? EOPNOTSUPP : EINVAL;
    }
    if (is_implicit(&request) ? request.hca_va != 0
                              : request.start + request.length < request.start) {
        return EINVAL;
    }
    result = memory_pin(request.start, request.length, request.access_flags);
    if (result && result != EFAULT) {
        return result;
    }
    struct memory_key *key = key_create(&process.nic, KEY_REGION, (uint32_t)domain->number);
    struct object *object = object_create_for(call->context, UVERBS_OBJECT_MR, key);
    if (!object) {
        return ENOMEM;
    }
    if (result && !map_peer_memory(object, request.start, request.length)) {
        object_destroy(object);
        return result;
    }
    key->access = request.access_flags;
    key->start = object->mapping ? (uint64_t)(uintptr_t)object->mapping + (request.start & 4095)
                                 : request.start;
    key->bytes = request.length;
    key->address = request.access_flags & ACCESS_ZERO_BASED ? request.start & 4095 : request.hca_va;
    object_use(object, domain);
    struct ib_uverbs_reg_mr_resp response = {object->handle, key->key, key->key};
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

/* Maps the pages of a dma-buf that a region is in, for the NIC. */
static int map_dmabuf(struct object *object, int fd, uint64_t offset, uint64_t bytes,
                      uint32_t access)
{
    struct stat found;
    uint64_t first = offset & ~4095ull;
    int protection = access & IBV_ACCESS_LOCAL_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    if (fstat(fd, &found) != 0) {
        return errno;
    }
    if (bytes == 0 || offset + bytes < offset || offset + bytes > (uint64_t)found.st_size) {
        return EINVAL;
    }
    void *mapping =
        real.mmap(NULL, offset + bytes - first, protection, MAP_SHARED, fd, (off_t)first);
    if (mapping == MAP_FAILED) {
        return errno;
    }
    object->mapping = mapping;
    object->mapping_bytes = offset + bytes - first;
    return 0;
}

/* The kernel takes dma-bufs only. Here any file that can be mapped will do, so that programs can be
 * tried on a machine where nothing exports dma-bufs. */
int verb_reg_dmabuf_mr(const struct call *call)
{
    struct object *domain =
        attribute_object(call, UVERBS_OBJECT_PD, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE);
    uint64_t offset = attribute_number(call, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 0);
    uint64_t bytes = attribute_number(call, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 0);
    uint64_t address = attribute_number(call, UVERBS_ATTR_REG_DMABUF_MR_IOVA, 0);
    int fd = (int)attribute_number(call, UVERBS_ATTR_REG_DMABUF_MR_FD, UINT64_MAX);
    uint32_t access = (uint32_t)attribute_number(call, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, 0);
    if (!domain) {
        return ENOENT;
    }
    if (!memory_access_makes_sense(access) || (offset & 4095) != (address & 4095)) {
        return access & ~(uint32_t)ACCESS_KNOWN ? EOPNOTSUPP : EINVAL;
    }
    struct memory_key *key = key_create(&process.nic, KEY_REGION, (uint32_t)domain->number);
    struct object *object = object_create_for(call->context, UVERBS_OBJECT_MR, key);
    if (!object) {
        return ENOMEM;
    }
    int result = map_dmabuf(object, fd, offset, bytes, access);
    if (result) {
        object_destroy(object);
        return result;
    }
    key->access = access;
    key->start = (uint64_t)(uintptr_t)object->mapping + (offset & 4095);
    key->bytes = bytes;
    key->address = access & ACCESS_ZERO_BASED ? 0 : address;
    object_use(object, domain);
    object->fixed = true;
    attribute_out_handle(call, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, object->handle);
    result = attribute_out32(call, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, key->key);
    return result ? result : attribute_out32(call, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, key->key);
}

int verb_rereg_mr(const struct call *call)
{
    struct ib_uverbs_rereg_mr request;
    struct object *object;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_MR,
                                      &request.mr_handle, &object);
    if (result) {
        return result;
    }
    uint32_t flags = request.flags;
    if (!flags || flags & ~(uint32_t)IBV_REREG_MR_FLAGS_SUPPORTED) {
        return EINVAL;
    }
    struct memory_key *key = object->thing;
    struct object *domain = NULL;
    if (flags & IBV_REREG_MR_CHANGE_PD &&
        !(domain = object_find(call->context, UVERBS_OBJECT_PD, request.pd_handle))) {
        return EINVAL;
    }
    if (flags & IBV_REREG_MR_CHANGE_ACCESS && !memory_access_makes_sense(request.access_flags)) {
        return EINVAL;
    }
    bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
    if (object->fixed && flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS)) {
        return EOPNOTSUPP;
    }
    if (moves && ((request.start & 4095) != (request.hca_va & 4095) || request.length == 0)) {
        return EINVAL;
    }
    if (flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS)) {
        result =
            memory_pin(moves ? request.start : key->start, moves ? request.length : key->bytes,
                       flags & IBV_REREG_MR_CHANGE_ACCESS ? request.access_flags : key->access);
        if (result) {
            return result;
        }
    }
    late_end_right(&process.nic, key);
    if (moves) {
        key->start = request.start;
        key->bytes = request.length;
        key->address = request.hca_va;
    }
    if (domain) {
        object->parents[0]->uses--;
        object->parents[0] = domain;
        domain->uses++;
        key->domain = (uint32_t)domain->number;
    }
    if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
        key->access = request.access_flags;
    }
    struct ib_uverbs_rereg_mr_resp response = {key->key, key->key};
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}

int verb_query_mr(const struct call *call)
{
    struct object *object = attribute_object(call, UVERBS_OBJECT_MR, UVERBS_ATTR_QUERY_MR_HANDLE);
    if (!object) {
        return ENOENT;
    }
    const struct memory_key *key = object->thing;
    int result = attribute_out32(call, UVERBS_ATTR_QUERY_MR_RESP_LKEY, key->key);
    if (!result) {
        result = attribute_out32(call, UVERBS_ATTR_QUERY_MR_RESP_RKEY, key->key);
    }
    if (!result) {
        result = attribute_out64(call, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, key->bytes);
    }
    return result ? result : attribute_out64(call, UVERBS_ATTR_QUERY_MR_RESP_IOVA, key->address);
}

int verb_alloc_mw(const struct call *call)
{
    struct ib_uverbs_alloc_mw request;
    struct object *domain;
    int result = attribute_command_on(call, &request, sizeof(request), UVERBS_OBJECT_PD,
                                      &request.pd_handle, &domain);
    if (result) {
        return result;
    }
    if ((request.mw_type != IBV_MW_TYPE_1 && request.mw_type != IBV_MW_TYPE_2)) {
        return EINVAL;
    }
    struct memory_key *key = key_create(&process.nic, KEY_WINDOW, (uint32_t)domain->number);
    struct object *object = object_create_for(call->context, UVERBS_OBJECT_MW, key);
    if (!object) {
        return ENOMEM;
    }
    object_use(object, domain);
    struct ib_uverbs_alloc_mw_resp response = {object->handle, key->key};
    return attribute_out(call, UVERBS_ATTR_CORE_OUT, &response, sizeof(response));
}
