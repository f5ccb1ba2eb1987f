/* emulate_integer.c: instructions on general registers: moves, address arithmetic, logic, comparisons,
 * jumps, string moves (Intel SDM volume 2). */
#if defined(__x86_64__)

#include "emulate_machine.h"

#include <string.h>

#define CARRY 0x001u
#define PARITY 0x004u
#define ADJUST 0x010u
#define ZERO 0x040u
#define SIGN 0x080u
#define DIRECTION 0x400u
#define OVERFLOW 0x800u
#define ARITHMETIC_FLAGS (CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW)
#define RAX 0u
#define RCX 1u
#define RSP 4u
#define RSI 6u
#define RDI 7u

/* Operations as the opcodes 00 to 3F and the reg field of 80 to 83 number them. */
enum operation { ADD, OR, ADC, SBB, AND, SUB, XOR, CMP };

/* ---- operands ---- */

static unsigned operand_bytes(const struct machine *m)
{
    return m->rex & REX_W ? 8 : m->operand_16 ? 2 : 4;
}

/* Many opcodes come in pairs: the even one is for bytes. */
static unsigned bytes_of(const struct machine *m, uint8_t opcode)
{
    return opcode & 1 ? operand_bytes(m) : 1;
}

static unsigned immediate_bytes(unsigned bytes)
{
    return bytes == 8 ? 4 : bytes;
}

static bool read_rm(const struct machine *m, unsigned bytes, uint64_t *value)
{
    *value = 0;
    if (m->memory)
        return machine_load(m, m->address, value, bytes);
    *value = machine_general(m, m->rm, bytes);
    return true;
}

static bool write_rm(struct machine *m, unsigned bytes, uint64_t value)
{
    if (m->memory)
        return machine_store(m, m->address, &value, bytes);
    machine_set_general(m, m->rm, bytes, value);
    return true;
}

/* ---- flags ---- */

static uint64_t flags_of(const struct machine *m)
{
    return (uint64_t)m->state->gregs[REG_EFL];
}

static void set_flags(const struct machine *m, uint64_t which, uint64_t flags)
{
    m->state->gregs[REG_EFL] = (greg_t)((flags_of(m) & ~which) | (flags & which));
}

static uint64_t top_bit(unsigned bytes)
{
    return 1ull << (bytes * 8 - 1);
}

static uint64_t all_bits(unsigned bytes)
{
    return bytes == 8 ? UINT64_MAX : (1ull << bytes * 8) - 1;
}

static uint64_t result_flags(unsigned bytes, uint64_t result)
{
    uint64_t flags = 0;
    if ((result & all_bits(bytes)) == 0)
        flags |= ZERO;
    if (result & top_bit(bytes))
        flags |= SIGN;
    if (__builtin_parity((unsigned)(result & 0xff)) == 0)
        flags |= PARITY;
    return flags;
}

/* Carries and borrows out of each bit follow from operands and result alone. */
static uint64_t sum_flags(unsigned bytes, uint64_t a, uint64_t b, uint64_t result, bool subtraction)
{
    uint64_t flags = result_flags(bytes, result);
    uint64_t carries = subtraction ? (~a & b) | ((~a | b) & result) : (a & b) | ((a | b) & ~result);
    uint64_t overflow = subtraction ? (a ^ b) & (a ^ result) : ~(a ^ b) & (a ^ result);
    if (carries & top_bit(bytes))
        flags |= CARRY;
    if (overflow & top_bit(bytes))
        flags |= OVERFLOW;
    if ((a ^ b ^ result) & 0x10)
        flags |= ADJUST;
    return flags;
}

