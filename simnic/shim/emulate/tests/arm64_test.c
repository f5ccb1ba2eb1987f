/* arm64_test.c: each arm64 instruction that the emulation knows, by the processor on plain memory
 * and by the emulation on a protected page, from the same random registers; then the copies of the
 * C library and of copyrpc. It needs no library, so that it can be run by an emulator of the
 * processor. */
#include <asm/sigcontext.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "nic/mlx5/copy.h"
#include "simnic/nic/dma.h"
#include "simnic/shim/emulate/emulate.h"
#include "simnic/shim/emulate/tests/random_words.h"

#define PAGE 4096u
#define ROUNDS 40u
#define BLOCK 64u
#define FLAGS 0xf0000000u
#define RETURN 0xd65f03c0u

/* All memory is there. */
bool dma_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return true;
}

struct registers {
    uint64_t general[31]; /* x30 is not the code's */
    uint64_t flags;
    uint8_t vector[32][16];
};

/* Executes code that ends with ret on these registers. x0 points into the page, x1 at a source; x2
 * is below 8. x18, x29 and x30 stay out of it. */
void execute_on(struct registers *registers, const void *code);
struct registers *executing;
__asm__(".text\n.p2align 4\n.globl execute_on\n"
        "execute_on:\n"
        " stp x29, x30, [sp, #-176]!\n"
        " stp x19, x20, [sp, #16]\n stp x21, x22, [sp, #32]\n stp x23, x24, [sp, #48]\n"
        " stp x25, x26, [sp, #64]\n stp x27, x28, [sp, #80]\n"
        " stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n"
        " stp d14, d15, [sp, #144]\n"
        " adrp x2, executing\n str x0, [x2, #:lo12:executing]\n"
        " mov x30, x1\n mov x29, x0\n"
        " ldr x1, [x29, #248]\n msr nzcv, x1\n"
        " add x1, x29, #256\n"
        " ld1 {v0.16b-v3.16b}, [x1], #64\n ld1 {v4.16b-v7.16b}, [x1], #64\n"
        " ld1 {v8.16b-v11.16b}, [x1], #64\n ld1 {v12.16b-v15.16b}, [x1], #64\n"
        " ld1 {v16.16b-v19.16b}, [x1], #64\n ld1 {v20.16b-v23.16b}, [x1], #64\n"
        " ld1 {v24.16b-v27.16b}, [x1], #64\n ld1 {v28.16b-v31.16b}, [x1], #64\n"
        " ldp x0, x1, [x29]\n ldp x2, x3, [x29, #16]\n ldp x4, x5, [x29, #32]\n"
        " ldp x6, x7, [x29, #48]\n ldp x8, x9, [x29, #64]\n ldp x10, x11, [x29, #80]\n"
        " ldp x12, x13, [x29, #96]\n ldp x14, x15, [x29, #112]\n ldp x16, x17, [x29, #128]\n"
        " ldp x19, x20, [x29, #152]\n ldp x21, x22, [x29, #168]\n ldp x23, x24, [x29, #184]\n"
        " ldp x25, x26, [x29, #200]\n ldp x27, x28, [x29, #216]\n"
        " blr x30\n"
        " adrp x29, executing\n ldr x29, [x29, #:lo12:executing]\n"
        " stp x0, x1, [x29]\n stp x2, x3, [x29, #16]\n stp x4, x5, [x29, #32]\n"
        " stp x6, x7, [x29, #48]\n stp x8, x9, [x29, #64]\n stp x10, x11, [x29, #80]\n"
        " stp x12, x13, [x29, #96]\n stp x14, x15, [x29, #112]\n stp x16, x17, [x29, #128]\n"
        " stp x19, x20, [x29, #152]\n stp x21, x22, [x29, #168]\n stp x23, x24, [x29, #184]\n"
        " stp x25, x26, [x29, #200]\n stp x27, x28, [x29, #216]\n"
        " mrs x1, nzcv\n str x1, [x29, #248]\n"
        " add x1, x29, #256\n"
        " st1 {v0.16b-v3.16b}, [x1], #64\n st1 {v4.16b-v7.16b}, [x1], #64\n"
        " st1 {v8.16b-v11.16b}, [x1], #64\n st1 {v12.16b-v15.16b}, [x1], #64\n"
        " st1 {v16.16b-v19.16b}, [x1], #64\n st1 {v20.16b-v23.16b}, [x1], #64\n"
        " st1 {v24.16b-v27.16b}, [x1], #64\n st1 {v28.16b-v31.16b}, [x1], #64\n"
        " ldp x19, x20, [sp, #16]\n ldp x21, x22, [sp, #32]\n ldp x23, x24, [sp, #48]\n"
        " ldp x25, x26, [sp, #64]\n ldp x27, x28, [sp, #80]\n"
        " ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n"
        " ldp d14, d15, [sp, #144]\n"
        " ldp x29, x30, [sp], #176\n ret\n");

