/* arm64.h: what the parts of the emulation on arm64 share: a stopped thread's registers and the
 * instruction that is decoded. arm64.c tells instructions apart and executes one after another.
 * arm64_memory.c knows loads and stores, arm64_integer.c arithmetic, comparisons and jumps. */
#ifndef SIMNIC_SHIM_EMULATE_ARM64_H
#define SIMNIC_SHIM_EMULATE_ARM64_H

#include <asm/sigcontext.h>
#include <ucontext.h>

#include "simnic/shim/emulate/emulate.h"

struct machine {
    mcontext_t *state;
    struct fpsimd_context *vectors;
    struct sve_context *longer_vectors; /* where SVE's are in use, or NULL */
    const struct emulate_page *page;
    uint32_t code;
    uint64_t target; /* where it goes on; 0: behind it */
    bool stored, fenced;
};

/* Fields of the instruction. */
static inline uint32_t machine_bits(const struct machine *m, unsigned from, unsigned count)
{
    return m->code >> from & ((1u << count) - 1);
}

static inline int64_t machine_signed_bits(const struct machine *m, unsigned from, unsigned count)
{
    unsigned unused = 64 - count;
    return (int64_t)((uint64_t)machine_bits(m, from, count) << unused) >> unused;
}

/* General registers. Number 31 is zero or the stack pointer: the instruction says which. */
uint64_t machine_general(const struct machine *m, unsigned number, bool stack_pointer);
void machine_set_general(const struct machine *m, unsigned number, bool stack_pointer, bool wide,
                         uint64_t value);

/* Memory. A store that is not to the page is not made. */
bool machine_load(const struct machine *m, uint64_t address, void *to, size_t bytes);
bool machine_store(struct machine *m, uint64_t address, const void *value, size_t bytes);

/* Each executes an instruction of one kind. Returns false, with the registers as they were, if it
 * does not know this form of it. */

/* ---- arm64_memory.c ---- */
bool arm64_load_or_store(struct machine *m);
bool arm64_load_or_store_pair(struct machine *m);
bool arm64_load_or_store_structures(struct machine *m);
bool arm64_load_or_store_ordered(struct machine *m);
bool arm64_load_or_store_bytes(struct machine *m);

/* ---- arm64_integer.c ---- */
bool arm64_add_immediate(struct machine *m);
bool arm64_with_shifted_register(struct machine *m);
bool arm64_logic_immediate(struct machine *m);
bool arm64_move_wide(struct machine *m);
bool arm64_move_bit_field(struct machine *m);
bool arm64_select_one(struct machine *m);
bool arm64_reverse(struct machine *m);
bool arm64_jump_on_bit(struct machine *m);
bool arm64_jump_on_zero(struct machine *m);
bool arm64_go_back(struct machine *m);
bool arm64_hint(struct machine *m);
bool arm64_fence(struct machine *m);
bool arm64_jump(struct machine *m);
bool arm64_jump_on_condition(struct machine *m);
bool arm64_address_near(struct machine *m);

#endif
