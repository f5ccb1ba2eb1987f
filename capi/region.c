/* region.c: memory that the caller registers, and what channels registered for it. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "private/context.h"
#include "private/copyin.h"

#define NO_FD (-1)

/* What is to be registered: plain memory, or part of a dma-buf. */
struct extent {
    uint64_t address;
    uint64_t bytes;
    uint64_t fd_offset;
    int fd; /* NO_FD: plain memory */
};

static bool ends_past_all(uint64_t start, uint64_t bytes)
{
    return bytes > UINT64_MAX - start;
}

static int32_t check_extent(const struct extent *extent, crpc_error *error)
{
    if (extent->bytes == 0 || ends_past_all(extent->address, extent->bytes) ||
        (extent->fd == NO_FD && extent->address == 0)) {
        return error_set(error, CRPC_E_INVALID, 0, "a region needs an address and a length");
    }
    if (ends_past_all(extent->fd_offset, extent->bytes)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "offset and bytes lead past the end of any dma-buf");
    }
    return CRPC_OK;
}

static int32_t check_access(uint32_t access, crpc_error *error)
{
    const uint32_t writes = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC;
    const uint32_t whose = CRPC_ACCESS_DEVICE | CRPC_ACCESS_HOST;
    const uint32_t known = CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_READ | writes | whose;
    if (access & ~known) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "access 0x%x has bits that are not CRPC_ACCESS_*", access);
    }
    if ((access & writes) && !(access & CRPC_ACCESS_LOCAL_WRITE)) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "CRPC_ACCESS_REMOTE_WRITE and _ATOMIC need CRPC_ACCESS_LOCAL_WRITE too");
    }
    if ((access & whose) == whose) {
        return error_set(error, CRPC_E_INVALID, 0,
                         "CRPC_ACCESS_DEVICE and CRPC_ACCESS_HOST contradict each other");
    }
    return CRPC_OK;
}

/* What core is told: CRPC_ACCESS_DEVICE, if the processor may not touch the memory, and the rights. */
static uint32_t access_in_core(const struct extent *extent, uint32_t access)
{
    if (extent->fd != NO_FD && !(access & CRPC_ACCESS_HOST)) {
        access |= CRPC_ACCESS_DEVICE;
    }
    return access & ~CRPC_ACCESS_HOST;
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* With the nic for calls, the peers of queues get the rights that the caller says. Those of endpoints get
 * theirs by windows. */
static uint32_t calls_access(const crpc_context *context, uint32_t access)
{
    return (context->queues ? access : access & (CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_DEVICE)) |
           (context->nic->windows ? NIC_ACCESS_WINDOWS : 0);
}

static int32_t register_with_all(crpc_context *context, const struct extent *extent,
                                 uint32_t access, struct region *region, crpc_error *error)
{
    int32_t status = registration_make(&context->calls, extent->address, extent->bytes,
                                       calls_access(context, access), extent->fd, extent->fd_offset,
                                       &region->calls, error);
    if (status == CRPC_OK && context->channels) {
        status = registration_make(&context->rails, extent->address, extent->bytes, access,
                                   extent->fd, extent->fd_offset, &region->rails, error);
        if (status != CRPC_OK) {
            registration_end(&context->calls, &region->calls);
        }
    }
    return status;
}

/* Also when the engine of the rails has ended, so that nothing uses the memory any more. */
static void deregister_from_all(crpc_context *context, struct region *region)
{
    registration_end(&context->calls, &region->calls);
    registration_end(&context->rails, &region->rails);
}

/* ---- Payloads of endpoints -------------------------------------------------------------------- */

/* An endpoint registers the region later, when the caller may have closed its file. */
static int32_t keep_fd(struct region *region, const struct extent *extent, crpc_error *error)
{
    region->payloads = (struct rpc_region){.address = extent->address,
                                           .bytes = extent->bytes,
                                           .fd = NO_FD,
                                           .foreign = region->foreign,
                                           .fd_offset = extent->fd_offset,
                                           .users = &region->calls.users};
    rpc_region_init(&region->payloads);
    if (extent->fd != NO_FD) {
        region->payloads.fd = fcntl(extent->fd, F_DUPFD_CLOEXEC, 0);
        if (region->payloads.fd < 0) {
            return error_set(error, CRPC_E_SYSTEM, errno, "the dma-buf %d cannot be kept: %s",
                             extent->fd, strerror(errno));
        }
    }
    return CRPC_OK;
}

static void drop_fd(struct region *region)
{
    if (region->payloads.fd >= 0) {
        close(region->payloads.fd);
    }
}

int32_t crpc_region_prepare(crpc_context *context, crpc_region region, crpc_endpoint endpoint,
                            crpc_error *error)
{
    crpc_error failure = {0};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = CRPC_E_INVALID;
    if (context) {
        struct region *object = region_of(context, region);
        struct rpc_endpoint *to = endpoint_of(context, endpoint);
        status = object && to ? rpc_region_prepare(to, &object->payloads, &failure)
                              : error_set(&failure, CRPC_E_STALE, 0, "there is no such %s",
                                          object ? "endpoint" : "region");
    }
    return give_error(error, &failure, status);
}

/* ---- Register -------------------------------------------------------------------------------- */

static int32_t register_region(crpc_context *context, const struct extent *extent, uint32_t access,
                               crpc_region *out, crpc_error *error)
{
    int32_t status = check_extent(extent, error);
    if (status == CRPC_OK) {
        status = check_access(access, error);
    }
    if (status != CRPC_OK) {
        return status;
    }
    struct region *region = calloc(1, sizeof(*region));
    if (!region) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a region");
    }
    const uint32_t told = access_in_core(extent, access);
    region->foreign = told & CRPC_ACCESS_DEVICE;
    status = register_with_all(context, extent, told, region, error);
    if (status != CRPC_OK) {
        free(region);
        return status;
    }
    status = keep_fd(region, extent, error);
    if (status != CRPC_OK) {
        deregister_from_all(context, region);
        free(region);
        return status;
    }
    region->handle = handles_add(&context->handles, HANDLE_REGION, region);
    if (region->handle == 0) {
        drop_fd(region);
        deregister_from_all(context, region);
        free(region);
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a region's handle");
    }
    region->address = extent->address;
    region->bytes = extent->bytes;
    region->access = access;
    list_append(&context->regions, &region->link);
    out->bits = region->handle;
    return CRPC_OK;
}

