/* cache.c: a cache of registrations for plain memory.
 *
 * It is an array of disjoint registrations in the order of their addresses: found by halving,
 * without a hash or a list. It is bounded; what was used least lately goes first. What ops still use
 * is kept on a list of its own when it has left the array.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/list.h"
#include "base/page.h"
#include "registration/internal.h"

#define CACHE_REGISTRATIONS_MAX 1024u
#define CACHE_BYTES_MAX (UINT64_C(16) << 30)

struct cached {
    struct registration registration;
    struct list link; /* in cache->left, once it has left the array */
    uint64_t used;    /* clock of the cache when it was used last */
};

struct registration_cache {
    const struct registrar *registrar;
    struct cached *entries[CACHE_REGISTRATIONS_MAX];
    uint32_t count;
    uint64_t clock;
    uint64_t page_bytes;
    struct list left;
    struct cached *last; /* used last: often the next, too */
    crpc_cache_info info;
};

int32_t registration_cache_create(const struct registrar *registrar,
                                  struct registration_cache **out, crpc_error *error)
{
    assert(registrar->nic_count > 0);
    struct registration_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a cache of registrations");
    }
    list_init(&cache->left);
    cache->page_bytes = page_bytes();
    cache->info.registrations_max = CACHE_REGISTRATIONS_MAX;
    cache->info.bytes_max = CACHE_BYTES_MAX;
    cache->registrar = registrar;
    *out = cache;
    return CRPC_OK;
}

static void destroy(struct registration_cache *cache, struct cached *cached)
{
    registration_end(cache->registrar, &cached->registration);
    list_remove(&cached->link);
    free(cached);
}

/* Those that have left and that no op uses any more. */
static void sweep(struct registration_cache *cache)
{
    struct list *link = cache->left.next;
    while (link != &cache->left) {
        struct cached *cached = list_entry(link, struct cached, link);
        /* The analyzer does not see that destroy takes an entry off the list. */
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        link = link->next;
        if (cached->registration.users == 0) {
            destroy(cache, cached);
        }
    }
}

/* Takes an entry out of the array. */
static void leave(struct registration_cache *cache, uint32_t place)
{
    struct cached *cached = cache->entries[place];
    cache->count--;
    cache->info.bytes -= cached->registration.bytes;
    cache->last = NULL;
    memmove(&cache->entries[place], &cache->entries[place + 1],
            (cache->count - place) * sizeof(cache->entries[0]));
    list_append(&cache->left, &cached->link);
    sweep(cache);
}

void registration_cache_destroy(struct registration_cache *cache)
{
    if (!cache) {
        return;
    }
    for (uint32_t i = 0; i < cache->count; i++) {
        destroy(cache, cache->entries[i]);
    }
    sweep(cache);
    assert(list_empty(&cache->left));
    free(cache);
}

static uint64_t end_of(const struct cached *cached)
{
    return cached->registration.address + cached->registration.bytes;
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
    return cached->registration.address <= address && end_of(cached) >= end;
}

static void evict_one(struct registration_cache *cache)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < cache->count; i++) {
        if (cache->entries[i]->used < cache->entries[oldest]->used) {
            oldest = i;
        }
    }
    cache->info.evictions++;
    leave(cache, oldest);
}

/* What one nic could not lock fails as a whole, and what leaves the cache makes room. Memory that
 * cannot be written can still be sent; but if something was short, it may well be writable. */
static int32_t register_plain(struct registration_cache *cache, uint64_t address, uint64_t bytes,
                              struct registration *registration, crpc_error *error)
{
    crpc_error first;
    registration_try(cache->registrar, address, bytes,
                     CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE, -1, 0, registration,
                     &first);
    bool short_of = first.status == CRPC_E_NO_RESOURCE || first.status == CRPC_E_NO_MEMORY;
    if (first.status == CRPC_E_MEMLOCK || (registration->nics == 0 && short_of)) {
        registration_end(cache->registrar, registration);
        *error = first;
        return first.status;
    }
    if (registration->nics != 0) {
        return CRPC_OK;
    }
    return registration_make(cache->registrar, address, bytes, 0, -1, 0, registration, error);
}

