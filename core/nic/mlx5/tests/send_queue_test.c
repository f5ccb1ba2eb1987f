/* send_queue_test.c: a send queue in plain memory, with a register that is an array: where WQEs lie,
 * what fills the ring's end, what the device is told. Room and wrap-around are compared with a
 * model that counts blocks; the device's view is checked by walking the ring as it would.
 */
#include "nic/mlx5/send_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS_MAX 64u
#define PUSH_BYTES 256u
#define NUMBER 0x00beefu
#define RANDOM_SEED 42u

struct rig {
    _Alignas(64) uint8_t ring[BLOCKS_MAX * 64];
    _Alignas(64) uint8_t device_register[2 * PUSH_BYTES + 64];
    uint32_t record[2];
    struct doorbell doorbell;
    struct send_queue queue;
};

static struct rig rig;

static void set_up(uint32_t blocks, uint32_t start)
{
    memset(&rig, 0xa5, sizeof(rig));
    rig.doorbell = (struct doorbell){.address = rig.device_register,
                                     .push_bytes = PUSH_BYTES,
                                     .copy = copy_function_of(copy_choose())};
    rig.queue = (struct send_queue){.buffer = rig.ring,
                                    .mask = blocks - 1,
                                    .producer = start,
                                    .rung = start,
                                    .consumer = start,
                                    .number = NUMBER,
                                    .record = &rig.record[1],
                                    .doorbell = &rig.doorbell};
}

/* Writes a WQE of so many units, all of its body being `fill`. False if there was no room. */
static bool post(uint32_t units, uint8_t fill, uint32_t *filled)
{
    uint8_t *wqe = send_queue_begin(&rig.queue, wqe_blocks(units * 16), filled);
    if (!wqe) {
        return false;
    }
    memset(wqe + 16, fill, (units - 1) * 16);
    send_queue_end(&rig.queue, wqe, wqe + units * 16, MLX5_OPCODE_RDMA_WRITE,
                   MLX5_WQE_CTRL_CQ_UPDATE, fill);
    return true;
}

static uint32_t be32_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* What a device finds at a position; returns its blocks. */
static uint32_t expect_wqe(uint32_t position, uint8_t opcode, uint32_t units)
{
    const uint8_t *wqe = rig.ring + (size_t)(position % (rig.queue.mask + 1)) * 64;
    assert_int_equal(be32_at(wqe), (position & 0xffff) << 8 | opcode);
    assert_int_equal(be32_at(wqe + 4), NUMBER << 8 | units);
    return (units + 3) / 4;
}

/* ---- Ring ------------------------------------------------------------------------------------ */

static void test_wrap_everywhere(void **state)
{
    (void)state;
    for (uint32_t position = 0; position < 32; position++) {
        for (uint32_t units = 1; units <= WQE_UNITS_MAX; units++) {
            uint32_t start = 0xfff0u + position; /* 16 bits wrap among them */
            uint32_t blocks = (units + 3) / 4;
            uint32_t run = 32 - start % 32;
            uint32_t fill = run < blocks ? run : 0;
            uint32_t filled = 99;
            set_up(32, start);
            assert_true(post(units, 0x3c, &filled));
            assert_int_equal(filled, fill);
            if (fill) {
                assert_int_equal(expect_wqe(start, MLX5_OPCODE_NOP, fill * 4), fill);
                /* It asks for nothing, and says nothing else. */
                assert_int_equal(be32_at(rig.ring + start % 32 * 64 + 8), 0);
                assert_int_equal(be32_at(rig.ring + start % 32 * 64 + 12), 0);
            }
            assert_int_equal(expect_wqe(start + fill, MLX5_OPCODE_RDMA_WRITE, units), blocks);
            assert_int_equal(rig.queue.producer, start + fill + blocks);
            assert_int_equal(rig.queue.last, start + fill);
            assert_int_equal(rig.queue.rung, start);
            assert_int_equal(rig.queue.consumer, start);
            /* Nothing beyond the ring or in blocks of nobody. */
            for (uint32_t i = fill + blocks; i < 32; i++) {
                const uint8_t *block = rig.ring + (start + i) % 32 * 64;
                for (uint32_t byte = 0; byte < 64; byte++) {
                    assert_int_equal(block[byte], 0xa5);
                }
            }
            for (uint32_t i = 32 * 64; i < sizeof(rig.ring); i++) {
                assert_int_equal(rig.ring[i], 0xa5);
            }
        }
    }
}

