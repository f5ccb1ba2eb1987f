/* region.c: memory that the caller registers. */
#include <errno.h>
#include <stdlib.h>

#include "error.h"
#include "private/context.h"
#include "private/copyin.h"

static int32_t check_region(const void *address, uint64_t bytes, uint32_t access, crpc_error *error)
{
    const uint32_t writes = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC;
    const uint32_t known = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_READ | writes;
    if (!address || bytes == 0 || bytes > UINT64_MAX - (uint64_t)(uintptr_t)address) {
        return error_set(error, CRPC_E_INVALID, 0, "a region needs an address and a length");
    }
    if (access & ~known) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "access 0x%x has bits that are not CRPC_ACCESS_*", access);
    }
    if ((access & writes) && !(access & CRPC_ACCESS_LOCAL_WRITE)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "CRPC_ACCESS_REMOTE_WRITE and _ATOMIC need CRPC_ACCESS_LOCAL_WRITE too");
    }
    return CRPC_OK;
}

static int32_t register_region(crpc_context *context, void *address, uint64_t bytes,
                               uint32_t access, crpc_region *out, crpc_error *error)
{
    int32_t status = check_region(address, bytes, access, error);
    if (status != CRPC_OK) {
        return status;
    }
    struct region *region = calloc(1, sizeof(*region));
    if (!region) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a region");
    }
    const struct nic_operations *operations = context->nic->operations;
    status =
        operations->memory_register(context->nic, address, bytes, access, &region->memory, error);
    if (status != CRPC_OK) {
        free(region);
        return status;
    }
    region->handle = handles_add(rpc_engine_handles(context->engine), HANDLE_REGION, region);
    if (region->handle == 0) {
        operations->memory_deregister(context->nic, &region->memory);
        free(region);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a region's handle");
    }
    region->address = (uint64_t)(uintptr_t)address;
    region->bytes = bytes;
    region->access = access;
    list_append(&context->regions, &region->link);
    out->bits = region->handle;
    return CRPC_OK;
}

int32_t crpc_region_register(crpc_context *context, void *address, uint64_t bytes, uint32_t access,
                             crpc_region *region, crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && region
                         ? register_region(context, address, bytes, access, region, &failure)
                         : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

static struct region *region_of(const crpc_context *context, crpc_region region)
{
    return handles_get(context->handles, region.bits, HANDLE_REGION);
}

int32_t crpc_region_get_info(crpc_context *context, crpc_region region, crpc_region_info *info)
{
    if (!context || COPYOUT_CHECK(info, region_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    const struct region *object = region_of(context, region);
    if (!object) {
        return CRPC_E_STALE;
    }
    crpc_region_info ours = {.access = object->access,
                             .address = object->address,
                             .bytes = object->bytes,
                             .local_key = object->memory.local_key,
                             .remote_key = object->memory.remote_key};
    COPYOUT(info, &ours, region_info);
    return CRPC_OK;
}

static void deregister(crpc_context *context, struct region *region)
{
    handles_remove(rpc_engine_handles(context->engine), region->handle);
    context->nic->operations->memory_deregister(context->nic, &region->memory);
    list_remove(&region->link);
    free(region);
}

int32_t crpc_region_deregister(crpc_context *context, crpc_region region)
{
    if (!context) {
        return CRPC_E_INVALID;
    }
    struct region *object = region_of(context, region);
    if (!object) {
        return CRPC_E_STALE;
    }
    deregister(context, object);
    return CRPC_OK;
}

void context_close_regions(struct crpc_context *context)
{
    while (!list_empty(&context->regions)) {
        /* The analyzer does not see that deregister takes a region off the list. */
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        deregister(context, list_entry(context->regions.next, struct region, link));
    }
}
