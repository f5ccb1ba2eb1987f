/* sysfs.h: the sysfs tree that programs in a session see. */
#ifndef SIMNIC_RUN_SYSFS_H
#define SIMNIC_RUN_SYSFS_H

#include <stdint.h>

/* Makes the tree below `root`, which must not exist, for ports with these links (session/link.h).
 * Returns 0 or -errno; then part of it may be there. */
int sysfs_generate(const char *root, uint32_t link);

/* The rail's device in the tree below `root` is another from now on, as one that is plugged in again: libibverbs tells it from the one
 * before by the time of its directory. Returns 0 or -errno. */
int sysfs_renew(const char *root, int rail);

#endif
