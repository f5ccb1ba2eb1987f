/* doorbells.h: how a store to a doorbell page is noticed without looking at the page all the time.
 * See doorbells.c.
 *
 * All of it is called with the process lock held, but for those that say otherwise. */
#ifndef SIMNIC_DOORBELLS_H
#define SIMNIC_DOORBELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The program mapped a doorbell page at this address, or unmaps what is at one. Without the lock. */
void doorbells_map(uint32_t page, uint8_t *address);
void doorbells_unmap(const uint8_t *address, size_t bytes);

/* Looks for mappings that doorbells_map was not told of: memory hooks of other libraries (UCX's) may
 * stand before ours. With the lock. */
void doorbells_find(void);

/* A page is not a doorbell page any more. With the lock. */
void doorbells_drop(uint32_t page);

/* The program's thread stopped at a store to `address`; `ucontext` has its registers. Makes the
 * store, does what it asks for, and returns true: the thread may go on. Returns false if it is none
 * of our pages. Called by the signal handler, without the lock. */
bool doorbells_trap(uintptr_t address, void *ucontext);

/* The program's thread stopped behind a store that doorbells_trap had the processor make, or cannot
 * make it. Does what it asks for; the thread may go on. Returns false if there was none. Called by
 * signal handlers, without the lock. */
bool doorbells_stepped(void *ucontext);

/* Returns whether stores go unnoticed, so that somebody must look. */
bool doorbells_are_free(void);

/* Has every store noticed again. What was stored just before must be looked for after this. */
void doorbells_close(void);

/* In a forked child, which has no device. */
void doorbells_forget(void);

#endif
