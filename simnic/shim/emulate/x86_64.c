/* x86_64.c: decodes the x86-64 instructions that copies to a NIC's registers are made of (Intel SDM
 * volume 2), and executes one after another. An unknown instruction ends the emulation before it,
 * and the processor goes on there. */
#if defined(__x86_64__)

#include "simnic/shim/emulate/x86_64.h"

#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/emulate/copy.h"
#include "simnic/shim/emulate/page.h"

#define PAGE_BYTES 4096u

/* The order of the machine's register numbers in gregs. */
static const uint8_t place_of[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};

/* ---- registers and memory ---- */

/* Without a REX prefix the byte registers 4 to 7 are AH, CH, DH and BH. */
static bool is_high_byte(const struct machine *m, unsigned number, unsigned bytes)
{
    return bytes == 1 && !m->has_rex && number >= 4 && number < 8;
}

uint64_t machine_general(const struct machine *m, unsigned number, unsigned bytes)
{
    if (is_high_byte(m, number, bytes)) {
        return (uint64_t)m->state->gregs[place_of[number - 4]] >> 8 & 0xff;
    }
    uint64_t value = (uint64_t)m->state->gregs[place_of[number]];
    return bytes == 8 ? value : value & ((1ull << bytes * 8) - 1);
}

void machine_set_general(struct machine *m, unsigned number, unsigned bytes, uint64_t value)
{
    bool high = is_high_byte(m, number, bytes);
    uint64_t *place = (uint64_t *)&m->state->gregs[place_of[high ? number - 4 : number]];
    if (bytes == 8) {
        *place = value;
    } else if (bytes == 4) {
        *place = (uint32_t)value;
    } else if (bytes == 2) {
        *place = (*place & ~0xffffull) | (value & 0xffff);
    } else if (high) {
        *place = (*place & ~0xff00ull) | (value & 0xff) << 8;
    } else {
        *place = (*place & ~0xffull) | (value & 0xff);
    }
}

bool machine_is_on_page(const struct machine *m, uintptr_t address, size_t bytes)
{
    return page_has(m->page, address, bytes);
}

/* Aligned words of 2 and 4 bytes are loaded whole, as the processor loads them, since another
 * thread may be writing them. dma_copy loads those of 8 bytes whole. */
static bool load_whole(uintptr_t address, void *to, size_t bytes)
{
    uint32_t word;
    if (!dma_load32((const void *)(address & ~(uintptr_t)3), &word)) {
        return false;
    }
    memcpy(to, (const uint8_t *)&word + (address & 3), bytes);
    return true;
}

bool machine_load(const struct machine *m, uintptr_t address, void *to, size_t bytes)
{
    if (!machine_is_on_page(m, address, bytes)) {
        return (bytes == 2 || bytes == 4) && address % bytes == 0
                   ? load_whole(address, to, bytes)
                   : dma_copy(to, (const void *)address, bytes);
    }
    page_load(m->page, address, to, bytes);
    return true;
}

bool machine_store(struct machine *m, uintptr_t address, const void *from, size_t bytes)
{
    if (!machine_is_on_page(m, address, bytes) || m->at > m->available) {
        return false;
    }
    page_store(m->page, address, from, bytes);
    m->stored = true;
    return true;
}

/* ---- decoding ---- */

uint8_t machine_byte(struct machine *m)
{
    uint8_t byte = m->at < sizeof(m->code) ? m->code[m->at] : 0;
    if (m->at < UINT8_MAX) {
        m->at++;
    }
    return byte;
}

int64_t machine_signed(struct machine *m, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)machine_byte(m) << i * 8;
    }
    unsigned unused = 64 - bytes * 8;
    return (int64_t)(value << unused) >> unused;
}

