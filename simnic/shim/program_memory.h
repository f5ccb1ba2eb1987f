/* program_memory.h: the shim's way to what a program's pointers name. A pointer may name memory that
 * is not there: the kernel says EFAULT then, and so must we.
 *
 * Once the device is there, an access is a copy that may fail (device/dma.h). Before, no handler of
 * ours is in place, and the kernel is asked: it copies a signal set of 8 bytes from or to an address
 * and changes nothing. That is a system call, and one that no sandbox forbids. */
#ifndef SIMNIC_PROGRAM_MEMORY_H
#define SIMNIC_PROGRAM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Each returns whether the memory was there. A copy that fails may have been done in part. At least 8
 * bytes are written. */
bool program_read(void *to, const void *from, size_t bytes);
bool program_write(void *to, const void *from, size_t bytes);

/* The length of a path, or -1 if it is not there or is longer than any path. */
int program_path_length(const char *path);

#endif
