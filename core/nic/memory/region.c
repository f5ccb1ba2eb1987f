/* region.c: registered memory: keys, bounds and rights.
 *
 * A key is slot << 16 | salt; remote keys have the top bit set and local keys have not, so that
 * taking one for the other is found. The salt is another one for every registration of the fabric,
 * so that the key of another nic, or of what was in the slot before, is found too.
 */
#include "nic/memory/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE_BYTES 4096u
#define SALT_STEP 40503u /* odd: all 65536 salts come before one comes again */

/* The lowest free slot, so that slots are used again soon; REGION_SLOTS if there is none. */
static uint32_t slot_take(struct memory_nic *nic)
{
    uint32_t slot = 0;

    while (slot < nic->region_slots && nic->regions[slot]) {
        slot++;
    }
    if (slot == nic->region_slots && slot < REGION_SLOTS) {
        nic->region_slots = slot ? slot * 2 : 16;
        nic->regions = realloc(nic->regions, nic->region_slots * sizeof(*nic->regions));
        memory_require(nic->regions, "no memory for %u registrations", nic->region_slots);
        for (uint32_t i = slot; i < nic->region_slots; i++) {
            nic->regions[i] = NULL;
        }
    }
    return slot;
}

static int32_t no_slot(const struct nic *base, crpc_error *error)
{
    return error_set(error, CRPC_E_NO_RESOURCE, ENOMEM, "%s has no more than %u registrations",
                     base->device, REGION_SLOTS);
}

/* NULL: there is no slot. */
static struct memory_region *region_add(struct nic *base, struct nic_domain *domain,
                                        uint64_t address, size_t bytes, uint32_t access)
{
    struct memory_nic *nic = memory_nic(base);
    const uint32_t slot = slot_take(nic);
    struct memory_region *region;
    uint32_t salt;

    if (slot == REGION_SLOTS) {
        return NULL;
    }
    region = memory_allocate(1, sizeof(*region));
    salt = (uint16_t)(++nic->fabric->next_key_salt * SALT_STEP);
    region->domain = memory_domain_use(base, domain);
    region->address = address;
    region->bytes = bytes;
    region->access = access;
    region->slot = slot;
    region->local_key = slot << 16 | salt;
    region->remote_key = region->local_key | REMOTE_KEY_BIT;
    nic->regions[slot] = region;
    nic->fabric->counters.regions++;
    return region;
}

static int32_t region_create(struct nic *base, struct nic_domain *domain, uint64_t address,
                             size_t bytes, uint32_t access, struct nic_keys *memory,
                             crpc_error *error)
{
    const uint32_t needs_local_write = CRPC_ACCESS_REMOTE_WRITE | CRPC_ACCESS_REMOTE_ATOMIC;
    struct memory_nic *nic = memory_nic(base);
    struct memory_region *region;
    int32_t status;

    if (memory_planned_failure(nic->fabric, MEMORY_FAIL_REGISTER, &status, error)) {
        return status;
    }
    if (bytes == 0 || address + bytes < address) {
        return error_set(error, CRPC_E_INVALID, EINVAL, "cannot register %zu bytes at 0x%" PRIx64,
                         bytes, address);
    }
    if ((access & needs_local_write) && !(access & CRPC_ACCESS_LOCAL_WRITE)) {
        return error_set(error, CRPC_E_INVALID, EINVAL,
                         "access 0x%x lets the peer write where this side may not", access);
    }
    region = region_add(base, domain, address, bytes, access);
    if (!region) {
        return no_slot(base, error);
    }
    *memory = (struct nic_keys){
        .local_key = region->local_key,
        .remote_key = region->remote_key,
        .driver = region,
    };
    return CRPC_OK;
}

int32_t memory_register(struct nic *base, struct nic_domain *domain, void *address, size_t bytes,
                        uint64_t remote_address, uint32_t access, struct nic_keys *memory,
                        crpc_error *error)
{
    const uint64_t shift = remote_address ? (uintptr_t)address - remote_address : 0;
    int32_t status;

    memory_require(shift % PAGE_BYTES == 0,
                   "0x%" PRIx64 " has another offset in its page than the memory", remote_address);
    status = region_create(base, domain, (uintptr_t)address - shift, bytes, access, memory, error);
    if (status == CRPC_OK) {
        ((struct memory_region *)memory->driver)->shift = shift;
    }
    return status;
}

int32_t memory_register_dmabuf(struct nic *base, struct nic_domain *domain, int fd, uint64_t offset,
                               size_t bytes, uint64_t address, uint32_t access,
                               struct nic_keys *memory, crpc_error *error)
{
    struct stat found;

