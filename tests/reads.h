/* reads.h: notes each read of a piece of memory, with its place and length, to show that what a peer may change at any
 * time is read once. The memory is taken away, so that each access faults; it is given back for one instruction.
 *
 * One piece at a time, in a program with one thread. Only where READS_POSSIBLE is 1: on x86-64, in builds like those that
 * are used. There the program has a memcpy of its own. Not with other handlers of SIGSEGV and SIGTRAP. */
#ifndef TESTS_READS_H
#define TESTS_READS_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define READS_OF_A_SANITIZER 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define READS_OF_A_SANITIZER 1
#endif

#if defined(__x86_64__) && defined(__linux__) && defined(__OPTIMIZE__) &&                          \
    !defined(READS_OF_A_SANITIZER)
#define READS_POSSIBLE 1

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
/* cmocka wants some of these */
#include <cmocka.h>

#define READS_MAX 8192

struct read_seen {
    size_t at; /* from the beginning of the piece */
    size_t bytes;
};

static struct {
    uint8_t *address;
    size_t bytes;
    struct read_seen seen[READS_MAX];
    size_t count;
    struct sigaction fault, step; /* those before */
} reads;

/* In place of the C library's, of which some read bytes twice while they copy, on some processors: that does no harm, but
 * looks the same. Each load is an instruction that no compiler makes a call of memcpy of. */
void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    for (; bytes >= 8; bytes -= 8, in += 8, out += 8) {
        __asm__ volatile("movq (%0), %%rax\n\tmovq %%rax, (%1)"
                         :
                         : "r"(in), "r"(out)
                         : "rax", "memory");
    }
    for (; bytes > 0; bytes--, in++, out++) {
        __asm__ volatile("movb (%0), %%al\n\tmovb %%al, (%1)"
                         :
                         : "r"(in), "r"(out)
                         : "rax", "memory");
    }
    return to;
}

/* How much the instruction at `code` loads: enough of the table for what compilers and memcpy use. */
static inline size_t reads_length(const uint8_t *code)
{
    size_t operand = 4, vector = 0;
    for (; *code == 0x66 || *code == 0xf2 || *code == 0xf3; code++) {
        operand = *code == 0x66 ? 2 : operand;
        vector = 16;
    }
    if (*code == 0xc5) {
        return code[1] & 4 ? 32 : 16;
    }
    if (*code == 0xc4) {
        return code[2] & 4 ? 32 : 16;
    }
    if (*code == 0x62) {
        return (size_t)16 << (code[3] >> 5 & 3);
    }
    if ((*code & 0xf0) == 0x40) {
        operand = *code & 8 ? 8 : operand;
        code++;
    }
    if (*code == 0x0f) {
        switch (code[1]) {
        case 0xb6: /* movzx and movsx */
        case 0xbe:
            return 1;
        case 0xb7:
        case 0xbf:
            return 2;
        case 0x12: /* movlps, movhps, movq, movd */
        case 0x16:
        case 0x7e:
            return 8;
        case 0x6e:
            return operand == 8 ? 8 : 4;
        case 0x10:
        case 0x28:
        case 0x6f:
            return 16;
        default:
            return vector ? vector : operand;
        }
    }
    switch (*code) {
    case 0x38: /* of bytes */
    case 0x3a:
    case 0x80:
    case 0x84:
    case 0x8a:
    case 0xa4:
    case 0xf6:
        return 1;
    default:
        return operand;
    }
}

static void reads_fault(int number, siginfo_t *info, void *argument)
{
    ucontext_t *context = argument;
    size_t at = (size_t)((uint8_t *)info->si_addr - reads.address);
    if (at >= reads.bytes) {
        sigaction(number, &reads.fault, NULL); /* a fault like any other */
        return;
    }
    if (!(context->uc_mcontext.gregs[REG_ERR] & 2) && reads.count < READS_MAX) { /* no write */
        reads.seen[reads.count++] = (struct read_seen){
            at, reads_length((const uint8_t *)(uintptr_t)context->uc_mcontext.gregs[REG_RIP])};
    }
    mprotect(reads.address, reads.bytes, PROT_READ | PROT_WRITE);
    context->uc_mcontext.gregs[REG_EFL] |= 0x100; /* stop behind the next instruction */
}

static void reads_step(int number, siginfo_t *info, void *argument)
{
    ucontext_t *context = argument;
    (void)number;
    (void)info;
    mprotect(reads.address, reads.bytes, PROT_NONE);
    context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)0x100;
}

/* Begins to note. The piece consists of whole pages. */
static inline void reads_begin(void *address, size_t bytes)
{
    struct sigaction fault = {.sa_sigaction = reads_fault, .sa_flags = SA_SIGINFO};
    struct sigaction step = {.sa_sigaction = reads_step, .sa_flags = SA_SIGINFO};
    reads.address = address;
    reads.bytes = bytes;
    reads.count = 0;
    assert_int_equal(sigaction(SIGSEGV, &fault, &reads.fault), 0);
    assert_int_equal(sigaction(SIGTRAP, &step, &reads.step), 0);
    assert_int_equal(mprotect(address, bytes, PROT_NONE), 0);
}

static inline void reads_end(void)
{
    assert_int_equal(mprotect(reads.address, reads.bytes, PROT_READ | PROT_WRITE), 0);
    sigaction(SIGSEGV, &reads.fault, NULL);
    sigaction(SIGTRAP, &reads.step, NULL);
    assert_true(reads.count < READS_MAX);
}

/* How many bytes of [at, at + bytes) were read at all. */
static inline size_t reads_covered(size_t at, size_t bytes)
{
    size_t covered = 0;
    for (size_t i = at; i < at + bytes; i++) {
        bool seen = false;
        for (size_t j = 0; j < reads.count && !seen; j++) {
            seen = i - reads.seen[j].at < reads.seen[j].bytes;
        }
        covered += seen;
    }
    return covered;
}

/* No byte of [at, at + bytes) was read twice. */
static inline void reads_expect_once(size_t at, size_t bytes)
{
    for (size_t i = 0; i < reads.count; i++) {
        for (size_t j = i + 1; j < reads.count; j++) {
            const struct read_seen *a = &reads.seen[i], *b = &reads.seen[j];
            size_t low = a->at > b->at ? a->at : b->at;
            size_t end = a->at + a->bytes < b->at + b->bytes ? a->at + a->bytes : b->at + b->bytes;
            low = low > at ? low : at;
            end = end < at + bytes ? end : at + bytes;
            if (low < end) {
                fail_msg("byte %zu is read twice: %zu bytes at %zu, then %zu at %zu", low, a->bytes,
                         a->at, b->bytes, b->at);
            }
        }
    }
}

#else
#define READS_POSSIBLE 0
#endif

#endif
