/* memory.c: memory that is registered with the rails: regions, the channels' own, and a cache of
 * registrations for plain memory.
 *
 * The cache is an array of disjoint registrations in the order of their addresses: found by halving,
 * without a hash or a list. It is bounded; what was used least lately goes first. What ops still use
 * is kept on a list of its own when it has left the array.
 */
#include "channel/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

#define CACHE_REGISTRATIONS_MAX 1024u
#define CACHE_BYTES_MAX (UINT64_C(16) << 30)

struct cached {
    struct registration region;
    struct list link; /* in cache->left, once it has left the array */
    uint64_t used;    /* clock of the cache when it was used last */
};

struct registration_cache {
    struct cached *entries[CACHE_REGISTRATIONS_MAX];
    uint32_t count;
    uint64_t clock;
    uint64_t page_bytes;
    struct list left;
    struct cached *last; /* used last: often the next, too */
    crpc_cache_info info;
};

/* ---- Regions --------------------------------------------------------------------------------- */

/* region->rails tells which rails have it, *first why the first of the others has not. */
static void register_with_rails(const struct channel_engine *engine, uint64_t address,
                                uint64_t bytes, uint32_t access, int fd, uint64_t fd_offset,
                                struct registration *region, crpc_error *first)
{
    *first = (crpc_error){0};
    *region = (struct registration){.address = address, .bytes = bytes, .access = access};
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        const struct engine_rail *rail = &engine->rails[i];
        crpc_error failure = {0};
        int32_t status =
            fd < 0
                ? rail->operations->memory_register(rail->nic, (void *)(uintptr_t)address, bytes,
                                                    access, &region->memory[i], &failure)
                : rail->operations->memory_register_dmabuf(rail->nic, fd, fd_offset, bytes, address,
                                                           access, &region->memory[i], &failure);
        if (status == CRPC_OK) {
            region->rails |= 1u << i;
        } else if (first->status == CRPC_OK) {
            *first = failure;
        }
    }
    if (region->rails != 0 && first->status != CRPC_OK) {
        log_write(engine->links.log, CRPC_LOG_WARNING,
                  "memory could not be registered with every rail, so channels over all of them "
                  "cannot use it: %s",
                  first->message);
    }
}

int32_t registration_make(struct channel_engine *engine, uint64_t address, uint64_t bytes,
                          uint32_t access, int fd, uint64_t fd_offset, struct registration *region,
                          crpc_error *error)
{
    crpc_error first;
    register_with_rails(engine, address, bytes, access, fd, fd_offset, region, &first);
    if (region->rails == 0) {
        *error = first;
        return first.status;
    }
    return CRPC_OK;
}

void registration_end(struct channel_engine *engine, struct registration *region)
{
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        if (region->rails & 1u << i) {
            engine->rails[i].operations->memory_deregister(engine->rails[i].nic,
                                                           &region->memory[i]);
        }
    }
    region->rails = 0;
}

/* ---- The channels' own memory ---------------------------------------------------------------- */

int32_t memory_create(struct channel_engine *engine, struct channel_area *memory, uint64_t bytes,
                      uint32_t rails, uint32_t access, crpc_error *error)
{
    memory->bytes = align_up(bytes, engine->cache->page_bytes);
    memory->base =
        mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory->base == MAP_FAILED) {
        memory->base = NULL;
        return error_set(error, CRPC_E_NO_MEMORY, errno, "no memory for a channel");
    }
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        const struct engine_rail *rail = &engine->rails[i];
        if (!(rails & 1u << i)) {
            continue;
        }
        int32_t status = rail->operations->memory_register(rail->nic, memory->base, memory->bytes,
                                                           access, &memory->keys[i], error);
        if (status != CRPC_OK) {
            return status;
        }
    }
    return CRPC_OK;
}

