/* emulate.h: makes a program's store to a protected doorbell page in its stead.
 *
 * Opening the page for the store and protecting it afterwards costs several times what the whole
 * rest of a trap does (page tables change, other processors are interrupted), and what is stored
 * while it is open goes unnoticed. So the store is made by decoding the instruction, and with it
 * those that follow, as far as they belong to a copy: a BlueFlame push is one trap and not eight. */
#ifndef SIMNIC_EMULATE_H
#define SIMNIC_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a protected page can be written to. */
struct emulate_page {
    uintptr_t address; /* as the program knows it */
    uint8_t *memory;
    size_t bytes;
};

/* Executes the instruction at which a thread was stopped, and following ones, on its registers (a
 * ucontext_t) until one comes that is not known, or that stores to other memory than the page, or the
 * copy seems to be over. Stores of up to 8 bytes that are aligned are whole, as the processor's are;
 * wider ones are made of such pieces, upwards. Returns how many stores to the page were made: zero,
 * with nothing changed, if the instruction is not one that can be made here. */
unsigned emulate_stores(void *ucontext, const struct emulate_page *page);

/* Executes the one instruction at which a thread was stopped, which reads from a page that it cannot
 * access: what is at `memory` is read in its place. Returns false, with nothing changed, if it is not
 * one that can be made here. */
bool emulate_load(void *ucontext, const struct emulate_page *page);

#endif
