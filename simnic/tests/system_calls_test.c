/* system_calls_test.c: NULL, bad pointers and odd arguments of the calls that the shim stands
 * before. Each call through the C library is compared with the system call itself, made by
 * syscall(), on a comparable object: the same value, the same errno, and nothing crashes. Under
 * `simnic run` the object is a virtual device and the comparable one /dev/null; with the word
 * "native" both are /dev/null, which shows that the comparisons themselves hold. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simnic/tests/system_calls.h"

#define KERNEL_SET_BYTES 8
#define MODEL "/dev/null"

struct report *report;
struct bad bad[BAD_COUNT] = {{"NULL", NULL},
                             {"a low address", (void *)8},
                             {"unmapped memory", NULL},
                             {"a string that runs into unmapped memory", NULL},
                             {"an address of the kernel's", (void *)0xffff800000000000},
                             {"the second byte", (void *)1},
                             {"the last byte", (void *)UINTPTR_MAX}};

static bool native;
static const char *device = "/dev/infiniband/uverbs0";

void doing(const char *call, const char *argument)
{
    snprintf(report->doing, sizeof(report->doing), "%s%s%s", call, *argument ? " of " : "",
             argument);
}

void judge(struct outcome got, struct outcome expected)
{
    report->count++;
    if (got.value == expected.value && got.error == expected.error) {
        return;
    }
    report->failures++;
    printf("# %s: %ld (%s) instead of %ld (%s)\n", report->doing, got.value,
           strerrorname_np(got.error), expected.value, strerrorname_np(expected.error));
}

static void make_bad_pointers(void)
{
    char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory + PAGE - 8, "/dev/inf", 8);
    /* Kept from other uses, and yet not there. */
    mprotect(memory + PAGE, PAGE, PROT_NONE);
    bad[UNMAPPED].pointer = memory + PAGE;
    bad[RUNS_OUT].pointer = memory + PAGE - 8;
}

/* ---- paths ---- */

static void test_bad_paths(void)
{
    struct stat status;
    struct stat64 status64;
    struct statx extended;
    for (size_t i = 0; i < BAD_COUNT; i++) {
        const char *name = bad[i].name, *path = bad[i].pointer;
        COMPARE(name, open(path, O_RDONLY), syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
        COMPARE(name, open64(path, O_RDONLY), syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
        COMPARE(name, openat(AT_FDCWD, path, O_RDONLY),
                syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
        COMPARE(name, openat64(-1, path, O_RDONLY), syscall(SYS_openat, -1, path, O_RDONLY));
        COMPARE(name, stat(path, &status), syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0));
        COMPARE(name, stat64(path, &status64), syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0));
        COMPARE(name, lstat(path, &status),
                syscall(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW));
        COMPARE(name, fstatat(AT_FDCWD, path, &status, 0),
                syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0));
        COMPARE(name, fstatat(AT_FDCWD, path, &status, AT_EMPTY_PATH),
                syscall(SYS_newfstatat, AT_FDCWD, path, &status, AT_EMPTY_PATH));
        COMPARE(name, statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended),
                syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended));
        COMPARE(name, statx(0, path, AT_EMPTY_PATH, STATX_BASIC_STATS, &extended),
                syscall(SYS_statx, 0, path, AT_EMPTY_PATH, STATX_BASIC_STATS, &extended));
        COMPARE(name, access(path, R_OK), syscall(SYS_faccessat, AT_FDCWD, path, R_OK));
        COMPARE(name, faccessat(AT_FDCWD, path, R_OK, 0),
                syscall(SYS_faccessat, AT_FDCWD, path, R_OK));
    }
    /* Rust's standard library asks so whether there is a statx. */
    void *volatile none = NULL;
    COMPARE("", statx(0, none, 0, STATX_BASIC_STATS | STATX_BTIME, none),
            syscall(SYS_statx, 0, none, 0, STATX_BASIC_STATS | STATX_BTIME, none));
}

