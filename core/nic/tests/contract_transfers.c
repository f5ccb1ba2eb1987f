/* contract_transfers.c: what a driver does when all goes well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/mman.h>

#include "contract.h"
#include "pair.h"

#define LARGE_BYTES (16u << 20)

void test_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 32, most, most + 1, 4096, 4097, 1u << 20};
    const uint32_t cases = sizeof(sizes) / sizeof(sizes[0]);
    for (uint32_t i = 0; i < PAIR_BYTES; i++) {
        pair->source[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (uint32_t i = 0; i < cases; i++) {
        struct nic_transfer write = pair_write(pair, 3, 5, sizes[i], 0xfeed0000u + i);
        memset(pair->ring, 0xaa, PAIR_BYTES);
        operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        inbox_wait(&pair->far, i + 1);
        const struct nic_completion *completion = inbox_last(&pair->far);
        assert_int_equal(completion->kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(completion->queue_pair_number, pair->receiver->number);
        assert_int_equal(completion->immediate, 0xfeed0000u + i);
        assert_int_equal(completion->byte_count, sizes[i]);
        assert_memory_equal(pair->ring + 5, pair->source + 3, sizes[i]);
        assert_int_equal(pair->ring[4], 0xaa);
        assert_int_equal(pair->ring[5 + sizes[i]], 0xaa);
        inbox_wait_completed(&pair->near, pair->sender, i + 1);
    }
    assert_int_equal(pair->sender->stats.inline_wqes, 4);
    assert_int_equal(pair->sender->stats.wqes, cases);
    assert_int_equal(pair->sender->stats.signaled_wqes, cases);
    assert_int_equal(pair->far.nic->receives_posted, pair->far.nic->receive_depth - cases);
}

/* A payload that is written where the device takes it from. Whether there is a place is for the driver to say, but not when there is none:
 * then an ordinary WRITE makes way for one. */
void test_written(void **state)
{
    struct pair *pair = *state;
    struct nic_queue_pair *sender = pair->sender;
    const struct nic_operations *operations = pair->near.nic->operations;
    const uint32_t rounds = 200; /* the send queue wraps several times */
    uint32_t written = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t bytes = i % 3 == 0 ? NIC_PLACE_BYTES : 1 + i * 7 % NIC_PLACE_BYTES;
        struct nic_transfer write = pair_write(pair, 3, 5, bytes, 0xfeed0000u + i);
        memset(pair->source, (int)i + 1, PAIR_BYTES);
        memset(pair->ring, 0xaa, 2 * NIC_PLACE_BYTES);
        if (i % 5 == 1) { /* in front of it, and rung with it or before */
            struct nic_transfer before = pair_write(pair, 0, PAIR_BYTES - 8, 8, 0);
            operations->post_write(sender, &before, 0);
            if (i % 2 == 0) {
                operations->ring_doorbell(sender);
            }
        }
        if (sender->place) {
            memcpy(sender->place, pair->source + 3, bytes);
            assert_int_equal(operations->post_written(sender, write.remote_address,
                                                      write.remote_key, bytes, write.immediate),
                             1);
            written++;
        } else {
            operations->post_write_immediate(sender, &write, NIC_POST_RING);
        }
        inbox_wait(&pair->far, i + 1);
        assert_int_equal(inbox_last(&pair->far)->immediate, 0xfeed0000u + i);
        assert_int_equal(inbox_last(&pair->far)->byte_count, bytes);
        assert_memory_equal(pair->ring + 5, pair->source + 3, bytes);
        assert_int_equal(pair->ring[4], 0xaa);
        assert_int_equal(pair->ring[5 + bytes], 0xaa);
        while (nic_send_room(sender) < 2) {
            inbox_poll(&pair->near);
        }
        if (pair->far.nic->receives_posted < pair->far.nic->receive_depth / 2) {
            operations->refill(pair->far.nic);
        }
    }
    assert_true(operations->post_written ? written == 0 || written > rounds / 2 : written == 0);
    assert_int_equal(sender->stats.wqes + sender->stats.written, sender->posted);
    assert_true(sender->stats.doorbells + sender->stats.written >= rounds);
    sender->operations->queue_pair_fail(sender);
    assert_null(sender->place);
}

