/* copies_test.c: copies to a protected page by the C library and by copyrpc. Each is right, and a block of
 * 64 bytes is one trap. copies_test.sh runs it with each of the C library's copies. */
#include "nic/mlx5/copy.h"
#include "emulate.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE 4096u
#define BLOCK 64u
#define MOST_BYTES 512u

static uint8_t *protected_page, *alias, *plain;
static unsigned traps;

/* Not the compiler's own copies. */
static void *(*volatile library_copy)(void *, const void *, size_t) = memcpy;
static void *(*volatile library_move)(void *, const void *, size_t) = memmove;
static void *(*volatile library_set)(void *, int, size_t) = memset;

static void handle(int signal_number, siginfo_t *information, void *context)
{
    struct emulate_page page = {(uintptr_t)protected_page, alias, PAGE};
    (void)signal_number;
    (void)information;
    traps++;
    if (emulate_stores(context, &page)) {
        return;
    }
    static const char text[] = "# an instruction is not known\n";
    ssize_t ignored = write(1, text, sizeof(text) - 1);
    (void)ignored;
    _exit(1);
}

static int set_up(void **state)
{
    (void)state;
    int fd = memfd_create("page", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    protected_page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    alias = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return 0;
}

static void start(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    traps = 0;
}

static const uint8_t *source(void)
{
    static uint8_t bytes[MOST_BYTES + BLOCK] __attribute__((aligned(64)));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 37 + 11);
    }
    return bytes;
}

static void expect_same(unsigned most_traps, const char *what, size_t bytes, size_t to, size_t from)
{
    if (memcmp(alias, plain, PAGE) == 0 && traps <= most_traps) {
        return;
    }
    printf("# %s of %zu bytes to %zu from %zu: %u traps, memory is %s\n", what, bytes, to, from,
           traps, memcmp(alias, plain, PAGE) ? "wrong" : "right");
    fail();
}

/* Every length, and every place of source and destination in a block. */
static void copies_of_the_library(void **state)
{
    (void)state;
    const uint8_t *from = source();
    for (size_t bytes = 1; bytes <= MOST_BYTES; bytes++) {
        for (size_t place = 0; place < BLOCK; place += 3) {
            size_t to = 1024 + place, at = place * 5 % BLOCK;
            unsigned most = 1 + (unsigned)bytes / 128;
            start();
            library_copy(plain + to, from + at, bytes);
            library_copy(protected_page + to, from + at, bytes);
            expect_same(most, "memcpy", bytes, to, at);
            start();
            library_move(plain + to, from + at, bytes);
            library_move(protected_page + to, from + at, bytes);
            expect_same(most, "memmove", bytes, to, at);
            start();
            library_set(plain + to, (int)bytes, bytes);
            library_set(protected_page + to, (int)bytes, bytes);
            expect_same(most, "memset", bytes, to, at);
        }
    }
}

static void blocks_of_the_library_are_one_trap(void **state)
{
    (void)state;
    const uint8_t *from = source();
    for (size_t at = 0; at < BLOCK; at += 4) {
        start();
        library_copy(plain + 2048, from + at, BLOCK);
        library_copy(protected_page + 2048, from + at, BLOCK);
        expect_same(1, "memcpy", BLOCK, 2048, at);
    }
}

static void pushes_of_copyrpc_are_one_trap(void **state)
{
    static const enum copy_kind kinds[] = {COPY_WORDS, COPY_SSE2, COPY_AVX512, COPY_NEON};
    unsigned possible = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (uint32_t bytes = BLOCK; bytes <= 4 * BLOCK && copy_possible(kinds[i]);
             bytes += BLOCK) {
            start();
            copy_blocks(kinds[i], plain + 2048, source(), bytes);
            copy_blocks(kinds[i], protected_page + 2048, source(), bytes);
            expect_same(1, "a push", bytes, 2048, kinds[i]);
            possible++;
        }
    }
    assert_true(possible >= 8); /* words, and at least one more kind */
}

int main(void)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
    printf("1..0 # SKIP stores are emulated on x86-64 and arm64 only\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_the_library),
        cmocka_unit_test(blocks_of_the_library_are_one_trap),
        cmocka_unit_test(pushes_of_copyrpc_are_one_trap),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
