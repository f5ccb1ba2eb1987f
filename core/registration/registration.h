/* registration.h: registers memory with one nic or several, and keeps a cache of registrations for
 * memory that the application has not registered.
 *
 *   registration.c  one registration
 *   cache.c         the cache
 *
 * Only one thread at a time may use a registrar, its registrations and its cache.
 */
#ifndef CORE_REGISTRATION_REGISTRATION_H
#define CORE_REGISTRATION_REGISTRATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/abi.h"
#include "base/log.h"
#include "nic/nic.h"

#define REGISTRATION_NICS_MAX CRPC_RAILS_MAX

/* The nics that share registrations. The nics and the log stay the caller's, and must outlive
 * it. */
struct registrar {
    struct nic *nics[REGISTRATION_NICS_MAX];
    uint32_t nic_count;
    /* Peers write to this memory with windows only, where a nic has them. They never read it. */
    bool windows;
    /* Nobody looks at what a peer writes before a completion tells of it: NIC_ACCESS_RELAXED, where the nic says so. */
    bool told;
    struct log *log;
};

struct registration {
    uint64_t address;
    uint64_t bytes;
    uint32_t access; /* CRPC_ACCESS_* */
    uint32_t nics;   /* mask of the nics that have registered it */
    uint32_t users;  /* open ops that use it */
    bool foreign;    /* another device's: the processor may not touch it */
    struct nic_keys keys[REGISTRATION_NICS_MAX];
};

/* Registers memory with all nics that are not lost. With CRPC_ACCESS_DEVICE it is foreign. A nic that fails is left out of
 * registration->nics. If all fail, returns the first error. If fd < 0, this is plain memory; otherwise it is `bytes` of the dma-buf
 * fd from fd_offset, which the nics address from `address` on. */
int32_t registration_make(const struct registrar *registrar, uint64_t address, uint64_t bytes,
                          uint32_t access, int fd, uint64_t fd_offset,
                          struct registration *registration, crpc_error *error);
/* Deregisters memory. registration->users must be 0. Does nothing if the registration is all
 * zeros. */
void registration_end(const struct registrar *registrar, struct registration *registration);

struct registration_cache;

/* Creates a cache. The registrar stays the caller's, and must outlive the cache. */
int32_t registration_cache_create(const struct registrar *registrar,
                                  struct registration_cache **cache, crpc_error *error);
/* Frees a cache with all registrations, which no op may use any more. NULL is allowed. */
void registration_cache_destroy(struct registration_cache *cache);
/* Finds a registration that contains [address, address + bytes), bytes > 0, or makes one. Peers may
 * write to it, unless the memory is read-only. The registration belongs to the cache. It stays
 * valid until it is forgotten or evicted, and at least while users is not 0. */
int32_t registration_cache_get(struct registration_cache *cache, uint64_t address, uint64_t bytes,
                               struct registration **registration, crpc_error *error);
/* Completes the registration that registration_cache_get gave last, if a nic of the mask `nics` has
 * not registered its memory: that nic may have been short of something for a moment. What it has
 * already stays, also for ops that use it. */
int32_t registration_cache_complete(struct registration_cache *cache,
                                    struct registration *registration, uint32_t nics,
                                    crpc_error *error);
/* Removes all registrations that overlap [address, address + bytes), or all if bytes is 0. Returns
 * how many, or CRPC_E_BUSY if an op uses one of them; then it removes none. */
int32_t registration_cache_forget(struct registration_cache *cache, uint64_t address,
                                  uint64_t bytes);
void registration_cache_info(const struct registration_cache *cache, crpc_cache_info *info);

#endif
