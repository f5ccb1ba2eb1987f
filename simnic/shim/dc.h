/* dc.h: what is peculiar to DCI and DCT QPs among the verbs: types of the driver's own, flags, and
 * transitions of state. */
#ifndef SIMNIC_DC_H
#define SIMNIC_DC_H

#include <stdbool.h>
#include <stdint.h>

/* The largest exponents of DCI streams: of those that may be executed at once, which ours are not, as
 * nothing asks for it; and of those that fail before the DCI does. */
#define DC_LOG_STREAMS 15
#define DC_LOG_FAILED_STREAMS 15

/* The type of a QP that is created as `type`, with the driver's flags: TYPE_DCI or TYPE_DCT for
 * IBV_QPT_DRIVER, 0 if that says neither. Other types are returned as they are. */
uint32_t dc_type(uint32_t type, uint32_t driver_flags);

/* Flags of the driver that a QP of a DC type may have besides those that all may. */
uint32_t dc_flags(uint32_t type);

/* As transition_allowed, for DC types. */
bool dc_transition_allowed(uint32_t type, uint8_t from, uint8_t to, uint32_t mask);

#endif
