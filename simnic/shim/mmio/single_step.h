/* single_step.h: lets a stopped thread execute one instruction, and stops it again. */
#ifndef SIMNIC_SHIM_MMIO_SINGLE_STEP_H
#define SIMNIC_SHIM_MMIO_SINGLE_STEP_H

#include <stdbool.h>

/* `ucontext` is that of a signal's frame. When the handler returns, the thread executes the
 * instruction at which it was stopped, and gets SIGTRAP. Meanwhile all signals are blocked but
 * those that stop it. Returns false if this processor cannot do that. */
bool single_step_begin(void *ucontext);

/* Whether this thread is between begin and end. */
bool single_step_is_on(void);

/* Lets the thread run on as it was before. Returns false if it was not stepping. */
bool single_step_end(void *ucontext);

#endif
