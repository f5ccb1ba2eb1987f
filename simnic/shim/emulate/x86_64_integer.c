/* x86_64_integer.c: instructions on general registers: moves of all kinds, also of strings, jumps,
 * and fences (Intel SDM volume 2). */
#if defined(__x86_64__)

#include "simnic/shim/emulate/x86_64.h"

#include <string.h>

#define RAX 0u
#define RCX 1u
#define RSP 4u
#define RSI 6u
#define RDI 7u

/* ---- moves ---- */

static bool exchange(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    machine_operands(m, 0);
    uint64_t mine = machine_general(m, m->reg, bytes), other = 0;
    if (!m->memory) {
        other = machine_general(m, m->rm, bytes);
        machine_set_general(m, m->rm, bytes, mine);
        machine_set_general(m, m->reg, bytes, other);
        return true;
    }
    /* With memory it is atomic. */
    if (m->address % bytes || !machine_is_on_page(m, m->address, bytes) || m->at > m->available) {
        return false;
    }
    void *at = m->page->memory + (m->address - m->page->address);
    if (bytes == 8) {
        other = __atomic_exchange_n((uint64_t *)at, mine, __ATOMIC_SEQ_CST);
    } else if (bytes == 4) {
        other = __atomic_exchange_n((uint32_t *)at, (uint32_t)mine, __ATOMIC_SEQ_CST);
    } else if (bytes == 2) {
        other = __atomic_exchange_n((uint16_t *)at, (uint16_t)mine, __ATOMIC_SEQ_CST);
    } else {
        other = __atomic_exchange_n((uint8_t *)at, (uint8_t)mine, __ATOMIC_SEQ_CST);
    }
    machine_set_general(m, m->reg, bytes, other);
    m->stored = true;
    return true;
}

/* One element of movs, or of stos. */
static bool move_element(struct machine *m, bool is_move, unsigned bytes)
{
    uint64_t value = machine_general(m, RAX, 8);
    uint64_t from = machine_general(m, RSI, 8), to = machine_general(m, RDI, 8);
    if (is_move && !machine_load(m, from, &value, bytes)) {
        return false;
    }
    if (!machine_store(m, to, &value, bytes)) {
        return false;
    }
    uint64_t advance = machine_flags(m) & FLAG_DIRECTION ? 0 - (uint64_t)bytes : bytes;
    machine_set_general(m, RDI, 8, to + advance);
    if (is_move) {
        machine_set_general(m, RSI, 8, from + advance);
    }
    return true;
}

/* A byte string upwards goes by words where that makes no difference, as on processors; the end of
 * the page ends it as well. Returns whether 8 bytes were moved. */
static bool move_word_of_bytes(struct machine *m, bool is_move, uint64_t left)
{
    uint64_t from = machine_general(m, RSI, 8), to = machine_general(m, RDI, 8);
    uint64_t value = machine_general(m, RAX, 1) * 0x0101010101010101u;
    if (left < 8 || to % 8 || machine_flags(m) & FLAG_DIRECTION || !machine_is_on_page(m, to, 8)) {
        return false;
    }
    if (is_move && (machine_is_on_page(m, from, 1) || machine_is_on_page(m, from + 7, 1) ||
                    !machine_load(m, from, &value, 8))) {
        return false;
    }
    if (!machine_store(m, to, &value, 8)) {
        return false;
    }
    machine_set_general(m, RDI, 8, to + 8);
    if (is_move) {
        machine_set_general(m, RSI, 8, from + 8);
    }
    return true;
}

/* movs and stos. With a rep prefix they may be interrupted after any element, so a part of one that
 * meets other memory than the page is a part done. */
static bool move_string(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    bool is_move = opcode < 0xa8;
    if (m->repeat == 0) {
        return move_element(m, is_move, bytes);
    }
    uint64_t count = machine_general(m, RCX, 8), left = count;
    while (left) {
        if (bytes == 1 && move_word_of_bytes(m, is_move, left)) {
            left -= 8;
        } else if (move_element(m, is_move, bytes)) {
            left--;
        } else {
            break;
        }
    }
    if (left && left == count) {
        return false;
    }
    machine_set_general(m, RCX, 8, left);
    if (left) {
        m->target = m->start;
    }
    return true;
}

