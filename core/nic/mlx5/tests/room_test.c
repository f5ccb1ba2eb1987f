/* room_test.c: how long send queues are, and how many completions one gives when its queue pair fails. On a simnic device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tests/pair.h"
#include "channel/channel.h"
#include "nic/mlx5/mlx5.h"

static struct pair *open_pair(uint32_t depth, uint32_t inline_bytes, uint32_t pieces)
{
    struct nic_options options = pair_options();
    options.send_depth = depth;
    options.send_completion_depth = 4096;
    options.signal_interval = depth / 2;
    options.inline_bytes = inline_bytes;
    options.pieces = pieces;
    return pair_open(&options);
}

static void post(struct pair *pair, uint32_t count, uint32_t bytes)
{
    const struct nic_transfer write = pair_write(pair, 0, 0, bytes, 0);
    for (uint32_t i = 0; i < count; i++) {
        pair->near.nic->operations->post_write(pair->sender, &write,
                                               i + 1 == count ? NIC_POST_SIGNALED : 0);
    }
}

/* With a full send queue that begins anywhere in the ring, so that a NOP is somewhere among its WQEs, or nowhere. */
static void test_flushed(void **state)
{
    const uint32_t depth = 62;
    uint32_t most = 0;
    (void)state;
    for (uint32_t before = 0; before < 40; before++) {
        struct pair *pair = open_pair(depth, 0, 0);
        const struct completion_queue *sends = &to_mlx5_nic(pair->near.nic)->sends;
        post(pair, before, 8); /* of one block each */
        pair->near.nic->operations->ring_doorbell(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, before);
        post(pair, depth, pair->near.nic->inline_bytes_max); /* of four */
        assert_int_equal(nic_send_room(pair->sender), 0);
        const uint32_t from = sends->consumer;
        pair->sender->operations->queue_pair_fail(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, before + depth);
        inbox_expect_silence(&pair->near);
        const uint32_t places = sends->consumer - from;
        assert_in_range(places, depth, nic_send_places(depth));
        most = places > most ? places : most;
        pair_close(pair);
    }
    assert_int_equal(most, nic_send_places(depth)); /* so that less would be too few */
}

static uint32_t ring_kib(const struct pair *pair)
{
    return (to_mlx5_queue_pair(pair->sender)->queue.mask + 1) * WQE_BLOCK_BYTES / 1024;
}

/* The longest WQEs fill it, wherever they begin. */
static void fill(struct pair *pair)
{
    const uint32_t depth = pair->sender->depth;
    for (uint32_t round = 0; round < 12; round++) {
        post(pair, 1 + round % 5, 8);
        pair->near.nic->operations->ring_doorbell(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
        post(pair, depth, pair->near.nic->inline_bytes_max);
        pair->near.nic->operations->ring_doorbell(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, pair->sender->posted);
        pair->near.count = 0;
    }
    assert_int_equal(pair->near.nic->unknown_completions, 0);
}

/* Of calls: what is copied into a WQE takes four blocks. */
static void test_calls(void **state)
{
    (void)state;
    struct pair *pair = open_pair(62, 0, 0);
    assert_int_equal(pair->near.nic->inline_bytes_max, MLX5_INLINE_BYTES);
    assert_int_equal(pair->near.nic->pieces_max, NIC_PIECES_MAX);
    assert_int_equal(ring_kib(pair), 16);
    fill(pair);
    pair_close(pair);
}

/* Of channels, which have one piece in a WQE, and bind windows. */
static void test_channels(void **state)
{
    (void)state;
    struct pair *pair = open_pair(CHANNEL_SEND_DEPTH, CHANNEL_INLINE_BYTES, 1);
    assert_int_equal(pair->near.nic->inline_bytes_max, CHANNEL_INLINE_BYTES);
    assert_int_equal(pair->near.nic->pieces_max, 1);
    assert_int_equal(ring_kib(pair), 64);
    fill(pair);
    pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flushed),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_channels),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
