/* emulate_vector.c: moves between memory and vector or mask registers, in their SSE, AVX and AVX-512
 * forms (Intel SDM volume 2), and the little that compilers put between them. */
#if defined(__x86_64__)

#include "emulate_machine.h"

#include <string.h>

#define BYTES XSTATE_VECTOR_BYTES

#define SSE ENCODING_LEGACY
#define AVX ENCODING_VEX
#define A512 ENCODING_EVEX
#define SSE_AVX (SSE | AVX)
#define ALL (SSE | AVX | A512)

enum kind {
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

enum prefix { NONE, P66, PF3, PF2 };
enum wide { W0, W1, ANY };

/* `bytes`: of an element, or of what is moved; 0: 8 with W, else 4. */
struct form {
    uint8_t map, opcode, prefix, wide, encodings, kind, bytes;
    bool stores;
};

static const struct form forms[] = {
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

static const struct form *find(const struct machine *m, unsigned map, uint8_t opcode)
{
    enum prefix prefix = m->repeat == 0xf3   ? PF3
                         : m->repeat == 0xf2 ? PF2
                         : m->operand_16     ? P66
                                             : NONE;
    enum wide wide = m->rex & REX_W ? W1 : W0;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct form *f = &forms[i];
        if (f->opcode == opcode && f->map == map && f->prefix == prefix &&
            f->encodings & m->encoding && (f->wide == ANY || f->wide == wide)) {
            return f;
        }
    }
    return NULL;
}

/* ---- registers ---- */

static void read_vector(const struct machine *m, unsigned number, uint8_t *value)
{
    xstate_read_vector(&m->vectors, number, value);
}

/* A result of `bytes`: what is above becomes zero, or stays if the instruction is of SSE, which knows 16
 * bytes only. */
static bool write_vector(const struct machine *m, unsigned number, const uint8_t *value,
                         unsigned bytes)
{
    uint8_t whole[BYTES] = {0};
    if (m->encoding == ENCODING_LEGACY) {
        xstate_read_vector(&m->vectors, number, whole);
    }
    memcpy(whole, value, bytes);
    return xstate_write_vector(&m->vectors, number, whole);
}

/* Of three-operand forms, the first source: SSE has it in the destination's place. */
static unsigned first_source(const struct machine *m)
{
    return m->encoding == ENCODING_LEGACY ? m->reg : m->third;
}

/* ---- whole vectors ---- */

/* Elements, as bits, that a mask lets through. */
static uint64_t elements_of(const struct machine *m, unsigned count)
{
    uint64_t all = count == 64 ? UINT64_MAX : (1ull << count) - 1;
    return m->mask ? xstate_read_mask(&m->vectors, m->mask) & all : all;
}

static bool load_elements(const struct machine *m, uint8_t *value, unsigned element, unsigned count,
                          uint64_t wanted)
{
    for (unsigned i = 0; i < count; i++) {
        if (wanted >> i & 1 &&
            !machine_load(m, m->address + i * element, value + i * element, element)) {
            return false;
        }
    }
    return true;
}

static bool store_elements(struct machine *m, const uint8_t *value, unsigned element,
                           unsigned count, uint64_t wanted)
{
    for (unsigned i = 0; i < count; i++) {
        if (wanted >> i & 1 && !machine_is_on_page(m, m->address + i * element, element)) {
            return false;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (wanted >> i & 1 &&
            !machine_store(m, m->address + i * element, value + i * element, element)) {
            return false;
        }
    }
    return true;
}

/* Moves `bytes` of `value` to the r/m operand, under the instruction's mask if it has one. */
static bool put(struct machine *m, const uint8_t *value, unsigned bytes, unsigned element)
{
    unsigned count = bytes / element;
    uint64_t wanted = elements_of(m, count);
    if (m->memory && m->mask) {
        return !m->zeroing && store_elements(m, value, element, count, wanted);
    }
    if (m->memory) {
        return machine_store(m, m->address, value, bytes);
    }
    uint8_t result[BYTES];
    read_vector(m, m->rm, result);
    for (unsigned i = 0; i < count; i++) {
        if (wanted >> i & 1) {
            memcpy(result + i * element, value + i * element, element);
        } else if (m->zeroing) {
            memset(result + i * element, 0, element);
        }
    }
    return write_vector(m, m->rm, result, bytes);
}

static bool get(const struct machine *m, unsigned bytes, unsigned element)
{
    unsigned count = bytes / element;
    uint64_t wanted = elements_of(m, count);
    uint8_t value[BYTES], result[BYTES];
    if (!m->memory) {
        read_vector(m, m->rm, value);
    } else if (m->mask ? !load_elements(m, value, element, count, wanted)
                       : !machine_load(m, m->address, value, bytes)) {
        return false;
    }
    read_vector(m, m->reg, result);
    for (unsigned i = 0; i < count; i++) {
        if (wanted >> i & 1) {
            memcpy(result + i * element, value + i * element, element);
        } else if (m->zeroing) {
            memset(result + i * element, 0, element);
        }
    }
    return write_vector(m, m->reg, result, bytes);
}

static bool move_whole(struct machine *m, const struct form *f, unsigned element)
{
    uint8_t value[BYTES];
    unsigned bytes = m->vector_bytes;
    if (m->memory && f->kind == MOVE_ALIGNED && m->address % bytes) {
        return false; /* the processor faults */
    }
    if (!m->mask) {
        element = bytes;
    }
    if (!f->stores) {
        return get(m, bytes, element);
    }
    read_vector(m, m->reg, value);
    return put(m, value, bytes, element);
}

static bool extract_lane(struct machine *m, unsigned lane, uint8_t immediate)
{
    uint8_t value[BYTES];
    unsigned lanes = m->vector_bytes / lane;
    unsigned element = m->rex & REX_W ? 8 : 4;
    if (lanes < 2) {
        return false;
    }
    read_vector(m, m->reg, value);
    return put(m, value + (immediate % lanes) * lane, lane, m->mask ? element : lane);
}

/* vmaskmov and vpmaskmov. */
static bool move_masked(struct machine *m, const struct form *f, unsigned element)
{
    uint8_t signs[BYTES], value[BYTES] = {0};
    unsigned count = m->vector_bytes / element;
    uint64_t wanted = 0;
    read_vector(m, m->third, signs);
    for (unsigned i = 0; i < count; i++) {
        wanted |= (uint64_t)(signs[(i + 1) * element - 1] >> 7) << i;
    }
    if (!m->memory) {
        return false;
    }
    if (!f->stores) {
        return load_elements(m, value, element, count, wanted) &&
               write_vector(m, m->reg, value, m->vector_bytes);
    }
    read_vector(m, m->reg, value);
    return store_elements(m, value, element, count, wanted);
}

/* ---- parts of vectors ---- */

static bool move_scalar(struct machine *m, const struct form *f)
{
    uint8_t value[BYTES] = {0}, source[BYTES];
    if (m->memory && f->stores) {
        read_vector(m, m->reg, value);
        return machine_store(m, m->address, value, f->bytes);
    }
    if (m->memory) {
        return machine_load(m, m->address, value, f->bytes) && write_vector(m, m->reg, value, 16);
    }
    unsigned to = f->stores ? m->rm : m->reg, from = f->stores ? m->reg : m->rm;
    read_vector(m, m->encoding == ENCODING_LEGACY ? to : m->third, value);
    read_vector(m, from, source);
    memcpy(value, source, f->bytes);
    return write_vector(m, to, value, 16);
}

/* movlps, movhps and their like; between registers the halves cross over. */
static bool move_half(struct machine *m, const struct form *f)
{
    uint8_t value[BYTES], source[BYTES];
    unsigned at = f->kind == HIGH_HALF ? 8 : 0;
    if (!m->memory && (f->stores || f->prefix == P66)) {
        return false;
    }
    if (f->stores) {
        read_vector(m, m->reg, value);
        return machine_store(m, m->address, value + at, 8);
    }
    read_vector(m, first_source(m), value);
    if (m->memory) {
        if (!machine_load(m, m->address, value + at, 8)) {
            return false;
        }
    } else {
        read_vector(m, m->rm, source);
        memcpy(value + at, source + (8 - at), 8);
    }
    return write_vector(m, m->reg, value, 16);
}

static bool move_general(struct machine *m, const struct form *f, unsigned bytes)
{
    uint8_t value[BYTES] = {0};
    uint64_t word = 0;
    if (f->stores) {
        read_vector(m, m->reg, value);
        memcpy(&word, value, bytes);
        if (m->memory) {
            return machine_store(m, m->address, &word, bytes);
        }
        machine_set_general(m, m->rm & 15, bytes, word);
        return true;
    }
    if (!m->memory) {
        word = machine_general(m, m->rm & 15, bytes);
    } else if (!machine_load(m, m->address, &word, bytes)) {
        return false;
    }
    memcpy(value, &word, bytes);
    return write_vector(m, m->reg, value, 16);
}

static bool move_quad(struct machine *m, const struct form *f)
{
    uint8_t value[BYTES] = {0}, source[BYTES];
    if (m->memory && !f->stores) {
        if (!machine_load(m, m->address, value, 8)) {
            return false;
        }
    } else {
        read_vector(m, f->stores ? m->reg : m->rm, source);
        memcpy(value, source, 8);
    }
    if (m->memory && f->stores) {
        return machine_store(m, m->address, value, 8);
    }
    return write_vector(m, f->stores ? m->rm : m->reg, value, 16);
}

static bool extract_element(struct machine *m, unsigned bytes, uint8_t immediate)
{
    uint8_t value[BYTES];
    uint64_t word = 0;
    read_vector(m, m->reg, value);
    memcpy(&word, value + immediate % (16 / bytes) * bytes, bytes);
    if (m->memory) {
        return machine_store(m, m->address, &word, bytes);
    }
    machine_set_general(m, m->rm & 15, 8, word);
    return true;
}

static bool insert_element(struct machine *m, unsigned bytes, uint8_t immediate)
{
    uint8_t value[BYTES];
    uint64_t word = 0;
    if (!m->memory) {
        word = machine_general(m, m->rm & 15, bytes);
    } else if (!machine_load(m, m->address, &word, bytes)) {
        return false;
    }
    read_vector(m, first_source(m), value);
    memcpy(value + immediate % (16 / bytes) * bytes, &word, bytes);
    return write_vector(m, m->reg, value, 16);
}

/* 16 bytes; the result is in `a`. */
static void combine_lane(enum kind kind, uint8_t *a, const uint8_t *b, uint8_t immediate)
{
    uint8_t both[3 * 16] = {0};
    switch (kind) {
    case UNPACK_LOW:
        memcpy(a + 8, b, 8);
        break;
    case ALIGN:
        memcpy(both, b, 16);
        memcpy(both + 16, a, 16);
        memcpy(a, both + (immediate < 32 ? immediate : 32), 16);
        break;
    default:
        for (unsigned i = 0; i < 16; i++) {
            a[i] = kind == AND ? a[i] & b[i] : kind == OR ? a[i] | b[i] : a[i] ^ b[i];
        }
    }
}

static bool combine(const struct machine *m, enum kind kind, uint8_t immediate)
{
    uint8_t a[BYTES], b[BYTES];
    unsigned bytes = m->vector_bytes;
    if (m->memory && m->encoding == ENCODING_LEGACY && m->address % 16) {
        return false; /* the processor faults */
    }
    read_vector(m, first_source(m), a);
    if (!m->memory) {
        read_vector(m, m->rm, b);
    } else if (!machine_load(m, m->address, b, bytes)) {
        return false;
    }
    for (unsigned lane = 0; lane < bytes; lane += 16) {
        combine_lane(kind, a + lane, b + lane, immediate);
    }
    return write_vector(m, m->reg, a, bytes);
}

/* ---- mask registers ---- */

static bool move_mask(struct machine *m, const struct form *f)
{
    uint64_t value = 0, bits = f->bytes == 8 ? UINT64_MAX : (1ull << f->bytes * 8) - 1;
    unsigned reg = m->reg & 7;
    if (m->vector_bytes != 16 || (f->kind != MASK_MOVE && f->kind != MASK_STORE && m->memory)) {
        return false;
    }
    switch (f->kind) {
    case MASK_STORE:
        value = xstate_read_mask(&m->vectors, reg);
        return m->memory && machine_store(m, m->address, &value, f->bytes);
    case MASK_TO_GENERAL:
        value = xstate_read_mask(&m->vectors, m->rm & 7) & bits;
        machine_set_general(m, m->reg, 8, value);
        return true;
    case MASK_FROM_GENERAL:
        value = machine_general(m, m->rm, 8);
        break;
    default:
        if (!m->memory) {
            value = xstate_read_mask(&m->vectors, m->rm & 7);
        } else if (!machine_load(m, m->address, &value, f->bytes)) {
            return false;
        }
    }
    return xstate_write_mask(&m->vectors, reg, value & bits);
}

/* ---- all ---- */

static bool has_immediate(const struct form *f)
{
    return f->map == 3;
}

static bool has_first_source(const struct machine *m, const struct form *f)
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

/* What only some forms may ask for: masks, and vectors longer than 16 bytes. */
static bool is_well_formed(const struct machine *m, const struct form *f)
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

/* What an 8-bit displacement of EVEX counts in. */
static unsigned displacement_unit(const struct machine *m, const struct form *f, unsigned element)
{
    if (m->encoding != ENCODING_EVEX) {
        return 1;
    }
    if (f->kind == MOVE || f->kind == MOVE_ALIGNED) {
        return m->vector_bytes;
    }
    return element;
}

bool emulate_vector(struct machine *m, unsigned map, uint8_t opcode)
{
    const struct form *f = find(m, map, opcode);
    if (!f || !m->vectors.area) {
        return false;
    }
    unsigned element = f->bytes ? f->bytes : m->rex & REX_W ? 8 : 4;
    m->displacement_unit = (uint8_t)displacement_unit(m, f, element);
    if (f->kind != ZERO_UPPER) {
        machine_operands(m, has_immediate(f) ? 1 : 0);
    }
    uint8_t immediate = has_immediate(f) ? machine_byte(m) : 0;
    if (!is_well_formed(m, f)) {
        return false;
    }
    switch ((enum kind)f->kind) {
    case MOVE:
    case MOVE_ALIGNED:
        return move_whole(m, f, element);
    case SCALAR:
        return move_scalar(m, f);
    case HALF:
    case HIGH_HALF:
        return move_half(m, f);
    case GENERAL:
        return move_general(m, f, element);
    case QUAD:
        return move_quad(m, f);
    case LANE:
        return extract_lane(m, element, immediate);
    case ELEMENT:
        return extract_element(m, element, immediate);
    case INSERTION:
        return insert_element(m, element, immediate);
    case MASKED:
        return move_masked(m, f, element);
    case EXCLUSIVE_OR:
    case AND:
    case OR:
    case UNPACK_LOW:
    case ALIGN:
        return combine(m, f->kind, immediate);
    case ZERO_UPPER:
        xstate_clear_vectors(&m->vectors, m->vector_bytes == 32);
        return true;
    case MASK_MOVE:
    case MASK_STORE:
    case MASK_FROM_GENERAL:
    case MASK_TO_GENERAL:
        return move_mask(m, f);
    }
    return false;
}

#endif
