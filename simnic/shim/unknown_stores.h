/* unknown_stores.h: tells in the trace which stores to doorbell pages the emulation does not know. */
#ifndef SIMNIC_UNKNOWN_STORES_H
#define SIMNIC_UNKNOWN_STORES_H

/* A thread was stopped at one. The first of each instruction is told, with its address and bytes. With
 * the process lock. */
void unknown_stores_note(const void *ucontext);

/* Tells how many there were, if any, when the process ends. */
void unknown_stores_tell_total(void);

/* In a forked child. */
void unknown_stores_forget(void);

#endif
