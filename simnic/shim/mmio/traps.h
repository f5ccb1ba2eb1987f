/* traps.h: the handler of SIGSEGV, SIGBUS and SIGTRAP, and what the program believes their handler
 * to be. */
#ifndef SIMNIC_SHIM_MMIO_TRAPS_H
#define SIMNIC_SHIM_MMIO_TRAPS_H

#include <stdbool.h>

struct sigaction;

void traps_install(void);
bool traps_are_installed(void);

/* What the program says its handler is, once ours is installed. Returns false if the signal is not
 * one of ours, or ours is not installed yet. Both are in our own memory. */
bool traps_swap_program_action(int signal_number, const struct sigaction *action,
                               struct sigaction *old);

#endif
