/* single_step.h: has the processor execute one instruction of a stopped thread and stop it again. */
#ifndef SIMNIC_SINGLE_STEP_H
#define SIMNIC_SINGLE_STEP_H

#include <stdbool.h>

/* `ucontext` is that of a signal's frame. When the handler returns, the thread executes the
 * instruction at which it was stopped, with all signals blocked but those that stop it, and gets
 * SIGTRAP. Returns false if that cannot be had here. */
bool single_step_begin(void *ucontext);

/* Whether this thread is between begin and end. */
bool single_step_is_on(void);

/* Lets the thread run on as it was before. Returns false if it was not stepping. */
bool single_step_end(void *ucontext);

#endif
