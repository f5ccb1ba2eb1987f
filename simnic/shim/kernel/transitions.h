/* transitions.h: which changes of a QP's state are allowed, with which attributes. */
#ifndef SIMNIC_SHIM_KERNEL_TRANSITIONS_H
#define SIMNIC_SHIM_KERNEL_TRANSITIONS_H

#include <stdbool.h>
#include <stdint.h>

/* mask: IBV_QP_ flags of the attributes that are given. */
bool transition_allowed(uint32_t type, uint8_t from, uint8_t to, uint32_t mask);

#endif
