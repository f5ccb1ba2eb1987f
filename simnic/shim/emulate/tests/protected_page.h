/* protected_page.h: a page whose stores trap and are made by the emulation, and a plain page, on
 * which the processor makes the same stores. */
#ifndef SIMNIC_SHIM_EMULATE_TESTS_PROTECTED_PAGE_H
#define SIMNIC_SHIM_EMULATE_TESTS_PROTECTED_PAGE_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "simnic/shim/emulate/emulate.h"

#define PAGE 4096u

static uint8_t *protected_page, *alias, *plain;
static unsigned traps, stores; /* since catch_stores */

static void make_stores(int signal_number, siginfo_t *information, void *context)
{
    struct emulate_page page = {(uintptr_t)protected_page, alias, PAGE};
    (void)signal_number;
    (void)information;
    unsigned made = emulate_stores(context, &page);
    if (made == 0) {
        static const char text[] = "# an instruction is not known\n";
        ssize_t ignored = write(1, text, sizeof(text) - 1);
        (void)ignored;
        _exit(1);
    }
    traps++;
    stores += made;
}

static void catch_stores(void)
{
    struct sigaction action = {.sa_sigaction = make_stores, .sa_flags = SA_SIGINFO | SA_NODEFER};
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    traps = stores = 0;
}

static int map_pages(void **state)
{
    (void)state;
    int fd = memfd_create("page", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    protected_page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    alias = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return 0;
}

#endif