static bool move_immediate(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    machine_operands(m, machine_immediate_bytes(bytes));
    uint64_t value = (uint64_t)machine_signed(m, machine_immediate_bytes(bytes));
    return (m->reg & 7) == 0 && machine_write_rm(m, bytes, value);
}

static bool move(struct machine *m, uint8_t opcode)
{
    unsigned bytes = machine_bytes_of(m, opcode);
    uint64_t value;
    machine_operands(m, 0);
    if (!(opcode & 2)) {
        return machine_write_rm(m, bytes, machine_general(m, m->reg, bytes));
    }
    if (!machine_read_rm(m, bytes, &value)) {
        return false;
    }
    machine_set_general(m, m->reg, bytes, value);
    return true;
}

/* movzx, movsx, movsxd. */
static bool move_extended(struct machine *m, unsigned from_bytes, bool is_signed)
{
    uint64_t value;
    machine_operands(m, 0);
    if (!machine_read_rm(m, from_bytes, &value)) {
        return false;
    }
    unsigned unused = 64 - from_bytes * 8;
    if (is_signed) {
        value = (uint64_t)((int64_t)(value << unused) >> unused);
    }
    machine_set_general(m, m->reg, machine_operand_bytes(m), value);
    return true;
}

/* ---- jumps ---- */

static bool jump(struct machine *m, unsigned bytes, bool holds)
{
    int64_t distance = machine_signed(m, bytes);
    if (holds) {
        m->target = m->start + m->at + (uintptr_t)distance;
    }
    return true;
}

/* Not while the processor keeps a second stack of return addresses: it must see both. */
static bool go_back(struct machine *m)
{
    uint64_t shadow = 0, stack = machine_general(m, RSP, 8), target;
    __asm__("rdsspq %0" : "+r"(shadow)); /* leaves it as it is without */
    if (shadow || !machine_load(m, stack, &target, 8)) {
        return false;
    }
    machine_set_general(m, RSP, 8, stack + 8);
    m->target = target;
    return true;
}

static bool pop(struct machine *m, unsigned number)
{
    uint64_t value, stack = machine_general(m, RSP, 8);
    if (!machine_load(m, stack, &value, 8)) {
        return false;
    }
    machine_set_general(m, RSP, 8, stack + 8);
    machine_set_general(m, number, 8, value);
    return true;
}

/* ---- opcodes ---- */

/* cbw, cwde, cdqe */
static bool extend_accumulator(struct machine *m)
{
    unsigned bytes = machine_operand_bytes(m), unused = 64 - bytes * 4;
    int64_t value = (int64_t)(machine_general(m, RAX, 8) << unused) >> unused;
    machine_set_general(m, RAX, bytes, (uint64_t)value);
    return true;
}

static bool load_address(struct machine *m)
{
    machine_operands(m, 0);
    machine_set_general(m, m->reg, machine_operand_bytes(m), m->address);
    return m->memory;
}

bool emulate_integer(struct machine *m, uint8_t opcode)
{
    unsigned number = (opcode & 7) | (m->rex & REX_B) << 3;
    /* Prefixes that mean something for these only. */
    if (m->repeat && opcode != 0xa4 && opcode != 0xa5 && opcode != 0xaa && opcode != 0xab &&
        opcode != 0x90 && opcode != 0xc3) {
        return false;
    }
    if (opcode >= 0x58 && opcode <= 0x5f) {
        return !m->operand_16 && pop(m, number);
    }
    if (opcode >= 0x70 && opcode <= 0x7f) {
        return !m->operand_16 && jump(m, 1, emulate_condition(m, opcode & 15));
    }
    if (opcode >= 0xb0 && opcode <= 0xbf) {
        unsigned bytes = opcode & 8 ? machine_operand_bytes(m) : 1;
        machine_set_general(m, number, bytes, (uint64_t)machine_signed(m, bytes));
        return true;
    }
    switch (opcode) {
    case 0x63:
        return move_extended(m, 4, true);
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
    case 0xc3:
        return !m->operand_16 && go_back(m);
    case 0xc6:
    case 0xc7:
        return move_immediate(m, opcode);
    case 0xe9:
        return !m->operand_16 && jump(m, 4, true);
    case 0xeb:
        return !m->operand_16 && jump(m, 1, true);
    case 0xfc: /* cld, std */
    case 0xfd:
        machine_set_flags(m, FLAG_DIRECTION, opcode & 1 ? FLAG_DIRECTION : 0);
        return true;
    default:
        return emulate_arithmetic(m, opcode);
    }
}

