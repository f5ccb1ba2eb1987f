/* emulate.h: makes the store of a program, or of libmlx5 in it, to a protected doorbell page.
 *
 * The thread could make its store itself if the page were opened for it. But opening the page and
 * protecting it again costs several times as much as the rest of a trap (page tables change, and
 * other processors are interrupted), and stores of other threads go unnoticed while the page is
 * open. So the instruction is decoded, and the store made in the thread's stead. Those that follow
 * are made with it as far as they belong to one copy: a BlueFlame push is one trap and not
 * eight. */
#ifndef SIMNIC_SHIM_EMULATE_EMULATE_H
#define SIMNIC_SHIM_EMULATE_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a protected page can be written to. */
struct emulate_page {
    uintptr_t address; /* as the program knows it */
    uint8_t *memory;
    size_t bytes;
};

/* Executes the instruction at which a thread was stopped, and those that follow, on the thread's
 * registers (a ucontext_t). It ends at an instruction that is not known, or that stores to other
 * memory than the page, or when the copy seems to be over. An aligned store of up to 8 bytes is
 * made whole, as the processor makes it. A wider one is made of such pieces, upwards. Returns how
 * many stores to the page were made: zero, with nothing changed, if the first instruction is not
 * known. */
unsigned emulate_stores(void *ucontext, const struct emulate_page *page);

/* Executes the one instruction at which a thread was stopped because it reads from a page without
 * access. It gets what is at `memory`. Returns false, with nothing changed, if the instruction is
 * not known. */
bool emulate_load(void *ucontext, const struct emulate_page *page);

#endif
