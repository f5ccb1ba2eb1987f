/* single_step.c: see single_step.h. Done by the trap flag (Intel SDM volume 3, "Single-Step
 * Exception Condition"), which Linux takes from a signal's frame when the handler returns. Other
 * signals wait for the step, since their handlers could leave by longjmp. The mask in the frame is
 * the kernel's of 8 bytes, not the C library's. */
#include "simnic/shim/mmio/single_step.h"

#if defined(__x86_64__)

#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "simnic/shim/emulate/x86_64_xstate.h"

#define TRAP_FLAG 0x100

/* Signal handlers use this, so no access may allocate. */
#define IN_HANDLERS __attribute__((tls_model("initial-exec")))

static _Thread_local struct {
    bool on, trapped; /* trapped: the trap flag was set, as a debugger sets it */
    uint64_t mask;
} step IN_HANDLERS;

static uint64_t bit_of(int signal_number)
{
    return 1ull << (signal_number - 1);
}

bool single_step_begin(void *ucontext)
{
    ucontext_t *context = ucontext;
    greg_t *flags = &context->uc_mcontext.gregs[REG_EFL];
    if (step.on) {
        return true;
    }
    /* Valgrind, whose frames have no vector registers, does not step. */
    if (!xstate_find(context->uc_mcontext.fpregs).area) {
        return false;
    }
    uint64_t mask = ~(bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGTRAP));
    memcpy(&step.mask, &context->uc_sigmask, sizeof(step.mask));
    memcpy(&context->uc_sigmask, &mask, sizeof(mask));
    step.trapped = *flags & TRAP_FLAG;
    *flags |= TRAP_FLAG;
    step.on = true;
    return true;
}

bool single_step_is_on(void)
{
    return step.on;
}

bool single_step_end(void *ucontext)
{
    ucontext_t *context = ucontext;
    if (!step.on) {
        return false;
    }
    step.on = false;
    memcpy(&context->uc_sigmask, &step.mask, sizeof(step.mask));
    if (!step.trapped) {
        context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    }
    return true;
}

#else

bool single_step_begin(void *ucontext)
{
    (void)ucontext;
    return false;
}

bool single_step_is_on(void)
{
    return false;
}

bool single_step_end(void *ucontext)
{
    (void)ucontext;
    return false;
}

#endif
