/* real.h: the C library's own functions. Programs call those of shim/libc in their place. */
#ifndef SIMNIC_SHIM_PROCESS_REAL_H
#define SIMNIC_SHIM_PROCESS_REAL_H

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

struct statx;

struct real {
    int (*open)(const char *, int, ...);
    int (*openat)(int, const char *, int, ...);
    int (*close)(int);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*write)(int, const void *, size_t);
    int (*ioctl)(int, unsigned long, ...);
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    int (*pthread_sigmask)(int, const sigset_t *, sigset_t *);
    int (*sigprocmask)(int, const sigset_t *, sigset_t *);
    int (*dup)(int);
    int (*dup2)(int, int);
    int (*dup3)(int, int, int);
    int (*fcntl)(int, int, ...);
    int (*socket)(int, int, int);
    int (*access)(const char *, int);
    int (*faccessat)(int, const char *, int, int);
    int (*fstatat)(int, const char *, struct stat *, int);
    int (*statx)(int, const char *, int, unsigned, struct statx *);
    int (*sigaction)(int, const struct sigaction *, struct sigaction *);
    int (*close_range)(unsigned, unsigned, int);
    FILE *(*fopen)(const char *, const char *);
    DIR *(*opendir)(const char *);
    int (*scandir)(const char *, struct dirent ***, int (*)(const struct dirent *),
                   int (*)(const struct dirent **, const struct dirent **));
    ssize_t (*readlink)(const char *, char *, size_t);
    ssize_t (*readlinkat)(int, const char *, char *, size_t);
    char *(*realpath)(const char *, char *);
    int (*euidaccess)(const char *, int);
};

/* Filled by the first function of shim/libc that is called, which may be before any constructor. */
extern struct real real;
void real_load(void);
#define LOAD                                                                                       \
    do {                                                                                           \
        if (!real.open) {                                                                          \
            real_load();                                                                           \
        }                                                                                          \
    } while (0)

/* Of functions that stand before the C library's. */
#define PUBLIC __attribute__((visibility("default")))

#endif
