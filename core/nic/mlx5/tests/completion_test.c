/* completion_test.c: a completion queue in plain memory, written by a model of the device
 * (cq_writer.c) and by hand.
 */
#include "cq_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* As poll does: the layout is a constant where it matters. */
static const struct mlx5_cqe64 *next(struct completion_queue *queue)
{
    switch (queue->layout) {
    case COMPLETION_PLAIN:
        return completion_queue_next(queue, COMPLETION_PLAIN);
    case COMPLETION_COMPRESSED:
        return completion_queue_next(queue, COMPLETION_COMPRESSED);
    default:
        return completion_queue_next(queue, COMPLETION_ENHANCED);
    }
}

static void advance(struct completion_queue *queue)
{
    switch (queue->layout) {
    case COMPLETION_PLAIN:
        completion_queue_advance(queue, COMPLETION_PLAIN);
        return;
    case COMPLETION_COMPRESSED:
        completion_queue_advance(queue, COMPLETION_COMPRESSED);
        return;
    default:
        completion_queue_advance(queue, COMPLETION_ENHANCED);
    }
}

/* ---- Random completions ---------------------------------------------------------------------- */

static void expect_nothing(struct writer *writer)
{
    if (next(&writer->queue)) {
        print_error("seed %llu: at %u there is a completion that nobody wrote\n",
                    (unsigned long long)writer->options.seed, writer->queue.consumer);
        fail();
    }
}

static void take(struct writer *writer, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct mlx5_cqe64 *entry = next(&writer->queue);
        if (!entry) {
            print_error("seed %llu: the completion at %u is not seen\n",
                        (unsigned long long)writer->options.seed, writer->queue.consumer);
            fail();
        }
        if (writer_pick(writer, 8) == 0) {
            assert_ptr_equal(next(&writer->queue), entry); /* looking again changes nothing */
        }
        writer_check(writer, entry);
        advance(&writer->queue);
    }
}

static void run(const struct writer_options *options, uint32_t completions)
{
    struct writer *writer = writer_new(options);
    expect_nothing(writer);
    while (writer->taken < completions) {
        for (uint32_t i = writer_pick(writer, 6); i > 0 && writer_write(writer); i--) {
            continue;
        }
        uint32_t ready = writer_ready(writer);
        take(writer, writer_pick(writer, 3) ? ready : writer_pick(writer, ready + 1));
        if (writer_ready(writer) == 0) {
            expect_nothing(writer);
        }
        if (writer_pick(writer, 4) != 0) {
            completion_queue_release(&writer->queue);
            writer_check_record(writer);
        }
    }
    assert_int_equal(writer->queue.consumer, writer->taken);
    if (options->block_max > 1) {
        assert_true(writer->blocks > completions / options->entries / 4);
        assert_true(writer->compressed > completions / 4);
    }
    writer_delete(writer);
}

static void run_all(enum completion_layout layout, uint32_t block_max)
{
    static const uint8_t minis[] = {COMPLETION_MINI_HASH, COMPLETION_MINI_CHECKSUM,
                                    COMPLETION_MINI_STRIDE | COMPLETION_MINI_CHECKSUM};
    static const uint32_t rings[] = {1, 2, 4, 8, 16, 64, 256};
    for (uint32_t ring = 0; ring < sizeof(rings) / sizeof(rings[0]); ring++) {
        for (uint32_t kind = 0; kind < 8; kind++) {
            struct writer_options options = {
                .layout = layout,
                .responder = kind & 1,
                .entry_bytes = kind & 4 ? 128 : 64,
                .mini = kind & 1 ? minis[(kind >> 1 & 1) + (kind >> 2)] : minis[0],
                .entries = rings[ring],
                .block_max = block_max ? block_max : rings[ring],
                .error_one_in = 7,
                .seed = 1000 * ring + 10 * kind + layout,
            };
            if (layout != COMPLETION_PLAIN && options.entries == 1) {
                continue;
            }
            /* More laps than the 256 that the enhanced layout tells apart. */
            run(&options, 3000 * (options.entries < 32 ? options.entries : 32));
        }
    }
}

static void test_plain(void **state)
{
    (void)state;
    run_all(COMPLETION_PLAIN, 1);
}

static void test_compressed(void **state)
{
    (void)state;
    run_all(COMPLETION_COMPRESSED, 0);
}

static void test_enhanced(void **state)
{
    (void)state;
    run_all(COMPLETION_ENHANCED, 7);
}