/* clang-format off */
#define PIECES(PIECE) \
    PIECE("strb w3, [x0, #3]") PIECE("strh w3, [x0, #6]") PIECE("str w3, [x0, #12]") PIECE("str x3, [x0, #16]") \
    PIECE("str x3, [x0, x2, lsl #3]") PIECE("str w3, [x0, w2, uxtw #2]") PIECE("strb w3, [x0, x2]") \
    PIECE("str xzr, [x0]") PIECE("str wzr, [x0, #4]") PIECE("stur x3, [x0, #-9]") PIECE("sturh w3, [x0, #1]") \
    PIECE("str x3, [x0], #8") PIECE("str x3, [x0, #-16]!") PIECE("str q3, [x0, #32]") PIECE("str d3, [x0, #8]") \
    PIECE("str s3, [x0, #8]") PIECE("str h3, [x0, #2]") PIECE("str b3, [x0, #1]") PIECE("stur q31, [x0, #-5]") \
    PIECE("str q9, [x0], #16") PIECE("str q9, [x0, x2, lsl #4]") \
    PIECE("stp x3, x4, [x0]") PIECE("stp w3, w4, [x0, #8]") PIECE("stp x3, xzr, [x0], #16") PIECE("stp x3, x4, [x0, #-32]!") \
    PIECE("stp q3, q30, [x0, #32]") PIECE("stp d3, d4, [x0], #-16") PIECE("stp s3, s4, [x0, #4]") \
    PIECE("stnp x3, x4, [x0, #16]") PIECE("stnp q3, q4, [x0, #-64]") PIECE("stnp w3, w4, [x0]") \
    PIECE("st1 {v3.16b}, [x0]") PIECE("st1 {v3.8b, v4.8b}, [x0]") PIECE("st1 {v3.2d, v4.2d, v5.2d}, [x0], #48") \
    PIECE("st1 {v30.4s, v31.4s, v0.4s, v1.4s}, [x0], x2") PIECE("stlr x3, [x0]") PIECE("stlrb w3, [x0]") \
    PIECE("ldrb w3, [x1, #3]") PIECE("ldrsb x3, [x1, #3]") PIECE("ldrsb w3, [x1, #3]") PIECE("ldrh w3, [x1, #6]") \
    PIECE("ldrsh x3, [x1, #6]") PIECE("ldr w3, [x1, #12]") PIECE("ldrsw x3, [x1, #12]") PIECE("ldr x3, [x1, x2, lsl #3]") \
    PIECE("ldr x3, [x1], #8") PIECE("ldr q3, [x1, #-16]!") PIECE("ldr d3, [x1]") PIECE("ldr s3, [x1]") PIECE("ldur q7, [x1, #3]") \
    PIECE("ldp x3, x4, [x1], #16") PIECE("ldp q3, q4, [x1, #32]") PIECE("ldnp q3, q4, [x1]") PIECE("ldp w3, w4, [x1]") \
    PIECE("ld1 {v3.16b}, [x1], #16") PIECE("ld1 {v3.8b, v4.8b, v5.8b, v6.8b}, [x1]") PIECE("ldar x3, [x1]") PIECE("prfm pldl1keep, [x1]") \
    PIECE("add x3, x4, #77") PIECE("add w3, w4, #1, lsl #12") PIECE("subs x3, x4, #77") PIECE("subs w3, w4, #5") PIECE("adds w3, w4, w5") \
    PIECE("adds x3, x4, x5") PIECE("subs x3, x4, x5, lsr #3") PIECE("sub w3, w4, w5, asr #7") PIECE("cmp x3, x4") PIECE("cmn w3, w4") \
    PIECE("neg x3, x4") PIECE("and x3, x4, #0xff00ff00ff00ff00") PIECE("and w3, w4, #15") PIECE("orr x3, x4, #0x7ffffff0") PIECE("eor x3, x4, #1") \
    PIECE("ands x3, x4, #0x8000000000000000") PIECE("tst w3, #0x3c") PIECE("bic x3, x4, x5") PIECE("ands w3, w4, w5, ror #9") PIECE("bics x3, x4, x5") \
    PIECE("mov x3, x4") PIECE("mov w3, w4") PIECE("mvn x3, x4") PIECE("eon w3, w4, w5") PIECE("mov x3, #0x12340000") PIECE("movn w3, #7") \
    PIECE("movk x3, #0x77, lsl #32") PIECE("lsl x3, x4, #5") PIECE("lsr w3, w4, #9") PIECE("asr x3, x4, #11") PIECE("ubfx x3, x4, #7, #13") \
    PIECE("sxtw x3, w4") PIECE("uxtb w3, w4") PIECE("sbfiz x3, x4, #5, #9") PIECE("rev x3, x4") PIECE("rev w3, w4") \
    PIECE("csel x3, x4, x5, lo") PIECE("csinc w3, w4, w5, ge") PIECE("csinv x3, x4, x5, vs") PIECE("csneg x3, x4, x5, hi") PIECE("cset w3, le") \
    PIECE("b 1f\n mov x3, #0\n1: nop") PIECE("cbz x2, 1f\n mov x3, #0\n1:") PIECE("cbnz w2, 1f\n mov x3, #0\n1:") \
    PIECE("tbz x3, #35, 1f\n mov x4, #0\n1:") PIECE("tbnz w3, #5, 1f\n mov x4, #0\n1:") PIECE("adr x3, 1f\n1:") \
    PIECE("b.eq 1f\n mov x3, #0\n1:") PIECE("b.hs 1f\n mov x3, #0\n1:") PIECE("b.mi 1f\n mov x3, #0\n1:") PIECE("b.vc 1f\n mov x3, #0\n1:") \
    PIECE("b.hi 1f\n mov x3, #0\n1:") PIECE("b.lt 1f\n mov x3, #0\n1:") PIECE("b.gt 1f\n mov x3, #0\n1:") PIECE("b.le 1f\n mov x3, #0\n1:")
