/* doorbells.h: how a store to a doorbell page is noticed without looking at the page all the time.
 * See doorbells.c.
 *
 * All of it is called with the process lock held, but doorbells_trap and those that say otherwise.
 */
#ifndef SIMNIC_DOORBELLS_H
#define SIMNIC_DOORBELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The program mapped a doorbell page at this address, or unmaps what is at one. Without the
 * lock. */
void doorbells_map(uint32_t page, uint8_t *address);
void doorbells_unmap(const uint8_t *address, size_t bytes);

/* A queue's doorbell record is at this address, until it is forgotten. */
void doorbells_watch_record(uint8_t *record);
void doorbells_forget_record(uint8_t *record);

/* The program's thread stopped at a store to `address`. Does what is to be done, and returns true:
 * the store may be tried again. Returns false if it is none of our pages. Called by the signal
 * handler, without the lock. */
bool doorbells_trap(uintptr_t address);

/* A store of the device itself, made with the lock held, stopped at a guarded page. Returns true if
 * it may be tried again. */
bool doorbells_trap_of_device(uintptr_t address);

/* Returns whether stores go unnoticed, so that somebody must look. */
bool doorbells_are_free(void);

/* Has every store noticed again. What was stored just before must be looked for after this. */
void doorbells_close(void);

/* In a forked child, which has the parent's records, but no device: opens what is guarded. */
void doorbells_forget(void);

#endif
