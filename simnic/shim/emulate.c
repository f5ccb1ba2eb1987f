/* emulate.c: the few x86-64 instructions that copies to device registers are made of (Intel SDM
 * volume 2): moves of 4, 8 and 16 bytes, address arithmetic, comparisons, jumps. What is not known
 * ends the emulation before it; the processor goes on there. */
#include "emulate.h"

#if defined(__x86_64__)

#include "dma.h"

#include <string.h>
#include <ucontext.h>

#define MOST_INSTRUCTIONS 160
#define MOST_BETWEEN_STORES 12 /* instructions after which a copy is taken to be over */
#define CARRY 0x001u
#define PARITY 0x004u
#define ADJUST 0x010u
#define ZERO 0x040u
#define SIGN 0x080u
#define OVERFLOW 0x800u
#define ARITHMETIC_FLAGS (CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW)

/* The order of the machine's register numbers in gregs. */
static const uint8_t place_of[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};

struct machine {
    mcontext_t *state;
    const struct emulate_page *page;
    const uint8_t *next; /* the byte of the instruction that is decoded next */
    uint8_t rex;
    bool operand_16, repeat_f3; /* prefixes 66 and F3 */
    uint8_t reg, rm;            /* of the ModRM byte, with their REX bits */
    bool memory;                /* the r/m operand is in memory, at: */
    uintptr_t address;
    bool stored; /* to the page */
};

static uint64_t *general(const struct machine *m, unsigned number)
{
    return (uint64_t *)&m->state->gregs[place_of[number]];
}

static void *vector(const struct machine *m, unsigned number)
{
    return &m->state->fpregs->_xmm[number];
}

static int64_t signed_bytes(struct machine *m, unsigned count)
{
    int32_t wide;
    int8_t narrow;
    if (count == 1)
        memcpy(&narrow, m->next, 1);
    else
        memcpy(&wide, m->next, 4);
    m->next += count;
    return count == 1 ? narrow : wide;
}

/* ModRM, SIB and displacement (SDM 2.1.5). `immediate`: bytes of the instruction after them, which
 * addresses relative to the instruction's end must count. */
static void decode_operands(struct machine *m, unsigned immediate)
{
    uint8_t modrm = *m->next++;
    unsigned mode = modrm >> 6, low = modrm & 7;
    m->reg = (uint8_t)((modrm >> 3 & 7) | (m->rex & 4) << 1);
    m->rm = (uint8_t)(low | (m->rex & 1) << 3);
    m->memory = mode != 3;
    if (!m->memory)
        return;
    bool absolute = false, relative = false;
    uintptr_t base = 0, index = 0;
    if (low == 4) {
        uint8_t sib = *m->next++;
        unsigned base_register = (sib & 7) | (m->rex & 1u) << 3;
        unsigned index_register = (sib >> 3 & 7) | (m->rex & 2u) << 2;
        if (index_register != 4)
            index = *general(m, index_register) << (sib >> 6);
        absolute = (sib & 7) == 5 && mode == 0;
        base = absolute ? 0 : *general(m, base_register);
    } else if (low == 5 && mode == 0) {
        relative = true;
    } else {
        base = *general(m, m->rm);
    }
    int64_t displacement = 0;
    if (mode == 1)
        displacement = signed_bytes(m, 1);
    else if (mode == 2 || absolute || relative)
        displacement = signed_bytes(m, 4);
    if (relative)
        base = (uintptr_t)m->next + immediate;
    m->address = base + index + (uintptr_t)displacement;
}

static bool load(const struct machine *m, void *to, size_t bytes)
{
    uintptr_t offset = m->address - m->page->address;
    if (m->address >= m->page->address && m->page->bytes >= bytes &&
        offset <= m->page->bytes - bytes) {
        memcpy(to, m->page->memory + offset, bytes);
        return true;
    }
    return dma_copy(to, (const void *)m->address, bytes);
}

