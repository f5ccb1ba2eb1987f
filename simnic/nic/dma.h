/* dma.h: the NIC's access to the program's memory. When a NIC reads or writes memory that is not
 * there, it reports an error and goes on. So every access here may fail, and the process does not
 * crash.
 *
 * The accesses are a few instructions between two labels. If the SIGSEGV or SIGBUS handler
 * (shim/mmio/traps.c) finds that one of them was interrupted, it goes on at dma_failed, which
 * returns false to the caller. So an access costs no more than a copy. On other processors than
 * x86-64, accesses are system calls that may fail.
 *
 * An access of 4 or 8 bytes is made whole. Copies go upwards: what is written last is seen last. */
#ifndef SIMNIC_NIC_DMA_H
#define SIMNIC_NIC_DMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns whether the memory was there. A copy that fails may have been done in part. */
bool dma_copy(void *to, const void *from, size_t bytes);
bool dma_load32(const void *from, uint32_t *value);
bool dma_store32(void *to, uint32_t value);
bool dma_store64(void *to, uint64_t value);

/* Atomics of RDMA: *old gets what was there. They are atomic for programs and for other NICs. */
bool dma_fetch_add64(void *at, uint64_t add, uint64_t *old);
bool dma_compare_swap64(void *at, uint64_t compare, uint64_t swap, uint64_t *old);

/* For the signal handler: whether an instruction is one of the accesses, and where to go on if it
 * is. */
bool dma_is_access(uintptr_t instruction);
uintptr_t dma_failed_address(void);

#endif