static bool conditional_move(struct machine *m, unsigned code)
{
    uint64_t value;
    unsigned bytes = machine_operand_bytes(m);
    machine_operands(m, 0);
    if (!machine_read_rm(m, bytes, &value)) {
        return false;
    }
    if (!emulate_condition(m, code)) {
        value = machine_general(m, m->reg, bytes);
    }
    machine_set_general(m, m->reg, bytes, value);
    return true;
}

static bool swap_bytes(struct machine *m, unsigned number)
{
    uint64_t value = __builtin_bswap64(machine_general(m, number, 8));
    unsigned bytes = machine_operand_bytes(m);
    machine_set_general(m, number, bytes, bytes == 8 ? value : value >> 32);
    return bytes != 2;
}

/* 0F AE with a register: fences. */
static bool fence(struct machine *m)
{
    uint8_t which = machine_byte(m);
    if (which < 0xe8) { /* not lfence, mfence or sfence */
        return false;
    }
    if (which >= 0xf8) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
    } else {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
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
    if (m->repeat) {
        return false;
    }
    if (opcode >= 0x40 && opcode <= 0x4f) {
        return conditional_move(m, opcode & 15);
    }
    if (opcode >= 0x80 && opcode <= 0x8f) {
        return !m->operand_16 && jump(m, 4, emulate_condition(m, opcode & 15));
    }
    if (opcode >= 0x90 && opcode <= 0x9f) {
        machine_operands(m, 0);
        return machine_write_rm(m, 1, emulate_condition(m, opcode & 15));
    }
    if (opcode >= 0xc8 && opcode <= 0xcf) {
        return swap_bytes(m, (opcode & 7) | (m->rex & REX_B) << 3);
    }
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
               machine_write_rm(m, machine_operand_bytes(m), machine_general(m, m->reg, 8));
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
    return m->memory && to % sizeof(value) == 0 &&
           machine_load(m, m->address, value, sizeof(value)) &&
           machine_store(m, to, value, sizeof(value));
}

/* movbe, in the direction that the opcode says. */
static bool move_big_endian(struct machine *m, bool is_store)
{
    unsigned bytes = machine_operand_bytes(m), unused = 64 - bytes * 8;
    uint64_t value;
    machine_operands(m, 0);
    if (!m->memory) {
        return false;
    }
    if (is_store) {
        return machine_write_rm(m, bytes,
                                __builtin_bswap64(machine_general(m, m->reg, 8) << unused));
    }
    if (!machine_read_rm(m, bytes, &value)) {
        return false;
    }
    machine_set_general(m, m->reg, bytes, __builtin_bswap64(value) >> unused);
    return true;
}

bool emulate_integer_0f38(struct machine *m, uint8_t opcode)
{
    if (m->repeat) {
        return false;
    }
    switch (opcode) {
    case 0xf0:
    case 0xf1:
        return move_big_endian(m, opcode == 0xf1);
    case 0xf8:
        return m->operand_16 && move_64_bytes(m);
    case 0xf9: /* movdiri */
        machine_operands(m, 0);
        return m->memory && !m->operand_16 &&
               machine_write_rm(m, machine_operand_bytes(m), machine_general(m, m->reg, 8));
    default:
        return false;
    }
}

#endif
