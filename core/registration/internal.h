/* internal.h: what the files of core/registration ask of each other. */
#ifndef CORE_REGISTRATION_INTERNAL_H
#define CORE_REGISTRATION_INTERNAL_H

#include <assert.h>

#include "registration/registration.h"

/* registration.c */
/* Registers with the nics that can: registration->nics tells which have it, *first why the first of the
 * others has not. */
void registration_try(const struct registrar *registrar, uint64_t address, uint64_t bytes,
                      uint32_t access, int fd, uint64_t fd_offset,
                      struct registration *registration, crpc_error *first);

#endif
