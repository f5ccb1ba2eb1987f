/* real.c: finds the C library's own functions. */
#include "simnic/shim/process/real.h"

#include <dlfcn.h>

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
    *(void **)&real.fopen = next("fopen");
    *(void **)&real.opendir = next("opendir");
    *(void **)&real.scandir = next("scandir");
    *(void **)&real.readlink = next("readlink");
    *(void **)&real.readlinkat = next("readlinkat");
    *(void **)&real.realpath = next("realpath");
    *(void **)&real.euidaccess = next("euidaccess");
    *(void **)&real.open = next("open");
}
