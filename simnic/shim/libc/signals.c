/* signals.c: the C library's functions about signals. The shim's handler of SIGSEGV and SIGBUS must
 * stay, and these two signals must not be blocked.
 *
 * The C library reads its arguments before the kernel does, and crashes where the kernel would fail
 * with EFAULT. So arguments are copied first. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "simnic/shim/kernel/program_memory.h"
#include "simnic/shim/mmio/traps.h"
#include "simnic/shim/process/process.h"
#include "simnic/shim/process/real.h"

static void remove_ours(sigset_t *set)
{
    sigdelset(set, SIGSEGV);
    sigdelset(set, SIGBUS);
}

PUBLIC int sigaction(int signal_number, const struct sigaction *action, struct sigaction *old)
{
    LOAD;
    struct sigaction copy, before;
    if (action && !program_read(&copy, action, sizeof(copy))) {
        errno = EFAULT;
        return -1;
    }
    if (!traps_swap_program_action(signal_number, action ? &copy : NULL, &before)) {
        if (action) {
            remove_ours(&copy.sa_mask); /* a handler may ring doorbells as well */
        }
        if (real.sigaction(signal_number, action ? &copy : NULL, &before) != 0) {
            return -1;
        }
    }
    if (!old || program_write(old, &before, sizeof(before))) {
        return 0;
    }
    errno = EFAULT;
    return -1;
}

#define KERNEL_SET_BYTES 8

/* The signals that stop a thread at a doorbell cannot be blocked, not even before there is a NIC:
 * the kernel kills a process that faults with them blocked. Returns 0 or EFAULT. */
static int without_ours(const sigset_t *set, int how, sigset_t *copy)
{
    memset(copy, 0, sizeof(*copy));
    if (!program_read(copy, set, KERNEL_SET_BYTES)) {
        return EFAULT;
    }
    if (how != SIG_UNBLOCK) {
        remove_ours(copy);
    }
    return 0;
}

/* Whoever started the program may have blocked them. Its threads inherit the mask of the first
 * one. */
__attribute__((constructor)) static void unblock_ours(void)
{
    sigset_t mask;
    LOAD;
    if (real.pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0) {
        remove_ours(&mask);
        real.pthread_sigmask(SIG_SETMASK, &mask, NULL);
    }
}

PUBLIC int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    LOAD;
    sigset_t copy;
    int error = set ? without_ours(set, how, &copy) : 0;
    return error ? error : real.pthread_sigmask(how, set ? &copy : NULL, old);
}

PUBLIC int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    LOAD;
    sigset_t copy;
    int error = set ? without_ours(set, how, &copy) : 0;
    if (!error) {
        return real.sigprocmask(how, set ? &copy : NULL, old);
    }
    errno = error;
    return -1;
}

PUBLIC sighandler_t signal(int signal_number, sighandler_t handler)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    return sigaction(signal_number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}
