/* cleanup.h: ends the processes that a command has left behind. */
#ifndef SIMNIC_RUN_CLEANUP_H
#define SIMNIC_RUN_CLEANUP_H

#include <sys/types.h>

#define STRANGER_MAX 32

/* Children that a process had before it became a runner, as a shell that has called exec. They are
 * not ended. */
struct strangers {
    pid_t pid[STRANGER_MAX];
    int count;
};

void strangers_find(struct strangers *strangers);

/* Ends all descendants of the calling process, except `strangers` and their descendants: by
 * SIGTERM, and a second later by SIGKILL. The caller must be a child subreaper. Returns when they
 * are reaped, or complains about those that cannot be ended. */
void cleanup_descendants(const struct strangers *strangers);

#endif
