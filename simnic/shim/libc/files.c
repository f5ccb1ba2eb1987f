/* files.c: the C library's functions about files and descriptors. Each asks whether it is about a
 * path of /dev/infiniband or a virtual descriptor, and passes everything else on unchanged. The
 * names for wide files and the fortified and older names are here too, since programs are linked to
 * them. */

/* With wide offsets as the default, the C library's headers give open() the name open64(). Here
 * both are defined. */
#undef _FILE_OFFSET_BITS

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "simnic/session/session.h"
#include "simnic/shim/kernel/context.h"
#include "simnic/shim/kernel/descriptors.h"
#include "simnic/shim/kernel/mlx5_pages.h"
#include "simnic/shim/kernel/nodes.h"
#include "simnic/shim/kernel/program_memory.h"
#include "simnic/shim/kernel/sysfs_paths.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

/* No header declares these. Compilers and older programs call them. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *status);
int __xstat64(int version, const char *path, struct stat64 *status);
int __lxstat(int version, const char *path, struct stat *status);
int __lxstat64(int version, const char *path, struct stat64 *status);
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room);

/* ---- opening ---- */

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
    LOAD;
    int node = node_of_path(directory, path);
    if (node != NODE_NONE) {
        return node_open(node, flags, mode);
    }
    char room[PATH_MAX];
    return descriptors_fresh(real.openat(directory, sysfs_path(path, room), flags, mode));
}

#define MODE_OF(flags, mode)                                                                       \
    do {                                                                                           \
        if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                   \
            va_list arguments;                                                                     \
            va_start(arguments, flags);                                                            \
            mode = va_arg(arguments, mode_t);                                                      \
            va_end(arguments);                                                                     \
        }                                                                                          \
    } while (0)

PUBLIC int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

PUBLIC int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

PUBLIC int openat(int directory, const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(directory, path, flags, mode);
}

PUBLIC int openat64(int directory, const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(directory, path, flags | O_LARGEFILE, mode);
}

PUBLIC int __open_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}

PUBLIC int __open64_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, 0);
}

PUBLIC int __openat_2(int directory, const char *path, int flags)
{
    return open_at(directory, path, flags, 0);
}

PUBLIC int __openat64_2(int directory, const char *path, int flags)
{
    return open_at(directory, path, flags | O_LARGEFILE, 0);
}

/* ---- looking ---- */

/* The node that a call like stat() is about. NULL and the empty path may name the descriptor:
 * whether they do, and whether the pointers are good, the kernel says. It is asked about *path,
 * which for a node is a file like it, and for a path of the session's sysfs one in `room`. */
static int node_named(int directory, const char **path, int flags, char room[PATH_MAX])
{
    int node = node_of_path(directory, *path);
    if (node != NODE_NONE) {
        *path = node_model(node);
    } else if (flags & AT_EMPTY_PATH && (!*path || program_path_length(*path) == 0)) {
        node = node_of_descriptor(directory);
    } else {
        *path = sysfs_path(*path, room);
    }
    return node;
}

static int stat_at(int directory, const char *path, struct stat *status, int flags)
{
    LOAD;
    char room[PATH_MAX];
    int node = node_named(directory, &path, flags, room);
    int result = real.fstatat(directory, path, status, flags);
    if (result == 0 && node != NODE_NONE) {
        node_stat(node, status);
    }
    return result;
}

static int stat_descriptor(int fd, struct stat *status)
{
    if (fd >= 0) {
        return stat_at(fd, "", status, AT_EMPTY_PATH);
    }
    errno = EBADF; /* fstatat would take AT_FDCWD for a directory */
    return -1;
}

/* On 64-bit systems struct stat64 is struct stat. */
PUBLIC int stat(const char *path, struct stat *status)
{
    return stat_at(AT_FDCWD, path, status, 0);
}

PUBLIC int stat64(const char *path, struct stat64 *status)
{
    return stat_at(AT_FDCWD, path, (struct stat *)status, 0);
}

