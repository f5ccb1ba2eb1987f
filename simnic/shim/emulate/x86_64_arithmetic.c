/* x86_64_arithmetic.c: arithmetic, logic, shifts and comparisons of general registers and memory,
 * with their flags (Intel SDM volume 2). */
#if defined(__x86_64__)

#include "simnic/shim/emulate/x86_64.h"

#define ARITHMETIC_FLAGS                                                                           \
    (FLAG_CARRY | FLAG_PARITY | FLAG_ADJUST | FLAG_ZERO | FLAG_SIGN | FLAG_OVERFLOW)
#define RAX 0u
#define RCX 1u

/* Operations as the opcodes 00 to 3F and the reg field of 80 to 83 number them. */
enum operation { ADD, OR, ADC, SBB, AND, SUB, XOR, CMP };

/* ---- flags ---- */

static uint64_t all_bits(unsigned bytes)
{
    return bytes == 8 ? UINT64_MAX : (1ull << bytes * 8) - 1;
}

static uint64_t top_bit(unsigned bytes)
{
    return all_bits(bytes) ^ all_bits(bytes) >> 1;
}

static uint64_t result_flags(unsigned bytes, uint64_t result)
{
    uint64_t flags = 0;
    if ((result & all_bits(bytes)) == 0) {
        flags |= FLAG_ZERO;
    }
    if (result & top_bit(bytes)) {
        flags |= FLAG_SIGN;
    }
    if (__builtin_parity((unsigned)(result & 0xff)) == 0) {
        flags |= FLAG_PARITY;
    }
    return flags;
}

/* Carries and borrows out of each bit follow from operands and result alone. */
static uint64_t sum_flags(unsigned bytes, uint64_t a, uint64_t b, uint64_t result, bool subtraction)
{
    uint64_t flags = result_flags(bytes, result);
    uint64_t carries = subtraction ? (~a & b) | ((~a | b) & result) : (a & b) | ((a | b) & ~result);
    uint64_t overflow = subtraction ? (a ^ b) & (a ^ result) : ~(a ^ b) & (a ^ result);
    if (carries & top_bit(bytes)) {
        flags |= FLAG_CARRY;
    }
    if (overflow & top_bit(bytes)) {
        flags |= FLAG_OVERFLOW;
    }
    if ((a ^ b ^ result) & 0x10) {
        flags |= FLAG_ADJUST;
    }
    return flags;
}

bool emulate_condition(const struct machine *m, unsigned code)
{
    uint64_t flags = machine_flags(m);
    bool carry = flags & FLAG_CARRY, zero = flags & FLAG_ZERO, sign = flags & FLAG_SIGN;
    bool overflow = flags & FLAG_OVERFLOW, parity = flags & FLAG_PARITY;
    const bool holds[8] = {overflow,
                           carry,
                           zero,
                           carry || zero,
                           sign,
                           parity,
                           sign != overflow,
                           zero || sign != overflow};
    return holds[code >> 1 & 7] != (code & 1);
}

/* ---- arithmetic ---- */

static uint64_t calculate(const struct machine *m, enum operation operation, unsigned bytes,
                          uint64_t a, uint64_t b, uint64_t *flags)
{
    uint64_t carry = machine_flags(m) & FLAG_CARRY, result = 0;
    switch (operation) {
    case ADD:
        result = a + b;
        break;
    case ADC:
        result = a + b + carry;
        break;
    case SUB:
    case CMP:
        result = a - b;
        break;
    case SBB:
        result = a - b - carry;
        break;
    case OR:
        result = a | b;
        break;
    case AND:
        result = a & b;
        break;
    case XOR:
        result = a ^ b;
        break;
    }
    bool logic = operation == OR || operation == AND || operation == XOR;
    *flags = logic ? result_flags(bytes, result)
                   : sum_flags(bytes, a, b, result, operation != ADD && operation != ADC);
    return result;
}

