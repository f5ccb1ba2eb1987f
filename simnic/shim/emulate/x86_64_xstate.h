/* x86_64_xstate.h: the vector and mask registers of a stopped thread, in its signal's frame
 * (x86-64).
 *
 * Linux puts the XSAVE area there in the standard format (Intel SDM volume 1, chapter 13): XMM
 * registers are where FXSAVE has them, everything newer is where CPUID leaf 0xD says. If a
 * component's bit in XSTATE_BV is clear, the component is zero, whatever its bytes are. */
#ifndef SIMNIC_SHIM_EMULATE_X86_64_XSTATE_H
#define SIMNIC_SHIM_EMULATE_X86_64_XSTATE_H

#include <stdbool.h>
#include <stdint.h>

#define XSTATE_VECTOR_BYTES 64u

struct xstate {
    uint8_t *area;    /* NULL: the frame has none, as Valgrind's */
    uint64_t present; /* components that the frame has room for */
};

/* `area`: what uc_mcontext.fpregs points to. */
struct xstate xstate_find(void *area);

/* A whole register, 0 to 31. Writing returns false, with nothing changed, if the frame has no room
 * for what is not zero. */
void xstate_read_vector(const struct xstate *x, unsigned number, uint8_t *value);
bool xstate_write_vector(const struct xstate *x, unsigned number, const uint8_t *value);

/* Clears what registers 0 to 15 have above bit 127, or all of them. */
void xstate_clear_vectors(const struct xstate *x, bool all);

uint64_t xstate_read_mask(const struct xstate *x, unsigned number);
bool xstate_write_mask(const struct xstate *x, unsigned number, uint64_t value);

#endif
