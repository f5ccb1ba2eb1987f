/* registration.c: see registration.h. */
#include "base/error.h"
#include "registration/internal.h"

/* What a nic is told of the rights to memory. */
static uint32_t nic_access(const struct registrar *registrar, const struct nic *nic,
                           uint32_t access)
{
    const uint32_t relaxed = registrar->told && nic->relaxed ? NIC_ACCESS_RELAXED : 0;
    access &= ~CRPC_ACCESS_DEVICE;
    if (!registrar->windows) {
        return access | relaxed;
    }
    uint32_t written = !(access & CRPC_ACCESS_REMOTE_WRITE) ? 0
                       : nic->windows                       ? NIC_ACCESS_WINDOWS
                                                            : CRPC_ACCESS_REMOTE_WRITE;
    return (access & CRPC_ACCESS_LOCAL_WRITE) | written | relaxed;
}

/* With the nics that have not registered the memory. registration->nics tells which have it now,
 * *first why the first of the others has not. */
static void try_others(const struct registrar *registrar, struct registration *registration, int fd,
                       uint64_t fd_offset, crpc_error *first)
{
    *first = (crpc_error){0};
    for (uint32_t i = 0; i < registrar->nic_count; i++) {
        struct nic *nic = registrar->nics[i];
        uint32_t rights = nic_access(registrar, nic, registration->access);
        crpc_error failure = {0};
        if (registration->nics & 1u << i) {
            continue;
        }
        int32_t status =
            nic_is(&nic->lost)
                ? error_set(&failure, CRPC_E_NO_DEVICE, 0,
                            "%s was taken out or has failed: close the context and open a new one",
                            nic->device)
                : nic_memory_register(nic, NULL, fd, fd_offset, registration->address,
                                      registration->bytes, rights, &registration->keys[i],
                                      &failure);
        if (status == CRPC_OK) {
            registration->nics |= 1u << i;
        } else if (first->status == CRPC_OK) {
            *first = failure;
        }
    }
    if (registration->nics != 0 && first->status != CRPC_OK && first->status != CRPC_E_NO_DEVICE) {
        log_write(registrar->log, CRPC_LOG_WARNING,
                  "memory could not be registered with every rail, so channels over all of them "
                  "cannot use it: %s",
                  first->message);
    }
}

void registration_try(const struct registrar *registrar, uint64_t address, uint64_t bytes,
                      uint32_t access, int fd, uint64_t fd_offset,
                      struct registration *registration, crpc_error *first)
{
    *registration = (struct registration){.address = address,
                                          .bytes = bytes,
                                          .access = access,
                                          .foreign = access & CRPC_ACCESS_DEVICE};
    try_others(registrar, registration, fd, fd_offset, first);
}

void registration_try_again(const struct registrar *registrar, struct registration *registration,
                            crpc_error *first)
{
    try_others(registrar, registration, -1, 0, first);
}

int32_t registration_make(const struct registrar *registrar, uint64_t address, uint64_t bytes,
                          uint32_t access, int fd, uint64_t fd_offset,
                          struct registration *registration, crpc_error *error)
{
    assert(registrar->nic_count > 0 && bytes > 0);
    crpc_error first;
    registration_try(registrar, address, bytes, access, fd, fd_offset, registration, &first);
    if (registration->nics == 0) {
        *error = first;
        return first.status;
    }
    return CRPC_OK;
}

void registration_end(const struct registrar *registrar, struct registration *registration)
{
    assert(registration->users == 0);
    for (uint32_t i = 0; i < registrar->nic_count; i++) {
        if (registration->nics & 1u << i) {
            registrar->nics[i]->operations->memory_deregister(registrar->nics[i],
                                                              &registration->keys[i]);
        }
    }
    registration->nics = 0;
}
