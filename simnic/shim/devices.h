/* devices.h: the files of /dev/infiniband that exist under simnic: what their paths are and what
 * stat says of them. */
#ifndef SIMNIC_DEVICES_H
#define SIMNIC_DEVICES_H

#include <sys/stat.h>

enum { DEVICE_NONE = -1, DEVICE_RDMA_CM = 100 }; /* 0 and up: the rail of an uverbs file */

struct statx;

/* An ordinary file that is as ours are: what the kernel says of flags, modes and pointers to a call
 * about it, it would say to one about a device. */
#define DEVICE_MODEL "/dev/null"

/* The device whose file a path names, from `directory` as in openat(); DEVICE_NONE also if the path
 * is not there. Links are not followed. */
int device_of_path(int directory, const char *path);
int device_of_descriptor(int fd);
int device_open(int device, int flags, mode_t mode);
/* What stat says, in place of what it said of something else. */
void device_stat(int device, struct stat *status);
void device_statx(int device, struct statx *status);

#endif