/* The index that the device is told has 24 bits, and ours 32. */
static void test_index_wrap(void **state)
{
    static const enum completion_layout layouts[] = {COMPLETION_PLAIN, COMPLETION_COMPRESSED,
                                                     COMPLETION_ENHANCED};
    static const uint32_t starts[] = {0xffff00u, 0xffffff00u};
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct writer_options options = {.layout = layouts[i % 3],
                                         .mini = COMPLETION_MINI_HASH,
                                         .entries = 16,
                                         .entry_bytes = 64,
                                         .block_max = i % 3 == 0   ? 1
                                                      : i % 3 == 1 ? 16
                                                                   : 7,
                                         .error_one_in = 10,
                                         .seed = i};
        struct writer *writer = writer_new(&options);
        uint32_t start = starts[i / 3];
        uint8_t before = (uint8_t)((start >> 4) - 1);
        for (uint32_t place = 0; place < 16; place++) {
            writer_place(writer, place)[62] = before;
            writer_place(writer, place)[63] = (uint8_t)(0xf0 | (before & 1));
        }
        writer->producer = writer->taken = start;
        completion_queue_start(&writer->queue, start);
        writer->record[0] = htobe32(start & 0xffffffu);
        for (uint32_t round = 0; round < 400; round++) {
            while (writer_write(writer)) {
                continue;
            }
            take(writer, writer_ready(writer));
            expect_nothing(writer);
            completion_queue_release(&writer->queue);
            writer_check_record(writer);
        }
        assert_true(writer->queue.consumer - start > 400 * 16 / 2);
        assert_int_equal(be32toh(writer->record[0]), writer->queue.consumer & 0xffffffu);
        writer_delete(writer);
    }
}

/* ---- By hand --------------------------------------------------------------------------------- */

static struct writer *hand(enum completion_layout layout, uint32_t entries)
{
    struct writer_options options = {.layout = layout,
                                     .mini = COMPLETION_MINI_HASH,
                                     .entries = entries,
                                     .entry_bytes = 64,
                                     .block_max = 1,
                                     .error_one_in = 1000,
                                     .seed = 1};
    return writer_new(&options);
}

static void put_entry(struct writer *writer, uint32_t index, uint8_t opcode, uint32_t number,
                      uint8_t format)
{
    uint8_t *place = writer_place(writer, index);
    uint32_t lap = index / writer->options.entries;
    memset(place, 0, 64);
    place[57] = (uint8_t)(number >> 16);
    place[58] = (uint8_t)(number >> 8);
    place[59] = (uint8_t)number;
    place[62] = (uint8_t)lap;
    place[63] = (uint8_t)(opcode << 4 | format | (lap & 1));
}

static void put_count(struct writer *writer, uint32_t index, uint32_t count)
{
    uint32_t value = htobe32(count);
    memcpy(writer_place(writer, index) + 44, &value, 4);
}

/* The device writes nothing so; if it did, it would have to be seen and passed. */
static void test_malformed_block(void **state)
{
    static const uint32_t counts[] = {0, 17, 18, 0x10000, 0x80000000u, 0xffffffffu};
    (void)state;
    for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct writer *writer = hand(COMPLETION_COMPRESSED, 16);
        put_entry(writer, 0, MLX5_CQE_REQ, 5, 0x0c);
        put_count(writer, 0, counts[i]);
        put_entry(writer, 1, MLX5_CQE_REQ, 6, 0);
        const struct mlx5_cqe64 *entry = next(&writer->queue);
        assert_non_null(entry);
        assert_int_equal(completion_opcode(entry), MLX5_CQE_INVALID);
        assert_ptr_equal(next(&writer->queue), entry);
        advance(&writer->queue);
        completion_queue_release(&writer->queue);
        assert_int_equal(be32toh(writer->record[0]), 1);
        entry = next(&writer->queue);
        assert_non_null(entry);
        assert_int_equal(completion_opcode(entry), MLX5_CQE_REQ);
        assert_int_equal(completion_number(entry), 6);
        advance(&writer->queue);
        expect_nothing(writer);
        assert_int_equal(writer->queue.blocks, 0);
        writer_delete(writer);
    }
}

static void test_malformed_array(void **state)
{
    (void)state;
    /* First of all, with no title. */
    struct writer *writer = hand(COMPLETION_ENHANCED, 16);
    put_entry(writer, 0, 2, 0, 0x0c);
    assert_int_equal(completion_opcode(next(&writer->queue)), MLX5_CQE_INVALID);
    advance(&writer->queue);
    expect_nothing(writer);
    /* More than fit. */
    for (uint8_t minis = 7; minis < 16; minis++) {
        uint32_t at = writer->queue.consumer;
        put_entry(writer, at, MLX5_CQE_REQ, 9, 0);
        put_entry(writer, at + 1, minis, 0, 0x0c);
        assert_int_equal(completion_number(next(&writer->queue)), 9);
        advance(&writer->queue);
        assert_int_equal(completion_opcode(next(&writer->queue)), MLX5_CQE_INVALID);
        advance(&writer->queue);
        completion_queue_release(&writer->queue);
        assert_int_equal(be32toh(writer->record[0]), at + 2);
        expect_nothing(writer);
    }
    writer_delete(writer);
}

