/* program_memory.h: access to what a program's pointers name, as the kernel's copy_from_user and
 * copy_to_user. A pointer may name memory that is not there. The kernel fails with EFAULT then, and
 * so do we.
 *
 * Once the process has a NIC, an access is a copy that may fail (nic/dma.h). Before that, our
 * signal handler is not installed, and the kernel is asked: it copies a signal set of 8 bytes from
 * or to an address, and changes nothing. No sandbox forbids that system call. */
#ifndef SIMNIC_SHIM_KERNEL_PROGRAM_MEMORY_H
#define SIMNIC_SHIM_KERNEL_PROGRAM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Each returns whether the memory was there. A copy that fails may have been done in part. `bytes`
 * of program_write is 8 at least. */
bool program_read(void *to, const void *from, size_t bytes);
bool program_write(void *to, const void *from, size_t bytes);

/* The length of a path; -1 if the memory is not there, or the path is longer than any may be. */
int program_path_length(const char *path);

#endif
