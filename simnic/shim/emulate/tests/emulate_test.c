/* emulate_test.c: stores to a protected page, made by emulation, against the same code run on
 * memory that is writable: memory and results must be the same. x86-64 only. */
#include <stdio.h>
#include <string.h>

#include "simnic/shim/emulate/tests/protected_page.h"

/* Fills a source with bytes that differ everywhere. */
static void fill(uint8_t *source, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        source[i] = (uint8_t)(i * 37 + seed * 101 + 11);
    }
}

/* One WQE block as libmlx5 pushes it: eight loads and stores. */
static void copy_block(uint8_t *to, const uint8_t *from)
{
    __asm__ volatile("mov (%1), %%rax\n mov %%rax, (%0)\n"
                     "mov 8(%1), %%rax\n mov %%rax, 8(%0)\n"
                     "mov 16(%1), %%r10\n mov %%r10, 16(%0)\n"
                     "mov 24(%1), %%r11\n mov %%r11, 24(%0)\n"
                     "mov 32(%1), %%rax\n mov %%rax, 32(%0)\n"
                     "mov 40(%1), %%rcx\n mov %%rcx, 40(%0)\n"
                     "mov 48(%1), %%rax\n mov %%rax, 48(%0)\n"
                     "mov 56(%1), %%rdx\n mov %%rdx, 56(%0)\n"
                     "sfence"
                     :
                     : "r"(to), "r"(from)
                     : "rax", "rcx", "rdx", "r10", "r11", "memory", "cc");
}

static void copy_loop(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    __asm__ volatile("1: mov (%1), %%rax\n mov %%rax, (%0)\n"
                     "add $8, %1\n lea 8(%0), %0\n sub $8, %2\n test %2, %2\n jne 1b\n sfence"
                     : "+&r"(to), "+&r"(from), "+&r"(bytes)
                     :
                     : "rax", "memory", "cc");
}

/* Indexed, with a wrap by a conditional move, as a copy out of a ring has it. */
static void copy_ring(uint8_t *to, const uint8_t *ring, uint64_t start, uint64_t count)
{
    uint64_t at = start, done = 0, zero = 0;
    __asm__ volatile("1: mov (%[ring],%[at],8), %%rax\n mov %%rax, (%[to],%[done],8)\n"
                     "add $1, %[at]\n cmp $8, %[at]\n cmove %[zero], %[at]\n"
                     "add $1, %[done]\n cmp %[count], %[done]\n jb 1b\n"
                     : [at] "+&r"(at), [done] "+&r"(done)
                     : [to] "r"(to), [ring] "r"(ring), [count] "r"(count), [zero] "r"(zero)
                     : "rax", "memory", "cc");
}

static void copy_vectors(uint8_t *to, const uint8_t *from)
{
    __asm__ volatile("movups (%1), %%xmm1\n movups %%xmm1, (%0)\n"
                     "movdqu 16(%1), %%xmm9\n movdqa %%xmm9, 16(%0)\n"
                     "movups 32(%1), %%xmm2\n movntps %%xmm2, 32(%0)\n"
                     "movdqu 48(%1), %%xmm3\n movntdq %%xmm3, 48(%0)\n sfence"
                     :
                     : "r"(to), "r"(from)
                     : "xmm1", "xmm2", "xmm3", "xmm9", "memory");
}

static uint64_t doorbells(uint8_t *to, uint64_t value)
{
    uint64_t result = value;
    __asm__ volatile("bswap %0\n mov %0, 0x20(%1)\n"
                     "movnti %0, 0x28(%1)\n"
                     "movl $0x12345678, 0x30(%1)\n movq $-2, 0x38(%1)\n"
                     "mov %k0, 0x40(%1)\n bswap %k0\n mov %k0, 0x44(%1)"
                     : "+r"(result)
                     : "r"(to)
                     : "memory");
    return result;
}

static void expect_same(void)
{
    assert_memory_equal(alias, plain, PAGE);
    assert_true(stores > 0);
}

static void start(void)
{
    /* cmocka has its own handler in each test. */
    catch_stores();
    memset(alias, 0, PAGE);
    memset(plain, 0, PAGE);
}

static void a_pushed_block_is_one_trap(void **state)
{
    (void)state;
    uint8_t source[64];
    fill(source, sizeof(source), 1);
    start();
    copy_block(plain + 0x800, source);
    copy_block(protected_page + 0x800, source);
    expect_same();
    assert_int_equal(stores, 8);
    assert_int_equal(traps, 1);
}

