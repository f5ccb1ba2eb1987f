/* arm64.c: tells the arm64 instructions apart that copies to a NIC's registers are made of (Arm
 * Architecture Reference Manual, C4 and C6), and executes one after another. An unknown instruction
 * ends the emulation before it, and the processor goes on there. */
#if defined(__aarch64__)

#include "simnic/shim/emulate/arm64.h"

#include <stddef.h>
#include <string.h>

#include "simnic/nic/dma.h"
#include "simnic/shim/emulate/copy.h"
#include "simnic/shim/emulate/page.h"

#define ZERO_REGISTER 31u

/* ---- registers and memory ---- */

uint64_t machine_general(const struct machine *m, unsigned number, bool stack_pointer)
{
    if (number == ZERO_REGISTER) {
        return stack_pointer ? m->state->sp : 0;
    }
    return m->state->regs[number];
}

void machine_set_general(const struct machine *m, unsigned number, bool stack_pointer, bool wide,
                         uint64_t value)
{
    uint64_t whole = wide ? value : (uint32_t)value;
    if (number != ZERO_REGISTER) {
        m->state->regs[number] = whole;
    } else if (stack_pointer) {
        m->state->sp = whole;
    }
}

bool machine_load(const struct machine *m, uint64_t address, void *to, size_t bytes)
{
    if (!page_has(m->page, address, bytes)) {
        return dma_copy(to, (const void *)(uintptr_t)address, bytes);
    }
    page_load(m->page, address, to, bytes);
    return true;
}

bool machine_store(struct machine *m, uint64_t address, const void *value, size_t bytes)
{
    if (!page_has(m->page, address, bytes)) {
        return false;
    }
    page_store(m->page, address, value, bytes);
    m->stored = true;
    return true;
}

/* ---- instructions ---- */

static const struct {
    uint32_t mask, value;
    bool (*execute)(struct machine *m);
} instructions[] = {
    {0x3b000000, 0x39000000, arm64_load_or_store}, /* with an unsigned offset */
    {0x3b000000, 0x38000000, arm64_load_or_store},
    {0x3a000000, 0x28000000, arm64_load_or_store_pair},
    {0xbfbf0000, 0x0c000000, arm64_load_or_store_structures},
    {0xbfa00000, 0x0c800000, arm64_load_or_store_structures}, /* and move the base */
    {0x3fbffc00, 0x089ffc00, arm64_load_or_store_ordered},
    {0xfff0e000, 0xe400e000, arm64_load_or_store_bytes},
    {0xfff0e000, 0xa400a000, arm64_load_or_store_bytes},
    {0x1f800000, 0x11000000, arm64_add_immediate},
    {0x1f800000, 0x12000000, arm64_logic_immediate},
    {0x1f800000, 0x12800000, arm64_move_wide},
    {0x1f800000, 0x13000000, arm64_move_bit_field},
    {0x1f000000, 0x0a000000, arm64_with_shifted_register},
    {0x1f200000, 0x0b000000, arm64_with_shifted_register},
    {0x3fe00800, 0x1a800000, arm64_select_one},
    {0xfffffc00, 0xdac00c00, arm64_reverse},
    {0xfffffc00, 0x5ac00800, arm64_reverse},
    {0x1f000000, 0x10000000, arm64_address_near},
    {0xfc000000, 0x14000000, arm64_jump},
    {0xff000010, 0x54000000, arm64_jump_on_condition},
    {0x7e000000, 0x34000000, arm64_jump_on_zero},
    {0x7e000000, 0x36000000, arm64_jump_on_bit},
    {0xfffffc1f, 0xd65f0000, arm64_go_back},
    {0xfffff01f, 0xd503201f, arm64_hint},
    {0xfffff01f, 0xd503301f, arm64_fence},
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

/* The frame has a record of vector registers, and one of SVE's if they are in use. The first then
 * has the lower 16 bytes of each. */
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
    while (step(&m) && emulate_copy_goes_on(&copy, m.stored, m.fenced)) {
    }
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