void memory_destroy(struct channel_engine *engine, struct channel_area *memory)
{
    for (uint32_t i = 0; i < engine->rail_count; i++) {
        if (memory->keys[i].driver) {
            engine->rails[i].operations->memory_deregister(engine->rails[i].nic, &memory->keys[i]);
        }
    }
    if (memory->base) {
        munmap(memory->base, memory->bytes);
    }
    *memory = (struct channel_area){0};
}

/* ---- Cache ----------------------------------------------------------------------------------- */

int32_t cache_create(struct channel_engine *engine, crpc_error *error)
{
    struct registration_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for the rails");
    }
    list_init(&cache->left);
    cache->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    cache->info.registrations_max = CACHE_REGISTRATIONS_MAX;
    cache->info.bytes_max = CACHE_BYTES_MAX;
    engine->cache = cache;
    return CRPC_OK;
}

static void destroy(struct channel_engine *engine, struct cached *cached)
{
    registration_end(engine, &cached->region);
    list_remove(&cached->link);
    free(cached);
}

/* Those that have left and that no op uses any more. */
static void sweep(struct channel_engine *engine)
{
    struct list *link = engine->cache->left.next;
    while (link != &engine->cache->left) {
        struct cached *cached = list_entry(link, struct cached, link);
        /* The analyzer does not see that destroy takes an entry off the list. */
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        link = link->next;
        if (cached->region.users == 0) {
            destroy(engine, cached);
        }
    }
}

/* Takes an entry out of the array. */
static void leave(struct channel_engine *engine, uint32_t place)
{
    struct registration_cache *cache = engine->cache;
    struct cached *cached = cache->entries[place];
    cache->count--;
    cache->info.bytes -= cached->region.bytes;
    cache->last = NULL;
    memmove(&cache->entries[place], &cache->entries[place + 1],
            (cache->count - place) * sizeof(cache->entries[0]));
    list_append(&cache->left, &cached->link);
    sweep(engine);
}

void cache_destroy(struct channel_engine *engine)
{
    struct registration_cache *cache = engine->cache;
    if (!cache) {
        return;
    }
    for (uint32_t i = 0; i < cache->count; i++) {
        destroy(engine, cache->entries[i]);
    }
    sweep(engine);
    assert(list_empty(&cache->left)); /* all channels are gone, and their ops with them */
    free(cache);
    engine->cache = NULL;
}

static uint64_t end_of(const struct cached *cached)
{
    return cached->region.address + cached->region.bytes;
}

/* The first entry that ends after `address`. */
static uint32_t find(const struct registration_cache *cache, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = cache->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (end_of(cache->entries[middle]) <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool covers(const struct cached *cached, uint64_t address, uint64_t end)
{
    return cached->region.address <= address && end_of(cached) >= end;
}

static void evict_one(struct channel_engine *engine)
{
    struct registration_cache *cache = engine->cache;
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < cache->count; i++) {
        if (cache->entries[i]->used < cache->entries[oldest]->used) {
            oldest = i;
        }
    }
    cache->info.evictions++;
    leave(engine, oldest);
}

/* What some rails could lock and others could not would stay in the cache as it is: it fails as a whole,
 * and what leaves the cache makes room. Memory that cannot be written can still be sent. */
static int32_t register_plain(struct channel_engine *engine, uint64_t address, uint64_t bytes,
                              struct registration *region, crpc_error *error)
{
    crpc_error first;
    register_with_rails(engine, address, bytes, CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                        -1, 0, region, &first);
    if (first.status == CRPC_E_MEMLOCK ||
        (region->rails == 0 && first.status == CRPC_E_NO_RESOURCE)) {
        registration_end(engine, region);
        *error = first;
        return first.status;
    }
    if (region->rails != 0) {
        return CRPC_OK;
    }
    return registration_make(engine, address, bytes, 0, -1, 0, region, error);
}

static int32_t add(struct channel_engine *engine, uint64_t address, uint64_t end,
                   struct cached **out, crpc_error *error)
{
    struct registration_cache *cache = engine->cache;
    struct cached *cached = calloc(1, sizeof(*cached));
    if (!cached) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a registration");
    }
    list_init(&cached->link);
    while (cache->count > 0 && (cache->count == CACHE_REGISTRATIONS_MAX ||
                                cache->info.bytes + (end - address) > CACHE_BYTES_MAX)) {
        evict_one(engine);
    }
    int32_t status = register_plain(engine, address, end - address, &cached->region, error);
    while (status == CRPC_E_MEMLOCK && cache->count > 0) {
        evict_one(engine);
        status = register_plain(engine, address, end - address, &cached->region, error);
    }
    if (status != CRPC_OK) {
        free(cached);
        return status;
    }
    uint32_t place = find(cache, address);
    memmove(&cache->entries[place + 1], &cache->entries[place],
            (cache->count - place) * sizeof(cache->entries[0]));
    cache->entries[place] = cached;
    cache->count++;
    cache->info.bytes += end - address;
    *out = cached;
    return CRPC_OK;
}

