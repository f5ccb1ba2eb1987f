/* attach.h: joining the session: from then on the process has a NIC. On a real machine the kernel's
 * driver finds one when it starts. */
#ifndef SIMNIC_SHIM_KERNEL_ATTACH_H
#define SIMNIC_SHIM_KERNEL_ATTACH_H

/* Attaches this process to its session, once: slot, NIC, connection manager, pages, service thread.
 * Returns 0 or an errno. Any thread. */
int process_attach(void);

#endif
