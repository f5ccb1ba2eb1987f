/* cleanup.h: ends the processes that a command has left behind. */
#ifndef SIMNIC_CLEANUP_H
#define SIMNIC_CLEANUP_H

#include <sys/types.h>

#define STRANGER_MAX 32

/* Children that a process had before it became a runner (a shell's, that then called exec). They
 * are none of our business. */
struct strangers {
    pid_t pid[STRANGER_MAX];
    int count;
};

void strangers_find(struct strangers *strangers);

/* Ends all descendants of the calling process, which must be a child subreaper, except `strangers`
 * and theirs: SIGTERM, after a second SIGKILL. Returns when they are reaped, or complains about
 * those that cannot be ended and returns. */
void cleanup_descendants(const struct strangers *strangers);

#endif