/* Each is there when the receive of a WRITE with immediate after it is polled, and uses none. */
void test_plain_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 32, most, most + 1, 4096, 4097, 1u << 20};
    const uint32_t cases = sizeof(sizes) / sizeof(sizes[0]);
    for (uint32_t i = 0; i < 4 * cases; i++) {
        uint32_t bytes = sizes[i % cases];
        bool ring_between = i / cases % 2 == 1;
        struct nic_transfer plain = pair_write(pair, 3, 5, bytes, 0xdead);
        struct nic_transfer last = pair_write(pair, 0, PAIR_BYTES - 8, i % 2 ? 8 : 0, i);
        memset(pair->source, (int)i + 1, PAIR_BYTES);
        memset(pair->ring, 0xaa, PAIR_BYTES);
        operations->post_write(pair->sender, &plain, 0);
        if (ring_between) {
            operations->ring_doorbell(pair->sender);
        }
        operations->post_write_immediate(pair->sender, &last, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        inbox_wait(&pair->far, i + 1);
        assert_memory_equal(pair->ring + 5, pair->source + 3, bytes);
        assert_int_equal(pair->ring[4], 0xaa);
        assert_int_equal(pair->ring[5 + bytes], 0xaa);
        assert_int_equal(inbox_last(&pair->far)->kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(inbox_last(&pair->far)->immediate, i);
        assert_int_equal(inbox_last(&pair->far)->byte_count, last.bytes);
        inbox_wait_completed(&pair->near, pair->sender, 2 * (i + 1));
    }
    assert_int_equal(pair->sender->stats.inline_wqes, 4 * cases + 4 * 4);
    assert_int_equal(pair->far.nic->receives_posted, pair->far.nic->receive_depth - 4 * cases);
}

/* However short it is, the device reads it, and not who posts it. */
void test_foreign_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->inline_bytes_max;
    const uint32_t sizes[] = {0, 1, 32, most, most + 1, 4096};
    const uint32_t cases = sizeof(sizes) / sizeof(sizes[0]);
    for (uint32_t i = 0; i < cases; i++) {
        struct nic_transfer first = pair_write(pair, 3, 5, sizes[i], 0xdead);
        struct nic_transfer second = pair_write(pair, 5003, 5005, sizes[i], i);
        for (uint32_t at = 0; at < PAIR_BYTES; at++) {
            pair->source[at] = (uint8_t)(at * 7 + at / 251 + i);
        }
        memset(pair->ring, 0xaa, PAIR_BYTES);
        operations->post_foreign_write(pair->sender, &first, 0);
        operations->post_foreign_write(pair->sender, &second,
                                       NIC_POST_SIGNALED | NIC_POST_IMMEDIATE);
        operations->ring_doorbell(pair->sender);
        inbox_wait(&pair->far, i + 1);
        assert_int_equal(inbox_last(&pair->far)->kind, NIC_COMPLETION_RECEIVE);
        assert_int_equal(inbox_last(&pair->far)->immediate, i);
        assert_int_equal(inbox_last(&pair->far)->byte_count, sizes[i]);
        assert_memory_equal(pair->ring + 5, pair->source + 3, sizes[i]);
        assert_memory_equal(pair->ring + 5005, pair->source + 5003, sizes[i]);
        assert_int_equal(pair->ring[5 + sizes[i]], 0xaa);
        inbox_wait_completed(&pair->near, pair->sender, 2 * (i + 1));
    }
    assert_int_equal(pair->sender->stats.inline_wqes, 0);
    assert_int_equal(pair->sender->stats.wqes, 2 * cases);
}

/* In one piece where the port has messages of that length: simnic's has, Soft-RoCE's has not. */
void test_large_write(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    uint32_t most = pair->near.nic->message_bytes_max;
    uint8_t *from = pair_map(LARGE_BYTES);
    uint8_t *to = pair_map(LARGE_BYTES);
    struct nic_keys from_memory, to_memory;
    uint32_t posted = 0;
    pair_enroll(pair->near.nic, from, LARGE_BYTES, 0, &from_memory);
    pair_enroll(pair->far.nic, to, LARGE_BYTES, CRPC_ACCESS_LOCAL_WRITE | CRPC_ACCESS_REMOTE_WRITE,
                &to_memory);
    for (uint32_t i = 0; i < LARGE_BYTES / 4; i++) {
        ((uint32_t *)(void *)from)[i] = i * 2654435761u;
    }
    assert_in_range(most, 1u << 20, NIC_MESSAGE_BYTES_MAX);
    for (uint32_t at = 0; at < LARGE_BYTES; at += most) {
        const struct nic_transfer piece = {
            .local_address = (uint64_t)(uintptr_t)from + at,
            .remote_address = (uint64_t)(uintptr_t)to + at,
            .bytes = LARGE_BYTES - at < most ? LARGE_BYTES - at : most,
            .local_key = from_memory.local_key,
            .remote_key = to_memory.remote_key,
        };
        operations->post_write(pair->sender, &piece, 0);
        posted++;
    }
    struct nic_transfer last = pair_write(pair, 0, 0, 0, 16);
    operations->post_write_immediate(pair->sender, &last, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->far, 1);
    assert_int_equal(inbox_last(&pair->far)->immediate, 16);
    assert_memory_equal(from, to, LARGE_BYTES);
    inbox_wait_completed(&pair->near, pair->sender, posted + 1);
    print_message("# %u bytes in %u WQEs\n", LARGE_BYTES, posted);
    operations->memory_deregister(pair->near.nic, &from_memory);
    operations->memory_deregister(pair->far.nic, &to_memory);
    munmap(from, LARGE_BYTES);
    munmap(to, LARGE_BYTES);
}

