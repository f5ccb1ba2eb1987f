/* interpose.c: the C library's functions that the shim stands before. Each asks whether it is about
 * a path of /dev/infiniband or a virtual descriptor, and passes everything else on unchanged. The
 * kernel's names for wide files and the fortified and older names are here too, since programs are
 * bound to them. */

/* With wide offsets as the default the C library's headers give open() the name open64(); here both
 * are defined. */
#undef _FILE_OFFSET_BITS

#include "context.h"
#include "descriptors.h"
#include "devices.h"
#include "process.h"
#include "program_memory.h"
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/netlink.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* No header declares these: compilers and older programs call them. */
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

struct real real;

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) void real_load(void)
{
    if (real.open) {
        return;
    }
    *(void **)&real.openat = next("openat");
    *(void **)&real.close = next("close");
    *(void **)&real.read = next("read");
    *(void **)&real.write = next("write");
    *(void **)&real.ioctl = next("ioctl");
    *(void **)&real.mmap = next("mmap");
    *(void **)&real.munmap = next("munmap");
    *(void **)&real.pthread_sigmask = next("pthread_sigmask");
    *(void **)&real.sigprocmask = next("sigprocmask");
    *(void **)&real.dup = next("dup");
    *(void **)&real.dup2 = next("dup2");
    *(void **)&real.dup3 = next("dup3");
    *(void **)&real.fcntl = next("fcntl");
    *(void **)&real.socket = next("socket");
    *(void **)&real.access = next("access");
    *(void **)&real.faccessat = next("faccessat");
    *(void **)&real.fstatat = next("fstatat");
    *(void **)&real.statx = next("statx");
    *(void **)&real.sigaction = next("sigaction");
    *(void **)&real.close_range = next("close_range");
    *(void **)&real.open = next("open");
}

/* ---- opening ---- */

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
    LOAD;
    int device = device_of_path(directory, path);
    if (device != DEVICE_NONE) {
        return device_open(device, flags, mode);
    }
    return descriptors_fresh(real.openat(directory, path, flags, mode));
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

/* The device that a call like stat() is about: NULL and the empty path may name the descriptor. Whether
 * they do, and whether the pointers are good, the kernel says: see below. */
static int device_named(int directory, const char *path, int flags)
{
    if (flags & AT_EMPTY_PATH && (!path || program_path_length(path) == 0)) {
        return device_of_descriptor(directory);
    }
    return DEVICE_NONE;
}

static int stat_at(int directory, const char *path, struct stat *status, int flags)
{
    LOAD;
    int device = device_of_path(directory, path);
    if (device != DEVICE_NONE) {
        path = DEVICE_MODEL;
    } else {
        device = device_named(directory, path, flags);
    }
    int result = real.fstatat(directory, path, status, flags);
    if (result == 0 && device != DEVICE_NONE) {
        device_stat(device, status);
    }
    return result;
}

static int stat_descriptor(int fd, struct stat *status)
{
    if (fd >= 0) {
        return stat_at(fd, "", status, AT_EMPTY_PATH);
    }
    errno = EBADF; /* AT_FDCWD would be a directory there */
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
    int device = device_of_path(directory, path);
    if (device != DEVICE_NONE) {
        path = DEVICE_MODEL;
    } else {
        device = device_named(directory, path, flags);
    }
    int result = real.statx(directory, path, flags, mask, status);
    if (result == 0 && device != DEVICE_NONE) {
        device_statx(device, status);
    }
    return result;
}

PUBLIC int access(const char *path, int mode)
{
    LOAD;
    bool ours = device_of_path(AT_FDCWD, path) != DEVICE_NONE;
    return real.access(ours ? DEVICE_MODEL : path, mode);
}

PUBLIC int faccessat(int directory, const char *path, int mode, int flags)
{
    LOAD;
    bool ours = device_of_path(directory, path) != DEVICE_NONE;
    return real.faccessat(directory, ours ? DEVICE_MODEL : path, mode, flags);
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

/* The old write() interface of uverbs, which libibverbs does not use: it sends all by ioctl. */
static int refuse_command(const void *buffer, size_t bytes)
{
    struct ib_uverbs_cmd_hdr header;
    return bytes >= sizeof(header) && !program_read(&header, buffer, sizeof(header)) ? -EFAULT
                                                                                     : -EINVAL;
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
        result = -ENODEV; /* of the parent, before a fork */
    } else if (file->kind == DESCRIPTOR_CM) {
        result = cm_file_write(file->thing, buffer, bytes, real.fcntl(fd, F_GETFL) & O_NONBLOCK);
    } else if (file->kind == DESCRIPTOR_UVERBS) {
        result = refuse_command(buffer, bytes);
    }
    descriptors_put(file);
    if (result >= 0) {
        return result;
    }
    errno = (int)-result;
    return -1;
}

/* ---- descriptors come and go ---- */

/* The descriptor of the doorbell pages is not the program's. */
static bool is_our_own(int fd)
{
    return process.attached && fd == process.page_file && process_has_page_file();
}

PUBLIC int close(int fd)
{
    LOAD;
    if (is_our_own(fd)) {
        errno = EBADF; /* the program never opened it */
        return -1;
    }
    /* Out of the table first: once closed, the number may be another file's. */
    descriptors_remove(fd);
    return real.close(fd);
}

PUBLIC int close_range(unsigned first, unsigned last, int flags)
{
    LOAD;
    /* With CLOSE_RANGE_CLOEXEC it closes nothing now; a range or flags that the kernel refuses, never. */
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

/* What the kernel made of a virtual descriptor is one as well, if there is a place for it. Returns it. */
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

/* dup2 and dup3 close `copy`: it goes out of the table first, as with close(), unless they will fail. */
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

/* RDMA netlink would tell of this machine's own devices in place of ours; without it libibverbs
 * reads sysfs. */
PUBLIC int socket(int domain, int type, int protocol)
{
    LOAD;
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA && getenv("SIMNIC_SESSION")) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return descriptors_fresh(real.socket(domain, type, protocol));
}
