/* instructions_test.c: each instruction that the emulation knows, by the processor on plain memory
 * and by the emulation on a protected page, from the same random registers: memory, registers,
 * masks and flags must be the same. x86-64 only; what the processor does not have is left out. */
#if defined(__x86_64__)

#include <cpuid.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "simnic/shim/emulate/emulate.h"
#include "simnic/shim/emulate/tests/random_words.h"

#define PAGE 4096u
#define ROUNDS 24u
#define FLAG_ADJUST 0x010u
#define FLAG_OVERFLOW 0x800u
#define ARITHMETIC_FLAGS 0x8d5u
#define RETURN '\xc3'
#define COMPONENTS 0xe6u /* XMM, YMM, masks, ZMM, registers 16 to 31 */
#define AREA_BYTES 8192u

enum feature { BASE, MOVBE, MOVDIRI, MOVDIR64B, SSE4, AVX2, AVX512, FEATURES };
static bool has[FEATURES];

/* The register numbers of the machine, without rsp. */
enum { RAX, RCX, RDX, RBX, UNUSED, RBP, RSI, RDI };

struct registers {
    uint64_t general[16];
    uint64_t flags;
    uint64_t components; /* for XSAVE */
    uint8_t *area;
};

/* Executes code that ends with ret on these registers. */
void execute_on(struct registers *registers, const void *code);
struct registers *executing;
uint64_t saved_rax;
__asm__(".text\n"
        "execute_on:\n"
        " push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " push %rsi\n" /* the code */
        " mov %rdi, executing(%rip)\n"
        " mov 136(%rdi), %eax\n xor %edx, %edx\n mov 144(%rdi), %rcx\n xrstor64 (%rcx)\n"
        " mov (%rdi), %rax\n mov 8(%rdi), %rcx\n mov 16(%rdi), %rdx\n mov 24(%rdi), %rbx\n"
        " mov 40(%rdi), %rbp\n mov 48(%rdi), %rsi\n"
        " mov 64(%rdi), %r8\n mov 72(%rdi), %r9\n mov 80(%rdi), %r10\n mov 88(%rdi), %r11\n"
        " mov 96(%rdi), %r12\n mov 104(%rdi), %r13\n mov 112(%rdi), %r14\n mov 120(%rdi), %r15\n"
        " push 128(%rdi)\n popfq\n"
        " mov 56(%rdi), %rdi\n"
        " call *(%rsp)\n"
        " mov %rax, saved_rax(%rip)\n"
        " mov executing(%rip), %rax\n"
        " mov %rcx, 8(%rax)\n mov %rdx, 16(%rax)\n mov %rbx, 24(%rax)\n mov %rbp, 40(%rax)\n"
        " mov %rsi, 48(%rax)\n mov %rdi, 56(%rax)\n"
        " mov %r8, 64(%rax)\n mov %r9, 72(%rax)\n mov %r10, 80(%rax)\n mov %r11, 88(%rax)\n"
        " mov %r12, 96(%rax)\n mov %r13, 104(%rax)\n mov %r14, 112(%rax)\n mov %r15, 120(%rax)\n"
        " pushfq\n pop 128(%rax)\n cld\n"
        " mov %rax, %rdi\n mov saved_rax(%rip), %rax\n mov %rax, (%rdi)\n"
        " mov 136(%rdi), %eax\n xor %edx, %edx\n mov 144(%rdi), %rcx\n xsave64 (%rcx)\n"
        " pop %rsi\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        " ret\n");

/* Each piece of code begins with a store that stops it, so that what follows is emulated whatever
 * it is; stores begin at the second place too. */
struct piece {
    enum feature feature;
    uint32_t undefined; /* flags */
    bool is_store;
    const char *text;
};
extern const char pieces_start[], pieces_end[];
#define CODE(text) "movb $0x5a, 2048(%rdi)\n .p2align 5\n" text "\n ret\n .p2align 8\n"
#define STORE(feature, undefined, text) CODE(text)
#define STRING(feature, undefined, text) CODE(text)
#define BETWEEN(feature, undefined, text) CODE(text)
__asm__(".text\n .p2align 8\npieces_start:\n"
#include "simnic/shim/emulate/tests/instructions.h"
        "pieces_end:\n");
#undef STORE
#undef STRING
#undef BETWEEN
#define STORE(feature, undefined, text) {feature, undefined, true, text},
#define STRING(feature, undefined, text) {feature, undefined, false, text},
#define BETWEEN(feature, undefined, text) {feature, undefined, false, text},
static const struct piece pieces[] = {
#include "simnic/shim/emulate/tests/instructions.h"
};
#define PIECES (sizeof(pieces) / sizeof(pieces[0]))
#define PIECE_BYTES 256u
#define PREFIX_BYTES 32u

static uint8_t *protected_page, *alias, *plain, *source, *area[2];
static unsigned traps;
static const char *went_on_at; /* the processor, after the last trap */
static const char *now;
static uint64_t now_seed;

static void handle(int signal_number, siginfo_t *information, void *context)
{
    struct emulate_page page = {(uintptr_t)protected_page, alias, PAGE};
    (void)signal_number;
    (void)information;
    traps++;
    unsigned stores = emulate_stores(context, &page);
    went_on_at = (const char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (stores) {
        return;
    }
    printf("# not known: \"%s\", seed %lu\n", now, (unsigned long)now_seed);
    fflush(stdout);
    _exit(1);
}

/* Of components in an XSAVE area. */
static uint32_t component_offset[8];
static const uint16_t component_bytes[8] = {0, 256, 256, 0, 0, 64, 512, 1024};

static void find_offsets(void)
{
    component_offset[1] = 160;
    for (unsigned i = 2; i < 8; i++) {
        uint32_t bytes, offset = 0, c, d;
        __get_cpuid_count(0xd, i, &bytes, &offset, &c, &d);
        component_offset[i] = offset;
    }
}

static uint64_t components(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low & COMPONENTS;
}

static int set_up(void **state)
{
    (void)state;
    uint32_t a, b, c = 0, d;
    int fd = memfd_create("page", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    protected_page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    alias = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    source = aligned_alloc(64, PAGE);
    area[0] = aligned_alloc(64, AREA_BYTES);
    area[1] = aligned_alloc(64, AREA_BYTES);
    find_offsets();
    has[BASE] = true;
    __get_cpuid(1, &a, &b, &c, &d);
    has[MOVBE] = c >> 22 & 1;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    has[MOVDIRI] = c >> 27 & 1;
    has[MOVDIR64B] = c >> 28 & 1;
    has[SSE4] = __builtin_cpu_supports("sse4.1");
    has[AVX2] = __builtin_cpu_supports("avx2");
    has[AVX512] = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    return 0;
}

/* The same random registers for both; some components in their initial state. */
static void randomize(struct registers *two)
{
    static const uint32_t mxcsr = 0x1f80;
    uint64_t in_use = components() & random_word();
    fill(two, sizeof(*two));
    two->general[RBX] %= 64;
    two->general[RCX] %= 16;
    two->general[RSI] = (uintptr_t)source;
    two->general[RDI] = random_word() % 16 * 64;
    two->flags = (two->flags & ARITHMETIC_FLAGS) | 0x202;
    two->components = components();
    two[1] = two[0];
    memset(area[0], 0, AREA_BYTES);
    for (unsigned i = 1; i < 8; i++) {
        if (components() >> i & 1) {
            fill(area[0] + component_offset[i], component_bytes[i]);
        }
    }
    memcpy(area[0] + 24, &mxcsr, sizeof(mxcsr));
    memcpy(area[0] + 512, &in_use, sizeof(in_use));
    memcpy(area[1], area[0], AREA_BYTES);
    two[0].area = area[0];
    two[1].area = area[1];
    two[0].general[RDI] += (uintptr_t)plain;
    two[1].general[RDI] += (uintptr_t)protected_page;
    fill(source, PAGE);
    fill(plain, PAGE);
    memcpy(alias, plain, PAGE);
}

static void expect_same(const struct registers *two, const struct piece *piece)
{
    bool same = true;
    for (unsigned i = 0; i < 16; i++) {
        uint64_t wanted = two[0].general[i], got = two[1].general[i];
        if (i == RDI) {
            wanted -= (uintptr_t)plain;
            got -= (uintptr_t)protected_page;
        }
        if (i != UNUSED && wanted != got) {
            same = false;
            printf("# register %u: %lx, not %lx\n", i, (unsigned long)got, (unsigned long)wanted);
        }
    }
    uint64_t flags = (two[0].flags ^ two[1].flags) & ARITHMETIC_FLAGS & ~(uint64_t)piece->undefined;
    if (flags) {
        same = false;
        printf("# flags %lx differ\n", (unsigned long)flags);
    }
    for (unsigned i = 1; i < 8; i++) {
        uint32_t offset = component_offset[i], bytes = component_bytes[i];
        if (components() >> i & 1 && memcmp(area[0] + offset, area[1] + offset, bytes) != 0) {
            same = false;
            printf("# component %u of the vector registers differs\n", i);
        }
    }
    if (memcmp(alias, plain, PAGE) != 0) {
        same = false;
        printf("# memory differs\n");
    }
    bool left = went_on_at < pieces_start || went_on_at >= pieces_end || *went_on_at == RETURN;
    if (traps != 1 || !left) {
        same = false;
        printf("# %u traps; it was %semulated to its end\n", traps, left ? "" : "not ");
    }
    if (same) {
        return;
    }
    printf("# in \"%s\", seed %lu\n", piece->text, (unsigned long)now_seed);
    fflush(stdout);
    fail();
}

static void emulation_is_as_the_processor(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    assert_int_equal(pieces_end - pieces_start, PIECES * PIECE_BYTES);
    const char *given = getenv("SIMNIC_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 0) : 1, last = given ? first + 1 : ROUNDS + 1;
    unsigned executed = 0;
    for (now_seed = first; now_seed < last; now_seed++) {
        for (unsigned i = 0; i < PIECES; i++) {
            for (unsigned from_store = 0; from_store <= pieces[i].is_store; from_store++) {
                struct registers two[2];
                if (!has[pieces[i].feature]) {
                    continue;
                }
                const char *code = pieces_start + i * PIECE_BYTES + from_store * PREFIX_BYTES;
                now = pieces[i].text;
                random_state = now_seed * 7919 + i * 2 + from_store + 1;
                randomize(two);
                execute_on(&two[0], code);
                traps = 0;
                execute_on(&two[1], code);
                expect_same(two, &pieces[i]);
                executed++;
            }
        }
    }
    printf("# %u executions of %u pieces\n", executed, (unsigned)PIECES);
}

/* Processors without them do not get so far; the emulation knows them all the same. */
extern const char direct_stores[], direct_stores_end[];
__asm__(".text\ndirect_stores:\n movb $0x5a, 2048(%rdi)\n movdir64b (%rsi), %rdi\n"
        " movdiri %rdx, 64(%rdi)\n movdiri %r9d, 72(%rdi)\n ret\ndirect_stores_end:\n");

static void direct_stores_are_made(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct registers two[2];
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    for (now_seed = 1; now_seed < 1 + ROUNDS; now_seed++) {
        now = "movdir64b";
        random_state = now_seed;
        randomize(two);
        two[1].general[RDI] = (uintptr_t)protected_page;
        traps = 0;
        execute_on(&two[1], direct_stores);
        assert_int_equal(traps, 1);
        plain[2048] = 0x5a;
        memcpy(plain, source, 64);
        memcpy(plain + 64, &two[0].general[RDX], 8);
        memcpy(plain + 72, &two[0].general[9], 4);
        assert_memory_equal(alias, plain, PAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulation_is_as_the_processor),
        cmocka_unit_test(direct_stores_are_made),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, NULL);
}

#else

#include <stdio.h>

int main(void)
{
    printf("1..0 # SKIP the instructions are those of x86-64\n");
    return 0;
}

#endif