static bool condition(const struct machine *m, unsigned code)
{
    uint64_t flags = flags_of(m);
    bool carry = flags & CARRY, zero = flags & ZERO, sign = flags & SIGN;
    bool overflow = flags & OVERFLOW, parity = flags & PARITY;
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
    uint64_t carry = flags_of(m) & CARRY, result = 0;
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
    if (!read_rm(m, bytes, &a))
        return false;
    uint64_t result = calculate(m, operation, bytes, a, b, &flags);
    if (operation != CMP && !write_rm(m, bytes, result))
        return false;
    set_flags(m, ARITHMETIC_FLAGS, flags);
    return true;
}

static bool arithmetic_on_register(struct machine *m, enum operation operation, unsigned number,
                                   unsigned bytes, uint64_t b)
{
    uint64_t flags;
    uint64_t result = calculate(m, operation, bytes, machine_general(m, number, bytes), b, &flags);
    if (operation != CMP)
        machine_set_general(m, number, bytes, result);
    set_flags(m, ARITHMETIC_FLAGS, flags);
    return true;
}

/* Opcodes 00 to 3D. */
static bool arithmetic(struct machine *m, uint8_t opcode)
{
    enum operation operation = opcode >> 3;
    unsigned bytes = bytes_of(m, opcode);
    uint64_t b;
    if ((opcode & 7) >= 6)
        return false;
    if (opcode & 4)
        return arithmetic_on_register(m, operation, RAX, bytes,
                                      (uint64_t)machine_signed(m, immediate_bytes(bytes)));
    machine_operands(m, 0);
    if (!(opcode & 2))
        return arithmetic_on_rm(m, operation, bytes, machine_general(m, m->reg, bytes));
    return read_rm(m, bytes, &b) && arithmetic_on_register(m, operation, m->reg, bytes, b);
}

static bool test(struct machine *m, unsigned bytes, uint64_t a, uint64_t b)
{
    set_flags(m, ARITHMETIC_FLAGS, result_flags(bytes, a & b));
    return true;
}

/* F6 and F7: test with an immediate, not, neg. Only the first of them has an immediate. */
static bool unary(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    struct machine before = *m;
    machine_operands(m, 0);
    unsigned operation = m->reg & 7;
    uint64_t a;
    if (operation < 2) {
        *m = before;
        machine_operands(m, immediate_bytes(bytes));
        uint64_t b = (uint64_t)machine_signed(m, immediate_bytes(bytes));
        return read_rm(m, bytes, &a) && test(m, bytes, a, b);
    }
    if (operation > 3 || !read_rm(m, bytes, &a))
        return false;
    if (operation == 2)
        return write_rm(m, bytes, ~a);
    if (!write_rm(m, bytes, 0 - a))
        return false;
    set_flags(m, ARITHMETIC_FLAGS, sum_flags(bytes, 0, a, 0 - a, true));
    return true;
}

/* FE and FF: inc, dec, and jmp to where the operand says. */
static bool increment_or_jump(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    machine_operands(m, 0);
    unsigned operation = m->reg & 7;
    uint64_t a;
    if (operation == 4 && opcode == 0xff) {
        if (!read_rm(m, 8, &a))
            return false;
        m->target = a;
        return true;
    }
    if (operation > 1 || !read_rm(m, bytes, &a))
        return false;
    uint64_t result = operation == 0 ? a + 1 : a - 1;
    if (!write_rm(m, bytes, result))
        return false;
    set_flags(m, ARITHMETIC_FLAGS & ~CARRY, sum_flags(bytes, a, 1, result, operation == 1));
    return true;
}