/* clang-format on */
#define PIECE_BYTES 32u
#define AS_CODE(text) "strb w3, [x0, #2000]\n " text "\n ret\n .p2align 5\n"
#define AS_NAME(text) text,
extern const char pieces_start[], pieces_end[];
__asm__(".text\n.p2align 5\n.globl pieces_start\npieces_start:\n" PIECES(
    AS_CODE) ".globl pieces_end\npieces_end:\n");
static const char *const pieces[] = {PIECES(AS_NAME)};
#define COUNT (sizeof(pieces) / sizeof(pieces[0]))

static uint8_t *protected_page, *alias, *plain, source[PAGE] __attribute__((aligned(64)));
static unsigned traps;
static const char *went_on_at, *now = "a copy";

static void handle(int signal_number, siginfo_t *information, void *context)
{
    struct emulate_page page = {(uintptr_t)protected_page, alias, PAGE};
    (void)signal_number;
    (void)information;
    traps++;
    unsigned stores = emulate_stores(context, &page);
    went_on_at = (const char *)(uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
    if (stores) {
        return;
    }
    printf("# not known: \"%s\", %08x\n", now, *(const uint32_t *)(const void *)went_on_at);
    fflush(stdout);
    _exit(1);
}

static bool is_same(struct registers *two)
{
    uint32_t next;
    two[0].general[0] -= (uintptr_t)plain;
    two[1].general[0] -= (uintptr_t)protected_page;
    two[0].flags &= FLAGS;
    two[1].flags &= FLAGS;
    memcpy(&next, went_on_at, sizeof(next));
    bool to_the_end = went_on_at < pieces_start || went_on_at >= pieces_end || next == RETURN;
    return memcmp(&two[0], &two[1], sizeof(two[0])) == 0 && memcmp(plain, alias, PAGE) == 0 &&
           traps == 1 && to_the_end;
}

static bool instructions(void)
{
    const char *given = getenv("SIMNIC_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 0) : 1, last = given ? first : ROUNDS;
    if (pieces_end - pieces_start != (ptrdiff_t)(COUNT * PIECE_BYTES)) {
        printf("# a piece is longer than %u bytes\n", PIECE_BYTES);
        return false;
    }
    for (uint64_t seed = first; seed <= last; seed++) {
        for (size_t i = 0; i < COUNT; i++) {
            struct registers two[2];
            now = pieces[i];
            random_state = seed * 7919 + i + 1;
            fill(two, sizeof(two[0]));
            two[0].general[1] = (uintptr_t)source + 1024;
            two[0].general[2] %= 8;
            two[1] = two[0];
            two[0].general[0] = (uintptr_t)plain + 1024;
            two[1].general[0] = (uintptr_t)protected_page + 1024;
            fill(source, PAGE);
            fill(plain, PAGE);
            memcpy(alias, plain, PAGE);
            execute_on(&two[0], pieces_start + i * PIECE_BYTES);
            traps = 0;
            execute_on(&two[1], pieces_start + i * PIECE_BYTES);
            if (!is_same(two)) {
                printf("# \"%s\" is another, seed %lu, %u traps\n", now, (unsigned long)seed,
                       traps);
                return false;
            }
        }
    }
    return true;
}

static bool copies_of_the_library(void)
{
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    now = "memcpy";
    for (size_t bytes = 1; bytes <= 512; bytes++) {
        for (size_t place = 0; place < BLOCK; place += 3) {
            copy(plain + 1024 + place, source + place * 5 % 64, bytes);
            traps = 0;
            copy(protected_page + 1024 + place, source + place * 5 % 64, bytes);
            unsigned most = bytes == BLOCK ? 1 : 1 + (unsigned)bytes / 128;
            if (memcmp(plain, alias, PAGE) != 0 || traps > most) {
                printf("# memcpy of %zu bytes to %zu: %u traps\n", bytes, place, traps);
                return false;
            }
        }
    }
    return true;
}

static bool pushes_of_copyrpc(void)
{
    static const enum copy_kind kinds[] = {COPY_WORDS, COPY_NEON};
    now = "a push";
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t bytes = BLOCK; bytes <= 4 * BLOCK; bytes += BLOCK) {
            fill(source, PAGE);
            copy_function_of(kinds[i])(plain + 2048, source, bytes);
            traps = 0;
            copy_function_of(kinds[i])(protected_page + 2048, source, bytes);
            if (memcmp(plain, alias, PAGE) != 0 || traps != 1) {
                printf("# push %zu of %u bytes: %u traps\n", i, bytes, traps);
                return false;
            }
        }
    }
    return true;
}

int main(void)
{
    static const struct {
        const char *name;
        bool (*run)(void);
    } tests[] = {{"instructions", instructions},
                 {"copies_of_the_library", copies_of_the_library},
                 {"pushes_of_copyrpc_are_one_trap", pushes_of_copyrpc}};
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    int fd = memfd_create("page", MFD_CLOEXEC), failed = 0;
    if (fd < 0 || ftruncate(fd, PAGE) != 0 || sigaction(SIGSEGV, &action, NULL) != 0) {
        return 1;
    }
    protected_page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    alias = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        bool holds = tests[i].run();
        failed += !holds;
        printf("%sok %zu - %s\n", holds ? "" : "not ", i + 1, tests[i].name);
    }
    printf("1..%zu\n", sizeof(tests) / sizeof(tests[0]));
    return failed != 0;
}
