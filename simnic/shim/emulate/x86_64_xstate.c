/* x86_64_xstate.c: see x86_64_xstate.h. */
#include "simnic/shim/emulate/x86_64_xstate.h"

#if defined(__x86_64__)

#include <asm/sigcontext.h>
#include <cpuid.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define HEADER_OFFSET 512u
#define HEADER_BYTES 64u
#define COMPACTED (1ull << 63) /* in XCOMP_BV: the other format, which Linux does not use here */

enum component {
    COMPONENT_XMM = 1,         /* bits 127:0 of registers 0 to 15 */
    COMPONENT_YMM_HIGH = 2,    /* bits 255:128 of these */
    COMPONENT_MASKS = 5,       /* k0 to k7 */
    COMPONENT_ZMM_HIGH = 6,    /* bits 511:256 of registers 0 to 15 */
    COMPONENT_HIGH_16_ZMM = 7, /* registers 16 to 31 */
    COMPONENTS
};

static const uint32_t component_bytes[COMPONENTS] = {
    [COMPONENT_XMM] = 256,      [COMPONENT_YMM_HIGH] = 256,     [COMPONENT_MASKS] = 64,
    [COMPONENT_ZMM_HIGH] = 512, [COMPONENT_HIGH_16_ZMM] = 1024,
};

static _Atomic uint32_t component_offset[COMPONENTS]; /* 0: the processor has no such component */
static _Atomic bool offsets_known;

/* CPUID is slow in virtual machines, so this is done once. Threads that do it at the same time find
 * the same. */
static void find_offsets(void)
{
    if (atomic_load_explicit(&offsets_known, memory_order_acquire)) {
        return;
    }
    atomic_store(&component_offset[COMPONENT_XMM], offsetof(struct _fpstate, xmm_space));
    for (unsigned i = COMPONENT_XMM + 1; i < COMPONENTS; i++) {
        uint32_t bytes, offset, flags, unused;
        if (component_bytes[i] && __get_cpuid_count(0xd, i, &bytes, &offset, &flags, &unused) &&
            bytes >= component_bytes[i]) {
            atomic_store(&component_offset[i], offset);
        }
    }
    atomic_store_explicit(&offsets_known, true, memory_order_release);
}

struct xstate xstate_find(void *area)
{
    struct xstate none = {0};
    if (!area) {
        return none;
    }
    const struct _fpx_sw_bytes *size = &((struct _fpstate *)area)->sw_reserved;
    uint32_t end_mark;
    if (size->magic1 != FP_XSTATE_MAGIC1 || size->xstate_size < HEADER_OFFSET + HEADER_BYTES ||
        size->extended_size < size->xstate_size + FP_XSTATE_MAGIC2_SIZE) {
        return none;
    }
    memcpy(&end_mark, (uint8_t *)area + size->extended_size - FP_XSTATE_MAGIC2_SIZE,
           sizeof(end_mark));
    uint64_t compaction;
    memcpy(&compaction, (uint8_t *)area + HEADER_OFFSET + 8, sizeof(compaction));
    if (end_mark != FP_XSTATE_MAGIC2 || compaction & COMPACTED) {
        return none;
    }
    struct xstate x = {.area = area};
    find_offsets();
    for (unsigned i = COMPONENT_XMM; i < COMPONENTS; i++) {
        uint32_t offset = atomic_load_explicit(&component_offset[i], memory_order_relaxed);
        if (offset && size->xfeatures >> i & 1 &&
            offset + component_bytes[i] <= size->xstate_size) {
            x.present |= 1ull << i;
        }
    }
    return x;
}

static uint8_t *place(const struct xstate *x, enum component component)
{
    return x->area + atomic_load_explicit(&component_offset[component], memory_order_relaxed);
}

static bool is_in_use(const struct xstate *x, enum component component)
{
    uint64_t in_use;
    memcpy(&in_use, x->area + HEADER_OFFSET, sizeof(in_use));
    return x->present & in_use & 1ull << component;
}

static void read_part(const struct xstate *x, enum component component, uint32_t offset, void *to,
                      uint32_t bytes)
{
    if (is_in_use(x, component)) {
        memcpy(to, place(x, component) + offset, bytes);
    } else {
        memset(to, 0, bytes);
    }
}

static bool is_zero(const uint8_t *bytes, uint32_t count)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

static bool can_write(const struct xstate *x, enum component component, const void *from,
                      uint32_t bytes)
{
    return x->present >> component & 1 || is_zero(from, bytes);
}

static void write_part(const struct xstate *x, enum component component, uint32_t offset,
                       const void *from, uint32_t bytes)
{
    if (!is_in_use(x, component)) {
        if (is_zero(from, bytes)) {
            return;
        }
        uint64_t in_use;
        memset(place(x, component), 0, component_bytes[component]);
        memcpy(&in_use, x->area + HEADER_OFFSET, sizeof(in_use));
        in_use |= 1ull << component;
        memcpy(x->area + HEADER_OFFSET, &in_use, sizeof(in_use));
    }
    memcpy(place(x, component) + offset, from, bytes);
}

void xstate_read_vector(const struct xstate *x, unsigned number, uint8_t *value)
{
    if (number >= 16) {
        read_part(x, COMPONENT_HIGH_16_ZMM, (number - 16) * 64, value, 64);
        return;
    }
    read_part(x, COMPONENT_XMM, number * 16, value, 16);
    read_part(x, COMPONENT_YMM_HIGH, number * 16, value + 16, 16);
    read_part(x, COMPONENT_ZMM_HIGH, number * 32, value + 32, 32);
}

bool xstate_write_vector(const struct xstate *x, unsigned number, const uint8_t *value)
{
    if (number >= 16) {
        if (!can_write(x, COMPONENT_HIGH_16_ZMM, value, 64)) {
            return false;
        }
        write_part(x, COMPONENT_HIGH_16_ZMM, (number - 16) * 64, value, 64);
        return true;
    }
    if (!can_write(x, COMPONENT_XMM, value, 16) ||
        !can_write(x, COMPONENT_YMM_HIGH, value + 16, 16) ||
        !can_write(x, COMPONENT_ZMM_HIGH, value + 32, 32)) {
        return false;
    }
    write_part(x, COMPONENT_XMM, number * 16, value, 16);
    write_part(x, COMPONENT_YMM_HIGH, number * 16, value + 16, 16);
    write_part(x, COMPONENT_ZMM_HIGH, number * 32, value + 32, 32);
    return true;
}

void xstate_clear_vectors(const struct xstate *x, bool all)
{
    uint64_t in_use, initial = 1ull << COMPONENT_YMM_HIGH | 1ull << COMPONENT_ZMM_HIGH;
    if (all) {
        initial |= 1ull << COMPONENT_XMM;
    }
    memcpy(&in_use, x->area + HEADER_OFFSET, sizeof(in_use));
    in_use &= ~initial;
    memcpy(x->area + HEADER_OFFSET, &in_use, sizeof(in_use));
}

uint64_t xstate_read_mask(const struct xstate *x, unsigned number)
{
    uint64_t value;
    read_part(x, COMPONENT_MASKS, number * 8, &value, sizeof(value));
    return value;
}

bool xstate_write_mask(const struct xstate *x, unsigned number, uint64_t value)
{
    if (!can_write(x, COMPONENT_MASKS, &value, sizeof(value))) {
        return false;
    }
    write_part(x, COMPONENT_MASKS, number * 8, &value, sizeof(value));
    return true;
}

#endif
