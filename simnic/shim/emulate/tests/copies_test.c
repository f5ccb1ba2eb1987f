/* copies_test.c: copies to a protected page by the C library and by copyrpc. Each is right, and a
 * block of 64 bytes is one trap. copies_test.sh runs it with each of the C library's copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/mlx5/copy.h"
#include "simnic/shim/emulate/tests/protected_page.h"

#define BLOCK 64u
#define MOST_BYTES 512u

/* Not the compiler's own copies. */
static void *(*volatile library_copy)(void *, const void *, size_t) = memcpy;
static void *(*volatile library_move)(void *, const void *, size_t) = memmove;
static void *(*volatile library_set)(void *, int, size_t) = memset;

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
            catch_stores();
            library_copy(plain + to, from + at, bytes);
            library_copy(protected_page + to, from + at, bytes);
            expect_same(most, "memcpy", bytes, to, at);
            catch_stores();
            library_move(plain + to, from + at, bytes);
            library_move(protected_page + to, from + at, bytes);
            expect_same(most, "memmove", bytes, to, at);
            catch_stores();
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
        catch_stores();
        library_copy(plain + 2048, from + at, BLOCK);
        library_copy(protected_page + 2048, from + at, BLOCK);
        expect_same(1, "memcpy", BLOCK, 2048, at);
    }
}

static void pushes_of_copyrpc_are_one_trap(void **state)
{
    static const enum copy_kind kinds[] = {COPY_WORDS, COPY_SSE2, COPY_AVX, COPY_AVX512, COPY_NEON};
    unsigned possible = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (uint32_t bytes = BLOCK; bytes <= 4 * BLOCK && copy_possible(kinds[i]);
             bytes += BLOCK) {
            catch_stores();
            copy_function_of(kinds[i])(plain + 2048, source(), bytes);
            copy_function_of(kinds[i])(protected_page + 2048, source(), bytes);
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
    return cmocka_run_group_tests(tests, map_pages, NULL);
}
