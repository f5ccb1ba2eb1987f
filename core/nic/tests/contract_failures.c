/* contract_failures.c: what a driver does when something fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "pair.h"

static void send_one(struct pair *pair, const struct nic_transfer *write, uint32_t flags)
{
    const struct nic_operations *operations = pair->near.nic->operations;
    operations->post_write_immediate(pair->sender, write, flags);
    operations->ring_doorbell(pair->sender);
}

/* The first error is the cause, and the queue pair takes nothing more. */
static void expect_death(struct pair *pair, enum nic_error cause)
{
    uint32_t posted = pair->sender->posted;
    inbox_wait_completed(&pair->near, pair->sender, posted);
    const struct nic_completion *first = NULL;
    for (uint32_t i = 0; i < pair->near.count && !first; i++) {
        if (pair->near.completions[i].kind == NIC_COMPLETION_ERROR) {
            first = &pair->near.completions[i];
        }
    }
    assert_non_null(first);
    assert_int_equal(first->status, cause);
    assert_int_equal(first->queue_pair_number, pair->sender->number);
    assert_true(pair->sender->failed);
    assert_null(pair->sender->place); /* and so nothing is written, which would be discarded */

    struct nic_transfer write = pair_write(pair, 0, 0, 16, 0);
    send_one(pair, &write, NIC_POST_SIGNALED);
    assert_int_equal(pair->sender->posted, posted);
    inbox_expect_silence(&pair->near);
}

void test_wrong_key(void **state)
{
    struct pair *pair = *state;
    struct nic_transfer write = pair_write(pair, 0, 0, 32, 1);
    write.remote_key ^= 0x5500;
    send_one(pair, &write, 0); /* not signaled: an error is reported all the same */
    send_one(pair, &write, 0);
    expect_death(pair, NIC_ERROR_REMOTE_ACCESS);
}

/* The peer may read the mailbox but not write it. */
void test_access(void **state)
{
    struct pair *pair = *state;
    struct nic_transfer write = pair_write(pair, 0, 0, 32, 1);
    write.remote_address = (uint64_t)(uintptr_t)pair->box;
    write.remote_key = pair->box_memory.remote_key;
    send_one(pair, &write, NIC_POST_SIGNALED);
    expect_death(pair, NIC_ERROR_REMOTE_ACCESS);
    assert_int_equal(pair->box[0], 0);

    pair_reconnect(pair);
    pair->near.count = 0;
    write = pair_write(pair, 0, PAIR_BYTES - 16, 32, 1); /* half of it past the end */
    send_one(pair, &write, NIC_POST_SIGNALED);
    expect_death(pair, NIC_ERROR_REMOTE_ACCESS);
}

/* The same without immediate: the peer is told nothing, and its queue pair dies all the same. */
void test_plain_access(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t i = 0; i < 2; i++) {
        struct nic_transfer write = pair_write(pair, 0, PAIR_BYTES - 16, 32, 1);
        if (i == 1) {
            write.remote_address = (uint64_t)(uintptr_t)pair->box;
            write.remote_key = pair->box_memory.remote_key;
        }
        pair_reconnect(pair);
        pair->near.count = 0;
        operations->post_write(pair->sender, &write, 0);
        operations->ring_doorbell(pair->sender);
        expect_death(pair, NIC_ERROR_REMOTE_ACCESS);
        assert_int_equal(pair->box[0], 0);
        assert_int_equal(pair->ring[PAIR_BYTES - 16], 0);
    }
}

void test_peer_gone(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    const struct nic_transport impatient = {.retry_timeout = 10, .retry_count = 2};
    operations->queue_pair_destroy(pair->sender);
    operations->queue_pair_destroy(pair->receiver);
    assert_int_equal(
        nic_queue_pair_create(pair->near.nic, NULL, NULL, PAIR_RECEIVES, &pair->sender, NULL), 0);
    assert_int_equal(
        nic_queue_pair_create(pair->far.nic, NULL, NULL, PAIR_RECEIVES, &pair->receiver, NULL), 0);
    pair_connect(pair->sender, pair->receiver, &impatient);
    operations->queue_pair_destroy(pair->receiver);
    pair->receiver = NULL;
    struct nic_transfer write = pair_write(pair, 0, 0, 32, 1);
    send_one(pair, &write, 0);
    expect_death(pair, NIC_ERROR_RETRY);
}

static void wait_for_room(struct pair *pair)
{
    while (nic_send_room(pair->sender) == 0) {
        pair->near.count = 0;
        inbox_poll(&pair->near);
    }
}

