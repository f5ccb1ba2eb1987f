/* wqe_ring_test.c: that WQEs which differ are found to: each byte, the length, the number, the index and the keys. The rings of
 * copyrpc-check's devices never differ, as long as libmlx5 and the driver agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../check/wqe_ring.h"
#include "nic/mlx5/wqe.h"

#define BLOCKS 8u
#define NUMBER 0x123456u
#define KEY 0xabcdef01u

static uint8_t buffer[BLOCKS * WQE_BLOCK_BYTES];
static struct outcome outcome;

/* A READ at a position of the ring, which may go on at its start, as libmlx5's do. Returns its length in units. */
static uint32_t put(uint32_t position, uint32_t pieces)
{
    uint8_t wqe[256] = {0};
    void *place = wqe_remote_address(wqe + 16, 0x1122334455667788u, KEY);
    for (uint32_t i = 0; i < pieces; i++) {
        place = wqe_data(place, 0x1000u + i, KEY + i, 100);
    }
    const uint32_t units = (uint32_t)((uint8_t *)place - wqe) / WQE_UNIT_BYTES;
    wqe_control(wqe, position, MLX5_OPCODE_RDMA_READ, NUMBER, units, MLX5_WQE_CTRL_CQ_UPDATE, 0);
    for (uint32_t i = 0; i < units * WQE_UNIT_BYTES; i++) {
        buffer[(position * WQE_BLOCK_BYTES + i) % sizeof(buffer)] = wqe[i];
    }
    return units;
}

static void put_nop(uint32_t position, uint32_t blocks)
{
    wqe_control(buffer + position % BLOCKS * WQE_BLOCK_BYTES, position, MLX5_OPCODE_NOP, NUMBER,
                blocks * 4, 0, 0);
}

static struct wqe_ring ring_at(uint32_t position)
{
    return (struct wqe_ring){
        .buffer = buffer, .blocks = BLOCKS, .number = NUMBER, .position = position};
}

static void test_the_same_is_the_same(void **state)
{
    struct wqe one, other;
    struct wqe_ring ring = ring_at(65534);
    (void)state;
    assert_int_equal(put(65534, 4), 6);
    assert_true(wqe_ring_next(&ring, &one, &outcome));
    assert_int_equal(ring.position, 65536);
    put_nop(65536, 3); /* is left out */
    put(65539, 4);
    assert_true(wqe_ring_next(&ring, &other, &outcome));
    assert_int_equal(ring.position, 65541);
    assert_true(wqe_ring_same(&one, &other, "a READ", &outcome));
    ring = ring_at(7); /* over the end */
    put(7, 8);
    assert_true(wqe_ring_next(&ring, &one, &outcome));
    assert_int_equal(one.units, 10);
    assert_int_equal(ring.position, 10);
    assert_true(wqe_ring_clear_key(&one, 24, KEY, &outcome));
    assert_true(wqe_ring_clear_key(&one, 32 + 16 * 7 + 4, KEY + 7, &outcome));
}

static void test_each_byte_counts(void **state)
{
    struct wqe one, other;
    (void)state;
    for (uint32_t at = 0; at < 64; at++) {
        struct wqe_ring ring = ring_at(0);
        put(0, 2);
        assert_true(wqe_ring_next(&ring, &one, &outcome));
        buffer[at] ^= 0x10;
        ring = ring_at(0);
        bool good = wqe_ring_next(&ring, &other, &outcome) &&
                    wqe_ring_same(&one, &other, "a READ", &outcome);
        buffer[at] ^= 0x10;
        /* But for the operation modifier, which is with the opcode, all of them do. */
        if (good) {
            fail_msg("byte %u does not count", at);
        }
        assert_int_equal(outcome.verdict, VERDICT_FAILED);
    }
}

static void test_length_and_keys_count(void **state)
{
    struct wqe one, other;
    struct wqe_ring ring = ring_at(0);
    (void)state;
    put(0, 2);
    assert_true(wqe_ring_next(&ring, &one, &outcome));
    put(1, 1);
    assert_true(wqe_ring_next(&ring, &other, &outcome));
    assert_false(wqe_ring_same(&one, &other, "a READ", &outcome));
    assert_false(wqe_ring_clear_key(&one, 24, KEY + 1, &outcome));
    ring = ring_at(2);
    put(3, 1);
    assert_false(wqe_ring_next(&ring, &other, &outcome));
    ring = ring_at(3);
    ring.number++;
    assert_false(wqe_ring_next(&ring, &other, &outcome));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_is_the_same),
        cmocka_unit_test(test_each_byte_counts),
        cmocka_unit_test(test_length_and_keys_count),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