static bool store(struct machine *m, const void *from, size_t bytes)
{
    uintptr_t offset = m->address - m->page->address;
    if (m->address < m->page->address || offset > m->page->bytes - bytes)
        return false;
    /* Whole where it can be, as the processor would. */
    if (bytes == 8 && offset % 8 == 0) {
        uint64_t value;
        memcpy(&value, from, sizeof value);
        __atomic_store_n((uint64_t *)(void *)(m->page->memory + offset), value, __ATOMIC_RELEASE);
    } else {
        memcpy(m->page->memory + offset, from, bytes);
    }
    m->stored = true;
    return true;
}

static unsigned width(const struct machine *m)
{
    return m->rex & 8 ? 8 : 4;
}

/* Writes a general register; 4-byte results clear its upper half. */
static void set_general(const struct machine *m, unsigned number, uint64_t value)
{
    *general(m, number) = width(m) == 8 ? value : (uint32_t)value;
}

static void set_flags(const struct machine *m, uint64_t a, uint64_t b, uint64_t result,
                      bool subtraction)
{
    unsigned top = width(m) * 8 - 1;
    uint64_t mask = top == 63 ? UINT64_MAX : (1ull << (top + 1)) - 1;
    uint64_t flags = 0;
    a &= mask;
    b &= mask;
    result &= mask;
    if (subtraction ? a < b : result < a)
        flags |= CARRY;
    if (result == 0)
        flags |= ZERO;
    if (result >> top & 1)
        flags |= SIGN;
    uint64_t overflow = subtraction ? (a ^ b) & (a ^ result) : ~(a ^ b) & (a ^ result);
    if (overflow >> top & 1)
        flags |= OVERFLOW;
    if ((a ^ b ^ result) & 0x10)
        flags |= ADJUST;
    if (__builtin_parity((unsigned)(result & 0xff)) == 0)
        flags |= PARITY;
    greg_t *place = &m->state->gregs[REG_EFL];
    *place = (greg_t)(((uint64_t)*place & ~(uint64_t)ARITHMETIC_FLAGS) | flags);
}

static bool condition(const struct machine *m, unsigned code)
{
    uint64_t flags = (uint64_t)m->state->gregs[REG_EFL];
    bool carry = flags & CARRY, zero = flags & ZERO, sign = flags & SIGN;
    bool overflow = flags & OVERFLOW, parity = flags & PARITY, holds = false;
    switch (code >> 1) {
    case 0:
        holds = overflow;
        break;
    case 1:
        holds = carry;
        break;
    case 2:
        holds = zero;
        break;
    case 3:
        holds = carry || zero;
        break;
    case 4:
        holds = sign;
        break;
    case 5:
        holds = parity;
        break;
    case 6:
        holds = sign != overflow;
        break;
    case 7:
        holds = zero || sign != overflow;
        break;
    }
    return holds != (code & 1);
}

/* add, sub, cmp: operation as the reg field of opcode 83 names it. The destination is a register. */
static bool arithmetic(struct machine *m, unsigned operation, unsigned destination,
                       uint64_t operand)
{
    uint64_t a = *general(m, destination);
    bool subtraction = operation != 0;
    uint64_t result = subtraction ? a - operand : a + operand;
    if (operation != 0 && operation != 5 && operation != 7)
        return false;
    set_flags(m, a, operand, result, subtraction);
    if (operation != 7)
        set_general(m, destination, result);
    return true;
}

static bool move_vector(struct machine *m, bool is_store)
{
    decode_operands(m, 0);
    if (!m->memory) {
        if (is_store)
            memcpy(vector(m, m->rm), vector(m, m->reg), 16);
        else
            memcpy(vector(m, m->reg), vector(m, m->rm), 16);
        return true;
    }
    return is_store ? store(m, vector(m, m->reg), 16) : load(m, vector(m, m->reg), 16);
}

