/* nodes.c: see nodes.h. */
#include "simnic/shim/kernel/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "simnic/session/rails.h"
#include "simnic/session/session.h"
#include "simnic/shim/kernel/attach.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/descriptors.h"
#include "simnic/shim/kernel/program_memory.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

#define DIRECTORY "/dev/infiniband/"
#define RDMA_CM_NAME "rdma_cm"

static int node_of_name(const char *name)
{
    if (strcmp(name, RDMA_CM_NAME) == 0) {
        return NODE_RDMA_CM;
    }
    for (int rail = 0; rail < RAIL_COUNT; rail++) {
        if (strcmp(name, rails[rail].uverbs) == 0) {
            return rail;
        }
    }
    return NODE_NONE;
}

/* The path of a directory; an empty one is the root. */
static bool path_of_directory(int directory, char to[PATH_MAX])
{
    char link[64];
    ssize_t length;
    int error = errno;
    if (directory == AT_FDCWD) {
        length = syscall(SYS_getcwd, to, (size_t)PATH_MAX) - 1;
    } else {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
        length = readlink(link, to, PATH_MAX - 1);
    }
    errno = error;
    if (length <= 0) {
        return false;
    }
    to[length == 1 ? 0 : length] = '\0';
    return true;
}

/* Goes on from the absolute path in `to`, as the path is written: no link is followed. */
static bool walk(char to[PATH_MAX], const char *path)
{
    size_t length = strlen(to);
    while (*path) {
        size_t span = strcspn(path, "/");
        if (span == 2 && path[0] == '.' && path[1] == '.') {
            while (length && to[--length] != '/') {
            }
        } else if (span && !(span == 1 && path[0] == '.')) {
            if (length + 1 + span >= PATH_MAX) {
                return false;
            }
            to[length++] = '/';
            memcpy(to + length, path, span);
            length += span;
        }
        to[length] = '\0';
        path += span;
        path += *path == '/';
    }
    return true;
}

int node_of_path(int directory, const char *path)
{
    char walked[PATH_MAX];
    int length = program_path_length(path);
    if (length <= 0) {
        return NODE_NONE;
    }
    /* For nearly every path that a program opens, the name decides. */
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int node = node_of_name(name);
    if (node == NODE_NONE || !getenv(SESSION_VARIABLE)) {
        return NODE_NONE;
    }
    walked[0] = '\0';
    bool known = (path[0] == '/' || path_of_directory(directory, walked)) && walk(walked, path);
    size_t before = sizeof(DIRECTORY) - 1;
    bool ours =
        known && strncmp(walked, DIRECTORY, before) == 0 && strcmp(walked + before, name) == 0;
    return ours ? node : NODE_NONE;
}

const char *node_model(int node)
{
    char path[SESSION_PATH_BYTES];
    const char *session = getenv(SESSION_VARIABLE);
    if (node == NODE_RDMA_CM || !session) {
        return NODE_MODEL;
    }
    session_file(session, SESSION_FABRIC, path);
    const int error = errno;
    const uint32_t unplugged = fabric_rails_unplugged(path);
    errno = error;
    return unplugged >> node & 1 ? "/proc/unplugged" : NODE_MODEL;
}

int node_of_descriptor(int fd)
{
    struct file *file = descriptors_get(fd);
    int node = NODE_NONE;
    if (!file) {
        return node;
    }
    if (file->kind == DESCRIPTOR_UVERBS) {
        node = ((struct context *)file->thing)->rail;
    } else if (file->kind == DESCRIPTOR_CM) {
        node = NODE_RDMA_CM;
    }
    descriptors_put(file);
    return node;
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
    struct cm_file *file = cm_file_open(process.cm, fd);
    result = file ? descriptors_add(fd, DESCRIPTOR_CM, file) : ENOMEM;
    if (result == 0) {
        return fd;
    }
    if (file) {
        cm_file_close(file);
    }
    real.close(fd);
    errno = result;
    return -1;
}

int node_open(int node, int flags, mode_t mode)
{
    /* The kernel judges the flags, and knows which limits there are. With O_PATH nothing is opened,
     * so the kernel's descriptor does. */
    int model = real.open(node_model(node), flags, mode);
    if (model < 0 || flags & O_PATH) {
        return descriptors_fresh(model);
    }
    real.close(model);
    return node == NODE_RDMA_CM ? open_rdma_cm(flags) : context_open(node, flags);
}

static dev_t number_of(int node)
{
    if (node == NODE_RDMA_CM) {
        return makedev(RDMA_CM_MAJOR, RDMA_CM_MINOR);
    }
    return makedev(rails[node].major, rails[node].minor);
}

void node_stat(int node, struct stat *status)
{
    memset(status, 0, sizeof(*status));
    status->st_mode = S_IFCHR | 0666;
    status->st_rdev = number_of(node);
    status->st_ino = 1000 + (ino_t)node;
    status->st_nlink = 1;
    status->st_blksize = 4096;
}

void node_statx(int node, struct statx *status)
{
    memset(status, 0, sizeof(*status));
    status->stx_mask = STATX_BASIC_STATS;
    status->stx_mode = S_IFCHR | 0666;
    status->stx_rdev_major = major(number_of(node));
    status->stx_rdev_minor = minor(number_of(node));
    status->stx_ino = 1000 + (uint64_t)node;
    status->stx_nlink = 1;
    status->stx_blksize = 4096;
}
