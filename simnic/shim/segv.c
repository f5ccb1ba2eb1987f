/* segv.c: the handler of SIGSEGV, SIGBUS and SIGTRAP. It lets the device's accesses to memory fail
 * (device/dma.h), and serves stores to doorbells (doorbells.c), which those that are not known end with
 * SIGTRAP. Everything else goes to the handler that the program has or believes to have. */
#include "process.h"

#include "clock.h"
#include "dma.h"
#include "doorbells.h"
#include "real.h"

#include <string.h>
#include <ucontext.h>

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
    bool sent = information->si_code <= 0; /* by somebody: no instruction will do it again */
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(signal_number, information, context);
    } else if (action->sa_handler == SIG_IGN && sent) {
        return;
    } else if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN) {
        /* Ignoring a fault is not possible: the kernel kills then too. The instruction runs again
         * and dies. */
        struct sigaction deadly = {.sa_handler = SIG_DFL};
        real.sigaction(signal_number, &deadly, NULL);
        if (sent || signal_number == SIGTRAP) { /* which comes behind its instruction */
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
    if (signal_number == SIGSEGV && clock_trap((uintptr_t)information->si_addr, context)) {
        return;
    }
    if (signal_number == SIGTRAP && information->si_code > 0 && doorbells_stepped(context)) {
        return;
    }
    /* The one instruction of a step failed for another reason: the program's handler gets the thread as
     * it knows it. */
    if (signal_number != SIGTRAP && information->si_code > 0) {
        doorbells_stepped(context);
    }
    pass_on(signal_number, information, context);
}

void segv_install(void)
{
    struct sigaction action = {.sa_sigaction = handle,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    /* Accesses of the device may fail in the handler too; other signals of the program must wait
     * for it to leave the lock. */
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

bool segv_is_installed(void)
{
    return installed;
}

bool segv_swap_program_action(int signal_number, const struct sigaction *action,
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