/* Random bytes for a device: whatever they are, the reader neither hangs nor leaves the ring. */
static void test_garbage(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 3000; seed++) {
        struct writer *writer =
            hand(seed % 2 ? COMPLETION_COMPRESSED : COMPLETION_ENHANCED, 1u << (seed % 6));
        writer->random = seed;
        for (uint32_t round = 0; round < 64; round++) {
            uint8_t *place = writer_place(writer, writer->queue.consumer);
            for (uint32_t i = 0; i < 64; i++) {
                place[i] = (uint8_t)writer_random(writer);
            }
            if (writer_pick(writer, 2)) { /* else hardly any count would be possible */
                memset(place + 44, 0, 3);
            }
            if (writer_pick(writer, 2)) {
                uint32_t lap = writer->queue.consumer / writer->options.entries;
                place[62] = (uint8_t)lap;
                place[63] = (uint8_t)((place[63] & 0xfe) | (lap & 1));
            }
            for (uint32_t i = 0; i < 100 && next(&writer->queue); i++) {
                advance(&writer->queue);
                completion_queue_release(&writer->queue);
            }
            completion_queue_drop(&writer->queue, writer_pick(writer, 1u << 24));
        }
        writer_delete(writer);
    }
}

/* ---- Dropped --------------------------------------------------------------------------------- */

#define VICTIM 0x123456u

/* Random completions, many of them of a queue pair that goes at a random moment: of what is there
 * then, its own are DROPPED, and nothing else has changed. */
static void run_drop(const struct writer_options *options)
{
    struct writer *writer = writer_new(options);
    for (uint32_t round = 0; round < 2000; round++) {
        for (uint32_t i = writer_pick(writer, 6); i > 0 && writer_write(writer); i--) {
            continue;
        }
        take(writer, writer_pick(writer, writer_ready(writer) + 1));
        completion_queue_release(&writer->queue);
        if (writer_ready(writer) == 0) {
            continue;
        }
        uint32_t at =
            (writer->taken + writer_pick(writer, writer_ready(writer))) % options->entries;
        const uint8_t *number = writer->expected[at].bytes + 57;
        uint32_t victim = (uint32_t)(number[0] << 16 | number[1] << 8 | number[2]);
        completion_queue_drop(&writer->queue, victim);
        bool any = false;
        while (writer_ready(writer) > 0) {
            const struct mlx5_cqe64 *entry = next(&writer->queue);
            struct writer_expected *expected = &writer->expected[writer->taken % options->entries];
            assert_non_null(entry);
            if (memcmp(expected->bytes + 57, number, 3) == 0) {
                if (completion_opcode(entry) != COMPLETION_DROPPED) {
                    print_error("seed %llu: the completion at %u was not dropped\n",
                                (unsigned long long)options->seed, writer->taken);
                    fail();
                }
                any = true;
                /* A receive that was taken has to be freed: where it was is still said. */
                if (options->responder) {
                    assert_memory_equal((const uint8_t *)entry + 60, expected->bytes + 60, 2);
                }
                writer->taken++;
            } else {
                writer_check(writer, entry);
            }
            advance(&writer->queue);
        }
        assert_true(any);
        expect_nothing(writer);
        completion_queue_release(&writer->queue);
        /* What comes next is of another connection: a new title in the enhanced layout. */
        writer->titled = false;
    }
    writer_delete(writer);
}

static void test_drop(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 24; kind++) {
        struct writer_options options = {
            .layout = (enum completion_layout)(kind % 3),
            .mini = COMPLETION_MINI_HASH,
            .responder = kind / 3 & 1,
            .entry_bytes = kind / 6 & 1 ? 128 : 64,
            .entries = kind / 12 ? 64 : 16,
            .block_max = kind % 3 == 0   ? 1
                         : kind % 3 == 1 ? 12
                                         : 7,
            .error_one_in = 7,
            .seed = 77 + kind,
        };
        run_drop(&options);
    }
}

static void count_removed(void *argument, const struct mlx5_cqe64 *entry)
{
    uint16_t *next = argument;
    assert_int_equal(be16toh(entry->wqe_counter), (*next)++); /* oldest first */
}

