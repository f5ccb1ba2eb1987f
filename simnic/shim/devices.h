/* devices.h: the files of /dev/infiniband that exist under simnic: what their paths are and what
 * stat says of them. */
#ifndef SIMNIC_DEVICES_H
#define SIMNIC_DEVICES_H

#include <sys/stat.h>

enum { DEVICE_NONE = -1, DEVICE_RDMA_CM = 100 }; /* 0 and up: the rail of an uverbs file */

struct statx;

int device_of_path(const char *path);
int device_of_descriptor(int fd);
int device_open(int device, int flags);
void device_stat(int device, struct stat *status);
void device_statx(int device, struct statx *status);
int device_access(int mode);

#endif