void machine_operands(struct machine *m, unsigned immediate)
{
    uint8_t modrm = machine_byte(m);
    unsigned mode = modrm >> 6, low = modrm & 7;
    m->reg = (uint8_t)((modrm >> 3 & 7) | (m->rex & REX_R) << 1 | (m->reg_16 ? 16 : 0));
    m->rm = (uint8_t)(low | (m->rex & REX_B) << 3);
    m->memory = mode != 3;
    if (!m->memory) {
        if (m->encoding == ENCODING_EVEX) {
            m->rm |= (uint8_t)((m->rex & REX_X) << 3);
        }
        return;
    }
    bool absolute = false, relative = false;
    uintptr_t base = 0, index = 0;
    if (low == 4) {
        uint8_t sib = machine_byte(m);
        unsigned base_register = (sib & 7) | (m->rex & REX_B) << 3;
        unsigned index_register = (sib >> 3 & 7) | (m->rex & REX_X) << 2;
        if (index_register != 4) {
            index = machine_general(m, index_register, 8) << (sib >> 6);
        }
        absolute = (sib & 7) == 5 && mode == 0;
        base = absolute ? 0 : machine_general(m, base_register, 8);
    } else if (low == 5 && mode == 0) {
        relative = true;
    } else {
        base = machine_general(m, m->rm, 8);
    }
    int64_t displacement = 0;
    if (mode == 1) {
        displacement = machine_signed(m, 1) * m->displacement_unit;
    } else if (mode == 2 || absolute || relative) {
        displacement = machine_signed(m, 4);
    }
    if (relative) {
        base = m->start + m->at + immediate;
    }
    m->address = base + index + (uintptr_t)displacement;
}

/* ---- operands and flags ---- */

unsigned machine_operand_bytes(const struct machine *m)
{
    return m->rex & REX_W ? 8 : m->operand_16 ? 2 : 4;
}

/* Many opcodes come in pairs: the even one is for bytes. */
unsigned machine_bytes_of(const struct machine *m, uint8_t opcode)
{
    return opcode & 1 ? machine_operand_bytes(m) : 1;
}

unsigned machine_immediate_bytes(unsigned bytes)
{
    return bytes == 8 ? 4 : bytes;
}

bool machine_read_rm(const struct machine *m, unsigned bytes, uint64_t *value)
{
    *value = 0;
    if (m->memory) {
        return machine_load(m, m->address, value, bytes);
    }
    *value = machine_general(m, m->rm, bytes);
    return true;
}

bool machine_write_rm(struct machine *m, unsigned bytes, uint64_t value)
{
    if (m->memory) {
        return machine_store(m, m->address, &value, bytes);
    }
    machine_set_general(m, m->rm, bytes, value);
    return true;
}

uint64_t machine_flags(const struct machine *m)
{
    return (uint64_t)m->state->gregs[REG_EFL];
}

void machine_set_flags(const struct machine *m, uint64_t which, uint64_t flags)
{
    m->state->gregs[REG_EFL] = (greg_t)((machine_flags(m) & ~which) | (flags & which));
}

/* ---- prefixes ---- */

/* C5 and C4 (SDM volume 2, 2.3). Bits are inverted there. */
static bool execute_vex(struct machine *m, uint8_t first)
{
    uint8_t byte = machine_byte(m);
    unsigned map = 1;
    if (m->has_rex || m->operand_16 || m->repeat) {
        return false;
    }
    m->rex = (uint8_t)(~byte >> 5 & REX_R);
    if (first == 0xc4) {
        map = byte & 0x1f;
        m->rex = ~byte >> 5 & 7;
        byte = machine_byte(m);
        m->rex |= byte >> 4 & REX_W;
    }
    m->encoding = ENCODING_VEX;
    m->vector_bytes = byte & 4 ? 32 : 16;
    m->third = ~byte >> 3 & 15;
    m->operand_16 = (byte & 3) == 1;
    m->repeat = (byte & 3) == 2 ? 0xf3 : (byte & 3) == 3 ? 0xf2 : 0;
    return emulate_vector(m, map, machine_byte(m));
}

/* 62 (SDM volume 2, 2.7). */
static bool execute_evex(struct machine *m)
{
    uint8_t p0 = machine_byte(m), p1 = machine_byte(m), p2 = machine_byte(m);
    if (m->has_rex || m->operand_16 || m->repeat || p0 & 8 || !(p1 & 4) || (p2 >> 5 & 3) == 3) {
        return false;
    }
    m->encoding = ENCODING_EVEX;
    m->rex = (uint8_t)((~p0 >> 5 & 7) | (p1 >> 4 & REX_W));
    m->reg_16 = !(p0 & 0x10);
    m->third = (uint8_t)((~p1 >> 3 & 15) | (p2 & 8 ? 0 : 16));
    m->operand_16 = (p1 & 3) == 1;
    m->repeat = (p1 & 3) == 2 ? 0xf3 : (p1 & 3) == 3 ? 0xf2 : 0;
    m->zeroing = p2 & 0x80;
    m->broadcast = p2 & 0x10;
    m->vector_bytes = (uint8_t)(16u << (p2 >> 5 & 3));
    m->mask = p2 & 7;
    return emulate_vector(m, p0 & 7, machine_byte(m));
}

