/* service.h: the service thread, which runs the NIC when no thread of the program does. */
#ifndef SIMNIC_SHIM_MMIO_SERVICE_H
#define SIMNIC_SHIM_MMIO_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

int service_start(void);
void service_forget(void); /* in a forked child */

/* Does the NIC's work until there is none, or much was done. Returns whether there was any. With
 * the lock. */
bool service_work(void);

/* Gives the lock back and wakes those to whom something was sent. */
void service_unlock(void);

/* Whether there are spare processors, on which the service thread may poll. With the lock. */
bool service_has_processors(void);

/* Has the service thread look at the doorbells soon, as it must while they are free. Without the
 * lock. */
void service_look_soon(void);

/* Has the service thread run the NIC at this time, if it does not before: for timers that another
 * thread's work started. Without the lock. */
void service_look_at(uint64_t due_ns);

#endif