/* Three queue pairs at random in a full queue, one of which goes: the others' completions stay in their order,
 * and as many more have room at once. */
static void test_remove(void **state)
{
    (void)state;
    struct writer *writer = hand(COMPLETION_PLAIN, 16);
    uint16_t written[3] = {0}, taken[3] = {0};
    uint32_t producer = 0;
    for (uint32_t round = 0; round < 5000; round++) {
        while (producer - be32toh(writer->record[0]) < 16) {
            uint32_t who = writer_pick(writer, 3);
            uint16_t counter = htobe16(written[who]++);
            put_entry(writer, producer, MLX5_CQE_REQ, VICTIM + who, 0);
            memcpy(writer_place(writer, producer++) + 60, &counter, 2);
        }
        uint32_t gone = writer_pick(writer, 3);
        uint32_t before = be32toh(writer->record[0]);
        uint16_t left = (uint16_t)(written[gone] - taken[gone]);
        completion_queue_remove(&writer->queue, VICTIM + gone, count_removed, &taken[gone]);
        assert_int_equal(taken[gone], written[gone]);
        assert_int_equal(be32toh(writer->record[0]), before + left);
        for (uint32_t i = writer_pick(writer, 17 - left); i > 0; i--) {
            const struct mlx5_cqe64 *entry = next(&writer->queue);
            assert_non_null(entry);
            uint32_t who = completion_number(entry) - VICTIM;
            assert_in_range(who, 0, 2);
            assert_int_equal(be16toh(entry->wqe_counter), taken[who]++);
            advance(&writer->queue);
        }
        completion_queue_release(&writer->queue);
    }
    writer_delete(writer);
}

/* Two queue pairs in turn, and a block of each; one goes. */
static void test_drop_blocks(void **state)
{
    (void)state;
    struct writer *writer = hand(COMPLETION_COMPRESSED, 32);
    put_entry(writer, 0, MLX5_CQE_REQ, VICTIM, 0);
    put_entry(writer, 1, MLX5_CQE_REQ, VICTIM + 1, 0);
    /* A mini CQE that looks like an entry of the victim must stay as it is. */
    put_entry(writer, 2, MLX5_CQE_REQ, VICTIM + 1, 0x0c);
    put_count(writer, 2, 9);
    put_entry(writer, 3, MLX5_CQE_REQ, VICTIM, 0);
    put_entry(writer, 10, MLX5_CQE_REQ, VICTIM, 0);
    put_entry(writer, 11, MLX5_CQE_REQ_ERR, VICTIM, 0);
    put_entry(writer, 12, MLX5_CQE_REQ, VICTIM, 0x0c);
    put_count(writer, 12, 3);
    uint8_t arrays[2][64];
    memcpy(arrays[0], writer_place(writer, 3), 64);
    memcpy(arrays[1], writer_place(writer, 10), 64);
    completion_queue_drop(&writer->queue, VICTIM);
    assert_memory_equal(writer_place(writer, 3), arrays[0], 64);
    assert_memory_equal(writer_place(writer, 10), arrays[1], 64);
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < 15; i++) {
        const struct mlx5_cqe64 *entry = next(&writer->queue);
        assert_non_null(entry);
        bool is = completion_opcode(entry) == COMPLETION_DROPPED;
        assert_int_equal(is, i == 0 || i >= 11);
        dropped += is;
        advance(&writer->queue);
        if (i == 5) { /* in the middle of a block nothing of it is dropped for another */
            completion_queue_drop(&writer->queue, VICTIM);
        }
    }
    assert_int_equal(dropped, 5);
    expect_nothing(writer);
    writer_delete(writer);
}

/* Half a lap: a title, an array of so many, and single completions. */
static void run_half_lap(struct writer *writer, uint32_t minis)
{
    uint32_t at = writer->queue.consumer;
    put_entry(writer, at, MLX5_CQE_REQ, 7, 0);
    put_entry(writer, at + 1, (uint8_t)(minis - 1), 0, 0x0c);
    for (uint32_t i = 0; i < 8; i++) {
        if (i > minis) {
            if (next(&writer->queue)) {
                print_error("at %u there is a completion that nobody wrote\n", at + i);
                fail();
            }
            put_entry(writer, at + i, MLX5_CQE_REQ, 7, 0);
        }
        const struct mlx5_cqe64 *entry = next(&writer->queue);
        assert_non_null(entry);
        assert_int_equal(completion_number(entry), 7);
        advance(&writer->queue);
    }
    completion_queue_release(&writer->queue);
}

/* Places within arrays are not written, so they may have the iteration count of a lap 256 laps ago,
 * or what was there before the first: not a completion, however long ago that was. */