static bool arithmetic_on_rm(struct machine *m, enum operation operation, unsigned bytes,
                             uint64_t b)
{
    uint64_t a, flags;
    if (!machine_read_rm(m, bytes, &a)) {
        return false;
    }
    uint64_t result = calculate(m, operation, bytes, a, b, &flags);
    if (operation != CMP && !machine_write_rm(m, bytes, result)) {
        return false;
    }
    machine_set_flags(m, ARITHMETIC_FLAGS, flags);
    return true;
}

static bool arithmetic_on_register(struct machine *m, enum operation operation, unsigned number,
                                   unsigned bytes, uint64_t b)
{
    uint64_t flags;
    uint64_t result = calculate(m, operation, bytes, machine_general(m, number, bytes), b, &flags);
    if (operation != CMP) {
        machine_set_general(m, number, bytes, result);
    }
    machine_set_flags(m, ARITHMETIC_FLAGS, flags);
    return true;
}

/* Opcodes 00 to 3D. */
static bool arithmetic(struct machine *m, uint8_t opcode)
{
    enum operation operation = opcode >> 3;
    unsigned bytes = machine_bytes_of(m, opcode);
    uint64_t b;
    if ((opcode & 7) >= 6) {
        return false;
    }
    if (opcode & 4) {
        return arithmetic_on_register(m, operation, RAX, bytes,
                                      (uint64_t)machine_signed(m, machine_immediate_bytes(bytes)));
    }
    machine_operands(m, 0);
    if (!(opcode & 2)) {
        return arithmetic_on_rm(m, operation, bytes, machine_general(m, m->reg, bytes));
    }
    return machine_read_rm(m, bytes, &b) && arithmetic_on_register(m, operation, m->reg, bytes, b);
}

static bool test(struct machine *m, unsigned bytes, uint64_t a, uint64_t b)
{
    machine_set_flags(m, ARITHMETIC_FLAGS, result_flags(bytes, a & b));
    return true;
}

/* F6 and F7: test with an immediate, not, neg. Only the first of them has an immediate. */
static bool unary(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    struct machine before = *m;
    machine_operands(m, 0);
    unsigned operation = m->reg & 7;
    uint64_t a;
    if (operation < 2) {
        *m = before;
        machine_operands(m, machine_immediate_bytes(bytes));
        uint64_t b = (uint64_t)machine_signed(m, machine_immediate_bytes(bytes));
        return machine_read_rm(m, bytes, &a) && test(m, bytes, a, b);
    }
    if (operation > 3 || !machine_read_rm(m, bytes, &a)) {
        return false;
    }
    if (operation == 2) {
        return machine_write_rm(m, bytes, ~a);
    }
    if (!machine_write_rm(m, bytes, 0 - a)) {
        return false;
    }
    machine_set_flags(m, ARITHMETIC_FLAGS, sum_flags(bytes, 0, a, 0 - a, true));
    return true;
}

/* FE and FF: inc, dec, and jmp to where the operand says. */
static bool increment_or_jump(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    machine_operands(m, 0);
    unsigned operation = m->reg & 7;
    uint64_t a;
    if (operation == 4 && opcode == 0xff) {
        if (!machine_read_rm(m, 8, &a)) {
            return false;
        }
        m->target = a;
        return true;
    }
    if (operation > 1 || !machine_read_rm(m, bytes, &a)) {
        return false;
    }
    uint64_t result = operation == 0 ? a + 1 : a - 1;
    if (!machine_write_rm(m, bytes, result)) {
        return false;
    }
    machine_set_flags(m, ARITHMETIC_FLAGS & ~FLAG_CARRY,
                      sum_flags(bytes, a, 1, result, operation == 1));
    return true;
}

/* C0, C1, D0 to D3: rol, ror, shl, shr, sar. Flags that the processor leaves undefined stay as they
 * are. */
