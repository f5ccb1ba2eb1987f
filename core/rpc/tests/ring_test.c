/* ring_test.c: rings that are mapped twice, by themselves and from slabs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants some of these */
#include <cmocka.h>

#include "base/page.h"
#include "rpc/ring.h"

#define MANY (3 * RING_SLAB_RINGS + 1)

static struct ring_slabs slabs;
static struct ring rings[MANY];

static int open_slabs(void **state)
{
    (void)state;
    ring_slabs_init(&slabs);
    memset(rings, 0, sizeof(rings));
    return 0;
}

static int free_slabs(void **state)
{
    (void)state;
    ring_slabs_free(&slabs);
    return 0;
}

static void map(struct ring *ring, enum ring_kind kind, uint64_t bytes)
{
    crpc_error error = {0};
    assert_int_equal(ring_map(&slabs, ring, kind, bytes, &error), CRPC_OK);
}

/* Areas of memory that the kernel keeps of rings. */
static uint32_t areas(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        count += strstr(line, "copyrpc-ring") != NULL;
    }
    fclose(file);
    return count;
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static size_t extent(const struct ring *ring, enum ring_kind kind)
{
    return 2 * ring->bytes + (kind == RING_RECEIVE ? page_bytes() : 0);
}

static void what_is_written_past_the_end_is_at_the_beginning(void **state)
{
    (void)state;
    for (uint64_t bytes = page_bytes(); bytes <= 64 * page_bytes(); bytes *= 2) {
        for (int kind = RING_SEND; kind <= RING_RECEIVE; kind++) {
            struct ring ring;
            map(&ring, (enum ring_kind)kind, bytes);
            assert_true(is_zero(ring.address, extent(&ring, (enum ring_kind)kind)));
            memcpy(ring.address + bytes - 2, "abcd", 4);
            assert_memory_equal(ring.address, "cd", 2);
            assert_memory_equal(ring.address + 2 * bytes - 2, "ab", 2);
            if (kind == RING_RECEIVE) {
                memset(ring_mailbox(&ring), 'm', page_bytes());
                assert_memory_equal(ring.address, "cd", 2);
                assert_memory_equal(ring.address + bytes, "cd", 2);
            }
            ring_destroy(&ring, NULL);
        }
    }
}

/* No ring of several has a byte in common with another: each is filled with what only it has. */
static void rings_of_a_slab_share_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        map(&rings[i], RING_RECEIVE, 4096);
        memset(rings[i].address, (int)i + 1, 4096);
        memset(ring_mailbox(&rings[i]), (int)i + 1, page_bytes());
    }
    for (uint32_t i = 0; i < MANY; i++) {
        const size_t bytes = extent(&rings[i], RING_RECEIVE);
        for (size_t at = 0; at < bytes; at++) {
            assert_int_equal(rings[i].address[at], i + 1);
        }
    }
    for (uint32_t i = 0; i < MANY; i++) {
        ring_destroy(&rings[i], NULL);
    }
}

/* A peer can read mailboxes, and this side sends from the others what it believes to be its own. */
static void a_ring_has_nothing_of_the_one_before_it(void **state)
{
    (void)state;
    for (int kind = RING_SEND; kind <= RING_RECEIVE; kind++) {
        for (int again = 0; again < 3; again++) {
            struct ring ring;
            map(&ring, (enum ring_kind)kind, 4096);
            if (again > 0) {
                assert_ptr_equal(ring.address, rings[kind].address);
            }
            rings[kind].address = ring.address;
            assert_true(is_zero(ring.address, extent(&ring, (enum ring_kind)kind)));
            memset(ring.address, 's', extent(&ring, (enum ring_kind)kind));
            ring_destroy(&ring, NULL);
        }
        rings[kind] = (struct ring){0};
    }
}

static void a_small_ring_takes_one_area(void **state)
{
    (void)state;
    const uint32_t before = areas();
    for (uint32_t i = 0; i < MANY; i++) {
        map(&rings[i], i % 2 ? RING_RECEIVE : RING_SEND, 4096);
    }
    const uint32_t slabs_max = MANY / RING_SLAB_RINGS + 2;
    assert_in_range(areas() - before, MANY, slabs_max * (RING_SLAB_RINGS + 1));
    for (uint32_t i = 0; i < MANY; i++) {
        ring_destroy(&rings[i], NULL);
    }
}

static void slabs_that_are_empty_go_but_for_one(void **state)
{
    (void)state;
    const uint32_t before = areas();
    for (uint32_t i = 0; i < MANY; i++) {
        map(&rings[i], RING_SEND, 8192);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        ring_destroy(&rings[i], NULL);
    }
    assert_int_equal(areas() - before, RING_SLAB_RINGS + 1);
    struct ring large;
    map(&large, RING_SEND, 2 * RING_SLAB_BYTES_MAX);
    ring_destroy(&large, NULL);
    assert_int_equal(areas() - before, RING_SLAB_RINGS + 1);
    ring_slabs_free(&slabs);
    assert_int_equal(areas(), before);
    ring_slabs_init(&slabs);
}

/* Rings come and go in any order, and a slab whose rings are all in use is not looked at. */
static void rings_that_come_and_go_stay_apart(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (uint32_t step = 0; step < 20000; step++) {
        seed = seed * 1664525 + 1013904223;
        const uint32_t i = (seed >> 16) % MANY;
        if (rings[i].address) {
            assert_int_equal(rings[i].address[0], i + 1);
            assert_int_equal(rings[i].address[rings[i].bytes], i + 1);
            ring_destroy(&rings[i], NULL);
        } else {
            map(&rings[i], seed >> 30 & 1 ? RING_RECEIVE : RING_SEND, 4096u << (seed >> 28 & 1));
            assert_int_equal(rings[i].address[0], 0);
            rings[i].address[0] = (uint8_t)(i + 1);
        }
    }
    for (uint32_t i = 0; i < MANY; i++) {
        ring_destroy(&rings[i], NULL);
    }
}

static void a_ring_must_be_of_whole_pages(void **state)
{
    (void)state;
    crpc_error error = {0};
    struct ring ring;
    assert_int_equal(ring_map(&slabs, &ring, RING_SEND, page_bytes() / 2, &error), CRPC_E_INVALID);
    ring_destroy(&ring, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_slabs, free_slabs)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_past_the_end_is_at_the_beginning),
        TEST(rings_of_a_slab_share_nothing),
        TEST(a_ring_has_nothing_of_the_one_before_it),
        TEST(a_small_ring_takes_one_area),
        TEST(slabs_that_are_empty_go_but_for_one),
        TEST(rings_that_come_and_go_stay_apart),
        TEST(a_ring_must_be_of_whole_pages),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
