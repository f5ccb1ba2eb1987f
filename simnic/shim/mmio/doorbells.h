/* doorbells.h: how a store to a doorbell page is noticed without looking at the page all the time.
 * doorbells.c says how.
 *
 * All functions are called with the process lock held, unless they say otherwise. */
#ifndef SIMNIC_SHIM_MMIO_DOORBELLS_H
#define SIMNIC_SHIM_MMIO_DOORBELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The program mapped a doorbell page at this address, or unmaps what is at one. Without the
 * lock. */
void doorbells_map(uint32_t page, uint8_t *address);
void doorbells_unmap(const uint8_t *address, size_t bytes);

/* Looks for mappings that doorbells_map was not told of: memory hooks of other libraries (UCX's)
 * may stand before ours. */
void doorbells_find(void);

/* A page is not a doorbell page any more. */
void doorbells_drop(uint32_t page);

/* The program's thread stopped at a store to `address`; `ucontext` has its registers. Makes the
 * store, does what it asks for, and returns true: the thread may go on. Returns false if the
 * address is on none of our pages. Called by the signal handler, without the lock. */
bool doorbells_trap(uintptr_t address, void *ucontext);

/* doorbells_trap has had the processor make a store, and the thread stopped behind it, or failed to
 * make it. Does what the store asks for; the thread may go on. Returns false if there was no such
 * store. Called by the signal handler, without the lock. */
bool doorbells_stepped(void *ucontext);

/* Returns whether stores do not trap, so that somebody must look for them. */
bool doorbells_are_free(void);

/* Returns whether they may be made to trap again: not just behind a store that had to be found by
 * looking. */
bool doorbells_may_close(uint64_t now_ns);

/* From here on every store traps. The caller then looks for what was stored just before. */
void doorbells_close(void);

/* In a forked child, which has no NIC. */
void doorbells_forget(void);

#endif
