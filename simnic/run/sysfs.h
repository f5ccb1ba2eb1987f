/* sysfs.h: the sysfs tree that programs in a session see. */
#ifndef SIMNIC_RUN_SYSFS_H
#define SIMNIC_RUN_SYSFS_H

/* Makes the tree below `root`, which must not exist. Returns 0 or -errno; then part of it may be
 * there. */
int sysfs_generate(const char *root);

#endif
