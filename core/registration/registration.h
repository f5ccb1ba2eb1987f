/* registration.h: memory that is registered with one nic or several, and a cache of registrations for
 * memory that nobody has registered.
 *
 *   registration.c  one registration
 *   cache.c         the cache
 *
 * One thread at a time uses a registrar, its registrations and its cache.
 */
#ifndef CORE_REGISTRATION_REGISTRATION_H
#define CORE_REGISTRATION_REGISTRATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/log.h"
#include "nic/nic.h"

#define REGISTRATION_NICS_MAX CRPC_RAILS_MAX

/* The nics that share registrations. They and the log stay the caller's and must outlive it. */
struct registrar {
    struct nic *nics[REGISTRATION_NICS_MAX];
    uint32_t nic_count;
    struct log *log;
};

struct registration {
    uint64_t address;
    uint64_t bytes;
    uint32_t access; /* CRPC_ACCESS_* */
    uint32_t nics;   /* mask of those that have it */
    uint32_t users;  /* ops that are open */
    struct nic_keys keys[REGISTRATION_NICS_MAX];
};

/* Registers with all nics; one that cannot is left out of registration->nics, unless none can: then
 * the first error is returned. fd < 0: plain memory; otherwise `bytes` of the dma-buf from fd_offset
 * on, which the nics know by `address`. */
int32_t registration_make(const struct registrar *registrar, uint64_t address, uint64_t bytes,
                          uint32_t access, int fd, uint64_t fd_offset,
                          struct registration *registration, crpc_error *error);
/* registration->users must be 0. Allowed for one that is all zeros. */
void registration_end(const struct registrar *registrar, struct registration *registration);

struct registration_cache;

/* The registrar stays the caller's and must outlive the cache. */
int32_t registration_cache_create(const struct registrar *registrar,
                                  struct registration_cache **cache, crpc_error *error);
/* No op uses its registrations any more. Allowed for NULL. */
void registration_cache_destroy(struct registration_cache *cache);
/* The registration that has [address, address + bytes), bytes > 0, from the cache or made now, with
 * the right to be written by peers where the memory can be written. It stays until it is forgotten, or
 * evicted when users is 0. */
int32_t registration_cache_get(struct registration_cache *cache, uint64_t address, uint64_t bytes,
                               struct registration **registration, crpc_error *error);
/* How many were taken out; CRPC_E_BUSY if an op uses one of them. bytes 0: all. */
int32_t registration_cache_forget(struct registration_cache *cache, uint64_t address,
                                  uint64_t bytes);
void registration_cache_info(const struct registration_cache *cache, crpc_cache_info *info);

#endif