/* The r/m operand's value. */
static bool operand(const struct machine *m, uint64_t *value)
{
    *value = 0;
    if (m->memory)
        return load(m, value, width(m));
    *value = *general(m, m->rm);
    return true;
}

static bool conditional_move(struct machine *m, unsigned code)
{
    uint64_t value;
    decode_operands(m, 0);
    if (!operand(m, &value))
        return false;
    set_general(m, m->reg, condition(m, code) ? value : *general(m, m->reg));
    return true;
}

/* add, sub, cmp of a register with a register or memory, in either direction. */
static bool arithmetic_of_two(struct machine *m, uint8_t opcode)
{
    uint64_t value;
    unsigned operation = opcode >> 3;
    decode_operands(m, 0);
    if (opcode & 2)
        return operand(m, &value) && arithmetic(m, operation, m->reg, value);
    if (!m->memory)
        return arithmetic(m, operation, m->rm, *general(m, m->reg));
    if (operation != 7 || !operand(m, &value)) /* only a comparison leaves memory as it is */
        return false;
    set_flags(m, value, *general(m, m->reg), value - *general(m, m->reg), true);
    return true;
}

static bool test(struct machine *m)
{
    uint64_t value;
    decode_operands(m, 0);
    if (!operand(m, &value))
        return false;
    value &= *general(m, m->reg);
    set_flags(m, value, 0, value, true); /* carry and overflow are clear */
    return true;
}

/* Opcodes after 0F. */
static bool execute_two_bytes(struct machine *m)
{
    uint8_t opcode = *m->next++;
    if (opcode >= 0xc8 && opcode <= 0xcf) { /* bswap */
        unsigned number = (opcode & 7) | (m->rex & 1u) << 3;
        uint64_t value = *general(m, number);
        set_general(m, number,
                    width(m) == 8 ? __builtin_bswap64(value) : __builtin_bswap32((uint32_t)value));
        return true;
    }
    if (opcode >= 0x40 && opcode <= 0x4f)
        return conditional_move(m, opcode & 15);
    if (opcode >= 0x80 && opcode <= 0x8f) { /* jcc */
        int64_t distance = signed_bytes(m, 4);
        if (condition(m, opcode & 15))
            m->next += distance;
        return true;
    }
    switch (opcode) {
    case 0x10: /* movups, movupd */
    case 0x28: /* movaps, movapd */
        return !m->repeat_f3 && move_vector(m, false);
    case 0x11:
    case 0x29:
    case 0x2b: /* movntps */
        return !m->repeat_f3 && move_vector(m, true);
    case 0x6f: /* movdqa, movdqu */
        return (m->operand_16 || m->repeat_f3) && move_vector(m, false);
    case 0x7f:
    case 0xe7: /* movntdq */
        return (m->operand_16 || (m->repeat_f3 && opcode == 0x7f)) && move_vector(m, true);
    case 0xc3: /* movnti */
        decode_operands(m, 0);
        return m->memory && store(m, general(m, m->reg), width(m));
    case 0x1f: /* nop */
        decode_operands(m, 0);
        return true;
    case 0xae: /* sfence */
        return *m->next++ == 0xf8;
    default:
        return false;
    }
}

static bool move_general(struct machine *m, bool is_store)
{
    decode_operands(m, 0);
    if (is_store && m->memory)
        return store(m, general(m, m->reg), width(m));
    if (is_store) {
        set_general(m, m->rm, *general(m, m->reg));
        return true;
    }
    uint64_t value = 0;
    if (!m->memory)
        value = *general(m, m->rm);
    else if (!load(m, &value, width(m)))
        return false;
    set_general(m, m->reg, value);
    return true;
}