static void test_no_room(void **state)
{
    static struct rig before;
    (void)state;
    for (uint32_t position = 0; position < 16; position++) {
        for (uint32_t used = 0; used <= 16; used++) {
            for (uint32_t blocks = 1; blocks <= 16; blocks++) {
                uint32_t filled = 99;
                set_up(16, position);
                rig.queue.consumer = position - used; /* wraps below zero */
                uint32_t run = 16 - position;
                uint32_t fill = run < blocks ? run : 0;
                memcpy(&before, &rig, sizeof(rig));
                void *wqe = send_queue_begin(&rig.queue, blocks, &filled);
                assert_int_equal(wqe != NULL, used + blocks + fill <= 16);
                if (!wqe) {
                    assert_memory_equal(&rig, &before, sizeof(rig));
                    assert_int_equal(filled, 99);
                }
            }
        }
    }
}

/* Many laps and, cheaply, every wrap of the device's 16 bits and of our 32: posts, rings and
 * completions at random, the device's side walking from WQE to WQE. */
static void test_long_run(void **state)
{
    uint64_t random = RANDOM_SEED;
    uint32_t seen_wraps = 0;
    (void)state;
    set_up(64, 0xff000000u);
    uint32_t device = rig.queue.consumer;
    uint32_t told = rig.queue.producer;
    uint32_t nops = 0;
    uint64_t total = 0;
    while (total < 24u << 20) { /* 2^24 blocks to the 32-bit wrap, and as much again past it */
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t units = 1 + (uint32_t)(random >> 33) % (random >> 63 ? 63 : 8);
        uint32_t filled;
        uint32_t room = 64 - (rig.queue.producer - rig.queue.consumer);
        uint32_t run = 64 - rig.queue.producer % 64;
        uint32_t blocks = (units + 3) / 4;
        uint32_t fill = run < blocks ? run : 0;
        assert_int_equal(send_queue_room(&rig.queue), room);
        uint32_t before = rig.queue.producer;
        bool posted = post(units, (uint8_t)units, &filled);
        assert_int_equal(posted, room >= blocks + fill);
        if (posted) {
            assert_int_equal(rig.queue.producer - before, blocks + fill);
            total += blocks + fill;
            seen_wraps += rig.queue.producer < before;
        }
        if (!posted || (random >> 40) % 4 == 0) {
            send_queue_ring(&rig.queue);
            told = rig.queue.producer;
            assert_int_equal(be32toh(rig.record[1]), told & 0xffff);
            while (device != told) {
                const uint8_t *wqe = rig.ring + device % 64 * 64;
                uint8_t opcode = wqe[3];
                uint32_t length = wqe[7] & 0x3f;
                assert_int_equal(be32_at(wqe) >> 8, device & 0xffff);
                assert_true(opcode == MLX5_OPCODE_NOP || opcode == MLX5_OPCODE_RDMA_WRITE);
                nops += opcode == MLX5_OPCODE_NOP;
                if (opcode != MLX5_OPCODE_NOP) {
                    assert_int_equal(be32_at(wqe + 8), MLX5_WQE_CTRL_CQ_UPDATE);
                    if (length > 1) {
                        assert_int_equal(wqe[length * 16 - 1], length);
                    }
                }
                /* In one piece. */
                assert_true(device % 64 + (length + 3) / 4 <= 64);
                device += (length + 3) / 4;
                if ((random >> 44) % 3 != 0) {
                    rig.queue.consumer = device;
                }
            }
            rig.queue.consumer = (random >> 50) % 2 ? device : rig.queue.consumer;
        }
    }
    assert_int_equal(seen_wraps, 1);
    assert_true(nops > 1000);
}

/* ---- Doorbells ------------------------------------------------------------------------------- */

static uint8_t seen_register[sizeof(rig.device_register)];

static void forget_register(void)
{
    memset(rig.device_register, 0x5a, sizeof(rig.device_register));
    memset(seen_register, 0x5a, sizeof(seen_register));
}

static void expect_register(void)
{
    assert_memory_equal(rig.device_register, seen_register, sizeof(seen_register));
}

static void test_ring_nothing(void **state)
{
    static struct rig before;
    (void)state;
    set_up(32, 7);
    memcpy(&before, &rig, sizeof(rig));
    send_queue_ring(&rig.queue);
    assert_memory_equal(&rig, &before, sizeof(rig));
}

/* One WQE is pushed, and its whole blocks with it; two buffers in turn. */
static void test_push_one(void **state)
{
    (void)state;
    set_up(64, 0);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t filled;
        uint32_t first = rig.queue.producer;
        forget_register();
        assert_true(post(1 + i % 16, (uint8_t)i, &filled));
        uint32_t blocks = rig.queue.producer - first;
        if (filled) {
            rig.queue.rung += filled; /* not what is tested here */
            first += filled;
            blocks -= filled;
        }
        send_queue_ring(&rig.queue);
        memcpy(seen_register + i % 2 * PUSH_BYTES, rig.ring + first % 64 * 64, blocks * 64);
        expect_register();
        assert_int_equal(be32toh(rig.record[1]), rig.queue.producer & 0xffff);
        assert_int_equal(rig.record[0], 0xa5a5a5a5u);
        rig.queue.consumer = rig.queue.producer;
    }
    assert_int_equal(rig.queue.rings, 40);
    assert_int_equal(rig.queue.pushes, 40);
}