/* C0, C1, D0 to D3: rol, ror, shl, shr, sar. Flags that the processor leaves undefined stay as they are. */
static bool shift(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode), bits = bytes * 8;
    machine_operands(m, opcode < 0xd0 ? 1 : 0);
    unsigned operation = m->reg & 7;
    unsigned count = opcode < 0xd0   ? machine_byte(m)
                     : opcode < 0xd2 ? 1
                                     : (unsigned)machine_general(m, RCX, 8);
    count &= bytes == 8 ? 63 : 31;
    uint64_t a, result, carry;
    bool rotates = operation < 2;
    if (operation == 2 || operation == 3 || !read_rm(m, bytes, &a))
        return false;
    if (count == 0)
        return write_rm(m, bytes, a);
    if (rotates) {
        unsigned left = (operation == 0 ? count : bits - count % bits) % bits;
        result = left ? a << left | a >> (bits - left) : a;
        carry = operation == 0 ? result & 1 : result & top_bit(bytes);
    } else if (operation == 7) {
        unsigned unused = 64 - bits, most = count < bits ? count : bits - 1;
        int64_t wide = (int64_t)(a << unused) >> unused;
        result = (uint64_t)(wide >> most);
        carry = (uint64_t)(wide >> (most - (count < bits))) & 1;
        if (count >= bits)
            carry = (uint64_t)(wide >> (bits - 1)) & 1;
    } else if (count > bits) { /* of bytes and words only */
        result = carry = 0;
    } else if (operation == 5) {
        result = a >> (count - 1) >> 1;
        carry = a >> (count - 1) & 1;
    } else {
        result = a << (count - 1) << 1;
        carry = a << (count - 1) & top_bit(bytes);
    }
    if (!write_rm(m, bytes, result))
        return false;
    uint64_t flags = result_flags(bytes, result) | (carry ? CARRY : 0);
    uint64_t defined = rotates ? CARRY : CARRY | ZERO | SIGN | PARITY;
    if (count == 1) {
        defined |= OVERFLOW;
        uint64_t changed = operation == 7 ? 0
                           : operation == 5 || operation == 1
                               ? a ^ result
                               : result ^ (carry ? top_bit(bytes) : 0);
        /* ror: the two uppermost bits of the result differ; shr: the sign that was */
        if (operation == 1)
            changed = result ^ result << 1;
        flags |= changed & top_bit(bytes) ? OVERFLOW : 0;
    }
    set_flags(m, defined, flags);
    return true;
}

/* ---- moves ---- */

static bool exchange(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    machine_operands(m, 0);
    uint64_t mine = machine_general(m, m->reg, bytes), other = 0;
    if (!m->memory) {
        other = machine_general(m, m->rm, bytes);
        machine_set_general(m, m->rm, bytes, mine);
        machine_set_general(m, m->reg, bytes, other);
        return true;
    }
    /* With memory it is atomic. */
    if (m->address % bytes || !machine_is_on_page(m, m->address, bytes) || m->at > m->available)
        return false;
    void *at = m->page->memory + (m->address - m->page->address);
    if (bytes == 8)
        other = __atomic_exchange_n((uint64_t *)at, mine, __ATOMIC_SEQ_CST);
    else if (bytes == 4)
        other = __atomic_exchange_n((uint32_t *)at, (uint32_t)mine, __ATOMIC_SEQ_CST);
    else if (bytes == 2)
        other = __atomic_exchange_n((uint16_t *)at, (uint16_t)mine, __ATOMIC_SEQ_CST);
    else
        other = __atomic_exchange_n((uint8_t *)at, (uint8_t)mine, __ATOMIC_SEQ_CST);
    machine_set_general(m, m->reg, bytes, other);
    m->stored = true;
    return true;
}

/* One element of movs, or of stos. */
static bool move_element(struct machine *m, bool is_move, unsigned bytes)
{
    uint64_t value = machine_general(m, RAX, 8);
    uint64_t from = machine_general(m, RSI, 8), to = machine_general(m, RDI, 8);
    if (is_move && !machine_load(m, from, &value, bytes))
        return false;
    if (!machine_store(m, to, &value, bytes))
        return false;
    uint64_t advance = flags_of(m) & DIRECTION ? 0 - (uint64_t)bytes : bytes;
    machine_set_general(m, RDI, 8, to + advance);
    if (is_move)
        machine_set_general(m, RSI, 8, from + advance);
    return true;
}

/* A byte string upwards goes by words where that makes no difference, as on processors; the end of the
 * page ends it as well. Returns whether 8 bytes were moved. */
