/* arm64_memory.c: loads and stores of general and vector registers, one, two or up to four at a
 * time, and SVE's of bytes. */
#if defined(__aarch64__)

#include "simnic/shim/emulate/arm64.h"

#include <string.h>

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
        return machine_store(m, address, value, count * bytes);
    }
    if (!machine_load(m, address, value, count * bytes)) {
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
    uint64_t value = machine_general(m, number, false);
    if (is_store) {
        return machine_store(m, address, &value, bytes);
    }
    value = 0;
    if (!machine_load(m, address, &value, bytes)) {
        return false;
    }
    unsigned unused = 64 - bytes * 8;
    if (extension != EXTEND_ZERO) {
        value = (uint64_t)((int64_t)(value << unused) >> unused);
    }
    machine_set_general(m, number, false, extension != EXTEND_SIGNED_TO_32, value);
    return true;
}

static uint64_t extended(const struct machine *m, unsigned number, unsigned option)
{
    uint64_t value = machine_general(m, number, false);
    if (option == 2) { /* uxtw */
        return (uint32_t)value;
    }
    return option == 6 ? (uint64_t)(int64_t)(int32_t)value : value; /* sxtw; else all of it */
}

/* ldr, str, ldur, stur and their like, of all sizes. */
bool arm64_load_or_store(struct machine *m)
{
    bool is_vector = machine_bits(m, 26, 1), unsigned_offset = machine_bits(m, 24, 1);
    unsigned size = machine_bits(m, 30, 2), operation = machine_bits(m, 22, 2),
             form = machine_bits(m, 10, 2);
    unsigned base = machine_bits(m, 5, 5), number = machine_bits(m, 0, 5);
    bool is_store = is_vector ? !(operation & 1) : operation == 0;
    unsigned shift = is_vector && operation >= 2 ? 4 : size;
    unsigned bytes = 1u << shift;
    uint64_t start = machine_general(m, base, true), address = start;
    bool writes_back = false;
    if (is_vector && operation >= 2 && size != 0) {
        return false;
    }
    if (!is_vector && operation >= 2 && (size == 3 || (size == 2 && operation == 3))) {
        return size == 3 && operation == 2 && unsigned_offset; /* prefetches do nothing */
    }
    if (unsigned_offset) {
        address += (uint64_t)machine_bits(m, 10, 12) << shift;
    } else if (machine_bits(m, 21, 1)) { /* a register as offset */
        unsigned option = machine_bits(m, 13, 3);
        if (form != 2 || !(option & 2)) {
            return false;
        }
        address += extended(m, machine_bits(m, 16, 5), option)
                   << (machine_bits(m, 12, 1) ? shift : 0);
    } else {
        uint64_t offset = (uint64_t)machine_signed_bits(m, 12, 9);
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
        machine_set_general(m, base, true, true, start);
    }
    return made;
}

/* ldp, stp, ldnp, stnp */
bool arm64_load_or_store_pair(struct machine *m)
{
    bool is_vector = machine_bits(m, 26, 1), is_store = !machine_bits(m, 22, 1);
    unsigned size = machine_bits(m, 30, 2), form = machine_bits(m, 23, 2);
    unsigned base = machine_bits(m, 5, 5), first = machine_bits(m, 0, 5),
             second = machine_bits(m, 10, 5);
    unsigned shift = is_vector ? size + 2 : size == 2 ? 3 : 2;
    unsigned bytes = 1u << shift;
    if (size == 3 || (!is_vector && size == 1)) { /* the latter is ldpsw */
        return false;
    }
    uint64_t offset = (uint64_t)machine_signed_bits(m, 15, 7) << shift;
    uint64_t start = machine_general(m, base, true), address = form == 1 ? start : start + offset;
    uint8_t value[32] = {0};
    if (is_vector && !m->vectors) {
        return false;
    }
    for (unsigned i = 0; i < 2 && is_store; i++) {
        unsigned number = i ? second : first;
        uint64_t word = machine_general(m, number, false);
        memcpy(value + i * bytes, is_vector ? (void *)&m->vectors->vregs[number] : (void *)&word,
               bytes);
    }
    if (is_store ? !machine_store(m, address, value, 2 * bytes)
                 : !machine_load(m, address, value, 2 * bytes)) {
        return false;
    }
    for (unsigned i = 0; i < 2 && !is_store; i++) {
        unsigned number = i ? second : first;
        uint64_t word = 0;
        if (is_vector) {
            write_vector(m, number, value + i * bytes, bytes);
        } else {
            memcpy(&word, value + i * bytes, bytes);
            machine_set_general(m, number, false, true, word);
        }
    }
    if (form & 1) { /* behind or before it, the base is moved */
        machine_set_general(m, base, true, true, start + offset);
    }
    return true;
}

/* ld1, st1 of one to four whole registers */
bool arm64_load_or_store_structures(struct machine *m)
{
    bool is_store = !machine_bits(m, 22, 1), moves_base = machine_bits(m, 23, 1);
    unsigned bytes = machine_bits(m, 30, 1) ? 16 : 8, base = machine_bits(m, 5, 5),
             step = machine_bits(m, 16, 5);
    unsigned count = 0;
    switch (machine_bits(m, 12, 4)) {
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
    uint64_t address = machine_general(m, base, true);
    uint64_t moved = step == 31 ? count * bytes : machine_general(m, step, false);
    if (!move_vectors(m, is_store, address, machine_bits(m, 0, 5), count, bytes)) {
        return false;
    }
    if (moves_base) {
        machine_set_general(m, base, true, true, address + moved);
    }
    return true;
}

/* stlr, ldar: a store is released as all are here. */
bool arm64_load_or_store_ordered(struct machine *m)
{
    bool is_store = !machine_bits(m, 22, 1);
    uint64_t address = machine_general(m, machine_bits(m, 5, 5), true);
    unsigned bytes = 1u << machine_bits(m, 30, 2);
    if (address % bytes) {
        return false;
    }
    if (!move_general(m, is_store, address, machine_bits(m, 0, 5), bytes, EXTEND_ZERO)) {
        return false;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return true;
}

/* st1b, ld1b: bytes of one of SVE's vectors, those that a predicate has a bit for. */
bool arm64_load_or_store_bytes(struct machine *m)
{
    uint8_t value[SVE_VQ_MAX * __SVE_VQ_BYTES] = {0};
    const struct sve_context *frame = m->longer_vectors;
    unsigned number = machine_bits(m, 0, 5);
    bool is_store = machine_bits(m, 30, 1);
    if (!frame || !m->vectors) {
        return false;
    }
    unsigned length = frame->vl, vq = sve_vq_from_vl(length);
    uint8_t *vector = (uint8_t *)m->longer_vectors + SVE_SIG_ZREG_OFFSET(vq, number);
    const uint8_t *wanted =
        (const uint8_t *)frame + SVE_SIG_PREG_OFFSET(vq, machine_bits(m, 10, 3));
    uint64_t address = machine_general(m, machine_bits(m, 5, 5), true) +
                       (uint64_t)(machine_signed_bits(m, 16, 4) * (int64_t)length);
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
        return count == 0 || machine_store(m, address, value, count);
    }
    if (count && !machine_load(m, address, value, count)) {
        return false;
    }
    memcpy(vector, value, length);
    memcpy(&m->vectors->vregs[number], value, 16);
    return true;
}

#endif