static void a_loop_is_one_trap(void **state)
{
    (void)state;
    uint8_t source[256];
    fill(source, sizeof(source), 2);
    for (uint64_t bytes = 8; bytes <= 192; bytes += 8) {
        start();
        copy_loop(plain + 0x900, source, bytes);
        copy_loop(protected_page + 0x900, source, bytes);
        expect_same();
        assert_int_equal(stores, bytes / 8);
        assert_in_range(traps, 1, 2);
    }
}

static void a_ring_wraps(void **state)
{
    (void)state;
    uint8_t ring[64];
    fill(ring, sizeof(ring), 3);
    for (uint64_t first = 0; first < 8; first++) {
        start();
        copy_ring(plain + 0xa00, ring, first, 13);
        copy_ring(protected_page + 0xa00, ring, first, 13);
        expect_same();
    }
}

static void vectors_are_copied(void **state)
{
    (void)state;
    uint8_t source[64];
    for (unsigned seed = 0; seed < 20; seed++) {
        fill(source, sizeof(source), seed);
        start();
        copy_vectors(plain + 0xb00, source);
        copy_vectors(protected_page + 0xb00, source);
        expect_same();
    }
}

static void doorbells_of_every_kind(void **state)
{
    (void)state;
    start();
    uint64_t wanted = doorbells(plain, 0x0102030405060708u);
    assert_int_equal(doorbells(protected_page, 0x0102030405060708u), wanted);
    expect_same();
}

/* Compiled code, as it comes. */
__attribute__((noinline)) static uint64_t compiled(volatile uint64_t *to, const uint64_t *from,
                                                   unsigned count)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        to[i] = from[i];
        sum = sum * 31 + from[i];
    }
    return sum;
}

static void compiled_code_goes_on_rightly(void **state)
{
    (void)state;
    uint64_t source[64];
    fill((uint8_t *)source, sizeof(source), 5);
    for (unsigned count = 1; count <= 64; count++) {
        start();
        uint64_t wanted = compiled((uint64_t *)(void *)plain, source, count);
        assert_int_equal(compiled((uint64_t *)(void *)protected_page, source, count), wanted);
        expect_same();
        assert_int_equal(stores, count);
    }
}

static unsigned loads, refused;

/* What is no load is left to the processor, with the page open. */
static void handle_load(int signal_number, siginfo_t *information, void *context)
{
    struct emulate_page page = {(uintptr_t)protected_page, plain, PAGE};
    (void)signal_number;
    (void)information;
    if (emulate_load(context, &page)) {
        loads++;
        return;
    }
    refused++;
    mprotect(protected_page, PAGE, PROT_READ | PROT_WRITE);
}

static void a_store_is_no_load_and_changes_nothing(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = handle_load, .sa_flags = SA_SIGINFO | SA_NODEFER};
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    uint8_t source[8];
    fill(source, sizeof(source), 9);
    memcpy(plain, source, 8);
    memset(alias, 0, PAGE);
    mprotect(protected_page, PAGE, PROT_NONE);
    uint64_t loaded = *(volatile uint64_t *)(void *)protected_page;
    assert_memory_equal(&loaded, source, 8);
    assert_int_equal(loads, 1);
    /* Its pointers go on with it. */
    const uint8_t *from = source;
    uint8_t *to = protected_page + 16;
    __asm__ volatile("movsq" : "+S"(from), "+D"(to) : : "memory");
    mprotect(protected_page, PAGE, PROT_READ);
    assert_int_equal(refused, 1);
    assert_ptr_equal(from, source + 8);
    assert_ptr_equal(to, protected_page + 24);
    assert_memory_equal(alias + 16, source, 8);
}

int main(void)
{
#if !defined(__x86_64__)
    printf("1..0 # skipped: stores are emulated on x86-64 only\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pushed_block_is_one_trap),
        cmocka_unit_test(a_loop_is_one_trap),
        cmocka_unit_test(a_ring_wraps),
        cmocka_unit_test(vectors_are_copied),
        cmocka_unit_test(doorbells_of_every_kind),
        cmocka_unit_test(compiled_code_goes_on_rightly),
        cmocka_unit_test(a_store_is_no_load_and_changes_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, map_pages, NULL);
}