static bool move_word_of_bytes(struct machine *m, bool is_move, uint64_t left)
{
    uint64_t from = machine_general(m, RSI, 8), to = machine_general(m, RDI, 8);
    uint64_t value = machine_general(m, RAX, 1) * 0x0101010101010101u;
    if (left < 8 || to % 8 || flags_of(m) & DIRECTION || !machine_is_on_page(m, to, 8))
        return false;
    if (is_move && (machine_is_on_page(m, from, 1) || machine_is_on_page(m, from + 7, 1) ||
                    !machine_load(m, from, &value, 8)))
        return false;
    if (!machine_store(m, to, &value, 8))
        return false;
    machine_set_general(m, RDI, 8, to + 8);
    if (is_move)
        machine_set_general(m, RSI, 8, from + 8);
    return true;
}

/* movs and stos. With a rep prefix they may be interrupted after any element, so a part of one that
 * meets other memory than the page is a part done. */
static bool move_string(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    bool is_move = opcode < 0xa8;
    if (m->repeat == 0)
        return move_element(m, is_move, bytes);
    uint64_t count = machine_general(m, RCX, 8), left = count;
    while (left) {
        if (bytes == 1 && move_word_of_bytes(m, is_move, left))
            left -= 8;
        else if (move_element(m, is_move, bytes))
            left--;
        else
            break;
    }
    if (left && left == count)
        return false;
    machine_set_general(m, RCX, 8, left);
    if (left)
        m->target = m->start;
    return true;
}

static bool move_immediate(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    machine_operands(m, immediate_bytes(bytes));
    uint64_t value = (uint64_t)machine_signed(m, immediate_bytes(bytes));
    return (m->reg & 7) == 0 && write_rm(m, bytes, value);
}

static bool move(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    uint64_t value;
    machine_operands(m, 0);
    if (!(opcode & 2))
        return write_rm(m, bytes, machine_general(m, m->reg, bytes));
    if (!read_rm(m, bytes, &value))
        return false;
    machine_set_general(m, m->reg, bytes, value);
    return true;
}

/* movzx, movsx, movsxd. */
static bool move_extended(struct machine *m, unsigned from_bytes, bool is_signed)
{
    uint64_t value;
    machine_operands(m, 0);
    if (!read_rm(m, from_bytes, &value))
        return false;
    unsigned unused = 64 - from_bytes * 8;
    if (is_signed)
        value = (uint64_t)((int64_t)(value << unused) >> unused);
    machine_set_general(m, m->reg, operand_bytes(m), value);
    return true;
}

/* ---- jumps ---- */

static bool jump(struct machine *m, unsigned bytes, bool holds)
{
    int64_t distance = machine_signed(m, bytes);
    if (holds)
        m->target = m->start + m->at + (uintptr_t)distance;
    return true;
}

/* Not while the processor keeps a second stack of return addresses: it must see both. */
static bool go_back(struct machine *m)
{
    uint64_t shadow = 0, stack = machine_general(m, RSP, 8), target;
    __asm__("rdsspq %0" : "+r"(shadow)); /* leaves it as it is without */
    if (shadow || !machine_load(m, stack, &target, 8))
        return false;
    machine_set_general(m, RSP, 8, stack + 8);
    m->target = target;
    return true;
}

static bool pop(struct machine *m, unsigned number)
{
    uint64_t value, stack = machine_general(m, RSP, 8);
    if (!machine_load(m, stack, &value, 8))
        return false;
    machine_set_general(m, RSP, 8, stack + 8);
    machine_set_general(m, number, 8, value);
    return true;
}

/* ---- opcodes ---- */

/* cbw, cwde, cdqe */
static bool extend_accumulator(struct machine *m)
{
    unsigned bytes = operand_bytes(m), unused = 64 - bytes * 4;
    int64_t value = (int64_t)(machine_general(m, RAX, 8) << unused) >> unused;
    machine_set_general(m, RAX, bytes, (uint64_t)value);
    return true;
}

