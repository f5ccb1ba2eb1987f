/* x86_64.h: what the parts of the emulation on x86-64 share: a stopped thread's registers and the
 * instruction that is decoded. x86_64.c decodes and executes one after another. x86_64_integer.c
 * and x86_64_arithmetic.c know the instructions on general registers, x86_64_vector.c those on
 * vector and mask registers. */
#ifndef SIMNIC_SHIM_EMULATE_X86_64_H
#define SIMNIC_SHIM_EMULATE_X86_64_H

#include <ucontext.h>

#include "simnic/shim/emulate/emulate.h"
#include "simnic/shim/emulate/x86_64_xstate.h"

#define REX_W 8u
#define REX_R 4u
#define REX_X 2u
#define REX_B 1u

/* How vector instructions are encoded: bits, since a form may have several. */
enum encoding { ENCODING_LEGACY = 1, ENCODING_VEX = 2, ENCODING_EVEX = 4 };

struct machine {
    mcontext_t *state;
    struct xstate vectors;
    const struct emulate_page *page;

    /* The instruction. */
    uintptr_t start;  /* its address */
    uintptr_t target; /* where it goes on; 0: behind it */
    uint8_t code[16]; /* its bytes; zeros behind `available`, the end of the mapping */
    uint8_t available, at;
    bool has_rex, operand_16; /* prefixes REX and 66 */
    uint8_t repeat;           /* prefix F2 or F3, or 0 */
    uint8_t rex;              /* W, R, X, B; those of VEX and EVEX too */
    uint8_t encoding;
    uint8_t vector_bytes;      /* by VEX and EVEX */
    uint8_t third;             /* register number in VEX.vvvv */
    uint8_t mask;              /* EVEX.aaa: number of the mask register; 0: no mask */
    bool zeroing, broadcast;   /* EVEX.z and b */
    bool reg_16;               /* EVEX.R': the reg operand is one of registers 16 to 31 */
    uint8_t displacement_unit; /* what an 8-bit displacement counts in */
    uint8_t reg, rm;           /* of the ModRM byte, with their prefix bits */
    bool memory;               /* the r/m operand is in memory, at: */
    uintptr_t address;
    bool stored; /* to the page */
    bool fenced; /* it was a fence */
};

/* Bytes and immediates that follow. */
uint8_t machine_byte(struct machine *m);
int64_t machine_signed(struct machine *m, unsigned bytes); /* 1, 2, 4 or 8 of them */

/* ModRM, SIB and displacement (SDM volume 2, 2.1.5). `immediate`: bytes of the instruction after
 * them, which addresses relative to the instruction's end must count. */
void machine_operands(struct machine *m, unsigned immediate);

/* Memory. A store that is not to the page is not made. */
bool machine_load(const struct machine *m, uintptr_t address, void *to, size_t bytes);
bool machine_store(struct machine *m, uintptr_t address, const void *from, size_t bytes);
bool machine_is_on_page(const struct machine *m, uintptr_t address, size_t bytes);

/* General registers. Writing 4 bytes clears the upper half, as the processor does. */
uint64_t machine_general(const struct machine *m, unsigned number, unsigned bytes);
void machine_set_general(struct machine *m, unsigned number, unsigned bytes, uint64_t value);

/* Sizes of operands by the prefixes; many opcodes come in pairs of which the even one is for
 * bytes. */
unsigned machine_operand_bytes(const struct machine *m);
unsigned machine_bytes_of(const struct machine *m, uint8_t opcode);
unsigned machine_immediate_bytes(unsigned bytes);

/* The r/m operand: a general register, or memory. */
bool machine_read_rm(const struct machine *m, unsigned bytes, uint64_t *value);
bool machine_write_rm(struct machine *m, unsigned bytes, uint64_t value);

#define FLAG_CARRY 0x001u
#define FLAG_PARITY 0x004u
#define FLAG_ADJUST 0x010u
#define FLAG_ZERO 0x040u
#define FLAG_SIGN 0x080u
#define FLAG_DIRECTION 0x400u
#define FLAG_OVERFLOW 0x800u
uint64_t machine_flags(const struct machine *m);
void machine_set_flags(const struct machine *m, uint64_t which, uint64_t flags);

/* Whether the condition holds that the low 4 bits of an opcode of jcc, setcc or cmovcc name. */
bool emulate_condition(const struct machine *m, unsigned code);

/* Each executes an instruction whose opcode was read, and returns false, with nothing changed, if
 * it does not know it. */
bool emulate_integer(struct machine *m, uint8_t opcode);
bool emulate_arithmetic(struct machine *m, uint8_t opcode);
bool emulate_integer_0f(struct machine *m, uint8_t opcode);
bool emulate_integer_0f38(struct machine *m, uint8_t opcode);
bool emulate_vector(struct machine *m, unsigned map,
                    uint8_t opcode); /* map 1: 0F, 2: 0F38, 3: 0F3A */

#endif
