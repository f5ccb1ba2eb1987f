/* arm64_integer.c: arithmetic, comparisons and jumps. */
#if defined(__aarch64__)

#include "simnic/shim/emulate/arm64.h"

#define FLAG_N (1u << 31)
#define FLAG_Z (1u << 30)
#define FLAG_C (1u << 29)
#define FLAG_V (1u << 28)
#define ALL_FLAGS (FLAG_N | FLAG_Z | FLAG_C | FLAG_V)

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

bool arm64_add_immediate(struct machine *m)
{
    bool wide = machine_bits(m, 31, 1), flags = machine_bits(m, 29, 1);
    uint64_t b = (uint64_t)machine_bits(m, 10, 12) << (machine_bits(m, 22, 1) ? 12 : 0);
    uint64_t a = machine_general(m, machine_bits(m, 5, 5), true);
    machine_set_general(m, machine_bits(m, 0, 5), !flags, wide,
                        add(m, wide, machine_bits(m, 30, 1), flags, a, b));
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

bool arm64_with_shifted_register(struct machine *m)
{
    bool wide = machine_bits(m, 31, 1), adds = machine_bits(m, 24, 1);
    unsigned count = machine_bits(m, 10, 6), kind = machine_bits(m, 22, 2),
             destination = machine_bits(m, 0, 5);
    if ((!wide && count >= 32) || (adds && (kind == 3 || machine_bits(m, 21, 1)))) {
        return false;
    }
    uint64_t a = machine_general(m, machine_bits(m, 5, 5), false);
    uint64_t b = shifted(m, wide, machine_general(m, machine_bits(m, 16, 5), false), kind, count);
    uint64_t result;
    if (adds) {
        result = add(m, wide, machine_bits(m, 30, 1), machine_bits(m, 29, 1), a, b);
    } else {
        result = logic(m, machine_bits(m, 29, 2), wide, a, machine_bits(m, 21, 1) ? ~b : b);
    }
    machine_set_general(m, destination, false, wide, result);
    return true;
}

/* The pattern of a bitmask immediate (DecodeBitMasks of the manual). */
static bool bit_mask(const struct machine *m, uint64_t *mask)
{
    unsigned n = machine_bits(m, 22, 1), rotate = machine_bits(m, 16, 6),
             ones = machine_bits(m, 10, 6);
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

bool arm64_logic_immediate(struct machine *m)
{
    bool wide = machine_bits(m, 31, 1);
    unsigned operation = machine_bits(m, 29, 2);
    uint64_t mask, a = machine_general(m, machine_bits(m, 5, 5), false);
    if ((!wide && machine_bits(m, 22, 1)) || !bit_mask(m, &mask)) {
        return false;
    }
    machine_set_general(m, machine_bits(m, 0, 5), operation != 3, wide,
                        logic(m, operation, wide, a, mask));
    return true;
}

bool arm64_move_wide(struct machine *m)
{
    bool wide = machine_bits(m, 31, 1);
    unsigned operation = machine_bits(m, 29, 2), shift = machine_bits(m, 21, 2) * 16,
             number = machine_bits(m, 0, 5);
    uint64_t value = (uint64_t)machine_bits(m, 5, 16) << shift;
    if (operation == 1 || (!wide && shift > 16)) {
        return false;
    }
    if (operation == 0) {
        value = ~value;
    }
    if (operation == 3) {
        value |= machine_general(m, number, false) & ~(0xffffull << shift);
    }
    machine_set_general(m, number, false, wide, value);
    return true;
}

/* lsr, lsl and extensions: ubfm and sbfm */
bool arm64_move_bit_field(struct machine *m)
{
    bool wide = machine_bits(m, 31, 1);
    unsigned operation = machine_bits(m, 29, 2), rotate = machine_bits(m, 16, 6),
             last = machine_bits(m, 10, 6);
    unsigned width = wide ? 64 : 32;
    if (operation == 1 || operation == 3 || machine_bits(m, 22, 1) != wide || rotate >= width ||
        last >= width) {
        return false;
    }
    uint64_t value = machine_general(m, machine_bits(m, 5, 5), false);
    unsigned count = last >= rotate ? last - rotate + 1 : last + 1;
    unsigned to = last >= rotate ? 0 : width - rotate;
    value = (last >= rotate ? value >> rotate : value) << (64 - count);
    value = operation == 0 ? (uint64_t)((int64_t)value >> (64 - count)) : value >> (64 - count);
    machine_set_general(m, machine_bits(m, 0, 5), false, wide, value << to);
    return true;
}

static bool condition(const struct machine *m, unsigned code)
{
    uint64_t flags = m->state->pstate;
    bool n = flags & FLAG_N, z = flags & FLAG_Z, c = flags & FLAG_C, v = flags & FLAG_V;
    const bool holds[8] = {z, c, n, v, c && !z, n == v, n == v && !z, true};
    return holds[code >> 1] != (code & 1 && code != 15);
}

bool arm64_select_one(struct machine *m)
{
    bool wide = machine_bits(m, 31, 1);
    uint64_t other = machine_general(m, machine_bits(m, 16, 5), false);
    if (machine_bits(m, 30, 1)) {
        other = ~other;
    }
    if (machine_bits(m, 10, 1)) {
        other++;
    }
    machine_set_general(m, machine_bits(m, 0, 5), false, wide,
                        condition(m, machine_bits(m, 12, 4))
                            ? machine_general(m, machine_bits(m, 5, 5), false)
                            : other);
    return true;
}

bool arm64_reverse(struct machine *m)
{
    uint64_t value = __builtin_bswap64(machine_general(m, machine_bits(m, 5, 5), false));
    bool wide = machine_bits(m, 31, 1);
    machine_set_general(m, machine_bits(m, 0, 5), false, wide, wide ? value : value >> 32);
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

bool arm64_jump_on_bit(struct machine *m)
{
    unsigned number = machine_bits(m, 31, 1) << 5 | machine_bits(m, 19, 5);
    bool is_set = machine_general(m, machine_bits(m, 0, 5), false) >> number & 1;
    return jump_if(m, is_set == (bool)machine_bits(m, 24, 1), machine_signed_bits(m, 5, 14));
}

bool arm64_jump_on_zero(struct machine *m)
{
    uint64_t value = machine_general(m, machine_bits(m, 0, 5), false);
    if (!machine_bits(m, 31, 1)) {
        value = (uint32_t)value;
    }
    return jump_if(m, (value == 0) != (bool)machine_bits(m, 24, 1), machine_signed_bits(m, 5, 19));
}

bool arm64_go_back(struct machine *m)
{
    m->target = machine_general(m, machine_bits(m, 5, 5), false);
    return true;
}

/* nop, yield and bti; others sign addresses, or wait. */
bool arm64_hint(struct machine *m)
{
    unsigned number = machine_bits(m, 5, 7);
    return number < 2 || (number & ~6u) == 32;
}

bool arm64_fence(struct machine *m)
{
    unsigned operation = machine_bits(m, 5, 3);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    m->fenced = true;
    return operation == 4 || operation == 5; /* dsb, dmb */
}

bool arm64_jump(struct machine *m)
{
    return jump_if(m, true, machine_signed_bits(m, 0, 26));
}

bool arm64_jump_on_condition(struct machine *m)
{
    return jump_if(m, condition(m, machine_bits(m, 0, 4)), machine_signed_bits(m, 5, 19));
}

bool arm64_address_near(struct machine *m)
{
    int64_t distance = machine_signed_bits(m, 5, 19) * 4 + machine_bits(m, 29, 2);
    uint64_t base = machine_bits(m, 31, 1) ? m->state->pc & ~0xfffull : m->state->pc;
    machine_set_general(m, machine_bits(m, 0, 5), false, true,
                        base + (uint64_t)(machine_bits(m, 31, 1) ? distance * 4096 : distance));
    return true;
}

#endif
