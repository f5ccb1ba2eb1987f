/* unknown_stores.h: logs which stores to doorbell pages the emulation does not know. */
#ifndef SIMNIC_SHIM_MMIO_UNKNOWN_STORES_H
#define SIMNIC_SHIM_MMIO_UNKNOWN_STORES_H

/* A thread was stopped at such a store. The first of each instruction is logged, with its address
 * and bytes. With the process lock. */
void unknown_stores_note(const void *ucontext);

/* Logs how many there were, if any, when the process ends. */
void unknown_stores_tell_total(void);

/* In a forked child. */
void unknown_stores_forget(void);

#endif
