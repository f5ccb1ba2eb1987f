/* contract_pieces.c: WRITEs and READs whose memory is in several places, and queue pairs with a long send
 * queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "nic/queue.h"
#include "pair.h"

static struct nic_piece piece_of(const struct pair *pair, uint32_t from, uint32_t bytes)
{
    return (struct nic_piece){.address = (uint64_t)(uintptr_t)pair->source + from,
                              .bytes = bytes,
                              .local_key = pair->source_memory.local_key};
}

/* Cuts `bytes` into so many pieces that lie apart, some of them empty. */
static void cut(const struct pair *pair, uint32_t bytes, struct nic_piece *pieces, uint32_t count)
{
    uint32_t left = bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t some = i == count - 1 ? left : i % 3 == 2 ? 0 : left / (count - i);
        pieces[i] = piece_of(pair, 8192 * i + i, some);
        left -= some;
    }
}

static struct nic_transfer to_ring(const struct pair *pair, uint32_t bytes)
{
    return pair_write(pair, 0, 5, bytes, 0);
}

static void expect_in_ring(const struct pair *pair, const struct nic_piece *pieces, uint32_t count)
{
    const uint8_t *at = pair->ring + 5;
    for (uint32_t i = 0; i < count; i++) {
        assert_memory_equal(at, (const void *)(uintptr_t)pieces[i].address, pieces[i].bytes);
        at += pieces[i].bytes;
    }
    assert_int_equal(pair->ring[4], 0xaa);
    assert_int_equal(*at, 0xaa);
}

void test_pieces(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    const uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 31, most, most + 1, 4096, 20000};
    struct nic_piece pieces[NIC_PIECES_MAX];
    assert_in_range(pair->near.nic->pieces_max, 1, NIC_PIECES_MAX);
    for (uint32_t i = 0; i < PAIR_BYTES; i++) {
        pair->source[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t count = 1; count <= pair->near.nic->pieces_max; count++) {
            const bool copied = sizes[i] <= most && count % 2 == 0;
            const struct nic_transfer transfer = to_ring(pair, sizes[i]);
            cut(pair, sizes[i], pieces, count);
            memset(pair->ring, 0xaa, PAIR_BYTES);
            operations->post_pieces(pair->sender, false, &transfer, pieces, count,
                                    NIC_POST_SIGNALED | (copied ? NIC_POST_INLINE : 0));
            operations->ring_doorbell(pair->sender);
            inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
            assert_int_equal(inbox_last(&pair->near)->kind, NIC_COMPLETION_SEND);
            expect_in_ring(pair, pieces, count);
        }
    }
    inbox_expect_silence(&pair->far);
}

void test_pieces_read(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_piece pieces[NIC_PIECES_MAX];
    for (uint32_t i = 0; i < 64; i++) {
        pair->box[i] = (uint8_t)(i + 100);
    }
    for (uint32_t count = 1; count <= pair->near.nic->pieces_max; count++) {
        const struct nic_transfer transfer = {.remote_address = (uint64_t)(uintptr_t)pair->box,
                                              .bytes = 64,
                                              .remote_key = pair->box_memory.remote_key};
        uint32_t at = 0;
        cut(pair, 64, pieces, count);
        memset(pair->source, 0xaa, PAIR_BYTES);
        operations->post_pieces(pair->sender, true, &transfer, pieces, count, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
        assert_int_equal(inbox_last(&pair->near)->kind, NIC_COMPLETION_SEND);
        for (uint32_t i = 0; i < count; i++) {
            const uint8_t *place = (const uint8_t *)(uintptr_t)pieces[i].address;
            assert_memory_equal(place, pair->box + at, pieces[i].bytes);
            assert_int_equal(place[pieces[i].bytes], 0xaa);
            at += pieces[i].bytes;
        }
    }
}

/* The peer gets the immediate when all pieces are there. */
void test_pieces_immediate(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    const uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 31, most, most + 1, 20000};
    struct nic_piece pieces[NIC_PIECES_MAX];
    for (uint32_t i = 0; i < PAIR_BYTES; i++) {
        pair->source[i] = (uint8_t)(i * 3 + i / 253);
    }
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t count = 1; count <= pair->near.nic->pieces_max; count++) {
            const bool copied = sizes[i] <= most && count % 2 == 0;
            struct nic_transfer transfer = to_ring(pair, sizes[i]);
            transfer.immediate = 1000 * i + count;
            cut(pair, sizes[i], pieces, count);
            memset(pair->ring, 0xaa, PAIR_BYTES);
            operations->post_pieces(pair->sender, false, &transfer, pieces, count,
                                    NIC_POST_IMMEDIATE | NIC_POST_SIGNALED |
                                        (copied ? NIC_POST_INLINE : 0));
            operations->ring_doorbell(pair->sender);
            inbox_wait(&pair->far, 1);
            assert_int_equal(inbox_last(&pair->far)->kind, NIC_COMPLETION_RECEIVE);
            assert_int_equal(inbox_last(&pair->far)->immediate, 1000 * i + count);
            expect_in_ring(pair, pieces, count);
            inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
            operations->refill(pair->far.nic);
            pair->far.count = 0;
        }
    }
}