static bool with_immediate(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    unsigned immediate = opcode == 0x83 ? 1 : immediate_bytes(bytes);
    machine_operands(m, immediate);
    uint64_t b = (uint64_t)machine_signed(m, immediate);
    return opcode != 0x82 && arithmetic_on_rm(m, m->reg & 7, bytes, b);
}

static bool load_address(struct machine *m)
{
    machine_operands(m, 0);
    machine_set_general(m, m->reg, operand_bytes(m), m->address);
    return m->memory;
}

static bool test_of_two(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    uint64_t a;
    machine_operands(m, 0);
    return read_rm(m, bytes, &a) && test(m, bytes, a, machine_general(m, m->reg, bytes));
}

static bool test_accumulator(struct machine *m, uint8_t opcode)
{
    unsigned bytes = bytes_of(m, opcode);
    uint64_t b = (uint64_t)machine_signed(m, immediate_bytes(bytes));
    return test(m, bytes, machine_general(m, RAX, bytes), b);
}

bool emulate_integer(struct machine *m, uint8_t opcode)
{
    unsigned number = (opcode & 7) | (m->rex & REX_B) << 3;
    /* Prefixes that mean something for these only. */
    if (m->repeat && opcode != 0xa4 && opcode != 0xa5 && opcode != 0xaa && opcode != 0xab &&
        opcode != 0x90 && opcode != 0xc3)
        return false;
    if (opcode < 0x40)
        return arithmetic(m, opcode);
    if (opcode >= 0x58 && opcode <= 0x5f)
        return !m->operand_16 && pop(m, number);
    if (opcode >= 0x70 && opcode <= 0x7f)
        return !m->operand_16 && jump(m, 1, condition(m, opcode & 15));
    if (opcode >= 0xb0 && opcode <= 0xbf) {
        unsigned bytes = opcode & 8 ? operand_bytes(m) : 1;
        machine_set_general(m, number, bytes, (uint64_t)machine_signed(m, bytes));
        return true;
    }
    switch (opcode) {
    case 0x63:
        return move_extended(m, 4, true);
    case 0x80:
    case 0x81:
    case 0x83:
        return with_immediate(m, opcode);
    case 0x84:
    case 0x85:
        return test_of_two(m, opcode);
    case 0x86:
    case 0x87:
        return exchange(m, opcode);
    case 0x88:
    case 0x89:
    case 0x8a:
    case 0x8b:
        return move(m, opcode);
    case 0x8d:
        return load_address(m);
    case 0x90: /* nop, pause; with REX.B it is an exchange */
        return !(m->rex & REX_B);
    case 0x98:
        return extend_accumulator(m);
    case 0xa4:
    case 0xa5:
    case 0xaa:
    case 0xab:
        return move_string(m, opcode);
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
    case 0xc3:
        return !m->operand_16 && go_back(m);
    case 0xc6:
    case 0xc7:
        return move_immediate(m, opcode);
    case 0xe9:
        return !m->operand_16 && jump(m, 4, true);
    case 0xeb:
        return !m->operand_16 && jump(m, 1, true);
    case 0xf6:
    case 0xf7:
        return unary(m, opcode);
    case 0xfc: /* cld, std */
    case 0xfd:
        set_flags(m, DIRECTION, opcode & 1 ? DIRECTION : 0);
        return true;
    case 0xfe:
    case 0xff:
        return increment_or_jump(m, opcode);
    default:
        return false;
    }
}

static bool conditional_move(struct machine *m, unsigned code)
{
    uint64_t value;
    unsigned bytes = operand_bytes(m);
    machine_operands(m, 0);
    if (!read_rm(m, bytes, &value))
        return false;
    if (!condition(m, code))
        value = machine_general(m, m->reg, bytes);
    machine_set_general(m, m->reg, bytes, value);
    return true;
}