/* Opcodes after 0F. */
static bool execute_0f(struct machine *m)
{
    uint8_t opcode = machine_byte(m);
    if (opcode == 0x38) {
        opcode = machine_byte(m);
        return emulate_integer_0f38(m, opcode) || emulate_vector(m, 2, opcode);
    }
    if (opcode == 0x3a) {
        return emulate_vector(m, 3, machine_byte(m));
    }
    return emulate_integer_0f(m, opcode) || emulate_vector(m, 1, opcode);
}

static bool execute(struct machine *m)
{
    for (;;) {
        uint8_t byte = machine_byte(m);
        if (byte == 0x66) {
            m->operand_16 = true;
        } else if (byte == 0xf2 || byte == 0xf3) {
            m->repeat = byte;
        } else if (byte != 0x2e && byte != 0x3e) { /* hints of jumps, and padding */
            m->at--;
            break;
        }
    }
    uint8_t opcode = machine_byte(m);
    if ((opcode & 0xf0) == 0x40) {
        m->has_rex = true;
        m->rex = opcode & 15;
        opcode = machine_byte(m);
    }
    switch (opcode) {
    case 0x0f:
        return execute_0f(m);
    case 0xc4:
    case 0xc5:
        return execute_vex(m, opcode);
    case 0x62:
        return execute_evex(m);
    default:
        return emulate_integer(m, opcode);
    }
}

/* An instruction may end where its mapping does. */
static bool read_code(struct machine *m)
{
    m->available = sizeof(m->code);
    if (dma_copy(m->code, (const void *)m->start, sizeof(m->code))) {
        return true;
    }
    memset(m->code, 0, sizeof(m->code));
    size_t rest = PAGE_BYTES - m->start % PAGE_BYTES;
    m->available = (uint8_t)rest;
    return rest < sizeof(m->code) && dma_copy(m->code, (const void *)m->start, rest);
}

/* Executes one instruction. Returns false, with the registers as they were, if it is not known. */
static bool step(struct machine *m)
{
    greg_t *place = &m->state->gregs[REG_RIP];
    *m = (struct machine){.state = m->state,
                          .vectors = m->vectors,
                          .page = m->page,
                          .start = (uintptr_t)*place,
                          .encoding = ENCODING_LEGACY,
                          .vector_bytes = 16,
                          .displacement_unit = 1};
    if (!read_code(m)) {
        return false;
    }
    gregset_t before;
    memcpy(before, m->state->gregs, sizeof(before));
    if (!execute(m) || m->at > m->available) {
        memcpy(m->state->gregs, before, sizeof(before));
        return false;
    }
    *place = (greg_t)(m->target ? m->target : m->start + m->at);
    return true;
}

static struct machine machine_of(void *ucontext, const struct emulate_page *page)
{
    mcontext_t *state = &((ucontext_t *)ucontext)->uc_mcontext;
    return (struct machine){.state = state, .vectors = xstate_find(state->fpregs), .page = page};
}

unsigned emulate_stores(void *ucontext, const struct emulate_page *page)
{
    struct machine m = machine_of(ucontext, page);
    struct emulate_copy copy = {0};
    if (!m.vectors.area) {
        return 0;
    }
    while (step(&m) && emulate_copy_goes_on(&copy, m.stored, m.fenced)) {
    }
    return copy.stores;
}

bool emulate_load(void *ucontext, const struct emulate_page *page)
{
    struct machine m = machine_of(ucontext, page);
    gregset_t before;
    memcpy(before, m.state->gregs, sizeof(before));
    if (!step(&m)) {
        return false;
    }
    if (m.stored) {
        memcpy(m.state->gregs, before, sizeof(before));
    }
    return !m.stored;
}

#endif