    if (fstat(fd, &found) != 0) {
        return error_set(error, CRPC_E_INVALID, errno, "%s: descriptor %d is no dma-buf: %s",
                         base->device, fd, strerror(errno));
    }
    if (offset > (uint64_t)found.st_size || bytes > (uint64_t)found.st_size - offset) {
        return error_set(error, CRPC_E_INVALID, EINVAL,
                         "%s: the dma-buf has %" PRIu64 " bytes, not %zu from %" PRIu64,
                         base->device, (uint64_t)found.st_size, bytes, offset);
    }
    return region_create(base, domain, address, bytes, access, memory, error);
}

/* ---- Windows --------------------------------------------------------------------------------- */

bool memory_window_allows(const struct memory_queue_pair *target,
                          const struct memory_region *window)
{
    const struct memory_region *memory = memory_region_find(target->nic, window->memory_key);

    return window->bound && window->bound_number == target->base.number && memory &&
           memory->local_key == window->memory_key;
}

int32_t memory_window_create(struct nic *base, struct nic_window *window, crpc_error *error)
{
    struct memory_nic *nic = memory_nic(base);
    struct memory_region *region;
    int32_t status;

    memory_require(base->windows, "%s has no windows", base->device);
    nic->fabric->counters.made++;
    if (memory_planned_failure(nic->fabric, MEMORY_FAIL_WINDOW, &status, error)) {
        return status;
    }
    region = region_add(base, NULL, 0, 0, CRPC_ACCESS_REMOTE_WRITE);
    if (!region) {
        return no_slot(base, error);
    }
    region->window = true;
    *window = (struct nic_window){
        .remote_key = region->remote_key, .access = CRPC_ACCESS_REMOTE_WRITE, .driver = region};
    return CRPC_OK;
}

void memory_window_destroy(struct nic *base, struct nic_window *window)
{
    struct memory_nic *nic = memory_nic(base);

    memory_held_land_all(nic);
    if (window->driver) {
        nic->fabric->counters.unmade++;
        memory_region_free(nic, window->driver);
    }
    *window = (struct nic_window){0};
}

static bool window_bind(const struct memory_queue_pair *queue_pair, struct memory_region *window,
                        const struct nic_transfer *transfer)
{
    const struct memory_region *memory = memory_region_find(queue_pair->nic, transfer->local_key);
    const uint32_t access = (uint32_t)transfer->remote_address;
    const uint32_t needed = access == CRPC_ACCESS_REMOTE_READ ? 0 : CRPC_ACCESS_LOCAL_WRITE;

    if (window->bound ||
        !memory_allows_local(queue_pair, transfer->local_key, transfer->local_address,
                             transfer->bytes, needed | NIC_ACCESS_WINDOWS)) {
        return false;
    }
    window->access = access;
    window->address = transfer->local_address;
    window->bytes = transfer->bytes;
    window->remote_key = transfer->remote_key;
    window->memory_key = memory->local_key;
    window->bound_number = queue_pair->base.number;
    window->bound = true;
    return true;
}

bool memory_window_invalidate(const struct memory_queue_pair *queue_pair, uint32_t key)
{
    struct memory_region *window = memory_region_find(queue_pair->nic, key);

    if (!window || !window->window || window->remote_key != key || !window->bound ||
        window->bound_number != queue_pair->base.number) {
        return false;
    }
    window->bound = false;
    return true;
}

bool memory_window_execute(struct memory_queue_pair *queue_pair, const struct memory_wqe *wqe)
{
    const struct nic_transfer *transfer = &wqe->transfer;
    const uint32_t key = transfer->immediate;
    struct memory_region *window = memory_region_find(queue_pair->nic, key);

    if (wqe->opcode == MEMORY_INVALIDATE) {
        memory_held_land(queue_pair, UINT64_MAX);
        return memory_window_invalidate(queue_pair, transfer->remote_key);
    }
    return window && window->window && window->remote_key == key &&
           window_bind(queue_pair, window, transfer);
}

uint32_t memory_windows_bound(const struct memory_queue_pair *queue_pair)
{
    const struct memory_nic *nic = queue_pair->nic;
    uint32_t count = 0;

    for (uint32_t i = 0; i < nic->region_slots; i++) {
        const struct memory_region *region = nic->regions[i];
        count += region && region->bound && region->bound_number == queue_pair->base.number;
    }
    return count;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void memory_region_free(struct memory_nic *nic, struct memory_region *region)
{
    nic->regions[region->slot] = NULL;
    nic->fabric->counters.regions--;
    memory_domain_leave(region->domain);
    free(region);
}

void memory_deregister(struct nic *base, struct nic_keys *memory)
{
    struct memory_nic *nic = memory_nic(base);
    struct memory_region *region = memory->driver;

    if (!region) {
        return;
    }
    /* The keys, not the pointer, say whether it is alive: the pointer may be stale. */
    memory_require(memory_region_find(nic, memory->local_key) == region &&
                       region->local_key == memory->local_key,
                   "key 0x%x is not registered with %s, or not any more", memory->local_key,
                   nic->base.device);
    memory_held_land_all(nic);
    memory_region_free(nic, region);
    memory->driver = NULL;
}
