/* interpose.c: the C library's functions that the shim stands before. Each asks whether it is about
 * a path of /dev/infiniband or a virtual descriptor, and passes everything else on unchanged. The
 * kernel's names for wide files and the fortified and older names are here too, since programs are
 * bound to them. */

/* With wide offsets as the default the C library's headers give open() the name open64(); here both
 * are defined. */
#undef _FILE_OFFSET_BITS

#include "clock.h"
#include "context.h"
#include "descriptors.h"
#include "devices.h"
#include "doorbells.h"
#include "process.h"
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

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
    if (real.open)
        return;
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

#define LOAD                                                                                       \
    do {                                                                                           \
        if (!real.open)                                                                            \
            real_load();                                                                           \
    } while (0)

/* ---- opening ---- */

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
    LOAD;
    int device = device_of_path(path);
    if (device != DEVICE_NONE)
        return device_open(device, flags);
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

static int stat_at(int directory, const char *path, struct stat *status, int flags)
{
    LOAD;
    int device = device_of_path(path);
    if (device == DEVICE_NONE && path && *path == '\0' && flags & AT_EMPTY_PATH)
        device = device_of_descriptor(directory);
    if (device == DEVICE_NONE)
        return real.fstatat(directory, path, status, flags);
    device_stat(device, status);
    return 0;
}

static int stat_descriptor(int fd, struct stat *status)
{
    LOAD;
    int device = device_of_descriptor(fd);
    if (device == DEVICE_NONE)
        return real.fstatat(fd, "", status, AT_EMPTY_PATH);
    device_stat(device, status);
    return 0;
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
    int device = device_of_path(path);
    if (device == DEVICE_NONE && *path == '\0' && flags & AT_EMPTY_PATH)
        device = device_of_descriptor(directory);
    if (device == DEVICE_NONE)
        return real.statx(directory, path, flags, mask, status);
    device_statx(device, status);
    return 0;
}

PUBLIC int access(const char *path, int mode)
{
    LOAD;
    return device_of_path(path) != DEVICE_NONE ? device_access(mode) : real.access(path, mode);
}

PUBLIC int faccessat(int directory, const char *path, int mode, int flags)
{
    LOAD;
    return device_of_path(path) != DEVICE_NONE ? device_access(mode)
                                               : real.faccessat(directory, path, mode, flags);
}

/* ---- using ---- */

PUBLIC int ioctl(int fd, unsigned long request, ...)
{
    LOAD;
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct file *file = descriptors_get(fd);
    if (!file)
        return real.ioctl(fd, request, argument);
    int result = file->kind == DESCRIPTOR_UVERBS && request == RDMA_VERBS_IOCTL
                     ? uverbs_ioctl(file->thing, argument)
                     : ENOTTY;
    descriptors_put(file);
    if (result == 0)
        return 0;
    errno = result;
    return -1;
}

PUBLIC ssize_t read(int fd, void *buffer, size_t bytes)
{
    LOAD;
    struct file *file = descriptors_is_virtual(fd) ? descriptors_get(fd) : NULL;
    if (!file)
        return real.read(fd, buffer, bytes);
    ssize_t result = -1;
    errno = EINVAL;
    if (file->kind == DESCRIPTOR_EVENTS)
        result = channel_read(file->thing, fd, buffer, bytes);
    int error = errno;
    descriptors_put(file);
    errno = error;
    return result;
}

PUBLIC ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room)
{
    if (bytes > room)
        abort();
    return read(fd, buffer, bytes);
}