PUBLIC int lstat(const char *path, struct stat *status)
{
    return stat_at(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

PUBLIC int lstat64(const char *path, struct stat64 *status)
{
    return stat_at(AT_FDCWD, path, (struct stat *)status, AT_SYMLINK_NOFOLLOW);
}

PUBLIC int fstat(int fd, struct stat *status)
{
    return stat_descriptor(fd, status);
}

PUBLIC int fstat64(int fd, struct stat64 *status)
{
    return stat_descriptor(fd, (struct stat *)status);
}

PUBLIC int fstatat(int directory, const char *path, struct stat *status, int flags)
{
    return stat_at(directory, path, status, flags);
}

PUBLIC int fstatat64(int directory, const char *path, struct stat64 *status, int flags)
{
    return stat_at(directory, path, (struct stat *)status, flags);
}

PUBLIC int __xstat(int version, const char *path, struct stat *status)
{
    (void)version;
    return stat_at(AT_FDCWD, path, status, 0);
}

PUBLIC int __xstat64(int version, const char *path, struct stat64 *status)
{
    (void)version;
    return stat_at(AT_FDCWD, path, (struct stat *)status, 0);
}

PUBLIC int __lxstat(int version, const char *path, struct stat *status)
{
    (void)version;
    return stat_at(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

PUBLIC int __lxstat64(int version, const char *path, struct stat64 *status)
{
    (void)version;
    return stat_at(AT_FDCWD, path, (struct stat *)status, AT_SYMLINK_NOFOLLOW);
}

PUBLIC int __fxstat(int version, int fd, struct stat *status)
{
    (void)version;
    return stat_descriptor(fd, status);
}

PUBLIC int __fxstat64(int version, int fd, struct stat64 *status)
{
    (void)version;
    return stat_descriptor(fd, (struct stat *)status);
}

PUBLIC int statx(int directory, const char *path, int flags, unsigned mask, struct statx *status)
{
    LOAD;
    char room[PATH_MAX];
    int node = node_named(directory, &path, flags, room);
    int result = real.statx(directory, path, flags, mask, status);
    if (result == 0 && node != NODE_NONE) {
        node_statx(node, status);
    }
    return result;
}

PUBLIC int access(const char *path, int mode)
{
    LOAD;
    char room[PATH_MAX];
    const int node = node_of_path(AT_FDCWD, path);
    return real.access(node == NODE_NONE ? sysfs_path(path, room) : node_model(node), mode);
}

PUBLIC int faccessat(int directory, const char *path, int mode, int flags)
{
    LOAD;
    char room[PATH_MAX];
    const int node = node_of_path(directory, path);
    return real.faccessat(directory, node == NODE_NONE ? sysfs_path(path, room) : node_model(node),
                          mode, flags);
}

/* ---- using ---- */

/* Requests that the kernel answers before it asks the file's driver. */
static bool is_of_every_file(unsigned long request)
{
    return request == FIOCLEX || request == FIONCLEX || request == FIONBIO || request == FIOASYNC;
}

PUBLIC int ioctl(int fd, unsigned long request, ...)
{
    LOAD;
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct file *file = descriptors_get(fd);
    if (!file) {
        return real.ioctl(fd, request, argument);
    }
    if (is_of_every_file(request)) {
        int answer = real.ioctl(fd, request, argument);
        int error = errno;
        descriptors_put(file);
        errno = error;
        return answer;
    }
    int result = file->kind == DESCRIPTOR_UVERBS && request == RDMA_VERBS_IOCTL
                     ? uverbs_ioctl(file->thing, argument)
                     : ENOTTY;
    descriptors_put(file);
    if (result == 0) {
        return 0;
    }
    errno = result;
    return -1;
}

PUBLIC ssize_t read(int fd, void *buffer, size_t bytes)
{
    LOAD;
    struct file *file = descriptors_is_virtual(fd) ? descriptors_get(fd) : NULL;
    if (!file) {
        return real.read(fd, buffer, bytes);
    }
    ssize_t result = -1;
    errno = EINVAL;
    if (file->kind == DESCRIPTOR_EVENTS) {
        result = channel_read(file->thing, fd, buffer, bytes);
    }
    int error = errno;
    descriptors_put(file);
    errno = error;
    return result;
}

PUBLIC ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room)
{
    if (bytes > room) {
        abort();
    }
    return read(fd, buffer, bytes);
}

PUBLIC ssize_t write(int fd, const void *buffer, size_t bytes)
{
    LOAD;
    struct file *file = descriptors_is_virtual(fd) ? descriptors_get(fd) : NULL;
    if (!file) {
        return real.write(fd, buffer, bytes);
    }
    ssize_t result = -EINVAL;
    if (file->kind == DESCRIPTOR_CM && !file->thing) {
        result = -ENODEV; /* it was the parent's, before a fork */
    } else if (file->kind == DESCRIPTOR_CM) {
        result = cm_file_write(file->thing, buffer, bytes, real.fcntl(fd, F_GETFL) & O_NONBLOCK);
    } else if (file->kind == DESCRIPTOR_UVERBS) {
        result = uverbs_write(buffer, bytes);
    }
    descriptors_put(file);
    if (result >= 0) {
        return result;
    }
    errno = (int)-result;
    return -1;
}

/* ---- descriptors come and go ---- */

/* The descriptor of the NIC's pages is not the program's. */
static bool is_our_own(int fd)
{
    return process.attached && fd == process.page_file && pages_have_file();
}

PUBLIC int close(int fd)
{
    LOAD;
    if (is_our_own(fd)) {
        errno = EBADF; /* the program never opened it */
        return -1;
    }
    /* Out of the table first: as soon as the descriptor is closed, its number may be another
     * file's. */
    descriptors_remove(fd);
    return real.close(fd);
}

PUBLIC int close_range(unsigned first, unsigned last, int flags)
{
    LOAD;
    /* With CLOSE_RANGE_CLOEXEC it closes nothing now, and nothing at all if the kernel will
     * refuse. */
    bool closes = first <= last && !(flags & ~CLOSE_RANGE_UNSHARE);
    if (closes) {
        for (unsigned fd = first; fd <= last && fd < 65536; fd++) {
            descriptors_remove((int)fd);
        }
    }
    unsigned own = (unsigned)process.page_file;
    if (!process.attached || own < first || own > last || !closes) {
        return real.close_range(first, last, flags);
    }
    int result = own > first ? real.close_range(first, own - 1, flags) : 0;
    return result == 0 && own < last ? real.close_range(own + 1, last, flags) : result;
}

PUBLIC void closefrom(int first)
{
    close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0);
}

/* The kernel has made a copy of a descriptor. The copy of a virtual one is virtual as well, if
 * there is a place for it. Returns the copy. */
static int duplicated(int fd, int copy)
{
    if (copy < 0 || fd == copy || descriptors_duplicate(fd, copy)) {
        return copy;
    }
    real.close(copy);
    errno = EMFILE;
    return -1;
}

PUBLIC int dup(int fd)
{
    LOAD;
    return duplicated(fd, descriptors_fresh(real.dup(fd)));
}

/* dup2 and dup3 close `copy`. It goes out of the table first, as with close(), unless they will
 * fail. */
static void make_way(int fd, int copy)
{
    if (fd != copy && descriptors_is_virtual(copy) && real.fcntl(fd, F_GETFD) >= 0) {
        descriptors_remove(copy);
    }
}

PUBLIC int dup2(int fd, int copy)
{
    LOAD;
    make_way(fd, copy);
    return duplicated(fd, real.dup2(fd, copy));
}

PUBLIC int dup3(int fd, int copy, int flags)
{
    LOAD;
    if (!(flags & ~O_CLOEXEC)) {
        make_way(fd, copy);
    }
    return duplicated(fd, real.dup3(fd, copy, flags));
}

static int control(int fd, int command, void *argument)
{
    LOAD;
    int result = real.fcntl(fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        return duplicated(fd, descriptors_fresh(result));
    }
    return result;
}

PUBLIC int fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return control(fd, command, argument);
}

PUBLIC int fcntl64(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return control(fd, command, argument);
}

/* ---- the rest ---- */

/* RDMA netlink would tell of this machine's own devices in place of ours. Without it, libibverbs
 * reads sysfs. */
PUBLIC int socket(int domain, int type, int protocol)
{
    LOAD;
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA && getenv(SESSION_VARIABLE)) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return descriptors_fresh(real.socket(domain, type, protocol));
}
