/* devices.c: the files of /dev/infiniband. */
#include "devices.h"

#include "context.h"
#include "descriptors.h"
#include "process.h"
#include "rails.h"
#include "real.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DIRECTORY "/dev/infiniband/"

int device_of_path(const char *path)
{
    /* The first characters decide for nearly every path a program opens. */
    if (!path || path[0] != '/' || strncmp(path, DIRECTORY, sizeof DIRECTORY - 1) != 0 ||
        !getenv("SIMNIC_SESSION"))
        return DEVICE_NONE;
    const char *name = path + sizeof DIRECTORY - 1;
    if (strcmp(name, "rdma_cm") == 0)
        return DEVICE_RDMA_CM;
    for (int rail = 0; rail < RAIL_COUNT; rail++)
        if (strcmp(name, rails[rail].uverbs) == 0)
            return rail;
    return DEVICE_NONE;
}

int device_of_descriptor(int fd)
{
    struct file *file = descriptors_get(fd);
    int device = DEVICE_NONE;
    if (!file)
        return device;
    if (file->kind == DESCRIPTOR_UVERBS)
        device = ((struct context *)file->thing)->rail;
    else if (file->kind == DESCRIPTOR_CM)
        device = DEVICE_RDMA_CM;
    descriptors_put(file);
    return device;
}

static int open_rdma_cm(int flags)
{
    int result = process_attach();
    int fd = result ? -1
                    : eventfd(0, (flags & O_CLOEXEC ? EFD_CLOEXEC : 0) |
                                     (flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
    if (fd < 0) {
        errno = result ? result : errno;
        return -1;
    }
    /* The cm's own descriptor, since the program may close its own while a thread of ours signals
     * an event. */
    struct cm_file *file = cm_file_open(process.cm, fd);
    result = file ? descriptors_add(fd, DESCRIPTOR_CM, file) : ENOMEM;
    if (result == 0)
        return fd;
    if (file)
        cm_file_close(file);
    real.close(fd);
    errno = result;
    return -1;
}

int device_open(int device, int flags)
{
    return device == DEVICE_RDMA_CM ? open_rdma_cm(flags) : context_open(device, flags);
}

static dev_t number_of(int device)
{
    if (device == DEVICE_RDMA_CM)
        return makedev(RDMA_CM_MAJOR, RDMA_CM_MINOR);
    return makedev(rails[device].major, rails[device].minor);
}

void device_stat(int device, struct stat *status)
{
    memset(status, 0, sizeof *status);
    status->st_mode = S_IFCHR | 0666;
    status->st_rdev = number_of(device);
    status->st_ino = 1000 + (ino_t)device;
    status->st_nlink = 1;
    status->st_blksize = 4096;
}

void device_statx(int device, struct statx *status)
{
    memset(status, 0, sizeof *status);
    status->stx_mask = STATX_BASIC_STATS;
    status->stx_mode = S_IFCHR | 0666;
    status->stx_rdev_major = major(number_of(device));
    status->stx_rdev_minor = minor(number_of(device));
    status->stx_ino = 1000 + (uint64_t)device;
    status->stx_nlink = 1;
    status->stx_blksize = 4096;
}

int device_access(int mode)
{
    if (!(mode & X_OK))
        return 0;
    errno = EACCES;
    return -1;
}
