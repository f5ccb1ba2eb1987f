/* emulate_arm64.c: the arm64 instructions that copies to device registers are made of (Arm Architecture
 * Reference Manual, C4 and C6): loads and stores of general and vector registers, one, two or up to four
 * at a time, SVE's of bytes, and the arithmetic, comparisons and jumps between them. What is not known
 * ends the emulation before it; the processor goes on there. */
#if defined(__aarch64__)

#include "emulate.h"
#include "emulate_copy.h"

#include "dma.h"

#include <asm/sigcontext.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#define ZERO_REGISTER 31u /* or the stack pointer: the instruction says which */
#define FLAG_N (1u << 31)
#define FLAG_Z (1u << 30)
#define FLAG_C (1u << 29)
#define FLAG_V (1u << 28)
#define ALL_FLAGS (FLAG_N | FLAG_Z | FLAG_C | FLAG_V)

struct machine {
    mcontext_t *state;
    struct fpsimd_context *vectors;
    struct sve_context *longer_vectors; /* where SVE's are in use, or NULL */
    const struct emulate_page *page;
    uint32_t code;
    uint64_t target; /* where it goes on; 0: behind it */
    bool stored, fenced;
};

/* ---- registers and memory ---- */

static uint32_t bits(const struct machine *m, unsigned from, unsigned count)
{
    return m->code >> from & ((1u << count) - 1);
}

static int64_t signed_bits(const struct machine *m, unsigned from, unsigned count)
{
    unsigned unused = 64 - count;
    return (int64_t)((uint64_t)bits(m, from, count) << unused) >> unused;
}

static uint64_t read_general(const struct machine *m, unsigned number, bool stack_pointer)
{
    if (number == ZERO_REGISTER) {
        return stack_pointer ? m->state->sp : 0;
    }
    return m->state->regs[number];
}

static void write_general(const struct machine *m, unsigned number, bool stack_pointer, bool wide,
                          uint64_t value)
{
    uint64_t whole = wide ? value : (uint32_t)value;
    if (number != ZERO_REGISTER) {
        m->state->regs[number] = whole;
    } else if (stack_pointer) {
        m->state->sp = whole;
    }
}

static bool is_on_page(const struct machine *m, uint64_t address, size_t bytes)
{
    return address >= m->page->address && bytes <= m->page->bytes &&
           address - m->page->address <= m->page->bytes - bytes;
}

static bool load(const struct machine *m, uint64_t address, void *to, size_t bytes)
{
    if (!is_on_page(m, address, bytes)) {
        return dma_copy(to, (const void *)(uintptr_t)address, bytes);
    }
    memcpy(to, m->page->memory + (address - m->page->address), bytes);
    return true;
}