static void test_outputs_of_stat(void)
{
    for (size_t i = 0; i < BAD_COUNT; i++) {
        const char *name = bad[i].name;
        void *to = bad[i].pointer;
        COMPARE(name, stat(device, to), syscall(SYS_newfstatat, AT_FDCWD, MODEL, to, 0));
        COMPARE(name, lstat(device, to), syscall(SYS_newfstatat, AT_FDCWD, MODEL, to, 0));
        COMPARE(name, fstatat(-1, device, to, 0), syscall(SYS_newfstatat, -1, MODEL, to, 0));
        COMPARE(name, statx(-1, device, 0, STATX_BASIC_STATS, to),
                syscall(SYS_statx, -1, MODEL, 0, STATX_BASIC_STATS, to));
    }
}

static void test_flags_of_paths(void)
{
    static const int open_flags[] = {O_RDWR | O_CLOEXEC,
                                     O_RDONLY | O_DIRECTORY,
                                     O_RDWR | O_CREAT | O_EXCL,
                                     O_RDWR | O_CREAT,
                                     O_RDWR | O_CREAT | O_DIRECTORY,
                                     O_RDWR | O_TMPFILE,
                                     O_RDONLY | O_TMPFILE,
                                     O_RDWR | O_NOFOLLOW,
                                     O_RDWR | O_TRUNC,
                                     O_RDWR | O_DIRECT};
    char name[32];
    for (size_t i = 0; i < sizeof(open_flags) / sizeof(open_flags[0]); i++) {
        snprintf(name, sizeof(name), "%#o", (unsigned)open_flags[i]);
        COMPARE(name, open(device, open_flags[i], 0600),
                syscall(SYS_openat, AT_FDCWD, MODEL, open_flags[i], 0600));
    }
    for (int mode = -1; mode <= 16; mode++) {
        snprintf(name, sizeof(name), "%d", mode);
        COMPARE(name, access(device, mode), syscall(SYS_faccessat, AT_FDCWD, MODEL, mode));
        COMPARE(name, faccessat(-1, device, mode, 0), syscall(SYS_faccessat, -1, MODEL, mode));
    }
    struct stat status;
    struct statx extended;
    for (int bit = 0; bit < 32; bit++) {
        int flags = (int)(1u << bit);
        snprintf(name, sizeof(name), "%#x", (unsigned)flags);
        COMPARE(name, statx(AT_FDCWD, device, flags, STATX_BASIC_STATS, &extended),
                syscall(SYS_statx, AT_FDCWD, MODEL, flags, STATX_BASIC_STATS, &extended));
        COMPARE(name, statx(AT_FDCWD, device, 0, (unsigned)flags, &extended),
                syscall(SYS_statx, AT_FDCWD, MODEL, 0, (unsigned)flags, &extended));
        COMPARE(name, fstatat(AT_FDCWD, device, &status, flags),
                syscall(SYS_newfstatat, AT_FDCWD, MODEL, &status, flags));
        COMPARE(name, faccessat(AT_FDCWD, device, R_OK, flags),
                syscall(SYS_faccessat2, AT_FDCWD, MODEL, R_OK, flags));
    }
}

static bool is_the_device(int directory, const char *path)
{
    struct stat expected, status;
    struct statx extended;
    int fd = openat(directory, path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || stat(device, &expected) != 0 || fstat(fd, &status) != 0 || close(fd) != 0 ||
        !S_ISCHR(status.st_mode) || status.st_rdev != expected.st_rdev) {
        return false;
    }
    if (fstatat(directory, path, &status, 0) != 0 || status.st_rdev != expected.st_rdev ||
        faccessat(directory, path, R_OK | W_OK, 0) != 0) {
        return false;
    }
    return statx(directory, path, 0, STATX_BASIC_STATS, &extended) == 0 &&
           makedev(extended.stx_rdev_major, extended.stx_rdev_minor) == expected.st_rdev;
}

