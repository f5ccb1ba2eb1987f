/* cm_host.h: what is between the connection manager, which knows of no processes, and the
 * fabric. */
#ifndef SIMNIC_SHIM_PROCESS_CM_HOST_H
#define SIMNIC_SHIM_PROCESS_CM_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* Makes process.cm. Returns false if there is no memory. */
bool cm_host_start(void);

/* A message for the cm has come in. With the process lock. */
void cm_host_message(void *context, uint32_t source_slot, const void *message, uint32_t bytes);

/* The rail's device was unplugged. With the process lock. */
void cm_host_unplug(int rail);

/* Gives the cm its messages and its time. Without the lock. */
void cm_host_run(void);

#endif
