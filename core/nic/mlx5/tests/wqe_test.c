/* wqe_test.c: segments byte by byte, against bytes put together here from the layouts in the PRM. */
#include "nic/mlx5/wqe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEED 20260521u
#define ROUNDS 20000

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state ^ (random_state >> 29);
}

/* What was written, and what should have been; a byte that nobody writes is 0xa5 in both. */
static _Alignas(64) uint8_t wqe[1024 + 64];
static uint8_t expected[sizeof(wqe)];
static uint32_t end;

static void begin(void)
{
    memset(wqe, 0xa5, sizeof(wqe));
    memset(expected, 0xa5, sizeof(expected));
    end = 0;
}

static void put(uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        expected[end + i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
    end += bytes;
}

static void check(const void *segment_end)
{
    if (memcmp(wqe, expected, sizeof(wqe)) != 0) {
        for (uint32_t i = 0; i < sizeof(wqe); i++) {
            if (wqe[i] != expected[i]) {
                print_error("seed %u: byte %u is %02x, not %02x\n", SEED, i, wqe[i], expected[i]);
            }
        }
        fail();
    }
    assert_ptr_equal(segment_end, wqe + end);
}

static void test_control(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t index = (uint32_t)next_random();
        uint8_t opcode = (uint8_t)next_random();
        uint32_t number = (uint32_t)next_random() & 0xffffff;
        uint32_t units = (uint32_t)next_random() % 64;
        uint8_t flags = (uint8_t)next_random();
        uint32_t immediate = (uint32_t)next_random();
        begin();
        put(0, 1); /* opmod */
        put(index & 0xffff, 2);
        put(opcode, 1);
        put(number, 3);
        put(units, 1);
        put(0, 3); /* signature, stream */
        put(flags, 1);
        put(immediate, 4);
        wqe_control(wqe, index, opcode, number, units, flags, htobe32(immediate));
        check(wqe + 16);
    }
}

static void test_fixed_segments(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t address = next_random();
        uint32_t key = (uint32_t)next_random();
        uint32_t bytes = (uint32_t)next_random();
        uint64_t one = next_random();
        uint64_t other = next_random();
        begin();
        put(address, 8);
        put(key, 4);
        put(0, 4);
        check(wqe_remote_address(wqe, address, key));
        begin();
        put(bytes, 4);
        put(key, 4);
        put(address, 8);
        check(wqe_data(wqe, address, key, bytes));
        begin();
        put(other, 8); /* swap */
        put(one, 8);   /* compare */
        check(wqe_compare_swap(wqe, one, other));
        begin();
        put(one, 8);
        put(0, 8);
        check(wqe_fetch_add(wqe, one));
    }
}

static void test_inline(void **state)
{
    uint8_t data[1000];
    (void)state;
    for (uint32_t bytes = 0; bytes <= 960; bytes++) {
        begin();
        put(0x80000000u | bytes, 4);
        for (uint32_t i = 0; i < bytes; i++) {
            data[i] = (uint8_t)next_random();
            put(data[i], 1);
        }
        /* Units of 16; what is left of the last is nobody's. */
        uint32_t units = (4 + bytes + 15) / 16;
        end = units * 16;
        assert_int_equal(wqe_inline_bytes(bytes), units * 16);
        check(wqe_inline(wqe, data, bytes));
    }
}

static void test_blocks(void **state)
{
    (void)state;
    for (uint32_t units = 1; units <= WQE_UNITS_MAX; units++) {
        assert_int_equal(wqe_blocks(units * 16), (units + 3) / 4);
        assert_true(wqe_blocks(units * 16) <= WQE_BLOCKS_MAX);
    }
}

/* A header in the WQE and a body that is gathered, in any order and number: what a batch of calls
 * with large arguments is. */
static void test_hybrid(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        begin();
        uint32_t immediate = (uint32_t)next_random();
        uint64_t address = next_random();
        uint32_t key = (uint32_t)next_random();
        uint32_t pieces = 1 + (uint32_t)(next_random() % 6);
        uint8_t *place = wqe + sizeof(struct mlx5_wqe_ctrl_seg);
        end = 16;
        put(address, 8);
        put(key, 4);
        put(0, 4);
        place = wqe_remote_address(place, address, key);
        for (uint32_t piece = 0; piece < pieces; piece++) {
            if (next_random() >> 40 & 1) {
                uint8_t header[64];
                uint32_t bytes = (uint32_t)(next_random() >> 20) % 65;
                put(0x80000000u | bytes, 4);
                for (uint32_t i = 0; i < bytes; i++) {
                    header[i] = (uint8_t)next_random();
                    put(header[i], 1);
                }
                end = (end + 15) & ~15u;
                place = wqe_inline(place, header, bytes);
            } else {
                uint32_t bytes = 1 + (uint32_t)(next_random() >> 33);
                uint64_t body = next_random();
                put(bytes, 4);
                put(key, 4);
                put(body, 8);
                place = wqe_data(place, body, key, bytes);
            }
        }
        uint32_t whole = end;
        end = 0;
        put(0x123409, 4);
        put(0xabcdef00u | whole / 16, 4);
        put(0x0000000a, 4);
        put(immediate, 4);
        end = whole;
        wqe_control(wqe, 0x77771234, MLX5_OPCODE_RDMA_WRITE_IMM, 0xabcdef,
                    (uint32_t)(place - wqe) / 16, MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED,
                    htobe32(immediate));
        check(place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control), cmocka_unit_test(test_fixed_segments),
        cmocka_unit_test(test_inline),  cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_hybrid),
    };
    random_state = SEED;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