static void test_ways_to_write_a_path(void)
{
    int dev = open("/dev", O_RDONLY | O_DIRECTORY), root = open("/", O_PATH);
    HOLDS(is_the_device(AT_FDCWD, device));
    HOLDS(is_the_device(-1, device));
    HOLDS(native || is_the_device(AT_FDCWD, "/dev//infiniband/../infiniband/uverbs0"));
    HOLDS(native || is_the_device(AT_FDCWD, "/./dev/infiniband/.//uverbs0"));
    HOLDS(native || is_the_device(dev, "infiniband/uverbs0"));
    HOLDS(native || is_the_device(root, "dev/infiniband/uverbs0"));
    HOLDS(native || is_the_device(dev, "../dev/./infiniband/uverbs0"));
    FAILS("", open("uverbs0", O_RDWR), ENOENT);
    FAILS("", openat(dev, "uverbs0", O_RDWR), ENOENT);
    FAILS("", openat(-1, "infiniband/uverbs0", O_RDWR), EBADF);
    FAILS("", openat(1 << 30, "infiniband/uverbs0", O_RDWR), EBADF);
    HOLDS(chdir("/dev") == 0);
    HOLDS(native || is_the_device(AT_FDCWD, "infiniband/uverbs0"));
    HOLDS(native || is_the_device(AT_FDCWD, "./infiniband/../../dev//infiniband/uverbs0"));
    HOLDS(chdir("/") == 0);
    HOLDS(native || is_the_device(AT_FDCWD, "dev/infiniband/uverbs0"));
    FAILS("", open("", O_RDWR), ENOENT);
    static char longest[3 * PAGE];
    memset(longest, '/', sizeof(longest) - 1);
    memcpy(longest + sizeof(longest) - 8, "uverbs0", 8);
    COMPARE("a path that is too long", open(longest, O_RDWR),
            syscall(SYS_openat, AT_FDCWD, longest, O_RDWR));
    close(dev);
    close(root);
}

/* ---- signals ---- */

static long set_action(int signal_number, const void *action, void *old)
{
    return syscall(SYS_rt_sigaction, signal_number, action, old, KERNEL_SET_BYTES);
}

static long set_mask(int how, const void *set, void *old)
{
    return syscall(SYS_rt_sigprocmask, how, set, old, KERNEL_SET_BYTES);
}

/* pthread_sigmask returns what others put into errno. */
static int set_thread_mask(int how, const sigset_t *set, sigset_t *old)
{
    int error = pthread_sigmask(how, set, old);
    errno = error;
    return error ? -1 : 0;
}