static int32_t add(struct registration_cache *cache, uint64_t address, uint64_t end,
                   struct cached **out, crpc_error *error)
{
    struct cached *cached = calloc(1, sizeof(*cached));
    if (!cached) {
        return error_set(error, CRPC_E_NO_MEMORY, ENOMEM, "no memory for a registration");
    }
    list_init(&cached->link);
    while (cache->count > 0 && (cache->count == CACHE_REGISTRATIONS_MAX ||
                                cache->info.bytes + (end - address) > CACHE_BYTES_MAX)) {
        evict_one(cache);
    }
    int32_t status = register_plain(cache, address, end - address, &cached->registration, error);
    while (status == CRPC_E_MEMLOCK && cache->count > 0) {
        evict_one(cache);
        status = register_plain(cache, address, end - address, &cached->registration, error);
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
static int32_t add_over(struct registration_cache *cache, uint64_t address, uint64_t end,
                        struct cached **out, crpc_error *error)
{
    uint64_t page_mask = cache->page_bytes - 1;
    uint64_t low = address & ~page_mask;
    uint64_t high = align_up(end, cache->page_bytes);
    uint64_t all_low = low;
    uint64_t all_high = high;
    uint32_t place = find(cache, low);
    while (place < cache->count && cache->entries[place]->registration.address < high) {
        all_low = minimum(all_low, cache->entries[place]->registration.address);
        all_high = maximum(all_high, end_of(cache->entries[place]));
        leave(cache, place);
    }
    int32_t status = add(cache, all_low, all_high, out, error);
    if (status != CRPC_OK && (all_low != low || all_high != high)) {
        /* What they covered may have been unmapped since. */
        status = add(cache, low, high, out, error);
    }
    return status;
}

int32_t registration_cache_get(struct registration_cache *cache, uint64_t address, uint64_t bytes,
                               struct registration **registration, crpc_error *error)
{
    assert(bytes > 0 && address <= UINT64_MAX - bytes);
    uint64_t end = address + bytes;
    struct cached *cached = cache->last;
    if (unlikely(!cached || !covers(cached, address, end))) {
        uint32_t place = find(cache, address);
        if (place < cache->count && covers(cache->entries[place], address, end)) {
            cached = cache->entries[place];
            cache->info.hits++;
        } else {
            cache->info.misses++;
            int32_t status = add_over(cache, address, end, &cached, error);
            if (status != CRPC_OK) {
                return status;
            }
        }
        cache->last = cached;
    } else {
        cache->info.hits++;
    }
    cached->used = ++cache->clock;
    *registration = &cached->registration;
    return CRPC_OK;
}

int32_t registration_cache_complete(struct registration_cache *cache,
                                    struct registration *registration, uint32_t nics,
                                    crpc_error *error)
{
    assert(cache->last && registration == &cache->last->registration);
    crpc_error first;
    registration_try_again(cache->registrar, registration, &first);
    while ((registration->nics & nics) != nics && first.status == CRPC_E_MEMLOCK &&
           cache->count > 1) {
        struct cached *last = cache->last;
        evict_one(cache); /* not this one, which was used last */
        cache->last = last;
        registration_try_again(cache->registrar, registration, &first);
    }
    if ((registration->nics & nics) == nics) {
        return CRPC_OK;
    }
    *error = first;
    return first.status;
}

int32_t registration_cache_forget(struct registration_cache *cache, uint64_t address,
                                  uint64_t bytes)
{
    uint64_t end = bytes == 0 ? UINT64_MAX : address + bytes;
    address = bytes == 0 ? 0 : address;
    for (const struct list *link = cache->left.next; link != &cache->left; link = link->next) {
        const struct cached *cached = list_entry(link, struct cached, link);
        if (cached->registration.users > 0 && cached->registration.address < end &&
            end_of(cached) > address) {
            return CRPC_E_BUSY;
        }
    }
    uint32_t first = find(cache, address);
    uint32_t last = first;
    while (last < cache->count && cache->entries[last]->registration.address < end) {
        if (cache->entries[last++]->registration.users > 0) {
            return CRPC_E_BUSY;
        }
    }
    for (uint32_t i = first; i < last; i++) {
        leave(cache, first);
    }
    sweep(cache);
    return (int32_t)(last - first);
}

void registration_cache_info(const struct registration_cache *cache, crpc_cache_info *info)
{
    *info = cache->info;
    info->registrations = cache->count;
}