/* Registers the pages of [address, end) anew, in place of all that touch them. */
static int32_t add_over(struct channel_engine *engine, uint64_t address, uint64_t end,
                        struct cached **out, crpc_error *error)
{
    struct registration_cache *cache = engine->cache;
    uint64_t page_mask = cache->page_bytes - 1;
    uint64_t low = address & ~page_mask;
    uint64_t high = align_up(end, cache->page_bytes);
    uint64_t all_low = low;
    uint64_t all_high = high;
    uint32_t place = find(cache, low);
    while (place < cache->count && cache->entries[place]->region.address < high) {
        all_low = minimum(all_low, cache->entries[place]->region.address);
        all_high = maximum(all_high, end_of(cache->entries[place]));
        leave(engine, place);
    }
    int32_t status = add(engine, all_low, all_high, out, error);
    if (status != CRPC_OK && (all_low != low || all_high != high)) {
        /* What they covered may have been unmapped since. */
        status = add(engine, low, high, out, error);
    }
    return status;
}

int32_t registration_cache_get(struct channel_engine *engine, uint64_t address, uint64_t bytes,
                               struct registration **region, crpc_error *error)
{
    struct registration_cache *cache = engine->cache;
    uint64_t end = address + bytes;
    struct cached *cached = cache->last;
    if (unlikely(!cached || !covers(cached, address, end))) {
        uint32_t place = find(cache, address);
        if (place < cache->count && covers(cache->entries[place], address, end)) {
            cached = cache->entries[place];
            cache->info.hits++;
        } else {
            cache->info.misses++;
            int32_t status = add_over(engine, address, end, &cached, error);
            if (status != CRPC_OK) {
                return status;
            }
        }
        cache->last = cached;
    } else {
        cache->info.hits++;
    }
    cached->used = ++cache->clock;
    *region = &cached->region;
    return CRPC_OK;
}

int32_t registration_cache_forget(struct channel_engine *engine, uint64_t address, uint64_t bytes)
{
    struct registration_cache *cache = engine->cache;
    uint64_t end = bytes == 0 ? UINT64_MAX : address + bytes;
    address = bytes == 0 ? 0 : address;
    for (const struct list *link = cache->left.next; link != &cache->left; link = link->next) {
        const struct cached *cached = list_entry(link, struct cached, link);
        if (cached->region.users > 0 && cached->region.address < end && end_of(cached) > address) {
            return CRPC_E_BUSY;
        }
    }
    uint32_t first = find(cache, address);
    uint32_t last = first;
    while (last < cache->count && cache->entries[last]->region.address < end) {
        if (cache->entries[last++]->region.users > 0) {
            return CRPC_E_BUSY;
        }
    }
    for (uint32_t i = first; i < last; i++) {
        leave(engine, first);
    }
    sweep(engine);
    return (int32_t)(last - first);
}

void registration_cache_info(const struct channel_engine *engine, crpc_cache_info *info)
{
    *info = engine->cache->info;
    info->registrations = engine->cache->count;
}
