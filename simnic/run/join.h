/* join.h: being a member of a session, from making its directory to removing it. */
#ifndef SIMNIC_RUN_JOIN_H
#define SIMNIC_RUN_JOIN_H

#include <stdint.h>

#include "simnic/session/session.h"

struct membership {
    char directory[SESSION_PATH_BYTES];
    uint32_t link;     /* of the session: before joining, what it gets if it is made */
    const char *fault; /* what it begins with if it is made; NULL: nothing */
    int lock;          /* of the session's lock file; shared with processes that are forked */
};

/* Joins the session in membership->directory, which is made if it is not there or is a dead one's.
 * Returns 0, or complains and returns the exit status. */
int session_join(struct membership *membership);

/* Leaves the session, and removes it if this was its last member. May be called in more than one of
 * the processes that share a membership: by all but the first it finds nothing to do. */
void session_leave(struct membership *membership);

/* Removes all sessions of this user that have lost their members to kill -9. */
void session_sweep(void);

#endif
