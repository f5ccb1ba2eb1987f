/* traps.c: the handler of SIGSEGV, SIGBUS and SIGTRAP. It makes the NIC's accesses to memory that
 * is not there fail (nic/dma.h). It serves stores to doorbells (doorbells.c): those that we cannot
 * make end with SIGTRAP. And it serves reads of the NIC's clock (core_clock.c). Everything else
 * goes to the handler that the program believes to be installed. */
#include "simnic/shim/mmio/traps.h"

#include <string.h>
#include <ucontext.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/mmio/core_clock.h"
#include "simnic/shim/mmio/doorbells.h"
#include "simnic/shim/process/real.h"

static struct sigaction program_action[3]; /* of SIGSEGV, SIGBUS and SIGTRAP */
static bool installed;

static int which(int signal_number)
{
    switch (signal_number) {
    case SIGSEGV:
        return 0;
    case SIGBUS:
        return 1;
    case SIGTRAP:
        return 2;
    default:
        return -1;
    }
}

static void pass_on(int signal_number, siginfo_t *information, void *context)
{
    struct sigaction *action = &program_action[which(signal_number)];
    bool sent = information->si_code <= 0; /* by a process: no instruction will raise it again */
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(signal_number, information, context);
    } else if (action->sa_handler == SIG_IGN && sent) {
        return;
    } else if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN) {
        /* A fault cannot be ignored: the kernel kills then, too. The instruction runs again, and
         * the process dies of it. */
        struct sigaction deadly = {.sa_handler = SIG_DFL};
        real.sigaction(signal_number, &deadly, NULL);
        if (sent || signal_number == SIGTRAP) { /* SIGTRAP comes behind its instruction */
            raise(signal_number);
        }
    } else {
        action->sa_handler(signal_number);
    }
}

static void handle(int signal_number, siginfo_t *information, void *context)
{
#if defined(__x86_64__)
    ucontext_t *machine = context;
    greg_t *instruction = &machine->uc_mcontext.gregs[REG_RIP];
    if (dma_is_access((uintptr_t)*instruction)) {
        *instruction = (greg_t)dma_failed_address();
        return;
    }
#endif
    if (signal_number == SIGSEGV && doorbells_trap((uintptr_t)information->si_addr, context)) {
        return;
    }
    if (signal_number == SIGSEGV && core_clock_trap((uintptr_t)information->si_addr, context)) {
        return;
    }
    if (signal_number == SIGTRAP && information->si_code > 0 && doorbells_stepped(context)) {
        return;
    }
    /* The instruction of a single step failed for another reason. The program's handler gets the
     * thread as it was before the step. */
    if (signal_number != SIGTRAP && information->si_code > 0) {
        doorbells_stepped(context);
    }
    pass_on(signal_number, information, context);
}

void traps_install(void)
{
    struct sigaction action = {.sa_sigaction = handle,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    /* The NIC's accesses may fail in this handler too. Other signals wait until it gives the lock
     * back. */
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGSEGV);
    sigdelset(&action.sa_mask, SIGBUS);
    if (installed) {
        return;
    }
    real.sigaction(SIGSEGV, &action, &program_action[0]);
    real.sigaction(SIGBUS, &action, &program_action[1]);
    real.sigaction(SIGTRAP, &action, &program_action[2]);
    installed = true;
}

bool traps_are_installed(void)
{
    return installed;
}

bool traps_swap_program_action(int signal_number, const struct sigaction *action,
                               struct sigaction *old)
{
    int index = which(signal_number);
    if (index < 0 || !installed) {
        return false;
    }
    struct sigaction before = program_action[index];
    if (action) {
        program_action[index] = *action;
    }
    if (old) {
        *old = before;
    }
    return true;
}
