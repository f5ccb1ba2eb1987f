/* internal.h: what the files of core/registration share. */
#ifndef CORE_REGISTRATION_INTERNAL_H
#define CORE_REGISTRATION_INTERNAL_H

#include <assert.h>

#include "registration/registration.h"

/* registration.c */
/* Registers memory with every nic that can do so. registration->nics is the mask of these nics;
 * *first says why the first other nic could not. */
void registration_try(const struct registrar *registrar, uint64_t address, uint64_t bytes,
                      uint32_t access, int fd, uint64_t fd_offset,
                      struct registration *registration, crpc_error *first);
/* The same, of plain memory, with every nic that could not do so before. */
void registration_try_again(const struct registrar *registrar, struct registration *registration,
                            crpc_error *first);

#endif