void test_read(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic_transfer read = pair_write(pair, 128, 0, 64, 0);
    read.remote_address = (uint64_t)(uintptr_t)pair->box;
    read.remote_key = pair->box_memory.remote_key;
    for (uint32_t i = 0; i < 64; i++) {
        pair->box[i] = (uint8_t)(i + 100);
    }
    operations->post_read(pair->sender, &read, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->near, 1);
    assert_int_equal(inbox_last(&pair->near)->kind, NIC_COMPLETION_SEND);
    assert_memory_equal(pair->source + 128, pair->box, 64);
    inbox_expect_silence(&pair->far); /* the peer notices nothing */
}

/* One in eight asks for a completion, and each speaks for all before it. */
void test_signaling(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t i = 0; i < 20; i++) {
        struct nic_transfer write = pair_write(pair, 0, 64 * i, 32, i);
        operations->post_write_immediate(pair->sender, &write, 0);
    }
    operations->ring_doorbell(pair->sender);
    inbox_wait(&pair->far, 20);
    inbox_wait_completed(&pair->near, pair->sender, 16);
    inbox_expect_silence(&pair->near);
    assert_int_equal(pair->near.count, 2);
    assert_int_equal(pair->near.completions[0].completed, 8);
    assert_int_equal(pair->near.completions[1].completed, 16);
    assert_int_equal(nic_send_room(pair->sender), 60);
    /* The verbs driver hands over chains of four. */
    assert_int_equal(pair->sender->stats.doorbells, pair_driver() == CRPC_DRIVER_VERBS ? 5 : 1);

    struct nic_transfer write = pair_write(pair, 0, 0, 32, 20);
    operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, 21);
    assert_int_equal(nic_send_room(pair->sender), 64);
    assert_int_equal(pair->sender->stats.signaled_wqes, 3);
    inbox_wait(&pair->far, 21);
    for (uint32_t i = 0; i <= 20; i++) {
        assert_int_equal(pair->far.completions[i].immediate, i);
    }
}

/* One that asks for its own completion gets it, the others are covered by it. */
void test_plain_signaling(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t i = 0; i < 12; i++) {
        struct nic_transfer write = pair_write(pair, 0, 64 * i, 32, 0);
        operations->post_write(pair->sender, &write, i == 2 ? NIC_POST_SIGNALED : 0);
    }
    operations->ring_doorbell(pair->sender);
    inbox_wait_completed(&pair->near, pair->sender, 11); /* 3, and one in eight after it */
    inbox_expect_silence(&pair->near);
    assert_int_equal(pair->near.count, 2);
    assert_int_equal(pair->near.completions[0].completed, 3);
    inbox_expect_silence(&pair->far);
}

/* A thousand writes against 600 receives, taken and refilled as the engine does. */
void test_refill(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    struct nic *far = pair->far.nic;
    const uint64_t before = far->receive_wqes;
    uint32_t sent = 0;
    while (sent < 1000) {
        while (sent < 1000 && nic_send_room(pair->sender) > 0 && sent < pair->far.count + 100) {
            struct nic_transfer write = pair_write(pair, 0, 0, 16, sent++);
            operations->post_write_immediate(pair->sender, &write, 0);
        }
        operations->ring_doorbell(pair->sender);
        inbox_poll(&pair->near);
        inbox_poll(&pair->far);
        if (far->receives_posted < nic_receive_low_mark(far)) {
            operations->refill(far);
            assert_int_equal(far->receives_posted, far->receive_depth);
        }
    }
    inbox_wait(&pair->far, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(pair->far.completions[i].immediate, i);
    }
    operations->refill(far);
    assert_int_equal(far->receive_wqes, before + 1000);
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int passed_ms = 0;
    pair_pass(0);
    while (poll(&wait, 1, timeout_ms > 0 ? 1 : 0) == 0 && passed_ms++ < timeout_ms) {
        pair_pass(0);
    }
    return wait.revents & POLLIN;
}

void test_arm(void **state)
{
    struct pair *pair = *state;
    struct nic *far = pair->far.nic;
    const struct nic_operations *operations = far->operations;
    operations->disarm(far);             /* nothing there: must not block */
    for (uint32_t i = 0; i < 150; i++) { /* more than one batch of acknowledgements */
        struct nic_transfer write = pair_write(pair, 0, 0, 16, i);
        assert_false(readable(far->event_fd, 0));
        assert_int_equal(operations->arm(far), 0);
        inbox_poll(&pair->far);
        assert_int_equal(pair->far.count, i);
        assert_false(readable(far->event_fd, 0));
        operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
        operations->ring_doorbell(pair->sender);
        assert_true(readable(far->event_fd, PAIR_WAIT_S * 1000));
        operations->disarm(far);
        assert_false(readable(far->event_fd, 0));
        inbox_poll(&pair->far);
        assert_int_equal(pair->far.count, i + 1);
        inbox_wait_completed(&pair->near, pair->sender, i + 1);
        operations->refill(far);
    }
    /* The sending side sleeps as well. */
    struct nic *near = pair->near.nic;
    assert_int_equal(operations->arm(near), 0);
    struct nic_transfer write = pair_write(pair, 0, 0, 16, 0);
    operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
    operations->ring_doorbell(pair->sender);
    assert_true(readable(near->event_fd, PAIR_WAIT_S * 1000));
    operations->disarm(near);
    inbox_wait_completed(&pair->near, pair->sender, 151);
}
