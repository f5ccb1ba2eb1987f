/* kill.h: queue pairs that die while nothing is sent over them; on simnic only. */
#ifndef FUNCTIONAL_KILL_H
#define FUNCTIONAL_KILL_H

#include <stdbool.h>
#include <stdint.h>

/* Moves a connected queue pair of a rail, of any process, to the error state, as a fault of the device
 * does. False: there is none. */
bool kill_queue_pair(uint32_t rail);

#endif
