/* x86_64_vector.h: what an instruction on vector or mask registers looks like. */
#ifndef SIMNIC_SHIM_EMULATE_X86_64_VECTOR_H
#define SIMNIC_SHIM_EMULATE_X86_64_VECTOR_H

#include "simnic/shim/emulate/x86_64.h"

enum vector_kind {
    MOVE,         /* a whole vector; with a mask, its elements */
    MOVE_ALIGNED, /* the same, and the address must be a multiple of it */
    SCALAR,       /* movss and movsd */
    HALF,         /* 8 bytes to or from the low half of 16 */
    HIGH_HALF,    /* the high half */
    GENERAL,      /* movd and movq, of a general register or memory */
    QUAD,         /* movq of a vector register or memory */
    LANE,         /* vextract: 16 or 32 bytes of a longer one */
    ELEMENT,      /* pextr */
    INSERTION,    /* pinsr of 4 or 8 bytes */
    MASKED,       /* vmaskmov: the elements whose sign is set in a vector */
    EXCLUSIVE_OR,
    AND,
    OR,
    UNPACK_LOW, /* punpcklqdq */
    ALIGN,      /* palignr */
    ZERO_UPPER, /* vzeroupper, vzeroall */
    MASK_MOVE,  /* kmov of a mask register or memory */
    MASK_STORE,
    MASK_FROM_GENERAL,
    MASK_TO_GENERAL
};

/* The prefix that is part of the opcode. */
enum vector_prefix { NONE, P66, PF3, PF2 };
/* REX.W or its like. */
enum vector_wide { W0, W1, ANY };

/* `bytes`: of an element, or of what is moved; 0: 8 with W, else 4. */
struct vector_form {
    uint8_t map, opcode, prefix, wide, encodings, kind, bytes;
    bool stores;
};

/* The form of an instruction; NULL if it is not known. map 1: 0F, 2: 0F38, 3: 0F3A. */
const struct vector_form *vector_form_find(const struct machine *m, unsigned map, uint8_t opcode);

bool vector_form_has_immediate(const struct vector_form *f);
/* What an 8-bit displacement counts in. `element`: bytes of an element. */
unsigned vector_form_displacement_unit(const struct machine *m, const struct vector_form *f,
                                       unsigned element);
/* Whether the instruction, whose operands are decoded, asks for nothing that its form cannot:
 * masks, and vectors longer than 16 bytes. */
bool vector_form_fits(const struct machine *m, const struct vector_form *f);

#endif