PUBLIC ssize_t write(int fd, const void *buffer, size_t bytes)
{
    LOAD;
    struct file *file = descriptors_is_virtual(fd) ? descriptors_get(fd) : NULL;
    if (!file)
        return real.write(fd, buffer, bytes);
    ssize_t result =
        -EINVAL; /* the old write() interface of uverbs is not used: libibverbs sends all by ioctl */
    if (file->kind == DESCRIPTOR_CM && !file->thing)
        result = -ENODEV; /* of the parent, before a fork */
    else if (file->kind == DESCRIPTOR_CM)
        result = cm_file_write(file->thing, buffer, bytes, real.fcntl(fd, F_GETFL) & O_NONBLOCK);
    descriptors_put(file);
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

/* Where the file of the pages is lost, our own mapping of them is doubled (mremap's old size of 0). */
static void *map_pages(void *address, size_t bytes, int protection, int flags, off_t offset)
{
    if (!process.page_file_lost)
        return real.mmap(address, bytes, protection, flags | MAP_POPULATE, process.page_file,
                         offset);
    void *memory = mremap(process.page_memory + offset, 0, bytes,
                          MREMAP_MAYMOVE | (flags & MAP_FIXED ? MREMAP_FIXED : 0), address);
    if (memory != MAP_FAILED && mprotect(memory, bytes, protection) != 0) {
        real.munmap(memory, bytes);
        return MAP_FAILED;
    }
    return memory;
}

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    LOAD;
    if (!descriptors_is_virtual(fd))
        return real.mmap(address, bytes, protection, flags, fd, offset);
    /* Doorbell pages are written only, and shared with no child, as the kernel's mappings of a
     * device's registers are. */
    size_t page = (size_t)offset / DEVICE_UAR_BYTES;
    if (page == CLOCK_INFO_PAGE)
        clock_refresh();
    protection = page == CLOCK_CORE_PAGE ? PROT_NONE : protection | PROT_READ;
    void *memory = map_pages(address, bytes, protection, flags, offset);
    if (memory == MAP_FAILED)
        return memory;
    madvise(memory, bytes, MADV_DONTFORK);
    if (!clock_is_page(page)) {
        doorbells_map((uint32_t)page, memory);
    } else if (page == CLOCK_CORE_PAGE && !clock_map(memory)) {
        real.munmap(memory, bytes);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return memory;
}

PUBLIC void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return map(address, bytes, protection, flags, fd, offset);
}

PUBLIC void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map(address, bytes, protection, flags, fd, offset);
}

PUBLIC int munmap(void *address, size_t bytes)
{
    LOAD;
    doorbells_unmap(address, bytes); /* out of the tables first, as with descriptors */
    clock_unmap(address, bytes);
    return real.munmap(address, bytes);
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
    if (!(flags & 4)) /* CLOSE_RANGE_CLOEXEC closes nothing now */
        for (unsigned fd = first; fd <= last && fd < 65536; fd++)
            descriptors_remove((int)fd);
    unsigned own = (unsigned)process.page_file;
    if (!process.attached || own < first || own > last || flags & 4)
        return real.close_range(first, last, flags);
    int result = own > first ? real.close_range(first, own - 1, flags) : 0;
    return result == 0 && own < last ? real.close_range(own + 1, last, flags) : result;
}

PUBLIC void closefrom(int first)
{
    close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0);
}

PUBLIC int dup(int fd)
{
    LOAD;
    int copy = descriptors_fresh(real.dup(fd));
    descriptors_duplicate(fd, copy);
    return copy;
}

PUBLIC int dup2(int fd, int copy)
{
    LOAD;
    if (fd != copy)
        descriptors_remove(copy);
    int result = real.dup2(fd, copy);
    if (result >= 0 && fd != copy)
        descriptors_duplicate(fd, result);
    return result;
}

PUBLIC int dup3(int fd, int copy, int flags)
{
    LOAD;
    if (fd != copy)
        descriptors_remove(copy);
    int result = real.dup3(fd, copy, flags);
    if (result >= 0)
        descriptors_duplicate(fd, result);
    return result;
}

static int control(int fd, int command, void *argument)
{
    LOAD;
    int result = real.fcntl(fd, command, argument);
    if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && descriptors_fresh(result) >= 0)
        descriptors_duplicate(fd, result);
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

PUBLIC int sigaction(int signal_number, const struct sigaction *action, struct sigaction *old)
{
    LOAD;
    if (segv_swap_program_action(signal_number, action, old))
        return 0;
    if (!action)
        return real.sigaction(signal_number, action, old);
    /* A handler may ring doorbells as well: see pthread_sigmask. */
    struct sigaction copy = *action;
    sigdelset(&copy.sa_mask, SIGSEGV);
    sigdelset(&copy.sa_mask, SIGBUS);
    return real.sigaction(signal_number, &copy, old);
}

/* The signals that stop a thread at a doorbell cannot be blocked: the kernel kills a thread that
 * faults with them blocked. */
static const sigset_t *without_ours(const sigset_t *set, int how, sigset_t *copy)
{
    if (!set || how == SIG_UNBLOCK || !process.attached)
        return set;
    *copy = *set;
    sigdelset(copy, SIGSEGV);
    sigdelset(copy, SIGBUS);
    return copy;
}

PUBLIC int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    LOAD;
    sigset_t copy;
    return real.pthread_sigmask(how, without_ours(set, how, &copy), old);
}

PUBLIC int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    LOAD;
    sigset_t copy;
    return real.sigprocmask(how, without_ours(set, how, &copy), old);
}

PUBLIC sighandler_t signal(int signal_number, sighandler_t handler)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    return sigaction(signal_number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}
