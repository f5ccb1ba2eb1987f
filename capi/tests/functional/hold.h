/* hold.h: connecting queue pairs takes as long as the test says. As the kernel looks for the address of
 * the peer's queue pair when ours becomes ready to receive, or by DC when the library makes that address known to it,
 * chosen ones do not get further until the test releases them. For programs that export their symbols: the library
 * finds this ibv_modify_qp before libibverbs'. */
#ifndef FUNCTIONAL_HOLD_H
#define FUNCTIONAL_HOLD_H

#include <stdbool.h>
#include <stdint.h>

/* Of the next queue pairs of the rail's device that are connected, lets `skip` pass and holds `count`. The
 * library must not connect one in the thread that calls this, which is the one that polls. Once released,
 * they are connected; or fail with this errno, if it is not 0. */
void hold_next(int rail, uint32_t skip, uint32_t count, int os_error);
/* So many have been held since hold_next, whether released or not. */
uint32_t hold_count(void);
/* Waits until so many are held, without polling. False: not within a minute. */
bool hold_wait(uint32_t count);
/* Also those that come later. */
void hold_release(void);
/* What was held is over, but for those destroyed since: so many queue pairs, or addresses of DCTs, are left. */
uint32_t hold_left(void);
/* NULL, or what the library did wrong since hold_next. */
const char *hold_complaint(void);

#endif
