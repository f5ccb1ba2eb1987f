/* device_memory.c: see device_memory.h. The memory is in the file of the NIC's pages, at the offsets that libmlx5 maps. Both devices of
 * the process have some of it. A page is in use while an allocation or a mapping has it. */
#include "simnic/shim/kernel/device_memory.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <string.h>

#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/verbs.h"
#include "simnic/shim/process/process.h"

#define ACCESS_ALLOWED                                                                             \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED)

_Static_assert(DEVICE_MEMORY_FIRST_PAGE == MLX5_IB_MMAP_DEVICE_MEM << 8, "libmlx5 maps others");
_Static_assert(DEVICE_MEMORY_END_PAGE <= DEVICE_MEMORY_FIRST_PAGE + 256,
               "then libmlx5 goes on elsewhere");

/* By page: how many allocations and mappings have it. */
static uint8_t users[DEVICE_MEMORY_END_PAGE - DEVICE_MEMORY_FIRST_PAGE];

static uint64_t pages_of(uint64_t bytes)
{
    return bytes / DEVICE_MEMORY_PAGE_BYTES + (bytes % DEVICE_MEMORY_PAGE_BYTES != 0);
}

static void use(uint32_t page, uint64_t pages, int change)
{
    for (uint64_t i = 0; i < pages; i++) {
        users[page - DEVICE_MEMORY_FIRST_PAGE + i] += (uint8_t)change;
    }
}

/* The first of so many free pages of a device, in a row; 0 if there are none. */
static uint32_t find_pages(int rail, uint64_t pages)
{
    uint32_t first = DEVICE_MEMORY_FIRST_PAGE + (uint32_t)rail * DEVICE_MEMORY_PAGES;
    uint32_t free_pages = 0;
    for (uint32_t page = first; page < first + DEVICE_MEMORY_PAGES; page++) {
        free_pages = users[page - DEVICE_MEMORY_FIRST_PAGE] ? 0 : free_pages + 1;
        if (free_pages == pages) {
            return (uint32_t)(page + 1 - pages);
        }
    }
    return 0;
}

static uint8_t *memory_of(const struct object *object)
{
    return process.page_memory + object->number * DEVICE_MEMORY_PAGE_BYTES;
}

static int tell_place(const struct call *call, const struct object *object, uint16_t page_id,
                      uint16_t offset_id)
{
    const uint16_t index = (uint16_t)(object->number - DEVICE_MEMORY_FIRST_PAGE);
    int result = attribute_out(call, page_id, &index, sizeof(index));
    return result ? result : attribute_out64(call, offset_id, 0);
}

int verb_alloc_device_memory(const struct call *call)
{
    uint64_t bytes = attribute_number(call, UVERBS_ATTR_ALLOC_DM_LENGTH, 0);
    uint64_t log_alignment = attribute_number(call, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 0);
    uint64_t type =
        attribute_number(call, MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_UAPI_DM_TYPE_MEMIC);
    if (type != MLX5_IB_UAPI_DM_TYPE_MEMIC) { /* memory for flow steering */
        return EOPNOTSUPP;
    }
    if (bytes == 0 || log_alignment > DEVICE_MEMORY_LOG_ALIGNMENT_MOST) {
        return EINVAL;
    }
    uint32_t page =
        bytes <= DEVICE_MEMORY_BYTES ? find_pages(call->context->rail, pages_of(bytes)) : 0;
    struct object *object = page ? object_create(call->context, UVERBS_OBJECT_DM) : NULL;
    if (!object) {
        return ENOMEM;
    }
    object->number = page;
    object->bytes = bytes;
    use(page, pages_of(bytes), 1);
    memset(memory_of(object), 0, (size_t)pages_of(bytes) * DEVICE_MEMORY_PAGE_BYTES);
    attribute_out_handle(call, UVERBS_ATTR_ALLOC_DM_HANDLE, object->handle);
    return tell_place(call, object, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
                      MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET);
}

void device_memory_free(const struct object *object)
{
    use((uint32_t)object->number, pages_of(object->bytes), -1);
}

/* For a context that was imported, whose libmlx5 knows of the handle alone. */
int mlx5_query_device_memory(const struct call *call)
{
    const struct object *object =
        attribute_object(call, UVERBS_OBJECT_DM, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE);
    if (!object) {
        return ENOENT;
    }
    int result = tell_place(call, object, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX,
                            MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET);
    return result ? result
                  : attribute_out64(call, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, object->bytes);
}

/* Addresses at which an access is an atomic operation: this adapter has no such operations. */
int mlx5_map_device_memory_operation(const struct call *call)
{
    return attribute_object(call, UVERBS_OBJECT_DM, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE)
               ? EOPNOTSUPP
               : ENOENT;
}

int verb_reg_device_memory_mr(const struct call *call)
{
    struct object *domain =
        attribute_object(call, UVERBS_OBJECT_PD, UVERBS_ATTR_REG_DM_MR_PD_HANDLE);
    struct object *memory =
        attribute_object(call, UVERBS_OBJECT_DM, UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
    uint64_t offset = attribute_number(call, UVERBS_ATTR_REG_DM_MR_OFFSET, 0);
    uint64_t bytes = attribute_number(call, UVERBS_ATTR_REG_DM_MR_LENGTH, 0);
    uint32_t access = (uint32_t)attribute_number(call, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, 0);
    if (!domain || !memory) {
        return ENOENT;
    }
    if (!(access & IBV_ACCESS_ZERO_BASED) || access & ~(uint32_t)ACCESS_ALLOWED ||
        !memory_access_makes_sense(access) || offset > memory->bytes ||
        bytes > memory->bytes - offset) {
        return EINVAL;
    }
    struct memory_key *key = key_create(&process.nic, KEY_REGION, (uint32_t)domain->number);
    struct object *object = object_create_for(call->context, UVERBS_OBJECT_MR, key);
    if (!object) {
        return ENOMEM;
    }
    key->access = access;
    key->start = (uint64_t)(uintptr_t)memory_of(memory) + offset;
    key->bytes = bytes;
    key->address = 0;
    object_use(object, domain);
    object_use(object, memory);
    object->fixed = true;
    attribute_out_handle(call, UVERBS_ATTR_REG_DM_MR_HANDLE, object->handle);
    int result = attribute_out32(call, UVERBS_ATTR_REG_DM_MR_RESP_LKEY, key->key);
    return result ? result : attribute_out32(call, UVERBS_ATTR_REG_DM_MR_RESP_RKEY, key->key);
}

/* ---- mapping ---- */

bool device_memory_may_map(const struct context *context, size_t page, size_t bytes)
{
    for (uint32_t handle = 0; handle < context->object_count; handle++) {
        const struct object *object = context->objects[handle];
        if (object && object->type == UVERBS_OBJECT_DM && object->number == page) {
            return pages_of(object->bytes) == pages_of(bytes);
        }
    }
    return false;
}

void device_memory_map(size_t page, size_t bytes)
{
    use((uint32_t)page, pages_of(bytes), 1);
}

void device_memory_unmap(size_t page, size_t bytes)
{
    use((uint32_t)page, pages_of(bytes), -1);
}

void device_memory_forget(void)
{
    memset(users, 0, sizeof(users));
}
