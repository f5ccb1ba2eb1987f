/* none.c: other processors than x86-64 and arm64: no instruction can be made. */
#include "simnic/shim/emulate/emulate.h"

#if !defined(__x86_64__) && !defined(__aarch64__)

bool emulate_load(void *ucontext, const struct emulate_page *page)
{
    (void)ucontext;
    (void)page;
    return false;
}

unsigned emulate_stores(void *ucontext, const struct emulate_page *page)
{
    (void)ucontext;
    (void)page;
    return 0;
}

#endif