/* Those that are copied may be anywhere and need no key; of others, each needs its own. */
void test_pieces_keys(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    const uint32_t count = pair->near.nic->pieces_max;
    struct nic_piece pieces[NIC_PIECES_MAX];
    uint8_t memory[NIC_PIECES_MAX][4];
    struct nic_transfer transfer = to_ring(pair, 4 * count);
    if (pair->near.nic->inline_bytes_max >= 4 * count) {
        for (uint32_t i = 0; i < count; i++) {
            memset(memory[i], (int)i + 1, sizeof(memory[i]));
            pieces[i] = (struct nic_piece){.address = (uint64_t)(uintptr_t)memory[i], .bytes = 4};
        }
        memset(pair->ring, 0xaa, PAIR_BYTES);
        operations->post_pieces(pair->sender, false, &transfer, pieces, count,
                                NIC_POST_SIGNALED | NIC_POST_INLINE);
        operations->ring_doorbell(pair->sender);
        memset(memory, 0, sizeof(memory));
        inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(pair->ring[5 + 4 * i] | pair->ring[8 + 4 * i], i + 1);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        pieces[i] = piece_of(pair, 64 * i, 4);
    }
    pieces[count - 1].local_key += 0x100;
    memset(pair->ring, 0xaa, PAIR_BYTES);
    operations->post_pieces(pair->sender, false, &transfer, pieces, count, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
    assert_int_equal(inbox_last(&pair->near)->kind, NIC_COMPLETION_ERROR);
    assert_int_equal(inbox_last(&pair->near)->status, NIC_ERROR_LOCAL);
    assert_int_equal(pair->ring[5 + 4 * (count - 1)], 0xaa);
}

/* WQEs of all lengths, several times round the ring. */
void test_pieces_wrap(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    const uint32_t most = pair->near.nic->inline_bytes_max;
    struct nic_piece pieces[NIC_PIECES_MAX];
    for (uint32_t round = 0; round < 600; round++) {
        const uint32_t count = 1 + round * 5 % pair->near.nic->pieces_max;
        const bool copied = round % 3 == 0;
        const uint32_t bytes = copied ? round * 11 % (most + 1) : 16 * count;
        const struct nic_transfer transfer = pair_write(pair, 0, 512 * (round % 64), bytes, 0);
        cut(pair, bytes, pieces, count);
        memset(pair->source, (int)(round % 255) + 1, 8192 * count + bytes);
        operations->post_pieces(pair->sender, false, &transfer, pieces, count,
                                NIC_POST_SIGNALED | (copied ? NIC_POST_INLINE : 0));
        operations->ring_doorbell(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, round + 1);
        pair->near.count = 0;
        if (bytes > 0) {
            assert_int_equal(pair->ring[512 * (round % 64) + bytes - 1], round % 255 + 1);
        }
    }
}

#define DEEP NIC_SEND_DEPTH_MAX

/* It takes so many WQEs of the longest kind. */
void test_deep(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_queue_pair *deep[2];
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    struct nic *nics[] = {pair->near.nic, pair->far.nic};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(
            nic_queue_pair_create_deep(nics[i], NULL, NULL, DEEP, PAIR_RECEIVES, &deep[i], NULL),
            CRPC_OK);
        assert_int_equal(nic_send_room(deep[i]), DEEP);
    }
    pair_connect(deep[0], deep[1], &transport);
    for (uint32_t round = 0; round < 3; round++) {
        memset(pair->source, (int)round + 1, 4096);
        for (uint32_t i = 0; i < DEEP; i++) {
            struct nic_transfer write =
                pair_write(pair, 0, 512 * i, pair->near.nic->inline_bytes_max, 0);
            operations->post_write(deep[0], &write, i == DEEP - 1 ? NIC_POST_SIGNALED : 0);
        }
        assert_int_equal(nic_send_room(deep[0]), 0);
        operations->ring_doorbell(deep[0]);
        inbox_wait_completed(&pair->near, deep[0], DEEP * (round + 1));
        for (uint32_t i = 0; i < DEEP; i++) {
            assert_int_equal(pair->ring[512 * i], round + 1);
        }
    }
    operations->queue_pair_destroy(deep[0]);
    operations->queue_pair_destroy(deep[1]);
}