static bool swap_bytes(struct machine *m, unsigned number)
{
    uint64_t value = __builtin_bswap64(machine_general(m, number, 8));
    unsigned bytes = operand_bytes(m);
    machine_set_general(m, number, bytes, bytes == 8 ? value : value >> 32);
    return bytes != 2;
}

/* 0F AE with a register: fences. */
static bool fence(struct machine *m)
{
    uint8_t which = machine_byte(m);
    if (which < 0xe8) /* not lfence, mfence or sfence */
        return false;
    if (which >= 0xf8)
        __atomic_thread_fence(__ATOMIC_RELEASE);
    else
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    m->fenced = true;
    return true;
}

bool emulate_integer_0f(struct machine *m, uint8_t opcode)
{
    if (opcode == 0x1e || opcode == 0x1f) { /* endbr64 and other nops, with any prefix */
        machine_operands(m, 0);
        /* Two of them read the shadow stack's pointer. */
        return opcode == 0x1f || m->memory || m->repeat != 0xf3 || (m->reg & 7) != 1;
    }
    if (m->repeat)
        return false;
    if (opcode >= 0x40 && opcode <= 0x4f)
        return conditional_move(m, opcode & 15);
    if (opcode >= 0x80 && opcode <= 0x8f)
        return !m->operand_16 && jump(m, 4, condition(m, opcode & 15));
    if (opcode >= 0x90 && opcode <= 0x9f) {
        machine_operands(m, 0);
        return write_rm(m, 1, condition(m, opcode & 15));
    }
    if (opcode >= 0xc8 && opcode <= 0xcf)
        return swap_bytes(m, (opcode & 7) | (m->rex & REX_B) << 3);
    switch (opcode) {
    case 0x0d: /* prefetchw */
    case 0x18: /* prefetch */
        machine_operands(m, 0);
        return m->memory;
    case 0xae:
        return !m->operand_16 && fence(m);
    case 0xb6:
    case 0xb7:
    case 0xbe:
    case 0xbf:
        return move_extended(m, opcode & 1 ? 2 : 1, opcode >= 0xbe);
    case 0xc3: /* movnti */
        machine_operands(m, 0);
        return m->memory && !m->operand_16 &&
               write_rm(m, operand_bytes(m), machine_general(m, m->reg, 8));
    default:
        return false;
    }
}

/* movdir64b: reg is the address of what it stores to, which is the page. */
static bool move_64_bytes(struct machine *m)
{
    uint8_t value[64];
    machine_operands(m, 0);
    uint64_t to = machine_general(m, m->reg, 8);
    return m->memory && to % sizeof value == 0 &&
           machine_load(m, m->address, value, sizeof value) &&
           machine_store(m, to, value, sizeof value);
}

/* movbe, in the direction that the opcode says. */
static bool move_big_endian(struct machine *m, bool is_store)
{
    unsigned bytes = operand_bytes(m), unused = 64 - bytes * 8;
    uint64_t value;
    machine_operands(m, 0);
    if (!m->memory)
        return false;
    if (is_store)
        return write_rm(m, bytes, __builtin_bswap64(machine_general(m, m->reg, 8) << unused));
    if (!read_rm(m, bytes, &value))
        return false;
    machine_set_general(m, m->reg, bytes, __builtin_bswap64(value) >> unused);
    return true;
}

bool emulate_integer_0f38(struct machine *m, uint8_t opcode)
{
    if (m->repeat)
        return false;
    switch (opcode) {
    case 0xf0:
    case 0xf1:
        return move_big_endian(m, opcode == 0xf1);
    case 0xf8:
        return m->operand_16 && move_64_bytes(m);
    case 0xf9: /* movdiri */
        machine_operands(m, 0);
        return m->memory && !m->operand_16 &&
               write_rm(m, operand_bytes(m), machine_general(m, m->reg, 8));
    default:
        return false;
    }
}

#endif
