/* x86_64_vector.c: executes instructions on vector and mask registers: moves, and the little that
 * compilers put between them. x86_64_vector_forms.c knows which there are. */
#if defined(__x86_64__)

#include "simnic/shim/emulate/x86_64_vector.h"

#include <string.h>

#define BYTES XSTATE_VECTOR_BYTES

/* ---- registers ---- */

static void read_vector(const struct machine *m, unsigned number, uint8_t *value)
{
    xstate_read_vector(&m->vectors, number, value);
}

/* A result of `bytes`: what is above becomes zero, or stays if the instruction is of SSE, which
 * knows 16 bytes only. */
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

static bool move_whole(struct machine *m, const struct vector_form *f, unsigned element)
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
static bool move_masked(struct machine *m, const struct vector_form *f, unsigned element)
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

static bool move_scalar(struct machine *m, const struct vector_form *f)
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
static bool move_half(struct machine *m, const struct vector_form *f)
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

static bool move_general(struct machine *m, const struct vector_form *f, unsigned bytes)
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

static bool move_quad(struct machine *m, const struct vector_form *f)
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
static void combine_lane(enum vector_kind kind, uint8_t *a, const uint8_t *b, uint8_t immediate)
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

static bool combine(const struct machine *m, enum vector_kind kind, uint8_t immediate)
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

static bool move_mask(struct machine *m, const struct vector_form *f)
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

bool emulate_vector(struct machine *m, unsigned map, uint8_t opcode)
{
    const struct vector_form *f = vector_form_find(m, map, opcode);
    if (!f || !m->vectors.area) {
        return false;
    }
    unsigned element = f->bytes ? f->bytes : m->rex & REX_W ? 8 : 4;
    m->displacement_unit = (uint8_t)vector_form_displacement_unit(m, f, element);
    if (f->kind != ZERO_UPPER) {
        machine_operands(m, vector_form_has_immediate(f) ? 1 : 0);
    }
    uint8_t immediate = vector_form_has_immediate(f) ? machine_byte(m) : 0;
    if (!vector_form_fits(m, f)) {
        return false;
    }
    switch ((enum vector_kind)f->kind) {
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
