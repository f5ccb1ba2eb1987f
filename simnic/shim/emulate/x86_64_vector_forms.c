/* x86_64_vector_forms.c: which instructions on vector and mask registers are known: moves in their
 * SSE, AVX and AVX-512 forms (Intel SDM volume 2), and what compilers put between them. */
#if defined(__x86_64__)

#include "simnic/shim/emulate/x86_64_vector.h"

#define SSE ENCODING_LEGACY
#define AVX ENCODING_VEX
#define A512 ENCODING_EVEX
#define SSE_AVX (SSE | AVX)
#define ALL (SSE | AVX | A512)

static const struct vector_form forms[] = {
    {1, 0xe7, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, true}, /* movntdq */
    {1, 0xe7, P66, W0, A512, MOVE_ALIGNED, 4, true},
    {1, 0x6f, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, false}, /* movdqa */
    {1, 0x7f, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, true},
    {1, 0x6f, PF3, ANY, SSE_AVX, MOVE, 16, false}, /* movdqu */
    {1, 0x7f, PF3, ANY, SSE_AVX, MOVE, 16, true},
    {1, 0x6f, P66, ANY, A512, MOVE_ALIGNED, 0, false}, /* vmovdqa32, 64 */
    {1, 0x7f, P66, ANY, A512, MOVE_ALIGNED, 0, true},
    {1, 0x6f, PF3, ANY, A512, MOVE, 0, false}, /* vmovdqu32, 64 */
    {1, 0x7f, PF3, ANY, A512, MOVE, 0, true},
    {1, 0x6f, PF2, W0, A512, MOVE, 1, false}, /* vmovdqu8, 16 */
    {1, 0x7f, PF2, W0, A512, MOVE, 1, true},
    {1, 0x6f, PF2, W1, A512, MOVE, 2, false},
    {1, 0x7f, PF2, W1, A512, MOVE, 2, true},
    {1, 0x10, NONE, ANY, SSE_AVX, MOVE, 16, false}, /* movups, movupd */
    {1, 0x11, NONE, ANY, SSE_AVX, MOVE, 16, true},
    {1, 0x10, P66, ANY, SSE_AVX, MOVE, 16, false},
    {1, 0x11, P66, ANY, SSE_AVX, MOVE, 16, true},
    {1, 0x10, NONE, W0, A512, MOVE, 4, false},
    {1, 0x11, NONE, W0, A512, MOVE, 4, true},
    {1, 0x10, P66, W1, A512, MOVE, 8, false},
    {1, 0x11, P66, W1, A512, MOVE, 8, true},
    {1, 0x28, NONE, ANY, SSE_AVX, MOVE_ALIGNED, 16, false}, /* movaps, movapd */
    {1, 0x29, NONE, ANY, SSE_AVX, MOVE_ALIGNED, 16, true},
    {1, 0x28, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, false},
    {1, 0x29, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, true},
    {1, 0x28, NONE, W0, A512, MOVE_ALIGNED, 4, false},
    {1, 0x29, NONE, W0, A512, MOVE_ALIGNED, 4, true},
    {1, 0x28, P66, W1, A512, MOVE_ALIGNED, 8, false},
    {1, 0x29, P66, W1, A512, MOVE_ALIGNED, 8, true},
    {1, 0x2b, NONE, ANY, SSE_AVX, MOVE_ALIGNED, 16, true}, /* movntps, movntpd */
    {1, 0x2b, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, true},
    {1, 0x2b, NONE, W0, A512, MOVE_ALIGNED, 4, true},
    {1, 0x2b, P66, W1, A512, MOVE_ALIGNED, 8, true},
    {1, 0x2b, PF3, ANY, SSE, SCALAR, 4, true}, /* AMD's movntss, movntsd */
    {1, 0x2b, PF2, ANY, SSE, SCALAR, 8, true},
    {1, 0xf0, PF2, ANY, SSE_AVX, MOVE, 16, false},         /* lddqu */
    {2, 0x2a, P66, ANY, SSE_AVX, MOVE_ALIGNED, 16, false}, /* movntdqa */
    {2, 0x2a, P66, W0, A512, MOVE_ALIGNED, 4, false},
    {1, 0x10, PF3, ANY, SSE_AVX, SCALAR, 4, false}, /* movss */
    {1, 0x11, PF3, ANY, SSE_AVX, SCALAR, 4, true},
    {1, 0x10, PF2, ANY, SSE_AVX, SCALAR, 8, false}, /* movsd */
    {1, 0x11, PF2, ANY, SSE_AVX, SCALAR, 8, true},
    {1, 0x10, PF3, W0, A512, SCALAR, 4, false},
    {1, 0x11, PF3, W0, A512, SCALAR, 4, true},
    {1, 0x10, PF2, W1, A512, SCALAR, 8, false},
    {1, 0x11, PF2, W1, A512, SCALAR, 8, true},
    {1, 0x12, NONE, ANY, SSE_AVX, HALF, 8, false}, /* movlps, movhlps, movlpd */
    {1, 0x13, NONE, ANY, SSE_AVX, HALF, 8, true},
    {1, 0x12, P66, ANY, SSE_AVX, HALF, 8, false},
    {1, 0x13, P66, ANY, SSE_AVX, HALF, 8, true},
    {1, 0x16, NONE, ANY, SSE_AVX, HIGH_HALF, 8, false}, /* movhps, movlhps, movhpd */
    {1, 0x17, NONE, ANY, SSE_AVX, HIGH_HALF, 8, true},
    {1, 0x16, P66, ANY, SSE_AVX, HIGH_HALF, 8, false},
    {1, 0x17, P66, ANY, SSE_AVX, HIGH_HALF, 8, true},
    {1, 0x12, NONE, W0, A512, HALF, 8, false},
    {1, 0x13, NONE, W0, A512, HALF, 8, true},
    {1, 0x12, P66, W1, A512, HALF, 8, false},
    {1, 0x13, P66, W1, A512, HALF, 8, true},
    {1, 0x16, NONE, W0, A512, HIGH_HALF, 8, false},
    {1, 0x17, NONE, W0, A512, HIGH_HALF, 8, true},
    {1, 0x16, P66, W1, A512, HIGH_HALF, 8, false},
    {1, 0x17, P66, W1, A512, HIGH_HALF, 8, true},
    {1, 0x6e, P66, ANY, ALL, GENERAL, 0, false}, /* movd, movq */
    {1, 0x7e, P66, ANY, ALL, GENERAL, 0, true},
    {1, 0x7e, PF3, ANY, SSE_AVX, QUAD, 8, false}, /* movq */
    {1, 0xd6, P66, ANY, SSE_AVX, QUAD, 8, true},
    {1, 0x7e, PF3, W1, A512, QUAD, 8, false},
    {1, 0xd6, P66, W1, A512, QUAD, 8, true},
    {3, 0x19, P66, W0, AVX, LANE, 16, true}, /* vextractf128, vextracti128 */
    {3, 0x39, P66, W0, AVX, LANE, 16, true},
    {3, 0x19, P66, ANY, A512, LANE, 16, true}, /* vextractf32x4, 64x2 */
    {3, 0x39, P66, ANY, A512, LANE, 16, true},
    {3, 0x1b, P66, ANY, A512, LANE, 32, true}, /* vextractf32x8, 64x4 */
    {3, 0x3b, P66, ANY, A512, LANE, 32, true},
    {3, 0x14, P66, ANY, ALL, ELEMENT, 1, true}, /* pextrb, w, d, q, extractps */
    {3, 0x15, P66, ANY, ALL, ELEMENT, 2, true},
    {3, 0x16, P66, ANY, ALL, ELEMENT, 0, true},
    {3, 0x17, P66, ANY, ALL, ELEMENT, 4, true},
    {3, 0x22, P66, ANY, ALL, INSERTION, 0, false}, /* pinsrd, pinsrq */
    {2, 0x2c, P66, W0, AVX, MASKED, 4, false},     /* vmaskmovps, pd, vpmaskmovd, q */
    {2, 0x2d, P66, W0, AVX, MASKED, 8, false},
    {2, 0x2e, P66, W0, AVX, MASKED, 4, true},
    {2, 0x2f, P66, W0, AVX, MASKED, 8, true},
    {2, 0x8c, P66, ANY, AVX, MASKED, 0, false},
    {2, 0x8e, P66, ANY, AVX, MASKED, 0, true},
    {1, 0xef, P66, ANY, SSE_AVX, EXCLUSIVE_OR, 16, false}, /* pxor, xorps; pand, andps; por, orps */
    {1, 0x57, NONE, ANY, SSE_AVX, EXCLUSIVE_OR, 16, false},
    {1, 0xdb, P66, ANY, SSE_AVX, AND, 16, false},
    {1, 0x54, NONE, ANY, SSE_AVX, AND, 16, false},
    {1, 0xeb, P66, ANY, SSE_AVX, OR, 16, false},
    {1, 0x56, NONE, ANY, SSE_AVX, OR, 16, false},
    {1, 0x6c, P66, ANY, SSE_AVX, UNPACK_LOW, 16, false},
    {3, 0x0f, P66, ANY, SSE_AVX, ALIGN, 16, false},
    {1, 0x77, NONE, ANY, AVX, ZERO_UPPER, 0, false},
    {1, 0x90, NONE, W0, AVX, MASK_MOVE, 2, false}, /* kmovw, b, q, d */
    {1, 0x90, P66, W0, AVX, MASK_MOVE, 1, false},
    {1, 0x90, NONE, W1, AVX, MASK_MOVE, 8, false},
    {1, 0x90, P66, W1, AVX, MASK_MOVE, 4, false},
    {1, 0x91, NONE, W0, AVX, MASK_STORE, 2, true},
    {1, 0x91, P66, W0, AVX, MASK_STORE, 1, true},
    {1, 0x91, NONE, W1, AVX, MASK_STORE, 8, true},
    {1, 0x91, P66, W1, AVX, MASK_STORE, 4, true},
    {1, 0x92, NONE, W0, AVX, MASK_FROM_GENERAL, 2, false},
    {1, 0x92, P66, W0, AVX, MASK_FROM_GENERAL, 1, false},
    {1, 0x92, PF2, W0, AVX, MASK_FROM_GENERAL, 4, false},
    {1, 0x92, PF2, W1, AVX, MASK_FROM_GENERAL, 8, false},
    {1, 0x93, NONE, W0, AVX, MASK_TO_GENERAL, 2, false},
    {1, 0x93, P66, W0, AVX, MASK_TO_GENERAL, 1, false},
    {1, 0x93, PF2, W0, AVX, MASK_TO_GENERAL, 4, false},
    {1, 0x93, PF2, W1, AVX, MASK_TO_GENERAL, 8, false},
};