/* Without a receive the write waits, and goes on when one is posted: rnr_retry 7 is for ever. */
void test_no_receive(void **state)
{
    struct pair *pair = *state;
    struct nic *far = pair->far.nic;
    uint32_t depth = pair_receives(far);
    for (uint32_t i = 0; i < depth; i++) {
        struct nic_transfer write = pair_write(pair, 0, 0, 16, i);
        wait_for_room(pair);
        send_one(pair, &write, 0);
    }
    inbox_wait(&pair->far, depth);
    assert_int_equal(far->receives_posted, 0);
    struct nic_transfer write = pair_write(pair, 0, 0, 16, depth);
    wait_for_room(pair);
    send_one(pair, &write, NIC_POST_SIGNALED);
    inbox_expect_silence(&pair->far);
    far->operations->refill(far);
    inbox_wait(&pair->far, depth + 1);
    assert_int_equal(inbox_last(&pair->far)->immediate, depth);
    inbox_wait_completed(&pair->near, pair->sender, depth + 1);
}

/* Signaled or not, rung or not: after a failure everything posted completes. */
void test_flush(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    for (uint32_t round = 0; round < 10; round++) {
        pair->near.count = 0;
        for (uint32_t i = 0; i < 30; i++) {
            struct nic_transfer write = pair_write(pair, 0, 0, 65536, i);
            operations->post_write_immediate(pair->sender, &write, 0);
        }
        operations->queue_pair_fail(pair->sender);
        inbox_wait_completed(&pair->near, pair->sender, 30);
        assert_int_equal(inbox_last(&pair->near)->kind, NIC_COMPLETION_ERROR);
        uint32_t before = 0;
        for (uint32_t i = 0; i < pair->near.count; i++) {
            const struct nic_completion *completion = &pair->near.completions[i];
            assert_true(completion->completed > before);
            before = completion->completed;
            assert_true(completion->kind == NIC_COMPLETION_SEND ||
                        completion->status == NIC_ERROR_FLUSHED);
        }
        pair_reconnect(pair);
        operations->refill(pair->far.nic);
        inbox_poll(&pair->far);
        pair->far.count = 0;
    }
}

/* Queue pairs are destroyed with completions waiting, while a second pair on the same nics goes on:
 * nothing of the dead is seen, nothing of the living is lost, and no receive gets lost either. */
void test_destroy_pending(void **state)
{
    struct pair *pair = *state;
    const struct nic_operations *operations = pair->near.nic->operations;
    static const struct nic_transport transport = {.retry_timeout = 14, .retry_count = 7};
    for (uint32_t round = 0; round < 50; round++) {
        struct nic_queue_pair *from, *to;
        struct nic_transfer write = pair_write(pair, 0, 0, 64, round);
        assert_int_equal(
            nic_queue_pair_create(pair->near.nic, NULL, NULL, PAIR_RECEIVES, &from, NULL), 0);
        assert_int_equal(nic_queue_pair_create(pair->far.nic, NULL, NULL, PAIR_RECEIVES, &to, NULL),
                         0);
        pair_connect(from, to, &transport);
        for (uint32_t i = 0; i < 3; i++) {
            operations->post_write_immediate(from, &write, NIC_POST_SIGNALED);
            operations->post_write_immediate(pair->sender, &write, NIC_POST_SIGNALED);
            operations->ring_doorbell(from);
            operations->ring_doorbell(pair->sender);
        }
        pair_pass(round % 3 * 2000); /* some have completed by then, some have not */
        operations->queue_pair_destroy(round % 2 ? from : to);
        operations->queue_pair_destroy(round % 2 ? to : from);
        if (round % 5 == 4) {
            inbox_wait(&pair->far, (round + 1) * 3);
            inbox_wait_completed(&pair->near, pair->sender, (round + 1) * 3);
            operations->refill(pair->far.nic);
        }
    }
    inbox_expect_silence(&pair->near);
    inbox_expect_silence(&pair->far);
    assert_int_equal(pair->far.count, 150);
    assert_int_equal(pair->near.count, 150);
    for (uint32_t i = 0; i < 150; i++) {
        assert_int_equal(pair->far.completions[i].queue_pair_number, pair->receiver->number);
        assert_int_equal(pair->far.completions[i].immediate, i / 3);
        assert_int_equal(pair->near.completions[i].queue_pair_number, pair->sender->number);
        assert_int_equal(pair->near.completions[i].completed, i + 1);
    }
    /* What the nic believes to be posted is there: that many writes pass, and one more does not. */
    pair->far.count = 0;
    const uint32_t receives = pair_receives(pair->far.nic);
    for (uint32_t i = 0; i <= receives; i++) {
        struct nic_transfer write = pair_write(pair, 0, 0, 16, i);
        wait_for_room(pair);
        send_one(pair, &write, 0);
    }
    inbox_wait(&pair->far, receives);
    inbox_expect_silence(&pair->far);
}