/* Several that fit into a buffer are one push, more are one plain doorbell: the first 8 bytes of
 * the last. */
static void test_gathered(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 16; start++) {
        for (uint32_t count = 1; count <= 8; count++) {
            for (uint32_t push_bytes = 0; push_bytes <= 256; push_bytes += 64) {
                uint32_t filled;
                set_up(16, start);
                rig.doorbell.push_bytes = push_bytes;
                forget_register();
                for (uint32_t i = 0; i < count; i++) {
                    assert_true(post(4, (uint8_t)i, &filled));
                }
                send_queue_ring(&rig.queue);
                bool pushed = count * 64 <= push_bytes && start + count <= 16;
                assert_int_equal(rig.queue.rings, 1);
                assert_int_equal(rig.queue.pushes, pushed);
                assert_int_equal(rig.queue.rung, start + count);
                assert_int_equal(rig.doorbell.turn, push_bytes);
                if (pushed) {
                    memcpy(seen_register, rig.ring + start * 64, count * 64);
                } else {
                    memcpy(seen_register, rig.ring + (start + count - 1) % 16 * 64, 8);
                }
                expect_register();
                send_queue_ring(&rig.queue); /* nothing more to tell */
                expect_register();
                assert_int_equal(rig.queue.rings, 1);
            }
        }
    }
}

/* Whose turn it is belongs to the register, whoever rings. */
static void test_shared_register(void **state)
{
    static struct rig other;
    (void)state;
    set_up(16, 0);
    memcpy(&other, &rig, sizeof(rig));
    other.queue.buffer = other.ring;
    other.queue.record = &other.record[1];
    other.queue.doorbell = &rig.doorbell;
    for (uint32_t i = 0; i < 12; i++) {
        struct send_queue *queue = i % 3 ? &rig.queue : &other.queue;
        uint32_t filled;
        uint32_t count = i % 4 == 3 ? 5 : 1; /* each fourth a plain doorbell */
        uint8_t *wqe = NULL;
        queue->consumer = queue->producer;
        queue->producer = queue->rung = queue->consumer = 0;
        forget_register();
        for (uint32_t k = 0; k < count; k++) {
            wqe = send_queue_begin(queue, 1, &filled);
            memset(wqe, (int)(i * 8 + k), 64);
            send_queue_end(queue, wqe, wqe + 64, MLX5_OPCODE_SEND, 0, 0);
        }
        send_queue_ring(queue);
        memcpy(seen_register + i % 2 * PUSH_BYTES, wqe, count == 1 ? 64 : 8);
        expect_register();
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void test_copies(void **state)
{
    static _Alignas(64) uint8_t from[1024];
    static _Alignas(64) uint8_t to[1024 + 128];
    static const enum copy_kind kinds[] = {COPY_WORDS, COPY_SSE2, COPY_AVX, COPY_AVX512, COPY_NEON};
    uint32_t possible = 0;
    (void)state;
    for (uint32_t i = 0; i < sizeof(from); i++) {
        from[i] = (uint8_t)(i * 7 + i / 64);
    }
    for (uint32_t kind = 0; kind < 4; kind++) {
        if (!copy_possible(kinds[kind])) {
            print_message("# copy %u is not of this machine\n", kind);
            continue;
        }
        possible++;
        for (uint32_t bytes = 64; bytes <= 512; bytes += 64) {
            for (uint32_t offset = 0; offset <= 256; offset += 64) {
                memset(to, 0xee, sizeof(to));
                copy_function_of(kinds[kind])(to + 64 + offset, from + offset, bytes);
                __asm__ volatile("" ::: "memory");
                barrier_after_doorbell();
                assert_memory_equal(to + 64 + offset, from + offset, bytes);
                for (uint32_t i = 0; i < sizeof(to); i++) {
                    assert_true((i >= 64 + offset && i < 64 + offset + bytes) || to[i] == 0xee);
                }
            }
        }
    }
    assert_true(possible >= 2); /* words, and what the processor has */
    assert_true(copy_possible(copy_choose()));
    assert_int_not_equal(copy_choose(), COPY_WORDS);
    assert_false(copy_possible((enum copy_kind)77));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrap_everywhere), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_long_run),        cmocka_unit_test(test_ring_nothing),
        cmocka_unit_test(test_push_one),        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_shared_register), cmocka_unit_test(test_copies),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
