/* program_memory.c: see program_memory.h. */
#include "simnic/shim/kernel/program_memory.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/mmio/traps.h"
#include "simnic/shim/process/process.h"

#define PAGE 4096u
#define SET_BYTES 8u /* of the kernel's signal sets */

/* `how` is none that the kernel knows, but it reads the set first. NULL would mean that there is no
 * set. */
static bool is_readable_at(uintptr_t address)
{
    int error = errno;
    uintptr_t set = address & ~(uintptr_t)(SET_BYTES - 1);
    if (!set) {
        return false;
    }
    long result = syscall(SYS_rt_sigprocmask, -1, set, NULL, (size_t)SET_BYTES);
    bool readable = result == 0 || errno != EFAULT;
    errno = error;
    return readable;
}

/* The kernel writes the thread's mask there. The caller writes something else over it. */
static bool is_writable_at(uintptr_t address)
{
    int error = errno;
    bool writable = syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, address, (size_t)SET_BYTES) == 0;
    errno = error;
    return writable;
}

static bool is_readable(uintptr_t start, size_t bytes)
{
    if (start + bytes < start) {
        return false;
    }
    for (uintptr_t at = start; at < start + bytes; at = (at | (PAGE - 1)) + 1) {
        if (!is_readable_at(at)) {
            return false;
        }
    }
    return true;
}

bool program_read(void *to, const void *from, size_t bytes)
{
    if (traps_are_installed()) {
        return dma_copy(to, from, bytes);
    }
    if (!is_readable((uintptr_t)from, bytes)) {
        return false;
    }
    memcpy(to, from, bytes);
    return true;
}

bool program_write(void *to, const void *from, size_t bytes)
{
    if (traps_are_installed()) {
        return dma_copy(to, from, bytes);
    }
    uintptr_t start = (uintptr_t)to, last = start + bytes - SET_BYTES;
    if (last < start) {
        return false;
    }
    for (uintptr_t at = start; at < last; at = (at | (PAGE - 1)) + 1) {
        if (!is_writable_at(at < last ? at : last)) {
            return false;
        }
    }
    if (!is_writable_at(last)) {
        return false;
    }
    memcpy(to, from, bytes);
    return true;
}

int program_path_length(const char *path)
{
    size_t length = 0;
    while (length < PATH_MAX) {
        uintptr_t at = (uintptr_t)path + length;
        size_t part = PAGE - (at & (PAGE - 1));
        if (!is_readable_at(at)) {
            return -1;
        }
        size_t found = strnlen(path + length, part);
        length += found;
        if (found < part) {
            return length < PATH_MAX ? (int)length : -1;
        }
    }
    return -1;
}