static bool shift(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode), bits = bytes * 8;
    machine_operands(m, opcode < 0xd0 ? 1 : 0);
    unsigned operation = m->reg & 7;
    unsigned count = opcode < 0xd0   ? machine_byte(m)
                     : opcode < 0xd2 ? 1
                                     : (unsigned)machine_general(m, RCX, 8);
    count &= bytes == 8 ? 63 : 31;
    uint64_t a, result, carry;
    bool rotates = operation < 2;
    if (operation == 2 || operation == 3 || !machine_read_rm(m, bytes, &a)) {
        return false;
    }
    if (count == 0) {
        return machine_write_rm(m, bytes, a);
    }
    if (rotates) {
        unsigned left = (operation == 0 ? count : bits - count % bits) % bits;
        result = left ? a << left | a >> (bits - left) : a;
        carry = operation == 0 ? result & 1 : result & top_bit(bytes);
    } else if (operation == 7) {
        unsigned unused = 64 - bits, most = count < bits ? count : bits - 1;
        int64_t wide = (int64_t)(a << unused) >> unused;
        result = (uint64_t)(wide >> most);
        carry = (uint64_t)(wide >> (most - (count < bits))) & 1;
        if (count >= bits) {
            carry = (uint64_t)(wide >> (bits - 1)) & 1;
        }
    } else if (count > bits) { /* of bytes and words only */
        result = carry = 0;
    } else if (operation == 5) {
        result = a >> (count - 1) >> 1;
        carry = a >> (count - 1) & 1;
    } else {
        result = a << (count - 1) << 1;
        carry = a << (count - 1) & top_bit(bytes);
    }
    if (!machine_write_rm(m, bytes, result)) {
        return false;
    }
    uint64_t flags = result_flags(bytes, result) | (carry ? FLAG_CARRY : 0);
    uint64_t defined = rotates ? FLAG_CARRY : FLAG_CARRY | FLAG_ZERO | FLAG_SIGN | FLAG_PARITY;
    if (count == 1) {
        defined |= FLAG_OVERFLOW;
        uint64_t changed = operation == 7 ? 0
                           : operation == 5 || operation == 1
                               ? a ^ result
                               : result ^ (carry ? top_bit(bytes) : 0);
        /* ror: the two uppermost bits of the result differ; shr: the sign that was */
        if (operation == 1) {
            changed = result ^ result << 1;
        }
        flags |= changed & top_bit(bytes) ? FLAG_OVERFLOW : 0;
    }
    machine_set_flags(m, defined, flags);
    return true;
}

static bool with_immediate(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    unsigned immediate = opcode == 0x83 ? 1 : machine_immediate_bytes(bytes);
    machine_operands(m, immediate);
    uint64_t b = (uint64_t)machine_signed(m, immediate);
    return arithmetic_on_rm(m, m->reg & 7, bytes, b);
}

static bool test_of_two(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    uint64_t a;
    machine_operands(m, 0);
    return machine_read_rm(m, bytes, &a) && test(m, bytes, a, machine_general(m, m->reg, bytes));
}

static bool test_accumulator(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    uint64_t b = (uint64_t)machine_signed(m, machine_immediate_bytes(bytes));
    return test(m, bytes, machine_general(m, RAX, bytes), b);
}

bool emulate_arithmetic(struct machine *m, uint8_t opcode)
{
    if (opcode < 0x40) {
        return arithmetic(m, opcode);
    }
    switch (opcode) {
    case 0x80:
    case 0x81:
    case 0x83:
        return with_immediate(m, opcode);
    case 0x84:
    case 0x85:
        return test_of_two(m, opcode);
    case 0xa8:
    case 0xa9:
        return test_accumulator(m, opcode);
    case 0xc0:
    case 0xc1:
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return shift(m, opcode);
    case 0xf6:
    case 0xf7:
        return unary(m, opcode);
    case 0xfe:
    case 0xff:
        return increment_or_jump(m, opcode);
    default:
        return false;
    }
}

#endif
