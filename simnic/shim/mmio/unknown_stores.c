/* unknown_stores.c: see unknown_stores.h. */
#include "simnic/shim/mmio/unknown_stores.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/process/process.h"

#define MOST_TOLD 128u
#define CODE_BYTES 15u /* the longest instruction */
#define PAGE_BYTES 4096u

static struct {
    uintptr_t told[MOST_TOLD];
    uint32_t instructions; /* more than MOST_TOLD are counted and not told */
    uint64_t stores;
} unknown;

static uintptr_t instruction_of(const void *ucontext)
{
    const ucontext_t *context = ucontext;
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return context->uc_mcontext.pc;
#else
    (void)context;
    return 0;
#endif
}

static bool is_told(uintptr_t address)
{
    for (uint32_t i = 0; i < unknown.instructions && i < MOST_TOLD; i++) {
        if (unknown.told[i] == address) {
            return true;
        }
    }
    return unknown.instructions >= MOST_TOLD;
}

void unknown_stores_note(const void *ucontext)
{
    uintptr_t address = instruction_of(ucontext);
    uint8_t code[CODE_BYTES] = {0};
    char text[3 * CODE_BYTES + 1] = "";
    unknown.stores++;
    if (is_told(address)) {
        return;
    }
    unknown.told[unknown.instructions++] = address;
    size_t rest = PAGE_BYTES - address % PAGE_BYTES; /* the next page may not be mapped */
    size_t bytes = rest < CODE_BYTES ? rest : CODE_BYTES;
    if (!dma_copy(code, (const void *)address, bytes)) {
        bytes = 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        snprintf(text + 3 * i, sizeof(text) - 3 * i, " %02x", code[i]);
    }
    process_log("the store to a doorbell page at 0x%lx is not known, and slow: bytes%s",
                (unsigned long)address, text);
}

void unknown_stores_tell_total(void)
{
    if (unknown.stores) {
        process_log("%lu stores to doorbell pages were not known, of %s%u instructions",
                    (unsigned long)unknown.stores,
                    unknown.instructions == MOST_TOLD ? "at least " : "", unknown.instructions);
    }
}

void unknown_stores_forget(void)
{
    memset(&unknown, 0, sizeof(unknown));
}