static void test_signals(void)
{
    static const int signals[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGTRAP};
    struct sigaction before, action = {.sa_handler = SIG_DFL};
    struct sigaction *volatile no_action = NULL;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < BAD_COUNT; i++) {
        const char *name = bad[i].name;
        void *pointer = bad[i].pointer;
        if (native && pointer) {
            continue; /* the C library itself looks at them, and crashes */
        }
        for (size_t j = 0; j < sizeof(signals) / sizeof(signals[0]); j++) {
            COMPARE(name, sigaction(signals[j], pointer, no_action),
                    set_action(SIGUSR1, pointer, NULL));
            COMPARE(name, sigaction(signals[j], no_action, pointer),
                    set_action(SIGUSR1, NULL, pointer));
            COMPARE(name, sigaction(signals[j], &action, pointer),
                    set_action(SIGUSR1, NULL, pointer));
        }
        if (i == RUNS_OUT) {
            continue; /* the kernel's own sets end there */
        }
        COMPARE(name, sigprocmask(SIG_BLOCK, pointer, NULL), set_mask(SIG_BLOCK, pointer, NULL));
        COMPARE(name, sigprocmask(SIG_UNBLOCK, pointer, NULL),
                set_mask(SIG_UNBLOCK, pointer, NULL));
        COMPARE(name, sigprocmask(SIG_SETMASK, &set, pointer),
                set_mask(SIG_SETMASK, &set, pointer));
        COMPARE(name, set_thread_mask(SIG_BLOCK, pointer, NULL),
                set_mask(SIG_BLOCK, pointer, NULL));
        COMPARE(name, set_thread_mask(SIG_BLOCK, NULL, pointer),
                set_mask(SIG_BLOCK, NULL, pointer));
    }
    static const int numbers[] = {-1, 0, SIGKILL, SIGSTOP, 65, 1 << 30};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", numbers[i]);
        FAILS(name, sigaction(numbers[i], &action, &before), EINVAL);
        FAILS(name, signal(numbers[i], SIG_IGN), EINVAL);
    }
    FAILS("", signal(SIGUSR1, SIG_ERR), EINVAL);
    FAILS("", sigprocmask(77, &set, NULL), EINVAL);
    FAILS("", set_thread_mask(77, &set, NULL), EINVAL);
    HOLDS(sigprocmask(77, NULL, &set) == 0);
    /* What was told in between is still so. */
    HOLDS(sigaction(SIGSEGV, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
    HOLDS(signal(SIGUSR1, SIG_IGN) == SIG_DFL && signal(SIGUSR1, SIG_DFL) == SIG_IGN);
}

/* ---- descriptors ---- */

long map(int fd, void *address, size_t bytes, int flags, off_t offset)
{
    void *memory = mmap(address, bytes, PROT_READ | PROT_WRITE, flags, fd, offset);
    return memory == MAP_FAILED ? -1 : 0;
}

static long system_map(int fd, void *address, size_t bytes, int flags, off_t offset)
{
    return syscall(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE, flags, fd, offset) == -1 ? -1
                                                                                              : 0;
}

static void test_mappings(int fd, int zero)
{
    void *kernel = (void *)0xffff800000000000;
    COMPARE("", map(fd, NULL, 0, MAP_SHARED, PAGE), system_map(zero, NULL, 0, MAP_SHARED, PAGE));
    COMPARE("", map(fd, NULL, PAGE, MAP_SHARED, 8), system_map(zero, NULL, PAGE, MAP_SHARED, 8));
    COMPARE("", map(fd, NULL, PAGE, 0, PAGE), system_map(zero, NULL, PAGE, 0, PAGE));
    COMPARE("", map(fd, (void *)8, PAGE, MAP_SHARED | MAP_FIXED, PAGE),
            system_map(zero, (void *)8, PAGE, MAP_SHARED | MAP_FIXED, PAGE));
    if (native) {
        COMPARE("", map(fd, kernel, PAGE, MAP_SHARED | MAP_FIXED, PAGE),
                system_map(zero, kernel, PAGE, MAP_SHARED | MAP_FIXED, PAGE));
    }
    COMPARE("", map(fd, NULL, SIZE_MAX, MAP_SHARED, PAGE),
            system_map(zero, NULL, SIZE_MAX, MAP_SHARED, PAGE));
    COMPARE("", map(-1, NULL, PAGE, MAP_SHARED, 0), system_map(-1, NULL, PAGE, MAP_SHARED, 0));
    COMPARE("", map(1 << 30, NULL, PAGE, MAP_SHARED, 0),
            system_map(1 << 30, NULL, PAGE, MAP_SHARED, 0));
    COMPARE("", munmap((void *)8, PAGE), syscall(SYS_munmap, (void *)8, PAGE));
    COMPARE("", munmap(NULL, 0), syscall(SYS_munmap, NULL, 0));
    COMPARE("", munmap(kernel, PAGE), syscall(SYS_munmap, kernel, PAGE));
    COMPARE("", munmap(NULL, SIZE_MAX), syscall(SYS_munmap, NULL, SIZE_MAX));
    if (native) {
        return;
    }
    /* No such page, nobody's page, more than a page, and a private one of a device's registers. */
    FAILS("", map(fd, NULL, PAGE, MAP_SHARED, 0), EINVAL);
    FAILS("", map(fd, NULL, PAGE, MAP_SHARED, (off_t)PAGE << 40), EINVAL);
    FAILS("", map(fd, NULL, PAGE, MAP_SHARED, (off_t)PAGE * 1000), EINVAL);
    FAILS("", map(fd, NULL, PAGE, MAP_SHARED, -(off_t)PAGE), EINVAL);
}

static void test_descriptor_calls(int fd, int null)
{
    for (size_t i = 0; i < BAD_COUNT; i++) {
        const char *name = bad[i].name;
        void *pointer = bad[i].pointer;
        struct statx *extended = pointer;
        COMPARE(name, fstat(fd, pointer), syscall(SYS_fstat, null, pointer));
        COMPARE(name, fstatat(fd, "", pointer, AT_EMPTY_PATH),
                syscall(SYS_newfstatat, null, "", pointer, AT_EMPTY_PATH));
        COMPARE(name, statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, extended),
                syscall(SYS_statx, null, "", AT_EMPTY_PATH, STATX_BASIC_STATS, extended));
        COMPARE(name, fcntl(fd, F_SETLK, pointer), syscall(SYS_fcntl, null, F_SETLK, pointer));
        COMPARE(name, fcntl(fd, F_GETLK, pointer), syscall(SYS_fcntl, null, F_GETLK, pointer));
        if (i != RUNS_OUT) {
            COMPARE(name, ioctl(fd, FIONBIO, pointer), syscall(SYS_ioctl, null, FIONBIO, pointer));
        }
    }
    struct stat status;
    struct statx extended;
    char *volatile no_path = NULL;
    COMPARE("", fstatat(fd, no_path, &status, AT_EMPTY_PATH),
            syscall(SYS_newfstatat, null, NULL, &status, AT_EMPTY_PATH));
    COMPARE("", statx(fd, no_path, AT_EMPTY_PATH, STATX_BASIC_STATS, &extended),
            syscall(SYS_statx, null, NULL, AT_EMPTY_PATH, STATX_BASIC_STATS, &extended));
    COMPARE("", statx(fd, "", AT_EMPTY_PATH, 1u << 31, &extended),
            syscall(SYS_statx, null, "", AT_EMPTY_PATH, 1u << 31, &extended));
    COMPARE("", fstat(AT_FDCWD, &status), syscall(SYS_fstat, AT_FDCWD, &status));
    COMPARE("", ioctl(fd, FIOCLEX), syscall(SYS_ioctl, null, FIOCLEX));
    HOLDS(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    COMPARE("", ioctl(fd, TCGETS, &status), syscall(SYS_ioctl, null, TCGETS, &status));
    static const int numbers[] = {-1, -100, 1 << 20, 1 << 30, (int)(1u << 31)};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char name[16];
        int odd = numbers[i];
        snprintf(name, sizeof(name), "%d", odd);
        COMPARE(name, close(odd), syscall(SYS_close, odd));
        COMPARE(name, dup(odd), syscall(SYS_dup, odd));
        COMPARE(name, dup2(odd, fd), syscall(SYS_dup2, odd, null));
        COMPARE(name, dup2(odd, odd), syscall(SYS_dup2, odd, odd));
        COMPARE(name, dup3(odd, fd, O_CLOEXEC), syscall(SYS_dup3, odd, null, O_CLOEXEC));
        COMPARE(name, dup2(fd, odd), syscall(SYS_dup2, null, odd));
        COMPARE(name, fcntl(odd, F_GETFD), syscall(SYS_fcntl, odd, F_GETFD));
        COMPARE(name, fcntl(odd, F_DUPFD, 0), syscall(SYS_fcntl, odd, F_DUPFD, 0));
        COMPARE(name, fcntl(fd, F_DUPFD, odd), syscall(SYS_fcntl, null, F_DUPFD, odd));
        COMPARE(name, fcntl(fd, odd), syscall(SYS_fcntl, null, odd));
        COMPARE(name, ioctl(odd, FIOCLEX), syscall(SYS_ioctl, odd, FIOCLEX));
        COMPARE(name, read(odd, &status, 1), syscall(SYS_read, odd, &status, 1));
        COMPARE(name, write(odd, &status, 1), syscall(SYS_write, odd, &status, 1));
        COMPARE(name, fstat(odd, &status), syscall(SYS_fstat, odd, &status));
    }
    COMPARE("", dup2(fd, fd), syscall(SYS_dup2, null, null));
    COMPARE("", dup3(fd, fd, 0), syscall(SYS_dup3, null, null, 0));
    COMPARE("", dup3(null, fd, O_APPEND), syscall(SYS_dup3, fd, null, O_APPEND));
    unsigned first = (unsigned)fd, model = (unsigned)null;
    COMPARE("", close_range(first + 1, first, 0), syscall(SYS_close_range, model + 1, model, 0));
    COMPARE("", close_range(~0u, first, 0), syscall(SYS_close_range, ~0u, model, 0));
    COMPARE("", close_range(first, first, 1 << 7), syscall(SYS_close_range, model, model, 1 << 7));
    COMPARE("", close_range(first, first, CLOSE_RANGE_CLOEXEC),
            syscall(SYS_close_range, model, model, CLOSE_RANGE_CLOEXEC));
}

