/* sysfs_paths.h: which paths of /sys the session has. libibverbs takes sysfs from where SYSFS_PATH says; many programs read
 * /sys/class/infiniband without asking. */
#ifndef SIMNIC_SHIM_KERNEL_SYSFS_PATHS_H
#define SIMNIC_SHIM_KERNEL_SYSFS_PATHS_H

#include <limits.h>

/* Returns the path to use in place of one that a program gives: in `room` if it is one of the session's, else the same. Paths are taken as
 * they are written. A bad pointer is returned as it is. */
const char *sysfs_path(const char *path, char room[PATH_MAX]);

#endif