static void test_stale_iteration(void **state)
{
    (void)state;
    struct writer *writer = hand(COMPLETION_ENHANCED, 16);
    for (uint32_t lap = 0; lap < 600; lap++) {
        run_half_lap(writer, lap % 256 == 0 ? 1 : 4);
        run_half_lap(writer, lap % 256 == 255 ? 1 : 4);
    }
    writer_delete(writer);
}

/* ---- Arming, payload ------------------------------------------------------------------------- */

static void expect_arm(struct writer *writer, bool solicited, const char *word,
                       const char *doorbell)
{
    memset(writer->doorbell, 0xee, sizeof(writer->doorbell));
    completion_queue_arm(&writer->queue, solicited);
    assert_memory_equal(&writer->record[1], word, 4);
    assert_memory_equal(writer->doorbell + 0x20, doorbell, 8);
    for (uint32_t i = 0; i < sizeof(writer->doorbell); i++) {
        assert_true((i >= 0x20 && i < 0x28) || writer->doorbell[i] == 0xee);
    }
}

static void test_arm(void **state)
{
    (void)state;
    struct writer *writer = hand(COMPLETION_PLAIN, 16);
    writer->queue.number = 0xabcdef;
    writer->record[0] = 0x11223344;
    expect_arm(writer, false, "\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\xab\xcd\xef");
    expect_arm(writer, true, "\x01\x00\x00\x00", "\x01\x00\x00\x00\x00\xab\xcd\xef");
    writer->queue.consumer = 0x12345678; /* 24 bits of it, and of taken, not released, entries */
    expect_arm(writer, false, "\x00\x34\x56\x78", "\x00\x34\x56\x78\x00\xab\xcd\xef");
    static const uint8_t sequence[] = {0x10, 0x20, 0x30, 0x00, 0x10};
    for (uint32_t i = 0; i < sizeof(sequence); i++) {
        char word[4] = {(char)sequence[i], 0x34, 0x56, 0x78};
        char doorbell[8] = {(char)sequence[i], 0x34,       0x56,      0x78, 0,
                            (char)0xab,        (char)0xcd, (char)0xef};
        completion_queue_event(&writer->queue);
        expect_arm(writer, false, word, doorbell);
        expect_arm(writer, false, word, doorbell); /* without an event it is the same arm */
    }
    assert_int_equal(writer->record[0], 0x11223344);
    writer_delete(writer);
}

static void test_payload(void **state)
{
    (void)state;
    for (uint32_t bytes = 64; bytes <= 128; bytes *= 2) {
        struct writer_options options = {.entries = 4,
                                         .entry_bytes = bytes,
                                         .block_max = 1,
                                         .error_one_in = 1000,
                                         .mini = COMPLETION_MINI_HASH};
        struct writer *writer = writer_new(&options);
        for (uint32_t index = 0; index < 8; index++) {
            put_entry(writer, index, MLX5_CQE_RESP_SEND, 1, 0);
            const struct mlx5_cqe64 *entry = next(&writer->queue);
            assert_ptr_equal(entry, writer->memory + (index % 4 + 1) * bytes - 64);
            assert_null(completion_payload(&writer->queue, entry));
            put_entry(writer, index, MLX5_CQE_RESP_SEND, 1, 0x04);
            assert_ptr_equal(completion_payload(&writer->queue, entry),
                             writer->memory + (index % 4 + 1) * bytes - 64);
            if (bytes == 128) {
                put_entry(writer, index, MLX5_CQE_RESP_SEND, 1, 0x08);
                assert_ptr_equal(completion_payload(&writer->queue, entry),
                                 writer->memory + index % 4 * bytes);
            }
            advance(&writer->queue);
        }
        writer_delete(writer);
    }
}

/* Other owner bits than the reader's lap say that an entry is not there, whatever else it has. */
static void test_owner(void **state)
{
    (void)state;
    struct writer *writer = hand(COMPLETION_PLAIN, 4);
    for (uint32_t index = 0; index < 40; index++) {
        expect_nothing(writer);
        put_entry(writer, index, MLX5_CQE_REQ, index, 0);
        writer_place(writer, index)[63] ^= 1;
        expect_nothing(writer);
        writer_place(writer, index)[63] ^= 1;
        assert_int_equal(completion_number(next(&writer->queue)), index);
        advance(&writer->queue);
    }
    writer_delete(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_enhanced),
        cmocka_unit_test(test_index_wrap),
        cmocka_unit_test(test_malformed_block),
        cmocka_unit_test(test_malformed_array),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_drop_blocks),
        cmocka_unit_test(test_arm),
        cmocka_unit_test(test_payload),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_stale_iteration),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