/* A number that was a virtual descriptor's is an ordinary one's after dup2, and the other way
 * round. */
static void test_numbers_change_hands(int fd, int null)
{
    struct stat expected, status;
    int copy = dup(fd);
    HOLDS(fstat(fd, &expected) == 0 && fstat(copy, &status) == 0 &&
          status.st_rdev == expected.st_rdev);
    HOLDS(dup2(null, copy) == copy && write(copy, "1", 1) == 1);
    HOLDS(dup2(fd, copy) == copy && fstat(copy, &status) == 0 &&
          status.st_rdev == expected.st_rdev);
    HOLDS(close_range((unsigned)copy, (unsigned)copy, 0) == 0);
    FAILS("", fstat(copy, &status), EBADF);
    FAILS("", close(copy), EBADF);
}

/* ---- parts ---- */

static void without_device(void)
{
    test_bad_paths();
    test_signals();
    test_outputs_of_stat();
}

static void with_device(void)
{
    int null = open(MODEL, O_RDWR | O_CLOEXEC), zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    struct ibv_context *context = NULL;
    int fd = null;
    if (!native) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        context = list && list[0] ? ibv_open_device(list[0]) : NULL;
        HOLDS(context != NULL);
        if (!context) {
            return;
        }
        fd = context->cmd_fd;
        ibv_free_device_list(list);
        null = open(MODEL, O_RDWR | O_CLOEXEC);
    } else {
        fd = dup(null);
    }
    test_bad_paths();
    test_signals();
    test_outputs_of_stat();
    test_flags_of_paths();
    test_ways_to_write_a_path();
    test_mappings(native ? zero : fd, zero);
    test_descriptor_calls(fd, null);
    test_numbers_change_hands(fd, null);
    if (native) {
        return;
    }
    test_verbs(context);
    test_events(context);
    test_connection_manager();
    test_still_works(context);
    HOLDS(ibv_close_device(context) == 0);
}

static void run_part(unsigned number, const char *name, void (*part)(void))
{
    *report = (struct report){.count = 0};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* a call that hangs */
        part();
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ended) {
        printf("# ended with status %#x in: %s\n", (unsigned)status, report->doing);
    }
    bool good = ended && report->failures == 0 && report->count > 0;
    printf("%sok %u - %s: %u calls\n", good ? "" : "not ", number, name, report->count);
}

int main(int argc, char **argv)
{
    native = argc > 1 && strcmp(argv[1], "native") == 0;
    if (native) {
        device = MODEL;
    }
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make_bad_pointers();
    printf("1..2\n");
    run_part(1, "before a device is open", without_device);
    run_part(2, "with an open device", with_device);
    return 0;
}
