/* dma.h: the device's way to a program's memory. A NIC that reads or writes memory that is not
 * there reports an error and goes on, and so must we: every access is one that may fail, in a
 * process that must not crash.
 *
 * The accesses are a few instructions between two labels. A SIGSEGV or SIGBUS handler (shim/segv.c)
 * that finds the interrupted instruction between them lets it go on at dma_failed, which returns
 * false to the caller. So an access costs no more than a copy. Elsewhere than on x86-64 they are
 * system calls that may fail.
 *
 * Single 4 and 8 byte accesses are made whole, and copies go upwards, so that what is written last
 * is seen last. */
#ifndef SIMNIC_DMA_H
#define SIMNIC_DMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns whether the memory was there. A copy that fails may have been done in part. */
bool dma_copy(void *to, const void *from, size_t bytes);
bool dma_load32(const void *from, uint32_t *value);
bool dma_store32(void *to, uint32_t value);
bool dma_store64(void *to, uint64_t value);

/* Atomics of RDMA: *old gets what was there. Atomic towards programs and other devices. */
bool dma_fetch_add64(void *at, uint64_t add, uint64_t *old);
bool dma_compare_swap64(void *at, uint64_t compare, uint64_t swap, uint64_t *old);

/* For the signal handler: whether an instruction's address is one of the accesses, and where to go
 * on. */
bool dma_is_access(uintptr_t instruction);
uintptr_t dma_failed_address(void);

#endif