const struct vector_form *vector_form_find(const struct machine *m, unsigned map, uint8_t opcode)
{
    enum vector_prefix prefix = m->repeat == 0xf3   ? PF3
                                : m->repeat == 0xf2 ? PF2
                                : m->operand_16     ? P66
                                                    : NONE;
    enum vector_wide wide = m->rex & REX_W ? W1 : W0;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct vector_form *f = &forms[i];
        if (f->opcode == opcode && f->map == map && f->prefix == prefix &&
            f->encodings & m->encoding && (f->wide == ANY || f->wide == wide)) {
            return f;
        }
    }
    return NULL;
}

bool vector_form_has_immediate(const struct vector_form *f)
{
    return f->map == 3;
}

static bool has_first_source(const struct machine *m, const struct vector_form *f)
{
    switch (f->kind) {
    case INSERTION:
    case MASKED:
    case EXCLUSIVE_OR:
    case AND:
    case OR:
    case UNPACK_LOW:
    case ALIGN:
        return true;
    case SCALAR:
        return !m->memory;
    case HALF:
    case HIGH_HALF:
        return !f->stores;
    default:
        return false;
    }
}

bool vector_form_fits(const struct machine *m, const struct vector_form *f)
{
    bool whole = f->kind == MOVE || f->kind == MOVE_ALIGNED || f->kind == LANE;
    bool long_ones = whole || f->kind == MASKED || f->kind == EXCLUSIVE_OR || f->kind == AND ||
                     f->kind == OR || f->kind == UNPACK_LOW || f->kind == ALIGN ||
                     f->kind == ZERO_UPPER || f->kind == SCALAR;
    if (m->broadcast || ((m->mask || m->zeroing) && !whole) || (m->zeroing && !m->mask)) {
        return false;
    }
    if (m->vector_bytes != 16 && !long_ones) {
        return false;
    }
    return m->encoding == ENCODING_LEGACY || m->third == 0 || has_first_source(m, f);
}

unsigned vector_form_displacement_unit(const struct machine *m, const struct vector_form *f,
                                       unsigned element)
{
    if (m->encoding != ENCODING_EVEX) {
        return 1;
    }
    if (f->kind == MOVE || f->kind == MOVE_ALIGNED) {
        return m->vector_bytes;
    }
    return element;
}

#endif