int32_t crpc_region_register(crpc_context *context, void *address, uint64_t bytes, uint32_t access,
                             crpc_region *region, crpc_error *error)
{
    crpc_error failure = {0};
    struct extent extent = {.address = (uint64_t)(uintptr_t)address, .bytes = bytes, .fd = NO_FD};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context && region ? register_region(context, &extent, access, region, &failure)
                                       : CRPC_E_INVALID;
    return give_error(error, &failure, status);
}

int32_t crpc_region_register_dmabuf(crpc_context *context, int32_t fd, uint64_t offset,
                                    uint64_t bytes, uint64_t address, uint32_t access,
                                    crpc_region *region, crpc_error *error)
{
    crpc_error failure = {0};
    struct extent extent = {.address = address, .bytes = bytes, .fd_offset = offset, .fd = fd};
    if (!error_usable(error)) {
        return CRPC_E_INVALID;
    }
    int32_t status = CRPC_E_INVALID;
    if (context && region) {
        status = fd < 0 ? error_set(&failure, status, 0,
                                    "%d is no file descriptor: give that of a dma-buf", fd)
                        : register_region(context, &extent, access, region, &failure);
    }
    return give_error(error, &failure, status);
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
                             .local_key = object->calls.keys[0].local_key,
                             .remote_key = object->calls.keys[0].remote_key};
    COPYOUT(info, &ours, region_info);
    return CRPC_OK;
}

static void deregister(crpc_context *context, struct region *region)
{
    handles_remove(&context->handles, region->handle);
    context->queue_memory = (struct queue_memory){0};
    rpc_region_end(&region->payloads);
    drop_fd(region);
    deregister_from_all(context, region);
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
    if (object->rails.users > 0 || object->calls.users > 0) {
        return CRPC_E_BUSY;
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

/* ---- Cache ----------------------------------------------------------------------------------- */

int32_t crpc_cache_forget(crpc_context *context, const void *address, uint64_t bytes)
{
    uint64_t start = (uint64_t)(uintptr_t)address;
    if (!context || ends_past_all(start, bytes)) {
        return CRPC_E_INVALID;
    }
    int32_t status = context_check_rails(context, NULL);
    return status == CRPC_OK ? registration_cache_forget(context->cache, start, bytes) : status;
}

int32_t crpc_cache_get_info(crpc_context *context, crpc_cache_info *info)
{
    if (!context || COPYOUT_CHECK(info, cache_info) != CRPC_OK) {
        return CRPC_E_INVALID;
    }
    int32_t status = context_check_rails(context, NULL);
    if (status != CRPC_OK) {
        return status;
    }
    crpc_cache_info ours = {0};
    registration_cache_info(context->cache, &ours);
    COPYOUT(info, &ours, cache_info);
    return CRPC_OK;
}