/* Aligned pieces of up to 8 bytes are stored whole, as the processor would, upwards. */
static bool store(struct machine *m, uint64_t address, const void *value, size_t bytes)
{
    const uint8_t *from = value;
    if (!is_on_page(m, address, bytes)) {
        return false;
    }
    uint8_t *to = m->page->memory + (address - m->page->address);
    for (size_t piece; bytes; to += piece, from += piece, bytes -= piece) {
        uint64_t word = 0;
        for (piece = 8; piece > bytes || (uintptr_t)to % piece; piece /= 2)
            ;
        memcpy(&word, from, piece);
        if (piece == 8) {
            __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
        } else if (piece == 4) {
            __atomic_store_n((uint32_t *)(void *)to, (uint32_t)word, __ATOMIC_RELEASE);
        } else if (piece == 2) {
            __atomic_store_n((uint16_t *)(void *)to, (uint16_t)word, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(to, (uint8_t)word, __ATOMIC_RELEASE);
        }
    }
    m->stored = true;
    return true;
}

/* ---- loads and stores ---- */

/* How a value that is loaded fills a general register. */
enum extension { EXTEND_ZERO, EXTEND_SIGNED, EXTEND_SIGNED_TO_32 };

static void write_vector(const struct machine *m, unsigned number, const void *value,
                         unsigned bytes)
{
    m->vectors->vregs[number] = 0;
    memcpy(&m->vectors->vregs[number], value, bytes);
    if (!m->longer_vectors) {
        return;
    }
    /* What is above becomes zero. */
    unsigned length = m->longer_vectors->vl;
    uint8_t *whole =
        (uint8_t *)m->longer_vectors + SVE_SIG_ZREG_OFFSET(sve_vq_from_vl(length), number);
    memset(whole, 0, length);
    memcpy(whole, value, bytes);
}

static bool move_vectors(struct machine *m, bool is_store, uint64_t address, unsigned first,
                         unsigned count, unsigned bytes)
{
    __uint128_t value[4] = {0};
    if (!m->vectors) {
        return false;
    }
    for (unsigned i = 0; i < count && is_store; i++) {
        memcpy((uint8_t *)value + i * bytes, &m->vectors->vregs[(first + i) % 32], bytes);
    }
    if (is_store) {
        return store(m, address, value, count * bytes);
    }
    if (!load(m, address, value, count * bytes)) {
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        write_vector(m, (first + i) % 32, (uint8_t *)value + i * bytes, bytes);
    }
    return true;
}

static bool move_general(struct machine *m, bool is_store, uint64_t address, unsigned number,
                         unsigned bytes, enum extension extension)
{
    uint64_t value = read_general(m, number, false);
    if (is_store) {
        return store(m, address, &value, bytes);
    }
    value = 0;
    if (!load(m, address, &value, bytes)) {
        return false;
    }
    unsigned unused = 64 - bytes * 8;
    if (extension != EXTEND_ZERO) {
        value = (uint64_t)((int64_t)(value << unused) >> unused);
    }
    write_general(m, number, false, extension != EXTEND_SIGNED_TO_32, value);
    return true;
}

static uint64_t extended(const struct machine *m, unsigned number, unsigned option)
{
    uint64_t value = read_general(m, number, false);
    if (option == 2) { /* uxtw */
        return (uint32_t)value;
    }
    return option == 6 ? (uint64_t)(int64_t)(int32_t)value : value; /* sxtw; else all of it */
}

/* ldr, str, ldur, stur and their like, of all sizes. */
static bool load_or_store(struct machine *m)
{
    bool is_vector = bits(m, 26, 1), unsigned_offset = bits(m, 24, 1);
    unsigned size = bits(m, 30, 2), operation = bits(m, 22, 2), form = bits(m, 10, 2);
    unsigned base = bits(m, 5, 5), number = bits(m, 0, 5);
    bool is_store = is_vector ? !(operation & 1) : operation == 0;
    unsigned shift = is_vector && operation >= 2 ? 4 : size;
    unsigned bytes = 1u << shift;
    uint64_t start = read_general(m, base, true), address = start;
    bool writes_back = false;
    if (is_vector && operation >= 2 && size != 0) {
        return false;
    }
    if (!is_vector && operation >= 2 && (size == 3 || (size == 2 && operation == 3))) {
        return size == 3 && operation == 2 && unsigned_offset; /* prefetches do nothing */
    }
    if (unsigned_offset) {
        address += (uint64_t)bits(m, 10, 12) << shift;
    } else if (bits(m, 21, 1)) { /* a register as offset */
        unsigned option = bits(m, 13, 3);
        if (form != 2 || !(option & 2)) {
            return false;
        }
        address += extended(m, bits(m, 16, 5), option) << (bits(m, 12, 1) ? shift : 0);
    } else {
        uint64_t offset = (uint64_t)signed_bits(m, 12, 9);
        if (form == 2) { /* for the kernel's use */
            return false;
        }
        writes_back = form != 0;
        address += form == 1 ? 0 : offset;
        start += offset;
    }
    bool made = is_vector ? move_vectors(m, is_store, address, number, 1, bytes)
                          : move_general(m, is_store, address, number, bytes,
                                         operation < 2    ? EXTEND_ZERO
                                         : operation == 2 ? EXTEND_SIGNED
                                                          : EXTEND_SIGNED_TO_32);
    if (made && writes_back) {
        write_general(m, base, true, true, start);
    }
    return made;
}

/* ldp, stp, ldnp, stnp */
static bool load_or_store_pair(struct machine *m)
{
    bool is_vector = bits(m, 26, 1), is_store = !bits(m, 22, 1);
    unsigned size = bits(m, 30, 2), form = bits(m, 23, 2);
    unsigned base = bits(m, 5, 5), first = bits(m, 0, 5), second = bits(m, 10, 5);
    unsigned shift = is_vector ? size + 2 : size == 2 ? 3 : 2;
    unsigned bytes = 1u << shift;
    if (size == 3 || (!is_vector && size == 1)) { /* the latter is ldpsw */
        return false;
    }
    uint64_t offset = (uint64_t)signed_bits(m, 15, 7) << shift;
    uint64_t start = read_general(m, base, true), address = form == 1 ? start : start + offset;
    uint8_t value[32] = {0};
    if (is_vector && !m->vectors) {
        return false;
    }
    for (unsigned i = 0; i < 2 && is_store; i++) {
        unsigned number = i ? second : first;
        uint64_t word = read_general(m, number, false);
        memcpy(value + i * bytes, is_vector ? (void *)&m->vectors->vregs[number] : (void *)&word,
               bytes);
    }
    if (is_store ? !store(m, address, value, 2 * bytes) : !load(m, address, value, 2 * bytes)) {
        return false;
    }
    for (unsigned i = 0; i < 2 && !is_store; i++) {
        unsigned number = i ? second : first;
        uint64_t word = 0;
        if (is_vector) {
            write_vector(m, number, value + i * bytes, bytes);
        } else {
            memcpy(&word, value + i * bytes, bytes);
            write_general(m, number, false, true, word);
        }
    }
    if (form & 1) { /* behind or before it, the base is moved */
        write_general(m, base, true, true, start + offset);
    }
    return true;
}

/* ld1, st1 of one to four whole registers */
static bool load_or_store_structures(struct machine *m)
{
    bool is_store = !bits(m, 22, 1), moves_base = bits(m, 23, 1);
    unsigned bytes = bits(m, 30, 1) ? 16 : 8, base = bits(m, 5, 5), step = bits(m, 16, 5);
    unsigned count = 0;
    switch (bits(m, 12, 4)) {
    case 2:
        count = 4;
        break;
    case 6:
        count = 3;
        break;
    case 7:
        count = 1;
        break;
    case 10:
        count = 2;
        break;
    }
    if (count == 0 || (!moves_base && step != 0)) {
        return false;
    }
    uint64_t address = read_general(m, base, true);
    uint64_t moved = step == 31 ? count * bytes : read_general(m, step, false);
    if (!move_vectors(m, is_store, address, bits(m, 0, 5), count, bytes)) {
        return false;
    }
    if (moves_base) {
        write_general(m, base, true, true, address + moved);
    }
    return true;
}

/* stlr, ldar: a store is released as all are here. */
static bool load_or_store_ordered(struct machine *m)
{
    bool is_store = !bits(m, 22, 1);
    uint64_t address = read_general(m, bits(m, 5, 5), true);
    unsigned bytes = 1u << bits(m, 30, 2);
    if (address % bytes) {
        return false;
    }
    if (!move_general(m, is_store, address, bits(m, 0, 5), bytes, EXTEND_ZERO)) {
        return false;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return true;
}

/* st1b, ld1b: bytes of one of SVE's vectors, those that a predicate has a bit for. */
static bool load_or_store_bytes(struct machine *m)
{
    uint8_t value[SVE_VQ_MAX * __SVE_VQ_BYTES] = {0};
    const struct sve_context *frame = m->longer_vectors;
    unsigned number = bits(m, 0, 5);
    bool is_store = bits(m, 30, 1);
    if (!frame || !m->vectors) {
        return false;
    }
    unsigned length = frame->vl, vq = sve_vq_from_vl(length);
    uint8_t *vector = (uint8_t *)m->longer_vectors + SVE_SIG_ZREG_OFFSET(vq, number);
    const uint8_t *wanted = (const uint8_t *)frame + SVE_SIG_PREG_OFFSET(vq, bits(m, 10, 3));
    uint64_t address =
        read_general(m, bits(m, 5, 5), true) + (uint64_t)(signed_bits(m, 16, 4) * (int64_t)length);
    unsigned count = 0; /* from the first, without gaps: others are not known */
    while (count < length && wanted[count / 8] >> count % 8 & 1) {
        count++;
    }
    for (unsigned i = count; i < length; i++) {
        if (wanted[i / 8] >> i % 8 & 1) {
            return false;
        }
    }
    if (is_store) {
        memcpy(value, vector, length);
        memcpy(value, &m->vectors->vregs[number], 16);
        return count == 0 || store(m, address, value, count);
    }
    if (count && !load(m, address, value, count)) {
        return false;
    }
    memcpy(vector, value, length);
    memcpy(&m->vectors->vregs[number], value, 16);
    return true;
}

/* ---- arithmetic ---- */

static void set_result_flags(const struct machine *m, bool wide, uint64_t result, uint32_t flags)
{
    uint64_t seen = wide ? result : (uint32_t)result;
    if (seen >> (wide ? 63 : 31)) {
        flags |= FLAG_N;
    }
    if (seen == 0) {
        flags |= FLAG_Z;
    }
    m->state->pstate = (m->state->pstate & ~(uint64_t)ALL_FLAGS) | flags;
}

/* A subtraction is the addition of the complement and one. */
static uint64_t add(const struct machine *m, bool wide, bool subtract, bool flags, uint64_t a,
                    uint64_t b)
{
    uint64_t top = wide ? 1ull << 63 : 1ull << 31, mask = wide ? UINT64_MAX : UINT32_MAX;
    a &= mask;
    b = (subtract ? ~b : b) & mask;
    uint64_t result = (a + b + subtract) & mask;
    uint64_t carries = (a & b) | ((a | b) & ~result);
    uint64_t overflow = ~(a ^ b) & (a ^ result);
    if (flags) {
        set_result_flags(m, wide, result,
                         (carries & top ? FLAG_C : 0) | (overflow & top ? FLAG_V : 0));
    }
    return result;
}

static bool add_immediate(struct machine *m)
{
    bool wide = bits(m, 31, 1), flags = bits(m, 29, 1);
    uint64_t b = (uint64_t)bits(m, 10, 12) << (bits(m, 22, 1) ? 12 : 0);
    uint64_t a = read_general(m, bits(m, 5, 5), true);
    write_general(m, bits(m, 0, 5), !flags, wide, add(m, wide, bits(m, 30, 1), flags, a, b));
    return true;
}

static uint64_t shifted(const struct machine *m, bool wide, uint64_t value, unsigned kind,
                        unsigned count)
{
    (void)m;
    unsigned width = wide ? 64 : 32;
    if (!wide) {
        value = (uint32_t)value;
    }
    if (count == 0) {
        return value;
    }
    switch (kind) {
    case 0:
        return value << count;
    case 1:
        return value >> count;
    case 2:
        return wide ? (uint64_t)((int64_t)value >> count)
                    : (uint32_t)((int32_t)(uint32_t)value >> count);
    default:
        return value >> count | value << (width - count);
    }
}

static uint64_t logic(const struct machine *m, unsigned operation, bool wide, uint64_t a,
                      uint64_t b)
{
    uint64_t result = operation == 1 ? a | b : operation == 2 ? a ^ b : a & b;
    if (operation == 3) {
        set_result_flags(m, wide, result, 0);
    }
    return result;
}

static bool with_shifted_register(struct machine *m)
{
    bool wide = bits(m, 31, 1), adds = bits(m, 24, 1);
    unsigned count = bits(m, 10, 6), kind = bits(m, 22, 2), destination = bits(m, 0, 5);
    if ((!wide && count >= 32) || (adds && (kind == 3 || bits(m, 21, 1)))) {
        return false;
    }
    uint64_t a = read_general(m, bits(m, 5, 5), false);
    uint64_t b = shifted(m, wide, read_general(m, bits(m, 16, 5), false), kind, count);
    uint64_t result;
    if (adds) {
        result = add(m, wide, bits(m, 30, 1), bits(m, 29, 1), a, b);
    } else {
        result = logic(m, bits(m, 29, 2), wide, a, bits(m, 21, 1) ? ~b : b);
    }
    write_general(m, destination, false, wide, result);
    return true;
}

/* The pattern of a bitmask immediate (DecodeBitMasks of the manual). */
static bool bit_mask(const struct machine *m, uint64_t *mask)
{
    unsigned n = bits(m, 22, 1), rotate = bits(m, 16, 6), ones = bits(m, 10, 6);
    unsigned selector = n << 6 | (~ones & 0x3f);
    if (selector < 2) {
        return false;
    }
    unsigned length = 31 - (unsigned)__builtin_clz(selector), width = 1u << length;
    ones = (ones & (width - 1)) + 1;
    rotate &= width - 1;
    if (ones == width) {
        return false;
    }
    uint64_t all = width == 64 ? UINT64_MAX : (1ull << width) - 1, element = (1ull << ones) - 1;
    if (rotate) {
        element = (element >> rotate | element << (width - rotate)) & all;
    }
    for (; width < 64; width *= 2) {
        element |= element << width;
    }
    *mask = element;
    return true;
}

static bool logic_immediate(struct machine *m)
{
    bool wide = bits(m, 31, 1);
    unsigned operation = bits(m, 29, 2);
    uint64_t mask, a = read_general(m, bits(m, 5, 5), false);
    if ((!wide && bits(m, 22, 1)) || !bit_mask(m, &mask)) {
        return false;
    }
    write_general(m, bits(m, 0, 5), operation != 3, wide, logic(m, operation, wide, a, mask));
    return true;
}

static bool move_wide(struct machine *m)
{
    bool wide = bits(m, 31, 1);
    unsigned operation = bits(m, 29, 2), shift = bits(m, 21, 2) * 16, number = bits(m, 0, 5);
    uint64_t value = (uint64_t)bits(m, 5, 16) << shift;
    if (operation == 1 || (!wide && shift > 16)) {
        return false;
    }
    if (operation == 0) {
        value = ~value;
    }
    if (operation == 3) {
        value |= read_general(m, number, false) & ~(0xffffull << shift);
    }
    write_general(m, number, false, wide, value);
    return true;
}

/* lsr, lsl and extensions: ubfm and sbfm */
static bool move_bit_field(struct machine *m)
{
    bool wide = bits(m, 31, 1);
    unsigned operation = bits(m, 29, 2), rotate = bits(m, 16, 6), last = bits(m, 10, 6);
    unsigned width = wide ? 64 : 32;
    if (operation == 1 || operation == 3 || bits(m, 22, 1) != wide || rotate >= width ||
        last >= width) {
        return false;
    }
    uint64_t value = read_general(m, bits(m, 5, 5), false);
    unsigned count = last >= rotate ? last - rotate + 1 : last + 1;
    unsigned to = last >= rotate ? 0 : width - rotate;
    value = (last >= rotate ? value >> rotate : value) << (64 - count);
    value = operation == 0 ? (uint64_t)((int64_t)value >> (64 - count)) : value >> (64 - count);
    write_general(m, bits(m, 0, 5), false, wide, value << to);
    return true;
}

static bool condition(const struct machine *m, unsigned code)
{
    uint64_t flags = m->state->pstate;
    bool n = flags & FLAG_N, z = flags & FLAG_Z, c = flags & FLAG_C, v = flags & FLAG_V;
    const bool holds[8] = {z, c, n, v, c && !z, n == v, n == v && !z, true};
    return holds[code >> 1] != (code & 1 && code != 15);
}

static bool select_one(struct machine *m)
{
    bool wide = bits(m, 31, 1);
    uint64_t other = read_general(m, bits(m, 16, 5), false);
    if (bits(m, 30, 1)) {
        other = ~other;
    }
    if (bits(m, 10, 1)) {
        other++;
    }
    write_general(m, bits(m, 0, 5), false, wide,
                  condition(m, bits(m, 12, 4)) ? read_general(m, bits(m, 5, 5), false) : other);
    return true;
}

static bool reverse(struct machine *m)
{
    uint64_t value = __builtin_bswap64(read_general(m, bits(m, 5, 5), false));
    bool wide = bits(m, 31, 1);
    write_general(m, bits(m, 0, 5), false, wide, wide ? value : value >> 32);
    return true;
}

/* ---- jumps ---- */

static bool jump_if(struct machine *m, bool holds, int64_t words)
{
    if (holds) {
        m->target = m->state->pc + (uint64_t)words * 4;
    }
    return true;
}

static bool jump_on_bit(struct machine *m)
{
    unsigned number = bits(m, 31, 1) << 5 | bits(m, 19, 5);
    bool is_set = read_general(m, bits(m, 0, 5), false) >> number & 1;
    return jump_if(m, is_set == (bool)bits(m, 24, 1), signed_bits(m, 5, 14));
}

static bool jump_on_zero(struct machine *m)
{
    uint64_t value = read_general(m, bits(m, 0, 5), false);
    if (!bits(m, 31, 1)) {
        value = (uint32_t)value;
    }
    return jump_if(m, (value == 0) != (bool)bits(m, 24, 1), signed_bits(m, 5, 19));
}

static bool go_back(struct machine *m)
{
    m->target = read_general(m, bits(m, 5, 5), false);
    return true;
}

/* nop, yield and bti; others sign addresses, or wait. */
static bool hint(struct machine *m)
{
    unsigned number = bits(m, 5, 7);
    return number < 2 || (number & ~6u) == 32;
}

static bool fence(struct machine *m)
{
    unsigned operation = bits(m, 5, 3);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    m->fenced = true;
    return operation == 4 || operation == 5; /* dsb, dmb */
}

static bool jump(struct machine *m)
{
    return jump_if(m, true, signed_bits(m, 0, 26));
}

static bool jump_on_condition(struct machine *m)
{
    return jump_if(m, condition(m, bits(m, 0, 4)), signed_bits(m, 5, 19));
}

static bool address_near(struct machine *m)
{
    int64_t distance = signed_bits(m, 5, 19) * 4 + bits(m, 29, 2);
    uint64_t base = bits(m, 31, 1) ? m->state->pc & ~0xfffull : m->state->pc;
    write_general(m, bits(m, 0, 5), false, true,
                  base + (uint64_t)(bits(m, 31, 1) ? distance * 4096 : distance));
    return true;
}

/* ---- all ---- */

static const struct {
    uint32_t mask, value;
    bool (*execute)(struct machine *m);
} instructions[] = {
    {0x3b000000, 0x39000000, load_or_store}, /* with an unsigned offset */
    {0x3b000000, 0x38000000, load_or_store},
    {0x3a000000, 0x28000000, load_or_store_pair},
    {0xbfbf0000, 0x0c000000, load_or_store_structures},
    {0xbfa00000, 0x0c800000, load_or_store_structures}, /* and move the base */
    {0x3fbffc00, 0x089ffc00, load_or_store_ordered},
    {0xfff0e000, 0xe400e000, load_or_store_bytes},
    {0xfff0e000, 0xa400a000, load_or_store_bytes},
    {0x1f800000, 0x11000000, add_immediate},
    {0x1f800000, 0x12000000, logic_immediate},
    {0x1f800000, 0x12800000, move_wide},
    {0x1f800000, 0x13000000, move_bit_field},
    {0x1f000000, 0x0a000000, with_shifted_register},
    {0x1f200000, 0x0b000000, with_shifted_register},
    {0x3fe00800, 0x1a800000, select_one},
    {0xfffffc00, 0xdac00c00, reverse},
    {0xfffffc00, 0x5ac00800, reverse},
    {0x1f000000, 0x10000000, address_near},
    {0xfc000000, 0x14000000, jump},
    {0xff000010, 0x54000000, jump_on_condition},
    {0x7e000000, 0x34000000, jump_on_zero},
    {0x7e000000, 0x36000000, jump_on_bit},
    {0xfffffc1f, 0xd65f0000, go_back},
    {0xfffff01f, 0xd503201f, hint},
    {0xfffff01f, 0xd503301f, fence},
};

/* Executes one instruction. Returns false, with the registers as they were, if it is not known. */
static bool step(struct machine *m)
{
    m->stored = m->fenced = false;
    m->target = 0;
    if (!dma_copy(&m->code, (const void *)(uintptr_t)m->state->pc, sizeof(m->code))) {
        return false;
    }
    for (size_t i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++) {
        if ((m->code & instructions[i].mask) != instructions[i].value) {
            continue;
        }
        if (!instructions[i].execute(m)) {
            return false;
        }
        m->state->pc = m->target ? m->target : m->state->pc + 4;
        return true;
    }
    return false;
}

/* The vector registers are a record in the frame, those of SVE another; where both are, this one has the
 * lower 16 bytes of each. */
static struct machine machine_of(void *ucontext, const struct emulate_page *page)
{
    struct machine m = {.state = &((ucontext_t *)ucontext)->uc_mcontext, .page = page};
    uint8_t *at = (uint8_t *)m.state->__reserved;
    const uint8_t *end = at + sizeof(m.state->__reserved);
    while (at + sizeof(struct _aarch64_ctx) <= end) {
        struct _aarch64_ctx *record = (struct _aarch64_ctx *)(void *)at;
        if (record->magic == FPSIMD_MAGIC) {
            m.vectors = (struct fpsimd_context *)(void *)at;
        }
        if (record->magic == SVE_MAGIC && record->size > sizeof(struct sve_context)) {
            m.longer_vectors = (struct sve_context *)(void *)at;
        }
        if (record->magic == 0 || record->size < sizeof(*record)) {
            break;
        }
        at += record->size;
    }
    return m;
}

unsigned emulate_stores(void *ucontext, const struct emulate_page *page)
{
    struct machine m = machine_of(ucontext, page);
    struct emulate_copy copy = {0};
    while (step(&m) && emulate_copy_goes_on(&copy, m.stored, m.fenced))
        ;
    return copy.stores;
}

bool emulate_load(void *ucontext, const struct emulate_page *page)
{
    struct machine m = machine_of(ucontext, page);
    /* But for the vectors, which stores leave as they are. */
    uint8_t before[offsetof(mcontext_t, __reserved)];
    memcpy(before, m.state, sizeof(before));
    if (!step(&m)) {
        return false;
    }
    if (m.stored) {
        memcpy(m.state, before, sizeof(before));
    }
    return !m.stored;
}

#endif