static bool execute_one_byte(struct machine *m, uint8_t opcode)
{
    if (opcode >= 0x70 && opcode <= 0x7f) { /* jcc */
        int64_t distance = signed_bytes(m, 1);
        if (condition(m, opcode & 15))
            m->next += distance;
        return true;
    }
    switch (opcode) {
    case 0x89:
        return move_general(m, true);
    case 0x8b:
        return move_general(m, false);
    case 0x8d: /* lea */
        decode_operands(m, 0);
        set_general(m, m->reg, m->address);
        return m->memory;
    case 0x01: /* add */
    case 0x03:
    case 0x29: /* sub */
    case 0x2b:
    case 0x39: /* cmp */
    case 0x3b:
        return arithmetic_of_two(m, opcode);
    case 0x85:
        return test(m);
    case 0x83:
        decode_operands(m, 1);
        return !m->memory && arithmetic(m, m->reg & 7, m->rm, (uint64_t)signed_bytes(m, 1));
    case 0x81:
        decode_operands(m, 4);
        return !m->memory && arithmetic(m, m->reg & 7, m->rm, (uint64_t)signed_bytes(m, 4));
    case 0xc7: { /* mov immediate */
        decode_operands(m, 4);
        int64_t value = signed_bytes(m, 4);
        return m->memory && (m->reg & 7) == 0 && store(m, &value, width(m));
    }
    case 0xeb: { /* jmp */
        int64_t distance = signed_bytes(m, 1);
        m->next += distance;
        return true;
    }
    case 0x90:
        return true;
    default:
        return false;
    }
}

/* Executes one instruction. Returns false, with the registers as they were, if it is not known. */
static bool step(struct machine *m)
{
    const uint8_t *start = (const uint8_t *)m->state->gregs[REG_RIP];
    uint8_t bytes[16];
    /* An instruction may end at the end of what is mapped. */
    if (!dma_copy(bytes, start, sizeof bytes))
        return false;
    m->next = start;
    m->rex = 0;
    m->operand_16 = m->repeat_f3 = m->stored = false;
    for (;; m->next++) {
        if (*m->next == 0x66)
            m->operand_16 = true;
        else if (*m->next == 0xf3)
            m->repeat_f3 = true;
        else
            break;
    }
    if ((*m->next & 0xf0) == 0x40)
        m->rex = *m->next++;
    uint8_t opcode = *m->next++;
    bool known;
    if (opcode == 0x0f)
        known = execute_two_bytes(m);
    else
        known = !m->operand_16 && !m->repeat_f3 && execute_one_byte(m, opcode);
    if (known)
        m->state->gregs[REG_RIP] = (greg_t)m->next;
    return known;
}

/* Whether the signal's frame has the vector registers: the kernel marks where it put them (struct
 * _fpx_sw_bytes of <asm/sigcontext.h>). Valgrind makes frames without. */
static bool has_vector_registers(const struct machine *m)
{
    const uint32_t magic = 0x46505853;
    const size_t magic_offset = 464;
    return m->state->fpregs &&
           memcmp((const uint8_t *)m->state->fpregs + magic_offset, &magic, sizeof magic) == 0;
}

unsigned emulate_stores(void *ucontext, const struct emulate_page *page)
{
    struct machine m = {.state = &((ucontext_t *)ucontext)->uc_mcontext, .page = page};
    unsigned stores = 0, since = 0;
    if (!has_vector_registers(&m))
        return 0;
    for (unsigned i = 0; i < MOST_INSTRUCTIONS && since <= MOST_BETWEEN_STORES; i++) {
        if (!step(&m))
            break;
        stores += m.stored;
        since = m.stored ? 0 : since + 1;
    }
    return stores;
}

bool emulate_load(void *ucontext, const struct emulate_page *page)
{
    struct machine m = {.state = &((ucontext_t *)ucontext)->uc_mcontext, .page = page};
    return m.state->fpregs && step(&m) && !m.stored;
}

#else

bool emulate_load(void *ucontext, const struct emulate_page *page)
{
    (void)ucontext;
    (void)page;
    return false;
}

unsigned emulate_stores(void *ucontext, const struct emulate_page *page)
{
    (void)ucontext;
    (void)page;
    return 0;
}

#endif
